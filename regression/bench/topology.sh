#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# topology.sh DEVICE BINARY MPIRUN... - -task plan accepts the option file that -task bench writes,
# and its numbers are plausible bandwidths.
set -eu
device=$1 binary=$2 memory=ddr
shift 2
if [ "$device" = cuda ]; then memory=hbm; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" -n 4 "$binary" -task bench -device "$device" -bench_topology "$folder/topology.opts" -topology_local_world_size 2 -bench_table_bytes 1MiB -bench_bytes 1MiB
for name in ${memory}_mem_bw intra_host_bw inter_host_bw stream_bw row_read_bw row_update_bw cut_bw pair_rate pair_back_rate; do
  # bytes/ms or operations/ms: between 1e6 and 1e13 a second
  awk -v name="-topology_$name" '$1 == name { found = $2 > 1e3 && $2 < 1e10 } END { exit !found }' "$folder/topology.opts"
done
# operations/ms: between 0.1 and 1e6 GFLOP/s
awk '$1 == "-topology_product_rate" { found = $2 > 1e5 && $2 < 1e12 } END { exit !found }' "$folder/topology.opts"
"$binary" -task plan -options_file "$folder/topology.opts" -topology_world_size 4 \
  -tables a,b -tables_num_embeddings 100000 -tables_embedding_dim 64 -dense_arch 64 -over_arch 64,1 -num_dense 13 -plan_output "$folder/plan.json" > "$folder/plan.log"
grep -q '^step: [0-9.e+-]* ms predicted for the slowest rank: tables [0-9.e+-]*, dense layers [0-9.]* forward' "$folder/plan.log" || { cat "$folder/plan.log"; exit 1; }
grep -q '"local_world_size": *2' "$folder/plan.json"
case $device in cuda) kind=GPUs ;; *) kind="CPU ranks" ;; esac
grep -q "^  devices  *4 $kind" "$folder/plan.log" || { cat "$folder/plan.log"; exit 1; }
"$binary" -task plan -plan_cost_model measured -options_file "$folder/topology.opts" -topology_world_size 4 -topology_compute_device "$device" \
  -tables a,b -tables_num_embeddings 100000 -tables_embedding_dim 64 > "$folder/plan.log"
# A plan needs no model for its tables.
"$binary" -task plan -options_file "$folder/topology.opts" -topology_world_size 4 -topology_compute_device "$device" \
  -tables a,b -tables_num_embeddings 100000 -table_a_embedding_dim 64 -table_b_embedding_dim 32 > "$folder/plan.log"
grep -q '^step: not predicted: .*dot needs equal embedding dims' "$folder/plan.log" || { cat "$folder/plan.log"; exit 1; }
