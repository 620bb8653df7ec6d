"""Runs that diverge. If losses, gradients or parameters are NaN or infinite, a run neither uses nor saves them, and
reports why."""
import json
import math
import os
import shutil
import struct
import unittest

from ranks_job import RanksTest
from tessera_cli import main
from tiny_job import EVALUATED, FAILED, JOB, MOST_RANKS, TinyJobTest, read_tensors, safetensors, without_timing

EVERY_STEP = ["--save-strategy", "steps", "--save-steps", "1"]
# With this learning rate, the parameters are still finite after the first update, but the activations of step 2
# overflow.
TOO_FAST = ["--lr", "1e25", "--max-steps", "20", *EVERY_STEP]
MODEL = ("model", "model.safetensors")
KEPT = ("overwritten-run", *MODEL)  # the model of the previous run; a failed run does not delete it


def set_element(tensors, name, index, value):
    dtype, shape, data = tensors[name]
    assert dtype == "F32"
    tensors[name] = dtype, shape, data[:4 * index] + struct.pack("<f", value) + data[4 * index + 4:]


class DivergenceTest(TinyJobTest):
    def ends(self, output, *words, job=JOB):
        """Expects that the run ends with FAILED. Returns the last line of standard error, which must be an error, and
        the complete standard error."""
        code, _, err = self.run_tessera("train", *job, "--output-dir", output, *words)
        self.assertEqual(code, FAILED, err)
        self.assertNotIn("-nan", err)
        last = err.splitlines()[-1]
        self.assertTrue(last.startswith("error: "), err)
        self.assertEqual(err.count("error: "), 1)
        return last, err

    def model_of(self, name, **elements):
        """Copies plain/model to the folder `name` and changes elements: {tensor: (index, value)}, with "__" for "." in
        the name of a tensor. Returns the settings that choose the copy."""
        if not os.path.exists(self.path("plain")):
            self.train("plain", "--max-steps", "2", job=JOB)
        shutil.copytree(self.path("plain", "model"), self.path(name))
        tensors = read_tensors(self.path(name, "model.safetensors"))
        for tensor, (index, value) in elements.items():
            set_element(tensors, tensor.replace("__", "."), index, value)
        self.write(os.path.join(name, "model.safetensors"), safetensors(tensors))
        return ["--model", name, "--init", "pretrained"]

    def all_finite(self, *path):
        for dtype, _, data in read_tensors(self.path(*path)).values():
            self.assertEqual(dtype, "F32")
            if not all(map(math.isfinite, struct.unpack(f"<{len(data) // 4}f", data))):
                return False
        return True


