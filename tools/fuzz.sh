#!/usr/bin/env bash
# Runs every fuzzer for a while: tools/fuzz.sh [SECONDS] (60). Needs clang and its runtime: apt-get install clang libclang-rt-14-dev
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DTESSERA_TESTS=ON -DTESSERA_FUZZ=ON \
  -DTESSERA_SANITIZE=fuzzer-no-link,address >/dev/null
fuzzers=$(ls tests/fuzz/*_fuzz.cc | sed 's|.*/\(.*\)_fuzz.cc|fuzz_\1|')
ninja -C build-fuzz --quiet $fuzzers
for fuzzer in $fuzzers; do
  echo "$fuzzer for $seconds s"
  mkdir -p "build-fuzz/corpus/$fuzzer"
  build-fuzz/tests/"$fuzzer" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix=build-fuzz/ "build-fuzz/corpus/$fuzzer"
done
