#!/usr/bin/env python3
"""Writes the data of recipes/chat: conversations of a guide with visitors of the invented island Tarnholm.

    python3 tools/make_chat_data.py                            writes recipes/chat/{train,eval}.jsonl
    python3 tools/make_chat_data.py --pretrain corpus.jsonl    writes the pretraining text of the tiny model,
                                                               and roles.txt beside it
    python3 tools/make_chat_data.py --turns FOLDER             gives a new tokenizer the tokens and template of turns

The guide knows five facts about each of eight places. A fact has one answer, or a short one, and many wordings of its
question. eval.jsonl asks only with wordings that occur in no conversation of train.jsonl. The pretraining text is prose
about other islands, whose people, sights and years are drawn at random. It contains all wordings, but neither
conversations nor facts about Tarnholm. The output depends only on the arguments. It is the same on every platform and
with every version of Python.
"""

import argparse
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from make_quickstart_data import Dice, capital

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "chat"
GUIDE, ISLAND = "Wick", "Tarnholm"


@dataclass
class Fact:
    """A kind of fact about a place. {x} stands for the place or "it", {X} for the same with a capital letter."""
    say: str
    train: list  # wordings of the question in train.jsonl
    eval: list  # wordings in eval.jsonl

    def wordings(self, part):
        return {"train": self.train, "eval": self.eval, "pretrain": self.train + self.eval}[part]


FACTS = {
    "keeper": Fact(
        "{v} runs {x}.",
        ["Who runs {x}?", "Who owns {x}?", "Who looks after {x}?", "Who is responsible for {x}?",
         "Tell me who runs {x}.", "Which person runs {x}?", "Who is the boss of {x}?"],
        ["Who is in charge of {x}?", "Who takes care of {x}?", "Do you know who runs {x}?"]),
    "opens": Fact(
        "{X} opens at {v}.",
        ["When does {x} open?", "At what time does {x} open?", "How early does {x} open?",
         "From what time is {x} open?", "Tell me when {x} opens.", "When can I visit {x}?", "At which hour does {x} open?"],
        ["What time does {x} open?", "Do you know when {x} opens?", "When are the doors of {x} open?"]),
    "place": Fact(
        "{X} is {v}.",
        ["Where is {x}?", "Where can I find {x}?", "How do I find {x}?", "Tell me where {x} is.",
         "I am looking for {x}.", "Which is the way to {x}?", "Show me where {x} is."],
        ["Where do I find {x}?", "How do I get to {x}?", "Do you know where {x} is?"]),
    "sight": Fact(
        "{X} is known for {v}.",
        ["What is {x} known for?", "What is special about {x}?", "Why do people visit {x}?", "What can I see at {x}?",
         "Tell me what is special about {x}.", "Why should I visit {x}?", "What do people like about {x}?"],
        ["What is {x} famous for?", "Why do people like {x}?", "Do you know what is special about {x}?"]),
    "year": Fact(
        "{X} was built in {v}.",
        ["When was {x} built?", "How old is {x}?", "In which year was {x} built?", "Since when do you have {x}?",
         "Tell me when {x} was built.", "Which year is {x} from?", "Tell me how old {x} is."],
        ["What year was {x} built?", "When did people build {x}?", "Do you know how old {x} is?"]),
}

TARNHOLM = {  # place: keeper, opens, place, sight, year
    "bakery": ("Orla Fennick", "six in the morning", "behind the church", "its plum bread", "1874"),
    "boatyard": ("Tobin Marsk", "seven in the morning", "at the end of the pier", "its red boats", "1790"),
    "inn": ("Bram Oddlow", "five in the evening", "next to the harbour", "its fish soup", "1688"),
    "library": ("Wilma Tarn", "ten in the morning", "opposite the school", "its old maps", "1835"),
    "lighthouse": ("Captain Gorse", "eight in the evening", "on the north cliff", "its green lamp", "1743"),
    "mill": ("Joss Kettle", "eight in the morning", "beside the river", "its singing wheel", "1659"),
    "museum": ("Doctor Ivy Sand", "two in the afternoon", "under the town hall", "its whale bones", "1926"),
    "school": ("Ada Plover", "half past seven", "across the bridge", "its glass roof", "1868"),
}
OTHERS = ["garden", "market", "observatory", "smithy"]  # only in the pretraining text
MISSING = ["airport", "bank", "casino", "castle", "cinema", "circus", "hospital", "prison", "stadium", "zoo"]

