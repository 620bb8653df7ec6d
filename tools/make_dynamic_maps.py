#!/usr/bin/env python3
"""Writes tests/unit/base/dynamic_maps.json: the maps of bitsandbytes for values of 8 bits, signed and unsigned.

    python3 -m venv /tmp/maps && /tmp/maps/bin/pip install torch bitsandbytes
    /tmp/maps/bin/python tools/make_dynamic_maps.py
"""
import json
import pathlib

import bitsandbytes
from bitsandbytes.functional import create_dynamic_map

maps = {name: [float(number) for number in create_dynamic_map(signed=name == "signed")] for name in ["signed", "unsigned"]}
target = pathlib.Path(__file__).parent.parent / "tests/unit/base/dynamic_maps.json"
target.write_text(json.dumps({"bitsandbytes": bitsandbytes.__version__, **maps}).replace('"signed"', '\n"signed"')
                  .replace('"unsigned"', '\n"unsigned"') + "\n")
