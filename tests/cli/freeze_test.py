"""Frozen parameters (--freeze) and untied heads."""
import json

from tessera_cli import main
from tiny_job import GPT, JOB, USAGE, TinyJobTest, read_tensors

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

        # A checkpoint also holds the frozen tensors. Exporting the last checkpoint therefore gives the saved model. A run
        # that ended after 3 steps and continued from its checkpoint gives the same model as a run without a break.
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
