#!/usr/bin/env python3
"""Compares Tessera on GPUs with Python peers. One call makes the complete table, by default in less than 8 minutes.

  bench/gpu_table.py [--tessera build/tessera] [--dataset xquad.en.json] [--budget SECONDS] [--repeat 3] [--only WORD[,WORD]]

The script needs a built Tessera, but no Python packages. The data are random words from a fixed seed. Only the row
"XQuAD" uses real questions: it runs only with --dataset. The models have the shapes of bloom-560m and bloom-7b1, and
random weights. If a row needs more GPUs than the machine has, it does not run, and the table says so. First, every row
runs once. Then all rows except bloom-7b1 run again, until each has --repeat runs or the budget is used up.

The table shows medians. The speed of a training run counts only the steps after the warm-up. The memory of a training
run is the peak of Tessera's ledger on the GPU, without the CUDA context. For bloom-7b1, it is the highest used memory
that nvidia-smi reports. The peers do not run: the script contains their values, which were measured on H200 GPUs
(docs/performance.md). The table goes to standard output as Markdown, and progress messages go to standard error.

--try-out tests this script without a GPU: it runs a tiny model for a few steps on the CPU.
"""
import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHAPES = {"bloom-560m": (24, 1024, 250880), "bloom-7b1": (30, 4096, 250880), "tiny": (2, 64, 2048)}
PEAK_TFLOPS, TOKENS = 989, 512
TRAIN = ["--save-strategy", "no", "--eval-strategy", "no", "--resume", "none", "--overwrite", "--save-dtype", "bf16"]
DENSE = ["--objective", "causal_lm"]


@dataclass
class Goal:
    """A value of a row, and two limits for it: the value must reach `must` and should reach `aim`. A value reaches a
    limit if it is at least the limit, or, with `lower`, at most the limit. The function `value(row, rows)` returns the
    value, or None if it is unknown. `rows` has all rows by key.
    """
    name: str
    value: object
    must: float = None
    aim: float = None
    lower: bool = False
    unit: str = "×"

    def text(self, value):
        reached = [limit is None or (value <= limit if self.lower else value >= limit) for limit in (self.must, self.aim)]
        limits = [f"{word} {'≤' if self.lower else '≥'} {limit:g}" for word, limit in (("must", self.must), ("aim", self.aim))
                  if limit is not None]
        verdict = "MISSED" if not reached[0] else "aim reached" if self.aim is not None and reached[1] else "reached"
        return f"{self.name} {value:.3g} {self.unit}".rstrip() + (f" ({', '.join(limits)}: {verdict})" if limits else "")


@dataclass
class Row:
    key: str
    job: str
    options: list  # options of tessera
    gpus: int = 1
    batch: tuple = (1, 4)  # samples per micro-batch and rank, micro-batches per step
    warm_steps: int = 20
    steps: int = 100       # including the warm-up
    data: str = "dense"    # a key of Bench.data; in "dense" data, every token has a loss
    model: str = "bloom-560m"
    kind: str = "train"    # or "eval", or "endless": a training run that the script stops after `steps` steps
    peer: str = ""
    peer_rate: float = None
    peer_mib: float = None
    bare: str = "bf16-4x4"  # for a row with offload: the key of the row with the same work without offload, or ""
    goals: list = field(default_factory=list)
    estimate_s: float = 15  # expected time of the next run: after a run, 1.1 times its measured time
    runs: list = field(default_factory=list)
    problem: str = ""

    @property
    def samples_per_step(self):
        return self.batch[0] * self.batch[1] * self.gpus

    def median(self, key):
        values = [run[key] for run in self.runs if run.get(key) is not None]
        return statistics.median(values) if values else None


def ratio(key, of):
    """Returns a function for Goal.value: the median of run[key] over the row's runs, divided by getattr(row, of)."""
    def value(row, rows):
        measured, theirs = row.median(key), getattr(row, of)
        return measured / theirs if measured and theirs else None
    return value


