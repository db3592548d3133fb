# SPDX-License-Identifier: BSD-3-Clause
"""Copies of the tables (-plan_replicas, src/RULES.md, section 21)."""
import glob
import json
import os
import re
import signal

import h5py
import numpy as np

from law_plans import MIXED, MODEL, TABLES, TOLERANCE, make, train
from trsrun import Job, check, check_close_losses, check_close_tensors, check_same_tensors, losses, run, same_bits, tensors, thin, thinned

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "replicas")
REFERENCE = """-dense_arch 8,8 -over_arch 16,1 -interaction cat -dense_optimizer sgd -dense_learning_rate 0.3 -embedding_optimizer adagrad
-embedding_learning_rate 0.1 -embedding_eps 0.01 -tables user,item -tables_embedding_dim 8 -tables_min_partition 4 -steps 10""".replace("\n", " ")
TYPES = ("table_wise", "row_wise", "column_wise", "data_parallel")


@thinned
def test_replicas_torch(binary, folder):
    """Losses, weights and states agree with R torch collections that are averaged every k steps, on
    any number of ranks and with any sharding."""
    with h5py.File(os.path.join(GOLDEN, "reference.h5"), "r") as h:
        cases = [(name, int(group.attrs["copies"]), int(group.attrs["every"]), {n[len(name) + 1:]: x for n, x in tensors(h.filename).items() if n.startswith(name)})
                 for name, group in h.items()]
    check(len(cases) == 4, "other cases were recorded")
    for i, (name, copies, every, wanted) in enumerate(cases):
        for ranks in thin([r for r in (2, 3, 4, 6, 12) if r % copies == 0], (2 * copies if copies < 4 else copies,)):
            for kind in thin(TYPES, TYPES[i:i + 1]):
                run(binary, ranks, f"-data_train {GOLDEN}/train.h5 -init_from {GOLDEN}/init.h5 {REFERENCE} -batch_size {12 // ranks} -plan_replicas {copies} "
                    f"-replica_sync_every {every} -tables_sharding_types {kind} -output run.h5 -checkpoint_final final.h5", folder)
                what, found = f"{name} on {ranks} ranks, {kind}", tensors(os.path.join(folder, "final.h5"))
                off = np.abs(losses(os.path.join(folder, "run.h5")) / wanted["loss"] - 1).max()
                check(off <= 1e-6, f"{what}: losses are off by {off:.1e}")
                for tensor in wanted:
                    if tensor != "loss":
                        off = np.abs(found[tensor] - wanted[tensor]).max()
                        check(off <= 1e-6 * max(1, np.abs(wanted[tensor]).max()), f"{what}: /{tensor} is off by {off:.1e}")


@thinned
def test_replicas_reproducible(binary, folder):
    """With -reproducible, a given number of copies has the same bits for every plan and number of
    ranks. The number of copies affects the result. A host may have a part of a copy."""
    make(folder, 120)  # also in the last batch, a copy has the same samples on any number of ranks
    options = "-reproducible -steps 5 -replica_sync_every 2 -embedding_optimizer adam -embedding_learning_rate 0.1"
    plans = [f"-tables_sharding_types {kind}" for kind in TYPES] + ["", MIXED]
    runs = [(ranks, copies, plan) for copies in (2, 3) for ranks in (2, 3, 4, 6) if ranks % copies == 0 for plan in plans]
    runs += [(8, 2, f"-tables_sharding_types {kind} -topology_local_world_size 2") for kind in ("table_row_wise", "table_column_wise", "grid_shard")]
    one, _ = train(binary, folder, "one", 1, options.replace("-replica_sync_every 2", ""))
    wanted = {}
    for ranks, copies, plan in thin(runs, [(2, 2, MIXED), (4, 2, plans[1]), (6, 2, MIXED)]):
        found, state = train(binary, folder, f"{ranks}.{copies}", ranks, f"{options} -plan_replicas {copies} {plan}")
        start, first = wanted.setdefault(copies, (found, state))
        check(same_bits(found, start), f"{copies} copies on {ranks} ranks {plan}: other losses")
        if state != first:
            check_same_tensors(state, first, f"{copies} copies on {ranks} ranks {plan}")
        check(found[0] == one[0] and found[-1] != one[-1], "copies do not learn apart, or do not start alike")


@thinned
def test_replicas_sgd(binary, folder):
    """sgd is linear in the gradients, so copies that are averaged in every step equal one copy,
    also with sample weights, half precision and uneven last batches."""
    make(folder, 83, sample_weights=np.linspace(0, 2, 83))
    options = f"-epochs 2 -embedding_optimizer sgd -embedding_learning_rate 0.2 -data_eval train.h5 -eval_every 3"
    wanted, state = train(binary, folder, "one", 1, options)
    for ranks, copies, more in thin([(2, 2, ""), (3, 3, ""), (4, 2, ""), (4, 4, ""), (6, 3, ""), (6, 2, "-accumulate_steps 2 -batch_size 2")], [(4, 2, "")]):
        found, other = train(binary, folder, "other", ranks, f"{options} -plan_replicas {copies} {more}")
        check_close_losses(found, wanted, TOLERANCE, f"{copies} copies on {ranks} ranks")
        check_close_tensors(other, state, TOLERANCE, f"{copies} copies on {ranks} ranks")


