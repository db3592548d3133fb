#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A second build, with the CUDA backends on their stand-in (README.md), which detects races, and
# tests in this build:
#
#   cuda_on_cpu.sh build|unit|property|golden|golden_long|case|case_long|bundle|fault BUILD_FOLDER
#   TRS_LONG in the environment: more of property, golden and case
#   cuda_on_cpu.sh archive BUILD_FOLDER   the archive for a borrowed GPU, which must fit 64 MiB beside
#                                         the repository's files
#   cuda_on_cpu.sh nvcc BUILD_FOLDER      a real build: nvcc for all GPUs, with warnings as errors,
#                                         and no kernel may spill more than spills.txt allows. It
#                                         runs on CPUs, and explains why it cannot use a GPU.
#
# On the stand-in, -device auto is cuda and -comm_backend auto is nccl, so the same tests run on the
# other backends.
set -euo pipefail
what=$1
build=$2
long=${TRS_LONG:-}
few=(--few) others=(-E '[-](n[34]|portable|avx2)$')
if [ "$long" ]; then few=() others=(); fi
source=$(cd "$(dirname "$0")/../.." && pwd)
python=${TRSHARD_PYTHON:-/usr/bin/python3}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$source/regression/harness:$source/regression/case:$source/regression/cuda_on_cpu:$source/tools TRS_PATIENCE=20

run_cases() { "$python" "$source/regression/case/case.py" --binary "$build/trshard" "$@"; }

# check_golden RANKS EXTRA NAME...
check_golden() {
  local ranks=$1 extra=$2
  shift 2
  for name in "$@"; do
    "$python" "$source/tools/check_train.py" "$build/trshard" "$source/regression/golden/runtime/$name" --device cuda --ranks "$ranks" \
      --limit 240 --extra "$extra" "${few[@]}" --label "$name"
  done
}

