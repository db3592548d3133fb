#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The tests and benchmarks of a bundle (tools/bundle.sh) on a machine with a GPU; the bundle's `run gpu` calls it.
#
#   test_gpu.sh BUNDLE [PYTHON [STAGE...]]      default: none, all stages in this order
#
# PYTHON is the machine's python with h5py and numpy (for whole runs) and torch (the benchmark's peer), or none. Quick and informative stages come
# first, for machines that are lent for minutes:
#   smoke       at most 90 s: the GPU's kernels compared with the CPU's, 200 steps of DLRM and DCN with -log_view
#   kernels     unit tests of all code that calls the GPU's kernels, on their numbers of ranks; random models and plans compared with the
#               definition; NCCL with one rank that sends to itself. If a unit test fails, it runs again with one kernel at a time, and with memcheck,
#               which names kernel and line
#   bench       tools/bench_gpu.sh
#   golden      TorchRec's golden cases on 1 rank
#   laws        laws between whole runs, CPU compared with GPU
#   shared      golden cases on 2 and 4 ranks that share the GPU
#   runs        the last three
#   sanitizer   memcheck, racecheck, synccheck and initcheck of the kernels' tests, memcheck of a training. Each is also a stage: memcheck (with the
#               training), racecheck, synccheck, initcheck
#   others      all other unit tests
#   all         every unit test: `run tests`, which needs no GPU
# A stage stops itself after 520 s ($TRSHARD_STAGE_SECONDS; smoke after 90), because some machines end a command after ten minutes. On such a machine,
# run one stage per command. Before the first stage the GPU's bandwidths are measured, in at most 60 s. Tests that were not begun in time are "late" in
# the summary. `all` has no limit. $TRSHARD_TINY gives sizes for a trial run, with few whole runs.
# These files are in $TRSHARD_RESULTS (default trshard-results) and are written continuously: summary.txt, a line per test; log.txt, all output;
# topology.opts; smoke.txt, bench.txt and training.txt, the output of the benchmark; smoke_traces.tar.gz, bench_traces.tar.gz; ncu.csv, the kernels of a
# few steps with their times, if ncu works.
# Exit: 0 all passed; 1 a test failed; 2 no test failed, but some were late; 69 the program can use no GPU, and a message gives the reason.
set -u
[ -n "${TRSHARD_TINY:-}" ] || export TRS_LONG=1 # every case of each law
here=$1 python=${2:-none}
shift "$(($# < 2 ? $# : 2))"
stages=$(echo " ${*:-smoke kernels bench runs sanitizer others} " | sed 's/ runs / golden laws shared /; s/ sanitizer / memcheck racecheck synccheck initcheck /')
# shellcheck disable=SC1091
. "$here/share/settings" # cublas, nccl: the libraries that the program opens on a machine with a GPU; empty in a build without CUDA
results=${TRSHARD_RESULTS:-$PWD/trshard-results}
told=$(mktemp -d)
trap 'rm -rf "$told"' EXIT
limit=120 # seconds for a test
stage_began=$(date +%s)
tiny=${TRSHARD_TINY:-} regression=$here/share/regression
sanitizer='' memcheck='--tool memcheck --error-exitcode 86 --print-limit 5 --padding 64'
on_gpu='unit_(gpu_|comm_comm|sparse_unique_bags|data_assemble|compute_(bags|units_(bounds|cache|dedup|kjt|optim|pos)|sequence|tbe_))' # call a GPU's kernels
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1

