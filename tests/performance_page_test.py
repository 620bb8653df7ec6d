#!/usr/bin/env python3
"""Checks that docs/performance.md equals the output of tools/make_performance_page.py for bench/results/*.json."""
import importlib.util
import json
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load_script():
    spec = importlib.util.spec_from_file_location("make_performance_page", ROOT / "tools" / "make_performance_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


class PerformancePage(unittest.TestCase):
    def test_the_committed_page_equals_the_output_of_the_script(self):
        self.assertEqual(script.PAGE.read_text(encoding="utf-8"), script.make_page(),
                         "run tools/make_performance_page.py and commit docs/performance.md")

    def test_every_value_has_a_column(self):
        for path in sorted(script.RESULTS.glob("*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            if path.name == "machines.json":
                continue
            keys = {column["key"] for column in result["columns"]}
            self.assertIn(result["section"], script.SECTIONS, path.name)
            for name in ["machine", "commit", "command", "date"]:  # null if unknown, but always present
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
