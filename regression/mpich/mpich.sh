#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# mpich.sh SOURCE FOLDER PYTHON - trshard built with MPICH: exchanges, start, a golden training on 1
# to 4 ranks, a checkpoint that another number of ranks resumes, and a stop by signal. Exit 77:
# skipped.
#
# MPICH_PETSC is the prefix of a PETSc that was built with MPICH. Without MPICH_PETSC, petsc.sh
# builds one in FOLDER, where later runs find it.
set -euo pipefail
source=$1 folder=$2 python=$3
fail() {
  echo "mpich.sh: $*" >&2
  exit 1
}
for tool in mpicc.mpich mpiexec.mpich; do
  command -v "$tool" > /dev/null || { echo "skipped: no $tool here (Debian: mpich, libmpich-dev)"; exit 77; }
done
pkg-config --exists hdf5-mpich || { echo "skipped: no HDF5 of MPICH here (Debian: libhdf5-mpich-dev)"; exit 77; }
mkdir -p "$folder"
export PETSC_DIR=${MPICH_PETSC:-$folder/petsc} TRSHARD_PYTHON=$python
code=0
"$source/regression/mpich/petsc.sh" "$PETSC_DIR" || code=$?
[ "$code" != 77 ] || { echo "skipped: PETSc's sources cannot be had from PyPI"; exit 77; }
[ "$code" = 0 ] || fail "PETSc does not build with MPICH"

cmake -S "$source" -B "$folder/build" -G Ninja -DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.mpich)" -DTRSHARD_CUDA=OFF \
  -DTRSHARD_WERROR=ON > "$folder/configure.log" || { tail -n 30 "$folder/configure.log"; fail "it cannot be configured"; }
grep -q 'HDF5: hdf5-mpich' "$folder/configure.log" || fail "CMake takes the HDF5 of another MPI"
units=(unit_dist_pooled unit_dist_id_exchange unit_dist_kjt_all_to_all unit_comm_comm unit_comm_shared_lanes unit_core_start)
cmake --build "$folder/build" --target trshard "${units[@]}" > "$folder/build.log" || { tail -n 30 "$folder/build.log"; fail "it does not build"; }
! ldd "$folder/build/trshard" | grep -q 'libopen-rte\|libmpi\.so\.40' || fail "the program is linked with Open MPI, too"

echo "== unit tests"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
pattern=$(IFS='|'; echo "${units[*]}" | sed 's/unit_\([a-z]*\)_/unit\/\1\//g')
ctest --test-dir "$folder/build" --output-on-failure -R "^($pattern)-n" > "$folder/units.log" || { tail -n 60 "$folder/units.log"; fail "unit tests"; }
grep 'tests passed' "$folder/units.log"

echo "== a golden training on 1 to 4 ranks"
binary=$folder/build/trshard
golden=$source/regression/golden/runtime/rowwise_adagrad_dot
"$python" "$source/tools/check_train.py" "$binary" "$golden" --ranks 1,2,3,4 --mpirun mpiexec.mpich --extra "-pipeline base"

echo "== a checkpoint of 4 ranks, taken up by 3"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$golden"/{run.opts,train.h5,init.h5} "$work"
cd "$work"
"$python" "$source/tools/generate_data.py" --output data.h5 --num-samples 4800 --features 3 --num-embeddings 500 > data.log 2>&1
options=(-data_train data.h5 -tables_embedding_dim 8 -dense_arch "16,8" -over_arch "16,1" -batch_size 4 -report_interval 0 -reproducible)
mpiexec.mpich -n 4 "$binary" "${options[@]}" -batch_size 12 -checkpoint_final whole.h5 -output whole_run.h5 > whole.log 2>&1 || { tail whole.log; fail "the unbroken run"; }
mpiexec.mpich -n 4 "$binary" "${options[@]}" -batch_size 12 -steps 40 -checkpoint_dir kept > first.log 2>&1 || { tail first.log; fail "the first part"; }
mpiexec.mpich -n 3 "$binary" "${options[@]}" -batch_size 16 -resume -checkpoint_dir kept -checkpoint_final resumed.h5 -output resumed_run.h5 > second.log 2>&1 ||
  { tail second.log; fail "the second part"; }
"$python" - << 'END'
import h5py, numpy as np
with h5py.File("whole_run.h5") as a, h5py.File("resumed_run.h5") as b:
    n = len(b["train/loss"])
    assert n == 60 and np.array_equal(a["train/loss"][-n:], b["train/loss"][:]), "the resumed losses are other bits"
END

echo "== stopped by SIGTERM to one rank"
# shellcheck disable=SC2016 # for the inner shell
mpiexec.mpich -n 2 sh -c 'echo $$ > pid.$PMI_RANK; exec "$0" "$@"' "$binary" "${options[@]}" -epochs 100000 -checkpoint_dir stopped > stop.log 2>&1 &
job=$!
for _ in $(seq 600); do
  ! grep -q '^step ' stop.log || break
  kill -0 "$job" || break
  sleep 0.1
done
kill -TERM "$(cat pid.1)"
code=0
wait "$job" || code=$?
[ "$code" = 75 ] || { tail stop.log; fail "a stopped run ends with $code, not 75"; }
ls stopped/step-*.h5 > /dev/null || fail "a stopped run has left no checkpoint"
echo "mpich.sh: all of it, with $("$binary" -version | cut -d, -f2)"
