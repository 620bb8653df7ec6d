#!/usr/bin/env python3
"""Runs or plans the workshop's recipes, and writes the results as JSON for tools/make_workshop_tables.py.

  bench/workshop.py small OUT.json --program build/tessera
      runs all 39 experiments with a small model on CPU ranks
  bench/workshop.py gpus OUT.json --program build/tessera --data FILE [--most-ranks 2]
      runs the experiments that need at most --most-ranks GPUs (default: 1), in full size
  bench/workshop.py peers OUT.json --program build/tessera --data FILE --peers FOLDER
      measures speed and memory in the experiments that use one GPU and not the custom model; runs each of them for a
      few steps, first with Tessera and then with the Trainer or DeepSpeed
  bench/workshop.py plan OUT.json --program build/tessera --data FILE
      plans the memory of all 39 experiments in full size; needs no GPU

--only WORD,... chooses the experiments whose names contain one of the words. plan ignores --only. The runs of small and
gpus stay in the folder of --runs (default: runs/workshop). If an experiment has a complete run there, it does not run
again. This script needs only Python's standard library. The Trainer and DeepSpeed need their own packages.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "recipes" / "workshop"
QUICKSTART = ROOT / "recipes" / "quickstart"
SMALL_GPT = ["--hidden-size", "64", "--num-heads", "4", "--ff-dim", "256"]
SMALL_DATA = ["--dataset", QUICKSTART / "train.json", "--eval-dataset", QUICKSTART / "eval.json", "--eval-size", "8",
              "--max-length", "128", "--max-new-tokens", "8", "--threads", "1", "--device", "cpu"]
# The training rows of a run: 64 per rank in the DeepSpeed part, because it measures weak scaling; 128 for all ranks
# together in the FSDP part.
SMALL_ROWS = {"deepspeed": ["--train-size-per-rank", "64"], "fsdp": ["--train-size", "128"]}
# The experiments on one GPU, each with its peer, its ZeRO stage (None: no DeepSpeed) and whether it offloads. The
# experiments with the custom model are missing, because the peers' script hf_trainer.py does not support this model.
STAGE = "deepspeed/deepspeed-single-gpu/"
PEERS = {"deepspeed/baseline": ("Trainer", None, False),
         **{f"{STAGE}zero_{n}": ("DeepSpeed", n, False) for n in range(4)},
         **{f"{STAGE}cpu_offloading/zero_{n}": ("DeepSpeed", n, True) for n in (1, 2, 3)},
         f"{STAGE}cpu_offloading/pinned_memory": ("DeepSpeed", 2, True),
         "fsdp/bloom/baseline": ("Trainer", None, False)}
BLOOM_TOKENS = 250680
FIGURES = ["ranks", "samples_per_second", "steady_samples_per_second", "runtime", "train_loss", "eval_loss", "exact_match", "f1",
           "gpu_peak", "gpu_average", "gpu_utilization", "cpu_peak", "cpu_average", "planned_memory", "booked_memory",
           "resident_memory"]
UNPINNED = f"{STAGE}cpu_offloading/zero_2"


def experiments():
    return sorted(str(path.relative_to(RECIPES))[:-len(".toml")] for path in RECIPES.rglob("*.toml")
                  if path.parent.name != "shared")


def chosen(names, args):
    return [name for name in names if not args.only or any(word in name for word in args.only.split(","))]


def is_custom(name):
    return name.startswith("fsdp/custom_model/")


def padded_tokenizer(folder):
    """Writes the quickstart's tokenizer, with unused tokens added, so that it has as many tokens as BLOOM's.

    The custom model takes the size of its vocabulary from the tokenizer, and then has its full size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_bytes((QUICKSTART / "model" / name).read_bytes())
    tokenizer = json.loads((QUICKSTART / "model" / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    vocab.update({f"<unused-{n}>": n for n in range(len(vocab), BLOOM_TOKENS)})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    return folder


def model_of(name, args):
    """Returns the flags for a run in full size: of bloom-560m with random weights, or of the custom model."""
    flags = ["--tokenizer", padded_tokenizer(args.runs / "tokenizer"), "--dataset", args.data, "--eval-dataset", args.data]
    return flags if is_custom(name) else ["--init", "random", *flags]


def run(words, log=None, limit_s=1800, env=None):
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s, env=env)
    if log:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        Path(log).write_text(done.stdout)
    return done


def train(args, name, flags):
    folder = args.runs / name
    if (folder / "summary.json").exists():
        return True
    words = [args.program, "train", RECIPES / f"{name}.toml", *flags, "--memory-log", f"{folder}/memory:{args.interval}",
             "--output-dir", folder, "--overwrite"]
    done = run(words, log=f"{folder}.log")
    print(f"{name}: exit {done.returncode}", flush=True)
    if done.returncode:
        print(done.stdout[-600:], flush=True)
        return False
    for checkpoint in folder.glob("checkpoint-*"):  # a few GB each
        shutil.rmtree(checkpoint)
    return True


def report(args):
    """Returns the workshop's tables, and the rows of one table with all runs."""
    found = {}
    for name, words in {"tables": ["--tables", "workshop", "--html", args.runs / "report.html"],
                        "runs": ["--rows", "experiment", "--columns", ",".join(FIGURES), "--sort", "experiment"]}.items():
        path = args.runs / f"{name}.json"
        done = run([args.program, "report", args.runs, *words, "--format", "json", "--output", path])
        print(done.stdout[-2000:], flush=True)
        found[name] = json.loads(path.read_text())["tables"]
    return {"tables": found["tables"], "runs": found["runs"][0]["rows"]}


def small(args):
    for name in chosen(experiments(), args):
        flags = [*SMALL_DATA, *SMALL_ROWS[name.split("/")[0]], *(SMALL_GPT if is_custom(name) else [])]
        if is_custom(name):
            flags += ["--tokenizer", QUICKSTART / "model"]
        else:
            flags += ["--model", QUICKSTART / "model"]
        train(args, name, flags)
    return report(args)


def ranks_of(name, args):
    done = subprocess.run([str(args.program), "config", "train", str(RECIPES / f"{name}.toml"), "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["nproc"]["value"]


def gpus(args):
    for name in chosen(experiments(), args):
        if ranks_of(name, args) <= args.most_ranks:
            train(args, name, [*model_of(name, args), "--device", "cuda", "--save-dtype", "bf16"])
    return report(args)


def short_run(args, name, limit_s=1800):
    """Returns the summary of a run of 24 steps. Removes the run's folder, so that no later report includes this run."""
    with tempfile.TemporaryDirectory(prefix="peers-", dir=args.runs) as folder:
        done = run([args.program, "train", RECIPES / f"{name}.toml", *model_of(name, args), "--device", "cuda",
                    "--max-steps", "24", "--save-strategy", "no", "--eval-strategy", "no", "--no-eval-generation", "--no-load-best-model-at-end",
                    "--output-dir", f"{folder}/run"], limit_s=limit_s)
        if done.returncode:
            raise SystemExit(done.stdout)
        return json.loads(Path(folder, "run", "summary.json").read_text())


def peers(args):
    """For each experiment, runs Tessera and then the peer for a few steps on the same machine."""
    results = []
    for name in chosen(PEERS, args):
        summary = short_run(args, name)
        results.append({"experiment": name, "samples_per_s": summary["train_samples_per_second_steady"],
                        "used_MiB": summary["gpu"]["memory_bytes"]["peak"] / 2**20,
                        "ledger_MiB": summary["ledger_peak_bytes"]["total"] / 2**20, "peer": peer(args, name)})
        write_result(args, {"peers": results})  # after each experiment, in case the next one does not end
    return {"peers": results}


def deepspeed_config(stage, offload, pinned):
    """Returns the DeepSpeed JSON of the workshop."""
    zero = {"stage": stage}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", **({"pin_memory": True} if pinned else {})}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "gradient_clipping": 1.0, "fp16": {"enabled": True}, "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.999], "eps": 1e-8,
                                                      "weight_decay": 0.01}}}


