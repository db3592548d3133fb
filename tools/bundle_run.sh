#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A bundle's command `run` (tools/bundle.sh). It runs the bundle's programs with the bundle's libraries, independently of the machine's libraries.
#
#   run [-n RANKS] PROGRAM OPTION...      PROGRAM: trshard, or a file of tests/
#   run tests                             every unit test
#   run gpu [PYTHON [STAGE...]]           tests and benchmarks on a GPU: share/tools/test_gpu.sh
here=$(cd "$(dirname "$0")" && pwd)
needs_glibc=''
# shellcheck disable=SC1091
. "$here/share/settings" # needs_glibc, cublas, nccl
glibc=$(getconf GNU_LIBC_VERSION 2> /dev/null | sed 's/glibc //')
if [ "$(printf '%s\n%s\n' "$needs_glibc" "${glibc:-0}" | sort -V | head -1)" != "$needs_glibc" ]; then
  echo "run: this machine's C library is glibc ${glibc:-of another kind}, at least $needs_glibc is needed" >&2
  exit 69
fi
# the machine's programs, such as python, keep their own libraries
export TRSHARD_USERS_LIBRARY_PATH="${TRSHARD_USERS_LIBRARY_PATH-${LD_LIBRARY_PATH-}}"
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$here/bin:$PATH"
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/lib/openmpi" \
  OPAL_DATADIR="$here/share" OPAL_PKGDATADIR="$here/share/openmpi" OPAL_SYSCONFDIR="$here/share/openmpi"
export PMIX_INSTALL_PREFIX="$here" PMIX_LIBDIR="$here/lib" PMIX_PKGLIBDIR="$here/lib/pmix" PMIX_PKGDATADIR="$here/share/pmix" \
  PMIX_DATADIR="$here/share" PMIX_SYSCONFDIR="$here/share/pmix"
export TRSHARD_GOLDEN="$here/tests/golden" HWLOC_PLUGINS_PATH="$here/lib/hwloc" # does not exist: the machine's plugins may need libraries that it lacks
if [ ! -e "$here/tests/golden" ]; then # a small bundle, next to the repository
  repository=${TRSHARD_SOURCE:-$PWD}
  if [ -d "$repository/regression/golden/runtime" ]; then
    repository=$(cd "$repository" && pwd)
    mkdir -p "$here/tests/golden"
    ln -s "$repository"/regression/golden/runtime/*.h5 "$repository"/regression/golden/runtime/*/ "$repository/regression/golden/planner/units.json" "$repository"/regression/golden/train/*.h5 "$here/tests/golden/"
    ln -sfn "$repository/regression/golden" "$here/share/regression/golden"
  else
    echo "run: golden files are not in this bundle, tests that need them fail: use it in trshard's repository, or name that in TRSHARD_SOURCE" >&2
  fi
fi
ranks=1
if [ "${1:-}" = -n ]; then ranks=$2 && shift 2; fi
case ${1:-} in
  '') sed -n '3,/^here=/{/^here=/!s/^# \{0,1\}//p;}' "$0" >&2 && exit 64 ;;
  tests) shift && exec "$here/share/tools/test_gpu.sh" "$here" none all "$@" ;;
  gpu) shift && exec "$here/share/tools/test_gpu.sh" "$here" "${@:-none}" ;;
esac
program=$here/bin/$1
[ -x "$program" ] || program=$here/tests/$1
shift
root=
if [ "$(id -u)" = 0 ]; then root=--allow-run-as-root; fi
# shellcheck disable=SC2086
exec mpirun $root --oversubscribe --bind-to none --mca plm isolated -n "$ranks" "$program" "$@"