class Skipped(DivergenceTest):
    def test_three_in_a_row_end_the_run(self):
        self.train("out", "--max-steps", "3", job=JOB)
        model = self.read("out", *MODEL)
        for words in [[], ["--max-grad-norm", "0"], ["--precision", "bf16"], ["--grad-accum", "2"],
                      ["--offload", "optimizer,gradients"],
                      ["--offload", "optimizer:file,gradients:file", "--offload-dir", "."]]:
            with self.subTest(words=words):
                last, err = self.ends("out", *TOO_FAST, "--resume", "none", "--overwrite", *words)
                self.assertRegex(last, r"^error: step 4: 3 updates in a row skipped: the loss is (nan|inf) and the norm of "
                                       r"the gradients nan\. Lower --lr \(now 1e\+25\), give a longer warm-up "
                                       r"\(--warmup-steps\) or a smaller --max-grad-norm")
                self.assertIn("No checkpoint of the run is known to be sound", last)
                for i, step in enumerate([2, 3, 4]):
                    self.assertRegex(err, rf"\nwarning: step {step} skipped: the loss is (nan|inf) and the norm of the gradients "
                                          r"nan\. The parameters stay as they are\. Skipped updates in a row: "
                                          rf"{i + 1} \(the run ends at 3: ")
                self.assertEqual([(record["step"], record["in_a_row"], record["grad_norm"])
                                  for record in self.metrics("out", "skipped")], [(2, 1, None), (3, 2, None), (4, 3, None)])
                self.assertEqual(self.read("out", *KEPT), model)
                self.assertFalse(os.path.exists(self.path("out", "model")))
                self.assertEqual(self.checkpoints("out"), [1, 2, 3])
                for step in [1, 2, 3]:
                    self.assertTrue(self.all_finite("out", f"checkpoint-{step}", "rank-00000-of-00001.safetensors"))

    def test_the_count_is_the_settings(self):
        last, _ = self.ends("one", *TOO_FAST, "--max-skipped-updates", "1")
        self.assertIn("error: step 2: 1 update in a row skipped: ", last)
        code, _, err = self.run_tessera("train", *EVALUATED, "--output-dir", "out", *TOO_FAST, "--max-skipped-updates", "0")
        self.assertEqual(code, 0, err)
        self.assertEqual(self.json_of("out", "summary.json")["skipped_steps"], 19)
        self.assertEqual(len(self.metrics("out", "skipped")), 19)
        self.assertIn("\nwarning: the last 19 updates of the run were skipped, because", err)
        # The mean excludes losses that are not finite.
        self.assertEqual(self.json_of("out", "summary.json")["train_loss"], self.metrics("out", "train")[0]["loss"])

    def test_the_count_is_resumed(self):
        self.train("out", *TOO_FAST, "--max-steps", "20", "--max-skipped-updates", "0", "--save-total-limit", "0", job=JOB)
        for step in range(4, 21):
            shutil.rmtree(self.path("out", f"checkpoint-{step}"))
        state = self.json_of("out", "checkpoint-3", "trainer_state.json")
        self.assertEqual(state["health"]["skipped_in_a_row"], 2)
        last, err = self.ends("out", *TOO_FAST)
        self.assertIn("error: step 4: 3 updates in a row skipped", last)
        self.assertEqual(err.count(" skipped: "), 2)

    def test_a_loss_scale_that_cannot_help(self):
        """In fp16, an overflow counts towards --max-skipped-updates if the loss scale cannot fall, or if the loss
        itself overflows."""
        last, err = self.ends("fixed", "--precision", "fp16", "--loss-scale", "16777216")
        self.assertRegex(last, r"error: step 3: 3 updates in a row skipped: the loss is \d.*, or use --precision bf16 or fp32")
        # Each of the two blocks adds a bias of 60000 to the residual stream. The sum exceeds 65504, the largest fp16
        # number.
        words = self.model_of("big", **{f"transformer__h__{i}__mlp__dense_4h_to_h__bias": (3, 60000) for i in (0, 1)})
        last, err = self.ends("loss", *words, "--precision", "fp16")
        self.assertRegex(last, r"error: step 3: 3 updates in a row skipped: the loss is (nan|inf)")


class NoTargets(DivergenceTest):
    """--truncation right cuts off the answers of the long rows, so no token of these rows has a loss."""
    LONG, SHORT = "Anna lives in Oslo and works as a baker. " * 5, "Anna lives in Oslo."

    def setUp(self):
        super().setUp()
        rows = [{"context": context, "question": "Where?", "answers": {"text": ["Oslo"]}}
                for context in [*[self.LONG] * 4, self.SHORT, self.LONG, self.SHORT, self.LONG]]
        self.write("cut.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.job = [*JOB, *self.model_of("start"), "--dataset", "cut.jsonl", "--truncation", "right", "--max-length", "36",
                    "--no-shuffle", "--batch-size", "1", "--weight-decay", "0.5", "--lr-schedule", "constant"]

    def losses(self, output):
        return [record["loss"] for record in self.metrics(output, "train")]

    def test_such_a_step_changes_nothing(self):
        for i, words in enumerate([["--max-steps", "4"], ["--max-steps", "2", "--grad-accum", "2"],
                                   ["--max-steps", "1", "--batch-size", "4", "--precision", "fp16"],
                                   ["--max-steps", "4", "--precision", "bf16", "--offload", "optimizer,gradients"]]):
            with self.subTest(words=words):
                output = f"out{i}"
                code, out, err = self.run_tessera("train", *self.job, "--output-dir", output, *words)
                self.assertEqual(code, 0, err)
                self.assertNotIn("nan", out)  # the Trainer's lines leave the loss out
                self.assertEqual(out.count("{'learning_rate': "), steps := int(words[1]))
                if "fp16" not in words:  # fp16 and its rest do not hold the last bits of the smallest fp32 numbers
                    self.assertTrue(read_tensors(self.path(output, *MODEL)) == read_tensors(self.path("start", MODEL[1])))
                summary = self.json_of(output, "summary.json")
                self.assertEqual((summary["steps_without_targets"], summary["skipped_steps"]), (steps, 0))
                self.assertEqual(summary.get("loss_scale", 65536), 65536)
                self.assertIsNone(summary["train_loss"])
                self.assertEqual(self.losses(output), [None] * steps)
                self.assertEqual(self.metrics(output, "skipped"), [])
                self.assertEqual(err.count("warning: no token of step 1 has a loss."), 1, err)
                self.assertIn(f"warning: in {steps} of {steps} steps, no token has a loss.", err)

    def test_such_a_step_counts_in_no_mean(self):
        # Only the rows with a loss train the same model, bit for bit.
        self.write("two.jsonl", "".join(self.read("cut.jsonl").decode().splitlines(True)[i] for i in (4, 6)))
        self.train("two", "--epochs", "1", job=[*self.job, "--dataset", "two.jsonl"])
        evaluated = ["--eval-dataset", "two.jsonl", "--eval-strategy", "steps", "--eval-steps", "4", "--epochs", "1"]
        self.train("all", *evaluated, job=self.job)
        losses = self.losses("all")
        self.assertEqual([loss is None for loss in losses], [True] * 4 + [False, True, False, True])
        summary = self.json_of("all", "summary.json")
        mean = (losses[4] + losses[6]) / 2
        self.assertEqual(summary["train_loss"], mean)
        self.assertEqual([row["train_loss"] for row in summary["epochs"]], [None, mean])
        self.assertEqual((summary["steps"], summary["steps_without_targets"]), (8, 6))
        self.assertEqual(self.read("two", *MODEL), self.read("all", *MODEL))
        self.train("resumed", *evaluated, "--max-steps", "6", job=self.job)
        self.train("resumed", *evaluated, job=self.job)
        records = [[line for line in without_timing(self.path(name, "metrics.jsonl")) if '"kind": "train"' in line]
                   for name in ("all", "resumed")]
        self.assertEqual(*records)
        self.assertEqual(self.json_of("resumed", "summary.json")["steps_without_targets"], 6)
        # A line that covers several steps has the mean of the losses that exist.
        self.train("window", "--epochs", "1", "--logging-steps", "8", job=self.job)
        self.assertEqual(self.losses("window"), [mean])


