# SPDX-License-Identifier: BSD-3-Clause
"""A run's result does not depend on its division: over ranks, by sharding type, by pipeline, or by
batch."""
import json
import os
import re

import h5py
import numpy as np

from trsrun import check, check_close_losses, check_close_tensors, check_same_tensors, losses, optimizers, run, same_bits, thin, thinned, write_dataset

MODEL = "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 -seed 3"
# One table of each kind, including two features, mean and half precision.
FEATURES = {"user": 50, "item": 30, "tag": 20, "shop": 11, "word": 40}
TABLES = ("-tables user,item,tag,word -table_item_features item,shop -table_item_num_embeddings 30 -table_tag_pooling mean "
          "-tables_min_partition 4")
MIXED = ("-table_user_sharding_types row_wise -table_item_sharding_types table_wise -table_tag_sharding_types data_parallel "
         "-table_word_sharding_types column_wise")
TOLERANCE = 1e-5  # as for golden data: floats are summed in another order


def train(binary, folder, name, ranks, options, global_batch=24, **more):
    """Run a training. Returns losses and the path of the final checkpoint."""
    words = (f"-data_train train.h5 -batch_size {global_batch // ranks} -output {name}.h5 -checkpoint_final {name}.final.h5 "
             f"{MODEL} {TABLES} {options}")
    run(binary, ranks, words, folder, **more)
    return losses(os.path.join(folder, f"{name}.h5")), os.path.join(folder, f"{name}.final.h5")


def make(folder, samples=200, name="train.h5", **more):
    write_dataset(os.path.join(folder, name), samples, features=FEATURES, **more)


@thinned
def test_pipelines_equal(binary, folder):
    """base, sparse_dist and prefetch_sparse_dist give the same bits, with every kind of sharding in
    one run."""
    make(folder)
    for ranks in thin((1, 2, 3), (1, 3)):
        options = f"{MIXED if ranks > 1 else ''} -epochs 2"
        base, state = train(binary, folder, "base", ranks, f"{options} -pipeline base")
        for pipeline in ("sparse_dist", "prefetch_sparse_dist"):
            found, other = train(binary, folder, pipeline, ranks, f"{options} -pipeline {pipeline}")
            check(same_bits(found, base), f"{pipeline} on {ranks} ranks: other losses")
            check_same_tensors(other, state, f"{pipeline} on {ranks} ranks")


@thinned
def test_sharding_types_equal(binary, folder):
    """Every type on 2, 3 and 4 ranks against one rank. Adagrad's states are element-wise, so
    columns may be cut."""
    make(folder)
    options = "-epochs 2 -embedding_optimizer adagrad"
    wanted, state = train(binary, folder, "one", 1, options)
    runs = [(ranks, f"-tables_sharding_types {kind}") for ranks in (2, 3, 4) for kind in ("data_parallel", "table_wise", "row_wise", "column_wise")]
    runs += [(ranks, MIXED) for ranks in (2, 3, 4)]
    runs += [(4, f"-tables_sharding_types {kind} -topology_local_world_size 2") for kind in ("table_row_wise", "table_column_wise", "grid_shard")]
    runs += [(ranks, "") for ranks in (2, 3, 4)]
    # each type on three ranks or on two hosts, and the planner's own choice
    few = runs[4:8] + runs[12:13] + runs[15:18] + runs[-1:]
    for ranks, plan in thin(runs, few):
        found, other = train(binary, folder, "other", ranks, f"{options} {plan}")
        check_close_losses(found, wanted, TOLERANCE, f"{ranks} ranks {plan}")
        check_close_tensors(other, state, TOLERANCE, f"{ranks} ranks {plan}")


@thinned
def test_optimizers_equal(binary, folder):
    """Every optimizer on 3 ranks with cut rows against one rank, also with weighted ids."""
    make(folder, weighted=True)
    for optimizer in thin(optimizers(binary), ("rowwise_adagrad", "adam", "partial_rowwise_lamb", "lars_sgd")):
        options = f"-steps 8 -embedding_optimizer {optimizer} -table_user_is_weighted -table_word_is_weighted"
        wanted, state = train(binary, folder, "one", 1, options)
        found, other = train(binary, folder, "other", 3, f"{options} -tables_sharding_types row_wise")
        check_close_losses(found, wanted, TOLERANCE, optimizer)
        check_close_tensors(other, state, TOLERANCE, optimizer)


