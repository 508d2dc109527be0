#!/usr/bin/env bash
# A folder that runs scripts/gpu_check.sh on another machine without building there: programs, plugin, the libraries
# that machine may lack (not the C and C++ runtimes, nor OpenBLAS), golden tapes and samples.
#   scripts/gpu_bundle.sh BUILD OUT      then there: cd OUT && scripts/gpu_check.sh bin
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: scripts/gpu_bundle.sh BUILD OUT}
out=${2:?usage: scripts/gpu_bundle.sh BUILD OUT}
rm -rf "$out"
mkdir -p "$out/bin/lib" "$out/bin/tests" "$out/bin/bench" "$out/tests" "$out/scripts" "$out/bench"
cp "$build/tape" "$build"/libtapedeck_cuda1?.so "$out/bin"
[ -x "$build/tests/test_gpu" ] && cp "$build/tests/test_gpu" "$out/bin/tests"
[ -x "$build/bench/bench_cuda" ] && cp "$build/bench/bench_cuda" "$out/bin/bench"
strip "$out"/bin/tape "$out"/bin/tests/* "$out"/bin/bench/* "$out"/bin/*.so
ldd "$build/tape" "$build"/libtapedeck_cuda1?.so | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libpthread|libdl|librt|libgcc_s|libstdc\+\+|libopenblas|libgfortran|libquadmath)\.' |
  xargs -I{} cp -L {} "$out/bin/lib"
cp -r tests/golden "$out/tests"
cp -r samples "$out"
cp scripts/gpu_check.sh "$out/scripts"
cp bench/card_*.py bench/*.tape "$out/bench"
du -sh "$out"
