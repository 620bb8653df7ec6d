#!/usr/bin/env python3
"""Compares sharding strategies: speed, bytes sent, planned and measured memory.

  bench/strategies.py [--tessera build/tessera] [--dataset FILE] [--model 12x512|bloom-560m] [--nproc 2] [--steps 8]
                      [--repeat 3] [--batch-size 8] [--grad-accum 2] [--strategies no_shard full_shard …]
                      [--words "--objective causal_lm …"]

Each of --repeat repetitions runs the baseline once (one rank on all cores), and each strategy once (--nproc ranks). For
the baseline and each strategy, the output shows the median of the speeds. It also shows the median, minimum and maximum
of the ratios. A ratio is the speed of a run, divided by the speed of the baseline in the same repetition. The remaining
columns are values of the first repetition:

  sent MB/step  bytes that the first rank has sent, divided by the number of steps
  plan MB       the plan's prediction of the bytes that the first rank sends in a step
  planned MiB   the plan's prediction of the first rank's peak memory, device and host together
  ledger MiB    the first rank's peak memory according to its ledgers
  resident MiB  the highest resident memory of any rank
  loss          the mean training loss of all steps

All runs have the same global batch: --batch-size samples x --grad-accum micro-batches. Weights are random. The
tokenizer is the quickstart's.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STRATEGIES = ["no_shard", "zero1", "zero2", "shard_grad_op", "full_shard"]
SHAPE = {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "vocab_size": 32000, "hidden_size": 512,
         "n_layer": 12, "n_head": 8, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "hidden_dropout": 0.0,
         "attention_dropout": 0.0, "apply_residual_connection_post_layernorm": False, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 3, "unk_token_id": 0, "torch_dtype": "float32"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=ROOT / "build" / "tessera")
    parser.add_argument("--dataset", default=ROOT / "recipes" / "quickstart" / "train.json")
    parser.add_argument("--model", default="12x512")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8, help="samples per micro-batch on all ranks together")
    parser.add_argument("--grad-accum", type=int, default=2)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--words", default="", help="more arguments for tessera train, in one string")
    return parser.parse_args()


def run(args, model, folder, nproc, strategy):
    command = [args.tessera, "train", "--model", model, "--init", "random", "--tokenizer",
               ROOT / "recipes" / "quickstart" / "model", "--dataset", args.dataset, "--output-dir", folder / "out",
               "--resume", "none", "--overwrite", "--save-strategy", "no", "--eval-strategy", "no", "--logging-steps", "0", "--json",
               "--max-steps", args.steps, "--batch-size", args.batch_size // nproc, "--grad-accum", args.grad_accum,
               "--strategy", strategy, "--precision", "fp32", *args.words.split()]
    if nproc > 1:
        command += ["--nproc", nproc]
    return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)


def rate_of(summary):
    return summary["train_samples_per_second_steady"]


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = args.model
        if model == "12x512":
            (folder / "config.json").write_text(json.dumps(SHAPE))
            model = folder / "config.json"
        turns = {}
        for _ in range(args.repeat):
            for nproc, strategy in [(1, "no_shard")] + [(args.nproc, s) for s in args.strategies]:
                summary = run(args, model, folder, nproc, strategy)
                turns.setdefault((nproc, strategy), []).append(summary)
                print(f"{nproc} x {strategy}: {rate_of(summary):.3f} samples/s", file=sys.stderr, flush=True)
        print(f"{'ranks x strategy':24} {'samples/s':>9} {'ratio':>6} {'min':>6} {'max':>6} "
              f"{'sent MB/step':>13} {'plan MB':>9} {'planned MiB':>12} {'ledger MiB':>11} {'resident MiB':>13}  loss")
        for (nproc, strategy), summaries in turns.items():
            rate = statistics.median(map(rate_of, summaries))
            ratios = [rate_of(s) / rate_of(base) for s, base in zip(summaries, turns[1, "no_shard"])]
            s = summaries[0]
            sent = s["bytes_sent"] / s["steps"] / 1e6
            ledger = s["ledger_peak_bytes"]["total"] + s["host_ledger_peak_bytes"]["total"]
            print(f"{nproc} x {strategy:20} {rate:9.3f} {statistics.median(ratios):6.2f} {min(ratios):6.2f} "
                  f"{max(ratios):6.2f} {sent:13.1f} {s['planned_step_bytes_sent'] / 1e6:9.1f} {s['planned_peak_bytes'] / 2**20:12.1f} "
                  f"{ledger / 2**20:11.1f} {s['peak_memory_bytes'] / 2**20:13.1f}  {s['train_loss']:.6f}")


if __name__ == "__main__":
    main()
