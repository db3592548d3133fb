#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# templates.sh BUILD PYTHON - the batch scripts of an installation, under a private Slurm cluster of
# two nodes with simulated GPUs. Exit 77: skipped.
#
# 1. Slurm accepts every script (sbatch --test-only).
# 2. train.sbatch finds the program and the option files of its installation by itself.
# 3. train_gpu.sbatch lets each rank see all GPUs of its node.
# 4. train_container.sbatch starts the image on each rank; a stand-in replaces Apptainer.
# 5. sweep.sbatch runs the rounds of a sweep one after another.
# 6. follow.sbatch requeues itself at a signal and continues with the next sample and delta.
# 7. train_preemptible.sbatch is preempted, leaves a checkpoint and resumes it. A job that is
# cancelled is not requeued.
set -euo pipefail
build=$(realpath "$1")
python=$2
top=$(realpath "$(dirname "$0")/../..")
# shellcheck source=regression/slurm/common.sh
. "$top/regression/slurm/common.sh"
fail() {
  echo "templates.sh: $*" >&2
  exit 1
}

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" > "$work/install.log"
jobs=$prefix/share/trshard/jobs
cd "$work"
"$python" "$top/tools/generate_data.py" --output train.h5 --num-samples 4000 --output-eval eval.h5 --num-eval 200 --features 3 --num-embeddings 100 > data.log
printf -- '-data_train %s/train.h5\n-tables_embedding_dim 4\n-dense_arch 8,4\n-over_arch 8,1\n-batch_size 16\n' "$work" > "$prefix/share/trshard/input/tiny.opts"

"$cluster" start -n 2 -c 4 -g 2
eval "$("$cluster" env)"
srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no pmix"
export OMPI_MCA_mpi_yield_when_idle=1 OPTIONS=input/tiny.opts TRSHARD_PYTHON=$python
unset TRSHARD TRSHARD_JOBS TRSHARD_ROOT

