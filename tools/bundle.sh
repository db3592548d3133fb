#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One archive that runs on another x86-64 Linux, without root and without its packages: program, unit tests, shared libraries, Open MPI.
#
#   tools/bundle.sh [BUILD_FOLDER [ARCHIVE]]      default: build, trshard-bundle.tar.xz
#
# There:  tar xf trshard-bundle.tar.xz
#         trshard-bundle/run -n 4 trshard -options_file run.opts      a run on 4 ranks of this host
#         trshard-bundle/run tests                                    every unit test in it, on 1 to 4 ranks
#         trshard-bundle/run gpu [PEER_PYTHON]                        on a machine with a GPU: these tests, the GPU's under compute-sanitizer where it is
#                                                                     installed, and the benchmark (tools/bench_gpu.sh)
#
# It needs the C library of the machine that built it, or a newer one (run says so), and for -device cuda the NVIDIA driver. NCCL and cuBLASLt
# are too large to be in it: they are used where LD_LIBRARY_PATH has them (pip's nvidia-nccl and nvidia-cublas will do); without them
# one rank runs all the same, several need -comm_backend mpi, and products are the program's own.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(readlink -f "${1:-$source/build}")
archive=$(readlink -m "${2:-$source/trshard-bundle.tar.xz}")
limit_mib=60

fail() { echo "bundle.sh: $1" >&2; exit "${2:-66}"; }
[ -x "$build/trshard" ] || fail "$build has no trshard: build it first"
mpirun=$(readlink -f "$(command -v mpirun)") || fail "there is no mpirun"
orted=$(readlink -f "$(command -v orted)") || fail "there is no orted, a part of Open MPI"
info() { ompi_info --path all --parsable | sed -n "s/^path:$1://p" | head -1; }
plugins=$(info pkglibdir)
[ -d "$plugins" ] || fail "Open MPI's plugins are not in '$plugins'"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/trshard-bundle
mkdir -p "$to"/{bin,lib/openmpi,share,tests/golden}
cp "$build/trshard" "$to/bin/"
cp "$mpirun" "$to/bin/mpirun"
cp "$orted" "$to/bin/orted"
find "$build/regression" -maxdepth 1 -name 'unit_*' -type f -perm -u+x -exec cp {} "$to/tests/" \;
cp "$source"/regression/golden/runtime/*.h5 "$to/tests/golden/"
cp "$source"/tools/bench_gpu.sh "$source"/tools/bench_gpu_peer.py "$to/share/"
bench=$build/regression/bench/bench_embedding
[ ! -x "$bench" ] || cp "$bench" "$to/tests/"
# the benchmark's data: four batches, again and again, of ids that do not repeat
"${TRSHARD_PYTHON:-/usr/bin/python3}" "$source/tools/generate_data.py" --output "$to/share/bench.h5" --num-samples 32768 --features 26 --num-embeddings 1000000 \
  --num-dense 13 > /dev/null || fail "cannot make the benchmark's data (h5py)"
cp -rL "$(info pkgdatadir)" "$to/share/openmpi"

# Plugins for ranks of one host or over TCP; those for networks would bring libraries of their own.
find "$plugins" -name 'mca_*.so' | grep -vE 'ucx|ofi|psm|openib|usnic|ucc|hcoll|portals|cuda|lustre' | xargs -I{} cp -L {} "$to/lib/openmpi/"
pmix=$(find /usr/lib /usr/local/lib -name 'pmix_mca_*.so' 2> /dev/null | head -1) # not in a folder of Open MPI's
if [ -n "$pmix" ]; then
  pmix=$(dirname "$pmix")
  mkdir "$to/lib/pmix"
  find "$pmix" -name 'pmix_mca_*.so' | grep -vE 'munge|lustre|slurm' | xargs -r -I{} cp -L {} "$to/lib/pmix/"
  for share in "$pmix/../../share/pmix" "$pmix/../share/pmix"; do
    if [ -d "$share" ] && [ ! -d "$to/share/pmix" ]; then cp -rL "$share" "$to/share/pmix"; fi
  done
fi

# Everything they load but the C library itself, which belongs to the machine.
is_c_library='/(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libmvec|libnss_[a-z]+)\.so'
find "$to" -type f \( -path '*/bin/*' -o -name '*.so' -o -name 'unit_*' -o -path '*/tests/bench_*' \) -print0 | xargs -0 ldd 2> /dev/null |
  awk '$3 ~ /^\// {print $3} / not found/ {print "missing " $1 > "/dev/stderr"}' | sort -u | grep -vE "$is_c_library" > "$work/libraries"
