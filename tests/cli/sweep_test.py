"""`tessera sweep` starts, stops, resumes and skips many training runs with one command."""
import json
import os
import shlex
import signal
import subprocess
import time

from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import TinyJobTest, jsonl, questions

RECIPE = """model = "config.json"
init = "random"
tokenizer = "tok"
dataset = "train.jsonl"
lr = 1e-2
logging_steps = 1
threads = 1
max_steps = 2
"""
SWEEP = """base = "job.toml"
output_dir = "runs"
[settings]
train_size = "4 * batch_size"
[matrix]
batch_size = [1, 2]
[[run]]
name = "broken"
dataset = "missing.jsonl"
[[run]]
name = "last"
seed = 7
"""


class SweepTest(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.write("job.toml", RECIPE)

    def sweep(self, *words, code=0, **options):
        """Expects exit code `code`. Returns standard output and standard error."""
        got, out, err = self.run_tessera("sweep", *words, **options)
        self.assertEqual(got, code, out + err)
        return out, err

    def states(self, *words, code):
        runs = json.loads(self.sweep(*words, "--json", code=code)[0])["runs"]
        return {run["name"]: run["state"] for run in runs}

    def log(self, folder):
        return self.read(folder, "train.log").decode()


class Sweeps(SweepTest):
    def test_a_failure_does_not_end_the_sweep_and_finished_runs_are_skipped(self):
        self.write("sweep.toml", SWEEP)
        planned = self.sweep("sweep.toml", "--dry-run")[0].splitlines()
        self.assertEqual(planned[1], "tessera train job.toml --train-size 8 --batch-size 2 --output-dir "
                                     "runs/batch_size=2")
        self.assertFalse(os.path.exists(self.path("runs")))
        out, err = self.sweep("sweep.toml", code=1)
        self.assertRegex(out, r"\| batch_size=1 +\| done +\| +0 \| +0:\d\d \| runs/batch_size=1/train.log \|")
        self.assertRegex(out, r"\| broken +\| failed +\| +3 \|")
        self.assertRegex(out, r"\| last +\| done +\|")
        self.assertRegex(out, r"\nbroken: .*missing.jsonl")
        self.assertRegex(err, r"^1/4 batch_size=1: done, in 0:\d\d, \d:\d\d left\n2/4 ")
        self.assertIn("\n3/4 broken: failed with exit code 3, in ", err)
        folders = ["runs/batch_size=1", "runs/batch_size=2", "runs/broken", "runs/last"]
        self.assertEqual([self.log(folder).splitlines()[0] for folder in folders], ["$ " + line for line in planned])
        self.assertIn("train_loss", self.log("runs/last"))
        self.assertEqual(self.json_of("runs/batch_size=2", "summary.json")["num_samples"], 4)

        self.write("missing.jsonl", jsonl(questions(22, 1)))
        self.assertEqual(self.states("sweep.toml", code=0), {"batch_size=1": "done before", "batch_size=2": "done before",
                                                             "broken": "done", "last": "done before"})
        self.assertEqual(set(self.states("sweep.toml", code=0).values()), {"done before"})
        self.assertEqual(self.states("sweep.toml", "--lr", "0.02", "--output-dir", "more", "--dry-run", code=0)["last"],
                         "not started")

    def test_printed_commands_are_the_runs(self):
        self.write("sweep.toml", 'base = "job.toml"\n[settings]\ndataset = "a b\'s.jsonl"\n[matrix]\nshuffle = [true, false]\n')
        self.write("a b's.jsonl", jsonl(questions(22, 1)))
        printed = self.sweep("sweep.toml", "--dry-run")[0].splitlines()
        self.sweep("sweep.toml")
        for line, folder in zip(printed, ["shuffle=true", "shuffle=false"]):
            words = shlex.split(line)
            self.assertEqual(words[:2], ["tessera", "train"])
            self.assertEqual(words[-1], "runs/sweep/" + folder)
            self.succeeds(*words[1:-1], "by-hand/" + folder)
            self.assert_same_results("runs/sweep/" + folder, "by-hand/" + folder)

    def test_a_folder_of_recipes(self):
        os.makedirs(self.path("recipes", "small"))
        # The sweep leaves out base.toml: otherwise the wrong text in this file would be an error.
        self.write("recipes/base.toml", "no setting at all")
        self.write("recipes/one.toml", RECIPE)
        self.write("recipes/small/two.toml", RECIPE + "seed = 3\n")
        self.assertEqual(self.states("recipes/", "--train-size", "4", code=0), {"one": "done", "small/two": "done"})
        self.assertEqual(self.json_of("runs", "recipes", "small", "two", "summary.json")["num_samples"], 8)

    def test_other_settings_in_a_folder_that_holds_a_run(self):
        self.write("sweep.toml", SWEEP.replace('name = "broken"\ndataset = "missing.jsonl"', "seed = 3"))
        self.sweep("sweep.toml")
        out, _ = self.sweep("sweep.toml", "--lr", "0.5", code=1)
        self.assertRegex(out, r"\nlast: .*was made with lr = 0.01, and this run has 0.5")
        # The runs continue with more steps.
        self.assertEqual(set(self.states("sweep.toml", "--max-steps", "3", code=0).values()), {"done"})
        self.assertEqual(self.json_of("runs/last", "summary.json")["steps"], 3)


class Stops(SweepTest):
    """A sweep of three runs. The second run is long, so the tests can stop it."""

    def setUp(self):
        super().setUp()
        self.write("many.jsonl", jsonl(questions(22, 1) * 400))
        self.write("sweep.toml", 'base = "job.toml"\noutput_dir = "runs"\n[[run]]\nname = "a"\n[[run]]\nname = "b"\n'
                                 'dataset = "many.jsonl"\nmax_steps = 300\n[[run]]\nname = "c"\nseed = 2\n')

    def start(self, *words):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        process = subprocess.Popen([PROGRAM, *words], cwd=self.folder, env=clean, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_and_wait(self, *words):
        process = self.start(*words)
        end = time.monotonic() + RUN_LIMIT_S
        while self.num_lines("runs/b") < 5:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)
        return process

    def end(self, process):
        out, err = process.communicate(timeout=RUN_LIMIT_S)
        return process.returncode, out.decode(), err.decode()

    def test_a_stopped_sweep_resumes(self):
        process = self.start_and_wait("sweep", "sweep.toml")
        process.send_signal(signal.SIGUSR1)
        code, out, err = self.end(process)
        self.assertEqual(code, 75, out + err)
        self.assertRegex(out, r"\| b +\| stopped +\| +75 \|")
        self.assertRegex(out, r"\| c +\| not started +\| +\| +\| +\|")
        self.assertEqual(len(self.checkpoints("runs/b")), 1)
        self.assertFalse(os.path.exists(self.path("runs/c")))
        self.assertEqual(self.states("sweep.toml", code=0), {"a": "done before", "b": "done", "c": "done"})
        self.assertIn("Resuming from runs/b/checkpoint-", self.log("runs/b"))
        self.succeeds("train", "job.toml", "--dataset", "many.jsonl", "--max-steps", "300", "--output-dir", "whole")
        self.assert_same_results("runs/b", "whole")

    def test_a_second_signal_ends_the_sweep(self):
        process = self.start_and_wait("sweep", "sweep.toml")
        child = self.json_of("runs/b", ".tessera-lock")["process"]
        # SIGSTOP stops the child. The child then does not react to the first two signals, which the sweep passes on to
        # it. At the third signal, the sweep sends SIGKILL to the child, and the child ends. The exit code of the sweep
        # comes from the last signal.
        os.kill(child, signal.SIGSTOP)
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGINT:
            process.send_signal(number)
            time.sleep(0.3)  # signals within 0.1 s of the first one count as one request
        code, out, err = self.end(process)
        self.assertEqual(code, 128 + signal.SIGINT, out + err)
        self.assertEqual(self.states("sweep.toml", code=0), {"a": "done before", "b": "done", "c": "done"})

    def test_a_run_that_is_in_use_is_passed_over(self):
        other = self.start_and_wait("train", "job.toml", "--dataset", "many.jsonl", "--max-steps", "100000",
                                    "--output-dir", "runs/b")
        self.assertEqual(self.states("sweep.toml", code=1), {"a": "done", "b": "in use", "c": "done"})
        other.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(other)[0], 75)

    def test_a_killed_sweep_leaves_no_process(self):
        process = self.start_and_wait("sweep", "sweep.toml")
        child = self.json_of("runs/b", ".tessera-lock")["process"]
        process.kill()
        self.end(process)
        end = time.monotonic() + RUN_LIMIT_S
        while os.path.exists(self.path("runs/b/.tessera-lock")):
            self.assertLess(time.monotonic(), end, f"process {child} still runs")
            time.sleep(0.01)
        self.assertEqual(len(self.checkpoints("runs/b")), 1)  # the run has saved


