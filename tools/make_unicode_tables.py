#!/usr/bin/env python3
"""Writes tessera/data/unicode_tables.cc: the character classes of Hugging Face's `tokenizers` ("the library"), and the
code points that its normalizers do not know.

  tools/make_unicode_tables.py            writes the file
  tools/make_unicode_tables.py --check    exits with 1 if the file is not what this script writes

Three parts of the library have different Unicode versions. This script asks each part about every code point:

- The regular expressions (the library contains Oniguruma) give the general category. Each category has one pattern.
- The pre-tokenizer Digits (Rust's standard library) gives the digits whose general category is not a number.
- The normalizers (a Rust package) give the code points that they do not normalize, but that unicodedata2 normalizes,
  because the Unicode version of unicodedata2 is newer.

If this interpreter lacks `tokenizers` or unicodedata2, the script installs both into a virtual environment (--venv),
which it creates if necessary.
"""
import argparse
import sys
from pathlib import Path

from compare_tokenizers import LIBRARY, ROOT, own_interpreter

LIBRARIES = [LIBRARY, "unicodedata2==18.0.0"]
TARGET = ROOT / "tessera/data/unicode_tables.cc"

# In the order of the enumeration Category in tessera/data/unicode.h.
CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
              "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"]
CODES = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def runs(codes):
    """Returns the ranges [first, last] of a set of code points."""
    result = []
    for code in sorted(codes):
        if result and result[-1][1] == code - 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def matched(pattern):
    """Returns the code points that a regular expression of one character matches."""
    from tokenizers import Regex, pre_tokenizers
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    codes = set()
    for begin in range(0, len(CODES), 1 << 14):
        text = "".join(map(chr, CODES[begin:begin + (1 << 14)]))
        codes.update(ord(piece) for piece, _ in split.pre_tokenize_str(text))
    return codes


def categories():
    """Returns the category of every code point, as an index into CATEGORIES."""
    result = [CATEGORIES.index("Cs") if 0xD800 <= code <= 0xDFFF else 0 for code in range(0x110000)]
    for index, name in enumerate(CATEGORIES):
        if name in ("Cn", "Cs"):
            continue
        for code in matched(rf"\p{{{name}}}"):
            assert result[code] == 0, (name, code)
            result[code] = index
    return result


def digits():
    from tokenizers import pre_tokenizers
    split = pre_tokenizers.Digits(individual_digits=True)
    codes = set()
    for begin in range(0, len(CODES), 4096):
        text = "a".join(map(chr, CODES[begin:begin + 4096]))
        codes.update(ord(piece) for piece, _ in split.pre_tokenize_str(text) if len(piece) == 1 and piece != "a")
    return codes


def word_characters(category):
    """Returns the members of \\w except letters, letter numbers, marks, decimal digits and connectors."""
    names = {"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Mn", "Mc", "Me", "Nd", "Pc"}
    word = matched(r"\w")
    expected = {code for code in CODES if CATEGORIES[category[code]] in names}
    assert expected <= word
    return word - expected


def newly_normalized(category):
    """Returns assigned code points that the library does not normalize, but that the newer unicodedata2 normalizes.

    The library does not know their decomposition, combining class or composition. Each code point is checked alone, and
    between a mark of the highest combining class (240) and a mark of the lowest one (1).
    """
    import unicodedata2
    from tokenizers import normalizers
    forms = {name: getattr(normalizers, name)().normalize_str for name in ("NFC", "NFD", "NFKC", "NFKD")}
    low, high = "\u0334", "\u0345"
    assert unicodedata2.combining(low) == 1 and unicodedata2.combining(high) == 240
    new = set()
    for code in CODES:
        c = chr(code)
        for name, form in forms.items():
            if any(form(text) != unicodedata2.normalize(name, text) for text in (c, f"a{high}{c}{low}a")):
                new.add(code)
    # A code point in `new` may be composed of other code points, its parts. The loop also adds the parts that occur in
    # no decomposition of the library. Each composed code point in `new` has at least one such part.
    composed = {code for code in CODES if forms["NFD"](chr(code)) != chr(code)}
    old_parts = {part for code in composed for part in forms["NFD"](chr(code))}
    for code in list(new):
        parts = unicodedata2.decomposition(chr(code))
        if parts and not parts.startswith("<"):
            added = {int(part, 16) for part in parts.split()}
            assert any(chr(part) not in old_parts for part in added), code
            new |= {part for part in added if chr(part) not in old_parts}
    unassigned = {code for code in CODES if category[code] == 0}
    return new - unassigned


def lines_of(items, width):
    return "\n".join("    " + " ".join(f"{item}," for item in items[i:i + width]) for i in range(0, len(items), width))


def ranges_of(codes):
    return lines_of([f"{{0x{first:X}, 0x{last:X}}}" for first, last in runs(codes)], 5)


def text_of_tables():
    category = categories()
    starts = [code for code in range(0x110000) if code == 0 or category[code] != category[code - 1]]
    numbers = {code for code in CODES if CATEGORIES[category[code]] in ("Nd", "Nl", "No")}
    digit = digits()
    assert numbers <= digit
    tables = [("kCategoryRuns", "uint32_t", lines_of([f"0x{code << 5 | category[code]:X}" for code in starts], 11)),
              ("kOtherWordCharacters", "CodeRange", ranges_of(word_characters(category))),
              ("kOtherDigits", "CodeRange", ranges_of(digit - numbers)),
              ("kNewlyNormalized", "CodeRange", ranges_of(newly_normalized(category)))]
    definitions = "\n".join(f"static constexpr {kind} {name}Table[] = {{\n{lines}\n}};\n"
                            f"const std::span<const {kind}> {name}({name}Table);\n" for name, kind, lines in tables)
    return f"""// Generated by tools/make_unicode_tables.py from {LIBRARY.replace("==", " ")}. Do not edit.
#include "tessera/data/unicode_tables.h"

namespace tessera {{

// clang-format off
{definitions}// clang-format on

}}  // namespace tessera
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / "build/tokenizers-venv")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    own_interpreter(arguments.venv, LIBRARIES)
    text = text_of_tables()
    if not arguments.check:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit(f"{TARGET} differs from the tables of {LIBRARY}")


if __name__ == "__main__":
    main()
