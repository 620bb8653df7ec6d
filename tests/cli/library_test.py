"""Installs the library from the build folder, builds examples/ with the installed package, and runs them."""
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from tessera_cli import PROGRAM, CliTest, main, unless_sanitized

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(PROGRAM)
MODEL, TRAIN, EVAL = (os.path.join(ROOT, "recipes", "quickstart", name) for name in ("model", "train.json", "eval.json"))
EXAMPLES = ("finetune", "plan", "generate", "own_loss", "own_data")
CXX = os.environ.get("CXX", "g++")


def run(*words, **options):
    """Standard output and standard error of a program that must succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "libtessera.a")), "the build has no library")
@unless_sanitized
class LibraryTest(CliTest):
    def setUp(self):
        super().setUp()
        self.prefix = os.path.join(self.folder, "prefix")
        run("cmake", "--install", BUILD, "--prefix", self.prefix)
        found = subprocess.run(["find", self.prefix, "-name", "libtessera.so"], stdout=subprocess.PIPE, text=True)
        self.libraries = os.path.dirname(found.stdout.strip())

    def build_examples(self, *options):
        folder = os.path.join(self.folder, "examples" + "".join(options))
        # The examples come from the installed folder, so the test also finds a file that is not installed.
        source = os.path.join(self.prefix, "share", "doc", "tessera", "examples")
        # The generator of this build: a machine may have ninja, but not make.
        cache = Path(BUILD, "CMakeCache.txt").read_text()
        generator, make = (re.search(rf"^{key}:\w+=(.*)$", cache, re.MULTILINE)[1]
                           for key in ("CMAKE_GENERATOR", "CMAKE_MAKE_PROGRAM"))
        run("cmake", "-S", source, "-B", folder, "-G", generator, f"-DCMAKE_MAKE_PROGRAM={make}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", *options)
        run("cmake", "--build", folder, "-j2")
        return {name: os.path.join(folder, name) for name in EXAMPLES}

    def test_examples_with_the_shared_library(self):
        example = self.build_examples()
        runs = os.path.join(self.folder, "runs")

        out, err = run(example["finetune"], MODEL, TRAIN, EVAL, os.path.join(runs, "finetune"))
        losses = [float(loss) for loss in re.findall(r"^step \d+ of 12: loss ([\d.]+)", out, re.MULTILINE)]
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(len(re.findall(r"^after step (?:6|12): evaluation loss", out, re.MULTILINE)), 2)
        self.assertEqual(err, "")
        model = os.path.join(runs, "finetune", "model")

        # The same run of the program has the same losses and the same weights.
        self.succeeds("train", "--model", MODEL, "--dataset", TRAIN, "--eval-dataset", EVAL, "--output-dir",
                      os.path.join(runs, "program"), "--learning-rate", "3e-4", "--batch-size", "8", "--max-length", "256",
                      "--max-steps", "12", "--warmup-steps", "4", "--eval-size", "16", "--eval-steps", "6", "--seed", "1",
                      "--objective", "completion")
        with open(os.path.join(model, "model.safetensors"), "rb") as own, \
                open(os.path.join(runs, "program", "model", "model.safetensors"), "rb") as other:
            self.assertEqual(own.read(), other.read())

        out, err = run(example["generate"], model, "Ada lives in", "12")
        self.assertEqual(out, self.succeeds("generate", "--model", model, "--prompt", "Ada lives in", "--max-new-tokens",
                                            "12"))
        self.assertRegex(err, r"^\d+ tokens after a prompt of \d+, in [\d.]+ s\n$")

        out, _ = run(example["plan"], MODEL)
        code, planned, err = self.run_tessera("plan", "--model", MODEL, "--batch-size", "8", "--max-length", "256",
                                              "--device", "cpu", "--threads", "2", "--json")
        plan = json.loads(planned)
        self.assertEqual(out.splitlines()[0], f"{plan['peak_bytes']} bytes at most")
        bytes_of = {name: int(value) for name, value in re.findall(r"^  (\w+) +(\d+)$", out, re.MULTILINE)}
        self.assertEqual(bytes_of, {k: v for k, v in plan["first_rank"]["device"]["step"].items() if k in bytes_of})
        self.assertIn("parameters", bytes_of)

        plain, _ = run(example["own_loss"], MODEL, TRAIN, os.path.join(runs, "plain"), "0")
        smoothed, _ = run(example["own_loss"], MODEL, TRAIN, os.path.join(runs, "smoothed"), "0.1")
        self.succeeds("train", "--model", MODEL, "--dataset", TRAIN, "--output-dir", os.path.join(runs, "built-in"),
                      "--max-steps", "4", "--max-length", "256", "--precision", "fp32", "--device", "cpu", "--seed", "1",
                      "--save-strategy", "no", "--logging-steps", "1")
        with open(os.path.join(runs, "built-in", "metrics.jsonl")) as file:
            built_in = [json.loads(line)["loss"] for line in file if '"kind": "train"' in line]
        self.assertEqual([float(line) for line in plain.split()], built_in)
        self.assertEqual(len(smoothed.split()), 4)
        self.assertNotEqual(smoothed, plain)

        out, _ = run(example["own_data"], MODEL, os.path.join(runs, "rows"))
        losses = [float(loss) for loss in re.findall(r"^epoch \d: loss ([\d.]+)", out, re.MULTILINE)]
        self.assertEqual(len(losses), 3)
        self.assertLess(losses[-1], losses[0])
        self.assertIn("96 samples", out)

        # An error of the library is an exception.
        failed = subprocess.run([example["plan"], "nothing"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stderr, "^(usage|input) error: ")

    def test_static_library(self):
        example = self.build_examples("-DLINK_STATIC=ON")
        out, _ = run(example["plan"], MODEL)
        self.assertRegex(out, r"^\d+ bytes at most\n")
        needed, _ = run("readelf", "-d", example["plan"])
        self.assertNotIn("libtessera", needed)

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_pkg_config(self):
        folders = [os.path.join(self.libraries, "pkgconfig"), *os.environ.get("PKG_CONFIG_PATH", "").split(":")]
        environment = {**os.environ, "PKG_CONFIG_PATH": ":".join(folders)}
        flags, _ = run("pkg-config", "--cflags", "--libs", "tessera", env=environment)
        program = os.path.join(self.folder, "plan")
        run(CXX, "-std=c++20", os.path.join(ROOT, "examples", "plan.cc"), "-o", program, *flags.split(),
            f"-Wl,-rpath,{self.libraries}")
        self.assertRegex(run(program, MODEL)[0], r"^\d+ bytes at most\n")
        version, _ = run("pkg-config", "--modversion", "tessera", env=environment)
        self.assertEqual(version.strip(), self.succeeds("--version").split()[1])

    def test_the_shared_library_exports_only_the_public_namespace(self):
        symbols, _ = run("nm", "-D", "--defined-only", "-C", os.path.join(self.libraries, "libtessera.so"))
        names = [line.split(maxsplit=2)[2] for line in symbols.splitlines()]
        public = re.compile(r"^((typeinfo|typeinfo name|vtable) for |\w[^(]*\b)?tessera::v0::")
        self.assertEqual([name for name in names if not public.search(name)], [])
        self.assertIn("tessera::v0::train(tessera::v0::Options const&, tessera::v0::Hooks const&)", names)
        dynamic, _ = run("readelf", "-d", os.path.join(self.libraries, "libtessera.so"))
        major, minor, _ = self.succeeds("--version").split()[1].split(".")
        self.assertIn(f"[libtessera.so.{major}.{minor}]", dynamic)

    def test_headers_have_no_types_of_other_libraries(self):
        folder = os.path.join(self.prefix, "include", "tessera")
        headers = sorted(os.listdir(folder))
        self.assertIn("version.h", headers)
        for header in headers:
            with open(os.path.join(folder, header)) as file:
                included = re.findall(r"#include <([^>]+)>", file.read())
            for name in included:
                self.assertTrue(re.fullmatch(r"tessera/\w+\.h|\w+", name), f"{header} includes <{name}>")
            # Each header compiles alone.
            run(CXX, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", "c++",
                f"-I{os.path.dirname(folder)}", "-include", f"tessera/{header}", "/dev/null")


@unittest.skipUnless(shutil.which("doxygen"), "no doxygen")
class PagesTest(CliTest):
    def test_doxygen_has_no_warnings(self):
        run("doxygen", "docs/Doxyfile", cwd=ROOT, env={**os.environ, "TESSERA_PAGES": self.folder})
        self.assertTrue(os.path.exists(os.path.join(self.folder, "html", "index.html")))


if __name__ == "__main__":
    main()
