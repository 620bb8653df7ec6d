"""Runs that inherit ignored or blocked signals or closed streams from their parent, and runs that lose a stream."""
import json
import os
import pty
import signal
import subprocess
import time

from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import EVALUATED, JOB, TinyJobTest, without_timing

LONG = EVALUATED + ["--epochs", "40", "--save-strategy", "steps", "--save-steps", "7", "--save-total-limit", "3"]
SAVED_AFTER_SIGNAL = 75
OUTPUT_CLOSED = 128 + signal.SIGPIPE


class SurroundingsTest(TinyJobTest):
    def start(self, output, *words, job=LONG, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([PROGRAM, "train", *job, "--output-dir", output, *words], cwd=self.folder, **options)
        self.addCleanup(process.kill)
        if process.stderr:
            self.addCleanup(process.stderr.close)
        return process

    def wait_for_lines(self, output, count, process):
        while self.num_lines(output) < count:
            self.assertIsNone(process.poll())
            time.sleep(0.0005)

    def assert_complete(self, output):
        """Asserts that the results are the same as those of an undisturbed run."""
        if not os.path.exists(self.path("whole")):
            self.train("whole", job=LONG)
        self.assertEqual(without_timing(self.path(output, "metrics.jsonl")),
                         without_timing(self.path("whole", "metrics.jsonl")))
        self.assertEqual(self.checkpoints(output), self.checkpoints("whole"))
        self.assertTrue(os.path.exists(self.path(output, "summary.json")))


class InheritedSignals(SurroundingsTest):
    def test_a_blocked_signal_stops_the_run_all_the_same(self):
        for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
            output = f"blocked-{number}"
            process = self.start(output, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()))
            self.wait_for_lines(output, 20, process)
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=RUN_LIMIT_S), SAVED_AFTER_SIGNAL)

    def test_an_ignored_termination_stops_the_run_all_the_same(self):
        process = self.start("out", preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
        self.wait_for_lines("out", 20, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), SAVED_AFTER_SIGNAL)

    def test_ignored_hangup_and_interrupt_stay_ignored(self):
        """nohup starts programs with an ignored SIGHUP. Shells start background programs with an ignored SIGINT."""
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        process = self.start("out", preexec_fn=ignore)
        self.wait_for_lines("out", 20, process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), 0)
        self.assert_complete("out")


class LostStreams(SurroundingsTest):
    def test_the_reader_of_the_output_goes_away(self):
        """The reader of standard output, standard error or both closes the pipe, as in `tessera train … | head -3`. The
        run continues to its end."""
        for streams in [["stdout"], ["stderr"], ["stdout", "stderr"]]:
            output = "-".join(streams)
            reader, writer = os.pipe()
            process = self.start(output, **{stream: writer for stream in streams})
            os.close(writer)
            with open(reader, "rb") as pipe:
                pipe.readline()
            _, err = process.communicate(timeout=RUN_LIMIT_S)
            self.assertEqual(process.returncode, 0, err)
            self.assert_complete(output)
            if streams == ["stdout"]:
                self.assertEqual(err.count(b"warning: standard output: cannot write to it: Broken pipe"), 1, err)

    def test_the_disk_behind_the_output_is_full(self):
        with open("/dev/full", "wb") as full:
            code, _, err = self.run_tessera("train", *LONG, "--output-dir", "out", stdout=full)
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("warning: standard output: cannot write to it: No space left on device"), 1, err)
        self.assert_complete("out")

    def test_a_hangup_of_the_terminal(self):
        """The terminal is closed, so writes to it fail, and the run gets SIGHUP. The run saves, and the same command
        resumes it."""
        def lead_the_session():
            os.setsid()
            # The first terminal that a session leader opens becomes its controlling terminal.
            os.close(os.open(os.ttyname(0), os.O_RDWR))

        controller, terminal = pty.openpty()
        process = self.start("out", stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=lead_the_session)
        os.close(terminal)
        while self.num_lines("out") < 20:
            self.assertIsNone(process.poll())
            os.read(controller, 4096)
        os.close(controller)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), SAVED_AFTER_SIGNAL)
        self.train("out", job=LONG)
        self.assert_complete("out")

    def test_a_lost_terminal_without_a_signal(self):
        """The closed terminal is not the run's controlling terminal. The run therefore gets no SIGHUP, and continues to
        its end."""
        controller, terminal = pty.openpty()
        process = self.start("out", stdout=terminal, stderr=terminal)
        os.close(terminal)
        os.read(controller, 1)
        os.close(controller)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), 0)
        self.assert_complete("out")

    def test_streams_that_are_closed_from_the_start(self):
        """No file of the run gets the descriptor of a closed stream. Otherwise the stream's text would be written to
        the file. `config` fails, because it cannot write its result to standard output."""
        for numbers in (1,), (1, 2), (0, 1, 2):
            output = f"out-{len(numbers)}"
            process = self.start(output, preexec_fn=lambda: [os.close(number) for number in numbers])
            self.assertEqual(process.wait(timeout=RUN_LIMIT_S), 0)
            self.assert_complete(output)
        code = subprocess.call([PROGRAM, "config"], preexec_fn=lambda: os.close(1), stderr=subprocess.DEVNULL)
        self.assertEqual(code, 1)

    def test_results_that_nobody_reads(self):
        """The program ends without an error message, as other programs do when `head` has closed their output."""
        self.train("good", job=JOB)
        model = ["--model", "good/model"]
        for words in [["config"], ["--help"], ["plan", *JOB[:-4]], ["eval", *model, "--eval-dataset", "eval.jsonl", "--json"],
                      ["generate", *model, "--prompt", "a"], ["tokenize", "--tokenizer", "tok", "--prompt", "a"]]:
            reader, writer = os.pipe()
            os.close(reader)
            process = subprocess.Popen([PROGRAM, *words], cwd=self.folder, stdout=writer, stderr=subprocess.PIPE)
            os.close(writer)
            _, err = process.communicate(timeout=RUN_LIMIT_S)
            self.assertEqual(process.returncode, OUTPUT_CLOSED, (words, err))
            self.assertNotIn(b"error", err)

    def test_a_slow_reader_with_a_pipe_that_does_not_wait(self):
        """Some parent processes pass non-blocking pipes. When such a pipe is full, no output is lost."""
        text = "".join(f"{i}\n" for i in range(20000)).encode()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with open(self.write("lines", text), "rb") as lines:
            process = subprocess.Popen([PROGRAM, "tokenize", "--tokenizer", "tok", "--json"], cwd=self.folder, stdin=lines,
                                       stdout=writer)
        os.close(writer)
        time.sleep(0.1)
        with open(reader, "rb") as pipe:
            read = pipe.read().splitlines()
        self.assertEqual((process.wait(timeout=RUN_LIMIT_S), len(read)), (0, 20000))
        self.assertEqual(json.loads(read[-1])["text"], "19999")


if __name__ == "__main__":
    main()