@thinned
def test_uneven_batches(binary, folder):
    """Last batches that are divided unevenly, ranks without a sample, and fewer samples than
    ranks."""
    plans = [f"-tables_sharding_types {kind}" for kind in ("row_wise", "table_wise", "data_parallel")]
    for i, (samples, ranks) in enumerate(((23, 2), (10, 3), (9, 4), (3, 4), (1, 4))):
        make(folder, samples)
        wanted, state = train(binary, folder, "one", 1, "-epochs 3", global_batch=8 if ranks != 3 else 9)
        for plan in thin(plans, plans[i % 3:i % 3 + 1]):
            found, other = train(binary, folder, "other", ranks, f"-epochs 3 {plan}", global_batch=8 if ranks != 3 else 9)
            check_close_losses(found, wanted, TOLERANCE, f"{samples} samples, {ranks} ranks {plan}")
            check_close_tensors(other, state, TOLERANCE, f"{samples} samples, {ranks} ranks {plan}")


def test_empty_bags(binary, folder):
    """The whole dataset has no id."""
    make(folder, 30, largest_bag=0)
    wanted, _ = train(binary, folder, "one", 1, "-epochs 2")
    for plan in ("-tables_sharding_types row_wise", "-tables_sharding_types table_wise", "-tables_sharding_types data_parallel", MIXED):
        found, _ = train(binary, folder, "other", 3, f"-epochs 2 {plan}")
        check_close_losses(found, wanted, TOLERANCE, plan)


def test_shuffle(binary, folder):
    """The shuffled order depends only on seed and epoch: it is the same on any number of ranks, and
    differs between epochs."""
    make(folder)
    _, init = train(binary, folder, "init", 1, "-steps 0 -embedding_optimizer adagrad")
    start = f"-init_from {init} -data_shuffle -epochs 3 -embedding_optimizer adagrad"
    wanted, state = train(binary, folder, "one", 1, start)
    for ranks in (2, 3, 4):
        found, other = train(binary, folder, "other", ranks, start)
        check_close_losses(found, wanted, TOLERANCE, f"{ranks} ranks")
        check_close_tensors(other, state, TOLERANCE, f"{ranks} ranks")
    # the model does not learn, so a batch's loss identifies its samples
    still = "-dense_learning_rate 0 -embedding_learning_rate 0"
    plain, _ = train(binary, folder, "plain", 2, f"-init_from {init} -epochs 2 -embedding_optimizer adagrad {still}")
    mixed, _ = train(binary, folder, "mixed", 2, f"{start} {still}")
    again, _ = train(binary, folder, "again", 3, f"{start} {still}")
    per_epoch = len(plain) // 2
    check(same_bits(plain[:per_epoch], plain[per_epoch:]), "epochs in file order differ")
    check_close_losses(again, mixed, TOLERANCE, "the same order again")
    check(not same_bits(mixed[:per_epoch], mixed[per_epoch:2 * per_epoch]), "epochs are shuffled alike")
    check(not same_bits(mixed[:per_epoch], plain[:per_epoch]), "not shuffled")


def test_stored_otherwise(binary, folder):
    """64-bit ids, compression, and chunks of any size give the same bits."""
    make(folder)
    wanted, state = train(binary, folder, "plain", 2, "-epochs 1")
    path = os.path.join(folder, "train.h5")
    with h5py.File(path) as old, h5py.File(path + ".new", "w", libver="latest") as new:
        new.attrs.update(old.attrs)
        new.create_group("sparse").attrs.update(old["sparse"].attrs)
        for name in ("dense", "labels", "sparse/lengths", "sparse/offsets", "sparse/values"):
            new.create_dataset(name, data=old[name][()].astype("i8" if name == "sparse/values" else old[name].dtype),
                               chunks=(7,) + old[name].shape[1:], compression="gzip", shuffle=True, fletcher32=True)
    os.rename(path + ".new", path)
    found, other = train(binary, folder, "stored", 2, "-epochs 1")
    check(same_bits(found, wanted), "other losses")
    check_same_tensors(other, state, "stored otherwise")


