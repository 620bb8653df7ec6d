"""The memory that NVML reports for a run differs by less than 2 % from the run's ledger.

Both numbers include the memory of the driver and of NCCL. The ledger has fixed estimates for this memory.

Run `python3 tests/gpu/memory_test.py path/to/tessera` on a machine with 4 GPUs. With fewer GPUs it skips some cases.
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
    def check(self, *arguments):
        """Trains once. Returns the summary of the run and the loss of its first step."""
        self.train("out", *arguments, "--model", "bloom-560m", "--max-length", "512", "--resume", "none", "--overwrite",
                   "--save-strategy", "no", "--save-dtype", "bf16", "--device", "cuda", job=JOB)
        summary = self.json_of("out", "summary.json")
        booked = summary["ledger_peak_bytes"]["total"] / MIB
        seen = summary["gpu"]["process_memory_bytes"]["peak"] / MIB
        print(f"{' '.join(arguments)}: {booked:.0f} MiB booked, {seen:.0f} seen")
        self.assertLess(abs(seen - booked), 0.02 * booked)
        return summary, self.metrics("out", "train")[0]["loss"]

    def test_graphs_of_many_sizes(self):
        """Texts of many lengths give many batch sizes, and each size has its own CUDA graphs."""
        source = random.Random(3)
        self.write("texts.jsonl", jsonl([{"text": " ".join(source.choices(["Oslo", "Lima", "baker"], k=source.randint(5, 400)))}
                                         for _ in range(1200)]))
        arguments = ["--dataset", "texts.jsonl", "--objective", "causal_lm", "--precision", "fp16", "--grad-accum", "4",
                     "--max-steps", "300", "--lr", "1e-5"]
        fused, loss = self.check(*arguments)
        single, loss_of_single = self.check(*arguments, "--fuse-micro-batches", "off")
        self.assertEqual((fused["fused_micro_batches"], single["fused_micro_batches"]), (True, False))
        # In the first step, both runs have the same samples and weights. Their matrix products have different sizes and
        # therefore add in different orders, so the losses differ slightly. Later losses may differ more: while the loss
        # scale falls, the gradients of the two runs may overflow at different steps.
        self.assertAlmostEqual(loss, loss_of_single, delta=1e-3 * loss_of_single)
        self.check(*arguments, "--offload", "optimizer", "--pin-memory", "--max-steps", "60")

    def test_is_the_ledger(self):
        gpus = len(json.loads(self.succeeds("doctor", "--json"))["cuda"]["gpus"])  # only GPUs in CUDA_VISIBLE_DEVICES
        for ranks, arguments in [(1, []), (1, ["--strategy", "zero2", "--offload", "optimizer", "--pin-memory"]),
                             (2, ["--strategy", "full_shard"]), (4, ["--strategy", "full_shard"]),
                             (4, ["--strategy", "no_shard"]),
                             (4, ["--strategy", "hybrid_shard", "--shard-group-size", "2"])]:
            if ranks > gpus:
                print(f"{ranks} x {' '.join(arguments)}: skipped, {gpus} GPUs found")
                continue
            with self.subTest(ranks=ranks, arguments=arguments):
                self.check("--nproc", str(ranks), *arguments, "--precision", "bf16", "--batch-size", "4",
                           "--max-steps", "40")


if __name__ == "__main__":
    main()
