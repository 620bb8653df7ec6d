#!/usr/bin/env python3
"""Compares the time of a training step that `tessera plan` predicts with the measured time, for many configurations.

  bench/predicted_times.py OUT.json [--tessera build/tessera] [--machine FILE] [--only WORD[,WORD]] [--budget 540]

First measures the machine (tessera doctor --measure), unless --machine names a file that this has written. Then each row
is planned, and trained for a few steps. Weights are random. The data are random words from a fixed seed; every sample
has the full length, and every token has a loss. The measured time is the median of the steps after the warm-up.

--only runs the rows that have one of these words in their names.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llama_table
from llama_table import BF16_STATES, FP8, LORA, QLORA, SHAPES

ROOT = Path(__file__).resolve().parents[1]
# The shapes of llama_table.py, and more of the same form.
SHAPES.update({
    "llama-0.1b": (12, 768, 2048, 12, 12, 64, 32000, True, "llama"),
    "llama-0.4b": (24, 1024, 2816, 16, 16, 64, 32000, False, "llama"),
    "llama-15m": (6, 384, 1024, 6, 6, 64, 8000, True, "llama"),
    "llama-60m": (8, 640, 1728, 10, 5, 64, 16000, True, "llama"),
    "qwen2.5-7b": (28, 3584, 18944, 28, 4, 128, 152064, False, "qwen2"),
    "qwen2.5-14b": (48, 5120, 13824, 40, 8, 128, 152064, False, "qwen2"),
})
# name: blocks, hidden size, heads
BLOOM_SHAPES = {"bloom-560m": (24, 1024, 16), "bloom-1b1": (24, 1536, 16), "bloom-3b": (30, 2560, 32), "bloom-7b1": (30, 4096, 32)}
CPU = ["--precision", "fp32"]
CHECKPOINTED = ["--activation-checkpointing", "block"]
ALL_STATES = ["--offload", "optimizer,gradients"]
EVERYTHING = ["--strategy", "zero3", "--offload", "optimizer,gradients,parameters"]


def part(blocks, *more):
    return ["--offload", f"optimizer={blocks},gradients={blocks}", *more]


def gpu(percent):
    return ["--device-updates", str(percent)]


def fit(gib):
    return ["--fit", f"{gib}GiB", "--host-memory", "120GiB"]


# name: model, batch, length, options
ROWS = {
    # one GPU
    "llama-0.1b 32x512": ("llama-0.1b", 32, 512, []),
    "llama-0.1b 8x2048": ("llama-0.1b", 8, 2048, []),
    "llama-0.1b 4x256": ("llama-0.1b", 4, 256, []),
    "llama-0.4b 16x512": ("llama-0.4b", 16, 512, []),
    "llama-0.4b 8x1024 x4": ("llama-0.4b", 8, 1024, ["--grad-accum", "4", "--fuse-micro-batches", "off"]),
    "llama-0.4b 4x4096": ("llama-0.4b", 4, 4096, CHECKPOINTED),
    "llama-0.4b 8x512 fp32": ("llama-0.4b", 8, 512, ["--precision", "fp32"]),
    "llama-0.4b 8x512 tf32": ("llama-0.4b", 8, 512, ["--precision", "tf32"]),
    "1b 8x512": ("llama-3.2-1b", 8, 512, []),
    "1b 8x2048": ("llama-3.2-1b", 8, 2048, []),
    "1b 2x8192": ("llama-3.2-1b", 2, 8192, []),
    "1b 8x2048 checkpointed": ("llama-3.2-1b", 8, 2048, CHECKPOINTED),
    "1b 8x2048 8 of 16 checkpointed": ("llama-3.2-1b", 8, 2048, ["--activation-checkpointing", "8"]),
    "1b 1x512": ("llama-3.2-1b", 1, 512, []),
    "1b 8x2048 fp16": ("llama-3.2-1b", 8, 2048, ["--precision", "fp16"]),
    "1b 8x2048 bf16 states": ("llama-3.2-1b", 8, 2048, BF16_STATES),
    "1b 8x512 lora": ("llama-3.2-1b", 8, 512, LORA),
    "qwen3-0.6b 16x512": ("qwen3-0.6b", 16, 512, []),
    "qwen3-0.6b 4x4096": ("qwen3-0.6b", 4, 4096, []),
    "qwen2.5-0.5b 32x1024": ("qwen2.5-0.5b", 32, 1024, []),
    "qwen2.5-0.5b 2x512": ("qwen2.5-0.5b", 2, 512, []),
    "qwen2.5-1.5b 16x1024": ("qwen2.5-1.5b", 16, 1024, []),
    "qwen2.5-1.5b 2x4096": ("qwen2.5-1.5b", 2, 4096, []),
    "qwen2.5-3b 8x1024": ("qwen2.5-3b", 8, 1024, []),
    "3b 4x2048": ("llama-3.2-3b", 4, 2048, []),
    "3b 1x2048 x4": ("llama-3.2-3b", 1, 2048, ["--grad-accum", "4", "--fuse-micro-batches", "off"]),
    "3b 4x4096 checkpointed": ("llama-3.2-3b", 4, 4096, CHECKPOINTED),
    "bloom-560m 16x512": ("bloom-560m", 16, 512, []),
    "bloom-560m 4x512": ("bloom-560m", 4, 512, []),
    "bloom-560m 16x512 fp16": ("bloom-560m", 16, 512, ["--precision", "fp16"]),
    "bloom-1b1 8x512": ("bloom-1b1", 8, 512, []),
    "bloom-3b 4x1024": ("bloom-3b", 4, 1024, []),
    "bloom-3b 8x512 checkpointed": ("bloom-3b", 8, 512, CHECKPOINTED),
    "bloom-7b1 4x512": ("bloom-7b1", 4, 512, []),
    "bloom-7b1 16x512": ("bloom-7b1", 16, 512, []),
    "8b 4x2048": ("llama-3.1-8b", 4, 2048, []),
    "8b 2x2048": ("llama-3.1-8b", 2, 2048, []),
    "8b 2x4096 checkpointed": ("llama-3.1-8b", 2, 4096, CHECKPOINTED),
    "8b 4x2048 bf16 states": ("llama-3.1-8b", 4, 2048, BF16_STATES),
    "8b 4x2048 lora": ("llama-3.1-8b", 4, 2048, LORA),
    "8b 2x2048 qlora": ("llama-3.1-8b", 2, 2048, QLORA),
    "qwen2.5-7b 4x1024": ("qwen2.5-7b", 4, 1024, []),
    # offloaded: the states and gradients of all units, of some blocks, or everything
    "offload bloom-560m 16x512 all": ("bloom-560m", 16, 512, ALL_STATES),
    "offload bloom-560m 16x512 12": ("bloom-560m", 16, 512, part(12)),
    "offload bloom-560m 4x512 everything": ("bloom-560m", 4, 512, EVERYTHING),
    "offload 1b 8x512 all": ("llama-3.2-1b", 8, 512, ALL_STATES),
    "offload 1b 8x512 all, GPU 40": ("llama-3.2-1b", 8, 512, [*ALL_STATES, *gpu(40)]),
    "offload 1b 8x2048 8": ("llama-3.2-1b", 8, 2048, part(8)),
    "offload 1b 8x512 everything": ("llama-3.2-1b", 8, 512, EVERYTHING),
    "offload 3b 4x2048 all": ("llama-3.2-3b", 4, 2048, ALL_STATES),
    "offload 3b 4x2048 14": ("llama-3.2-3b", 4, 2048, part(14)),
    "offload 3b 4x2048 14, GPU 50": ("llama-3.2-3b", 4, 2048, part(14, *gpu(50))),
    "offload 3b 4x2048 7 states": ("llama-3.2-3b", 4, 2048, ["--offload", "optimizer=7"]),
    "offload 3b 4x2048 everything": ("llama-3.2-3b", 4, 2048, [*EVERYTHING, *CHECKPOINTED]),
    # in the memory of smaller GPUs: --fit chooses what is offloaded and recomputed
    "80 GiB, bloom-7b1 4x512": ("bloom-7b1", 4, 512, fit(80)),
    "80 GiB, bloom-7b1 16x512": ("bloom-7b1", 16, 512, fit(80)),
    "48 GiB, bloom-7b1 4x512": ("bloom-7b1", 4, 512, fit(48)),
    "48 GiB, bloom-7b1 4x512 all offloaded": ("bloom-7b1", 4, 512, ALL_STATES),
    "78 GiB, 8b 4x2048": ("llama-3.1-8b", 4, 2048, fit(78)),
    "78 GiB, qwen2.5-14b 16x2048 bf16 states": ("qwen2.5-14b", 16, 2048, [*fit(78), *BF16_STATES]),
    "78 GiB, qwen2.5-14b 64x1024 bf16 states": ("qwen2.5-14b", 64, 1024, [*fit(78), *BF16_STATES]),
    "78 GiB, qwen2.5-14b 64x1024 8-bit states": ("qwen2.5-14b", 64, 1024, [*fit(78), "--optimizer-states", "8bit"]),
    "78 GiB, qwen2.5-14b 64x1024 8-bit states, fp8": ("qwen2.5-14b", 64, 1024,
                                                      [*fit(78), "--optimizer-states", "8bit", *FP8]),
    **{f"{gib} GiB, 3b 4x2048": ("llama-3.2-3b", 4, 2048, fit(gib)) for gib in (16, 24, 32, 40, 48)},
    **{f"{gib} GiB, bloom-560m 16x512": ("bloom-560m", 16, 512, fit(gib)) for gib in (4, 6, 8, 10)},
    # with --device cpu, perhaps with --nproc 2
    "cpu, 15m 8x128": ("llama-15m", 8, 128, CPU),
    "cpu, 15m 2x64": ("llama-15m", 2, 64, CPU),
    "cpu, 15m 4x256 checkpointed": ("llama-15m", 4, 256, [*CPU, *CHECKPOINTED]),
    "cpu, 15m 4x128 x2 zero1": ("llama-15m", 4, 128, [*CPU, "--grad-accum", "2", "--strategy", "zero1"]),
    "cpu, 15m 4x128 full_shard": ("llama-15m", 4, 128, [*CPU, "--strategy", "full_shard"]),
    "cpu, 60m 4x128": ("llama-60m", 4, 128, CPU),
    "cpu, 60m 1x512": ("llama-60m", 1, 512, CPU),
    "cpu, 60m 2x128 full_shard": ("llama-60m", 2, 128, [*CPU, "--strategy", "full_shard"]),
    # with --nproc 2
    "two, 1b 8x512 full_shard": ("llama-3.2-1b", 8, 512, ["--strategy", "full_shard"]),
    "two, 1b 8x2048 zero2": ("llama-3.2-1b", 8, 2048, ["--strategy", "zero2"]),
    "two, 3b 4x2048 full_shard": ("llama-3.2-3b", 4, 2048, ["--strategy", "full_shard"]),
    "two, bloom-560m 16x512 zero1": ("bloom-560m", 16, 512, ["--strategy", "zero1"]),
    "two, bloom-560m 4x512 no_shard": ("bloom-560m", 4, 512, ["--strategy", "no_shard"]),
    "two, qwen2.5-0.5b 32x1024 full_shard": ("qwen2.5-0.5b", 32, 1024, ["--strategy", "full_shard"]),
    "two, 8b 2x2048 full_shard": ("llama-3.1-8b", 2, 2048, ["--strategy", "full_shard"]),
    # parts of blocks that backward computes again
    "1b 8x2048 mlp": ("llama-3.2-1b", 8, 2048, ["--activation-checkpointing", "mlp"]),
    "1b 8x2048 attention": ("llama-3.2-1b", 8, 2048, ["--activation-checkpointing", "attention"]),
    "1b 1x8192 block=4,mlp=12": ("llama-3.2-1b", 1, 8192, ["--activation-checkpointing", "block=4,mlp=12"]),
}


def config_of(name):
    if name not in BLOOM_SHAPES:
        return llama_table.config_of(name)
    blocks, width, heads = BLOOM_SHAPES[name]
    return {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "vocab_size": 250880, "hidden_size": width,
            "n_layer": blocks, "n_head": heads, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "bos_token_id": 1,
            "eos_token_id": 2, "pad_token_id": 3}


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.deadline = args, folder, time.monotonic() + args.budget
        self.env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        source = random.Random(7)
        words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(3, 9))) for _ in range(20000)]
        self.texts = {}
        for length in sorted({length for _, _, length, _ in ROWS.values()}):
            # All steps of an epoch are equally large.
            count = max(batch * 4 for _, batch, of_row, _ in ROWS.values() if of_row == length)
            count = 32 * -(-count // 32)
            texts = [" ".join(source.choices(words, k=int(length * 1.4))) for _ in range(count)]
            self.texts[length] = folder / f"texts-{length}.jsonl"
            self.texts[length].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def run(self, command, codes=(0,)):
        done = subprocess.run(command, capture_output=True, text=True, env=self.env,
                              timeout=max(5, self.deadline - time.monotonic()))
        if done.returncode not in codes:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RuntimeError(f"exit code {done.returncode}: {lines[-1][:300]}")
        return done.stdout

    def measured_machine(self):
        command = [self.args.tessera, "doctor", "--measure", "--json", "--output-dir", str(self.folder / "machine"), *self.args.ranks]
        return json.loads(self.run(command))

    def common(self, row):
        name, batch, length, options = ROWS[row]
        model = self.folder / name
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(config_of(name)))
        flags = ["--model", str(model / "config.json"), "--init", "random", "--tokenizer",
                 str(ROOT / "recipes/quickstart/model"), "--dataset", str(self.texts[length]), "--objective", "causal_lm",
                 "--long-texts", "truncate", "--max-length", str(length), "--batch-size", str(batch), "--epochs", "1000",
                 "--lr", "1e-5", "--save-strategy", "no", "--eval-strategy", "no", "--resume", "none", "--device",
                 self.args.device, *self.args.ranks]
        if "--precision" not in options:
            flags += ["--precision", "bf16"]
        return flags + options

    def planned(self, row):
        machine = ["--machine", str(self.args.machine)] if self.args.machine else []
        begin = time.monotonic()
        plan = json.loads(self.run([self.args.tessera, "plan", *self.common(row), *machine, "--json"], (0, 4)))
        self.predicted_s = plan["time"]["step_s"]
        return {"predicted_s": plan["time"]["step_s"], "time": plan["time"], "device_gib": round(max(phase["total"] for phase in plan["first_rank"]["device"].values()) / 2**30, 2),
                "host_gib": round(max(phase["total"] for phase in plan["first_rank"]["host"].values()) / 2**30, 2), "planning_s": round(time.monotonic() - begin, 2),
                "settings": {name: plan[name] for name in ("strategy", "offload", "activation_checkpointing")}}

    def trained(self, row, warm=4, steps=16, most_s=40):
        """The run is killed after the steps, because saving its model would take longer than they do. Short steps are logged
        in fours, because a log costs time, too: it waits for the loss."""
        every = 4 if self.predicted_s < 0.1 else 1
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        command = [self.args.tessera, "train", *self.common(row), "--max-steps", "100000", "--logging-steps", str(every),
                   "--output-dir", str(out), "--overwrite", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.env)
        begin, times = None, {}
        try:
            while process.poll() is None and time.monotonic() < self.deadline:
                times = llama_table.Bench.steps(out)
                if times and begin is None:
                    begin = time.monotonic()
                enough = times and (max(times) >= steps * every or (max(times) >= warm + 3 and time.monotonic() - begin > most_s))
                if enough:
                    break
                time.sleep(0.2)
            if process.poll() is not None:
                raise RuntimeError(f"exit code {process.returncode}: {process.stderr.read()[-300:]}")
        finally:
            process.kill()
            process.wait()
        if not times or max(times) < warm + 3:
            raise RuntimeError("no time left")
        seconds = [(times[step] - times[step - every]) / every for step in sorted(times)
                   if step > warm and step - every in times]
        return {"measured_s": round(statistics.median(seconds), 5), "steps": len(seconds),
                "fastest_s": round(min(seconds), 5), "slowest_s": round(max(seconds), 5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--machine", type=Path)
    parser.add_argument("--only", default="", help="words of the rows to run, separated by commas")
    parser.add_argument("--skip", default="", help="words of the rows to leave out, separated by commas")
    parser.add_argument("--budget", type=float, default=540, help="time for all rows in seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--nproc", type=int, default=1)
    args = parser.parse_args()
    args.ranks = ["--nproc", str(args.nproc)] if args.nproc > 1 else []
    words = [word for word in args.only.split(",") if word]
    skipped = [word for word in args.skip.split(",") if word]
    names = [name for name in ROWS
             if (not words or any(word in name for word in words)) and not any(word in name for word in skipped)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        bench = Bench(args, Path(folder))
        results = {"machine": None, "rows": {}}
        if not args.machine:
            begin = time.monotonic()
            results["machine"] = bench.measured_machine()
            results["measuring_s"] = round(time.monotonic() - begin, 1)
        for name in names:
            try:
                row = {**bench.planned(name), **bench.trained(name)}
                row["error"] = round(row["predicted_s"] / row["measured_s"] - 1, 4)
                line = f"{row['predicted_s'] * 1e3:9.1f} {row['measured_s'] * 1e3:9.1f} ms {100 * row['error']:+6.1f} %"
            except (RuntimeError, subprocess.TimeoutExpired, KeyError, TypeError) as error:
                row = {"failed": str(error)[:400]}
                line = f"failed: {str(error)[:160]}"
            results["rows"][name] = row
            print(f"{name:40} {line}", flush=True)
            args.out.write_text(json.dumps(results, indent=1))
    errors = sorted(abs(row["error"]) for row in results["rows"].values() if "error" in row)
    if errors:
        print(f"{len(errors)} rows: median error {100 * statistics.median(errors):.1f} %, largest {100 * errors[-1]:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
