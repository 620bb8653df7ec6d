#!/usr/bin/env python3
"""Makes the tables of the documents from bench/results/*.json. Needs only Python's standard library.

  docs/performance.md       a summary: one table for each subject in SUBJECTS, then the tables of STARTS and
                            PARTS_OF_A_RUN
  bench/results/tables.md   every recorded value, for looking up one of them
  README.md, docs/tuning.md, docs/strategies.md   the tables between "begin" and "end" comments

  tools/make_performance_page.py            write all these documents
  tools/make_performance_page.py --check    exit with 1 if a document differs from what this script makes

bench/results/README.md describes the JSON files.
"""
import argparse
import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_results import MISSING, RESULTS, ROOT, comparisons_of_bloom, load, middle, short, strongest_peers

DOCS = ROOT / "docs"
PAGE, TABLES = DOCS / "performance.md", RESULTS / "tables.md"
LINK = "../bench/results/tables.md#"  # from the summary to a heading of all tables
SECTIONS = ["CPU", "GPUs"]
BEGIN = """\
# Performance

Each heading links to all values of its table, with their spread and with the commands of single rows. `tools/make_performance_page.py`
makes this page from [`bench/results/*.json`](../bench/results/README.md), so edit those files to change it.

- Compare only values of the same machine: `xeon-2` and `epyc-2` are CPU machines with 2 cores, and `h200…` has NVIDIA H200 GPUs
  ([all machines](../bench/results/tables.md#machines)).
- The commit says which program was measured: the documents of this commit first recorded the value, and the program is the same or a
  few commits older. A newer program may be faster or slower, so measure again before you compare.
- `4 × 2` is a step of 2 micro-batches with 4 samples each on every rank. Unless the row says otherwise, the model has the shape of
  bloom-560m and random weights, and every sample has 512 tokens that all carry loss. [tuning.md](tuning.md) says what to set.
"""
BEGIN_TABLES = """\
# All recorded values

This page is for looking up one value; [performance.md](../../docs/performance.md) is the page to read. `tools/make_performance_page.py`
makes both from the [JSON files](README.md) of this folder.

- **Machine** is a name from the table below. Compare only values of the same machine.
- **Commit** is the version whose documents first recorded the value. The program is that version, or a few commits older.
- "not recorded" means that nobody recorded this fact at the time of the measurement.

## Machines
"""


class Subject:
    """A table of the summary: some columns and rows of one file of results."""

    def __init__(self, title, file, columns, rows=None, about=None, names=None):
        self.title, self.file, self.columns, self.about = title, file, columns, about
        self.rows = rows or (lambda row: True)  # returns whether the summary shows a row
        self.names = names or {}  # shorter headings of columns


def one_machine(name):
    return lambda row: row.get("machine") == name


