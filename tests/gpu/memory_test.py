"""What NVML counts of a run is what its ledger booked, the driver's and NCCL's part included.

python3 tests/gpu/memory_test.py path/to/tessera, on a machine with 4 GPUs; on one with fewer, what those can do.
"""
import json
import os
import random
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from tessera_cli import main
from tiny_job import JOB, TinyJobTest, jsonl

MIB = 2 ** 20


class GpuMemory(TinyJobTest):
    def check(self, *words):
        """One run; its summary, and the loss of its first step."""
        self.train("out", *words, "--model", "bloom-560m", "--max-length", "512", "--resume", "none", "--overwrite", "--save-strategy",
                   "no", "--save-dtype", "bf16", "--device", "cuda", job=JOB)
        summary = self.json_of("out", "summary.json")
        booked = summary["ledger_peak_bytes"]["total"] / MIB
        seen = summary["gpu"]["process_memory_bytes"]["peak"] / MIB
        print(f"{' '.join(words)}: {booked:.0f} MiB booked, {seen:.0f} seen")
        self.assertLess(abs(seen - booked), 0.02 * booked)
        return summary, self.metrics("out", "train")[0]["loss"]

    def test_graphs_of_many_sizes(self):
        """Texts of all lengths, so that most sizes of batches come, each with its graphs."""
        source = random.Random(3)
        self.write("texts.jsonl", jsonl([{"text": " ".join(source.choices(["Oslo", "Lima", "baker"], k=source.randint(5, 400)))}
                                         for _ in range(1200)]))
        words = ["--dataset", "texts.jsonl", "--objective", "causal_lm", "--precision", "fp16", "--grad-accum", "4",
                 "--max-steps", "300", "--lr", "1e-5"]
        fused, loss = self.check(*words)
        single, loss_of_single = self.check(*words, "--fuse-micro-batches", "off")
        self.assertEqual((fused["fused_micro_batches"], single["fused_micro_batches"]), (True, False))
        # Of the same samples and weights; products of other sizes add up in another order. Later steps may differ by
        # which of them overflow while the loss scale falls.
        self.assertAlmostEqual(loss, loss_of_single, delta=1e-3 * loss_of_single)
        self.check(*words, "--offload", "optimizer", "--pin-memory", "--max-steps", "60")

    def test_is_the_ledger(self):
        gpus = len(json.loads(self.succeeds("doctor", "--json"))["cuda"]["gpus"])  # that CUDA_VISIBLE_DEVICES leaves
        for ranks, words in [(1, []), (1, ["--strategy", "zero2", "--offload", "optimizer", "--pin-memory"]),
                             (2, ["--strategy", "full_shard"]), (4, ["--strategy", "full_shard"]),
                             (4, ["--strategy", "no_shard"]),
                             (4, ["--strategy", "hybrid_shard", "--shard-group-size", "2"])]:
            if ranks > gpus:
                print(f"{ranks} x {' '.join(words)}: left out, {gpus} GPUs found")
                continue
            with self.subTest(ranks=ranks, words=words):
                self.check("--nproc", str(ranks), *words, "--precision", "bf16", "--batch-size", "4", "--max-steps", "40")


if __name__ == "__main__":
    main()