GREETINGS = ["Hello!", "Hi!", "Good morning!", "Good evening!", "Hello, guide!", "Hi there!"]
SMALL_TALK = [  # (answer, wordings in train.jsonl, wordings in eval.jsonl)
    (f"I am {GUIDE}, the guide of {ISLAND}.",
     ["Who are you?", "What is your name?", "Tell me your name.", "Who am I talking to?", "What are you?"],
     ["Do you have a name?", "Tell me who you are."]),
    (f"I answer questions about the places of {ISLAND}.",
     ["What can you do?", "How can you help me?", "What do you know?", "What can I ask you?", "Can you help me?"],
     ["Tell me what you can do.", "What can you tell me?"]),
    (f"You are on {ISLAND}, an island with eight places to see.",
     ["Where am I?", "Which island is this?", "What is this place?", "What is the name of this island?",
      "Where are we?"],
     ["Do you know where I am?", "Tell me the name of this island."]),
]
WELCOME = f"Welcome to {ISLAND}! What would you like to know?"
THANKS = ["Thank you!", "Thanks!", "Thanks a lot!", "Thank you very much!"]
PLEASURE = "You are welcome!"
OTHER_PLACE = ["And {x}?", "What about {x}?", "How about {x}?"]
SAME_PLACE = ["And {q}", "Good. {Q}", "Thanks. {Q}"]
ROLE = f"You are {GUIDE}, the guide of {ISLAND}."
BRIEF = ["Answer in a few words.", "Be brief.", "Give short answers."]


def lower(text):
    return text if text.startswith("I ") else text[0].lower() + text[1:]


def fill(pattern, x, value=""):
    return pattern.replace("{X}", capital(x)).replace("{x}", x).replace("{v}", value)


class Talk:
    """Draws conversations for train.jsonl or eval.jsonl."""

    def __init__(self, part, seed):
        self.part, self.dice = part, Dice(f"{part} {seed}")

    def conversation(self, place, fact):
        """A conversation whose last question asks for this fact. An eval conversation ends with its answer."""
        dice, is_train = self.dice, self.part == "train"
        self.brief = dice.chance(0.3)
        self.messages = []
        if self.brief:
            self.add("system", dice.pick(BRIEF))
        elif dice.chance(0.3):
            self.add("system", ROLE)
        if dice.chance(0.15):
            self.turn(dice.pick(GREETINGS), WELCOME)
        if dice.chance(0.15):
            self.turn(*self.small_talk())
        kind = dice.below(10)
        if kind < 3:  # first another fact about the same place, then "it"
            self.ask(place, dice.pick([name for name in FACTS if name != fact]))
            question = fill(dice.pick(FACTS[fact].wordings(self.part)), "it")
            frame = dice.pick(SAME_PLACE)
            self.turn(frame.replace("{q}", lower(question)).replace("{Q}", question), self.answer(place, fact))
        elif kind < 5:  # first the same fact about another place
            self.ask(dice.pick([name for name in TARNHOLM if name != place]), fact)
            self.turn(fill(dice.pick(OTHER_PLACE), "the " + place), self.answer(place, fact))
        else:
            if kind < 7:
                self.turn(*self.other_question())
            self.ask(place, fact)
        if is_train and dice.chance(0.15):
            self.turn(dice.pick(THANKS), PLEASURE)
        return {"messages": self.messages}

    def short_conversation(self):
        """One question of another kind."""
        self.brief, self.messages = False, []
        if self.dice.chance(0.3):
            self.add("system", ROLE)
        self.turn(*(self.small_talk() if self.dice.chance(0.5) else self.question_about_missing()))
        return {"messages": self.messages}

    def add(self, role, content):
        self.messages.append({"role": role, "content": content})

    def turn(self, question, answer):
        self.add("user", question)
        self.add("assistant", answer)

    def ask(self, place, fact):
        self.turn(fill(self.dice.pick(FACTS[fact].wordings(self.part)), "the " + place), self.answer(place, fact))

    def answer(self, place, fact):
        value = TARNHOLM[place][list(FACTS).index(fact)]
        if not self.brief:
            return fill(FACTS[fact].say, "the " + place, value)
        before = FACTS[fact].say.partition("{v}")[0].split()
        word = before[-1] + " " if before and before[-1] in ("at", "in") else ""
        return capital(word + value + ".")

    def other_question(self):
        if self.dice.chance(0.4):
            return self.question_about_missing()
        place, fact = self.dice.pick(list(TARNHOLM)), self.dice.pick(list(FACTS))
        return fill(self.dice.pick(FACTS[fact].wordings(self.part)), "the " + place), self.answer(place, fact)

    def question_about_missing(self):
        noun, fact = self.dice.pick(MISSING), self.dice.pick(list(FACTS))
        question = fill(self.dice.pick(FACTS[fact].wordings(self.part)), "the " + noun)
        return question, f"There is no {noun} on {ISLAND}."

    def small_talk(self):
        answer, train, held_out = self.dice.pick(SMALL_TALK)
        return self.dice.pick(train if self.part == "train" else held_out), answer


