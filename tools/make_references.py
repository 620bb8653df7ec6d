#!/usr/bin/env python3
"""Writes the reference files of Tessera's parity tests to tests/parity/data (see its README.md).

    python3 -m venv .venv-references && .venv-references/bin/pip install -r tools/requirements-references.txt
    .venv-references/bin/python tools/make_references.py [NAME ...]

transformers and torch compute everything in fp32 on one CPU thread with deterministic algorithms. In shapes, B is the
number of sequences, T the number of tokens of each sequence, N the number of tokens of all sequences together, C the
number of channels, and V the size of the vocabulary.
"""
import argparse
import os
import shutil
import tempfile
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import bitsandbytes
import peft
import torch
import transformers
from safetensors.torch import save_file
from simple_gpt import SimpleGpt
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, get_linear_schedule_with_warmup)
from transformers.trainer_pt_utils import get_parameter_names

IGNORED = -100          # the label of a position without loss
EOS, PAD = 2, 3
FIRST_ORDINARY_ID = 4   # 0..3 are <unk>, <s>, </s>, <pad>
STEPS, ACCUMULATION, WARMUP_STEPS = 20, 2, 3
LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY, MAX_NORM = 1e-3, (0.9, 0.999), 1e-8, 0.01, 1.0
MAX_NEW_TOKENS = 12
STEP_WITHOUT_TARGETS = 5  # the second micro-batch of this step has no target


def bloom(vocab, channels, heads, layers, **more):
    return lambda: BloomForCausalLM(BloomConfig(
        vocab_size=vocab, hidden_size=channels, n_head=heads, n_layer=layers, bos_token_id=1, eos_token_id=EOS,
        pad_token_id=PAD, attn_implementation="eager", **more))


def gpt(vocab, channels, heads, layers, ff_dim):
    return lambda: SimpleGpt(vocab, channels, layers, heads, ff_dim, max_length=64, dropout=0.0)


def llama_like(model, config, vocab, channels, heads, kv_heads, layers, ff_dim, tied=True, rope=None, **more):
    rope = {"rope_type": "default", "rope_theta": 10000.0} | (rope or {})
    return lambda: model(config(
        vocab_size=vocab, hidden_size=channels, num_attention_heads=heads, num_key_value_heads=kv_heads,
        num_hidden_layers=layers, intermediate_size=ff_dim, tie_word_embeddings=tied, rope_parameters=rope,
        bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD, attn_implementation="eager", **more))


# original_max_position_embeddings is small, so these RoPE scalings change most frequencies of the models' small heads.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}

MODELS = {
    "bloom_small": bloom(97, 32, 4, 2),
    "bloom_odd_heads": bloom(61, 24, 6, 3),       # ALiBi slopes for a number of heads that is not a power of two
    "bloom_post_residual": bloom(61, 32, 4, 2, apply_residual_connection_post_layernorm=True),
    "bloom_three_heads": bloom(53, 48, 3, 1),
    "gpt_small": gpt(61, 32, 4, 2, 64),
    "gpt_wide": gpt(61, 24, 2, 2, 80),            # a feed-forward width that is not a multiple of C
    "llama_small": llama_like(LlamaForCausalLM, LlamaConfig, 61, 32, 4, 2, 2, 56, rope=LLAMA3),
    # Attention heads of 80 channels, one key-value head for three query heads, biases in attention and MLP, and an
    # untied output head.
    "llama_untied": llama_like(LlamaForCausalLM, LlamaConfig, 53, 24, 3, 1, 1, 40, tied=False, head_dim=80,
                               attention_bias=True, mlp_bias=True, hidden_act="gelu_pytorch_tanh"),
    "llama_yarn": llama_like(LlamaForCausalLM, LlamaConfig, 53, 32, 2, 1, 1, 44, rope=YARN,
                             max_position_embeddings=64),
    "mistral_window": llama_like(MistralForCausalLM, MistralConfig, 53, 32, 4, 2, 2, 48, sliding_window=5),
    "qwen2_small": llama_like(Qwen2ForCausalLM, Qwen2Config, 53, 64, 1, 1, 1, 24, use_sliding_window=True,
                              sliding_window=4, max_window_layers=0),
    "qwen3_small": llama_like(Qwen3ForCausalLM, Qwen3Config, 53, 16, 2, 1, 1, 24, head_dim=128),
}


