#!/usr/bin/env python3
"""Writes the references of products in 8 bits: tests/unit/base/e4m3.json and the folder tests/parity/data/float8.

    python3 -m venv .venv-references && .venv-references/bin/pip install -r tools/requirements-references.txt
    .venv-references/bin/python tools/make_float8_references.py

ml_dtypes converts between fp32 and e4m3. The rest is NumPy in double precision: a Llama with one block, forward and
backward, whose linear layers round their factors to 8 bits. N is the number of tokens, C the number of channels.
"""
import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).parent.parent / "tests"
BLOCK, LARGEST = 128, 448
VOCAB, CHANNELS, HEADS, KV_HEADS, HEAD_DIM, INNER = 53, 144, 2, 1, 8, 128
EPSILON, THETA = 1e-6, 10000.0
LENGTHS = [40, 1, 60, 35, 13]  # tokens of the sequences, together more than a block


def e4m3(x):
    """Rounds fp32 to e4m3, as fp32."""
    return x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def write_conversions():
    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    halfway = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    rng = np.random.default_rng(4)
    numbers = np.concatenate([finite, halfway, np.nextafter(halfway.astype(np.float32), np.inf),
                              np.nextafter(halfway.astype(np.float32), -np.inf),
                              rng.normal(0, 100, 500), rng.normal(0, 1, 500), rng.normal(0, 0.01, 500)])
    numbers = numbers.astype(np.float32)
    numbers = numbers[np.abs(numbers) <= LARGEST]
    codes = numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    (ROOT / "unit/base/e4m3.json").write_text(json.dumps({
        "values": [None if np.isnan(value) else float(value) for value in values],
        "from_f32": [[int(number), int(code)] for number, code in zip(numbers.view(np.uint32), codes)],
    }) + "\n")


def rounded(x, axis, squares=False):
    """x, rounded to 8 bits in blocks along the axis, or in squares. Sums over tokens (axis 0) have powers of two as scales,
    the others have quotients."""
    x = np.asarray(x, np.float32)
    result = np.empty(x.shape)
    height, width = (BLOCK, BLOCK) if squares else (1, BLOCK) if axis == 1 else (BLOCK, 1)
    for row in range(0, x.shape[0], height):
        for column in range(0, x.shape[1], width):
            at = np.s_[row:row + height, column:column + width]
            largest = np.abs(x[at]).max()
            if largest == 0:
                scale = inverse = np.float32(1)
            elif axis == 1:
                scale, inverse = largest / np.float32(LARGEST), np.float32(LARGEST) / largest
            else:
                scale = np.float32(2.0 ** np.ceil(np.log2(np.float64(largest) / LARGEST)))
                inverse = 1 / scale
            result[at] = e4m3(x[at] * inverse).astype(np.float64) * scale
    return result


