# SPDX-License-Identifier: BSD-3-Clause
"""Tables that grow (id_map dynamic): rows that new ids get and old ids lose, the same on any number of ranks."""
import os

import h5py
import numpy as np

from dynamic_reference import Bucket
from law_zch import BATCH, PLANS, SHAPE, batch_ids, make, train
from trsrun import check, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset

INT64 = np.iinfo(np.int64)


def options(cap, more=""):
    return f"-tables t -table_t_features seen,bought -table_t_id_map dynamic -table_t_dynamic_cap {cap} {SHAPE} {more}"


def rows_of_ids(path):
    """{id: its row in a checkpoint}, for tables with any number of buckets."""
    found = tensors(path)["embedding/t/dynamic/ids"]
    there = found[:, 1] > 0
    check(len(set(found[there, 0])) == there.sum(), f"{path}: an id is there twice")
    return dict(zip(found[there, 0].tolist(), np.flatnonzero(there).tolist()))


@thinned
def test_dynamic_reference(binary, folder):
    """Ids, rows, ages and counts are those of a bucket made of Python's dictionaries, for each policy, age and admission."""
    ids = make(folder)
    for policy in ("lru", "lfu", "ttl"):
        for cap, ttl, admit in thin(((20, 0, 1), (60, 4, 1), (400, 3, 2), (90, 0, 3), (1000, 0, 1), (40, 5, 2)), ((20, 4, 1), (60, 0, 2))):
            if policy == "ttl" and not ttl:
                continue
            what = f"{policy}, cap {cap}, ttl {ttl}, after {admit}"
            path, _ = train(binary, folder, "one", 1, options(cap, f"-steps 20 -table_t_dynamic_policy {policy} -table_t_dynamic_ttl {ttl} -table_t_dynamic_admit_after {admit} -table_t_dynamic_candidates 5000"))
            bucket = Bucket(cap, policy, ttl, admit)
            for step in range(20):
                bucket.train(batch_ids(ids, step).tolist())
            found = tensors(path)
            check(rows_of_ids(path) == bucket.row, f"{what}: other rows")
            check(len(found["embedding/t/weight"]) == len(found["embedding/t/dynamic/ids"]) == bucket.used, f"{what}: {len(found['embedding/t/weight'])} rows in use, not {bucket.used}")
            for name, column, of in (("last batches", 1, bucket.last), ("counts", 2, bucket.count)):
                check({i: found["embedding/t/dynamic/ids"][row, column] for i, row in bucket.row.items()} == of, f"{what}: other {name}")
            check(len(found["embedding/t/dynamic/candidates"]) - 1 == (len(bucket.candidates) if admit > 1 else 0), f"{what}: other candidates")


@thinned
def test_dynamic_plans(binary, folder):
    """-reproducible: the same bits of weights, states and directories for every plan and number of ranks, below the cap and at it."""
    make(folder)
    for optimizer, buckets, more in thin((("rowwise_adagrad", 1, ""), ("adam", 4, "-table_t_dynamic_ttl 5"), ("sgd", 4, "-table_t_dynamic_admit_after 2 -table_t_dynamic_candidates 8"),
                                          ("lamb", 8, "-table_t_dynamic_policy lfu -table_t_unknown_row initial"), ("partial_rowwise_adam", 4, "-table_t_dynamic_admit_probability 0.5")),
                                         (("rowwise_adagrad", 1, "-table_t_dynamic_policy lfu"), ("adam", 4, "-table_t_dynamic_admit_after 2 -table_t_dynamic_candidates 8 -table_t_unknown_row zero"))):
        words = f"-reproducible -steps 15 -table_t_dynamic_buckets {buckets} -embedding_optimizer {optimizer} {more}"
        for number, (ranks, plan) in enumerate(PLANS):
            path, _ = train(binary, folder, f"plan{number}", ranks, options(160, f"{words} -table_t_sharding_types {plan}"))
            if number:
                check_same_tensors(path, os.path.join(folder, "plan0.final.h5"), f"{optimizer}, {buckets} buckets, {plan} on {ranks} ranks")


