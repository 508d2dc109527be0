#!/usr/bin/env bash
# Everything that must be green: installs, builds (the CUDA kernels too where nvcc is), runs all tests (release, with the
# CUDA kernels emulated, then ASan and UBSan without training and other whole samples), and checks formatting, clang-tidy and the
# generated manual. Ends with `N passed, M failed`.
#   scripts/check.sh [--quick]     --quick: the release tests and the manual only
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
install_missing $tape_build_packages $tape_test_packages

quick=${1:-}
passed=0
failed=0
skipped=0
# check WHAT COMMAND...: counts one check.
check() {
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
    passed=$((passed + 1))
  else
    echo "FAILED: $what"
    failed=$((failed + 1))
  fi
}

build() {  # build PRESET OPTION...
  local preset=$1
  shift
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" "$@" >/dev/null
  cmake --build "build/$preset"
}

# One part of a test program: its report goes to DIR/NAME-PART.xml, its output is shown when it fails.
run_one() {
  local reports=$1 filter=$2 parts=$3 program=$4 part=$5 name
  name=$(basename "$program")-$part
  if GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part "$program" --gtest_brief=1 --gtest_filter="$filter" \
    --gtest_output="xml:$reports/$name.xml" >"$reports/$name.log" 2>&1; then
    echo "ok: $program"
  else
    echo "FAILED: $program"
    tail -n 60 "$reports/$name.log"
    [ -f "$reports/$name.xml" ] || echo "$program ended without a report" >>"$reports/died"
  fi
}
export -f run_one

# run_tests DIR FILTER [NAME [BUT [PARTS]]]: the test programs of a build, each in PARTS, two at a time; adds up what their
# reports say.
run_tests() {
  local reports xml tests failures skips
  reports=$(mktemp -d)
  find "$1/tests" -maxdepth 1 -type f -name "${3:-test_*}" ! -name "${4:-}" -executable | sort |
    awk -v parts="${5:-1}" '{for (i = 0; i < parts; ++i) print $0, i}' |
    xargs -P 2 -L 1 bash -c 'run_one "$@"' sh "$reports" "$2" "${5:-1}"
  for xml in "$reports"/*.xml; do
    tests=$(sed -n 's/.*<testsuites tests="\([0-9]*\)".*/\1/p' "$xml")
    failures=$(sed -n 's/.*<testsuites tests="[0-9]*" failures="\([0-9]*\)".*/\1/p' "$xml")
    skips=$(grep -c 'result="skipped"' "$xml" || true)
    passed=$((passed + tests - failures - skips))
    failed=$((failed + failures))
    skipped=$((skipped + skips))
  done
  [ ! -f "$reports/died" ] || failed=$((failed + $(wc -l <"$reports/died")))
  rm -rf "$reports"
}

manual_is_current() { build/release/tape ops --format markdown | cmp - docs/ops.md; }
samples_are_formatted() { build/release/tape fmt --check samples/*.tape samples/parts/*.inc; }
sources_are_formatted() { git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run -Werror; }

echo "== release build"
# Where no card is, the CUDA kernels are compiled to see that they compile: without optimising, in half the time.
# The CPU kernels are at -O2 here; warnings about them are errors in the other half.
cuda_flags="-O3 -DNDEBUG"
command -v nvidia-smi >/dev/null || cuda_flags="-Xcicc -O1 -Xptxas -O1"
build release -DTAPE_CUDA_ARCHITECTURES=90a-real -DTAPE_CUDA_EMULATION=ON -DCMAKE_CUDA_FLAGS_RELEASE="$cuda_flags" \
  "-DTAPE_KERNEL_OPTIONS=-O2;-Wno-error"
echo "== tests, release"
without_card=$(build/release/tape devices | sed -n 's/^cuda .*not usable.*/test_gpu/p')
run_tests build/release '*' 'test_*' "$without_card"
# Without the large products, whose library is on a card only.
echo "== tests of the CUDA kernels, compiled for the processor"
TAPE_CUDA_PLUGIN=$PWD/build/release/libtapedeck_cuda_emulated.so TAPE_PARITY=reduced \
  run_tests build/release '-MatMul.*Large*:MatMul.RunsRepeat*:GpuCells.Large*' test_gpu '' 2
echo "== manual and samples"
check "docs/ops.md is what the op table says" manual_is_current
check "samples are formatted" samples_are_formatted

if [ "$quick" != --quick ]; then
  check "sources are formatted" sources_are_formatted
  echo "== tests, ASan and UBSan"
  build asan
  run_tests build/asan '-*Training*:*PlantedFault*:Sound.*'
  echo "== clang-tidy on changed files"
  check "clang-tidy" scripts/tidy.sh
fi

echo "$passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
[ "$failed" -eq 0 ]
