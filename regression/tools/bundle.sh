#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tools/bundle.sh: the archive is unpacked in another folder and used with an empty environment, where it must take nothing from this machine but the C library.
#
#   bundle.sh BUILD_FOLDER
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/tools/bundle.sh" "$1" "$work/bundle.tar.xz"
mkdir "$work/elsewhere"
tar -C "$work/elsewhere" -xf "$work/bundle.tar.xz"
there=$work/elsewhere/trshard-bundle
# no GPU: on a machine that has one, 'run gpu' would test for minutes
bare() { env -i CUDA_VISIBLE_DEVICES= PATH=/usr/bin:/bin HOME="$work" OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1 "$@"; }

cd "$work"
bare "$there/run" -n 2 trshard -version
bare "$there/run" -n 3 unit_comm_comm
for test in unit_sparse_units_kjt unit_plan_estimators unit_train_running_metrics; do bare "$there/run" -n 1 $test; done # read golden files
bare "$there/run" -n 2 trshard -device cpu -data_train "$there/share/bench.h5" -tables_num_embeddings 1000000 -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 \
  -batch_size 512 -steps 3 | grep 'trained on 3072 samples'
bare "$there/run" gpu > "$work/gpu" && status=0 || status=$?
if [ "$status" = 69 ]; then grep -E 'this build has cpu|no NVIDIA driver|too old|no GPU|no CUDA-capable device' "$work/gpu"; else cat "$work/gpu"; exit 1; fi
foreign=$(find "$there" -type f \( -path '*/bin/*' -o -name '*.so*' -o -name 'unit_*' -o -path '*/tests/bench_*' -o -path '*/tests/property_*' \) -print0 | xargs -0 env -i LD_LIBRARY_PATH="$there/lib" ldd |
  awk -v here="$there" '$3 ~ /^\// && index($3, here) != 1 {print $3} / not found/ {print $1}' | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\.so' || true)
[ -z "$foreign" ] || { echo "taken from this machine: $foreign"; exit 1; }
echo "ok: runs elsewhere"