echo "== sbatch --test-only"
for script in "$jobs"/*.sbatch; do
  gpus=
  [[ $script != *gpu* ]] || gpus="--ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1"
  # shellcheck disable=SC2086 # several words
  sbatch --test-only $gpus "$script" > test_only.log 2>&1 || { cat test_only.log; fail "Slurm refuses $script"; }
done

finish() { # WHAT: wait for $job
  wait_for 300 "the end of $1" ended
  [ "$(field JobState)" = COMPLETED ] || fail "$1: $(field JobState) $(field ExitCode)"
}
rows() { "$python" -c "import h5py, sys; print(len(h5py.File(sys.argv[1])['train/loss']))" "$1"; }

echo "== train.sbatch of the installation"
job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --output=installed.out "$jobs/train.sbatch" -steps 5)
finish train.sbatch
[ "$(rows "results/trshard-$job/run.h5")" = 5 ] || fail "no results of 5 steps"
ls "results/trshard-$job/checkpoints"/*.h5 > /dev/null

echo "== train_gpu.sbatch, on the CPU"
job=$(DEVICE=cpu SRUN_OPTIONS="-l" sbatch --parsable --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1 --output=gpu.out \
  "$jobs/train_gpu.sbatch" -steps 5 -output gpu.h5)
finish train_gpu.sbatch
[ "$(rows gpu.h5)" = 5 ] || fail "no results of 5 steps"

echo "== train_container.sbatch"
mkdir bin
# shellcheck disable=SC2016 # for the stand-in
printf '%s\n' '#!/bin/sh' 'echo "apptainer $*" >> apptainer.log' 'while [ "$1" != image.sif ]; do shift; done' 'shift' "PATH=$prefix/bin:\$PATH exec \"\$@\"" > bin/apptainer
chmod +x bin/apptainer
job=$(PATH=$work/bin:$PATH IMAGE=image.sif APPTAINER_OPTIONS=--nv sbatch --parsable --ntasks-per-node=2 --output=container.out \
  "$jobs/train_container.sbatch" -steps 5 -output container.h5)
finish train_container.sbatch
[ "$(rows container.h5)" = 5 ] || fail "no results of 5 steps"
[ "$(grep -c "^apptainer exec --bind $work --pwd $work --nv image.sif trshard -options_file" apptainer.log)" = 2 ] || fail "not two containers: $(cat apptainer.log)"

echo "== sweep.sbatch"
sweep=$prefix/share/trshard/tools/sweep.py
"$python" "$sweep" new sweep --try "-embedding_learning_rate 0.01,0.1,100" --steps 6 --rounds 2 --metric ne
printf -- '-data_eval %s/eval.h5\n' "$work" | cat "$prefix/share/trshard/input/tiny.opts" - > sweep.opts
OPTIONS=sweep.opts "$python" "$sweep" submit sweep --ntasks-per-node=1 --output=sweep-%A_%a.out > submit.log
# Slurm prints the state of each task of an array
swept() { grep -q finished <("$python" "$sweep" table sweep); } # a pipeline would fail when grep ends early
wait_for 300 "the last round" swept
"$python" "$sweep" table sweep | tee table.log
grep -c 'stopped after round 0' table.log | grep -qx 2 || fail "not two trials were stopped"
grep -c finished table.log | grep -qx 1 || fail "not one trial was finished"

echo "== follow.sbatch, over two starts"
mkdir new
cp train.h5 new/day_1.h5
job=$(FOLLOW=new DELTA_EVERY=50 sbatch --parsable --ntasks-per-node=2 --output=follow.out "$jobs/follow.sbatch" -report_interval 0.05)
waits() { [ "$(find "results/trshard-follow-$job/deltas" -name '*.h5' 2> /dev/null | wc -l)" = 5 ]; }
wait_for 180 "five deltas of the first file" waits
scancel --signal=USR1 --batch "$job"
wait_for 180 "the requeue" restarted
cp eval.h5 new/.day_2.h5
mv new/.day_2.h5 new/day_2.h5
touch new/STOP
finish follow.sbatch
"$python" - "results/trshard-follow-$job" <<- 'END'
	import glob, h5py, sys
	with h5py.File(sys.argv[1] + "/run.h5") as run:
	    steps = list(run["train/step"])
	assert steps == list(range(len(steps))) and len(steps) == -(-8200 // 32), steps # with -data_train
	deltas = sorted(glob.glob(sys.argv[1] + "/deltas/*.h5"))
	assert len(deltas) >= 5, deltas
	END

echo "== train_preemptible.sbatch, pushed aside"
# CROWDED: ranks sleep while they wait for others, so that the training is still running when the
# other job arrives
job=$(TRSHARD_CROWDED=1 CHECKPOINT_EVERY=1000000 sbatch --parsable --nodes=2 --ntasks-per-node=4 --output=preempted.out \
  "$jobs/train_preemptible.sbatch" -steps 10000000 -report_interval 0.05)
training() { grep -q '^step ' preempted.out 2> /dev/null; }
wait_for 180 "the first step" training
sbatch --parsable --partition=urgent --nodes=2 --ntasks-per-node=4 --output=urgent.out --wrap 'sleep 1' > urgent.log
wait_for 180 "the requeue" restarted
ls "results/trshard-preemptible-$job/checkpoints"/*.h5 > /dev/null || fail "pushed aside without a checkpoint"
again() { sed -n '/start 2,/,$p' preempted.out | grep -q '^step '; }
wait_for 300 "the second start" again
echo "== cancelled: it does not come back"
scancel "$job"
told() { grep -q '^== stopped with a checkpoint' <(sed -n '/start 2,/,$p' preempted.out); }
wait_for 180 "the word of the script" told
sed -n '/start 2,/,$p' preempted.out | grep -q 'has ended this job (.*): not requeued' || fail "a cancelled job is put back into the queue"
wait_for 180 "the end of the job" ended
sed -n '/start 2,/,$p' preempted.out | grep -q '^resume' || { cat preempted.out; fail "the second start did not go on"; }
echo "templates.sh: all of it"
