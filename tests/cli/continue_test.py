"""Tests runs whose output folder contains an earlier run. Such a run continues the earlier run, leaves it unchanged, or
replaces it on request. Also tests new runs that start from a checkpoint of another folder."""
import os
import shutil
import signal

from resume_test import Interrupted
from tessera_cli import main
from tiny_job import JOB, ON_GPU, USAGE, jsonl, questions, without_timing

# 22 questions in batches of 4 are 6 steps per epoch. By default, a run has 3 epochs, with an evaluation and a
# checkpoint after each epoch. --save-total-limit 0 keeps all checkpoints.
RUN = JOB + ["--eval-dataset", "eval.jsonl", "--save-total-limit", "0"]


class Continued(Interrupted):
    def run_train(self, output, *words, job=RUN):
        """Expects that the run succeeds. Returns its standard error."""
        code, _, err = self.run_tessera("train", *job, "--output-dir", output, *words)
        self.assertEqual(code, 0, err)
        return err

    def contents(self, folder):
        """{relative path: content} of all files in a folder."""
        return {os.path.relpath(os.path.join(where, name), self.path(folder)): self.read(where, name)
                for where, _, names in os.walk(self.path(folder)) for name in names}

    def rates(self, output):
        return [record["learning_rate"] for record in self.metrics(output, "train")]


class Longer(Continued):
    def test_more_steps(self):
        self.run_train("out", "--max-steps", "4")
        before = self.rates("out")
        err = self.run_train("out", "--max-steps", "8")
        self.assertIn("Resuming from out/checkpoint-4 (step 4 of 8)", err)
        self.assertIn("The run has 8 steps now instead of 4. The finished steps keep their learning rates. From here on, "
                      "the rate decays until step 8 instead of step 4. The rate of step 5 is 0.005, but with 4 steps it "
                      "would be 0",
                      err)
        self.run_train("whole", "--max-steps", "8")
        self.assertEqual(self.rates("out"), before + self.rates("whole")[4:])
        self.assertEqual(self.json_of("out", "summary.json")["steps"], 8)
        self.assertEqual(self.checkpoints("out"), [4, 6, 8])
        self.fails(USAGE, "--max-steps: the run ends after step 5, but out/checkpoint-8 is from step 8", "train", *RUN,
                   "--output-dir", "out", "--max-steps", "5")

    def test_more_epochs_where_no_rate_depends_on_them(self):
        """A run of one epoch is continued to three epochs. A second run begins with three epochs. Both have the same
        results, bit for bit."""
        job = RUN + ["--lr-schedule", "constant", "--precision", "bf16"]
        self.run_train("whole", "--epochs", "3", job=job)
        self.run_train("out", "--epochs", "1", job=job)
        err = self.run_train("out", "--epochs", "3", job=job)
        self.assertIn("The run has 18 steps now instead of 6. "
                      "The learning rate does not depend on the number of steps", err)
        self.assert_same_results("whole", "out")

    def test_without_a_precision(self):
        """Without --precision, a run continues in the precision of its checkpoint, and gives the same results."""
        job = RUN + ["--save-strategy", "steps", "--save-steps", "0.5", "--warmup-steps", "0.2", "--max-steps", "4"]
        self.run_train("whole", "--precision", "bf16", job=job)
        self.run_train("out", "--precision", "bf16", job=job)
        self.assertEqual(self.checkpoints("out"), [2, 4])
        shutil.rmtree(self.path("out", "checkpoint-4"))
        auto = [*job, "--precision", "auto"]
        self.assertIn("Computing in bf16 on ", err := self.run_train("out", job=auto))
        self.assertIn(" (--precision auto, as in out/checkpoint-2)", err)
        self.assert_same_results("whole", "out")
        self.assertEqual(self.json_of("out", "summary.json")["precision"], "bf16")
        self.assertIn(b'\nprecision = "bf16" ', self.read("out", "resolved-config.toml"))
        err = self.run_train("new", "--resume", "out/checkpoint-2", job=auto)
        self.assertIn("Computing in bf16 on ", err)
        device = "bf16" if ON_GPU else "fp32"
        self.assertIn(f"Computing in {device} on ", self.run_train("other", "--max-steps", "1", job=auto))

    def test_the_best_model_of_both_parts(self):
        job = RUN + ["--load-best-model-at-end", "--lr", "0.1", "--save-total-limit", "1"]
        self.run_train("out", "--epochs", "2", job=job)
        self.run_train("out", "--epochs", "4", job=job)
        summary = self.json_of("out", "summary.json")
        best = min(summary["epochs"], key=lambda row: row["eval_loss"])
        self.assertEqual(len(summary["epochs"]), 4)
        self.assertEqual((summary["eval_loss"], summary["best_step"]), (best["eval_loss"], 6 * best["epoch"]))

    def test_without_a_checkpoint(self):
        self.run_train("out", "--max-steps", "4", "--save-strategy", "no")
        before = self.contents("out")
        for steps in "4", "8":
            self.fails(USAGE, "out: holds the results of an earlier run, and it left no checkpoint to continue from. Choose "
                       "another --output-dir, or give --overwrite to replace the results. To train the model of "
                       "the earlier run further, give --model out and another --output-dir", "train", *RUN,
                       "--output-dir", "out", "--max-steps", steps)
        self.assertEqual(self.contents("out"), before)