def test_dense_columns(binary, folder):
    """-data_dense: a run with columns of /dense, in any order, has the bits of a run whose data has
    only these columns. A NaN in another column has no effect."""
    make(folder)
    with h5py.File(os.path.join(folder, "train.h5")) as h:
        every = h["dense"][()]
    wide = np.concatenate([np.full((len(every), 1), np.nan, np.float32), every], axis=1)

    def train_on(name, dense, chosen=""):
        with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
            if "dense" in h:
                del h["dense"]
            if dense.shape[1]:
                h["dense"] = dense
        return train(binary, folder, name, 2, f"-epochs 2 -data_shuffle -data_eval train.h5 {chosen}")

    for columns in ([], [3, 1]):
        wanted, state = train_on("alone", wide[:, columns])
        chosen = f"-data_dense {','.join(map(str, columns)) or 'none'}"
        found, other = train_on("chosen", wide, chosen)
        check(same_bits(found, wanted), f"{chosen}: other losses")
        check_same_tensors(other, state, chosen)
        text = run(binary, 1, f"-task eval -data_eval train.h5 -init_from {state} {chosen} {TABLES}", folder).text
        check(f" {len(columns)} dense, " in text, text)
        # the checkpoint has the option
        told = run(binary, 1, f"-task eval -data_eval train.h5 -init_from {other} {TABLES}", folder).text
        lines = [[line for line in t.splitlines() if line.startswith("eval ")] for t in (text, told)]
        check(lines[0] and lines[0] == lines[1], told)
    text = run(binary, 1, f"-task eval -data_eval train.h5 -init_from {state} {TABLES}", folder, status=65).text
    check("4 dense features, the model of" in text and "-data_dense chooses them" in text, text)


def test_column_cuts_are_told(binary, folder):
    """If a plan cuts columns of a table whose optimizer needs whole rows, one line names the
    tables, in a run and in a dry run. If this has no effect on the result, there is no line."""
    make(folder)
    told = "acts on whole rows: each shard has its own statistics"
    cut = "-table_word_sharding_types column_wise -table_user_sharding_types table_wise -table_item_sharding_types table_wise -table_tag_sharding_types table_wise"
    all_kinds = [(optimizer, cut, True) for optimizer in ("rowwise_adagrad", "lamb", "partial_rowwise_adam", "lars_sgd")]
    all_kinds += [("adam", cut, False), ("rowwise_adagrad", f"{cut} -reproducible", False), ("sgd", f"{cut} -table_word_optimizer rowwise_adagrad", True)]
    for ranks in (1, 2, 3):
        for optimizer, options, expected in all_kinds if ranks == 2 else all_kinds[:1]:
            words = f"-data_train train.h5 -batch_size {24 // ranks} -steps 1 {MODEL} {TABLES} -embedding_optimizer {optimizer} {options}"
            texts = [run(binary, ranks, words, folder).text] if optimizer in ("rowwise_adagrad", "sgd") else []
            if "-reproducible" not in options:
                texts.append(run(binary, 1, f"-task plan -topology_world_size {ranks} -topology_compute_device cpu {words}", folder).text)
            for text in texts:
                lines = [line for line in text.splitlines() if told in line]
                check(len(lines) == expected, f"{ranks} ranks, {optimizer} {options}: {lines}")
                check(not lines or "columns of 1 table are cut (word)" in lines[0], f"the line is {lines}")


