"""The instruction set of the CPU kernels: every set trains, a run records its set, and the program also runs on a
processor that has only the oldest one."""
import json
import os
import shutil
import subprocess
import unittest

from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED, JOB, USAGE, TinyJobTest

FACTS = json.loads(subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True, check=True).stdout)
BUILT, NEWEST = FACTS["build"]["instruction_sets"].split(), FACTS["cpu"]["instruction_set"]
USABLE = BUILT[:BUILT.index(NEWEST) + 1]
EMULATOR = shutil.which("qemu-x86_64")


class InstructionSets(TinyJobTest):
    def test_each_set_trains(self):
        """The losses of two sets differ only by the order of sums and by fused operations."""
        losses = {}
        for name in USABLE:
            self.train(name, "--instruction-set", name, "--epochs", "1")
            self.assertEqual(self.json_of(name, "summary.json")["instruction_set"], name)
            losses[name] = [record["loss"] for record in self.metrics(name, "train")]
        self.train("auto", "--epochs", "1")
        self.assertEqual(self.json_of("auto", "summary.json")["instruction_set"], NEWEST)
        self.assertEqual([record["loss"] for record in self.metrics("auto", "train")], losses[NEWEST])
        for name, values in losses.items():
            for value, expected in zip(values, losses[NEWEST], strict=True):
                self.assertAlmostEqual(value, expected, delta=1e-4 * expected, msg=name)

    def test_a_set_that_the_machine_lacks(self):
        for name in {"x86-64-v2", "x86-64-v3", "x86-64-v4"} - set(USABLE):
            reason = f"processor lacks {name}" if name in BUILT else f"this program has no code for {name}"
            code, _, err = self.run_tessera("train", *JOB, "--output-dir", "out", "--instruction-set", name)
            self.assertEqual(code, USAGE, err)
            self.assertRegex(err, rf"error: --instruction-set: .*{reason}\. Use auto or {NEWEST}")

    @unittest.skipIf(len(USABLE) < 2, "this machine or this build has only one set")
    def test_a_resumed_run_with_another_set(self):
        words = ["--epochs", "2", "--save-strategy", "steps", "--save-steps", "3"]
        self.train("out", *words, "--max-steps", "3", "--instruction-set", USABLE[0])
        code, _, err = self.run_tessera("train", *JOB, *words, "--output-dir", "out")
        self.assertEqual(code, 0, err)
        self.assertIn(f'The checkpoint was made with instruction_set = "{USABLE[0]}", and this run has "{NEWEST}". '
                      "The losses can differ in the last bits", err)
        self.assertEqual(self.json_of("out", "summary.json")["instruction_set"], NEWEST)

    @unittest.skipIf("TESSERA_TEST_SANITIZED" in os.environ or len(BUILT) < 2 or not EMULATOR,
                     "needs a build for several sets, and the package qemu-user")
    def test_the_oldest_processor(self):
        """The emulated processor has SSE4.2, but no AVX. It ends a program with an illegal instruction."""
        emulated = [EMULATOR, "-cpu", "Nehalem", PROGRAM]
        # OpenBLAS chooses its kernels itself, unless a variable says which.
        env = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
        run = subprocess.run([*emulated, "train", *EVALUATED, "--max-steps", "3", "--output-dir", "old"], env=env,
                             cwd=self.folder, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        self.assertEqual(self.json_of("old", "summary.json")["instruction_set"], "x86-64-v2")
        self.train("new", "--max-steps", "3", "--instruction-set", "x86-64-v2")
        old, new = (self.json_of(name, "summary.json")["train_loss"] for name in ("old", "new"))
        self.assertAlmostEqual(old, new, delta=1e-4 * new)


if __name__ == "__main__":
    main()
