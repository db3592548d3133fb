#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# two_nodes.sh TRSHARD PYTHON - srun and sbatch over two nodes of a private Slurm cluster, against
# mpirun. Exit 77: skipped.
#
# 1. srun --mpi=pmix over both nodes gives mpirun's result.
# 2. If SIGUSR1 stops jobs/train.sbatch, it requeues itself, resumes its checkpoint and gives the
# result of an uninterrupted mpirun. An option after the script overrides the script's option. Each start
# reads copies of the data on the nodes' own disks, which are gone after it (STAGE).
# 3. STAGE refuses data that is not there and folders that cannot be made.
# 4. A task whose MPI world does not include the job's other tasks prints a message.
set -euo pipefail
binary=$(realpath "$1")
python=$2
top=$(realpath "$(dirname "$0")/../..")

# shellcheck source=regression/slurm/common.sh
. "$top/regression/slurm/common.sh"
cp "$binary" "$work/trshard"
cp "$top/jobs/train.sbatch" "$work/"
cp "$top"/regression/golden/runtime/rowwise_adagrad_dot/{run.opts,train.h5,init.h5} "$work/"
cd "$work"

"$cluster" start -n 2 -c 4
eval "$("$cluster" env)"
srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no pmix"
export OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1

compare() { "$python" "$top/tools/compare_runs.py" --quiet "$@"; }
plain() { mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4 ./trshard -options_file run.opts -tables_sharding_types table_wise,row_wise "$@"; }

echo "== srun over two nodes"
options=(-data_train train.h5 -init_from init.h5)
plain "${options[@]}" -output mpirun.h5 -checkpoint_final mpirun_model.h5 > mpirun.out 2>&1
srun --mpi=pmix -N2 --ntasks-per-node=2 ./trshard -options_file run.opts -tables_sharding_types table_wise,row_wise "${options[@]}" -output srun.h5 -checkpoint_final srun_model.h5 > srun.out 2>&1
compare srun.h5 mpirun.h5
compare srun_model.h5 mpirun_model.h5

# simulates an MPI that starts singletons if PMIx is missing; Debian's refuses to start
echo "== a task that sees nothing of the others"
SLURM_NTASKS=2 ./trshard -options_file run.opts "${options[@]}" > alone.out 2>&1
grep -q 'use srun --mpi=pmix' alone.out
grep -q '2 hosts of 2 ranks' srun.out

echo "== sbatch, stopped and requeued"
steps=${SLURM_TEST_STEPS:-4000}
long=(-init_from init.h5 -steps "$steps" -report_interval 0.05 -tables_sharding_types "table_wise,row_wise")
plain "${long[@]}" -output unbroken.h5 -checkpoint_final unbroken_model.h5 > unbroken.out 2>&1 &
# CROWDED: ranks sleep while they wait for others, so that no machine finishes the steps before the
# signal
# shellcheck disable=SC2016 # HERE is a variable of the job
job=$(HERE=/tmp/own STAGE='$HERE' TRSHARD_CROWDED=1 TRSHARD_PYTHON=$python TRSHARD_JOBS=$top/jobs TRSHARD=./trshard OPTIONS=run.opts CHECKPOINT_DIR=checkpoints OUTPUT=overridden.h5 \
  sbatch --parsable --nodes=2 --ntasks-per-node=2 --output="$work/job.out" train.sbatch "${long[@]}" -checkpoint_final job_model.h5 -output job.h5)

training() { grep -qE '(^|[^a-z])step ' job.out 2> /dev/null; }
wait_for 180 "the first step" training
scancel --signal=USR1 --batch "$job"
wait_for 180 "the requeue" restarted
ls checkpoints/*.h5 > /dev/null
wait_for 600 "the end of the job" ended
[ "$(field JobState) $(field ExitCode)" = "COMPLETED 0:0" ] || {
  echo "job: $(field JobState) $(field ExitCode)"
  exit 1
}
[ "$(grep -c "^== data files copied to /tmp/own/trshard-$job on each node: 1, " job.out)" = 2 ] || { grep '^==' job.out; exit 1; }
# shellcheck disable=SC2016
srun --mpi=none -N2 --ntasks-per-node=1 sh -c '[ -d /tmp/own ] && [ -z "$(ls /tmp/own)" ]' || { echo "copies are left on a node"; exit 1; }
refused() { # CODE STAGE OPTION...
  job=$(STAGE=$2 TRSHARD_PYTHON=$python TRSHARD_JOBS=$top/jobs TRSHARD=./trshard OPTIONS=run.opts CHECKPOINT_DIR=refused OUTPUT=refused.h5 \
    sbatch --parsable --nodes=2 --ntasks-per-node=2 --output="$work/refused.out" train.sbatch "${@:3}")
  wait_for 120 "the end of the job" ended
  if [ "$(field ExitCode)" != "$1:0" ] || [ -e refused.h5 ]; then
    echo "STAGE=$2 ${*:3}: $(field ExitCode), expected $1"
    cat refused.out
    exit 1
  fi
}
refused 66 /tmp -data_train none.h5
refused 73 /proc -data_train train.h5
wait
compare job_model.h5 unbroken_model.h5 --rtol 1e-4 --atol 1e-5
"$python" - job.h5 "$steps" << 'END'
import sys, h5py
with h5py.File(sys.argv[1]) as h:
    assert h["train/step"][-1] == int(sys.argv[2]) - 1, h["train/step"][-1]
    assert "-data_train /tmp/own/trshard-" in h.attrs["options"], h.attrs["options"]
END
echo "== all as with mpirun"
