#!/bin/bash
# Submits the job files of `tessera slurm` to a real Slurm of two hosts, which it starts on this machine and removes at the
# end: tools/slurm_test.sh [PROGRAM [TEST…]]. It installs nothing. It needs root, for namespaces, and these packages of
# Debian: slurm-wlm munge libpmix-dev. It takes about ten minutes. docs/testing.md says what it asserts.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/tessera}
if [ ! -x "$program" ]; then
  echo "$program is missing; build it with tools/build.sh, or name another one" >&2
  exit 2
fi
exec python3 tests/slurm/two_hosts.py "$program" "${@:2}"
