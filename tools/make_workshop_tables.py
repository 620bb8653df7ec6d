#!/usr/bin/env python3
"""Makes tables from bench/results/workshop/*.json. Needs only Python's standard library.

  docs/workshop.md                   the tables of the quizzes and of the peers, between "begin" and "end" comments
  bench/results/workshop/tables.md   the workshop's 12 tables and the plans, for looking up values

  tools/make_workshop_tables.py            write both documents
  tools/make_workshop_tables.py --check    exit with 1 if a document differs from what this script makes

bench/workshop.py makes the files: plan.json, small.json, gpus.json and peers.json. gpus.json and peers.json are from
machines with GPUs. plan.json and small.json are required; the other two files are optional.
"""
import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_results import RESULTS, ROOT, short  # noqa: E402

PAGE = ROOT / "docs" / "workshop.md"
FILES = RESULTS / "workshop"
TABLES = FILES / "tables.md"
ON_PAGE = ["quiz-1", "quiz-2", "quiz-3", "peers"]  # the parts between the comments of PAGE
HEADINGS = {  # of the parts of TABLES, in their order
    "deepspeed-baseline": "DeepSpeed: baseline",
    "deepspeed-stages-1-gpu": "DeepSpeed: ZeRO stages on one GPU",
    "deepspeed-multi-gpu": "DeepSpeed: weak scaling over the GPUs of a node",
    "deepspeed-stages-2-gpus": "DeepSpeed: ZeRO stages on two GPUs",
    "deepspeed-multi-node": "DeepSpeed: weak scaling across nodes",
    "fsdp-bloom-baseline": "FSDP: BLOOM on one GPU",
    "fsdp-bloom-multi-gpu": "FSDP: BLOOM on the GPUs of a node",
    "fsdp-bloom-multi-node": "FSDP: BLOOM across nodes",
    "fsdp-custom-single-node": "FSDP: the custom model on one GPU",
    "fsdp-custom-multi-gpu": "FSDP: the custom model on the GPUs of a node",
    "fsdp-custom-multi-node": "FSDP: the custom model across nodes",
    "fsdp-custom-weak-scaling": "FSDP: weak scaling of the custom model",
    "planned": "Planned memory of every experiment"}
BEGIN_TABLES = """\
# The workshop's tables

This page is for looking up a value; [docs/workshop.md](../../../docs/workshop.md) is the page to read. It also says
[how the values were measured](../../../docs/workshop.md#how-the-values-were-measured). `tools/make_workshop_tables.py` makes this page
from the JSON files of this folder.

"""
MIB, GB = 2**20, 1e9
GPU, CPU = "GPU", "CPU, small"  # where a value was measured: on GPUs, or with a small model on CPUs
STAGES = "deepspeed/deepspeed-multi-gpu/2_gpus_stages_comparison"
SINGLE = "deepspeed/deepspeed-single-gpu"
# For each table where each row is an experiment: the experiments, in the order of the rows. In all other tables, each
# column of values is an experiment. The column's name is the experiment's name.
ROWS = {
    "deepspeed-stages-1-gpu": [f"{SINGLE}/cpu_offloading/zero_{n}" for n in (1, 2, 3)],
    "fsdp-bloom-multi-gpu": ["fsdp/bloom/baseline"] + [f"fsdp/bloom/multi_gpu/{n}_gpus" for n in (2, 4, 8)],
    "fsdp-bloom-multi-node": ["fsdp/bloom/multi_gpu/2_gpus"] + [f"fsdp/bloom/multi_node/{n}_nodes" for n in (2, 4, 8)],
    "fsdp-custom-multi-gpu": ["fsdp/custom_model/single_node"] +
                             [f"fsdp/custom_model/multi_gpu/{n}_gpus" for n in (2, 4, 8)],
    "fsdp-custom-multi-node": ["fsdp/custom_model/single_node"] +
                              [f"fsdp/custom_model/multi_node/{n}_nodes" for n in (2, 4, 8)],
    "fsdp-custom-weak-scaling": [f"fsdp/custom_model/weak_scaling/{n}_gpus" for n in (2, 4, 8, 16)]}


def load(name):
    path = FILES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def load_all():
    sources = {name: load(name) for name in ("plan", "small", "gpus", "peers")}
    for name in ("plan", "small"):
        if sources[name] is None:
            sys.exit(f"error: {FILES / name}.json: no such file. Make it: bench/workshop.py {name} {FILES / name}.json")
    return sources


def plain(value):
    """Returns a value of the JSON files without its notes. A value with notes is {"value", "notes"}."""
    return value["value"] if isinstance(value, dict) else value


