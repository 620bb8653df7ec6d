#!/usr/bin/env python3
"""Checks that every file includes only what its room may include, and that vendors' headers stay in their folders."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "tessera"
# The table of docs/architecture.md. `app` alone wires everything.
MAY_INCLUDE = {
    "base": "",
    "device": "base",
    "ops": "base device",
    "comm": "base device",
    "data": "base",
    "model": "base device ops",
    "optim": "base device ops",
    "engine": "base device ops comm data model optim",
    "store": "base device comm model engine",
    "report": "base",
    "compare": "base report",
    "settings": "base device data optim engine",
    "load": "base device ops comm data model engine store report settings",
    "plan": "base device ops comm data model engine store report settings load",
    "train": "base device comm data model optim engine store report settings load plan",
    "launch": "base comm store report settings",
    "app": "base device ops comm data model optim engine store report settings load plan train launch compare",
}
# Headers that may appear only below these folders.
VENDORS = {
    r"cblas": ["ops/cpu"],
    r"cuda|cublas|cudnn|cub/": ["device/cuda", "ops/cuda", "comm/nccl"],
    r"mpi\.h": ["comm/mpi"],
    r"nccl": ["comm/nccl"],
    r"oniguruma|utf8proc": ["data"],
    r"CLI/": ["app"],
    r"toml": ["settings"],
}


def violations():
    files = sorted(p for p in ROOT.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"})
    if len(files) < 20:
        yield f"only {len(files)} source files found below {ROOT}"
    for path in files:
        relative = path.relative_to(ROOT)
        room = relative.parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            if not match:
                continue
            header = match[1]
            place = f"tessera/{relative}:{number}"
            if header.startswith("tessera/"):
                other = header.split("/")[1]
                if other != room and other not in MAY_INCLUDE[room].split():
                    yield f"{place}: {room} may not include {other} ({header})"
                continue
            for pattern, folders in VENDORS.items():
                if re.match(pattern, header) and not any(str(relative).startswith(f) for f in folders):
                    yield f"{place}: <{header}> belongs into {' or '.join(folders)}"


if __name__ == "__main__":
    found = list(violations())
    print("\n".join(found) or "every include keeps to the table")
    sys.exit(bool(found))
