#!/usr/bin/env python3
"""Writes the quickstart's data: a small encyclopedia of invented things, and questions about it.

    python3 tools/make_quickstart_data.py                             writes recipes/quickstart/{train,eval}.json
    python3 tools/make_quickstart_data.py --pretrain corpus.jsonl     writes the pretraining text of the tiny model

Names consist of invented words and common words. An invented word is composed of syllables and belongs to exactly one
of three worlds (pretrain, train, eval). A checksum of the word decides which world. The invented words of eval.json
therefore never occur in the training data. The sentences and the syllables are in quickstart_templates.txt. The output
depends only on the arguments and the templates. It is the same on every platform and with every version of Python.
"""

import argparse
import json
import random
import re
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

TEMPLATES = Path(__file__).with_name("quickstart_templates.txt")
RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "quickstart"

# The world of an invented word, by its checksum modulo 16.
WORLDS = {"eval": range(0, 3), "train": range(3, 7), "pretrain": range(7, 16)}

COMPANY_ENDINGS = ["Works", "Mills", "and Sons", "Brothers", "Trading", "Foundry"]
MOUNTAIN_FORMS = ["Mount {}", "{} Peak", "the {} Horn", "{} Ridge"]
BOOK_FORMS = ["The Lamp of {}", "The Road to {}", "Letters from {}", "{} in Winter", "The Clock of {}", "Goodbye, {}"]
NAME_PATTERN = re.compile(r"[A-Z][a-z]+")

SMALL_WORDS = {"the", "a", "of", "to", "in", "and", "from"}
UNITS = {"kilograms", "metres"}

ASKERS = ["a visitor", "the teacher", "a child", "a traveller", "the editor", "an old friend", "a student", "my aunt"]
ASK_FIRST = [
    "{asker} asked: {question}",
    "{asker} asked: {question} The book says:",
    "{asker} wanted to know: {question} We looked it up and read:",
    "this question came from {asker}: {question}",
    "{asker} had a question: {question} This is what the page says:",
    "a riddle for {asker}: {question} Read on.",
]
ASK = ["{asker} asked: {question}", "then {asker} asked: {question}", "{asker} wanted to know: {question}"]
REPLIES = [
    "so the answer is {answer}.",
    "it is {answer}.",
    "that must be {answer}.",
    "{asker} wrote down: {answer}.",
    "{asker} nodded and said: {answer}.",
]
LISTEN = ["{asker} listens for an answer: {question}", "now pay attention, {asker}. {question}"]
NOT_YET = ["Not yet.", "No.", "That is something else.", "Read on."]
FOUND = ["There it is: {answer}.", "Yes: {answer}.", "So the answer is {answer}."]
SUMMARIES = ["In short,", "To sum up,", "As we have read,", "Remember that", "In other words,"]


class Dice:
    """Random choices. They use only random(), because only its numbers are the same in every version of Python."""

    def __init__(self, seed):
        self._next = random.Random(seed).random

    def below(self, bound):
        return int(self._next() * bound)

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def chance(self, probability):
        return self._next() < probability

    def pick(self, items):
        return items[self.below(len(items))]

    def sample(self, items, count):
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(min(count, len(rest)))]

    def shuffled(self, items):
        return self.sample(items, len(items))


@dataclass
class FactKind:
    name: str
    values: str
    say: list = field(default_factory=list)
    sum: list = field(default_factory=list)
    ask: list = field(default_factory=list)
    back: list = field(default_factory=list)


@dataclass
class Kind:
    name: str
    title: str
    noun: str
    pronoun: str
    open: list = field(default_factory=list)
    aside: list = field(default_factory=list)
    facts: list = field(default_factory=list)


