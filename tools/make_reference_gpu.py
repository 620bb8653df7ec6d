#!/usr/bin/env python3
"""Writes tessera/plan/reference_gpu.cc: the speeds of a measured GPU, from which those of other GPUs are derived.

    tools/make_reference_gpu.py MACHINE.json     MACHINE.json: the file of `tessera doctor --measure`
"""
import json
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "tessera/plan/reference_gpu.cc"


def main():
    machine = json.loads(Path(sys.argv[1]).read_text())
    products = "".join(f"    {{{p['type']}, {p['form']}, {p['rows']}, {p['in']}, {p['out']}, {p['flops_per_s'] / 1e12:.4g}e12}},\n"
                       for p in machine["products"])
    attention = "".join(
        f"    {{{a['type']}, {str(a['alibi']).lower()}, {a['head_dim']}, {a['length']}, {a['heads']}, "
        f"{a['forward_flops_per_s'] / 1e12:.4g}e12, {a['backward_flops_per_s'] / 1e12:.4g}e12}},\n" for a in machine["attention"])
    memory = "".join(f"    {{{m['bytes']}, {m['seconds']:.4g}}},\n" for m in machine["memory"])
    scalars = "".join(f"  machine.{key} = {machine[key]:.4g};\n" for key in (
        "launch_s", "to_device_bytes_per_s", "to_host_bytes_per_s", "copy_s", "host_bytes_per_s", "file_read_bytes_per_s",
        "file_write_bytes_per_s"))
    OUT.write_text(f"""// Made by tools/make_reference_gpu.py from a measured {machine['name']}. Do not edit.
#include "tessera/plan/known_machines.h"

namespace tessera {{

Machine reference_gpu() {{
  using enum Arithmetic;
  using enum ProductForm;
  static constexpr Machine::Product kProducts[] = {{
{products}  }};
  static constexpr Machine::Attention kAttention[] = {{
{attention}  }};
  static constexpr Machine::Memory kMemory[] = {{
{memory}  }};
  Machine machine;
  machine.name = "{machine['name']}";
  machine.source = "measured";
  machine.products.assign(std::begin(kProducts), std::end(kProducts));
  machine.attention.assign(std::begin(kAttention), std::end(kAttention));
  machine.memory.assign(std::begin(kMemory), std::end(kMemory));
  machine.num_multiprocessors = {machine['num_multiprocessors']};
{scalars}  return machine;
}}

}}  // namespace tessera
""")


if __name__ == "__main__":
    main()
