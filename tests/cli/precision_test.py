"""Training and evaluation in 16 bits: the results are close to fp32, loss scaling is reported and saved, and the plan
is exact."""
import json
import os
import shutil
import unittest

from tessera_cli import main
from tiny_job import EVALUATED, GPT, HAS_FLOAT8, JOB, MOST_RANKS, ON_GPU, TinyJobTest, questions, read_tensors, without_timing

NOTE, NOTED = "The CPU emulates ", 0 if ON_GPU else 1
FP16 = EVALUATED + ["--precision", "fp16", "--epochs", "6", "--save-strategy", "steps", "--save-steps", "4"]
# With this window, the loss scale doubles again soon after each overflow. Gradients therefore overflow repeatedly, not
# only at the start.
RESTLESS = ["--initial-scale-power", "24", "--loss-scale-window", "2"]


class PrecisionTest(TinyJobTest):
    def copy_until(self, step, whole, output):
        """Copies the folder `whole` of a finished run to `output`. Removes from the copy what the run wrote after
        `step`, except the metrics."""
        shutil.copytree(self.path(whole), self.path(output))
        for later in self.checkpoints(output):
            if later > step:
                shutil.rmtree(self.path(output, f"checkpoint-{later}"))
        shutil.rmtree(self.path(output, "model"))
        os.remove(self.path(output, "summary.json"))


