"""GGUF files of `export --gguf`, read by a parser of this test. tools/make_gguf_references.py, which uses llama.cpp's package
gguf, made what the tensors must be."""
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys

from tessera_cli import PROGRAM, CliTest, main
from tiny_job import INPUT, USAGE, read_tensors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARITY = os.path.join(ROOT, "tests", "parity", "data")
CHAT = os.path.join(ROOT, "recipes", "chat", "model")
TOKENIZERS = os.path.join(ROOT, "tests", "unit", "data", "tokenizer_references")
TYPES = {0: "F32", 1: "F16", 8: "Q8_0", 30: "BF16"}
BYTES = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34)}  # values and bytes of a block
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Gguf:
    """The keys of a GGUF file, and its tensors: {name: (type, shape, bytes)}."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        assert self.data[:4] == b"GGUF"
        self.at = 4
        version, num_tensors, num_keys = self.number("I"), self.number("Q"), self.number("Q")
        assert version == 3
        self.keys = {}
        for _ in range(num_keys):
            name = self.text()
            assert name not in self.keys
            self.keys[name] = self.value(self.number("I"))
        places = []
        for _ in range(num_tensors):
            name, rank = self.text(), self.number("I")
            shape = [self.number("Q") for _ in range(rank)]
            places.append((name, TYPES[self.number("I")], shape, self.number("Q")))
        start = (self.at + 31) // 32 * 32
        assert not any(self.data[self.at:start])
        self.tensors, reached = {}, 0
        for name, kind, shape, offset in places:
            assert offset == reached and offset % 32 == 0, name
            count = 1
            for size in shape:
                count *= size
            values, per_block = BYTES[kind]
            assert shape[0] % values == 0
            size = count // values * per_block
            self.tensors[name] = (kind, shape, self.data[start + offset:start + offset + size])
            reached = (offset + size + 31) // 32 * 32
        assert len(self.tensors) == num_tensors
        assert len(self.data) == start + reached

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind != 9:
            return self.number(NUMBERS[kind])
        of, count = self.number("I"), self.number("Q")
        return [self.value(of) for _ in range(count)]


def tokenizer_with(size):
    """A tokenizer.json with `size` tokens: four special ones, and single bytes."""
    names = ["<unk>", "<s>", "</s>", "<pad>"]
    tokens = names + [chr(ord("!") + i) for i in range(size - len(names))]
    return json.dumps({
        "version": "1.0",
        "added_tokens": [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, name in enumerate(names)],
        "normalizer": None, "post_processor": None, "decoder": {"type": "ByteLevel"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}})


class Export(CliTest):
    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def model(self, name, **changes):
        """A copy of a parity model, with a tokenizer and changes of config.json."""
        os.mkdir(self.path(name))
        with open(os.path.join(PARITY, name, "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), **changes}
        self.write(f"{name}/config.json", json.dumps(config))
        shutil.copy(os.path.join(PARITY, name, "model.safetensors"), self.path(name))
        self.write(f"{name}/tokenizer.json", tokenizer_with(config["vocab_size"]))
        return name

    def export(self, kind, *words):
        """Returns the file and what the program wrote on standard error."""
        shutil.rmtree(self.path("out"), ignore_errors=True)
        code, out, err = self.run_tessera("export", "--gguf", kind, *words, "--output-dir", "out")
        self.assertEqual(code, 0, err)
        (name,) = os.listdir(self.path("out"))
        self.assertTrue(out.startswith(f"out/{name}: "), out)
        return Gguf(self.path("out", name)), err

    def test_tensors(self):
        with open(os.path.join(PARITY, "gguf.json"), encoding="utf-8") as file:
            references = json.load(file)
        for model, kinds in references.items():
            self.model(model)
            for kind, expected in kinds.items():
                with self.subTest(model=model, kind=kind):
                    file, err = self.export(kind.lower(), "--model", model)
                    self.assertEqual(file.keys["general.name"], model)
                    entries = {}
                    for name, (of, shape, data) in file.tensors.items():
                        digits = hashlib.sha256(data).hexdigest()[:16]
                        if name == "rope_freqs.weight":
                            digits = " ".join(f"{d:.6g}" for d in struct.unpack(f"<{shape[0]}f", data))
                        entries[name] = f"{of} {'x'.join(str(n) for n in shape)} {digits}"
                    self.assertEqual(entries, expected)
                    smaller = [e for e in expected.values() if e.startswith("F16 ")] if kind == "Q8_0" else []
                    self.assertEqual("because Q8_0 needs rows of a multiple of 32 values" in err, bool(smaller), err)

    def test_keys_of_models(self):
        file, _ = self.export("q8_0", "--model", self.model("llama_small"))
        keys = file.keys
        self.assertEqual({name: keys[name] for name in keys if not name.startswith("tokenizer.")}, {
            "general.architecture": "llama", "general.type": "model", "general.name": "llama_small",
            "llama.block_count": 2, "llama.context_length": keys["llama.context_length"], "llama.embedding_length": 32,
            "llama.feed_forward_length": 56, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
            "llama.attention.layer_norm_rms_epsilon": struct.unpack("f", struct.pack("f", 1e-6))[0],
            "llama.attention.key_length": 8, "llama.attention.value_length": 8, "llama.rope.freq_base": 500.0,
            "llama.vocab_size": 61, "llama.rope.dimension_count": 8, "general.file_type": 7,
            "general.quantization_version": 2})
        yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 16}
        file, _ = self.export("f16", "--model", self.model("llama_yarn"))
        self.assertEqual({name: file.keys[name] for name in file.keys if ".rope.scaling." in name}, yarn)
        self.assertEqual(file.keys["general.file_type"], 1)
        file, err = self.export("bf16", "--model", self.model("mistral_window"))
        self.assertEqual((file.keys["general.architecture"], file.keys["general.file_type"]), ("llama", 32))
        self.assertIn("llama.cpp has no sliding window in this model. Its results differ for texts of more than 5 tokens", err)
        file, _ = self.export("f32", "--model", self.model("qwen3_small"))
        self.assertEqual((file.keys["general.architecture"], file.keys["qwen3.attention.key_length"],
                          file.keys["general.file_type"]), ("qwen3", 128, 0))
        file, _ = self.export("f16", "--model", self.model("bloom_small", seq_length=777))
        self.assertEqual({name: file.keys[name] for name in file.keys if name.startswith("bloom.")}, {
            "bloom.context_length": 777, "bloom.embedding_length": 32, "bloom.feed_forward_length": 128,
            "bloom.block_count": 2, "bloom.attention.head_count": 4, "bloom.attention.head_count_kv": 4,
            "bloom.attention.layer_norm_epsilon": struct.unpack("f", struct.pack("f", 1e-5))[0]})

    def test_tokenizer_and_template(self):
        file, _ = self.export("auto", "--model", CHAT)  # the model is in bf16
        self.assertEqual(file.tensors["token_embd.weight"][0], "BF16")
        self.assertNotIn("output.weight", file.tensors)
        with open(os.path.join(CHAT, "tokenizer.json"), encoding="utf-8") as text:
            tokenizer = json.load(text)
        with open(os.path.join(CHAT, "chat_template.jinja"), encoding="utf-8") as text:
            template = text.read()
        keys = file.keys
        self.assertEqual(keys["general.name"], "chat")  # the folder "model" is a part of a run
        self.assertEqual(keys["tokenizer.chat_template"], template)
        self.assertEqual((keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]), ("gpt2", "bloom"))
        self.assertEqual(keys["tokenizer.ggml.tokens"],
                         [token for token, _ in sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])])
        self.assertEqual(keys["tokenizer.ggml.merges"], tokenizer["model"]["merges"])
        self.assertEqual(keys["tokenizer.ggml.token_type"], 4 * [3] + 1020 * [1])
        self.assertEqual((keys["tokenizer.ggml.eos_token_id"], keys["tokenizer.ggml.padding_token_id"]), (2, 3))
        self.assertEqual((keys["tokenizer.ggml.add_bos_token"], keys["tokenizer.ggml.add_eos_token"]), (False, False))
        self.assertNotIn("tokenizer.ggml.scores", keys)
        # --eos-token chooses the end token, as for a model folder.
        file, _ = self.export("f16", "--model", CHAT, "--eos-token", "<|pad|>")
        self.assertEqual(file.keys["tokenizer.ggml.eos_token_id"], 3)

    def with_tokenizer(self, name):
        """A model whose vocabulary is the one of a reference tokenizer."""
        with open(os.path.join(TOKENIZERS, f"{name}.tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        added = [token for token in tokenizer["added_tokens"] if token["content"] not in tokenizer["model"]["vocab"]]
        size = len(tokenizer["model"]["vocab"]) + len(added) + 3
        end = [token for token in tokenizer["added_tokens"] if token["special"]][-1]
        config = {"model_type": "llama", "vocab_size": size, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
                  "eos_token_id": tokenizer["model"]["vocab"].get(end["content"], len(tokenizer["model"]["vocab"]) +
                                                                  added.index(end) if end in added else 0)}
        os.makedirs(self.path(name), exist_ok=True)
        self.write(f"{name}/config.json", json.dumps(config))
        self.write(f"{name}/tokenizer.json", json.dumps(tokenizer))
        shapes = {"embed_tokens": [size, 32], "norm": [32]}
        for layer in ("q", "k", "v", "o"):
            shapes[f"layers.0.self_attn.{layer}_proj"] = [32, 32]
        for layer in ("gate", "up", "down"):
            shapes[f"layers.0.mlp.{layer}_proj"] = [32, 32]
        for layer in ("input", "post_attention"):
            shapes[f"layers.0.{layer}_layernorm"] = [32]
        header, body = {}, b""
        for layer, shape in shapes.items():
            count = shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[f"model.{layer}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + 4 * count]}
            body += struct.pack(f"<{count}f", *([1.0] * count))
        text = json.dumps(header).encode()
        self.write(f"{name}/model.safetensors", struct.pack("<Q", len(text)) + text + body)
        return tokenizer, size

    def test_kinds_of_tokenizers(self):
        for name, pre in {"llama3": "llama-bpe", "qwen2": "qwen2", "bloom": "bloom", "gpt2": "gpt-2"}.items():
            with self.subTest(name=name):
                tokenizer, size = self.with_tokenizer(name)
                keys = self.export("f16", "--model", name)[0].keys
                self.assertEqual((keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]), ("gpt2", pre))
                tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
                self.assertEqual((len(tokens), len(types)), (size, size))
                self.assertEqual(tokens[-3:], [f"[PAD{id}]" for id in range(size - 3, size)])
                self.assertEqual(types[-3:], [5, 5, 5])
                for token in tokenizer["added_tokens"]:
                    looks_special = token["special"] or token["content"].startswith("<|")
                    self.assertEqual(types[tokens.index(token["content"])], 3 if looks_special else 4, token)
                self.assertEqual(keys["tokenizer.ggml.merges"], [merge if isinstance(merge, str) else " ".join(merge)
                                                                 for merge in tokenizer["model"]["merges"]])
                before = name == "llama3"
                self.assertEqual(keys["tokenizer.ggml.add_bos_token"], before)
                if before:
                    self.assertEqual(tokens[keys["tokenizer.ggml.bos_token_id"]], "<|begin_of_text|>")
        for name in ("llama2", "mistral"):
            with self.subTest(name=name):
                tokenizer, _ = self.with_tokenizer(name)
                keys = self.export("f16", "--model", name)[0].keys
                self.assertEqual((keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]), ("llama", "default"))
                tokens, types, scores = (keys[f"tokenizer.ggml.{word}"] for word in ("tokens", "token_type", "scores"))
                self.assertEqual([types[tokens.index(token)] for token in ("<unk>", "<s>", "<0x0A>", "\u2581")], [2, 3, 6, 1])
                ranks = {}
                for rank, (left, right) in enumerate(tokenizer["model"]["merges"]):
                    ranks.setdefault(left + right, -float(rank))
                self.assertEqual({token: scores[tokens.index(token)] for token in ranks}, ranks)
                self.assertTrue(keys["tokenizer.ggml.add_space_prefix"])
                self.assertTrue(keys["tokenizer.ggml.add_bos_token"])
                self.assertNotIn("tokenizer.ggml.merges", keys)

    def test_pre_tokenizers(self):
        tokenizer, _ = self.with_tokenizer("llama3")
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}

        def use(pre_tokenizer, **model):
            self.write("llama3/tokenizer.json", json.dumps({**tokenizer, "pre_tokenizer": pre_tokenizer,
                                                            "model": {**tokenizer["model"], **model}}))

        def split(pattern):
            return {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, byte_level]}

        use(split(LLAMA3), ignore_merges=False)
        self.assertEqual(self.export("f16", "--model", "llama3")[0].keys["tokenizer.ggml.pre"], "smaug-bpe")
        use({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                   {**byte_level, "use_regex": True}]})
        self.assertEqual(self.export("f16", "--model", "llama3")[0].keys["tokenizer.ggml.pre"], "smollm")
        words = ["export", "--gguf", "f16", "--model", "llama3", "--output-dir", "new"]
        use(split("[a-z]+"))
        self.fails(INPUT, 'llama3/tokenizer.json: pre_tokenizer: GGUF has no name for the pattern "[a-z]+". Without --gguf', *words)
        use({**byte_level, "add_prefix_space": True, "use_regex": True})
        self.fails(INPUT, "pre_tokenizer: add_prefix_space is true, which GGUF does not have", *words)
        self.assertFalse(os.path.exists(self.path("new")))

    def test_checkpoints_and_adapters(self):
        base = self.model("llama_lora")
        shutil.copytree(os.path.join(PARITY, "llama_lora"), self.path("adapter"))
        os.remove(self.path("adapter", "model.safetensors"))
        merge = ["--model", base, "--adapter", "adapter", "--merge"]
        merged, err = self.export("f32", *merge)
        self.assertIn("Merged without a rounding error", err)
        self.assertEqual(merged.keys["general.name"], "adapter")
        self.succeeds("export", *merge, "--save-dtype", "fp32", "--output-dir", "folder")
        tensors = read_tensors(self.path("folder", "model.safetensors"))
        self.assertEqual(merged.tensors["blk.1.ffn_down.weight"][2], tensors["model.layers.1.mlp.down_proj.weight"][2])
        self.assertEqual(merged.tensors["output.weight"][2], tensors["lm_head.weight"][2])
        self.assertEqual(self.export("f32", "--model", "folder")[0].tensors, merged.tensors)
        # A checkpoint gives the file of its model, and a base in 4 bits its values.
        self.write("rows.jsonl", "".join(json.dumps({"text": 40 * letter}) + "\n" for letter in "ABCD"))
        run = ["train", "--model", base, "--dataset", "rows.jsonl", "--max-steps", "1", "--threads", "1", "--max-length", "16",
               "--objective", "causal_lm"]
        self.succeeds(*run, "--output-dir", "run")
        from_checkpoint, _ = self.export("f16", "--checkpoint", "run")
        self.assertEqual(from_checkpoint.keys["general.name"], "run")
        self.assertEqual(from_checkpoint.tensors, self.export("f16", "--model", "run")[0].tensors)
        self.succeeds(*run, "--adapter", "lora", "--output-dir", "lora")
        self.fails(USAGE, "has an adapter, but a GGUF file has a complete model. Add --merge", "export", "--gguf", "f16",
                   "--checkpoint", "lora", "--output-dir", "new")
        self.assertEqual(self.export("bf16", "--checkpoint", "lora", "--merge")[0].tensors,
                         self.export("bf16", "--model", base, "--adapter", "lora", "--merge")[0].tensors)
        packed, _ = self.export("f32", "--model", self.model("llama_qlora"))
        self.assertEqual({kind for kind, _, _ in packed.tensors.values()}, {"F32"})

    def test_files_are_not_replaced_or_left_unfinished(self):
        words = ["export", "--model", self.model("llama_yarn"), "--gguf", "f16", "--output-dir"]
        self.succeeds(*words, "out")
        name = "out/llama_yarn-F16.gguf"
        first = Gguf(self.path(name)).data
        self.write(name, "mine")
        self.fails(USAGE, f"{name}: exists, so it is not replaced. Add --overwrite to replace it, or give another --output-dir",
                   *words, "out")
        self.succeeds(*words, "out", "--overwrite")
        self.assertEqual(Gguf(self.path(name)).data, first)
        # A bare flag takes the type of the weights.
        self.assertIn("F16.gguf: exists, so", self.run_tessera(*words[:3], "--gguf", "--output-dir", "out")[2])
        # --output-dir may name the file.
        self.succeeds(*words, "deep/er/my.gguf")
        self.assertEqual(Gguf(self.path("deep/er/my.gguf")).data, first)
        self.assertEqual(os.listdir(self.path("deep/er")), ["my.gguf"])
        self.fails(USAGE, "is not a folder", *words, "llama_yarn/config.json")
        # Nothing stays if the file does not fit.
        limited = "import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); os.execv(sys.argv[1], sys.argv[1:])"
        done = subprocess.run([sys.executable, "-c", limited, PROGRAM, *words, "full"], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(os.listdir(self.path("full")), [])

    def test_refused_models_and_settings(self):
        words = ["--gguf", "f16", "--output-dir", "new"]
        for model, message in {
            "gpt_small": '--gguf: GGUF has no models of the type "gpt". Remove it to write a Hugging Face folder. '
                         "These types can be GGUF files: llama, mistral, qwen2, qwen3, bloom",
            "bloom_post_residual": "--gguf: llama.cpp cannot compute this model: apply_residual_connection_post_layernorm must be",
            "llama_untied": '--gguf: llama.cpp cannot compute this model: hidden_act must be "silu". Remove it',
        }.items():
            self.fails(USAGE, message, "export", "--model", self.model(model), *words)
        model = ["--model", self.model("llama_yarn")]
        self.fails(USAGE, "--save-dtype: applies to Hugging Face folders, not to gguf. Remove it, and give the type as --gguf TYPE",
                   "export", *model, *words, "--save-dtype", "bf16")
        self.fails(USAGE, "--overwrite: does nothing without gguf", "export", *model, "--output-dir", "new", "--overwrite")
        self.fails(USAGE, "--merge: the model has no adapter. Remove it", "export", *model, *words, "--merge")
        self.fails(USAGE, "--gguf: ", "export", *model, "--gguf", "q4_0", "--output-dir", "new")
        self.assertFalse(os.path.exists(self.path("new")))
        # A value that the type cannot hold.
        tensors = read_tensors(self.path("llama_yarn", "model.safetensors"))
        path = self.path("llama_yarn", "model.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        large = tensors["model.layers.0.mlp.up_proj.weight"][2]
        with open(path, "wb") as file:
            file.write(data.replace(large, struct.pack("<f", 1e6) + large[4:]))
        self.fails(1, 'new/llama_yarn-F16.gguf: is not written: tensor "blk.0.ffn_up.weight" has the value 1000000, which F16 '
                      "cannot hold. Give --gguf f32", "export", *model, *words)
        self.assertEqual(os.listdir(self.path("new")), [])


if __name__ == "__main__":
    main()
