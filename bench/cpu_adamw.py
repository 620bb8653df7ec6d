#!/usr/bin/env python3
"""Compares the speed of Tessera's AdamW on the CPU, which updates offloaded states, with the AdamW of torch and of
DeepSpeed. See bench/README.md.

    bench/cpu_adamw.py [--ops-bench build/ops_bench] [--repeat 3]

The Python of this script needs torch. The script measures DeepSpeed only if it is installed. The first run with
DeepSpeed takes longer, because DeepSpeed compiles its operator.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
# The number of parameters that torch and DeepSpeed update. Parameters, gradients and two moments are four f32 arrays of
# 128 MiB each, larger than the caches.
ELEMS = 1 << 25
BYTES = 28  # moved per parameter: AdamW reads and writes the parameter and both moments, and reads the gradient
SECONDS = 1.0  # duration of one measurement


def ours(program):
    done = subprocess.run([program, "adamw", str(SECONDS)], capture_output=True, text=True, check=True)
    threads = int(re.search(r"^(\d+) threads", done.stdout, re.M)[1])
    return threads, float(re.search(r"^adamw\b.*?([\d.]+) GB/s", done.stdout, re.M)[1])


def theirs(optimizer):
    """Returns GB/s of the median step."""
    optimizer.step()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return BYTES * ELEMS / statistics.median(times) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops-bench", default=ROOT / "build/ops_bench", type=Path)
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each program; the table shows medians")
    args = parser.parse_args()
    if not args.ops_bench.exists():
        sys.exit(f"error: {args.ops_bench} does not exist. Run tools/build.sh ops_bench")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    parameter = torch.nn.Parameter(torch.randn(ELEMS) * 0.02)
    parameter.grad = torch.randn(ELEMS) * 1e-3
    options = {"lr": 1e-5, "weight_decay": 0.01}
    peers = {"torch.optim.AdamW(fused=True)": torch.optim.AdamW([parameter], fused=True, **options),
             "torch.optim.AdamW(foreach=True)": torch.optim.AdamW([parameter], foreach=True, **options)}
    try:
        import deepspeed
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        peers[f"DeepSpeedCPUAdam {deepspeed.__version__}"] = DeepSpeedCPUAdam([parameter], adamw_mode=True, **options)
    except ImportError as error:
        print(f"no DeepSpeed: {error}", file=sys.stderr)
    rates = {"Tessera": []} | {name: [] for name in peers}
    for _ in range(args.repeat):
        threads, rate = ours(args.ops_bench)
        rates["Tessera"].append(rate)
        for name, optimizer in peers.items():
            rates[name].append(theirs(optimizer))
    print(f"{threads} threads, torch {torch.__version__}. {BYTES} bytes are moved per parameter and update. torch and "
          f"DeepSpeed: {ELEMS:,} f32 parameters\n")
    print("| | GB/s | Tessera's GB/s / this row's |\n|---|---|---|")
    mine = statistics.median(rates["Tessera"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"| {name} | {rate:.1f} ({min(values):.1f} … {max(values):.1f}) | {mine / rate:.2f} |")


if __name__ == "__main__":
    main()
