"""Tests `--memory-log`. Compares the output of `tessera memory` with gpu_lines() and cpu_lines(), which compute the
same lines independently."""
import errno
import json
import os
import random
import re
import statistics

from tessera_cli import PROGRAM, main
from tiny_job import GPT, JOB, OF_ANY_DEVICE, ON_GPU, TinyJobTest

LIBRARY = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
CPU_HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
GPU_HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB]\n"


def number(text):
    """The number in a cell, or None if the cell is not a number."""
    text = text.strip()
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else None


def modes(values):
    return ", ".join(f"{value:.0f}" for value in sorted(statistics.multimode(values)))


def skipped(count, path):
    return f"[!] Skipped {count} unreadable row{'s' * (count != 1)} of {path}\n" if count else ""


def gpu_lines(folder):
    """What `tessera memory` must print about GPU logs: for each GPU (its index is in column 2), the peak, average and
    all modes (most frequent values) of column 4. The first line of a log is a header."""
    names = sorted(name for name in os.listdir(folder) if name.startswith("gpu_memory_log") and name.endswith(".csv"))
    if not names:
        return f"[!] No GPU logs found in {folder}\n"
    text = "\nGPU Memory Usage\n"
    for name in names:
        path, used, bad = os.path.join(folder, name), {}, 0
        with open(path, newline="", encoding="utf-8") as file:
            rows = [line.strip() for line in file.read().split("\n")[1:]]
        for row in filter(None, rows):
            cells = row.split(",")
            if len(cells) == 5 and number(cells[1]) is not None and number(cells[3]) is not None:
                used.setdefault(int(cells[1]), []).append(number(cells[3]))
            else:
                bad += 1
        if not used:
            text += f"[!] Failed to read {path}: it has no samples\n"
        for index, values in sorted(used.items()):
            mean = statistics.fmean(values)
            text += (f"[{name[:-4]} - GPU {index}] Peak = {max(values):.0f} MiB, Avg = {mean:.2f} MiB,"
                     f" Mode = {modes(values)} MiB\n")
        text += skipped(bad, path)
    return text


def cpu_lines(folder):
    """What `tessera memory` must print about the CPU log: the peak, average and all modes of column 3. Blanks separate
    columns. A # begins a comment."""
    path = os.path.join(folder, "cpu_memory_log.txt")
    if not os.path.exists(path):
        return f"[!] CPU log not found: {path}\n"
    values, bad = [], 0
    with open(path, newline="", encoding="utf-8") as file:
        for row in filter(None, (line.split("#")[0].split() for line in file.read().split("\n"))):
            value = number(row[2]) if len(row) > 2 else None
            if value is None:
                bad += 1
            else:
                values.append(value)
    if not values:
        return f"[!] Failed to read {path}: it has no samples\n" + skipped(bad, path)
    return (f"\nCPU Memory Usage\n   Peak =    {max(values):.0f} MB\n   Average = {statistics.fmean(values):.2f} MB\n"
            f"   Mode =    {modes(values)} MB\n" + skipped(bad, path))


