#!/usr/bin/env bash
# Builds Tapedeck and does its main job: trains the digits sample on the CPU, then tests it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
install_missing $tape_build_packages

build=build/demo
[ -f "$build/build.ninja" ] ||
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTAPE_TESTS=OFF -DTAPE_BENCH=OFF -DTAPE_WERROR=OFF -DTAPE_CUDA=OFF >/dev/null
cmake --build "$build" --target tape

weights=$build/digits.npz
echo "== train: 2,000 steps of samples/digits.tape"
time "$build/tape" run samples/digits.tape train --backend cpu --repeat 2000 --log loss,every=200 --save "$weights"
echo "== evaluate on the 360 test images"
"$build/tape" run samples/digits.tape evaluate --backend cpu --load "$weights" --out accuracy=-
