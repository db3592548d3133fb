#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run_fuzz.sh CLANG TARGET SOURCE BUILD: build fuzz_TARGET.c with the parsers under clang's sanitizers, run it briefly from a small corpus.
set -eu
clang=$1 target=$2 source=$3 build=$4
seconds=${FUZZ_SECONDS:-8}
mkdir -p "$build/corpus_$target"
flags="-g -O1 -std=gnu11 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined"
# shellcheck disable=SC2046,SC2086
"$clang" $flags -I"$source/src" $(pkg-config --cflags PETSc jansson libxxhash) $(mpicc --showme:compile) "$source/regression/fuzz/fuzz_$target.c" \
  "$source"/src/core/*.c "$source"/src/spec/*.c "$source/src/plan/plan_settings.c" "$source/src/plan/topology.c" \
  -o "$build/fuzz_$target" $(pkg-config --libs PETSc jansson libxxhash yaml-0.1) $(mpicc --showme:link) -lm ||
  { echo "SKIPPED: clang cannot link the fuzz target here"; exit 0; }
case $target in
plan)
  printf '%s' '{"format": "trshard-plan", "version": 1, "world_size": 2, "local_world_size": 2, "tables": [{"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1], "shards": [{"rank": 1, "offset": [0, 0], "size": [10, 8], "storage": {"hbm": 1, "ddr": 0}, "perf": {"fwd_compute": 1, "fwd_comms": 0, "bwd_compute": 0, "bwd_comms": 0, "prefetch_compute": 0}}]}], "devices": [{"rank": 0, "storage": {"hbm": 0, "ddr": 0}, "perf": {"fwd_compute": 0, "fwd_comms": 0, "bwd_compute": 0, "bwd_comms": 0, "prefetch_compute": 0}}, {"rank": 1, "storage": {"hbm": 0, "ddr": 0}, "perf": {"fwd_compute": 0, "fwd_comms": 0, "bwd_compute": 0, "bwd_comms": 0, "prefetch_compute": 0}}], "critical_path": 1.5, "proposals": 1, "feasible": 1, "partitioned": 1}' >"$build/corpus_$target/plan"
  ;;
options)
  printf '%s\n' '-tables a,b' '-tables_embedding_dim 64 # width' '-table_a_num_embeddings 10M' '-table_b_num_embeddings 5' \
    '-table_b_sharding_types row_wise,table_wise' '-topology_hbm_cap 80GiB' >"$build/corpus_$target/options"
  ;;
esac
cd "$build"
ASAN_OPTIONS=detect_leaks=0 "./fuzz_$target" -max_total_time="$seconds" -max_len=4096 -timeout=60 -seed="${FUZZ_SEED:-1}" -verbosity=0 -print_final_stats=1 "corpus_$target"