def text_of(value, title):
    """Returns a value as text. The title of its column or row decides the format."""
    value = plain(value)
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # several modes
        return ", ".join(text_of(each, title) for each in value[:2]) + (", …" if len(value) > 2 else "")
    if "Loss" in title:
        return f"{value:.4f}"
    if "Params" in title:
        return f"{short(value / 1e6)} M"
    if "Scale Factor" in title:
        return f"{value:.2f}"
    if "GB" in title:
        return f"{value:.2f}"
    if re.search("MiB|MB|Layers|Batch|GPUs|Steps|ranks", title) or (isinstance(value, float) and value >= 1000):
        return f"{value:.0f}"
    return short(value)


def markdown(head, rows):
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [head, ["---"] * len(head), *rows])


class Tables:
    """The content of the JSON files, and the tables made from it."""

    def __init__(self, sources):
        self.plan = {row["experiment"]: row for row in sources["plan"]["plan"]}
        self.peers = sources.get("peers")
        self.measured = {}  # by place: (tables by name, runs by experiment)
        self.origin = {}  # by place: machine and commit
        for place, name in ((GPU, "gpus"), (CPU, "small")):
            source = sources.get(name)
            if source is None:
                continue
            runs = {plain(run["experiment"]): run for run in source["runs"]}
            self.measured[place] = {table["name"]: table for table in source["tables"]}, runs
            self.origin[place] = f"{place}: {source['machine']}, commit {source['commit']}"

    def was_run(self, place, experiment):
        return place in self.measured and experiment in self.measured[place][1]

    def run(self, place, experiment, key, title):
        """Returns a figure of a run as text, or "–" if the experiment was not run in this place."""
        return text_of(self.measured[place][1][experiment].get(key), title) if self.was_run(place, experiment) else "–"

    def planned(self, experiment):
        return f"{self.plan[experiment]['device_peak_bytes'] / MIB:.0f}"

    def remarks(self, name, table):
        experiments = ROWS[name] if name in ROWS else [column["name"] for column in table["columns"]]
        origin = [text for place, text in self.origin.items() if any(self.was_run(place, each) for each in experiments)]
        lines = [" ".join(text for text in table["remarks"] if not text.startswith("No run for"))]
        return "\n" + " ".join(line for line in lines + [". ".join(origin) + "."] if line) + "\n"

    def workshop_table(self, name):
        any_table = self.measured[CPU][0][name]
        body = self.by_rows(name, any_table) if name in ROWS else self.by_columns(name, any_table)
        return body + self.remarks(name, any_table)

    def by_rows(self, name, table):
        """Returns a table where each row is an experiment."""
        first, *columns = table["columns"]
        head = [first["title"], "Measured on", *(column["title"] for column in columns), "Planned GPU memory, full size (MiB)"]
        rows = []
        for place, (tables, _) in self.measured.items():
            for experiment, row in zip(ROWS[name], tables[name]["rows"], strict=True):
                if self.was_run(place, experiment):
                    rows.append([plain(row[first["name"]]), place,
                                 *(text_of(row[column["name"]], column["title"]) for column in columns),
                                 self.planned(experiment)])
        return markdown(head, rows)

    def by_columns(self, name, table):
        """Returns a table where each row is a figure, and each column of values is an experiment."""
        texts = [column for column in table["columns"] if column["name"] not in self.plan]
        head, cells = [column["title"] for column in texts], [[plain(row[c["name"]]) for c in texts] for row in table["rows"]]
        plan = ["Planned GPU memory, full size (MiB)" if text == "Metric" else "" for text in head]
        if "Extraction Instruction" in head:
            plan[head.index("Extraction Instruction")] = "tessera plan RECIPE"
        if "Location" in head:
            plan[head.index("Location")] = "tessera plan RECIPE"
        for place, (tables, _) in self.measured.items():
            for column in table["columns"]:
                if column["name"] not in self.plan or not self.was_run(place, column["name"]):
                    continue
                head.append(f"{column['title']} ({place})")
                plan.append(self.planned(column["name"]))
                for line, row in zip(cells, tables[name]["rows"], strict=True):
                    line.append(text_of(row[column["name"]], " ".join(line[:len(texts)])))
        return markdown(head, [*cells, plan])

    def all_planned(self):
        """Returns a table of all experiments in full size: the planned memory, and the memory measured on GPUs."""
        rows = []
        for name, row in self.plan.items():
            rows.append([f"`{name}`", str(row["ranks"]), f"{row['parameters'] / 1e6:.0f} M", self.planned(name),
                         f"{row['host_peak_bytes'] / MIB:.0f}", f"{row['step_bytes_sent'] / GB:.2f}",
                         self.run(GPU, name, "booked_memory", "MiB"), self.run(GPU, name, "gpu_peak", "MiB")])
        return markdown(["experiment", "GPUs", "parameters", "planned on the GPU (MiB)", "planned in host memory (MiB)",
                         "sent by a rank each step (GB)", "booked on the GPU (MiB)",
                         "peak of the GPU memory in use (MiB)"], rows)

    def stage_rows(self, folder, ranks):
        rows = []
        for stage in (1, 2, 3):
            for offload in ("", "cpu_offloading/"):
                name = f"{folder}/{offload}zero_{stage}"
                rows.append([str(ranks), str(stage), "yes" if offload else "no", self.planned(name),
                             f"{self.plan[name]['host_peak_bytes'] / MIB:.0f}", self.run(GPU, name, "gpu_peak", "MiB"),
                             self.run(GPU, name, "cpu_peak", "MiB"),
                             self.run(GPU, name, "steady_samples_per_second", "rate"),
                             self.slowdown(name, f"{folder}/zero_{stage}")])
        return rows

    def slowdown(self, name, other):
        """Returns the time of a step in the experiment `name`, divided by the time of a step in `other`."""
        if not (self.was_run(GPU, name) and self.was_run(GPU, other)):
            return "–"
        rate, reference = (plain(self.measured[GPU][1][each]["steady_samples_per_second"]) for each in (name, other))
        return f"{reference / rate:.2f}"

    def stages(self):
        """Returns the table of the workshop's quiz 1."""
        head = ["GPUs", "stage", "offload", "planned GPU (MiB)", "planned host memory of a rank (MiB)",
                "GPU memory in use (MiB)", "memory of all processes (MiB)", "samples/s of steps",
                "time of a step / without offload"]
        return markdown(head, self.stage_rows(SINGLE, 1) + self.stage_rows(STAGES, 2))

    def scaling(self, names):
        """Returns the table of the workshop's quiz 2 or 3. It shows which values grow with the number of ranks."""
        rows = []
        for name in names:
            row, host = self.plan[name], self.plan[name]["host_step_bytes"]
            states = sum(host.get(key, 0) for key in ("master", "gradients", "optimizer"))
            rows.append([f"`{name.removeprefix('deepspeed/')}`", str(row["ranks"]), self.planned(name), f"{states / MIB:.0f}",
                         f"{row['step_bytes_sent'] / GB:.2f}", self.run(GPU, name, "gpu_peak", "MiB"),
                         self.run(GPU, name, "steady_samples_per_second", "rate"),
                         self.run(CPU, name, "booked_memory", "rate")])
        return markdown(["experiment", "ranks", "planned GPU (MiB)", "states in host memory of a rank (MiB)",
                         "sent by a rank each step (GB)", "GPU memory in use (MiB)", "samples/s of steps",
                         "booked by a rank of the small model (MiB)"], rows)

    def beside_peers(self):
        if self.peers is None:
            return "Not measured yet. Run `bench/workshop.py peers`.\n"
        rows = []
        for row in self.peers["peers"]:
            peer = row["peer"]
            speed = peer.get("samples_per_s")
            rows.append([f"`{row['experiment']}`", short(row["samples_per_s"]), peer["stack"],
                         short(speed) if speed else "failed", f"**{short(row['samples_per_s'] / speed)}**" if speed else "–",
                         f"{row['ledger_MiB']:.0f}", f"{peer['used_MiB']:.0f}" if speed else "–"])
        head = ["experiment", "samples/s", "peer", "peer's samples/s", "ratio", "GPU memory (MiB)",
                "peer's GPU memory (MiB)"]
        return markdown(head, rows) + f"\n{self.peers['machine']}, commit {self.peers['commit']}.\n"

    def parts(self):
        """Returns the text of each part that this script makes, by name."""
        made = {name: self.workshop_table(name) for name in self.measured[CPU][0]}
        gpus = [f"deepspeed/deepspeed-multi-gpu/{n}_gpus" for n in (2, 4, 8)]
        nodes = [f"deepspeed/deepspeed-multi-node/{n}_nodes" for n in (2, 4, 8)]
        return made | {"quiz-1": self.stages(), "quiz-2": self.scaling(gpus), "quiz-3": self.scaling(nodes),
                       "peers": self.beside_peers(), "planned": self.all_planned()}


def make_page(parts):
    """Returns the page with new tables."""
    text = PAGE.read_text(encoding="utf-8")
    for name in ON_PAGE:
        begin, end = f"<!-- begin {name}: made by tools/make_workshop_tables.py -->\n", f"<!-- end {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"error: {PAGE.relative_to(ROOT)} must contain each of these two lines once: "
                     f"{begin.strip()} and {end}")
        text = text[:text.index(begin) + len(begin)] + "\n" + parts[name] + "\n" + text[text.index(end):]
    return text


def make_all():
    """Returns the text of each document that this script makes or changes, by path."""
    parts = Tables(load_all()).parts()
    tables = BEGIN_TABLES + "\n".join(f"## {heading}\n\n{parts[name]}" for name, heading in HEADINGS.items())
    return {PAGE: make_page(parts), TABLES: tables}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path, text in make_all().items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"error: {path.relative_to(ROOT)} differs from the recorded results. Run tools/make_workshop_tables.py")


if __name__ == "__main__":
    main()
