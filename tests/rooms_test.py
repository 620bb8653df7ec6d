#!/usr/bin/env python3
"""Checks that every file includes only what its room (its folder in tessera/) may include, that only certain folders
include the headers of other libraries, that the Python module uses only the public headers, that all threads start in one place, that the functions of Kernels take many
views only by name, that the rooms below `settings` contain no flags of tessera, that names have one style, and that CMake lists every
source file once."""
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "tessera"


def allowed_includes():
    """{room: the rooms that it may include}: the table below "## Rooms" in docs/architecture.md."""
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    section = page.split("\n## Rooms\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", section, re.MULTILINE)
    rooms = [room for room, _ in rows]
    return {room: set(rooms if allowed.strip() == "all" else allowed.split()) for room, allowed in rows}


MAY_INCLUDE = allowed_includes()
# {pattern: folders of tessera/}. Only these folders may include other libraries' headers whose names begin with the
# pattern.
VENDORS = {
    r"cblas": ["ops/cpu"],
    r"cuda|cublas|cudnn|cub/": ["device/cuda", "ops/cuda", "comm/nccl"],
    r"mpi\.h": ["comm/mpi"],
    r"nccl": ["comm/nccl"],
    r"oniguruma": ["data"],
    r"utf8proc": ["data", "jinja"],
    r"CLI/": ["app"],
    r"toml": ["settings"],
}


