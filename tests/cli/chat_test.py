"""Conversations: from rows of messages to samples, a trained model and its answers."""
import json
import math
import os

from tessera_cli import main
from tiny_job import INPUT, USAGE, TinyJobTest, jsonl

TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}</s>\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}")
REWRITES = TEMPLATE.replace("{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else 'cut' }}")


def chat(number, turns=2):
    messages = []
    for turn in range(turns):
        messages += [{"role": "user", "content": f"What is {number} plus {turn}?"},
                     {"role": "assistant", "content": f"It is {number + turn}."}]
    return {"messages": messages}


class ChatTest(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.write("chat.jsonl", jsonl([chat(i) for i in range(12)]))
        self.succeeds("tokenizer", "train", "--dataset", "chat.jsonl", "--vocab-size", "300", "--output-dir", "tok")
        self.write("tok/chat_template.jinja", TEMPLATE)
        self.job = ["--model", "gpt", "--init", "random", "--tokenizer", "tok", "--vocab-size", "300", "--hidden-size",
                    "32", "--num-layers", "1", "--num-heads", "2", "--ff-dim", "32", "--dropout", "0"]

    def test_from_rows_to_answers(self):
        self.succeeds("train", *self.job, "--dataset", "chat.jsonl", "--epochs", "1", "--output-dir", "run",
                      "--save-strategy", "no", "--eval-dataset", "chat.jsonl", "--eval-generation", "--max-new-tokens", "4")
        summary = json.loads(self.read("run", "summary.json"))
        self.assertEqual(summary["train_data"]["rows_used"], 12)
        self.assertEqual(self.read("run", "model", "chat_template.jinja").decode(), TEMPLATE)
        shown = self.succeeds("tokenize", "--model", "run", "--dataset", "chat.jsonl", "--show-loss")
        self.assertEqual(shown, "[user] What is 0 plus 0?</s>\n[assistant] «It is 0.</s>»\n"
                                "[user] What is 0 plus 1?</s>\n[assistant] «It is 1.</s>»\n\n")
        last = self.succeeds("tokenize", "--model", "run", "--dataset", "chat.jsonl", "--show-loss", "--loss-on", "last",
                             "--json")
        self.assertEqual([part["text"] for part in json.loads(last)["parts"] if part["loss"]], ["It is 1.</s>"])
        self.write("p.jsonl", jsonl([{"id": 7, "messages": chat(3)["messages"][:1]}]))
        result = json.loads(self.succeeds("generate", "--model", "run", "--prompts", "p.jsonl", "--max-new-tokens", "3"))
        self.assertEqual(result["id"], 7)
        self.assertEqual(result["messages"], chat(3)["messages"][:1])
        report = json.loads(self.succeeds("eval", "--model", "run", "--eval-dataset", "chat.jsonl", "--json"))
        self.assertAlmostEqual(report["eval_loss"], summary["eval_loss"], places=5)
        self.assertAlmostEqual(report["perplexity"], math.exp(report["eval_loss"]), places=9)
        line = self.succeeds("eval", "--model", "run", "--eval-dataset", "chat.jsonl")
        self.assertTrue(line.startswith(f"{{'eval_loss': {report['eval_loss']}, 'perplexity': {report['perplexity']}, "), line)

    def test_prompts_have_the_formats_of_training_data(self):
        turns = chat(3)["messages"][:3]
        flags = ["generate", *self.job, "--max-new-tokens", "3", "--prompts", "p.jsonl"]
        self.write("p.jsonl", jsonl([{"messages": turns}]))
        expected = json.loads(self.succeeds(*flags))
        answered = [*turns, {"role": "assistant", "content": "It is 4."}]
        others = [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]} for m in answered]
        renamed = [{"who": m["role"], "content": m["content"]} for m in answered]
        for row, words in [({"messages": answered}, []), ({"conversations": others}, []),
                           ({"prompt": turns, "completion": "any"}, []),
                           ({"instruction": turns[2]["content"], "history": [[m["content"] for m in turns[:2]]]}, []),
                           ({"text": "a", "conversations": others}, ["--format", "sharegpt"]),
                           ({"dialog": renamed}, ["--fields", "messages=dialog,role=who"])]:
            self.write("p.jsonl", jsonl([row]))
            result = json.loads(self.succeeds(*flags, *words))
            self.assertEqual((result["ids"], result["num_prompt_tokens"]), (expected["ids"], expected["num_prompt_tokens"]), row)
            self.assertEqual(result["messages"][:3], turns)
        self.fails(INPUT, "p.jsonl:1: is no row of the format sharegpt", *flags, "--format", "sharegpt")
        self.fails(USAGE, "--format: unknown value", *flags, "--format", "chatml")

    def test_a_vocabulary_of_renamed_rows(self):
        self.write("dialog.jsonl", jsonl([{"text": "unused", "dialog": chat(i)["messages"]} for i in range(12)]))
        words = ["--vocab-size", "300", "--output-dir", "tok2", "--format", "messages", "--fields", "messages=dialog"]
        self.succeeds("tokenizer", "train", "--dataset", "dialog.jsonl", *words)
        self.assertEqual(self.read("tok2", "tokenizer.json"), self.read("tok", "tokenizer.json"))
        self.fails(INPUT, "dialog.jsonl:1: is no row of the format alpaca", "tokenizer", "train", "--dataset", "dialog.jsonl",
                   *words[:-3], "alpaca")

    def refused(self, code, message, *words):
        self.fails(code, message, "train", *self.job, "--dataset", "chat.jsonl", "--output-dir", "run", *words)

    def test_the_saved_model_has_the_template_of_the_training(self):
        self.write("other.jinja", TEMPLATE.replace("[", "<").replace("]", ">"))
        self.succeeds("train", *self.job, "--dataset", "chat.jsonl", "--max-steps", "1", "--output-dir", "run",
                      "--chat-template", "other.jinja")
        self.assertEqual(self.read("run", "model", "chat_template.jinja"), self.read("other.jinja"))
        shown = self.succeeds("tokenize", "--model", "run", "--dataset", "chat.jsonl", "--show-loss")
        self.assertTrue(shown.startswith("<user> What is 0 plus 0?"), shown)

    def test_refused_templates(self):
        self.write("rewrites.jinja", REWRITES)
        self.refused(INPUT, "chat.jsonl:1: messages[1]: the chat template writes this turn in another way",
                     "--chat-template", "rewrites.jinja")
        self.refused(INPUT, "Give --loss-on last", "--chat-template", "rewrites.jinja")
        self.write("all.jinja", "{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}{% endgeneration %}")
        self.refused(INPUT, "marks all tokens of the conversations", "--chat-template", "all.jinja")
        self.write("day.jinja", "{{ strftime_now('%Y') }}" + TEMPLATE)
        self.refused(USAGE, "--template-date", "--chat-template", "day.jinja")
        self.write("include.jinja", "{% include 'x' %}")
        self.refused(INPUT, "include.jinja:1", "--chat-template", "include.jinja")
        self.refused(INPUT, "the conversation takes 64 tokens; ", "--max-length", "8")
        self.refused(USAGE, "is not a date", "--template-date", "2026-02-30")

    def test_tokenize_shows_texts_or_samples(self):
        self.fails(USAGE, "--loss-on: has no effect on the tokens of a text", "tokenize", "--tokenizer", "tok", "--prompt", "a",
                   "--loss-on", "last")
        self.fails(USAGE, "--show-loss", "tokenize", "--tokenizer", "tok", "--prompt", "a", "--show-loss", "--dataset",
                   "chat.jsonl")
        self.fails(USAGE, "needs the data set", "tokenize", "--model", "none", "--show-loss")

    def test_without_a_template(self):
        os.remove(self.path("tok", "chat_template.jinja"))
        self.refused(INPUT, "has no chat template", "--epochs", "1")


if __name__ == "__main__":
    main()