def test_plan_tells_the_step(binary, folder):
    """-task plan predicts the step of a run with the same options: with all its batches, the
    dataset's dense features, and copies of the tables."""
    make(folder)
    rates = ("-topology_product_rate 1e6 -topology_stream_bw 1e6 -topology_intra_host_bw 1e4 -topology_ddr_cap 4GiB -topology_compute_device cpu "
             "-topology_row_read_bw 1e6 -topology_row_update_bw 1e6 -plan_cost_model measured")
    for ranks, more in ((1, ""), (2, "-accumulate_steps 3"), (4, "-data_dense 0,2"), (4, "-plan_replicas 2"), (4, "-plan_replicas 4 -replica_sync gradients")):
        words = f"-data_train train.h5 -batch_size 4 -steps 2 {MODEL} {TABLES} {rates} {more}"
        text = run(binary, 1, f"-task plan -topology_world_size {ranks} {words}", folder).text
        run(binary, ranks, f"{words} -topology_world_size {ranks} -output out.h5 -existing_outputs replace", folder)
        with h5py.File(os.path.join(folder, "out.h5")) as out:
            names = out.attrs["predicted_names"]
            names = (names.decode() if isinstance(names, bytes) else names).split(";")[0].split(",")
            parts = out["stages/predicted_ms"][()]
        slowest = dict(zip(names, parts[np.argmax(parts.sum(axis=1))]))
        dense = [slowest.pop(name) for name in ("dense_forward", "dense_backward", "optimizer", "allreduce")]
        wanted = [parts.sum(axis=1).max(), sum(slowest.values()), *dense]
        line, = (line for line in text.splitlines() if line.startswith("step: "))
        told = [float(word) for word in re.findall(r"(?<= )[.\de+-]*\d(?=[ ,]|$)", line)]
        check(np.allclose(told, wanted, rtol=1e-3, atol=0) and (ranks == 1 or dense[-1] > 0), f"{ranks} ranks {more}: {line}, the run says {wanted}")
        check(("replicas" in more) == (slowest["replica_sync"] > 0), f"{more}: {slowest}")
    check("step: " not in run(binary, 1, f"-task plan -topology_world_size {ranks} {words} -plan_is_inference", folder).text, "the step of a training, for inference")


def write_plan(folder, name, tables, **more):
    """A plan as written by hand."""
    tables = [dict(zip(("name", "sharding_type", "compute_kernel", "ranks"), table[:4]), **table[4]) for table in tables]
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump({"format": "trshard-plan", "version": 1, "tables": tables, **more}, out)


def test_plan_by_hand(binary, folder):
    """A plan needs only table, type, kernel and ranks. The bits are those of the planner's plan. A
    plan that is written again can be read again."""
    make(folder)
    wanted, state = train(binary, folder, "planned", 2, f"{MIXED} -epochs 1")
    write_plan(folder, "hand.json", [("user", "row_wise", "fused", [0, 1], {}), ("item", "table_wise", "fused", [1], {}),
                                     ("tag", "data_parallel", "dense", [0, 1], {}), ("word", "column_wise", "fused", [0, 1], {})])
    for plan, again in (("hand.json", "again.json"), ("again.json", "third.json")):
        found, other = train(binary, folder, "hand", 2, f"-plan_input {plan} -plan_output {again} -epochs 1 -existing_outputs replace")
        # the planner may place item elsewhere, which does not change the bits of tensors
        check_close_losses(found, wanted, 1e-12, plan)
        check_same_tensors(other, state, plan)
    again, third = (open(os.path.join(folder, name), encoding="utf-8").read() for name in ("again.json", "third.json"))
    check(again == third and '"size": [25, 8]' in again and "perf" in again, f"written again:\n{again}")


def test_plan_choices(binary, folder):
    """A table's choices are stored in the plan and have the effect of their options. An option that
    contradicts a choice is refused."""
    make(folder)
    cached = "-table_item_compute_kernels fused_uvm_caching -table_item_sharding_types table_wise"
    choices = {"cache_algorithm": "lfu", "cache_reserved_memory": 1000, "cache_precision": "fp16", "enforce_hbm": True, "stochastic_rounding": False,
               "bounds_check_mode": "ignore", "output_dtype": "bf16"}
    options = " ".join(f"-table_item_{key} {str(value).lower()}" for key, value in choices.items())
    shared = "-epochs 1 -table_item_data_type fp16"
    wanted, state = train(binary, folder, "options", 2, f"{shared} {cached} {options} -plan_output plan.json")
    plain, _ = train(binary, folder, "plain", 2, f"{shared} {cached}")
    check(not same_bits(plain, wanted), "the options change nothing")
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as f:
        tables = {table["name"]: table for table in json.load(f)["tables"]}
    check({key: tables["item"].get(key) for key in choices} == choices, f"in the plan: {tables['item']}")
    check(not set(choices) & set(tables["user"]), f"in the plan: {tables['user']}")
    found, other = train(binary, folder, "found", 2, f"{shared} -plan_input plan.json -plan_output again.json")
    check(same_bits(found, wanted), "the plan's choices are not honoured")
    check_same_tensors(other, state, "the plan's choices")
    check(open(os.path.join(folder, "plan.json"), "rb").read() == open(os.path.join(folder, "again.json"), "rb").read(), "the plan is written otherwise")
    words = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {shared} -plan_input plan.json"
    text = run(binary, 2, f"{words} -tables_cache_algorithm lru", folder, status=64).text
    check('-tables_cache_algorithm "lru"' in text and 'table "item" has lru here and lfu in' in text, text[:500])