def peer(args, name):
    stack, stage, offload = PEERS[name]
    words = [sys.executable, "hf_trainer.py", "--steps", "12", "--warm", "4"]
    words += ["--prec", "fp32", "--bs", "1", "--ga", "4"] if name.startswith("fsdp") else \
        ["--prec", "fp16", "--bs", "4", "--ga", "4"]
    env = {"CUDA_VISIBLE_DEVICES": "0",  # if the Trainer sees several GPUs, it uses all of them
           **os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if stage is not None:
        config = args.runs / "deepspeed.json"
        config.write_text(json.dumps(deepspeed_config(stage, offload, name != UNPINNED)))
        words += ["--deepspeed", str(config.resolve())]
        env |= {"DS_SKIP_CUDA_CHECK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0",
                "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": str(os.cpu_count())}
    found = {"stack": stack, "command": " ".join(words[1:])}
    try:
        done = subprocess.run(words, cwd=args.peers, env=env, capture_output=True, text=True, timeout=args.peer_limit)
        line = re.search(r"^PEER (.*)$", done.stdout, re.M)
        if line:
            found.update({key: value for key, value in json.loads(line[1]).items()
                          if key in ("samples_per_s", "peak_alloc_MiB", "peak_reserved_MiB", "used_MiB")})
        else:
            found["error"] = (done.stderr or done.stdout)[-600:]
    except subprocess.TimeoutExpired:
        found["error"] = f"did not end within {args.peer_limit} s"
    print(json.dumps(found), flush=True)
    return found


def plan(args):
    planned = []
    for name in experiments():
        words = [args.program, "plan", RECIPES / f"{name}.toml", *model_of(name, args), "--device", "cuda", "--json",
                "--device-memory", "80GiB",  # the workshop's A100: enough to compute a step's micro-batches as one
                "--train-size", "0"]  # all rows of the file, because the memory depends on the longest ones
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if done.returncode not in (0, 4):  # 4: the plan exceeds a limit
            raise SystemExit(f"{name}: {done.stderr}")
        found = json.loads(done.stdout)
        rank = found["first_rank"]
        planned.append({"experiment": name, "ranks": found["world_size"], "parameters": found["num_parameters"],
                        "device_peak_bytes": rank["device_peak_bytes"], "host_peak_bytes": rank["host_peak_bytes"],
                        "step_bytes_sent": found["step_bytes_sent"],
                        **{f"{place}_step_bytes": {key: value for key, value in rank[place]["step"].items() if value}
                           for place in ("device", "host")}})
    return {"plan": planned}


def write_result(args, result):
    commit = args.commit or run(["git", "-C", ROOT, "describe", "--always", "--dirty"]).stdout.strip()
    words = ["bench/workshop.py", args.what] + (["--data", args.data.name] if args.data else [])
    words += ["--peers", "FOLDER"] if args.peers else []
    words += ["--most-ranks", str(args.most_ranks)] if args.what == "gpus" else []
    args.output.write_text(json.dumps({"command": " ".join(words), "commit": commit, "machine": args.machine, **result},
                                      indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["small", "gpus", "peers", "plan"])
    parser.add_argument("output", type=Path)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "tessera")
    parser.add_argument("--data", type=Path, help="a file in SQuAD's format, for training and evaluation")
    parser.add_argument("--peers", type=Path, help="the folder of hf_trainer.py")
    parser.add_argument("--peer-limit", type=int, default=180, help="seconds for one run of a peer")
    parser.add_argument("--most-ranks", type=int, default=1,
                        help="for gpus: run only experiments with at most this many ranks")
    parser.add_argument("--only", default="", metavar="WORD,...",
                        help="run only experiments whose names contain one of the words")
    parser.add_argument("--runs", type=Path, default=Path("runs/workshop"))
    parser.add_argument("--interval", default="0.5", help="seconds between two samples of the memory logs")
    parser.add_argument("--commit", default="", help="the version of Tessera, if this folder is not a git checkout")
    parser.add_argument("--machine", default=None, help="the name of this machine in bench/results/machines.json")
    args = parser.parse_args()
    if args.what != "small" and not args.data:
        parser.error(f"{args.what} needs --data")
    if args.what == "peers" and not args.peers:
        parser.error("peers needs --peers")
    args.program = args.program.resolve()
    args.runs.mkdir(parents=True, exist_ok=True)
    write_result(args, {"small": small, "gpus": gpus, "peers": peers, "plan": plan}[args.what](args))


if __name__ == "__main__":
    main()
