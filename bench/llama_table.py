#!/usr/bin/env python3
"""Compares Tessera with a PyTorch loop on one GPU, for models with the shapes of Llama and Qwen. Build Tessera first.

  bench/llama_table.py OUT.json [--tessera build/tessera] [--peer modern.py] [--llmq llmq.py] [--only WORD[,WORD]]
                       [--repeat 2] [--budget 540]

Weights are random. The data are random words from a fixed seed. In training, every token has a loss, and the rate does
not count the warm-up steps. Tessera's memory is the peak of its ledger without the CUDA context. In the row 8b-offload,
it is the highest used memory of the GPU in nvidia-smi. The peer's memory is the peak of PyTorch's allocator.

--peer names a script that prints a line "PEER {json}" with tokens_s, peak_MiB and mfu (between 0 and 1). This script
must accept the options --size, --bs, --seq, --steps, --warm, --compile, --liger and --autocast. Without --peer,
only Tessera runs. In the row 1b-generation, --peer turns on the peer, but llama_table.py runs transformers instead of
the script.

--llmq names a script that measures the native trainer LLM.Q with the arguments NAME BATCH LENGTH STEPS WARM, and
"bf16states" for optimizer states in bf16. It prints the same line. Its memory (used_MiB) is the used memory of the GPU.
"""
import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEAK_TFLOPS = 989  # of an H100 or H200, for dense bf16 matrix products
# name: layers, hidden size, feed-forward size, heads, heads of keys and values, head size, vocabulary size, whether the
# head is tied, model type
SHAPES = {
    "llama-3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256, True, "llama"),
    "llama-3.2-3b": (28, 3072, 8192, 24, 8, 128, 128256, True, "llama"),
    "llama-3.1-8b": (32, 4096, 14336, 32, 8, 128, 128256, False, "llama"),
    "llama-3.1-70b": (80, 8192, 28672, 64, 8, 128, 128256, False, "llama"),
    "qwen3-8b": (36, 4096, 12288, 32, 8, 128, 151936, False, "qwen3"),
    "qwen3-0.6b": (28, 1024, 3072, 16, 8, 128, 151936, True, "qwen3"),
    "qwen2.5-0.5b": (24, 896, 4864, 14, 2, 64, 151936, True, "qwen2"),
    "qwen2.5-1.5b": (28, 1536, 8960, 12, 2, 128, 151936, True, "qwen2"),
    "qwen2.5-3b": (36, 2048, 11008, 16, 2, 128, 151936, True, "qwen2"),
}
PEER_SIZES = {"llama-3.2-1b": "llama3.2-1b", "llama-3.2-3b": "llama3.2-3b", "llama-3.1-8b": "llama3.1-8b"}
OFFLOADED = ["--strategy", "zero3", "--offload", "optimizer,gradients,parameters", "--pin-memory",
             "--activation-checkpointing", "block"]
BF16_STATES = ["--optimizer-states", "bf16"]
FP8 = ["--matmul-precision", "fp8"]
LORA = ["--adapter", "lora", "--lora-r", "16", "--lora-alpha", "32"]
QLORA = [*LORA, "--base-dtype", "nf4"]
PEER_LORA = ["--compile", "--liger", "--lora", "16"]


class Row:
    """A training job. `length`: tokens per sample. `steps` include the `warm` steps, which the rate does not count.
    `options`: for Tessera. `peer`: options of the PyTorch loop; None: this peer does not run. `llmq`: options of LLM.Q;
    None: LLM.Q does not run. An `endless` run is killed after `steps` steps, because saving its model needs much host
    memory."""

    def __init__(self, model, batch, length, warm, steps, options=(), peer=None, llmq=None, endless=False):
        self.model, self.batch, self.length, self.warm, self.steps = model, batch, length, warm, steps
        self.options, self.peer, self.llmq, self.endless = list(options), peer, llmq, endless


