#!/usr/bin/env python3
"""Compares Tessera's attention kernels on a GPU with those of cuDNN and FlashAttention-2 in torch. See README.md.

    bench/cuda_attention.py [--ops-bench build/cuda_ops_bench] [--skip-alibi]

Attention is causal, in bf16. The first table is for 16 heads of 64 channels and sequences of 512 tokens, as in
bloom-560m. The second table is for N = 16,384 tokens and grouped heads, as in Llama. The times (µs) cover only kernels:
CUPTI measures torch's kernels, and cuda_ops_bench measures Tessera's kernels in a CUDA graph. For TFLOP/s, the forward
pass counts as 2·N·T·C FLOPs, and the backward pass as 2.5 times as many. T is the number of tokens of each sequence,
and C is the number of channels of all query heads together.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parents[1]
HEADS, HEAD_DIM, LENGTH, STEPS = 16, 64, 512, 20
# The times of these kernels do not count. torch runs them around attention, to copy gradients and to write zeros.
OTHERS = re.compile(r"at::native|Memset|Memcpy")


def alibi_mask(batch):
    """Returns the sum of ALiBi (the head's slope times the key's position) and the causal mask."""
    place = torch.arange(LENGTH, device="cuda")
    slopes = torch.tensor([2 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)], device="cuda")
    mask = (slopes[:, None, None] * place).expand(HEADS, LENGTH, LENGTH)
    return mask.masked_fill(place[None, :] > place[:, None], float("-inf")).to(torch.bfloat16).expand(batch, -1, -1, -1)


def theirs(batch, backend, alibi, length=LENGTH, heads=HEADS, kv_heads=HEADS, head_dim=HEAD_DIM):
    """Returns the time of torch's forward pass and the time of its backward pass, in µs."""
    q, k, v = (torch.randn(batch, n, length, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for n in (heads, kv_heads, kv_heads))
    d_o, mask = torch.randn_like(q), alibi_mask(batch) if alibi else None

    def step():
        with sdpa_kernel(backend):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None,
                                                                 enable_gqa=kv_heads != heads)
        torch.autograd.grad(o, (q, k, v), d_o)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    times = {event.key: event.self_device_time_total / STEPS for event in profiled.key_averages()
             if event.self_device_time_total and not OTHERS.search(event.key)}
    forward = sum(time for name, time in times.items() if re.search(r"fprop|fwd|sdpa.*forward", name))
    return forward, sum(times.values()) - forward


def ours(program):
    """Runs cuda_ops_bench. Returns its times in µs: {tokens: [forward, backward]} for the first table, and
    {(length, heads, kv_heads, head_dim): [forward, backward]} for the second table."""
    done = subprocess.run([program, "attention", "bf16"], capture_output=True, text=True, check=True)
    times, grouped = {}, {}
    for tokens, us in re.findall(r"^attention (?:forward|backward) (\d+) {2,}([\d.]+)", done.stdout, re.M):
        times.setdefault(int(tokens), []).append(float(us))
    for *shape, us in re.findall(r"^attention (?:forward|backward) \d+ x (\d+), (\d+)/(\d+) heads of (\d+)\s+([\d.]+)",
                                 done.stdout, re.M):
        grouped.setdefault(tuple(map(int, shape)), []).append(float(us))
    return times, grouped


def print_grouped(mine):
    tokens = 16384
    print("\n| sequences | heads | | forward µs | TFLOP/s | backward µs | TFLOP/s |\n|---|---|---|---|---|---|---|")
    for (length, heads, kv_heads, head_dim), found in mine.items():
        if len(found) != 2:
            continue
        flops = 2 * tokens * length * heads * head_dim
        rows = [("Tessera", *found)]
        for name, backend, same_bits in (("cuDNN", SDPBackend.CUDNN_ATTENTION, False),
                                         ("cuDNN, deterministic", SDPBackend.CUDNN_ATTENTION, True),
                                         ("FlashAttention-2", SDPBackend.FLASH_ATTENTION, False)):
            torch.use_deterministic_algorithms(same_bits, warn_only=True)
            try:
                rows.append((name, *theirs(tokens // length, backend, False, length, heads, kv_heads, head_dim)))
            except RuntimeError as error:
                print(f"{name}, heads of {head_dim}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        torch.use_deterministic_algorithms(False)
        for name, forward, backward in rows:
            rates = [flops * factor / us / 1e6 if us else 0 for factor, us in ((1, forward), (2.5, backward))]
            print(f"| {tokens // length} x {length} | {heads}/{kv_heads} of {head_dim} | {name} | {forward:.1f} | "
                  f"{rates[0]:.0f} | {backward:.1f} | {rates[1]:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops-bench", default=ROOT / "build/cuda_ops_bench", type=Path)
    parser.add_argument("--skip-alibi", action="store_true", help="only grouped heads")
    args = parser.parse_args()
    if not args.ops_bench.exists():
        sys.exit(f"error: {args.ops_bench} does not exist. Run tools/build.sh cuda_ops_bench")
    mine, grouped = ours(args.ops_bench)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}\n")
    if not args.skip_alibi:
        print("| tokens | | forward µs | backward µs |\n|---|---|---|---|")
        for tokens in (2048, 8192):
            rows = [("Tessera, ALiBi", *mine[tokens])]
            for name, backend, alibi in (("cuDNN, ALiBi as a mask", SDPBackend.CUDNN_ATTENTION, True),
                                         ("cuDNN, no ALiBi", SDPBackend.CUDNN_ATTENTION, False),
                                         ("FlashAttention-2, no ALiBi", SDPBackend.FLASH_ATTENTION, False)):
                rows.append((name, *theirs(tokens // LENGTH, backend, alibi)))
            for name, forward, backward in rows:
                print(f"| {tokens} | {name} | {forward:.1f} | {backward:.1f} |")
    print_grouped(grouped)


if __name__ == "__main__":
    main()
