#!/usr/bin/env python3
"""Compares the losses of Tessera and transformers over 100 steps: same weights, same rows, same order. See README.md.

    bench/loss_curves.py [--device cuda|cpu] [--tessera build/tessera] [--svg docs/loss_curves.svg] [--results FILE]
                         [--shape llama-3.2-1b]

Both sides fine-tune the quickstart's model in every precision of --precisions. This takes one or two minutes on a GPU.
With --shape, the model has this shape, random weights, and the quickstart's tokenizer. Draws the losses into the file
of --svg. Prints a table to standard output as Markdown, and progress to standard error. Needs torch and transformers in
this Python.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from hf_prepare import completion_rows, read_squad
from llama_table import SHAPES, config_of
from loss_curves_svg import draw
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup
from workshop_samples import IGNORED, make_sample, pad_batch

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "recipes/quickstart"
MODEL = QUICKSTART / "model"
BATCH_SIZE, ACCUMULATION, MAX_LENGTH = 4, 2, 256
LEARNING_RATE, WARMUP_STEPS, WEIGHT_DECAY, MAX_NORM = 3e-4, 10, 0.01, 1.0
INITIAL_SCALE_POWER = 12  # fp16: the loss scale begins at 2^12, so low that usually neither side skips an update
PER_STEP = ("loss", "grad_norm", "num_targets", "num_tokens")
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def log(text):
    print(text, file=sys.stderr, flush=True)


def make_model(shape, folder, device):
    """Saves an fp32 model with random weights from a fixed seed, and the quickstart's tokenizer. Returns the folder."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of(shape)), encoding="utf-8")
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, folder / name)
    return folder


def run_tessera(program, device, precision, steps, rows, folder, model):
    """Returns {"loss": [...], "grad_norm": [...], "num_targets": [...], "num_tokens": [...]} with a value per step, and
    "skipped_steps": the steps whose update was skipped, because gradients overflowed in fp16."""
    output = folder / f"tessera-{precision}"
    command = [program, "train", "--model", model, "--dataset", rows, "--no-shuffle", "--max-length", MAX_LENGTH,
               "--batch-size", BATCH_SIZE, "--grad-accum", ACCUMULATION, "--max-steps", steps, "--lr", LEARNING_RATE,
               "--warmup-steps", WARMUP_STEPS, "--weight-decay", WEIGHT_DECAY, "--max-grad-norm", MAX_NORM,
               "--device", device, "--precision", precision, "--initial-scale-power", INITIAL_SCALE_POWER,
               "--logging-steps", 1, "--eval-strategy", "no",
               "--save-strategy", "no", "--save-dtype", "bf16", "--output-dir", output, "--json"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program}: exit code {done.returncode}\n{done.stderr}")
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    skipped = [record["step"] for record in records if record["kind"] == "skipped"]
    records = [record for record in records if record["kind"] == "train"]
    return {key: [record[key] for record in records] for key in PER_STEP} | {"skipped_steps": skipped}


def make_steps(rows, steps, tokenizer, device):
    """Returns a list of micro-batches for each step. The rows of a micro-batch are padded to its longest row."""
    samples = [make_sample(tokenizer, row, "completion", MAX_LENGTH) for row in rows]
    micro_batches = []
    for i in range(0, len(samples), BATCH_SIZE):
        part = samples[i:i + BATCH_SIZE]
        padded = pad_batch(part, max(len(sample["input_ids"]) for sample in part), tokenizer.pad_token_id)
        micro_batches.append({name: torch.tensor(values, device=device) for name, values in padded.items()})
    return [micro_batches[i * ACCUMULATION:(i + 1) * ACCUMULATION] for i in range(steps)]


