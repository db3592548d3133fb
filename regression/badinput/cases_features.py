# SPDX-License-Identifier: BSD-3-Clause
"""Sequence tables and position weights: incompatible options, bags that are too long, checkpoints
of other shapes."""
import json
import os

import h5py
import numpy as np

from badinput import Case
from trsrun import check

SEQUENCES = "-tables_pooling none"
CONCAT = "-tables_pooling none -tables_sequence_pooling concat"
# the good dataset's bags have up to 3 ids
POSITIONS = "-tables_position_weighted true -tables_max_feature_lengths 3"


def has_tensors(folder, _):
    with h5py.File(os.path.join(folder, "out", "final.h5")) as h:
        for feature in ("user", "item", "tag"):
            check(h[f"dense/position_weights/{feature}/weight"].shape == (3,), f"position weights of {feature}")



def checkpoint(length):
    """init.h5: a whole checkpoint of the good model, with position weights of this length (None:
    without)."""
    def prepare(folder):
        shapes = {"embedding/user/weight": (50, 4), "embedding/item/weight": (30, 4), "embedding/tag/weight": (20, 4),
                  "dense/dense_arch/0/weight": (8, 3), "dense/dense_arch/0/bias": (8,), "dense/dense_arch/1/weight": (4, 8), "dense/dense_arch/1/bias": (4,),
                  "dense/over_arch/0/weight": (8, 10), "dense/over_arch/0/bias": (8,), "dense/over_arch/1/weight": (1, 8), "dense/over_arch/1/bias": (1,)}
        shapes.update({f"dense/position_weights/{feature}/weight": (length,) for feature in ("user", "item", "tag") if length})
        with h5py.File(os.path.join(folder, "init.h5"), "w", libver="latest") as h:
            h.attrs.update(format="trshard-checkpoint", version=np.int64(1), step=np.int64(0), epoch=np.int64(0), samples_seen=np.int64(0))
            for name, shape in shapes.items():
                h[name] = np.full(shape, 0.1, np.float32)
    return prepare


def plan_of_rows(folder):
    """plan.json: every table is table_row_wise on the only host. The planner does not offer this
    for sequences, but a plan file may contain it."""
    cost = {"storage": {"hbm": 0, "ddr": 0}, "perf": {"fwd_compute": 0, "fwd_comms": 0, "bwd_compute": 0, "bwd_comms": 0, "prefetch_compute": 0}}
    tables, devices = [], [{"rank": r, **cost} for r in range(2)]
    for name, rows in (("user", 50), ("item", 30), ("tag", 20)):
        half = (rows + 1) // 2
        shards = [{"rank": r, "offset": [r * half, 0], "size": [min(half, rows - r * half), 4], **cost} for r in range(2)]
        tables.append({"name": name, "sharding_type": "table_row_wise", "compute_kernel": "fused", "ranks": [0, 1], "shards": shards})
    plan = {"format": "trshard-plan", "version": 1, "world_size": 2, "local_world_size": 2, "tables": tables, "devices": devices,
            "critical_path": 0, "proposals": 1, "feasible": 1, "partitioned": 1}
    with open(os.path.join(folder, "plan.json"), "w", encoding="utf-8") as file:
        json.dump(plan, file)


CACHED = "-tables_compute_kernels fused_uvm_caching"