class Training(PrecisionTest):
    def test_close_to_single_precision(self):
        """In the first step, the loss in 16 bits has a relative error of at most 4 u compared with the loss in fp32. u
        is the rounding error of the 16-bit type. tests/unit/engine/halves_test.cc gives the reason. Later losses may
        differ more, so the test only checks that the loss falls."""
        self.train("fp32", "--epochs", "2")
        single = self.metrics("fp32", "train")
        for name, u in [("bf16", 2**-8), ("fp16", 2**-11), ("bf16 bf16", 2**-8)]:
            with self.subTest(name=name):
                precision, states = name.split()[0], name.split()[1:]
                code, _, err = self.run_tessera("train", *EVALUATED, "--epochs", "2", "--precision", precision,
                                                "--output-dir", name, *(["--optimizer-states"] + states if states else []))
                self.assertEqual((code, err.count(NOTE)), (0, NOTED), err)
                losses = [record["loss"] for record in self.metrics(name, "train")]
                self.assertAlmostEqual(losses[0], single[0]["loss"], delta=4 * u * single[0]["loss"])
                self.assertNotEqual(losses[0], single[0]["loss"])
                self.assertLess(losses[-1], losses[0] - 0.5)

    def test_plan_is_what_happens(self):
        for words in [["--precision", "bf16"], ["--precision", "fp16", "--activation-checkpointing", "block"],
                      ["--precision", "fp16", "--activation-checkpointing", "1"],
                      ["--precision", "bf16", "--activation-checkpointing", "mlp,attention=1"],
                      ["--precision", "bf16", "--optimizer-states", "bf16", "--save-async"],
                      *([["--precision", "bf16", "--matmul-precision", "fp8"]] if HAS_FLOAT8 else [])]:
            with self.subTest(words=words):
                self.train("out", *words, "--epochs", "1", "--resume", "none", "--overwrite")
                measured = self.json_of("out", "summary.json")["ledger_peak_bytes"]
                plan = json.loads(self.succeeds("plan", *EVALUATED, *words, "--json"))
                measured.pop("total")  # plan_test.py compares the total
                for category, peak in measured.items():
                    self.assertEqual(max(phase[category] for phase in plan["first_rank"]["device"].values()), peak, category)

    def test_products_in_8_bits(self):
        """Rounding a factor to 8 bits has a relative error of at most 2^-4, with a random sign. A loss averages over many
        products, so it changes by less than one such error."""
        words = [*EVALUATED, "--precision", "bf16", "--epochs", "2", "--threads", "2"]
        if not HAS_FLOAT8:
            self.skipTest("the GPU has no products in 8 bits")
        fp8 = ["--matmul-precision", "fp8"]
        self.train("bf16", *words)
        self.train("fp8", *words, *fp8)
        losses = {run: [record["loss"] for record in self.metrics(run, "train")] for run in ("bf16", "fp8")}
        self.assertNotEqual(losses["fp8"], losses["bf16"])
        for loss, wide in zip(losses["fp8"], losses["bf16"]):
            self.assertAlmostEqual(loss, wide, delta=2**-4 * losses["bf16"][0])
        self.assertLess(losses["fp8"][-1], losses["fp8"][0] - 0.5)
        # Recomputation and sharding change no bit.
        self.train("again", *words, *fp8, "--activation-checkpointing", "block=1,mlp", "--strategy", "full_shard",
                   "--offload", "optimizer:host,parameters:host")
        self.assertEqual(without_timing(self.path("again", "metrics.jsonl")), without_timing(self.path("fp8", "metrics.jsonl")))
        plan = json.loads(self.succeeds("plan", *words, *fp8, "--json"))
        self.assertEqual((plan["precision"], plan["matmul_precision"]), ("bf16", "fp8"))
        self.assertIn(f" in bf16 with fp8 products on {'a GPU' if ON_GPU else 'the CPU'}; ", self.succeeds("plan", *words, *fp8))
        # Evaluation reads the model that was saved, so it is the same for a model that was trained without fp8.
        for run in ("bf16", "fp8"):
            out = self.succeeds("eval", "--model", run + "/model", "--precision", "bf16", "--eval-dataset", "eval.jsonl", "--json")
            self.assertEqual(json.loads(out)["eval_loss"], self.json_of(run, "summary.json")["eval_loss"])

    def test_products_in_8_bits_that_are_refused(self):
        fp8 = ["--matmul-precision", "fp8"]
        for precision in ("fp32", "fp16"):
            self.fails(2, f'--matmul-precision: "fp8" needs the precision bf16, but the precision is "{precision}". Give '
                          "--precision bf16", "train", *EVALUATED, *fp8, "--precision", precision, "--output-dir", "out")
        self.fails(2, '--precision: "fp8" is not supported. Use --precision bf16 --matmul-precision fp8', "train", *EVALUATED, "--precision", "fp8",
                   "--output-dir", "out")
        odd = ["--model", "gpt", *GPT[2:], "--ff-dim", "40", "--precision", "bf16", *fp8]
        for verb in ("plan", "train"):
            self.fails(2, "--matmul-precision: fp8 needs layers whose sizes are multiples of 16, but "
                          "there are 16 inputs and 40 outputs in transformer.layers.0.linear1. Leave the setting out", verb, *odd,
                       *(["--output-dir", "out"] if verb == "train" else []))
        gather = [*EVALUATED, "--precision", "bf16", "--gather-dtype", "fp8", "--output-dir", "out"]
        for words, message in [
                (["--strategy", "full_shard"], 'needs products in fp8, but the matmul_precision is "as-precision". Give --matmul-precision fp8'),
                ([*fp8, "--strategy", "zero2"], 'only sharded parameters are gathered for products, but the strategy "zero2" does not '
                                                "shard them. Give --strategy full_shard"),
                ([*fp8, "--strategy", "full_shard", "--offload", "parameters"],
                 'needs parameters on the device, but the offload is "parameters:host". Leave parameters out of --offload'),
                ([*fp8, "--strategy", "full_shard", "--nproc", "2", "--adapter", "lora", "--base-dtype", "nf4"],
                 "the blocks have no weights that are gathered in 16 bits. Leave the setting out")]:
            self.fails(2, message, "plan", *gather[:-2], *words)
        model = ["--model", "bloom-560m", "--precision", "bf16", *fp8]
        self.assertIn("on a GPU", self.succeeds("plan", *model, "--machine", "h200"))
        self.fails(2, "--matmul-precision: fp8 needs a GPU with compute capability 9.0, such as an H100 or H200. The NVIDIA A100 80 GB has "
                      "another one. Leave the setting out", "plan", *model, "--machine", "a100-80")
        self.train("wide", *EVALUATED, "--precision", "bf16", "--epochs", "1")
        self.fails(2, 'matmul_precision = "as-precision", and this run has "fp8"', "train", *EVALUATED, "--precision", "bf16",
                   "--epochs", "2", *fp8, "--output-dir", "wide")

    def test_the_saved_model_is_the_master(self):
        """The saved model has the fp32 masters of the parameters. eval rounds them to bf16 as the training run does, so
        it gets the same metrics. generate gives the same answer to a question as eval."""
        self.train("out", "--precision", "bf16", "--epochs", "2")
        words = ["--model", "out/model", "--precision", "bf16", "--max-new-tokens", "5"]
        code, out, err = self.run_tessera("eval", *words, "--eval-dataset", "eval.jsonl", "--eval-generation", "--json",
                                          "--output-dir", "measured")
        self.assertEqual((code, err.count(NOTE)), (0, NOTED), err)
        summary = self.json_of("out", "summary.json")
        for key in ["eval_loss", "exact_match", "f1"]:
            self.assertEqual(json.loads(out)[key], summary[key], key)
        answers = self.json_of("measured", "predictions.json")
        row = questions(7, 2)[0]
        answer = self.succeeds("generate", *words, "--question", row["question"], "--context", row["context"])
        self.assertEqual(answer.strip(), answers[row["id"]].strip())

    def test_bf16_states(self):
        """With bf16 optimizer states, a resumed run has the same results as an uninterrupted run. A run whose states
        have another type than the checkpoint's states must use a new folder. It begins with the checkpoint's states,
        rounded to bf16 or widened to fp32. A checkpoint with bf16 states has about half the size of a checkpoint with
        fp32 states."""
        words = ["--precision", "bf16", "--max-steps", "8", "--save-strategy", "steps", "--save-steps", "4", "--lr-schedule",
                 "constant"]
        narrow = [*words, "--optimizer-states", "bf16"]
        self.train("narrow", *narrow)
        self.train("wide", *words)
        self.copy_until(4, "narrow", "out")
        self.train("out", *narrow, "--offload", "optimizer:file", "--offload-dir", "files")
        self.assert_same_results("narrow", "out")
        self.fails(2, 'optimizer_states = "bf16", and this run has "fp32"', "train", *EVALUATED, *words, "--output-dir", "out",
                   "--max-steps", "9")
        sizes = [os.path.getsize(self.path(run, "checkpoint-8", "rank-00000-of-00001.safetensors")) for run in ("narrow", "wide")]
        self.assertAlmostEqual(sizes[0] / sizes[1], 0.5, delta=0.1)
        losses = {run: [record["loss"] for record in self.metrics(run, "train")] for run in ("narrow", "wide")}
        self.assertEqual(losses["narrow"][0], losses["wide"][0])
        self.assertNotEqual(losses["narrow"][1:], losses["wide"][1:])
        for run, other, states in [("narrow", "wide", "fp32"), ("wide", "narrow", "bf16")]:
            output = "from-" + run
            self.train(output, *words, "--optimizer-states", states, "--resume", self.path(run, "checkpoint-4"))
            continued = [record["loss"] for record in self.metrics(output, "train")]
            self.assertEqual(continued[:4], losses[run][:4])
            self.assertAlmostEqual(continued[4], losses[run][4], delta=0.02)
            self.assertNotEqual(continued[5:], losses[run][5:])
            self.assertNotEqual(continued[5:], losses[other][5:])
        self.succeeds("export", "--model", "config.json", "--tokenizer", "tok", "--checkpoint", "narrow/checkpoint-8", "--output-dir",
                      "exported")
        self.assertEqual(read_tensors(self.path("exported", "model.safetensors")),
                         read_tensors(self.path("narrow", "model", "model.safetensors")))

    def test_8_bit_states(self):
        """With moments of 8 bits, a resumed run has the same results as an uninterrupted run, also with offload. The
        losses stay near the losses with fp32 states. A run whose states have another type than the checkpoint's states
        must use a new folder. It begins with the checkpoint's moments, rounded or widened to its own type. A checkpoint
        holds fp32 masters, and 1 byte for each moment."""
        words = ["--max-steps", "8", "--save-strategy", "steps", "--save-steps", "4", "--lr-schedule", "constant"]
        losses = {}
        for precision in ["fp32", "bf16"]:
            with self.subTest(precision=precision):
                narrow = [*words, "--precision", precision, "--optimizer-states", "8bit"]
                runs = {"8bit": f"narrow-{precision}", "fp32": f"wide-{precision}"}
                self.train(runs["8bit"], *narrow)
                self.train(runs["fp32"], *words, "--precision", precision)
                for offload in ["optimizer:host,gradients:host", "optimizer:file"]:
                    self.copy_until(4, runs["8bit"], "out")
                    self.train("out", *narrow, "--offload", offload, "--offload-dir", "files", "--save-async")
                    self.assert_same_results(runs["8bit"], "out")
                    shutil.rmtree(self.path("out"))
                self.copy_until(4, runs["8bit"], "out")
                self.fails(2, 'optimizer_states = "8bit", and this run has "fp32"', "train", *EVALUATED, *words, "--precision",
                           precision, "--output-dir", "out")
                shutil.rmtree(self.path("out"))
                sizes = [os.path.getsize(self.path(run, "checkpoint-8", "rank-00000-of-00001.safetensors"))
                         for run in runs.values()]
                self.assertAlmostEqual(sizes[0] / sizes[1], (4 + 2 * 260 / 256) / 12, delta=0.05)
                losses |= {run: [record["loss"] for record in self.metrics(run, "train")] for run in runs.values()}
                # The first update has the same bits, because it uses moments that are not yet rounded.
                self.assertEqual(losses[runs["8bit"]][:2], losses[runs["fp32"]][:2])
                for ours, exact in zip(losses[runs["8bit"]], losses[runs["fp32"]], strict=True):
                    self.assertAlmostEqual(ours, exact, delta=0.02 * exact)
                for of, states in [("8bit", "fp32"), ("fp32", "8bit")] + ([("8bit", "bf16")] if precision == "bf16" else []):
                    output = f"{precision}-{of}-{states}"
                    self.train(output, *words, "--precision", precision, "--optimizer-states", states, "--resume",
                               self.path(runs[of], "checkpoint-4"))
                    continued = [record["loss"] for record in self.metrics(output, "train")]
                    self.assertEqual(continued[:4], losses[runs[of]][:4])
                    for ours, exact in zip(continued[4:], losses[runs[of]][4:], strict=True):
                        self.assertAlmostEqual(ours, exact, delta=0.02 * exact)
        self.succeeds("export", "--model", "config.json", "--tokenizer", "tok", "--checkpoint", "narrow-bf16/checkpoint-8",
                      "--output-dir", "exported")
        self.assertEqual(read_tensors(self.path("exported", "model.safetensors")),
                         read_tensors(self.path("narrow-bf16", "model", "model.safetensors")))

    def test_fine_tuning_and_resume(self):
        """Fine-tunes models that were saved in fp32, bf16 and fp16, and saves the best model. A resumed run has the
        same results as an uninterrupted run."""
        dtypes = ["fp32", "bf16", "fp16"]
        for dtype in dtypes:
            self.train(f"first-{dtype}", "--epochs", "20", "--save-dtype", dtype)
        best_is_not_last = 0
        for precision in ["bf16", "fp16"]:
            for dtype in dtypes:
                with self.subTest(precision=precision, dtype=dtype):
                    words = ["--model", f"first-{dtype}/model", "--init", "pretrained", "--precision", precision, "--lr",
                             "0.02", "--lr-schedule", "constant", "--epochs", "3", "--save-strategy", "steps",
                             "--save-steps", "4", "--eval-strategy", "steps", "--eval-steps", "4",
                             "--load-best-model-at-end", "--metric-for-best-model", "eval_loss"]
                    whole = f"{precision}-{dtype}"
                    self.train(whole, *words)
                    evaluations = [record["eval_loss"] for record in self.metrics(whole, "eval")]
                    best_is_not_last += min(evaluations) < evaluations[-1]
                    self.copy_until(8, whole, "out")
                    self.train("out", *words)
                    self.assert_same_results(whole, "out")
                    shutil.rmtree(self.path("out"))
            # The run from the fp32 file and the run from the 16-bit file begin with the same rounded parameters. In the
            # run from the fp32 file, the masters keep all bits of the file, so the later losses of the two runs differ.
            losses = [[record["loss"] for record in self.metrics(f"{precision}-{dtype}", "train")]
                      for dtype in ["fp32", precision]]
            self.assertEqual(losses[0][0], losses[1][0])
            self.assertNotEqual(losses[0], losses[1])
        self.assertGreater(best_is_not_last, 0)

    @unittest.skipIf(MOST_RANKS < 2, "needs two ranks")
    def test_ranks(self):
        """Two ranks fine-tune with sharded parameters on the device. The run is resumed once with parameters in host
        memory, and once with parameters in files. The resumed runs have the same results as the uninterrupted run."""
        self.train("first", "--epochs", "4")
        for precision, states in [("bf16", []), ("fp16", []), ("bf16", ["--optimizer-states", "bf16", "--overwrite"])]:
            words = ["--model", "first/model", "--init", "pretrained", "--precision", precision, *states, "--nproc", "2",
                     "--strategy", "full_shard", "--batch-size", "2", "--max-steps", "6", "--save-strategy", "steps",
                     "--save-steps", "3"]
            self.train(precision, *words)
            for offload in ["parameters", "optimizer,parameters:file"]:
                with self.subTest(precision=precision, offload=offload):
                    self.copy_until(3, precision, "out")
                    self.train("out", *words, "--offload", offload, "--offload-dir", self.folder)
                    self.assert_same_results(precision, "out")
                    shutil.rmtree(self.path("out"))


