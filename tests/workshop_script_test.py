#!/usr/bin/env python3
"""Tests bench/workshop.py with replacements for Tessera and for the peer program, hf_trainer.py."""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Replaces Tessera. The file RUNS contains a number: this many starts succeed, and the next start fails.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
left = int(open("RUNS").read())
open("RUNS", "w").write(str(left - 1))
if left == 0:
    sys.exit("error: no memory")
folder = sys.argv[sys.argv.index("--output-dir") + 1]
os.makedirs(folder + "/checkpoint-2")
with open(folder + "/summary.json", "w") as file:
    json.dump({"train_samples_per_second_steady": 30.0, "gpu": {"memory_bytes": {"peak": 2**21}},
               "ledger_peak_bytes": {"total": 2**20}}, file)
"""
PEER = """print("PEER " + '{"samples_per_s": 10, "used_MiB": 4, "loss": 1}')
"""


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, text in [("tessera", PROGRAM), ("hf_trainer.py", PEER), ("data.json", "[]")]:
            (self.folder / name).write_text(text, encoding="utf-8")
        os.chmod(self.folder / "tessera", stat.S_IRWXU)

    def measure(self, num_runs):
        (self.folder / "RUNS").write_text(str(num_runs), encoding="utf-8")
        done = subprocess.run([sys.executable, ROOT / "bench" / "workshop.py", "peers", "peers.json", "--program", "tessera",
                               "--data", "data.json", "--peers", ".", "--only", "deepspeed/baseline,zero_0", "--runs", "runs",
                               "--commit", "c", "--machine", "m"], cwd=self.folder, stderr=subprocess.PIPE, text=True,
                              stdout=subprocess.DEVNULL, timeout=60, check=False)
        return done, json.loads((self.folder / "peers.json").read_text(encoding="utf-8"))

    def test_an_existing_folder_named_peers_stays(self):
        own = self.folder / "runs" / "peers" / "deepspeed" / "baseline" / "mine"
        own.parent.mkdir(parents=True)
        own.write_text("x", encoding="utf-8")
        done, result = self.measure(2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["experiment"] for row in result["peers"]],
                         ["deepspeed/baseline", "deepspeed/deepspeed-single-gpu/zero_0"])
        self.assertEqual(result["peers"][0]["peer"]["samples_per_s"], 10)
        self.assertTrue(own.exists())
        self.assertEqual(sorted(os.listdir(self.folder / "runs")), ["deepspeed.json", "peers", "tokenizer"])

    def test_if_a_run_fails_the_earlier_results_are_kept(self):
        done, result = self.measure(1)
        self.assertIn("error: no memory", done.stderr)
        self.assertEqual([row["experiment"] for row in result["peers"]], ["deepspeed/baseline"])
        self.assertEqual({key: result[key] for key in ["command", "commit", "machine"]},
                         {"command": "bench/workshop.py peers --data data.json --peers FOLDER", "commit": "c", "machine": "m"})
        self.assertEqual(sorted(os.listdir(self.folder / "runs")), ["tokenizer"])


if __name__ == "__main__":
    unittest.main()
