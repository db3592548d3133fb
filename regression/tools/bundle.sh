#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tools/bundle.sh: the archive is unpacked in another folder and used with an empty environment.
# There it may use only the C library of this machine. Then it is used in a folder that contains
# only the archive, a shell and coreutils, without a network except the loopback, like a borrowed
# machine.
#
#   bundle.sh BUILD_FOLDER
#
# In a build on the stand-in for CUDA, the stages of `run gpu` really run, with small sizes.
# Otherwise `run gpu` must explain why there is no GPU.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/tools/bundle.sh" "$1" "$work/bundle.tar.xz"
mkdir "$work/elsewhere"
tar -C "$work/elsewhere" -xf "$work/bundle.tar.xz"
there=$work/elsewhere/trshard-bundle
# no GPU: on a machine with one, 'run gpu' would test for minutes
bare() { env -i CUDA_VISIBLE_DEVICES= PATH=/usr/bin:/bin HOME="$work" OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1 "$@"; }

build=$(cd "$1" && pwd)
cd "$work"
bare "$there/run" -n 2 trshard -version
bare "$there/run" -n 3 unit_comm_comm
# reads golden files
for test in unit_sparse_units_kjt unit_plan_estimators unit_train_running_metrics unit_train_group_metrics unit_io_checkpoint; do
  [ ! -x "$there/tests/$test" ] || bare "$there/run" -n 1 $test
done
# A bundle without golden files uses the repository's.
mv "$there/tests/golden" "$work/carried" && mv "$there/share/regression/golden" "$work/carried_runs"
bare "$there/run" -n 1 unit_io_checkpoint 2> "$work/told" && { echo "golden files come from nowhere" && exit 1; }
grep -q 'golden files are not in this bundle' "$work/told"
bare TRSHARD_SOURCE="$source" "$there/run" -n 1 unit_io_checkpoint
[ "$(ls "$work/carried")" = "$(ls "$there/tests/golden")" ] || { echo "the repository's golden files are others" && exit 1; }
rm -r "$there/tests/golden" "$there/share/regression/golden" && mv "$work/carried" "$there/tests/golden" && mv "$work/carried_runs" "$there/share/regression/golden"
bare "$there/run" bench_make_data -output "$work/data.h5" -samples 2048 -features 26 -rows 1000000
bare "$there/run" -n 2 trshard -device cpu -data_train "$work/data.h5" -tables_num_embeddings 1000000 -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 \
  -batch_size 512 -steps 3 | grep 'trained on 3072 samples'
# checks_gpu STATUS FILE: check the output of `run gpu`
checks_gpu() {
  if grep -q '^TRSHARD_CUDA_ON_CPU:BOOL=ON' "$build/CMakeCache.txt" && [ "$1" != 1 ]; then
    cat "$2"
    grep -qE '^DLRM fp32, samples/s of PyTorch +[0-9]' "$2" && grep -qE '^[0-9]+ ok, 0 failed' "$2"
  else
    [ "$1" = 69 ] || { cat "$2" && exit 1; }
    # launches and products of a step
    expected=$(sed -n 's/^step|DLRM|\([0-9]*\)|\([0-9]*\)|.*/DLRM +\1 +\2/p' "$source/tools/gpu_expected.txt")
    grep -qE "^${expected:?}" "$2" || { echo "no line $expected:" && cat "$2" && exit 1; }
    grep -E 'this build has cpu|no NVIDIA driver|too old|no GPU|no CUDA-capable device' "$2"
  fi
}
bare TRSHARD_TINY=1 "$there/run" gpu none smoke > "$work/gpu" && status=0 || status=$?
checks_gpu "$status" "$work/gpu"
if [ "$status" != 69 ]; then
  # Whole runs find their files and the bundle's libraries, both if a law starts the program
  # directly and if it uses mpirun. The user's PETSc cannot be loaded.
  python=${TRSHARD_PYTHON:-/usr/bin/python3}
  mkdir "$work/broken"
  for library in "$there"/lib/libpetsc*; do : > "$work/broken/$(basename "$library")"; done
  bare LD_LIBRARY_PATH="$work/broken" TRSHARD_TINY=1 TRSHARD_RESULTS="$work/whole" "$there/run" gpu "$python" laws golden > "$work/gpu" && status=0 || status=$?
  { [ "$status" != 1 ] && [ "$(grep -cE '^ok +(cuda_(in_place|sequence_layers|bf16_layers)|golden case) ' "$work/gpu")" -ge 4 ]; } || { cat "$work/gpu" "$work/whole/log.txt" && exit 1; }
  # The visit of ten minutes: variants of both models, kernels, products, and two ranks, one of which stops.
  bare TRSHARD_TINY=1 TRSHARD_STAGE_SECONDS=1500 TRSHARD_RESULTS="$work/dense" "$there/run" gpu none dense > "$work/gpu" && status=0 || status=$?
  { [ "$status" != 1 ] && grep -q '^ok    a rank that stops in a step' "$work/dense/summary.txt" && grep -q '^kernel .*dot_' "$work/dense/dense.txt" &&
    grep -q '^product .*own sum' "$work/dense/dense_mlperf.txt" && grep -qE '^MLPerf bf16 all, samples/s +[0-9]' "$work/dense/dense_mlperf.txt"; } ||
    { cat "$work/gpu" "$work/dense/log.txt" && exit 1; }
  # If a stage has no time left, it says so and succeeds. Stages that were ended leave no process.
  bare TRSHARD_TINY=1 TRSHARD_STAGE_SECONDS=5 TRSHARD_RESULTS="$work/late" "$there/run" gpu "$python" laws > "$work/gpu" && status=0 || status=$?
  [ "$status" = 2 ] || { cat "$work/gpu" && exit 1; }
  for tenth in $(seq 600); do # a killed process takes a moment to exit
    grep -qsF "$there/bin/" /proc/[0-9]*/cmdline || break
    [ "$tenth" != 600 ] || { grep -lsF "$there/bin/" /proc/[0-9]*/cmdline && cat "$work/gpu" && exit 1; }
    sleep 0.1
  done
  bare TRSHARD_TINY=1 TRSHARD_STAGE_SECONDS=5 TRSHARD_RESULTS="$work/late" "$there/run" gpu none kernels bench > "$work/gpu" && status=0 || status=$?
  [ "$status" = 2 ] || { cat "$work/gpu" && exit 1; }
  grep -q '^late ' "$work/late/summary.txt"
  grep -q ' verdict$' "$work/late/bench.txt"
