#!/usr/bin/env python3
"""Shows the time of each kernel in a training step on a GPU. See README.md.

    bench/kernel_times.py FILE [--steps 20]     FILE: the output of libkernel_times.so
"""
import argparse
import re
import subprocess
from collections import Counter
from pathlib import Path

UPDATE = "adamw_kernel"  # in the names of AdamW's kernels; a step begins at the first AdamW kernel of an update
COLLECTIVE = "nccl"
BETWEEN_UPDATES_NS = 1_000_000  # if more time passes between two AdamW kernels, they belong to different updates


def steps_of(rows):
    """Returns, for each step, the index in `rows` of its first AdamW kernel. A row has the begin, the duration and the
    name of a kernel, a copy or a fill."""
    updates = [i for i, (_, _, name) in enumerate(rows) if UPDATE in name]
    return [i for k, i in enumerate(updates)
            if k == 0 or rows[i][0] - sum(rows[updates[k - 1]][:2]) > BETWEEN_UPDATES_NS]


def covered(rows):
    """Returns for how many ns at least one of `rows` runs. The rows must be sorted by begin."""
    covered, end = 0, 0
    for begin, time, _ in rows:
        covered += max(0, begin + time - max(begin, end))
        end = max(end, begin + time)
    return covered


def short(name):
    return re.sub(r"\(anonymous namespace\)::|tessera::cuda::|^void |\(.*", "", name)[:90]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=20,
                        help="number of steps to use, before the last two steps of the file")
    args = parser.parse_args()
    rows = []
    for line in args.file.read_text().splitlines():
        begin, time, _, name = line.split(" ", 3)
        rows.append((int(begin), int(time), name))
    steps = steps_of(rows)
    if len(steps) < 3:
        parser.exit(1, f"{args.file}: found {len(steps)} updates on the GPU, but at least 3 are needed. Train for more steps\n")
    num_steps = min(args.steps, len(steps) - 2)
    first, last = steps[-num_steps - 2], steps[-2]
    names = sorted({name for _, _, name in rows[first:last]})
    readable = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    name_of = dict(zip(names, map(short, readable.splitlines())))
    times, counts = Counter(), Counter()
    for _, time, name in rows[first:last]:
        times[name_of[name]] += time
        counts[name_of[name]] += 1
    total = rows[last][0] - rows[first][0]
    busy, computing = covered(rows[first:last]), covered(row for row in rows[first:last] if COLLECTIVE not in row[2])
    print(f"{total / num_steps / 1e6:.2f} ms per step, {(last - first) / num_steps:.0f} kernels, {num_steps} steps. The "
          f"GPU is busy {busy / total:.1%} of the time. It runs only collectives for "
          f"{(busy - computing) / num_steps / 1e6:.2f} ms per step.\n")
    print("| ms per step | calls | µs each | kernel |\n|---|---|---|---|")
    for name, time in times.most_common():
        print(f"| {time / num_steps / 1e6:.3f} | {counts[name] / num_steps:.1f} | {time / counts[name] / 1e3:.1f} | {name} |")


if __name__ == "__main__":
    main()