@thinned
def test_replicas_gradients(binary, folder):
    """With -replica_sync gradients, copies equal one copy: bit for bit with -reproducible,
    otherwise up to rounding. Cases: all shardings, sequences, weighted ids and uneven last
    batches."""
    make(folder, 83, weighted=True)
    more = "-steps 9 -embedding_learning_rate 0.1 -table_user_is_weighted"
    sequences = "-table_item_pooling none -table_tag_pooling none -tables_sequence_pooling max -table_word_pooling none -table_word_sequence_pooling mean"
    exact = "-replica_sync gradients"
    kinds = [f"-tables_sharding_types {kind}" for kind in TYPES] + ["", MIXED]
    # Sequence tables do not support all of these types.
    kinds += [f"-table_user_sharding_types {kind} -topology_local_world_size 2" for kind in ("table_row_wise", "table_column_wise", "grid_shard")]
    runs = [(ranks, copies, plan) for ranks, copies in ((4, 2), (4, 4), (6, 3)) for plan in kinds]
    for optimizer, few in (("rowwise_adagrad", [(4, 2, MIXED), (4, 2, kinds[-1])]), (f"adam {sequences}", [(4, 4, MIXED)])):
        options = f"{more} -embedding_optimizer {optimizer} -reproducible"
        wanted, state = train(binary, folder, "one", 1, options)
        for ranks, copies, plan in thin(runs, few):
            found, other = train(binary, folder, "other", ranks, f"{options} {exact} -plan_replicas {copies} {plan}")
            check(same_bits(found, wanted), f"{copies} copies on {ranks} ranks {plan} {options}: other losses")
            check_same_tensors(other, state, f"{copies} copies on {ranks} ranks {plan} {options}")
    # element by element, so that columns may be cut
    options = f"{more} -embedding_optimizer adagrad {sequences}"
    wanted, state = train(binary, folder, "one", 1, options)
    for ranks, copies, plan in thin(runs, [(4, 2, MIXED)]):
        found, other = train(binary, folder, "other", ranks, f"{options} {exact} -plan_replicas {copies} {plan}")
        check_close_losses(found, wanted, TOLERANCE, f"{copies} copies on {ranks} ranks {plan}")
        check_close_tensors(other, state, TOLERANCE, f"{copies} copies on {ranks} ranks {plan}")


# Tables with caches, some of whose rows are moved in every step. data_parallel has no caches.
CACHES = "-tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.2 -table_tag_cache_algorithm lfu -pipeline prefetch_sparse_dist"


@thinned
def test_replicas_caches(binary, folder):
    """Copies with caches: with equal updates they have the bits of one copy without caches, and
    with means the bits of copies without caches."""
    make(folder, 83)
    options = "-steps 9 -embedding_learning_rate 0.1 -reproducible"
    kinds = [f"-tables_sharding_types {kind}" for kind in ("table_wise", "row_wise", "column_wise")]
    runs = [(ranks, copies, plan) for ranks, copies in ((4, 2), (4, 4), (6, 3)) for plan in kinds]
    wanted, state = train(binary, folder, "one", 1, options)
    for ranks, copies, plan in thin(runs, [(4, 2, kinds[1]), (4, 4, kinds[0])]):
        what = f"{copies} copies on {ranks} ranks {plan}"
        found, other = train(binary, folder, "other", ranks, f"{options} -replica_sync gradients -plan_replicas {copies} {plan} {CACHES}")
        check(same_bits(found, wanted), f"{what}: other losses")
        check_same_tensors(other, state, what)
    every = "-replica_sync_every 2 -plan_replicas 2 -tables_data_type fp16"
    for ranks, plan in thin([(2, kinds[0]), (4, kinds[0]), (4, kinds[1])], [(4, kinds[1])]):
        wanted, state = train(binary, folder, "without", ranks, f"{options} {every} {plan}")
        found, other = train(binary, folder, "with", ranks, f"{options} {every} {plan} {CACHES}")
        check(same_bits(found, wanted), f"means on {ranks} ranks {plan}: other losses")
        check_same_tensors(other, state, f"means on {ranks} ranks {plan}")


@thinned
def test_replicas_positions(binary, folder):
    """Position weights are parameters of a single copy: with equal updates, with sgd and a mean in
    every step, and with caches."""
    make(folder, 83)
    position = "-table_user_position_weighted -table_user_max_feature_lengths 3 -table_word_position_weighted -table_word_max_feature_lengths 4"
    for optimizer, sync in (("adagrad", "-replica_sync gradients"), ("sgd", "-replica_sync average")):
        options = f"-epochs 2 {position} -embedding_optimizer {optimizer} -embedding_learning_rate 0.2"
        wanted, state = train(binary, folder, "one", 1, options)
        runs = [(ranks, copies, f"-tables_sharding_types {kind}") for ranks, copies in ((4, 2), (4, 4), (6, 3)) for kind in TYPES] + [(4, 2, MIXED)]
        runs += [(4, 2, f"-tables_sharding_types row_wise {CACHES}")]
        for ranks, copies, plan in thin(runs, [(4, 2, MIXED), (4, 2, runs[3][2]), (4, 4, runs[0][2]), runs[-1]]):
            what = f"{sync}: {copies} copies on {ranks} ranks {plan}"
            found, other = train(binary, folder, "other", ranks, f"{options} {sync} -plan_replicas {copies} {plan}")
            check_close_losses(found, wanted, TOLERANCE, what)
            check_close_tensors(other, state, TOLERANCE, what)


