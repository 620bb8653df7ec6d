#!/usr/bin/env python3
"""Disassembles the objects of a build for several instruction sets. Only the objects of newer sets may have instructions
of these sets, and such an object may define only its entry for others: otherwise the linker could give an inline
function with such instructions to the complete program.
    vector_code_test.py FOLDER_OF_ROOMS"""
import re
import subprocess
import sys
import unittest
from pathlib import Path

FOLDER = Path(sys.argv.pop(1))
ENTRIES = {"base": "tessera_conversions", "ops": "tessera_cpu_kernels"}
# The names of VEX and EVEX instructions begin with v, except verr, verw and the vm* of virtualization. The names of
# instructions on masks begin with k. The listed ones are of BMI, LZCNT and MOVBE. (An older processor executes tzcnt
# as bsf, which gives the same result for numbers other than 0, so compilers use it freely.)
NEWER_THAN_V2 = re.compile(r"\t(?:v(?!err|erw|m)\w+|k(?:mov|or|and|xor|not|shift|add|test|unpck)\w+|andn|bextr|blsi|blsr|"
                           r"blsmsk|lzcnt|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe)\b")
NEWER_THAN_V3 = re.compile(r"%zmm|%k[0-7]\b|%[xy]mm(?:1[6-9]|2\d|3[01])\b|"
                           r"\tv(?:pternlog|permt2|permi2|pmullq|rndscale|getexp|getmant|scalef|range|reduce|fixupimm|fpclass|"
                           r"cvt\w*(?:u|qq)\w*2|cvt\w+2(?:u|qq)|psraq|prol|pror|pabsq|pmaxsq|pminsq|blendm|pblendm)")


def first_found(path, pattern):
    """The file, the function and the first instruction of an object or an archive that matches the pattern, or None.
    Leaves out the objects of instruction sets in an archive."""
    file = function = ""
    command = ["objdump", "-d", "--no-show-raw-insn", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if ":     file format" in line:
                file = line.split(":")[0]
            elif line.endswith(">:\n"):
                function = line.strip()
            elif pattern.search(line) and not (path.suffix == ".a" and re.search(r"_x86_64_v\d\.o$", file)):
                process.kill()
                return f"{path}: {file}: {function} {line.strip()}"
    assert process.returncode == 0, command
    return None


class VectorCode(unittest.TestCase):
    def test_objects_of_sets(self):
        objects = sorted(FOLDER.glob("*/*_x86_64_v?.o"))
        self.assertEqual(len(objects), 3 * len(ENTRIES))
        for path in objects:
            with self.subTest(path.name):
                room, level = re.fullmatch(r"(\w+)_x86_64_v(\d)\.o", path.name).groups()
                symbols = subprocess.run(["nm", "--defined-only", "--extern-only", str(path)], capture_output=True,
                                         text=True, check=True).stdout
                self.assertEqual(re.findall(r"\w+$", symbols, re.MULTILINE), [f"{ENTRIES[room]}_x86_64_v{level}"])
                if level != "4":
                    self.assertIsNone(first_found(path, NEWER_THAN_V2 if level == "2" else NEWER_THAN_V3))
                if level != "2":  # the pattern is right
                    self.assertIsNotNone(first_found(path, NEWER_THAN_V2 if level == "3" else NEWER_THAN_V3))

    def test_all_other_code(self):
        archives = sorted(FOLDER.glob("*/libtessera_*.a"))
        self.assertGreater(len(archives), 20)
        for path in archives:
            self.assertIsNone(first_found(path, NEWER_THAN_V2))


unittest.main()
