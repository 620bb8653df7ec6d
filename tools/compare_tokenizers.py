#!/usr/bin/env python3
"""Compares Tessera's tokenizer with Hugging Face's `tokenizers`, and writes the reference files of the unit tests.

  tools/compare_tokenizers.py write-references
      writes tests/unit/data/tokenizer_references from the texts in this script.
  tools/compare_tokenizers.py compare --program build/tests/unit_data squad1.json [squad2.json ...]
      trains tokenizers with the library. Tokenizers like the tokenizers of BLOOM, GPT-2, Llama 2 and 3, Mistral, Gemma
      and Qwen 2 learn from contexts, questions and answers of SQuAD files. Tokenizers with further options learn from
      the texts in this script. For each tokenizer, PROGRAM encodes and decodes the SQuAD texts, random Unicode and
      invalid UTF-8 with Tessera, and compares the ids and texts with the library's ids and texts. The script prints
      the encoding speed of Tessera and of the library on the contexts, with one thread each. It also compares the
      vocabularies that Tessera and the library learn from the SQuAD texts.

If this interpreter lacks the library, the script installs it into a virtual environment (--venv), which it creates
if necessary.
"""
import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "tokenizers==0.23.3"

BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # Mistral Nemo, Llama 4

OWN_TEXTS = [
    "The ferry leaves at seven, doesn't it? They'll say it's late; we've heard I'm wrong, you'd go, and they're OK.",
    "A list:\n\n  1. first item\n\t2. second item   \r\n3. 1234567 and 3.14159, 50% of £20 (about $25)!\n\n\n",
    "def split(text):\n    return [word for word in text.split() if word != '']  # code, too\n",
    "El barco zarpó mañana por la tarde, ¿verdad? ¡Qué lástima! Ningún niño quiso esperar.",
    "Con tàu sẽ rời bến lúc bảy giờ sáng, phải không? Người Việt thường uống trà đá.",
    "渡轮七点离开，对吗？我们等了很久、很久。天气很好…… 1999年12月31日。",
    "सुबह की नाव सात बजे जाती है। क्या यह सच है?",
    "تغادر العبّارة في السابعة، أليس كذلك؟ نعم۔",
    "Паром уходит в семь часов, не так ли? Ёжик ждёт.",
    "フェリーは七時に出ます。カタカナとひらがな、ﾊﾝｶｸも。",
    "👩‍👩‍👧‍👦 family, 🇻🇳 flag, e\u0301 combining, ﬁ ligature, ①②③, ⅷ, x² + y₃ = ½, Ångström Å",
    "'S 'T 'RE 'Ve 'LL 'd 'ſ ''s 's's don''t I'M\u2028line\u2029para\u0085next\u00a0nbsp\u3000wide\u200bzero",
    "", " ", "  ", "\n", "a", " a", "a ", "  a  b  ", "\t\tx", "\x00nul\x00", "... !!! ???", "(a|b) ( ) || |",
    "a,b.c!d?e",
]


def own_interpreter(path, packages=(LIBRARY,)):
    """If this interpreter lacks one of the packages, runs the script again with an interpreter that has all of them."""
    if all(importlib.util.find_spec(package.split("==")[0]) for package in packages):
        return
    if not (path / "bin/python").exists():
        venv.create(path, with_pip=True)
    subprocess.run([path / "bin/pip", "install", "--quiet", *packages], check=True)
    os.execv(path / "bin/python", [str(path / "bin/python"), *sys.argv])


def split(pattern, behavior="isolated", invert=False):
    from tokenizers import Regex, pre_tokenizers
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(prefix=False, regex=False):
    from tokenizers import pre_tokenizers
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def train(texts, vocab_size, pre_tokenizer, normalizer=None, special=("<unk>", "<s>", "</s>", "<pad>"),
          min_frequency=0):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(special), show_progress=False,
                                  min_frequency=min_frequency,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_json(tokenizer, merges_as_strings=False, **model):
    value = json.loads(tokenizer.to_str())
    if merges_as_strings:
        value["model"]["merges"] = [" ".join(pair) for pair in value["model"]["merges"]]
    value["model"].update(model)
    return compact(value)


