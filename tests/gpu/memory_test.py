"""What NVML counts of a run is what its ledger booked, the driver's and NCCL's part included.

python3 tests/gpu/memory_test.py path/to/tessera, on a machine with 4 GPUs; on one with fewer, what those can do.
"""
import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from tessera_cli import main
from tiny_job import JOB, TinyJobTest

MIB = 2 ** 20


class GpuMemory(TinyJobTest):
    def test_is_the_ledger(self):
        gpus = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.count("GPU ")
        for ranks, words in [(1, []), (1, ["--strategy", "zero2", "--offload", "optimizer", "--pin-memory"]),
                             (2, ["--strategy", "full_shard"]), (4, ["--strategy", "full_shard"]),
                             (4, ["--strategy", "no_shard"]),
                             (4, ["--strategy", "hybrid_shard", "--shard-group-size", "2"])]:
            if ranks > gpus:
                print(f"{ranks} x {' '.join(words)}: left out, {gpus} GPUs found")
                continue
            with self.subTest(ranks=ranks, words=words):
                self.train("out", "--nproc", str(ranks), *words, "--model", "bloom-560m", "--precision", "bf16",
                           "--max-length", "512", "--batch-size", "4", "--max-steps", "40", "--resume", "none",
                           "--save-strategy", "no", "--save-dtype", "bf16", "--device", "cuda", job=JOB)
                summary = self.json_of("out", "summary.json")
                booked = summary["ledger_peak_bytes"]["total"] / MIB
                seen = summary["gpu"]["process_memory_bytes"]["peak"] / MIB
                print(f"{ranks} x {' '.join(words)}: {booked:.0f} MiB booked, {seen:.0f} seen")
                self.assertLess(abs(seen - booked), 0.02 * booked)


if __name__ == "__main__":
    main()