class Finished(Continued):
    def setUp(self):
        super().setUp()
        self.run_train("out")
        self.before = self.contents("out")

    def test_other_settings_are_refused(self):
        for words, why in [(["--lr", "2e-2"], "was made with lr = 0.01, and this run has 0.02. Use the same settings"),
                           (["--resume", "none"], "holds the results of an earlier run, and --resume none does not"),
                           (["--resume", "none", "--lr", "2e-2"], "--resume none does not continue it")]:
            self.fails(USAGE, why, "train", *RUN, "--output-dir", "out", *words)
            self.fails(USAGE, "--overwrite to replace", "train", *RUN, "--output-dir", "out", *words)
        self.assertEqual(self.contents("out"), self.before)

    def test_overwrite(self):
        self.run_train("whole", "--lr", "2e-2")
        self.run_train("out", "--lr", "2e-2", "--overwrite")
        self.assert_same_results("whole", "out")
        self.assertEqual(self.set_aside("out"), [])
        # If the same command starts again, it continues its own run, although it has --overwrite.
        shutil.rmtree(self.path("out", "checkpoint-18"))
        self.assertIn("Resuming from out/checkpoint-12", self.run_train("out", "--lr", "2e-2", "--overwrite"))
        self.assert_same_results("whole", "out")
        self.run_train("out", "--lr", "2e-2", "--overwrite", "--resume", "none", "--save-strategy", "no")
        self.assert_same_results("whole", "out")
        self.assertEqual((self.checkpoints("out"), self.set_aside("out")), ([], []))

    def test_overwrite_that_is_killed_before_it_has_anything(self):
        """The killed run has moved the earlier run to overwritten-run, so the user can restore it. If the same command
        runs to its end, it removes the earlier run."""
        words = ["--lr", "2e-2", "--overwrite"]
        process = self.start("out", *words, "--epochs", "1000", "--save-strategy", "no", job=RUN)
        self.assertTrue(self.wait_for_lines("out", 1, process))
        # Waits until all files of the earlier run have moved, and the new run has written 3 lines. Before the move,
        # num_lines() counts the lines of the earlier run.
        earlier, moved = {name.split("/")[0] for name in self.before}, self.path("out", "overwritten-run")
        while not (os.path.isdir(moved) and earlier <= set(os.listdir(moved)) and self.num_lines("out") >= 3):
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(self.contents("out/overwritten-run"), self.before)
        self.run_train("out", "--lr", "2e-2")  # removes nothing without --overwrite
        self.assertEqual(self.contents("out/overwritten-run"), self.before)
        self.run_train("out", *words)
        self.assertEqual(self.set_aside("out"), [])

    def test_overwrite_that_cannot_begin(self):
        self.write("bad.jsonl", "{")
        self.fails(3, "bad.jsonl", "train", *RUN, "--output-dir", "out", "--dataset", "bad.jsonl", "--overwrite")
        self.assertEqual(self.contents("out"), self.before)


