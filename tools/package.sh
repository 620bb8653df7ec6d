#!/usr/bin/env bash
# Makes the packages of Tessera for x86-64 Linux with glibc 2.27 or newer:
#   tools/package.sh [--cuda] FOLDER
# FOLDER gets tessera-VERSION-linux-x86_64.tar.gz (unpack it anywhere), tessera_VERSION_amd64.deb and
# tessera_lm-VERSION-*.whl. With --cuda, the names have "cuda", and the program has the CUDA back end. It starts on
# machines without a GPU, too. Needs GCC, cmake, ninja, curl and what tools/dependencies.sh needs.
#
# The C library is linked dynamically, in the version of tools/package/glibc.txt. The C++ library and all other
# libraries are linked statically. MPI, CUDA's libraries and NCCL are opened at run time, if a run needs them.
set -euo pipefail
fail() { echo "error: $*" >&2; exit 1; }
cuda=OFF suffix="" architectures=""
if [ "${1:-}" = --cuda ]; then cuda=ON suffix=-cuda architectures="80;86;89;90"; shift; fi
[ $# = 1 ] || fail "usage: tools/package.sh [--cuda] FOLDER"
mkdir -p "$1" && output=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
root=$PWD/build-package
work=$root/work$suffix
mkdir -p "$root/debs" "$work"

# unpack LIST FOLDER: unpacks the Debian packages of a list into a new folder.
unpack() {
  [ ! -d "$2" ] || return 0
  local sum address file
  rm -rf "$2.part" && mkdir -p "$2.part"
  while read -r sum address; do
    file=$root/debs/$(basename "$address")
    [ -f "$file" ] || { curl -fsSL --retry 3 -o "$file.part" "$address" && mv "$file.part" "$file"; } || fail "cannot download $address"
    echo "$sum  $file" | sha256sum --check --quiet >/dev/null || fail "$file has another SHA-256 than $sum"
    (cd "$2.part" && ar p "$file" "$(ar t "$file" | grep '^data.tar')" | tar -xJf -)
  done < <(grep -v '^#' "$1")
  # Links to libraries, such as libdl.so, would lead out of the folder.
  find "$2.part" -type l -lname '/*' -print | while read -r link; do
    ln -sfn "$2$(readlink "$link")" "$link"
  done
  mv "$2.part" "$2"
}
sysroot=$root/sysroot
unpack tools/package/glibc.txt "$sysroot"
unpack tools/package/mpi.txt "$root/mpi"

lib=$sysroot/usr/lib/x86_64-linux-gnu
old="--sysroot=$sysroot -B$lib -include $PWD/tools/package/old_glibc.h"
gcc -O2 -fPIC --sysroot="$sysroot" -c tools/package/old_glibc.c -o "$root/old_glibc.o"
export CC=gcc CXX=g++ CFLAGS=$old CXXFLAGS=$old
export CUDAFLAGS="-Xcompiler=--sysroot=$sysroot,-B$lib -include $PWD/tools/package/old_glibc.h"
export LDFLAGS="--sysroot=$sysroot -B$lib $root/old_glibc.o -L$lib -L$sysroot/lib/x86_64-linux-gnu -static-libstdc++ -Wl,--allow-shlib-undefined"
tools/dependencies.sh "$root/prefix" oniguruma utf8proc xxhash fmt openblas json cli11 tomlplusplus

# Debian's headers of Python include <x86_64-linux-gnu/python3.*/pyconfig.h>, which the sysroot hides.
mkdir -p "$root/python/x86_64-linux-gnu"
for headers in /usr/include/x86_64-linux-gnu/python3.*; do
  [ ! -d "$headers" ] || ln -sfn "$headers" "$root/python/x86_64-linux-gnu/"
done
export CXXFLAGS="$old -isystem $root/python" PKG_CONFIG_PATH=$root/prefix/lib/pkgconfig
cmake -S . -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$root/prefix" -DBLA_VENDOR=OpenBLAS \
  -DBLA_STATIC=ON -DTESSERA_BUNDLE=ON -DTESSERA_CUDA=$cuda -DTESSERA_CUDA_ARCHITECTURES="$architectures" -DTESSERA_MPI=OFF \
  -DTESSERA_MPI_MODULES="open_mpi:$root/mpi/usr/lib/x86_64-linux-gnu/openmpi/include;mpich:$root/mpi/usr/include/x86_64-linux-gnu/mpich" \
  -DTESSERA_PYTHON=ON   -DTESSERA_TESTS=OFF -DTESSERA_BENCH=OFF -DTESSERA_PACKAGE_SUFFIX=$suffix -DCMAKE_INSTALL_LIBDIR=lib >"$work/cmake.log" || { tail -n 20 "$work/cmake.log"; exit 1; }
ninja -C "$work/build"

# The folder and the .deb.
rm -rf "$work/packages"
cpack --config "$work/build/CPackConfig.cmake" -B "$work/packages" >"$work/cpack.log" || { tail -n 20 "$work/cpack.log"; exit 1; }
cp "$work"/packages/*.tar.gz "$work"/packages/*.deb "$output"

# The wheel: the program as a script of the environment, and the Python module.
version=$(sed -n 's/^project(tessera VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=tessera_lm${suffix//-/_}
wheel=$work/wheel
[ -d "$root/venv" ] || { python3 -m venv "$root/venv" && "$root/venv/bin/pip" install --quiet wheel; }
rm -rf "$wheel" && mkdir -p "$wheel/$name-$version.data/scripts" "$wheel/$name-$version.dist-info"
strip -o "$wheel/$name-$version.data/scripts/tessera" "$work/build/tessera"
mkdir -p "$wheel/$name-$version.data/data/lib/tessera"
strip --strip-unneeded -o "$wheel/$name-$version.data/data/lib/tessera/open_mpi.so" "$work/build/mpi/open_mpi.so"
strip --strip-unneeded -o "$wheel/$name-$version.data/data/lib/tessera/mpich.so" "$work/build/mpi/mpich.so"
cmake --install "$work/build" --component python --prefix "$wheel" --strip >/dev/null
DESTDIR=$work/stage cmake --install "$work/build" --prefix /usr >/dev/null
mkdir -p "$wheel/$name-$version.data/data/share"
for folder in man bash-completion zsh fish; do cp -R "$work/stage/usr/share/$folder" "$wheel/$name-$version.data/data/share/"; done
cat >"$wheel/$name-$version.dist-info/METADATA" <<TXT
Metadata-Version: 2.1
Name: ${name//_/-}
Version: $version
Summary: Fine-tunes language models, on CPUs and GPUs
Requires-Python: >=3.8
Description-Content-Type: text/markdown

$(cat docs/python.md)
TXT
cat >"$wheel/$name-$version.dist-info/WHEEL" <<TXT
Wheel-Version: 1.0
Generator: tools/package.sh
Root-Is-Purelib: false
Tag: cp38-abi3-manylinux_2_27_x86_64
TXT
"$root/venv/bin/python" -m wheel pack "$wheel" --dest-dir "$output" >/dev/null
(cd "$output" && ls -l --block-size=K)