def test_plan_bounds(binary, folder):
    """A plan's bounds_check_mode ends a run that would continue with its options."""
    make(folder)
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
        h["sparse/values"][0] = 10**6
    plan = [("user", "row_wise", "fused", [0, 1], {}), ("item", "table_wise", "fused", [1], {}), ("tag", "table_wise", "fused", [0], {}),
            ("word", "table_wise", "fused", [0], {})]
    for mode, status in (("fatal", 65), ("ignore", 0)):
        write_plan(folder, "hand.json", [(*table[:4], {"bounds_check_mode": mode}) for table in plan])
        run(binary, 2, f"-data_train train.h5 -batch_size 12 -epochs 1 {MODEL} {TABLES} -plan_input hand.json -bounds_check_mode warning", folder, status=status)


@thinned
def test_relayed_hosts(binary, folder):
    """Simulated hosts of 2 and 3 ranks: small blocks of several ranks in one message do not change
    a bit and reduce the number of messages, for every kind of sharding, and for sequences."""
    make(folder, weighted=True)
    for ranks, host, plan in thin([(ranks, host, plan) for ranks, host in ((4, 2), (6, 3), (6, 2)) for plan in (MIXED, "-tables_sharding_types row_wise", "-reproducible")],
                                  [(4, 2, MIXED), (6, 3, "-tables_sharding_types row_wise")]):
        options = f"-epochs 2 -table_user_is_weighted -data_eval train.h5 -eval_every 5 -comm_ranks_per_host {host} {plan}"
        what, sent = f"{ranks} ranks, hosts of {host}, {plan}", {}
        for relay in (0, 100, 2048, 1048576):
            found, state = train(binary, folder, f"relay{relay}", ranks, f"{options} -comm_relay_bytes {relay}")
            with h5py.File(os.path.join(folder, f"relay{relay}.h5"), "r") as h:
                sent[relay] = h["exchanges/sent"][()]
            if relay == 0:
                wanted, kept = found, state
            check(same_bits(found, wanted), f"{what}, {relay} bytes: other losses")
            check_same_tensors(state, kept, f"{what}, {relay} bytes")
        # a phase without blocks costs only the relay's messages
        fewer = sent[1048576][:, 0].sum() / sent[0][:, 0].sum()
        check(sent[0][:, 0].min() > 0 and fewer < (1.0 if "reproducible" in plan else 0.7), f"{what}: {fewer} of the messages: {sent}")


def activations(path):
    """Bytes of activations that each rank held at the end."""
    with h5py.File(path, "r") as h:
        return h["memory/held_bytes"][:, h.attrs["held_names"].split(",").index("activations")]


@thinned
def test_vectors_in_place(binary, folder):
    """A model can read pooled rows in their receive buffers, also in their owners' memory, and
    leave gradients there. It gives the bits of a model that copies them to matrices. A gradient
    limit that no gradient reaches forces the matrices. Cases: shared memory, messages, and both;
    whole and cut columns; evaluations; and last batches of another size."""
    make(folder, samples=190, weighted=True)
    rows = "-tables_sharding_types table_row_wise -topology_local_world_size"
    plans = [MIXED, "-tables_sharding_types table_wise", "-tables_sharding_types column_wise -embedding_optimizer adagrad", "-embedding_optimizer adam", f"{rows} 1"]
    ways = {"": "", "messages": "-comm_shared_memory false", "hosts": "-comm_ranks_per_host 2"}
    for ranks, plan in thin([(ranks, plan) for ranks in (1, 2, 3, 4) for plan in plans] + [(4, f"{rows} 2")], [(1, plans[3]), (2, plans[4]), (3, MIXED), (4, plans[1])]):
        plan = "-embedding_optimizer adam" if ranks == 1 else plan
        # one rank has no transport, and two ranks have no second host
        for way, transport in list(ways.items())[:ranks]:
            options = f"-epochs 2 -table_user_is_weighted -data_eval train.h5 -eval_every 5 {plan} {transport}"
            what = f"{ranks} ranks, {plan} {way}"
            wanted, state = train(binary, folder, "matrix", ranks, f"{options} -embedding_max_gradient 1e30")
            found, other = train(binary, folder, "place", ranks, options)
            check(same_bits(found, wanted), f"{what}: other losses")
            check_same_tensors(other, state, what)
            held = [activations(os.path.join(folder, f"{name}.h5")) for name in ("place", "matrix")]
            if "-tables_sharding_types table_wise" in plan:  # there is no matrix
                check((held[0] < held[1]).all(), f"{what}: {held[0]} bytes of activations, {held[1]} with matrices")