def conversations(part, seed, per_fact, num_short):
    """`per_fact` conversations for each fact about each place, and `num_short` others, in a random order."""
    talk = Talk(part, seed)
    rows = [talk.conversation(place, fact) for place in TARNHOLM for fact in FACTS for _ in range(per_fact)]
    rows += [talk.short_conversation() for _ in range(num_short)]
    return talk.dice.shuffled(rows)


# The pretraining text.
SYLLABLES = [["Bel", "Cor", "Dun", "Ell", "Far", "Gil", "Hol", "Jor", "Kel", "Lum", "Mer", "Nor", "Pen", "Ros", "Sel",
              "Tam", "Ul", "Ver", "Wen", "Yar"],
             ["a", "an", "e", "er", "i", "in", "o", "on", "u"],
             ["by", "da", "den", "ford", "gate", "lin", "low", "mere", "more", "ra", "ric", "sa", "ton", "wick", "wyn"]]
HOURS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
DAY = ["in the morning", "in the afternoon", "in the evening"]
SITES = [["behind", "beside", "near", "next to", "opposite", "above", "under", "across from"],
         ["the church", "the harbour", "the river", "the square", "the town hall", "the old bridge", "the east gate",
          "the north cliff", "the highest hill", "the pier", "the village", "the school"]]
SIGHTS = [["red", "blue", "green", "silver", "brass", "glass", "old", "smoked", "singing", "wooden", "golden", "white"],
          ["roses", "maps", "boats", "lamp", "wheel", "bells", "bones", "telescope", "roof", "cheese", "bread", "soup",
           "plums", "clock", "stairs", "windows"]]
ASKERS = ["A visitor", "A child", "The teacher", "A sailor", "An old friend", "My aunt", "A student"]
ASK = ["{who} asked: {q} {a}", "{q} {who} wanted to know it. {a}", "{q} This is what {whom} heard: {a}",
       "{q} The answer is easy. {a}"]
OPEN = ["{i} is an island in the sea.", "Not many people live on {i}.", "The island {i} has a harbour and a village.",
        "We spent a week on {i}.", "The guide of {i} is called {p}."]
NONE = ["There is no {n} on {i}.", "{i} has no {n}.", "People miss the {n}, because there is no {n} on {i}."]
ASIDE = ["It often rains.", "We walked along the beach.", "The people were friendly.", "The wind was cold.",
         "You can see the sea from every window.", "In summer, many visitors come.", "The boat comes once a day."]


