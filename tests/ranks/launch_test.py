"""Tests of the launcher: `python3 launch_test.py LAUNCH_PROGRAM [TEST...]`.

The program launch_program has the launcher of Tessera, and verbs for tests: say, misbehave, work and recover."""
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

RUN_LIMIT_S = float(os.environ.get("TESSERA_TEST_RUN_LIMIT_S", 60))
PROGRAM = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import mpirun  # noqa: E402

MPIRUN = [*mpirun.MPIRUN, "-n", "3"]
TORCHRUN = [*mpirun.TORCHRUN, "--nproc-per-node", "3"]
needs_mpirun = unittest.skipUnless(mpirun.IS_THERE, "needs mpirun")
# When a rank dies, Open MPI gives the other ranks one second to report this. Hydra (MPICH) kills them immediately.
OTHERS_HAVE_TIME = mpirun.IS_OPEN_MPI
# Ranks name exactly the ranks that they wait for. A machine that stands still for this time would make them name others.
PATIENCE = ["--comm-timeout", "4"]


class Launch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *words, before=(), env=None, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([*before, PROGRAM, *words], cwd=self.folder,
                                   env={**mpirun.clean_environment(), **(env or {})}, **options)
        self.addCleanup(process.kill)
        return process

    def run_program(self, *words, **options):
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=RUN_LIMIT_S)
        return process.returncode, (out or b"").decode(), err.decode()

    def fails(self, code, pattern, *words, **options):
        """Expects this exit code, and exactly one line of output: an error on standard error that matches `pattern`."""
        got, out, err = self.run_program(*words, **options)
        self.assertEqual((got, out), (code, ""), err)
        self.assertRegex(err, "^error: " + pattern)
        self.assertEqual(err.count("\n"), 1, err)

    def test_starts_ranks_that_print_once_and_read_nothing(self):
        code, out, err = self.run_program("say", "--nproc", "3", "--prompt", "a  b\n$c", env={"VALUE": "7"},
                                          stdin=subprocess.DEVNULL)
        threads = max(1, len(os.sched_getaffinity(0)) // 3)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, f"ranks 0 1 2 of 3, 3 local, {threads} threads, stdin empty, VALUE 7, prompt a  b\n$c\n")
        self.assertEqual(err, "on no terminal\n")

    def test_no_other_program_is_needed(self):
        for words, ranks in ([], "0 of 1"), (["--nproc", "1"], "0 of 1"), (["--nproc", "2"], "0 1 of 2"):
            code, out, err = self.run_program("say", *words, env={"PATH": "/nowhere"}, stdin=subprocess.DEVNULL)
            self.assertEqual(code, 0, err)
            self.assertIn(f"ranks {ranks},", out)

    def test_the_number_from_a_file_or_the_environment(self):
        path = os.path.join(self.folder, "run.toml")
        with open(path, "w") as file:
            file.write("nproc = 2\n")
        for words, env in ([path], {}), ([], {"TESSERA_NPROC": "2"}), (["--num-processes=2"], {}):
            code, out, err = self.run_program("say", *words, env=env, stdin=subprocess.DEVNULL)
            self.assertEqual(code, 0, err)
            self.assertIn("ranks 0 1 of 2,", out)

    def test_threads_by_the_environment(self):
        _, out, _ = self.run_program("say", "--nproc", "2", env={"OMP_NUM_THREADS": "5"}, stdin=subprocess.DEVNULL)
        self.assertIn(" 0 threads,", out)  # 0: OMP_NUM_THREADS decides

    def test_ranks_write_to_the_launchers_terminal(self):
        controller, terminal = pty.openpty()
        process = subprocess.Popen([PROGRAM, "say", "--nproc", "2"], stdin=subprocess.DEVNULL, stdout=terminal,
                                   stderr=terminal, env={**os.environ, "TERM": "xterm"})
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), 0)
        os.close(terminal)
        self.assertIn(b"on a terminal", os.read(controller, 4096))
        os.close(controller)

    @needs_mpirun
    def test_joins_what_mpirun_has_started(self):
        code, out, err = self.run_program("say", before=MPIRUN, stdin=subprocess.DEVNULL)
        self.assertEqual((code, err), (0, "on no terminal\n"))
        self.assertIn("ranks 0 1 2 of 3", out)
        code, _, err = self.run_program("say", "--nproc", "2", before=MPIRUN, stdin=subprocess.DEVNULL)
        self.assertEqual(code, 2)
        self.assertEqual(err.count("error: "), 1, err)
        self.assertIn("--nproc: 2 contradicts the 3 ranks that mpirun has started. Remove the setting nproc", err)
        code, _, err = self.run_program("say", "--nproc", "2", before=[*mpirun.MPIRUN, "-n", "1"])
        self.assertEqual(code, 2)
        self.assertIn("--nproc: 2 contradicts the 1 rank that mpirun has started. Remove the setting nproc", err)

    def test_joins_what_torchrun_has_started(self):
        code, out, err = self.run_program("say", before=TORCHRUN, stdin=subprocess.DEVNULL)
        self.assertEqual((code, err), (0, "on no terminal\n"))
        self.assertIn("ranks 0 1 2 of 3, 3 local", out)
        code, _, err = self.run_program("say", "--nproc", "2", before=TORCHRUN, stdin=subprocess.DEVNULL)
        self.assertEqual(code, 2)
        self.assertIn("--nproc: 2 contradicts the 3 ranks that torchrun has started. Remove the setting nproc", err)

    def test_srun_without_pmix(self):
        """The variables of `srun --mpi=none` for two tasks on one node."""
        env = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2",
               "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "localhost"}
        ranks = [self.start("say", env={**env, "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)}, stdin=subprocess.DEVNULL)
                 for i in range(2)]
        outputs = [rank.communicate(timeout=RUN_LIMIT_S) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertIn(b"ranks 0 1 of 2, 2 local", outputs[0][0])
        self.assertEqual(outputs[1], (b"", b""))

    def test_variables_that_are_missing_or_wrong(self):
        torchrun = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        for changes, message in [
            ({"MASTER_ADDR": ""}, "MASTER_ADDR: is not set, but RANK=1 and WORLD_SIZE=2 .* use `--nproc N` instead"),
            ({"MASTER_PORT": ""}, "MASTER_PORT: is not set, but RANK=1"),
            ({"MASTER_PORT": "x"}, 'MASTER_PORT: must be a port from 1 to 65535, got "x"'),
            ({"RANK": "2"}, "RANK: is 2, but WORLD_SIZE is 2: the ranks are numbered from 0"),
            ({"RANK": "two"}, 'RANK: must be a rank or a number of ranks, got "two"'),
            ({"RANK": ""}, "RANK: is not set, but WORLD_SIZE=2, MASTER_ADDR and MASTER_PORT are set"),
        ]:
            with self.subTest(changes=changes):
                self.fails(2, "(rank 1: )?" + message, "say", env={**torchrun, **changes})
        self.fails(2, "rank 0: SLURM_STEP_NODELIST: is .*Set MASTER_ADDR", "say",
                   env={"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"})
        code, out, err = self.run_program("say", "--nproc", "2", env={"RANK": "0", "WORLD_SIZE": "1"},
                                          stdin=subprocess.DEVNULL)
        self.assertEqual(code, 0, err)
        self.assertIn("ranks 0 1 of 2", out)

    def start_ranks(self, ranks, *words, size=2):
        """Starts the ranks with these numbers, as torchrun does, with a free port."""
        with socket.socket() as store:
            store.bind(("127.0.0.1", 0))
            port = store.getsockname()[1]
        env = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return [self.start("say", *words, env={**env, "RANK": str(rank)}, stdin=subprocess.DEVNULL) for rank in ranks]

    def test_a_rank_that_is_missing_is_named(self):
        (alone,) = self.start_ranks([1], "--comm-timeout", "1")
        for rank in self.start_ranks([0, 2], "--comm-timeout", "1", size=4):
            _, err = rank.communicate(timeout=RUN_LIMIT_S)
            self.assertEqual(rank.returncode, 5, err)
            self.assertRegex(err, rb"not all ranks have arrived within 6 s\. Ranks 1, 3 have not arrived\. If ranks start "
                             rb"slowly, give a longer --comm-timeout\n$")
        _, err = alone.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual(alone.returncode, 5, err)
        self.assertRegex(err, rb"error: rank 1: cannot reach rank 0 at 127\.0\.0\.1, port \d+ \(MASTER_ADDR\) within 11 s: ")

    def test_two_processes_with_one_rank(self):
        """At least one process reports this. A rank that comes later may still wait for rank 0."""
        for numbers in (0, 1, 1), (1, 0, 0):
            ranks = self.start_ranks(numbers, size=3)
            deadline = time.monotonic() + RUN_LIMIT_S
            while time.monotonic() < deadline and not any(rank.poll() is not None for rank in ranks):
                time.sleep(0.01)
            for rank in ranks:
                if rank.poll() is None:
                    rank.terminate()
            outputs = [rank.communicate(timeout=RUN_LIMIT_S)[1] for rank in ranks]
            reports = [rank.returncode for rank, err in zip(ranks, outputs)
                       if f"RANK: is {numbers[2]} in two processes".encode() in err]
            self.assertIn(2, reports, outputs)

    def test_failures_under_torchrun(self):
        waited = r"Ranks? [01](, 1)? waited in all_reduce of gradients of h\.3\.\n"
        for action, code, pattern in [
            ("throw", 1, r"error: rank 2: disk: is full"),
            ("all", 3, r"error: rank \d: model.safetensors: is cut"),
            ("stop", 5, r"error: rank [01]: all_reduce.*waited 4 s for rank 2.*is stopped"),
            ("stop-at-end", 5, r"error: rank [01]: not all ranks have ended .* Rank 2 .* is stopped"),
            ("kill", None, r"error: rank 2 \(process \d+\) was killed, or ended without an error message\. Rank 2 was in phase "
             r"step\. " + waited),
            ("kill-alone", None, r"error: rank 2 \(process \d+\) was killed, or .*\. Rank 2 was in phase step\.\n"),
        ]:
            with self.subTest(action=action):
                got, _, err = self.run_program("misbehave", "--prompt", action, *PATIENCE, before=TORCHRUN)
                # torchrun ends with the code of the rank whose end it notices first, and so does mpirun.
                self.assertIn(got, [code, 5] if code else [5, 128 + signal.SIGKILL], err)
                self.assertRegex(err, pattern)
                self.assertEqual(err.count("error: "), 1, err)

    def test_a_termination_under_torchrun_is_not_an_error(self):
        for verb, words, first in ("work", [], b"at work\n"), ("misbehave", ["--prompt", "sleep"], b"asleep\n"):
            process = self.start(verb, *words, before=TORCHRUN)
            self.assertEqual(process.stdout.readline(), first)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=RUN_LIMIT_S)
            self.assertNotEqual(process.returncode, 0)
            self.assertNotIn(b"error: ", err)

    def test_restarts_need_the_launcher(self):
        for words in ([], ["--nproc", "1"]):
            self.fails(2, "--max-restarts: needs --nproc N with two or more ranks", "say",
                       "--max-restarts", "1", *words)
        code, _, err = self.run_program("say", "--max-restarts", "1", before=TORCHRUN)
        self.assertEqual(code, 2, err)
        self.assertIn("error: rank 0: --max-restarts: needs --nproc N, but torchrun has started the ranks", err)

    def test_errors_of_usage_come_before_the_start(self):
        self.fails(2, "--nproc:", "say", "--nproc", "-1")

    def test_a_rank_that_throws(self):
        waited = r"Ranks? [01](, 1)? waited in all_reduce of gradients of h\.3\."
        self.fails(1, r"rank 2: disk: is full\. Make room\. Rank 2 was in phase step\. " + waited,
                   "misbehave", "--nproc", "3", "--prompt", "throw")
        self.fails(4, "rank 2: out of host memory", "misbehave", "--nproc", "3", "--prompt", "memory")
        self.fails(3, "rank 2: model.safetensors: is cut", "misbehave", "--nproc", "3", "--prompt", "input")

    def test_an_error_of_all_ranks_is_reported_once(self):
        self.fails(3, r"rank \d: model.safetensors: is cut", "misbehave", "--nproc", "3", "--prompt", "all")

    def test_a_rank_that_is_killed(self):
        account = r"Rank 2 was in phase step\. Ranks? [01](, 1)? waited in all_reduce of gradients of h\.3\.$"
        self.fails(5, rf"rank 2 was killed by signal 9 \(Killed\).* " + account,
                   "misbehave", "--nproc", "3", "--prompt", "kill")
        self.fails(5, rf"rank 2 was killed by signal 11 \(Segmentation fault\)\. " + account,
                   "misbehave", "--nproc", "3", "--prompt", "segv")

    def test_a_rank_that_is_stopped(self):
        self.fails(5, r"rank [01]: all_reduce of gradients of h\.3: waited 4 s for rank 2\..* Rank 2 \(process \d+\) is "
                   r"stopped, in phase step\.", "misbehave", "--nproc", "3", "--prompt", "stop", *PATIENCE)

    def test_a_watch_that_ends_the_run_from_its_own_thread(self):
        self.fails(5, r"rank 2: all_gather of parameters of h\.4: waited 7 s\. Rank 2 was in phase step\.$",
                   "misbehave", "--nproc", "3", "--prompt", "watch")

    def test_a_rank_that_is_stopped_at_the_start_or_the_end(self):
        start = r"exchange of groups to form: waited 4 s for rank 2\."
        for action, error in ("stop-at-start", start), ("stop-at-end", r"not all ranks have ended within 9 s\."):
            stopped = rf"rank [01]: {error}.* Rank 2 \(process \d+\) is stopped, in phase start\."
            self.fails(5, stopped, "misbehave", "--nproc", "3", "--prompt", action, *PATIENCE)
            if not mpirun.IS_THERE:
                continue
            code, _, err = self.run_program("misbehave", "--prompt", action, *PATIENCE, before=MPIRUN)
            if OTHERS_HAVE_TIME:  # under Hydra, the exit code is 9 instead
                self.assertEqual(code, 5, err)
            self.assertRegex(err, "error: " + stopped)
            self.assertEqual(err.count("error: "), 1, err)

    def test_ranks_that_do_different_things(self):
        self.fails(5, r"rank \d: .*all_reduce of gradients of h\.3.*broadcast of parameters of h\.4|"
                   r"rank \d: .*broadcast of parameters of h\.4.*all_reduce of gradients of h\.3",
                   "misbehave", "--nproc", "3", "--prompt", "other", "--comm-timeout", "5")

    @needs_mpirun
    def test_failures_under_plain_mpirun(self):
        for action, code, pattern in [("throw", 1, r"error: rank 2: disk: is full"),
                                      ("all", 3, r"error: rank \d: model.safetensors: is cut"),
                                      ("stop", 5, r"error: rank [01]: all_reduce.*waited 4 s for rank 2.*is stopped")]:
            got, _, err = self.run_program("misbehave", "--prompt", action, *PATIENCE, before=MPIRUN)
            self.assertIn(got, [code, 5], err)
            self.assertRegex(err, pattern)
            self.assertEqual(err.count("error: "), 1, err)

    @needs_mpirun
    def test_a_rank_that_is_killed_under_plain_mpirun(self):
        for action in "kill", "segv":
            code, _, err = self.run_program("misbehave", "--prompt", action, before=MPIRUN)
            self.assertNotEqual(code, 0, err)
            if not OTHERS_HAVE_TIME:
                continue
            self.assertRegex(err, r"error: rank 2 \(process \d+\) was killed, or ended without an error message\. Rank 2 was in "
                             r"phase step\. Ranks? [01](, 1)? waited in all_reduce of gradients of h\.3\.\n")
            self.assertEqual(err.count("error: "), 1, err)
        code, _, err = self.run_program("misbehave", "--prompt", "kill-alone", before=MPIRUN)
        self.assertNotEqual(code, 0, err)
        if not OTHERS_HAVE_TIME:
            return
        self.assertRegex(err, r"error: rank 2 .* was killed, or .*\. Rank 2 was in phase step\.\n")
        self.assertEqual(err.count("error: "), 1, err)

    @needs_mpirun
    def test_a_termination_under_plain_mpirun_is_not_an_error(self):
        process = self.start("work", before=MPIRUN)
        self.assertEqual(process.stdout.readline(), b"at work\n")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertNotEqual(process.returncode, 0)
        self.assertNotIn(b"error: ", err)
        process = self.start("misbehave", "--prompt", "sleep", before=MPIRUN)
        self.assertEqual(process.stdout.readline(), b"asleep\n")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertNotEqual(process.returncode, 0)
        self.assertNotIn(b"error: ", err)

    def at_work(self, *words, **options):
        process = self.start("work", "--nproc", "2", *words, **options)
        self.assertEqual(process.stdout.readline(), b"at work\n")
        return process

    def test_signals_reach_the_ranks(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP:
            process = self.at_work("--max-restarts", "3")
            process.send_signal(number)
            _, err = process.communicate(timeout=RUN_LIMIT_S)
            self.assertEqual((process.returncode, err), (75, b""))

    def test_an_ignored_hangup_stays_ignored(self):
        """The program starts with SIGHUP ignored, as under nohup."""
        process = self.at_work(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)  # long enough for a reaction, if the run handled the signal
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual((process.returncode, err), (75, b""))

    def test_what_a_parent_ignores_or_blocks_hides_no_failure(self):
        def ignore_ends_of_children():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

        def block_all():
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

        for inherit in ignore_ends_of_children, block_all:
            self.fails(3, "rank 2: model.safetensors: is cut", "misbehave", "--nproc", "3", "--prompt", "input",
                       preexec_fn=inherit)
            self.fails(5, r"rank 2 was killed by signal 9 \(Killed\)", "misbehave", "--nproc", "3", "--prompt", "kill",
                       preexec_fn=inherit)
            process = self.at_work(preexec_fn=inherit)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=RUN_LIMIT_S)
            self.assertEqual((process.returncode, err), (75, b""))

    def test_a_reader_that_goes_away(self):
        """A verb that prints results ends without a message if nobody reads its output. Two ranks run here."""
        reader, writer = os.pipe()
        os.close(reader)
        code, _, err = self.run_program("say", "--nproc", "2", stdout=writer)
        os.close(writer)
        self.assertEqual((code, err), (128 + signal.SIGPIPE, ""))

    def test_signals_that_come_together_are_one(self):
        process = self.at_work("--max-restarts", "3")
        for number in signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCONT:
            process.send_signal(number)  # three signals are pending when the process continues
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual((process.returncode, err), (75, b""))

    def test_a_signal_before_the_start_of_ranks_reaches_them(self):
        process = self.start("work", "--nproc", "2", "--max-restarts", "3")
        children = ""
        # Waits until the launcher has a child. The launcher then handles signals. It also has no threads of
        # OpenBLAS then, because OpenBLAS ends its threads before a fork. Such a thread could receive the signal.
        while not children:
            with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as file:
                children = file.read()
        process.send_signal(signal.SIGUSR1)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual((process.returncode, err), (75, b""))

    def test_a_second_signal_ends_at_once(self):
        process = self.at_work("--prompt", "forever", "--max-restarts", "3")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.stdout.readline(), b"signal received\n")
        time.sleep(0.3)  # a signal that follows sooner may belong to the same request (launch/signals.h)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual((process.returncode, err), (128 + signal.SIGTERM, b""))

    def test_no_rank_outlives_the_launcher(self):
        process = self.at_work()
        ranks = subprocess.run(["pgrep", "-f", f"^{PROGRAM} work"], stdout=subprocess.PIPE).stdout.split()
        self.assertEqual(len(ranks), 3)  # the launcher and two ranks
        process.kill()
        process.communicate(timeout=RUN_LIMIT_S)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and any(os.path.exists(f"/proc/{int(pid)}") for pid in ranks):
            time.sleep(0.1)
        self.assertFalse([pid for pid in ranks if os.path.exists(f"/proc/{int(pid)}")])

    def recover(self, *words, prompt, pause="0.1"):
        return self.run_program("recover", "--nproc", "2", "--prompt", prompt, "--restart-pause", pause,
                                "--output-dir", self.folder, *words)

    def test_restarts_continue_from_the_last_checkpoint(self):
        code, out, err = self.recover("--max-restarts", "2", "--resume", "none", prompt="2")
        self.assertEqual((code, out), (0, "start 3, resume auto\n"), err)
        restarts = re.findall(rf"warning: rank 0 was killed by signal 9 \(Killed\).*\. Restart (\d) of 2 in (\S+) s, from (\S+)\n", err)
        self.assertEqual(restarts, [("1", "0.1", "checkpoint-1"), ("2", "0.2", "checkpoint-2")], err)

    def test_restarts_end(self):
        code, _, err = self.recover("--max-restarts", "1", prompt="9")
        self.assertEqual(code, 5)
        self.assertEqual((err.count("warning: "), err.count("error: ")), (1, 1), err)
        self.assertIn(" Not restarted: the limit --max-restarts 1 is reached\n", err)

    def test_no_restart_without_progress(self):
        code, _, err = self.run_program("misbehave", "--nproc", "2", "--prompt", "kill", "--max-restarts", "9",
                                        "--restart-pause", "0", "--output-dir", self.folder)
        self.assertEqual(code, 5, err)
        self.assertEqual(re.findall(r" Restart \d of 9 in 0 s, from .*", err),
                         [" Restart 1 of 9 in 0 s, from the start of the run"])
        self.assertRegex(err, r"(?m)^error: rank 1 was killed .* Not restarted: restart 1 made no new checkpoint$")

    def test_a_signal_ends_the_pause(self):
        process = self.start("recover", "--nproc", "2", "--prompt", "9", "--restart-pause", "1000", "--max-restarts", "1",
                             "--output-dir", self.folder)
        self.assertIn(b"Restart 1 of 1 in 1000 s, from checkpoint-1", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual((process.returncode, err), (75, b"Stopped by signal 15 before restart 1. Start the same command "
                                                     b"again to continue.\n"))

    def test_an_error_that_would_repeat_is_not_restarted(self):
        self.fails(3, "rank 2: model.safetensors", "misbehave", "--nproc", "3", "--prompt", "input",
                   "--max-restarts", "5")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])  # the arguments after LAUNCH_PROGRAM choose tests