def shapes(texts, vocab_size):
    """Returns tokenizers like those of well-known models: name -> text of a tokenizer.json."""
    from tokenizers import AddedToken, normalizers, pre_tokenizers, processors
    sequence = pre_tokenizers.Sequence
    bloom = train(texts, vocab_size, sequence([split(BLOOM), byte_level()]))
    result = {"bloom": to_json(bloom, merges_as_strings=True)}

    gpt2 = train(texts, vocab_size, byte_level(regex=True), special=["<|endoftext|>"])
    result["gpt2"] = to_json(gpt2, merges_as_strings=True, continuing_subword_prefix="", end_of_word_suffix="")

    roberta = train(texts, vocab_size, byte_level(prefix=True, regex=True), special=["<s>", "</s>"])
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    result["roberta"] = to_json(roberta)

    llama3 = train(texts, vocab_size, sequence([split(LLAMA3), byte_level()]), special=[])
    llama3.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"])
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                      special_tokens=[("<|begin_of_text|>", llama3.token_to_id("<|begin_of_text|>"))])])
    value = json.loads(to_json(llama3, ignore_merges=True))
    value["model"]["merges"] = value["model"]["merges"][::2]  # some words are then one token only with ignore_merges
    kept = {a + b for a, b in value["model"]["merges"]}
    value["model"]["merges"] = [m for m in value["model"]["merges"]
                                if all(len(part) == 1 or part in kept for part in m)]
    result["llama3"] = compact(value)

    qwen2 = train(texts, vocab_size, sequence([split(QWEN2), byte_level()]), normalizers.NFC(), special=[])
    qwen2.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    qwen2.add_tokens(["<tool_call>", "</tool_call>"])
    qwen2.post_processor = processors.ByteLevel(trim_offsets=False)
    result["qwen2"] = to_json(qwen2)

    cased = train(texts, vocab_size, sequence([split(CASED), byte_level()]), special=["<unk>", "<s>", "</s>"])
    cased.post_processor = framed("<s>", "</s>")
    result["cased"] = to_json(cased, ignore_merges=True)
    return result | sentence_pieces(texts, vocab_size)


def framed(before="", after=""):
    """Returns a post-processor that adds the tokens `before` and `after` around a text. These tokens have the
    same ids as the default special tokens of train() and train_pieces()."""
    from tokenizers import processors
    tokens = [(token, ("<unk>", "<s>", "</s>", "<pad>").index(token)) for token in (before, after) if token]
    single = f"{before} $A {after}".strip()
    return processors.TemplateProcessing(single=single, pair=f"{single} $B", special_tokens=tokens)


def piece_decoder(strips=True):
    from tokenizers import decoders
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strips else []))


def train_pieces(texts, vocab_size, normalizer=None, pre_tokenizer=None, decoder=None, alphabet=60, special=None):
    """Returns the parsed tokenizer.json of a tokenizer in SentencePiece's style: words begin with "▁", and rare
    characters become bytes."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    special = list(special or ("<unk>", "<s>", "</s>"))
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # only for training: splits a text into words
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False,
                                  limit_alphabet=alphabet, initial_alphabet=["▁"])
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.normalizer, tokenizer.decoder = normalizer, decoder or piece_decoder()
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    value = json.loads(tokenizer.to_str())
    if not pre_tokenizer:
        value["pre_tokenizer"] = None
    old = sorted(value["model"]["vocab"], key=value["model"]["vocab"].get)
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = special + bytes_of + [token for token in old if token not in special]
    value["model"].update(vocab={token: i for i, token in enumerate(tokens)}, byte_fallback=True)
    return value


def with_frame(value, before="", after=""):
    return value | {"post_processor": json.loads(framed(before, after).__getstate__())}


def sentence_pieces(texts, vocab_size):
    """Returns tokenizers of SentencePiece's style: name -> text of a tokenizer.json."""
    from tokenizers import decoders, normalizers, pre_tokenizers
    spaces = normalizers.Replace(" ", "▁")
    prefixed = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    first = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    kinds = {
        "llama2": with_frame(train_pieces(texts, vocab_size, prefixed), "<s>"),
        "mistral": with_frame(train_pieces(texts, vocab_size, None, first), "<s>"),
        "gemma": with_frame(train_pieces(texts, vocab_size, spaces, pre_tokenizers.Split(" ", "merged_with_previous"),
                                         piece_decoder(False)), "<s>"),
        "metaspace": with_frame(train_pieces(texts, vocab_size, normalizers.NFKC(), pre_tokenizers.Metaspace(),
                                             decoders.Metaspace()), after="</s>"),
    }
    # The tokenizer "crossing" has merges that join the end of a word with the "▁" of the next word. Its added tokens
    # have the flag "normalized".
    crossing = json.loads(json.dumps(kinds["llama2"]))
    vocab = crossing["model"]["vocab"]
    for pair in (["e", "▁t"], ["s", "▁a"], ["▁", "▁"], [".", "▁"]):
        for token in (*pair, "".join(pair)):
            vocab.setdefault(token, len(vocab))
        crossing["model"]["merges"].insert(0, pair)
    for token in crossing["added_tokens"]:
        token["normalized"] = True
    kinds["crossing"] = crossing
    # The tokenizers "few_bytes" and "few_bytes_fused" have no tokens for the bytes above 0xC3. A character with such
    # bytes becomes the unknown token, unless the vocabulary has a token for the character.
    for fuse in (False, True):
        value = json.loads(json.dumps(kinds["mistral"]))
        vocab = [t for t in value["model"]["vocab"] if not (t.startswith("<0x") and int(t[3:5], 16) > 0xC3)]
        value["model"].update(vocab={token: i for i, token in enumerate(vocab)}, fuse_unk=fuse)
        kinds[f"few_bytes{'_fused' if fuse else ''}"] = value
    return {name: compact(value) for name, value in kinds.items()}