class Sound(DivergenceTest):
    def test_rotation_keeps_the_last_sound_checkpoint(self):
        """A checkpoint is sound if a later step has updated the parameters. One update makes the parameters too large,
        and all later updates are skipped. The last sound checkpoint was saved before this update. The run keeps it,
        although newer checkpoints exist and --save-total-limit is 1."""
        # The learning rate is tiny at first and grows during the warm-up, until an update makes the parameters too
        # large.
        words = ["--lr", "1e25", "--warmup-steps", "12", "--warmup-type", "log", "--warmup-min-lr", "1e-12", "--max-steps",
                 "16", *EVERY_STEP]
        for more in [[], ["--save-async"]]:
            with self.subTest(more=more):
                last, _ = self.ends("out", *words, *more, "--save-total-limit", "1", "--resume", "none", "--overwrite")
                sound = int(last.split("The last sound checkpoint is out/checkpoint-")[1].split(".")[0])
                skips = [record["step"] for record in self.metrics("out", "skipped")]
                self.assertGreater(sound, 0)
                self.assertEqual(sound, skips[0] - 2)
                # The run removes old checkpoints when the step after a save has succeeded. The last step failed, so
                # old checkpoints may remain.
                self.assertLessEqual({sound, skips[-1] - 1}, set(self.checkpoints("out")))
                # The checkpoint that the message names is usable.
                self.succeeds("export", "--model", "config.json", "--tokenizer", "tok", "--checkpoint",
                              f"out/checkpoint-{sound}", "--output-dir", f"start{len(more)}")
                self.train(f"again{len(more)}", "--model", f"start{len(more)}", "--init", "pretrained", "--max-steps", "2",
                           job=[word for word in JOB if word not in ("--init", "random")])
                # A run that resumes keeps the sound checkpoint and names it.
                last, _ = self.ends("out", *words, *more, "--save-total-limit", "1")
                self.assertIn(f"The last sound checkpoint is out/checkpoint-{sound}. ", last)
                self.assertEqual(self.checkpoints("out"), [sound, skips[-1] - 1])

    def test_a_hopeless_loss_ends_the_run(self):
        """The learning rate grows until the loss explodes. The run ends, keeps the checkpoint before the explosion, and
        names it. A resumed run decides in the same way."""
        words = ["--lr", "1e3", "--warmup-steps", "10", "--warmup-type", "log", "--warmup-min-lr", "1e-12", "--max-steps",
                 "40", *EVERY_STEP, "--save-total-limit", "1"]
        last, err = self.ends("out", *words)
        self.assertRegex(last, r"^error: step \d+: training has diverged: the loss is \d.*--no-stop-on-divergence.* Lower --lr \(now 1000\)")
        self.assertEqual(err.count("training diverges"), 1, err)
        sound = int(last.split("The last sound checkpoint is out/checkpoint-")[1].split(".")[0])
        losses = [record["loss"] for record in self.metrics("out", "train")]
        self.assertLess(max(losses[:sound + 1]), 10)
        self.assertGreater(min(losses[-3:]), 2 * math.log(400))
        self.assertLessEqual({sound, len(losses)}, set(self.checkpoints("out")))
        again, err = self.ends("out", *words)
        self.assertEqual((again, err.count("training diverges")), (last, 0))
        self.assertEqual(self.checkpoints("out"), [sound, len(losses)])
        # The advice works: a new run begins from the checkpoint.
        code, _, err = self.run_tessera("train", *JOB, "--resume", f"out/checkpoint-{sound}", "--output-dir", "lower",
                                        "--max-steps", str(sound + 2))
        self.assertEqual(code, 0, err)
        # Without the rule, the run only warns. The short run ends before the rule of its middle applies.
        # How large the loss then becomes depends on the processor, so updates may also be skipped.
        words = [*words, "--max-steps", "12", "--no-stop-on-divergence", "--max-skipped-updates", "100"]
        code, _, err = self.run_tessera("train", *JOB, *words, "--output-dir", "on")
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("training diverges"), 1, err)
        self.assertIn("\nwarning: the run ends with a loss that has diverged: the loss is ", err)
        last, _ = self.ends("short", "--lr", "1e3", "--max-steps", "3")
        self.assertRegex(last, r"^error: step 3: training has diverged: .* No checkpoint of the run is known to be sound")
        self.assertFalse(os.path.exists(self.path("short", "model")))
        code, _, err = self.run_tessera("train", *JOB, "--output-dir", "usual", "--epochs", "3")
        self.assertEqual((code, err.count("warning")), (0, 0), err)

    def test_an_explosion_that_only_the_evaluation_sees(self):
        """No step has a loss after the last update. The evaluation at the end counts, too."""
        words = ["--max-steps", "1", "--eval-strategy", "epoch", "--max-grad-norm", "0"]
        last, err = self.ends("out", "--lr", "30", *words, job=EVALUATED)
        self.assertRegex(last, r"^error: step 1: training has diverged: the loss of the last evaluation is \d{3,}.* The median of "
                               r"the last loss is 5\.\d+, .* Lower --lr \(now 30\)")
        self.assertFalse(os.path.exists(self.path("out", "model")))
        again, _ = self.ends("out", "--lr", "30", *words, job=EVALUATED)  # the checkpoint of the last step knows it
        self.assertEqual(again, last)
        for i, more in enumerate([["--lr", "30", "--no-stop-on-divergence"], ["--lr", "1"]]):
            code, _, err = self.run_tessera("train", *EVALUATED, *words, *more, "--output-dir", f"warned{i}")
            self.assertEqual(code, 0, err)
            self.assertIn("\nwarning: the run ends with a loss that has diverged: the loss of the last evaluation is ", err)
        code, _, err = self.run_tessera("train", *EVALUATED, *words, "--output-dir", "usual")
        self.assertEqual((code, err.count("warning")), (0, 0), err)

    def test_no_evaluation_that_is_not_finite_is_the_best(self):
        words = [*TOO_FAST, "--max-steps", "3", "--eval-strategy", "steps", "--eval-steps", "1", "--load-best-model-at-end"]
        for metric in ["eval_loss", "f1"]:
            with self.subTest(metric=metric):
                code, _, err = self.run_tessera("train", *EVALUATED, "--output-dir", metric, *words,
                                                "--metric-for-best-model", metric)
                self.assertEqual(code, 0, err)
                self.assertEqual([record["eval_loss"] for record in self.metrics(metric, "eval")], [None] * 3)
                self.assertEqual(err.count("warning: the evaluation's loss is nan"), 3)
                self.assertEqual(self.json_of(metric, "summary.json")["best_step"], 0)


