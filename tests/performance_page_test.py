#!/usr/bin/env python3
"""Checks that the tables and the picture of the documents are what the scripts make of bench/results/*.json."""
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
            self.assertEqual(path.read_text(encoding="utf-8"), text, f"run tools/make_performance_page.py and commit {path.name}")

    def test_the_committed_picture_is_what_the_script_draws(self):
        drawn = plot.draw()
        self.assertEqual(plot.PICTURE.read_text(encoding="utf-8"), drawn, "run tools/make_readme_plot.py and commit it")
        xml.etree.ElementTree.fromstring(drawn)

    def test_the_summary_is_a_page(self):
        self.assertLess(script.make_page().count("\n"), 150)

    def test_links_to_headings_of_these_pages_exist(self):
        headings = {path.name: {script.anchor(re.sub(r"\]\(.*\)", "", title)) for title in
                                re.findall("^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)}
                    for path in (script.PAGE, script.DETAILS)}
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md")]:
            for page, anchor in re.findall(r"(performance(?:-details)?\.md)#([\w-]+)", path.read_text(encoding="utf-8")):
                self.assertIn(anchor, headings[page], path)

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


if __name__ == "__main__":
    unittest.main()
