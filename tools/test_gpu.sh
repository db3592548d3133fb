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
#   dense       one visit of at most 560 s that tells where a step's time goes: DLRM and MLPerf's model (tables divided by 8) in bf16, with and without
#               graphs, timed algorithms and stochastic rounding; the time of each kernel, and of each algorithm for each product; then the stages ncu,
#               memcheck and racecheck of few tests, nccl, and golden cases from the 17th on, each with a part of the time
#   ncu         times of the kernels of both models, then three counters of the dot, cross and update kernels
#   nccl        NCCL between two ranks, with two GPUs, or with one if this NCCL allows it: exchanges, a training, and a rank that stops in the set-up
#               and in a step. Only this stage shows how NCCL ends calls that hang, because the stand-in has an NCCL of its own
#   golden      TorchRec's golden cases on 1 rank
#   laws        laws between whole runs, CPU compared with GPU
#   shared      golden cases on 2 and 4 ranks that share the GPU
#   runs        the last three
#   sanitizer   memcheck, racecheck, synccheck and initcheck of the kernels' tests, memcheck of a training. Each is also a stage: memcheck (with the
#               training), racecheck, synccheck, initcheck
#   others      all other unit tests
#   all         every unit test: `run tests`, which needs no GPU
# A stage stops itself after 520 s ($TRSHARD_STAGE_SECONDS; smoke after 90, dense after 560), because some machines end a command after ten minutes. On such a machine,
# run one stage per command. Before the first stage the GPU's bandwidths are measured, in at most 60 s (before dense: coarsely, and in its time). Tests that were not begun in time are "late" in
# the summary. `all` has no limit. $TRSHARD_TINY gives sizes for a trial run, with few whole runs.
# These files are in $TRSHARD_RESULTS (default trshard-results) and are written continuously: summary.txt, a line per test; log.txt, all output;
# topology.opts; smoke.txt, bench.txt, dense.txt and training.txt, the output of the benchmark, and its traces, as bench_traces.tar.gz; ncu_*.csv, the
# kernels of a few steps, if ncu works.
# Exit: 0 all passed; 1 a test failed; 2 no test failed, but some were late; 69 the program can use no GPU, and a message gives the reason.
set -u
[ -n "${TRSHARD_TINY:-}" ] || export TRS_LONG=1 # every case of each law
here=$1 python=${2:-none}
shift "$(($# < 2 ? $# : 2))"
stages=$(echo " ${*:-smoke kernels bench ncu nccl runs sanitizer others} " | sed 's/ runs / golden laws shared /; s/ sanitizer / memcheck racecheck synccheck initcheck /')
# shellcheck disable=SC1091
. "$here/share/settings" # cublas, nccl: the libraries that the program opens on a machine with a GPU; empty in a build without CUDA
results=${TRSHARD_RESULTS:-$PWD/trshard-results}
told=$(mktemp -d)
trap 'rm -rf "$told"' EXIT
limit=120 # seconds for a test
script_began=$(date +%s) part_ends=0
stage_began=$script_began
tiny=${TRSHARD_TINY:-} regression=$here/share/regression
sanitizer='' memcheck='--tool memcheck --error-exitcode 86 --print-limit 5 --padding 64'
on_gpu='unit_(gpu_|comm_comm|sparse_unique_bags|data_assemble|compute_(bags|units_(bounds|cache|dedup|kjt|optim|pos)|sequence|tbe_))' # call a GPU's kernels
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1

