"""The files that --tracker writes, also after a resume and on a full disk, and the effect of the WANDB_* variables.

The functions below read these files without the packages of TensorBoard and W&B."""
import glob
import json
import math
import os
import random
import resource
import signal
import struct
import subprocess
import time
import zlib

from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED, USAGE, TinyJobTest

LONG = EVALUATED + ["--epochs", "30", "--save-strategy", "steps", "--save-steps", "7", "--eval-strategy", "steps",
                    "--eval-steps", "35", "--eval-before", "--tracker", "tensorboard,wandb"]
SHORT = EVALUATED + ["--epochs", "1"]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """[(field number, value)] of a protobuf message."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        elif kind == 5:
            value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        found.append((key >> 3, value))
    return found


def items(message, key):
    """{name: value} of the items of a W&B record. `key`: the number of the field that holds the name of an item."""
    pairs = [dict(fields(item)) for number, item in fields(message) if number == 1]
    return {pair[key].decode(): json.loads(pair[16]) for pair in pairs}


def events(path):
    """[(step, {tag: value}, whether the event starts a session)] of a TensorBoard event file."""
    with open(path, "rb") as file:
        data = file.read()
    found = []
    while data:
        size = struct.unpack("<Q", data[:8])[0]
        event = dict(fields(data[12:12 + size]))
        values = [dict(fields(value)) for number, value in fields(event.get(5, b"")) if number == 1]
        found.append((event.get(2, 0), {v[1].decode(): v.get(2) for v in values}, 7 in event))
        data = data[12 + size + 4:]
    return found


def records(path):
    """[(field number, message)] of a W&B log."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:7] == b":W&B\xe1\xbe\0"
    at, buffer, found = 7, b"", []
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        crc, size, kind = struct.unpack("<IHB", data[at:at + 7])
        payload = data[at + 7:at + 7 + size]
        assert crc == zlib.crc32(bytes([kind]) + payload)
        buffer, at = buffer + payload, at + 7 + size
        if kind in (1, 4):
            numbered = fields(buffer)
            assert numbered[0] == (1, len(found) + 1), "records have the numbers 1, 2, 3, ..."
            found.append(numbered[1])
            buffer = b""
    return found


