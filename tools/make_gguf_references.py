#!/usr/bin/env python3
"""Writes tests/parity/data/gguf.json: what the tensors of the GGUF files of some parity models must be.

    .venv-references/bin/pip install gguf==0.19.0 numpy==2.4.6
    .venv-references/bin/python tools/make_gguf_references.py

The names of tensors and the conversion of values come from the package gguf of llama.cpp. The rows are reordered with
NumPy, as llama.cpp's converter does for Llama and BLOOM. Each entry is the type, the shape in the order of the format,
and the first 16 digits of the SHA-256 of the bytes.
"""
import hashlib
import json
import math
import struct
from pathlib import Path

import gguf
import numpy as np

DATA = Path(__file__).resolve().parents[1] / "tests" / "parity" / "data"
MODELS = {"llama_small": "LLAMA", "llama_yarn": "LLAMA", "llama_lora": "LLAMA", "mistral_window": "LLAMA",
          "qwen2_small": "QWEN2", "qwen3_small": "QWEN3", "bloom_small": "BLOOM", "bloom_odd_heads": "BLOOM"}
TYPES = ["F32", "F16", "BF16", "Q8_0"]


def read_tensors(path):
    """{name: array} of a safetensors file with f32 tensors."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]],
                                "<f4").reshape(t["shape"]) for name, t in header.items()}


def reordered(name, array, config):
    """The rows of a tensor in llama.cpp's order. Its Llama rotates neighbouring channels, and its BLOOM has all queries
    first."""
    heads = config.get("num_attention_heads", config.get("n_head"))
    if config["model_type"] in ("llama", "mistral") and (".q_proj." in name or ".k_proj." in name):
        groups = heads if ".q_proj." in name else config["num_key_value_heads"]
        halves = array.reshape(groups, 2, array.shape[0] // groups // 2, *array.shape[1:])
        return halves.swapaxes(1, 2).reshape(array.shape)
    if ".query_key_value." in name:
        parts = array.reshape(heads, 3, array.shape[0] // heads // 3, *array.shape[1:])
        return parts.swapaxes(0, 1).reshape(array.shape)
    return array


def llama3_divisors(config):
    """What llama3's scaling of rotary positions divides the frequencies by."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type") != "llama3":
        return None
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    theta = rope.get("rope_theta", config.get("rope_theta"))
    divisors = []
    for i in range(0, width, 2):
        wavelength = 2 * math.pi * theta ** (i / width)
        low, high, context = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
        smooth = min(1, max(0, (context / wavelength - low) / (high - low)))
        divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, np.float32)


def entry(array, kind):
    data = gguf.quants.quantize(np.ascontiguousarray(array), gguf.GGMLQuantizationType[kind])
    digits = hashlib.sha256(data.tobytes()).hexdigest()[:16]
    return f"{kind} {'x'.join(str(n) for n in reversed(array.shape))} {digits}"


def tensors_of(model, architecture, kind):
    config = json.loads((DATA / model / "config.json").read_text())
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], layers)
    entries = {}
    for name, array in read_tensors(DATA / model / "model.safetensors").items():
        is_vector = array.ndim == 1
        has_blocks = kind != "Q8_0" or array.shape[-1] % 32 == 0
        entries[names.get_name(name.removeprefix("transformer."), (".weight", ".bias"))] = entry(
            reordered(name, array, config), "F32" if is_vector else kind if has_blocks else "F16")
    if (divisors := llama3_divisors(config)) is not None:
        # The digits of the last bit depend on the order of the operations, so the test compares these values.
        entries["rope_freqs.weight"] = f"F32 {len(divisors)} {' '.join(f'{d:.6g}' for d in divisors)}"
    return dict(sorted(entries.items()))


def main():
    result = {model: {kind: tensors_of(model, architecture, kind) for kind in TYPES}
              for model, architecture in MODELS.items()}
    (DATA / "gguf.json").write_text(json.dumps(result, indent=0) + "\n")


if __name__ == "__main__":
    main()
