"""Runs every command of README.md and docs/tutorial.md in order. All commands of a document run in one folder. If the
program has no MPI, the test skips `tessera train` with --nproc.

A command must exit with 0, or with the code in its comment ("# exits with N"). Each line of a transcript must occur in
the output, but its numbers may differ. A line "…" stands for omitted lines. At the end of a line, "…" stands for the
rest of this line. Exception: `tessera generate` may print any text.

The test changes three kinds of commands in README.md. For `./quickstart`, it runs only the script's `tessera train`
command, with few steps and rows. For `tessera train`, it sets few steps and rows. Instead of `curl`, it copies bundled
files to the names of the files that `curl` would download.
"""
import os
import re
import shlex
import shutil
import subprocess

from tessera_cli import PROGRAM, RUN_LIMIT_S, CliTest, main, unless_sanitized

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODEL = os.path.join("recipes", "quickstart", "model")
# Settings for `tessera train` in README.md. Without them, the training would take too long for a test.
SMALL = {"TESSERA_MAX_STEPS": "2", "TESSERA_TRAIN_SIZE": "16", "TESSERA_EVAL_SIZE": "4"}


def commands(document):
    """Yields each command of the fenced `console` blocks, and the lines of its transcript. A command begins with "$ ".
    A backslash continues it on the next line."""
    with open(os.path.join(ROOT, document), encoding="utf-8") as file:
        text = file.read()
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S):
        for command, transcript in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            yield command, transcript.splitlines()


def expected_code(command):
    found = re.search(r"# exits with (\d+)$", command)
    return int(found[1]) if found else 0


def shape(line):
    """The line with "#" for each number, and with one space for each sequence of spaces."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "#", line)).strip()


class Documents(CliTest):
    def setUp(self):
        super().setUp()
        for folder in ("bin", "build"):
            os.mkdir(os.path.join(self.folder, folder))
            os.symlink(PROGRAM, os.path.join(self.folder, folder, "tessera"))
        shutil.copytree(os.path.join(ROOT, "recipes"), os.path.join(self.folder, "recipes"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        self.environment["PATH"] = os.path.join(self.folder, "bin") + os.pathsep + self.environment.get("PATH", "")
        facts = self.succeeds("doctor").split("\nmpi\n")[1].split("\n\n")[0]
        self.has_mpi = "built in                      yes" in facts

    def follow(self, document, run):
        ran = 0
        for command, transcript in commands(document):
            if "--nproc" in command and "tessera train" in command and not self.has_mpi:
                continue
            # A command may depend on the commands before it, so the first failure ends the test.
            done = run(command)
            self.assertEqual(done.returncode, expected_code(command), f"$ {command}\n{done.stdout}")
            self.assertNotIn("command not found", done.stdout)
            self.check_transcript(transcript, done.stdout, command)
            ran += 1
        return ran

    def check_transcript(self, transcript, output, command):
        printed = [shape(line) for line in output.splitlines()]
        if "tessera generate" in command:  # answers vary with the processor and the number of steps
            self.assertTrue(any(printed), command)
            return
        for line in transcript:
            wanted = shape(line.removesuffix("…"))
            found = any(text.startswith(wanted) if line.endswith("…") else text == wanted for text in printed)
            self.assertTrue(found, f"not printed: {line}\n$ {command}\n{output}")

    def run_shell(self, command, **more):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env={**self.environment, **more},
                              timeout=RUN_LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")

    def download(self, command):
        """Copies bundled files to the places where curl would put the files of the command's URLs."""
        bundled = {"train-v1.1.json": "recipes/quickstart/train.json", "dev-v1.1.json": "recipes/quickstart/eval.json"}
        for part in command.split("--next"):
            words = shlex.split(part)
            folder = words[words.index("--output-dir") + 1]
            self.assertIn("--create-dirs", words)
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
            for url in [word for word in words if "://" in word]:
                self.assertRegex(url, 
                                 r"^https://(huggingface\.co/bigscience/bloom-560m/resolve/main|rajpurkar\.github\.io)/")
                name = url.rsplit("/", 1)[1]
                choices = re.fullmatch(r"\{(.*)\}(.*)", name)
                for name in [stem + choices[2] for stem in choices[1].split(",")] if choices else [name]:
                    source = bundled.get(name, os.path.join(MODEL, name))
                    shutil.copy(os.path.join(self.folder, source), os.path.join(self.folder, folder, name))
        return subprocess.CompletedProcess(command, 0, stdout="")

    def run_readme(self, command):
        if command.startswith("curl "):
            return self.download(command)
        if command == "./quickstart":
            with open(os.path.join(ROOT, "quickstart"), encoding="utf-8") as file:
                recipe = re.search("^build/tessera train .*$", file.read(), re.M)[0].replace('"$@"', "")
            return self.run_shell(recipe + " --max-steps 4 --train-size 16 --eval-size 4")
        return self.run_shell(command, **(SMALL if command.startswith("tessera train") else {}))

    @unless_sanitized
    def test_tutorial(self):
        self.assertGreater(self.follow("docs/tutorial.md", self.run_shell), 20)

    @unless_sanitized
    def test_readme(self):
        self.assertGreaterEqual(self.follow("README.md", self.run_readme), 5)

    def test_variants_in_the_text_of_the_readme(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            text = file.read()
        train = next(command for command, _ in commands("README.md") if command.startswith("tessera train"))
        self.assertIn("--precision bf16 --batch-size 16 ", train)
        without_gpu = re.search(r"Without a GPU, leave out `--precision bf16` and use\s+`([^`]*)`", text)[1]
        several = re.search(r"On 4 GPUs, add `([^`]*)`", text)[1]
        for words in [train.replace("--precision bf16 --batch-size 16 ", without_gpu + " "), f"{train} {several}"]:
            self.succeeds("config", *shlex.split(words.replace("\\\n", " "))[1:])

    def test_what_a_command_is(self):
        found = [command for command, _ in commands("docs/tutorial.md")]
        self.assertTrue(all(not command.endswith("\\") for command in found))
        self.assertEqual({expected_code(command) for command in found}, {0, 2, 3, 4, 75})


if __name__ == "__main__":
    main()