class Model:
    """`in_8_bits`: whether the factors of linear layers are rounded."""

    def __init__(self, weights, in_8_bits):
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}
        self.q = rounded if in_8_bits else lambda x, axis, squares=False: x
        self.grads = {}

    def linear(self, x, names):
        return self.q(x, 1) @ self.q(np.concatenate([self.w[name] for name in names]), 1, True).T

    def linear_backward(self, d_y, x, names):
        weight = np.concatenate([self.w[name] for name in names])
        d_weight = self.q(d_y, 0).T @ self.q(x, 0, True)
        for name in names:
            rows = len(self.w[name])
            self.grads[name], d_weight = d_weight[:rows], d_weight[rows:]
        return self.q(d_y, 1) @ self.q(weight, 1, True)  # the same rounded weight as in forward

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(1, keepdims=True) + EPSILON) * self.w[name]

    def norm_backward(self, d_y, x, name):
        rstd = 1 / np.sqrt((x * x).mean(1, keepdims=True) + EPSILON)
        self.grads[name] = (d_y * x * rstd).sum(0)
        d_normed = d_y * self.w[name]
        return rstd * (d_normed - x * rstd**2 * (d_normed * x).mean(1, keepdims=True))

    @staticmethod
    def rotate(x, positions, sign):
        """x [N, heads, D]. sign: 1, or -1 for the gradient."""
        half = HEAD_DIM // 2
        angles = positions[:, None] * THETA ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], sign * np.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, q, k, v):
        """One sequence. q [n, heads, D], k and v [n, kv heads, D]. Returns the output and the probabilities."""
        n, group = len(q), HEADS // KV_HEADS
        k, v = k.repeat(group, 1), v.repeat(group, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(HEAD_DIM)
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", p, v), p

    def attention_backward(self, d_o, q, k, v, p):
        group = HEADS // KV_HEADS
        all_k, all_v = k.repeat(group, 1), v.repeat(group, 1)
        d_p = np.einsum("ihd,jhd->hij", d_o, all_v)
        d_scores = p * (d_p - (d_p * p).sum(-1, keepdims=True)) / np.sqrt(HEAD_DIM)
        d_v, d_k = np.einsum("hij,ihd->jhd", p, d_o), np.einsum("hij,ihd->jhd", d_scores, q)
        by_group = (len(k), KV_HEADS, group, HEAD_DIM)
        return (np.einsum("hij,jhd->ihd", d_scores, all_k), d_k.reshape(by_group).sum(2), d_v.reshape(by_group).sum(2))

    def run(self, ids, labels, starts):
        """Returns the logits and the loss, and fills grads."""
        qkv_names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
        gate_up_names = [f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up")]
        o_name, down_name = "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight"
        norms = "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight"
        embedding = self.w["model.embed_tokens.weight"]
        num_tokens = len(ids)
        sequences = [slice(a, b) for a, b in zip(starts, starts[1:])]
        positions = np.concatenate([np.arange(s.stop - s.start) for s in sequences])

        x = embedding[ids]
        a = self.norm(x, norms[0])
        qkv = self.linear(a, qkv_names).reshape(num_tokens, HEADS + 2 * KV_HEADS, HEAD_DIM)
        q, k = self.rotate(qkv[:, :HEADS], positions, 1), self.rotate(qkv[:, HEADS:HEADS + KV_HEADS], positions, 1)
        v = qkv[:, HEADS + KV_HEADS:]
        attended = [self.attention(q[s], k[s], v[s]) for s in sequences]
        o = np.concatenate([out for out, _ in attended]).reshape(num_tokens, -1)
        mid = x + self.linear(o, [o_name])
        b = self.norm(mid, norms[1])
        gate_up = self.linear(b, gate_up_names)
        gate, up = gate_up[:, :INNER], gate_up[:, INNER:]
        sigmoid = 1 / (1 + np.exp(-gate))
        h = gate * sigmoid * up
        y = mid + self.linear(h, [down_name])
        z = self.norm(y, "model.norm.weight")
        logits = z @ embedding.T

        rows = np.flatnonzero(labels >= 0)
        shifted = logits[rows] - logits[rows].max(1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(1))
        loss = (log_sum - shifted[np.arange(len(rows)), labels[rows]]).mean()
        d_logits = np.zeros_like(logits)
        d_logits[rows] = np.exp(shifted - log_sum[:, None])
        d_logits[rows, labels[rows]] -= 1
        d_logits /= len(rows)

        d_embedding = d_logits.T @ z
        d_y = self.norm_backward(d_logits @ embedding, y, "model.norm.weight")
        gate_up = self.q(gate_up, 1)  # backward keeps it in 8 bits
        gate, up = gate_up[:, :INNER], gate_up[:, INNER:]
        sigmoid = 1 / (1 + np.exp(-gate))
        h = gate * sigmoid * up
        d_h = self.linear_backward(d_y, h, [down_name])
        d_gate = d_h * up * (sigmoid + gate * sigmoid * (1 - sigmoid))
        d_b = self.linear_backward(np.concatenate([d_gate, d_h * gate * sigmoid], 1), b, gate_up_names)
        d_mid = d_y + self.norm_backward(d_b, mid, norms[1])
        d_o = self.linear_backward(d_mid, o, [o_name]).reshape(num_tokens, HEADS, HEAD_DIM)
        d_qkv = np.empty_like(qkv)
        for s, (_, p) in zip(sequences, attended):
            d_q, d_k, d_v = self.attention_backward(d_o[s], q[s], k[s], v[s], p)
            d_qkv[s] = np.concatenate([self.rotate(d_q, positions[s], -1), self.rotate(d_k, positions[s], -1), d_v], 1)
        d_a = self.linear_backward(d_qkv.reshape(num_tokens, -1), a, qkv_names)
        d_x = d_mid + self.norm_backward(d_a, x, norms[0])
        np.add.at(d_embedding, ids, d_x)
        self.grads["model.embed_tokens.weight"] = d_embedding
        return logits, loss


def random_weights(rng):
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"self_attn.q_proj": (q, CHANNELS), "self_attn.k_proj": (kv, CHANNELS), "self_attn.v_proj": (kv, CHANNELS),
              "self_attn.o_proj": (CHANNELS, q), "mlp.gate_proj": (INNER, CHANNELS), "mlp.up_proj": (INNER, CHANNELS),
              "mlp.down_proj": (CHANNELS, INNER)}
    weights = {f"model.layers.0.{name}.weight": rng.normal(0, shape[1] ** -0.5, shape) for name, shape in shapes.items()}
    for name in "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm":
        weights[name + ".weight"] = rng.uniform(0.5, 1.5, CHANNELS)
    weights["model.embed_tokens.weight"] = rng.normal(0, 0.08, (VOCAB, CHANNELS))
    return {name: value.astype(np.float32) for name, value in weights.items()}


def check_gradients(weights, batch):
    """Compares the gradients without rounding with central differences."""
    model = Model(weights, False)
    model.run(*batch)
    rng = np.random.default_rng(4)
    for name, value in model.w.items():
        direction = rng.normal(0, 1, value.shape)
        losses = []
        for step in (1e-5, -1e-5):
            moved = Model(weights, False)
            moved.w[name] = value + step * direction
            losses.append(moved.run(*batch)[1])
        slope, expected = (losses[0] - losses[1]) / 2e-5, (model.grads[name] * direction).sum()
        assert abs(slope - expected) <= 1e-6 * max(1, abs(expected)), (name, slope, expected)


def main():
    write_conversions()
    rng = np.random.default_rng(4)
    weights = random_weights(rng)
    starts = np.cumsum([0, *LENGTHS]).astype(np.int32)
    ids = rng.integers(4, VOCAB, starts[-1]).astype(np.int32)
    labels = np.full_like(ids, -100)
    for begin, end in zip(starts, starts[1:]):
        labels[begin + 2:end - 1] = ids[begin + 3:end]
    batch = ids, labels, starts
    check_gradients(weights, batch)
    model = Model(weights, True)
    logits, loss = model.run(*batch)
    exact_logits, exact_loss = Model(weights, False).run(*batch)
    print("largest difference of a logit", np.abs(logits - exact_logits).max(), "of", np.abs(logits).max(), "losses",
          loss, exact_loss)
    folder = ROOT / "parity/data/float8"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": CHANNELS,
        "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "intermediate_size": INNER, "hidden_act": "silu", "rms_norm_eps": EPSILON, "rope_theta": THETA,
        "max_position_embeddings": 64, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}, indent=2)
        + "\n")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    reference = {"ids": ids, "labels": labels, "starts": starts, "logits": logits.astype(np.float32),
                 "loss": np.array([loss], np.float32)}
    reference |= {"grad/" + name: value.astype(np.float32) for name, value in model.grads.items()}
    save_file(reference, folder / "reference.safetensors",
              metadata={"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__})


if __name__ == "__main__":
    main()