class LossScale(PrecisionTest):
    def test_every_skipped_step_is_reported(self):
        code, _, err = self.run_tessera("train", *JOB, "--precision", "fp16", "--initial-scale-power", "24",
                                        "--output-dir", "out", "--epochs", "2")
        self.assertEqual(code, 0, err)
        skipped, summary = self.metrics("out", "skipped"), self.json_of("out", "summary.json")
        self.assertGreater(len(skipped), 1)
        self.assertEqual(summary["skipped_steps"], len(skipped))
        self.assertEqual(summary["loss_scale"], 2.0 ** (24 - len(skipped)))
        for i, record in enumerate(skipped):  # each overflow halves the scale
            self.assertEqual(record["loss_scale"], 2.0 ** (24 - i))
            self.assertIn(f"Step {record['step']} skipped: gradients overflow at a loss scale of {2 ** (24 - i)}. The "
                          f"new loss scale is {2 ** (23 - i)} (the loss is {record['loss']} and the norm of the ", err)
            self.assertEqual(record["in_a_row"], 0)  # while the scale can fall, overflows of gradients do not count
        self.assertEqual(err.count(" skipped: "), len(skipped))
        # The learning rate falls by 1/12 of its first value per update, because the run has 12 steps. Skipped steps
        # are not updates.
        train, updates = self.metrics("out", "train"), 0
        for record in train:
            self.assertAlmostEqual(record["learning_rate"], 1e-2 * (1 - updates / 12), places=12)
            self.assertEqual(record["loss_scale"], 2.0 ** (24 - (record["step"] - 1 - updates)))
            updates += record["step"] not in [one["step"] for one in skipped]
        self.assertEqual([record["step"] for record in skipped[:2]], [1, 2])
        self.assertLess(train[-1]["loss"], train[0]["loss"])

    def test_a_fixed_scale_stays(self):
        code, _, err = self.run_tessera("train", *JOB, "--precision", "fp16", "--loss-scale", "16777216", "--max-steps", "4",
                                        "--max-skipped-updates", "5", "--output-dir", "out")
        self.assertEqual(code, 1, err)
        self.assertTrue(err.splitlines()[-1].startswith(
            "error: step 4: all 4 updates of the run were skipped, because loss or gradients were not finite. The loss scale is "
            "now 16777216. The model did not change, and is not saved. Use --precision bf16, "), err)
        self.assertFalse(os.path.exists(self.path("out", "model")))
        skipped = self.metrics("out", "skipped")
        self.assertEqual([(record["loss_scale"], record["in_a_row"]) for record in skipped],
                         [(2.0**24, i) for i in range(1, 5)])

    def test_a_scale_that_cannot_fall(self):
        code, _, err = self.run_tessera("train", *JOB, "--precision", "fp16", "--loss-scale-rules", "deepspeed",
                                        "--initial-scale-power", "24", "--min-loss-scale", "16777216", "--output-dir", "out")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"\nerror: fp16 loss scale: gradients overflow at the smallest scale, 16777216, in step 2: the loss "
                              r"is \d.* and the norm of the gradients (inf|nan)\. Lower --lr .*, or lower --min-loss-scale\. No ")
        self.assertEqual(len(self.metrics("out", "skipped")), 2)  # DeepSpeed's hysteresis tolerates one overflow

    def test_resume(self):
        for rules in ["grad_scaler", "deepspeed"]:
            with self.subTest(rules=rules):
                words = RESTLESS + ["--loss-scale-rules", rules]
                self.train("whole", *words, "--resume", "none", "--overwrite", job=FP16)
                skips = [record["step"] for record in self.metrics("whole", "skipped")]
                self.assertGreater(skips[-1], 16)  # a run that resumes at step 16 also skips a step
                for step in (8, 16):
                    self.copy_until(step, "whole", "out")
                    self.train("out", *words, job=FP16)
                    self.assert_same_results("whole", "out")
                    for key in ["loss_scale", "skipped_steps"]:
                        self.assertEqual(self.json_of("out", "summary.json")[key],
                                         self.json_of("whole", "summary.json")[key])
                    shutil.rmtree(self.path("out"))

    @unittest.skipIf(MOST_RANKS < 2, "needs two ranks")
    def test_ranks(self):
        """If the gradients of any rank overflow, all ranks skip the step. Only rank 0 reports the skipped step."""
        words = [*JOB, "--precision", "fp16", "--initial-scale-power", "24", "--max-steps", "12", "--nproc", "2",
                 "--strategy", "full_shard", "--reduce-dtype", "fp16", "--output-dir", "out"]
        code, _, err = self.run_tessera("train", *words)
        self.assertEqual((code, err.count(NOTE)), (0, NOTED), err)
        skipped = self.metrics("out", "skipped")
        self.assertGreater(len(skipped), 1)
        self.assertEqual(err.count(" skipped: "), len(skipped))
        self.assertEqual(self.json_of("out", "summary.json")["loss_scale"], 2.0 ** (24 - len(skipped)))


if __name__ == "__main__":
    main()
