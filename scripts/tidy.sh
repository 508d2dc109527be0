#!/usr/bin/env bash
# clang-tidy on the sources that changed since the revision given (default: the commit before this one), findings fatal.
# Needs build/release configured, for its compile commands.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-HEAD~1}
git rev-parse -q --verify "$base^{commit}" >/dev/null || base=$(git hash-object -t tree /dev/null)
mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
[ ${#files[@]} -eq 0 ] && { echo "no changed sources"; exit 0; }
# The compile commands without what only GCC knows; clang 14 has _Float16 only with the feature named.
mkdir -p build/tidy
sed 's/-fno-gnu-unique//g; s/-Wno-restrict//g' build/release/compile_commands.json >build/tidy/compile_commands.json
printf '%s\n' "${files[@]}" |
  xargs -P 2 -n 2 clang-tidy -p build/tidy --quiet --extra-arg=-mavx512fp16 2>/dev/null
