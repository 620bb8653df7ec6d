"""Makes the inputs of a benchmark: a tokenizer, a model folder with random weights, and training rows.

bench/cpu_vs_transformers.py starts this script. Tessera and transformers then train on the same inputs. If the folder
already has the tokenizer or the model, the script does not make it again. The script always writes the rows again.
"""
import argparse
import itertools
import json
import random
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from workshop_samples import prompt_of

TOKENIZER_SIZE = 32_000
SPECIAL_TOKENS = ["<unk>", "<s>", "</s>", "<pad>"]
BLOOM_SPLIT = r" ?[^(\s|[.,!?…。，、।۔،])]+"
MAX_LENGTH = 512
SEED = 0


def read_squad(path):
    """Returns the rows of a SQuAD v1.1 file."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [{"id": str(qa["id"]), "context": paragraph["context"], "question": qa["question"],
             "answers": {"text": [a["text"] for a in qa["answers"]],
                         "answer_start": [a["answer_start"] for a in qa["answers"]]}}
            for article in articles for paragraph in article["paragraphs"] for qa in paragraph["qas"]]


def make_tokenizer(folder, rows):
    """Makes a byte-level BPE like BLOOM's, trained on the rows' contexts and questions, and saves it to the folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(BLOOM_SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=TOKENIZER_SIZE, special_tokens=SPECIAL_TOKENS, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    texts = sorted({row["context"] for row in rows}) + [row["question"] for row in rows]
    tokenizer.train_from_iterator(texts, trainer)
    unk, bos, eos, pad = SPECIAL_TOKENS
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unk, bos_token=bos, eos_token=eos, pad_token=pad,
                            padding_side="left").save_pretrained(folder)


def make_model(folder, config, tokenizer):
    """Saves a model whose random fp32 weights come from transformers. `config`: the model's type and sizes."""
    torch.manual_seed(SEED)
    config = AutoConfig.for_model(**config, bos_token_id=1, eos_token_id=2, pad_token_id=3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder, max_shard_size="100GB")


def completion_rows(rows, count):
    """Returns `count` of the rows, in an order from a fixed seed. Repeats rows if `rows` has fewer than `count`."""
    order = random.Random(SEED).sample(range(len(rows)), len(rows))
    return [rows[order[i % len(rows)]] for i in range(count)]


def dense_rows(rows, count, tokenizer):
    """Returns `count` rows whose prompts have more than MAX_LENGTH tokens. Cut to MAX_LENGTH tokens, these prompts
    all have the same length and need no padding. If the prompt of a row is too short, the function appends contexts of
    randomly chosen rows to the context of the row."""
    chosen = completion_rows(rows, count)
    more = itertools.cycle(completion_rows(rows, 8 * count)[::-1])
    dense = []
    for row in chosen:
        row = dict(row)
        while len(tokenizer(prompt_of(row))["input_ids"]) < MAX_LENGTH + 16:
            row["context"] += " " + next(more)["context"]
        dense.append(row)
    return dense


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--datasets", type=Path, nargs="+", required=True, help="training uses the first one")
    parser.add_argument("--model-name", required=True)
    parser.add_argument("--config", type=json.loads, required=True, help="JSON object")
    parser.add_argument("--rows", required=True, choices=["completion", "dense"])
    parser.add_argument("--count", type=int, required=True)
    arguments = parser.parse_args()
    tokenizer_folder = arguments.folder / "tokenizer"
    if not (tokenizer_folder / "tokenizer.json").exists():
        make_tokenizer(tokenizer_folder, [row for path in arguments.datasets for row in read_squad(path)])
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    model_folder = arguments.folder / arguments.model_name
    if not (model_folder / "model.safetensors").exists():
        make_model(model_folder, arguments.config, tokenizer)
    rows = read_squad(arguments.datasets[0])
    rows = (completion_rows(rows, arguments.count) if arguments.rows == "completion"
            else dense_rows(rows, arguments.count, tokenizer))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (arguments.folder / f"{arguments.rows}-{arguments.count}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
