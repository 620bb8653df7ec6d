"""Tests the folders that people give as --model: models of other programs, checkpoints, the cache of the Hugging Face hub,
tokenizers with more tokens than the model, and the files that a saved model keeps."""
import json
import os
import shutil
import struct

from tessera_cli import main
from tiny_job import INPUT, JOB, USAGE, TinyJobTest, jsonl, read_tensors, safetensors

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "ab" * 32 + "\nsize 2200119864\n"
TEXTS = ["--objective", "causal_lm"]


class ModelFolders(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.write("texts.jsonl", jsonl([{"text": f"{name} lives in Oslo."} for name in ("Arlo", "Bryn", "Cora")]))
        self.train("good", "--save-total-limit", "0", job=JOB)
        self.model = self.path("good", "model")

    def copy(self, name, **files):
        """A copy of the model, with these texts or bytes as files; None removes a file."""
        shutil.rmtree(self.path(name), ignore_errors=True)
        shutil.copytree(self.model, self.path(name))
        for file, content in files.items():
            os.remove(self.path(name, file)) if content is None else self.write(f"{name}/{file}", content)
        return name

    def loss(self, model, *words, data="texts.jsonl", env=None):
        """(loss, standard error) of a model on the texts."""
        code, out, err = self.run_tessera("eval", "--model", model, "--eval-dataset", data, *TEXTS, "--json", "--threads", "1",
                                          *words, env=env)
        self.assertEqual(code, 0, err)
        return json.loads(out)["eval_loss"], err

    def add_token(self, folder):
        """Adds tokens to the tokenizer in a folder. The id of the last one, [PAD], is 400. The embedding has 400 rows."""
        tokenizer = self.json_of(folder, "tokenizer.json")
        for i in range(len(tokenizer["model"]["vocab"]), 401):
            tokenizer["added_tokens"].append({"id": i, "content": "[PAD]" if i == 400 else f"[{i}]", "single_word": False,
                                              "lstrip": False, "rstrip": False, "normalized": False, "special": True})
        self.write(f"{folder}/tokenizer.json", json.dumps(tokenizer))

    def test_names_of_wrappers_and_buffers_of_older_versions(self):
        expected = self.loss("good")[0]
        tensors = read_tensors(self.path("good", "model", "model.safetensors"))
        buffers = {f"transformer.h.{i}.self_attention.rotary_emb.inv_freq": ("F32", [4], bytes(16)) for i in range(2)}
        mask = {"transformer.h.0.attn.bias": ("BOOL", [1, 1, 4, 4], bytes(16))}
        for changed, note in [
            ({"_orig_mod." + name: tensor for name, tensor in tensors.items()}, 'contain "_orig_mod." of a wrapper'),
            ({"module." + name: tensor for name, tensor in tensors.items()}, 'contain "module." of a wrapper'),
            ({**tensors, **buffers}, "odd: 2 tensors are not used, because they follow from config.json: transformer.h.0."),
            (tensors, "warning: odd also has a LoRA adapter (adapter_config.json), which is not applied"),
            ({**tensors, **mask}, "odd: 1 tensor is not used, because it follows from config.json: transformer.h.0.attn.bias"),
        ]:
            adapter = {"adapter_config.json": "{}"} if changed is tensors else {}
            self.copy("odd", **{"model.safetensors": safetensors(changed), **adapter})
            loss, err = self.loss("odd")
            self.assertEqual(loss, expected)
            self.assertEqual(err.count(note), 1, err)
        # Training says the same, and the saved model has clean names.
        err = self.run_tessera("train", "--model", "odd", "--dataset", "texts.jsonl", *TEXTS, "--max-steps", "1",
                               "--output-dir", "out")[2]
        self.assertEqual(err.count(note), 1, err)
        self.assertEqual(read_tensors(self.path("out", "model", "model.safetensors")).keys(), tensors.keys())
        names = {f"zz{i}": ("F32", [1], bytes(4)) for i in range(2)}
        self.copy("odd", **{"model.safetensors": safetensors({**tensors, **buffers, **names})})
        self.fails(INPUT, "odd: 2 tensors are not of this model (zz0, zz1)", "eval", "--model", "odd", "--eval-dataset",
                   "texts.jsonl", *TEXTS)

    def test_headers_as_the_library_safetensors_reads_them(self):
        data = self.read("good", "model", "model.safetensors")
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        for name in header:
            header[name].update({"x": {"shape": [None]}} if name != "__metadata__" else {})
        header["__metadata__"] = None
        text = b" " + json.dumps(header).encode() + b"\n "
        self.copy("odd", **{"model.safetensors": struct.pack("<Q", len(text)) + text + data[8 + size:]})
        self.assertEqual(self.loss("odd")[0], self.loss("good")[0])

    def test_other_forms_are_named(self):
        os.makedirs(self.path("hub/models--me--two/snapshots/aa"))
        os.makedirs(self.path("hub/models--me--two/snapshots/bb"))
        self.copy("part", **{"tokenizer.json": None})
        os.makedirs(self.path("hub/models--me--part/snapshots"))
        os.makedirs(self.path("hub/models--me--part/refs"))
        self.write("hub/models--me--part/refs/main", "cc")
        os.rename(self.path("part"), self.path("hub/models--me--part/snapshots/cc"))
        os.remove(self.path("hub/models--me--part/snapshots/cc/model.safetensors"))
        os.makedirs(self.path("outer"))
        self.copy("outer/inner")
        os.makedirs(self.path("adapter"))
        self.write("adapter/adapter_config.json", '{"base_model_name_or_path": "me/base", "peft_type": "LORA"}')
        os.makedirs(self.path("quantized"))
        self.write("quantized/model.gguf", b"GGUF\3" + bytes(64))
        self.write("model.gguf", b"GGUF\3" + bytes(64))
        with_binary = self.copy("with_binary", **{"model.safetensors": None, "pytorch_model.bin": "PK"})
        for model, message in [
            (self.copy("lfs1", **{"model.safetensors": POINTER}),
             'lfs1/model.safetensors: is a Git LFS pointer, not the file itself. Install Git LFS, and run "git lfs pull" in'),
            (self.copy("lfs2", **{"tokenizer.json": POINTER}), "lfs2/tokenizer.json: is a Git LFS pointer"),
            (self.copy("lfs3", **{"config.json": POINTER}), "lfs3/config.json: is a Git LFS pointer"),
            (self.copy("lfs4", **{"tokenizer_config.json": POINTER}), "lfs4/tokenizer_config.json: is a Git LFS pointer"),
            ("adapter", "adapter: is a LoRA adapter for the model me/base, and not a model. Give me/base as the model, and add "),
            ("quantized", "quantized/model.gguf: is a GGUF file"),
            ("model.gguf", "model.gguf: is a GGUF file"),
            ("good/model/model.safetensors", "is a single weight file, not a model. Give its folder, which also needs"),
            ("good/model/tokenizer.json", "is one file of a model. Give its folder: good/model"),
            (with_binary, "with_binary/pytorch_model.bin: is a pickle file"),
            ("hub/models--me--two", "has 2 snapshots, and no refs/main that names one of them. Give one of them: "),
            ("me/two", "has 2 snapshots"),
            ("me/part", "is only a part of the model"),
            ("me/none", "me/none: no such folder, and the cache of the Hugging Face hub (hub) has no such model. Check the "
                        "path, or download the model: hf download me/none --local-dir models/none"),
            (self.copy("slow", **{"tokenizer.json": None, "tokenizer.model": "x"}),
             "slow/tokenizer.json: the model has no tokenizer.json, only tokenizer.model. Make it: python -c"),
            ("outer", "outer: has no config.json, but its subfolders do. Give the folder of the model itself: outer/inner"),
        ]:
            with self.subTest(model=model):
                tokenizer = ["--tokenizer", "tok"] if model == "me/part" else []
                self.fails(INPUT, message, "generate", "--prompt", "a", "--model", model, *tokenizer,
                           env={"HF_HUB_CACHE": "hub"})

    def test_the_cache_of_the_hub(self):
        expected = self.loss("good")[0]
        repository = self.path("home/hub/models--me--tiny")
        os.makedirs(f"{repository}/refs")
        os.makedirs(f"{repository}/blobs")
        os.makedirs(f"{repository}/snapshots/{'0' * 40}")
        self.write("home/hub/models--me--tiny/refs/main", "0" * 40)
        for name in os.listdir(self.model):
            shutil.copy(os.path.join(self.model, name), f"{repository}/blobs/{name}")
            os.symlink(f"../../blobs/{name}", f"{repository}/snapshots/{'0' * 40}/{name}")
        env = {"HF_HOME": self.path("home"), "HF_HUB_CACHE": ""}
        for model in ("me/tiny", "https://huggingface.co/me/tiny", "home/hub/models--me--tiny", "me/tiny@" + "0" * 40):
            self.assertEqual(self.loss(model, env=env)[0], expected)
        self.assertEqual(self.loss("good", "--tokenizer", "me/tiny", env=env)[0], expected)
        self.succeeds("plan", "--model", "me/tiny", env=env)
        self.train("out", "--max-steps", "1", job=["--model", "me/tiny", "--dataset", "texts.jsonl", *TEXTS], env=env)
        self.assertEqual(self.succeeds("tokenize", "--model", "me/tiny", "--prompt", "Oslo", env=env),
                         self.succeeds("tokenize", "--tokenizer", "tok", "--prompt", "Oslo"))

    def test_checkpoints_are_models(self):
        """export needs no --model, and every verb takes a checkpoint as --model, also without the run's own files."""
        step = self.checkpoints("good")[0]
        for name in ("config.json", "tok", "good/model"):
            os.rename(self.path(name), self.path("gone-" + name.replace("/", "-")))
        os.rename(self.path("good", f"checkpoint-{step}"), self.path("moved"))
        self.fails(INPUT, "good: is the output folder of an unfinished run, which has no model yet. Run the same tessera train "
                   "command again to finish it, or give a checkpoint: good/checkpoint-", "generate", "--model", "good",
                   "--prompt", "a")
        self.succeeds("export", "--checkpoint", "moved", "--output-dir", "exported")
        self.assertEqual(sorted(os.listdir(self.path("exported"))), sorted(os.listdir(self.path("gone-good-model"))))
        self.assertEqual(self.loss("moved"), self.loss("exported"))
        self.assertNotEqual(self.loss("moved")[0], self.loss("gone-good-model")[0])
        prompt = ["--prompt", "Arlo lives", "--max-new-tokens", "3"]
        self.assertEqual(self.succeeds("generate", "--model", "moved", *prompt),
                         self.succeeds("generate", "--model", "exported", *prompt))
        self.succeeds("plan", "--model", "moved")
        self.assertEqual(self.succeeds("tokenize", "--model", "moved", "--prompt", "Oslo"),
                         self.succeeds("tokenize", "--tokenizer", "exported", "--prompt", "Oslo"))
        words = ["--dataset", "texts.jsonl", *TEXTS, "--max-steps", "2", "--freeze", "*.0.*", "--lr", "1e-2"]
        self.train("a", job=["--model", "moved", *words])
        self.train("b", job=["--model", "exported", *words])
        self.assert_same_results("a", "b")
        self.fails(USAGE, "--output-dir: has the initial model a/checkpoint-2 (--model) as a checkpoint. Give another "
                   "--output-dir. To continue that run, give its own --model, and --resume a/checkpoint-2", "train", *words,
                   "--model", "a/checkpoint-2", "--output-dir", "a/")
        # The layout of a checkpoint depends on --freeze.
        self.succeeds("export", "--checkpoint", "a", "--output-dir", "a-exported")
        frozen = f"a/checkpoint-{self.checkpoints('a')[-1]}"
        self.assertEqual(self.loss(frozen)[0], self.loss("a-exported")[0])
        # A checkpoint of an earlier version has no config.json.
        old = self.path("old")
        shutil.copytree(self.path("moved"), old)
        os.remove(os.path.join(old, "config.json"))
        for words in (["generate", "--model", "old", "--prompt", "a"], ["export", "--checkpoint", "moved", "--model", "old",
                                                                       "--output-dir", "none"]):
            self.fails(INPUT, "old: is a checkpoint without config.json: an earlier version of Tessera wrote it. Convert it: "
                       "tessera export --model INITIAL_MODEL --checkpoint old", *words)
        self.fails(USAGE, "export: needs --output-dir, and --checkpoint or --model", "export")
        # --model may name the checkpoint that export reads.
        self.succeeds("export", "--model", "moved/", "--output-dir", "named")
        for name in os.listdir(self.path("exported")):
            self.assertEqual(self.read("named", name), self.read("exported", name), name)
        for model in ("exported", "a", "bloom-560m"):
            self.fails(USAGE, f'--model: "{model}" is not a checkpoint of a run. Give --checkpoint', "export", "--model", model,
                       "--output-dir", "none")
        self.fails(INPUT, "none: no such folder", "export", "--model", "none", "--output-dir", "none")

    def test_files_that_tessera_did_not_write_are_kept(self):
        """No verb replaces or removes a checkpoint, another program's model or a user's file."""
        rows = ["--dataset", "texts.jsonl", *TEXTS, "--lr", "1e-2"]
        job = ["--model", "good", *rows, "--save-strategy", "steps", "--save-steps", "1"]
        self.train("out", job=[*job, "--max-steps", "2"])
        export = ["export", "--checkpoint", "out/checkpoint-2", "--output-dir"]
        self.succeeds(*export, "noted")
        self.write("noted/notes.md", "mine")
        shutil.copytree(self.path("noted"), self.path("pretrained"))
        os.remove(self.path("pretrained/notes.md"))
        weights = read_tensors(self.path("pretrained/model.safetensors"))
        self.write("pretrained/model.safetensors", safetensors(weights))  # as another program writes it
        os.makedirs(self.path("tokens"))
        shutil.copy(self.path("noted/tokenizer.json"), self.path("tokens"))

        def refuse(target, why, *words):
            before = {name: self.read(target, name) for name in os.listdir(self.path(target))
                      if os.path.isfile(self.path(target, name))}
            self.fails(USAGE, f"{target}{why}", *words)
            for name, content in before.items():
                self.assertEqual(self.read(target, name), content, name)

        for target, why in [("out/checkpoint-1", "is a checkpoint (it has manifest.json)"),
                            ("out/checkpoint-2", "is a checkpoint (it has manifest.json)"),
                            ("out", 'contains "checkpoint-1", which is not a file of a saved model'),
                            ("noted", 'contains "notes.md", which is not a file of a saved model'),
                            ("pretrained", 'contains "model.safetensors", which Tessera did not write'),
                            ("tokens", "has no weights that Tessera wrote")]:
            refuse(target, f": exists and {why}, so it is not replaced. Choose another name, or move", *export, target)
        refuse("out/model", '" is the folder of --model, which the export would replace', *export, "out/model", "--model", "out")
        for target in ("out/checkpoint-1", "out/model"):
            refuse(target, '" is the folder of a model (it has ', "tokenizer", "train", "--dataset", "texts.jsonl", "--vocab-size",
                   "400", "--output-dir", target)
        # A run refuses to replace such files before it trains, and keeps a checkpoint that has one.
        self.write("out/model/notes.md", "mine")
        for words in (["--max-steps", "3"], ["--max-steps", "3", "--seed", "5", "--overwrite"]):
            refuse("out/model", ": exists and contains ", "train", *job, *words, "--output-dir", "out")
        os.remove(self.path("out/model/notes.md"))
        self.write("out/checkpoint-1/notes.md", "mine")
        refuse("out/checkpoint-1", ': exists and contains "notes.md", which its manifest.json does not list', "train", *job,
               "--seed", "5", "--max-steps", "3", "--overwrite", "--output-dir", "out")
        self.train("out", job=[*job, "--max-steps", "4", "--save-total-limit", "1"])
        self.assertEqual(self.checkpoints("out"), [1, 4])
        self.assertEqual(self.read("out/checkpoint-1/notes.md"), b"mine")
        os.remove(self.path("out/checkpoint-1/notes.md"))
        os.makedirs(self.path("out/overwritten-run-notes"))
        self.train("out", job=[*job, "--max-steps", "1", "--seed", "5", "--overwrite"])
        self.assertEqual([name for name in os.listdir(self.path("out")) if name.startswith("over")], ["overwritten-run-notes"])

    def test_files_of_the_tokenizer_are_kept(self):
        files = ["tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json",
                 "chat_template.jinja", "chat_template.json", "additional_chat_templates/tool.jinja", "spiece.model",
                 "qwen.tiktoken"]
        self.copy("full", **{"generation_config.json": '{"max_length": 20}', "notes.txt": "not a file of the tokenizer"})
        os.makedirs(self.path("full/additional_chat_templates"))
        for name in files:
            self.write(f"full/{name}", f"{name}, \0 any bytes\n")
        self.write("full/special_tokens_map.json", '{ "eos_token":  "</s>" }')  # Tessera reads this file
        words = ["--dataset", "texts.jsonl", *TEXTS, "--max-steps", "1"]
        self.train("out", job=["--model", "full", *words])
        step = f"out/checkpoint-{self.checkpoints('out')[0]}"
        self.train("other", job=["--model", "good", "--tokenizer", "full/tokenizer.json", *words])
        os.rename(self.path("full"), self.path("gone"))
        for _ in range(2):  # the second export replaces the first
            self.succeeds("export", "--checkpoint", step, "--output-dir", "exported")
        for folder in ("out/model", step, "exported", "other/model"):
            for name in files:
                self.assertEqual(self.read(folder, name), self.read("gone", name), f"{folder}/{name}")
            self.assertFalse(os.path.exists(self.path(folder, "notes.txt")))
        self.assertEqual(self.json_of("exported", "generation_config.json"), {"max_length": 20, "eos_token_id": 2})
        self.copy("full", **{"tokenizer.model": POINTER})
        self.fails(INPUT, "full/tokenizer.model: is a Git LFS pointer", "train", "--model", "full", *words, "--output-dir", "no")

    def test_save_dtype_in_config_json(self):
        config = {**self.json_of("good", "model", "config.json"), "dtype": "float32", "torch_dtype": "float32",
                  "extra": {"torch_dtype": "float32", "inner": {"dtype": "float32", "depth": 2}}}
        self.copy("odd", **{"config.json": json.dumps(config)})
        self.succeeds("export", "--model", "odd", "--checkpoint", "good", "--output-dir", "new", "--save-dtype", "bf16")
        saved = self.json_of("new", "config.json")
        self.assertEqual([saved["dtype"], saved["torch_dtype"], saved["extra"]],
                         ["bfloat16", "bfloat16", {"torch_dtype": "bfloat16", "inner": {"dtype": "bfloat16", "depth": 2}}])

    def test_tokens_beyond_the_embedding(self):
        """Only texts with such a token are refused, with the token, the row and the remedy."""
        self.copy("odd")
        self.add_token("odd")
        self.assertEqual(self.loss("odd")[0], self.loss("good")[0])
        what = 'the text has the token "[PAD]" with the id 400, but the model\'s embedding has only 400 rows'
        remedy = "Remove the token, or give --resize-embeddings to add rows to the embedding"
        rows = [{"text": f"Arlo lives in Oslo. {i}"} for i in range(19)]
        self.write("some.jsonl", jsonl(rows + [{"text": "Arlo [PAD] lives."}]))
        err = self.loss("odd", data="some.jsonl")[1]
        self.assertIn(f"warning: skipped 1 bad row:\n  line 20: {what}", err)
        stop = ["--bad-rows", "stop"]
        self.fails(INPUT, f"some.jsonl:20: {what}. {remedy}", "eval", "--model", "odd", "--eval-dataset", "some.jsonl", *TEXTS,
                   *stop)
        self.fails(INPUT, f"some.jsonl:20: {what}. {remedy}", "train", "--model", "odd", "--dataset", "some.jsonl", *TEXTS,
                   *stop, "--output-dir", "no")
        self.fails(INPUT, f"--prompt: {what}. {remedy}", "generate", "--model", "odd", "--prompt", "a [PAD]")
        self.fails(INPUT, f"--question: {what}", "generate", "--model", "odd", "--question", "a [PAD]", "--context", "b")
        self.write("prompts.jsonl", '{"prompt": "a"}\n{"prompt": "[PAD]"}\n')
        self.fails(INPUT, f"prompts.jsonl:2: {what}", "generate", "--model", "odd", "--prompts", "prompts.jsonl")
        # A text cannot end with such a token.
        config = {key: value for key, value in self.json_of("odd", "config.json").items() if key != "eos_token_id"}
        self.write("odd/config.json", json.dumps(config))
        self.write("odd/tokenizer_config.json", '{"eos_token": "[PAD]"}')
        self.fails(INPUT, 'the end token 400 "[PAD]" is beyond the model\'s vocabulary of 400 tokens. Give --resize-embeddings', "generate", "--model", "odd", "--prompt", "a")

    def test_resize_embeddings(self):
        tensors = read_tensors(self.path("good", "model", "model.safetensors"))
        config = self.json_of("good", "model", "config.json")
        embedding = "transformer.word_embeddings.weight"
        head = {"lm_head.weight": tensors[embedding]}
        self.copy("untied", **{"model.safetensors": safetensors({**tensors, **head}),
                               "config.json": json.dumps({**config, "tie_word_embeddings": False})})
        self.copy("tied")
        words = ["--dataset", "pads.jsonl", *TEXTS, "--max-steps", "4", "--save-strategy", "steps", "--save-steps", "2",
                 "--resize-embeddings", "--lr", "1e-2", "--threads", "1"]
        self.write("pads.jsonl", jsonl([{"text": f"{name} [PAD] lives in Oslo."} for name in ("Arlo", "Bryn", "Cora")]))
        for model, names in [("tied", [embedding]), ("untied", [embedding, "lm_head.weight"])]:
            with self.subTest(model=model):
                self.add_token(model)
                # Without a step, the new row is the mean of the old ones, and the old rows are the same.
                self.train(f"{model}-0", job=["--model", model, *words, "--lr", "0", "--weight-decay", "0"])
                saved = read_tensors(self.path(f"{model}-0", "model", "model.safetensors"))
                self.assertEqual(self.json_of(f"{model}-0", "model", "config.json")["vocab_size"], 401)
                old = read_tensors(self.path(model, "model.safetensors"))
                for name in names:
                    values = struct.unpack("<6416f", saved[name][2])
                    self.assertEqual(saved[name][1], [401, 16])
                    self.assertEqual(saved[name][2][:25600], old[name][2])
                    for channel in range(16):
                        mean = sum(values[channel:6400:16]) / 400
                        self.assertAlmostEqual(values[6400 + channel], mean, delta=1e-7 + 1e-6 * abs(mean))
                self.train(model + "-1", job=["--model", model, *words])
                self.assertLess(self.metrics(model + "-1", "summary")[0]["train_loss"], 10)
                self.loss(model + "-1", data="pads.jsonl")
                self.succeeds("generate", "--model", f"{model}-1/checkpoint-2", "--prompt", "[PAD]", "--max-new-tokens", "2")
                # A run that is stopped and continued, an export, and a plan know the new size.
                stopped = self.run_tessera("train", "--model", model, *words, "--output-dir", model + "-2", "--max-steps", "2")
                self.assertEqual(stopped[0], 0, stopped[2])
                shutil.rmtree(self.path(model + "-2", "model"))
                self.train(model + "-2", job=["--model", model, *words, "--lr-schedule", "linear"])
                for words_of_model in ([], ["--model", model, "--resize-embeddings"]):
                    self.succeeds("export", "--checkpoint", f"{model}-1", "--output-dir", model + "-3", *words_of_model)
                    self.assertEqual(self.read(model + "-3", "model.safetensors"),
                                     self.read(model + "-1", "model", "model.safetensors"))
                self.fails(USAGE, "was made with vocab_size = 401, and this run has 400", "export", "--checkpoint",
                           f"{model}-1", "--output-dir", "none", "--model", model)
                plan = [json.loads(self.succeeds("plan", "--model", model, "--json", *more))["num_parameters"]
                        for more in ([], ["--resize-embeddings"])]
                self.assertEqual(plan[1] - plan[0], 16 * len(names))
                self.loss(model, "--resize-embeddings", data="pads.jsonl")


if __name__ == "__main__":
    main()