# Models with a LoRA adapter: the base, and the options of the adapter.
ADAPTED = {
    "bloom_lora": (bloom(53, 32, 4, 2), {"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "bias": "all"}),
    "llama_lora": (llama_like(LlamaForCausalLM, LlamaConfig, 53, 32, 4, 2, 2, 48, tied=False, mlp_bias=True),
                   {"r": 8, "lora_alpha": 4, "target_modules": "all-linear", "modules_to_save": ["lm_head"]}),
    # Ranks that are no multiple of 4, and layers without an adapter between layers with one.
    "qwen2_lora": (llama_like(Qwen2ForCausalLM, Qwen2Config, 53, 32, 4, 2, 3, 40),
                   {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj", "v_proj", "up_proj"],
                    "rank_pattern": {"v_proj": 5}, "alpha_pattern": {"up_proj": 2}, "layers_to_transform": [0, 2]}),
    # A base in NF4. The weights of its feed-forward layers fill a group of scales, and start another.
    "llama_qlora": (llama_like(LlamaForCausalLM, LlamaConfig, 53, 64, 4, 2, 1, 272),
                    {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}),
    "bloom_qlora": (bloom(53, 32, 4, 1), {"r": 3, "lora_alpha": 6, "target_modules": "all-linear"}),
    "qwen2_qlora": (llama_like(Qwen2ForCausalLM, Qwen2Config, 53, 32, 4, 2, 2, 40),
                    {"r": 2, "lora_alpha": 3, "use_rslora": True, "target_modules": ["q_proj", "v_proj", "up_proj"]}),
}
QUANTIZED = {name for name in ADAPTED if name.endswith("_qlora")}


@dataclass
class Batch:
    """B sequences without padding. labels[b][t] is the token that position t must predict, or IGNORED."""
    ids: list[torch.Tensor]
    labels: list[torch.Tensor]

    @property
    def num_targets(self):
        return sum(int((row != IGNORED).sum()) for row in self.labels)

    def tensors(self, prefix):
        starts = torch.tensor([0] + [len(row) for row in self.ids]).cumsum(0)
        return {prefix + "ids": torch.cat(self.ids).int(), prefix + "starts": starts.int(),
                prefix + "labels": torch.cat(self.labels).int()}


def make_sequence(generator, vocab, length, prompt_length):
    """Returns random ids and labels. The targets are all tokens after the prompt. If there is no prompt, the first token
    is not a target."""
    ids = torch.randint(FIRST_ORDINARY_ID, vocab, (length,), generator=generator)
    labels = torch.full((length,), IGNORED)
    first = max(prompt_length - 1, 0)
    labels[first:-1] = ids[first + 1:]
    return ids, labels


def make_batch(generator, vocab, shapes):
    """shapes: one (length, prompt_length) per sequence."""
    rows = [make_sequence(generator, vocab, *shape) for shape in shapes]
    return Batch([ids for ids, _ in rows], [labels for _, labels in rows])


def make_micro_batch(generator, vocab, step, micro):
    shapes = []
    for _ in range(2 + (step + micro) % 2):
        length = int(torch.randint(2, 12, (), generator=generator))
        prompt_length = int(torch.randint(0, length, (), generator=generator))
        if step == STEP_WITHOUT_TARGETS and micro == 1:
            prompt_length = length
        shapes.append((length, prompt_length))
    return make_batch(generator, vocab, shapes)


def initialize(model, generator):
    """Sets larger weights than usual, and random biases and norms, to make every gradient large enough to compare."""
    if isinstance(model, SimpleGpt):
        final_norm = f"{len(model.transformer.layers) - 1}.norm2"
    else:
        final_norm = "ln_f" if isinstance(model, BloomForCausalLM) else "model.norm"
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=generator)
            if p.ndim > 1:
                p.copy_(values * (0.3 if "embed" in name else 0.2))
            elif name.endswith(f"{final_norm}.weight"):
                p.copy_(values)  # of both signs. Otherwise, a model with a tied head mostly repeats its input token
            elif name.endswith("weight"):
                p.copy_(1.0 + 0.1 * values)
            else:
                p.copy_(0.1 * values)
        embedding = next(p for name, p in model.named_parameters() if "embed" in name)
        embedding[EOS] *= 1.7  # </s> gets logits of larger magnitude, so some generations end with </s>
        if model.lm_head.bias is not None:
            model.lm_head.bias[EOS] += 1.0


def quantize(model, folder, keeps_weights):
    """Saves the model as bitsandbytes quantizes it, and on request its weights before that. Returns the model with the weights that
    bitsandbytes computes with."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16())
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                 bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
        packed = type(model).from_pretrained(plain, quantization_config=config, device_map="cpu", dtype=torch.float32)
    packed.save_pretrained(folder)
    weights = {}
    for name, layer in packed.named_modules():
        if isinstance(layer, bitsandbytes.nn.Linear4bit):
            weights[f"{name}.weight"] = model.get_submodule(name).weight.detach().bfloat16()
            values = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
            with torch.no_grad():
                model.get_submodule(name).weight.copy_(values)
            if name.endswith("down_proj"):
                weights[f"{name}.values"] = values.clone()
    if keeps_weights:
        save_file(weights, folder / "before_quantization.safetensors")
    return model


def add_adapter(model, options, folder, generator):
    """Adds an adapter to the layers of the model, and saves it in PEFT's format."""
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn(p.shape, generator=generator) * (0.2 if "lora_A" in name else 0.1))
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()
    return model


