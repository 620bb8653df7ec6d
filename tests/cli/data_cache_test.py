"""--data-cache: a run tokenizes its data once, trains from the files, and has the results of a run without a cache."""
import json
import os
import shutil
import unittest

from tessera_cli import main
from tiny_job import INPUT, JOB, USAGE, MOST_RANKS, TinyJobTest, jsonl, questions, without_timing

WORDS = ["--max-steps", "6", "--data-cache", "cache"]


class Cache(TinyJobTest):
    def note(self, output, *words):
        """Trains, and returns standard error."""
        code, _, err = self.run_tessera("train", *JOB, "--output-dir", output, "--max-steps", "6",
                                        *([] if "--data-cache" in words else ["--data-cache", "cache"]), *words)
        self.assertEqual(code, 0, err)
        return err

    def ends_with(self, code, message, *words):
        got, _, err = self.run_tessera("train", *JOB, *(WORDS if "--data-cache" not in words else []), "--output-dir", "failed", *words)
        self.assertEqual(got, code, err)
        self.assertIn(message, err)

    def files(self):
        """The files of the only cache."""
        (key,) = os.listdir(self.path("cache"))
        return self.path("cache", key, "rows")

    def assert_made(self, err, is_made):
        self.assertEqual("Tokenizing the data once, into cache/" in err, is_made, err)

    def assert_same_metrics(self, output, other):
        self.assertEqual(without_timing(self.path(output, "metrics.jsonl")), without_timing(self.path(other, "metrics.jsonl")))
        self.assertEqual(self.json_of(output, "summary.json")["train_data"], self.json_of(other, "summary.json")["train_data"])

    def test_same_results(self):
        """Also with a selection of rows, micro-batches by tokens, bad rows and a mixture."""
        rows = questions(30, 3)
        rows[4]["question"] = "long " * 400
        self.write("train.jsonl", jsonl(rows[:20]) + "no row\n" + jsonl(rows[20:]))
        for i, words in enumerate([["--max-bad-rows", "0.5"], ["--train-size", "9"], ["--train-size", "9", "--subset", "first", "--max-bad-rows", "0.5"],
                                   ["--batch-tokens", "120", "--max-length", "100"], ["--objective", "causal_lm"],
                                   ["--objective", "separate"], ["--dataset", "train.jsonl:2", "eval.jsonl:1"],
                                   ["--dataset", "train.jsonl", "eval.jsonl", "--no-shuffle"]]):
            with self.subTest(words=words):
                self.note(f"off-{i}", *words, "--data-cache", "off")
                self.note(f"made-{i}", *words)
                err = self.note(f"read-{i}", *words)
                self.assert_made(err, False)
                self.assert_same_metrics(f"off-{i}", f"made-{i}")
                self.assert_same_metrics(f"off-{i}", f"read-{i}")

    def test_what_makes_a_new_cache(self):
        self.assert_made(self.note("a"), True)
        self.assert_made(self.note("b"), False)
        # What does not change the samples.
        self.assert_made(self.note("c", "--seed", "7", "--train-size", "5", "--lr", "1e-3"), False)
        self.assert_made(self.note("d", "--max-length", "64"), True)
        self.assert_made(self.note("e", "--objective", "causal_lm"), True)
        # A file with another content, but with the same size and time.
        before = os.stat(self.path("train.jsonl"))
        text = self.read("train.jsonl").decode()
        self.write("train.jsonl", text.replace("Oslo", "Rome"))
        os.utime(self.path("train.jsonl"), ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assert_made(self.note("f"), True)
        tokenizer = json.loads(self.read("tok", "tokenizer.json"))
        self.write("tok/tokenizer.json", json.dumps(tokenizer))
        self.assert_made(self.note("g"), True)

    def test_damage(self):
        self.note("a")
        rows = os.path.join(self.files(), "rows.bin")
        with open(rows, "r+b") as file:
            file.write(b"x")
        err = self.note("b")
        self.assertIn("warning: the cache of the data is damaged and is made again: ", err)
        self.assertIn("rows.bin: has a wrong checksum", err)
        self.assert_same_metrics("a", "b")
        tokens = os.path.join(self.files(), "tokens.bin")
        os.truncate(tokens, os.path.getsize(tokens) - 1)
        self.assertIn("tokens.bin: has ", self.note("c"))
        # The damage of a sample is noticed when the sample is read.
        with open(tokens, "r+b") as file:
            file.write(b"\xff" * os.path.getsize(tokens))
        self.ends_with(INPUT, "is damaged: its checksum is wrong")
        shutil.rmtree(self.path("cache"))
        self.assert_made(self.note("d"), True)

    def test_continues(self):
        self.note("whole")
        self.succeeds("train", *JOB, "--output-dir", "whole", "--max-steps", "9", "--data-cache", "cache")
        self.fails(USAGE, "dataset_checksum = \"cached ", "train", *JOB, "--output-dir", "whole", "--max-steps", "12", "--data-cache", "off")

    def test_refused_and_unused(self):
        self.fails(USAGE, "--data-cache: cached data cannot be held out for evaluation", "train", *JOB, "--output-dir", "a",
                     *WORDS, "--eval-fraction", "0.2")
        self.note("a", "--data-cache", "auto", "--eval-fraction", "0.2")  # 22 rows are no large data
        self.assertFalse(os.path.exists(self.path("cache")))
        self.fails(INPUT, "missing.jsonl: no such file", "train", *JOB, "--dataset", "missing.jsonl", "--output-dir", "a", *WORDS)
        os.mkfifo(self.path("pipe"))
        self.fails(INPUT, "pipe: is a pipe, and its data cannot be cached. Write the data to a file, or give --data-cache off",
                   "train", *JOB, "--dataset", "pipe", "--output-dir", "a", *WORDS)
        self.write("file", "")
        self.ends_with(1, "cannot write: Not a directory", "--data-cache", "file/cache")
        self.write("train.jsonl", "no row\n" * 3)
        self.ends_with(INPUT, "none of its 3 rows can be used")

    def test_plan_makes_it(self):
        words = [*JOB, "--data-cache", "cache", "--json"]
        plan = json.loads(self.succeeds("plan", *words))
        self.assertEqual(plan["train_data"], json.loads(self.succeeds("plan", *JOB, "--json"))["train_data"])
        self.assert_made(self.note("a"), False)

    @unittest.skipIf(MOST_RANKS < 2, "needs 2 ranks")
    def test_ranks(self):
        """Rank 0 makes the cache, and all ranks read it. An error of rank 0 ends all ranks."""
        err = self.note("two", "--nproc", "2")
        self.assertEqual(err.count("Tokenizing the data once"), 1, err)
        self.assert_made(self.note("again", "--nproc", "2"), False)
        self.assert_same_metrics("two", "again")
        self.note("off", "--nproc", "2", "--data-cache", "off")
        self.assert_same_metrics("two", "off")
        self.write("train.jsonl", "no row\n" * 3)
        self.ends_with(INPUT, "none of its 3 rows can be used", "--nproc", "2")


if __name__ == "__main__":
    main()