COMPARED = ["rate", "mfu", "stack", "peer", "ratio", "mib", "peer_mib", "memory"]
SUBJECTS = [
    Subject("GPU: Llama and Qwen shapes, compared with compiled PyTorch", "gpu-llama.json", COMPARED,
            rows=lambda row: row["values"]["peer"] is not None,
            about="Full fine-tuning in bf16. Tessera keeps fp32 master weights, so for 3B and 8B it needs 1.3 to 1.45 times the "
                  "memory of a \"pure bf16\" peer, which keeps none. With \"bf16 states\", Tessera keeps none either and needs "
                  "less memory than the peer. MFU is relative to 989 TFLOP/s."),
    Subject("GPU: LoRA with Llama and Qwen shapes, compared with PEFT", "gpu-lora.json", COMPARED,
            rows=lambda row: row["values"]["peer"] is not None,
            about="Rank 16 on all linear layers, bf16. Both sides keep the model in bf16 and the adapters in fp32. MFU counts four "
                  "FLOPs for each weight."),
    Subject("GPU: Qwen shapes, compared with LLM.Q", "gpu-native.json", COMPARED,
            about="LLM.Q, a native trainer in C++ and CUDA, keeps weights in bf16 without fp32 master weights. Moments are in "
                  "fp32, or in bf16 with \"bf16 states\"."),
    Subject("GPU: products in 8 bits", "gpu-float8.json", ["fp8", "bf16", "ratio", "mib", "bf16_mib"],
            about="`--matmul-precision fp8` compared with bf16, one after the other in one call. Memory is NVML's value for the "
                  "process."),
    Subject("GPUs: full_shard, compared with FSDP2 and torch.compile", "gpu-multi.json", ["gpus", *COMPARED],
            about="The speed is per GPU, and both sides keep fp32 parameters and states."),
    Subject("GPU: in the memory of smaller GPUs", "gpu-fit.json",
            ["ms", "predicted", "unlimited_ms", "speed", "offload", "recomputed"],
            about="`train --fit SIZE` chose what is offloaded to host memory and what backward computes again. \"Without a limit\" is "
                  "the same step with all memory of the GPU. Times with offload differ by up to 20 % between machines, because "
                  "virtual machines share the memory of their host."),
    Subject("GPUs: bloom-560m, training and generation", "gpu-speed.json",
            ["gpus", "rate", "mfu", "peer", "peer_rate", "ratio", "of"], names={"of": "% of N × one GPU's speed"},
            about="MFU is relative to 989 TFLOP/s per GPU. The peers ran on GPUs of the same kind; their commits are not "
                  "recorded."),
    Subject("GPU: generation with Llama's shape", "gpu-llama-generation.json", ["rate", "peer", "ratio"],
            about="Llama-3.2-1B, bf16, greedy, 256 prompts of 512 tokens, 50 new tokens each. transformers generates 32 prompts "
                  "at a time."),
    Subject("CPU: training, compared with the Hugging Face Trainer", "cpu-trainer.json",
            ["tessera", "trainer", "speed", "tessera_peak", "trainer_peak", "memory"],
            about="fp32, batch 4 × accumulation 4, on the same two cores; the Trainer pads every row to 512 tokens."),
    Subject("GPU: the memory plan compared with NVML", "gpu-ledger.json", ["ledger", "nvml", "r"],
            about="NVML counts the memory of the process on the GPU. The ledger equals the plan byte for byte, so the ratio is "
                  "also the plan's."),
    Subject("Losses compared with transformers", "losses.json", ["tessera", "peer", "largest", "mean"],
            about="Both sides use the same weights and rows. \"Last loss\" is the loss of step 100, and the differences are over "
                  "all steps ([curves](loss_curves.svg))."),
]


class Part:
    """A row of STARTS or PARTS_OF_A_RUN: one value of a file, and perhaps a peer's value from the same file."""

    def __init__(self, name, file, row, key, peer=None, peer_row=None, peer_key=None):
        self.name, self.file, self.row, self.key = name, file, row, key
        self.peer, self.peer_row, self.peer_key = peer, peer_row or row, peer_key or key


STARTS = [
    Part("CPU, until the first step begins, weights in the page cache", "start-cpu.json",
         "until the first training step begins", "value"),
    Part("GPU, until the first step is done, weights in the page cache", "gpu-start.json",
         "first step is done, weights in the page cache", "s"),
    Part("GPU, until the first step is done, empty page cache", "gpu-start.json",
         "first step is done, empty page cache", "s"),
]
PARTS_OF_A_RUN = [
    Part("BLOOM's tokenizer, empty cache, MB/s", "tokenizer.json", "BLOOM", "tc", "`tokenizers`", peer_key="lc"),
    Part("Llama 3's tokenizer, empty cache, MB/s", "tokenizer.json", "Llama 3", "tc", "`tokenizers`", peer_key="lc"),
    Part("AdamW on the CPU, fp32, GB/s", "adamw-cpu.json", "Tessera", "v", "torch, fused",
         peer_row="torch.optim.AdamW(fused=True)"),
    Part("write and sync a checkpoint of 1.1 GB, GB/s", "checkpoints.json", "write and sync", "t", "`dd`",
         peer_key="dd"),
    Part("open and verify a checkpoint, GB/s", "checkpoints.json", "open and verify: read and checksum every byte", "t",
         "`dd`", peer_key="dd"),
]