class BadSweeps(SweepTest):
    def test_nothing_runs(self):
        for text, message in [
                ('base = "job.toml"\n[matrix]\nstrategi = ["full_shard"]\n',
                 'sweep.toml:3: matrix.strategi: unknown setting. Did you mean "strategy"?'),
                ('base = "jobs.toml"\n', "sweep.toml:1: base: the recipe jobs.toml does not exist"),
                ('base = "job.toml"\n[matrix]\nnproc = []\n', "sweep.toml:3: matrix.nproc: is an empty list"),
                ('base = "job.toml"\n[settings]\ntrain_size = "500 * nproc +"\n', "sweep.toml:3: settings.train_size: "),
                ('base = "job.toml"\nname = "x"\n[matrix]\nlr = [1, 2]\n', "the runs x and x have the same folder, runs/"),
                ('base = "job.toml"\n[[run]]\nlr = 1\n[[run]]\neval_steps = 3\n', "eval_steps"),
                ("[matrix]\nlr = [1, 2]\n", "sweep.toml: run lr=1.0: train: needs --model and --dataset")]:
            self.write("sweep.toml", text)
            self.fails(2, message, "sweep", "sweep.toml")
            self.assertFalse(os.path.exists(self.path("runs")))

    def test_words(self):
        self.fails(2, "sweep: needs a sweep file, or a folder of recipes", "sweep")
        self.fails(2, "none.toml", "sweep", "none.toml")
        self.write("sweep.toml", 'base = "job.toml"\n')
        self.fails(2, '--strategi: unknown flag. Did you mean "--strategy"?', "sweep", "sweep.toml", "--strategi", "x")
        self.fails(2, "--lr: must be a number", "sweep", "sweep.toml", "--lr", "fast")
        self.fails(2, "sweep.toml:1: base: unknown setting", "train", "sweep.toml")
        self.fails(2, "starts its ranks itself", "sweep", "sweep.toml",
                   env={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"})
        self.assertIn("Usage: tessera sweep sweep.toml|FOLDER [--flags]", self.succeeds("sweep", "--help"))


if __name__ == "__main__":
    main()
