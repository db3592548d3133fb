#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a trained and evaluated model from a fresh clone: jobs/quickstart.sh [--help]
#
# Installs missing packages (tools/setup.sh), builds, fetches MovieLens-100k, trains 4 epochs on 2 ranks, evaluates and
# plots. If PyPI is not reachable, it generates data of the same shape. Needs git and a shell; to install, root or sudo.
# Writes data/ and results/quickstart/. A second run installs nothing and takes seconds.
#
# In an installation, trshard-quickstart does the same with the installed program, below the current folder.
set -euo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
ranks=2
python=/usr/bin/python3
out=results/quickstart
from="" binary=build/trshard # the folder of tools/ and input/, with its "/"
if [ -e "$top/tools/setup.sh" ]; then
  cd "$top"
else
  from=$top/ binary=$(realpath "$top/../../bin/trshard")
fi
case ${1:-} in
  '') ;;
  -h | --help)
    sed -n '3,/^set -e/{/^set -e/!s/^# \{0,1\}//p}' "$top/jobs/quickstart.sh"
    exit 0
    ;;
  *)
    echo "quickstart.sh takes no arguments (see --help)" >&2
    exit 2
    ;;
esac

step() { printf '\n== %s\n' "$*"; }

# By default Open MPI refuses root and more ranks than cores, and it waits by spinning, which is slow on a busy machine.
# OpenMP and OpenBLAS would each use all cores.
cores=$(nproc)
mpirun=(mpirun --bind-to none -n "$ranks")
[ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)
[ "$cores" -ge "$ranks" ] || mpirun+=(--oversubscribe)
export OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS=$((cores >= 2 * ranks ? cores / ranks : 1))
export OPENBLAS_NUM_THREADS=$OMP_NUM_THREADS

step "1/5 set-up and build"
if [ -z "$from" ]; then tools/setup.sh; else "$binary" -version; fi

step "2/5 data"
train=data/ml100k_train.h5
eval=data/ml100k_eval.h5
what="MovieLens-100k"
files="-options_file ${from}input/movielens.opts" # for the commands that are proposed at the end
if [ ! -s "$train" ] || [ ! -s "$eval" ]; then
  code=0
  "$python" "${from}tools/convert_movielens.py" --output-dir data || code=$?
  if [ "$code" = 69 ]; then
    what="generated data of MovieLens-100k's shape"
    train=data/ml100k_like_train.h5
    eval=data/ml100k_like_eval.h5
    files="$files -data_train $train -data_eval $eval"
    echo "Going on with $what; its results say nothing about MovieLens."
    "$python" "${from}tools/generate_data.py" --output "$train" --num-samples 80367 --output-eval "$eval" --num-eval 19633 \
      --num-dense 7 --features user,item,hist,genre,occupation,gender,zip,title \
      --num-embeddings 944,1683,1683,20,22,3,1001,3001 --pooling 1,1,0:20,1:3,1,1,1,1:5 --ids zipf
  elif [ "$code" != 0 ]; then
    exit "$code"
  fi
else
  echo "found $train and $eval"
fi

step "3/5 train: 4 epochs on $ranks ranks"
mkdir -p "$out"
"${mpirun[@]}" "$binary" -options_file "${from}input/movielens.opts" -data_train "$train" -data_eval "$eval" \
  -output "$out/train.h5" -checkpoint_final "$out/model.h5" -plan_output "$out/plan.json"

step "4/5 evaluate"
"${mpirun[@]}" "$binary" -task eval -options_file "${from}input/movielens.opts" -data_eval "$eval" \
  -init_from "$out/model.h5" -output "$out/eval.h5"

step "5/5 plots"
"$python" "${from}tools/plot_run.py" "$out/train.h5" --output "$out/loss.png"
"$python" "${from}tools/plot_plan.py" "$out/plan.json" --output "$out/plan.png"

cat << END

== done: $what
$("$python" "${from}tools/inspect_file.py" --metrics "$out/eval.h5")
$(case $what in MovieLens*) echo "  the real TorchRec, same settings: auc 0.787 +- 0.0014, ne 0.806 +- 0.003" ;; esac)

Written to $out/:
  train.h5    losses and speed of every step, with the full configuration    eval.h5   metrics and predictions
  model.h5    the weights and optimizer states                                plan.json which rank holds what
  loss.png    the loss curve                                                  plan.png  memory and time per rank

Three things to try next:
  1. force another sharding:   ${mpirun[*]} $binary $files -tables_sharding_types row_wise
  2. look where time goes:     ${mpirun[*]} $binary $files -epochs 1 -log_view
  3. plan a cluster you do not have: $binary -task plan -options_file ${from}input/plan_cluster.yaml
All options: $binary -help
END