ROWS = {
    "1b-512": Row("llama-3.2-1b", 8, 512, 10, 40, peer=["--autocast", "--compile"]),
    "1b-2048": Row("llama-3.2-1b", 8, 2048, 5, 17, peer=["--compile", "--liger"]),
    "1b-2048-fp8": Row("llama-3.2-1b", 8, 2048, 5, 17, FP8),
    "1b-2048-bf16-states": Row("llama-3.2-1b", 8, 2048, 5, 17, BF16_STATES),
    "1b-2048-8bit-states": Row("llama-3.2-1b", 8, 2048, 5, 17, ["--optimizer-states", "8bit"]),
    "3b-2048": Row("llama-3.2-3b", 4, 2048, 4, 14, peer=["--compile"]),
    "3b-2048-bf16-states": Row("llama-3.2-3b", 4, 2048, 4, 14, BF16_STATES),
    "8b-2048": Row("llama-3.1-8b", 4, 2048, 3, 11, peer=["--compile", "--liger"]),
    "8b-2048-bf16-states": Row("llama-3.1-8b", 4, 2048, 3, 11, BF16_STATES),
    "8b-2048-bf16-states-fp8": Row("llama-3.1-8b", 4, 2048, 3, 11, [*BF16_STATES, *FP8]),
    "8b-2048-8bit-states": Row("llama-3.1-8b", 4, 2048, 3, 11, ["--optimizer-states", "8bit"]),
    "qwen3-512": Row("qwen3-0.6b", 16, 512, 10, 40, peer=["--compile"]),
    "qwen2.5-512": Row("qwen2.5-0.5b", 1, 512, 20, 100, peer=["--autocast"]),
    "1.5b-1024": Row("qwen2.5-1.5b", 16, 1024, 4, 16, llmq=[]),
    "1.5b-1024-fp8": Row("qwen2.5-1.5b", 16, 1024, 4, 16, FP8),
    "1.5b-1024-bf16-states": Row("qwen2.5-1.5b", 16, 1024, 4, 16, BF16_STATES, llmq=["bf16states"]),
    "3b-1024": Row("qwen2.5-3b", 8, 1024, 4, 16, llmq=[]),
    "3b-1024-fp8": Row("qwen2.5-3b", 8, 1024, 4, 16, FP8),
    "3b-1024-bf16-states": Row("qwen2.5-3b", 8, 1024, 4, 16, BF16_STATES, llmq=["bf16states"]),
    "8b-lora": Row("llama-3.1-8b", 4, 2048, 3, 11, LORA, peer=PEER_LORA),
    "8b-lora-checkpointed": Row("llama-3.1-8b", 4, 2048, 3, 11, [*LORA, "--activation-checkpointing", "block"],
                                peer=[*PEER_LORA, "--ckpt"]),
    "qwen3-8b-lora": Row("qwen3-8b", 2, 2048, 3, 13, LORA),
    "1b-lora-512": Row("llama-3.2-1b", 8, 512, 10, 40, LORA, peer=PEER_LORA),
    "8b-qlora": Row("llama-3.1-8b", 2, 2048, 3, 13, QLORA, peer=["--liger", "--lora", "16", "--nf4"]),
    "8b-qlora-checkpointed": Row("llama-3.1-8b", 2, 2048, 3, 13, [*QLORA, "--activation-checkpointing", "12"]),
    "70b-qlora": Row("llama-3.1-70b", 1, 2048, 1, 4, [*QLORA, "--activation-checkpointing", "block"]),
    "8b-offload": Row("llama-3.1-8b", 4, 2048, 2, 6, OFFLOADED, endless=True),
}
LLMQ_NAMES = {"qwen2.5-1.5b": "Qwen2.5-1.5B", "qwen2.5-3b": "Qwen2.5-3B"}
GENERATION = "1b-generation"
PROMPTS, NEW_TOKENS, PROMPT_TOKENS, PEER_BATCH = 256, 50, 512, 32


def config_of(name):
    layers, width, inner, heads, kv_heads, head_dim, vocabulary, tied, kind = SHAPES[name]
    return {"model_type": kind, "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM",
                                                   "qwen3": "Qwen3ForCausalLM"}[kind]],
            "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "hidden_act": "silu",
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": tied,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}


def flops_per_token(name, length, lora=False):
    """FLOPs of training per token: six for each weight of a matrix product, or four if only an adapter is trained, plus the
    FLOPs of causal attention."""
    layers, width, inner, heads, kv_heads, head_dim, vocabulary, _, _ = SHAPES[name]
    block = width * head_dim * (2 * heads + 2 * kv_heads) + 3 * width * inner
    return (4 if lora else 6) * (layers * block + vocabulary * width) + 6 * layers * heads * head_dim * length