@thinned
def test_hierarchical_reduce_scatter(binary, folder):
    """Sums of row_wise by simulated hosts are close to the sums of all ranks, with weights, shared
    bags, codecs, mean and half precision, and copies. Without hosts they have the same bits."""
    make(folder, samples=192, weighted=True)
    rows, few = "-tables_sharding_types row_wise", " ".join(f"-qcomm_reduce_scatter_{way}_precision {kind}" for way, kind in (("forward", "fp16"), ("backward", "bf16")))
    half = "-table_user_data_type fp16 -table_word_data_type bf16 -table_word_stochastic_rounding false"
    ways = [(4, 2, "", TOLERANCE), (6, 3, "-ebc_variable_batch", TOLERANCE), (6, 2, "-embedding_optimizer adam -comm_relay_bytes 65536", TOLERANCE), (6, 2, few, 1e-3),
            (4, 2, f"{half} -embedding_optimizer sgd", 1e-3), (8, 2, "-plan_replicas 2", TOLERANCE), (4, 2, "-table_word_pooling none", TOLERANCE)]
    for ranks, host, way, tolerance in thin(ways, ways[:4]):
        options, what = f"{rows} -steps 8 -table_user_is_weighted -data_eval train.h5 -eval_every 5 -comm_ranks_per_host {host} {way}", f"{ranks} ranks, hosts of {host}, {way}"
        wanted, state = train(binary, folder, "flat", ranks, f"{options} -ebc_row_wise_reduce_scatter flat")
        found, other = train(binary, folder, "hosts", ranks, f"{options} -ebc_row_wise_reduce_scatter hierarchical")
        check_close_losses(found, wanted, tolerance, what)
        check_close_tensors(other, state, tolerance, what)
    # uneven hosts, too few hosts, and one host
    for ranks, host, kind in ((3, 2, "hierarchical"), (4, 2, "auto"), (4, 4, "hierarchical")):
        wanted, state = train(binary, folder, "flat", ranks, f"{rows} -steps 8 -ebc_row_wise_reduce_scatter flat")
        found, other = train(binary, folder, "hosts", ranks, f"{rows} -steps 8 -comm_ranks_per_host {host} -ebc_row_wise_reduce_scatter {kind}")
        # MPI adds in double, in its own order
        check_close_losses(found, wanted, 1e-12, f"{ranks} ranks, hosts of {host}, {kind}")
        check_same_tensors(other, state, f"{ranks} ranks, hosts of {host}, {kind}")


@thinned
def test_hierarchical_messages(binary, folder):
    """With sums of row_wise by hosts, and for their gradients, a rank sends one message to each
    other host, with the sums for itself or its peers. Otherwise it sends one message to each rank
    there."""
    make(folder, samples=192)
    columns = 8 * len(FEATURES)
    for ranks, host, kind in thin([(4, 2, "hierarchical"), (6, 3, "hierarchical"), (6, 2, "hierarchical"), (8, 2, "auto")], [(6, 3, "hierarchical"), (8, 2, "auto")]):
        sent = {}
        for levels in ("flat", kind):
            train(binary, folder, levels, ranks, f"-tables_sharding_types row_wise -steps 8 -comm_ranks_per_host {host} -comm_relay_bytes 0 -ebc_row_wise_reduce_scatter {levels}")
            with h5py.File(os.path.join(folder, f"{levels}.h5"), "r") as h:
                sent[levels] = h["exchanges/sent"][()]
        # forward and backward: blocks for ranks elsewhere, minus one for each of their hosts
        fewer = 2 * (ranks - host - (ranks // host - 1))
        saved = sent["flat"] - sent[kind]
        check(np.array_equal(saved, np.tile([fewer, fewer * 24 // ranks * columns * 4.0], (ranks, 1))), f"{ranks} ranks, hosts of {host}: {sent}, saved {saved}")
