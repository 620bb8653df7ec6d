"""File operations that fail while a run of one or several ranks opens its checkpoint. The run repeats a call if its
error may be temporary. If the error remains, or cannot be temporary, the run ends. It never treats the checkpoint as
damaged."""
import errno
import os
import shutil
import unittest

from ranks_job import RUN_FAILED, RanksTest
from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED, INPUT, OUT_OF_MEMORY

JOB = EVALUATED + ["--epochs", "6", "--save-strategy", "steps", "--save-steps", "2", "--eval-strategy", "no"]
ALWAYS = 10**6


@unittest.skipIf(os.environ.get("TESSERA_TEST_SANITIZED") == "thread",
                 "the thread sanitizer does not work with a preloaded library")
class ReadErrors(RanksTest):
    LIBRARY = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")

    def failing(self, ranks, rank, number, functions, path, call, count):
        """Resumes a run. LIBRARY counts the calls of `functions` that rank `rank` makes on files with `path` in their
        paths. The count begins with 1. The calls from `call` to `call + count - 1` fail with errno `number`. Returns
        the run's exit code and standard error."""
        env = {"LD_PRELOAD": self.LIBRARY, "FAULT_RANK": "" if ranks == 1 else str(rank),
               "FAULT_KIND": f"error {int(number)}", "FAULT_CALLS": functions, "FAULT_PATH": path,
               "FAULT_CALL": str(call), "FAULT_TIMES": str(count)}
        env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return self.start("out", "--strategy", "full_shard" if ranks > 1 else "no_shard", ranks=ranks, job=JOB,
                          env=env).end()

    def check(self, ranks, every=1):
        """Tests the two lists of errors below. `every`: tests only cases 0, every, 2 · every, … of each list, to save
        time."""
        strategy = "full_shard" if ranks > 1 else "no_shard"
        self.train_ranks("whole", "--strategy", strategy, ranks=ranks, job=JOB)
        shutil.copytree(self.path("whole"), self.path("out"))
        for name in "model", "checkpoint-12":
            shutil.rmtree(self.path("out", name))
        os.remove(self.path("out", "summary.json"))
        before = sorted(os.listdir(self.path("out")))
        last = ranks - 1
        file = f"checkpoint-10/rank-{last:05}-of-{ranks:05}"
        # All calls from `call` on fail, so retries do not help. The run ends, reports the error, the rank and the file,
        # and changes no checkpoint.
        for number, functions, path, call, code in [
                (errno.EIO, "pread", file, 1, RUN_FAILED), (errno.EIO, "pread", "checkpoint-10/manifest.json", 1, RUN_FAILED),
                (errno.ESTALE, "open_read", file, 1, RUN_FAILED), (errno.EMFILE, "open_read", file, 2, RUN_FAILED),
                (errno.ENOMEM, "open_read pread", "checkpoint-10", 2, OUT_OF_MEMORY),
                (errno.EACCES, "open_read", file, 1, INPUT),
                (errno.EIO, "stat", "out/checkpoint-10", 1, RUN_FAILED)][::every]:
            with self.subTest(ranks=ranks, number=errno.errorcode[number], functions=functions, path=path):
                got, err = self.failing(ranks, last, number, functions, path, call, ALWAYS)
                self.assertEqual(got, code, err)
                self.assert_one_error(err, rf".*{'rank %d: ' % last if ranks > 1 else ''}.*out/checkpoint-10.*"
                                           rf"cannot read: {os.strerror(number)}")
                self.assertNotIn("warning", err)
                self.assertEqual(sorted(os.listdir(self.path("out"))), before)
        # A folder that cannot be listed must not count as a folder without checkpoints.
        for functions in "opendir", "readdir":
            got, err = self.failing(ranks, 0, errno.EIO, functions, "/out", 1, ALWAYS)
            self.assertEqual(got, RUN_FAILED, err)
            self.assertIn("cannot read: Input/output error", err)
            self.assertEqual(sorted(os.listdir(self.path("out"))), before)
        # Only a few calls fail, so a retry succeeds. The run resumes without a warning.
        for number, functions, count in [(errno.EINTR, "open_read pread", 20), (errno.ESTALE, "pread", 2),
                                         (errno.EIO, "open_read pread fstat stat opendir readdir", 3),
                                         (errno.EMFILE, "open_read", 2), (errno.EAGAIN, "pread", 2)][::every]:
            shutil.copytree(self.path("out"), self.path("kept"))
            with self.subTest(ranks=ranks, number=errno.errorcode[number], count=count):
                got, err = self.failing(ranks, last, number, functions, "checkpoint-10", 2, count)
                self.assertEqual(got, 0, err)
                self.assertIn("Resuming from out/checkpoint-10 ", err)
                self.assertNotIn("warning", err)
                self.assert_same_results("whole", "out")
            shutil.rmtree(self.path("out"))
            os.rename(self.path("kept"), self.path("out"))

    def test_one_rank(self):
        self.check(1)

    def test_two_ranks(self):
        self.check(2)

    def test_four_ranks(self):
        self.check(4, every=4)


if __name__ == "__main__":
    main()