def speed(must=None, aim=None):
    return Goal("speed", ratio("rate", "peer_rate"), must, aim)


def memory(must=None, aim=None):
    return Goal("memory", ratio("mib", "peer_mib"), must, aim, lower=True)


def scaling(row, rows):
    single = rows["bf16-8"].median("rate") if "bf16-8" in rows else None
    return 100 * row.median("rate") / (row.gpus * single) if single and row.median("rate") else None


def floor_s(row, rows):
    """Returns {kind of work: its seconds per step} for a step with the optimizer on the CPU. All kinds of work can
    overlap, so a step takes at least the longest of these times. Returns None if a measured rate is missing.
    """
    rates = row.runs[0].get("rates") if row.runs else None
    compute = {}
    if row.bare:
        bare = rows[row.bare].median("rate") if row.bare in rows else None
        if not bare:
            return None
        compute["compute"] = row.samples_per_step / bare
    if not rates:
        return None
    layers, width, vocabulary = SHAPES[row.model]
    blocks, root = 12 * layers * width * width, vocabulary * width
    # The number of parameters that the GPU gets per step. If the parameters are kept on the host, the GPU gets the
    # blocks twice, for forward and for backward, and the root once. Otherwise, it gets all new parameters once, after
    # the update.
    brought = root + (2 if "parameters" in " ".join(row.options) else 1) * blocks
    return {**compute,
            "gradients to the host, 2 bytes each": 2 * (blocks + root) / rates["to_host"],
            "parameters to the GPU, 2 bytes each time": 2 * brought / rates["to_gpu"],
            # AdamW reads and writes a 32-bit master and two 32-bit moments (24 bytes), and reads a 16-bit gradient. A
            # 32-bit sum of gradients is not needed, because the micro-batches of a step run as one.
            "AdamW on the CPU, 26 bytes each": 26 * (blocks + root) / rates["adamw"]}


def over_floor(row, rows):
    floor, rate = floor_s(row, rows), row.median("rate")
    return row.samples_per_step / rate / max(floor.values()) if floor and rate else None