def random_kinds(texts, generator, count):
    """Returns tokenizers of SentencePiece's style with components drawn at random."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    result = {}
    for i in range(count):
        scheme = generator.choice(["always", "first", "never"])
        steps = [generator.choice([normalizers.NFC(), normalizers.NFKC(), normalizers.Prepend("▁"),
                                   normalizers.Prepend("x "), normalizers.Replace(" ", "▁"),
                                   normalizers.Replace("a", "bb"), normalizers.Replace("ing", "")
                                   if scheme != "first" else normalizers.NFD(),
                                   normalizers.Replace(Regex(r"\s+|\d(?=\d)"), "▁") if scheme != "first"
                                   else normalizers.NFKD()])
                 for _ in range(generator.randrange(3))]
        removed = "removed" if scheme != "first" else "isolated"  # Tessera refuses "first" after steps that delete text
        splits = [generator.choice([pre_tokenizers.Metaspace(prepend_scheme=scheme, split=generator.random() < 0.5),
                                    pre_tokenizers.Digits(generator.random() < 0.5),
                                    split(generator.choice([LLAMA3, CASED, QWEN2, r"\s", r"\p{P}|^\p{L}", r"\w+"]),
                                          generator.choice([removed, "isolated", "merged_with_previous",
                                                            "merged_with_next", "contiguous"]),
                                          generator.random() < 0.2)])
                  for _ in range(generator.randrange(4))]
        decoder = generator.choice([piece_decoder(), piece_decoder(False), decoders.Metaspace(prepend_scheme=scheme),
                                    decoders.Sequence([decoders.ByteFallback(), decoders.Strip("▁", 2, 0),
                                                       decoders.Replace(Regex("▁+"), " ")])])
        value = train_pieces(texts, 520, normalizers.Sequence(steps) if steps else None,
                             pre_tokenizers.Sequence(splits) if splits else None, decoder,
                             alphabet=generator.choice([20, 60, 400]))
        value["model"].update(fuse_unk=generator.random() < 0.5, byte_fallback=generator.random() < 0.7,
                              ignore_merges=generator.random() < 0.2)
        if generator.random() < 0.2:
            value["model"]["unk_token"] = None
        value = with_frame(value, generator.choice(["", "<s>"]), generator.choice(["", "</s>"]))
        tokenizer = Tokenizer.from_str(compact(value))
        tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=generator.random() < 0.5),
                              AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True, normalized=False)])
        result[f"random_{i}"] = to_json(tokenizer)
    return result


CLASSES = [r"\p{L}", r"\p{N}", r"\p{M}", r"\s", r"\w", r"\d", r"\p{P}", r"\p{S}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}",
           r"\p{Lm}", r"\p{Lo}", r"\p{Nd}", r"\P{L}", r"[^\s\p{L}\p{N}]", r"(?i:\p{Lu})",
           r"[\p{Letter}&&[^\p{Lowercase_Letter}]]", r"\p{^Mark}", r"[\W\D]"]
FORMS = ["NFC", "NFD", "NFKC", "NFKD"]


def code_points():
    return [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def sweeps():
    """Applies the library's implementation of each character class (CLASSES), of Digits and of each normal form (FORMS)
    to all code points. Returns the size and the FNV-1a hash of each result."""
    from tokenizers import normalizers, pre_tokenizers
    codes, result = code_points(), []
    chunks = [codes[begin:begin + 4096] for begin in range(0, len(codes), 4096)]

    def record(kind, name, parts):
        data = "".join(parts).encode()
        result.append({"kind": kind, "name": name, "bytes": len(data), "hash": f"{fnv(data):016x}"})

    for pattern in CLASSES:
        step = split(pattern, "removed", invert=True)
        record("class", pattern, [piece for chunk in chunks for piece, _ in
                                  step.pre_tokenize_str("".join(map(chr, chunk)))])
    digits = pre_tokenizers.Digits(individual_digits=True)
    record("digits", "Digits", [piece for chunk in chunks for piece, _ in
                                digits.pre_tokenize_str("a".join(map(chr, chunk))) if len(piece) == 1 and piece != "a"])
    for name in FORMS:
        form = getattr(normalizers, name)().normalize_str
        record("form", name, [form("".join(f"{chr(c)}\na\u0345{chr(c)}\u0334a\n" for c in chunk))
                              for chunk in chunks])
    return result


def options(texts):
    """Returns tokenizers that together use every flag of added tokens, every behavior of splits, and further options:
    name -> text of a tokenizer.json."""
    from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
    sequence, result = pre_tokenizers.Sequence, {}

    flags = train(texts, 300, sequence([split(BLOOM), byte_level()]), normalizers.Sequence([normalizers.NFKC()]))
    flags.add_tokens([AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True),
                      AddedToken("[LR]", lstrip=True, rstrip=True, normalized=False),
                      AddedToken("word", single_word=True, normalized=False),
                      AddedToken("mot", single_word=True, normalized=True),
                      AddedToken("ﬁn", normalized=True), AddedToken("①", normalized=False),
                      AddedToken("wordy", normalized=False), AddedToken(" x ", normalized=False),
                      AddedToken("é", normalized=False)])
    result["added_tokens"] = to_json(flags)
    for form in ("NFD", "NFKD"):
        result[form.lower()] = to_json(train(texts, 270, byte_level(regex=True), getattr(normalizers, form)()))
    for single in (True, False):
        name = "digits_single" if single else "digits_runs"
        result[name] = to_json(train(texts, 270, sequence([pre_tokenizers.Digits(single), byte_level(regex=True)])))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            steps = sequence([split(r"[a-m]|\d+|(?=[sz])", behavior, invert), byte_level(prefix=invert)])
            result[f"{behavior}{'_inverted' if invert else ''}"] = to_json(train(texts, 320, steps))
    steps = sequence([pre_tokenizers.Split("e", "merged_with_next"), pre_tokenizers.Split("(a|b", "removed"),
                      byte_level(regex=True)])
    result["literal_patterns"] = to_json(train(texts, 300, steps))
    for fuse in (False, True):  # the vocabulary lacks most bytes
        value = json.loads(to_json(train(texts, 262, byte_level(regex=True), special=["<unk>"])))
        vocab = ["<unk>", *[c for c in value["model"]["vocab"] if len(c) == 1 and c in "abcdefghijklmnopqrst"]]
        value["model"].update(vocab={c: i for i, c in enumerate(vocab)}, merges=[], unk_token="<unk>", fuse_unk=fuse)
        result[f"unk{'_fused' if fuse else ''}"] = compact(value)
    return result


def random_texts(generator, count):
    """Yields `count` texts of valid Unicode: random characters, and mixtures of strings that are difficult for splits,
    contractions, normal forms and added tokens."""
    characters = [chr(code) for code in code_points()]
    spaces = [" "] * 8 + list("\t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000") + ["\r\n", "  ", "\n\n"]
    bits = ["'s", "'T", "'Re", "'ll", "'", "''", "word", "words", "mot", "a", "Z", "é", "e\u0301", "ﬁn", "fin", "ǆ",
            "ß", "ſ",
            "1", "22", "333", "4444", "½", "٣", "Ⅳ", ".", ",", "!?", "…", "。", "，", "(", ")", "|", "-", "_", "\u200d",
            "\u0300", "\u0323", "한", "\u1112\u1161\u11ab", "中文", "ไทย", "👍🏽", "🇻🇳", "\x00", "\ufeff", "\ufffd", "<s>",
            "</s>",
            "<pad>", "<", "<s", "<|endoftext|>", "<|im_start|>", "<|begin_of_text|>", "<mask>", "[L]", "[R]", "[LR]",
            "①",
            "wordy", " x ", "<tool_call>", "▁", "▁▁", "<unk>", "<0x41>",
            "\U00031350", "\U0001e030", "\u1703\u1715", "\U00011935\U00011930", "㋿", "ing"]
    for _ in range(count):
        kind = generator.random()
        length = generator.randrange(1, 40)
        if kind < 0.3:
            yield "".join(generator.choices(characters, k=length))
        elif kind < 0.9:
            yield "".join(generator.choice(spaces if generator.random() < 0.35 else bits) for _ in range(length))
        else:
            yield "".join(generator.choice([generator.choice(bits), generator.choice(characters), " "])
                          for _ in range(length))


def touching_texts():
    """Yields texts that together have every character next to added tokens. The character decides whether such a token
    matches, and whether its match includes the character."""
    characters = [chr(code) for code in code_points()]
    for begin in range(0, len(characters), 100):
        yield " ".join(f"word{c} {c}word {c}[LR]{c}" for c in characters[begin:begin + 100])


def broken_bytes(generator, count):
    """Yields byte strings. Most of them are invalid UTF-8."""
    yield from [b"\xff", b"\xc0\x80", b"\xe2\x82", b"a\xe2\x82b", b"\xf0\x9f\x98", b"\xf0\x9f\x98 ", 
                b"\xed\xa0\x80", b"\xed\xbf\xbf",
                b"\xf4\x90\x80\x80", b"\xf5\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xe0\xa0",
                b"\xc3", b"\xc3\xc3\xa9", b"\x80\x80"]
    for _ in range(count):
        data = bytearray("".join(random_texts(generator, 1)).encode())[:60]
        for _ in range(generator.randrange(1, 4)):
            data.insert(generator.randrange(len(data) + 1), generator.randrange(0x80, 0x100))
        yield bytes(data)


def cases(library_json, texts, byte_strings, generator, num_decodes):
    """Returns the library's results in the form that tokenizer_reference_test.cc reads."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(library_json)
    size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())

    def decoded(ids):
        text = tokenizer.decode(ids, skip_special_tokens=False)
        without = tokenizer.decode(ids, skip_special_tokens=True)
        return {"ids": ids, "text": text} | ({} if without == text else {"text_without_special": without})

    encode = []
    for text, data in [(t, None) for t in texts] + [(b.decode("utf-8", "replace"), b) for b in byte_strings]:
        source = {"input": text} if data is None else {"input_hex": data.hex()}
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text, add_special_tokens=True).ids
        encode.append(source | decoded(ids) | ({} if special == ids else {"ids_with_special": special}))
    decode = [decoded([generator.randrange(size + 3) for _ in range(generator.randrange(1, 12))])
              for _ in range(num_decodes)]
    return {"vocab_size": size, "encode": encode, "decode": decode}


