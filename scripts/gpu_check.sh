#!/usr/bin/env bash
# What the card can show of a build, as a short table: golden tapes against their oracles, the tests of tests/gpu (every
# row and dtype against the CPU, samples, faults, big sizes), compute-sanitizer, and the benchmarks beside PyTorch.
#   scripts/gpu_check.sh BUILD [PART]...     PART: tests, samples, sanitizer, bench, steps (all of them when none is named)
# BUILD is a folder with tape, libtapedeck_cuda13.so and, if there, tests/test_gpu and bench/bench_cuda. Logs and
# card.json go to $OUT, or to BUILD/gpu. Ends with `N passed, M failed`.
set -uo pipefail
build=$(cd "${1:?usage: scripts/gpu_check.sh BUILD [PART]...}" && pwd)
shift
parts=" ${*:-tests samples sanitizer bench steps} "
cd "$(dirname "$0")/.."
tape=$build/tape
[ -d "$build/lib" ] && export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TAPE_CUDA_PLUGIN=${TAPE_CUDA_PLUGIN:-$(ls "$build"/libtapedeck_cuda1?.so | head -1)}
out=${OUT:-$build/gpu}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
# row WHAT STATUS DETAIL
row() {
  if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  printf '%-48s %-6s %s\n' "$1" "$([ "$2" = 0 ] && echo ok || echo FAILED)" "$3"
}
wants() { [[ $parts == *" $1 "* ]]; }

"$tape" devices
"$tape" devices | grep -q '^cuda .*not usable' && { echo "no card"; exit 6; }

if wants tests; then
  good=0 bad=0
  for file in tests/golden/*.tape; do
    case $file in */bad-*) continue ;; esac
    if "$tape" test --backend cuda "$file" >"$work/out" 2>&1; then
      good=$((good + 1))
    elif ! grep -q 'nothing was compared' "$work/out"; then
      bad=$((bad + 1))
      sed 's/^/    /' "$work/out" | head -6
    fi
  done
  row "golden tapes against their oracles" "$bad" "$good pass, $bad fail"
  if [ -x "$build/tests/test_gpu" ]; then
    TAPE_LONG=1 timeout 400 "$build/tests/test_gpu" >"$out/test_gpu.log" 2>&1
    status=$?
    row "tests of tests/gpu" "$status" \
      "$(grep -c '^\[       OK' "$out/test_gpu.log") pass, $(grep -c '^\[  SKIPPED \].*ms' "$out/test_gpu.log") skipped"
    grep '^\[  FAILED  \].*ms' "$out/test_gpu.log"
    grep -A4 'Failure$' "$out/test_gpu.log" | head -60
    grep 'cases\|compared\|equal to the bit' "$out/test_gpu.log" | cut -c1-250
  fi
fi

# Training and state to the bit: .npz of both sides, member by member.
same() {
  rm -rf "$work/a" "$work/b"
  mkdir -p "$work/a" "$work/b"
  (cd "$work/a" && python3 -m zipfile -e "../$1.npz" .) && (cd "$work/b" && python3 -m zipfile -e "../$2.npz" .)
  diff -rq "$work/a" "$work/b" >"$work/diff"
}
train() {  # train NAME TAPE RUNS
  "$tape" run "samples/$1.tape" "$2" --repeat "$3" --backend cuda --save "$work/cuda.npz" >"$work/out" 2>&1
  local status=$? speed
  speed=$(grep -o '[0-9,]* runs/s' "$work/out" | head -1)
  [ "$status" = 0 ] || { row "sample $1, $3 runs" "$status" "$(tail -1 "$work/out")"; return; }
  "$tape" run "samples/$1.tape" "$2" --repeat "$3" --backend cpu --order canonical --save "$work/cpu.npz" >"$work/out" 2>&1
  same cuda cpu
  status=$?
  row "sample $1, $3 runs, state to the bit" "$status" "$speed$([ "$status" = 0 ] || head -3 "$work/diff")"
}
if wants samples; then
  train digits train 300
  train digits_dropout train 100
  train xor train 200
  train linear_regression train 200
  train mlp_sin train 100
  for i in 1 2 3 4; do
    "$tape" run samples/digits.tape train --repeat 50 --backend cuda --save "$work/m$i.npz" -q >/dev/null 2>&1 &
  done
  wait
  status=0
  for i in 2 3 4; do same m1 "m$i" || status=1; done
  row "four processes at once, equal bits" "$status" ""
fi

if wants sanitizer; then
  # sanitize TOOL FILTER COMMAND...: errors are counted by the tool itself.
  sanitize() {
    local tool=$1 what=$2
    shift 2
    timeout 420 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$@" >"$work/san" 2>&1
    local status=$?
    cat "$work/san" >>"$out/sanitizer.log"
    row "$tool: $what" "$status" "$(grep 'ERROR SUMMARY\|RACECHECK SUMMARY' "$work/san" | tail -1)"
    [ "$status" = 0 ] || grep '=========' "$work/san" | grep -v 'Host Frame\|SUMMARY' | head -12
  }
  export TAPE_PARITY=reduced TAPE_PARITY_THREADS=4
  # One thread for racecheck: it loses track of launches from several.
  test_gpu=$build/tests/test_gpu
  sanitize memcheck "every row and variant, reduced" "$test_gpu" --gtest_filter='GpuParity*:Packs*'
  sanitize racecheck "kernels with shared memory" env TAPE_PARITY_THREADS=1 TAPE_PARITY_ONLY="${TAPE_SHARED_ROWS:-SUM,SOFTMAX,LAYER_NORM,MATMUL,CONV2D,CUMSUM,SORT,TOPK,TRANSPOSE,ATTENTION,CROSS_ENTROPY}" \
    "$test_gpu" --gtest_filter='GpuParity*'
  sanitize synccheck "every row and variant, reduced" "$test_gpu" --gtest_filter='GpuParity*'
  for sample in xor digits; do
    sanitize initcheck "sample $sample" "$tape" run "samples/$sample.tape" train --repeat 5 --backend cuda -q
  done
  unset TAPE_PARITY TAPE_PARITY_THREADS
fi

if wants bench && [ -x "$build/bench/bench_cuda" ]; then
  python3 bench/card_peers.py "$build/bench/bench_cuda" "$out/card.json" >"$out/bench.log" 2>&1
  row "benchmarks, each with its result checked" "$(grep -c 'WRONG' "$out/bench.log")" "$(grep -c ' us ' "$out/bench.log") lines"
  cat "$out/bench.log"
fi

# Whole training steps beside PyTorch and JAX, about a minute and a half.
if wants steps; then
  timeout 180 python3 bench/card_steps.py --tape "$tape" --out "$out/steps.json" >"$out/steps.log" 2>&1
  row "training steps beside their peers" $? "$(grep -c ' us a step' "$out/steps.log") players"
  cat "$out/steps.log"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