def number(value, digits):
    if isinstance(value, str) or digits is None:
        return str(value)
    return f"{value:,.{digits}f}"


def cell(value, digits):
    """Returns the text of a value: a number, a text or an object. An object has either "runs", or both "least" and
    "most". It can also have "median"."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return number(value, digits)
    if "runs" in value:
        spread = ", ".join(number(run, digits) for run in value["runs"])
    else:
        spread = f"{number(value['least'], digits)} … {number(value['most'], digits)}"
    return f"{number(value['median'], digits)} ({spread})" if "median" in value else spread


def column_value(column, values):
    """Returns the text of a cell. If the row has no value for the column, and the column has "ratio_of", returns
    the ratio of the two columns that "ratio_of" names."""
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
    rows = ("|".join(f" {text} " if text else " " for text in cells) for cells in lines)
    return "".join(f"|{row}|\n" for row in rows), own_machine, own_commit


def page_of(result):
    text, own_machine, own_commit = table(result)
    facts = ([] if own_machine else [f"Machine: {result['machine'] or MISSING}."])
    facts += [] if own_commit else [f"Commit: {version(result)}."]
    commands = {}  # for each command of single rows: the names of these rows
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


def results():
    """Returns the content of all files of results, in the order of the page."""
    found = [load(path.name) for path in RESULTS.glob("*.json") if path.name != "machines.json"]
    return sorted(found, key=lambda result: (result["order"], result["title"]))


def make_tables():
    machines, all_results = load("machines.json"), results()
    for result in all_results:
        for name in [result["machine"]] + [row.get("machine") for row in result["rows"]]:
            if name and name not in machines:
                sys.exit(f"error: {result['title']}: machine {name} is not in machines.json. Add it there")
    parts = [BEGIN_TABLES, markdown([["machine", "description"]] + [list(machine) for machine in machines.items()]),
             wrapped("The H200 machines have driver 580.159.04, CUDA 13.0 and NCCL 2.28.9. Their clocks are not locked: 1980 "
                     "MHz at rest, power limit 700 W. NVLink connects all GPUs of a machine; NVLink multicast is off.")]
    for section in SECTIONS:
        parts.append(f"## {section}\n")
        parts += [page_of(result) for result in all_results if result["section"] == section]
    return "\n".join(parts)


def anchor(title):
    """Returns GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def without_spread(value):
    return value["median"] if isinstance(value, dict) and "median" in value else value


def markdown(lines):
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [lines[0], ["---"] * len(lines[0])] + lines[1:])


def summary_table(subject):
    """Returns a table with medians instead of spreads. Every row has its machine and commit."""
    result = load(subject.file)
    columns = [next(column for column in result["columns"] if column["key"] == key) for key in subject.columns]
    rows = [row for row in result["rows"] if subject.rows(row)]
    if not rows:
        sys.exit(f"error: {subject.file} has no row for the table {subject.title!r} in SUBJECTS")
    head = [result["first_column"]] + [subject.names.get(column["key"], heading(column)) for column in columns]
    lines = [head + ["machine", "commit"]]
    for row in rows:
        values = {key: without_spread(value) for key, value in row["values"].items()}
        machine = "any" if values.get("how") == "plan" else row.get("machine") or result["machine"] or MISSING
        lines.append([row["name"]] + [column_value(column, values) for column in columns] +
                     [machine, row.get("commit") or result["commit"] or MISSING])
    return markdown(lines)


