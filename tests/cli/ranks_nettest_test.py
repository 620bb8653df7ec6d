"""Tests the verb `nettest`, the preflight of `train`, and the verb `doctor`, mostly with several ranks."""
import json
import os
import re
import subprocess
import unittest

import outputs_test
from outputs_test import keys_of
from ranks_job import COMMUNICATION_FAILED, MPIRUN, mpirun
from tessera_cli import CliTest, PROGRAM, RUN_LIMIT_S, main
from tiny_job import OUT_OF_MEMORY, USAGE, TinyJobTest, JOB

SMALL = ["nettest", "--device", "cpu", "--threads", "1", "--warmup", "1", "--iterations", "3", "--sizes", "8K,100K"]
TOO_SLOW, NO_RESULT = 46, 44  # exit codes that --workshop-exit-codes selects
ROW = r"^ +(\d+) +(\d+) +(float|half|bfloat16) +(sum|none) +(-1|0) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$"


PAGE = outputs_test.documented()


def keys_on_page(heading, *absent):
    """Returns the keys under a heading of docs/outputs.md, except keys whose meaning contains a text of `absent`."""
    return {key for key, meaning in PAGE[heading].items() if not any(text in meaning for text in absent)}


def rows_of(out):
    return re.findall("(?m)" + ROW, out)