def run_transformers(device, precision, steps, folder):
    """Runs the Trainer's computation as a plain loop. For bf16 and fp16, uses autocast with fp32 weights. Returns a
    dictionary with the same keys as the result of run_tessera()."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).train()
    matrices, others = [[p for p in model.parameters() if (p.ndim > 1) == of] for of in (True, False)]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY},
                                   {"params": others, "weight_decay": 0.0}], lr=LEARNING_RATE)
    schedule = get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, len(steps))
    scaler = torch.amp.GradScaler(device, init_scale=2.0 ** INITIAL_SCALE_POWER, enabled=precision == "fp16")
    out = {key: [] for key in (*PER_STEP, "skipped_steps")}
    for number, micro_batches in enumerate(steps, 1):
        num_targets = sum((batch["labels"] != IGNORED).sum() for batch in micro_batches)
        losses = []
        for batch in micro_batches:
            with torch.autocast(device, AUTOCAST.get(precision), enabled=precision in AUTOCAST):
                loss = model(**batch, num_items_in_batch=num_targets, use_cache=False).loss
            scaler.scale(loss).backward()
            losses.append(loss.detach())
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if scaler.get_scale() < scale:
            out["skipped_steps"].append(number)
        else:
            schedule.step()
        out["loss"].append(sum(losses).item())
        out["grad_norm"].append(norm.item() if norm.isfinite() else None)  # JSON has no infinity
        out["num_targets"].append(num_targets.item())
        out["num_tokens"].append(sum(batch["attention_mask"].sum() for batch in micro_batches).item())
    return out


def distances(a, b):
    return [abs(x - y) for x, y in zip(a["loss"], b["loss"])]


def compare(runs):
    """Checks for each precision that both sides read the same numbers of targets and tokens in each step. Adds
    "difference" to the runs of the precision: the absolute difference of the two losses in each step."""
    for precision, sides in runs.items():
        ours, theirs = sides["tessera"], sides["transformers"]
        for key in ("num_targets", "num_tokens"):
            if ours[key] != theirs[key]:
                sys.exit(f"{precision}: the two sides read different rows: {key} {ours[key]} and {theirs[key]}")
        sides["difference"] = distances(ours, theirs)


def print_table(runs):
    exact = runs.get("fp32")
    print("| precision | last loss, Tessera | last loss, transformers | largest difference | at step | mean difference "
          "| Tessera, difference from transformers in fp32 | transformers, difference from its own fp32 |")
    print("|---|---|---|---|---|---|---|---|")
    for precision, sides in runs.items():
        ours, theirs, difference = sides["tessera"], sides["transformers"], sides["difference"]
        cells = [precision, f"{ours['loss'][-1]:.5f}", f"{theirs['loss'][-1]:.5f}",
                 f"{max(difference):.1e}", 1 + difference.index(max(difference)),
                 f"{sum(difference) / len(difference):.1e}"]
        cells += [f"{max(distances(side, exact['transformers'])):.1e}" if exact and precision != "fp32" else ""
                  for side in (ours, theirs)]
        print("| " + " | ".join(map(str, cells)) + " |")
    for precision, sides in runs.items():
        for side in ("tessera", "transformers"):
            if skipped := sides[side]["skipped_steps"]:
                print(f"\n{precision}: {side} skipped the updates of steps {', '.join(map(str, skipped))}.")


def describe(args):
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else None
    version = subprocess.run([args.tessera, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"device": gpu or "CPU", "model": f"{args.shape}'s shape" if args.shape else "quickstart's model", "tessera": version, "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__, "steps": args.steps, "batch_size": BATCH_SIZE,
            "grad_accum": ACCUMULATION, "lr": LEARNING_RATE, "warmup_steps": WARMUP_STEPS,
            "weight_decay": WEIGHT_DECAY, "max_grad_norm": MAX_NORM}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", type=Path, default=ROOT / "build/tessera")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "tf32", "bf16", "fp16"],
                        help="default: all; on a CPU only fp32 and bf16, because torch takes many minutes for fp16")
    parser.add_argument("--shape", choices=sorted(SHAPES),
                        help="random weights of this shape, not the quickstart's model")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--svg", type=Path, default=ROOT / "docs/loss_curves.svg")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the values of every step as JSON")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU. Give --device cpu")
    if args.steps < 2:
        parser.error(f"--steps {args.steps}: give at least 2, because the curves are lines")
    if not args.precisions:
        args.precisions = ["fp32", "tf32", "bf16", "fp16"] if args.device == "cuda" else ["fp32", "bf16"]
    args.tessera = args.tessera.resolve()
    if not args.tessera.exists():
        parser.error(f"{args.tessera} does not exist. Build it, or give --tessera")
    return args


def main():
    args = parse_arguments()
    transformers.utils.logging.disable_progress_bar()
    rows = completion_rows(read_squad(QUICKSTART / "train.json"), args.steps * BATCH_SIZE * ACCUMULATION)
    steps = make_steps(rows, args.steps, AutoTokenizer.from_pretrained(MODEL), args.device)
    runs = {}
    with tempfile.TemporaryDirectory(prefix="loss-curves-") as folder:
        folder = Path(folder)
        dataset = folder / "rows.jsonl"
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        model = make_model(args.shape, folder / "model", args.device) if args.shape else MODEL
        for precision in args.precisions:
            began = time.monotonic()
            ours = run_tessera(args.tessera, args.device, precision, args.steps, dataset, folder, model)
            middle = time.monotonic()
            theirs = run_transformers(args.device, precision, steps, model)
            log(f"{precision}: Tessera {middle - began:.1f} s, transformers {time.monotonic() - middle:.1f} s")
            runs[precision] = {"tessera": ours, "transformers": theirs}
    compare(runs)
    facts = describe(args)
    print_table(runs)
    print(f"\n{facts['device']}; {facts['tessera']}, torch {facts['torch']}, transformers {facts['transformers']}.")
    args.svg.write_text(draw(runs, facts), encoding="utf-8")
    if args.results:
        args.results.write_text(json.dumps({"facts": facts, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