def test_replicas_chosen(binary, folder):
    """-plan_replicas 0: behind a slow network with rare means, each rank has a copy. Equal updates
    do not change a bit."""
    make(folder, 83)
    wanted, state = train(binary, folder, "one", 1, "-steps 6 -reproducible")
    hosts = "-topology_local_world_size 2 -topology_inter_host_bw 1000"
    for sync in ("-replica_sync gradients", "-replica_sync_every 1000000"):
        options = f"-steps 6 -reproducible {hosts} {sync}"
        found, other = train(binary, folder, "chosen", 4, f"{options} -plan_replicas 0")
        with h5py.File(os.path.join(folder, "chosen.h5"), "r") as h:
            size = json.loads(h["starts/plan"][0])["world_size"]
        check(size == (2 if "gradients" in sync else 1), f"{sync}: copies of {size} ranks")
        if sync == "-replica_sync gradients":
            check(same_bits(found, wanted), "gradients: other losses")
            check_same_tensors(other, state, "gradients")
        else:
            same, _ = train(binary, folder, "given", 4, f"{options} -plan_replicas 4")
            check(same_bits(found, same) and not same_bits(found, wanted), "means: not the losses of a copy for each rank")


def steps_of(folder, name):
    return sorted(int(re.search(r"step-(\d+)\.h5$", path).group(1)) for path in glob.glob(os.path.join(folder, name, "step-*.h5")))


def test_replicas_resume(binary, folder):
    """A checkpoint holds one copy and is written after a mean. -checkpoint_every does not change a
    bit. A resumed training equals the uninterrupted one, also on other ranks. Without copies it
    continues from the checkpoint."""
    make(folder, 100)
    options = "-reproducible -steps 9 -replica_sync_every 4 -plan_replicas 2 -embedding_learning_rate 0.3"
    wanted, state = train(binary, folder, "whole", 2, options)
    for every, kept in ((1, [4, 8, 9]), (6, [8, 9]), (9, [9])):
        name = f"every{every}"
        found, other = train(binary, folder, name, 2, f"{options} -checkpoint_every {every} -checkpoint_keep 9 -checkpoint_dir {name}")
        check(same_bits(found, wanted), f"-checkpoint_every {every}: other losses")
        check_same_tensors(other, state, f"-checkpoint_every {every}")
        check(steps_of(folder, name) == kept, f"-checkpoint_every {every}: checkpoints of steps {steps_of(folder, name)}")
        if len(kept) < 2:
            continue
        for step in kept[1:]:  # the run was killed after the first checkpoint
            os.remove(os.path.join(folder, name, f"step-{step:09d}.h5"))
        found, other = train(binary, folder, "rest", 4, f"{options} -checkpoint_every {every} -checkpoint_dir {name} -resume -tables_sharding_types row_wise")
        check(same_bits(found, wanted[kept[0]:]), f"-checkpoint_every {every}, resumed after step {kept[0]}: other losses")
        check_same_tensors(other, state, f"-checkpoint_every {every}, resumed after step {kept[0]}")
    train(binary, folder, "more", 1, f"{options.replace('-replica_sync_every 4 -plan_replicas 2', '')} -steps 11 -checkpoint_dir every1 -resume")
    run(binary, 2, f"-task eval -data_eval train.h5 -init_from {state} -batch_size 4 -plan_replicas 2", folder)


def test_replicas_stop(binary, folder):
    """A requested stop comes after the next mean, so that the resumed training equals the
    uninterrupted one. If the next mean is far away, the stop does not wait, and a message says
    so."""
    make(folder, 100)
    options = "-reproducible -plan_replicas 2 -embedding_learning_rate 0.3 -replica_sync_every"
    for every, says in ((7, "stopped on request after step"), (1000000000, "does not wait for the next mean")):
        job = Job(binary, 2, f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {options} {every} -steps 1000000000 -report_interval 0.01 -checkpoint_dir kept{every}", folder)
        job.read_to("step ")
        os.kill(job.pid(1), signal.SIGTERM)
        result = job.wait(20)
        check(result.all_left_with(75, 2, patient=False) and re.search(says, result.text), f"{every}: {result.text[-1000:]}")
    done = steps_of(folder, "kept7")[-1]
    check(done % 7 == 0, f"stopped after step {done}")
    _, state = train(binary, folder, "whole", 2, f"{options} 7 -steps {done + 5}")
    _, other = train(binary, folder, "rest", 2, f"{options} 7 -steps {done + 5} -checkpoint_dir kept7 -resume")
    check_same_tensors(other, state, "stopped and resumed")
