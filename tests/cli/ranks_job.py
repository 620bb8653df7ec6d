"""Starts training with several ranks, and observes its processes, its progress and its end from outside."""
import glob
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import mpirun  # noqa: E402
from mpirun import MPIRUN  # noqa: E402,F401
from tessera_cli import PROGRAM, RUN_LIMIT_S
from tiny_job import EVALUATED, ON_GPU, TinyJobTest

# A run with many steps, evaluations and checkpoints, which takes one or two seconds. A step has at most 12 samples, for
# every number of ranks.
LONG = EVALUATED + ["--epochs", "100", "--save-strategy", "steps", "--save-steps", "7", "--save-total-limit", "3",
                    "--eval-strategy", "steps", "--eval-steps", "25", "--eval-before", "--eval-batch-size", "1"]
# A step has about 600 tokens. A sum over them changes by at most this fraction if the order of additions changes.
TOLERANCE = 600 * 2**-23
RUN_FAILED, COMMUNICATION_FAILED, SAVED_AFTER_SIGNAL = 1, 5, 75
ALL_GONE_S = 10  # after the launcher has ended, all other processes must end within this time
PHASES = "start|load|resume|step|evaluation|save"


class Run:
    """A training run. An environment variable identifies all its processes, including orphans."""

    def __init__(self, words, folder, env=None, **options):
        self.mark = f"RANKS_TEST_RUN={uuid.uuid4()}"
        name, value = self.mark.split("=")
        self.ranks = {}  # {rank: process ID}; process_of() fills it
        self.errors = os.path.join(folder, f"errors-{value}")  # a file: orphaned processes would keep a pipe open
        with open(self.errors, "wb") as errors:
            options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": errors, **options}
            self.process = subprocess.Popen(words, cwd=folder, **options,
                                            env={**mpirun.clean_environment(), **(env or {}), name: value})

    def processes(self):
        """{process ID: rank} of all living processes of the run. The launcher and mpirun have the rank None."""
        names = ("RANK=", mpirun.RANK_VARIABLE + "=")
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    variables = file.read().decode(errors="replace").split("\0")
            except OSError:  # the process has ended
                continue
            if self.mark in variables:
                ranks = [v.split("=")[1] for v in variables if v.startswith(names)]
                found[int(entry)] = int(ranks[0]) if ranks else None
        return found

    def process_of(self, rank):
        """Waits until the rank's process exists, and returns its ID. Returns None if the run ends first."""
        while rank not in self.ranks and self.process.poll() is None:
            self.ranks = {its_rank: process for process, its_rank in self.processes().items() if its_rank is not None}
            time.sleep(0.002)  # the ranks need the cores
        return self.ranks.get(rank)

    def signal(self, rank, number):
        """Sends a signal to a rank, or to the launcher if `rank` is None. Returns False if the process or the run has
        ended."""
        process = self.process.pid if rank is None else self.process_of(rank)
        if process is None or self.process.poll() is not None:
            return False
        try:
            os.kill(process, number)
        except ProcessLookupError:
            return False
        return True

    def end(self):
        """Waits until all processes have ended. Returns the launcher's exit code and standard error."""
        code = self.process.wait(timeout=RUN_LIMIT_S)
        deadline = time.monotonic() + ALL_GONE_S
        while self.processes():
            if time.monotonic() > deadline:
                raise AssertionError(f"processes have not ended: {self.processes()}; {self.text()}")
            time.sleep(0.01)
        return code, self.text()

    def text(self):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", "")  # Open MPI 5's mpirun ends some of its own messages with a zero byte

    def destroy(self):
        for process in [*self.processes(), self.process.pid]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


class RanksTest(TinyJobTest):
    def words(self, output, *words, ranks=2, job=LONG):
        batch = [] if "--batch-tokens" in words else ["--batch-size", str(12 // ranks)]
        return ["train", *job, "--output-dir", output, "--nproc", str(ranks), *batch, *words]

    def start(self, output, *words, ranks=2, job=LONG, **options):
        run = Run([PROGRAM, *self.words(output, *words, ranks=ranks, job=job)], self.folder, **options)
        self.addCleanup(run.destroy)
        return run

    def train_ranks(self, output, *words, ranks=2, job=LONG, **options):
        """Trains to the end and returns standard error."""
        code, err = self.start(output, *words, ranks=ranks, job=job, **options).end()
        self.assertEqual(code, 0, err)
        return err

    def assert_near(self, expected, output):
        """Asserts that the metrics of two runs agree, except for rounding."""
        records = [(kind, record) for kind in ["train", "eval"] for record in self.metrics(output, kind)]
        others = [(kind, record) for kind in ["train", "eval"] for record in self.metrics(expected, kind)]
        self.assertEqual(len(records), len(others))
        for (kind, record), (_, other) in zip(records, others):
            for key in ["loss", "eval_loss", "grad_norm"]:
                if key in other:
                    self.assertTrue(math.isclose(record[key], other[key], rel_tol=TOLERANCE), (key, record, other))
            for key in ["step", "learning_rate", "num_targets", "num_tokens", "exact_match", "f1"]:
                self.assertEqual(record.get(key), other.get(key), (key, kind))

    def assert_same_sums(self, expected, output, words):
        """Asserts that two runs have the same results, bit for bit. With --offload on GPUs, the metrics may differ by
        rounding errors: AdamW may then run on the CPU, and only x86 CPUs give the same bits as a GPU."""
        if ON_GPU and "--offload" in words:
            self.assert_near(expected, output)
        else:
            self.assert_same_results(expected, output)

    def wait_until(self, run, condition):
        """Waits for the condition. Returns False if the run ends first."""
        while not condition():
            if run.process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    def is_saving(self, output):
        return bool(glob.glob(self.path(output, "checkpoint-*.tmp-*")))

    def wait_for_moment(self, run, output, source):
        """Waits for a random moment between start and end of the run, often during a save or an evaluation."""
        begin = self.num_lines(output)
        moment = source.choice(["start", "step", "save", "evaluation"])
        if moment == "start":
            time.sleep(source.uniform(0, 0.6))
            return
        run.process_of(0)
        target = begin + source.randint(1, 120)
        is_there = lambda: self.num_lines(output) != begin and self.num_lines(output) >= target
        if moment == "evaluation":  # an evaluation begins when metrics.jsonl has the train record of its step
            is_there = lambda: self.num_lines(output) != begin and self.last_step(output) % 25 == 0
        self.wait_until(run, is_there)
        if moment == "save":
            self.wait_until(run, lambda: self.is_saving(output))
        time.sleep(source.uniform(0, 0.005))

    def last_step(self, output):
        steps = re.findall(rb'"step": (\d+)', self.read(output, "metrics.jsonl"))
        return int(steps[-1]) if steps else 0

    def assert_one_error(self, err, pattern):
        """Asserts that the last line reports an error that matches `pattern`, and that no other line reports one."""
        errors = [line for line in err.splitlines() if "error" in line.lower()]
        self.assertEqual(len(errors), 1, err)
        self.assertRegex(errors[0], "^error: " + pattern)
        self.assertTrue(err.endswith(errors[0] + "\n"), err)
