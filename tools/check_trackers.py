#!/usr/bin/env python3
"""Uses the packages of TensorBoard and W&B to check the files that a run with --tracker wrote, or to write the fixture
of the unit tests.

    python3 -m venv .venv-trackers
    .venv-trackers/bin/pip install tensorboard wandb==0.19.11 setuptools
    .venv-trackers/bin/python tools/check_trackers.py RUN         # the output folder of a run with --tracker all
    .venv-trackers/bin/python tools/check_trackers.py --fixture   # writes tests/unit/log/trackers_fixture.json

The unit tests do not need these packages."""
import json
import math
import sys
import tempfile
import zlib
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

FIXTURE = Path(__file__).resolve().parents[1] / "tests" / "unit" / "log" / "trackers_fixture.json"
# For each W&B log of the fixture, the sizes of its records in bytes. W&B divides a log into blocks of 32 KiB, and
# splits a record that does not fit into its block. To test this, many of the records end near the end of a block.
LOGS = [[0], [1, 2, 3], [32747], [32754], [32747, 5], [32748, 5], [32753, 0, 9], [70000, 3], [32768 * 2],
        [65508, 65508], [100, 32640, 7, 7, 7], [32746 - k for k in range(8)]]


def pattern(size, index):
    return bytes((i * 31 + index * 7 + i // 251) % 256 for i in range(size))


def fixture():
    logs = []
    for sizes in LOGS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.wandb"
            store = DataStore()
            store.open_for_write(str(path))
            for index, size in enumerate(sizes):
                store._write_data(pattern(size, index))
            store.close()
            data = path.read_bytes()
        logs.append({"sizes": sizes, "bytes": len(data), "crc32": zlib.crc32(data)})
    event = Event(wall_time=1700000000.25, step=300)
    for tag, value in [("train/loss", 1.5), ("eval/loss", -0.1)]:
        event.summary.value.add(tag=tag, simple_value=value)
    with tempfile.TemporaryFile() as file:
        RecordWriter(file).write(event.SerializeToString())
        file.seek(0)
        record = file.read()
    FIXTURE.write_text(json.dumps({"wandb_logs": logs, "event_record": record.hex()}, indent=1) + "\n")


def tags_of(line):
    tags = {"train/epoch": line["epoch"]}
    names = {"train_loss": "train/train_loss", "loss": "train/loss", "grad_norm": "train/grad_norm",
             "learning_rate": "train/learning_rate", "eval_loss": "eval/loss", "eval_runtime": "eval/runtime",
             "train_runtime": "train/train_runtime"}
    for key, value in [*line.items(), *line.get("timing", {}).items()]:
        if key in names and line["kind"] != "skipped":
            tags[names[key]] = math.nan if value is None else value
    return tags


def same(a, b):
    return math.isnan(a) and math.isnan(b) or math.isclose(a, b, rel_tol=1e-6)


def check(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    for tag in sorted({tag for line in lines for tag in tags_of(line)}):
        want = [(line["step"], tags_of(line)[tag]) for line in lines if tag in tags_of(line)]
        got = [(e.step, e.value) for e in events.Scalars(tag)]
        assert [s for s, _ in got] == [s for s, _ in want] and all(same(a[1], b[1]) for a, b in zip(got, want)), tag
    print(f"TensorBoard: {len(lines)} rows, {len(events.Tags()['scalars'])} tags")

    place = json.loads((run / "trackers.json").read_text())["wandb"]
    store = DataStore()
    store.open_for_scan(str(run / "wandb" / place["folder"] / f"run-{place['run_id']}.wandb"))
    rows, kinds = [], []
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        assert record.num == len(kinds) + 1
        kinds.append(record.WhichOneof("record_type"))
        if kinds[-1] == "history":
            rows.append({item.nested_key[0]: json.loads(item.value_json) for item in record.history.item})
            assert rows[-1]["_step"] == record.history.step.num == len(rows) - 1
        if kinds[-1] == "run":
            settings = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if kinds[-1] == "exit":
            exit_code = record.exit.exit_code
    assert kinds[:2] == ["header", "run"] and kinds[-4:] == ["summary", "exit", "final", "footer"], kinds
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines):
        assert row["train/global_step"] == line["step"]
        assert all(same(row[tag], value) for tag, value in tags_of(line).items()), line
    print(f"W&B: {len(rows)} rows, {len(settings)} settings, exit code {exit_code}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--fixture":
        fixture()
    else:
        check(Path(sys.argv[1]))
