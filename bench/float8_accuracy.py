#!/usr/bin/env python3
"""Compares the losses of training with products in fp8, in bf16 and in fp32.

  bench/float8_accuracy.py OUT.json [--tessera build/tessera] [--xquad FOLDER] [--seeds 3] [--threads 2]
  bench/float8_accuracy.py OUT.json --gradients

`fine-tuning`: the job of ./quickstart. `outliers N`: the same, but first one channel of each norm's output is N times as
large, and the weights that read it are N times as small. The model computes the same function; its activations have
channels of very different sizes, as those of large models have. `pretraining`: a Llama of 3 million parameters, from
random weights, on the passages of XQuAD in four languages (FOLDER/xquad.*.json), or on those of the quickstart without
--xquad. Each value is the mean loss of the held-out data after training.

--gradients: the relative error of the gradient of each layer of the quickstart's model, for 24 of its questions, in
bf16 and in fp8, compared with fp32. After one step, AdamW's first moment in a checkpoint is the gradient times 1 − β1.
"""
import argparse
import json
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes/quickstart"
PRECISIONS = {"fp32": ["--precision", "fp32"], "bf16": ["--precision", "bf16"],
              "fp8": ["--precision", "bf16", "--matmul-precision", "fp8"]}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "hidden_size": 192,
         "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 512,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": True,
         "initializer_range": 0.02, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}


def model_with_outliers(factor, folder):
    """A copy of the quickstart's model. Tensors are bf16: the factor is a power of two, so that all values are exact."""
    shutil.copytree(RECIPE / "model", folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])

    def change(name, scale, channel):
        """Multiplies the channel: an element of a vector, or a column of a matrix."""
        info = header[name]
        assert info["dtype"] == "BF16", info
        begin, end = (8 + length + offset for offset in info["data_offsets"])
        words = np.frombuffer(bytes(data[begin:end]), np.uint16).reshape(info["shape"]).copy()
        values = (words[..., channel].astype(np.uint32) << 16).view(np.float32) * np.float32(scale)
        words[..., channel] = (values.view(np.uint32) >> 16).astype(np.uint16)
        data[begin:end] = words.tobytes()

    norms = [name for name in header if name.endswith("layernorm.weight") and ".h." in name]
    for number, norm in enumerate(sorted(norms)):
        reader = norm.replace("input_layernorm", "self_attention.query_key_value").replace(
            "post_attention_layernorm", "mlp.dense_h_to_4h")
        channel = 17 * number % header[norm]["shape"][0]
        change(norm, factor, channel)
        change(norm.replace("weight", "bias"), factor, channel)
        change(reader, 1 / factor, channel)
    assert norms
    path.write_bytes(data)


def corpus(xquad, path):
    files = sorted(Path(xquad).glob("xquad.*.json")) if xquad else [RECIPE / "train.json"]
    with path.open("w", encoding="utf-8") as out:
        for file in files:
            for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
                for paragraph in article["paragraphs"]:
                    out.write(json.dumps({"text": paragraph["context"]}, ensure_ascii=False) + "\n")


# The weights of a block of the quickstart's model, in the order of its array: output and input channels.
LAYERS = {"query_key_value": (384, 128), "dense": (128, 128), "dense_h_to_4h": (512, 128), "dense_4h_to_h": (128, 512)}


def gradients(args, folder, model, precision):
    """{(block, layer): gradient of its weight}, times 1 − β1."""
    command = [args.tessera, "train", str(RECIPE / "finetune.toml"), "--model", str(model), *PRECISIONS[precision],
               "--max-steps", "1", "--max-grad-norm", "0", "--batch-size", "24", "--save-strategy", "steps", "--save-steps", "1",
               "--eval-strategy", "no", "--no-eval-generation", "--no-eval-before", "--output-dir", str(folder / "step"),
               "--overwrite", "--resume", "none", "--threads", str(args.threads), "--device", args.device]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    data = (folder / "step/checkpoint-1/rank-00000-of-00001.safetensors").read_bytes()
    length, = struct.unpack("<Q", data[:8])
    found = {}
    for name, info in json.loads(data[8:8 + length]).items():
        if not name.startswith("optimizer.m/block."):
            continue
        begin, end = (8 + length + offset for offset in info["data_offsets"])
        values, at = np.frombuffer(data[begin:end], np.float32).astype(np.float64), 0
        for layer, (out, channels) in LAYERS.items():
            found[int(name.rsplit(".", 1)[1]), layer] = values[at:at + out * channels]
            at += out * channels
    return found


def gradient_errors(args, folder):
    columns = {}
    for factor in (1, 4096):
        model = RECIPE / "model"
        if factor > 1:
            model = folder / "outliers"
            model_with_outliers(factor, model)
        exact = gradients(args, folder, model, "fp32")
        for precision in ("bf16", "fp8"):
            found = gradients(args, folder, model, precision)
            columns[precision if factor == 1 else f"{precision}_outliers"] = {
                key: float(np.linalg.norm(found[key] - exact[key]) / np.linalg.norm(exact[key])) for key in exact}
    return [{"name": f"block {block}, {layer}", "values": {name: round(of[block, layer], 4) for name, of in columns.items()}}
            for block, layer in sorted(columns["bf16"], key=lambda key: (key[0], list(LAYERS).index(key[1])))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--xquad")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="the jobs whose names contain this word")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--steps", type=int, default=400, help="of pretraining")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.gradients:
            args.out.write_text(json.dumps(gradient_errors(args, folder), indent=1) + "\n")
            return
        corpus(args.xquad, folder / "corpus.jsonl")
        (folder / "config.json").write_text(json.dumps(LLAMA))
        fine_tuning = [str(RECIPE / "finetune.toml"), "--no-eval-generation", "--no-eval-before", "--save-strategy", "no"]
        pretraining = ["--model", str(folder / "config.json"), "--init", "random", "--tokenizer", str(RECIPE / "model"),
                       "--dataset", str(folder / "corpus.jsonl"), "--objective", "causal_lm", "--max-length", "256",
                       "--batch-size", "8", "--epochs", "1000", "--max-steps", str(args.steps), "--lr", "2e-3",
                       "--warmup-steps", "40", "--lr-schedule", "cosine", "--weight-decay", "0.1",
                       "--eval-fraction", "0.1", "--eval-strategy", "steps", "--eval-steps", str(args.steps),
                       "--no-eval-generation", "--save-strategy", "no"]
        jobs = [("fine-tuning", fine_tuning), ("pretraining", pretraining)]
        for factor in (64, 4096, 2**18):
            model_with_outliers(factor, folder / f"outliers-{factor}")
            jobs.append((f"outliers {factor}", [*fine_tuning, "--model", str(folder / f"outliers-{factor}")]))
        rows = []
        for job, words in jobs:
            if args.only not in job:
                continue
            for seed in range(1, 1 + (args.seeds if "outliers" not in job else 1)):
                values = {}
                for precision, flags in PRECISIONS.items():
                    command = [args.tessera, "train", *words, *flags, "--seed", str(seed), "--output-dir",
                               str(folder / "run"), "--overwrite", "--resume", "none", "--threads", str(args.threads),
                               "--device", args.device, "--json"]
                    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
                    if done.returncode != 0:
                        raise SystemExit(done.stderr)
                    summary = json.loads(done.stdout)
                    values[precision] = round(summary["eval_loss"], 4)
                    print(job, seed, precision, values[precision], flush=True)
                rows.append({"name": f"{job}, seed {seed}", "values": values})
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
