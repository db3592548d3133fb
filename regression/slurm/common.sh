# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # top, job: the caller's
# Shared code of the tests under Slurm: a private cluster in $work, which ends with the script, and
# waiting for the job with number $job. Source it after $top is set. It ends with 77 if Slurm cannot
# run.
cluster=$top/tools/slurm_local.sh

skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "Slurm's daemons need root"
for tool in slurmctld slurmd munged srun sbatch unshare flock; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$tool" > /dev/null || skip "no $tool here (Debian: slurm-wlm, munge)"
done
unshare --mount --uts --pid --fork --mount-proc true 2> /dev/null || skip "no namespaces here"

# Each node has a private /tmp, so program, data and results are outside of it.
work=$(mktemp -d /var/tmp/trshard_slurm.XXXXXX)
chmod 755 "$work" # munged requires an accessible path
export SLURM_LOCAL_DIR=$work/cluster
cleanup() {
  local code=$?
  trap - EXIT
  case $code in 0 | 77) ;; *) tail -n 40 "$work"/*.out "$work"/cluster/log/*.log 2> /dev/null ;; esac
  "$cluster" stop > /dev/null 2>&1 || true
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 143' TERM INT

field() { scontrol show job "$job" 2> /dev/null | sed -n "s/.*\b$1=\([^ ]*\).*/\1/p"; }
wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || {
      echo "$what did not come"
      exit 1
    }
    sleep 0.05
  done
}
restarted() { [ "$(field Restarts)" = 1 ]; }
ended() { case $(field JobState) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;; *) return 1 ;; esac; }