case $what in
  build)
    generator=()
    if command -v ninja > /dev/null; then generator=(-G Ninja); fi
    launcher=()
    if command -v ccache > /dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
    cmake -S "$source" -B "$build" "${generator[@]}" "${launcher[@]}" -DTRSHARD_CUDA_ON_CPU=ON -DTRSHARD_SANITIZE=thread -DTRSHARD_WERROR=ON \
      -DTRSHARD_PYTHON="$python" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g"
    cmake --build "$build" --parallel "$(env -u OMP_NUM_THREADS nproc)" --target trshard gpu_tests
    ;;
  unit)
    if [ ! "$long" ]; then export TRS_FEW=1; fi # fewer widths of tables
    ctest --test-dir "$build" --output-on-failure --parallel "$(env -u OMP_NUM_THREADS nproc)" -R '^(unit/(gpu|api/(collection|rows|stream)-n[12]|comm/comm|data/(assemble|reader)|sparse/unique_bags|compute/(bags|tbe|units|sequence))|cuda_traps)' -LE long "${others[@]}"
    # one rank that sends to itself, to test NCCL on one GPU
    TRSHARD_NCCL_ALONE=1 mpirun -n 1 "$build/regression/unit_comm_comm"
    if TRSHARD_NCCL_ALONE=1 NCCL_ON_CPU_FAULT=0,1,error mpirun -n 1 "$build/regression/unit_comm_comm" > "$build/alone.txt" 2>&1; then
      echo "cuda_on_cpu.sh: one rank alone does not send by NCCL" >&2
      exit 1
    fi
    ;;
  property) # random models and plans against the definition
    property=$build/regression/property/property_sharded_ebc
    of=$((long ? 1 : 4))
    mpirun -n 1 "$property" --device cuda --backend nccl --draws $((20 / of))
    mpirun -n 3 "$property" --device cuda --backend nccl --draws $((40 / of)) --first 1000
    mpirun -n 2 "$property" --device cuda --backend mpi --draws $((20 / of)) --first 2000
    # sums of row_wise by hosts
    mpirun -n 4 "$property" --device cuda --backend nccl --draws $((20 / of)) --first 5021
    mpirun -n 2 "$property" --device cuda --backend nccl --reproducible --draws $((10 / of))
    ;;
  golden)
    check_golden 1,2,4 "-comm_backend mpi" rowwise_adagrad_dot
    check_golden 2 "-pipeline prefetch_sparse_dist -tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.1" weighted_mixed
    if [ "$long" ]; then
      check_golden 2 "-pipeline base" dcn
      check_golden 1,2,4 "-tables_sharding_types data_parallel" weighted_mixed
    fi
    ;;
  golden_long)
    few=()
    for folder in "$source"/regression/golden/runtime/*/case.json; do
      check_golden 1,2,4 "-comm_backend mpi -pipeline base" "$(basename "$(dirname "$folder")")"
    done
    ;;
  case)
    run_cases cuda_kernel_times cuda_model_gpus gpu_choice gpu_memory gpu_batch_memory cuda_as_cpu cuda_bad_ids cuda_not_finite cuda_growing_batches id_maps zch_plans zch_caches dynamic_plans dynamic_caches follow_resume follow_kinds reader_threads repeat_batches cuda_repeat cuda_reproducible cuda_accumulate cuda_algorithms cuda_product_table cuda_cross_product cuda_graphs cuda_steady_step_graphs cuda_bf16 cuda_bf16_layers cuda_any_order cuda_interactions cuda_pairs cuda_sequence_layers cuda_replicas replicas_caches replicas_positions sequence_index_dedup cuda_caches cuda_evaluate cuda_variable_batch cuda_steady_step cuda_sorts cuda_trace sequence_max
    if [ "$long" ]; then run_cases position_weights; fi
    "$source/regression/bench/topology.sh" cuda "$build/trshard" mpirun
    ;;
  case_long)
    run_cases cuda_expected cuda_exchange cuda_resume cuda_predict reproducible sequences_reproducible dense_optimizers average_of_weights
    # checks that the GPU's benchmark runs; its times here are meaningless
    TRSHARD_PYTHON=$python "$source/tools/bench_gpu.sh" "$build" --tables 2 --rows 100 --dims 8 --batch 8 --rounds 1 --copy_bytes 4096 --steps 16 --model_dim 8 --pooling 2 --mlperf_rows_by 100000 |
      tee "$build/bench_gpu.txt" | tail -30
    grep -qE '^backward\+rowwise_adagrad, D 8 fp16, .* (NOT MET|met)$' "$build/bench_gpu.txt"
    [ "$(grep -cE '^(DLRM|DCN|MLPerf) (fp32|tf32|bf16), share of H2D and input_dist hidden +[01]' "$build/bench_gpu.txt")" = 9 ]
    [ "$(grep -cE '^(DLRM|DCN|MLPerf) (fp32|tf32|bf16), compute stages of a step, ms +[0-9].*(NOT MET|met)$' "$build/bench_gpu.txt")" = 9 ]
    [ "$(grep -cE '^(DLRM|DCN) tf32, batch 1, samples/s with graphs +[0-9].*(NOT MET|met)$' "$build/bench_gpu.txt")" = 2 ]
    ;;
  bundle) # the bundle for a machine with a GPU, and all tests of `run gpu` there
    cmake --build "$build" --target unit_io_checkpoint # it reads golden files
    TRSHARD_BUNDLE_LEVEL=0 "$source/regression/tools/bundle.sh" "$build"
    ;;
  fault) run_cases nccl_error nccl_hang nccl_stuck nccl_stuck_init nccl_init nccl_finalize ;;
  archive) "$source/tools/bundle.sh" --gpu 90 "$build" "$build/bundle.tar.xz" ;;
  nvcc)
    generator=()
    if command -v ninja > /dev/null; then generator=(-G Ninja); fi
    launcher=()
    if command -v ccache > /dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache); fi
    cmake -S "$source" -B "$build" "${generator[@]}" "${launcher[@]}" -DTRSHARD_CUDA=ON -DTRSHARD_WERROR=ON -DBUILD_TESTING=OFF \
      -DCMAKE_CUDA_FLAGS=-Xptxas=-v
    # all files are compiled, so that ptxas names the registers of all kernels
    cmake --build "$build" --clean-first --parallel "$(env -u OMP_NUM_THREADS nproc)" --target trshard > "$build/nvcc.txt" 2>&1 || {
      grep -vE 'ptxas info|bytes (stack frame|gmem)' "$build/nvcc.txt" | tail -50
      exit 1
    }
    "$python" "$source/regression/cuda_on_cpu/check_spills.py" "$build/nvcc.txt" "$source/regression/cuda_on_cpu/spills.txt" \
      "$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")"
    "$build/trshard" -version
    ;;
  *)
    echo "cuda_on_cpu.sh: unknown part $what" >&2
    exit 64
    ;;
esac
