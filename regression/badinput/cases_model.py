# SPDX-License-Identifier: BSD-3-Clause
"""Options that are good by themselves and not together, or not with this dataset or machine."""
import json
import os

from badinput import Case
from trsrun import check


def has_plan_error(folder, _):
    error = json.load(open(os.path.join(folder, "plan.json"), encoding="utf-8"))
    check(error["format"] == "trshard-plan-error" and error["error_type"] == "INSUFFICIENT_STORAGE" and error["message"], f"plan.json: {error}")


CASES = [
    Case("no_embedding_dim", 64, r"embedding_dim.*no width", without=("-tables_embedding_dim",)),
    Case("table_listed_twice", 64, r'-tables .*"user" is listed twice', "-tables user,user"),
    Case("feature_used_twice", 64, r'"user" is looked up twice', "-tables user,item -table_item_features item,user"),
    Case("feature_not_in_dataset", 64, r'_features.*no feature "film" for table "item"', "-tables item -table_item_features film"),
    Case("table_not_in_dataset", 64, r'no feature "film" for table "film"', "-tables film"),
    Case("fewer_rows_than_ids", 64, r'-table_user_num_embeddings .*49 rows.*range to 50', "-table_user_num_embeddings 49"),
    Case("weighted_mean", 64, r"pooling.*weighted.*mean", "-tables_is_weighted -tables_pooling mean"),
    Case("init_min_above_max", 64, r"init_min 1 .*exceeds its init_max 0", "-tables_init_min 1 -tables_init_max 0"),
    Case("init_std_of_uniform", 64, r'-table_user_init_std .*"user" has init_fn uniform, which takes no init_std', "-table_user_init_std 1"),
    Case("init_std_for_no_table", 64, r"-tables_init_std .*no table has an init_fn that takes init_std", "-tables_init_std 1"),
    Case("init_constant_without_value", 64, r'init_value.*"user" has init_fn constant: give the value', "-tables_init_fn constant"),
    Case("init_a_of_relu", 64, r"init_a is the slope of init_nonlinearity leaky_relu", "-tables_init_fn kaiming_normal -tables_init_nonlinearity relu -tables_init_a 1"),
    Case("output_in_int4", 64, r"-table_item_output_dtype .*outputs of a run are fp32, fp16 or bf16", "-table_item_output_dtype int4"),
    Case("cache_in_another_type", 69, r'"user" is fp32 and its cache_precision fp16.*-table_user_cache_precision',
         "-tables_sharding_types table_wise -tables_compute_kernels fused_uvm_caching -tables_cache_precision fp16"),
    Case("cache_reserves_all", 71, r"cache_reserved_memory .*leaves no room for a cache",
         "-tables_sharding_types table_wise -tables_compute_kernels fused_uvm_caching -tables_cache_reserved_memory 1000TiB"),
    Case("reserved_without_a_cache", 64, r"-table_user_cache_reserved_memory .*has no cache", "-table_user_cache_reserved_memory 1GiB"),
    Case("two_towers_without_features", 64, r"-candidate_features.*the candidate_tower has no features", "-interaction two_tower -query_features user,item,tag"),
    Case("two_towers_unknown_feature", 64, r'-query_features .*no table has a feature "house"', "-interaction two_tower -query_features house"),
    Case("two_towers_feature_twice", 64, r'-candidate_features .*"user" is listed twice', "-interaction two_tower -query_features user -candidate_features item,user"),
    Case("two_towers_feature_of_no_side", 64, r'-candidate_features .*"user" is neither', "-interaction two_tower -candidate_features item"),
    Case("two_towers_of_two_widths", 64, r"-candidate_arch .*must be that of -query_arch, 8", "-interaction two_tower -query_features user -query_arch 8 -candidate_arch 4"),
    Case("two_towers_with_tasks", 64, r"-tasks .*one task, without a name", "-interaction two_tower -query_features user -tasks click"),
    Case("two_towers_target_in_the_other", 64, r'-table_user_din_target .*"item" is in the candidate_tower, but feature "user" is in the query_tower',
         "-interaction two_tower -query_features user -table_user_pooling none -table_user_sequence_pooling din -table_user_din_target item"),
    Case("two_towers_target_in_the_same", 0, "", "-interaction two_tower -query_features user,item -table_user_pooling none -table_user_sequence_pooling din -table_user_din_target item"),
    Case("pair_loss_without_towers", 64, r"-loss .*only -interaction two_tower", "-loss in_batch_softmax"),
    Case("pair_loss_without_candidates", 64, r"-candidate_features.*the candidate_tower has no features", "-interaction two_tower -query_features user,item,tag -loss in_batch_softmax"),
    Case("pair_loss_unknown_candidate", 64, r"-candidate_id .*no table has a feature", "-interaction two_tower -query_features user -loss in_batch_softmax -candidate_id house"),
    Case("unequal_dims_with_dot", 64, r"-interaction .*equal embedding dims", "-table_user_embedding_dim 8"),
    Case("dense_arch_does_not_end_in_dim", 64, r"-dense_arch .*last size, 6.*dim, 4", "-dense_arch 8,6"),
    Case("over_arch_of_one_layer", 64, r"-over_arch .*at least 2", "-over_arch 1"),
    Case("over_arch_does_not_end_in_one", 64, r"-over_arch .*must be 1", "-over_arch 8,2"),
    Case("task_listed_twice", 64, r'-tasks .*"a" is listed twice', "-tasks a,a"),
    Case("task_name_with_slash", 64, r'-tasks .*"a/b" is no name of a task', "-tasks a/b"),
    Case("task_unknown", 64, r'there is no task "b".*"a"', "-tasks a -task_b_loss mse"),
    Case("task_without_tasks", 64, r'there is no task "a"', "-task_a_loss mse"),
    Case("task_softmax_without_classes", 64, r'-task_a_classes .*loss softmax: give the number of its classes', "-tasks a -task_a_loss softmax"),
    Case("task_pos_weight_of_mse", 64, r'-task_a_pos_weight .*loss mse, which takes no pos_weight', "-tasks a -task_a_loss mse -task_a_pos_weight 2"),
    Case("task_arch_does_not_end_in_classes", 64, r'-task_a_arch .*last layer of task "a" has size 1, it must be 3', "-tasks a -task_a_loss softmax -task_a_classes 3 -task_a_arch 8,1"),
    Case("task_label_not_there", 64, r'-task_a_label: .*one label without a name', "-tasks a -task_a_label bought"),
    Case("task_label_and_data_label", 64, r'-data_label .*without -tasks', "-tasks a -data_label a"),
    Case("heads_without_tasks", 64, r'-task_heads .*needs -tasks', "-task_heads mmoe"),
    Case("heads_levels_of_mmoe", 64, r'-heads_levels .*-task_heads mmoe takes no such option', "-tasks a,b -task_heads mmoe -heads_levels 2"),
    Case("heads_experts_of_shared", 64, r'-heads_experts .*-task_heads shared takes no such option', "-tasks a,b -heads_experts 2"),
    Case("early_stopping_task_unknown", 64, r'-early_stopping_task .*is none of -tasks', "-tasks a -data_eval train.h5 -eval_every 2 -early_stopping_metric auc -early_stopping_task b"),
    Case("early_stopping_auc_of_numbers", 64, r'-early_stopping_metric .*task "a" has no auc, expected loss, mse or mae', "-tasks a -task_a_loss mse -data_eval train.h5 -eval_every 2 -early_stopping_metric auc"),
    Case("metrics_group_of_numbers", 64, r'-metrics_group .*needs a task of -tasks with loss bce', "-tasks a -task_a_loss mse -metrics_group user"),
    Case("sgd_with_weight_decay", 64, r"-embedding_weight_decay .*sgd takes no weight decay", "-embedding_optimizer sgd -embedding_weight_decay 0.1"),
    Case("shampoo", 64, r"-embedding_optimizer .*shampoo is not supported", "-embedding_optimizer shampoo"),
    Case("drop_last_leaves_nothing", 64, r"-drop_last leaves no batch", "-drop_last -batch_size 100"),
    Case("world_size_of_another_run", 64, r"-topology_world_size .*3 is not the run's 2", "-topology_world_size 3", ranks=2),
    Case("hosts_do_not_divide_ranks", 64, r"-topology_local_world_size", "-topology_local_world_size 2", ranks=3),
    Case("caps_for_other_ranks", 64, r"-topology_ddr_cap_per_rank .*3 entries for 2 devices", "-topology_ddr_cap_per_rank 1GiB,1GiB,1GiB", ranks=2),
    Case("table_overflows_64_bits", 64, r"num_embeddings.*overflows 64-bit", "-tables_num_embeddings 4000000000000000000"),
    Case("no_cuda", 69, r"cuda", "-device cuda"),
    Case("comm_shared_memory_maybe", 64, r"-comm_shared_memory.*maybe", "-comm_shared_memory maybe"),
    Case("cpu_isa_sse", 64, r"-cpu_isa .*auto, portable, avx2, avx512", "-cpu_isa sse"),
    Case("cpu_bind_core", 64, r"-cpu_bind .*auto, none", "-cpu_bind core"),
    Case("gpu_share_takes_a_boolean", 64, r'-gpu_share "two"', "-gpu_share two"),
    Case("comm_wait_zero", 64, r'-comm_wait_seconds "0" .*in \(0, ', "-comm_wait_seconds 0"),
    Case("comm_wait_nan", 64, r'-comm_wait_seconds "nan"', "-comm_wait_seconds nan"),
    Case("no_nccl", 69, r"-comm_backend nccl", "-comm_backend nccl"),
    Case("tf32_on_a_cpu", 69, r"-dense_precision: .*-device cuda", "-device cpu -dense_precision tf32"),
    Case("precision_of_no_kind", 64, r"-dense_precision .*fp32, tf32, bf16", "-dense_precision fp64"),
    Case("does_not_fit", 72, r"memory|storage", "-topology_ddr_cap 1KB -plan_output plan.json -plan_storage_reservation fixed_percentage", after=has_plan_error),
    Case("loss_is_not_finite", 78, r"the loss of step \d+ is .*-dense_learning_rate", "-embedding_learning_rate 1e30 -steps 20"),
]
