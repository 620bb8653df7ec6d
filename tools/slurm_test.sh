#!/bin/bash
# Usage: tools/slurm_test.sh [PROGRAM [TEST…]]
# Starts a real Slurm with two simulated hosts on this machine, and submits the job files of `tessera slurm` to it.
# At the end, stops this Slurm and removes its files. The script installs nothing. It needs root, to create namespaces,
# and these Debian packages: slurm-wlm munge libpmix-dev. It takes about ten minutes. docs/testing.md lists the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/tessera}
if [ ! -x "$program" ]; then
  echo "error: $program does not exist. Build it with tools/build.sh, or give the path of another program" >&2
  exit 2
fi
exec python3 tests/slurm/two_hosts.py "$program" "${@:2}"