say() { echo "$@" | tee -a "$results/summary.txt"; }
stage_seconds() {
  seconds=${TRSHARD_STAGE_SECONDS:-520}
  case $stage in all) echo 1000000 ;; preparations) echo $((seconds < 60 ? seconds : 60)) ;; smoke) echo $((seconds < 90 ? seconds : 90)) ;; *) echo "$seconds" ;; esac
}
left() { # seconds of the stage
  echo $((stage_began + $(stage_seconds) - $(date +%s)))
}
at_most() { # SECONDS, and those that the stage has left
  echo $(($(left) < $1 ? ($(left) > 1 ? $(left) : 1) : $1))
}
# launch RANKS PROGRAM...
launch() {
  ranks=$1 root=''
  shift
  if [ "$(id -u)" = 0 ]; then root=--allow-run-as-root; fi
  # shellcheck disable=SC2086
  timeout -k 5 "$(at_most "$limit")" mpirun $root --oversubscribe --bind-to none --mca plm isolated -n "$ranks" "$@"
}
# End the processes that an ended command has left running, such as ranks, which mpirun puts into groups of their own. They are found by a word in their
# environment. Processes that were asked to end have two seconds for it.
end_the_rest() {
  for turn in 1 2 3 4; do
    rest=$(grep -lsF "TRSHARD_CHECK=$out/" /proc/[0-9]*/environ | tr -dc '0-9\n')
    [ -n "$rest" ] || return 0
    # shellcheck disable=SC2086
    [ $turn -lt 3 ] || kill -9 $rest 2> /dev/null
    sleep 1
  done
}
# check NAME COMMAND...: prints one line; if the command failed also the end of its output
check() {
  name=$1 began=$(date +%s) out=$told/out
  shift
  [ "$(left)" -gt 2 ] || { say "late  $name: the stage's time is over" && return 0; }
  (export TRSHARD_CHECK="$out/" && "$@") < /dev/null > "$out" 2>&1 && status=0 || status=$?
  [ "$status" = 0 ] || end_the_rest
  { echo "=== $name: exit $status" && cat "$out"; } >> "$results/log.txt"
  case $status in
    0) say "ok    $name ($(($(date +%s) - began)) s)" && return 0 ;;
    124 | 137)
      [ "$(left)" -gt 1 ] || { say "late  $name: ended by the stage's time, after $(($(date +%s) - began)) s" && return 0; }
      say "FAIL  $name: not done after $(($(date +%s) - began)) s" ;;
    *) say "FAIL  $name: exit $status" ;;
  esac
  grep -vE '^(\[ +(RUN|OK) |-----|MPI_ABORT|NOTE: inv|You may|exactly when|Primary|mpirun )|^$' "$out" | tail -25 | cut -c 1-300
  return 1
}

# unit_tests [-v] EXPRESSION: the tests whose names match, or with -v do not match, on their numbers of ranks
unit_tests() {
  limit=120
  grep -E "$@" "$here/tests/ranks" > "$told/tests"
  while IFS=: read -r test many; do
    [ -x "$here/tests/$test" ] || continue
    for n in $many; do unit_test "$test" "$n"; done
  done < "$told/tests"
}
unit_test() { # TEST RANKS
  check "$1 on $2" launch "$2" "$here/tests/$1" && return
  if [ -z "$cublas" ] || ! echo "$1" | grep -qE "$on_gpu"; then return; fi
  check "$1 on $2, a kernel at a time" launch "$2" env CUDA_LAUNCH_BLOCKING=1 "$here/tests/$1"
  # shellcheck disable=SC2086
  [ -z "$sanitizer" ] || check "$1 on 1, under memcheck" launch 1 "$sanitizer" $memcheck "$here/tests/$1"
}

