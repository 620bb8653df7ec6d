"""Tests the errors for models, tokenizers and checkpoints that are missing, damaged or contradictory, and for questions
that are not valid."""
import json
import os
import shutil
import struct

from tessera_cli import main
from tiny_job import BLOOM, GPT, INPUT, JOB, USAGE, BadInputTest, jsonl, read_tensors, safetensors


class Models(BadInputTest):
    def setUp(self):
        super().setUp()
        self.train("good", job=JOB)

    def broken(self, message, damage):
        """`damage` changes "bad", a copy of the model. Expects that eval and train refuse this copy with `message`."""
        shutil.rmtree(self.path("bad"), ignore_errors=True)
        shutil.copytree(self.path("good", "model"), self.path("bad"))
        damage()
        self.fails(INPUT, message, "eval", "--model", "bad", "--eval-dataset", "eval.jsonl", "--output-dir", "measured")
        self.refuses(INPUT, message, "--model", "bad", "--init", "pretrained", "--tokenizer", "bad/tokenizer.json")
        self.assertFalse(os.path.exists(self.path("measured", "eval.json")))

    def test_config(self):
        contradict = "The model's config.json does not match its tensors"
        for changes, message in [
            ({"hidden_size": 32}, "word_embeddings.weight: [400, 16] instead of [400, 32]"),
            ({"n_layer": 3}, "bad: 12 tensors are missing (h.2.input_layernorm.weight, "),
            ({"n_layer": 1}, "bad: 12 tensors are not of this model (transformer.h.1.input_layernorm.bias, "),
            ({"vocab_size": 500}, "bad: 1 tensor is of another shape (word_embeddings.weight: [400, 16] instead of "
                                  "[500, 16]). " + contradict),
            ({"n_head": 3}, "bad/config.json: hidden_size 16 is not a multiple of the 3 heads"),
            ({"model_type": "gemma2"}, 'bad/config.json: "model_type" is "gemma2". Tessera supports "bloom", "gpt", "llama", '
                                       '"mistral", "qwen2" and "qwen3"'),
            ({"hidden_size": None}, 'bad/config.json: the key "hidden_size" is missing'),
            ({"n_layer": -1}, 'bad/config.json: "n_layer" is -1, not a whole number from 1 to '),
            ({"hidden_size": 2 ** 40}, 'bad/config.json: "hidden_size" is 1099511627776, not a whole number from 1 to '),
        ]:
            with self.subTest(changes=changes):
                def damage():
                    config = {**self.json_of("bad", "config.json"), **changes}
                    self.write_json("bad/config.json", {key: value for key, value in config.items() if value is not None})
                self.broken(message, damage)
        self.broken("bad/config.json:1:2: not valid JSON", lambda: self.write("bad/config.json", "{"))
        self.broken("bad/config.json: no such file. A model is a Hugging Face folder with config.json",
                    lambda: os.remove(self.path("bad", "config.json")))

    def test_tensors(self):
        name = "transformer.h.0.mlp.dense_4h_to_h.weight"
        dtype, shape, data = read_tensors(self.path("good", "model", "model.safetensors"))[name]
        for change, message in [
            ({name: None}, "bad: 1 tensor is missing (h.0.mlp.dense_4h_to_h.weight)"),
            ({"transformer.zzz": ("F32", [1], bytes(4))}, "bad: 1 tensor is not of this model (transformer.zzz)"),
            ({name: (dtype, shape[::-1], data)}, "(h.0.mlp.dense_4h_to_h.weight: [64, 16] instead of [16, 64])"),
            ({name: ("I32", shape, data)}, f'bad/model.safetensors: tensor "{name}" has type I32, but f32 is needed'),
            # The tensor is in the file twice: with and without the prefix "transformer."
            ({"h.0.mlp.dense_4h_to_h.weight": (dtype, shape, data)}, "h.0.mlp.dense_4h_to_h.weight"),
        ]:
            with self.subTest(message=message):
                def damage():
                    tensors = {**read_tensors(self.path("bad", "model.safetensors")), **change}
                    self.write("bad/model.safetensors", safetensors({n: t for n, t in tensors.items() if t}))
                self.broken(message, damage)

    def test_a_head_of_its_own(self):
        """config.json ties the head to the embedding, so lm_head.weight is accepted only if it equals the embedding."""
        name = "transformer.word_embeddings.weight"
        dtype, shape, data = read_tensors(self.path("good", "model", "model.safetensors"))[name]
        other = data[:-4] + struct.pack("<f", struct.unpack("<f", data[-4:])[0] + 1)

        def damage(head):
            tensors = read_tensors(self.path("bad", "model.safetensors"))
            self.write("bad/model.safetensors", safetensors({**tensors, "lm_head.weight": head}))

        message = ('bad/model.safetensors: tensor "lm_head.weight" is not equal to "word_embeddings.weight". In '
                   'config.json the head is tied to the embedding. Set "tie_word_embeddings" to false there')
        self.broken(message, lambda: damage((dtype, shape, other)))
        self.broken(message, lambda: damage((dtype, [shape[0] // 2, shape[1]], data[:len(data) // 2])))
        words = ["eval", "--eval-dataset", "eval.jsonl", "--json", "--model"]
        expected = json.loads(self.succeeds(*words, "good/model"))["eval_loss"]
        damage((dtype, shape, data))
        self.assertEqual(json.loads(self.succeeds(*words, "bad"))["eval_loss"], expected)

    def test_a_model_that_the_run_would_replace(self):
        before = self.read("good", "model", "model.safetensors")
        os.symlink("good", self.path("link"))
        for words in [["--model", "good/model", "--init", "pretrained"], ["--model", "good/model/config.json"],
                      ["--model", "link/../good/model"], ["--model", "link/model", "--resume", "none"]]:
            with self.subTest(words=words):
                self.fails(USAGE, "--output-dir: the trained model would replace ", "train", *JOB, "--output-dir", "good",
                           *words)
        self.assertEqual(self.read("good", "model", "model.safetensors"), before)
        # The output folder may be inside "good": this run writes its model to good/more/model.
        self.train("good/more", "--model", "good/model", "--init", "pretrained", "--tokenizer", "good/model", job=JOB)

    def test_files(self):
        weights = self.path("bad", "model.safetensors")
        self.broken("bad: has neither model.safetensors nor model.safetensors.index.json", lambda: os.remove(weights))
        self.broken("bad/pytorch_model.bin: is a pickle file, which can run any code when it is read. Convert the folder to "
                    "safetensors: ", lambda: os.rename(weights, self.path("bad", "pytorch_model.bin")))
        for shards, message in [
            ({"a": "gone.safetensors"}, 'weight_map["a"]: names gone.safetensors, which does not exist'),
            ({"a": "../good/model/model.safetensors"}, 'weight_map["a"]: is "../good/model/model.safetensors", not the '
                                                      "name of a file in the same folder"),
        ]:
            def damage():
                os.remove(weights)
                self.write_json("bad/model.safetensors.index.json", {"weight_map": shards})
            self.broken(message, damage)

    def test_hostile_headers(self):
        def file(header, body=bytes(8)):
            text = json.dumps(header).encode()
            return struct.pack("<Q", len(text)) + text + body

        whole = self.read("good", "model", "model.safetensors")
        two = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for content, message in [
            (b"", "has 0 bytes, too few for a safetensors file"),
            (whole[:-10], "The file is truncated: copy or download it again"),
            (whole + b"x", "bytes of data, but its header describes"),
            (struct.pack("<Q", 2 ** 63) + whole[8:], "starts with a header length of 9223372036854775808 bytes, but the file has"),
            (b"\x10" + bytes(7) + b"hello world 1234", "the safetensors header does not start with {"),
            (file({"a": two, "b": {**two, "data_offsets": [4, 12]}}, bytes(12)), 'overlap before tensor "b"'),
            (file({"a": two}, b""), "has 0 bytes of data, but its header describes 8"),
            (file({"a": {**two, "shape": [-2]}}), 'has an invalid value after the key "shape": the number -2'),
            (file({"a": {**two, "shape": [2 ** 40, 2 ** 40]}}), 'wrong at tensor "a": its shape overflows'),
            (file({"a": {**two, "data_offsets": [8, 0]}}), 'tensor "a"'),
            (struct.pack("<Q", 50000) + b'{"a":' * 10000, "bad/model.safetensors: "),
        ]:
            with self.subTest(message=message):
                self.broken(message, lambda: self.write("bad/model.safetensors", content))

    def test_tokenizers(self):
        kinds = ("Tessera reads BPE tokenizers, either byte-level (BLOOM, GPT-2, Llama 3, Qwen) or of SentencePiece's style "
                 "(Llama 2, Mistral)")

        def change(path, value):
            tokenizer = self.json_of("bad", "tokenizer.json")
            place = tokenizer
            for key in path[:-1]:
                place = place[key]
            if value is None:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            self.write_json("bad/tokenizer.json", tokenizer)

        for path, value, message in [
            (["model", "type"], "WordPiece", 'model: the tokenizer is of type "WordPiece". ' + kinds),
            (["model", "type"], "Unigram", 'model: the tokenizer is of type "Unigram". ' + kinds),
            (["pre_tokenizer"], {"type": "Whitespace"}, 'the pre-tokenizer is of type "Whitespace". ' + kinds),
            (["model"], None, 'the key "model" is missing'),
            (["model", "vocab", "zz"], 4000, "but the model's vocabulary has only 400 tokens. Use the tokenizer of the model"),
            (["model", "vocab", "zz"], 10 ** 9, 'model.vocab["zz"]: the id 1000000000 is not in'),
            (["model", "vocab", "zz"], -4, 'model.vocab["zz"]: the id -4 is not in'),
            (["model", "merges"], ["q q"], 'the merge of "q" and "q" needs the token "qq", which is not in the vocabulary'),
        ]:
            with self.subTest(path=path, value=value):
                self.broken("bad/tokenizer.json: ", lambda: change(path, value))
                self.broken(message, lambda: change(path, value))
        self.broken("bad/tokenizer.json:1:2: not valid JSON", lambda: self.write("bad/tokenizer.json", "{"))
        self.write_json("small.json", {**BLOOM, "vocab_size": 300})
        self.refuses(INPUT, "but the model's vocabulary has only 300 tokens", "--model", "small.json")
        self.refuses(INPUT, "nowhere: no such file. Give the tokenizer.json of a model folder", "--tokenizer", "nowhere")
        shutil.copytree(self.path("good", "model"), self.path("mute"))
        os.remove(self.path("mute", "tokenizer.json"))
        self.fails(INPUT, "mute/tokenizer.json: the model has no tokenizer.json. Give one with --tokenizer", "generate",
                   "--model", "mute", "--prompt", "a")

    def test_the_token_that_ends_a_text(self):
        def damage(config, tokenizer_config):
            self.write_json("bad/config.json", {**self.json_of("bad", "config.json"), **config})
            if tokenizer_config is None:
                os.remove(self.path("bad", "tokenizer_config.json"))
            else:
                self.write_json("bad/tokenizer_config.json", tokenizer_config)

        specials = "Give the token that ends a text, there or with --eos-token: the special tokens are 0 <unk>, 1 <s>, 2 </s>, 3 <pad>"
        for config, tokenizer_config, message in [
            ({"eos_token_id": 400}, None, 'bad/config.json: "eos_token_id" is 400, not a whole number from 0 to 399'),
            ({"eos_token_id": 450, "vocab_size": 500}, None,
             'bad/config.json: "eos_token_id" is 450, which is not a token of bad/tokenizer.json. ' + specials),
            ({"eos_token_id": 69}, None, 'bad/config.json: "eos_token_id" is 69, the ordinary token "b" of '
                                         "bad/tokenizer.json. " + specials),
            ({"eos_token_id": 450, "vocab_size": 460}, {"eos_token": None}, 'bad/config.json: "eos_token_id" is 450, which is not'),
            ({}, {"eos_token": {"content": "<end>"}},
             'bad/tokenizer_config.json: "eos_token" is "<end>", but the tokenizer has no such token'),
        ]:
            with self.subTest(message=message):
                self.broken(message, lambda: damage(config, tokenizer_config))

    def test_a_new_model_ends_texts_as_its_tokenizer_does(self):
        tokenizer = self.json_of("tok", "tokenizer.json")
        for token in tokenizer["added_tokens"]:
            token["special"] = False
        os.mkdir(self.path("plain"))
        self.write_json("plain/tokenizer.json", tokenizer)
        words = [*GPT, "--max-steps", "1", "--tokenizer", "plain"]
        self.fails(INPUT, "plain/tokenizer.json: does not define which token ends a text. Give --eos-token, or name the "
                   "token as \"eos_token\" in plain/tokenizer_config.json; the tokenizer has no special tokens", "train", *words,
                   "--output-dir", "out")
        self.write_json("plain/tokenizer_config.json", {"eos_token": "<pad>"})
        self.train("out", job=words)
        self.assertEqual(self.json_of("out", "model", "config.json")["eos_token_id"], 3)
        self.succeeds("generate", "--model", "out/model", "--prompt", "a")

    def test_names(self):
        missing = "no such folder, and the cache of the Hugging Face hub (hub) has no such model. "
        for model, remedy in [
            ("./nowhere", "no such model folder. Give a Hugging Face folder, or with --init random one of: gpt, bloom-560m, "),
            ("gpt2", missing + "Check the path, or download the model: hf download gpt2 --local-dir models/gpt2, and give --model "
                     "models/gpt2. Or give one of these names with --init random: gpt, bloom-560m, "),
            ("bloom-560", missing + 'Did you mean "bloom-560m"? Check the path, or download the model: hf download bloom-560 '),
            ("me/tiny@v1.0", missing + "Check the path, or download the model: hf download me/tiny --revision v1.0 --local-dir "
                             "models/tiny, and give --model models/tiny\n"),
            ("https://huggingface.co/me/tiny/tree/v1.0", missing + "Check the path, or download the model: hf download me/tiny "
                                                         "--revision v1.0 "),
        ]:
            for verb in (["generate", "--prompt", "a"], ["plan"], ["eval", "--eval-dataset", "eval.jsonl"]):
                self.fails(INPUT, f"{model}: {remedy}", *verb, "--model", model, env={"HF_HUB_CACHE": "hub"})
        self.fails(INPUT, "gpt2@x: no such file. Give the tokenizer.json of a model folder, or download the tokenizer: hf download "
                   "gpt2 tokenizer.json tokenizer_config.json --revision x", "tokenize", "--prompt", "a", "--tokenizer", "gpt2@x")
        self.fails(USAGE, '--model: "bloom-560m" is the name of a shape, which has no pretrained weights. Add --init random',
                   "generate", "--model", "bloom-560m", "--prompt", "a")
        self.fails(USAGE, "--model: is required by generate", "generate", "--prompt", "a")

    def test_checkpoints(self):
        words = ["export", "--model", "good/model", "--output-dir", "new", "--checkpoint"]
        self.fails(INPUT, "good/checkpoint-99: no such checkpoint", *words, "good/checkpoint-99")
        self.fails(INPUT, "tok: is not a checkpoint and contains none. Give a folder checkpoint-STEP", *words, "tok")
        self.write_json("wide.json", {**BLOOM, "hidden_size": 32})
        self.fails(USAGE, "was made with hidden_size = 16, and this run has 32", *words, "good/checkpoint-18",
                   "--model", "wide.json", "--tokenizer", "tok")
        self.assertFalse(os.path.exists(self.path("new")))
        self.fails(USAGE, "exists and contains ", *words, "good/checkpoint-18", "--output-dir", "good")

    def test_questions(self):
        self.fails(USAGE, "generate: needs --prompt, --question or --prompts. Example: ", "generate", "--model", "good/model")
        self.fails(USAGE, "--prompt: is not valid UTF-8", "generate", "--model", "good/model", "--prompt", b"\xff\xfe")
        self.fails(USAGE, "--max-new-tokens: must be at most 1048576, got 2147483647", "generate", "--model", "good/model",
                   "--prompt", "a", "--max-new-tokens", "2147483647")
        self.write_json("long.json", [{"context": "a " * 300, "question": "what " * 300, "answers": {"text": ["a"]}}])
        self.fails(INPUT, "long.json: its only row cannot be used: [0]: a maximum length of 512 tokens is too small", "eval", "--model", "good/model",
                   "--eval-dataset", "long.json", "--eval-generation")
        # A prompt from the command line is never cut.
        out = self.succeeds("generate", "--model", "good/model", "--question", "What?", "--context", "lives in " * 600,
                            "--json", "--max-new-tokens", "1")
        self.assertGreater(json.loads(out)["num_prompt_tokens"], 1000)


if __name__ == "__main__":
    main()
