"""How a run treats texts that are too long and rows that it cannot use, and how it reports them."""
import json
import unittest

from tessera_cli import CliTest, main
from tiny_job import INPUT, JOB, MOST_RANKS, TinyJobTest, jsonl, questions

TEXTS = JOB + ["--objective", "causal_lm", "--dataset", "texts.jsonl", "--max-length", "32", "--max-steps", "2"]
NAMES = ["rows_used", "rows_cut", "rows_left_out", "rows_malformed", "rows_too_long", "samples", "tokens_used",
         "tokens_cut", "tokens_dropped"]


class DataUseTest(TinyJobTest):
    def note(self, *words):
        """Expects that the command succeeds. Returns its standard error."""
        code, _, err = self.run_tessera(*words)
        self.assertEqual(code, 0, err)
        return err

    def num_tokens(self, text):
        return len(self.succeeds("tokenize", "--tokenizer", "tok", "--prompt", text).split())

    def use_of(self, *words):
        """The numbers that `tessera plan` reports about the training data, in the order of NAMES."""
        use = json.loads(self.succeeds("plan", *words, "--json"))["train_data"]
        return [use[name] for name in NAMES]


class LongTexts(DataUseTest):
    def test_split_truncate_and_skip(self):
        texts = [" ".join(row["context"] for row in questions(n, n)) for n in (1, 4, 9)] + ["short"]
        self.write("texts.jsonl", jsonl([{"text": text} for text in texts]))
        # A row has one more token than its text: the end-of-sequence token. The first and the last row fit into 32
        # tokens. The two rows between them do not fit.
        lengths = [self.num_tokens(text) + 1 for text in texts]
        self.assertLess(max(lengths[0], lengths[3]), 32)
        self.assertGreater(min(lengths[1:3]), 33)
        samples = sum(-(-length // 32) for length in lengths)
        kept = lengths[0] + lengths[3]
        for policy, numbers in [("split", [4, 0, 0, 0, 0, samples, sum(lengths), 0, 0]),
                                ("truncate", [4, 2, 0, 0, 0, 4, kept + 64, sum(lengths) - kept - 64, 0]),
                                ("skip", [2, 0, 2, 0, 0, 2, kept, 0, sum(lengths) - kept])]:
            with self.subTest(policy=policy):
                words = [*TEXTS, "--long-texts", policy, "--eval-dataset", "texts.jsonl", "--output-dir", policy]
                err = self.note("train", *words)
                line = next(line for line in err.splitlines() if line.startswith("texts.jsonl: "))
                self.assertIn(f"{numbers[0]} rows as {numbers[5]} samples, ", line)
                self.assertEqual(line.endswith("nothing cut or dropped"), policy == "split")
                summary = self.json_of(policy, "summary.json")
                for use in (summary["train_data"], summary["eval_data"]):
                    self.assertEqual([use[name] for name in NAMES], numbers)
                self.assertEqual(self.use_of(*words), numbers)
                self.assertIn(line, self.note("plan", *words))
                words = ["eval", "--model", f"{policy}/model", "--eval-dataset", "texts.jsonl", "--objective", "causal_lm",
                         "--max-length", "32", "--long-texts", policy]
                report = json.loads(self.succeeds(*words, "--json"))
                self.assertEqual(report["eval_data"], summary["eval_data"])
                self.assertIn(line, self.note(*words))
        self.assertEqual(self.use_of(*TEXTS), self.use_of(*TEXTS, "--long-texts", "split"))
        self.write("texts.jsonl", jsonl([{"text": texts[2]}]))
        self.fails(INPUT, "texts.jsonl: all texts are longer than --max-length 32. Increase --max-length, or give "
                          "--long-texts split", "train", *TEXTS, "--long-texts", "skip", "--output-dir", "none")

    @unittest.skipIf(MOST_RANKS < 2, "needs two ranks")
    def test_the_same_on_ranks(self):
        texts = [" ".join(row["context"] for row in questions(n, n)) for n in (1, 4, 9)]
        self.write("texts.jsonl", jsonl([*({"text": text} for text in texts), *({"txt": ""} for _ in range(1))]))
        words = [*TEXTS, "--max-bad-rows", "0.3"]
        self.train("one", *words, "--batch-size", "4", job=[])
        self.train("two", *words, "--batch-size", "2", "--nproc", "2", job=[])
        one, two = self.json_of("one", "summary.json"), self.json_of("two", "summary.json")
        self.assertEqual(one["train_data"], two["train_data"])
        self.assertEqual(one["num_tokens"], two["num_tokens"])


class BadRows(DataUseTest):
    LONG = {"id": "long", "context": "a", "question": "what " * 600, "answers": {"text": ["a"]}}

    def setUp(self):
        super().setUp()
        self.good = questions(22, 1)
        self.bad = [{"id": "b", "context": "a", "question": "q", "answers": {"text": ["zzz"], "answer_start": [0]}}, self.LONG]
        self.write("mixed.jsonl", jsonl([*self.good[:5], self.bad[0], *self.good[5:], self.bad[1]]))

    def test_are_skipped_and_named(self):
        self.train("good", job=JOB)
        err = self.note("train", *JOB, "--dataset", "mixed.jsonl", "--output-dir", "out")
        self.assertIn("mixed.jsonl: 22 rows as 22 samples, ", err)
        self.assertIn("2 bad rows skipped", err)
        self.assertIn('\nwarning: skipped 2 bad rows:\n  line 24: a maximum length of 512 tokens is too small: ', err)
        self.assertIn('\n  line 6: the answer "zzz" does not occur in the context', err)
        self.assertEqual(err.count("mixed.jsonl"), 1)
        use = self.json_of("out", "summary.json")["train_data"]
        self.assertEqual((use["rows_malformed"], use["rows_too_long"], use["rows_used"]), (1, 1, 22))
        self.assertEqual([place.split(": ")[0] for place in use["skipped"]], ["mixed.jsonl:24", "mixed.jsonl:6"])
        self.assertGreater(use["tokens_dropped"], 600)
        # Malformed rows are removed before the samples get their order. The good rows and one malformed row therefore
        # give the same results as the good rows alone. A row that is too long keeps its place in the order, which would
        # change the results, so malformed.jsonl has no such row.
        self.write("malformed.jsonl", jsonl([*self.good[:5], self.bad[0], *self.good[5:]]))
        self.train("same", "--dataset", "malformed.jsonl", job=JOB)
        self.assert_same_results("good", "same")

    def test_stop_and_shares(self):
        words = ["train", *JOB, "--dataset", "mixed.jsonl", "--output-dir", "out"]
        message = '6: the answer "zzz" does not occur in the context "a". An answer with an answer_start must be'
        self.fails(INPUT, "mixed.jsonl:" + message, *words, "--bad-rows", "stop")
        self.fails(INPUT, "mixed.jsonl: 1 of its 24 rows cannot be used, and --max-bad-rows is 0: line " + message, *words,
                   "--max-bad-rows", "0")
        self.write("mixed.jsonl", jsonl([*self.good[:1], *[self.LONG] * 5]))
        self.fails(INPUT, "mixed.jsonl: 5 of its 6 rows cannot be used, and --max-bad-rows is 0.1: line ", *words)
        self.fails(INPUT, ": a maximum length of 512 tokens is too small: the question and answer take", *words,
                   "--bad-rows", "stop")
        self.write("mixed.jsonl", jsonl([self.LONG]))
        self.fails(INPUT, "mixed.jsonl: its only row cannot be used: a maximum length of 512 tokens is too small",
                   *words, "--max-bad-rows", "1")
        self.write("mixed.jsonl", jsonl([*self.good]) + '{"context": ')
        self.fails(INPUT, "mixed.jsonl:23:13: not valid JSON", *words, "--bad-rows", "stop")
        self.assertIn("\n  line 23, column 13: not valid JSON", self.note(*words))

    def test_questions_that_are_too_long_to_ask_score_0(self):
        """In EM and F1, a question that is too long counts as a wrong answer. A malformed row does not count. The loss
        includes neither."""
        self.train("out", "--epochs", "40", "--eval-dataset", "train.jsonl", "--eval-generation", "--max-new-tokens", "5",
                   "--eval-strategy", "no", "--save-strategy", "no", job=JOB)
        words = ["--model", "out/model", "--eval-generation", "--max-new-tokens", "5", "--max-bad-rows", "0.5", "--json"]
        reports = {}
        without_answer = {**self.LONG, "answers": []}
        for name, rows in [("good", self.good), ("long", [*self.good, *[self.LONG] * 8, *[without_answer] * 3]),
                           ("malformed", [*self.good, *self.bad[:1] * 11])]:
            self.write(name + ".jsonl", jsonl(rows))
            reports[name] = json.loads(self.succeeds("eval", "--eval-dataset", name + ".jsonl", *words))
        good = reports["good"]
        self.assertGreater(good["f1"], 0)
        for name in ["exact_match", "f1"]:
            self.assertAlmostEqual(reports["long"][name], good[name] * 22 / 33, places=12)
            self.assertEqual(reports["malformed"][name], good[name])
        long = reports["long"]
        self.assertAlmostEqual(long["HasAns_f1"], good["f1"] * 22 / 30, places=12)
        self.assertEqual([long[name] for name in ["HasAns_total", "NoAns_total", "NoAns_exact", "NoAns_f1"]], [30, 3, 0, 0])
        self.assertNotIn("HasAns_total", good)
        self.write("none.jsonl", jsonl([{**self.good[0], "answers": []}]))
        message = "warning: --unanswerable-text \"No Answer\" has 9 tokens, but answers have at most 5 tokens"
        self.assertIn(message, self.note("eval", "--eval-dataset", "none.jsonl", *words))
        self.assertNotIn("warning", self.note("eval", "--eval-dataset", "none.jsonl", *words, "--unanswerable-text", "Oslo"))
        for name in ["long", "malformed"]:
            self.assertEqual(reports[name]["eval_loss"], good["eval_loss"])


class Files(DataUseTest):
    """Several files of a data set, text files, and rows that are held out for evaluation."""

    def setUp(self):
        super().setUp()
        rows = questions(22, 1)
        self.write("a.jsonl", jsonl(rows[:9]))
        self.write("b c.json", json.dumps({"data": rows[9:]}))
        self.job = JOB[:JOB.index("--dataset")] + JOB[JOB.index("--dataset") + 2:] + ["--max-steps", "3"]

    def start(self, *words, **options):
        """Runs Tessera with repeated flags. TinyJobTest.run_tessera would drop them."""
        code, out, err = CliTest.run_tessera(self, *words, **options)
        self.assertEqual(code, 0, err)
        return out, err

    def test_several_files(self):
        self.train("one", "--dataset", "train.jsonl", job=self.job)
        self.train("two", "--dataset", "a.jsonl", "b c.json", job=self.job)
        self.assert_same_results("one", "two")
        self.assertIn('dataset = ["a.jsonl", "b c.json"]', self.read("two", "resolved-config.toml").decode())
        self.assertEqual(self.json_of("one", "summary.json")["train_data"], self.json_of("two", "summary.json")["train_data"])
        # All ways to give a list, and the run continues from any of them.
        self.write("run.toml", 'dataset = ["a.jsonl", "b c.json"]\n')
        files = ["--dataset", "a.jsonl", "--dataset=b c.json"]
        env = {"TESSERA_DATASET": '["a.jsonl", "b c.json"]'}
        for words, options in [(files, {}), (["run.toml"], {}), ([], {"env": env}),
                               (["--dataset", "a.jsonl", "b c.json", "run.toml"], {}), (["two/resolved-config.toml"], {})]:
            out, _ = self.start("config", "train", *self.job, *words, "--output-dir", "x", **options)
            self.assertIn('\ndataset = ["a.jsonl", "b c.json"] ', out)
        _, err = self.start("train", *self.job, *files, "--max-steps", "4", "--output-dir", "two")
        self.assertIn("Resuming from two/checkpoint-3", err)
        self.assertIn("a.jsonl and 1 more file: 22 rows as 22 samples", err)
        out, _ = self.start("slurm", "--job-file", "-", "train", *self.job, *files, "--output-dir", "x")
        self.assertIn("--dataset a.jsonl \\\n  --dataset 'b c.json'", out)
        out, _ = self.start("slurm", "--job-file", "-", "train", *self.job, "--output-dir", "x", env=env)
        self.assertIn("--dataset a.jsonl \\\n  --dataset 'b c.json'", out)
        self.write("sweep.toml", 'output_dir = "s/{name}"\n[matrix]\ndataset = [["a.jsonl", "b c.json"], "a.jsonl"]\n')
        out, _ = self.start("sweep", "sweep.toml", "--dry-run", *self.job)
        self.assertIn("--dataset a.jsonl --dataset 'b c.json'", out)
        self.assertIn("dataset=a.jsonl+b-c.json", out)
        use = json.loads(self.start("plan", *self.job, *files, "--eval-dataset", "eval.jsonl", "a.jsonl", "--json")[0])
        self.assertEqual((use["train_data"]["rows_used"], use["eval_data"]["rows_used"]), (22, 16))
        # Errors name the file, and the row within this file.
        self.write("a.jsonl", jsonl(questions(8, 3)) + '{"question": "half \\ud83d", "answer": "a"}\n')
        words = ["train", *self.job, "--dataset", "b c.json", "a.jsonl", "--output-dir"]
        self.fails(INPUT, "a.jsonl:9:26: not valid JSON", *words, "new", "--bad-rows", "stop")
        self.fails(INPUT, "b c.json and 1 more file: 1 of its 22 rows cannot be used, and --max-bad-rows is 0: a.jsonl: line 9, "
                          "column 26: not valid JSON", *words, "new", "--max-bad-rows", "0")
        self.fails(2, "was made with dataset_samples = 22, and this run has 21", *words, "two")
        self.fails(INPUT, "gone.jsonl: no such file", "train", *self.job, "--dataset", "b c.json", "gone.jsonl", "--output-dir",
                   "n")
        for value, message in [('["a.jsonl", 3]', "TESSERA_DATASET: is not a list of texts"),
                               ('["a.jsonl", ""]', "TESSERA_DATASET: contains an empty text"),
                               ("a.jsonl:b c.json", 'Give several files as several words: a.jsonl \'b c.json\'')]:
            with self.subTest(value=value):
                self.fails(2 if value[0] == "[" else INPUT, message, "train", *self.job, "--output-dir", "n",
                           env={"TESSERA_DATASET": value})

    def test_held_out_rows(self):
        words = ["--dataset", "a.jsonl", "b c.json", "--eval-fraction", "0.2", "--eval-strategy", "steps", "--eval-steps", "2",
                 "--batch-size", "2", "--no-append-eos"]
        self.train("out", *words, job=self.job)
        summary = self.json_of("out", "summary.json")
        self.assertEqual((summary["train_data"]["rows_used"], summary["eval_data"]["rows_used"]), (18, 4))
        self.assertIn("eval_loss", self.metrics("out", "eval")[0])
        code, _, err = self.run_tessera("train", *self.job, *words, "--eval-fraction", "0.3", "--output-dir", "out")
        self.assertEqual(code, 2)
        self.assertIn("was made with eval_fraction = 0.2, and this run has 0.3", err)
        if MOST_RANKS > 1:  # the same rows on two ranks, in a run that is resumed
            self.train("two", *words, "--batch-size", "1", "--nproc", "2", "--save-strategy", "steps", "--save-steps", "2",
                       job=self.job)
            two = self.json_of("two", "summary.json")
            self.assertEqual(two["eval_data"], summary["eval_data"])
            self.assertAlmostEqual(two["eval_loss"], summary["eval_loss"], places=5)
            err = self.note("train", *self.job, *words, "--resume", "two/checkpoint-2", "--output-dir", "again")
            self.assertIn("a.jsonl and 1 more file, held out: 4 rows as 4 samples", err)
            self.assertAlmostEqual(self.json_of("again", "summary.json")["eval_loss"], summary["eval_loss"], places=5)
        plan = json.loads(self.succeeds("plan", *self.job, *words, "--train-size", "5", "--eval-size", "2", "--json"))
        self.assertEqual((plan["train_data"]["rows_used"], plan["eval_data"]["rows_used"]), (5, 2))
        for value in ["0", "1", "nan", "-0.1", "1.5", "inf", "", "x"]:
            self.fails(2, "--eval-fraction: must be a fraction greater than 0 and less than 1, or none, got ", "config", "train",
                       "--eval-fraction=" + value)
        self.fails(2, "Write 0.05", "config", "train", "--eval-fraction", "5%")
        self.fails(2, "--eval-fraction: contradicts eval_dataset (--eval-dataset)", "train", *self.job, *words, "--eval-dataset",
                   "eval.jsonl", "--output-dir", "n")
        self.fails(2, "--eval-fraction: 0.99 of 22 rows leaves no row to train on", "train", *self.job, *words,
                   "--eval-fraction", "0.99", "--output-dir", "n")
        self.write("run.toml", "eval_fraction = 0.25\n")
        self.assertIn('\neval_fraction = "0.25" ', self.succeeds("config", "train", "run.toml"))

    def test_text_files(self):
        text = "Arlo lives in Oslo.\r\n\nBryn is a baker.\n"
        self.write("one.txt", "\ufeff" + text)
        self.write("two.TXT", b"Cora\n\xff\nDane\n")
        self.write("same.jsonl", jsonl([{"text": text}]))
        self.write("lines.jsonl", jsonl([{"text": line} for line in ["Arlo lives in Oslo.", "Bryn is a baker.", "Cora", "Dane"]]))
        words = [*self.job, "--objective", "causal_lm", "--max-bad-rows", "0.9"]
        self.train("file", "--dataset", "same.jsonl", job=words)
        err = self.note("train", *words, "--dataset", "one.txt", "two.TXT", "--output-dir", "txt")
        self.assertIn("one.txt and 1 more file: 1 row as 1 sample", err)
        self.assertIn("\n  two.TXT: line 2, column 1: invalid UTF-8: byte 0xFF", err)
        self.assert_same_results("file", "txt")
        self.train("lines", "--dataset", "lines.jsonl", job=words)
        self.assertIn("\n  two.TXT: line 2, column 1: invalid UTF-8", self.note("train", *words, "--dataset", "one.txt", "two.TXT", "--txt-rows", "line",
                                                                      "--output-dir", "txt-lines"))
        self.assert_same_results("lines", "txt-lines")
        self.fails(2, "--objective: the data set contains a plain text", "train", *self.job, "--dataset", "one.txt",
                   "--output-dir", "n")

    def test_free_answers_and_completions(self):
        rows = [{"question": "Who?", "answer": "Arlo"}, {"question": "Who?", "context": "Bryn is here.", "answers": ["Arlo"]},
                {"prompt": "Question: Who? Answer:", "completion": " Arlo", "id": "p"}]
        self.write("free.jsonl", jsonl(rows))
        words = [*self.job, "--dataset", "free.jsonl", "--eval-dataset", "free.jsonl", "--eval-generation", "--max-new-tokens", "2",
                 "--max-steps", "60"]
        err = self.note("train", *words, "--output-dir", "out")
        self.assertIn("free.jsonl: 3 rows as 3 samples, ", err)
        self.assertIn("; 1 question without context; 1 answer not copied from the context", err)
        summary = self.json_of("out", "summary.json")
        self.assertEqual((summary["exact_match"], summary["f1"]), (1, 1))
        self.assertEqual((summary["train_data"]["rows_without_context"], summary["train_data"]["rows_free_answer"]), (1, 1))
        for more in [["--question", "Who?"], ["--prompt", "Question: Who? Answer:"]]:
            out = self.succeeds("generate", "--model", "out", *more, "--max-new-tokens", "1")
            self.assertEqual(out.strip()[:1], "A")


class Tokenizers(DataUseTest):
    def test_invalid_utf8_is_reported(self):
        lines = [b"fine", b"ab\xffc", *[b"\xc3"] * 12]
        code, out, err = self.run_tessera("tokenize", "--tokenizer", "tok", input=b"\n".join(lines))
        self.assertEqual((code, out.count("\n")), (0, 14), err)
        notes = err.splitlines()
        self.assertEqual(notes[0], "warning: standard input:2: byte 0xFF at offset 2 is not valid UTF-8; U+FFFD replaces it")
        self.assertEqual(len(notes), 11)
        self.assertEqual(notes[-1], "warning: standard input: 13 lines are not valid UTF-8")

    def test_keys_that_are_not_used(self):
        self.assertNotIn("tokenizer.json", self.note("tokenize", "--tokenizer", "tok", "--prompt", "a"))
        tokenizer = self.json_of("tok", "tokenizer.json")
        tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        tokenizer["padding"] = {"strategy": {"Fixed": 5}, "direction": "Left"}
        self.write("tok/tokenizer.json", json.dumps(tokenizer))
        message = ('tokenizer.json: Tessera ignores "truncation" and "padding". --max-length limits the length of rows, and '
                   "rows are not padded")
        for words in [["tokenize", "--tokenizer", "tok", "--prompt", "a"], ["plan", *JOB],
                      ["train", *JOB, "--max-steps", "1", "--output-dir", "out"],
                      ["eval", "--model", "out/model", "--eval-dataset", "eval.jsonl"],
                      ["generate", "--model", "out/model", "--prompt", "a", "--max-new-tokens", "1"]]:
            self.assertIn(message, self.note(*words), words[0])


if __name__ == "__main__":
    main()