def write_kind(folder, name, library_json, *case_arguments):
    (folder / f"{name}.tokenizer.json").write_text(library_json, encoding="utf-8")
    lines = cases(library_json, *case_arguments)
    (folder / f"{name}.cases.json").write_text(compact(lines), encoding="utf-8")


def write_trainer(folder, texts, vocab_size):
    """Trains a tokenizer with the library and returns it. Writes its vocabulary for tokenizer_trainer_test.cc."""
    from tokenizers import pre_tokenizers
    trained = train(texts, vocab_size, pre_tokenizers.Sequence([split(BLOOM), byte_level()]), min_frequency=2)
    model = json.loads(to_json(trained, merges_as_strings=True))["model"]
    reference = {"texts": texts, "vocab_size": vocab_size, "min_frequency": 2, "vocab": model["vocab"],
                 "merges": model["merges"]}
    (folder / "trainer.json").write_text(compact(reference), encoding="utf-8")
    return trained


def write_references(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name, text in shapes(OWN_TEXTS, 420).items():
        generator = random.Random(1)
        write_kind(folder, name, text, OWN_TEXTS + list(random_texts(generator, 60)), list(broken_bytes(generator, 20)),
                   generator, 20)
    for name, text in options(OWN_TEXTS).items():
        generator = random.Random(2)
        texts = OWN_TEXTS[::2] + list(random_texts(generator, 15))
        write_kind(folder, name, text, texts, [], generator, 5)
    for name, text in random_kinds(OWN_TEXTS, random.Random(4), 12).items():
        generator = random.Random(5)
        write_kind(folder, name, text, OWN_TEXTS[::3] + list(random_texts(generator, 10)), [], generator, 5)
    (folder / "sweeps.json").write_text(compact(sweeps()), encoding="utf-8")
    write_trainer(folder, OWN_TEXTS, 420)


def read_squad(paths):
    contexts, others = [], []
    for path in paths:
        for article in json.loads(Path(path).read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                contexts.append(paragraph["context"])
                for qa in paragraph["qas"]:
                    others += [qa["question"], *[answer["text"] for answer in qa["answers"]]]
    return contexts, others


def library_speed(library_json, texts, repeats=5):
    """Calls the library's fastest function several times on one thread. Returns the seconds of the first call and of
    the fastest call."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(library_json)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        times.append(time.perf_counter() - begin)
    return times[0], min(times)


def run_test(program, folder, suite):
    report = folder / "report.json"
    environment = os.environ | {"TESSERA_TOKENIZER_REFERENCES": str(folder)}
    done = subprocess.run([program, f"--gtest_filter={suite}", f"--gtest_output=json:{report}"], env=environment,
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout[:20000] + done.stderr)
    return json.loads(report.read_text())["testsuites"][0]["testsuite"][0]


def compare_trainers(program, texts, vocab_size):
    from tokenizers import Tokenizer
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        begin = time.perf_counter()
        trained = write_trainer(folder, texts, vocab_size)
        seconds = time.perf_counter() - begin
        ours = run_test(program, folder, "TokenizerTrainer.LearnsTheSameVocabularyAsTheLibrary")
        loaded = Tokenizer.from_file(str(folder / "trained.json"))
        assert all(loaded.encode(text).ids == trained.encode(text).ids for text in texts)
        print(f"trainer: {loaded.get_vocab_size()} tokens equal, and equal ids of all texts; library {seconds:.1f} s, "
              f"tessera with its test {ours['time']}", flush=True)


def compare(program, squad_files, vocab_size, num_random):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    contexts, others = read_squad(squad_files)
    every = contexts + others
    num_bytes = sum(len(text.encode()) for text in contexts)
    print(f"{len(contexts)} contexts ({num_bytes} bytes), {len(others)} questions and answers, {num_random} random")
    compare_trainers(program, every, vocab_size)
    kinds = shapes(every, vocab_size) | options(OWN_TEXTS) | random_kinds(OWN_TEXTS, random.Random(6), 60)
    for name, text in kinds.items():
        generator = random.Random(3)
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            texts = every + list(random_texts(generator, num_random))
            if name == "added_tokens":
                texts += touching_texts()
            broken = list(broken_bytes(generator, num_random // 4))
            write_kind(folder, name, text, texts, broken, generator, num_random // 4)
            (folder / f"{name}.timed.json").write_text(json.dumps(contexts))
            ours = run_test(program, folder, "TokenizerReferences.*")
            cold, best = library_speed(text, contexts)
            seconds = [cold, best, float(ours["cold_ns"]) / 1e9, float(ours["best_ns"]) / 1e9]
            speeds = [f"{num_bytes / t / 1e6:6.1f}" for t in seconds]
            print(f"{name:30s} equal; MB/s cold and warm: "
                  f"library {speeds[0]} {speeds[1]}   tessera {speeds[2]} {speeds[3]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / "build/tokenizers-venv")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("write-references")
    verb.add_argument("--folder", type=Path, default=ROOT / "tests/unit/data/tokenizer_references")
    verb = verbs.add_parser("compare")
    verb.add_argument("--program", required=True, help="the built unit_data")
    verb.add_argument("--vocab-size", type=int, default=32000)
    verb.add_argument("--num-random", type=int, default=4000)
    verb.add_argument("squad", nargs="+")
    arguments = parser.parse_args()
    own_interpreter(arguments.venv)
    if arguments.verb == "write-references":
        write_references(arguments.folder)
    else:
        compare(arguments.program, arguments.squad, arguments.vocab_size, arguments.num_random)


if __name__ == "__main__":
    main()
