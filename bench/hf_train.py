"""Fine-tunes a model with the Hugging Face Trainer on the CPU, and writes the speed and the losses as JSON.

bench/cpu_vs_transformers.py compares Tessera with this script. It starts this script with the Python of a virtual
environment that has torch and transformers.
"""
import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments
from workshop_samples import make_sample, pad_batch


class StepTimes(TrainerCallback):
    """Records the time at the start of training and at the end of each step, and the losses."""

    def __init__(self):
        self.began, self.ends, self.losses = None, [], []

    def on_train_begin(self, arguments, state, control, **_):
        self.began = time.perf_counter()

    def on_step_end(self, arguments, state, control, **_):
        self.ends.append(time.perf_counter())

    def on_log(self, arguments, state, control, logs=None, **_):
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))

    def steady_seconds(self):
        """Returns the seconds of all steps except the first. If there is only one step, returns its seconds."""
        return self.ends[-1] - (self.ends[0] if len(self.ends) > 1 else self.began)


def make_collator(tokenizer, padding, max_length):
    def collate(samples):
        width = max_length if padding == "max_length" else max(len(s["input_ids"]) for s in samples)
        return {name: torch.tensor(rows) for name, rows in pad_batch(samples, width, tokenizer.pad_token_id).items()}
    return collate


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dataset", type=Path, required=True, help="file of rows, one JSON object per line")
    parser.add_argument("--objective", choices=["completion", "causal_lm"], required=True)
    parser.add_argument("--padding", choices=["max_length", "longest"], required=True)
    parser.add_argument("--max-length", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--grad-accum", type=int, required=True)
    parser.add_argument("--max-steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    rows = [json.loads(line) for line in arguments.dataset.read_text(encoding="utf-8").splitlines()]
    samples = [make_sample(tokenizer, row, arguments.objective, arguments.max_length) for row in rows]
    settings = TrainingArguments(
        output_dir=str(arguments.output_dir), per_device_train_batch_size=arguments.batch_size,
        gradient_accumulation_steps=arguments.grad_accum, max_steps=arguments.max_steps, learning_rate=5e-5,
        weight_decay=0.01, use_cpu=True, save_strategy="no", eval_strategy="no", report_to=[], logging_steps=1,
        disable_tqdm=True, dataloader_num_workers=0, dataloader_pin_memory=False)
    times = StepTimes()
    collator = make_collator(tokenizer, arguments.padding, arguments.max_length)
    trainer = Trainer(model=model, args=settings, train_dataset=samples, data_collator=collator, callbacks=[times])
    trainer.train()
    timed_steps = max(len(times.ends) - 1, 1)
    lengths = [len(s["input_ids"]) for s in samples]
    (arguments.output_dir / "summary.json").write_text(json.dumps({
        "train_samples_per_second_steady":
            timed_steps * arguments.batch_size * arguments.grad_accum / times.steady_seconds(),
        "train_loss": sum(times.losses) / len(times.losses), "losses": times.losses, "optimizer": str(settings.optim),
        "mean_tokens": sum(lengths) / len(lengths),
        "samples_at_max_length": sum(n == arguments.max_length for n in lengths)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
