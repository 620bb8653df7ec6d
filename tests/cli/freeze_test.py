"""Frozen parameters (--freeze) and untied heads."""
import json
import os
import random
import shutil

from tessera_cli import main
from tiny_job import GPT, INPUT, JOB, USAGE, TinyJobTest, flip_a_bit, read_tensors

RUN = JOB + ["--eval-dataset", "eval.jsonl", "--max-steps", "6", "--save-strategy", "steps", "--save-steps", "3",
             "--save-total-limit", "0"]
FROZEN = "word_embeddings*,h.0.*,transformer.ln_f.bias"


class Freeze(TinyJobTest):
    def tensors(self, *folder):
        return read_tensors(self.path(*folder, "model.safetensors"))

    def is_frozen(self, name):
        name = name.removeprefix("transformer.")
        return name.startswith(("word_embeddings", "h.0.")) or name == "ln_f.bias"

    def test_frozen_tensors_keep_their_bits(self):
        self.succeeds("train", *RUN, "--output-dir", "first", "--max-steps", "1", "--lr", "0")
        before = self.tensors("first", "model")
        job = [*RUN, "--init", "pretrained", "--model", "first/model", "--tokenizer", "first/model/tokenizer.json"]
        self.succeeds("train", *job, "--output-dir", "out", "--freeze", FROZEN)
        after = self.tensors("out", "model")
        self.assertEqual(sorted(after), sorted(before))
        for name in before:
            self.assertEqual(before[name] == after[name], self.is_frozen(name), name)
        summary = self.json_of("out", "summary.json")
        trained = sum(len(data) // 4 for name, (_, _, data) in before.items() if not self.is_frozen(name))
        self.assertEqual(summary["num_trainable_parameters"], trained)
        self.assertLess(trained, summary["num_parameters"])
        plan = json.loads(self.succeeds("plan", *job, "--freeze", FROZEN, "--json"))
        self.assertEqual(plan["num_trainable_parameters"], trained)

        # A checkpoint refers to the model's files for the frozen tensors. Exporting the last checkpoint gives the saved
        # model. A run that ended after 3 steps and continued from its checkpoint gives the same model as a run without a
        # break.
        self.assertFalse([name for name in self.arrays("out", 6) if name.startswith("frozen/")])
        self.succeeds("export", "--checkpoint", "out/checkpoint-6", "--model", "first/model", "--output-dir", "exported")
        self.assertEqual(self.tensors("exported"), after)
        self.succeeds("train", *job, "--output-dir", "half", "--freeze", FROZEN, "--max-steps", "3", "--lr-schedule",
                      "constant")
        self.succeeds("train", *job, "--output-dir", "half", "--freeze", FROZEN, "--lr-schedule", "constant")
        self.succeeds("train", *job, "--output-dir", "complete", "--freeze", FROZEN, "--lr-schedule", "constant")
        self.assertEqual(self.tensors("half", "model"), self.tensors("complete", "model"))
        # A run that began with --freeze cannot continue without it, or with another value of it.
        for words in ([], ["--freeze", "h.0.*"]):
            self.fails(USAGE, "freeze", "train", *job, "--output-dir", "out", "--max-steps", "9", *words)

    def arrays(self, output, step):
        """{name: type} of the arrays that a checkpoint of one rank holds."""
        tensors = read_tensors(self.path(output, f"checkpoint-{step}", "rank-00000-of-00001.safetensors"))
        return {name: dtype for name, (dtype, _, _) in tensors.items()}

    def test_checkpoints_refer_to_unchanged_files(self):
        self.succeeds("train", *RUN, "--output-dir", "first", "--max-steps", "1", "--precision", "fp32")
        shutil.copytree(self.path("first", "model"), self.path("base"))
        job = [*RUN, "--init", "pretrained", "--model", "base", "--freeze", FROZEN, "--precision", "bf16"]
        self.succeeds("train", *job, "--output-dir", "out", "--save-async")
        self.assertFalse([name for name in self.arrays("out", 6) if name.startswith("frozen/")])
        # The copy of the checkpoint in host memory is as large as planned.
        plan = json.loads(self.succeeds("plan", *job, "--save-async", "--json"))["first_rank"]["host"]
        self.assertEqual(max(plan[phase]["staging"] for phase in plan if phase not in ("load", "resume")),
                         self.json_of("out", "summary.json")["host_ledger_peak_bytes"]["staging"])
        words = ["eval", "--eval-dataset", "eval.jsonl", "--json", "--model", "out/checkpoint-6"]
        loss = json.loads(self.succeeds(*words, "--precision", "bf16"))["eval_loss"]
        expected = json.loads(self.succeeds(*words[:-1], "out/model", "--precision", "bf16"))["eval_loss"]
        self.assertEqual(loss, expected)
        # The export has the bits of the run, which rounded the tensors of the files to bf16.
        export = ["export", "--checkpoint", "out/checkpoint-6", "--output-dir", "exported"]
        self.succeeds(*export)
        self.assertEqual(self.tensors("exported"), self.tensors("out", "model"))

        os.rename(self.path("base"), self.path("elsewhere"))
        more = ["train", *job, "--output-dir", "out", "--max-steps", "9", "--lr-schedule", "constant"]
        of_new_run = [*more, "--model", "elsewhere", "--resume", "out", "--output-dir", "other"]
        for command in (export, words, of_new_run):
            self.fails(INPUT, "checkpoint-6 needs this file: it has frozen tensors only there. Put the file back as it was. "
                              "If its folder has moved, link it: ln -s NEW_FOLDER /", *command)
        os.symlink("elsewhere", self.path("base"))
        self.succeeds(*of_new_run)
        self.assertEqual([name for name in self.arrays("other", 9) if name.startswith("frozen/")], [])
        flip_a_bit(self.path("base", "model.safetensors"), random.Random(1))
        for command in (export, words, [*of_new_run, "--output-dir", "third"]):
            self.fails(INPUT, "differ from what was written", *command)
        self.assertEqual(self.set_aside("out"), [])

    def test_checkpoints_hold_frozen_tensors_that_no_file_keeps(self):
        self.succeeds("train", *RUN, "--output-dir", "random", "--freeze", FROZEN, "--precision", "bf16")
        arrays = self.arrays("random", 6)
        self.assertEqual({arrays[name] for name in arrays if name.startswith("frozen/")}, {"BF16"})
        self.assertEqual(arrays["parameters/block.1"], "F32")
        self.succeeds("export", "--checkpoint", "random/checkpoint-6", "--model", "random/model", "--output-dir", "exported")
        self.assertEqual(self.tensors("exported"), self.tensors("random", "model"))
        # The run begins with a checkpoint, which the other run may remove.
        self.succeeds("train", *RUN, "--init", "pretrained", "--freeze", FROZEN, "--model", "random/checkpoint-6",
                      "--output-dir", "second")
        self.assertIn("frozen/block.0", self.arrays("second", 6))

    def test_patterns(self):
        for pattern, message in [
            ("word_embedings.weight", 'no tensor of the model has a name like "word_embedings.weight". Did you mean '
                                      '"word_embeddings.weight"?'),
            ("h.0.*,h.9.*", 'no tensor of the model has a name like "h.9.*"'),
            ("*", '"*" freezes every tensor of the model'),
        ]:
            self.fails(USAGE, message, "train", *RUN, "--output-dir", "out", "--freeze", pattern)
            self.fails(USAGE, message, "plan", *RUN, "--freeze", pattern)


class UntiedHead(TinyJobTest):
    def test_gpt_with_a_head_of_its_own(self):
        self.succeeds("train", *GPT, "--max-steps", "4", "--output-dir", "out", "--no-tie-word-embeddings")
        tensors = read_tensors(self.path("out", "model", "model.safetensors"))
        # The head has the shape of the embedding, but other values.
        self.assertEqual(tensors["lm_head.weight"][1], tensors["token_embedding.weight"][1])
        self.assertNotEqual(tensors["lm_head.weight"][2], tensors["token_embedding.weight"][2])
        self.assertFalse(self.json_of("out", "model", "config.json")["tie_word_embeddings"])
        words = ["eval", "--eval-dataset", "eval.jsonl", "--json", "--model", "out/model"]
        self.assertGreater(json.loads(self.succeeds(*words))["eval_loss"], 0)


if __name__ == "__main__":
    main()
