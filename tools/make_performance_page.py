#!/usr/bin/env python3
"""Makes docs/performance.md from bench/results/*.json. Needs only Python's standard library.

  tools/make_performance_page.py            write the page
  tools/make_performance_page.py --check    exit with 1 if the page differs from this script's output

bench/results/README.md describes the files.
"""
import argparse
import json
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results", ROOT / "docs" / "performance.md"
MISSING = "not recorded"
SECTIONS = ["CPU", "GPUs"]
BEGIN = """\
# Performance

`tools/make_performance_page.py` makes this page from [`bench/results/*.json`](../bench/results/README.md). Edit those files, not this
page. [tuning.md](tuning.md) says what to set. [decisions](decisions/README.md) says what was tried.

- **Machine** is a name from the table below. Compare values within one machine.
- **Commit** is the version whose documents first recorded the value. The program is that version, or a few commits older.
- "not recorded" means that nobody wrote it down at the time.
"""


def number(value, digits):
    if isinstance(value, str) or digits is None:
        return str(value)
    return f"{value:,.{digits}f}"


def cell(value, digits):
    """Formats a number, a text, or an object with "median", "runs", "least" and "most"."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return number(value, digits)
    if "runs" in value:
        spread = ", ".join(number(run, digits) for run in value["runs"])
    else:
        spread = f"{number(value['least'], digits)} … {number(value['most'], digits)}"
    return f"{number(value['median'], digits)} ({spread})" if "median" in value else spread


def middle(value):
    return value["median"] if isinstance(value, dict) else value


def column_value(column, values):
    """Returns the cell of a row. Computes a ratio unless the row holds it."""
    value = values.get(column["key"])
    if value is None and "ratio_of" in column:
        over, under = (middle(values.get(key)) for key in column["ratio_of"])
        value = over / under if over and under else None
    return cell(value, column.get("digits"))


def heading(column):
    return f"{column['name']}, {column['unit']}" if column.get("unit") else column["name"]


def version(item):
    if not item.get("commit"):
        return MISSING
    return f"{item['commit']} ({item['date']})" if item.get("date") else item["commit"]


def command_block(command):
    lines = textwrap.wrap(command, 112, break_long_words=False, break_on_hyphens=False)
    return "    " + " \\\n        ".join(lines) + "\n"


def wrapped(text, indent=""):
    return textwrap.fill(text, 128, initial_indent=indent and "- ", subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False) + "\n"


def table(result):
    own_machine = any("machine" in row for row in result["rows"])
    own_commit = any("commit" in row for row in result["rows"])
    head = [result["first_column"]] + [heading(column) for column in result["columns"]]
    head += ["machine"] * own_machine + ["commit"] * own_commit
    lines = [head, ["---"] * len(head)]
    for row in result["rows"]:
        cells = [row["name"]] + [column_value(column, row["values"]) for column in result["columns"]]
        if own_machine:
            planned = row["values"].get("how") == "plan"
            cells.append("any" if planned else row.get("machine", result["machine"]) or MISSING)
        if own_commit:
            cells.append(version(row if "commit" in row else result))
        lines.append(cells)
    return "".join("|" + "|".join(f" {text} " if text else " " for text in cells) + "|\n" for cells in lines), own_machine, own_commit


def page_of(result):
    text, own_machine, own_commit = table(result)
    facts = ([] if own_machine else [f"Machine: {result['machine'] or MISSING}."])
    facts += [] if own_commit else [f"Commit: {version(result)}."]
    commands = {}  # commands of rows that have their own
    for row in result["rows"]:
        if "command" in row:
            gpus = row["values"].get("gpus")
            place = "" if gpus is None else " on 1 GPU" if gpus == 1 else f" on {gpus} GPUs"
            commands.setdefault(row["command"], []).append(row["name"] + place)
    parts = [f"### {result['title']}\n"]
    if result["about"]:
        parts.append(wrapped(result["about"]))
    if result["command"]:
        parts.append(command_block(result["command"]))
    elif not commands:
        facts.append(f"Command: {MISSING}.")
    if facts:
        parts.append(" ".join(facts) + "\n")
    parts.append(text)
    for command, names in commands.items():
        names = "; ".join(names)
        parts.append(f"Command of {names}:\n" if command else f"Command of {names}: {MISSING}.\n")
        if command:
            parts.append(command_block(command))
    if result["notes"]:
        parts.append("".join(wrapped(note, "  ") for note in result["notes"] if not note.startswith("!")))
        parts += [f"{note}\n" for note in result["notes"] if note.startswith("!")]
    return "\n".join(part for part in parts if part)


def make_page():
    machines = json.loads((RESULTS / "machines.json").read_text(encoding="utf-8"))
    files = [path for path in RESULTS.glob("*.json") if path.name != "machines.json"]
    results = sorted((json.loads(path.read_text(encoding="utf-8")) for path in files), key=lambda r: (r["order"], r["title"]))
    for result in results:
        for name in [result["machine"]] + [row.get("machine") for row in result["rows"]]:
            if name and name not in machines:
                sys.exit(f"error: {result['title']}: machine {name} is not in machines.json. Add it there")
    parts = [BEGIN, "| machine | what it is |\n|---|---|\n" + "".join(f"| {name} | {what} |\n" for name, what in machines.items()),
             "The H200 machines have driver 580.159.04, CUDA 13.0 and NCCL 2.28.9. Their clocks are not locked: 1980 MHz at rest, power\n"
             "limit 700 W. NVLink connects all GPUs of a machine; NVLink multicast is off.\n"]
    for section in SECTIONS:
        parts.append(f"## {section}\n")
        parts += [page_of(result) for result in results if result["section"] == section]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = make_page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit("error: docs/performance.md does not match bench/results/*.json. Run tools/make_performance_page.py")


if __name__ == "__main__":
    main()