class Nettest(CliTest):
    def test_the_table_of_nccl_tests(self):
        out = self.succeeds(*SMALL, "--nproc", "3")
        rows = rows_of(out)
        self.assertEqual([row[:5] for row in rows], [("8192", "2048", "float", "sum", "-1"),
                                                     ("102400", "25600", "float", "sum", "-1")])
        self.assertRegex(out, r"# +size +count +type +redop +root +time +algbw +busbw #wrong\n")
        self.assertIn("3 ranks on 1 node, ", out)
        self.assertRegex(out, r"#  node 0: \S+, ranks 0-2\n")
        for row in rows:
            self.assertEqual(row[8], "0")
        last = out.splitlines()[-1]
        self.assertRegex(last, r"^# Avg bus bandwidth    : [\d.e+-]+$")
        mean = sum(float(row[7]) for row in rows) / 2  # the bandwidths in rows are rounded to two decimals
        self.assertAlmostEqual(float(last.split()[-1]), mean, delta=0.006)
        self.assertIn("# Out of bounds values : 0 OK\n", out)

    def test_every_collective_and_type(self):
        for dtype, name in ("fp32", "float"), ("bf16", "bfloat16"), ("fp16", "half"):
            out = self.succeeds(*SMALL, "--nproc", "2", "--collective", "all", "--dtype", dtype)
            self.assertEqual([row[2:5] for row in rows_of(out)],
                             [(name, redop, root) for redop, root in [("sum", "-1"), ("none", "-1"), ("sum", "-1"),
                                                                      ("none", "0")] for _ in range(2)])
            self.assertEqual(out.count("# Avg bus bandwidth"), 1)
            self.assertEqual(re.findall(r"(?m)^# (\w+)$", out), ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])

    def test_json_and_a_file(self):
        report = json.loads(self.succeeds(*SMALL[:-2], "--nproc", "2", "--min-bytes", "4K", "--max-bytes", "64K",
                                          "--step-factor", "4", "--collective", "reduce_scatter", "--precision", "bf16",
                                          "--json", "--output-dir", "out"))
        with open(os.path.join(self.folder, "out", "nettest.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), report)
        self.assertEqual((report["ranks"], report["device"], report["dtype"]), (2, "cpu", "bf16"))
        self.assertEqual([row["size_bytes"] for row in report["results"]], [4096, 16384, 65536])
        self.assertEqual([row["count"] for row in report["results"]], [1024, 4096, 16384])
        for row in report["results"]:
            self.assertEqual(row["wrong"], 0)
            self.assertAlmostEqual(row["algbw"], row["size_bytes"] / row["time_us"] / 1e3, delta=1e-6 * row["algbw"])
            self.assertAlmostEqual(row["busbw"], row["algbw"] / 2, delta=1e-9 * row["algbw"])
        self.assertTrue(report["passed"])
        self.assertEqual(keys_of(report), keys_on_page("nettest --json", "--pairs"))

    def test_pairs(self):
        out = self.succeeds(*SMALL, "--nproc", "3", "--pairs")
        self.assertEqual(len(re.findall(r"rank \d \(\S+\)[^\n]*rank \d \(\S+\)[^\n]*\| +0 \|", out)), 3, out)
        self.assertRegex(out, r"# Slowest pair         : rank \d \(\S+\) and rank \d \(\S+\), \S+ GB/s\n")
        self.assertRegex(out, r"# Slowest on average   : rank \d \(\S+\), mean of its pairs \S+ GB/s\n")
        report = json.loads(self.succeeds(*SMALL, "--nproc", "3", "--pairs", "--json"))
        self.assertEqual([(r["first"][:6], r["second"][:6]) for r in report["results"]],
                         [("rank 0", "rank 1"), ("rank 0", "rank 2"), ("rank 1", "rank 2")])
        least = min(report["results"], key=lambda r: r["busbw"])
        self.assertEqual(report["slowest_pair"], [least["first"], least["second"]])
        self.assertEqual(keys_of(report), keys_on_page("nettest --json"))
        code, _, err = self.run_tessera(*SMALL, "--nproc", "2", "--pairs", "--min-busbw", "1e6")
        self.assertEqual(code, COMMUNICATION_FAILED, err)

    def test_a_limit_that_is_missed(self):
        words = [*SMALL, "--nproc", "2", "--min-busbw"]
        self.succeeds(*words, "1e-9")
        for more, expected in ([], COMMUNICATION_FAILED), (["--workshop-exit-codes"], TOO_SLOW):
            code, out, err = self.run_tessera(*words, "1e6", *more)
            self.assertEqual(code, expected, err)
            self.assertEqual(len(rows_of(out)), 2)  # prints the table although the bandwidth is too low
            self.assertRegex(err, r"^error: nettest: the bus bandwidth \S+ GB/s is below --min-busbw 1000000.0 GB/s. Run ")
            self.assertEqual(err.count("\n"), 1)
        self.succeeds(*words, "1e-9", "--workshop-exit-codes")

    def test_under_mpirun(self):
        done = subprocess.run([*MPIRUN, "-n", "2", PROGRAM, *SMALL, "--min-busbw", "1e6", "--workshop-exit-codes"],
                              cwd=self.folder, env=mpirun.clean_environment(), timeout=RUN_LIMIT_S, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, TOO_SLOW, done.stderr.decode())
        self.assertEqual(len(rows_of(done.stdout.decode())), 2)

    def test_a_failing_rank_gives_no_result(self):
        library = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
        env = {"LD_PRELOAD": library, "FAULT_CALLS": "process_vm_readv", "FAULT_RANK": "1", "FAULT_CALL": "40",
               "FAULT_KIND": "signal 9"}
        for more, expected in ([], COMMUNICATION_FAILED), (["--workshop-exit-codes"], NO_RESULT):
            code, out, err = self.run_tessera(*SMALL, "--nproc", "2", "--iterations", "200", *more, env=env)
            self.assertEqual(code, expected, err)
            self.assertNotIn("# Avg bus bandwidth", out)
            self.assertRegex(err, r"^error: rank 1 was killed by signal 9 \(Killed\)|^error: rank 1 was killed, or ended")

    def test_bad_input(self):
        self.fails(USAGE, "nettest: needs at least two ranks, but the run has one", *SMALL)
        two = [*SMALL[:-2], "--nproc", "2"]
        self.fails(USAGE, '--collective: unknown collective "alltoall". Write all, or a list of: all_reduce,', *two,
                   "--collective", "all_reduce,alltoall")
        self.fails(USAGE, "--sizes: must be a number of bytes", *two, "--sizes", "8Q")
        self.fails(USAGE, "--sizes: contradicts max_bytes", *two, "--sizes", "8K", "--max-bytes", "1M")
        self.fails(USAGE, "--min-bytes: 2MiB is greater than max_bytes 1MiB", *two, "--min-bytes", "2M", "--max-bytes", "1M")
        self.fails(OUT_OF_MEMORY, "--sizes: the buffer for the messages needs 900 TiB", *two, "--sizes", "900T")
        code, _, err = self.run_tessera(*two, "--sizes", "900T", "--workshop-exit-codes")
        self.assertEqual(code, NO_RESULT, err)


class Preflight(TinyJobTest):
    def test_its_result_is_in_the_summary(self):
        code, _, err = self.run_tessera("train", *JOB, "--max-steps", "2", "--nproc", "2", "--output-dir", "out", "--preflight",
                                        "nettest", "--preflight-min-busbw", "1e-9", env={"NCCL_ALGO": "Tree"})
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"(?m)^Preflight: all_reduce of 16.0 MiB among 2 ranks: bus bandwidth \S+ GB/s, 0 wrong")
        summary = self.json_of("out", "summary.json")
        result = summary["preflight"]
        self.assertEqual((result["check"], result["collective"], result["wrong"]), ("nettest", "all_reduce", 0))
        self.assertGreater(result["busbw"], 0)
        self.assertEqual({"preflight." + key for key in result},
                         {key for key in PAGE["summary.json"] if key.startswith("preflight.")} - {"preflight.skipped"})
        self.assertEqual(summary["environment"]["NCCL_ALGO"], "Tree")
        self.assertNotIn("orte", json.dumps(summary["environment"]))
        # The preflight does not change the results of training.
        self.train("plain", "--max-steps", "2", "--nproc", "2", job=JOB)
        self.assert_same_results("out", "plain")
        self.assertNotIn("preflight", self.json_of("plain", "summary.json"))

    def test_its_failure_ends_the_run_before_anything_is_written(self):
        code, _, err = self.run_tessera("train", *JOB, "--nproc", "2", "--output-dir", "out", "--preflight", "nettest",
                                        "--preflight-min-busbw", "1e6")
        self.assertEqual(code, COMMUNICATION_FAILED, err)
        self.assertRegex(err, r"error: rank \d: --preflight nettest: the bus bandwidth \S+ GB/s is below "
                              r"--preflight-min-busbw 1000000.0 GB/s. Run tessera nettest --pairs")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_of_one_rank_is_skipped(self):
        self.train("out", "--max-steps", "1", "--preflight", "nettest", "--preflight-min-busbw", "1e6", job=JOB)
        self.assertEqual(self.json_of("out", "summary.json")["preflight"],
                         {"check": "nettest", "skipped": "there is one rank"})

    def test_a_limit_alone(self):
        self.fails(USAGE, "--preflight-min-busbw: has no effect without a preflight. Add --preflight nettest", "train", *JOB,
                   "--output-dir", "out", "--preflight-min-busbw", "5")


class Doctor(CliTest):
    def test_one_summary_for_all_ranks(self):
        os.mkdir(os.path.join(self.folder, "data"))
        words = ["doctor", "--nproc", "2", "--output-dir", "runs/new", "--shared", "data"]
        out = self.succeeds(*words, env={"UCX_TLS": "tcp"})
        self.assertIn("2 ranks on 1 host\n", out)
        self.assertIn("ranks 0-1", out)
        self.assertRegex(out, r"  UCX_TLS +tcp\n")
        self.assertEqual(out.count(": every rank can write there, and rank 0 and the other ranks see each other's "
                                   "files\n"), 2)
        self.assertEqual((os.listdir(self.folder), os.listdir(os.path.join(self.folder, "data"))), (["data"], []))
        report = json.loads(self.succeeds(*words, "--json", env={"UCX_TLS": "tcp"}))
        self.assertEqual((report["ranks"], report["problems"], report["environment"]["UCX_TLS"]), (2, [], "tcp"))
        self.assertEqual(report["hosts"][0]["ranks"], [0, 1])
        # The page describes every variable under one key, environment.VARIABLE, and every GPU under hosts[].gpus.
        report["environment"], report["hosts"][0]["gpus"] = {"VARIABLE": 1}, 1
        self.assertEqual(keys_of(report), keys_on_page("doctor --json of several ranks"))
        self.assertEqual([folder["shared"] for folder in report["folders"]], [True, True])
        # Neither runs/new nor runs exists, so doctor tests the nearest parent that exists.
        self.assertEqual(report["folders"][0]["tested"], os.path.realpath(self.folder))
        self.assertEqual(report["hosts"][0]["clock_offset_s"], 0)

    def test_a_folder_that_one_rank_cannot_write(self):
        library = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
        env = {"LD_PRELOAD": library, "FAULT_CALLS": "open_write", "FAULT_PATH": ".tessera-doctor-", "FAULT_RANK": "1",
               "FAULT_CALL": "1", "FAULT_KIND": "error 30"}
        code, out, err = self.run_tessera("doctor", "--nproc", "2", "--shared", ".", env=env)
        self.assertEqual((code, err), (1, ""), out)
        self.assertRegex(out, r"problem: \S+ is not shared by all ranks: rank 1 on \S+: .*Read-only file system")
        self.assertEqual(os.listdir(self.folder), [])

    @unittest.skipUnless(mpirun.IS_THERE, "needs mpirun")
    def test_variables_and_programs_that_differ(self):
        copy = os.path.join(self.folder, "copy")
        with open(PROGRAM, "rb") as source, open(copy, "wb") as target:
            target.write(source.read() + b"another build")
        os.chmod(copy, 0o755)
        variable = ["-x", "UCX_TLS=tcp"] if mpirun.IS_OPEN_MPI else ["-env", "UCX_TLS", "tcp"]
        done = subprocess.run([*MPIRUN, "-n", "1", *variable, PROGRAM, "doctor", ":", "-n", "1", copy, "doctor"],
                              cwd=self.folder, env=mpirun.clean_environment(), timeout=RUN_LIMIT_S, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out = done.stdout.decode()
        self.assertEqual(done.returncode, 1, out + done.stderr.decode())
        self.assertRegex(out, r"problem: the program's file differs: \w+ on \S+ \(rank 0\); \w+ on \S+ \(rank 1\)\. Other commands refuse")

    def test_one_rank_and_a_shared_folder(self):
        self.assertIn("shared\n", self.succeeds("doctor", "--shared", "."))
        code, out, _ = self.run_tessera("doctor", "--json", "--shared", "/proc/nothing")
        self.assertEqual(code, 1)
        self.assertFalse(json.loads(out)["shared"]["writable"])


if __name__ == "__main__":
    main()
