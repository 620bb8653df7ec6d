#!/usr/bin/env python3
"""Checks the quickstart's bundled data and the program that makes it, tools/make_quickstart_data.py.

A world is a set of texts: train, eval, or pretrain (the pretraining text of the tiny model). Each invented word belongs
to one world only.
"""
import importlib.util
import json
import re
import statistics
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "quickstart"


def load_generator():
    spec = importlib.util.spec_from_file_location("make_quickstart_data", ROOT / "tools" / "make_quickstart_data.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # `dataclasses` looks up the module here when it makes a class
    spec.loader.exec_module(module)
    return module


generator = load_generator()


def committed(world):
    return json.loads((RECIPE / f"{world}.json").read_text(encoding="utf-8"))


def paragraphs(data):
    return [paragraph for article in data["data"] for paragraph in article["paragraphs"]]


def words(text):
    return set(re.findall(r"[A-Za-z]+", text))


def ordinary_words():
    """Returns the ordinary words of the texts: the words of the templates, except the syllables of invented names, and
    the words of the generator's lists. The result has each word as it is written, and also capitalized."""
    lines = generator.TEMPLATES.read_text(encoding="utf-8").splitlines()
    syllables = [number for number, line in enumerate(lines) if line.startswith("list syllables")]
    first_after = next(number for number, line in enumerate(lines)
                       if number > syllables[-1] and line.startswith("list ") and number not in syllables)
    text = " ".join(lines[: syllables[0]] + lines[first_after:]).replace("_", " ")
    text += " ".join([" "] + generator.COMPANY_ENDINGS + generator.MOUNTAIN_FORMS + generator.BOOK_FORMS)
    text += " ".join([" "] + generator.ASKERS + generator.ASK_FIRST + generator.ASK + generator.REPLIES)
    text += " ".join([" "] + generator.LISTEN + generator.NOT_YET + generator.FOUND + generator.SUMMARIES)
    text += " While she he her his its kilograms metres"
    return {variant for word in words(text) for variant in (word, word.capitalize())}


class Committed(unittest.TestCase):
    def test_is_what_the_generator_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            generator.main(["--output-dir", folder])
            for name in ("train.json", "eval.json"):
                self.assertEqual((Path(folder) / name).read_bytes(), (RECIPE / name).read_bytes(), name)

    def test_answers_are_at_their_offsets(self):
        for world in ("train", "eval"):
            for paragraph in paragraphs(committed(world)):
                for question in paragraph["qas"]:
                    (answer,) = question["answers"]
                    start, text = answer["answer_start"], answer["text"]
                    context = paragraph["context"]
                    self.assertEqual(context[start : start + len(text)], text, question["id"])
                    around = context[start - 1 : start] + context[start + len(text) : start + len(text) + 1]
                    self.assertFalse(re.search(r"\w", around), question["id"])

    def test_ids_are_unique_and_questions_of_a_paragraph_differ(self):
        for world, count in (("train", 1500), ("eval", 200)):
            ids = [question["id"] for paragraph in paragraphs(committed(world)) for question in paragraph["qas"]]
            self.assertEqual(len(ids), count)
            self.assertEqual(len(set(ids)), count)
            for paragraph in paragraphs(committed(world)):
                questions = [question["question"] for question in paragraph["qas"]]
                self.assertEqual(len(set(questions)), len(questions), questions)


class Worlds(unittest.TestCase):
    def test_worlds_share_no_names(self):
        ordinary = ordinary_words()
        names = {}
        for world in ("train", "eval"):
            texts = [text for passage in paragraphs(committed(world))
                     for text in (passage["context"], *(question["question"] for question in passage["qas"]))]
            names[world] = words(" ".join(texts)) - ordinary
        writer = generator.Writer(generator.read_templates(generator.TEMPLATES), "pretrain", 1)
        names["pretrain"] = words(" ".join(writer.row() for _ in range(3000))) - ordinary
        for world, count in (("train", 1000), ("eval", 200), ("pretrain", 4000)):
            self.assertGreater(len(names[world]), count, world)
        for one, other in (("train", "eval"), ("pretrain", "eval"), ("pretrain", "train")):
            self.assertEqual(names[one] & names[other], set(), (one, other))

    def test_the_prompt_format_is_new_to_the_pretrained_model(self):
        writer = generator.Writer(generator.read_templates(generator.TEMPLATES), "pretrain", 1)
        for _ in range(1000):
            self.assertIsNone(re.search(r"Question:|Context:|Answer:", writer.row()))


class Variety(unittest.TestCase):
    def setUp(self):
        self.paragraphs = {world: paragraphs(committed(world)) for world in ("train", "eval")}
        self.ordinary = ordinary_words()

    def test_passages_differ_in_length(self):
        for world, passages in self.paragraphs.items():
            lengths = [len(passage["context"].split()) for passage in passages]
            self.assertLess(min(lengths), 25, world)
            self.assertGreater(max(lengths), 90, world)
            self.assertGreater(statistics.stdev(lengths), 12, world)
            self.assertEqual(len({passage["context"] for passage in passages}), len(passages), world)

    def test_questions_of_one_kind_have_many_wordings(self):
        kinds, _ = generator.read_templates(generator.TEMPLATES)
        asked = {re.sub(r"[A-Za-z]+", lambda word: word[0] if word[0] in self.ordinary else "*", question["question"])
                 for passage in self.paragraphs["train"] for question in passage["qas"]}
        self.assertGreater(len(asked), 200)
        for kind in kinds:
            for fact in kind.facts:
                self.assertGreaterEqual(len(fact.say), 5, (kind.name, fact.name))
                self.assertGreaterEqual(len(fact.ask), 4, (kind.name, fact.name))
                self.assertGreaterEqual(len(fact.back), 2, (kind.name, fact.name))

    def test_distractors_vary_in_number(self):
        """If a question asks for a fact about one thing, a distractor is a fact of the same kind about another thing of
        the passage: a possible wrong answer. Checks that passages have 2, 3 or 4 things, and that most passages have two
        facts of the same kind."""
        writer = generator.Writer(generator.read_templates(generator.TEMPLATES), "eval", 2)
        counts, rivals = set(), 0
        for _ in range(300):
            things = writer.things()
            counts.add(len(things))
            kinds = [fact.kind.name for thing in things for fact in thing.facts]
            rivals += len(set(kinds)) < len(kinds)
        self.assertEqual(counts, {2, 3, 4})
        self.assertGreater(rivals, 180)  # `rivals` counts passages with two facts of the same kind

    def test_answers_are_in_all_parts_of_a_passage(self):
        places = [question["answers"][0]["answer_start"] / len(passage["context"])
                  for passage in self.paragraphs["eval"] for question in passage["qas"]]
        quarters = [sum(low <= place < low + 0.25 for place in places) for low in (0, 0.25, 0.5, 0.75)]
        self.assertGreater(min(quarters), len(places) // 10, quarters)


if __name__ == "__main__":
    unittest.main()
