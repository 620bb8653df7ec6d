"""Ranks that are killed, stopped or get a signal at any moment: all ranks end, one line reports why, and the run can
continue."""
import os
import random
import re
import shutil
import signal
import unittest

from ranks_job import COMMUNICATION_FAILED, LONG, MPIRUN, PHASES, SAVED_AFTER_SIGNAL, RanksTest, Run, mpirun
from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED

KILLED = rf"rank \d was killed by signal 9 \(Killed\).*\bin phase ({PHASES})\b"
COMM_TIMEOUT_S = 6  # longer than a busy machine pauses a process
STOPPED = (rf"rank 0: (\w+ of .*: waited {COMM_TIMEOUT_S} s for (rank 1|the other ranks of its group)\.|"
           rf"not all ranks have arrived within {COMM_TIMEOUT_S + 5} s\.) .*"
           rf"(Rank 1 \(process \d+\) is stopped, in phase ({PHASES})\.|Rank 1 has not started\.)")


class Killed(RanksTest):
    def kill_until_done(self, output, words, ranks, source):
        """Kills a rank or the launcher at random moments until a run reaches its end."""
        for _ in range(1000):
            run = self.start(output, *words, ranks=ranks)
            self.wait_for_moment(run, output, source)
            rank = source.choice([None, *range(ranks), *range(ranks)])
            was_there = run.signal(rank, signal.SIGKILL)
            code, err = run.end()
            if code == 0:
                return
            self.assertTrue(was_there, err)
            if rank is None:
                self.assertEqual(code, -signal.SIGKILL, err)
            else:
                self.assertEqual(code, COMMUNICATION_FAILED, err)
                self.assert_one_error(err, KILLED)
        self.fail("killed runs make no progress")

    def check(self, seed, *words, ranks):
        self.train_ranks("whole", *words, ranks=ranks)
        self.kill_until_done("killed", words, ranks, random.Random(seed))
        self.assert_same_results("whole", "killed")
        self.assertEqual(self.checkpoints("killed"), self.checkpoints("whole"))
        self.assert_tidy("killed")

    def test_full_shard(self):
        self.check(1, "--strategy", "full_shard", ranks=2)

    def test_saving_in_the_background(self):
        self.check(2, "--strategy", "zero2", "--save-async", ranks=3)

    def test_offload_to_files(self):
        os.mkdir(self.path("files"))
        self.check(3, "--strategy", "full_shard", "--offload", "optimizer:file,parameters:file", "--offload-dir",
                   "files", "--save-async", ranks=2)
        self.assertEqual(os.listdir(self.path("files")), [])

    def test_best_model(self):
        self.check(4, "--strategy", "hybrid_shard", "--shard-group-size", "2", "--save-steps", "25",
                   "--save-total-limit", "1", "--load-best-model-at-end", ranks=4)

    @unittest.skipUnless(mpirun.IS_THERE, "needs mpirun")
    def test_under_plain_mpirun(self):
        """Without --nproc, one error line names the killed rank. mpirun also prints lines of its own, and chooses the
        exit code."""
        words = ["train", *LONG, "--output-dir", "out", "--batch-size", "6", "--strategy", "full_shard"]
        for rank, lines in (0, 15), (1, 40):
            run = Run([*MPIRUN, "-n", "2", PROGRAM, *words], self.folder)
            self.addCleanup(run.destroy)
            self.assertTrue(self.wait_until(run, lambda: self.num_lines("out") >= lines), run.text())
            self.assertTrue(run.signal(rank, signal.SIGKILL))
            code, err = run.end()
            self.assertNotEqual(code, 0, err)
            if not mpirun.IS_OPEN_MPI:  # MPICH's mpirun kills the rank that would report
                continue
            errors = re.findall("^error: .*", err, re.MULTILINE)
            self.assertEqual(len(errors), 1, err)
            self.assertRegex(errors[0], rf"^error: rank {rank} \(process \d+\) was killed, or ended without an error "
                             rf"message\. Rank {rank} was in phase ({PHASES})\. ")

    def test_restarts(self):
        """A rank is killed twice. Each time, the launcher restarts all ranks."""
        self.train_ranks("whole", ranks=2)
        run = self.start("out", "--max-restarts", "2", "--restart-pause", "0.1", "--resume", "none")
        for lines in (60, 140):
            self.assertTrue(self.wait_until(run, lambda: self.num_lines("out") >= lines), run.text())
            run.ranks = {}
            self.assertTrue(run.signal(1, signal.SIGKILL))
            self.wait_until(run, lambda: run.text().count("warning: ") == lines // 60)
        code, err = run.end()
        self.assertEqual((code, err.count("error: ")), (0, 0), err)
        self.assertEqual(len(re.findall(f"warning: {KILLED}", err)), 2, err)
        self.assert_same_results("whole", "out")


@unittest.skipIf(os.environ.get("TESSERA_TEST_SANITIZED") == "thread",
                 "the thread sanitizer does not work with a preloaded library")
class AtCalls(RanksTest):
    """Counts the calls of one rank that read another rank's memory or change a file. The rank gets a signal before a
    chosen call, so the speed of the machine has no influence."""
    JOB = EVALUATED + ["--strategy", "full_shard", "--epochs", "2", "--save-strategy", "steps", "--save-steps", "2",
                       "--save-total-limit", "1", "--eval-strategy", "steps", "--eval-steps", "2",
                       "--eval-before", "--forward-prefetch"]
    LIBRARY = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
    NUM_CALLS = 6  # a run gets one signal: at the first counted call of a rank, or at one of 6 later calls

    def start_counted(self, output, rank, **variables):
        env = {"LD_PRELOAD": self.LIBRARY, "FAULT_RANK": str(rank), "FAULT_COUNT": self.path("count"),
               "FAULT_CALLS": "process_vm_readv pwrite fsync mkdir rename", **variables}
        # Without this option, AddressSanitizer demands that its own library is loaded first.
        env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return self.start(output, job=self.JOB, env=env)

    def check_everywhere(self, number, check):
        """For several calls of rank 0 and of rank 1: starts a new run, sends the signal `number` to the rank at this
        call, and checks how the run ends. Then continues the run without a signal, and checks its results."""
        self.train_ranks("whole", job=self.JOB)
        for rank in 0, 1:
            code, err = self.start_counted("counted", rank).end()
            self.assertEqual(code, 0, err)
            num_calls = int(self.read("count"))
            self.assertGreater(num_calls, 10 * self.NUM_CALLS)
            shutil.rmtree(self.path("counted"))
            for call in [1, *(1 + (2 * i + 1) * num_calls // (2 * self.NUM_CALLS) for i in range(self.NUM_CALLS))]:
                with self.subTest(rank=rank, call=call, of=num_calls):
                    run = self.start_counted("out", rank, FAULT_CALL=str(call), FAULT_KIND=f"signal {int(number)}")
                    check(*run.end())
                    self.train_ranks("out", job=self.JOB)
                    self.assert_same_results("whole", "out")
                    self.assertEqual(self.checkpoints("out"), self.checkpoints("whole"))
                    self.assert_tidy("out")
                    shutil.rmtree(self.path("out"))

    def test_killed(self):
        phases = set()

        def check(code, err):
            self.assertEqual(code, COMMUNICATION_FAILED, err)
            self.assert_one_error(err, KILLED)
            phases.update(re.findall(r"in phase (\w+)", err))

        self.check_everywhere(signal.SIGKILL, check)
        self.assertGreater(len(phases), 1)

    def test_signalled(self):
        """The exit code is 75. Exception: it is 0 if the final model exists at the end. A signal at the first call
        comes before the run has anything to save. If the run has something to save, it saves before it ends."""
        said = set()

        def check(code, err):
            said.update(re.findall(r"Stopped by signal 15 (after step|before the run had anything to save)", err))
            is_done = os.path.exists(self.path("out", "model"))
            self.assertEqual(code, 0 if is_done else SAVED_AFTER_SIGNAL, err)
            self.assertNotIn("error", err)
            self.assert_tidy("out")

        self.check_everywhere(signal.SIGTERM, check)
        self.assertEqual(len(said), 2)


class Stopped(RanksTest):
    """SIGSTOP stops rank 1: its process still exists, but does not run any more. Rank 0 must report this."""

    def check(self, wait, *words):
        run = self.start("out", *words, "--comm-timeout", str(COMM_TIMEOUT_S))
        wait(run)
        self.assertTrue(run.signal(1, signal.SIGSTOP))
        code, err = run.end()
        self.assertEqual(code, COMMUNICATION_FAILED, err)
        return err

    def test_at_the_start(self):
        self.assert_one_error(self.check(lambda run: run.process_of(1)), STOPPED)

    def test_anywhere(self):
        self.train_ranks("whole")
        source = random.Random(5)
        for words in [], ["--strategy", "full_shard", "--save-async"]:
            for _ in range(2):
                lines = self.num_lines("out") + source.randint(5, 40)
                err = self.check(lambda run: self.wait_until(run, lambda: self.num_lines("out") >= lines), *words)
                self.assert_one_error(err, STOPPED)
        self.train_ranks("out")
        self.assert_same_results("whole", "out")


class Signalled(RanksTest):
    def test_signals(self):
        """After a signal to one rank, or to the launcher (which forwards it), all ranks save and end."""
        self.train_ranks("whole", ranks=3)
        lines = 10
        for rank, number in [(None, signal.SIGTERM), (1, signal.SIGUSR1), (2, signal.SIGTERM), (None, signal.SIGHUP)]:
            with self.subTest(rank=rank, number=number):
                run = self.start("out", "--save-async", "--max-restarts", "3", ranks=3)
                run.process_of(2)
                self.assertTrue(self.wait_until(run, lambda: self.num_lines("out") >= lines))
                if lines > 10:  # the run resumes: wait until it has printed its first messages
                    self.assertTrue(self.wait_until(run, lambda: "Resuming" in run.text() and
                                                    " samples, " in run.text()))
                self.assertTrue(run.signal(rank, number))
                code, err = run.end()
                self.assertEqual(code, SAVED_AFTER_SIGNAL, err)
                self.assertRegex(err, rf"Stopped by signal {int(number)} after step \d+\. A checkpoint is saved\.")
                self.assertNotIn("error", err)
                self.assert_tidy("out")
                lines = self.num_lines("out") + 20
        self.train_ranks("out", ranks=3)
        self.assert_same_results("whole", "out")


class LostOutput(RanksTest):
    def test_the_reader_goes_away(self):
        """As in `tessera train --nproc N … | head -1`, the reader of one stream or of both streams goes away. Training
        continues."""
        job = EVALUATED + ["--epochs", "20", "--save-strategy", "steps", "--save-steps", "7"]
        for ranks, streams in (2, ["stdout"]), (2, ["stderr"]), (4, ["stdout", "stderr"]):
            with self.subTest(ranks=ranks, streams=streams):
                output, whole = f"{'-'.join(streams)}-{ranks}", f"whole-{ranks}"
                if not os.path.exists(self.path(whole)):
                    self.train_ranks(whole, ranks=ranks, job=job)
                reader, writer = os.pipe()
                run = self.start(output, ranks=ranks, job=job, **{stream: writer for stream in streams})
                os.close(writer)
                with open(reader, "rb") as pipe:
                    pipe.readline()
                code, err = run.end()
                self.assertEqual(code, 0, err)
                self.assert_same_results(whole, output)
                self.assertEqual(self.checkpoints(output), self.checkpoints(whole))
                self.assertTrue(os.path.exists(self.path(output, "summary.json")))
                if streams == ["stdout"]:
                    self.assertEqual(err.count("warning: standard output: cannot write to it: Broken pipe"), 1, err)


if __name__ == "__main__":
    main()