# is_there LIBRARY: succeeds if the program would find it
is_there() {
  for folder in $(echo "$LD_LIBRARY_PATH" | tr : ' '); do
    if [ -e "$folder/$1" ]; then return 0; fi
  done
  "$(command -v ldconfig || echo /sbin/ldconfig)" -p 2> /dev/null | grep -qF "$1 "
}
find_libraries() { # libraries of $python's pip, or CUDA's own
  if [ "$python" != none ]; then
    LD_LIBRARY_PATH=${TRSHARD_USERS_LIBRARY_PATH-} "$python" -c 'import glob, site
for at in site.getsitepackages() + [site.getusersitepackages()]: print(*glob.glob(at + "/nvidia/*/lib"), sep="\n")' > "$told/folders" 2> /dev/null
  fi
  echo /usr/local/cuda/lib64 >> "$told/folders"
  while read -r folder; do
    if [ -d "$folder" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder; fi
  done < "$told/folders"
  [ -z "$cublas" ] || is_there "$cublas" || say "note  no $cublas: products are the program's own, slower and fp32 alone (pip's nvidia-cublas has it)"
  [ -z "$nccl" ] || is_there "$nccl" || say "note  no $nccl: several ranks need -comm_backend mpi (pip's nvidia-nccl has it)"
}
find_sanitizer() { # some virtual machines refuse compute-sanitizer
  limit=60
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
  # shellcheck disable=SC2086
  if [ -n "$sanitizer" ] && ! launch 1 "$sanitizer" $memcheck "$here/tests/unit_compute_units_dedup" < /dev/null >> "$results/log.txt" 2>&1; then
    say "note  compute-sanitizer does not work here"
    sanitizer=''
  fi
}

a_run="-device cuda -data_train $told/bench.h5 -tables_num_embeddings 1000000"
a_training="$a_run -tables_embedding_dim 64 -dense_arch 64 -over_arch 64,1 -batch_size 1024"
need_data() { [ -e "$told/bench.h5" ] || check "random data" launch 1 "$here/tests/bench_make_data" -output "$told/bench.h5" -samples 32768 -features 26; }
# sanitized TOOL...
sanitized() {
  find_sanitizer
  [ -n "$sanitizer" ] || { say "skip  compute-sanitizer is not here, or refuses this GPU" && return; }
  limit=150
  for tool in "$@"; do
    # shellcheck disable=SC2013
    for test in $(grep -oE "^${on_gpu}[a-z_]*" "$here/tests/ranks"); do
      check "$test under $tool" launch 1 "$sanitizer" --tool "$tool" --error-exitcode 86 --print-limit 5 "$here/tests/$test"
    done
  done
  [ "$1" = memcheck ] && need_data || return
  # shellcheck disable=SC2086
  check "a training under memcheck" launch 1 "$sanitizer" $memcheck "$here/bin/trshard" $a_training -steps 4
}

# by_python SECONDS FILE OPTION...: python uses the libraries of its machine; mpirun and the program use the bundle's
by_python() {
  limit=$1
  shift
  env PATH="$told/bin:$PATH" LD_LIBRARY_PATH="${TRSHARD_USERS_LIBRARY_PATH-}" PYTHONPATH="$regression/harness:$regression/case:$regression/cuda_on_cpu" PYTHONDONTWRITEBYTECODE=1 OMPI_MCA_plm=isolated \
    TRS_GPU_OPTIONS="-comm_backend mpi -gpu_share" timeout -k 5 "$(at_most "$limit")" "$python" "$@"
}
can_run() {
  LD_LIBRARY_PATH=${TRSHARD_USERS_LIBRARY_PATH-} "$python" -c 'import h5py, numpy' 2> /dev/null || { say "skip  whole runs: $python has no h5py and numpy" && return 1; }
  mkdir -p "$told/bin"
  for program in mpirun trshard; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s/bin/%s" "$@"\n' "$LD_LIBRARY_PATH" "$here" $program > "$told/bin/$program"
    chmod +x "$told/bin/$program"
  done
}
# golden RANKS CASE...: each case is a test, so that a stage that ends early has reported the others
golden() {
  ranks_of_case=$1
  shift
  for case in "$@"; do
    set -- "$here/share/tools/check_train.py" "$told/bin/trshard" "$regression/golden/runtime/$case" --device cuda --verbose --label "$case" --ranks "$ranks_of_case"
    [ "$ranks_of_case" = 1 ] || set -- "$@" --types auto,row_wise --always "-comm_backend mpi -gpu_share"
    check "golden case $case on $ranks_of_case" by_python 300 "$@"
  done
}
every_golden() {
  for file in "$regression"/golden/runtime/"${tiny:+dcn}"*/case.json; do golden 1 "$(basename "$(dirname "$file")")"; done
}
laws() {
  every=$(sed -n 's/^def test_\(cuda_[a-z0-9_]*\)(.*/\1/p' "$regression/cuda_on_cpu/law_cuda.py" | grep -vE 'steady_step|sorts|expected') # these count the stand-in's calls
  [ -z "$tiny" ] || every='cuda_in_place cuda_sequence_layers cuda_bf16_layers' # with and without mpirun, and golden files of both kinds
  for law in $every; do
    check "$law" by_python 300 "$regression/case/case.py" --binary "$told/bin/trshard" "$law"
  done
}

cores() { # number of cores of this machine, or of those that a container may use
  { cat /sys/fs/cgroup/cpu.max || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us; } 2> /dev/null | tr '\n' ' ' |
    awk -v n="$(env -u OMP_NUM_THREADS nproc)" '$1 + 0 > 0 && $2 > 0 && $1 / $2 < n {n = int($1 / $2)} END {print (n > 1 ? n : 1)}'
}
# bench FILE OPTION...
bench() {
  file=$results/$1
  shift
  [ -z "$tiny" ] || set -- "$@" --tables 2 --rows 100 --dims 8 --batch 8 --rounds 1 --copy_bytes 4096 --steps 16 --model_dim 8 --pooling 2 --mlperf_rows_by 100000
  # all cores for the only rank, whose host fills 26 G numbers of MLPerf's tables
  OMP_NUM_THREADS=$(cores) OPENBLAS_NUM_THREADS=$(cores) "$here/share/tools/bench_gpu.sh" "$here" "$python" --budget "$(($(left) - 10))" "$@" 2>&1 | tee "$file"
  grep '^FAILED' "$file" | sed 's/^FAILED:/FAIL  bench:/' >> "$results/summary.txt"
  grep '^late ' "$file" >> "$results/summary.txt"
  (cd "$results" && ls ./*.json > "$told/traces" 2> /dev/null && tar czf "${file%.txt}_traces.tar.gz" ./*.json 2> /dev/null && rm -f ./*.json)
  grep -q ' verdict$' "$file" || say "FAIL  bench: ended before its table of goals"
}
smoke() {
  for test in unit_gpu_product_twins unit_gpu_bf16_twins unit_gpu_dense_twins unit_gpu_optimizer_twins unit_compute_tbe_backends; do
    [ ! -x "$here/tests/$test" ] || check "$test on 1" launch 1 "$here/tests/$test"
  done
  bench smoke.txt --kernels none --models DLRM,DCN --precisions fp32 --steps 200
}
# The time of every kernel in some steps, to compare their sum with a step. Containers often refuse this measurement.
profile() {
  ncu=$(command -v ncu || ls /usr/local/cuda/bin/ncu 2> /dev/null) && [ "$(left)" -gt 30 ] && need_data || return
  limit=120
  # shellcheck disable=SC2086
  launch 1 "$ncu" --clock-control none --metrics gpu__time_duration.sum --csv --log-file "$results/ncu.csv" -c 2000 \
    "$here/bin/trshard" $a_run -tables_embedding_dim 128 -dense_arch 512,256,128 -over_arch 1024,1024,512,256,1 -batch_size 8192 -steps 12 \
    < /dev/null >> "$results/log.txt" 2>&1 || say "note  ncu does not work here"
}

mkdir -p "$results" && : > "$results/summary.txt" && : > "$results/log.txt"
if [ "$(echo "$stages" | awk '{print $1}')" != all ]; then
  stage=preparations
  export TRSHARD_RESULTS="$results"
  find_libraries
  { uname -a; nvidia-smi; nvidia-smi -q -d CLOCK,ECC,PERFORMANCE; free -g; env -u OMP_NUM_THREADS nproc; df -h /dev/shm /tmp; "$here/run" trshard -version; } >> "$results/log.txt" 2>&1
  # shellcheck disable=SC2086
  check "the GPU's bandwidths" launch 1 "$here/bin/trshard" -task bench -bench_topology "$results/topology.opts" -device cuda ${tiny:+-bench_bytes 1KiB -bench_table_bytes 1MiB} || ! grep -q -e '-device cuda: ' "$told/out" ||
    { "$here/share/tools/bench_gpu.sh" --expected && exit 69; }
fi
for stage in $stages; do
  stage_began=$(date +%s)
  say "--- $stage"
  case $stage in
    smoke) smoke ;;
    kernels)
      find_sanitizer
      unit_tests "^$on_gpu"
      limit=300
      for n in 1 3; do
        check "random models beside the definition on $n" launch $n "$here/tests/property_sharded_ebc" --device cuda --backend mpi --draws $((tiny ? 2 : 150))
        check "random models by every plan on $n, bit for bit" launch $n "$here/tests/property_sharded_ebc" --device cuda --backend mpi --reproducible --draws $((tiny ? 2 : 50))
      done
      [ -z "$nccl" ] || ! is_there "$nccl" || check "unit_comm_comm on 1, to itself by NCCL" launch 1 env TRSHARD_NCCL_ALONE=1 "$here/tests/unit_comm_comm" ;;
    bench)
      bench bench.txt
      profile ;;
    golden) ! can_run || every_golden ;;
    laws) ! can_run || laws ;;
    shared) ! can_run || golden 2,4 rowwise_adagrad_dot weighted_mixed dcn adam_dot fp16_rowwise_adagrad mean_sum_mixed_cat ;;
    memcheck | racecheck | synccheck | initcheck) sanitized "$stage" ;;
    others) unit_tests -v "^$on_gpu" ;;
    all) unit_tests '' ;;
    *) echo "test_gpu.sh: no stage $stage" >&2 && exit 64 ;;
  esac
done
echo
grep '^FAIL' "$results/summary.txt"
n_failed=$(grep -c '^FAIL' "$results/summary.txt") n_late=$(grep -c '^late' "$results/summary.txt")
say "$(grep -c '^ok' "$results/summary.txt") ok, $n_failed failed, $n_late late; all of it in $results"
[ "$n_failed" = 0 ] || exit 1
[ "$n_late" = 0 ] || exit 2