def violations():
    files = sorted(p for p in ROOT.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"})
    if len(files) < 20:
        yield f"only {len(files)} source files found below {ROOT}"
    folders = {p.name for p in ROOT.iterdir() if p.is_dir()}
    for room in sorted(folders ^ set(MAY_INCLUDE)):
        yield f"docs/architecture.md: the table of rooms and the folders of tessera/ differ: {room}"
    if folders != set(MAY_INCLUDE):
        return
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
                if other.endswith(".h"):  # a header of the library, in include/tessera
                    if room != "api":
                        yield f"{place}: only the room api includes the public headers ({header})"
                    continue
                if other != room and other not in MAY_INCLUDE[room]:
                    yield f"{place}: {room} may not include {other} ({header})"
                continue
            for pattern, folders in VENDORS.items():
                if re.match(pattern, header) and not any(str(relative).startswith(f) for f in folders):
                    yield f"{place}: <{header}> may be included only in {' or '.join(folders)}"


def python_module():
    """Yields a message for each header that python/native includes, except Python's, the public ones and the standard
    library's."""
    for path in sorted((ROOT.parent / "python" / "native").iterdir()):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            if match and not re.fullmatch(r"Python\.h|glue\.h|unistd\.h|cxxabi\.h|tessera/tessera\.h|\w+", match[1]):
                yield f"python/native/{path.name}:{number}: the Python module includes only public headers ({match[1]})"


# Code that starts a thread. std::jthread may only be the type of a variable that start_thread() initializes.
THREAD = re.compile(r"std::thread\b(?!::)|std::async\b|\b(?:pthread|thrd)_create\b|std::jthread\s*[({]|"
                    r"std::jthread\s+\w+\s*[({](?!start_thread)")


def threads():
    """Yields a message for each place, except base/start_thread.h, that starts a thread itself. start_thread() reports to
    the user that a thread cannot start."""
    for path in sorted(p for p in ROOT.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
        relative = path.relative_to(ROOT)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if THREAD.search(line.split("//")[0]) and str(relative) != "base/start_thread.h":
                yield f"tessera/{relative}:{number}: starts a thread. Use start_thread() (tessera/base/start_thread.h)"


def unnamed_views():
    """Yields a message for each function of Kernels that takes more than three views one by one, and for each struct of
    arguments that a list without names can initialize (see ops/kernels.h)."""
    text = re.sub(r"/\*.*?\*/|//.*", "", (ROOT / "ops/kernels.h").read_text())
    kernels = text[text.index("class Kernels {"):]
    for name, arguments in re.findall(r"virtual \w+ (\w+)\(([^)]*)\)", kernels):
        if len(re.findall(r"\bView\b", arguments)) > 3:
            yield f"tessera/ops/kernels.h: {name}() has more than three views. Give it a struct of arguments"
    for name, first in re.findall(r"struct (\w+) {\s*(.*)", kernels):
        if first != "ByName by_name{};":
            yield f"tessera/ops/kernels.h: the first member of {name} must be ByName"


# Flags of other programs, which start ranks or download models.
FLAGS_OF_OTHERS = {"--mpi", "--map-by", "--oversubscribe", "--allow-run-as-root", "--bind-to", "--stdin", "--local-dir",
                    "--revision",
                   "--repo-type"}
# These rooms do not know the command line, although `log`, `report` and `workshop` may mention it in what they show.
BELOW_SETTINGS = [room for room, others in MAY_INCLUDE.items()
                  if room not in {"app", "settings", "log", "report", "workshop"} and "settings" not in others]


def flags():
    """Yields a message for each flag of tessera in a text of a room below `settings`. The text must contain
    option("max_length") or option_place("max_length") instead (tessera/base/option_names.h)."""
    for path in sorted(p for room in BELOW_SETTINGS for p in (ROOT / room).rglob("*")
                       if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for text in re.findall(r'"(?:[^"\\]|\\.)*"', line.split("//")[0]):
                for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - FLAGS_OF_OTHERS:
                    yield f"tessera/{path.relative_to(ROOT)}:{number}: contains the flag {flag}. Use option()"


def names():
    """Yields a message for each static function or variable of a file, because a file's own names are in anonymous
    namespaces, and for each name of a test that is not in CamelCase."""
    folders = [ROOT, ROOT.parent / "tests", ROOT.parent / "bench"]
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in {".cc", ".cu"}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place = f"{path.relative_to(ROOT.parent)}:{number}"
            if line.startswith("static "):
                yield f"{place}: put this name into an anonymous namespace"
            test = re.match(r"(?:TYPED_)?TEST(?:_F|_P)?\((\w+), *(\w+)\)", line)
            if test and not all(re.fullmatch("[A-Z][A-Za-z0-9]*", name) for name in test.groups()):
                yield f"{place}: {test[1]}.{test[2]} is not in CamelCase"


def listed(lists):
    """Returns how often the file `lists`, a CMakeLists.txt, names each source file and Python test. The names are
    relative to the folder of `lists`."""
    text = re.sub(r"#.*", "", lists.read_text()).replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")
    text = re.sub(r"set_source_files_properties\([^)]*\)", "", text)  # lists no files
    return Counter(re.findall(r"(?<![\w./}-])[\w/]+(?:\.cc|\.cu|_test\.py)\b", text))


def unlisted():
    """Yields a message for each file that is not listed exactly once, and for each listed file that does not exist. The
    CMakeLists.txt of a room must list the room's source files. tests/unit/CMakeLists.txt must list the .cc files of
    the folders tests/unit/ROOM, without their subfolders. tests/CMakeLists.txt must list the other source files of
    tests/, and the Python tests."""
    tests = ROOT.parent / "tests"
    groups = [(room / "CMakeLists.txt", [p for p in room.rglob("*") if p.suffix in {".cc", ".cu"}])
              for room in sorted(p for p in ROOT.iterdir() if p.is_dir())]
    unit = list((tests / "unit").glob("*/*.cc"))
    sources = {p for p in tests.rglob("*") if p.suffix in {".cc", ".cu"}}
    groups.append((tests / "unit" / "CMakeLists.txt", unit))
    # No CMakeLists.txt lists gpu/memory_test.py, because tools/gpu_tests.sh runs it.
    scripts = {p for p in tests.rglob("*_test.py") if p.parent.name != "gpu"}
    groups.append((tests / "CMakeLists.txt", sources - set(unit) | scripts))
    for lists, files in groups:
        counts = listed(lists)
        place = lists.relative_to(ROOT.parent)
        on_disk = {str(p.relative_to(lists.parent)) for p in files}
        for name in sorted(on_disk | set(counts)):
            if name not in counts:
                yield f"{place}: {name} is not listed. Add it, or delete the file"
            elif name not in on_disk:
                yield f"{place}: {name} is listed, but the file does not exist"
            elif counts[name] > 1:
                yield f"{place}: {name} is listed {counts[name]} times. Keep one"


if __name__ == "__main__":
    checks = [violations, python_module, threads, unnamed_views, flags, names, unlisted]
    found = [message for check in checks for message in check()]
    print("\n".join(found) or "every include follows the table, and CMake lists every source file once")
    sys.exit(bool(found))
