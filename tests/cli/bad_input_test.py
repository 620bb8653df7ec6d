"""Tests that impossible data sets and settings give the right exit code and a message with the remedy, and leave no
incomplete file."""
import json
import os

from tessera_cli import main
from tiny_job import GPT, INPUT, JOB, OUT_OF_MEMORY, USAGE, BadInputTest, jsonl, questions


class Datasets(BadInputTest):
    def test_files(self):
        whole = json.dumps(questions(1, 1)[0])
        remedy = 'Give SQuAD JSON ({"data": [{"paragraphs": ...}]}), a JSON array of rows, or one row per line; a row is'
        for content, message in [
            (None, "data.json: no such file. Give the path of a JSON or JSONL file"),
            ("", "data.json: the file is empty. " + remedy),
            ("[]", "data.json: the data set is empty"),
            ('{"data": []}', "data.json: the data set is empty"),
            ("hello", "data.json:1:1: not valid JSON: "),
            (whole[:40], "The file seems to be cut short: fetch or write it again"),
            (whole + "\n" + whole[:30], "data.json: 1 of its 2 rows cannot be used, and --max-bad-rows is 0.1: line 2, column 31: not "
                                         "valid JSON: "),
            ("[" * 100000, "data.json: is nested deeper than 64 levels"),
            ('{"contxt": "a", "question": "b", "answers": {"text": ["a"], "answer_start": [0]}}',
             'its only row cannot be used: has an answer_start, but no "context"'),
            ('{"context": 3, "question": "b", "answers": {"text": ["a"]}}', '"context" must be a string, found 3'),
            ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "q"}]}]}]}',
             'data.json: its only row cannot be used: data[0].paragraphs[0].qas[0]: key "answers" is missing'),
            (whole + '\n{"context": "a", "question": "b", "answers": {"text": ["zzz"], "answer_start": [0]}}',
             'line 2: the answer "zzz" does not occur in the context "a". An answer with an answer_start must be'),
            (b'{"context": "a\xff", "question": "b", "answers": {"text": ["a"]}}',
             "data.json:1:15: invalid UTF-8: byte 0xFF. Save the file as UTF-8"),
            ('{"text": "hello"}', 'the data set contains a plain text ("hello"), which has no answer to learn'),
        ]:
            with self.subTest(content=content and content[:60]):
                if content is not None:
                    self.write("data.json", content)
                code = USAGE if content == '{"text": "hello"}' else INPUT
                self.refuses(code, message, "--dataset", "data.json")
                self.refuses(code, message, "--eval-dataset", "data.json")
        self.write("data.json", "[]")
        self.refuses(INPUT, ".: is a folder, not a file. Give one or more of its files: data.json eval.jsonl train.jsonl",
                     "--dataset", ".")
        self.write("data.csv", "question,answer\nq,a\n")
        self.refuses(INPUT, "data.csv: is a CSV file, which Tessera does not read. Convert it: python3 -c", "--dataset",
                     "train.jsonl", "data.csv")
        self.refuses(INPUT, "hub: hf download squad --repo-type dataset", "--dataset", "squad")
        self.refuses(INPUT, "Give several files as several words: train.jsonl data.csv.", "--dataset", "train.jsonl,data.csv")

    def test_sizes(self):
        self.refuses(USAGE, "--train-size: 100 examples are requested, but the data set has 22. Give at most 22",
                     "--train-size", "100")
        self.refuses(USAGE, "--eval-size: 8 examples are requested, but the data set has 7", "--eval-dataset",
                     "eval.jsonl", "--eval-size", "8")
        self.refuses(INPUT, "train.jsonl: none of its 22 rows can be used: line ", "--max-length", "10")
        self.refuses(INPUT, ": a maximum length of 10 tokens is too small: the question and answer take",
                     "--max-length", "10")
        self.refuses(INPUT, "train.jsonl: no token of the 22 samples has a loss. Increase --max-length, or give --truncation",
                     "--max-length", "10", "--truncation", "right")
        # Nothing was cut: other advice.
        self.write("empty.jsonl", '{"text": ""}\n')
        self.refuses(INPUT, "empty.jsonl: no token of the 1 sample has a loss. Give texts that are not empty", "--objective",
                     "causal_lm", "--dataset", "empty.jsonl")
        self.write("none.jsonl", '{"question": "Who?", "answer": ""}\n')
        self.refuses(INPUT, "none.jsonl: no token of the 1 sample has a loss. Give questions with answers, give "
                     "--unanswerable-text, or", "--unanswerable-text", "", "--no-append-eos", "--dataset", "none.jsonl")
        self.refuses(USAGE, "--eval-fraction: 0.1 of 1 row leaves no row to train on. Give at least 2 rows that can be used",
                     "--eval-fraction", "0.1", "--dataset", "none.jsonl")

    def test_texts_have_no_answers(self):
        self.write("texts.jsonl", '{"text": "hello there"}\n')
        words = ["--eval-dataset", "texts.jsonl", "--objective", "causal_lm"]
        message = "--eval-generation: texts.jsonl contains plain texts, which have no answers to score. Remove --eval-generation"
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
        """Dropout limits a sample to 2^20 tokens (kMaxDropoutKeys). This sample has more."""
        self.write("long.jsonl", json.dumps({"text": "lives in " * (1 << 20)}) + "\n")
        self.refuses(USAGE, "--max-length: long.jsonl has a sample of ", "--dataset", "long.jsonl", "--objective",
                     "causal_lm", "--max-length", "2000000")


