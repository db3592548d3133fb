# SPDX-License-Identifier: BSD-3-Clause
"""Tables in host memory, cached or not, have the bits of tables on the device, for any sharding,
pipeline and optimizer, and through checkpoints."""
import os

import h5py

from trsrun import check, check_same_tensors, losses, run, same_bits, thin, thinned, write_dataset

FEATURES = {"user": 300, "item": 200, "shop": 200, "tag": 120, "word": 90}
# item and shop share a table, tag uses a mean, word is weighted, and user is in half precision
MODEL = ("-tables user,item,tag,word -table_item_features item,shop -table_tag_pooling mean -table_word_is_weighted -table_user_data_type bf16 "
         "-tables_embedding_dim 8 -tables_min_partition 4 -dense_arch 16,8 -over_arch 16,1 -seed 3 -embedding_learning_rate 0.1")
PLAIN = "-tables_compute_kernels fused"
# Few lines for the rows of a batch, so that rows are replaced, and some find no line.
CACHED = "-tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.05"
CACHES = {"lru": CACHED, "lfu": f"{CACHED} -tables_cache_algorithm lfu",
          "both": f"{CACHED} -table_item_cache_algorithm lfu -table_tag_compute_kernels fused -table_word_compute_kernels fused_uvm"}
MIXED = ("-table_user_sharding_types row_wise -table_item_sharding_types table_wise -table_tag_sharding_types row_wise "
         "-table_word_sharding_types column_wise")


def train(binary, folder, name, ranks, options, model=MODEL, global_batch=48, **more):
    words = (f"-data_train train.h5 -data_eval train.h5 -eval_every 4 -batch_size {global_batch // ranks} -output {name}.h5 "
             f"-checkpoint_final {name}.final.h5 {model} {options}")
    result = run(binary, ranks, words, folder, **more)
    return losses(os.path.join(folder, f"{name}.h5")), os.path.join(folder, f"{name}.final.h5"), result.text


def counters(folder, name):
    with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
        return {key: h[f"cache/{key}"][()] for key in h["cache"]} if "cache" in h else {}


def check_worked(found, what):
    """Lines were reused, some rows were found, some found no line, and the counts are
    consistent."""
    for i in range(len(found["rank"])):
        c = {key: int(value[i]) for key, value in found.items()}
        check(c["unique_misses"] > c["capacity_rows"] and 0 < c["unique_misses"] < c["unique_ids"] <= c["requested_ids"], f"{what}: {c}")
        check(c["capacity_rows"] % 32 == 0 and c["conflict_unique_misses"] <= c["conflict_misses"], f"{what}: {c}")
    check(found["conflict_misses"].sum() > 0, f"{what}: no conflict misses")


def compare(binary, folder, ranks, options, caches, pipelines, **more):
    wanted, state, _ = train(binary, folder, "plain", ranks, f"{PLAIN} {options} -pipeline base", **more)
    check(not counters(folder, "plain"), "a cache without cached tables")
    for cache in caches:
        for pipeline in pipelines:
            what = f"{cache} {pipeline} on {ranks} ranks, {options}"
            found, other, text = train(binary, folder, "cached", ranks, f"{CACHES[cache]} {options} -pipeline {pipeline}", **more)
            check(same_bits(found, wanted), f"{what}: losses {found} for {wanted}")
            check_same_tensors(other, state, what)
            with h5py.File(os.path.join(folder, "plain.h5")) as a, h5py.File(os.path.join(folder, "cached.h5")) as b:
                check(same_bits(a["eval/loss"][()], b["eval/loss"][()]), f"{what}: other evaluations")
            check_worked(counters(folder, "cached"), what)
            check("hit rate" in text and "caches take" in text, f"{what}: no word on caches:\n{text}")


def make(folder, samples=480, **more):
    write_dataset(os.path.join(folder, "train.h5"), samples, features=FEATURES, weighted=True, largest_bag=4, **more)


@thinned
def test_caches_pipelines(binary, folder):
    """One rank and two: LRU, LFU, and both beside other kernels, under each pipeline, with
    evaluations between steps."""
    make(folder)
    compare(binary, folder, 1, "", thin(("lru", "lfu"), ("lfu",)), thin(("base", "prefetch_sparse_dist"), ("base",)))
    compare(binary, folder, 2, f"{MIXED} -embedding_optimizer adam", ("lru", "both"), thin(("sparse_dist", "prefetch_sparse_dist"), ("prefetch_sparse_dist",)))


def test_caches_sharded(binary, folder):
    """Four ranks on two hosts, with rows cut over a host's ranks, and three ranks."""
    make(folder)
    hosts = "-topology_local_world_size 2 -table_user_sharding_types table_row_wise -table_item_sharding_types grid_shard"
    compare(binary, folder, 4, f"{hosts} -embedding_optimizer adagrad", ("lru",), ("prefetch_sparse_dist",))
    compare(binary, folder, 3, f"{MIXED} -tables_stochastic_rounding", ("lru",), ("prefetch_sparse_dist",))


@thinned
def test_caches_features(binary, folder):
    """Sequences with and without dedup, position weights, variable batches, and -reproducible with
    cut columns."""
    make(folder)
    ways = [f"{MIXED} -table_user_pooling none -table_user_sequence_pooling max -ec_index_dedup -table_item_position_weighted "
            "-table_item_max_feature_lengths 4,4", f"{MIXED} -ebc_variable_batch", f"{MIXED} -reproducible"]
    for way in thin(ways, ways[::2]):
        compare(binary, folder, 2, f"{way} -steps 6", ("lru",), ("prefetch_sparse_dist",))


def test_caches_resumed(binary, folder):
    """A training starts with caches and continues without, and the other way round. Evaluations use
    caches."""
    make(folder)
    shared = f"{MIXED} -embedding_optimizer adam -pipeline prefetch_sparse_dist"
    wanted, state, _ = train(binary, folder, "whole", 2, f"{PLAIN} {shared}")
    for first, then in ((CACHES["lru"], PLAIN), (PLAIN, CACHES["both"])):
        ckpt = "ckpt" + str(len(first))
        train(binary, folder, "half", 2, f"{first} {shared} -steps 6 -checkpoint_dir {ckpt} -checkpoint_every 3")
        found, other, _ = train(binary, folder, "rest", 2, f"{then} {shared} -steps 10 -checkpoint_dir {ckpt} -resume")
        check(same_bits(found, wanted[6:]), f"{first}, then {then}: losses {found} for {wanted[6:]}")
        check_same_tensors(other, state, f"{first}, then {then}")
    for kind, name in ((PLAIN, "plain"), (CACHES["lru"], "cached")):
        run(binary, 2, f"-task eval -data_eval train.h5 -batch_size 24 -init_from {state} -output {name}.eval.h5 {MODEL} {MIXED} {kind}", folder)
    with h5py.File(os.path.join(folder, "plain.eval.h5")) as a, h5py.File(os.path.join(folder, "cached.eval.h5")) as b:
        check(same_bits(a["predictions"][()], b["predictions"][()]), "other predictions")
