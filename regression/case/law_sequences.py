# SPDX-License-Identifier: BSD-3-Clause
"""Sequences that layers pool: bits with -reproducible, resume, evaluation, prediction and int8
rows, with the golden cases' data."""
import os
import re
import shutil

import h5py
import numpy as np

from trsrun import check, check_same_tensors, losses, run, same_bits, tensors, thin, thinned

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "runtime")
CASES = ("sequence_gru", "sequence_din_history", "sequence_transformer")
# Ranks and a plan: cut rows and columns, replicas, and ids sent once. 144 samples are two blocks of
# -reproducible.
PLANS = [(2, "-tables_sharding_types row_wise"), (3, "-tables_sharding_types column_wise -tables_min_partition 4"), (3, "-tables_sharding_types data_parallel"),
         (2, "-table_word_sharding_types row_wise -table_user_sharding_types table_wise -pipeline base"), (4, "-tables_sharding_types row_wise -topology_local_world_size 2")]
GLOBAL = 144


def prepare(folder, case):
    """Write a case's files to the folder. Returns its options."""
    for name in ("train.h5", "init.h5"):
        shutil.copy(os.path.join(GOLDEN, case, name), folder)
    with open(os.path.join(GOLDEN, case, "run.opts"), encoding="utf-8") as f:
        words = re.sub(r"-steps \d+", "", f.read()).split()
    return "-data_train train.h5 -init_from init.h5 " + " ".join(words)


@thinned
def test_sequence_layers_reproducible(binary, folder):
    """-reproducible: the same losses and tensors, bit for bit, on any number of ranks and under any
    plan."""
    for case in thin(CASES, CASES[:2]):
        options = f"{prepare(folder, case)} -steps 4 -reproducible"
        run(binary, 1, f"{options} -batch_size {GLOBAL} -output one.h5 -checkpoint_final one_final.h5", folder)
        for ranks, plan in thin(PLANS, PLANS[1:2]):
            run(binary, ranks, f"{options} {plan} -batch_size {GLOBAL // ranks} -output other.h5 -checkpoint_final other_final.h5", folder)
            check(same_bits(losses(os.path.join(folder, "one.h5")), losses(os.path.join(folder, "other.h5"))), f"{case}, {ranks} ranks, {plan}: other losses")
            check_same_tensors(os.path.join(folder, "one_final.h5"), os.path.join(folder, "other_final.h5"), f"{case}, {ranks} ranks, {plan}")


def test_sequence_layers_resume(binary, folder):
    """Ten steps, a checkpoint, and ten more steps have the bits of twenty steps, with an optimizer
    that has states."""
    for case in CASES:
        options = f"{prepare(folder, case)} -batch_size 8 -dense_optimizer adam -dense_learning_rate 0.01"
        run(binary, 2, f"{options} -steps 20 -checkpoint_final whole.h5", folder)
        run(binary, 2, f"{options} -steps 10 -checkpoint_dir {case} -checkpoint_every 10", folder)
        run(binary, 2, f"{options} -steps 20 -checkpoint_dir {case} -resume -checkpoint_final resumed.h5", folder)
        check_same_tensors(os.path.join(folder, "whole.h5"), os.path.join(folder, "resumed.h5"), case)
        moved = [name for name in tensors(os.path.join(folder, "whole.h5")) if name.startswith("dense_optimizer/sequence/")]
        check(moved, f"{case}: no state of the layers' parameters")


def test_sequence_layers_predict(binary, folder):
    """The checkpoint contains the model: eval and predict give the same result, and int8 rows give
    a result that is close."""
    for case in CASES:
        model = f"{prepare(folder, case)} -batch_size 160 -steps 1 -checkpoint_final model.h5"
        run(binary, 1, model, folder)
        found = {}
        for name, ranks, more in (("eval", 2, "-task eval"), ("predict", 1, "-task predict"), ("int8", 2, "-task predict -tables_data_type int8")):
            run(binary, ranks, f"{more} -init_from model.h5 -data_eval train.h5 -batch_size 40 -output {name}.h5", folder)
            with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
                found[name] = h["predictions"][()]
        check(np.allclose(found["eval"], found["predict"], atol=1e-6), f"{case}: eval and predict differ")
        error = np.abs(found["int8"] - found["predict"]).max()
        check(0 < error < 0.02 < np.ptp(found["predict"]), f"{case}: int8 is {error} off in predictions that span {np.ptp(found['predict'])}")
        for option, word in (("-table_word_sequence_pooling", "mean"), ("-tables_sequence_pooling", "concat -tables_sequence_length 2"), ("-table_word_pooling", "sum")):
            text = run(binary, 1, f"-task eval -init_from model.h5 -data_eval train.h5 -batch_size 40 {option} {word}", folder, status=64).text
            check(f'{option} "{word.split()[0]}"' in text and f'"word" has pooling none and sequence_pooling {case.split("_")[1]}' in text, text[-500:])
    text = run(binary, 1, "-task eval -init_from model.h5 -data_eval train.h5 -batch_size 40 -tables_pooling none -tables_sequence_pooling Transformer", folder, status=64).text
    check('-tables_sequence_pooling "Transformer"' in text and '"user" has pooling sum and sequence_pooling mean' in text, text[-500:])