def test_dynamic_caches(binary, folder):
    """A row that changes hands leaves the cache in the right order: fused_uvm_caching has the bits of fused."""
    make(folder)
    words = "-reproducible -steps 15 -table_t_dynamic_ttl 4 -table_t_unknown_row zero -table_t_sharding_types table_wise"
    wanted, _ = train(binary, folder, "fused", 1, options(64, words))
    for algorithm in ("lru", "lfu"):
        cached = f"{words} -table_t_compute_kernels fused_uvm_caching -table_t_cache_algorithm {algorithm} -table_t_cache_load_factor 0.7"
        found, text = train(binary, folder, "cached", 2, options(64, cached))
        check("fused_uvm_caching" in text, text[:1500])
        check_same_tensors(found, wanted, algorithm)


@thinned
def test_dynamic_resume(binary, folder):
    """A run that was taken up by another number of ranks and plan ends as one that was not interrupted."""
    make(folder)
    for more in thin(("-table_t_dynamic_policy lfu", "-table_t_dynamic_ttl 4", "-table_t_dynamic_admit_after 3 -table_t_dynamic_candidates 20", "-table_t_data_type fp16 -table_t_stochastic_rounding"),
                     ("-table_t_dynamic_ttl 4 -table_t_dynamic_admit_after 2 -table_t_dynamic_candidates 20", "-table_t_data_type fp16 -table_t_stochastic_rounding")):
        words = f"-reproducible {more} -table_t_dynamic_buckets 3 -embedding_optimizer adam"
        wanted, _ = train(binary, folder, "whole", 1, options(120, f"{words} -steps 17"))
        kept = f"{words} -checkpoint_dir kept -checkpoint_every 8 -existing_outputs replace"
        for name in os.listdir(os.path.join(folder, "kept")) if os.path.isdir(os.path.join(folder, "kept")) else ():
            os.remove(os.path.join(folder, "kept", name))
        train(binary, folder, "half", 2, options(120, f"{kept} -steps 8 -table_t_sharding_types row_wise"))
        found, _ = train(binary, folder, "rest", 3, options(120, f"{kept} -steps 17 -resume -table_t_sharding_types row_wise"))
        check_same_tensors(found, wanted, more)
        check(same_bits(losses(os.path.join(folder, "rest.h5")), losses(os.path.join(folder, "whole.h5"))[8:]), f"{more}: other losses after the resume")


def hostile(rng):
    """Ids that hashes and signs may confuse."""
    return np.unique(np.concatenate([np.arange(64) << 40, np.arange(64) << 52, (np.arange(64) << 57) + 5, [0, -1, 1, INT64.min, INT64.max, INT64.min + 1, INT64.max - 1],
                                     rng.integers(INT64.min, INT64.max, 64), np.arange(-40, 40)]).astype(np.int64))


def test_dynamic_grows(binary, folder):
    """Below the cap each id has a row of its own, drawn by its id: the same on any number of ranks, in any plan and order of the data."""
    rng = np.random.default_rng(8)
    pool = hostile(rng)
    drawn = {}
    for number, (ranks, buckets, plan) in enumerate(((1, 1, "table_wise"), (2, 2, "row_wise"), (3, 6, "row_wise"), (2, 1, "column_wise"), (4, 8, "grid_shard -topology_local_world_size 2"))):
        path = write_dataset(os.path.join(folder, "raw.h5"), 240, features={"seen": 10, "bought": 10})
        with h5py.File(path, "r+") as h:
            n = len(h["sparse/values"])
            values = np.concatenate([pool, rng.choice(pool[:3], n - len(pool))]) if number % 2 else np.resize(rng.permutation(pool), n)
            h["sparse"].attrs["num_embeddings"] = np.zeros(2, np.int64)
            del h["sparse/values"]
            h["sparse/values"] = rng.permutation(values)
        path, _ = train(binary, folder, "grown", ranks, options(100_800, f"-steps 10 -embedding_optimizer sgd -embedding_learning_rate 0 -table_t_dynamic_buckets {buckets} -table_t_sharding_types {plan}"))
        rows, weight = rows_of_ids(path), tensors(path)["embedding/t/weight"]
        check(set(rows) == set(pool.tolist()), f"{len(rows)} of {len(pool)} ids have rows")
        check(len(weight) == len(pool) + buckets and os.path.getsize(path) < 200_000, f"{len(weight)} rows in a file of {os.path.getsize(path)} bytes")
        now = {i: weight[row].tobytes() for i, row in rows.items()}
        check(len(set(now.values())) == len(pool) and (not drawn or now == drawn), f"{ranks} ranks, {buckets} buckets: other initial rows")
        drawn = now
