#!/usr/bin/env bash
# Runs the tests that need GPUs, on an existing build. Each part has ten minutes: a test that exceeds them fails. In
# `ranks`, several ranks use one GPU if there are fewer GPUs than ranks. --only: runs only tests whose name contains WORD.
#   tools/gpu_tests.sh [--build FOLDER] [--part kernels|ranks|program|jobs|memcheck|racecheck] [--only WORD]
set -uo pipefail
cd "$(dirname "$0")/.."

build=build parts="kernels ranks program jobs memcheck racecheck" only=""
usage() { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
while [ $# -gt 1 ]; do
  case "$1" in
    --build) build=$2 ;;
    --part) [[ " $parts " == *" $2 "* ]] && parts=$2 || usage ;;
    --only) only=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ $# -eq 0 ] || usage
tests=$build/tests
[ -x "$tests/gpu_ops" ] || { echo "error: $tests/gpu_ops does not exist. Build with CUDA and -DTESSERA_TESTS=ON" >&2; exit 2; }
# The number of GPUs that CUDA_VISIBLE_DEVICES leaves visible.
gpus=$("$build/tessera" doctor --json | python3 -c 'import json, sys; found = json.load(sys.stdin)["cuda"]["gpus"]
print(len(found) if isinstance(found, list) else 0)')
[ "${gpus:-0}" -gt 0 ] || { echo "error: no GPU is available. See $build/tessera doctor" >&2; exit 2; }
visible=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}

failed=() output=$(mktemp)
trap 'rm -f "$output"' EXIT
# check NAME SECONDS COMMAND...: runs the command for at most SECONDS, or until the part must end, and prints one line
# with the result. If the command fails, also prints the end of its output.
check() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  [[ $name == *$only* ]] || return
  local left=$((part_end - SECONDS))
  [ $left -lt "$limit" ] && limit=$((left > 1 ? left : 1))
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
# cli NAME SECONDS FILE [TEST...]: runs tests of the program on GPUs.
cli() {
  local name=$1 limit=$2 file=$3
  shift 3
  check "$name" "$limit" env TEST_DEVICE=cuda TEST_RANKS="$gpus" python3 "tests/$file" "$build/tessera" "$@"
}

kernels() {
  check ops 300 "$tests/gpu_ops"
  check parity 300 "$tests/gpu_parity"
}

# NCCL refuses two ranks on one GPU. If the ranks have different NCCL_HOSTIDs, NCCL treats them as ranks of different
# machines and sends through sockets. The processes then take turns on the GPU.
ranks() {
  local share='export NCCL_HOSTID=rank$RANK NCCL_SOCKET_IFNAME=lo
    gpus=('${visible//,/ }')
    export CUDA_VISIBLE_DEVICES=${gpus[LOCAL_RANK % '$gpus']}
    exec "$@"'
  local ranks what program launch some='--gtest_filter=Engine.EveryStrategyAndTierGivesThePlainRun:*8Bits*:*Repeats*'
  for ranks in 1 2 4; do
    for what in collectives engine; do
      program=("$tests/ranks_$what" --world="$ranks" --device=cuda)
      launch=(python3 tests/torchrun.py -n "$ranks" --no-python)
      if [ "$ranks" -le "$gpus" ]; then
        check "$what on $ranks GPUs" 300 "${launch[@]}" "${program[@]}"
      else
        [ $what = engine ] && program+=("$some")  # ranks that share a GPU are slow
        check "$what, $ranks ranks on $gpus GPUs" 300 "${launch[@]}" bash -c "$share" -- "${program[@]}"
      fi
    done
  done
}

program() {
  cli "bad input" 120 cli/bad_input_test.py
  cli resume 200 cli/resume_test.py
  cli precisions 120 cli/precision_test.py
  cli plan 200 cli/plan_test.py Ledger Fit
  cli memory 200 gpu/memory_test.py
}

jobs() {
  cli "random jobs" 300 cli/ranks_swarm_test.py
  if [ "$gpus" -ge 2 ]; then
    for test in Stopped Killed.test_full_shard Killed.test_offload_to_files; do
      cli "failing ranks: $test" 120 cli/ranks_failures_test.py "$test"
    done
  else
    skip "failing ranks" "needs at least 2 GPUs"
  fi
  if [ "$gpus" -ge 4 ]; then
    cli ranks 200 cli/ranks_test.py
    cli "checkpoints of ranks" 200 cli/ranks_checkpoints_test.py
  else
    skip "ranks and their checkpoints" "needs at least 4 GPUs"
  fi
}

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
# sanitize TOOL OPTIONS PROGRAM [ARGUMENT...]: runs PROGRAM (a file in $tests) under a tool of compute-sanitizer.
sanitize() {
  local tool=$1 options=$2 program=$3
  shift 3
  if [ -z "$sanitizer" ]; then
    skip "$tool of $program" "compute-sanitizer is not installed"
    return
  fi
  check "$tool of $program" 500 "$sanitizer" --tool "$tool" $options --error-exitcode 9 --print-limit 20 "$tests/$program" "$@"
}
engine=(ranks_engine --world=1 --device=cuda)

# Some tests make CUDA calls fail on purpose. Therefore memcheck does not report failed calls.
memcheck() {
  sanitize memcheck "--report-api-errors no" gpu_ops
  sanitize memcheck "--report-api-errors no" gpu_parity
  # About twenty runs of the engine: with and without graphs, offloaded to the host and to files.
  sanitize memcheck "--report-api-errors no" "${engine[@]}" --gtest_filter='*Repeats*:*Graphs*:*RankZero*'
}

# racecheck makes tests hundreds of times slower, mostly in cuBLASLt's kernels. If these kernels are excluded,
# racecheck (13.0) ends with an internal error. Therefore fewer tests of matrix products run under racecheck, and none
# of 8-bit products: it reports races within cuBLASLt's kernels for them. Tests with large arrays are also left out,
# because other tests run the same kernels on smaller arrays.
racecheck() {
  sanitize racecheck "" gpu_ops --gtest_filter='-*Measuring*:*Tf32*:*Large*:*LongSequences*:Float8*Products*:Float8*Pieces*'
  sanitize racecheck "" gpu_parity --gtest_filter='*small*-*TwentyUpdates*'
  sanitize racecheck "" "${engine[@]}" --gtest_filter='*Repeats*:*RankZero*'
}

echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | xargs)"
for part in $parts; do
  part_end=$((SECONDS + 590))
  $part
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
echo "all passed"
