#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# requeue.sh PYTHON - what the batch scripts do with stopped jobs, under a private Slurm cluster of
# two nodes. A stand-in replaces the program and prints its state. Exit 77: skipped.
#
# 1. If a task of an array is stopped, only this task is requeued.
# 2. A job that is preempted or signalled before its ranks can handle a signal is requeued.
# 3. The last line states the job's fate.
# 4. A stopped trial of a sweep is requeued, too.
# 5. Paths may have blanks, and the number of ranks is optional.
set -euo pipefail
python=$1
top=$(realpath "$(dirname "$0")/../..")
# shellcheck source=regression/slurm/common.sh
. "$top/regression/slurm/common.sh"
fail() {
  echo "requeue.sh: $*" >&2
  exit 1
}

cd "$work"
mkdir -p "in stalled/jobs" "a folder" bin
cp "$top"/jobs/*.sbatch "in stalled/jobs/"
cp -r "$top/tools" "in stalled/"
jobs="$work/in stalled/jobs"
: > run.opts
# PHASE starting: a signal kills the rank. PHASE training: the rank ends with 75. The second start
# succeeds.
cat > program << 'END'
#!/usr/bin/env bash
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && [ "${SLURM_ARRAY_TASK_ID:-1}" = 1 ] || exit 0
if [ "$PHASE" = training ]; then
  # the child also gets the signal, and must not be ended by it first
  (trap '' USR1 TERM && exec sleep 100) &
  trap 'kill -KILL $!; exit 75' USR1 TERM
fi
echo "rank $SLURM_PROCID is $PHASE"
[ "$PHASE" = training ] || exec sleep 100
wait
END
chmod +x program

"$cluster" start -n 2 -c 4
eval "$("$cluster" env)"
export OPTIONS=$work/run.opts TRSHARD=$work/program TRSHARD_PYTHON=$python PHASE=training SRUN_OPTIONS=--mpi=none
unset TRSHARD_JOBS TRSHARD_ROOT TRSHARD_STOP MODULES CONTAINER CHECKPOINT_DIR OUTPUT MAX_RESTARTS

submit() { # LOG ARGUMENT...: sets log and job
  log=$1
  shift
  job=$(sbatch --parsable --ntasks-per-node=1 --output="$log" "$@")
}
said() { grep -q -- "$1" "$log" 2> /dev/null; }
begun() { wait_for 60 "'$1' in $log" said "$1"; }
told() { # LINE: the script's last line
  wait_for 60 "'$1' in $log" said "^== $1\$"
}
goes_on() {
  wait_for 60 "the second start in $log" said ", start 2, "
  wait_for 60 "the end of $job" ended
  [ "$(field JobState)" = COMPLETED ] || fail "$log: $(field JobState) $(field ExitCode)"
}

echo "== an array"
submit array-%a.out --array=0-1 "$jobs/train.sbatch"
array=$job log=array-1.out job=${job}_1
begun "is training"
scancel --signal=USR1 --batch "$job"
told "stopped with a checkpoint: requeued"
goes_on
! grep -q ", start 2, " array-0.out || fail "the task that was finished is requeued"
job=${array}_0
[ "$(field Restarts)" = 0 ] || fail "the task that was finished is requeued"

echo "== pushed aside while the ranks start"
PHASE=starting submit aside.out --nodes=2 --exclusive "$jobs/train_preemptible.sbatch"
begun "rank 1 is starting"
begun "rank 0 is starting"
sbatch --partition=urgent --nodes=2 --exclusive --output=urgent.out --wrap 'sleep 1' > urgent.log
told "stopped while the ranks started: requeued"
goes_on

echo "== signalled while the ranks start"
PHASE=starting submit starting.out "$jobs/train.sbatch"
begun "rank 0 is starting"
scancel --signal=USR1 --batch "$job"
told "stopped while the ranks started: requeued"
goes_on

echo "== signalled while the modules load"
# shellcheck disable=SC2016 # for the script
echo 'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then echo loading; sleep 2; fi' > modules
MODULES=$work/modules submit modules.out "$jobs/train.sbatch"
begun loading
scancel --signal=USR1 --batch "$job"
told "stopped before the ranks started: requeued"
goes_on

echo "== a rank that fails ends the job"
PHASE=starting submit failed.out "$jobs/train.sbatch"
begun "rank 0 is starting"
scancel --signal=KILL "$job.0"
wait_for 60 "the end of $job" ended
[ "$(field JobState) $(field Restarts)" = "FAILED 0" ] || fail "a job whose rank failed: $(field JobState)"

echo "== the last word"
submit refused.out --no-requeue "$jobs/train.sbatch"
begun "is training"
scancel --signal=USR1 --batch "$job"
told "stopped with a checkpoint, but Slurm refuses to requeue this job"
! said ": requeued" || fail "it says that a job is requeued which is not"
submit outside.out "$jobs/train.sbatch"
begun "is training"
scontrol requeue "$job"
told "stopped with a checkpoint: Slurm has requeued this job"
scancel "$job"

echo "== a trial of a sweep"
"$python" "$top/tools/sweep.py" new "a sweep" --try "-a 1,2,3" --steps 9 --rounds 1 > sweep.log
submit sweep.out --array=1 "$jobs/sweep.sbatch" "a sweep" 0
job=${job}_1
begun "is training"
scancel --signal=TERM "$job"
told "stopped with a checkpoint: requeued"
goes_on

echo "== blanks"
# shellcheck disable=SC2016 # for the stand-in
printf '%s\n' '#!/bin/sh' 'printf "<%s>" "$@"' 'exit 0' > bin/apptainer
chmod +x bin/apptainer
(
  cd "a folder"
  PATH=$work/bin:$PATH IMAGE="an image.sif" submit container.out --chdir="$PWD" "$jobs/train_container.sbatch" -name "x y"
  wait_for 60 "the end of $job" ended
  said "<exec><--bind><$PWD><--pwd><$PWD><an image.sif><$work/program>.*<-name><x y>" || fail "$(cat container.out)"
)

echo "== no number of ranks"
log=plain.out job=$(PHASE=training sbatch --parsable --array=0 --nodes=2 --output=plain.out "$jobs/train.sbatch")
wait_for 60 "the end of $job" ended
said ", 2 nodes, 2 ranks, " || fail "$(cat plain.out)"
printf '#!/bin/sh\necho 5\n' > bin/python
printf '#!/bin/sh\ntouch "%s/prolog.log"\n' "$work" > bin/prolog
chmod +x bin/python bin/prolog
log=scaling.out job=$(RANKS="1 3" SRUN_OPTIONS="--mpi=none --prolog=$work/bin/prolog" TRSHARD_PYTHON=$work/bin/python sbatch --parsable --array=0 --output=scaling.out "$jobs/scaling.sbatch")
wait_for 60 "the end of $job" ended
said "^strong,1,1,16384,100,5,$job\$" || fail "$(cat scaling.out)"
[ -e prolog.log ] || fail "scaling.sbatch does not use SRUN_OPTIONS"
echo "requeue.sh: all of it"