class Parameters(DivergenceTest):
    def test_an_update_that_overflows(self):
        """An update makes parameters infinite. The run then writes neither model nor checkpoint."""
        self.train("out", "--max-steps", "2", "--save-strategy", "no", job=JOB)
        before = self.read("out", *MODEL)
        for words in [["--max-steps", "1", "--save-strategy", "no"], EVERY_STEP, [*EVERY_STEP, "--save-async"],
                      ["--max-steps", "1", "--save-strategy", "no", "--precision", "bf16"],
                      [*EVERY_STEP, "--precision", "fp16", "--offload", "optimizer:file,gradients", "--offload-dir", "."]]:
            with self.subTest(words=words):
                last, _ = self.ends("out", "--lr", "1e39", "--resume", "none", "--overwrite", *words)
                self.assertRegex(last, r"^error: step 1: parameters of (root|h\.\d) are NaN or infinite, and are not saved\. Lower --lr")
                self.assertEqual(self.read("out", *KEPT), before)
                self.assertFalse(os.path.exists(self.path("out", "model")))
                self.assertEqual(self.checkpoints("out"), [])
                self.assert_tidy("out")

    def test_a_model_that_is_not_finite_is_refused(self):
        name = "transformer.h.1.self_attention.dense.weight"
        for i, (value, text) in enumerate([(math.nan, "NaN"), (-math.inf, "infinity")]):
            model = self.model_of(f"bad{i}", transformer__h__1__self_attention__dense__weight=(17, value))
            message = f'bad{i}/model.safetensors: tensor "{name}" contains {text} at element 17. The file is damaged, or'
            self.fails(3, message, "train", *JOB, "--output-dir", "out", *model)
            self.fails(3, message, "eval", *model, "--tokenizer", "tok", "--eval-dataset", "eval.jsonl")
            self.assertEqual(os.listdir(self.path("out")), [])

    def test_what_the_saved_type_does_not_hold(self):
        words = self.model_of("large", transformer__ln_f__bias=(3, 70000))
        self.train("out", *words, "--max-steps", "1", job=JOB)
        before = self.read("out", *MODEL)
        last, _ = self.ends("out", *words, "--max-steps", "1", "--save-dtype", "fp16", "--resume", "none", "--overwrite")
        self.assertRegex(last, r'^error: out/model: is not written: tensor "ln_f\.bias" is (7\d{4}|69\d{3}).* at element 3, but '
                               r'the largest fp16 number is 65504\. Give --save-dtype fp32')
        self.assertEqual(self.read("out", *KEPT), before)
        self.assertFalse(os.path.exists(self.path("out", "model")))
        self.train("out", *words, "--max-steps", "1", "--save-dtype", "bf16", "--resume", "none", "--overwrite", job=JOB)