def trained(model):
    """(name, parameter) of each trained parameter. The names have none of the words that PEFT adds."""
    for name, p in model.named_parameters():
        if p.requires_grad:
            for word in ".default", ".base_layer", ".modules_to_save":
                name = name.replace(word, "")
            yield name, p


def logits_of(model, ids, mask=None):
    """[B, T] ids -> [B, T, V]."""
    if isinstance(model, PreTrainedModel):
        return model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    assert mask is None
    return model(ids)


def batch_logits(model, batch):
    """Returns [N, V]. Each sequence runs alone, without any padding."""
    return torch.cat([logits_of(model, row[None])[0] for row in batch.ids])


def loss_sum(model, batch):
    return cross_entropy(batch_logits(model, batch), torch.cat(batch.labels), ignore_index=IGNORED, reduction="sum")


def check_padded_run(model, batch, logits, loss):
    """Checks that padding on the left or on the right, as the Trainer adds it, does not change logits and loss."""
    width = max(len(row) for row in batch.ids)
    for left in (False, True):
        ids = torch.full((len(batch.ids), width), PAD)
        mask = torch.zeros_like(ids)
        unshifted = torch.full_like(ids, IGNORED)
        for b, (row, labels) in enumerate(zip(batch.ids, batch.labels)):
            place = slice(width - len(row), width) if left else slice(0, len(row))
            ids[b, place], mask[b, place] = row, 1
            unshifted[b, place][1:] = labels[:-1]
        out = model(input_ids=ids, attention_mask=mask, labels=unshifted, use_cache=False)
        difference = (out.logits[mask.bool()] - logits).abs().max().item()
        torch.testing.assert_close(out.logits[mask.bool()], logits, rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(out.loss, loss, rtol=1e-5, atol=1e-5)
        print(f"  padded on the {'left' if left else 'right'}: logits differ by at most {difference:.1e}")


def forward_backward(model, batch):
    logits = batch_logits(model, batch)
    loss = cross_entropy(logits, torch.cat(batch.labels), ignore_index=IGNORED)
    model.zero_grad()
    loss.backward()
    if isinstance(model, PreTrainedModel):
        with torch.no_grad():
            check_padded_run(model, batch, logits, loss)
    out = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    out |= {f"grad/{name}": p.grad.clone() for name, p in trained(model)}
    return out


@torch.no_grad()
def greedy(model, prompt):
    """Returns the new ids, including </s>, and the smallest gap between the two largest logits over all steps."""
    ids, gap = prompt[None], float("inf")
    for _ in range(MAX_NEW_TOKENS):
        best = logits_of(model, ids)[0, -1].topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        ids = torch.cat([ids, best.indices[None, :1]], dim=1)
        if ids[0, -1] == EOS:
            break
    return ids[0, len(prompt):], gap


def choose_prompts(model, generator, vocab):
    """Returns two prompts whose output ends with </s>, and three prompts of 1, 5 and 9 tokens whose output does not.

    Each result is (prompt, output). At no step are the two largest logits so close that rounding could decide the
    token.
    """
    ending, others = [], {}
    for i in range(2000):
        length = 1 + i % 9
        prompt = torch.randint(FIRST_ORDINARY_ID, vocab, (length,), generator=generator)
        output, gap = greedy(model, prompt)
        if gap < 0.01:
            continue
        if int(output[-1]) == EOS:
            ending.append((prompt, output))
        elif length in (1, 5, 9):
            others.setdefault(length, (prompt, output))
        if len(ending) >= 2 and len(others) == 3:
            return ending[:2] + list(others.values())
    raise RuntimeError("no prompts of the wanted kinds found")


@torch.no_grad()
def generate(model, generator, vocab):
    chosen = choose_prompts(model, generator, vocab)
    if isinstance(model, PreTrainedModel):
        check_generate(model, chosen)
    out = {}
    for i, (prompt, output) in enumerate(chosen):
        out |= {f"generate/{i}/prompt": prompt.int(), f"generate/{i}/output": output.int()}
    return out


def check_generate(model, chosen):
    """Checks that transformers' generate() gives the same tokens for all prompts as one left-padded batch."""
    width = max(len(prompt) for prompt, _ in chosen)
    ids = torch.stack([nn.functional.pad(p, (width - len(p), 0), value=PAD) for p, _ in chosen])
    mask = torch.stack([nn.functional.pad(torch.ones_like(p), (width - len(p), 0)) for p, _ in chosen])
    out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=MAX_NEW_TOKENS)
    for row, (_, output) in zip(out[:, width:], chosen):
        assert row[:len(output)].equal(output), "generate() differs from greedy decoding step by step"


