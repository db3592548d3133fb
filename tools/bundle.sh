#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes one archive that runs on another x86-64 Linux, without root and without that machine's packages. It contains the program, unit tests,
# shared libraries and Open MPI.
#
#   tools/bundle.sh [--gpu 90] [BUILD_FOLDER [ARCHIVE]]      default: build, trshard-bundle.tar.xz
#
# --gpu 90 is for a borrowed machine that accepts only 64 MiB, including the repository's tracked files. It first builds in BUILD_FOLDER
# (default: build-sm90), only for GPUs of compute capability 9.0 (H100, H200). It refuses an archive with which the limit would be exceeded. On
# the borrowed machine, golden files come from the repository (`run` looks for it in the current folder, or in TRSHARD_SOURCE), and random data is
# generated.
#
# On the other machine:
#         tar xf trshard-bundle.tar.xz
#         trshard-bundle/run -n 4 trshard -options_file run.opts      a run on 4 ranks of this host
#         trshard-bundle/run tests                                    every unit test of the bundle
#         trshard-bundle/run gpu [PYTHON [STAGE...]]                  on a machine with a GPU: these tests, whole runs, compute-sanitizer, the
#                                                                     benchmark (tools/test_gpu.sh describes each stage)
#
# It needs the C library of the machine that built it, or a newer one (run checks this), and for -device cuda the NVIDIA driver. NCCL and
# cuBLASLt are too large for the archive. They are used if LD_LIBRARY_PATH has them (pip's nvidia-nccl and nvidia-cublas are sufficient; `run
# gpu` looks for PYTHON's). Without them one rank can still run, several ranks need -comm_backend mpi, and products use the program's own kernel.
# On a machine without xz, use
# python3 -c "import tarfile; tarfile.open('trshard-bundle.tar.xz').extractall()".
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
limit_mib=96 gpu='' blocks=(-T2 --block-size=640MiB)
fail() { echo "bundle.sh: $1" >&2; exit "${2:-66}"; }
case ${1:-} in
  --gpu)
    gpu=${2:-} blocks=(-T1)
    tracked=$(git -C "$source" ls-files -z | (cd "$source" && du -cb --files0-from=-) | sed -n 's/\ttotal$//p')
    limit_mib=$((64 - (tracked >> 20) - 1))
    echo "$gpu" | grep -qxE '[0-9]{2,3}' || fail "--gpu takes a compute capability without its dot, as 90" 64
    shift 2 ;;
  -*) fail "$1 is no option: [--gpu 90] [BUILD_FOLDER [ARCHIVE]]" 64 ;;
esac
build=$(readlink -m "${1:-$source/build${gpu:+-sm$gpu}}")
archive=$(readlink -m "${2:-$source/trshard-bundle.tar.xz}")

if [ -n "$gpu" ]; then
  cmake -S "$source" -B "$build" -DTRSHARD_CUDA=ON -DTRSHARD_GPU_ARCHITECTURES="$gpu-real" -DTRSHARD_SHARED_FOLDERS=ON || fail "the build is not configured" 70
  cmake --build "$build" --parallel "$(nproc)" || fail "the build has failed" 70
fi
[ -x "$build/trshard" ] || fail "$build has no trshard: build it first"
mpirun=$(readlink -f "$(command -v mpirun)") || fail "there is no mpirun"
orted=$(readlink -f "$(command -v orted)") || fail "there is no orted, a part of Open MPI 4: version 5 cannot be bundled yet"
info() { ompi_info --path all --parsable | sed -n "s/^path:$1://p" | head -1; }
plugins=$(info pkglibdir)
[ -d "$plugins" ] || fail "Open MPI's plugins are not in '$plugins'"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/trshard-bundle
mkdir -p "$to"/{bin,lib/openmpi,share,tests}
cp "$build/trshard" "$to/bin/"
cp "$mpirun" "$to/bin/mpirun"
cp "$orted" "$to/bin/orted"
if [ -d "$build/regression" ]; then
  find "$build/regression" -maxdepth 1 -name 'unit_*' -type f -perm -u+x -exec cp {} "$to/tests/" \;
else
  echo "bundle.sh: $build has no tests, so the bundle has none (-DBUILD_TESTING=ON and cmocka make them)"
