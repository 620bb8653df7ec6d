#!/usr/bin/env bash
# Builds libraries that Tessera needs as static libraries, without root:
#   tools/dependencies.sh PREFIX NAME...
# The names, the addresses of the sources and their checksums are in tools/dependencies.txt. A source that is already in
# build-deps/sources is not downloaded, so a machine without a network can be given the files. Needs a C++ compiler,
# make, cmake, curl, tar, xz and ar. CC, CXX, CFLAGS and CXXFLAGS have their usual meaning. CMake then finds the
# libraries with CMAKE_PREFIX_PATH=PREFIX and PKG_CONFIG_PATH=PREFIX/lib/pkgconfig.
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && prefix=$(cd "$1" && pwd)
shift
work=$tools/../build-deps
mkdir -p "$work/sources"

fail() { echo "error: $*" >&2; exit 1; }
for command in tar xz ar make cmake "${CXX:-c++}"; do
  command -v "${command%% *}" >/dev/null || fail "tools/dependencies.sh needs ${command%% *}, which is not in PATH"
done

# fetch NAME: prints the path of its source.
fetch() {
  local sum address file
  read -r _ sum address < <(grep "^$1 " "$tools/dependencies.txt") || fail "$1 is not in tools/dependencies.txt"
  file=$work/sources/$(basename "$address" | sed 's/%2b/+/')
  if [ ! -f "$file" ]; then
    echo "Downloading $address" >&2
    curl -fsSL --retry 3 -o "$file.part" "$address" || fail "cannot download $address. Put it into $work/sources, as $(basename "$file")"
    mv "$file.part" "$file"
  fi
  echo "$sum  $file" | sha256sum --check --quiet >/dev/null || fail "$file has another SHA-256 than $sum. Delete it"
  echo "$file"
}

with_cmake() {  # FOLDER OPTION...
  cmake -S "$1" -B "$1/build-tessera" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -Wno-dev "${@:2}" &&
    cmake --build "$1/build-tessera" -j "$(nproc)" &&
    cmake --install "$1/build-tessera"
}

build() {  # NAME FOLDER
  case $1 in
    oniguruma) with_cmake "$2" -DENABLE_POSIX_API=OFF ;;
    utf8proc) with_cmake "$2" ;;
    xxhash) with_cmake "$2/cmake_unofficial" -DXXHASH_BUILD_XXHSUM=OFF ;;
    fmt) with_cmake "$2" -DFMT_DOC=OFF -DFMT_TEST=OFF ;;
    googletest) with_cmake "$2" ;;
    openblas)  # the products in single and double precision, without LAPACK, with kernels for three kinds of processors
      local options=(CC="${CC:-cc}" HOSTCC="${HOSTCC:-${CC:-cc}}" NO_LAPACK=1 NOFORTRAN=1 NO_SHARED=1 USE_OPENMP=0 NUM_THREADS=256 BUILD_SINGLE=1
                     BUILD_DOUBLE=1 DYNAMIC_ARCH=1 TARGET=NEHALEM "DYNAMIC_LIST=HASWELL SKYLAKEX")
      [ "$(uname -m)" = x86_64 ] || options=("${options[@]:0:9}")
      make -C "$2" -j "$(nproc)" "${options[@]}" libs && make -C "$2" "${options[@]}" PREFIX="$prefix" install ;;
    *)  # headers in the folder usr of a Debian package
      cp -R "$2/usr/include/." "$prefix/include/" && mkdir -p "$prefix/share" &&
        { [ ! -d "$2/usr/share/cmake" ] || cp -R "$2/usr/share/cmake" "$prefix/share/"; } ;;
  esac
}

mkdir -p "$prefix/include"
for name in "$@"; do
  stamp="$prefix/.built/$name $(grep "^$name " "$tools/dependencies.txt" | cut -d ' ' -f 2)"
  [ ! -f "$stamp" ] || continue
  source=$(fetch "$name")
  folder=$prefix/.built/sources/$name
  rm -rf "$folder" && mkdir -p "$folder"
  case $source in
    *.deb) (cd "$folder" && ar p "$source" data.tar.xz | tar -xJf -) ;;
    *) tar -xf "$source" -C "$folder" --strip-components 1 ;;
  esac
  echo "Building $name"
  build "$name" "$folder" >"$folder.log" 2>&1 || { tail -n 20 "$folder.log" >&2; fail "$name cannot be built. The output is in $folder.log"; }
  mkdir -p "$prefix/.built" && touch "$stamp"
  rm -rf "$folder"
done
