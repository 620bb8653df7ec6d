#!/usr/bin/env bash
# Installs what tools/packages.txt lists (if anything is missing) and builds Release into build/.
#   tools/build.sh [TARGET ...]     without a target: everything
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(grep -v '^#' tools/packages.txt)
missing=()
for package in $packages; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "error: no apt-get here. Install the like of: ${missing[*]}" >&2; exit 1; }
  as_root=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "error: run as root, or install these: apt-get install ${missing[*]}" >&2; exit 1; }
    as_root=sudo
  fi
  echo "Installing ${#missing[@]} packages: ${missing[*]}"
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[ -f build/build.ninja ] || cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
echo "Building"
ninja -C build --quiet "$@"