class SettingsOfARun(BadInputTest):
    def test_impossible(self):
        for words, message in [
            (["--batch-size", "0"], "--batch-size: must be at least 1, got 0"),
            (["--lr", "-1"], "--lr: must be at least 0, got -1.0"),
            (["--epochs", "1e300"], "--epochs: must be at most 1000000000"),
            (["--objective", "completon"], '--objective: unknown value "completon". Did you mean "completion"? Use one of'),
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
                      ["--dropout", "0.1"]]:
            with self.subTest(words=words):
                self.refuses(USAGE, f'{words[0]}: applies only to a new model "gpt", but the model "config.json" already '
                                    "has a shape. Remove it, or give --model gpt --init random", *words)
        self.refuses(USAGE, '--vocab-size: the model "config.json" already defines the size of its vocabulary. Remove it. '
                            'For another size, change "vocab_size" in a copy of',
                     "--vocab-size", "400")
        self.write("c.toml", "num_layers = 3\n")
        _, _, err = self.run_tessera("train", "c.toml", *JOB, "--max-steps", "1", "--output-dir", "sizes")
        self.assertIn('warning: num_layers: no effect, because --model "config.json" has its own shape\n', err)
        self.write("c.toml", 'model = "config.json"\nnum_layers = 3\n')
        self.fails(USAGE, 'c.toml:2: num_layers: applies only to a new model "gpt"', "train", "c.toml",
                   *JOB[JOB.index("--model") + 2:], "--output-dir", "out")
        self.refuses(USAGE, '--model: "gpt" is the name of a shape', "--model", "gpt", "--init", "pretrained")
        self.fails(USAGE, "--vocab-size: the model \"gpt\" needs the size of its vocabulary", "train", "--model", "gpt", "--init", "random",
                   "--dataset", "train.jsonl", "--output-dir", "out")

    def test_more_than_the_machine_has(self):
        def first_to_die():  # if the run allocates the memory by mistake, Linux kills this process first
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")
        for words in [["train", *JOB, "--output-dir", "out"], ["eval", *JOB[:6], "--eval-dataset", "eval.jsonl"],
                      ["generate", *JOB[:6], "--prompt", "a"]]:
            with self.subTest(verb=words[0]):
                self.fails(OUT_OF_MEMORY, "memory: the run needs ", *words, "--model", "bloom-176b", preexec_fn=first_to_die)
        self.fails(USAGE, "a batch can have up to 2147483647 sequences with 1099511627264 tokens in total, but ", "plan", "--model",
                   "bloom-560m", "--batch-size", "2147483647")
        self.assertGreater(json.loads(self.succeeds("plan", "--model", "bloom-176b", "--json", "--device-memory", "9TiB"))["peak_bytes"], 2 ** 41)

    def test_no_gpu(self):
        words = [word for word in JOB if word not in ("--device", "cuda")]
        for verb in [["train", *words, "--output-dir", "out"], ["eval", *words[:6], "--eval-dataset", "eval.jsonl"],
                     ["generate", *words[:6], "--prompt", "a"]]:
            with self.subTest(verb=verb[0]):
                code, out, err = self.run_tessera(*verb, "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
                self.assertEqual((code, out, err.count("\n")), (USAGE, "", 1), err)
                self.assertRegex(err, "^error: --device cuda: (no GPU is available: .|this tessera was built without CUDA)")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_a_saved_gpt_has_its_shape(self):
        """The config.json of a saved gpt contains its shape, so flags for the shape are refused."""
        self.train("good", job=GPT)
        self.fails(USAGE, '--ff-dim: applies only to a new model "gpt", but the model "good/model" already has a shape',
                   "eval", "--model", "good/model", "--eval-dataset", "eval.jsonl", "--ff-dim", "64")


if __name__ == "__main__":
    main()