class Analysis(TinyJobTest):
    def setUp(self):  # these tests need no files of a training job
        super(TinyJobTest, self).setUp()

    def random_gpu_log(self, source, name, newline):
        rows = [GPU_HEADER.strip()]
        levels = [source.randrange(100, 90000) for _ in range(source.randrange(1, 6))]
        for i in range(source.randrange(40)):
            for index in source.sample(range(12), source.randrange(1, 4)):
                rows.append(f"2025/01/31 10:00:{i:02}.000, {index}, NVIDIA H200, {source.choice(levels)}, 143771")
        for damage in ["", "2025/01/31, 1, NVIDIA", "2025/01/31, 1, NVIDIA, [N/A], 5", "2025, one, NVIDIA, 4, 5", "\t"]:
            if source.random() < 0.3:
                rows.insert(source.randrange(1, len(rows) + 1), damage)
        self.write(name, newline.join(rows) + newline * source.randrange(2))

    def random_cpu_log(self, source, newline):
        rows = [CPU_HEADER.strip()]
        levels = [source.randrange(100, 9000000) / 1000 for _ in range(source.randrange(1, 6))]
        for i in range(source.randrange(40)):
            value = source.choice([source.choice(levels), source.randrange(10 ** 7) / 1000])
            rows.append(f"{5 * i + 0.01:12.3f} {source.random() * 800:12.3f} {value:12.3f} {2 * value:12.3f}")
        for damage in ["", "   1.000", "  1.0  2.0  many  3.0", "# a comment", "  5.0  1.0  64.5  9.0  # noted"]:
            if source.random() < 0.3:
                rows.insert(source.randrange(len(rows) + 1), damage)
        self.write("cpu_memory_log.txt", newline.join(rows) + newline * source.randrange(2))

    def test_random_logs(self):
        for seed in range(60):
            source = random.Random(seed)
            for name in os.listdir(self.folder):
                os.remove(os.path.join(self.folder, name))
            newline = source.choice(["\n", "\n", "\r\n"])
            for name in source.sample(["gpu_memory_log.csv", "gpu_memory_log_n1.csv", "gpu_memory_log_n2.csv"],
                                      source.randrange(4)):
                self.random_gpu_log(source, name, newline)
            if source.random() < 0.9:
                self.random_cpu_log(source, newline)
            code, out, err = self.run_tessera("memory", self.folder)
            expected = gpu_lines(self.folder) + cpu_lines(self.folder)
            self.assertEqual(out, expected, f"seed {seed}")
            self.assertEqual((code, err), (0 if "Peak" in expected else 3, ""), f"seed {seed}")

    def test_empty_files(self):
        for name in ["gpu_memory_log.csv", "cpu_memory_log.txt"]:
            self.write(name, "")
        code, out, _ = self.run_tessera("memory", self.folder)
        self.assertEqual((code, out), (3, gpu_lines(self.folder) + cpu_lines(self.folder)))

    def test_what_is_asked_for(self):
        self.write("cpu_memory_log.txt", "0 0 5 9\n")
        self.assertNotIn("GPU", self.succeeds("memory", "--cpu-only", self.folder))
        code, out, _ = self.run_tessera("memory", self.folder, "--gpu-only")
        self.assertEqual((code, out), (3, f"[!] No GPU logs found in {self.folder}\n"))
        self.fails(2, "--cpu-only: contradicts gpu_only", "memory", self.folder, "--gpu-only", "--cpu-only")
        self.fails(2, "FOLDER: is required by memory. Example: tessera memory", "memory")
        self.fails(2, "b: unexpected argument", "memory", "a", "b")
        self.fails(2, "--zzz: unknown flag", "memory", "a", "--zzz", "b")
        self.assertIn("Usage: tessera memory FOLDER", self.succeeds("memory", "--help"))


