#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over all sources of the CPU program. Later calls check only the files that changed
# since the previous call. Arguments go to ninja. Needs clang and clang-tidy: apt-get install clang clang-tidy
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null || { echo "error: clang-tidy is not installed. Install it: apt-get install clang clang-tidy" >&2; exit 1; }
cmake --preset tidy >/dev/null
exec ninja -C build-tidy --quiet -k 0 "$@" tessera