def peer_line(text):
    """Returns the object that a peer's script printed after "PEER "."""
    return json.loads(next(line for line in text.splitlines() if line.startswith("PEER "))[5:])


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.deadline = args, folder, time.monotonic() + args.budget
        source = random.Random(7)
        words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(3, 9))) for _ in range(20000)]
        texts = [" ".join(source.choices(words, k=2800)) for _ in range(160)]
        (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        questions = []
        for i in range(PROMPTS):
            text = " ".join(source.choices(words, k=700))
            questions.append(json.dumps({"id": str(i), "context": text, "question": "Which word is the first one?",
                                         "answers": {"text": [text.split()[0]], "answer_start": [0]}}) + "\n")
        (folder / "prompts.jsonl").write_text("".join(questions))

    def run(self, command):
        left = self.deadline - time.monotonic()
        if left < 5:
            raise RuntimeError("no time left")
        done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RuntimeError(f"exit code {done.returncode}: {lines[-1][:300]}")
        return done.stdout

    def model(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config_of(name)))
        return str(folder / "config.json")

    def train(self, row):
        job = ROWS[row]
        name, batch, length, warm, steps = job.model, job.batch, job.length, job.warm, job.steps
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        command = (
            [self.args.tessera, "train", "--model", self.model(name), "--init", "random", "--tokenizer",
             str(ROOT / "recipes/quickstart/model"), "--dataset", str(self.folder / "texts.jsonl"), "--objective", "causal_lm",
             "--long-texts", "truncate", "--max-length", str(length), "--batch-size", str(batch), "--grad-accum", "1",
             "--precision", "bf16", "--max-steps", str(steps), "--epochs", "1000", "--logging-steps", str(warm), "--lr", "1e-5",
             "--save-strategy", "no", "--eval-strategy", "no", "--save-dtype", "bf16", "--resume",
             "none", "--overwrite", "--device", self.args.device, "--output-dir", str(out), "--json", *job.options])
        if job.endless:
            command[command.index("--max-steps") + 1] = str(1000 * steps)
            return self.rate(name, batch, length, warm, *self.steps_of_endless(command, out, steps))
        summary = json.loads(self.run(command))
        peaks, gpu = summary["ledger_peak_bytes"], summary.get("gpu", {})
        return {**self.rate(name, batch, length, warm, self.steps(out), lora="--adapter" in job.options),
                "mib": round((peaks["total"] - peaks["context"]) / 2**20), "mhz": gpu.get("sm_clock_mhz", {}).get("mean"), "watt": gpu.get("power_w", {}).get("mean"),
                "nvml_mib": gpu.get("process_memory_bytes", {}).get("peak", 0) // 2**20 or None,
                "ledger_mib": round(peaks["total"] / 2**20), "loss": summary["train_loss"]}

    @staticmethod
    def steps(out):
        """Returns {step: seconds since the first step began} for the steps that the run has logged so far."""
        times = {}
        try:
            for line in (out / "metrics.jsonl").read_text().splitlines():
                record = json.loads(line)
                if record["kind"] == "train":
                    times[record["step"]] = record["timing"]["runtime_s"]
        except (OSError, ValueError):  # the file does not exist yet, or its last line is incomplete
            pass
        return times

    @staticmethod
    def rate(name, batch, length, warm, times, used_mib=None, lora=False):
        last = max(times)
        rate = (last - warm) * batch * length / (times[last] - times[warm])
        return {"tokens_s": round(rate), "mfu": round(rate * flops_per_token(name, length, lora) / PEAK_TFLOPS / 1e10, 1),
                **({"used_mib": used_mib} if used_mib else {})}

    def steps_of_endless(self, command, out, steps):
        process, most = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), 0
        try:
            while process.poll() is None and time.monotonic() < self.deadline:
                used = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                      capture_output=True, text=True).stdout.split()
                most = max([most, *map(int, used[:1])])
                times = self.steps(out)
                if times and max(times) >= steps:
                    return times, most
                time.sleep(0.5)
            raise RuntimeError(f"exit code {process.returncode}: {process.stderr.read()[-300:]}" if process.poll() is not None
                               else "no time left")
        finally:
            process.kill()
            process.wait()

    def peer(self, row):
        job = ROWS[row]
        if not self.args.peer or job.peer is None:
            return None
        found = peer_line(self.run(
            [sys.executable, self.args.peer, "--size", PEER_SIZES.get(job.model, job.model), "--bs", str(job.batch), "--seq",
             str(job.length), "--steps", str(job.steps), "--warm", str(job.warm), *job.peer]))
        return {"tokens_s": found["tokens_s"], "mib": found["peak_MiB"], "mfu": round(100 * found["mfu"], 1)}

    def llmq(self, row):
        job = ROWS[row]
        if not self.args.llmq or job.llmq is None:
            return None
        found = peer_line(self.run([sys.executable, self.args.llmq, LLMQ_NAMES[job.model], str(job.batch), str(job.length),
                                    str(job.steps), str(job.warm), *job.llmq]))
        return {"tokens_s": found["tokens_s"], "mib": max(map(int, found["used_MiB"])),
                "mfu": round(found["tokens_s"] * flops_per_token(job.model, job.length) / PEAK_TFLOPS / 1e10, 1)}

    def answers(self):
        text = self.run([self.args.tessera, "eval", "--model", self.model("llama-3.2-1b"), "--init", "random", "--tokenizer",
                         str(ROOT / "recipes/quickstart/model"), "--eval-dataset", str(self.folder / "prompts.jsonl"),
                         "--max-length", str(PROMPT_TOKENS), "--precision", "bf16", "--eval-generation", "--eval-size",
                         str(PROMPTS), "--eval-batch-size", "256", "--max-new-tokens", str(NEW_TOKENS), "--device",
                         self.args.device, "--json"])
        return {"prompts_s": round(PROMPTS / json.loads(text)["answers_runtime"], 2)}

    def peer_answers(self):
        if not self.args.peer:
            return None
        return json.loads(self.run([sys.executable, __file__, "--generate"]).splitlines()[-1])


