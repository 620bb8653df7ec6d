"""The workshop's custom model ("SimpleGPT") in PyTorch: the reference that Tessera's `gpt` architecture must equal.

Embedding -> num_layers post-norm encoder layers with a causal mask and ReLU -> linear head. The head uses the weight of
the embedding, and has its own bias. The model has no position embeddings and no final norm.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class SimpleGpt(nn.Module):
    def __init__(self, vocab_size, hidden_size, num_layers, num_heads, ff_dim, max_length, dropout=0.1):
        super().__init__()
        self.config = dict(model_type="gpt", vocab_size=vocab_size, hidden_size=hidden_size, num_layers=num_layers,
                           num_heads=num_heads, ff_dim=ff_dim, max_length=max_length, dropout=dropout)
        self.token_embedding = nn.Embedding(vocab_size, hidden_size)
        layer = nn.TransformerEncoderLayer(hidden_size, num_heads, ff_dim, dropout, batch_first=True)
        # Nested tensors are off, because their fast path exists only for evaluation and would compute differently.
        self.transformer = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.lm_head = nn.Linear(hidden_size, vocab_size)
        self.lm_head.weight = self.token_embedding.weight

    def forward(self, ids):  # [B, T] -> [B, T, V]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        with sdpa_kernel(SDPBackend.MATH):
            return self.lm_head(self.transformer(self.token_embedding(ids), mask=mask, is_causal=True))

    def save_pretrained(self, folder):
        """Writes config.json and model.safetensors. Omits the head's weight, because it is the embedding's weight."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        tensors = {name: p.detach().contiguous() for name, p in self.named_parameters()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def from_pretrained(cls, folder):
        """Reads config.json and model.safetensors. Raises an error if a tensor is missing, unexpected or has a wrong
        shape."""
        config = json.loads((Path(folder) / "config.json").read_text())
        names = ("vocab_size", "hidden_size", "num_layers", "num_heads", "ff_dim", "max_length", "dropout")
        model = cls(**{name: config[name] for name in names})
        tensors = {name: t.float() for name, t in load_file(Path(folder) / "model.safetensors").items()}
        expected = {name for name, _ in model.named_parameters()}
        if set(tensors) != expected:
            raise ValueError(f"{folder}: missing {sorted(expected - set(tensors))}, "
                             f"unexpected {sorted(set(tensors) - expected)}")
        model.load_state_dict({**tensors, "lm_head.weight": tensors["token_embedding.weight"]})
        return model
