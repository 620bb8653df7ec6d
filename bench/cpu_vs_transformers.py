#!/usr/bin/env python3
"""Compares Tessera with the Hugging Face Trainer on the same cores, model, tokenizer and rows. See bench/README.md.

    bench/cpu_vs_transformers.py --dataset xquad.en.json [--tokenizer-data xquad.es.json ...] [--jobs completion dense]

A side is Tessera, or the Trainer with one kind of padding. Each repetition runs every side once. The table shows
medians over the repetitions; the loss is from the last repetition. The table goes to standard output, all values to the
file of --result, and progress to standard error.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LENGTH = 512
GIB = 2**30


@dataclass(frozen=True)
class Job:
    model: str
    rows: str  # the kind of rows that hf_prepare.py makes: completion or dense
    objective: str
    steps: int


# The config.json of each model, as transformers reads it.
MODELS = {
    "bloom-12x512": {"model_type": "bloom", "vocab_size": 32_768, "hidden_size": 512, "n_layer": 12, "n_head": 8},
    "bloom-560m": {"model_type": "bloom", "vocab_size": 250_880, "hidden_size": 1024, "n_layer": 24, "n_head": 16},
    "llama-12x512": {"model_type": "llama", "vocab_size": 32_768, "hidden_size": 512, "num_hidden_layers": 12,
                     "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408,
                     "tie_word_embeddings": True},
    "qwen2-0.5b": {"model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 896, "num_hidden_layers": 24,
                   "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
                   "tie_word_embeddings": True},
}
JOBS = {
    "completion": Job("bloom-12x512", "completion", "completion", 4),
    "completion-560m": Job("bloom-560m", "completion", "completion", 2),
    "dense": Job("bloom-12x512", "dense", "causal_lm", 3),
    "completion-llama": Job("llama-12x512", "completion", "completion", 4),
    "completion-qwen2": Job("qwen2-0.5b", "completion", "completion", 2),
    "dense-llama": Job("llama-12x512", "dense", "causal_lm", 3),
}


@dataclass
class Run:
    samples_per_s: float
    peak_rss_bytes: int
    wall_s: float
    cpu_s: float
    loss: float


def log(text):
    print(text, file=sys.stderr, flush=True)


def make_environment(folder):
    """Returns the interpreter of a virtual environment with the pinned libraries. Creates the environment if needed."""
    python, complete = folder / "bin/python", folder / "complete"
    requirements = ROOT / "tools/requirements-bench.txt"
    if not complete.exists():
        log(f"making {folder} (torch and transformers, several GB)")
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        complete.touch()
    return python


def memory_kib(path, key):
    """Returns a field of /proc/meminfo or /proc/PID/status in KiB. Returns 0 if the process has ended."""
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def run_measured(command, threads, limit_bytes, log_path):
    """Runs a command on the first `threads` cores. Returns its peak resident bytes, wall seconds and CPU seconds.

    Raises RuntimeError if the command fails. If the command uses more memory than the limit, or the machine has less
    than 1 GiB available, stops the command and raises MemoryError, because Linux might otherwise kill another process.
    """
    cores = sorted(os.sched_getaffinity(0))[:threads]
    environment = os.environ | {name: str(threads) for name in
                                ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    start = time.perf_counter()
    with open(log_path, "w") as output:
        process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=subprocess.STDOUT,
                                   env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    stopped = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        too_large = memory_kib(f"/proc/{process.pid}/status", "VmRSS") * 1024 > limit_bytes
        if not stopped and (too_large or memory_kib("/proc/meminfo", "MemAvailable") < 2**20):
            stopped = True
            process.kill()
        time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if stopped:
        raise MemoryError(f"stopped at {usage.ru_maxrss / 2**20:.1f} GiB resident")
    if process.returncode:
        tail = "\n".join(Path(log_path).read_text().splitlines()[-15:])
        raise RuntimeError(f"exit code {process.returncode} at {usage.ru_maxrss / 2**20:.1f} GiB resident: "
                           f"{' '.join(map(str, command))}\n{tail}")
    return usage.ru_maxrss * 1024, time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def side_command(side, python, arguments, job, steps, output_dir):
    """Returns the command that runs a side. `side`: tessera, trainer-max_length or trainer-longest."""
    data = arguments.work / f"{job.rows}-{sample_count(arguments, steps)}.jsonl"
    common = ["--model", arguments.work / job.model, "--dataset", data, "--objective", job.objective,
              "--batch-size", arguments.batch_size, "--grad-accum", arguments.grad_accum, "--max-steps", steps,
              "--max-length", MAX_LENGTH, "--threads", arguments.threads, "--output-dir", output_dir]
    if side == "tessera":
        return [arguments.tessera, "train", *common, "--device", "cpu", "--precision", "fp32", "--truncation", "right",
                "--lr", "5e-5", "--weight-decay", "0.01", "--eval-strategy", "no", "--save-strategy", "no",
                "--logging-steps", 1, "--progress", "off"]
    return [python, ROOT / "bench/hf_train.py", *common, "--padding", side.removeprefix("trainer-")]


def sample_count(arguments, steps):
    return steps * arguments.batch_size * arguments.grad_accum


def measure(side, python, arguments, name, job, steps, repetition):
    log_path = arguments.work / f"{name}-{side}-{repetition}.log"
    with tempfile.TemporaryDirectory(prefix="output-", dir=arguments.work) as folder:
        output_dir = Path(folder, "run")
        command = side_command(side, python, arguments, job, steps, output_dir)
        peak, wall, cpu = run_measured(command, arguments.threads, arguments.memory_limit_gib * GIB, log_path)
        summary = json.loads((output_dir / "summary.json").read_text())
    run = Run(summary["train_samples_per_second_steady"], peak, wall, cpu, summary["train_loss"])
    log(f"  {side} #{repetition + 1}: {run.samples_per_s:.3f} samples/s, peak {peak / GIB:.2f} GiB, {wall:.0f} s, "
        f"{cpu / wall:.1f} cores busy")
    return run


def run_job(name, python, arguments):
    """Returns {side: [Run, ...]}. Leaves out a side that fails or needs too much memory, and logs the reason."""
    job = JOBS[name]
    steps = arguments.steps or job.steps
    log(f"{name}: {steps} steps of {arguments.batch_size} x {arguments.grad_accum} samples")
    subprocess.run([python, ROOT / "bench/hf_prepare.py", "--folder", arguments.work, "--datasets", arguments.dataset,
                    *arguments.tokenizer_data, "--model-name", job.model, "--config", json.dumps(MODELS[job.model]),
                    "--rows", job.rows, "--count", str(sample_count(arguments, steps))], check=True)
    runs = {side: [] for side in arguments.sides}
    for repetition in range(arguments.repetitions):
        for side in arguments.sides[::-1] if repetition % 2 else arguments.sides:
            if runs[side] is None:
                continue
            try:
                runs[side].append(measure(side, python, arguments, name, job, steps, repetition))
            except (MemoryError, RuntimeError) as error:
                log(f"  {side}: {error}")
                runs[side] = None
    return {side: list_of_runs for side, list_of_runs in runs.items() if list_of_runs}


def summarize(runs):
    return {side: {"samples_per_s": statistics.median(r.samples_per_s for r in of_side),
                   "peak_rss_bytes": int(statistics.median(r.peak_rss_bytes for r in of_side)),
                   "wall_s": statistics.median(r.wall_s for r in of_side),
                   "cores_busy": statistics.median(r.cpu_s / r.wall_s for r in of_side), "loss": of_side[-1].loss,
                   "runs": [vars(r) for r in of_side]} for side, of_side in runs.items()}


def print_table(results):
    print("| job | side | samples/s | Tessera ÷ side | peak RSS GiB | Tessera ÷ side | wall s | cores busy | loss |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, sides in results.items():
        ours = sides.get("tessera")
        for side, s in sides.items():
            faster = f"{ours['samples_per_s'] / s['samples_per_s']:.2f}" if ours else ""
            smaller = f"{ours['peak_rss_bytes'] / s['peak_rss_bytes']:.2f}" if ours else ""
            print(f"| {name} | {side} | {s['samples_per_s']:.3f} | {faster} | {s['peak_rss_bytes'] / GIB:.2f} | "
                  f"{smaller} | {s['wall_s']:.0f} | {s['cores_busy']:.1f} | {s['loss']:.4f} |")


def describe_machine(arguments):
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor())
    pins = [line for name in ("references", "bench")
            for line in (ROOT / f"tools/requirements-{name}.txt").read_text().splitlines() if "==" in line]
    return {"cpu": cpu, "threads": arguments.threads, "python": platform.python_version(), "peer": pins}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, required=True, help="SQuAD v1.1 JSON to train on")
    parser.add_argument("--tokenizer-data", type=Path, nargs="*", default=[],
                        help="more files of this format, only to train the tokenizer")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--steps", type=int,
                        help="number of steps, at least 2, because the first is not timed (default: by job)")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--grad-accum", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-padding", nargs="+", choices=["max_length", "longest"], default=["max_length"])
    parser.add_argument("--only-peer", action="store_true", help="run only the peer, without Tessera")
    parser.add_argument("--memory-limit-gib", type=float,
                        help="stop a run that uses more GiB of memory than this (default: 95%% of the machine's memory)")
    parser.add_argument("--tessera", type=Path, default=ROOT / "build/tessera")
    parser.add_argument("--python", type=Path, help="use this interpreter and its packages instead of .venv-bench")
    parser.add_argument("--work", type=Path, default=ROOT / "runs/bench-cpu", help="folder for models and data")
    parser.add_argument("--result", type=Path, help="write all values to this file as JSON")
    arguments = parser.parse_args()
    arguments.sides = [f"trainer-{padding}" for padding in arguments.peer_padding]
    if not arguments.only_peer:
        if not arguments.tessera.exists():
            parser.error(f"{arguments.tessera} does not exist. Build it, or give --tessera or --only-peer")
        arguments.sides.insert(0, "tessera")
    if not arguments.memory_limit_gib:
        arguments.memory_limit_gib = 0.95 * memory_kib("/proc/meminfo", "MemTotal") / 2**20
    return arguments


def main():
    arguments = parse_arguments()
    python = arguments.python or make_environment(ROOT / ".venv-bench")
    arguments.work.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(arguments)
    results = {name: summarize(run_job(name, python, arguments)) for name in arguments.jobs}
    print(f"{machine['cpu']}, {machine['threads']} threads; {', '.join(machine['peer'])}\n")
    print_table(results)
    if arguments.result:
        arguments.result.write_text(json.dumps({"machine": machine, "jobs": results}, indent=2) + "\n")
    return 0 if all(set(arguments.sides) <= set(sides) for sides in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