class Elsewhere(Continued):
    def setUp(self):
        super().setUp()
        self.run_train("out")

    def test_the_same_settings(self):
        """A new run in another folder computes the steps after the checkpoint again. It copies the records of the steps
        up to the checkpoint from the old run."""
        before = self.contents("out")
        err = self.run_train("new", "--resume", "out/checkpoint-6")
        self.assertIn("A new run from out/checkpoint-6 (step 6 of 18)", err)
        self.assertEqual(without_timing(self.path("new", "metrics.jsonl")), without_timing(self.path("out", "metrics.jsonl")))
        self.assertEqual(self.read("new", "model", "model.safetensors"), self.read("out", "model", "model.safetensors"))
        self.assertEqual(self.json_of("new", "summary.json")["resumed_from"], os.path.realpath(self.path("out/checkpoint-6")))
        self.assertEqual(self.checkpoints("new"), [6, 12, 18])
        self.assertEqual(self.contents("out"), before)
        self.assertIn("Resuming from new/checkpoint-18", self.run_train("new", "--resume", "out/checkpoint-6"))

    def test_other_settings(self):
        err = self.run_train("new", "--resume", "out/checkpoint-12", "--lr", "3e-2", "--lr-schedule", "constant")
        self.assertIn("The checkpoint's run had lr = 0.01, and this run has 0.03", err)
        self.assertEqual(self.rates("new"), self.rates("out")[:12] + [0.03] * 6)
        self.write("other.jsonl", jsonl(questions(22, 3)))
        for words, why in [(["--dataset", "other.jsonl"], "dataset_checksum"), (["--batch-size", "2"], "batch_size x"),
                           (["--seed", "1"], "seed = 42")]:
            self.fails(USAGE, why, "train", *RUN, "--output-dir", "other", "--resume", "out", *words)
        self.assertFalse(os.path.exists(self.path("other", "metrics.jsonl")))

    def test_stopped_and_started_again(self):
        """A command with --resume is stopped and started again. It then continues its own run, not the run that
        --resume names. This works even if the run that --resume names is deleted."""
        words = ["--resume", "out/checkpoint-6", "--epochs", "200", "--save-strategy", "no"]
        steps = self.stop("new", *words, lines=40, job=RUN)
        self.assertGreater(steps[-1], 30)
        shutil.rmtree(self.path("out"))
        process = self.start("new", *words, job=RUN)
        self.assertTrue(self.wait_for_lines("new", self.num_lines("new") + 20, process))
        process.send_signal(signal.SIGTERM)
        err = process.communicate()[1].decode()
        self.assertIn(f"Resuming from new/checkpoint-{steps[-1]}", err)

    def test_into_a_folder_with_another_run(self):
        self.run_train("new", "--epochs", "1")
        self.fails(USAGE, "new: holds the checkpoints of a run that --resume does not name", "train", *RUN,
                   "--output-dir", "new", "--resume", "out/checkpoint-6")
        self.run_train("new", "--resume", "out/checkpoint-6", "--overwrite")
        self.assertEqual((self.checkpoints("new"), self.set_aside("new")), ([6, 12, 18], []))

    def test_without_its_records(self):
        os.remove(self.path("out", "metrics.jsonl"))
        err = self.run_train("new", "--resume", "out/checkpoint-12")
        self.assertRegex(err, "warning: .*out/metrics.jsonl does not hold the records up to step 12: new/metrics.jsonl begins")
        self.assertEqual([record["step"] for record in self.metrics("new", "train")], list(range(13, 19)))


class StopCheckpoints(Continued):
    def stops(self, *words):
        """Stops a run five times, and then lets it end. Returns the steps of its checkpoints: one list for each stop,
        and the list at the end of the run."""
        seen = [self.stop("out", *words, lines=15 + 25 * number, job=RUN + ["--epochs", "40"]) for number in range(5)]
        self.run_train("out", *words, "--epochs", "40")
        return seen, self.checkpoints("out")

    def test_each_replaces_the_one_before(self):
        """When a signal stops a run, the run saves a checkpoint. When the resumed run is stopped again, its new
        checkpoint replaces the checkpoint of the previous stop. This holds with and without regular checkpoints."""
        seen, last = self.stops()
        for steps in seen:
            self.assertLessEqual(len([step for step in steps if step % 6]), 1, seen)
        self.assertEqual(last, list(range(6, 241, 6)))
        shutil.rmtree(self.path("out"))
        seen, last = self.stops("--save-strategy", "no")
        self.assertEqual({len(steps) for steps in seen}, {1})

    def test_by_default_two_and_the_best_are_kept(self):
        # RUN[:-2] leaves out --save-total-limit 0.
        job = [*RUN[:-2], "--epochs", "20", "--lr", "0.1"]
        self.run_train("whole", job=job)
        best = self.json_of("whole", "summary.json")["best_step"]
        self.assertEqual(self.checkpoints("whole"), sorted({best, 114, 120}))
        for lines in 20, 50, 80:
            self.assertLessEqual(len(self.stop("out", lines=lines, job=job)), 3)
        self.run_train("out", job=job)
        self.assertEqual(self.checkpoints("out"), self.checkpoints("whole"))
        self.assert_same_results("whole", "out")


class Model(Continued):
    def test_an_output_folder_names_its_model(self):
        self.run_train("out", "--max-steps", "2")
        for words in [["eval", "--eval-dataset", "eval.jsonl"], ["generate", "--prompt", "a"], ["plan", "--json"]]:
            results = {self.succeeds(*words, "--model", model).split("runtime")[0].replace(model, "") for model in
                       ("out", "out/model")}
            self.assertEqual(len(results), 1, results)
        words = [word if word != "config.json" else "out" for word in RUN if word not in ("--init", "random")]
        words = words[:words.index("--tokenizer")] + words[words.index("--tokenizer") + 2:]
        self.succeeds("train", *words, "--output-dir", "new", "--max-steps", "2")
        self.fails(USAGE, "the trained model would replace the initial model out (--model)", "train", *words, "--output-dir", "out")
        self.succeeds("export", "--model", "out", "--checkpoint", "out", "--output-dir", "exported")
        self.assertEqual(self.read("exported", "model.safetensors"), self.read("out", "model", "model.safetensors"))

    def test_one_without_a_model(self):
        self.run_train("out", "--max-steps", "2")
        shutil.rmtree(self.path("out", "model"))
        self.fails(3, "out: is the output folder of an unfinished run", "generate", "--model", "out", "--prompt", "a")


if __name__ == "__main__":
    main()
