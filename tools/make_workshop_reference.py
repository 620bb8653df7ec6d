#!/usr/bin/env python3
"""Writes the losses of the workshop's training jobs to tests/parity/workshop, for tests/cli/workshop_parity_test.py.

    python3 -m venv .venv-references && .venv-references/bin/pip install -r tools/requirements-references.txt accelerate
    .venv-references/bin/python tools/make_workshop_reference.py

The Hugging Face Trainer runs each job with the prompts, labels, padding, collators and arguments of the workshop's
scripts. The models are tiny, and the rows are the first rows of recipes/quickstart/train.json. The Trainer takes the
rows in file order, because Tessera cannot reproduce the order of the Trainer's shuffled sampler. Dropout is off. Each
job runs in fp32 and in fp64. The difference between the two losses of a step is the rounding error of the fp32 run. The
test derives its tolerance from this error.
"""
import json
import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from simple_gpt import SimpleGpt
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import SequentialSampler
from transformers import (AutoTokenizer, BloomForCausalLM, DataCollatorForLanguageModeling, DataCollatorForSeq2Seq,
                          Trainer, TrainingArguments)

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "recipes" / "quickstart"
OUT = ROOT / "tests" / "parity" / "workshop"
IGNORED = -100


def rows(count):
    """Returns the first `count` questions of recipes/quickstart/train.json, as pairs (prompt, first answer)."""
    found = []
    for article in json.loads((QUICKSTART / "train.json").read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                prompt = f"Question: {qa['question']} Context: {paragraph['context']} Answer:"
                found.append((prompt, qa["answers"][0]["text"]))
    return found[:count]


def tokenizer(padding_side):
    tok = AutoTokenizer.from_pretrained(QUICKSTART / "model")
    tok.padding_side = padding_side
    return tok


def encode(tok, text, length):
    return tok(text, truncation=True, padding="max_length", max_length=length)


def complete_texts(tok, count, length):
    """Returns the samples of the DeepSpeed part: prompt and answer as one text.

    The pad token is the end-of-sequence token.
    """
    tok.pad_token = tok.eos_token
    return [encode(tok, f"{prompt} {answer}", length) for prompt, answer in rows(count)]


def separate_labels(tok, count, length):
    """Returns the samples of the FSDP part: prompts as input, and only answers as labels.

    Both are padded to `length` tokens.
    """
    samples = []
    for prompt, answer in rows(count):
        labels = encode(tok, answer, length)["input_ids"]
        samples.append({**encode(tok, prompt, length),
                        "labels": [IGNORED if token == tok.pad_token_id else token for token in labels]})
    return samples


def prompts_alone(tok, count, length):
    """Returns the samples of the custom model: only prompts. The workshop's scripts for this model remove the labels.
    The collator then uses the input as labels."""
    samples = [encode(tok, prompt, length) for prompt, _ in rows(count)]
    # The custom model's attention also reads padding, so only rows without padding can be compared.
    assert all(all(sample["attention_mask"]) for sample in samples), "a row has padding: reduce the length"
    return samples


def without_left_padding(sample):
    """Removes the padding on the left, for fp64 runs. In such a run, transformers' mask for padding has fp64 values.
    They overflow in BLOOM's softmax, because this softmax always computes in fp32."""
    start = sample["attention_mask"].index(1)
    assert all(label == IGNORED for label in sample.get("labels", [])[:start])
    return {key: values[start:] for key, values in sample.items()}


class CustomModel(nn.Module):
    """SimpleGpt with the interface that the Trainer needs. Shifts the labels, and ignores attention_mask."""

    def __init__(self, gpt):
        super().__init__()
        self.gpt = gpt

    def forward(self, input_ids, labels=None, attention_mask=None):
        logits = self.gpt(input_ids)
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        return {"loss": loss, "logits": logits}


class RecordingTrainer(Trainer):
    """Takes the samples in the order of the list, and records the loss of each micro-batch without rounding it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.micro_losses = []

    def _get_train_sampler(self, dataset=None):
        return SequentialSampler(self.train_dataset)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.micro_losses.append(loss.item())
        return loss


def train(model, samples, collator, batch, accumulation, epochs):
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
            num_train_epochs=epochs, learning_rate=5e-5, weight_decay=0.01, use_cpu=True, report_to="none",
            save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False)
        trainer = RecordingTrainer(model=model, args=arguments, train_dataset=samples, data_collator=collator)
        trainer.train()
    # The Trainer has already divided the loss of each micro-batch by the number of targets in the step, or by the
    # number of micro-batches in the step. The loss of a step is therefore the sum over its micro-batches.
    losses = trainer.micro_losses
    assert len(losses) % accumulation == 0
    return [sum(losses[i:i + accumulation]) for i in range(0, len(losses), accumulation)]


def bloom(dtype):
    # With "eager", the fp64 run computes the products of attention in fp64. The softmax is always in fp32.
    return BloomForCausalLM.from_pretrained(QUICKSTART / "model", dtype=dtype, attn_implementation="eager")


def custom(dtype):
    return CustomModel(SimpleGpt.from_pretrained(OUT / "gpt").to(dtype))


def make_custom_model():
    torch.manual_seed(1)
    gpt = SimpleGpt(2048, 16, num_layers=2, num_heads=2, ff_dim=32, max_length=64, dropout=0.0)
    with torch.no_grad():
        gpt.token_embedding.weight.mul_(0.3)  # the first losses are then near ln(vocabulary size)
    gpt.bfloat16().save_pretrained(OUT / "gpt")


def reference(name, model, prepare, padding_side, make_collator, **job):
    """Runs a job in fp32 and in fp64, and writes the losses of both runs to the file NAME.json.

    prepare(tokenizer, count, length) -> samples; make_collator(tokenizer) -> collator.
    """
    count, length = job.pop("rows"), job.pop("max_length")
    result = {}
    for key, dtype in ("losses", torch.float32), ("losses_fp64", torch.float64):
        tok = tokenizer(padding_side)
        samples = prepare(tok, count, length)
        if dtype == torch.float64 and job["batch"] == 1:
            samples = [without_left_padding(sample) for sample in samples]
        result[key] = train(model(dtype), samples, make_collator(tok), **job)
    error = max(abs(a - b) for a, b in zip(result["losses"], result["losses_fp64"]))
    print(f"{name}: {len(result['losses'])} steps, loss {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}, "
          f"fp32 differs from fp64 by at most {error:.1e}")
    (OUT / f"{name}.json").write_text(json.dumps({"rows": count, "max_length": length, **job, **result}, indent=1) + "\n")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    make_custom_model()
    causal = lambda tok: DataCollatorForLanguageModeling(tok, mlm=False)
    reference("deepspeed_baseline", bloom, complete_texts, "right", causal,
              rows=32, max_length=160, batch=4, accumulation=4, epochs=3)
    reference("fsdp_baseline", bloom, separate_labels, "left",
              lambda tok: DataCollatorForSeq2Seq(tok, label_pad_token_id=IGNORED),
              rows=32, max_length=160, batch=1, accumulation=4, epochs=1)
    reference("custom_model", custom, prompts_alone, "left", causal,
              rows=16, max_length=32, batch=1, accumulation=1, epochs=2)


if __name__ == "__main__":
    main()
