"""The memory that NVML reports for a run differs by less than 2 % from the run's ledger, and a run that is planned to
fit into a GPU's free memory does fit.

The numbers include the memory of the driver and of NCCL. The ledger has fixed estimates for this memory.

Run `python3 tests/gpu/memory_test.py path/to/tessera` on a machine with 4 GPUs. With fewer GPUs it skips some cases.
"""
import contextlib
import json
import os
import random
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from tessera_cli import main
from tiny_job import HAS_FLOAT8, JOB, TinyJobTest, jsonl

MIB = 2 ** 20


# Takes all free memory of the first GPU except argv[1] bytes, prints how many bytes are left, and keeps the others until
# its standard input ends.
HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    if code: sys.exit(f"error {code} of the driver")
free, total, context, at, device = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
measure = lambda: check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
measure()
page = 2 << 20
check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t((free.value - int(sys.argv[1])) // page * page)))
measure()
print(free.value, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def only(free):
    """Leaves `free` bytes of the GPU, rounded up to a page of the driver. Yields the bytes."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(free)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as holder:
        yield int(holder.stdout.readline())
        holder.stdin.close()


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

    def test_a_plan_that_fits_runs(self):
        """Runs drawn at random, each with exactly the memory of its plan: the rest of the GPU is in use."""
        source = random.Random(7)
        for turn in range(8):
            words = [*JOB, "--model", source.choice(["bloom-560m", "llama-3.2-1b"]), "--precision", "bf16", "--max-steps", "3",
                     "--max-length", source.choice(["256", "512"]), "--batch-size", str(source.randint(1, 8)), "--grad-accum",
                     str(source.randint(1, 3)), "--activation-checkpointing", source.choice(["none", "2", "block", "mlp=3"]),
                     "--strategy", "full_shard", "--offload",
                     source.choice(["none", "none", "optimizer=3", "optimizer,gradients=5", "parameters=2,optimizer"]),
                     "--optimizer-states", source.choice(["fp32", "bf16", "8bit"]), "--save-strategy", "no", "--save-dtype", "bf16",
                     "--matmul-precision", source.choice(["as-precision", "fp8" if HAS_FLOAT8 else "as-precision"]), "--fuse-micro-batches"]
            fuse = source.choice(["auto", "off"])
            words.append(fuse)
            with self.subTest(words=words):
                plan = json.loads(self.succeeds("plan", *words, "--json"))
                peak = plan["first_rank"]["device_peak_bytes"]
                with only(peak) as left:
                    self.assertLess(left - peak, 2 * (2 << 20))
                    self.succeeds("train", *words, "--output-dir", f"out-{turn}")
                # With less memory, a run that may fuse its micro-batches may decide otherwise, and then fit.
                if fuse == "off":
                    with only(peak - (64 << 20)):
                        self.fails(4, "the run needs", "train", *words, "--output-dir", "refused")


if __name__ == "__main__":
    main()
