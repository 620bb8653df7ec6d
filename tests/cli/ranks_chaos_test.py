"""Runs with a fault at a random point: a call on a file fails, the disk is full, a process is killed or gets a signal.

A run with a fault may end with the results of a run without a fault. Otherwise it must end with an exit code that fits
the fault, and with one error line if a call failed. The same command then continues the run, and gives the results of a
run without a fault, bit for bit.

TESSERA_CHAOS_POINTS  number of points (default 100, about two minutes)
TESSERA_CHAOS_SEED    number of the first point (default 0); a failure reports the number of its point
"""
import errno
import os
import random
import shutil
import signal

from ranks_job import COMMUNICATION_FAILED, SAVED_AFTER_SIGNAL, Run
from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED, FAILED, INPUT, OUT_OF_MEMORY, TinyJobTest

NUM_POINTS = int(os.environ.get("TESSERA_CHAOS_POINTS", 100))
FIRST_POINT = int(os.environ.get("TESSERA_CHAOS_SEED", 0))
SHIM = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
# Twelve steps (two per epoch) of at most 12 samples, for every number of ranks.
JOB = EVALUATED + ["--epochs", "6", "--save-strategy", "steps", "--save-steps", "3", "--eval-strategy", "steps",
                   "--eval-steps", "4", "--eval-before"]
VARIANTS = {1: [], 2: ["--strategy", "full_shard"], 3: ["--strategy", "zero2", "--save-async"]}
EVERY = 1 << 30  # as FAULT_TIMES: all later calls fail too, as if a disk stays full
CALLS = {"read": "open_read read pread", "write": "open_write write pwrite fsync ftruncate mkdir rename"}


class Fault:
    """A random fault, and the exit codes that a run with it may have. 0: the run may succeed in spite of the fault."""

    def __init__(self, draw, ranks):
        self.call_class = draw.choice(["read", "write"])
        self.times = 1
        what = draw.choice(["kill", "stop", "error", "error", "harmless"])
        if what == "kill":
            self.kind = f"signal {int(signal.SIGKILL)}"
            self.codes = [-signal.SIGKILL] if ranks == 1 else [COMMUNICATION_FAILED]
        elif what == "stop":
            number = int(draw.choice(STOPS))
            self.kind = f"signal {number}"
            self.codes = [SAVED_AFTER_SIGNAL, 0]
            # The signal ends a process that has not installed its signal handlers yet.
            self.codes += [-number] if ranks == 1 else [128 + number, COMMUNICATION_FAILED]
        elif what == "harmless":
            self.kind = draw.choice([f"error {errno.EINTR}", "short"])
            self.codes = [0]
        elif self.call_class == "read":
            self.kind = f"error {draw.choice([errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM])}"
            self.times = draw.choice([1, EVERY])
            self.codes = [0, FAILED, INPUT, OUT_OF_MEMORY]
        else:
            self.kind = f"error {draw.choice([errno.EIO, errno.ENOSPC])}"
            self.times = draw.choice([1, EVERY])
            self.codes = [0, FAILED]
        self.is_error = what == "error"


class Chaos(TinyJobTest):
    def words(self, output, ranks):
        own = ["--nproc", str(ranks), "--batch-size", str(12 // ranks)] if ranks > 1 else ["--batch-size", "12"]
        return [PROGRAM, "train", *JOB, "--output-dir", output, *own, *VARIANTS[ranks]]

    def run_with(self, output, ranks, **variables):
        env = {"LD_PRELOAD": SHIM, "FAULT_PATH": self.folder, **variables} if variables else {}
        run = Run(self.words(output, ranks), self.folder, env=env)
        self.addCleanup(run.destroy)
        return run.end()

    def whole(self, ranks):
        """The output folders of two runs without a fault: a complete run, and a run that looks as if it was killed
        half-way."""
        name, half = f"whole-{ranks}", f"half-{ranks}"
        if not os.path.isdir(self.path(name)):
            code, err = self.run_with(name, ranks)
            self.assertEqual(code, 0, err)
            shutil.copytree(self.path(name), self.path(half))
            shutil.rmtree(self.path(half, "model"))
            os.remove(self.path(half, "summary.json"))
            for step in self.checkpoints(half):
                if step > 6:
                    shutil.rmtree(self.path(half, f"checkpoint-{step}"))
        return name, half

    def num_calls(self, start, ranks, call_class):
        """The number of calls of a class that rank 0, or the only process, makes in a run without a fault."""
        key = (start, ranks, call_class)
        if key not in self.counts:
            self.begin(start, ranks)
            counted = self.path("count")
            code, err = self.run_with("out", ranks, FAULT_CALLS=CALLS[call_class], FAULT_COUNT=counted,
                                      **({"FAULT_RANK": "0"} if ranks > 1 else {}))
            self.assertEqual(code, 0, err)
            with open(counted, encoding="utf-8") as file:
                self.counts[key] = int(file.read())
            self.assertGreater(self.counts[key], 10)
        return self.counts[key]

    def begin(self, start, ranks):
        shutil.rmtree(self.path("out"), ignore_errors=True)
        if start == "half":
            shutil.copytree(self.path(self.whole(ranks)[1]), self.path("out"))

    def meet(self, number):
        draw = random.Random(number)
        ranks = draw.choice([1, 1, 1, 2, 3])
        start = draw.choice(["new", "half"])
        whole, _ = self.whole(ranks)
        fault = Fault(draw, ranks)
        rank = draw.choice([0, 0, ranks - 1])  # rank 0 makes the most calls on files
        call = draw.randint(1, self.num_calls(start, ranks, fault.call_class))
        point = f"{fault.kind} at {fault.call_class} {call} of rank {rank} of {ranks}, x{fault.times}, {start}"
        self.begin(start, ranks)
        code, err = self.run_with("out", ranks, FAULT_CALLS=CALLS[fault.call_class], FAULT_CALL=str(call),
                                  FAULT_KIND=fault.kind, FAULT_TIMES=str(fault.times),
                                  **({"FAULT_RANK": str(rank)} if ranks > 1 else {}))
        # `call` is at most the number of calls that rank 0 makes. If another rank has the fault and makes fewer than
        # `call` calls, no fault occurs.
        self.assertIn(code, [*fault.codes, 0] if rank > 0 else fault.codes, (point, err))
        self.assertNotIn("assertion failed", err)
        if code != 0 and fault.is_error:
            self.assertEqual(len([line for line in err.splitlines() if line.startswith("error: ")]), 1, (point, err))
        if code != 0:
            code, err = self.run_with("out", ranks)
            self.assertEqual(code, 0, (point, err))
        self.assert_same_results(whole, "out")
        self.assertEqual(self.checkpoints("out"), self.checkpoints(whole), point)
        self.assert_tidy("out")

    def test_points(self):
        self.counts = {}
        for number in range(FIRST_POINT, FIRST_POINT + NUM_POINTS):
            with self.subTest(point=number):
                self.meet(number)


if __name__ == "__main__":
    main()
