#!/usr/bin/env python3
"""Checks that the committed tables and picture are what the scripts make from bench/results, and that the links and
paths in documents exist."""
import importlib.util
import json
import re
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script("make_performance_page")
plot = load_script("make_readme_plot")
workshop = load_script("make_workshop_tables")


class PerformancePage(unittest.TestCase):
    def test_committed_documents_are_what_the_script_makes(self):
        for path, text in script.make_all().items():
            self.assertEqual(path.read_text(encoding="utf-8"), text,
                             f"run tools/make_performance_page.py and commit {path.name}")

    def test_the_committed_picture_is_what_the_script_draws(self):
        drawn = plot.draw()
        self.assertEqual(plot.PICTURE.read_text(encoding="utf-8"), drawn, "run tools/make_readme_plot.py and commit it")
        xml.etree.ElementTree.fromstring(drawn)

    def test_the_summary_is_a_page(self):
        self.assertLess(script.make_page().count("\n"), 200)

    def test_every_value_has_a_column(self):
        for path in sorted(script.RESULTS.glob("*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            if path.name == "machines.json":
                continue
            keys = {column["key"] for column in result["columns"]}
            self.assertIn(result["section"], script.SECTIONS, path.name)
            for name in ["machine", "commit", "command", "date"]:  # null if unknown, never missing
                self.assertIn(name, result, path.name)
            for row in result["rows"]:
                self.assertLessEqual(set(row["values"]), keys, (path.name, row["name"]))

    def test_a_row_of_another_version_or_machine_gets_a_column(self):
        result = {"title": "t", "about": None, "command": None, "machine": None, "commit": "1", "date": None, "notes": [],
                  "first_column": "job", "columns": [{"key": "v", "name": "v"}],
                  "rows": [{"name": "a", "values": {"v": 1}},
                           {"name": "b", "machine": "m", "commit": "2", "date": None, "values": {"v": {"runs": [1, 2]}}}]}
        page = script.page_of(result)
        self.assertIn("| job | v | machine | commit |", page)
        self.assertIn("| a | 1 | not recorded | 1 |", page)
        self.assertIn("| b | 1, 2 | m | 2 |", page)


class WorkshopPage(unittest.TestCase):
    def sources(self):
        return {name: workshop.load(name) for name in ("plan", "small", "gpus", "peers")}

    def test_the_committed_documents_are_what_the_script_makes(self):
        for path, text in workshop.make_all().items():
            self.assertEqual(path.read_text(encoding="utf-8"), text,
                             f"run tools/make_workshop_tables.py and commit {path.name}")

    def test_all_experiments_are_recorded(self):
        sources = self.sources()
        recipes = {str(path.relative_to(ROOT / "recipes/workshop"))[:-len(".toml")]
                   for path in ROOT.glob("recipes/workshop/**/*.toml") if path.parent.name != "shared"}
        self.assertEqual({row["experiment"] for row in sources["plan"]["plan"]}, recipes)
        self.assertEqual({workshop.plain(run["experiment"]) for run in sources["small"]["runs"]}, recipes)
        names = {table["name"] for table in sources["small"]["tables"]}
        self.assertEqual(len(names), 12)
        self.assertEqual(set(workshop.HEADINGS), names | {"planned"})
        machines = json.loads((script.RESULTS / "machines.json").read_text(encoding="utf-8"))
        for name, source in sources.items():
            if source and name != "plan":
                self.assertIn(source["machine"], machines, name)

    def test_the_tables_have_no_gap(self):
        for table in self.sources()["small"]["tables"]:
            for row in table["rows"]:
                gaps = [value for value in row.values() if workshop.plain(value) is None]
                self.assertEqual(gaps, [gap for gap in gaps if gap and gap["notes"] == ["CPU ranks have no GPU"]], table["name"])

    def test_runs_on_gpus_come_first_and_only_if_they_ran(self):
        sources = self.sources()
        ran = ["fsdp/bloom/baseline", "fsdp/bloom/multi_gpu/2_gpus", "deepspeed/baseline"]
        runs = [run for run in sources["small"]["runs"] if workshop.plain(run["experiment"]) in ran]
        tables = workshop.Tables({**sources, "gpus": {**sources["small"], "runs": runs}})
        lines = tables.workshop_table("fsdp-bloom-multi-gpu").splitlines()
        self.assertEqual([line.split(" | ")[:2] for line in lines[2:8]],
                         [["| 1 GPU", "GPU"], ["| 2 GPUs", "GPU"], ["| 1 GPU", "CPU, small"], ["| 2 GPUs", "CPU, small"],
                          ["| 4 GPUs", "CPU, small"], ["| 8 GPUs", "CPU, small"]])
        self.assertIn("| Your Value (GPU) | Your Value (CPU, small) |", tables.workshop_table("deepspeed-baseline"))
        self.assertNotIn("(GPU)", tables.workshop_table("deepspeed-multi-node"))

    def test_a_missing_file_is_named(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(workshop, "FILES", Path(folder)):
            with self.assertRaisesRegex(SystemExit, r"^error: .*/plan\.json: no such file\. Make it: bench/workshop\.py plan "):
                workshop.make_all()
            Path(folder, "plan.json").write_text('{"plan": []}', encoding="utf-8")
            with self.assertRaisesRegex(SystemExit, r"^error: .*/small\.json: no such file\. Make it: bench/workshop\.py small "):
                workshop.make_all()

    def test_peers(self):
        row = {"experiment": "deepspeed/baseline", "samples_per_s": 300, "ledger_MiB": 12000}
        peers = {"machine": "m", "commit": "c",
                 "peers": [{**row, "peer": {"stack": "Trainer", "samples_per_s": 30, "used_MiB": 24000}},
                           {**row, "peer": {"stack": "DeepSpeed", "error": "no compiler"}}]}
        text = workshop.Tables({**self.sources(), "peers": peers}).beside_peers()
        self.assertIn("| `deepspeed/baseline` | 300 | Trainer | 30 | **10** | 12000 | 24000 |", text)
        self.assertIn("| DeepSpeed | failed | – | 12000 | – |", text)


DOCUMENTS = [*ROOT.glob("*.md"), *(path for folder in ("docs", "bench", "recipes") for path in ROOT.glob(f"{folder}/**/*.md"))]


class Documents(unittest.TestCase):
    def test_links_to_files_exist(self):
        for path in DOCUMENTS:
            for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
                if "://" not in link:
                    self.assertTrue((path.parent / link).exists(), (path.name, link))

    def test_links_to_headings_exist(self):
        headings = {}
        for path in DOCUMENTS:
            titles = re.findall("^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            headings[path.resolve()] = {script.anchor(re.sub(r"\[|\]\(.*\)", "", title)) for title in titles}
        for path in DOCUMENTS:
            for page, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8")):
                target = (path.parent / page).resolve() if page else path.resolve()
                if target in headings:
                    self.assertIn(anchor, headings[target], path)

    def test_the_architecture_names_code_that_exists(self):
        text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
        rooms = {path.name for path in (ROOT / "tessera").iterdir() if path.is_dir()}
        named = [name for name in re.findall(r"`([a-z_]+/[\w./]+)`", text) if name.split("/")[0] in rooms]
        self.assertGreater(len(named), 20)
        for name in named:
            self.assertTrue(list((ROOT / "tessera").glob(name.rstrip("/") + ("" if "." in name else "*"))), name)


if __name__ == "__main__":
    unittest.main()
