"""Runs the tessera program for command-line tests: `python3 <name>_test.py path/to/tessera [TEST...]`."""
import os
import subprocess
import sys
import tempfile
import unittest

RUN_LIMIT_S = float(os.environ.get("TESSERA_TEST_RUN_LIMIT_S", 60))
unless_sanitized = unittest.skipIf("TESSERA_TEST_SANITIZED" in os.environ, "the sanitizer needs additional memory")
PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "tessera"


def flag_of(name, verb="train"):
    """The flag of a setting in a verb."""
    if name == "init_adapter" and verb in ("eval", "generate", "chat", "export"):
        return "--adapter"
    return "--format" if name == "dataset_format" else "--" + name.replace("_", "-")


class CliTest(unittest.TestCase):
    def setUp(self):
        # The folder is in memory if possible. Runs sync every checkpoint, so a busy disk would make the tests slow.
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(self._folder.cleanup)
        self.folder = self._folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def run_tessera(self, *words, env=None, **options):
        """Returns exit code, standard output, standard error. The program inherits the environment variables of the
        test, except TESSERA_ variables. `env` adds variables or replaces their values. Files of the user's cache, such as
        speeds of the machine, do not change results."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        options.setdefault("cwd", self.folder)
        clean["XDG_CACHE_HOME"] = os.path.join(self.folder, "user-cache")
        done = subprocess.run([PROGRAM, *words], env={**clean, **(env or {})}, timeout=RUN_LIMIT_S,
                              stdout=options.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, **options)
        return done.returncode, (done.stdout or b"").decode(), done.stderr.decode(errors="replace")

    def succeeds(self, *words, **options):
        code, out, err = self.run_tessera(*words, **options)
        self.assertEqual(code, 0, err)
        return out

    def fails(self, code, message, *words, **options):
        """Expects that the program ends with `code` and prints only one line: `error: …`, which contains `message`."""
        got, out, err = self.run_tessera(*words, **options)
        self.assertEqual(got, code, err)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("error: ") and err.count("\n") == 1, err)
        self.assertIn(message, err)


SKIPPED = 77  # a test file that skipped a test ends with this code, and CTest reports the file as skipped


def main():
    words = sys.argv[2:]  # names of tests
    result = unittest.main(argv=sys.argv[:1] + words, exit=False).result
    for test, why in result.skipped:
        print(f"skipped: {test}: {why}", file=sys.stderr)
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
