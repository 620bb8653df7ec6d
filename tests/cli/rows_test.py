"""Formats of rows, keys of fields, and mixtures of files with shares."""
import json
import unittest

from tessera_cli import CliTest, main
from tiny_job import INPUT, JOB, MOST_RANKS, USAGE, TinyJobTest, jsonl, questions

CHAT = {"messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Oslo"}]}


class Rows(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.job = JOB[:JOB.index("--dataset")] + JOB[JOB.index("--dataset") + 2:] + ["--max-steps", "3"]

    def start(self, *words, **options):
        """Runs Tessera with repeated flags. TinyJobTest.run_tessera would drop them."""
        code, out, err = CliTest.run_tessera(self, *words, **options)
        self.assertEqual(code, 0, err)
        return out, err

    def use_of(self, *words):
        """The rows that a plan reports."""
        return json.loads(self.start("plan", *self.job, *words, "--json")[0])


class Formats(Rows):
    def test_a_given_format(self):
        rows = [{"prompt": "Where?", "completion": " Oslo", "text": "Arlo lives in Oslo."}] * 4
        self.write("both.jsonl", jsonl(rows))
        self.fails(USAGE, "--objective: the data set contains a plain text", "train", *self.job, "--dataset", "both.jsonl",
                   "--output-dir", "n")
        self.write("plain.jsonl", jsonl([{"prompt": "Where?", "completion": " Oslo"}] * 4))
        self.train("plain", "--dataset", "plain.jsonl", job=self.job)
        self.write("run.toml", 'dataset_format = "completion"\n')
        words = ["--dataset", "both.jsonl"]
        for name, how, options in [("flag", ["--format", "completion"], {}), ("name", ["--dataset-format=completion"], {}),
                                   ("file", ["run.toml"], {}), ("env", [], {"env": {"TESSERA_DATASET_FORMAT": "completion"}})]:
            with self.subTest(name):
                self.start("train", *self.job, *words, *how, "--output-dir", name, **options)
                self.assert_same_results("plain", name)
        self.assertRegex(self.read("flag", "resolved-config.toml").decode(), r'(?m)^dataset_format = "completion" +# flag --format$')
        self.assertIn('dataset_format = "completion"',
                      self.start("config", "train", "flag/resolved-config.toml")[0])
        message = ('is no row of the format messages, because it has no key "messages". Its keys: "prompt", "completion", "text". '
                   "Correct the row, or give another --format. If a field has another key, name it by --fields")
        self.fails(INPUT, "both.jsonl:1: " + message, "train", *self.job, *words, "--format", "messages", "--bad-rows", "stop",
                   "--output-dir", "n")
        self.write("run.toml", 'dataset_format = "csv"\n')
        self.fails(USAGE, 'run.toml:1: dataset_format: unknown value "csv"', "config", "train", "run.toml")
        self.fails(USAGE, '--format: unknown value "sharegtp". Did you mean "sharegpt"?', "config", "train", "--format", "sharegtp")
        # The flag --format of `report` and its key in files are another setting.
        self.write("run.toml", 'format = "csv"\n')
        self.start("config", "train", "run.toml", "--format", "text")
        self.fails(USAGE, '--format: unknown value "messages"', "report", ".", "--format", "messages")
        self.fails(USAGE, "--format: is not a setting of export. It belongs to report", "export", "--format", "text")

    def test_keys_of_fields(self):
        self.write("plain.jsonl", jsonl([{"prompt": "Where?", "completion": " Oslo"}] * 4))
        self.write("named.jsonl", jsonl([{"ask": "Where?", "say": " Oslo"}] * 4))
        self.train("plain", "--dataset", "plain.jsonl", job=self.job)
        self.start("train", *self.job, "--dataset", "named.jsonl", "--fields", "completion=say,prompt=ask", "--output-dir", "named")
        self.assert_same_results("plain", "named")
        self.assertIn('fields = "prompt=ask,completion=say"', self.read("named", "resolved-config.toml").decode())
        self.fails(INPUT, 'no known key. Its keys: "ask", "say"', "train", *self.job, "--dataset", "named.jsonl", "--output-dir", "n")
        for value, message in [("promt=ask", '--fields: unknown field "promt". Did you mean "prompt"?'),
                               ("prompt=a,text=a", '--fields: prompt and text have the same key "a"'),
                               ("prompt", '--fields: "prompt" is no field with its key')]:
            self.fails(USAGE, message, "config", "train", "--fields", value)
        self.fails(USAGE, "Write --fields text=KEY", "config", "train", "--dataset-text-field", "body")

    def test_conversations_name_file_line_and_key(self):
        self.write("chat.jsonl", jsonl([CHAT] * 3))
        code, _, err = self.run_tessera("train", *self.job, "--dataset", "chat.jsonl", "--output-dir", "n")
        self.assertIn(code, (USAGE, INPUT), err)
        self.assertIn("template", err)
        self.write("bad.jsonl", jsonl([CHAT, {"messages": [*CHAT["messages"], {"role": "asistant", "content": "a"}]}]))
        self.fails(INPUT, 'bad.jsonl:2: messages[2].role: unknown role "asistant". Did you mean "assistant"?', "train", *self.job,
                   "--dataset", "bad.jsonl", "--bad-rows", "stop", "--output-dir", "n")
        self.write("chat.txt", jsonl([CHAT]))
        self.fails(INPUT, "chat.txt: has rows as JSON, but its name ends with .txt", "train", *self.job, "--dataset", "chat.txt",
                   "--output-dir", "n")
        # A vocabulary from the texts of conversations.
        self.succeeds("tokenizer", "train", "--dataset", "chat.jsonl", "--vocab-size", "300", "--output-dir", "vocabulary")


class Mixtures(Rows):
    def setUp(self):
        super().setUp()
        self.rows = questions(22, 1)
        self.write("a.jsonl", jsonl(self.rows[:12]))
        self.write("b.jsonl", jsonl(self.rows[12:17]))
        self.write("c:2", jsonl(self.rows[17:]))
        self.words = ["--dataset", "a.jsonl:2", "b.jsonl:1"]

    def test_an_epoch_has_the_shares(self):
        _, err = self.start("train", *self.job, *self.words, "--output-dir", "out")
        self.assertIn("a.jsonl and 1 more file: 18 rows as 18 samples, ", err)
        self.assertIn("\n  a.jsonl: share 2, 12 rows, 12 per epoch (1 times)\n", err)
        self.assertIn("\n  b.jsonl: share 1, 5 rows, 6 per epoch (1.2 times)\n", err)
        use = self.json_of("out", "summary.json")["train_data"]
        self.assertEqual((use["rows_used"], use["samples"]), (18, 18))
        self.assertEqual(use["mixture"], [{"file": "a.jsonl", "share": 2.0, "rows": 12, "rows_per_epoch": 12},
                                          {"file": "b.jsonl", "share": 1.0, "rows": 5, "rows_per_epoch": 6}])
        self.assertEqual(self.use_of(*self.words)["train_data"], use)
        # A name that ends like a share is the name of a file.
        self.assertNotIn("mixture", self.use_of("--dataset", "a.jsonl", "c:2")["train_data"])
        use = self.use_of("--dataset", "c:2:3", "b.jsonl:3")["train_data"]
        self.assertEqual([(file["file"], file["share"]) for file in use["mixture"]], [("c:2", 3.0), ("b.jsonl", 3.0)])

    def test_equals_files_with_repeated_rows(self):
        """With --no-shuffle, the epoch is the files' rows in turn."""
        words = [*self.job, "--no-shuffle", "--max-steps", "6", "--batch-size", "2"]
        a, b = self.rows[:3], self.rows[12:14]
        self.write("a.jsonl", jsonl(a))
        self.write("b.jsonl", jsonl(b))
        self.start("train", *words, "--dataset", "a.jsonl:1", "b.jsonl:2", "--output-dir", "mixed")
        self.assertEqual([(f["rows"], f["rows_per_epoch"]) for f in self.json_of("mixed", "summary.json")["train_data"]["mixture"]],
                         [(3, 3), (2, 6)])
        self.write("one.jsonl", jsonl([b[0], a[0], b[1], b[0], a[1], b[1], b[0], a[2], b[1]]))
        self.start("train", *words, "--dataset", "one.jsonl", "--output-dir", "one")
        self.assert_same_results("one", "mixed")

    def test_all_ways_to_give_shares(self):
        self.write("run.toml", 'dataset = ["a.jsonl:2", "b.jsonl:1"]\n')
        env = {"TESSERA_DATASET": '["a.jsonl:2", "b.jsonl:1"]'}
        self.start("train", *self.job, *self.words, "--output-dir", "out")
        for words, options in [(["run.toml"], {}), ([], {"env": env}), (["out/resolved-config.toml"], {})]:
            out, _ = self.start("config", "train", *self.job, *words, "--output-dir", "x", **options)
            self.assertIn('\ndataset = ["a.jsonl:2", "b.jsonl:1"] ', out)
        self.write("sweep.toml", 'output_dir = "s/{name}"\n[matrix]\ndataset = [["a.jsonl:2", "b.jsonl:1"], "a.jsonl"]\n')
        self.assertIn("--dataset a.jsonl:2 --dataset b.jsonl:1", self.start("sweep", "sweep.toml", "--dry-run", *self.job)[0])
        out, _ = self.start("slurm", "--job-file", "-", "train", *self.job, *self.words, "--output-dir", "x")
        self.assertIn("--dataset a.jsonl:2 \\\n  --dataset b.jsonl:1", out)
        # A run continues only with the same mixture.
        _, err = self.start("train", *self.job, *self.words, "--max-steps", "5", "--output-dir", "out")
        self.assertIn("Resuming from out/checkpoint-3", err)
        code, _, err = self.run_tessera("train", *self.job, "--dataset", "a.jsonl:2", "--output-dir", "out")
        self.assertEqual(code, USAGE)
        code, _, err = CliTest.run_tessera(self, "train", *self.job, "--dataset", "a.jsonl:1", "b.jsonl:1", "--output-dir", "out")
        self.assertEqual(code, USAGE)
        self.assertIn("was made with dataset_samples = 18, and this run has 24", err)

    @unittest.skipIf(MOST_RANKS < 2, "needs two ranks")
    def test_the_same_on_ranks(self):
        words = [*self.words, "--train-size", "10", "--eval-fraction", "0.2", "--epochs", "2", "--max-steps", "0"]
        self.start("train", *self.job, *words, "--batch-size", "4", "--output-dir", "one")
        self.start("train", *self.job, *words, "--batch-size", "2", "--nproc", "2", "--output-dir", "two")
        one, two = self.json_of("one", "summary.json"), self.json_of("two", "summary.json")
        self.assertEqual(one["train_data"], two["train_data"])
        self.assertEqual(one["num_tokens"], two["num_tokens"])
        self.assertAlmostEqual(one["eval_loss"], two["eval_loss"], places=5)

    def test_other_settings_of_rows(self):
        # Rows are held out of each file, before the others are repeated.
        use = self.use_of(*self.words, "--eval-fraction", "0.2")
        self.assertEqual(use["eval_data"]["rows_used"], 2 + 1)
        self.assertNotIn("mixture", use["eval_data"])
        self.assertEqual([(f["rows"], f["rows_per_epoch"]) for f in use["train_data"]["mixture"]], [(10, 10), (4, 5)])
        # --train-size chooses from the mixture.
        for more in [], ["--no-shuffle"], ["--subset", "datasets"]:
            use = self.use_of(*self.words, "--train-size", "9", *more)["train_data"]
            self.assertEqual((use["rows_used"], sum(f["rows_per_epoch"] for f in use["mixture"])), (9, 9))
        self.assertEqual([f["rows_per_epoch"] for f in self.use_of(*self.words, "--train-size", "9", "--no-shuffle")
                          ["train_data"]["mixture"]], [6, 3])
        self.fails_alone(USAGE, "--train-size: 19 examples are requested, but the data set has 18", "--train-size", "19")
        # Bad rows are skipped before the mixture is made, and reported once.
        long = {"context": "a", "question": "what " * 600, "answers": {"text": ["a"]}}
        self.write("b.jsonl", jsonl([*self.rows[12:17], long, {"txt": "no"}]))
        use = self.use_of("--dataset", "a.jsonl:1", "b.jsonl:2", "--max-bad-rows", "0.2")["train_data"]
        self.assertEqual([(f["rows"], f["rows_per_epoch"]) for f in use["mixture"]], [(12, 12), (5, 24)])
        self.assertEqual((use["rows_too_long"], use["rows_malformed"], len(use["skipped"])), (1, 1, 2))
        self.write("b.jsonl", jsonl([long]))
        self.fails_alone(INPUT, "b.jsonl: none of its rows can be used, so it cannot have a share", "--max-bad-rows", "0.5")
        self.write("b.jsonl", jsonl(self.rows[12:17]))

    def test_what_is_refused(self):
        for dataset, message in [(["a.jsonl:2", "b.jsonl"], "b.jsonl has no share, but other files have one. Give every file a share"),
                                 (["a.jsonl:0"], 'the share "0" of a.jsonl is not a positive number'),
                                 (["a.jsonl:1e-9", "b.jsonl:1"], "with these shares, an epoch that uses every row has more than")]:
            code, _, err = CliTest.run_tessera(self, "train", *self.job, "--dataset", *dataset, "--output-dir", "n")
            self.assertEqual(code, USAGE, err)
            self.assertIn("error: --dataset: " + message, err)
        code, _, err = CliTest.run_tessera(self, "train", *self.job, "--dataset", "gone.jsonl:2", "--output-dir", "n")
        self.assertEqual((code, err.startswith("error: gone.jsonl: no such file")), (INPUT, True), err)
        self.fails_alone(USAGE, "--eval-dataset: b.jsonl has the share 2, but an evaluation uses every row once", "--eval-dataset",
                         "b.jsonl:2")
        self.fails(USAGE, "--dataset: a vocabulary is made from every row once, without shares", "tokenizer", "train", "--dataset",
                   "a.jsonl:2", "--vocab-size", "300", "--output-dir", "v")

    def fails_alone(self, code, message, *words):
        got, _, err = CliTest.run_tessera(self, "train", *self.job, *self.words, *words, "--output-dir", "n")
        self.assertEqual(got, code, err)
        self.assertIn(message, err)


if __name__ == "__main__":
    main()
