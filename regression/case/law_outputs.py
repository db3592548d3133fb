# SPDX-License-Identifier: BSD-3-Clause
"""output_dtype in training: pooled rows and their gradients are fp16 or bf16, also in exchanges."""
import os

import numpy as np

from law_plans import MIXED, make, train
from law_trace import load
from quantised import rounded
from trsrun import check, check_close_losses, check_same_tensors, run, same_bits, tensors, thin, thinned, write_dataset

PLANS = [(1, "table_wise"), (2, "table_wise"), (3, "row_wise"), (2, "column_wise"), (3, "data_parallel"),
         (4, "table_row_wise -topology_local_world_size 2"), (4, "grid_shard -topology_local_world_size 2")]
# Tables are zero, and rows occur once. After a step of sgd with rate 1, a row is its gradient with
# the opposite sign.
GRADIENTS = ("-data_train once.h5 -steps 1 -tables_embedding_dim 8 -tables_min_partition 4 -dense_arch 16,8 -over_arch 16,1 -seed 3 -tables_init_fn constant "
             "-tables_init_value 0 -embedding_optimizer sgd -embedding_learning_rate 1")


@thinned
def test_output_dtype_gradients(binary, folder):
    """The gradients of a bag are those of the run without output_dtype, rounded once, under every
    plan."""
    import h5py
    features = {"user": 64, "item": 64}
    path = write_dataset(os.path.join(folder, "once.h5"), 24, features=features, largest_bag=1)
    with h5py.File(path, "r+") as h:
        h["sparse/values"][...] = np.arange(len(h["sparse/values"]))  # each id once
    for number, (ranks, plan) in enumerate(thin(PLANS, PLANS[1:4] + PLANS[5:6])):
        found = {}
        for dtype in ("fp32", ("bf16", "fp16")[number % 2]):
            run(binary, ranks, f"{GRADIENTS} -batch_size {24 // ranks} -tables_sharding_types {plan} -tables_output_dtype {dtype} "
                f"-checkpoint_final {dtype}.h5 -existing_outputs replace", folder)
            found[dtype] = tensors(os.path.join(folder, f"{dtype}.h5"))
        for name, rows in found["fp32"].items():
            if not name.startswith("embedding/"):
                continue
            wanted = rounded(rows, dtype)
            check(np.any(rows != wanted), f"{plan}: rounding changes nothing")
            check(same_bits(found[dtype][name], wanted), f"{plan} on {ranks} ranks, {dtype}: /{name} is not the gradient, rounded")


@thinned
def test_output_dtype_reproducible(binary, folder):
    """-reproducible: the same bits for every plan, also for mean, sequence and weighted tables. The
    bits differ from fp32. eval uses the rounded outputs."""
    make(folder, weighted=True)
    kinds = "-table_user_pooling none -table_user_sequence_pooling max -table_word_is_weighted -table_item_output_dtype fp16 -tables_output_dtype bf16"
    options = f"{kinds} -steps 6 -reproducible"
    wanted, state = train(binary, folder, "one", 1, options)
    plain, _ = train(binary, folder, "plain", 1, options.replace("bf16", "fp32").replace("fp16", "fp32"))
    check(not same_bits(wanted, plain), "nothing is rounded")
    check_close_losses(wanted, plain, 2e-3, "bf16")
    plans = [(2, f"-tables_sharding_types {kind}") for kind in ("table_wise", "row_wise", "data_parallel")] + [(3, "-tables_sharding_types row_wise"), (4, MIXED)]
    for ranks, plan in thin(plans, plans[1:2] + plans[4:]):
        found, other = train(binary, folder, "other", ranks, f"{options} {plan}")
        check(same_bits(found, wanted), f"{plan} on {ranks} ranks: other losses")
        check_same_tensors(other, state, f"{plan} on {ranks} ranks")


def sent(folder, name, ranks):
    """Bytes of pooled rows and their gradients that all ranks passed to exchanges in a traced step:
    from each rank's first such step, in total."""
    spans = {rank: sorted((span for row in rows.values() for span in row if span["name"] == "rows" and span["args"]["step"] == 3), key=lambda span: span["ts"])
             for rank, rows in load(os.path.join(folder, f"{name}.json"), ranks).items()}
    return sum(found[0]["args"]["bytes"] for found in spans.values()), sum(span["args"]["bytes"] for found in spans.values() for span in found)


@thinned
def test_output_dtype_bytes(binary, folder):
    """Rows take half the bytes, also for sequences, and gradients take the bytes of qcomm's fp16.
    Losses are close to fp32's. A table of another type has a separate exchange."""
    make(folder)
    plans = [(2, "table_wise"), (3, "row_wise"), (2, "table_wise -tables_pooling none"), (4, "grid_shard -topology_local_world_size 2"),
             (2, "row_wise -ebc_variable_batch"), (3, "column_wise -tables_pooling none")]
    for ranks, plan in thin(plans, plans[1:3]):
        found, bytes_of = {}, {}
        for name, more in (("plain", ""), ("half", "-tables_output_dtype fp16"), ("qcomm", "-qcomm_forward_precision fp16 -qcomm_backward_precision fp16"),
                           ("part", "-table_user_output_dtype fp16")):
            options = f"-tables_sharding_types {plan} -steps 5 -trace_first_step 3 -trace_steps 1 -trace {name}.json {more}"
            found[name] = train(binary, folder, name, ranks, options)[0]
            bytes_of[name] = sent(folder, name, ranks)
        check(bytes_of["plain"][0] > 0 and 2 * bytes_of["half"][0] == bytes_of["plain"][0], f"{plan}: bytes of the rows {bytes_of}")
        # an encoded exchange includes a rank's gradients for itself
        check(bytes_of["half"] == bytes_of["qcomm"], f"{plan}: {bytes_of}")
        check(bytes_of["half"][1] < bytes_of["part"][1] < bytes_of["plain"][1], f"{plan}: one table of fp16 {bytes_of}")
        check_close_losses(found["half"], found["plain"], 1e-3, plan)
        check(not same_bits(found["half"], found["plain"]), f"{plan}: nothing is rounded")


def test_output_dtype_evaluated(binary, folder):
    """An evaluation rounds like the training: -task eval of a checkpoint has the bits of the
    training's last evaluation."""
    make(folder)
    options = "-tables_output_dtype bf16 -tables_sharding_types table_wise"
    train(binary, folder, "run", 2, f"{options} -steps 4 -data_eval train.h5 -eval_every 4")
    run(binary, 3, "-task eval -data_eval train.h5 -init_from run.final.h5 -batch_size 8 -output again.h5 -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 "
        f"-tables user,item,tag,word -table_item_features item,shop -table_item_num_embeddings 30 -table_tag_pooling mean {options}", folder)
    metric = [tensors(os.path.join(folder, name))["eval/loss"][-1] for name in ("run.h5", "again.h5")]
    check(abs(metric[0] - metric[1]) < 1e-6 * metric[0], f"losses {metric}")