class Trackers(TinyJobTest):
    def wandb_log(self, output):
        place = self.json_of(output, "trackers.json")["wandb"]
        return self.path(output, "wandb", place["folder"], f"run-{place['run_id']}.wandb")

    def lines(self, output):
        return [json.loads(line) for line in self.read(output, "metrics.jsonl").splitlines()]

    def rows_of_tensorboard(self, output):
        files = sorted(glob.glob(self.path(output, "tensorboard", "*")))
        names = [os.path.basename(file) for file in files]
        self.assertEqual(names, self.json_of(output, "trackers.json")["tensorboard"])
        return [(step, tags) for file in files for step, tags, _ in events(file) if "train/epoch" in tags]

    def assert_complete(self, output, exit_code=0):
        """Asserts that both trackers hold the records of metrics.jsonl, each once and in order."""
        lines = self.lines(output)
        shown = self.rows_of_tensorboard(output)
        found = records(self.wandb_log(output))
        rows = [items(message, 2) for field, message in found if field == 2]
        self.assertEqual([step for step, _ in shown], [line["step"] for line in lines])
        self.assertEqual([row["_step"] for row in rows], list(range(len(lines))))
        self.assertEqual([row["train/global_step"] for row in rows], [line["step"] for line in lines])
        for line, (_, tags), row in zip(lines, shown, rows):
            tag = {"train": "loss", "eval": "eval_loss", "summary": "train_loss"}[line["kind"]]
            name = {"loss": "train/loss", "eval_loss": "eval/loss", "train_loss": "train/train_loss"}[tag]
            self.assertEqual(row[name], line[tag])
            self.assertTrue(math.isclose(tags[name], line[tag], rel_tol=1e-6))
            self.assertEqual(row["train/epoch"], line["epoch"])
        # W&B's log begins with a header, the run and its environment. It ends with the summary, the exit code, the
        # final record and a footer.
        self.assertEqual([field for field, _ in found[:3]], [21, 17, 26])
        self.assertEqual([field for field, _ in found[-4:]], [3, 18, 20, 22])
        self.assertEqual(dict(fields(found[-3][1]))[1], exit_code)
        return found

    def kill_after(self, output, lines, by=signal.SIGKILL):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "WANDB_"))}
        process = subprocess.Popen([PROGRAM, "train", *LONG, "--output-dir", output], cwd=self.folder, env=clean,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        while self.num_lines(output) < lines and process.poll() is None:
            time.sleep(0.0005)
        process.send_signal(by)
        return process.wait()

    def test_rows_and_records_of_a_run(self):
        self.train("out", job=SHORT + ["--tracker", "all"])
        found = self.assert_complete("out")
        run = dict(fields(found[1][1]))
        self.assertEqual(run[8], b"out")
        self.assertEqual(items(run[4], 1)["lr"], 0.01)
        tags = {tag for _, tags in self.rows_of_tensorboard("out") for tag in tags}
        self.assertLessEqual({"train/loss", "train/grad_norm", "train/learning_rate", "train/epoch", "eval/loss",
                              "eval/runtime", "eval/samples_per_second", "train/train_runtime"}, tags)
        self.assertIn("proc.memory.rssMB", items_of_stats(found))
        summary = items(found[-4][1], 2)
        written = self.json_of("out", "summary.json")
        self.assertEqual(summary["eval_loss"], written["eval_loss"])
        for name in ["avg_mem_alloc_MB", "train/steps_per_second_mean", "train/samples_per_second_mean"]:
            self.assertEqual(summary[name], written["callbacks"][name])
        self.assertEqual(os.readlink(self.path("out", "wandb", "latest-run")),
                         self.json_of("out", "trackers.json")["wandb"]["folder"])

    def test_results_equal_a_run_without_trackers(self):
        self.train("with", job=SHORT + ["--tracker", "all"])
        self.train("without", job=SHORT)
        self.assert_same_results("with", "without")
        self.assertFalse(os.path.exists(self.path("without", "trackers.json")))

    def test_killed_runs_have_no_double_rows(self):
        source = random.Random(5)
        log = None
        for kill in range(4):
            self.assertEqual(self.kill_after("out", 40 + 30 * kill + source.randrange(10)), -signal.SIGKILL)
            if log:
                self.assertEqual(self.wandb_log("out"), log)  # the resumed run writes to the log of the killed run
            log = self.wandb_log("out")
            with open(log, "ab") as file:  # as if the kill came in the middle of a write
                file.write(source.randbytes(source.randrange(30)))
        self.train("out", job=LONG)
        self.assertEqual(self.wandb_log("out"), log)
        self.assert_complete("out")
        starts = [step for file in glob.glob(self.path("out", "tensorboard", "*"))
                  for step, _, starts in events(file) if starts]
        # Each start of the program begins a session at a step N. TensorBoard then drops the events of earlier sessions
        # from step N on. N is above 0 only if the run continues from a checkpoint.
        self.assertGreater(max(starts), 0)

    def test_a_stopped_run_is_marked_and_continues(self):
        self.assertEqual(self.kill_after("out", 40, by=signal.SIGTERM), 75)
        self.assert_complete("out", exit_code=75)
        marks = [self.wandb_log("out") + suffix for suffix in (".synced", ".syncstate")]
        for mark in marks:
            open(mark, "w").close()
        self.train("out", job=LONG)
        self.assert_complete("out")
        self.assertFalse(any(os.path.exists(mark) for mark in marks))

    def test_trackers_can_begin_later(self):
        self.train("out", job=SHORT)
        self.train("out", job=EVALUATED + ["--epochs", "2", "--tracker", "all"])
        self.assert_complete("out")

    def test_a_failed_run_is_marked(self):
        words = ["--max-skipped-updates", "1", "--lr", "1e30", "--epochs", "5", "--tracker", "wandb"]
        code, _, err = self.run_tessera("train", *EVALUATED, *words, "--output-dir", "out")
        self.assertEqual(code, 1, err)
        exits = [dict(fields(message))[1] for field, message in records(self.wandb_log("out")) if field == 18]
        self.assertEqual(exits, [1])

    def test_variables(self):
        env = {"WANDB_MODE": "online", "WANDB_PROJECT": "p", "WANDB_ENTITY": "e", "WANDB_NAME": "n",
               "WANDB_RUN_ID": "id-1", "WANDB_RUN_GROUP": "g", "WANDB_TAGS": "a,b", "WANDB_NOTES": "text",
               "WANDB_DIR": self.path("elsewhere"),
               "WANDB_API_KEY": "secret-" + "0" * 33}
        words = ["train", *SHORT, "--tracker", "wandb", "--output-dir", "out"]
        code, _, err = self.run_tessera(*words, env=env)
        self.assertEqual(code, 0, err)
        self.assertIn("Tessera does not upload. To upload it: wandb sync", err)
        log, = glob.glob(self.path("elsewhere", "wandb", "offline-run-*-id-1", "run-id-1.wandb"))
        run = fields(records(log)[1][1])
        self.assertEqual([(n, v) for n, v in run if n in (1, 2, 3, 6, 8, 9, 10)],
                         [(1, b"id-1"), (2, b"e"), (3, b"p"), (6, b"g"), (8, b"n"), (9, b"text"), (10, b"a"),
                          (10, b"b")])
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.assertNotIn(b"secret-", file.read())
        code, _, err = self.run_tessera(*words[:-1], "other", env={"WANDB_MODE": "disabled"})
        self.assertEqual(code, 0, err)
        self.assertFalse(os.path.exists(self.path("other", "wandb")))
        self.fails(USAGE, 'WANDB_MODE: unknown value "of"', *words[:-1], "third", env={"WANDB_MODE": "of"})

    def test_words(self):
        self.fails(USAGE, "unknown tracker", "train", *SHORT, "--output-dir", "out", "--tracker", "tensorbord")
        self.fails(USAGE, '"none" contradicts the other trackers', "train", *SHORT, "--output-dir", "out", "--tracker", "none,wandb")

    def test_another_folder(self):
        self.train("out", job=SHORT + ["--tracker", "all", "--tracker-dir", "logs"])
        self.assertEqual(sorted(os.listdir(self.path("logs"))), ["tensorboard", "wandb"])

    def test_a_full_disk_ends_the_tracker_and_not_the_run(self):
        # No file can become larger than `limit`, as on a full disk. wandb's file would become larger, but metrics.jsonl
        # and the model would not.
        self.train("good", job=LONG + ["--save-strategy", "no"])
        sizes = [os.path.getsize(self.path("good", name)) for name in ("metrics.jsonl", "model/model.safetensors")]
        size_of_log = os.path.getsize(self.wandb_log("good"))
        self.assertLess(max(sizes), size_of_log)
        limit = (max(sizes) + size_of_log) // 2  # the sizes vary a little, because the files contain times
        code, _, err = self.run_tessera(
            "train", *LONG, "--save-strategy", "no", "--output-dir", "out",
            preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("the tracker wandb stops, and the run continues"), 1, err)
        self.assert_same_results("out", "good")


def items_of_stats(found):
    """{name: value} of the first record with measurements of the machine."""
    message = next(message for field, message in found if field == 7)
    pairs = [dict(fields(item)) for number, item in fields(message) if number == 3]
    return {pair[1].decode(): json.loads(pair[16]) for pair in pairs}


if __name__ == "__main__":
    main()
