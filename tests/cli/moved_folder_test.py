"""Tests runs whose output folder is renamed, removed or replaced while they work in it. A run saves its
results, or says what is lost. The command that it advises works."""
import os
import shutil
import signal
import subprocess
import time

from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import FAILED, JOB, TinyJobTest

LONG = JOB + ["--epochs", "80", "--save-strategy", "steps", "--save-steps", "5"]
SAVED_AFTER_SIGNAL = 75


class Moved(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.train("whole", job=LONG)

    def start(self, output, *words):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        process = subprocess.Popen([PROGRAM, "train", *LONG, "--output-dir", output, *words], cwd=self.folder, env=clean,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.wait_for(output, 20, process)
        return process

    def wait_for(self, output, lines, process):
        while self.num_lines(output) < lines:
            self.assertIsNone(process.poll(), process.poll() is not None and process.stderr.read())
            time.sleep(0.001)

    def pause(self, output, process):
        """Stops the process between two saves."""
        while True:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            if self.num_lines(output) % 5 > 1:  # it saves after the record of step 5 and cleans up after that of step 6
                return
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)

    def end(self, process, code=SAVED_AFTER_SIGNAL, by=signal.SIGTERM):
        if by:
            process.send_signal(by)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual(process.returncode, code, err)
        return err

    def assert_continues(self, output, err):
        """The run in `output` continues with the folder that the last line of `err` advises, and ends as usual."""
        step = self.checkpoints(output)[-1]
        self.assertIn(f"after step {step}. A checkpoint is saved. Start the same command again with --output-dir {output} ", err)
        self.assert_tidy(output)
        code, _, err = self.run_tessera("train", *LONG, "--output-dir", output)
        self.assertEqual(code, 0, err)
        self.assertIn(f"Resuming from {output}/checkpoint-{step} ", err)
        self.assert_same_results("whole", output)
        self.assert_tidy(output)

    def test_renamed(self):
        """The folder or its parent is renamed; or a folder takes its name, with a checkpoint that must stay."""
        for parent, words in [("", []), ("above", []), ("", ["--save-async"])]:
            with self.subTest(parent=parent, words=words):
                old, new = os.path.join(parent, "old"), os.path.join(parent and "new-above", "old" if parent else "new")
                process = self.start(old, *words)
                os.rename(self.path(parent or old), self.path(parent and "new-above" or new))
                if not parent:
                    shutil.copytree(self.path("whole"), self.path("old"))
                self.wait_for(new, self.num_lines(new) + 15, process)
                err = self.end(process)
                self.assertEqual(err.count("warning: the output folder is now "), 1, err)
                self.assert_continues(new, err)
                if parent:
                    self.assertFalse(os.path.exists(self.path(parent)))
                else:
                    self.assertLessEqual(set(self.checkpoints("whole")), set(self.checkpoints("old")))
                    shutil.rmtree(self.path("old"))
                shutil.rmtree(self.path(parent and "new-above" or new))

    def test_renamed_until_the_end(self):
        process = self.start("old", "--eval-dataset", "eval.jsonl", "--eval-strategy", "steps", "--eval-steps", "5",
                             "--load-best-model-at-end", "--max-steps", "60")
        os.rename(self.path("old"), self.path("new"))
        err = self.end(process, 0, by=None)
        self.assertFalse(os.path.exists(self.path("old")), err)
        self.assertEqual(self.json_of("new", "summary.json")["model"], "new/model")
        self.assert_tidy("new")

    def test_removed(self):
        """The run creates its folder again, with all of its records. Also if only metrics.jsonl is removed."""
        for name in ["out", "out/metrics.jsonl"]:
            with self.subTest(name=name):
                process = self.start("out")
                path = self.path(name)
                self.pause("out", process)
                (shutil.rmtree if os.path.isdir(path) else os.remove)(path)
                process.send_signal(signal.SIGCONT)
                self.wait_for("out", 30, process)
                err = self.end(process)
                self.assertEqual(err.count("warning: out was removed during the run. Its checkpoints are lost"), name == "out", err)
                self.assertIn("Start the same command again to continue", err)
                self.train("out", job=LONG)
                self.assert_same_results("whole", "out")
                self.assert_tidy("out")
                shutil.rmtree(self.path("out"))

    def test_replaced(self):
        """The folder is removed, and a folder of the user has its name: the run must not write there."""
        process = self.start("out")
        self.pause("out", process)
        shutil.rmtree(self.path("out"))
        os.mkdir(self.path("out"))
        self.write("out/mine", "text")
        process.send_signal(signal.SIGCONT)
        err = self.end(process, FAILED, by=None)
        self.assertRegex(err, r"\nerror: out: the run's folder was removed, and another folder has its name\. The checkpoints of the run "
                              r"are lost, and step \d+ is not saved\. Start the command again with another --output-dir")
        self.assertEqual(os.listdir(self.path("out")), ["mine"])

    def test_the_best_checkpoint_is_removed(self):
        words = ["--eval-dataset", "eval.jsonl", "--eval-strategy", "steps", "--eval-steps", "5", "--load-best-model-at-end",
                 "--lr", "0.3", "--max-steps", "60"]
        self.train("out", *words, job=LONG)
        best = self.json_of("out", "summary.json")["best_step"]
        self.assertLess(best, 60)
        shutil.rmtree(self.path("out", f"checkpoint-{best}"))
        code, _, err = self.run_tessera("train", *LONG, "--output-dir", "out", *words)
        self.assertEqual(code, 0, err)
        self.assertIn(f"warning: out/checkpoint-{best}, the checkpoint of the best model, was removed during the run. The saved "
                      "model is the last one", err)
        self.assertEqual(self.json_of("out", "summary.json")["best_step"], 0)


if __name__ == "__main__":
    main()
