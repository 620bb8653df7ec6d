#!/bin/bash
# Starts a real Slurm of two hosts on this machine, submits the job files of `tessera slurm` to it, and removes it at
# the end: tools/slurm_test.sh [PROGRAM [TEST…]]. The script installs nothing. It needs root, for namespaces, and these
# packages of Debian: slurm-wlm munge libpmix-dev. It takes about ten minutes. docs/testing.md says what it checks.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/tessera}
if [ ! -x "$program" ]; then
  echo "error: $program does not exist. Build it with tools/build.sh, or give the path of another program" >&2
  exit 2
fi
exec python3 tests/slurm/two_hosts.py "$program" "${@:2}"