def generate_with_transformers():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    config = {key: value for key, value in config_of("llama-3.2-1b").items() if key not in ("model_type", "architectures")}
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**config)).to(torch.bfloat16).eval()
    prompts = torch.randint(4, 128000, (PROMPTS, PROMPT_TOKENS), device="cuda")

    def batch(first):
        ids = prompts[first:first + PEER_BATCH]
        with torch.no_grad():
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
                           do_sample=False)

    batch(0)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for first in range(0, PROMPTS, PEER_BATCH):
        batch(first)
    torch.cuda.synchronize()
    print(json.dumps({"prompts_s": round(PROMPTS / (time.perf_counter() - begin), 2)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--peer")
    parser.add_argument("--llmq")
    parser.add_argument("--only", default="", help="the rows to run, separated by commas")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--budget", type=float, default=540, help="time for all rows in seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--generate", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.generate:
        return generate_with_transformers()
    names = args.only.split(",") if args.only else [*ROWS, GENERATION]
    unknown = [name for name in names if name not in ROWS and name != GENERATION]
    if unknown or not args.out:
        parser.error(f"unknown rows {unknown}; known: {[*ROWS, GENERATION]}" if unknown else "OUT.json is required")
    results = {name: {"ours": [], "peer": [], "llmq": []} for name in names}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        bench = Bench(args, Path(folder))
        for turn in range(args.repeat):
            for name in names:
                sides = {"ours": bench.answers if name == GENERATION else lambda: bench.train(name),
                         "peer": bench.peer_answers if name == GENERATION else lambda: bench.peer(name),
                         "llmq": (lambda: None) if name == GENERATION else lambda: bench.llmq(name)}
                for side, measure in sides.items():
                    begin = time.monotonic()
                    try:
                        found = measure()
                    except (RuntimeError, OSError, ValueError, KeyError, StopIteration, subprocess.TimeoutExpired) as error:
                        found = {"problem": str(error)[-300:]}
                    if found:
                        results[name][side].append(found)
                        print(f"{name} {side} [{time.monotonic() - begin:.0f} s]: {json.dumps(found)}", flush=True)
                        args.out.write_text(json.dumps(results, indent=1) + "\n")
    for name, sides in results.items():
        key = "prompts_s" if name == GENERATION else "tokens_s"
        medians = {side: statistics.median([run[key] for run in runs if key in run] or [0]) for side, runs in sides.items()}
        for side in ("peer", "llmq"):
            if medians["ours"] and medians[side]:
                print(f"{name}: Tessera {medians['ours']:g}, {side} {medians[side]:g} {key}, {medians['ours'] / medians[side]:.2f} x")


if __name__ == "__main__":
    main()
