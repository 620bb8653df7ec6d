"""Tests the quickstart's training with two steps, and the commands that scripts and documents recommend."""
import json
import os
import re
import shlex

from tessera_cli import CliTest, main

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Quickstart(CliTest):
    def test_recipe(self):
        output = os.path.join(self.folder, "out")
        out = self.succeeds("train", "recipes/quickstart/finetune.toml", "--max-steps", "2", "--train-size", "16",
                            "--eval-size", "4", "--output-dir", output, cwd=ROOT)
        with open(os.path.join(output, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        for key in ["exact_match", "f1", "exact_match_before", "train_loss", "eval_loss", "train_samples_per_second",
                    "peak_memory_bytes"]:
            self.assertIsInstance(summary[key], (int, float), key)
        self.assertLess(summary["exact_match_before"], 0.4)
        for row in [r"\| before \| +- \| +[0-9.]+ \| +[0-9.]+ \| +[0-9.]+ \|", "^speed   ", "^memory  ", "^model   "]:
            self.assertTrue(re.search(row, out, re.M), (row, out))

    def test_8_bit_states(self):
        """From random weights, 150 steps with moments in 8 bits lead to the loss of fp32 moments, up to 1 % of it. This
        is several times the difference of longer runs (docs/decisions/0055-moments-in-8-bits.md)."""
        losses = {}
        for states in ["fp32", "8bit"]:
            output = os.path.join(self.folder, states)
            self.succeeds("train", "--model", "recipes/quickstart/config.json", "--init", "random", "--tokenizer",
                          "recipes/quickstart/model", "--dataset", "recipes/quickstart/train.json", "--objective", "causal_lm",
                          "--max-length", "48", "--batch-size", "2", "--max-steps", "150", "--lr", "3e-3", "--precision", "fp32",
                          "--eval-strategy", "no", "--save-strategy", "no", "--logging-steps", "1", "--optimizer-states", states,
                          "--output-dir", output, cwd=ROOT)
            with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as file:
                losses[states] = [record["loss"] for record in map(json.loads, file) if "loss" in record]
        self.assertEqual(len(losses["8bit"]), 150)
        self.assertEqual(losses["8bit"][:2], losses["fp32"][:2])  # the first update uses moments that are not yet rounded
        ours, exact = (sum(losses[states][-50:]) / 50 for states in ["8bit", "fp32"])
        self.assertLess(exact, 0.75 * losses["fp32"][0])
        self.assertAlmostEqual(ours, exact, delta=0.01 * exact)

    def test_the_bundled_model_is_small_and_was_pretrained(self):
        folder = os.path.join(ROOT, "recipes", "quickstart", "model")
        self.assertLess(sum(entry.stat().st_size for entry in os.scandir(folder)), 4 * 2 ** 20)
        loss = json.loads(self.succeeds("eval", "--model", folder, "--eval-dataset", "recipes/quickstart/eval.json",
                                        "--eval-size", "8", "--objective", "causal_lm", "--json", cwd=ROOT))["eval_loss"]
        # The vocabulary has 2048 tokens, so the loss of an untrained model is ln 2048 = 7.62.
        self.assertLess(loss, 0.75 * 7.62)


class Documents(CliTest):
    """Commands in scripts and documents use existing verbs and flags, and allowed values. The test writes `config`
    before the verb: `tessera config train …` only checks the command `tessera train …`. The test does not change
    commands with the verbs `config` and `doctor`, and so runs them."""

    def test_commands(self):
        seen = set()
        for name in ["quickstart", "README.md", "recipes/quickstart/README.md", "recipes/chat/README.md",
                     "docs/performance.md", "docs/strategies.md", "docs/tuning.md", "docs/architecture.md", "bench/README.md"]:
            for command in self.commands(name):
                with self.subTest(file=name, command=command):
                    words = shlex.split(command, comments=True)[1:]
                    seen.add(words[0])
                    words = [word for word in words if not re.fullmatch("…|[A-Z]+", word) or word in ("DIR", "FILE")]
                    about = [] if words[0] in ("config", "doctor") else ["config"]
                    self.succeeds(*about, *words, cwd=ROOT)
        self.assertLessEqual({"train", "generate", "plan", "tokenizer"}, seen)

    def commands(self, name):
        """The commands in a file. A command is on an indented line, and a label may come before it on this line. If a
        line ends with a backslash, the command continues on the next line."""
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        for line in text.splitlines():
            found = re.search(r"^(?: {4}|  [a-z ]+  )(?:\$ )?((?:build/)?tessera [a-z].*)$", line)
            if found and "--deepspeed" not in line:  # this command needs a file that the user writes
                yield found[1]


if __name__ == "__main__":
    main()
