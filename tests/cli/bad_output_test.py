"""Tests output folders that are not writable, are in use, or are on a full disk. Also tests standard output on a full
disk."""
import json
import os
import resource
import shutil
import signal
import subprocess
import time

from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED, FAILED, JOB, USAGE, BadInputTest, jsonl, questions, with_last_data


class Outputs(BadInputTest):
    def test_places_that_cannot_be_written(self):
        self.train("good", job=JOB)
        self.write("file", "text")
        for place in ["file", "file/below", "/proc/nowhere/out"]:
            message = f"{place}: cannot write: "
            with self.subTest(place=place):
                self.fails(FAILED, message, "train", *JOB, "--output-dir", place)
                self.fails(FAILED, message, "eval", "--model", "good/model", "--eval-dataset", "eval.jsonl", "--output-dir",
                           place)
                self.fails(FAILED, message, "tokenizer", "train", "--dataset", "train.jsonl", "--vocab-size", "400",
                           "--output-dir", place)
        self.fails(FAILED, "cannot write: Not a directory", "export", "--model", "good/model", "--checkpoint",
                   "good/checkpoint-18", "--output-dir", "file/below")
        self.assertEqual(self.read("file"), b"text")

    def test_a_folder_in_use(self):
        self.write("many.jsonl", jsonl(questions(22, 1) * 400))
        process = subprocess.Popen([PROGRAM, "train", *with_last_data([*JOB, "--dataset", "many.jsonl"]), "--output-dir", "out"],
                                   cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not os.path.exists(self.path("out", "metrics.jsonl")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        self.fails(USAGE, f"out: is in use by another run (process {process.pid} on ", "train", *JOB, "--output-dir", "out")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.train("out", job=JOB)

    def full_disk(self, output, message, **options):
        """Continues a run from its checkpoint of step 12, with too little space for the next checkpoint. Asserts that
        the run fails with `message`, and that the checkpoint of step 12 stays unchanged."""
        whole = self.path("whole")
        self.train("whole")
        shutil.copytree(whole, output, ignore=shutil.ignore_patterns("checkpoint-6", "checkpoint-18", "model"))
        code, _, err = self.run_tessera("train", *EVALUATED, "--output-dir", output, **options)
        self.assertEqual(code, FAILED, err)
        self.assertRegex(err, rf"(?m)^error: .*{message}")
        self.assertIn("Step 18 is not saved. When the cause is gone, start the same command again: it continues from "
                      f"{output}/checkpoint-12. To continue in another folder, add --resume {output}/checkpoint-12 and another ", err)
        self.assertNotIn("terminate", err)
        self.assert_tidy(output)
        self.assertEqual(self.checkpoints(output), [12])
        for name in os.listdir(os.path.join(whole, "checkpoint-12")):
            self.assertEqual(self.read(output, "checkpoint-12", name), self.read(whole, "checkpoint-12", name))

    def test_a_limit_on_file_sizes(self):
        limit = os.path.getsize(self.path("train.jsonl")) + (1 << 14)  # less than the size of a checkpoint (160 KiB)
        self.full_disk(self.path("out"), "Raise the limit on file sizes",
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.train("out")
        self.assert_same_results("whole", "out")

    def test_a_full_disk(self):
        os.mkdir(self.path("disk"))
        # The disk has space for one checkpoint (160 KiB), but not for two.
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", self.path("disk")],
                                 stderr=subprocess.DEVNULL, check=False) if shutil.which("mount") else None
        if not mounted or mounted.returncode != 0:
            self.skipTest("no permission to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", self.path("disk")], check=True)
        self.full_disk(self.path("disk", "out"), "No space left on device")
        subprocess.run(["mount", "-o", "remount,size=2m", self.path("disk")], check=True)
        self.train("disk/out")
        self.assert_same_results("whole", "disk/out")

    def test_metrics_on_a_full_disk(self):
        """metrics.jsonl reaches a size limit, as on a full disk. The run fails. All records in the file are
        complete."""
        self.fails_late("out", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)))
        for line in self.read("out", "metrics.jsonl").splitlines():
            json.loads(line)

    def fails_late(self, output, **options):
        code, _, err = self.run_tessera("train", *JOB, "--output-dir", output, "--save-strategy", "no", **options)
        self.assertEqual(code, FAILED, err)
        self.assertIn("error: ", err)

    def test_results_on_a_full_disk(self):
        self.train("good", job=JOB)
        with open("/dev/full", "wb") as full:
            for words in [["generate", "--prompt", "a"], ["eval", "--eval-dataset", "eval.jsonl"]]:
                code, _, err = self.run_tessera(*words, "--model", "good/model", stdout=full)
                self.assertEqual(code, FAILED)
                self.assertIn("error: standard output: cannot write to it: No space left on device", err)


if __name__ == "__main__":
    main()
