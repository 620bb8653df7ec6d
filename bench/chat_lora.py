#!/usr/bin/env python3
"""Compares Tessera with trl: LoRA on conversations of mixed length, in packed batches, on one GPU.

  bench/chat_lora.py OUT.json [--tessera build/tessera] [--peer] [--budget 8192] [--steps 24] [--warm 8]

The model has the shape of Llama-3.2-1B and random weights. The conversations are random words from a fixed seed: one to
four turns, answers of 5 to 600 words. Only the tokens of answers carry loss. The rate counts these tokens, from the end
of the step WARM to the end of the last step. Both sides get at most BUDGET tokens in a batch. --peer also runs trl's
SFTTrainer with peft, packing ("bfd": best fit), assistant_only_loss and Liger's kernels; it needs torch, transformers,
trl and peft.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from llama_table import LORA, ROOT, config_of

MODEL = "llama-3.2-1b"
TOKENIZER = ROOT / "recipes/chat/model"


def conversations(count):
    source = random.Random(11)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 7))) for _ in range(2000)]

    def text(low, high):
        return " ".join(source.choices(words, k=round(low * (high / low) ** source.random())))

    for _ in range(count):
        messages = []
        for _ in range(source.randint(1, 4)):
            messages += [{"role": "user", "content": text(4, 120)}, {"role": "assistant", "content": text(5, 600)}]
        yield {"messages": messages}


def tessera(args, folder):
    (folder / "config.json").write_text(json.dumps(config_of(MODEL)))
    command = [args.tessera, "train", "--model", str(folder / "config.json"), "--init", "random", "--tokenizer", str(TOKENIZER),
               "--dataset", str(folder / "chat.jsonl"), "--max-length", str(args.budget), "--batch-tokens", str(args.budget),
               "--precision", "bf16", "--max-steps", str(args.steps), "--epochs", "1000", "--logging-steps", "1",
               "--lr", "1e-5", "--save-strategy", "no", "--eval-strategy", "no", "--device", "cuda",
               "--output-dir", str(folder / "out"), "--json", *LORA]
    summary = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    records = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    steps = {record["step"]: record for record in records if record["kind"] == "train"}
    seconds = steps[args.steps]["timing"]["runtime_s"] - steps[args.warm]["timing"]["runtime_s"]
    counted = [record for step, record in steps.items() if step > args.warm]
    peaks = summary["ledger_peak_bytes"]
    return {"targets_s": round(sum(record["num_targets"] for record in counted) / seconds),
            "tokens_s": round(sum(record["num_tokens"] for record in counted) / seconds),
            "mib": round((peaks["total"] - peaks["context"]) / 2**20)}


def peer(args, folder):
    done = subprocess.run([sys.executable, __file__, str(folder), "--run-peer", "--budget", str(args.budget), "--steps",
                           str(args.steps), "--warm", str(args.warm)], capture_output=True, text=True)
    if done.returncode != 0:
        return {"problem": done.stderr[-600:]}
    return json.loads(done.stdout.splitlines()[-1])


def run_peer(args):
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, TrainerCallback
    from trl import SFTConfig, SFTTrainer
    rows = [json.loads(line) for line in (args.out / "chat.jsonl").read_text().splitlines()]
    config = {key: value for key, value in config_of(MODEL).items() if key not in ("model_type", "architectures")}
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="sdpa")).to(torch.bfloat16)
    counts, marks = {"targets": 0, "tokens": 0}, {}

    class Counting(SFTTrainer):
        def training_step(self, model, inputs, *rest, **more):
            counts["targets"] += int((inputs["labels"] != -100).sum())
            counts["tokens"] += inputs["input_ids"].numel()
            return super().training_step(model, inputs, *rest, **more)

    class Clock(TrainerCallback):
        def on_step_end(self, arguments, state, control, **more):
            if state.global_step in (args.warm, args.steps):
                torch.cuda.synchronize()
                marks[state.global_step] = (time.perf_counter(), dict(counts))

    options = SFTConfig(
        output_dir=str(args.out / "trl"), max_length=args.budget, packing=True, assistant_only_loss=True, bf16=True,
        use_liger_kernel=True, gradient_checkpointing=False, per_device_train_batch_size=1, max_steps=args.steps,
        learning_rate=1e-5, logging_strategy="no", save_strategy="no", report_to="none", dataset_num_proc=8,
        dataloader_num_workers=2)
    trainer = Counting(model=model, args=options, train_dataset=Dataset.from_list(rows), callbacks=[Clock()],
                       processing_class=AutoTokenizer.from_pretrained(TOKENIZER),
                       peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    (begin, before), (end, after) = marks[args.warm], marks[args.steps]
    rates = {f"{key}_s": round((after[key] - before[key]) / (end - begin)) for key in counts}
    print(json.dumps({**rates, "mib": round(torch.cuda.max_memory_allocated() / 2**20)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--budget", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--run-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run_peer:
        return run_peer(args)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in conversations(1500)))
        results = {"ours": tessera(args, folder), **({"peer": peer(args, folder)} if args.peer else {})}
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
