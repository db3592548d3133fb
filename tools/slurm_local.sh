#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC1007,SC2209,SC2015,SC2086,SC2046,SC2016 # lists of words that split on purpose; code for the inner shell
# slurm_local.sh - a private, real Slurm cluster of several "nodes" on one machine, for tests.
#
#   slurm_local.sh [-d DIR] start [-n NODES] [-c CPUS] [-g GPUS] [-p PORT]
#   slurm_local.sh [-d DIR] status | stop | env | logs
#   slurm_local.sh [-d DIR] exec COMMAND [ARG...]     (COMMAND sees this cluster's Slurm)
#
#   -d DIR    private state (default $SLURM_LOCAL_DIR, else /var/tmp/slurm_local.$UID)
#   -n NODES  number of nodes, named n0..n(NODES-1)      (default 2)
#   -c CPUS   CPUs per node; more than the machine has is fine     (default 4)
#   -g GPUS   pretend GPUs per node: --gpus*, CUDA_VISIBLE_DEVICES (default 0)
#   -p PORT   first TCP port on 127.0.0.1; the next NODES are used too (default: a free range)
#
# Exit status: 0 done / running; 1 failed / partly running; 2 usage; 3 not running.
#
# Every node is a slurmd in its own mount, UTS and PID namespace, with its own hostname, /tmp and process table. So steps of
# two nodes never share a PMIx or Open MPI session directory. If a node's first process ends, all processes of this node end,
# and no others. The script writes only to DIR, and leaves /etc/slurm, /run/munge and system daemons unchanged. It sends
# signals only to daemons whose process id and start time are recorded in DIR.
set -u
export LC_ALL=C
me=${0##*/}
die()   { echo "$me: $*" >&2; exit "${rc:-1}"; }
usage() { sed -n '4,/^set -u/{s/^# \{0,1\}//;/^set -u/!p}' "$0"; }

DIR=${SLURM_LOCAL_DIR:-/var/tmp/slurm_local.$UID}
NODES=2 CPUS=4 GPUS=0 PORT= CMD=
while [ $# -gt 0 ]; do
  case $1 in
    -d|-n|-c|-g|-p) [ $# -ge 2 ] || { rc=2; die "option $1 needs a value"; }
       case $1 in -d) DIR=$2;; -n) NODES=$2;; -c) CPUS=$2;; -g) GPUS=$2;; -p) PORT=$2;; esac; shift 2;;
    -h|--help) usage; exit 0;;
    start|stop|status|env|logs) [ -z "$CMD" ] || { rc=2; die "two commands: $CMD and $1"; }; CMD=$1; shift;;
    exec) CMD=exec; shift; break;;
    *) rc=2; die "unknown argument '$1' (see $me --help)";;
  esac
done
[ -n "$CMD" ] || { usage >&2; exit 2; }
for v in NODES CPUS GPUS ${PORT:+PORT}; do
  case ${!v} in ''|*[!0-9]*) rc=2; die "$v must be a number, not '${!v}'";; esac
