#!/usr/bin/env bash
# Runs the tests that need GPUs from a build that is there, and builds nothing: kernels, parity with transformers, the
# engine on 1, 2 and 4 ranks, resuming, failing ranks, and the sanitizer on the small models. Ranks beyond the number
# of GPUs share them, where NCCL allows it, for the shorter of the engine's tests.
#   tools/gpu_tests.sh [--build FOLDER] [--no-sanitizer] [--only WORD]      WORD: a part of the names that it prints
set -uo pipefail
cd "$(dirname "$0")/.."

build=build sanitize=yes only=""
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --no-sanitizer) sanitize=no; shift ;;
    --only) only=$2; shift 2 ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;;
  esac
done
tests=$build/tests
[ -x "$tests/gpu_ops" ] || { echo "error: no $tests/gpu_ops: build with CUDA, -DTESSERA_TESTS=ON" >&2; exit 2; }
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "error: nvidia-smi lists no GPU" >&2; exit 2; }
mpirun="mpirun --allow-run-as-root --oversubscribe --bind-to none"

failed=() output=$(mktemp)
trap 'rm -f "$output"' EXIT
# check NAME SECONDS COMMAND...: one line on success, the end of its output on failure.
check() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  [[ $name == *$only* ]] || return
  timeout -k 10 "$limit" "$@" >"$output" 2>&1
  code=$?
  if [ $code -eq 0 ]; then
    echo "ok      $name ($((SECONDS - begin)) s)"
  else
    echo "FAILED  $name (exit code $code, $((SECONDS - begin)) s)"
    tail -n 40 "$output" | sed 's/^/        /'
    failed+=("$name")
  fi
}
skip() { echo "skipped $1: $2"; }

echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | xargs)"
check ops 600 "$tests/gpu_ops"
check parity 600 "$tests/gpu_parity"
# NCCL refuses two ranks on one GPU unless it takes them for ranks of different machines; it then sends through sockets,
# and the processes take turns on the GPU, so that the longest tests would take many minutes.
share='export NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo
  export CUDA_VISIBLE_DEVICES=$((OMPI_COMM_WORLD_LOCAL_RANK % '$gpus'))
  exec "$@"'
for ranks in 1 2 4; do
  engine=("$tests/ranks_engine" --world="$ranks" --device=cuda)
  if [ "$ranks" -le "$gpus" ]; then
    check "engine on $ranks GPUs" 600 $mpirun -n "$ranks" "${engine[@]}"
  else
    check "engine, $ranks ranks on $gpus GPUs" 300 $mpirun -n "$ranks" bash -c "$share" -- "${engine[@]}" \
      --gtest_filter='-*Every*:*Halves*'
  fi
done
check resume 600 env TEST_DEVICE=cuda python3 tests/cli/resume_test.py "$build/tessera"
if [ "$gpus" -ge 2 ]; then
  for test in Stopped Killed.test_full_shard Killed.test_offload_to_files; do
    check "failing ranks: $test" 600 env TEST_DEVICE=cuda python3 tests/cli/ranks_failures_test.py "$build/tessera" "$test"
  done
else
  skip "failing ranks" "they need 2 GPUs"
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ $sanitize = no ] || [ -z "$sanitizer" ]; then
  skip "memcheck and racecheck" "$([ $sanitize = no ] && echo "not asked for" || echo "compute-sanitizer is not there")"
else
  for tool in memcheck racecheck; do
    for program in gpu_ops gpu_parity; do
      check "$tool of $program" 1500 "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$tests/$program"
    done
  done
fi

[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
echo "all passed"
