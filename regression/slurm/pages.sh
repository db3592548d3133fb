#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pages.sh TRSHARD PYTHON - the batch commands of jobs/README.md, and of the comments at the head of
# the batch scripts, run unchanged under a private Slurm cluster of two nodes with simulated GPUs.
# Every job must succeed and leave the files that the page promises. Exit 77: skipped.
#
# The data have the shape of the pages' data. A stand-in replaces Apptainer. The partition
# "preemptible" belongs to the cluster. -device cpu is appended to the GPU job, because options
# after a script override it.
set -euo pipefail
binary=$(realpath "$1")
export TRSHARD_PYTHON=$2
top=$(realpath "$(dirname "$0")/../..")
# shellcheck source=regression/slurm/common.sh
. "$top/regression/slurm/common.sh"
fail() {
  echo "pages.sh: $*" >&2
  exit 1
}

cd "$work"
mkdir build data bin
cp "$binary" build/
cp -r "$top"/{jobs,input,tools} .
# shellcheck disable=SC2016 # for the stand-ins
printf '%s\n' '#!/bin/sh' 'while [ "$1" != trshard.sif ]; do shift; done' 'shift' "PATH=$work/build:\$PATH exec \"\$@\"" > bin/apptainer
# shellcheck disable=SC2016
printf '%s\n' '#!/bin/sh' 'exec "$TRSHARD_PYTHON" "$@"' > bin/python3
chmod +x bin/*
export PATH=$work/bin:$PATH OMPI_MCA_mpi_yield_when_idle=1
python3 tools/generate_data.py --output data/ml100k_train.h5 --num-samples 24000 --output-eval data/ml100k_eval.h5 --num-eval 2000 \
  --num-dense 7 --features user,item,hist,genre,occupation,gender,zip,title \
  --num-embeddings 944,1683,1683,20,22,3,1001,3001 --pooling 1,1,0:20,1:3,1,1,1,1:5 --ids zipf > data.log
# for follow.sbatch: the folder has ended already
mkdir new
touch new/STOP
printf -- '-data_train data/ml100k_train.h5\n-tables_embedding_dim 4\n-dense_arch 8,4\n-over_arch 8,1\n' > clicks.opts
"$cluster" start -n 2 -c 8 -g 8
eval "$("$cluster" env)"
srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no pmix"

# The commands: indented lines of the page, and comments with three blanks in the scripts. "\" joins
# lines.
commands() { # FILE
  sed -n -e 's/^#   //p' -e 's/^    //p' "$1" | sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba}' | grep -E '^([A-Z]+=("[^"]*"|[^ ]*) )*(sbatch|python3 tools/(sweep|plot_scaling|report)\.py|bash jobs)' | grep -v -e --watch |
    sed -e 's/ \[-option value \.\.\.\]//' -e 's/   .*//' -e 's/--cpus-per-task=8/--cpus-per-task=1/' -e 's/--partition=preemptible/--partition=debug/' -e 's/input\/criteo_terabyte.yaml/input\/movielens.opts/' -e 's/\(jobs\/train_gpu\.sbatch\).*/--cpus-per-task=1 \1 -device cpu/'
}
# Run a command and wait for its jobs, as a reader would before the next command.
# for the scaling study: fewer steps and a smaller model
export STEPS=3 GLOBAL_BATCH=512 BATCH=64 OPTIONS=input/movielens.opts
idle() { # squeue may fail on a busy machine
  sleep 0.3
  local left
  left=$(squeue -h -o %i 2> /dev/null) && [ -z "$left" ]
}
run() {
  echo "== $1"
  bash -euo pipefail -c "$1" || fail "ended with $?: $1"
  wait_for 600 "the end of its jobs" idle
}
n=0
for page in jobs/README.md jobs/*.sbatch; do
  ! grep -q 'sweep.py new' "$page" || rm -rf results/sweep
  while read -r line; do
    n=$((n + 1))
    run "$line" < /dev/null
  done < <(commands "$page")
done
[ "$n" -ge 12 ] || fail "the pages have $n commands: the test does not find them"

# JobState of each job that has ended. Each task of an array has a line.
jobs=$(sed -n 's/.*Name=\([^ ]*\) .*JobState=\([A-Z_]*\) .*/\1 \2/p' cluster/log/jobcomp.log)
[ "$(grep -c . <<< "$jobs")" -ge 20 ] || fail "few jobs: $jobs"
! grep -v COMPLETED <<< "$jobs" || fail "jobs that did not end well"
winner=$(grep -h -A1 '^winner: ' sweep-end-*.out)
echo "$winner"
model=$(sed -n 's/^its model is \(.*\), its results are .*/\1/p' <<< "$winner" | tail -n 1)
"$TRSHARD_PYTHON" tools/inspect_file.py "$model" > model.log || fail "the sweep's winner has no model"
[ "$(python3 tools/sweep.py table results/sweep | grep -c '^winner: ')" = 1 ] || fail "the table has no winner"
for made in results/scaling/scaling.png results/scaling/report.html results/trshard-*/run.h5; do [ -s "$made" ] || fail "$made is missing"; done
echo "pages.sh: all of it"
