# SPDX-License-Identifier: BSD-3-Clause
"""Inference with quantised tables: inputs that it refuses, and quantised inputs that training and
evaluation refuse."""
import os

import numpy as np

import cases_plans
import trsrun
from badinput import Case
from cases_checkpoints import bad, flipped, folder_with, turned
from prepare import attribute_of, edit_checkpoint

PREDICT = "-task predict -data_eval train.h5"
FROM = f"{PREDICT} -init_from bad.h5"
WEIGHT = "embedding/user/weight"
ROWS = "embedding/user/weight_quantised"


def quantised(change=None, damage=None):
    """A prepare function: bad.h5 is the good run's checkpoint with int8 tables, edited (and then
    without checksums) or damaged."""
    def prepare(folder):
        path = os.path.join(folder, "bad.h5")
        trsrun.run(os.environ["TRS_BINARY"], 1, Case("quantise", 0, options=f"{PREDICT} -init_from out/final.h5 -tables_data_type int8 "
                   "-quant_checkpoint bad.h5", without=("-output", "-checkpoint_final")).words(), folder)
        if change:
            edit_checkpoint(path, change)
        if damage:
            damage(path)
    return prepare


def edited(name, convert):
    """Change a dataset's values and keep its attributes."""
    def change(h):
        values, attributes = h[name][()], dict(h[name].attrs)
        del h[name]
        h[name] = convert(values)
        for key, value in attributes.items():
            h[name].attrs[key] = value
    return change


def both(h):
    h[WEIGHT] = np.zeros((50, 4), np.float32)


def put(row, column, value):
    def change(h):
        h[WEIGHT][row, column] = value
    return change


def endless_scale(h):
    """Row 3's scale is infinite, which no quantisation produces."""
    h[ROWS][3, 0:2] = np.frombuffer(np.float16(np.inf).tobytes(), np.uint8)


def plan(sharder, change=None):
    """A prepare function: plan.json of the good case, made for training or for quant."""
    return cases_plans.plan(change, options=f"-plan_sharder {sharder} -tables_sharding_types column_wise -tables_min_partition 2")


def uneven_columns(tree):
    """The first table's columns as 1 + 3: an int4 shard would start inside a byte."""
    table = tree["tables"][0]
    shard = table["shards"][0]
    table["ranks"] = [0, 1]
    table["shards"] = [dict(shard, rank=0, offset=[0, 0], size=[50, 1]), dict(shard, rank=1, offset=[0, 1], size=[50, 3])]