def all_rows(with_dataset):
    full_shard = ["--strategy", "full_shard"]
    fp16, bf16 = ["--precision", "fp16"], ["--precision", "bf16"]

    def offloaded(key, strategy, what, goals):
        return Row(key, f"{strategy}, {what.replace(',', ' + ')} offloaded, pinned, bf16, 4 × 4",
                   ["--strategy", strategy, *bf16, "--offload", what, "--pin-memory"], batch=(4, 4), warm_steps=5, steps=30,
                   goals=goals)

    on_floor = [Goal("step ÷ lower bound", over_floor, 1.3, 1.1, lower=True)]
    rows = [
        Row("fp16", "fp16, 1 × 4", fp16, peer="HF Trainer", peer_rate=26.5, peer_mib=12161, steps=220,
            goals=[speed(5, 8), memory(0.85, 0.7)]),
        Row("bf16-16", "bf16, 16 × 1", bf16, batch=(16, 1), steps=80, peer="HF Trainer + torch.compile", peer_rate=173.3,
            peer_mib=35831, goals=[Goal("samples/s", lambda row, _: row.median("rate"), 250, 330, unit=""), speed(),
                                   memory(0.6)]),
        Row("fp16-4", "fp16 full_shard, 1 × 4", fp16 + full_shard, gpus=4, steps=220, peer="HF Trainer, FSDP",
            peer_rate=41.7, peer_mib=5701, goals=[speed(8, 15), memory(0.75, 0.5)]),
        Row("bf16-8", "bf16, 8 × 1", bf16, batch=(8, 1), steps=140),
        Row("bf16-8-4", "bf16 full_shard, 8 × 1", bf16 + full_shard, gpus=4, batch=(8, 1), steps=140,
            peer="FSDP2 + torch.compile", peer_rate=200.8, peer_mib=20167,
            goals=[speed(4, 5), Goal("of 4 × one GPU", scaling, 90, 95, unit="%"), memory()]),
        Row("xquad", "XQuAD English, completion, fp16, 1 × 4", fp16, data="xquad", steps=220,
            peer="HF Trainer, padded to 512", peer_rate=26.5, peer_mib=12161, goals=[speed(10, 20), memory()]),
        Row("answers", "answers to 256 prompts of 512 tokens, 50 new tokens, bf16", bf16, data="prompts", kind="eval",
            peer="HF generate", peer_rate=2.1, goals=[speed(50, 100)]),
        Row("bf16-4x4", "bf16, 4 × 4", bf16, batch=(4, 4), steps=80, peer="HF Trainer + torch.compile", peer_rate=125.1,
            peer_mib=17106, goals=[speed(), memory()]),
        Row("tf32", "tf32, 1 × 4", ["--precision", "tf32"], steps=100, peer="HF Trainer", peer_rate=32.0, peer_mib=11538,
            goals=[speed(), memory()]),
        Row("fp32", "fp32, 1 × 4", ["--precision", "fp32"], steps=50, peer="HF Trainer", peer_rate=16.6, peer_mib=11538,
            goals=[speed(), memory()]),
        offloaded("zero2", "zero2", "optimizer", on_floor),
        offloaded("zero3", "zero3", "optimizer", on_floor),
        offloaded("zero3-gradients", "zero3", "optimizer,gradients", []),
        offloaded("zero3-all", "zero3", "optimizer,gradients,parameters", []),
        Row("7b1", "bloom-7b1 shape, zero3, all offloaded, pinned, bf16, 4 × 1",
            ["--strategy", "zero3", *bf16, "--offload", "optimizer,gradients,parameters", "--pin-memory"], batch=(4, 1),
            warm_steps=2, steps=5, model="bloom-7b1", kind="endless", estimate_s=90, bare="",
            goals=[Goal("GPU memory", lambda row, _: row.median("gib"), 24, lower=True, unit="GiB"),
                   Goal("step ÷ lower bound", over_floor, lower=True)]),
        Row("fp16-2", "fp16 full_shard, 1 × 4", fp16 + full_shard, gpus=2, steps=220, peer="HF Trainer, FSDP",
            peer_rate=21.2, peer_mib=7278, goals=[speed(), memory()]),
        Row("bf16-8-2", "bf16 full_shard, 8 × 1", bf16 + full_shard, gpus=2, batch=(8, 1), steps=140,
            goals=[Goal("of 2 × one GPU", scaling, unit="%")]),
    ]
    for row in rows:
        if row.data == "xquad" and not with_dataset:
            row.problem = "no --dataset given"
    return rows


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.deadline = time.monotonic() + args.budget
        self.data = {"dense": folder / "dense.jsonl", "prompts": folder / "prompts.jsonl", "xquad": args.dataset}
        source = random.Random(7)
        words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(3, 9))) for _ in range(20000)]
        texts = [" ".join(source.choices(words, k=700)) for _ in range(640)]
        self.data["dense"].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        self.data["prompts"].write_text("".join(
            json.dumps({"id": str(i), "context": text, "question": "Which word is the first one?",
                        "answers": {"text": [text.split()[0]], "answer_start": [0]}}) + "\n"
            for i, text in enumerate(texts[:256])))
        layers, width, vocabulary = SHAPES["tiny"]
        (folder / "config.json").write_text(json.dumps(
            {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "vocab_size": vocabulary, "hidden_size": width,
             "n_layer": layers, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}))

    def command(self, row):
        model = str(self.folder / "config.json") if row.model == "tiny" else row.model
        command = [str(self.args.tessera), "eval" if row.kind == "eval" else "train", "--model", model, "--init", "random",
                   "--tokenizer", str(ROOT / "recipes/quickstart/model"),
                   "--eval-dataset" if row.kind == "eval" else "--dataset", str(self.data[row.data]),
                   "--max-length", str(TOKENS), "--device", self.args.device, "--json", *row.options]
        if row.kind == "eval":
            return command + ["--eval-generation", "--eval-size", str(self.args.prompts), "--eval-batch-size", "256",
                              "--max-new-tokens", str(self.args.new_tokens)]
        command += [*TRAIN, *(DENSE if row.data == "dense" else []), "--output-dir", str(self.folder / "out"),
                    "--batch-size", str(row.batch[0]), "--grad-accum", str(row.batch[1]),
                    "--logging-steps", str(row.warm_steps),
                    # The script stops an endless run long before this step, at which the run would save its model.
                    "--max-steps", str(row.steps if row.kind == "train" else 1000 * row.steps)]
        return command + (["--nproc", str(row.gpus)] if row.gpus > 1 else [])

    def logged(self):
        """Returns the steps that the run has logged so far, as [(step, seconds since the training began)]."""
        try:
            lines = (self.folder / "out" / "metrics.jsonl").read_text().splitlines()
            records = [json.loads(line) for line in lines]
        except (OSError, ValueError):  # no file yet, or half a line
            return []
        return [(r["step"], r["timing"]["runtime_s"]) for r in records if r["kind"] == "train"]

    def measure(self, row):
        """Runs the row once. Returns the measured values: {"rate", "mib", "mhz", ...}."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        if row.kind == "endless":
            return self.rate_of(row, self.logged_of_endless(row)) | {"gib": self.most_mib / 1024 if self.most_mib else None}
        done = subprocess.run(self.command(row), capture_output=True, text=True, timeout=self.left_s())
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        summary = json.loads(done.stdout)
        if row.kind == "eval":
            return {"rate": self.args.prompts / summary["answers_runtime"]}
        gpu = summary.get("gpu", {})
        peaks = summary["ledger_peak_bytes"]
        run = {"mib": (peaks["total"] - peaks["context"]) / 2**20,  # the peers' values come from their
                                                                    # allocators, without the CUDA context
               "all_mib": peaks["total"] / 2**20, "loss": summary["train_loss"],
               "mhz": gpu.get("sm_clock_mhz", {}).get("mean"), "watt": gpu.get("power_w", {}).get("mean"),
               "busy": gpu.get("utilization_percent", {}).get("mean"),
               "process_mib": gpu.get("process_memory_bytes", {}).get("peak", 0) / 2**20 or None}
        return self.rate_of(row, self.logged()) | run

    @staticmethod
    def rate_of(row, logged):
        times = dict(logged)
        first, last = row.warm_steps, max(times)
        return {"rate": (last - first) * row.samples_per_step / (times[last] - times[first])}

    def logged_of_endless(self, row):
        process = subprocess.Popen(self.command(row), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.most_mib = 0
        try:
            while process.poll() is None:
                if self.left_s() <= 1:
                    raise RuntimeError("no time left")
                self.most_mib = max(self.most_mib, used_mib())
                logged = self.logged()
                if logged and logged[-1][0] >= row.steps:
                    return logged
                time.sleep(0.5)
            raise RuntimeError(f"exit code {process.returncode}: {process.stderr.read().strip()[-300:]}")
        finally:
            process.kill()
            process.wait()

    def left_s(self):
        return max(1.0, self.deadline - time.monotonic())

    def run(self, row, turn):
        if row.problem:
            return
        if self.left_s() < row.estimate_s:
            row.problem = "" if row.runs else f"the budget of {self.args.budget:g} s was used up"
            return
        begin = time.monotonic()
        try:
            run = self.measure(row)
            if "--pin-memory" in row.options and not row.runs:
                run["rates"] = measured_rates(self.args.tessera)
            row.runs.append(run)
            result = f"{run['rate']:.4g} samples/s"
        except subprocess.TimeoutExpired:
            row.problem = result = "did not end within the remaining time"
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            row.problem = result = str(error).replace("|", "/")
        row.estimate_s = 1.1 * (time.monotonic() - begin)
        print(f"[{self.left_s():5.0f} s left] {row.gpus} × {row.job}, run {turn + 1}: {result}", file=sys.stderr)


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def visible_gpus():
    """Returns the GPUs that a program sees, as arguments of nvidia-smi -i."""
    all_gpus = [str(i) for i, line in enumerate(output_of("nvidia-smi", "-L").splitlines()) if line.startswith("GPU")]
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return all_gpus if named is None else [gpu.strip() for gpu in named.split(",") if gpu.strip()][:len(all_gpus)]


def used_mib():
    used = output_of("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i",
                     ",".join(visible_gpus()[:1]))
    return float(used) if used.strip().isdigit() else 0


def clocks():
    """Returns the first GPU's clocks and power from `nvidia-smi -q`, as lines."""
    lines, section = [], ""
    for line in output_of("nvidia-smi", "-q", "-i", ",".join(visible_gpus()[:1]), "-d", "CLOCK,POWER").splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon and key:
            section = key
        elif key in ("SM", "Memory", "Current Power Limit", "Power Limit") and value not in ("N/A", ""):
            lines.append(f"{section}: {key} {value}")
    return lines