class Logs(TinyJobTest):
    def of_ranks(self, folder, rank):
        return [json.loads(line) for line in self.read(folder, f"ledger-rank-{rank}.jsonl").splitlines()]

    def check_cpu_log(self, path):
        lines = self.read(*path).decode().splitlines(keepends=True)
        self.assertEqual(lines[0], CPU_HEADER)
        self.assertGreater(len(lines), 2)
        for line in lines[1:]:
            self.assertRegex(line, r"^ *\d+\.\d{3}( +\d+\.\d{3}){3}\n$")
            self.assertEqual(len(line), 52)  # 4 columns of 12 characters, 3 blanks, 1 line break
        return [[float(word) for word in line.split()] for line in lines[1:]]

    def check_summary(self, output, rows):
        log = self.json_of(output, "summary.json")["memory_log"]
        if not ON_GPU:
            self.assertEqual(list(log), ["cpu"])
        self.assertEqual(log["cpu"]["peak_mb"], max(row[2] for row in rows))
        self.assertAlmostEqual(log["cpu"]["average_mb"], statistics.fmean(row[2] for row in rows), 6)
        self.assertEqual(log["cpu"]["mode_mb"], sorted(statistics.multimode(row[2] for row in rows))[:16])

    def test_of_a_run(self):
        _, _, err = self.run_tessera("train", *JOB, "--max-steps", "4", "--output-dir", "out", "--memory-log",
                                     "out/memory:0.01")
        if not ON_GPU:
            self.assertIn("The run uses no GPU: --memory-log writes no gpu_memory_log.csv\n", err)
            names = sorted(os.listdir(self.path("out", "memory")))
            self.assertEqual(names, ["cpu_memory_log.txt", "ledger-rank-0.jsonl"])
        rows = self.check_cpu_log(["out", "memory", "cpu_memory_log.txt"])
        self.assertEqual([row[0] for row in rows], sorted(row[0] for row in rows))
        self.check_summary("out", rows)
        records = self.of_ranks("out/memory", 0)
        self.assertEqual(len(records), len(rows))
        self.assertEqual((records[0]["step"], records[0]["phase"]), (0, "load"))
        self.assertNotIn("parameters", records[0]["device"])
        self.assertEqual((records[-1]["step"], records[-1]["phase"]), (4, "save"))
        self.assertGreater(records[-1]["device"]["parameters"], 0)
        out = self.succeeds("memory", "out", "--cpu-only")
        self.assertEqual(out, cpu_lines(self.path("out", "memory")))

    def test_changes_no_result_and_keeps_the_logs_of_an_earlier_start(self):
        self.train("plain", "--max-steps", "4", job=GPT)
        for _ in range(2):  # the second start finds a complete run in out
            self.train("out", "--max-steps", "4", "--memory-log", "logs:0.5", job=GPT)
        self.assert_same_results("out", "plain")
        self.assertTrue({"cpu_memory_log.txt", "cpu_memory_log.1.txt", "ledger-rank-0.jsonl", "ledger-rank-0.1.jsonl"}
                        <= set(os.listdir(self.path("logs"))))
        out = self.succeeds("memory", "logs", "--cpu-only")
        self.assertIn("CPU Memory Usage (cpu_memory_log.1)\n", out)
        self.assertIn("CPU Memory Usage (cpu_memory_log)\n", out)

    def test_a_full_disk_ends_the_log_and_not_the_run(self):
        # The fourth write and all later writes fail. The first three writes are the header of cpu_memory_log.txt, and
        # the first sample of each of the two logs: cpu_memory_log.txt and ledger-rank-0.jsonl.
        env = {"LD_PRELOAD": LIBRARY, "FAULT_CALLS": "pwrite", "FAULT_PATH": "/logs/", "FAULT_CALL": "4",
               "FAULT_TIMES": str(10 ** 6), "FAULT_KIND": f"error {errno.ENOSPC}"}
        words = [*OF_ANY_DEVICE, "--device", "cpu", "--max-steps", "2", "--output-dir", "out"]
        code, _, err = self.run_tessera("train", *words, "--memory-log", "logs:0.01", env=env)
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("warning"), 1, err)
        self.assertIn("warning: the memory log ends here, and the run continues: logs/cpu_memory_log.txt: ", err)
        self.assertIn("No space left on device", err)
        self.assertEqual(self.json_of("out", "summary.json")["memory_log"]["cpu"]["peak_mb"],
                         float(self.read("logs", "cpu_memory_log.txt").split()[-2]))

    def test_folders_that_cannot_be_used(self):
        self.write("file", "")
        code, _, err = self.run_tessera("train", *GPT, "--output-dir", "out", "--memory-log", "file/logs")
        self.assertEqual(code, 1)
        self.assertIn("file", err)
        for place, folder in [("logs:5s", None), ("a:b", None), ("a:", None), ("a:b/c", "a:b/c"), ("a:b/c:2", "a:b/c"),
                              ("a:5/", "a:5/"), ("a:b:5", "a:b"), ("x y/ü:ü/:3", "x y/ü:ü/")]:
            words = ["config", "train", "--memory-log", place]
            if folder is None:
                seconds = place[place.index(":") + 1:]
                self.fails(2, f'--memory-log: "{seconds}" is not a number of seconds from 0.01 to 86400. If the name of the '
                              f'folder contains a colon, write the seconds too: "{place}:5"', *words)
            else:
                self.assertRegex(self.succeeds(*words), rf'(?m)^memory_log = "{folder}:\d" ')

    def test_figures_of_the_callbacks(self):
        self.train("out", "--max-steps", "4", "--batch-size", "2", "--grad-accum", "2", job=GPT)
        summary = self.json_of("out", "summary.json")
        callbacks = summary["callbacks"]
        if not ON_GPU:
            self.assertEqual(set(callbacks), {"avg_mem_alloc_MB", "avg_mem_reserved_MB", "train/steps_per_second_mean",
                                              "train/samples_per_second_mean"})
        self.assertLessEqual(callbacks["avg_mem_alloc_MB"] * 2 ** 20, summary["ledger_peak_bytes"]["total"])
        self.assertGreater(callbacks["avg_mem_alloc_MB"], 0)
        self.assertAlmostEqual(callbacks["train/samples_per_second_mean"] / callbacks["train/steps_per_second_mean"], 4)
        for record in self.metrics("out", "train"):
            self.assertAlmostEqual(record["timing"]["train/samples_per_second"]
                                   / record["timing"]["train/steps_per_second"], 4)


if __name__ == "__main__":
    main()