def read_templates(path):
    """Returns (kinds of things, {name of a list: its parts}). A part is a list of choices, and a value of the list has
    one choice of each part. A kind of thing contains its kinds of facts, and these contain their sentences."""
    kinds, lists = [], {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        parts = [part.strip() for part in rest.split("|")]
        if word == "list":
            lists[rest] = parts_of_list = []
        elif word == "part":
            parts_of_list.append([choice.replace("_", " ") for choice in rest.split()])
        elif word == "more":
            parts_of_list[-1] += [choice.replace("_", " ") for choice in rest.split()]
        elif word == "kind":
            kinds.append(Kind(*parts))
        elif word == "fact":
            kinds[-1].facts.append(FactKind(*parts))
        elif word in ("open", "aside"):
            getattr(kinds[-1], word).append(rest.strip())
        elif word in ("say", "sum", "ask", "back"):
            getattr(kinds[-1].facts[-1], word).append(rest.strip())
        elif word and not word.startswith("#"):
            raise ValueError(f"{path}:{number}: unknown word {word!r}")
    return kinds, lists


class Names:
    """Invented names and values of one world."""

    def __init__(self, lists, world, dice):
        self.lists, self.world, self.dice = lists, world, dice

    def _word(self, syllables, skip_middle=0.0):
        while True:
            parts = [self.dice.pick(choices) for choices in self.lists["syllables_" + syllables]]
            if len(parts) == 3 and self.dice.chance(skip_middle):
                del parts[1]
            word = "".join(parts)
            if zlib.crc32(word.lower().encode()) % 16 in WORLDS[self.world]:
                return word

    def value(self, values):
        dice = self.dice
        if values == "person":
            return self._word("first_name") + " " + self._word("last_name", 0.4)
        if values in ("town", "river"):
            return self._word("place", 0.5) if values == "town" else self._word("root")
        if values in self.lists:
            return " ".join(dice.pick(words) for words in self.lists[values])
        low, high, step, unit = {
            "year": (1580, 1989, 1, ""),
            "population": (300, 64000, 100, ""),
            "staff": (12, 980, 1, ""),
            "crew": (9, 95, 1, ""),
            "pages": (90, 890, 1, ""),
            "weight": (2, 99, 1, " kilograms"),
            "height": (820, 5900, 10, " metres"),
        }[values]
        number = low + dice.between(0, (high - low) // step) * step
        return (str(number) if values == "year" else f"{number:,}") + unit

    def thing(self, kind):
        dice = self.dice
        if kind in ("town", "painter"):
            return self.value("person" if kind == "painter" else "town")
        if kind == "company":
            return self._word("last_name", 0.4) + " " + dice.pick(COMPANY_ENDINGS)
        if kind == "mountain":
            return dice.pick(MOUNTAIN_FORMS).format(self._word("root"))
        if kind == "book":
            return dice.pick(BOOK_FORMS).format(self.value("town"))
        word = self._word("root")
        return f"the {word}" if kind == "ship" else f"the {word.lower()}"


@dataclass(eq=False)
class Thing:
    kind: Kind
    name: str
    pronoun: str
    facts: list = field(default_factory=list)

    def fill(self, template, value="", how="name"):
        """Fills in the template. `how`: the sentence refers to the thing by its name, its pronoun, or "the" and its
        noun."""
        noun = f"the {self.kind.noun}"
        subject = {"name": self.name, "pronoun": self.pronoun, "noun": noun}[how]
        possessive = {"it": "its", "she": "her", "he": "his"}[self.pronoun] if how == "pronoun" else f"{subject}'s"
        return template.format(s=subject, p=possessive, o=noun if how == "pronoun" else subject, v=value)


@dataclass(eq=False)
class Fact:
    thing: Thing
    kind: FactKind
    value: str


def plain(sentences):
    return " ".join(text for text, _ in sentences)


def capital(sentence):
    return sentence[0].upper() + sentence[1:]


class Writer:
    """Writes passages and asks about them."""

    def __init__(self, templates, world, seed, backwards=0.1):
        self.kinds, lists = templates
        self.dice, self.backwards = Dice(f"{world} {seed}"), backwards
        self.names = Names(lists, world, self.dice)

    def _fresh(self, taken, draw, is_name):
        """Draws values until one has no word in `taken`. Ignores small words and units. Adds the words of this value to
        `taken`, and returns the value.

        If is_name, uses only the first three letters of each word, so that names also differ in their first letters.
        Each question therefore has only one answer.
        """
        while True:
            value = draw()
            words = [word for word in value.lower().split() if word not in SMALL_WORDS]
            marks = {word[:3] for word in words} if is_name else set(words) - UNITS
            if not marks & taken:
                taken |= marks
                return value

    def things(self, short=False):
        """Returns things of one kind with facts of the same few kinds. For a question about one thing, the values of
        the other things are therefore plausible wrong answers. If `short`, the facts are of one or two kinds."""
        dice, taken = self.dice, {}
        kind = dice.pick(self.kinds)
        count = dice.pick([2, 2, 2, 3, 3, 4])
        if short:
            theme = dice.sample(kind.facts, dice.between(1, 2) if count == 2 else 1)
        else:
            theme = dice.sample(kind.facts, dice.between(2, 3 if count > 2 else 4))
        things = []
        for _ in range(count):
            pronoun = dice.pick(["she", "he"]) if kind.pronoun == "person" else kind.pronoun
            name = self._fresh(taken.setdefault("names", set()), lambda: self.names.thing(kind.name), True)
            thing = Thing(kind, name, pronoun)
            most = min(len(theme), {2: 4, 3: 3, 4: 2}[count])
            for fact_kind in dice.sample(theme, most if short else dice.between(1, most)):
                is_name = fact_kind.values in ("person", "town", "river")
                group = taken.setdefault("names" if is_name else fact_kind.values, set())
                value = self._fresh(group, lambda: self.names.value(fact_kind.values), is_name)
                thing.facts.append(Fact(thing, fact_kind, value))
            things.append(thing)
        return things

    def _portrait(self, thing):
        """Returns sentences about one thing. The first sentence names the thing. Later sentences use a pronoun, a
        noun or the name."""
        dice, sentences, how = self.dice, [], "name"
        if dice.chance(0.25):
            sentences.append((capital(thing.fill(dice.pick(thing.kind.open))), []))
            how = dice.pick(["name", "pronoun", "noun"])
        for fact in thing.facts:
            text = thing.fill(dice.pick(fact.kind.say), fact.value, how)
            if how != "name" and sentences and dice.chance(0.15) and not NAME_PATTERN.match(text):
                before, facts = sentences.pop()
                sentences.append((f"{before[:-1]}, and {text}", [*facts, fact]))
            else:
                sentences.append((capital(text), [fact]))
            how = dice.pick(["name", "name", "pronoun", "pronoun", "noun"])
        if dice.chance(0.15):
            sentences.append((capital(dice.pick(thing.kind.aside)), []))
        return sentences

    def passage(self, things):
        """Returns [(sentence, its facts)]. The sentences describe one thing after the other, or all things mixed."""
        dice = self.dice
        if dice.chance(0.65):
            return [sentence for thing in dice.shuffled(things) for sentence in self._portrait(thing)]
        facts = dice.shuffled([fact for thing in things for fact in thing.facts])
        sentences = []
        while facts:
            fact = facts.pop()
            alike = next((other for other in facts if other.kind is fact.kind), None)
            if alike and dice.chance(0.3):
                facts.remove(alike)
                sentences.append((f"While {self.clause(fact)}, {self.clause(alike)}.", [fact, alike]))
            else:
                sentences.append((capital(fact.thing.fill(dice.pick(fact.kind.say), fact.value)), [fact]))
        if dice.chance(0.25):
            sentences.insert(dice.between(0, len(sentences)), (capital(dice.pick(things[0].kind.aside)), []))
        return sentences

    def clause(self, fact):
        return fact.thing.fill(self.dice.pick(fact.kind.sum), fact.value)

    def question(self, fact):
        """Returns (question, answer). Most questions ask for the value of the fact. Other questions give the value and
        ask for the thing."""
        if self.dice.chance(self.backwards):
            return fact.thing.fill(self.dice.pick(fact.kind.back), fact.value), fact.thing.name
        return fact.thing.fill(self.dice.pick(fact.kind.ask)), fact.value

    def row(self):
        """Returns a text for pretraining: a passage with a summary, or with questions and answers of people."""
        dice = self.dice
        things = self.things(short=dice.chance(0.7))
        sentences = self.passage(things)
        facts = dice.shuffled([fact for thing in things for fact in thing.facts])
        form = dice.below(10)
        if form == 0:
            clauses = [f"{self.clause(fact)}." for fact in facts[:5]]
            return " ".join([plain(sentences), dice.pick(SUMMARIES), clauses[0], *map(capital, clauses[1:])])
        if form <= 3:
            return self._listen(sentences, facts[0])
        return self._talk(sentences, facts[: dice.between(2, 3)])

    def _talk(self, sentences, facts):
        """Returns sentences with questions before, between and after them. Each answer comes after the sentence with
        its fact."""
        dice, parts, done = self.dice, [], 0
        for fact in facts:
            start = done if dice.chance(0.6) else dice.between(done, len(sentences))
            where = next(index for index, (_, its_facts) in enumerate(sentences) if fact in its_facts)
            end = len(sentences) if dice.chance(0.6) else dice.between(max(start, where + 1), len(sentences))
            asker = dice.pick(ASKERS)
            question, answer = self.question(fact)
            parts += [plain(sentences[done:start]), self._set(ASK if start else ASK_FIRST, asker, question=question),
                      plain(sentences[start:end]), self._set(REPLIES, asker, answer=answer)]
            done = end
        return " ".join(part for part in parts if part)

    def _listen(self, sentences, wanted):
        """Returns a question, and sentences up to the first one that answers it. A remark after each sentence says
        whether the sentence answers the question."""
        dice = self.dice
        question, answer = self.question(wanted)
        no, yes = dice.pick(NOT_YET), dice.pick(FOUND)
        parts = [self._set(LISTEN, dice.pick(ASKERS), question=question)]
        for sentence, facts in sentences:
            parts += [sentence, yes.format(answer=answer) if wanted in facts else no]
            if wanted in facts:
                break
        return " ".join(parts)

    def _set(self, templates, asker, **values):
        return capital(self.dice.pick(templates).format(asker=asker, Asker=capital(asker), **values))


def span_of(answer, context):
    """Finds the answer, but not inside a longer word or number: not 43 in 1843, and not 500 in 12,500."""
    return re.search(rf"(?<![\w,]){re.escape(answer)}(?!\w|,\d)", context)


def squad(templates, world, seed, num_questions, per_passage):
    """Returns a SQuAD v1.1 object with one article per kind of thing, and at most per_passage questions per passage."""
    writer = Writer(templates, world, seed)
    articles = {kind.name: {"title": kind.title, "paragraphs": []} for kind in writer.kinds}
    count = 0
    while count < num_questions:
        things = writer.things()
        context = plain(writer.passage(things))
        facts = writer.dice.shuffled([fact for thing in things for fact in thing.facts])
        questions = []
        for fact in facts[: min(per_passage, num_questions - count)]:
            question, answer = writer.question(fact)
            span = span_of(answer, context) or span_of(capital(answer), context)
            questions.append({"id": f"{world}-{count + len(questions):04}", "question": question,
                              "answers": [{"text": span.group(), "answer_start": span.start()}]})
        count += len(questions)
        articles[things[0].kind.name]["paragraphs"].append({"context": context, "qas": questions})
    return {"version": "1.1", "data": list(articles.values())}


def dump(data):
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=RECIPE)
    parser.add_argument("--train-questions", type=int, default=1500)
    parser.add_argument("--eval-questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pretrain", type=Path, metavar="FILE", help="write the pretraining corpus (JSONL) instead")
    parser.add_argument("--rows", type=int, default=176000, help="rows of the pretraining corpus")
    args = parser.parse_args(arguments)
    templates = read_templates(TEMPLATES)
    if args.pretrain:
        writer = Writer(templates, "pretrain", args.seed, backwards=0.18)
        with args.pretrain.open("w", encoding="utf-8") as out:
            for _ in range(args.rows):
                out.write(json.dumps({"text": writer.row()}, ensure_ascii=False) + "\n")
        return
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for world, count, per_passage in (("train", args.train_questions, 3), ("eval", args.eval_questions, 2)):
        data = squad(templates, world, args.seed, count, per_passage)
        (args.output_dir / f"{world}.json").write_text(dump(data), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