def part_row(part):
    """Returns the cells of a part: Tessera's value, and the peer's value if the part has a peer."""
    result = load(part.file)
    row, peer = (next(row for row in result["rows"] if row["name"] == name) for name in (part.row, part.peer_row))
    machine, commit = (row.get(key) or result[key] or MISSING for key in ("machine", "commit"))
    value, other = cell(row["values"][part.key], None), cell(peer["values"][part.peer_key], None)
    link = f"[details]({LINK}{anchor(result['title'])})"
    ratio = f"{row['values'][part.key] / peer['values'][part.peer_key]:.1f}" if part.peer else ""
    return [part.name, value] + ([part.peer, other, ratio] if part.peer else []) + [link, machine, commit]


def make_page():
    parts = [BEGIN]
    for subject in SUBJECTS:
        result = load(subject.file)
        command = f" Command: `{result['command']}`." if result["command"] else ""
        parts += [f"## [{subject.title}]({LINK}{anchor(result['title'])})\n",
                  wrapped(subject.about + command), summary_table(subject)]
    parts += ["## From the command to the first step\n",
              "bloom-560m with 2.2 GB of fp32 weights; the run reads and tokenizes XQuAD.\n",
              markdown([["event", "time, s", "command and runs", "machine", "commit"]] +
                       [part_row(part) for part in STARTS])]
    parts += ["## Parts of a run\n",
              markdown([["part", "Tessera", "peer", "peer's value", "ratio", "command and runs", "machine", "commit"]] +
                       [part_row(part) for part in PARTS_OF_A_RUN])]
    return "\n".join(parts)


def figures(comparisons, unit):
    """Returns a table of the README that compares Tessera with other programs."""
    lines = [["job", "on", unit, "peer", f"peer's {unit}", "speed ratio", "GiB per rank", "peer's GiB", "memory ratio",
              "machine", "commit"]]
    for c in comparisons:
        memory = [f"{value:.1f}" for value in c.memory] + [f"{c.memory_ratio:.2f}"]
        speeds = [short(value) for value in c.speed]
        lines.append([c.job, c.hardware, f"**{speeds[0]}**", c.peer, speeds[1], f"**{c.speed_ratio:.2f}**", *memory,
                      c.machine, ", ".join(c.commits)])
    return markdown(lines)


# Tables in hand-written documents: the document, the name of the table in the document's "begin" and "end" comments,
# and the function that makes the table.
PARTS = [
    ("README.md", "strongest peers", lambda: figures(strongest_peers(), "tokens/s per GPU")),
    ("README.md", "bloom", lambda: figures(comparisons_of_bloom(), "samples/s")),
    ("docs/tuning.md", "one GPU", lambda: summary_table(
        Subject("", "gpu-speed.json", ["rate", "mfu"],
                rows=lambda row: row["values"]["gpus"] == 1 and "mfu" in row["values"]))),
    ("docs/tuning.md", "offload", lambda: summary_table(
        Subject("", "gpu-offload.json", ["rate"], rows=one_machine("h200-1a")))),
    ("docs/strategies.md", "strategies", lambda: summary_table(
        Subject("", "cpu-strategies-560m-dense.json", ["rate", "ratio", "planned"]))),
]


def with_parts(document):
    """Returns the text of a hand-written document with new tables."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, make in [(name, make) for where, name, make in PARTS if where == document]:
        begin, end = f"<!-- begin {name}: made by tools/make_performance_page.py -->\n", f"<!-- end {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"error: {document} must contain each of these two lines once: {begin.strip()} and {end}")
        text = text[:text.index(begin) + len(begin)] + make() + text[text.index(end):]
    return text


def make_all():
    """Returns the text of each document that this script makes or changes, by path."""
    made = {PAGE: make_page(), TABLES: make_tables()}
    for document in dict.fromkeys(where for where, _, _ in PARTS):
        made[ROOT / document] = with_parts(document)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path, text in make_all().items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"error: {path.relative_to(ROOT)} differs from the recorded results. "
                     "Run tools/make_performance_page.py")


if __name__ == "__main__":
    main()
