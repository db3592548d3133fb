#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Prepares a machine of Debian 12 or 13, or of Ubuntu 24.04, and builds trshard into build/.
#
#   tools/setup.sh [--tests] [--build-dir DIR] [--no-build]
#
#   --tests          also installs and builds what the tests need (cmocka, clang tools, Slurm, a browser, MkDocs;
#                    into build/python Python modules of PyPI)
#   --build-dir DIR  build folder (default: build/ in the repository)
#   --no-build       only installs
#
# Installs missing packages with apt (as root, or through sudo) and lists them, without questions. If nothing is missing, it
# needs neither root nor a network. CMAKE_ARGS (environment) goes to cmake.
set -euo pipefail
cd "$(dirname "$0")/.."

python=/usr/bin/python3 # Debian's own: python3-h5py installs for this python, not for the first python3 on the PATH
packages=(
  build-essential cmake ninja-build pkg-config git
  openmpi-bin libopenmpi-dev petsc-dev libhdf5-openmpi-dev libopenblas-pthread-dev libdnnl-dev
  libjansson-dev libmicrohttpd-dev libyaml-dev libxxhash-dev librandom123-dev libhwloc-dev zlib1g-dev
  python3 python3-pip python3-numpy python3-h5py python3-matplotlib python3-tqdm
)
test_packages=(libcmocka-dev ccache clang clang-format clang-tidy libclang-rt-dev slurm-wlm munge procps util-linux iproute2 python3-yaml python3-venv curl mandoc mkdocs mkdocs-material file lmod)
# shellcheck disable=SC1091 # the system's own file
[ "$(. /etc/os-release 2> /dev/null && echo "${ID:-}")" != debian ] || test_packages+=(chromium) # Ubuntu's is a snap
build_dir=build tests=0 build=1

say() { printf '[setup] %s\n' "$*"; }
die() {
  printf '[setup] %s\n' "$*" >&2
  exit 1
}

# Show the progress of a command whose output goes to a file: its duration and the last line of its output. On a terminal the
# line is updated every second; otherwise a new line is printed every 30 seconds (TRSHARD_SETUP_EVERY).
show_progress() { # what log
  local start=$SECONDS shown=$SECONDS now line took
  while sleep 1 && kill -0 $$ 2> /dev/null; do
    now=$SECONDS # read once, because it may change between two readings
    took=$(((now - start) / 60)):$(printf %02d $(((now - start) % 60)))
    line=$(tail -c 400 "$2" 2> /dev/null | tr '\r' '\n' | sed '/^ *$/d' | tail -n 1 | tr -cd '[:print:]') || continue
    if [ -t 1 ]; then
      printf '\r[setup] %s: %s  %-55.55s' "$1" "$took" "$line"
    elif [ $((now - shown)) -ge "${TRSHARD_SETUP_EVERY:-30}" ]; then
      shown=$now
      say "$1: $took  ${line:0:100}"
    fi
  done
}

# Run a command with its output in a file, and show its progress.
watched() { # what log command...
  local what=$1 log=$2 code=0 watcher
  shift 2
  show_progress "$what" "$log" &
  watcher=$!
  "$@" > "$log" 2>&1 || code=$?
  kill "$watcher" 2> /dev/null || true
  wait "$watcher" 2> /dev/null || true
  [ ! -t 1 ] || printf '\r%-79s\r' ''
  return "$code"
}

while [ $# -gt 0 ]; do
  case $1 in
    --tests) tests=1 ;;
    --build-dir)
      [ $# -ge 2 ] || die "--build-dir needs a folder"
      build_dir=$2
      shift
      ;;
    --no-build) build=0 ;;
    -h | --help)
      sed -n '3,/^set -e/{/^set -e/!s/^# \{0,1\}//p}' tools/setup.sh
      exit 0
      ;;
    *) die "unknown argument '$1' (see tools/setup.sh --help)" ;;
  esac
  shift
done
[ "$tests" = 0 ] || packages+=("${test_packages[@]}")

missing_packages() {
  local name
  for name in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2> /dev/null)" = installed ] || echo "$name"
  done
}

root=()
apt_install() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

install_missing() {
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing with apt: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || die "this needs root and there is no sudo; as root: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  local log
  log=$(mktemp)
  "${root[@]}" env true || die "sudo was refused" # asks for the password here, before lines are overwritten
  if ! watched "apt" "$log" apt_install "${missing[@]}"; then
    tail -n 20 "$log" >&2
    die "apt could not install them (whole log: $log)"
  fi
  rm -f "$log"
}

if command -v dpkg-query > /dev/null; then
  install_missing
else
  say "not a Debian system: expecting the counterparts of: ${packages[*]}"
fi
# The tests of the Python package need tools that Debian has only in old versions. Without them, these tests are skipped.
if [ "$tests" = 1 ] && ! "$build_dir/python/bin/python3" -c 'import build, mypy, nbclient, scikit_build_core, twine' 2> /dev/null; then
  mkdir -p "$build_dir"
  test_modules() {
    "$python" -m venv --system-site-packages "$build_dir/python" &&
      "$build_dir/python/bin/python3" -m pip install --quiet build ipykernel 'matplotlib-inline<0.2' mypy nbclient scikit-build-core twine
  }
  watched "pip" "$build_dir/pip.log" test_modules ||
    say "pip could not install the modules for tests of the Python package, which are skipped (whole log: $build_dir/pip.log)"
fi
"$python" -c 'import h5py, matplotlib, numpy, tqdm' || die "$python lacks one of h5py, matplotlib, numpy, tqdm"
[ "$build" = 1 ] || exit 0

targets=(--target trs_installed)
options=(-DCMAKE_BUILD_TYPE=Release "-DTRSHARD_PYTHON=$python")
if [ "$tests" = 1 ]; then
  targets=()
  options+=(-DBUILD_TESTING=ON)
elif [ ! -e "$build_dir/CMakeCache.txt" ]; then
  options+=(-DBUILD_TESTING=OFF)
fi
# shellcheck disable=SC2206 # several arguments in one variable, as cmake users write them
options+=(${CMAKE_ARGS:-})
[ -e "$build_dir/CMakeCache.txt" ] || options+=(-G Ninja)
log=$build_dir/setup.log
mkdir -p "$build_dir"
say "building Release into $build_dir/"
compile() {
  cmake -S . -B "$build_dir" "${options[@]}" &&
    cmake --build "$build_dir" --parallel "$(env -u OMP_NUM_THREADS nproc)" "${targets[@]}"
}
if ! watched "build" "$log" compile; then
  grep -nE -A16 '[Ee]rror|FAILED' "$log" | head -n 60 >&2 || tail -n 40 "$log" >&2
  die "the build failed (whole log: $log)"
fi
say "ready: $build_dir/trshard"