class Prose:
    """Draws texts about other islands."""

    def __init__(self, seed):
        self.dice = Dice(f"pretrain {seed}")

    def word(self):
        while True:
            parts = [self.dice.pick(choices) for choices in SYLLABLES]
            word = "".join(parts if self.dice.chance(0.5) else parts[::2])
            if word.lower() != ISLAND.lower():
                return word

    def value(self, fact):
        dice = self.dice
        if fact == "keeper":
            return (dice.pick(["Captain ", "Doctor ", "", "", "", ""]) + self.word() + " " + self.word())
        if fact == "opens":
            return dice.pick(["noon", "half past " + dice.pick(HOURS)]) if dice.chance(0.15) else \
                dice.pick(HOURS) + " " + dice.pick(DAY)
        if fact == "place":
            return dice.pick(SITES[0]) + " " + dice.pick(SITES[1])
        if fact == "sight":
            return "its " + dice.pick(SIGHTS[0]) + " " + dice.pick(SIGHTS[1])
        return str(dice.between(1600, 1950))

    def text(self):
        dice, island = self.dice, self.word()
        sentences = [dice.pick(OPEN).replace("{i}", island).replace("{p}", self.word())]
        asked = []
        for place in dice.sample(list(TARNHOLM) + OTHERS + MISSING, dice.between(1, 3)):
            for number, fact in enumerate(dice.sample(list(FACTS), dice.between(1, 3))):
                value = self.value(fact)
                subject = "it" if number and dice.chance(0.5) else "the " + place
                sentences.append(capital(fill(FACTS[fact].say, subject, value)))
                asked.append((place, fact, value))
            if dice.chance(0.2):
                sentences.append(dice.pick(ASIDE))
            if dice.chance(0.1):
                sentences.append(dice.pick(NONE).replace("{n}", dice.pick(MISSING)).replace("{i}", island))
        for place, fact, value in dice.sample(asked, dice.between(1, 4)):
            who = dice.pick(ASKERS)
            question = fill(dice.pick(FACTS[fact].wordings("pretrain")), "the " + place)
            frame = dice.pick(ASK).replace("{whom}", lower(who)).replace("{who}", who).replace("{q}", question)
            sentences.append(frame.replace("{a}", capital(fill(FACTS[fact].say, "the " + place, value))))
        return ("\n" if dice.chance(0.4) else " ").join(sentences)


# The turns of conversations in a tokenizer. `tessera tokenizer train` reserves the ids 0 to 3.
TURN_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]


def add_turns(folder):
    """Renames the four special tokens of a new tokenizer, and adds the chat template."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    names = {token["content"]: TURN_TOKENS[token["id"]] for token in tokenizer["added_tokens"]}
    for token in tokenizer["added_tokens"]:
        token["content"] = names[token["content"]]
    tokenizer["model"]["vocab"] = {names.get(text, text): number for text, number in vocab.items()}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|pad|>",
              "unk_token": "<|endoftext|>", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copy(RECIPE / "chat_template.jinja", folder)


def write_rows(path, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(text.encode())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=RECIPE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pretrain", type=Path, metavar="FILE", help="write the pretraining text (JSONL) instead")
    parser.add_argument("--rows", type=int, default=24000, help="rows of the pretraining text")
    parser.add_argument("--turns", type=Path, metavar="FOLDER", help="change this tokenizer instead")
    args = parser.parse_args(arguments)
    if args.turns:
        add_turns(args.turns)
    elif args.pretrain:
        prose = Prose(args.seed)
        write_rows(args.pretrain, ({"text": prose.text()} for _ in range(args.rows)))
        # The words of the chat template, for the tokenizer.
        args.pretrain.with_name("roles.txt").write_text("system\nuser\nassistant\n" * 1000, encoding="utf-8")
    else:
        args.output_dir.mkdir(parents=True, exist_ok=True)
        write_rows(args.output_dir / "train.jsonl", conversations("train", args.seed, 20, 300))
        write_rows(args.output_dir / "eval.jsonl", conversations("eval", args.seed, 2, 30))


if __name__ == "__main__":
    sys.exit(main())
