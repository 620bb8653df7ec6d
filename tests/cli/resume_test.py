"""Tests that a run resumes after a kill, after a stop or with damaged checkpoints. Its results must be the same as the
results of an undisturbed run."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import EVALUATED, GPT, JOB, TinyJobTest, cut, flip_a_bit, jsonl, questions, with_last_data, without_timing

# A job with many steps, evaluations and checkpoints. It takes less than a second.
LONG = EVALUATED + ["--epochs", "40", "--save-strategy", "steps", "--save-steps", "7", "--save-total-limit", "3",
                    "--eval-strategy", "steps", "--eval-steps", "35", "--eval-before"]
SAVED_AFTER_SIGNAL = 75


class Interrupted(TinyJobTest):
    def start(self, output, *words, job=LONG):
        """Starts a run and returns its process. The caller sends signals to it and waits for it."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        process = subprocess.Popen([PROGRAM, "train", *job, "--output-dir", output, *words], cwd=self.folder, env=clean,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def wait_for_lines(self, output, count, process):
        """Waits until metrics.jsonl has `count` lines. Returns False if the run ends first."""
        while self.num_lines(output) < count:
            if process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    def kill_until_done(self, output, job, source):
        """Kills runs at random moments until one reaches its end. Returns the number of kills."""
        for kills in range(1000):
            process = self.start(output, job=job)
            # Kill the run at once, or when metrics.jsonl has up to 60 more lines than the previous run left. The short
            # pause moves the kill to any point of a step or of a save.
            if self.wait_for_lines(output, self.num_lines(output) + source.randint(-10, 60), process):
                time.sleep(source.uniform(0, 0.005))
                process.kill()
            code = process.wait()
            if code != -signal.SIGKILL:
                self.assertEqual(code, 0, process.stderr.read().decode())
                return kills
        self.fail("killed runs make no progress")

    def stop(self, output, *words, by=signal.SIGTERM, lines=20, job=LONG):
        """Starts a run and stops it with a signal. Returns the steps of its checkpoints."""
        process = self.start(output, *words, job=job)
        self.assertTrue(self.wait_for_lines(output, lines, process))
        process.send_signal(by)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), SAVED_AFTER_SIGNAL, process.stderr.read().decode())
        self.assert_tidy(output)
        return self.checkpoints(output)


class Killed(Interrupted):
    def check(self, job, seed):
        self.train("whole", job=job)
        source = random.Random(seed)
        kills = 0
        for trial in range(2):
            output = f"killed-{trial}"
            kills += self.kill_until_done(output, job, source)
            self.assert_same_results("whole", output)
            self.assertEqual(self.checkpoints(output), self.checkpoints("whole"))
            self.assert_tidy(output)
        self.assertGreaterEqual(kills, 4)

    def test_bloom(self):
        self.check(LONG, 1)

    def test_dropout(self):
        self.check(GPT + ["--dropout", "0.2"] + LONG[len(EVALUATED):] + EVALUATED[-5:], 2)

    def test_best_model_and_saves_at_every_step(self):
        self.check(EVALUATED + ["--max-steps", "80", "--save-strategy=steps", "--save-steps=1", "--eval-strategy=steps",
                                "--eval-steps=1", "--save-total-limit=1", "--load-best-model-at-end", "--lr=0.1"], 3)

    def test_micro_batches_by_tokens(self):
        self.check(EVALUATED + ["--batch-tokens", "150", "--max-length", "128", "--grad-accum", "2", "--epochs", "12",
                                "--save-strategy", "steps", "--save-steps", "5", "--save-total-limit", "3", "--eval-before"], 5)

    def test_accumulation_over_the_ends_of_epochs(self):
        self.check(LONG + ["--batch-size", "3", "--grad-accum", "2", "--activation-checkpointing", "block",
                           "--threads", "2"], 4)


