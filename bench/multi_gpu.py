#!/usr/bin/env python3
"""Compares Tessera's full_shard with a PyTorch FSDP2 script on all GPUs of a machine. Build Tessera with CUDA and NCCL first.

  bench/multi_gpu.py OUT.json [--tessera build/tessera] [--peer llama_fsdp2.py] [--only WORD[,WORD]] [--budget 480]

Weights are random. The data are random words from a fixed seed, and every token has a loss. The rates do not count the
warm-up steps. A row runs on all GPUs, except the rows of the weak scaling, which run on 1, 2, 4, … GPUs. OUT.json gets
tokens/s per GPU, MFU, and the peak of each rank in MiB: Tessera's ledger without the CUDA context, and the peak of
PyTorch's allocator. The row "nettest" checks and measures NCCL's collectives with `tessera nettest`. The rows "zero",
"bloom" and "custom" are the workshop's recipes for 2, 4 and 8 GPUs, for 24 steps with the questions of the quickstart.
They get samples/s of all GPUs. Some rows run only if --only names them.

--peer names a script that torchrun starts with the arguments SIZE BATCH LENGTH STEPS WARM, and "ckpt" if blocks are
checkpointed. It prints a line "PEER {json}" with tokens_s_gpu and peak_MiB. Without --peer, only Tessera runs.
"""
import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

from llama_table import FP8, PEAK_TFLOPS, ROOT, Bench, flops_per_token, peer_line
from workshop import short_run

CHECKPOINTED, BF16_STATES = ["--activation-checkpointing", "block"], ["--optimizer-states", "bf16"]


class Row:
    """A training job on `gpus` GPUs (0: all). A rank's step has `batch` samples of `length` tokens. `steps` include the
    `warm` steps. With `peer`, the peer runs too."""

    def __init__(self, model, batch, length, warm, steps, options=(), gpus=0, peer=True):
        self.model, self.batch, self.length, self.warm, self.steps = model, batch, length, warm, steps
        self.options, self.gpus, self.peer = list(options), gpus, peer


ROWS = {
    "1b-2048": Row("llama-3.2-1b", 8, 2048, 5, 15),
    "3b-2048": Row("llama-3.2-3b", 4, 2048, 4, 12),
    "8b-4096-checkpointed": Row("llama-3.1-8b", 2, 4096, 3, 9, CHECKPOINTED),
    "8b-4096": Row("llama-3.1-8b", 2, 4096, 3, 9),
    "8b-4096-bf16-states": Row("llama-3.1-8b", 2, 4096, 3, 9, BF16_STATES, peer=False),
    "8b-4096-fp8": Row("llama-3.1-8b", 2, 4096, 3, 9, FP8, peer=False),
    "8b-4096-fp8-gathered": Row("llama-3.1-8b", 2, 4096, 3, 9, [*FP8, "--gather-dtype", "fp8"], peer=False),
    "8b-8192-checkpointed": Row("llama-3.1-8b", 1, 8192, 3, 9, CHECKPOINTED),
    "8b-8192": Row("llama-3.1-8b", 1, 8192, 3, 9),
    **{f"weak-3b-on-{gpus}": Row("llama-3.2-3b", 2, 2048, 4, 12, gpus=gpus, peer=False) for gpus in (1, 2, 4, 8)},
}
ONLY_ON_REQUEST = ["1b-2048", "3b-2048", "8b-4096-bf16-states", "8b-4096-fp8", "8b-4096-fp8-gathered"]
NETTEST = "nettest"
WORKSHOP = {f"{row}-on-{gpus}": (f"{folder}/{gpus}_gpus", gpus)
            for row, folder in [("zero", "deepspeed/deepspeed-multi-gpu"), ("bloom", "fsdp/bloom/multi_gpu"),
                                ("custom", "fsdp/custom_model/multi_gpu")] for gpus in (2, 4, 8)}


