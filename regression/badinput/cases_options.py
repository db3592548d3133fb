# SPDX-License-Identifier: BSD-3-Clause
"""Options on the command line and in the environment."""
import os

import trsrun
from badinput import Case
from trsrun import check


def petscrc(folder):
    with open(os.path.join(folder, ".petscrc"), "w", encoding="ascii") as out:
        out.write("-batch_size rubbish\n-unheard_of 1\n")


def two_steps(folder):
    with open(os.path.join(folder, "two.opts"), "w", encoding="ascii") as out:
        out.write("-steps 2\n")


def link(folder):
    os.symlink("train.h5", os.path.join(folder, "link.h5"))


def steps_done(n):
    """A check: the run took n steps, and its configuration says so once."""
    def look(folder, result):
        check(f"step {n}/{n} " in result.text, f"not {n} steps:\n{result.text[-2000:]}")
        told = [line for line in str(trsrun.attribute(os.path.join(folder, "out", "run.h5"), "options")).splitlines() if line.lower().startswith("-steps ")]
        check(len(told) == 1 and told[0].split()[1] == str(n), f"the results' options: {told}")
    return look


CASES = [
    Case("unknown_option", 64, r"-bach_size \(command line\): unknown option; the closest known one is -batch_size", "-bach_size 4"),
    Case("unknown_option_three_ranks", 64, r"-bach_size", "-bach_size 4", ranks=3),
    Case("unknown_without_value", 64, r"-data_shufle .*closest known one is -data_shuffle", "-data_shufle"),
    Case("guess_learning_rate", 64, r"-lr \(command line\): unknown option; the closest known one is -embedding_learning_rate, of the tables; -dense_learning_rate", "-lr 0.1"),
    Case("guess_output_dir", 64, r"-output_dir .*closest known one is -output, .*-checkpoint_dir", "-output_dir out"),
    Case("guess_embedding_dim", 64, r"-embedding_dim .*closest known one is -tables_embedding_dim", "-embedding_dim 8"),
    Case("bandwidth_in_bits_or_bytes", 64, r'-topology_intra_host_bw "400Gb/s" .*a bandwidth above 0 .*bytes.*bits', "-topology_intra_host_bw 400Gb/s"),
    Case("bandwidth_of_infinite_times", 72, r"every plan takes infinitely long: a bandwidth .*-topology_\.\.\._bw", "-task plan -topology_compute_device cpu -topology_ddr_mem_bw 1e-320"),
    Case("bandwidth_without_time", 64, r'-topology_intra_host_bw "400GB" .*a bandwidth above 0', "-topology_intra_host_bw 400GB"),
    Case("help_without_a_hit", 64, r'-help "zork" \(command line\): no option and no group has it', "-help zork", ranks=3),
    Case("word_without_option", 64, r'"train\.h5" belongs to no option', "-seed 1 train.h5"),
    Case("one_path_for_two_outputs", 64, r"-output .*would write over the file of -checkpoint_final, .*out/one\.h5", "-output out/one.h5 -checkpoint_final out/../out/one.h5"),
    Case("best_is_final", 64, r"-checkpoint_final .*would write over the file of -checkpoint_best", "-checkpoint_final w.h5 -checkpoint_best w.h5 -data_eval train.h5 -eval_every 1"),
    Case("output_is_the_data", 64, r"-output .*would write over the file of -data_train", "-output train.h5 -existing_outputs replace", ranks=3),
    Case("output_is_the_data_by_pattern", 64, r"-trace .*would write over the file of -data_eval", "-data_eval tra*.h5 -trace train.h5"),
    Case("output_links_to_the_data", 64, r"-output .*would write over the file of -data_train", "-output link.h5", link),
    Case("output_links_to_a_new_output", 64, r"-output .*would write over the file of -checkpoint_final", "-output link.h5 -checkpoint_final new.h5",
         lambda folder: os.symlink(os.path.join(folder, "new.h5"), os.path.join(folder, "link.h5"))),
    Case("output_is_the_data_by_link", 64, r"-output .*would write over the file of -data_train", "-data_train link.h5 -output train.h5", link),
    Case("output_is_the_weights", 64, r"-output .*would write over the file of -init_from", "-init_from w.h5 -output w.h5"),
    Case("missing_value", 64, r"-batch_size .*value is missing; expected an integer", "-batch_size"),
    Case("missing_value_before_option", 64, r"-dense_arch .*value is missing", "-dense_arch -data_shuffle"),
    Case("empty_value", 64, r"-data_train .*value is empty", "-data_train ''"),
    Case("text_for_integer", 64, r'-batch_size "5abc" .*expected an integer', "-batch_size 5abc"),
    Case("two_numbers_for_integer", 64, r'-batch_size "1,5"', "-batch_size 1,5"),
    Case("exponent_for_integer", 64, r'-batch_size "1e3" .*expected an integer.*write 1', "-batch_size 1e3"),
    Case("fraction_for_integer", 64, r'-steps "2\.5"', "-steps 2.5"),
    Case("larger_than_64_bits", 64, r'-steps "9223372036854775808"', "-steps 9223372036854775808"),
    Case("suffix_overflows_64_bits", 64, r'-tables_num_embeddings "10000000T"', "-tables_num_embeddings 10000000T"),
    Case("larger_than_32_bits_is_not_wrapped", 64, r'-batch_size "3000000000" .*in \[1, 1000000000\]', "-batch_size 3000000000"),
    Case("unknown_suffix", 64, r'-tables_num_embeddings "10Q"', "-tables_num_embeddings 10Q"),
    Case("zero_batch", 64, r'-batch_size "0" .*in \[1,', "-batch_size 0"),
    Case("negative_batch", 64, r'-batch_size "-5" .*in \[1,', "-batch_size -5"),
    Case("negative_steps", 64, r'-steps "-1"', "-steps -1"),
    Case("negative_learning_rate", 64, r'-dense_learning_rate "-0\.1"', "-dense_learning_rate -0.1"),
    Case("beta_of_one", 64, r'-embedding_beta1 "1"', "-embedding_beta1 1"),
    Case("two_clippings", 64, r"-dense_max_gradient_value .*not by both", "-dense_max_gradient_value 1 -dense_max_gradient_norm 1"),
    Case("cycle_factors", 64, r"-schedule_cycle_factors.*1 entries, but -schedule_policies has 2",
         "-schedule_policies linear,cosine_restarts -schedule_end_steps 5,9 -schedule_cycle_factors 2"),
    Case("nan", 64, r'-dense_learning_rate "nan" .*expected a finite number', "-dense_learning_rate nan"),
    Case("infinite", 64, r'-embedding_learning_rate "inf" .*finite', "-embedding_learning_rate inf"),
    Case("overflows_a_real", 64, r'-embedding_eps "1e400" .*finite', "-embedding_eps 1e400"),
    Case("text_for_real", 64, r'-dense_learning_rate "fast"', "-dense_learning_rate fast"),
    Case("comma_for_point", 64, r'-dense_learning_rate "0,1"', "-dense_learning_rate 0,1"),
    Case("bad_boolean", 64, r'-data_shuffle "maybe" .*true or false', "-data_shuffle maybe"),
    Case("bad_choice_lists_the_good_ones", 64, r'-pipeline "overlap" .*base, sparse_dist, prefetch_sparse_dist', "-pipeline overlap"),
    Case("bad_choice_in_list", 64, r'-tables_sharding_types "table_wise,row" .*"row"', "-tables_sharding_types table_wise,row"),
    Case("bad_entry_in_list", 64, r'-dense_arch "8,x,4" .*entry 2', "-dense_arch 8,x,4"),
    Case("empty_entry_in_list", 64, r'-dense_arch "8,,4"', "-dense_arch 8,,4"),
    Case("zero_in_list", 64, r'-over_arch "0,1"', "-over_arch 0,1"),
    Case("blank_in_list", 64, r'"4" belongs to no option', "-dense_arch 8, 4"),
    Case("given_twice", 0, "", "-report_interval 0 -steps 2 -steps 4", after=steps_done(4)),
    Case("given_twice_in_another_case", 0, "", "-report_interval 0 -steps 2 -STEPS 5", after=steps_done(5), ranks=3),
    Case("given_twice_first_is_no_number", 64, r'-steps "two" \(command line\): expected an integer', "-steps two -steps 4"),
    Case("given_twice_over_a_file", 0, "", "-report_interval 0 -options_file two.opts -steps 3 -steps 4 -output out/run.h5", two_steps, steps_done(4)),
    Case("given_twice_alike", 0, "", "-seed 1 -seed 1"),
    Case("unknown_table", 64, r'-table_usr_embedding_dim .*no table "usr"; the closest name is "user"', "-table_usr_embedding_dim 4"),
    Case("unknown_table_key", 64, r"-table_user_embeding_dim .*closest known one is -table_user_embedding_dim", "-table_user_embeding_dim 4"),
    Case("unknown_key_of_all_tables", 64, r"-tables_embeding_dim .*closest known one is -tables_embedding_dim", "-tables_embeding_dim 4"),
    Case("unknown_word_of_tables", 64, r"-table_init_scale .*closest known one is -tables_[a-z_]+$", "-table_init_scale 2"),
    Case("unknown_key_of_unknown_table", 64, r"-table_usr_poolng .*closest known one is -tables_[a-z_]+$", "-tables user,item,tag -table_usr_poolng sum"),
    Case("unknown_key_of_listed_table", 64, r"-table_user_poolng .*closest known one is -table_user_pooling$", "-tables user,item,tag -table_user_poolng sum"),
    Case("batch_larger_than_memory", 72, r"^(?!.*data_type).*for batches of 100000000 samples a rank, not for tables. Relax: -batch_size",
         "-batch_size 100M -topology_ddr_cap 32GiB"),
    Case("batch_larger_than_memory_three_ranks", 72, r"^(?!.*data_type).*Relax: -batch_size", "-batch_size 100M -topology_ddr_cap 32GiB", ranks=3),
    Case("states_larger_than_memory", 72, r"^(?!.*for batches).*Relax: .*data_type, -embedding_optimizer \(rowwise_adagrad",
         "-tables_num_embeddings 10G -tables_embedding_dim 64 -embedding_optimizer adam -topology_ddr_cap 32GiB"),
    Case("own_states_larger_than_memory", 72, r"^(?!.*for batches).*Relax: .*data_type, -table_[a-z]+_optimizer \(rowwise_adagrad",
         "-tables_num_embeddings 10G -tables_embedding_dim 64 -tables_optimizer adam -topology_ddr_cap 32GiB"),
    Case("dense_layers_larger_than_memory", 72, r"the dense layers leave no memory for tables.*Relax: smaller -dense_arch or -over_arch",
         "-over_arch 100000,100000,1 -topology_ddr_cap 32GiB"),
    Case("debugger", 64, r"-start_in_debugger .*refused", "-start_in_debugger"),
    Case("debugger_on_error", 64, r"-on_error_attach_debugger .*refused", "-on_error_attach_debugger"),
    Case("unused_allowed", 0, "", "-bach_size 4 -allow_unused_options"),
    Case("long_value", 64, r"-pipeline \"x{90,100}\.\.\.", f"-pipeline {'x' * 100000}"),
    Case("format_characters", 64, r"-pipeline \"%n%s%n\"", "-pipeline %n%s%n"),
    Case("terminal_control", 64, r"-pipeline \"[^\x1b]*31mred", "-pipeline '\x1b[31mred'"),
    Case("petscrc_is_not_read", 0, "", prepare=petscrc),
    Case("petsc_options_variable_is_not_read", 0, "", environment={"PETSC_OPTIONS": "-batch_size rubbish -unheard_of 1"}),
    Case("checkpoint_every_without_folder", 64, r"-checkpoint_every .*-checkpoint_dir", "-checkpoint_every 2"),
    Case("resume_without_folder", 64, r"-resume .*-checkpoint_dir", "-resume"),
    Case("eval_every_without_data", 64, r"-eval_every .*-data_eval", "-eval_every 2"),
    Case("reproducible_with_coded_forward", 64, r"-qcomm_forward_precision .*-reproducible needs fp32", "-reproducible -qcomm_forward_precision fp16", ranks=2),
    Case("reproducible_with_coded_backward", 64, r"-qcomm_backward_precision .*-reproducible needs fp32", "-reproducible -qcomm_backward_precision int8"),
    Case("reproducible_with_coded_sequences", 64, r"-qcomm_sequence_backward_precision .*-reproducible needs fp32", "-reproducible -qcomm_sequence_backward_precision bf16"),
    Case("reproducible_with_coded_dense_gradients", 64, r"-dense_allreduce_precision .*-reproducible needs fp32", "-reproducible -dense_allreduce_precision bf16", ranks=2),
    Case("dense_gradients_in_int8", 64, r'-dense_allreduce_precision "int8" .*fp32, fp16, bf16', "-dense_allreduce_precision int8"),
    Case("coded_operation_unknown", 64, r"-qcomm_all_gather_forward_precision .*closest known one is -qcomm_", "-qcomm_all_gather_forward_precision fp16"),
    Case("coded_operation_in_fp64", 64, r'-qcomm_reduce_scatter_forward_precision "fp64" .*fp32, fp16, bf16, fp8, int8', "-qcomm_reduce_scatter_forward_precision fp64"),
    Case("loss_scale_that_nothing_takes", 64, r"-qcomm_backward_loss_scale .*needs an exchange whose -qcomm_backward_precision is fp16 or bf16",
         "-qcomm_sequence_backward_precision fp8 -qcomm_backward_loss_scale 16 -qcomm_forward_precision fp16"),
    Case("reproducible_with_position_weights", 64, r"-reproducible .*position_weighted table \"user\"",
         "-reproducible -table_user_position_weighted -table_user_max_feature_lengths 8", ranks=2),
    Case("reproducible_with_index_dedup", 64, r"-reproducible .*-ec_index_dedup", "-reproducible -ec_index_dedup -table_user_pooling none"),
    Case("reproducible_by_hosts", 64, r"-ebc_row_wise_reduce_scatter.*-reproducible", "-reproducible -ebc_row_wise_reduce_scatter hierarchical"),
    Case("reduce_scatter_misspelt", 64, r"-ebc_row_wise_reduce_scatter.*flat, hierarchical", "-ebc_row_wise_reduce_scatter hosts"),
    Case("graphs_on_a_cpu", 64, r"-dense_graphs .*-device cpu has no graphs", "-dense_graphs -device cpu"),
    Case("graphs_of_reproducible", 64, r"-dense_graphs .*does not go with -reproducible", "-dense_graphs -reproducible", ranks=2),
    Case("graphs_of_accumulated_steps", 64, r"-dense_graphs .*does not go with -accumulate_steps", "-dense_graphs -accumulate_steps 2"),
    Case("graphs_of_sequences", 64, r'-dense_graphs .*sequence_pooling of table "user"', "-dense_graphs -table_user_pooling none -table_user_sequence_pooling gru"),
    Case("reproducible_with_variable_batch", 64, r"-reproducible .*-ebc_variable_batch", "-reproducible -ebc_variable_batch"),
    Case("reproducible_with_cut_maximum", 64, r"-reproducible: the sequence table \"user\".*column_wise",
         "-reproducible -table_user_pooling none -table_user_sequence_pooling max -table_user_sharding_types column_wise", ranks=2),
    Case("reproducible_while_measuring_codecs", 64, r"-reproducible .*leave them out", "-task bench -bench_qcomm -reproducible"),
    Case("projection_of_no_multiple", 64, r"-projection_arch2 \"18\" .*size 18, it must be a multiple of the embeddings' dim, 4",
         "-interaction projection -projection_arch1 16 -projection_arch2 18"),
    Case("no_experts", 64, r'-dcn_num_experts "0" ', "-interaction dcn_mixture -dcn_num_experts 0"),
    Case("dense_column_beyond", 64, r'-data_dense .*"3": expected none or columns of .*train.h5, whose /dense has 3, counted from 0', "-data_dense 0,3"),
    Case("dense_column_of_no_number", 64, r'-data_dense .*"none": expected none or columns', "-data_dense 1,none"),
    Case("residual_of_nothing", 64, r"-over_arch_residual: no layer of over_arch has an output as wide as its input", "-over_arch_residual -over_arch 5,1"),
    Case("accumulate_nothing", 64, r'-accumulate_steps "0" .*1', "-accumulate_steps 0"),
    Case("accumulate_too_much", 64, r"-accumulate_steps .*more than 1000000000 samples a rank", "-accumulate_steps 1000000 -batch_size 1001"),
    Case("accumulate_rounded", 64, r"-dense_allreduce_precision .*-accumulate_steps sums .*fp32", "-accumulate_steps 2 -dense_allreduce_precision bf16", ranks=2),
    Case("accumulate_position_weights", 64, r"-accumulate_steps .*position_weighted table \"user\"",
         "-accumulate_steps 2 -table_user_position_weighted -table_user_max_feature_lengths 8"),
    Case("accumulate_while_measuring_codecs", 64, r"-accumulate_steps .*leave them out", "-task bench -bench_qcomm -accumulate_steps 2"),
    Case("reproducible_is_a_boolean", 64, r'-reproducible "mostly" .*true or false', "-reproducible mostly"),
    Case("no_dataset", 64, r"-data_train is missing", without=("-data_train",)),
    Case("eval_without_checkpoint", 64, r"-init_from is missing", "-task eval -data_eval train.h5"),
    Case("eval_without_dataset", 64, r"-data_eval is missing", "-task eval -init_from out/final.h5"),
]
