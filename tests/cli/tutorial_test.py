"""Runs every command of docs/tutorial.md, in order and in one folder. Each exits with 0, or as its comment says."""
import os
import re
import shutil
import subprocess

from tessera_cli import PROGRAM, RUN_LIMIT_S, CliTest, main, unless_sanitized

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def commands():
    """The commands of fenced `console` blocks: lines that begin with "$ ", joined with the next line after a backslash."""
    with open(os.path.join(ROOT, "docs", "tutorial.md"), encoding="utf-8") as file:
        text = file.read()
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S):
        yield from re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.M)


def expected_code(command):
    found = re.search(r"# exits with (\d+)$", command)
    return int(found[1]) if found else 0


class Tutorial(CliTest):
    @unless_sanitized
    def test_commands(self):
        os.mkdir(os.path.join(self.folder, "bin"))
        os.symlink(PROGRAM, os.path.join(self.folder, "bin", "tessera"))
        shutil.copytree(os.path.join(ROOT, "recipes"), os.path.join(self.folder, "recipes"))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        environment["PATH"] = os.path.join(self.folder, "bin") + os.pathsep + environment.get("PATH", "")
        has_mpi = "built in                      yes" in self.succeeds("doctor").split("\nmpi\n")[1].split("\n\n")[0]
        ran = 0
        for command in commands():
            if "--nproc" in command and "tessera train" in command and not has_mpi:
                continue
            done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment, timeout=RUN_LIMIT_S,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            # Every command depends on those before it.
            self.assertEqual(done.returncode, expected_code(command), f"$ {command}\n{done.stdout}")
            self.assertNotIn("command not found", done.stdout)
            ran += 1
        self.assertGreater(ran, 20)

    def test_what_a_command_is(self):
        self.assertTrue(all(not command.endswith("\\") for command in commands()))
        self.assertEqual({expected_code(command) for command in commands()}, {0, 2, 3, 4, 75})


if __name__ == "__main__":
    main()
