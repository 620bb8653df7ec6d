#!/usr/bin/env python3
"""Checks the documents: tables and picture equal what the scripts make of bench/results/*.json; links and paths exist."""
import importlib.util
import json
import re
import unittest
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
        self.assertLess(script.make_page().count("\n"), 150)

    def test_every_value_has_a_column(self):
        for path in sorted(script.RESULTS.glob("*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            if path.name == "machines.json":
                continue
            keys = {column["key"] for column in result["columns"]}
            self.assertIn(result["section"], script.SECTIONS, path.name)
            for name in ["machine", "commit", "command", "date"]:  # null where not known, never left out
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

    def test_the_table_of_rooms_is_the_one_that_is_enforced(self):
        text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
        table = dict(re.findall(r"^\| `(\w+)` \|.*\| ([\w ]*)\|$", text, re.M))
        source = (ROOT / "tests" / "rooms_test.py").read_text(encoding="utf-8")
        enforced = dict(re.findall(r'^    "(\w+)": "([\w ]*)",$', source, re.M))
        self.assertEqual(set(table), set(enforced))
        for room, may_include in table.items():
            expected = set(enforced) - {"app"} if may_include.strip() == "all" else set(may_include.split())
            self.assertEqual(expected, set(enforced[room].split()), room)


if __name__ == "__main__":
    unittest.main()