CASES = [
    Case("towers_of_no_towers", 64, r"-predict_towers .*only -interaction two_tower", f"{PREDICT} -init_from out/final.h5 -predict_towers query", without=("-checkpoint_final",)),
    Case("tower_unknown", 64, r'-predict_towers .*no tower "user", expected query or candidate', f"{PREDICT} -init_from out/final.h5 -predict_towers user", without=("-checkpoint_final",)),
    Case("recall_of_no_towers", 64, r"-eval_recall_at .*only -interaction two_tower", "-task eval -data_eval train.h5 -init_from out/final.h5 -eval_recall_at 5", without=("-checkpoint_final",)),
    # checkpoints for a prediction
    Case("no_checkpoint", 64, r"-init_from is missing: -task predict needs a checkpoint", PREDICT),
    Case("no_data", 64, r"-data_eval is missing", "-task predict -init_from out/final.h5"),
    Case("checkpoint_missing", 66, r"bad\.h5: cannot be opened", FROM),
    Case("checkpoint_is_a_dataset", 65, r'train\.h5: attribute format is "trshard-dataset"', f"{PREDICT} -init_from train.h5"),
    Case("folder_missing", 66, r"ckpt: no checkpoint is there", f"{PREDICT} -checkpoint_dir ckpt"),
    Case("folder_empty", 66, r"ckpt: no checkpoint is there", f"{PREDICT} -checkpoint_dir ckpt", folder_with()),
    Case("newest_is_damaged", 0, "", f"{PREDICT} -checkpoint_dir ckpt -tables_data_type int8", folder_with(None, flipped(WEIGHT))),
    # the checkpoint's tables
    Case("table_missing", 65, r"bad\.h5 has no dataset /embedding/user/weight", FROM, bad(lambda h: h.__delitem__("embedding/user"))),
    Case("table_missing_three_ranks", 65, r"bad\.h5 has no dataset /embedding/user/weight", FROM, bad(lambda h: h.__delitem__("embedding/user")), ranks=3),
    Case("layer_missing", 65, r"bad\.h5 has no dataset /dense/over_arch/1/weight", FROM, bad(lambda h: h.__delitem__("dense/over_arch/1"))),
    Case("another_number_of_rows", 65, r"bad\.h5: /embedding/user/weight is fp32 \[49, 4\], the model wants \[50, 4\]", FROM, bad(turned(WEIGHT, lambda v: v[:-1]))),
    Case("another_width", 64, r'-tables_embedding_dim "8" .*the model of .*bad\.h5 has -tables_embedding_dim 4', f"{FROM} -tables_embedding_dim 8", bad()),
    Case("another_width_of_an_older_one", 65, r"bad\.h5: /embedding/user/weight is fp32 \[50, 4\], the model wants \[50, 8\]",
         f"{FROM} -tables_embedding_dim 8 -dense_arch 8,8", bad(lambda h: h.attrs.__delitem__("model"))),
    Case("double_precision", 65, r"bad\.h5: /embedding/user/weight is float64 \[50, 4\], expected float32", FROM, bad(turned(WEIGHT, lambda v: v.astype(np.float64)))),
    Case("integers", 65, r"bad\.h5: /embedding/user/weight is int16", FROM, bad(turned(WEIGHT, lambda v: v.astype(np.int16)))),
    Case("one_dimension", 65, r"bad\.h5: /embedding/user/weight is float32 \[200\]", FROM, bad(turned(WEIGHT, np.ravel))),
    Case("bit_flip", 65, r"bad\.h5 is damaged: the checksum of /embedding/user/weight", FROM, bad(damage=flipped(WEIGHT))),
    Case("not_a_number", 78, r"bad\.h5: /embedding/user/weight has nan\.? in row 7, column 2", f"{FROM} -tables_data_type int8", bad(put(7, 2, np.nan))),
    Case("infinite", 78, r"bad\.h5: /embedding/user/weight has -inf\.? in row 49, column 0", f"{FROM} -tables_data_type int4", bad(put(49, 0, -np.inf)), ranks=3),
    Case("too_large_for_scale_and_bias", 65, r"bad\.h5: /embedding/user/weight has 1e\+06 in row 7, column 2, and int8 rows hold magnitudes up to 65504",
         f"{FROM} -tables_data_type int8", bad(put(7, 2, 1e6))),
    Case("large_for_others", 0, "", f"{FROM} -tables_data_type bf16", bad(put(7, 2, 1e6))),
    Case("layer_not_finite", 78, r"the prediction of sample \d+ is -?nan\.?: .*bad\.h5 holds weights", FROM, bad(turned("dense/over_arch/1/bias", lambda v: v * np.nan))),
    # a checkpoint of quantised rows
    Case("quantised", 0, "", FROM, quantised()),
    Case("quantised_again", 64, r'-tables_data_type.*table "item" is int8 in .*bad\.h5, and rounding it again to int4|-tables_data_type.*table "user" is int8',
         f"{FROM} -tables_data_type int4", quantised()),
    Case("quantised_truncated", 65, r"bad\.h5 .*truncated, damaged", FROM, quantised(damage=lambda path: os.truncate(path, os.path.getsize(path) - 100))),
    Case("quantised_bit_flip", 65, r"bad\.h5 is damaged: the checksum of /embedding/user/weight_quantised", FROM, quantised(damage=flipped(ROWS))),
    Case("quantised_wrong_row_bytes", 65, r"bad\.h5: /embedding/user/weight_quantised is int8 \[50, 12\], the model wants \[50, 16\]: rows and their bytes", FROM,
         quantised(edited(ROWS, lambda v: v[:, :12]))),
    Case("quantised_too_few_rows", 65, r"bad\.h5: /embedding/user/weight_quantised is int8 \[49, 16\], the model wants \[50, 16\]", FROM,
         quantised(edited(ROWS, lambda v: v[:-1]))),
    Case("quantised_as_words", 65, r"bad\.h5: /embedding/user/weight_quantised is u?int16 \[50, 8\], expected uint8", FROM,
         quantised(edited(ROWS, lambda v: v.view(np.uint16)))),
    Case("quantised_without_data_type", 65, r"bad\.h5: .*weight_quantised has no attribute data_type", FROM, quantised(attribute_of(ROWS, "data_type", None))),
    Case("quantised_of_unknown_type", 65, r'bad\.h5: attribute data_type of /embedding/user/weight_quantised is "int3", expected int8', FROM,
         quantised(attribute_of(ROWS, "data_type", "int3"))),
    Case("quantised_of_another_width", 65, r"bad\.h5: attribute embedding_dim of /embedding/user/weight_quantised is 8, the model wants 4", FROM,
         quantised(attribute_of(ROWS, "embedding_dim", 8))),
    Case("quantised_of_another_alignment", 65, r"bad\.h5: attribute row_alignment of /embedding/user/weight_quantised is 4, expected 16", FROM,
         quantised(attribute_of(ROWS, "row_alignment", 4))),
    Case("quantised_and_not", 65, r"bad\.h5 has /embedding/user/weight and /embedding/user/weight_quantised: which one", FROM, quantised(both)),
    Case("quantised_scale_not_finite", 65, r"bad\.h5: /embedding/user/weight_quantised, row 3: its scale and bias are no numbers: damaged", FROM, quantised(endless_scale)),
    Case("quantised_for_training", 65, r"bad\.h5 has no dataset /embedding/user/weight, but /embedding/user/weight_quantised: its tables are quantised",
         "-init_from bad.h5", quantised()),
    Case("quantised_for_evaluation", 65, r'-tables_data_type "int8" \(.*bad\.h5\): table "user" cannot be trained or evaluated as int8',
         "-task eval -data_eval train.h5 -init_from bad.h5", quantised()),
    Case("quantised_for_evaluation_as_fp32", 65, r"bad\.h5 has no dataset /embedding/user/weight, but /embedding/user/weight_quantised",
         "-task eval -data_eval train.h5 -init_from bad.h5 -tables_data_type fp32", quantised()),
    # options
    Case("training_in_int8", 64, r'-tables_data_type.*table "user" cannot be trained or evaluated as int8: train in fp32, fp16 or bf16', "-tables_data_type int8"),
    Case("training_one_table_in_int4", 64, r'-table_item_data_type.*table "item" cannot be trained or evaluated as int4', "-table_item_data_type int4"),
    Case("evaluation_in_int2", 64, r'-tables_data_type.*table "user" cannot be trained or evaluated as int2',
         "-task eval -data_eval train.h5 -init_from out/final.h5 -tables_data_type int2"),
    Case("output_in_int8", 64, r"-tables_output_dtype.*pooled outputs of a run are fp32, fp16 or bf16", f"{PREDICT} -init_from out/final.h5 -tables_output_dtype int8"),
    Case("sharder_for_training", 64, r"-plan_sharder.*-task predict shards quantised tables", f"{PREDICT} -init_from out/final.h5 -plan_sharder training"),
    Case("quantised_sharder_in_training", 64, r"-plan_sharder quant plans for -task predict", "-plan_sharder quant"),
    Case("data_parallel_is_a_training_s", 0, "", f"{PREDICT} -init_from out/final.h5 -tables_sharding_types data_parallel"),
    Case("types_over_a_host_are_a_training_s", 0, "", f"{PREDICT} -init_from out/final.h5 -tables_sharding_types table_row_wise,table_column_wise,grid_shard"),
    Case("no_type_of_quantised_tables", 72, r"types of such tables are table_wise, row_wise, column_wise\. Relax", "-task plan -plan_sharder quant -tables_sharding_types grid_shard"),
    Case("plan_of_a_training", 65, r'plan\.json: table "user" has compute kernel fused, which is for training', f"{PREDICT} -init_from out/final.h5 -plan_input plan.json",
         plan("training"), ranks=2),
    Case("plan_for_prediction_in_training", 65, r'plan\.json: table "user" has compute kernel quant, which is for -task predict', "-plan_input plan.json", plan("quant"), ranks=2),
    Case("plan_given", 0, "", f"{PREDICT} -init_from out/final.h5 -tables_data_type int4 -plan_input plan.json", plan("quant"), ranks=2),
    Case("plan_cuts_a_byte", 65, r'plan\.json: table "user", shard 1 starts at column 1, in the middle of a byte of int4 rows',
         f"{PREDICT} -init_from out/final.h5 -tables_data_type int4 -plan_input plan.json", plan("quant", uneven_columns), ranks=2),
    Case("plan_cuts_no_byte", 0, "", f"{PREDICT} -init_from out/final.h5 -tables_data_type int8 -plan_input plan.json", plan("quant", uneven_columns), ranks=2),
    Case("options_of_a_training", 0, "", f"{PREDICT} -init_from out/final.h5 -tables_data_type int8 -embedding_optimizer adam -embedding_max_gradient 1 -resume -epochs 2"),
    # outputs
    Case("quantised_into_nowhere", 73, r"nowhere/q\.h5", f"{PREDICT} -init_from out/final.h5 -tables_data_type int8 -quant_checkpoint nowhere/q.h5"),
    Case("quantised_into_a_folder", 73, r"out", f"{PREDICT} -init_from out/final.h5 -tables_data_type int8 -quant_checkpoint out"),
]