class MultiGpuBench(Bench):
    def __init__(self, args, folder, gpus):
        super().__init__(args, folder)
        self.gpus = gpus

    def ours(self, name):
        row = ROWS[name]
        gpus, out = row.gpus or self.gpus, self.folder / "out"
        ranks = ["--nproc", str(gpus), "--strategy", "full_shard"] if gpus > 1 else []
        summary = json.loads(self.run(
            [self.args.tessera, "train", "--model", self.model(row.model), "--init", "random", "--tokenizer",
             str(ROOT / "recipes/quickstart/model"), "--dataset", str(self.folder / "texts.jsonl"), "--objective", "causal_lm",
             "--long-texts", "truncate", "--max-length", str(row.length), "--batch-size", str(row.batch), "--grad-accum", "1",
             "--precision", "bf16", "--max-steps", str(row.steps), "--epochs", "1000", "--logging-steps", str(row.warm), "--lr",
             "1e-5", "--save-strategy", "no", "--eval-strategy", "no", "--save-dtype", "bf16", "--resume", "none", "--overwrite",
             "--device", "cuda", "--output-dir", str(out), "--json", *ranks, *row.options]))
        times, peaks = self.steps(out), summary["ledger_peak_bytes"]
        last = max(times)
        rate = (last - row.warm) * row.batch * row.length / (times[last] - times[row.warm])
        return self.result(row, gpus, rate, round((peaks["total"] - peaks["context"]) / 2**20))

    def theirs(self, name):
        row = ROWS[name]
        if not self.args.peer or not row.peer:
            return None
        found = peer_line(self.run(["torchrun", "--nproc-per-node", str(self.gpus), self.args.peer, row.model[-2:],
                                    str(row.batch), str(row.length), str(row.steps), str(row.warm),
                                    *(["ckpt"] if row.options == CHECKPOINTED else [])]))
        return self.result(row, self.gpus, found["tokens_s_gpu"], found["peak_MiB"])

    @staticmethod
    def result(row, gpus, rate, mib):
        return {"gpus": gpus, "tokens_s_gpu": round(rate), "mib": mib,
                "mfu": round(rate * flops_per_token(row.model, row.length) / PEAK_TFLOPS / 1e10, 1)}

    def nettest(self, _):
        found = json.loads(self.run([self.args.tessera, "nettest", "--nproc", str(self.gpus), "--device", "cuda", "--collective",
                                     "all_gather,reduce_scatter,all_reduce", "--sizes", "2MiB,25MiB,256MiB,1GiB", "--json"]))
        return found

    def workshop(self, name):
        recipe, gpus = WORKSHOP[name]
        args = argparse.Namespace(program=self.args.tessera, runs=self.folder, data=ROOT / "recipes/quickstart/train.json")
        summary = short_run(args, recipe, limit_s=max(5, self.deadline - time.monotonic()))
        peaks = summary["ledger_peak_bytes"]
        return {"gpus": gpus, "samples_s": round(summary["train_samples_per_second_steady"], 1),
                "mib": round((peaks["total"] - peaks["context"]) / 2**20)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--peer")
    parser.add_argument("--only", default="", help="the rows to run, separated by commas")
    parser.add_argument("--budget", type=float, default=480, help="time for all rows in seconds")
    args = parser.parse_args()
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    gpus = len(listed.splitlines())
    known = [NETTEST, *ROWS, *WORKSHOP]
    needed = {**{name: row.gpus for name, row in ROWS.items()}, **{name: on for name, (_, on) in WORKSHOP.items()}}
    names = args.only.split(",") if args.only else [name for name in known if name not in ONLY_ON_REQUEST]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown rows {unknown}; known: {known}")
    results = {"gpus": listed.splitlines()[0].split(" (")[0], "count": gpus, "rows": {}}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        bench = MultiGpuBench(args, Path(folder), gpus)
        for name in names:
            if needed.get(name, 0) > gpus or (gpus == 1 and name.endswith("-gathered")):
                continue
            if not args.only and name in WORKSHOP and needed[name] < gpus // 2:
                continue
            sides = [("ours", bench.nettest)] if name == NETTEST else [("ours", bench.workshop)] if name in WORKSHOP else \
                [("ours", bench.ours), ("peer", bench.theirs)]
            for side, measure in sides:
                begin = time.monotonic()
                try:
                    found = measure(name)
                except (RuntimeError, SystemExit, OSError, ValueError, KeyError, StopIteration, subprocess.TimeoutExpired) as error:
                    found = {"problem": str(error)[-300:]}
                if found:
                    results["rows"].setdefault(name, {})[side] = found
                    print(f"{name} {side} [{time.monotonic() - begin:.0f} s]: {json.dumps(found)[:300]}", flush=True)
                    args.out.write_text(json.dumps(results, indent=1) + "\n")
    for name, sides in results["rows"].items():
        ours, theirs = (sides.get(side, {}).get("tokens_s_gpu") for side in ("ours", "peer"))
        if ours and theirs:
            print(f"{name}: Tessera {ours}, peer {theirs} tokens/s per GPU, {ours / theirs:.2f} x")


if __name__ == "__main__":
    main()