class Stopped(Interrupted):
    def test_signals(self):
        self.train("whole", job=LONG)
        for by in [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]:
            with self.subTest(by=by):
                output = f"stopped-{by}"
                first = self.stop(output, by=by)
                second = self.stop(output, by=by, lines=60)
                self.assertLess(first[-1], second[-1])
                out = self.train(output, job=LONG)
                self.assertIn("'train_loss'", out)
                self.assert_same_results("whole", output)

    def test_what_a_stopped_run_says(self):
        process = self.start("out")
        self.assertTrue(self.wait_for_lines("out", 20, process))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        step = self.checkpoints("out")[-1]
        self.assertIn(f"Stopped by signal 15 after step {step}. A checkpoint is saved. Start the same command again "
                      "to continue.",
                      err.decode())
        self.assertFalse(os.path.exists(self.path("out", "model")))
        _, _, err = self.run_tessera("train", *LONG, "--output-dir", "out")
        self.assertIn(f"Resuming from out/checkpoint-{step} (step {step} of 240)", err)

    def test_a_signal_while_data_load(self):
        """The data set is a pipe, and the run waits for its content."""
        job = [word.replace("train.jsonl", "pipe.jsonl") for word in LONG]
        os.mkfifo(self.path("pipe.jsonl"))
        process = self.start("out", job=job)
        with open(self.path("pipe.jsonl"), "wb") as pipe:
            process.send_signal(signal.SIGTERM)
            pipe.write(self.read("train.jsonl"))
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual(process.returncode, SAVED_AFTER_SIGNAL, err)
        self.assertEqual(err, b"Stopped by signal 15 before the run had anything to save. Start the same command again to "
                         b"continue.\n")
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_a_second_signal_ends_at_once(self):
        # A step is so long that both requests to stop arrive in the same step.
        process = self.start("out", "--batch-size", "100000", "--grad-accum", "1", job=self.slow_job())
        self.assertTrue(self.wait_for_lines("out", 1, process))
        for number in signal.SIGSTOP, signal.SIGTERM, signal.SIGUSR1, signal.SIGCONT:
            process.send_signal(number)  # SIGTERM and SIGUSR1 arrive together and count as one request
        while self.has_pending_signals(process):  # a second SIGUSR1 would merge with a pending one
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)  # a GPU might otherwise finish the step before the second request
        time.sleep(0.13)  # signals within 0.1 s count as one request
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), 128 + signal.SIGUSR1)
        self.assertEqual(self.checkpoints("out"), [])

    @staticmethod
    def has_pending_signals(process):
        with open(f"/proc/{process.pid}/status") as status:
            return any(int(line.split()[1], 16) for line in status if line.startswith(("SigPnd", "ShdPnd")))

    def slow_job(self):
        """A job whose steps take seconds. An evaluation before the first step shows that the run has begun."""
        self.write("many.jsonl", jsonl(questions(22, 1) * 200))
        return with_last_data(EVALUATED + ["--dataset", "many.jsonl", "--eval-before", "--max-steps", "2", "--threads", "1"])

    def test_a_run_that_is_done(self):
        self.train("out", job=LONG)
        before = {name: self.read("out", name) for name in ["metrics.jsonl", "summary.json", "resolved-config.toml"]}
        shutil.copytree(self.path("out"), self.path("copy"))
        out = self.train("out", job=LONG)
        self.assertNotIn("'loss'", out)
        self.assertNotIn("'eval_loss'", out)
        self.assert_same_results("out", "copy")
        after, was = self.json_of("out", "summary.json"), json.loads(before["summary.json"])
        for key in ["eval_loss", "exact_match", "f1", "eval_loss_before", "train_loss", "steps", "num_tokens", "best_step",
                    "epochs", "train_samples_per_second_steady", "train_tokens_per_second_steady", "eval_runtime",
                    "answers_runtime"]:
            self.assertEqual(after[key], was[key], key)
        self.assertEqual(self.read("out", "resolved-config.toml"), before["resolved-config.toml"])