say() { echo "$@" | tee -a "$results/summary.txt"; }
stage_seconds() {
  seconds=${TRSHARD_STAGE_SECONDS:-520}
  case $stage in all) echo 1000000 ;; preparations) echo $((seconds < 60 ? seconds : 60)) ;; smoke) echo $((seconds < 90 ? seconds : 90)) ;;
    dense) echo "${TRSHARD_STAGE_SECONDS:-560}" ;; *) echo "$seconds" ;; esac
}
left() { # seconds of the stage, or of the part that has begun
  echo $((stage_began + $(stage_seconds) - $(date +%s))) "$part_ends" "$(date +%s)" | awk '{print ($2 > 0 && $2 - $3 < $1 ? $2 - $3 : $1)}'
}
# part SECONDS COMMAND...: a part of a stage
part() {
  part_ends=$(($(date +%s) + $1 * (tiny ? 5 : 1)))
  shift
  "$@"
  part_ends=0
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
  # shellcheck disable=SC2030
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

rows=$((tiny ? 1000 : 1000000))
a_run="-device cuda -data_train $told/bench.h5 -tables_num_embeddings $rows"
a_training="$a_run -tables_embedding_dim 64 -dense_arch 64 -over_arch 64,1 -batch_size 1024"
need_data() { [ -e "$told/bench.h5" ] || check "random data" launch 1 "$here/tests/bench_make_data" -output "$told/bench.h5" -samples 32768 -features 26 -rows $rows; }
# sanitized TOOL...
sanitized() {
  find_sanitizer
  [ -n "$sanitizer" ] || { say "skip  compute-sanitizer is not here, or refuses this GPU" && return; }
  limit=150
  for tool in "$@"; do
    # shellcheck disable=SC2013
    for test in $(grep -oE "^${on_gpu}[a-z_]*" "$here/tests/ranks" | grep -E "$sanitized_tests"); do
      check "$test under $tool" launch 1 "$sanitizer" --tool "$tool" --error-exitcode 86 --print-limit 5 "$here/tests/$test"
    done
  done
  [ "$1" = memcheck ] && need_data || return
  # shellcheck disable=SC2086
  check "a training under memcheck" launch 1 "$sanitizer" $memcheck "$here/bin/trshard" $a_training -steps 4 $sanitized_options
}
sanitized_tests=. sanitized_options=''
few_sanitized() { # of the tests whose kernels use shared memory, and of products in bf16
  sanitized_tests='unit_(gpu_(product|bf16|cross|dense)_twins|data_assemble|compute_tbe_backends)$' sanitized_options='-dense_precision bf16'
  if [ -z "$cublas" ] || ! is_there "$cublas"; then sanitized_options=''; fi
  part 90 sanitized memcheck
  part 60 sanitized racecheck
  sanitized_tests=. sanitized_options=''
}

# by_python SECONDS FILE OPTION...: python uses the libraries of its machine; mpirun and the program use the bundle's
by_python() {
  limit=$1
  shift
  env PATH="$told/bin:$PATH" LD_LIBRARY_PATH="${TRSHARD_USERS_LIBRARY_PATH-}" PYTHONPATH="$regression/harness:$regression/case:$regression/cuda_on_cpu:$here/share/tools" PYTHONDONTWRITEBYTECODE=1 OMPI_MCA_plm=isolated \
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
every_golden() { # FIRST: the number of the first case
  number=0
  for file in "$regression"/golden/runtime/"${tiny:+dcn}"*/case.json; do
    number=$((number + 1))
    [ $number -lt "$1" ] || golden 1 "$(basename "$(dirname "$file")")"
  done
}
laws() {
  every=$(sed -n 's/^def test_\(cuda_[a-z0-9_]*\)(.*/\1/p' "$regression/cuda_on_cpu/law_cuda.py")
  [ -z "$tiny" ] || every='cuda_in_place cuda_sequence_layers cuda_bf16_layers' # with and without mpirun, and golden files of both kinds
  for law in $every; do
    check "$law" by_python 300 "$regression/case/case.py" --binary "$told/bin/trshard" "$law"
  done
}

cores() { # number of cores of this machine, or of those that a container may use
  { cat /sys/fs/cgroup/cpu.max || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us; } 2> /dev/null | tr '\n' ' ' |
    awk -v n="$(env -u OMP_NUM_THREADS nproc)" '$1 + 0 > 0 && $2 > 0 && $1 / $2 < n {n = int($1 / $2)} END {print (n > 1 ? n : 1)}'
}
tiny_bench=${tiny:+--tables 2 --rows 100 --dims 8 --batch 8 --rounds 1 --copy_bytes 4096 --steps 16 --model_dim 8 --pooling 2 --mlperf_rows_by 100000}
# bench FILE OPTION...
bench() {
  file=$results/$1
  shift
  # shellcheck disable=SC2086
  set -- "$@" $tiny_bench
  # all cores for the only rank, whose host fills 26 G numbers of MLPerf's tables
  OMP_NUM_THREADS=$(cores) OPENBLAS_NUM_THREADS=$(cores) "$here/share/tools/bench_gpu.sh" "$here" "$python" --budget "$(($(left) - 10))" "$@" 2>&1 | tee "$file"
  grep '^FAILED' "$file" | sed 's/^FAILED:/FAIL  bench:/' >> "$results/summary.txt"
  grep '^late ' "$file" >> "$results/summary.txt"
  (cd "$results" && ls ./*.json > "$told/traces" 2> /dev/null && tar czf "${file%.txt}_traces.tar.gz" ./*.json 2> /dev/null && rm -f ./*.json)
  grep -q ' verdict$' "$file" || say "FAIL  bench: ended before its table of goals"
}
smoke() {
  for test in unit_gpu_product_twins unit_gpu_bf16_twins unit_gpu_cross_twins unit_gpu_dense_twins unit_gpu_optimizer_twins unit_compute_tbe_backends; do
    [ ! -x "$here/tests/$test" ] || check "$test on 1" launch 1 "$here/tests/$test"
  done
  bench smoke.txt --kernels none --models DLRM,DCN --precisions fp32 --steps 200
}
dense_models="--kernels none --precisions bf16 --mlperf_rows_by 8"
# The steps of both models in every way that is not the default, and the time of each kernel and product.
variants() {
  # shellcheck disable=SC2086
  bench dense.txt $dense_models --models DLRM --steps 600 --variants plain,graphs,algorithms,both,kernels
  # shellcheck disable=SC2086
  bench dense_mlperf.txt $dense_models --models MLPerf --steps 400 --variants plain,graphs,algorithms,nearest,all,kernels
}
# profiled FILE MODEL OPTION...: some launches after the warm-up under ncu. Containers often refuse this measurement.
profiled() {
  file=$1 model=$2
  shift 2
  # shellcheck disable=SC2086
  OMP_NUM_THREADS=$(cores) timeout -k 5 "$(at_most 120)" "$here/share/tools/bench_gpu.sh" "$here" $dense_models --models "$model" --steps 40 --variants plain --budget "$(at_most 110)" $tiny_bench \
    --under "$ncu --target-processes all --clock-control none --csv --log-file $results/$file $*" < /dev/null >> "$results/log.txt" 2>&1
  grep -qs gpu__ "$results/$file" || { say "note  ncu does not work here" && return 1; }
}
profile() {
  ncu=$(command -v ncu || ls /usr/local/cuda/bin/ncu 2> /dev/null) || { say "skip  ncu is not here" && return; }
  [ "$(left)" -gt 30 ] || { say "late  ncu: the stage's time is over" && return; }
  profiled ncu_DLRM.csv DLRM --metrics gpu__time_duration.sum --launch-skip 1500 -c 300 || return
  profiled ncu_MLPerf.csv MLPerf --metrics gpu__time_duration.sum --launch-skip 1500 -c 300
  for model in DLRM MLPerf; do
    profiled ncu_counters_$model.csv $model --metrics gpu__time_duration.sum,dram__bytes.sum,smsp__inst_issued.sum,l1tex__data_bank_conflicts_pipe_lsu.sum -k regex:dot_|cross_|visit|tiles --launch-skip 60 -c 24
  done
}

# --- NCCL between ranks ---
pair="-comm_backend nccl -gpu_share -comm_wait_seconds 10${tiny:+ -batch_size 32}"
# stopped_rank EXPRESSION: a training on two ranks, one of which stops when a line of the output matches. The other must end with 69 at the deadline.
# shellcheck disable=SC2031,SC2086
stopped_rank() {
  launch 2 env NCCL_DEBUG=INFO "$here/bin/trshard" $a_training $pair -steps 1000000 -report_interval 1 > "$told/stopped" 2>&1 &
  launched=$! stopped=''
  while kill -0 $launched 2> /dev/null; do
    if [ -z "$stopped" ] && grep -qE "$1" "$told/stopped"; then
      for process in $(grep -lsF "TRSHARD_CHECK=$TRSHARD_CHECK" /proc/[0-9]*/environ | tr -dc '0-9\n'); do
        ! tr '\0' '\n' < "/proc/$process/environ" 2> /dev/null | grep -qx OMPI_COMM_WORLD_RANK=1 || { kill -STOP "$process" && stopped=1; }
      done
    fi
    sleep 0.2
  done
  wait $launched && status=0 || status=$?
  cat "$told/stopped"
  [ -n "$stopped" ] || { echo "no rank was stopped" && return 1; }
  if [ "$status" != 69 ] || ! grep -q 'NCCL.* did not end in 10 s' "$told/stopped"; then echo "exit $status" && return 1; fi
}
between_ranks() {
  need_data || return
  limit=$((tiny ? 300 : 90))
  # shellcheck disable=SC2086
  if ! launch 2 "$here/bin/trshard" $a_training $pair -steps 4 < /dev/null > "$told/pair" 2>&1; then
    say "skip  NCCL between ranks: $(grep -hE 'trshard: (error|warning)' "$told/pair" | head -1 | cut -c 1-200)"
    cat "$told/pair" >> "$results/log.txt"
    return
  fi
  # shellcheck disable=SC2086
  check "a training of two ranks by NCCL" launch 2 "$here/bin/trshard" $a_training $pair -steps $((tiny ? 8 : 200)) -log_view
  check "unit_comm_comm on 2 by NCCL" launch 2 "$here/tests/unit_comm_comm"
  [ "$tiny" ] || check "a rank that stops in the set-up" stopped_rank 'NCCL INFO .*(Init START|[Bb]ootstrap)'
  check "a rank that stops in a step" stopped_rank '^step '
}

n_stages=0
mkdir -p "$results" && : > "$results/summary.txt" && : > "$results/log.txt"
if [ "$(echo "$stages" | awk '{print $1}')" != all ]; then
  stage=preparations
  export TRSHARD_RESULTS="$results"
  find_libraries
  { uname -a; nvidia-smi; nvidia-smi -q -d CLOCK,ECC,PERFORMANCE; free -g; env -u OMP_NUM_THREADS nproc; df -h /dev/shm /tmp; "$here/run" trshard -version; } >> "$results/log.txt" 2>&1
  [ "$(echo "$stages" | awk '{print $1}')" != dense ] || sizes='-bench_bytes 1MiB -bench_table_bytes 64MiB'
  [ -z "$tiny" ] || sizes='-bench_bytes 1KiB -bench_table_bytes 1MiB'
  # shellcheck disable=SC2086
  check "the GPU's bandwidths" launch 1 "$here/bin/trshard" -task bench -bench_topology "$results/topology.opts" -device cuda ${sizes-} || ! grep -q -e '-device cuda: ' "$told/out" ||
    { "$here/share/tools/bench_gpu.sh" --expected && exit 69; }
fi
for stage in $stages; do
  if [ "$stage" != dense ] || [ "$n_stages" != 0 ]; then stage_began=$(date +%s); fi
  n_stages=$((n_stages + 1))
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
    bench) bench bench.txt ;;
    dense)
      part 200 variants
      part 90 profile
      few_sanitized
      part 70 between_ranks
      ! can_run || every_golden 17 ;;
    ncu) profile ;;
    nccl) between_ranks ;;
    golden) ! can_run || every_golden 1 ;;
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