def make_optimizer(model):
    """Returns AdamW with the Trainer's groups of weight decay, and the Trainer's schedule."""
    forbidden = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decayed = set(get_parameter_names(model, [nn.LayerNorm], forbidden))
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    assert {name for name, p in named if p.ndim > 1} == decayed & {name for name, _ in named}
    groups = [{"params": [p for name, p in named if name in decayed], "weight_decay": WEIGHT_DECAY},
              {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, foreach=False)
    return optimizer, get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, STEPS)


def train(model, generator, vocab):
    """Runs STEPS updates of ACCUMULATION micro-batches each. The loss is the mean over all targets of the step."""
    optimizer, schedule = make_optimizer(model)
    out, losses, norms, rates = {}, [], [], []
    for step in range(STEPS):
        batches = [make_micro_batch(generator, vocab, step, micro) for micro in range(ACCUMULATION)]
        num_targets = sum(batch.num_targets for batch in batches)
        step_loss = 0.0
        optimizer.zero_grad()
        for micro, batch in enumerate(batches):
            loss = loss_sum(model, batch) / num_targets
            loss.backward()
            step_loss += loss.item()
            out |= batch.tensors(f"steps/{step}/{micro}/")
        norms.append(nn.utils.clip_grad_norm_([p for _, p in trained(model)], MAX_NORM).item())
        losses.append(step_loss)
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    print(f"  {STEPS} steps: loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms {min(norms):.2f}..{max(norms):.2f}")
    out |= {"adamw_losses": torch.tensor(losses), "grad_norms": torch.tensor(norms),
            "learning_rates": torch.tensor(rates)}
    return out | {f"final/{name}": p.detach().clone() for name, p in trained(model)}


def make_reference(name, folder):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    base, adapter = ADAPTED.get(name) or (MODELS[name], None)
    model = base().train()
    vocab = model.lm_head.out_features
    initialize(model, generator)
    shutil.rmtree(folder, ignore_errors=True)
    if name in QUANTIZED:
        model = quantize(model, folder, keeps_weights=name == "llama_qlora")
    else:
        model.save_pretrained(folder)
    if adapter:
        model = add_adapter(model, adapter, folder, generator)
    # The sequences of 1 and 6 tokens have no targets. In the sequence of 13 tokens, every token except the first is a
    # target. The sequences of 9, 2 and 17 tokens are prompts with completions.
    batch = make_batch(generator, vocab, [(9, 4), (1, 0), (13, 0), (6, 6), (2, 1), (17, 12)])
    tensors = batch.tensors("") | forward_backward(model, batch)
    tensors |= generate(model, generator, vocab)
    tensors |= train(model, generator, vocab)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "reference.safetensors",
              metadata={"torch": torch.__version__, "transformers": transformers.__version__})
    assert all(tensors[f"grad/{key}"].abs().max() > 0 for key, _ in trained(model))
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"  {folder}: {size / 1e3:.0f} kB")


def main():
    known = MODELS | ADAPTED
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(known)}")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "tests/parity/data")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"unknown model {unknown[0]}. Known models: {', '.join(known)}")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    warnings.simplefilter("error")
    for name in arguments.names or known:
        print(name)
        make_reference(name, arguments.output / name)


if __name__ == "__main__":
    main()