class Resume(Interrupted):
    def setUp(self):
        super().setUp()
        self.train("whole", job=LONG)
        self.assertEqual(self.checkpoints("whole"), [70, 231, 238, 240])  # the best and the three newest

    def stopped(self, output):
        """Copies the complete run, and makes the copy look like a run that was killed after checkpoint 238. Returns the
        path of this checkpoint."""
        shutil.copytree(self.path("whole"), self.path(output))
        for name in ["model", "checkpoint-240"]:
            shutil.rmtree(self.path(output, name))
        os.remove(self.path(output, "summary.json"))
        return self.path(output, "checkpoint-238")

    def test_damage(self):
        """Damages one file of the newest checkpoint: flips a bit, removes the last byte, or removes the file. The run
        must resume from the previous checkpoint. The test repeats this for every file."""
        source = random.Random(5)

        def flip(path):
            flip_a_bit(path, source)

        for name in sorted(os.listdir(self.path("whole", "checkpoint-238"))):
            for damage in [flip, flip, cut, os.remove]:
                with self.subTest(name=name, damage=damage.__name__):
                    newest = self.stopped("out")
                    damage(os.path.join(newest, name))
                    code, _, err = self.run_tessera("train", *LONG, "--output-dir", "out")
                    self.assertEqual(code, 0, err)
                    self.assertRegex(err, r"(?m)^warning: out/checkpoint-238.*" + (name if damage is not os.remove else ""))
                    self.assertIn("Resuming from out/checkpoint-231 ", err)
                    self.assert_same_results("whole", "out")
                    self.assertEqual(self.checkpoints("out"), [70, 231, 238, 240])
                    self.assertEqual(self.set_aside("out"), ["checkpoint-238.damaged"])
                    shutil.rmtree(self.path("out"))

    def test_damage_of_every_checkpoint(self):
        """A new run begins only with --resume none, which keeps the checkpoints under other names."""
        self.stopped("out")
        for step in (70, 231, 238):
            os.remove(self.path("out", f"checkpoint-{step}", "manifest.json"))
        code, out, err = self.run_tessera("train", *LONG, "--output-dir", "out")
        self.assertEqual((code, out, err.count("warning: ")), (3, "", 3), err)
        self.assertRegex(err, r"(?m)^error: out: has checkpoints, but every one of them is damaged.*--resume none")
        self.assertEqual(self.checkpoints("out"), [70, 231, 238])
        self.train("out", "--resume", "none", job=LONG)
        self.assert_same_results("whole", "out")
        self.assertEqual(self.set_aside("out"), [f"checkpoint-{step}.superseded" for step in (231, 238, 70)])

    def test_damage_of_the_checkpoint_asked_for(self):
        newest = self.stopped("out")
        os.truncate(os.path.join(newest, "trainer_state.json"), 5)
        self.fails(3, "checkpoint-238/trainer_state.json", "train", *LONG, "--output-dir", "out", "--resume",
                   "out/checkpoint-238")
        self.fails(3, "checkpoint-9", "train", *LONG, "--output-dir", "out", "--resume", "out/checkpoint-9")

    def test_another_setting(self):
        self.stopped("out")
        files = {name: self.read("out", name) for name in ["metrics.jsonl", "resolved-config.toml"]}
        self.write("other.jsonl", jsonl(questions(22, 3)))
        self.write("fewer.jsonl", jsonl(questions(22, 1)[:21]))
        self.write("wider.json", self.read("config.json").replace(b'"hidden_size": 16', b'"hidden_size": 32'))
        for words, message in [
            (["--lr", "2e-2"], "was made with lr = 0.01, and this run has 0.02"),
            (["--batch-size", "8"], "was made with batch_size x grad_accum x ranks = 4, and this run has 8"),
            (["--grad-accum", "2"], "was made with batch_size x grad_accum x ranks = 4, and this run has 8"),
            (["--epochs", "2"], "--epochs: the run ends after step 12, but out/checkpoint-238 is from step 238"),
            (["--lr", "2e-2", "--seed", "1", "--no-shuffle", "--max-length", "60", "--epochs", "41"],
             "was made with shuffle = true, and this run has false; with max_length = 512, and this run has 60; with seed = "
             "42, and this run has 1; and 2 more settings differ"),
            (["--seed", "1"], "was made with seed = 42, and this run has 1"),
            (["--warmup-steps", "3"], "was made with warmup_steps = 0, and this run has 3"),
            (["--lr-schedule", "cosine"], 'was made with lr_schedule = "linear", and this run has "cosine"'),
            (["--no-shuffle"], "was made with shuffle = true, and this run has false"),
            (["--dataset", "other.jsonl"], "was made with dataset_checksum = "),
            (["--dataset", "fewer.jsonl"], "was made with dataset_samples = 22, and this run has 21"),
            (["--objective", "causal_lm"], 'was made with objective = "completion", and this run has "causal_lm"'),
            (["--max-length", "60"], "was made with max_length = 512, and this run has 60"),
            (["--model", "wider.json"], "was made with hidden_size = 16, and this run has 32"),
            (["--load-best-model-at-end", "--save-steps", "35"], "was made with load_best_model_at_end = false"),
        ]:
            with self.subTest(words=words):
                self.fails(2, message, "train", *LONG, "--output-dir", "out", *words)
        self.fails(2, "--overwrite to replace it. --resume out/checkpoint-238 with another --output-dir begins", "train", *LONG,
                   "--output-dir", "out", "--lr", "2e-2")
        self.assertEqual(self.checkpoints("out"), [70, 231, 238])
        self.assertEqual({name: self.read("out", name) for name in files}, files)

    def test_settings_that_change_no_result(self):
        self.stopped("out")
        self.train("out", "--activation-checkpointing", "block", "--save-steps", "3", job=LONG)
        self.assert_same_results("whole", "out")

    def test_another_dropout(self):
        job = GPT + ["--save-strategy", "epoch"]
        self.train("gpt-run", "--dropout", "0.1", job=job)
        self.fails(2, "was made with hidden_dropout = 0.1, and this run has 0.2", "train", *job, "--dropout", "0.2",
                   "--output-dir", "gpt-run")

    def test_none(self):
        self.stopped("out")
        self.train("out", "--resume", "none", "--max-steps", "10", job=LONG)
        self.assertEqual(self.checkpoints("out"), [7, 10])
        self.assertEqual(self.set_aside("out"), [f"checkpoint-{step}.superseded" for step in (231, 238, 70)])
        self.assertEqual([record["step"] for record in self.metrics("out", "train")], list(range(1, 11)))

    def test_words_of_the_trainer(self):
        for given, word in [("True", "auto"), ("true", "auto"), ("AUTO", "auto"), ("False", "none"), ("None", "none"),
                            ("./True", "./True")]:
            out = self.succeeds("config", "train", "--resume-from-checkpoint", given, "--json")
            self.assertEqual(json.loads(out)["resume"]["value"], word, given)
        self.write("run.toml", "resume_from_checkpoint = true\n")
        self.train("out", "--max-steps", "3", job=JOB)
        code, _, err = self.run_tessera("train", "run.toml", *JOB, "--max-steps", "4", "--output-dir", "out")
        self.assertEqual(code, 0, err)
        self.assertIn("Resuming from out/checkpoint-3 ", err)

    def test_none_with_a_model_that_cannot_be_read(self):
        """The checkpoints of the earlier run keep their names until the new run has begun."""
        self.stopped("out")
        os.mkdir(self.path("broken"))
        shutil.copy(self.path("config.json"), self.path("broken"))
        words = [word if word != "config.json" else "broken" for word in LONG]
        for word in [[], ["--overwrite"]]:
            self.fails(3, "broken", "train", *words, "--init", "pretrained", "--output-dir", "out", "--resume", "none", *word)
            self.assertEqual((self.checkpoints("out"), self.set_aside("out")), ([70, 231, 238], []))

    def test_path(self):
        """--resume names an older checkpoint. The run resumes from it, and renames the newer checkpoint. A later start
        without --resume uses the newest checkpoint that was not renamed."""
        self.stopped("out")
        for name in "checkpoint-238.superseded", "checkpoint-238.superseded-2":
            os.mkdir(self.path("out", name))
        process = self.start("out", "--resume", "out/checkpoint-231/", "--save-strategy", "no")
        process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual(process.returncode, 0)
        self.assert_same_results("whole", "out")
        self.assertEqual(self.checkpoints("out"), [70, 231])
        self.assertEqual(self.set_aside("out")[-1], "checkpoint-238.superseded-3")
        self.assertIn("manifest.json", os.listdir(self.path("out", "checkpoint-238.superseded-3")))
        self.fails(2, "out/checkpoint-238.superseded-3 was renamed: it may be superseded or damaged. Rename it to checkpoint-238 "
                   "first", "train", *LONG, "--output-dir", "out", "--resume", "out/checkpoint-238.superseded-3")
        shutil.rmtree(self.path("out", "model"))
        os.truncate(self.path("out", "metrics.jsonl"), os.path.getsize(self.path("out", "metrics.jsonl")) - 30)
        self.train("out", job=LONG)
        self.assert_same_results("whole", "out")

    def test_path_of_the_run(self):
        """--resume may name the folder of a run. Training then resumes from the newest complete checkpoint in this
        folder. If the folder has no checkpoint, the command fails."""
        self.fails(3, "no such checkpoint", "train", *LONG, "--output-dir", "new", "--resume", "gone")
        self.fails(3, "new: is not a checkpoint and contains none. Give a folder checkpoint-STEP, or the output folder of a "
                   "run", "train", *LONG, "--output-dir", "new", "--resume", "new")
        newest = self.stopped("out")
        os.remove(os.path.join(newest, "manifest.json"))
        code, _, err = self.run_tessera("train", *LONG, "--output-dir", "out", "--resume", self.path("out"))
        self.assertEqual(code, 0, err)
        self.assertIn("checkpoint-238/manifest.json: no such file", err)
        self.assertIn("checkpoint-231 (step 231 of 240)", err)
        self.assert_same_results("whole", "out")

    def test_metrics_that_are_gone(self):
        self.stopped("out")
        os.remove(self.path("out", "metrics.jsonl"))
        self.fails_after_note(3, "out/metrics.jsonl: no such file. Put back the file")
        self.write("out/metrics.jsonl", b"{}\n")
        self.fails_after_note(3, "out/metrics.jsonl: it has 3 bytes, but the checkpoint recorded ")
        self.assertEqual(self.checkpoints("out"), [70, 231, 238])

    def fails_after_note(self, code, message):
        got, out, err = self.run_tessera("train", *LONG, "--output-dir", "out")
        self.assertEqual((got, out), (code, ""), err)
        self.assertIn("error: " + message, err)

    def test_a_folder_that_was_moved(self):
        self.stopped("out")
        os.rename(self.path("out"), self.path("elsewhere"))
        self.train("elsewhere", job=LONG)
        self.assert_same_results("whole", "elsewhere")
        # One evaluation before training, 240 steps, 7 evaluations after steps, one summary.
        self.assertEqual(len(without_timing(self.path("elsewhere", "metrics.jsonl"))), 1 + 240 + 7 + 1)


if __name__ == "__main__":
    main()
