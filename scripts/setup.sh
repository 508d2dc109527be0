# Installs what the build needs and the machine lacks, from Debian's packages. Sourced by demo.sh and check.sh, which
# name the packages. Does nothing, and asks for nothing, when all are there.

tape_build_packages="g++ cmake ninja-build pkg-config libboost-dev libboost-program-options-dev libfmt-dev
nlohmann-json3-dev libxxhash-dev librandom123-dev libopenblas-dev libzip-dev"
tape_test_packages="libgtest-dev libbenchmark-dev clang-format clang-tidy git"

install_missing() {
  command -v dpkg-query >/dev/null || return 0
  local missing=() package sudo=""
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "installing: ${missing[*]}" >&2
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  $sudo apt-get update -qq >&2
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}
