#!/usr/bin/env bash
# Installs the missing packages of tools/packages.txt and builds Release into build/.
#   tools/build.sh [--packages FILE] [-DOPTION=VALUE ...] [TARGET ...]
# FILE lists additional packages. The -D options go to CMake. Without a TARGET, builds everything.
set -euo pipefail
cd "$(dirname "$0")/.."

lists=(tools/packages.txt)
if [ "${1:-}" = --packages ]; then lists+=("$2"); shift 2; fi
packages=$(grep -hv '^#' "${lists[@]}")
missing=()
for package in $packages; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "error: this system has no apt-get. Install the equivalents of these packages: ${missing[*]}" >&2; exit 1; }
  as_root=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "error: packages are missing, and sudo is not installed. Run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    as_root=sudo
  fi
  echo "Installing ${#missing[@]} packages: ${missing[*]}"
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

options=()
while [[ ${1:-} == -D* ]]; do options+=("$1"); shift; done
if [ ! -f build/build.ninja ] || [ ${#options[@]} -gt 0 ]; then
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" >/dev/null
fi
if [ -t 1 ]; then  # one line that is updated
  NINJA_STATUS="Building %f/%t, %e s: " ninja -C build "$@"
else  # one line after each tenth of the steps, and the output of the compilers
  NINJA_STATUS="%f/%t %e " ninja -C build "$@" | awk '
    $1 ~ /^[0-9]+\/[0-9]+$/ { split($1, n, "/"); tenth = int(10 * n[1] / n[2])
                              if (tenth != last && n[1] > 0) { last = tenth; printf "Building: %s steps, %d s\n", $1, $2; fflush() }; next }
    /^ninja: no work to do/ { next }
    /^(ninja: Entering|-- )/ { next }
    { print; fflush() }'
fi
