#!/usr/bin/env python3
"""Loads a model folder that Tessera saved, and checks it. Uses transformers, or simple_gpt.py for a `gpt` model.

    check_saved_model.py FOLDER --ids 5,6,7 [--ids 8,9]     prints [{"ids": [...], "logits": [[...], ...]}, ...]
    check_saved_model.py FOLDER --compare FILE [--atol A]   FILE: safetensors with ids [N], starts [B+1], logits [N, V]

FILE has B sequences with N tokens in total. Sequence b has the tokens starts[b] to starts[b+1] - 1.
Failures are warnings of any library, a missing or unexpected tensor, a wrong shape, a tokenizer that does not load or
has more tokens than the model, a text that changes when it is encoded and decoded, and logits outside of the tolerance.
Exit code 0: no failures. 1: failures.
"""
import argparse
import json
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file
from simple_gpt import SimpleGpt
from transformers import AutoModelForCausalLM, AutoTokenizer


class Complaints(logging.Handler):
    """Collects the messages that transformers logs at level WARNING and above."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def load_with_transformers(folder, complaints):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    complaints += [f"{kind}: {sorted(map(str, names))}" for kind, names in info.items() if names]
    return model


def load_tokenizer(folder, vocab_size, complaints):
    if not (folder / "tokenizer.json").exists():
        return
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if len(tokenizer) > vocab_size:
        complaints.append(f"the tokenizer has {len(tokenizer)} tokens, but the model has {vocab_size}")
    text = "Question: Who? Context: Ada, in 1843 (or so). Answer: Ada</s>"
    ids = tokenizer(text)["input_ids"]
    if tokenizer.decode(ids) != text:
        complaints.append(f"the tokenizer decodes {ids} to {tokenizer.decode(ids)!r} instead of {text!r}")


def load(folder):
    """Returns the model in fp32 and the list of failures."""
    handler = Complaints()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.get_logger().addHandler(handler)
    complaints = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if json.loads((folder / "config.json").read_text())["model_type"] == "gpt":
            model = SimpleGpt.from_pretrained(folder)
        else:
            model = load_with_transformers(folder, complaints)
            load_tokenizer(folder, model.config.vocab_size, complaints)
    return model.eval(), complaints + handler.messages + [str(w.message) for w in caught]


@torch.no_grad()
def logits_of(model, ids):
    """Returns the logits [T, V] of a sequence of T token ids."""
    out = model(ids[None].long())
    return (out if isinstance(out, torch.Tensor) else out.logits)[0]


def compare(model, path, atol, rtol):
    """Returns the largest difference, and whether all differences are within atol + rtol·|expected|."""
    expected = load_file(path)
    starts = expected["starts"].tolist()
    logits = torch.cat([logits_of(model, expected["ids"][b:e]) for b, e in zip(starts, starts[1:])])
    difference = (logits - expected["logits"]).abs()
    return difference.max().item(), bool((difference <= atol + rtol * expected["logits"].abs()).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ids", action="append", default=[], help="a sequence: token ids separated by commas")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--atol", type=float, default=1e-4)
    parser.add_argument("--rtol", type=float, default=1e-4)
    arguments = parser.parse_args()
    model, complaints = load(arguments.folder)
    if arguments.ids:
        sequences = [[int(i) for i in text.split(",")] for text in arguments.ids]
        print(json.dumps([{"ids": s, "logits": logits_of(model, torch.tensor(s)).tolist()} for s in sequences]))
    if arguments.compare:
        largest, close = compare(model, arguments.compare, arguments.atol, arguments.rtol)
        print(f"logits differ by at most {largest:.3g}", file=sys.stderr)
        if not close:
            complaints.append("logits differ by more than the tolerance")
    for complaint in complaints:
        print(f"{arguments.folder}: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
