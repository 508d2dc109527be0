#!/usr/bin/env bash
# What the card can show of a build, as a short table: the device, golden tapes against their oracles and to the bit
# against the CPU in canonical order, samples trained on both. Ends with `N passed, M failed`.
#   scripts/gpu_check.sh BUILD     BUILD: a folder with tape, libtapedeck_cuda13.so and (if there) tests/test_gpu
set -uo pipefail
build=$(cd "${1:?usage: scripts/gpu_check.sh BUILD}" && pwd)
cd "$(dirname "$0")/.."
tape=$build/tape
[ -d "$build/lib" ] && export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TAPE_CUDA_PLUGIN=${TAPE_CUDA_PLUGIN:-$(ls "$build"/libtapedeck_cuda1?.so | head -1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
# row WHAT STATUS DETAIL
row() {
  if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  printf '%-44s %-6s %s\n' "$1" "$([ "$2" = 0 ] && echo ok || echo FAILED)" "$3"
}

"$tape" devices
"$tape" devices | grep -q '^cuda .*not usable' && { echo "no card"; exit 6; }

# Golden tapes, each alone: a row without a kernel is counted apart.
good=0 bad=0 missing=0
for file in tests/golden/*.tape; do
  case $file in */bad-*) continue ;; esac
  if "$tape" test --backend cuda "$file" >"$work/out" 2>&1; then
    good=$((good + 1))
  elif grep -q 'no CUDA kernel for' "$work/out"; then
    missing=$((missing + 1))
    grep -oh 'no CUDA kernel for .* yet' "$work/out" | head -1 >>"$work/missing"
  elif grep -q 'nothing was compared' "$work/out"; then
    :
  else
    bad=$((bad + 1))
    sed 's/^/    /' "$work/out" | head -6
  fi
done
row "golden tapes against their oracles" "$bad" "$good pass, $bad fail, $missing without a kernel"

if [ -x "$build/tests/test_gpu" ]; then
  "$build/tests/test_gpu" >"$work/gpu" 2>&1
  status=$?
  row "golden tapes to the bit against cpu" "$status" "$(grep 'tapes played' "$work/gpu")"
  [ "$status" = 0 ] || grep -A3 'Failure' "$work/gpu" | head -60
fi

# Training and state to the bit: .npz of both sides, member by member.
same() {
  mkdir -p "$work/a" "$work/b"
  rm -rf "$work"/a/* "$work"/b/*
  (cd "$work/a" && python3 -m zipfile -e "../$1.cuda.npz" .) && (cd "$work/b" && python3 -m zipfile -e "../$1.cpu.npz" .)
  diff -rq "$work/a" "$work/b" >"$work/diff"
}
train() {  # train NAME TAPE RUNS
  local name=$1 entry=$2 runs=$3
  "$tape" run "samples/$name.tape" "$entry" --repeat "$runs" --backend cuda --save "$work/$name.cuda.npz" >"$work/out" 2>&1
  local status=$?
  if grep -q 'no CUDA kernel for' "$work/out"; then
    printf '%-44s %-6s %s\n' "sample $name" "-" "$(grep -oh 'no CUDA kernel for .*' "$work/out" | head -1)"
    return
  fi
  local speed
  speed=$(grep -o '[0-9,]* runs/s' "$work/out" | head -1)
  if [ "$status" != 0 ]; then
    row "sample $name, $runs runs" "$status" "$(tail -1 "$work/out")"
    return
  fi
  "$tape" run "samples/$name.tape" "$entry" --repeat "$runs" --backend cpu --order canonical \
    --save "$work/$name.cpu.npz" >"$work/out" 2>&1
  same "$name"
  status=$?
  row "sample $name, $runs runs, all state to the bit" "$status" "$speed$([ "$status" = 0 ] || head -3 "$work/diff")"
}
train digits train 300
train digits_dropout train 100
train xor train 200
train linear_regression train 200
train mlp_sin train 100
train elements train 50

# Device memory does not grow, and ten machines at once give one result.
for i in 1 2 3 4; do
  "$tape" run samples/digits.tape train --repeat 50 --backend cuda --save "$work/m$i.cuda.npz" -q >/dev/null 2>&1 &
done
wait
status=0
for i in 2 3 4; do
  (cd "$work" && rm -rf a b && mkdir a b && cd a && python3 -m zipfile -e ../m1.cuda.npz . && cd ../b && python3 -m zipfile -e "../m$i.cuda.npz" .)
  diff -rq "$work/a" "$work/b" >/dev/null || status=1
done
row "four processes at once, equal bits" "$status" ""
[ -f "$work/missing" ] && echo "no kernel yet: $(sort -u "$work/missing" | sed 's/no CUDA kernel for //; s/ yet//' | paste -sd, -)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
