"""Runs under limits of the system: few processes, little address space, a small stack. Also files of other kinds (pipes,
folders, sockets, devices) in the place of every file that a verb reads, and signals while a run starts."""
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tessera_cli import PROGRAM, RUN_LIMIT_S, main, unless_sanitized
from tiny_job import FAILED, INPUT, JOB, OUT_OF_MEMORY, USAGE, TinyJobTest

LOST_RANK, STOPPED = 5, 75
NOBODY = 65534
QUICKSTART = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recipes", "quickstart", "model")
# Texts of libraries that say nothing to a user.
RAW = re.compile(r"terminate called|what\(\)|filesystem error|json\.exception|bad_alloc|basic_string|_M_|sto[id]\b|OpenBLAS")


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}


class AllVerbs(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.train("base", "--save-strategy", "steps", "--save-steps", "1", "--max-steps", "1", job=JOB)
        self.write("sweep.toml", '[settings]\nmodel = "base/model"\ndataset = "train.jsonl"\nmax_steps = 1\n[matrix]\nseed = [1]\n')
        model = ["--model", "base/model"]
        self.verbs = [
            ["train", *JOB, "--max-steps", "1", "--output-dir", "o"],
            ["train", *JOB[:-1], "3", "--max-steps", "1", "--output-dir", "o"],  # --threads 3
            ["eval", *model, "--eval-dataset", "eval.jsonl"],
            ["generate", *model, "--prompt", "a", "--max-new-tokens", "2"],
            ["plan", *model],
            ["tokenize", "--tokenizer", "tok", "--prompt", "a"],
            ["tokenizer", "train", "--dataset", "train.jsonl", "--vocab-size", "300", "--output-dir", "o"],
            ["export", *model, "--checkpoint", "base", "--output-dir", "o"],
            ["report", "base"],
            ["doctor"],
            ["config"],
            ["sweep", "sweep.toml", "--output-dir", "o"],
            ["slurm", "--time", "10", "train", *JOB, "--output-dir", "o"],
            ["train", *JOB, "--max-steps", "1", "--output-dir", "o", "--nproc", "2"]]

    def limited(self, words, limit):
        """Runs the program in a child process that first calls limit(). Returns the exit code and standard error."""
        shutil.rmtree(self.path("o"), ignore_errors=True)
        os.mkdir(self.path("o"))
        os.chmod(self.path("o"), 0o777)
        done = subprocess.run([PROGRAM, *words], cwd=self.folder, env=clean_environment(), preexec_fn=limit, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=RUN_LIMIT_S, check=False)
        return done.returncode, done.stderr.decode(errors="replace")

    def assert_sound_end(self, words, code, err, codes):
        self.assertIn(code, [0, *codes], (words, err))
        self.assertNotRegex(err, RAW, words)
        self.assert_tidy("o")
        if code != 0 and words[0] != "sweep":  # a sweep also shows the errors of its runs
            self.assertEqual(err.count("error: "), 1, (words, err))


class Limits(AllVerbs):
    @unless_sanitized
    def test_few_processes(self):
        """Each thread counts as a process of the user. A thread that cannot start ends the run with an error."""
        if os.geteuid() != 0:
            self.skipTest("only root can become a user without other processes")
        if any(not os.stat(folder).st_mode & 0o001 for folder in Path(PROGRAM).resolve().parents):
            self.skipTest("other users cannot start a program in this folder")
        os.chmod(self.folder, 0o755)

        def limit(number):
            def become_nobody():
                resource.setrlimit(resource.RLIMIT_NPROC, (number, number))
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            return become_nobody

        num_refused = 0
        for words in self.verbs:
            for number in [1, 3, 4] if words[0] == "train" else [1]:
                code, err = self.limited(words, limit(number))
                self.assert_sound_end(words, code, err, [FAILED, OUT_OF_MEMORY, LOST_RANK])
                num_refused += "error: cannot start a thread for " in err
        self.assertGreater(num_refused, 4)
        os.environ["OPENBLAS_NUM_THREADS"] = "4"  # OpenBLAS starts no threads of its own
        self.addCleanup(os.environ.pop, "OPENBLAS_NUM_THREADS")
        self.assertEqual(self.limited(["config"], limit(1)), (0, ""))

    @unless_sanitized
    def test_little_address_space(self):
        refused = set()
        large = ["train", "--model", QUICKSTART, "--dataset", "train.jsonl", "--max-steps", "1", "--output-dir", "o",
                 "--threads", "2"]
        for index, words in enumerate([large, *self.verbs[:-1]]):  # mpirun itself fails in its own words
            # The small steps are where the program reads the tokenizer.
            for mib in [*range(90, 130, 2), *range(130, 400, 22)] if index == 0 else [100 + 7 * index, 190 + 7 * index]:
                limit = mib << 20
                code, err = self.limited(words, lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
                if code == 127 and "error while loading shared libraries" in err:
                    continue  # the program has not started
                self.assert_sound_end(words, code, err, [FAILED, OUT_OF_MEMORY])
                refused.add(code)
        self.assertEqual(refused, {0, FAILED, OUT_OF_MEMORY})

    @unless_sanitized
    def test_a_small_stack(self):
        def limit(kib):
            return lambda: resource.setrlimit(resource.RLIMIT_STACK, (kib << 10, kib << 10))
        for words in self.verbs:
            for kib, shown in (64, " 64"), (511, "511"):
                self.assertEqual(self.limited(words, limit(kib)), (USAGE,
                                 f"error: ulimit -s: the limit on the stack is {shown} KiB, but Tessera needs at least 512 KiB. "
                                 "Raise the limit, as in: ulimit -s 8192\n"))
        for words in self.verbs[:5]:
            self.assertEqual(self.limited(words, limit(512))[0], 0)


class SpecialFiles(AllVerbs):
    def put(self, kind, *parts):
        """Replaces a file by something of another kind."""
        path = self.path(*parts)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        elif os.path.lexists(path):
            os.remove(path)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            os.mkdir(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path)
        else:
            os.symlink("/dev/zero", path)

    def test_in_the_place_of_files(self):
        """The error names the file and its kind. No verb waits for a pipe that it must not read."""
        kinds = {"pipe": "is a pipe, not a regular file", "folder": "is a folder, not a file",
                 "socket": "is a socket, not a regular file", "device": "is a device, not a regular file"}
        model = ["--model", "m", "--dataset", "train.jsonl", "--output-dir", "o", "--threads", "1"]
        resumed = [*JOB, "--max-steps", "2", "--output-dir", "base"]
        files = [("m/model.safetensors", ["train", *model]), ("m/config.json", ["plan", "--model", "m"]),
                 ("m/tokenizer.json", ["train", *model]), ("m/tokenizer_config.json", ["train", *model]),
                 ("m/generation_config.json", ["generate", "--model", "m", "--prompt", "a"]),
                 ("base/checkpoint-1/manifest.json", ["train", *resumed]),
                 ("base/checkpoint-1/trainer_state.json", ["train", *resumed]),
                 ("base/metrics.jsonl", ["train", *resumed]),
                 ("base/summary.json", ["report", "base"]),
                 ("data.jsonl", ["train", *JOB, "--dataset", "data.jsonl", "--output-dir", "o"]),
                 ("p.jsonl", ["generate", "--model", "base/model", "--prompts", "p.jsonl"]),
                 ("c.toml", ["config", "train", "c.toml"]), ("d.json", ["config", "train", "--deepspeed", "d.json"])]
        may_be_pipes = ["data.jsonl", "p.jsonl", "c.toml", "d.json"]
        turn = 0
        for file, words in files:
            shutil.copytree(self.path("base"), self.path("kept"))
            shutil.copytree(self.path("base", "model"), self.path("m"))
            others = [kind for kind in kinds if kind != "pipe"]
            for kind in ([] if file in may_be_pipes else ["pipe"]) + [others[turn % len(others)]]:
                self.put(kind, file)
                code, _, err = self.run_tessera(*words, stdin=subprocess.DEVNULL)
                self.assertIn(code, [USAGE, INPUT], (file, kind, err))
                self.assertRegex(err, rf"(?m)^(error|\[!\]).*{re.escape(file)}: {kinds[kind]}", (file, kind))
            turn += 1
            shutil.rmtree(self.path("base"))
            os.rename(self.path("kept"), self.path("base"))
            shutil.rmtree(self.path("m"))

    def test_pipes_of_a_shell(self):
        """A pipe works where it is read once."""
        os.mkfifo(self.path("pipe"))
        command = f'"{PROGRAM}" train "$@" --max-steps 1 --output-dir o --dataset <(cat train.jsonl)'
        subprocess.run(["bash", "-c", command, "bash", *JOB], cwd=self.folder, check=True, capture_output=True)
        pipe = [*JOB, "--output-dir", "p", "--dataset", "pipe"]
        once = '"pipe" is a pipe, and a pipe can be read only once, but '
        self.fails(USAGE, "--dataset: " + once + "the run has 2 ranks. Save its content to a file first", "train", *pipe,
                   "--nproc", "2")
        self.fails(USAGE, "--eval-dataset: " + once + "--dataset reads it too", "train", *pipe, "--eval-dataset", "pipe")

    def test_a_signal_while_data_never_come(self):
        """The writer of the pipe never writes. One signal ends the run, which leaves nothing behind."""
        os.mkfifo(self.path("pipe"))
        for number in signal.SIGTERM, signal.SIGINT:
            process = subprocess.Popen([PROGRAM, "train", *JOB, "--output-dir", "p", "--dataset", "pipe"], cwd=self.folder, env=clean_environment(),
                                       stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            with open(self.path("pipe"), "wb"):  # opening returns when the run has opened the pipe, too
                begin = time.monotonic()
                process.send_signal(number)
                _, err = process.communicate(timeout=RUN_LIMIT_S)
            self.assertEqual(process.returncode, STOPPED, err)
            self.assertGreaterEqual(time.monotonic() - begin, 0.9)
            self.assertEqual(err.decode(), f"Stopped by signal {int(number)} before the run had anything to save. Start the same "
                                           "command again to continue.\n")
            self.assertFalse(os.path.exists(self.path("p")))


if __name__ == "__main__":
    main()