fi
# "unit_FOLDER_MODULE: RANKS" for each unit test, from its first lines
for test in "$source"/regression/unit/*/test_*.c; do
  name=$(basename "$test" .c)
  ranks=$(head -12 "$test" | sed -n 's,.*TEST ranks: \([0-9 ]*[0-9]\) .*,\1,p')
  echo "unit_$(basename "$(dirname "$test")")_${name#test_}: ${ranks:-1}"
done > "$to/tests/ranks"
# The files that `run gpu` needs, also for whole runs with a python that has numpy and h5py. They keep the repository's folders, because they
# look for files in neighbouring folders.
(cd "$source" && cp --parents tools/{test_gpu.sh,bench_gpu.sh,bench_gpu_peer.py,gpu_expected.txt,check_train.py,trspython.py} input/dlrm_dcnv2.yaml \
  regression/{harness,case}/*.py regression/cuda_on_cpu/law_cuda.py "$to/share/")
if [ -z "$gpu" ]; then
  mkdir -p "$to/tests/golden" "$to/share/regression/golden/runtime"
  cp "$source"/regression/golden/runtime/*.h5 "$source/regression/golden/planner/units.json" "$source"/regression/golden/train/*.h5 "$to/tests/golden/"
  cp -r "$source"/regression/golden/runtime/*/ "$to/share/regression/golden/runtime/"
  cp -r "$source/regression/golden/heads" "$to/share/regression/golden/" # files of the laws
  for folder in "$to"/share/regression/golden/runtime/*/; do # unit tests read some of these files
    ln -s "../../share/regression/golden/runtime/$(basename "$folder")" "$to/tests/golden/"
  done
fi
for program in bench/bench_embedding bench/bench_make_data property/property_sharded_ebc; do
  [ ! -x "$build/regression/$program" ] || cp "$build/regression/$program" "$to/tests/"
done
cp -rL "$(info pkgdatadir)" "$to/share/openmpi"

# Plugins for ranks of one host or over TCP. Plugins for networks would need their own libraries.
find "$plugins" -name 'mca_*.so' | grep -vE 'ucx|ofi|psm|openib|usnic|ucc|hcoll|portals|cuda|lustre' | xargs -I{} cp -L {} "$to/lib/openmpi/"
pmix=$(find /usr/lib /usr/local/lib -name 'pmix_mca_*.so' 2> /dev/null | head -1) # not in a folder of Open MPI
if [ -n "$pmix" ]; then
  pmix=$(dirname "$pmix")
  mkdir "$to/lib/pmix"
  find "$pmix" -name 'pmix_mca_*.so' | grep -vE 'munge|lustre|slurm' | xargs -r -I{} cp -L {} "$to/lib/pmix/"
  for share in "$pmix/../../share/pmix" "$pmix/../share/pmix"; do
    if [ -d "$share" ] && [ ! -d "$to/share/pmix" ]; then cp -rL "$share" "$to/share/pmix"; fi
  done
fi

# All libraries that they load, except the C library, which must be the machine's.
is_c_library='/(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libmvec|libnss_[a-z]+)\.so'
find "$to" -type f \( -path '*/bin/*' -o -name '*.so' -o -name 'unit_*' -o -path '*/tests/bench_*' -o -path '*/tests/property_*' \) -print0 | xargs -0 ldd 2> /dev/null |
  awk '$3 ~ /^\// {print $3} / not found/ {print "missing " $1 > "/dev/stderr"}' | sort -u | grep -vE "$is_c_library" > "$work/libraries"
while read -r library; do cp -L "$library" "$to/lib/"; done < "$work/libraries"
find "$to" -type f \( -path '*/bin/*' -o -name '*.so*' -o -name 'unit_*' -o -path '*/tests/bench_*' -o -path '*/tests/property_*' \) -exec strip --strip-unneeded {} + 2> /dev/null || true
glibc=$(find "$to" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec objdump -T {} + 2> /dev/null | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -Vu | tail -1 | sed s/GLIBC_//)

# libraries that the program opens on a machine with a GPU, if they are there; empty in a build without CUDA
cublas=$(grep -aoE 'libcublasLt\.so\.[0-9]+' "$build/trshard" | head -1 || true)
nccl=$(grep -aoE 'libnccl\.so\.[0-9]+' "$build/trshard" | head -1 || true)

printf 'needs_glibc=%s cublas=%s nccl=%s\n' "$glibc" "$cublas" "$nccl" > "$to/share/settings"
cp "$source/tools/bundle_run.sh" "$to/run"
chmod +x "$to/run"

# Tests contain the same GPU code, about 25 MiB apart. With a window that reaches the previous copy, the archive is six times smaller. Each block
# begins without a window and adds 4 MiB. Blocks of half the archive keep two threads busy and take 2 GiB of memory each. An archive that must be
# small is one block.
tar -C "$work" -c --owner=0 --group=0 --sort=name trshard-bundle | xz "${blocks[@]}" --lzma2="preset=${TRSHARD_BUNDLE_LEVEL:-6},dict=64MiB" > "$archive"
bytes=$(stat -c %s "$archive")
printf 'wrote %s: %d.%d MiB, needs glibc %s\n' "$archive" $((bytes >> 20)) $(((bytes >> 10) % 1024 * 10 / 1024)) "$glibc"
[ "$bytes" -le $((limit_mib << 20)) ] || fail "the archive is larger than $limit_mib MiB: a build with -DTRSHARD_SHARED_FOLDERS=ON makes a smaller one" 70
