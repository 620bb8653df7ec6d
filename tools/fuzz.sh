#!/usr/bin/env bash
# Runs every fuzzer for SECONDS (default 60): tools/fuzz.sh [SECONDS]
# Needs clang and its runtime: apt-get install clang libclang-rt-14-dev
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DTESSERA_TESTS=ON -DTESSERA_FUZZ=ON -DTESSERA_MARCH=native -DTESSERA_CUDA=OFF \
  -DTESSERA_MPI=OFF -DTESSERA_SANITIZE=fuzzer-no-link,address >/dev/null
fuzzers=$(ls tests/fuzz/*_fuzz.cc | sed 's|.*/\(.*\)_fuzz.cc|fuzz_\1|')
ninja -C build-fuzz --quiet $fuzzers
# Each fuzzer starts from valid files.
declare -A seeds=(
  [fuzz_config]=recipes/quickstart/*.toml
  [fuzz_jinja]=tests/unit/jinja/templates/*.jinja
  [fuzz_model_config]=tests/parity/data/*/config.json
  [fuzz_safetensors]=tests/parity/data/*/model.safetensors
  [fuzz_squad]=tests/fuzz/seeds/*
  [fuzz_tokenizer]=tests/unit/data/tokenizer_references/*.tokenizer.json
)
for fuzzer in $fuzzers; do
  echo "$fuzzer for $seconds s"
  corpus=build-fuzz/corpus/$fuzzer
  mkdir -p "$corpus"
  for seed in ${seeds[$fuzzer]:-}; do cp "$seed" "$corpus/$(echo "$seed" | tr / _)"; done
  build-fuzz/tests/"$fuzzer" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix=build-fuzz/ "$corpus"
done
