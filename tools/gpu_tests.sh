#!/usr/bin/env bash
# Runs the tests that need GPUs, on an existing build: kernels, parity with transformers, precisions, memory, resume,
# failures of ranks, and small models under compute-sanitizer. Collectives and the engine run with 1, 2 and 4 ranks. If
# the machine has fewer GPUs than ranks, several ranks use one GPU. --only: runs only tests whose name contains WORD.
#   tools/gpu_tests.sh [--build FOLDER] [--no-sanitizer] [--only WORD]
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
[ -x "$tests/gpu_ops" ] || { echo "error: $tests/gpu_ops does not exist. Build with CUDA and -DTESSERA_TESTS=ON" >&2; exit 2; }
# The number of GPUs that CUDA_VISIBLE_DEVICES leaves visible.
gpus=$("$build/tessera" doctor --json | python3 -c 'import json, sys; found = json.load(sys.stdin)["cuda"]["gpus"]
print(len(found) if isinstance(found, list) else 0)')
[ "${gpus:-0}" -gt 0 ] || { echo "error: no GPU is available. See $build/tessera doctor" >&2; exit 2; }
visible=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}
mpirun="mpirun --allow-run-as-root --oversubscribe --bind-to none"

failed=() output=$(mktemp)
trap 'rm -f "$output"' EXIT
# check NAME SECONDS COMMAND...: runs the command for at most SECONDS, and prints one line with the result. If the
# command fails, also prints the end of its output.
check() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  [[ $name == *$only* ]] || return
  timeout -k 10 "$limit" "$@" >"$output" 2>&1
  code=$?
  if [ $code -eq 0 ]; then
    echo "ok      $name ($((SECONDS - begin)) s)"
  elif [ $code -eq 77 ]; then  # SKIPPED in tests/cli/tessera_cli.py: some tests did not run
    echo "ok      $name, in part ($((SECONDS - begin)) s): $(sed -n 's/^skipped: .*: //p' "$output" | sort -u | xargs)"
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
# NCCL refuses two ranks on one GPU. If the ranks have different NCCL_HOSTIDs, NCCL treats them as ranks of different
# machines and sends through sockets. The processes then take turns on the GPU.
share='export NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo
  gpus=('${visible//,/ }')
  export CUDA_VISIBLE_DEVICES=${gpus[OMPI_COMM_WORLD_LOCAL_RANK % '$gpus']}
  exec "$@"'
for ranks in 1 2 4; do
  # These programs have hundreds of test cases, and each case starts NCCL. NCCL starts faster with fewer thread blocks.
  export NCCL_MAX_CTAS=2
  for what in collectives engine; do
    program=("$tests/ranks_$what" --world="$ranks" --device=cuda)
    if [ "$ranks" -le "$gpus" ]; then
      check "$what on $ranks GPUs" 1200 $mpirun -n "$ranks" "${program[@]}"
    else
      check "$what, $ranks ranks on $gpus GPUs" 1200 $mpirun -n "$ranks" bash -c "$share" -- "${program[@]}"
    fi
  done
  unset NCCL_MAX_CTAS
done
# cli NAME SECONDS FILE [TEST...]: runs tests of the program on GPUs.
cli() {
  local name=$1 limit=$2 file=$3
  shift 3
  check "$name" "$limit" env TEST_DEVICE=cuda TEST_RANKS="$gpus" python3 "tests/$file" "$build/tessera" "$@"
}
cli "bad input" 300 cli/bad_input_test.py
cli resume 600 cli/resume_test.py
cli precisions 300 cli/precision_test.py
cli plan 300 cli/plan_test.py Ledger Fit
cli memory 300 gpu/memory_test.py
cli "random jobs" 900 cli/ranks_swarm_test.py
if [ "$gpus" -ge 2 ]; then
  for test in Stopped Killed.test_full_shard Killed.test_offload_to_files; do
    cli "failing ranks: $test" 600 cli/ranks_failures_test.py "$test"
  done
else
  skip "failing ranks" "needs at least 2 GPUs"
fi
if [ "$gpus" -ge 4 ]; then
  cli ranks 600 cli/ranks_test.py
  cli "checkpoints of ranks" 600 cli/ranks_checkpoints_test.py
else
  skip "ranks and their checkpoints" "needs at least 4 GPUs"
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ $sanitize = no ] || [ -z "$sanitizer" ]; then
  skip "memcheck and racecheck" "$([ $sanitize = no ] && echo "disabled by --no-sanitizer" || echo "compute-sanitizer is not installed")"
else
  # sanitize TOOL OPTIONS PROGRAM [ARGUMENT...]: runs PROGRAM (a file in $tests) under a tool of compute-sanitizer.
  sanitize() {
    local tool=$1 options=$2 program=$3
    shift 3
    check "$tool of $program" 1500 "$sanitizer" --tool "$tool" $options --error-exitcode 9 --print-limit 20 \
      "$tests/$program" "$@"
  }
  # Some tests make CUDA calls fail on purpose. Therefore memcheck does not report failed calls.
  sanitize memcheck "--report-api-errors no" gpu_ops
  sanitize memcheck "--report-api-errors no" gpu_parity
  # About twenty runs of the engine: with and without graphs, offloaded to the host and to files.
  engine=(ranks_engine --world=1 --device=cuda)
  sanitize memcheck "--report-api-errors no" "${engine[@]}" --gtest_filter='*Repeats*:*Graphs*:*RankZero*'
  # racecheck makes tests hundreds of times slower, mostly in cuBLASLt's kernels. If these kernels are excluded,
  # racecheck (13.0) ends with an internal error. Therefore fewer tests of matrix products run under racecheck. Tests
  # with large arrays are also left out, because other tests run the same kernels on smaller arrays.
  sanitize racecheck "" gpu_ops --gtest_filter='-*Measuring*:*Tf32*:*Large*:*LongSequences*'
  sanitize racecheck "" gpu_parity --gtest_filter='*small*-*TwentyUpdates*'
  sanitize racecheck "" "${engine[@]}" --gtest_filter='*Repeats*:*RankZero*'
fi

[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
echo "all passed"