@unittest.skipIf(MOST_RANKS < 2, "needs two ranks")
class Ranks(RanksTest):
    def test_all_skip_and_end_alike(self):
        for ranks, words in [(2, ["--strategy", "no_shard"]), (2, ["--strategy", "zero1", "--offload", "optimizer"]),
                             (4, ["--strategy", "full_shard", "--save-async"]),
                             (4, ["--strategy", "hybrid_shard", "--shard-group-size", "2", "--precision", "bf16"])]:
            if ranks > MOST_RANKS:
                continue
            with self.subTest(ranks=ranks, words=words):
                job = [*JOB, "--resume", "none", "--overwrite", *words]
                code, err = self.start("out", "--max-steps", "3", ranks=ranks, job=job).end()
                self.assertEqual(code, 0, err)
                before = self.read("out", *MODEL)
                code, err = self.start("out", *TOO_FAST, ranks=ranks, job=job).end()
                self.assertEqual(code, FAILED, err)
                self.assert_one_error(err, r"rank \d: step 4: 3 updates in a row skipped: the loss is (nan|inf) ")
                self.assertEqual(err.count("warning: step "), 3)  # only rank 0 reports
                self.assertEqual([record["in_a_row"] for record in self.metrics("out", "skipped")], [1, 2, 3])
                self.assertEqual(self.checkpoints("out"), [1, 2, 3])
                code, err = self.start("out", *TOO_FAST, "--lr", "1e39", ranks=ranks, job=job).end()
                self.assertEqual(code, FAILED, err)
                self.assert_one_error(err, r"rank \d: step 1: parameters of (root|h\.\d) are NaN or infinite, and are not saved")
                self.assertEqual(self.checkpoints("out"), [])
                self.assertEqual(self.read("out", *KEPT), before)
                self.assertFalse(os.path.exists(self.path("out", "model")))


if __name__ == "__main__":
    main()
