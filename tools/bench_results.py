"""Reads bench/results/*.json for the scripts that make tables and pictures from these files."""
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
MISSING = "not recorded"
MIB_PER_GIB = 1024


def load(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def middle(value):
    """Returns the median if the value is an object with several runs. Otherwise returns the value itself."""
    return value["median"] if isinstance(value, dict) else value


def short(value):
    """Returns the text of a number: without decimals if it is at least 100, otherwise with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def row_of(result, name, gpus=None):
    found = [row for row in result["rows"] if row["name"] == name and row["values"].get("gpus") == gpus]
    if len(found) != 1:
        raise SystemExit(f"error: {result['title']}: {len(found)} rows, not 1, have the name {name!r} and {gpus} GPUs")
    return found[0]


def fact(result, row, key):
    """Returns the machine or the commit (`key`) of a row. If the row has none, returns the value of the file."""
    return row.get(key) or result[key]


class Comparison:
    """Tessera and a peer in one job. `speed` and `memory` (peak of a rank, in GiB) are pairs: Tessera's value and the
    peer's value. If `ratio` is None, it is computed from `speed`."""

    def __init__(self, job, hardware, peer, speed, memory, ratio, machine, commits):
        self.job, self.hardware, self.peer, self.machine, self.commits = job, hardware, peer, machine, commits
        self.speed, self.memory = speed, memory
        self.speed_ratio = ratio or speed[0] / speed[1]
        self.memory_ratio = memory[0] / memory[1]


def of_gpus(count):
    return f"{count} GPUs" if count > 1 else "1 GPU"


def gpu_memory(values):
    return tuple(values[key] / MIB_PER_GIB for key in ("mib", "peer_mib"))


def cpu_comparison(job, name):
    result = load("cpu-trainer.json")
    row = row_of(result, name)
    values = row["values"]
    speed = middle(values["tessera"]), middle(values["trainer"])
    return Comparison(job, "2 CPU cores", "Trainer", speed, (values["tessera_peak"], values["trainer_peak"]),
                      values.get("speed"), fact(result, row, "machine"), [fact(result, row, "commit")])


def gpu_comparison(job, name, gpus):
    speeds, memories = load("gpu-speed.json"), load("gpu-memory.json")
    row, other = row_of(speeds, name, gpus), row_of(memories, name, gpus)
    commits = list(dict.fromkeys([fact(speeds, row, "commit"), fact(memories, other, "commit")]))
    values = row["values"]
    return Comparison(job, of_gpus(gpus), values["peer"], (middle(values["rate"]), values["peer_rate"]),
                      gpu_memory(other["values"]), None, fact(speeds, row, "machine"), commits)


def strongest_peers():
    """Returns the comparisons with compiled PyTorch, FSDP2 and LLM.Q, in tokens/s per GPU."""
    found = []
    for file in ("gpu-llama.json", "gpu-native.json", "gpu-multi.json"):
        result = load(file)
        for row in result["rows"]:
            values = row["values"]
            if not values["peer"] or "eager" in values["stack"]:
                continue
            found.append(Comparison(row["name"], of_gpus(values.get("gpus", 1)), values["stack"],
                                    (values["rate"], values["peer"]), gpu_memory(values), None,
                                    fact(result, row, "machine"), [fact(result, row, "commit")]))
    return found


def comparisons_of_bloom():
    """Returns the comparisons with the shape of bloom-560m, in samples/s of all ranks."""
    return [
        gpu_comparison("texts, bf16, 16 × 1", "bf16, 16 × 1", 1),
        gpu_comparison("texts, bf16 full_shard, 8 × 1", "bf16 full_shard, 8 × 1", 4),
        gpu_comparison("texts, fp16, 1 × 4", "fp16, 1 × 4", 1),
        gpu_comparison("questions (XQuAD), fp16, 1 × 4", "XQuAD English, completion, fp16, 1 × 4", 1),
        gpu_comparison("texts, fp16 full_shard, 1 × 4", "fp16 full_shard, 1 × 4", 2),
        gpu_comparison("texts, fp16 full_shard, 1 × 4", "fp16 full_shard, 1 × 4", 4),
        cpu_comparison("questions (XQuAD), fp32", "XQuAD English, completion, bloom-560m shape"),
    ]