fi
foreign=$(find "$there" -type f \( -path '*/bin/*' -o -name '*.so*' -o -name 'unit_*' -o -path '*/tests/bench_*' -o -path '*/tests/property_*' \) -print0 | xargs -0 env -i LD_LIBRARY_PATH="$there/lib" ldd |
  awk -v here="$there" '$3 ~ /^\// && index($3, here) != 1 {print $3} / not found/ {print $1}' | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\.so' || true)
[ -z "$foreign" ] || { echo "taken from this machine: $foreign"; exit 1; }

# The bare machine: a folder as its root.
if ! unshare --mount --net true 2> /dev/null || ! command -v ip > /dev/null; then
  echo "ok: runs elsewhere (not tried on a bare machine: no right to make a network, or no ip)"
  exit 0
fi
root=$work/root
mkdir -p "$root"/{bin,dev,proc,tmp,etc}
echo 'root:x:0:0::/tmp:/bin/sh' > "$root/etc/passwd"
for program in sh awk grep sed getconf basename cat cp cut date df dirname echo env head id ls mkdir mktemp mv nproc printf rm sleep sort tail tee timeout tr true uname wc; do
  cp -L "$(type -P $program)" "$root/bin/"
done
ldd "$root"/bin/* | awk '$3 ~ /^\// {print $3} $1 ~ /^\// && $1 !~ /:$/ {print $1}' | sort -u | while read -r library; do cp -L --parents "$library" "$root"; done
# parts of the C library
for library in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libresolv.so.2 libanl.so.1; do
  find /lib/x86_64-linux-gnu /lib64 -maxdepth 1 -name $library 2> /dev/null | head -1 | while read -r file; do cp -L --parents "$file" "$root"; done
done
mv "$there" "$root/tmp/"
there=/tmp/trshard-bundle
alone() { # COMMAND for a shell
  # shellcheck disable=SC2016
  unshare --mount --net sh -c 'ip link set lo up && mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" /bin/env -i PATH=/bin HOME=/tmp \
    CUDA_VISIBLE_DEVICES= TRSHARD_TINY=1 OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 /bin/sh -c "cd /tmp && $1"' "$root" "$1"
}
alone "$there/run -n 2 trshard -version && $there/run -n 3 unit_comm_comm"
alone "$there/run bench_make_data -output made.h5 -samples 2048 && $there/run -n 2 trshard -device cpu -data_train made.h5 -tables_num_embeddings 1000000 \
  -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 -batch_size 512 -steps 3" | grep 'trained on 3072 samples'
alone "TRSHARD_STAGE_SECONDS=1500 $there/run gpu none dense" > "$work/gpu" && status=0 || status=$?
if [ "$status" != 69 ]; then grep -qE '^[0-9]+ ok, 0 failed' "$work/gpu" || { cat "$work/gpu" && exit 1; }; fi
alone "$there/run gpu none smoke" > "$work/gpu" && status=0 || status=$?
checks_gpu "$status" "$work/gpu"
echo "ok: runs elsewhere, and on a bare machine"