def measured_rates(tessera):
    """Returns speeds in bytes per second: "to_host" and "to_gpu" of copies with pinned memory, and "adamw" of AdamW on
    the CPU without other work. A separate process measures the copies. Returns None if the folder of the program
    `tessera` has no ops_bench, or if a measurement failed."""
    out = output_of(sys.executable, __file__, "--measure-copies")
    for line in output_of(str(Path(tessera).with_name("ops_bench")), "adamw").splitlines():
        if out and line.startswith("adamw, bf16 "):
            return json.loads(out) | {"adamw": 1e9 * float(line.split()[-2])}  # the median
    return None


def measure_copies():
    cuda = ctypes.CDLL("libcuda.so.1")
    size, times = 1 << 28, 5
    context, host, gpu = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
                   cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(size), 0),
                   cuda.cuMemAlloc_v2(ctypes.byref(gpu), ctypes.c_size_t(size))):
        if result:
            sys.exit(f"CUDA driver error {result}")

    def rate(copy):
        copy()
        begin = time.perf_counter()
        for _ in range(times):
            copy()
        return times * size / (time.perf_counter() - begin)

    to_host = rate(lambda: cuda.cuMemcpyDtoH_v2(host, gpu, ctypes.c_size_t(size)))
    to_gpu = rate(lambda: cuda.cuMemcpyHtoD_v2(gpu, host, ctypes.c_size_t(size)))
    print(json.dumps({"to_host": to_host, "to_gpu": to_gpu}))