CASES = [
    Case("load_factor_one", 72, r'"user".*load factor of 1,.*-table_user_cache_load_factor', f"{CACHED} -tables_cache_load_factor 1"),
    Case("load_factor_one_of_a_part", 72, r'"user_quotient".*load factor of 1,.*-table_user_cache_load_factor',
         f"{CACHED} -table_user_id_map qr -tables_cache_load_factor 1"),
    Case("load_factor_zero", 72, r'"user".*load factor of 0,.*-table_user_cache_load_factor', f"{CACHED} -tables_cache_load_factor 0"),
    Case("load_factor_negative", 64, r"-tables_cache_load_factor .*\[0, inf\)", f"{CACHED} -tables_cache_load_factor -0.1"),
    Case("load_factor_without_cache", 64, r'-table_user_cache_load_factor .*"user" has compute kernel fused, which has no cache', "-table_user_cache_load_factor 0.3"),
    Case("cache_algorithm_without_cache", 64, r'-table_user_cache_algorithm .*"user" has compute kernel fused',
         f"{CACHED} -table_user_compute_kernels fused -table_user_cache_algorithm lfu"),
    Case("cache_algorithm_unknown", 64, r"-tables_cache_algorithm .*one of lru, lfu", f"{CACHED} -tables_cache_algorithm mru"),
    Case("cache_of_replicated_table", 72, r'"user".*no sharding option left', f"{CACHED} -tables_sharding_types data_parallel"),
    Case("cache_for_some", 0, "", "-table_user_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.3"),
    Case("sequence_pooling_unknown", 64, r"-tables_sequence_pooling .*expected one of mean, max, concat", f"{SEQUENCES} -tables_sequence_pooling last"),
    Case("sequence_pooling_of_pooled_table", 64, r'-table_user_sequence_pooling .*"user" has pooling sum', "-table_user_sequence_pooling max"),
    Case("sequence_length_of_pooled_table", 64, r'-table_user_sequence_length .*"user" has pooling mean', "-table_user_pooling mean -table_user_sequence_length 2"),
    Case("sequence_length_without_concat", 64, r'-table_user_sequence_length .*"user" has sequence_pooling mean, which takes no sequence_length', f"{SEQUENCES} -table_user_sequence_length 2"),
    Case("gru_size_without_gru", 64, r'-table_user_gru_hidden_size .*"user" has sequence_pooling mean, which takes no gru_hidden_size', f"{SEQUENCES} -table_user_gru_hidden_size 2"),
    Case("heads_that_do_not_divide", 64, r'-table_user_transformer_heads .*"user": 3 heads do not divide embedding_dim', "-table_user_pooling none -table_user_sequence_pooling transformer -table_user_transformer_heads 3"),
    Case("din_without_target", 64, r'-table_user_din_target.*"user" compares its rows with a target', f"{SEQUENCES} -table_user_sequence_pooling din"),
    Case("din_target_unknown", 64, r'-table_user_din_target .*no feature and no table "nobody"', "-table_user_pooling none -table_user_sequence_pooling din -table_user_din_target nobody"),
    Case("din_target_a_sequence", 64, r'-table_user_din_target .*"item" is of the sequence table "item"', "-table_user_pooling none -table_user_sequence_pooling din -table_user_din_target item -table_item_pooling none"),
    Case("din_target_alone", 64, r'-table_user_din_target .*"user" has no other feature', "-table_user_pooling none -table_user_sequence_pooling din -table_user_din_target user"),
    Case("din_target_of_other_width", 64, r'-table_user_din_target .*"item" has embedding_dim 8, but table "user" has', "-table_user_pooling none -table_user_sequence_pooling din -table_user_din_target item -table_item_embedding_dim 8 -interaction cat"),
    Case("concat_without_length", 64, r'sequence_length.*"user" concatenates.*give how many', CONCAT),
    Case("sequence_length_zero", 64, r"-tables_sequence_length", f"{CONCAT} -tables_sequence_length 0"),
    Case("sequence_length_too_large", 64, r"-tables_sequence_length", f"{CONCAT} -tables_sequence_length 65537"),
    Case("sequence_length_overflows", 64, r"sequence_length.*too wide", f"{CONCAT} -tables_sequence_length 65536 -tables_embedding_dim 40000 -interaction cat"),
    Case("sequence_length_not_a_number", 64, r"-tables_sequence_length", f"{CONCAT} -tables_sequence_length two"),
    Case("sequences_weighted", 64, r'is_weighted.*"user" is a sequence table', f"{SEQUENCES} -tables_is_weighted"),
    Case("index_dedup_not_boolean", 64, r"-ec_index_dedup", "-ec_index_dedup maybe"),
    Case("index_dedup_misspelt", 64, r"-ec_index_dedupe.*-ec_index_dedup", "-ec_index_dedupe true"),
    Case("variable_batch_not_boolean", 64, r"-ebc_variable_batch", "-ebc_variable_batch some"),
    Case("variable_batch_of_another_collection", 64, r"-ec_variable_batch.*-ebc_variable_batch", "-ec_variable_batch true"),
    Case("sequences_of_two_widths", 64, r"one embedding_dim", f"{SEQUENCES} -table_user_embedding_dim 8 -interaction cat"),
    Case("copies_that_do_not_divide", 64, r"-plan_replicas.*3 copies of the tables do not divide the 2 ranks", "-plan_replicas 3", ranks=2),
    Case("more_copies_than_ranks", 64, r"-plan_replicas.*4 copies of the tables do not divide the 2 ranks", "-plan_replicas 4", ranks=2),
    Case("copies_and_pods", 64, r"-plan_replicas.*-topology_pod_size", "-plan_replicas 2 -topology_local_world_size 1 -topology_pod_size 2", ranks=2),
    Case("sync_without_copies", 64, r"-replica_sync.*needs -plan_replicas", "-replica_sync gradients"),
    Case("gradients_every_few_steps", 64, r"-replica_sync_every.*-replica_sync gradients", "-plan_replicas 2 -replica_sync gradients -replica_sync_every 2", ranks=2),
    Case("gradients_of_distinct_ids", 64, r"-ec_index_dedup.*-replica_sync gradients", "-plan_replicas 2 -replica_sync gradients -ec_index_dedup", ranks=2),
    Case("means_without_copies", 64, r"-replica_sync_every.*needs -plan_replicas", "-replica_sync_every 2"),
    Case("positions_without_lengths", 64, r'max_feature_lengths.*"user" has 0 entries for its 1 feature:', "-tables_position_weighted true"),
    Case("positions_of_mean", 64, r'position_weighted.*"user" has pooling mean', f"{POSITIONS} -tables_pooling mean"),
    Case("positions_of_sequences", 64, r'position_weighted.*"user" has pooling none', f"{POSITIONS} {SEQUENCES}"),
    Case("positions_and_weights", 64, r'position_weighted.*"user" is weighted', f"{POSITIONS} -tables_is_weighted"),
    Case("positions_of_other_number", 64, r"max_feature_lengths.*2 entries for its 1 feature:", "-tables_position_weighted true -tables_max_feature_lengths 3,3"),
    Case("positions_lengths_for_nothing", 64, r'-table_user_max_feature_lengths .*"user" is not position_weighted', "-table_user_max_feature_lengths 3"),
    Case("positions_length_zero", 64, r"-tables_max_feature_lengths", "-tables_position_weighted true -tables_max_feature_lengths 0"),
    Case("positions_length_too_large", 64, r"-tables_max_feature_lengths", "-tables_position_weighted true -tables_max_feature_lengths 16777217"),
    Case("bag_longer_than_positions", 65, r'train.h5: feature "(user|item|tag)" of sample \d+ has 3 ids, expected at most 2 .*max_feature_lengths',
         "-tables_position_weighted true -tables_max_feature_lengths 2"),
    Case("bag_longer_than_positions_on_one_feature", 65, r'train.h5: feature "tag" of sample \d+ has [23] ids, expected at most 1',
         "-table_tag_position_weighted true -table_tag_max_feature_lengths 1", ranks=3),
    Case("checkpoint_with_other_lengths", 65, r"init.h5.*/dense/position_weights/user/weight.*4.*3", f"{POSITIONS} -init_from init.h5", prepare=checkpoint(4)),
    Case("checkpoint_without_positions", 65, r"init.h5 has no dataset /dense/position_weights/user/weight", f"{POSITIONS} -init_from init.h5", prepare=checkpoint(None)),
    # good cases
    Case("checkpoint_with_positions", 0, options=f"{POSITIONS} -init_from init.h5", prepare=checkpoint(3)),
    Case("checkpoint_with_positions_that_nobody_has", 0, options="-init_from init.h5", prepare=checkpoint(3)),
    Case("positions_are_written", 0, options=POSITIONS, after=has_tensors),
    Case("sequence_length_beyond_bags", 0, options=f"{CONCAT} -tables_sequence_length 100"),
    Case("sequence_pooling_for_all_with_a_pooled_table", 0, options="-tables_sequence_pooling max -table_user_pooling none"),
    Case("sequences_by_a_plan_of_rows", 0, options=f"{SEQUENCES} -tables_sequence_pooling max -plan_input plan.json -topology_local_world_size 2", prepare=plan_of_rows, ranks=2),
    Case("variable_batch_with_replicas_alone", 0, options="-ebc_variable_batch -tables_sharding_types data_parallel"),
    Case("index_dedup_without_sequences", 0, options="-ec_index_dedup"),
]
