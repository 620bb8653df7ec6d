"""Random jobs: models, frozen tensors, data, batches, precisions, strategies, ranks, offload, signals and export.

Every Job is valid, so it must end with exit code 0. Some jobs first get a signal, which may end the run. The same
command, started again, must then end with 0. The ledger must not exceed the plan. For half of the jobs in fp32, the
test compares the losses with the losses of the plain run: they must agree, except for rounding. The plain run takes the
same steps on one rank, without sharding and offload. A damaged job is a valid job with up to two odd values. It must
work, or end with one error line.

TESSERA_SWARM_JOBS    number of valid jobs; the number of damaged jobs is the same (default 120, about two minutes)
TESSERA_SWARM_SEED    number of the first job (default 0); a failed test reports the number of its job
TESSERA_SWARM_RANKS   maximum number of ranks of a job (default 4); set 1 without MPI
"""
import json
import math
import os
import random
import shutil
import signal
import subprocess

from ranks_job import SAVED_AFTER_SIGNAL, Run
from tessera_cli import PROGRAM, main
from tiny_job import FAILED, HAS_FLOAT8, INPUT, MOST_RANKS, ON_GPU, OUT_OF_MEMORY, USAGE, TinyJobTest, jsonl, questions

NUM_JOBS = int(os.environ.get("TESSERA_SWARM_JOBS", 120))
FIRST_JOB = int(os.environ.get("TESSERA_SWARM_SEED", 0))
LARGEST_WORLD = min(MOST_RANKS, int(os.environ.get("TESSERA_SWARM_RANKS", 4)))
SHARDS_PARAMETERS = ["zero3", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_zero2"]
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
# Values that are invalid for some settings. A job with such a value must work, or end with one error line.
ODD_VALUES = ["-1", "0", "1", "3", "nan", "inf", "1e30", "-0.5", "", " ", "x", "none", "auto", "9999999999999999999", "2147483647",
              "/dev/null", "/", "out", "../..", "é", "a,b", "host:file", "%s%n", "[1]"]
# Patterns of --freeze for each kind of model. Any two patterns of a kind leave at least one tensor to train.
FREEZES = {"gpt": ["token_embedding.weight", "transformer.layers.0.*", "*bias", "*.self_attn.*", "lm_head.*"],
           "llama": ["embed_tokens*", "layers.0.*", "model.norm.weight", "*layernorm*", "*_proj.*"],
           "bloom": ["word_embeddings*", "transformer.h.0.*", "ln_f.*", "h.*.mlp.*", "*.bias"]}
ERRORS = [FAILED, USAGE, INPUT, OUT_OF_MEMORY]
ENOUGH_S = 3  # a damaged job that still runs after this time gets a signal
# The loss of a step is a sum over a few hundred tokens. Several ranks add in another order than one rank, so the
# rounding errors differ. The difference of the losses grows with each step and with the learning rate.
LOSS_TOLERANCE = 1e-3


class Draw(random.Random):
    def flip(self, share=0.5):
        return self.random() < share

    def magnitude(self, low, high):
        """A random whole number from `low` to `high`. Its logarithm is uniformly distributed."""
        return min(high, max(low, round(2 ** self.uniform(math.log2(low), math.log2(high)))))


def draw_model(draw, folder, step):
    """Returns the kind of a random model, and the arguments that choose it. Writes a config.json, except for gpt. `step`
    divides the sizes of all layers."""
    heads = draw.randint(1, 4)
    shape = {"hidden": heads * draw.choice([16] if step == 16 else [4, 8, 16, 20]), "heads": heads, "layers": draw.randint(1, 3)}
    inner = step * draw.randint(1, 80 // step)
    vocabulary = draw.choice([400, draw.magnitude(400, 60000)])
    words = ["--init", "random", "--tokenizer", "tok"]
    if draw.flip(0.3):
        words += ["--no-tie-word-embeddings"] if draw.flip(0.3) else []
        return "gpt", words + ["--model", "gpt", "--hidden-size", shape["hidden"], "--num-heads", heads, "--num-layers",
                               shape["layers"], "--ff-dim", inner, "--vocab-size", vocabulary, "--dropout",
                               draw.choice([0, 0.1])]
    if draw.flip(0.5):
        kv_heads = draw.choice([k for k in range(1, heads + 1) if heads % k == 0])
        config = {"model_type": draw.choice(["llama", "mistral", "qwen2", "qwen3"]), "vocab_size": vocabulary,
                  "hidden_size": shape["hidden"], "num_hidden_layers": shape["layers"], "num_attention_heads": heads,
                  "num_key_value_heads": kv_heads, "head_dim": draw.choice([16] if step == 16 else [4, 10, 16]),
                  "intermediate_size": inner, "tie_word_embeddings": draw.flip(),
                  "attention_bias": draw.flip(), "mlp_bias": draw.flip(), "sliding_window": draw.choice([None, 7, 500]),
                  "attention_dropout": draw.choice([0, 0, 0.1]), "max_position_embeddings": 4096, "bos_token_id": 1,
                  "eos_token_id": 2}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return "llama", words + ["--model", "config.json"]
    config = {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "vocab_size": vocabulary,
              "hidden_size": shape["hidden"], "n_layer": shape["layers"], "n_head": heads, "layer_norm_epsilon": 1e-5,
              "apply_residual_connection_post_layernorm": draw.flip(0.2), "tie_word_embeddings": draw.flip(0.7),
              "hidden_dropout": draw.choice([0, 0, 0.1]),
              "attention_dropout": draw.choice([0, 0, 0.1]), "unk_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
              "pad_token_id": 3}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return "bloom", words + ["--model", "config.json"]


def draw_data(draw, folder, name, are_questions):
    rows = questions(draw.randint(3, 40), draw.randint(0, 9999))
    if not are_questions:
        words = "the of and Oslo Lima Rome baker pilot lives works in as 12 ü 你好".split()
        rows = [{"text": " ".join(draw.choices(words, k=draw.magnitude(2, 300)))} for _ in rows]
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(jsonl(rows))


class Job:
    """The arguments of a random job, in groups, because the plain run omits some groups."""

    def __init__(self, draw, folder):
        self.precision = draw.choice(["fp32", "fp32", "bf16", "fp16"] + (["tf32"] if ON_GPU else []))
        in_8_bits = self.precision == "bf16" and HAS_FLOAT8 and draw.flip()
        self.states = ["--matmul-precision", "fp8"] if in_8_bits else []
        kind, self.model = draw_model(draw, folder, 16 if in_8_bits else 1)
        has_questions = draw.flip(0.7)
        draw_data(draw, folder, "data.jsonl", has_questions)
        ranks = draw.choice([1, 1, 1, 2, 2, 3, 4])
        while ranks > LARGEST_WORLD:
            ranks -= 1
        self.ranks = ranks
        batch = draw.choice([1, 2, 3, 4, 8])
        accum = draw.choice([1, 1, 2, 3])
        self.accum = accum
        self.batch = batch
        # The fixed text of a question's prompt takes about 30 tokens, so --max-length 16 is too small for questions.
        lengths, objectives = ([64, 200], ["completion", "causal_lm"]) if has_questions else ([16, 64, 200], ["causal_lm"])
        self.text = ["--max-length", draw.choice(lengths), "--objective", draw.choice(objectives)]
        self.text += ["--truncation", draw.choice(["context", "right"])] if has_questions and draw.flip(0.3) else []
        self.data = ["--dataset", "data.jsonl", *self.text]
        self.training = ["--max-steps", draw.randint(1, 6), "--lr", draw.choice(["1e-3", "1e-4"]), "--lr-schedule",
                         draw.choice(["linear", "constant", "cosine"]), "--warmup-steps", draw.choice([0, 2]),
                         "--max-grad-norm", draw.choice([0, 1]), "--weight-decay", draw.choice([0, 0.1]), "--seed",
                         draw.randint(0, 99), "--logging-steps", 1, "--threads", draw.choice([1, 2])]
        self.training += ["--no-shuffle"] if draw.flip(0.2) else []
        self.freezes = draw.flip(0.25)
        if self.freezes:
            self.training += ["--freeze", ",".join(draw.sample(FREEZES[kind], draw.randint(1, 2)))]
        self.adapts = not self.freezes and draw.flip(0.25)
        if self.adapts:
            self.training += ["--adapter", "lora", "--lora-r", draw.choice([1, 3, 8]), "--lora-dropout", draw.choice([0, 0.2])]
            if draw.flip(0.4):
                self.training += ["--base-dtype", "nf4"]
            self.training += ["--lora-layers", 0] if draw.flip(0.3) else []
            self.training += ["--use-rslora"] if draw.flip(0.3) else []
        self.evaluation = []
        if draw.flip():
            draw_data(draw, folder, "eval.jsonl", has_questions)
            self.evaluation = ["--eval-dataset", "eval.jsonl", "--eval-batch-size", draw.choice([1, 3, 8, 50]),
                               "--eval-strategy", "steps", "--eval-steps", draw.randint(1, 4)]
            if has_questions and draw.flip():
                self.evaluation += ["--eval-generation", "--max-new-tokens", draw.randint(1, 6)]
            self.evaluation += ["--eval-before"] if draw.flip(0.3) else []
        if self.precision == "fp16":  # so that a short run finds a loss scale before it ends
            self.training += ["--initial-scale-power", 8]
        states = ["fp32", "8bit"] + (["bf16"] if self.precision == "bf16" else [])
        self.states += ["--optimizer-states", draw.choice(states)] if draw.flip() else []
        self.saving = ["--save-strategy", "steps", "--save-steps", draw.randint(1, 4)]
        self.saving += ["--save-async"] if draw.flip(0.2) else []
        self.saving += ["--save-dtype", draw.choice(["fp32", "bf16", "fp16"])] if draw.flip(0.3) else []
        if self.evaluation and draw.flip(0.3):
            self.saving += ["--load-best-model-at-end"]
            self.saving[3] = self.evaluation[7]  # save when the run evaluates, so that the best model has a checkpoint
        self.sharding = self.draw_sharding(draw)
        recomputed = ["none", "block", 1, "mlp", "attention", "mlp=1,attention", "block=1,mlp=1"]
        self.memory = ["--activation-checkpointing", draw.choice(recomputed)]
        self.memory += ["--fuse-micro-batches", "off"] if ON_GPU and draw.flip() else []
        self.device = ["--device", "cuda" if ON_GPU else "cpu"]
        self.tokens = self.text[1] * draw.randint(1, 4) + draw.randint(0, 50) if draw.flip(0.3) else None

    def draw_sharding(self, draw):
        strategies = ["no_shard", "zero1", "zero2", "zero3", "shard_grad_op", "full_shard"]
        if self.ranks in (2, 4):
            strategies += ["hybrid_shard", "hybrid_shard_zero2"]
        strategy = draw.choice(strategies)
        words = ["--nproc", self.ranks] if self.ranks > 1 else []
        words += ["--strategy", strategy]
        if strategy.startswith("hybrid"):
            words += ["--shard-group-size", draw.choice([s for s in (1, 2, 4) if s <= self.ranks])]
        words += ["--backward-prefetch", draw.choice(["pre", "post", "none"])] if draw.flip(0.3) else []
        words += ["--forward-prefetch"] if draw.flip(0.3) else []
        words += ["--max-units-in-flight", draw.randint(1, 4)] if draw.flip(0.3) else []
        words += ["--grad-sync", draw.choice(["micro", "step"])] if draw.flip(0.2) and strategy == "no_shard" else []
        if draw.flip(0.4) and (self.ranks == 1 or strategy != "no_shard"):
            kinds = draw.choice([["optimizer"], ["optimizer", "gradients"], ["parameters"], ["optimizer", "parameters"],
                                 ["optimizer", "gradients", "parameters"]]
                                if strategy in SHARDS_PARAMETERS else [["optimizer"], ["optimizer", "gradients"]])
            if "step" in words:  # --grad-sync step keeps the gradients on the device
                kinds = [kind for kind in kinds if kind != "gradients"]
            words += ["--offload", ",".join(kind + draw.choice([":host", ":file"]) for kind in kinds), "--offload-dir",
                      "files"]
        if "fp8" in self.states and "nf4" not in self.training and strategy in SHARDS_PARAMETERS and draw.flip():
            words += ["--gather-dtype", "fp8"] if not any("parameters" in str(word) for word in words) else []
        return words

    def words(self):
        return (self.common() + self.sizes(self.batch, self.accum) + ["--precision", self.precision] + self.states +
                self.sharding + self.memory)

    def plain(self):
        """The arguments for the same steps on one rank, without sharding, offload and activation checkpointing."""
        by_tokens = self.tokens is not None
        sizes = self.sizes(self.batch * self.ranks, self.accum * (self.ranks if by_tokens else 1))
        return self.common() + sizes + ["--precision", self.precision] + self.states

    def sizes(self, batch, accum):
        micro_batch = ["--batch-size", batch] if self.tokens is None else ["--batch-tokens", self.tokens]
        return micro_batch + ["--grad-accum", accum]

    def common(self):
        return self.model + self.data + self.training + self.evaluation + self.saving + self.device


class Swarm(TinyJobTest):
    def start(self, output, words):
        run = Run([PROGRAM, "train", *map(str, words), "--output-dir", output], self.folder)
        self.addCleanup(run.destroy)
        return run

    def train(self, output, words):
        code, err = self.start(output, words).end()
        self.assertNotIn("assertion failed", err)
        return code, err

    def interrupt(self, draw, words):
        """Starts a run. Sends it a signal after a random number of lines of metrics (0 to 8), unless it has ended."""
        run = self.start("out", words)
        after, number = draw.randint(0, 8), draw.choice(SIGNALS + [signal.SIGKILL])
        while run.process.poll() is None and self.num_lines("out") < after:
            pass
        was_there = run.signal(None, number)
        code, err = run.end()
        self.assertNotIn("assertion failed", err)
        # SIGKILL kills the process. Any other signal kills it only if it arrives before the process handles signals.
        allowed = [0, SAVED_AFTER_SIGNAL, -number, 128 + number] if was_there else [0]
        self.assertIn(code, allowed, err)

    def check_outputs(self, draw, job):
        summary = self.json_of("out", "summary.json")
        self.assertEqual([record["step"] for record in self.metrics("out", "train")],
                         list(range(1, summary["steps"] + 1)))
        self.assertLessEqual(summary["ledger_peak_bytes"]["total"], summary["planned_peak_bytes"])
        self.assertEqual(summary["num_trainable_parameters"] < summary["num_parameters"], job.freezes or job.adapts)
        self.assert_tidy("out")
        if os.path.isdir(self.path("files")):
            self.assertEqual(os.listdir(self.path("files")), [])
        model = f"out/checkpoint-{max(self.checkpoints('out'))}" if job.adapts and self.checkpoints("out") else "out/model"
        words = ["--model", model, "--device", "cuda" if ON_GPU else "cpu"]
        if job.adapts and model == "out/model":  # its base has random weights, which no folder holds
            return
        if draw.flip(0.3) and job.evaluation:
            self.succeeds("eval", *words, *map(str, job.evaluation[:4] + job.text))
        if draw.flip(0.3):
            self.succeeds("generate", *words, "--prompt", "Arlo lives in", "--max-new-tokens", "3")
        if checkpoints := self.checkpoints("out"):
            self.succeeds("export", *map(str, job.model), "--checkpoint", f"out/checkpoint-{checkpoints[-1]}",
                          "--output-dir", "exported")

    def check_losses(self, job):
        code, err = self.train("plain", job.plain())
        self.assertEqual(code, 0, err)
        for kind, key in ("train", "loss"), ("eval", "eval_loss"):
            ours, plain = self.metrics("out", kind), self.metrics("plain", kind)
            self.assertEqual(len(ours), len(plain))
            for a, b in zip(ours, plain):
                self.assertTrue(math.isclose(a[key], b[key], rel_tol=LOSS_TOLERANCE), (a, b))

    def run_job(self, number):
        draw = Draw(number)
        for name in "out", "plain", "files", "exported":
            shutil.rmtree(self.path(name), ignore_errors=True)
        os.mkdir(self.path("files"))
        job = Job(draw, self.folder)
        words = job.words()
        if draw.flip(0.4):
            self.interrupt(draw, words)
        code, err = self.train("out", words)
        self.assertEqual(code, 0, err)
        self.check_outputs(draw, job)
        if job.precision == "fp32" and draw.flip():
            self.check_losses(job)

    def run_damaged(self, number):
        """Runs a job after odd values have replaced up to two of its values."""
        draw = Draw(number)
        shutil.rmtree(self.path("out"), ignore_errors=True)
        words = [str(word) for word in Job(draw, self.folder).words()]
        values = [i for i, word in enumerate(words) if not word.startswith("--")]
        for i in draw.sample(values, draw.randint(1, 2)):
            if words[i - 1] not in ("--nproc", "--threads"):  # odd values would start too many ranks or threads
                words[i] = draw.choice(ODD_VALUES)
        print(number, words) if "TESSERA_SWARM_VERBOSE" in os.environ else None
        run = self.start("out", words)
        try:
            run.process.wait(timeout=ENOUGH_S)
        except subprocess.TimeoutExpired:
            run.signal(None, signal.SIGTERM)
        code, err = run.end()
        self.assertIn(code, [0, *ERRORS, SAVED_AFTER_SIGNAL, 128 + signal.SIGTERM], (err, words))
        if code in ERRORS:
            errors = [line for line in err.splitlines() if line.startswith("error: ")]
            self.assertEqual(len(errors), 1, (err, words))

    def test_damaged_jobs(self):
        for number in range(FIRST_JOB, FIRST_JOB + NUM_JOBS):
            with self.subTest(job=number):
                self.run_damaged(number)

    def test_jobs(self):
        for number in range(FIRST_JOB, FIRST_JOB + NUM_JOBS):
            with self.subTest(job=number, words=" ".join(map(str, Job(Draw(number), self.folder).words()))):
                self.run_job(number)


if __name__ == "__main__":
    main()