def number(value, digits=4):
    return "" if value is None else f"{value:.{digits}g}"


def mfu(row):
    if row.data != "dense" or row.median("rate") is None:
        return ""
    layers, width, vocabulary = SHAPES[row.model]
    flops = (6 * (12 * layers * width**2 + vocabulary * width) + 12 * layers * width * TOKENS) * TOKENS
    return f"{100 * row.median('rate') / row.gpus * flops / PEAK_TFLOPS / 1e12:.1f} %"


def print_table(rows, facts):
    by_key = {row.key: row for row in rows}
    print("| job | GPUs | samples/s | runs | MFU | peer | peer samples/s | ledger MiB | peer MiB | SM MHz | W | outcome |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        rates = [run["rate"] for run in row.runs]
        spread = f"{number(statistics.median(rates))} ({number(min(rates))} … {number(max(rates))})" if rates else ""
        values = [(goal, goal.value(row, by_key)) for goal in row.goals]
        outcome = [goal.text(value) for goal, value in values if value is not None]
        floor = floor_s(row, by_key) if any(goal.value is over_floor for goal in row.goals) else None
        if any(goal.value is over_floor for goal in row.goals) and row.runs and not row.runs[0].get("rates"):
            outcome.append("no lower bound: the program's folder has no ops_bench, or it failed")
        if floor:
            outcome.append("lower bounds: " + ", ".join(f"{what} {1000 * seconds:.0f} ms"
                                                         for what, seconds in floor.items()))
        if row.median("process_mib"):
            outcome.append(f"ledger with context {row.median('all_mib'):.0f} MiB, NVML {row.median('process_mib'):.0f}")
        if row.problem:
            outcome.append(f"not run: {row.problem}" if not row.runs else row.problem)
        cells = [row.job, row.gpus, spread, len(rates), mfu(row), row.peer, number(row.peer_rate), number(row.median("mib"), 5),
                 number(row.peer_mib, 5), number(row.median("mhz")), number(row.median("watt")), "; ".join(outcome)]
        print("| " + " | ".join(str(cell) for cell in cells) + " |")
    print("\nsamples/s: median (least … greatest) of the runs, for all GPUs together. MFU is relative to "
          f"{PEAK_TFLOPS} TFLOP/s per GPU. Clock and power: the mean of NVML's samples over a run, for the rank with the "
          "highest mean.")
    for fact in facts:
        print(f"\n{fact}")


def try_out(args, rows):
    """Reduces the rows to work that any CPU does in seconds. Returns the maximum number of ranks on the CPU: each rank
    takes the place of a GPU.
    """
    args.device, args.prompts, args.new_tokens = "cpu", 4, 2
    for row in rows:
        row.model, row.warm_steps, row.steps, row.estimate_s = "tiny", 1, 2, 3
        row.batch, row.options = (1, row.batch[1]), [one for one in row.options if one != "--pin-memory"]
    return 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", type=Path, default=ROOT / "build" / "tessera")
    parser.add_argument("--dataset", type=Path, help="XQuAD English (xquad.en.json)")
    parser.add_argument("--budget", type=float, default=440, metavar="SECONDS",
                        help="start a run only if its expected end is within this time from the start of the script")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD[,WORD]",
                        help="run only rows whose keys contain one of the words: fp16, bf16-8, zero, …")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write all runs to this file as JSON")
    parser.add_argument("--try-out", action="store_true", help="test this script with a tiny model on the CPU")
    parser.add_argument("--measure-copies", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(device="cuda", prompts=256, new_tokens=50)
    return parser.parse_args()


def main():
    args = arguments()
    if args.measure_copies:
        return measure_copies()
    rows = [row for row in all_rows(args.dataset) if any(word in row.key for word in args.only.split(","))]
    names = [line for line in output_of("nvidia-smi", "-L").splitlines() if line.startswith("GPU")]
    num_gpus = try_out(args, rows) if args.try_out else len(visible_gpus())
    if num_gpus == 0:
        sys.exit("error: nvidia-smi lists no GPU. To test the script on the CPU, give --try-out")
    for row in rows:
        if row.gpus > num_gpus:
            row.problem = f"needs {row.gpus} GPUs, {num_gpus} found"
    shm = Path("/dev/shm")
    in_memory = shm.is_dir() and shutil.disk_usage(shm).free > 4 << 30
    facts = [f"GPUs: {'; '.join(names) or 'none'}", "Before: " + "; ".join(clocks())]
    with tempfile.TemporaryDirectory(prefix="gpu-table-", dir=shm if in_memory else None) as folder:
        bench = Bench(args, Path(folder))
        for turn in range(args.repeat):
            for row in rows:
                if turn == 0 or row.kind != "endless":
                    bench.run(row, turn)
    cuda = json.loads(output_of(args.tessera, "doctor", "--json") or "{}").get("cuda", {})
    facts += ["After: " + "; ".join(clocks()),
              "Libraries: " + ", ".join(f"{name} {cuda.get(name)}" for name in ("driver", "cuda", "nccl", "cublaslt"))]
    if args.try_out:
        facts.append("The values above only test this script, with a tiny model on the CPU. They are not measurements.")
    print_table(rows, facts)
    if args.results:
        args.results.write_text(json.dumps({row.key: row.runs or row.problem for row in rows}, indent=1))


if __name__ == "__main__":
    main()
