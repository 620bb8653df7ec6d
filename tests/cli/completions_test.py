"""Tests the completions of bash, zsh and fish, and the manual page. bash is always there; the tests of zsh, fish and
the page are skipped on a machine without these shells or without groff."""
import re
import shutil
import subprocess
import unittest

from tessera_cli import CliTest, main

SHELLS = ["bash", "fish", "zsh"]
# Prints the candidates for the last of the words.
BASH = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_tessera
printf '%s\\n' "${COMPREPLY[@]}"
"""
# The functions of zsh's completion system need a terminal. These stand for them.
ZSH = """
compdef() { :; }
compset() { :; }
compadd() { while [[ $1 == -* && $1 != -- ]]; do shift; done; shift; print -l -- "$@"; }
_describe() { local list=${@[-1]} each; for each in "${(@P)list}"; do print -r -- "${each%%:*}"; done; }
_files() { if [[ $1 == -g ]]; then print -l -- *.toml(N) *(N-/); else print -l -- *(N); fi; }
source "$1"
shift
words=("$@") CURRENT=$#
_tessera
"""
FISH = 'source $argv[1]; complete -C "$argv[2]"'


class Completions(CliTest):
    def setUp(self):
        super().setUp()
        for shell in SHELLS:
            self.write(f"script.{shell}", self.succeeds("completions", shell))
        self.write("run.toml", "")
        self.write("with space.json", "")

    def run_shell(self, command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines()

    def in_bash(self, *words):
        return [word for word in self.run_shell(["bash", "--norc", "-c", BASH, "bash", "script.bash", "tessera", *words]) if word]

    def in_zsh(self, *words):
        lines = self.run_shell(["zsh", "-f", "-c", ZSH, "zsh", "script.zsh", "tessera", *words])
        value = words[-1].split("=")[-1] if "=" in words[-1] else words[-1]  # _describe and compadd filter
        return [line for line in lines if line.startswith(value)]

    def in_fish(self, *words):
        command = " ".join(word.replace(" ", "\\ ") for word in ["tessera", *words])
        lines = [line.split("\t")[0] for line in self.run_shell(["fish", "--no-config", "-c", FISH, "script.fish", command])]
        return [line.split("=")[-1] if "=" in words[-1] else line for line in lines]

    def check_shell(self, complete):
        self.assertEqual(complete("ex"), ["export"])
        self.assertEqual(complete("tokeni"), ["tokenize", "tokenizer"])
        self.assertEqual(complete("tokenizer", "tr"), ["train"])
        self.assertEqual(complete("tokenizer", "train", "--vocab-"), ["--vocab-size"])
        self.assertEqual(complete("config", "exp"), ["export"])
        self.assertIn("--merge", complete("config", "export", "--mer"))
        # Flags belong to a verb.
        self.assertEqual(complete("train", "--lr-scheduler"), ["--lr-scheduler-kwargs"])
        self.assertEqual(complete("eval", "--lr-scheduler"), [])
        self.assertEqual(sorted(complete("train", "--no-sh")), ["--no-shuffle"])
        self.assertEqual(complete("sweep", "--lr-scheduler"), ["--lr-scheduler-kwargs"])
        self.assertEqual(complete("slurm", "--nodes", "2", "run.toml", "--lr-scheduler"), ["--lr-scheduler-kwargs"])
        self.assertEqual(complete("slurm", "--lr-scheduler"), [])
        self.assertIn("--help", complete("man", "--he"))
        # Values. One flag may have a meaning of its own in a verb.
        self.assertEqual(sorted(complete("train", "--lr", "1", "--precision", "f")), ["fp16", "fp32"])
        self.assertEqual(complete("train", "--adapter", "l"), ["lora"])
        self.assertEqual(complete("export", "--adapter", "lo"), [])
        self.assertEqual(complete("train", "--adapter=l") if complete != self.in_bash else
                         complete("train", "--adapter", "=", "l"), ["lora"])
        self.assertEqual(complete("export", "--gguf", "q"), ["q8_0"])
        self.assertEqual(complete("completions", "b"), ["bash"])
        # Paths.
        self.assertEqual(complete("train", "ru"), ["run.toml"])
        if complete != self.in_fish:  # fish only puts files with another suffix behind the others
            self.assertEqual(complete("train", "with"), [])
            self.assertEqual(complete("train", "--model", "run.toml", "with"), [])
        self.assertEqual(complete("train", "--lr", "ru"), [])
        for words in (["train", "--dataset", "with"], ["train", "--dataset", "run.toml", "with"], ["report", "with"]):
            self.assertEqual([word.replace("\\", "") for word in complete(*words)], ["with space.json"], words)

    def test_bash(self):
        self.check_shell(self.in_bash)
        # After a flag that may be bare, words and flags may follow.
        both = self.in_bash("export", "--gguf", "")
        self.assertLessEqual({"q8_0", "bf16", "--merge"}, set(both))
        self.assertEqual(self.in_bash("train", "--help", "a"), ["all"])
        self.assertEqual(self.in_bash("train", "--lr_schedule", "lin"), ["linear"])
        self.assertLessEqual({"train", "completions", "--version"}, set(self.in_bash("")))

    def test_bash_knows_every_flag_of_the_help(self):
        for verb in ["train", "eval", "export", "nettest", "tokenizer train", "report", "slurm"]:
            listed = re.findall(r"(?m)^  (--[a-z0-9-]+)", self.succeeds(*verb.split(), "--help", "all"))
            self.assertLessEqual(set(listed), set(self.in_bash(*verb.split(), "--")), verb)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        self.check_shell(self.in_zsh)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        self.check_shell(self.in_fish)

    def test_wrong_shells(self):
        self.fails(2, 'completions: "tcsh" is not a shell that Tessera knows. Give bash, fish or zsh', "completions", "tcsh")
        self.fails(2, "bash|zsh|fish: is required by completions. Example: source <(tessera completions bash)", "completions")
        self.fails(2, "zsh: is a second shell. Give one shell: bash, fish or zsh", "completions", "bash", "zsh")


@unittest.skipUnless(shutil.which("groff"), "no groff")
class Man(CliTest):
    def test_the_page(self):
        page = self.write("tessera.1", self.succeeds("man"))
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stderr, "")
        text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
        for part in ("--lr RATE", "EXIT STATUS", "tessera tokenizer train", "--gguf none|auto|f16",
                     "Verbs: export", "TESSERA_BATCH_SIZE=8"):
            self.assertIn(part, text)


if __name__ == "__main__":
    main()
