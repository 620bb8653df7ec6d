#!/usr/bin/env bash
# Builds the tests with sanitizers and runs them: tools/sanitize.sh [address,undefined | thread] ...
# Without arguments: first address,undefined, then thread.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- address,undefined thread
# Death tests fork. The thread sanitizer reports a fork as an error unless die_after_fork=0. leak_sanitizer.supp
# lists libraries of Open MPI. A leak is not reported if the stack of its allocation contains one of them. Some modules
# of Open MPI are already unloaded when the leaks are reported. Then only a complete stack (fast_unwind_on_malloc=0)
# contains a library of the list.
export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0
export LSAN_OPTIONS=suppressions=$PWD/tools/leak_sanitizer.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:suppressions=$PWD/tools/thread_sanitizer.supp
for sanitizers in "$@"; do
  folder=build-${sanitizers//,/-}
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_MARCH=native -DTESSERA_SANITIZE="$sanitizers" >/dev/null
  ninja -C "$folder" --quiet
  ctest --test-dir "$folder" --output-on-failure -j "$(nproc)"
done