done
[ "$NODES" -ge 1 ] && [ "$NODES" -le 64 ] && [ "$CPUS" -ge 1 ] || { rc=2; die "1..64 nodes and at least 1 CPU, please"; }
case $DIR in /*) ;; *) DIR=$PWD/$DIR;; esac
case $DIR in *[!A-Za-z0-9_./+-]*) rc=2; die "the path '$DIR' has characters that slurm.conf cannot hold";; esac
CONF=$DIR/etc/slurm.conf
RUN=$DIR/run
PATH=$PATH:/usr/sbin:/sbin

# ---- processes: a pid file holds "pid starttime", because a pid may be given to another
starttime() { local s; s=$(cat "/proc/$1/stat" 2>/dev/null) || return 1; s=${s##*) }; set -- $s; case $1 in [ZX]) return 1;; esac; echo "${20}"; }
record()    { local t; t=$(starttime "$2") && echo "$2 $t" > "$RUN/$1.pid"; }
alive()     { local p t; [ -f "$RUN/$1.pid" ] && read -r p t < "$RUN/$1.pid" && [ "$(starttime "$p")" = "$t" ]; }
pidof_()    { local p t; read -r p t < "$RUN/$1.pid" && echo "$p"; }
quit() {     # quit NAME SECONDS: TERM, wait, KILL, wait
  local p i
  [ -f "$RUN/$1.pid" ] || return 0
  if alive "$1"; then
    p=$(pidof_ "$1")    # of a node that is unshare, which blocks SIGTERM: its only child is the node's init
    case $1 in n[0-9]*) kill -TERM $(cat "/proc/$p/task/$p/children" 2>/dev/null) 2>/dev/null;; *) kill -TERM "$p" 2>/dev/null;; esac
    for ((i = 0; i < $2 * 10; i++)); do alive "$1" || break; sleep 0.1; done
    if alive "$1"; then kill -KILL "$p" 2>/dev/null; for ((i = 0; i < 50; i++)); do alive "$1" || break; sleep 0.1; done; fi
  fi
  if alive "$1"; then echo "$me: $1 (pid $p) does not end" >&2; return 1; fi
  rm -f "$RUN/$1.pid"
}
names()     { local f; for f in "$RUN"/*.pid; do [ -e "$f" ] && f=${f##*/} && echo "${f%.pid}"; done; }
client()    { SLURM_CONF=$CONF "$@"; }
tails()     { local f; for f in "$DIR"/log/*.log; do [ -s "$f" ] && echo "--- $f" && tail -n "${1:-8}" "$f"; done; }
clientenv() {   # what a client of this cluster needs; its nodes share one network, so loopback joins them
  echo "export SLURM_CONF=$CONF"
  echo "export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo"
}

stop_all() {
  local n i bad=0
  if alive slurmctld; then    # ask politely first, so that jobs see their SIGTERM
    client timeout 10 scancel --quiet -u "$(id -un)" 2>/dev/null
    for ((i = 0; i < 15; i++)); do [ -z "$(client timeout 5 squeue -h 2>/dev/null)" ] && break; sleep 0.2; done
  fi
  local w=; for n in $(names | grep '^n[0-9]'); do quit "$n" 5 & w="$w $!"; done
  [ -z "$w" ] || wait $w      # these only: a plain wait would wait for a munged of ours, too
  for n in slurmctld munged; do quit "$n" 10; done
  for n in $(names); do alive "$n" && bad=1; done
  return $bad
}

free_range() {  # free_range FIRST COUNT: is no local port of it taken?
  local i used
  used=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk 'NR>1{sub(/.*:/,"",$2); print $2}')
  for ((i = $1; i < $1 + $2; i++)); do grep -qiw "$(printf '%04X' "$i")" <<<"$used" && return 1; done
  return 0
}

take_range() {  # take_range FIRST COUNT: as free_range, and no other cluster is starting there. The daemons inherit the lock.
  { exec 8> "/run/trshard_slurm_$1.lock"; } 2>/dev/null || { free_range "$@"; return; }
  flock -n 8 && free_range "$@" && return
  exec 8>&-; return 1
}

write_conf() {
  local i host; host=$(hostname -s)
  { cat <<C
# written by $me; do not edit
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$RUN/munge.socket,cred_expire=15
CredType=cred/munge
StateSaveLocation=$DIR/ctld
SlurmdSpoolDir=$DIR/spool/%n
SlurmctldPidFile=$RUN/slurmctld.own
SlurmdPidFile=$RUN/slurmd.%n.own
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd.%n.log
JobCompType=jobcomp/filetxt
JobCompLoc=$DIR/log/jobcomp.log
MpiDefault=pmix
PropagateResourceLimits=NONE
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,batch_sched_delay=0,sched_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
KillWait=10
SlurmdTimeout=60
CompleteWait=0
Epilog=$DIR/etc/epilog
C
    if [ "$GPUS" -gt 0 ]; then echo "GresTypes=gpu"; fi
    for ((i = 0; i < NODES; i++)); do
      echo "NodeName=n$i NodeHostname=n$i NodeAddr=127.0.0.1 Port=$((PORT+1+i)) Sockets=1 CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=4000$([ "$GPUS" -gt 0 ] && echo " Gres=gpu:$GPUS") State=UNKNOWN"
    done
    echo "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=5"
    echo "PartitionName=urgent Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF"
  } > "$CONF"
  echo "CgroupAutomount=no" > "$DIR/etc/cgroup.conf"
  : > "$DIR/etc/gres.conf"
  # A stand-in device file each, so that Slurm counts, binds and exports CUDA_VISIBLE_DEVICES
  [ "$GPUS" -gt 0 ] && echo "NodeName=n[0-$((NODES-1))] Name=gpu File=/dev/tty[0-$((GPUS-1))]" > "$DIR/etc/gres.conf"
  # A failed step leaves PMIx/Open MPI sockets and directories; a later step must not meet them
  cat > "$DIR/etc/epilog" <<C
#!/bin/sh
rm -rf "$DIR/spool/\$SLURMD_NODENAME/pmix.\$SLURM_JOB_ID."* "$DIR/spool/\$SLURMD_NODENAME/.pmix"*".\$SLURM_JOB_ID."*
exit 0
C
  chmod 755 "$DIR/etc/epilog"
}

start_node() {  # a node is: namespaces, a bash as its init (it reaps orphans), slurmd below it
  local n=$1
  rm -rf "$DIR/spool/$n" "$DIR/tmp/$n"; mkdir -p "$DIR/spool/$n" "$DIR/tmp/$n"; chmod 1777 "$DIR/tmp/$n"
  SLURM_CONF=$CONF setsid unshare --mount --uts --pid --fork --kill-child=KILL --mount-proc \
    bash -c '
      trap "kill -TERM \$d 2>/dev/null" TERM INT
      set -e
      hostname "$1"
      case $2/ in /tmp/*) mkdir -p "$2/tmp/$1/${2#/tmp/}"; mount --rbind "$2" "$2/tmp/$1/${2#/tmp/}";; esac
      mount --rbind "$2/tmp/$1" /tmp
      set +e; cd /
      slurmd -N "$1" -D & d=$!
      while :; do wait $d; s=$?; kill -0 $d 2>/dev/null || exit $s; done' \
    node "$n" "$DIR" > "$DIR/log/$n.out.log" 2>&1 < /dev/null 9>&- &
  # setsid forks if it leads a group; the needed pid is that of our child, unshare
  record "$n" $!
}

do_start() {
  local n i p want have t0
  [ "$(id -u)" = 0 ] || die "must be root (namespaces, munge and slurmd need it)"
  for n in slurmctld slurmd munged srun unshare setsid flock; do
    command -v "$n" >/dev/null || die "no '$n' here; on Debian: apt-get install slurm-wlm munge util-linux"
  done
  [ "$GPUS" -le 60 ] || die "at most 60 pretend GPUs a node"
  if [ -f "$DIR/etc/shape" ]; then
    want="$NODES $CPUS $GPUS"; have=$(cat "$DIR/etc/shape")
    i=0; for n in $(names); do alive "$n" && i=$((i+1)); done
    if [ "$i" -gt 0 ]; then
      if [ "$i" = $((${have%% *} + 2)) ]; then
        [ "$want" = "$have" ] && { echo "already running: ${have%% *} nodes, $DIR"; return 0; }
        die "runs already with nodes/cpus/gpus $have, not $want; stop it first"
      fi
      echo "$me: found it partly running; starting afresh" >&2; stop_all || die "could not stop what was left"
    fi
  fi
  awk '/32 host LOCAL/ && p !~ /^127\./ {f = 1} {p = $2} END {exit !f}' /proc/net/fib_trie ||
    die "Slurm finds no address but loopback and would not start; e.g.: ip addr add 192.0.2.9/32 dev lo"
  umask 022; mkdir -p "$DIR"/{etc,run,log,ctld,spool,tmp,munge} || die "cannot make $DIR"
  p=$DIR; while [ "$p" != / ]; do  # munged refuses a path that others can write to
    case $(stat -c '%A %u' "$p") in ????????w?' '*) [ -k "$p" ] || die "$p is writable by everyone; choose another DIR";; esac
    p=$(dirname "$p"); done
  chmod 755 "$DIR" "$DIR/run"; chmod 700 "$DIR/munge"
  rm -rf "$DIR"/ctld/* "$DIR"/log/* "$DIR"/run/* "$DIR"/spool/* "$DIR"/tmp/*
  if [ -z "$PORT" ]; then
    for ((PORT = 17100 + RANDOM % 100 * 70; PORT < 32000; PORT += 70)); do take_range "$PORT" $((NODES+1)) && break; done
  else
    free_range "$PORT" $((NODES+1)) || die "a port of $PORT..$((PORT+NODES)) is taken"
  fi
  write_conf; echo "$NODES $CPUS $GPUS" > "$DIR/etc/shape"

  [ -s "$DIR/munge/key" ] || { (umask 077; head -c 1024 /dev/urandom > "$DIR/munge/key"); }
  chmod 400 "$DIR/munge/key"
  setsid munged --foreground --origin=127.0.0.1 --key-file="$DIR/munge/key" --seed-file="$DIR/munge/seed" --socket="$RUN/munge.socket" \
     --pid-file="$RUN/munged.own" --log-file="$DIR/log/munged.log" > "$DIR/log/munged.out.log" 2>&1 < /dev/null 9>&- &
  record munged $!
  for ((i = 0; i < 100; i++)); do [ -S "$RUN/munge.socket" ] && munge -S "$RUN/munge.socket" -n >/dev/null 2>&1 && break; sleep 0.1; done
  munge -S "$RUN/munge.socket" -n >/dev/null 2>&1 || { tails; stop_all; die "munged did not come up"; }

  SLURM_CONF=$CONF setsid slurmctld -D -f "$CONF" > "$DIR/log/slurmctld.out.log" 2>&1 < /dev/null 9>&- &
  record slurmctld $!
  for ((i = 0; i < 600; i++)); do client timeout 5 scontrol ping 2>/dev/null | grep -q 'is UP' && break; alive slurmctld || break; sleep 0.2; done
  alive slurmctld || { tails; stop_all; die "slurmctld did not come up"; }
  for ((i = 0; i < NODES; i++)); do start_node "n$i"; done
  t0=$SECONDS
  until [ "$(client timeout 5 sinfo -h -p debug -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = "$NODES" ]; do
    for ((i = 0; i < NODES; i++)); do alive "n$i" || { tails; stop_all; die "node n$i ended at once: see its lines above"; }; done
    if [ $((SECONDS - t0)) -gt 180 ]; then client timeout 5 sinfo -N -l; tails; stop_all; die "the nodes did not come up in 180 s"; fi
    sleep 0.2
  done
  echo "running: $NODES nodes x $CPUS CPUs$([ "$GPUS" -gt 0 ] && echo " x $GPUS pretend GPUs"), ports $PORT-$((PORT+NODES)), $DIR"
  echo "use it with:  eval \"\$($me -d $DIR env)\"   or:  $me -d $DIR exec srun -N$NODES hostname"
}

do_status() {
  local n up=0 all=0
  [ -f "$DIR/etc/shape" ] || { echo "not running ($DIR)"; return 3; }
  for n in munged slurmctld $(seq -f n%g 0 $(($(cut -d' ' -f1 "$DIR/etc/shape") - 1))); do
    all=$((all+1))
    if alive "$n"; then up=$((up+1)); printf '%-10s up   pid %s\n' "$n" "$(pidof_ "$n")"; else printf '%-10s down\n' "$n"; fi
  done
  [ $up = 0 ] && { echo "not running ($DIR)"; return 3; }
  client timeout 10 sinfo; client timeout 10 squeue
  [ $up = $all ] || { echo "partly running: $up of $all"; return 1; }
}

if [ "$CMD" = start ] || [ "$CMD" = stop ]; then   # one at a time
  mkdir -p "$DIR" 2>/dev/null || die "cannot make $DIR"
  exec 9> "$DIR/lock"; flock -w 120 9 || die "another $me holds $DIR/lock"
fi
case $CMD in
  start)  do_start ;;
  stop)   if [ -z "$(names)" ]; then echo "not running ($DIR)"; else stop_all || die "something is left; see $DIR/run"; echo "stopped ($DIR)"; fi ;;
  status) do_status ;;
  env)    clientenv ;;
  logs)   tails 40 ;;
  exec)   [ $# -gt 0 ] || { rc=2; die "exec needs a command"; }
          alive slurmctld || { rc=3; die "not running ($DIR)"; }
          eval "$(clientenv)"; exec "$@" ;;
esac
