"""Tests the verb `report`."""
import csv
import html.parser
import io
import json
import os
import re

from tessera_cli import main
from tiny_job import INPUT, JOB, USAGE, TinyJobTest

VOID = {"meta", "br", "wbr", "hr", "img", "input", "link"}  # elements without an end tag


class Balanced(html.parser.HTMLParser):
    """Fails on wrongly nested tags, scripts, and attributes that load a file, run a script, or link to another page."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []

    def handle_starttag(self, tag, attributes):
        assert tag != "script", "a script"
        for name, value in attributes:
            assert name not in {"src", "onload", "onclick"}, (tag, name)
            assert name != "href" or value.startswith("#"), value
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


def parsed_page(text):
    page = Balanced()
    page.feed(text)
    page.close()
    assert not page.open, page.open
    assert not re.search(r"https?://|@import|url\(", text)
    return page


class Report(TinyJobTest):
    def setUp(self):
        super().setUp()
        for name, words in [("one", ["--lr", "1e-2"]), ("two", ["--lr", "2e-2"])]:
            self.train(f"runs/{name}", *words, "--max-steps", "4", "--experiment", f"deepspeed/{name}", "--eval-dataset",
                       "eval.jsonl", job=[*JOB])

    def report(self, *words):
        return self.succeeds("report", "runs", *words)

    def test_the_label_is_in_the_run(self):
        self.assertEqual(self.json_of("runs/one", "summary.json")["experiment"], "deepspeed/one")
        self.assertIn(b'experiment = "deepspeed/one"', self.read("runs/one", "resolved-config.toml"))

    def test_all_formats(self):
        out = self.report()
        self.assertRegex(out, r"\| deepspeed/one +\|")
        self.assertIn("Settings that differ: lr.", out)
        self.assertIn("Baseline: deepspeed/one.", out)
        markdown = self.report("--format", "markdown", "--rows", "lr", "--columns", "train_loss,runtime,world_size")
        self.assertIn("| lr | train loss | runtime (s) | world\\_size |\n|---|---:|---:|---:|\n| 0.01 |", markdown)
        rows = list(csv.DictReader(io.StringIO(self.report("--format", "csv", "--columns", "em,train_loss,speedup"))))
        loss = self.json_of("runs/two", "summary.json")["train_loss"]
        self.assertEqual([row["run"] for row in rows], ["deepspeed/one", "deepspeed/two"])
        self.assertEqual(float(rows[1]["train_loss"]), loss)
        self.assertEqual((rows[0]["exact_match"], float(rows[0]["speedup"])), ("", 1))
        result = json.loads(self.report("--format", "json", "--sort", "-lr"))
        self.assertEqual(result["problems"], [])
        self.assertEqual([row["run"] for row in result["tables"][0]["rows"]], ["deepspeed/two", "deepspeed/one"])
        self.assertEqual(result["tables"][0]["rows"][0]["train_loss"], loss)
        self.assertEqual(self.report("--format", "csv", "--output", "out.csv"), "")
        self.assertEqual(self.read("out.csv").decode(), self.report("--format", "csv"))

    def test_the_best_run(self):
        """All forms for people mark the run with the lowest eval loss. The page shows losses and scores first, and the report
        prints its path."""
        runs = {name: self.json_of(f"runs/{name}", "summary.json")["eval_loss"] for name in ("one", "two")}
        best = min(runs, key=runs.get)
        code, out, err = self.run_tessera("report", "runs", "--html", "page.html")
        self.assertEqual(code, 0, err)
        self.assertEqual(err, f"The page is {self.path('page.html')}\n")
        self.assertIn(f"| deepspeed/{best} (best)", out)
        self.assertEqual(out.count("(best)"), 1)
        self.assertIn(f"Best: deepspeed/{best}: the lowest eval loss, {runs[best]:.4f}", out)
        self.assertTrue(all(len(line) <= 120 for line in out.splitlines()), out)
        self.assertIn(f"| **deepspeed/{best}** (best) |", self.report("--format", "markdown"))
        page = self.read("page.html").decode()
        self.assertEqual(page.count(f'{best} <span class="best">best</span>'), 3)  # in both groups of bars and in the table
        self.assertRegex(page, rf'<td>deepspeed/<wbr>{best} <span class="best">best</span></td>')
        places = [page.index(f'<section id="{name}">') for name in ("loss", "results", "speed", "settings", "memory")]
        self.assertEqual(places, sorted(places))
        self.assertLess(page.index("eval loss</b>"), page.index("Training loss</figcaption>"))
        self.assertLess(page.index("Evaluation loss</figcaption>"), places[1])
        self.assertLess(places[2], page.index("samples/s</b>"))

    def test_page(self):
        os.makedirs(self.path("runs/<b>&"))
        self.write("runs/<b>&/summary.json", "{")
        code, out, err = self.run_tessera("report", "runs", "--tables", "workshop", "--html", "page.html")
        self.assertEqual(code, 0, err)
        self.assertIn("warning: runs/<b>&/summary.json", err)
        self.assertEqual(out.count("No run for: "), 12)  # once per workshop table
        page = parsed_page(self.read("page.html").decode())
        texts = " ".join(page.texts)
        for text in ["2 runs", "Settings that differ", "Training loss", "Learning rate", "Time by phase",
                     "By category", "FSDP: custom model, weak scaling", "runs/<b>&/summary.json"]:
            self.assertIn(text, texts)
        self.assertGreaterEqual(page.tags.count("svg"), 4)
        self.succeeds("report", "runs/one", "--html", "one.html")
        self.assertIn("All settings of the run", " ".join(parsed_page(self.read("one.html").decode()).texts))

    def test_repeated_runs(self):
        for seed in "1", "2":
            self.train(f"again/{seed}", "--max-steps", "2", "--seed", seed, job=JOB)
        out = self.succeeds("report", "again", "--columns", "train_loss")
        self.assertIn("Median of 2 runs", out)
        self.assertIn("(seeds 1, 2)", out)

    def test_what_cannot_be_used(self):
        self.fails(INPUT, "none: no such folder", "report", "none")
        os.makedirs(self.path("empty"))
        self.fails(INPUT, "empty: contains no run", "report", "empty")
        os.remove(self.path("runs/two/summary.json"))
        self.fails(INPUT, "runs/two: has no summary.json: the run has not ended", "report", "runs/two")
        with open(self.path("runs/one/metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"kind": "train", "step": 5, "loss": NaN}\n')
        code, out, err = self.run_tessera("report", "runs", "none")
        self.assertEqual(code, 0)
        self.assertIn("deepspeed/one", out)
        for warning in ["runs/two: has no summary.json", "runs/one/metrics.jsonl:", "none: no such folder"]:
            self.assertIn("warning: " + warning, err)

    def test_wrong_usage(self):
        self.fails(USAGE, "RUN...: is required by report", "report")
        self.fails(USAGE, '--columns: "los" is not a figure', "report", "runs", "--columns", "los")
        self.fails(USAGE, '--baseline: unknown run or row "three". Use one of: deepspeed/one, deepspeed/two',
                   "report", "runs", "--baseline", "three")
        self.fails(USAGE, "--rows: has no effect on the workshop's tables", "report", "runs", "--tables", "workshop",
                   "--rows", "lr")
        code, _, err = self.run_tessera("report", "runs", "--output", "no/where.csv")
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn("error: no/where.csv", err)
        self.fails(USAGE, '--html: "runs" is not a regular file', "report", "runs", "--html", "runs")

    def test_settings_from_a_file(self):
        self.write("report.toml", 'columns = "runtime"\nformat = "csv"\n')
        out = self.succeeds("report", "report.toml", "runs/one", "runs/two")
        self.assertEqual(out.splitlines()[0], "table,run,runtime,notes")


if __name__ == "__main__":
    main()
