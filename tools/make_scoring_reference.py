#!/usr/bin/env python3
"""Writes tests/unit/data/scoring_reference.json: scores of answers, computed with Python's own string functions.

This script implements the definitions in tessera/data/scoring.h without using Tessera's code. The official scores follow
the rules of SQuAD 2.0. Besides chosen cases, it scores cases that it draws with a fixed seed.
tests/unit/data/scoring_test.cc compares Tessera's scores with the file. The script needs only Python 3:

    python3 tools/make_scoring_reference.py
"""

import collections
import json
import pathlib
import random
import re
import string

CASES = [  # prediction, references
    ("Paris", ["Paris"]),
    ("  the Paris, France. ", ["Paris", "in Paris, France"]),
    ("An apple a day", ["apple day", "the apple"]),
    ("banana", ["a banana", "an orange"]),
    ("theatre and anthem", ["theatre anthem"]),
    ("", ["something"]),
    ("the", ["a", "an"]),
    ("", ["the", "a"]),
    ("word", ["the", "word"]),
    ("the", ["the", "word"]),
    ("", ["", "..."]),
    ("No", ["No Answer"]),
    ("...", ["!?"]),
    ("No Answer", ["No Answer"]),
    ("no answer.", ["No Answer"]),
    ("Answer: none", ["No Answer"]),
    ("red red blue", ["red blue blue", "red"]),
    ("one one one", ["one"]),
    ("to be or not to be", ["not to be", "to be"]),
    ("a-b", ["b"]),
    ("a_b", ["a b", "ab"]),
    ("the-end", ["end", "theend"]),
    ("don't", ["dont", "don t"]),
    ("A.", ["a", "b"]),
    ("U.S.A.", ["usa", "U S A"]),
    ("$1,000", ["1000", "1 000"]),
    ("6½ sacks", ["6½", "6 sacks"]),
    ("ÉCOLE normale", ["école Normale"]),
    ("ΟΔΥΣΣΕΥΣ ΚΑΙ ΣΟΦΟΣ", ["οδυσσευς και σοφος"]),
    ("ΣΑΣ. Α.Σ.Β Σ", ["σας α.σ.β σ"]),
    ("ΑΣ\u0301 ΑΣ\u0301Β Α'Σ", ["ας\u0301 ασ\u0301β α'ς"]),
    ("МОСКВА", ["Москва", "москва река"]),
    ("İSTANBUL", ["i̇stanbul", "istanbul"]),
    ("Straße STRASSE ẞ", ["straße strasse ß"]),
    ("東京 は 首都", ["東京 首都"]),
    ("東京、日本", ["東京", "東京、日本"]),
    ("the東京", ["東京"]),
    ("the・東京", ["・東京"]),
    ("a\u0301 tail", ["\u0301 tail", "á tail"]),
    ("the\u00a0cat\u2003sat\u3000down", ["cat sat down"]),
    ("x\u200by", ["x y", "xy"]),
    ("tab\tnew\nline\x1cfile\x85next", ["tab new line file next"]),
    ("“the” quote", ["“ ” quote", "quote"]),
    ("a² the² an_ the", ["a² the² an"]),
    ("café, the bar & a grill", ["café bar grill", "café"]),
    ("Đại học Quốc gia", ["đại học quốc gia", "ĐẠI HỌC"]),
    ("𝐀 𐐀 Ａ", ["𝐀 𐐨 ａ"]),
]


def remove_articles(text):
    return re.sub(r"\b(a|an|the)\b", " ", text)


def remove_punctuation(text):
    return text.translate(str.maketrans("", "", string.punctuation))


def official_words(text):
    return remove_articles(remove_punctuation(text.lower())).split()


def workshop_words(text):
    return remove_punctuation(remove_articles(text.lower())).split()


def f1_of(common, prediction, reference):
    if not common:
        return 0.0
    precision, recall = common / len(prediction), common / len(reference)
    return 2 * precision * recall / (precision + recall)


def official(prediction, references):
    words = official_words(prediction)
    exact, f1 = [], []
    with_words = [reference for reference in map(official_words, references) if reference]
    for reference in with_words or [[]]:
        exact.append(float(words == reference))
        if words and reference:
            common = sum((collections.Counter(words) & collections.Counter(reference)).values())
            f1.append(f1_of(common, words, reference))
        else:
            f1.append(float(words == reference))
    return max(exact), max(f1)


def workshop(prediction, references):
    if not references:
        return None, None
    words, reference = workshop_words(prediction), workshop_words(references[0])
    return float(words == reference), f1_of(len(set(words) & set(reference)), words, reference)


def drawn(count):
    source = random.Random(20)
    parts = ["the", "a", "An", "No", "no answer", "Answer", ".", "?!", "-", "", "red", "Red", "blue", "sea-salt", "1,000",
             "Ünï", "Σ", "東京", "\u00a0", "\u2003the", "x_y"]

    def text():
        return source.choice([" ", "", ", "]).join(source.choices(parts, k=source.choice([0, 1, 1, 2, 2, 3, 5])))

    return [(text(), [text() for _ in range(source.choice([0, 1, 1, 2, 3]))]) for _ in range(count)]


def main():
    rows = []
    for prediction, references in CASES + drawn(100):
        exact, f1 = official(prediction, references)
        workshop_exact, workshop_f1 = workshop(prediction, references)
        rows.append({
            "prediction": prediction, "references": references, "words": official_words(prediction),
            "workshop_words": workshop_words(prediction), "exact_match": exact, "f1": f1,
            "workshop_exact_match": workshop_exact, "workshop_f1": workshop_f1,
        })
    path = pathlib.Path(__file__).resolve().parent.parent / "tests/unit/data/scoring_reference.json"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