while read -r library; do cp -L "$library" "$to/lib/"; done < "$work/libraries"
find "$to" -type f \( -path '*/bin/*' -o -name '*.so*' -o -name 'unit_*' -o -path '*/tests/bench_*' \) -exec strip --strip-unneeded {} + 2> /dev/null || true
glibc=$(find "$to" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec objdump -T {} + 2> /dev/null | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -Vu | tail -1 | sed s/GLIBC_//)

# what the program opens on a machine with a GPU, if it is there; of a build without CUDA none
cublas=$(grep -aoE 'libcublasLt\.so\.[0-9]+' "$build/trshard" | head -1 || true)
nccl=$(grep -aoE 'libnccl\.so\.[0-9]+' "$build/trshard" | head -1 || true)

cat > "$to/run" <<RUN
#!/bin/sh
# run [-n RANKS] PROGRAM OPTION...  |  run tests  |  run gpu [PEER_PYTHON]     (PROGRAM: trshard, or a file of tests/)
here=\$(cd "\$(dirname "\$0")" && pwd)
needs=$glibc cublas=$cublas nccl=$nccl
has=\$(getconf GNU_LIBC_VERSION 2> /dev/null | sed 's/glibc //')
if [ "\$(printf '%s\n%s\n' "\$needs" "\${has:-0}" | sort -V | head -1)" != "\$needs" ]; then
  echo "run: this machine's C library is glibc \${has:-of another kind}, at least \$needs is needed" >&2
  exit 69
fi
RUN
cat >> "$to/run" <<'RUN'
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$here/bin:$PATH"
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/lib/openmpi" \
  OPAL_DATADIR="$here/share" OPAL_PKGDATADIR="$here/share/openmpi" OPAL_SYSCONFDIR="$here/share/openmpi"
export PMIX_INSTALL_PREFIX="$here" PMIX_LIBDIR="$here/lib" PMIX_PKGLIBDIR="$here/lib/pmix" PMIX_PKGDATADIR="$here/share/pmix" \
  PMIX_DATADIR="$here/share" PMIX_SYSCONFDIR="$here/share/pmix"
export TRSHARD_GOLDEN="$here/tests/golden" HWLOC_PLUGINS_PATH="$here/lib/hwloc" # none: those of the machine may want more than it has
root=
if [ "$(id -u)" = 0 ]; then root=--allow-run-as-root; fi
ranks=1
if [ "${1:-}" = -n ]; then ranks=$2; shift 2; fi
launch() { mpirun $root --oversubscribe --bind-to none --mca plm isolated -n "$@"; }
log=${TMPDIR:-/tmp}/trshard-test.$$
failed=0
# check NAME COMMAND...: prints what it said only when it failed
check() {
  name=$1
  shift
  if "$@" > "$log" 2>&1; then echo "ok    $name"; else failed=1 && echo "FAIL  $name" && cat "$log"; fi
  rm -f "$log"
}
unit_tests() {
  for test in "$here"/tests/unit_*; do
    for ranks in 1 2 3 4; do check "$(basename "$test") on $ranks" launch "$ranks" "$test"; done
  done
}
# is_there LIBRARY: where the program would find it
is_there() (
  ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
  "$ldconfig" -p 2> /dev/null | grep -qF "$1" && exit 0
  IFS=:
  for folder in $LD_LIBRARY_PATH; do [ -e "$folder/$1" ] && exit 0; done
  exit 1
)
tell_libraries() {
  [ -z "$cublas" ] || is_there "$cublas" ||
    echo "note  no $cublas in LD_LIBRARY_PATH: products are the program's own, slower and fp32 alone (pip's nvidia-cublas has it)"
  [ -z "$nccl" ] || is_there "$nccl" || echo "note  no $nccl in LD_LIBRARY_PATH: several ranks need -comm_backend mpi (pip's nvidia-nccl has it)"
}
sanitized() {
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null) || { echo "skip  compute-sanitizer is not here"; return; }
  for test in "$here"/tests/unit_gpu_* "$here"/tests/unit_compute_* "$here"/tests/unit_sparse_unique_bags; do
    for tool in memcheck racecheck initcheck; do
      check "$(basename "$test") under $tool" launch 1 "$sanitizer" --tool $tool --error-exitcode 1 "$test"
    done
  done
}
case ${1:-} in
  tests) unit_tests ;;
  gpu)
    tell_libraries
    check "a GPU" launch 1 "$here/bin/trshard" -task bench -bench_topology "$log.yaml" -device cuda
    rm -f "$log.yaml"
    [ $failed = 0 ] || exit 69
    unit_tests
    sanitized
    "$here/share/bench_gpu.sh" "$here" ${2:+"$2"} || failed=1
    ;;
  *)
    program=$1
    shift || { sed -n 2p "$0" >&2; exit 64; }
    [ -x "$here/bin/$program" ] && program=$here/bin/$program || program=$here/tests/$program
    launch "$ranks" "$program" "$@"
    exit
    ;;
esac
exit $failed
RUN
chmod +x "$to/run"

# Tests have the same GPU code in them, some 15 MiB apart: a window that sees the one before makes the archive six times smaller.
tar -C "$work" -c --owner=0 --group=0 --sort=name trshard-bundle | xz -T0 --lzma2="preset=${TRSHARD_BUNDLE_LEVEL:-6},dict=64MiB" > "$archive"
bytes=$(stat -c %s "$archive")
printf 'wrote %s: %d.%d MiB, needs glibc %s\n' "$archive" $((bytes >> 20)) $(((bytes >> 10) % 1024 * 10 / 1024)) "$glibc"
[ "$bytes" -le $((limit_mib << 20)) ] || fail "the archive is larger than $limit_mib MiB" 70
