"""Submits job files of `tessera slurm` to a real Slurm of two hosts (cluster.py). Usage: two_hosts.py PROGRAM [TEST…]
tools/slurm_test.sh runs this test, and ./check does not. The test needs root and takes about ten minutes."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from cluster import Cluster, missing, wait_for  # noqa: E402
from tessera_cli import PROGRAM, main  # noqa: E402
from tiny_job import BLOOM, JOB, jsonl, questions, without_timing  # noqa: E402

NUM_RANKS = 4
REQUEUE_PAUSE_S = 4  # Slurm refuses a start in the same second as the requeue ("credential revoked")


class TwoHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The hosts must share the folder. It is not in /tmp or /dev/shm, because each host has its own /tmp and
        # /dev/shm.
        cls.temporary = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="tessera-slurm-", ignore_cleanup_errors=True)
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = os.path.join(cls.temporary.name, "shared")
        os.mkdir(cls.folder)
        for name, text in [("train.jsonl", jsonl(questions(22, 1))), ("config.json", json.dumps(BLOOM))]:
            with open(cls.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        cls.tessera("tokenizer", "train", "--dataset", "train.jsonl", "--vocab-size", "400", "--output-dir", "tok")
        cls.cluster = Cluster(cls.temporary.name)
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()
        number = cls.submit("measure", 300)
        cls.cluster.wait_for_state(number, ["COMPLETED"], 120)
        cls.steps_per_s = 300 / cls.json_of("measure", "summary.json")["train_runtime"]

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.folder, *parts)

    @classmethod
    def read(cls, *parts):
        with open(cls.path(*parts), "rb") as file:
            return file.read()

    @classmethod
    def json_of(cls, *parts):
        return json.loads(cls.read(*parts))

    @classmethod
    def tessera(cls, *words):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        return subprocess.run([PROGRAM, *words], cwd=cls.folder, env=clean, check=True, stdout=subprocess.PIPE, text=True).stdout

    @classmethod
    def submit(cls, name, steps, *words, job=(), output=None):
        """Writes a job file for a run of two ranks on each host, and submits it. Returns the job's number."""
        output = output or name
        words = [*JOB, "--logging-steps", "50", "--max-steps", str(steps), "--strategy", "hybrid_shard", "--eval-strategy", "no",
                 "--save-strategy", "steps", "--save-steps", "500", "--comm-timeout", "60", "--output-dir", output, *words]
        cls.tessera("slurm", "--nodes", "2", "--ntasks-per-node", "2", "--cpus-per-task", "1", "--job-name", name,
                    "--job-file", f"{name}.sbatch", *job, "train", *words)
        return cls.cluster.submit(cls.path(f"{name}.sbatch"))

    def steps_of(self, seconds):
        return max(1000, round(int(seconds * self.steps_per_s), -3))

    def log(self, name, number):
        return self.read(name, f"slurm-{number}.log").decode(errors="replace")

    def wait_for_lines(self, name, count):
        def reached():
            path = self.path(name, "metrics.jsonl")
            return os.path.exists(path) and self.read(name, "metrics.jsonl").count(b"\n") >= count
        wait_for(f"{count} lines of metrics in {name}", reached, 120)

    def checkpoints(self, name):
        return sorted(int(match[1]) for entry in os.listdir(self.path(name)) if (match := re.fullmatch(r"checkpoint-(\d+)", entry)))

    def run_to_the_end(self, number, limit_s):
        """Waits until the job ends. Starts it each time it is queued again. Returns the job's fields at the end."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            fields = self.cluster.job(number)
            if fields["JobState"] in ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"]:
                return fields
            if fields["JobState"] == "PENDING" and fields["Reason"] == "BeginTime":
                time.sleep(REQUEUE_PAUSE_S)
                self.cluster.start_now(number)
            time.sleep(0.5)
        self.fail(f"job {number} did not end in {limit_s} s: {self.cluster.job(number)}")

    def assert_same_results(self, name, other):
        self.assertEqual(without_timing(self.path(name, "metrics.jsonl")), without_timing(self.path(other, "metrics.jsonl")))
        self.assertEqual(self.read(name, "model", "model.safetensors"), self.read(other, "model", "model.safetensors"))

    def test_the_time_limit_strikes_and_the_job_resumes(self):
        steps = self.steps_of(55)
        number = self.submit("limited", steps, job=["--time", "1", "--signal-before", "10"])
        fields = self.run_to_the_end(number, 400)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("COMPLETED", "0:0"), self.log("limited", number))
        self.assertGreaterEqual(int(fields["Restarts"]), 1)
        log = self.log("limited", number)
        self.assertEqual(log.count("the run has saved; the job is queued again"), int(fields["Restarts"]))
        whole = self.submit("whole", steps)
        self.assertEqual(self.run_to_the_end(whole, 300)["Restarts"], "0")
        self.assert_same_results("limited", "whole")
        print(f"{steps} steps, {fields['Restarts']} requeues: metrics and model equal those of an uninterrupted run")

    def test_hybrid_shard_sees_two_nodes(self):
        """The two ranks of each node form a group that holds one copy of the model. Tessera finds the group size 2 from
        the nodes: memory and results are the same as with --shard-group-size 2."""
        self.cluster.wait_for_state(self.submit("detected", 20), ["COMPLETED"], 120)
        self.cluster.wait_for_state(self.submit("given", 20, "--shard-group-size", "2"), ["COMPLETED"], 120)
        self.cluster.wait_for_state(self.submit("four", 20, "--shard-group-size", "4"), ["COMPLETED"], 120)
        memory = {name: self.json_of(name, "summary.json")["ledger_peak_bytes"] for name in ["detected", "given", "four"]}
        self.assertEqual(memory["detected"], memory["given"])
        self.assertNotEqual(memory["detected"], memory["four"])
        self.assert_same_results("detected", "given")

    def test_without_signal_the_limit_ends_the_job(self):
        number = self.submit("unsignalled", self.steps_of(1000), job=["--time", "1", "--signal-before", "0"])
        fields = self.cluster.wait_for_state(number, ["TIMEOUT", "FAILED", "COMPLETED"], 240)
        self.assertEqual((fields["JobState"], fields["Restarts"]), ("TIMEOUT", "0"))
        log = self.log("unsignalled", number)
        self.assertNotIn("the job is queued again", log)
        self.assertIn("DUE TO TIME LIMIT", log)
        self.assertTrue(self.checkpoints("unsignalled"))

    def test_scancel_saves_and_does_not_queue_again(self):
        number = self.submit("cancelled", self.steps_of(1000))
        self.wait_for_lines("cancelled", 5)
        self.cluster.run("scancel", number)
        fields = self.cluster.wait_for_state(number, ["CANCELLED", "FAILED", "COMPLETED"], 60)
        self.assertEqual((fields["JobState"], fields["Restarts"]), ("CANCELLED", "0"))
        self.assertRegex(self.log("cancelled", number), r"Stopped by signal 15 after step \d+\. A checkpoint is saved")
        self.assertTrue(self.checkpoints("cancelled"))

    def test_a_lost_node_queues_the_job_again(self):
        """Slurm queues the job again, because the job file has --requeue. The checkpoint that was saved before the node
        was lost is intact."""
        steps = max(2000, self.steps_of(25))  # the node is lost at about step 1250
        number = self.submit("lost", steps)
        self.wait_for_lines("lost", 1000 // 50 + 5)
        self.cluster.lose("hostB")
        fields = self.cluster.wait_for_state(number, ["PENDING", "FAILED", "COMPLETED"], 120)
        self.assertEqual((fields["JobState"], fields["Restarts"]), ("PENDING", "1"), self.log("lost", number))
        self.assertIn("DUE TO NODE FAILURE", self.log("lost", number))
        self.assertIn(1000, self.checkpoints("lost"))
        self.cluster.bring_back("hostB")
        fields = self.run_to_the_end(number, 200)
        self.assertEqual((fields["JobState"], fields["Restarts"]), ("COMPLETED", "1"), self.log("lost", number))
        self.cluster.wait_for_state(self.submit("not_lost", steps), ["COMPLETED"], 200)
        self.assert_same_results("lost", "not_lost")

    def test_jobs_of_a_sweep_run_one_after_the_other(self):
        """A requeued job has not ended, so the next job keeps waiting for it. A failed job has ended, so the next job
        starts."""
        with open(self.path("chain.toml"), "w", encoding="utf-8") as file:
            file.write('output_dir = "chain/{name}"\n[[run]]\nname = "long"\n'
                       f'max_steps = {self.steps_of(1000)}\n[[run]]\nname = "fails"\ndevice = "cuda"\nmax_steps = 5\n'
                       '[[run]]\nname = "last"\nmax_steps = 5\n')
        words = ["slurm", "--submit", "--nodes", "2", "--ntasks-per-node", "1", "--cpus-per-task", "1", "sweep", "chain.toml", *JOB,
                 "--strategy", "full_shard", "--eval-strategy", "no"]
        printed = self.cluster.run("sh", "-c", 'cd "$0" && exec "$@"', self.folder, PROGRAM, *words)
        long, fails, last = [line.split()[0] for line in printed.splitlines()]
        self.wait_for_lines("chain/long", 5)
        self.cluster.run("scancel", "--signal=USR1", long)
        self.cluster.wait_for_state(long, ["PENDING"], 60)
        time.sleep(REQUEUE_PAUSE_S)
        fields = self.cluster.job(fails)
        self.assertEqual((fields["JobState"], fields["Reason"]), ("PENDING", "Dependency"))
        self.assertEqual(self.cluster.job(long)["Restarts"], "1")
        self.cluster.run("scancel", long)
        self.assertEqual(self.cluster.wait_for_state(fails, ["FAILED", "COMPLETED"], 120)["JobState"], "FAILED")
        self.assertEqual(self.cluster.wait_for_state(last, ["FAILED", "COMPLETED"], 120)["JobState"], "COMPLETED")
        start, end = self.cluster.job(last)["StartTime"], self.cluster.job(fails)["EndTime"]
        self.assertGreaterEqual(start, end)

    def test_a_run_that_fails_ends_the_job(self):
        number = self.submit("failing", 100, "--device", "cuda")
        fields = self.cluster.wait_for_state(number, ["FAILED", "COMPLETED"], 60)
        self.assertEqual((fields["JobState"], fields["Restarts"]), ("FAILED", "0"))
        self.assertNotIn("the job is queued again", self.log("failing", number))


if __name__ == "__main__":
    if missing():
        print("This test needs: " + ", ".join(missing()), file=sys.stderr)
        sys.exit(2)
    main()
