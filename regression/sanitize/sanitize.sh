#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A second build with AddressSanitizer and UndefinedBehaviorSanitizer, a third with ThreadSanitizer,
# and tests in these builds:
#
#   sanitize.sh build|unit|golden|badinput|case|leaks|serve BUILD_FOLDER
#   sanitize.sh build_threads|unit_threads|kernel_threads|case_threads|serve_threads BUILD_FOLDER
#
# TRS_LONG in the environment selects more of each, for the tests sanitize-long/.
#
# If a sanitizer reports an error, the process ends with 99, so that the test fails. Leaks are
# detected only in whole runs (leaks), because unit tests free much memory only at the end of the
# process. lsan.supp suppresses Open MPI's leaks. openmp_for_tsan.c informs ThreadSanitizer of the
# order that parallel regions impose, and tsan.supp lists its findings in Open MPI.
set -euo pipefail
what=$1
build=$2
long=${TRS_LONG:-}
source=$(cd "$(dirname "$0")/../.." && pwd)
python=${TRSHARD_PYTHON:-/usr/bin/python3}

# If addresses have many random bits (vm.mmap_rnd_bits), gcc 12's ThreadSanitizer finds no place for
# its shadow memory. Randomisation is therefore disabled if this is allowed.
if [[ $what == *_threads && ! -v TRS_FIXED_ADDRESSES ]] && setarch -R true 2> /dev/null; then
  TRS_FIXED_ADDRESSES=1 exec setarch -R "$0" "$@"
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
# detect_stack_use_after_return is off, because gcc 12 misaligns 64-byte locals with it (its bug
# 110027).
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:exitcode=99:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99
export PYTHONPATH=$source/regression/harness TRS_PATIENCE=20

export TSAN_OPTIONS="exitcode=99:suppressions='$source/regression/sanitize/tsan.supp'"

configure_and_build() { # SANITIZERS [NINJA_TARGET...]
  local generator=() launcher=() targets=()
  if command -v ninja > /dev/null; then generator=(-G Ninja); fi
  if command -v ccache > /dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$source" -B "$build" "${generator[@]}" "${launcher[@]}" -DCMAKE_BUILD_TYPE=Debug -DTRSHARD_SANITIZE="$1"
  if [ $# -gt 1 ]; then targets=(--target "${@:2}"); fi
  cmake --build "$build" --parallel "$(env -u OMP_NUM_THREADS nproc)" "${targets[@]}"
}

on_ranks() { # RANKS PROGRAM [ARGUMENT...], each with 3 threads in the kernels
  echo "on $*"
  OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$1" "$build/regression/$2" "${@:3}"
}

run_cases() { "$python" "$source/regression/case/case.py" --binary "$build/trshard" "$@"; }

# LeakSanitizer's tracer sometimes crashes, most often just after a build. This is no error of the
# program, so the case is run again. If the tracer always crashes, leaks were not checked, and the
# test is skipped (77).
run_leak_case() { # CASE
  local log status try
  log=$(mktemp)
  for try in 1 2 3 4; do
    status=0
    run_cases "$1" > "$log" 2>&1 || status=$?
    cat "$log"
    if [ $status -eq 0 ] || grep -q 'detected memory leaks' "$log" || ! grep -q 'LeakSanitizer has encountered a fatal error' "$log"; then break; fi
    echo "LeakSanitizer itself crashed, try $try"
    status=77
  done
  rm -f "$log"
  return $status
}

# run_server FILE TEST...: tests of regression/serve
run_server() {
  local file=$1
  shift
  TRS_SANITIZED=1 "$python" "$source/regression/serve/$file.py" "$build/trshard" "$build/trshard-serve" "$@"
}
server=()
if pkg-config --exists libmicrohttpd; then server=(trshard-serve); fi

case $what in
  build)
    configure_and_build address,undefined trshard unit_tests "${server[@]}"
    ;;
  unit)
    # on 1 and 2 ranks; other tests cover more ranks
    some=(-L '^quick$') # on two ranks, or on one if there is no more
    if [ "$long" ]; then some=(); fi
    ctest --test-dir "$build" --output-on-failure --parallel "$(env -u OMP_NUM_THREADS nproc)" -L '^unit$' "${some[@]}" -LE 'slow|long' -E '[-]n[34]$'
    ;;
  golden)
    names=(adam_dot weighted_mixed last_batch_epochs) few=(--few)
    if [ "$long" ]; then names=(rowwise_adagrad_dot adam_dot weighted_mixed mean_sum_mixed_cat dcn fp16_rowwise_adagrad last_batch_epochs) few=(); fi
    for name in "${names[@]}"; do
      "$python" "$source/tools/check_train.py" "$build/trshard" "$source/regression/golden/runtime/$name" --ranks 2 "${few[@]}" --label "$name"
    done
    ;;
  badinput)
    groups=(files ids)
    if [ "$long" ]; then groups=(files ids checkpoints); fi
    for group in "${groups[@]}"; do
      "$python" "$source/regression/badinput/badinput.py" --binary "$build/trshard" "$group"
    done
    ;;
  case)
    run_cases pipelines_equal empty_bags resume_column_states stop_usr1_to_mpirun dynamic_resume zch_resume delta_dynamic follow_resume mapping_carried
    if [ "$long" ]; then run_cases uneven_batches resume_elsewhere; fi
    ;;
  leaks)
    export ASAN_OPTIONS=detect_leaks=1:exitcode=99:fast_unwind_on_malloc=0
    export LSAN_OPTIONS="suppressions='$source/regression/sanitize/lsan.supp':print_suppressions=0"
    run_leak_case evaluate
    run_leak_case version
    ;;
  build_threads)
    configure_and_build thread trshard unit_compute_dense unit_compute_tbe_properties unit_data_reader unit_data_stream unit_comm_comm unit_run_predictor_threads property_sharded_ebc "${server[@]}"
    ;;
  unit_threads)
    on_ranks 1 unit_compute_dense
    on_ranks 2 unit_data_reader
    on_ranks 2 unit_data_stream
    on_ranks 2 unit_comm_comm
    on_ranks 1 unit_run_predictor_threads
    on_ranks 2 property/property_sharded_ebc --draws "$((long ? 100 : 25))"
    on_ranks 2 property/property_sharded_ebc --reproducible --draws "$((long ? 50 : 15))"
    ;;
  kernel_threads)
    on_ranks 1 unit_compute_tbe_properties
    ;;
  serve)
    # leaks of the server only: Open MPI, which trains the models, has some
    export TRS_SERVER_ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1
    export LSAN_OPTIONS="suppressions='$source/regression/sanitize/lsan.supp':print_suppressions=0"
    run_server serve protocol wrong stop deltas
    run_server hostile rude damaged slow
    ;;
  serve_threads)
    run_server serve follow together stop deltas
    run_server hostile rude
    ;;
  case_threads)
    run_cases repeat stop_usr1_to_mpirun dynamic_gaps async_caches
    if [ "$long" ]; then run_cases pipelines_equal evaluate async_plans async_ids; fi
    ;;
  *)
    echo "sanitize.sh: unknown part $what" >&2
    exit 64
    ;;
esac
