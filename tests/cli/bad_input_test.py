"""Bad input of every kind: the exit code, a message that tells file, key, value and remedy, and nothing half-written."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time

from tessera_cli import PROGRAM, main
from tiny_job import BLOOM, EVALUATED, GPT, JOB, TinyJobTest, jsonl, questions, read_tensors, safetensors

USAGE, INPUT, FAILED, OUT_OF_MEMORY = 2, 3, 1, 4


class BadInputTest(TinyJobTest):
    def refuses(self, code, message, *words):
        """A training run into "out" that ends with `code` and leaves no file."""
        self.fails(code, message, "train", *JOB, "--output-dir", "out", *words)
        if os.path.exists(self.path("out")):
            self.assertEqual(os.listdir(self.path("out")), [])

    def write_json(self, name, value):
        return self.write(name, json.dumps(value))


class Datasets(BadInputTest):
    def test_files(self):
        whole = json.dumps(questions(1, 1)[0])
        remedy = 'Give SQuAD JSON ({"data": [{"paragraphs": ...}]}), or rows of {"context", "question", "answers"'
        for content, message in [
            (None, "data.json: no such file. Give the path of a JSON or JSONL file"),
            ("", "data.json: the file is empty. " + remedy),
            ("[]", "data.json: the data set is empty"),
            ('{"data": []}', "data.json: the data set is empty"),
            ("hello", "data.json:1:1: not valid JSON: "),
            (whole[:40], "The file seems to be cut short: fetch or write it again"),
            (whole + "\n" + whole[:30], "data.json:2:31: not valid JSON: "),
            ("[" * 100000, "data.json: is nested deeper than 64 levels"),
            ('{"contxt": "a", "question": "b", "answers": {"text": ["a"]}}', 'key "context" is missing. ' + remedy),
            ('{"context": 3, "question": "b", "answers": {"text": ["a"]}}', '"context" must be a string, found 3'),
            ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "q"}]}]}]}',
             'data.json: data[0].paragraphs[0].qas[0]: key "answers" is missing'),
            (whole + '\n{"context": "a", "question": "b", "answers": {"text": ["zzz"], "answer_start": [0]}}',
             'data.json:2: the answer "zzz" does not occur in the context "a". Answers must be copied from the context'),
            (b'{"context": "a\xff", "question": "b", "answers": {"text": ["a"]}}',
             "data.json: invalid UTF-8: byte 0xFF at offset 14 (line 1). Save the file as UTF-8"),
            ('{"text": "hello"}', 'the data set holds a plain text ("hello"), which has no answer to learn'),
        ]:
            with self.subTest(content=content and content[:60]):
                if content is not None:
                    self.write("data.json", content)
                code = USAGE if content == '{"text": "hello"}' else INPUT
                self.refuses(code, message, "--dataset", "data.json")
                self.refuses(code, message, "--eval-dataset", "data.json")
        self.refuses(INPUT, ".: is a folder. Give the path of a JSON or JSONL file", "--dataset", ".")

    def test_sizes(self):
        self.refuses(USAGE, "--train-size: 100 examples are asked for, but the data set holds 22. Give at most 22",
                     "--train-size", "100")
        self.refuses(USAGE, "--eval-size: 8 examples are asked for, but the data set holds 7", "--eval-dataset",
                     "eval.jsonl", "--eval-size", "8")
        self.refuses(USAGE, "--max-length: 10 tokens are too few for an example whose question and answer take",
                     "--max-length", "10")
        self.refuses(INPUT, "train.jsonl: none of its 22 samples carries loss. Raise --max-length, or use --truncation",
                     "--max-length", "10", "--truncation", "right")

    def test_texts_have_no_answers(self):
        self.write("texts.jsonl", '{"text": "hello there"}\n')
        words = ["--eval-dataset", "texts.jsonl", "--objective", "causal_lm"]
        message = "--eval-generation: texts.jsonl holds plain texts, which have no answers to score. Leave it out"
        self.refuses(USAGE, message, *words, "--eval-generation")
        self.train("out", *words, job=JOB)
        self.fails(USAGE, message, "eval", "--model", "out/model", *words, "--eval-generation", "--output-dir", "measured")
        self.assertFalse(os.path.exists(self.path("measured")))
        self.succeeds("eval", "--model", "out/model", *words)

    def test_a_vocabulary(self):
        self.fails(INPUT, "gone.json: no such file", "tokenizer", "train", "--dataset", "gone.json", "--vocab-size", "400",
                   "--output-dir", "new")
        self.fails(USAGE, "--vocab-size: 100 tokens cannot hold the 4 special tokens and 256 bytes. Give at least 260",
                   "tokenizer", "train", "--dataset", "train.jsonl", "--vocab-size", "100", "--output-dir", "new")
        self.assertFalse(os.path.exists(self.path("new")))


    def test_a_sequence_that_dropout_cannot_count(self):
        self.write("long.jsonl", json.dumps({"text": "lives in " * (1 << 20)}) + "\n")
        self.refuses(USAGE, "--max-length: long.jsonl has a sample of ", "--dataset", "long.jsonl", "--objective",
                     "causal_lm", "--max-length", "2000000")


class Models(BadInputTest):
    def setUp(self):
        super().setUp()
        self.train("good", job=JOB)

    def broken(self, message, damage):
        """eval and train refuse the model that `damage` makes of a copy, told as INPUT."""
        shutil.rmtree(self.path("bad"), ignore_errors=True)
        shutil.copytree(self.path("good", "model"), self.path("bad"))
        damage()
        self.fails(INPUT, message, "eval", "--model", "bad", "--eval-dataset", "eval.jsonl", "--output-dir", "measured")
        self.refuses(INPUT, message, "--model", "bad", "--init", "pretrained", "--tokenizer", "bad/tokenizer.json")
        self.assertFalse(os.path.exists(self.path("measured", "eval.json")))

    def test_config(self):
        contradict = "The model's config.json and its tensors contradict each other"
        for changes, message in [
            ({"hidden_size": 32}, "word_embeddings.weight: [400, 16] instead of [400, 32]"),
            ({"n_layer": 3}, "bad: 12 tensors are missing (h.2.self_attention.query_key_value.weight, "),
            ({"n_layer": 1}, "bad: 12 tensors are not of this model (transformer.h.1.input_layernorm.bias, "),
            ({"vocab_size": 500}, "bad: 1 tensor is of another shape (word_embeddings.weight: [400, 16] instead of "
                                  "[500, 16]). " + contradict),
            ({"n_head": 3}, "bad/config.json: hidden_size 16 is not a multiple of the 3 heads"),
            ({"model_type": "llama"}, 'bad/config.json: "model_type" is "llama". Tessera knows "bloom" and "gpt"'),
            ({"hidden_size": None}, 'bad/config.json: the key "hidden_size" is missing'),
            ({"n_layer": -1}, 'bad/config.json: "n_layer" is -1, not a whole number from 1 to '),
            ({"hidden_size": 2 ** 40}, 'bad/config.json: "hidden_size" is 1099511627776, not a whole number from 1 to '),
        ]:
            with self.subTest(changes=changes):
                def damage():
                    config = {**self.json_of("bad", "config.json"), **changes}
                    self.write_json("bad/config.json", {key: value for key, value in config.items() if value is not None})
                self.broken(message, damage)
        self.broken("bad/config.json:1:1: not valid JSON", lambda: self.write("bad/config.json", "{"))
        self.broken("bad/config.json: no such file. A model is a Hugging Face folder with config.json",
                    lambda: os.remove(self.path("bad", "config.json")))

    def test_tensors(self):
        name = "transformer.h.0.mlp.dense_4h_to_h.weight"
        dtype, shape, data = read_tensors(self.path("good", "model", "model.safetensors"))[name]
        for change, message in [
            ({name: None}, "bad: 1 tensor is missing (h.0.mlp.dense_4h_to_h.weight)"),
            ({"transformer.zzz": ("F32", [1], bytes(4))}, "bad: 1 tensor is not of this model (transformer.zzz)"),
            ({name: (dtype, shape[::-1], data)}, "(h.0.mlp.dense_4h_to_h.weight: [64, 16] instead of [16, 64])"),
            ({name: ("I32", shape, data)}, f'bad/model.safetensors: tensor "{name}" has type I32 where f32 is needed'),
            ({"h.0.mlp.dense_4h_to_h.weight": (dtype, shape, data)}, "h.0.mlp.dense_4h_to_h.weight"),
        ]:
            with self.subTest(message=message):
                def damage():
                    tensors = {**read_tensors(self.path("bad", "model.safetensors")), **change}
                    self.write("bad/model.safetensors", safetensors({n: t for n, t in tensors.items() if t}))
                self.broken(message, damage)

    def test_a_head_of_its_own(self):
        name = "transformer.word_embeddings.weight"
        dtype, shape, data = read_tensors(self.path("good", "model", "model.safetensors"))[name]
        other = data[:-4] + struct.pack("<f", struct.unpack("<f", data[-4:])[0] + 1)

        def damage(head):
            tensors = read_tensors(self.path("bad", "model.safetensors"))
            self.write("bad/model.safetensors", safetensors({**tensors, "lm_head.weight": head}))

        message = ('bad/model.safetensors: tensor "lm_head.weight" is not equal to "word_embeddings.weight". Tessera\'s heads '
                   "are tied to the embedding: take a model that was trained so, or remove the tensor")
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
        self.train("good/more", "--model", "good/model", "--init", "pretrained", "--tokenizer", "good/model", job=JOB)

    def test_files(self):
        weights = self.path("bad", "model.safetensors")
        self.broken("bad: has neither model.safetensors nor model.safetensors.index.json", lambda: os.remove(weights))
        self.broken("bad/pytorch_model.bin: is a pickle file, which can run any code when it is read. Convert the folder to "
                    "safetensors: ", lambda: os.rename(weights, self.path("bad", "pytorch_model.bin")))
        for shards, message in [
            ({"a": "gone.safetensors"}, "bad/gone.safetensors: cannot open: No such file or directory"),
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
            (whole[:-10], "The file is cut off: copy or download it again"),
            (whole + b"x", "bytes of data, its header describes"),
            (struct.pack("<Q", 2 ** 63) + whole[8:], "has a header length of 9223372036854775808 bytes in a file of"),
            (b"\x10" + bytes(7) + b"hello world 1234", "the safetensors header does not start with {"),
            (file({"a": two, "b": {**two, "data_offsets": [4, 12]}}, bytes(12)), 'overlap before tensor "b"'),
            (file({"a": two}, b""), "has 0 bytes of data, its header describes 8"),
            (file({"a": {**two, "shape": [-2]}}), "has the number -2 where it may not stand"),
            (file({"a": {**two, "shape": [2 ** 40, 2 ** 40]}}), 'wrong at tensor "a": its shape overflows'),
            (file({"a": {**two, "data_offsets": [8, 0]}}), 'tensor "a"'),
            (struct.pack("<Q", 50000) + b'{"a":' * 10000, "bad/model.safetensors: "),
        ]:
            with self.subTest(message=message):
                self.broken(message, lambda: self.write("bad/model.safetensors", content))

    def test_tokenizers(self):
        kinds = "Tessera reads byte-level BPE tokenizers (those of BLOOM, GPT-2, Llama 3, Qwen2)"

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
            (["model", "vocab", "zz"], 4000, "beyond the model's vocabulary of 400. Take the tokenizer that belongs to"),
            (["model", "vocab", "zz"], 10 ** 9, 'model.vocab["zz"]: the id 1000000000 is not in'),
            (["model", "vocab", "zz"], -4, 'model.vocab["zz"]: the id -4 is not in'),
            (["model", "merges"], ["q q"], 'the merge of "q" and "q" needs the token "qq", which is not in the vocabulary'),
        ]:
            with self.subTest(path=path, value=value):
                self.broken("bad/tokenizer.json: ", lambda: change(path, value))
                self.broken(message, lambda: change(path, value))
        self.broken("bad/tokenizer.json:1:1: not valid JSON", lambda: self.write("bad/tokenizer.json", "{"))
        self.write_json("small.json", {**BLOOM, "vocab_size": 300})
        self.refuses(INPUT, "beyond the model's vocabulary of 300", "--model", "small.json")
        self.refuses(INPUT, "nowhere: no such file. Give the tokenizer.json of a model folder", "--tokenizer", "nowhere")
        shutil.copytree(self.path("good", "model"), self.path("mute"))
        os.remove(self.path("mute", "tokenizer.json"))
        self.fails(INPUT, "mute/tokenizer.json: the model has no tokenizer.json. Give one with --tokenizer", "generate",
                   "--model", "mute", "--prompt", "a")

    def test_names(self):
        known = "Give a Hugging Face folder, or with --init random one of gpt, bloom-560m, "
        for verb in (["generate", "--prompt", "a"], ["plan"], ["eval", "--eval-dataset", "eval.jsonl"]):
            self.fails(INPUT, "nowhere: no such model folder. " + known, *verb, "--model", "nowhere")
        self.fails(INPUT, 'bloom-560: no such model folder. Did you mean "bloom-560m"? ' + known, "plan", "--model",
                   "bloom-560")
        self.fails(USAGE, '--model: "bloom-560m" names a shape, which has no pretrained weights here. Add --init random',
                   "generate", "--model", "bloom-560m", "--prompt", "a")
        self.fails(USAGE, "--model: is required by generate", "generate", "--prompt", "a")

    def test_checkpoints(self):
        words = ["export", "--model", "good/model", "--output-dir", "new", "--checkpoint"]
        self.fails(INPUT, "good/checkpoint-99: no such checkpoint", *words, "good/checkpoint-99")
        self.fails(INPUT, "tok/manifest.json: cannot open: No such file or directory", *words, "tok")
        self.write_json("wide.json", {**BLOOM, "hidden_size": 32})
        self.fails(USAGE, "was made with hidden_size = 16, and this run has 32", *words, "good/checkpoint-18",
                   "--model", "wide.json", "--tokenizer", "tok")
        self.assertFalse(os.path.exists(self.path("new")))
        self.fails(USAGE, "exists and holds ", *words, "good/checkpoint-18", "--output-dir", "good")

    def test_questions(self):
        self.fails(USAGE, "generate: there is nothing to continue. Give --question and --context", "generate", "--model",
                   "good/model")
        self.fails(USAGE, "--prompt: is not valid UTF-8", "generate", "--model", "good/model", "--prompt", b"\xff\xfe")
        self.fails(USAGE, "--max-new-tokens: must be at most 1048576, got 2147483647", "generate", "--model", "good/model",
                   "--prompt", "a", "--max-new-tokens", "2147483647")
        self.write_json("long.json", [{"context": "a " * 300, "question": "what " * 300, "answers": {"text": ["a"]}}])
        self.fails(USAGE, "--max-length: 512 tokens are too few", "eval", "--model", "good/model", "--eval-dataset",
                   "long.json", "--eval-generation")
        # A prompt of a command line is read whole, however long.
        out = self.succeeds("generate", "--model", "good/model", "--question", "What?", "--context", "lives in " * 600,
                            "--json", "--max-new-tokens", "1")
        self.assertGreater(json.loads(out)["num_prompt_tokens"], 1000)


class SettingsOfARun(BadInputTest):
    def test_impossible(self):
        for words, message in [
            (["--batch-size", "0"], "--batch-size: must be at least 1, got 0"),
            (["--lr", "-1"], "--lr: must be at least 0, got -1.0"),
            (["--epochs", "1e300"], "--epochs: must be at most 1000000000"),
            (["--objective", "completon"], '--objective: unknown value "completon". Did you mean "completion"? One of: '),
            (["--bach-size", "3"], '--bach-size: unknown flag. Did you mean "--batch-size"?'),
            (["--load-best-model-at-end", "--save-strategy", "no"], "--load-best-model-at-end: needs a checkpoint"),
        ]:
            with self.subTest(words=words):
                self.refuses(USAGE, message, *words)
        for missing in ["--model", "--dataset", "--output-dir"]:
            words = dict(zip(JOB[::2], JOB[1::2])) | {"--output-dir": "out"}
            del words[missing]
            self.fails(USAGE, f"{missing}: is required by train", "train", *(word for pair in words.items() for word in pair))

    def test_huge_ones_that_are_possible(self):
        self.train("out", "--batch-size", "2147483647", "--epochs", "2", "--eval-batch-size", "2147483647")
        self.assertEqual(self.json_of("out", "summary.json")["steps"], 2)

    def test_a_shape_is_for_a_new_gpt(self):
        for words in [["--hidden-size", "16"], ["--num-layers", "1"], ["--num-heads", "2"], ["--ff-dim", "9"],
                      ["--dropout", "0.1"], ["--vocab-size", "400"]]:
            with self.subTest(words=words):
                self.refuses(USAGE, f'{words[0]}: shapes a new model "gpt", and "config.json" has a shape of its own. Leave '
                                    "it out, or give --model gpt --init random", *words)
        self.write("c.toml", "num_layers = 3\n")
        self.fails(USAGE, 'c.toml:1: num_layers: shapes a new model "gpt"', "train", "c.toml", *JOB, "--output-dir", "out")
        self.refuses(USAGE, '--model: "gpt" names a shape', "--model", "gpt", "--init", "pretrained")
        self.fails(USAGE, "--vocab-size: the model \"gpt\" needs it", "train", "--model", "gpt", "--init", "random",
                   "--dataset", "train.jsonl", "--output-dir", "out")

    def test_more_than_the_machine_has(self):
        def first_to_die():  # should it be tried nevertheless, nothing else on this machine suffers
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")
        for words in [["train", *JOB, "--output-dir", "out"], ["eval", *JOB[:6], "--eval-dataset", "eval.jsonl"],
                      ["generate", *JOB[:6], "--prompt", "a"]]:
            with self.subTest(verb=words[0]):
                self.fails(OUT_OF_MEMORY, "memory: the run needs ", *words, "--model", "bloom-176b", preexec_fn=first_to_die)
        self.fails(USAGE, "--batch-size: 2147483647 samples of 512 tokens are more than the ", "plan", "--model",
                   "bloom-560m", "--batch-size", "2147483647")
        self.assertGreater(json.loads(self.succeeds("plan", "--model", "bloom-176b", "--json"))["peak_bytes"], 2 ** 41)


class Outputs(BadInputTest):
    def test_places_that_cannot_be_written(self):
        self.train("good", job=JOB)
        self.write("file", "text")
        for place in ["file", "file/below", "/proc/nowhere/out"]:
            message = f"{place}: cannot write: "
            with self.subTest(place=place):
                self.fails(FAILED, message, "train", *JOB, "--output-dir", place)
                self.fails(FAILED, message, "eval", "--model", "good/model", "--eval-dataset", "eval.jsonl", "--output-dir",
                           place)
                self.fails(FAILED, message, "tokenizer", "train", "--dataset", "train.jsonl", "--vocab-size", "400",
                           "--output-dir", place)
        self.fails(FAILED, "cannot write: Not a directory", "export", "--model", "good/model", "--checkpoint",
                   "good/checkpoint-18", "--output-dir", "file/below")
        self.assertEqual(self.read("file"), b"text")

    def test_a_folder_in_use(self):
        self.write("many.jsonl", jsonl(questions(22, 1) * 400))
        process = subprocess.Popen([PROGRAM, "train", *JOB, "--dataset", "many.jsonl", "--output-dir", "out"],
                                   cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not os.path.exists(self.path("out", "metrics.jsonl")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        self.fails(USAGE, f"out: is in use by another run (process {process.pid} on ", "train", *JOB, "--output-dir", "out")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.train("out", job=JOB)

    def full_disk(self, output, message, **options):
        """A run that meets a full disk at a checkpoint: told; the earlier checkpoint stays and the run goes on from it."""
        whole = self.path("whole")
        self.train("whole")
        shutil.copytree(whole, output, ignore=shutil.ignore_patterns("checkpoint-6", "checkpoint-18", "model"))
        code, _, err = self.run_tessera("train", *EVALUATED, "--output-dir", output, **options)
        self.assertEqual(code, FAILED, err)
        self.assertRegex(err, rf"(?m)^error: .*{message}")
        self.assertNotIn("terminate", err)
        self.assert_tidy(output)
        self.assertEqual(self.checkpoints(output), [12])
        for name in os.listdir(os.path.join(whole, "checkpoint-12")):
            self.assertEqual(self.read(output, "checkpoint-12", name), self.read(whole, "checkpoint-12", name))

    def test_a_limit_on_file_sizes(self):
        limit = os.path.getsize(self.path("train.jsonl")) + (1 << 14)  # a checkpoint takes 160 KiB
        self.full_disk(self.path("out"), "Raise the limit on file sizes",
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.train("out")
        self.assert_same_results("whole", "out")

    def test_a_full_disk(self):
        os.mkdir(self.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", self.path("disk")],
                                 stderr=subprocess.DEVNULL, check=False) if shutil.which("mount") else None
        if not mounted or mounted.returncode != 0:
            self.skipTest("no permission to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", self.path("disk")], check=True)
        self.full_disk(self.path("disk", "out"), "No space left on device")
        subprocess.run(["mount", "-o", "remount,size=2m", self.path("disk")], check=True)
        self.train("disk/out")
        self.assert_same_results("whole", "disk/out")

    def test_metrics_on_a_full_disk(self):
        """The log itself: the run ends, its records are whole."""
        self.fails_late("out", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)))
        for line in self.read("out", "metrics.jsonl").splitlines():
            json.loads(line)

    def fails_late(self, output, **options):
        code, _, err = self.run_tessera("train", *JOB, "--output-dir", output, "--save-strategy", "no", **options)
        self.assertEqual(code, FAILED, err)
        self.assertIn("error: ", err)

    def test_results_on_a_full_disk(self):
        self.train("good", job=JOB)
        with open("/dev/full", "wb") as full:
            for words in [["generate", "--prompt", "a"], ["eval", "--eval-dataset", "eval.jsonl"]]:
                code, _, err = self.run_tessera(*words, "--model", "good/model", stdout=full)
                self.assertEqual(code, FAILED)
                self.assertIn("error: standard output: cannot write to it: No space left on device", err)

    def test_gpt_without_weights_of_its_own(self):
        """A saved gpt has its shape in its config.json."""
        self.train("good", job=GPT)
        self.fails(USAGE, '--ff-dim: shapes a new model "gpt", and "good/model" has a shape of its own', "eval", "--model",
                   "good/model", "--eval-dataset", "eval.jsonl", "--ff-dim", "64")


if __name__ == "__main__":
    main()
