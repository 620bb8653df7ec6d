"""The recipe of the bundled chat model: its data and its size, a short training, the answers, and merging."""
import json
import os
import re
import subprocess
import sys

from tessera_cli import CliTest, main
from tiny_job import jsonl

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
RECIPE = os.path.join(ROOT, "recipes", "chat")
MODEL = os.path.join("recipes", "chat", "model")


def read(*names):
    with open(os.path.join(RECIPE, *names), "rb") as file:
        return file.read()


def rows(name):
    return [json.loads(line)["messages"] for line in read(name).decode().splitlines()]


def turns(conversation):
    """Pairs of a question and its answer."""
    talk = [message["content"] for message in conversation if message["role"] != "system"]
    return list(zip(talk[::2], talk[1::2], strict=True))


def make_data(*words):
    subprocess.run([sys.executable, os.path.join(ROOT, "tools", "make_chat_data.py"), *words], check=True)


class Files(CliTest):
    def test_the_data_is_the_output_of_the_script(self):
        make_data("--output-dir", self.folder)
        for name in ("train.jsonl", "eval.jsonl"):
            with open(os.path.join(self.folder, name), "rb") as file:
                self.assertEqual(file.read(), read(name), name)

    def test_the_recipe_is_small(self):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(RECIPE) for name in names]
        self.assertLess(sum(map(os.path.getsize, files)), 4 * 2 ** 20)

    def test_a_question_has_one_answer_and_evaluation_asks_in_other_words(self):
        answers, asked = {}, {"train.jsonl": set(), "eval.jsonl": set()}
        for name in asked:
            for conversation in rows(name):
                is_brief = conversation[0]["role"] == "system" and not conversation[0]["content"].startswith("You are")
                for question, answer in turns(conversation):
                    if " it" in question or question.startswith(("And the ", "What about ", "How about ")):
                        continue  # means what the conversation has asked before
                    self.assertEqual(answers.setdefault((question, is_brief), answer), answer, question)
                    asked[name].add(question)
        both = asked["train.jsonl"] & asked["eval.jsonl"]
        self.assertLessEqual(len(both), 6, both)  # only greetings are the same
        self.assertGreater(len(asked["eval.jsonl"]), 60)

    def test_the_tokenizer_has_the_tokens_and_the_template_of_turns(self):
        self.assertEqual(read("model", "chat_template.jinja"), read("chat_template.jinja"))
        words = ["tokenize", "--tokenizer", MODEL, "--prompt", "<|im_start|>user\n<|im_end|>"]
        shown = self.succeeds(*words, cwd=ROOT).split()
        self.assertEqual(len(shown), 4)
        self.assertEqual((shown[0], shown[3]), ("1", "2"))

    def test_the_base_knows_prose_but_no_conversations(self):
        make_data("--pretrain", os.path.join(self.folder, "prose.jsonl"), "--rows", "16", "--seed", "2")
        words = ["eval", "--model", os.path.join(ROOT, MODEL), "--json", "--eval-dataset"]
        prose = json.loads(self.succeeds(*words, "prose.jsonl", "--objective", "causal_lm"))["perplexity"]
        talk = json.loads(self.succeeds(*words, os.path.join(RECIPE, "eval.jsonl")))["perplexity"]
        self.assertLess(prose, 4)  # of an untrained model: 1024
        self.assertGreater(talk, 200)


class Training(CliTest):
    def write_rows(self, name):
        """Writes the conversations of a file about the bakery or the mill. A short training suffices for them."""
        others = re.compile(r"boatyard|inn\b|library|lighthouse|museum|school|There is no")
        chosen = [row for row in rows(name) if not others.search(json.dumps(row))]
        self.assertGreater(len(chosen), 10)
        self.write(name, jsonl([{"messages": row} for row in chosen]))

    def chat(self, *words):
        self.write("lines", "Hello!\nWho takes care of the mill?\n")
        with open(os.path.join(self.folder, "lines"), "rb") as lines:
            return self.succeeds("chat", *words, stdin=lines).splitlines()

    def test_a_short_training_changes_the_answers(self):
        self.write_rows("train.jsonl")
        self.write_rows("eval.jsonl")
        base = os.path.join(ROOT, MODEL)
        run = os.path.join(self.folder, "run")
        self.succeeds("train", "recipes/chat/finetune.toml", "--dataset", os.path.join(self.folder, "train.jsonl"),
                      "--eval-dataset", os.path.join(self.folder, "eval.jsonl"), "--max-steps", "100", "--warmup-steps",
                      "10", "--output-dir", run, cwd=ROOT)
        with open(os.path.join(run, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        self.assertEqual(summary["exact_match_before"], 0)
        self.assertGreater(summary["exact_match"], 0.3)
        self.assertGreater(summary["eval_loss_before"], 4)
        self.assertLess(summary["eval_loss"], 1.2)
        self.assertLess(summary["num_trainable_parameters"], 0.2 * summary["num_parameters"])

        before = self.chat("--model", base, "--max-new-tokens", "40")
        after = self.chat("--model", base, "--adapter", "run")
        self.assertNotEqual(before[:1], after[:1])
        self.assertTrue(after[0].startswith("Welcome to Tarnholm!"), after)
        self.assertIn("mill", after[1])
        self.succeeds("export", "--model", base, "--adapter", "run", "--merge", "--save-dtype", "fp32", "--output-dir",
                      "merged")
        self.assertEqual(self.chat("--model", "merged"), after)


if __name__ == "__main__":
    main()
