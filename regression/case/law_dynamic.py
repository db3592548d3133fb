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
    """A run that is resumed with another number of ranks and another plan ends like an uninterrupted one."""
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
    """Below the cap each id has its own row. The row's initial values depend only on the id, and not on the number of ranks, the plan or the
    order of the data."""
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


def by_id(path):
    """{id: (weights, first state)} of a checkpoint with adam."""
    found = tensors(path)
    return {i: (found["embedding/t/weight"][row].tobytes(), found["embedding/t/exp_avg"][row].tobytes()) for i, row in rows_of_ids(path).items()}


def test_dynamic_resized(binary, folder):
    """-init_from and -resume accept another cap or number of buckets. Rows stay with their ids. If there is no room for all, the policy decides
    which ids lose their rows."""
    make(folder)
    words = "-reproducible -embedding_optimizer adam -checkpoint_dir kept -checkpoint_every 20"
    path, _ = train(binary, folder, "small", 2, options(120, f"{words} -steps 20 -table_t_dynamic_buckets 2 -table_t_sharding_types row_wise"))
    before, ids = by_id(path), tensors(path)["embedding/t/dynamic/ids"]
    last = {int(i): int(at) for i, at, _ in ids if at > 0}
    for cap, buckets, ranks, plan in ((240, 2, 2, "row_wise"), (120, 3, 3, "row_wise"), (60, 2, 1, "table_wise"), (9, 1, 2, "column_wise"), (4000, 8, 2, "row_wise")):
        more = f"-reproducible -embedding_optimizer adam -steps 1 -embedding_learning_rate 0 -table_t_dynamic_buckets {buckets} -table_t_sharding_types {plan}"
        # a step whose samples have no ids of this table changes nothing but the time
        with h5py.File(os.path.join(folder, "raw.h5")) as old, h5py.File(os.path.join(folder, "none.h5"), "w") as new:
            for name in old:
                old.copy(name, new)
            new.attrs.update(old.attrs)
            new["sparse/lengths"][...] = 0
            new["sparse/offsets"][...] = 0
            del new["sparse/values"]
            new["sparse/values"] = np.zeros(0, np.int64)
        found, text = train(binary, folder, "other", ranks, options(cap, more) + " -init_from small.final.h5 -data_train none.h5")
        after = by_id(found)
        check(all(after[i] == before[i] for i in after), f"cap {cap}, {buckets} buckets: rows have changed")
        room = cap - buckets
        if cap >= 120 and buckets <= 2:
            check(set(after) == set(before), f"cap {cap}: {len(before) - len(after)} ids are lost")
        check(len(after) <= room, f"cap {cap}: {len(after)} ids")
        if buckets == 1:
            check(len(after) == room and min(last[i] for i in after) >= max(last[i] for i in before if i not in after), "ids that were used later have gone")
        check(set(tensors(found)) == set(tensors(path)), f"{set(tensors(found)) ^ set(tensors(path))}")
    train(binary, folder, "more", 3, options(600, f"{words} -steps 25 -resume -table_t_dynamic_buckets 3 -table_t_sharding_types row_wise"))


def test_dynamic_unknown(binary, folder):
    """Ids without a row get the row that learns, the initial values or zeros."""
    make(folder)
    for map_words, where in (("dynamic -table_t_dynamic_cap 12 -table_t_dynamic_policy ttl -table_t_dynamic_ttl 100", 0), ("zch -table_t_num_embeddings 12 -table_t_zch_interval 3", 11)):
        found = {}
        for unknown in ("shared", "initial", "zero"):
            for steps in (1, 9):
                path, _ = train(binary, folder, "some", 2, f"-tables t -table_t_features seen,bought {SHAPE} -table_t_id_map {map_words} -steps {steps} -table_t_unknown_row {unknown} "
                                "-embedding_optimizer adam -embedding_learning_rate 0.1")
                found[unknown, steps] = tensors(path)["embedding/t/weight"][where], tensors(path)["embedding/t/exp_avg"][where]
        check(not same_bits(found["shared", 1][0], found["shared", 9][0]) and np.abs(found["shared", 9][1]).max() > 0, f"{map_words}: the shared row does not learn")
        check(same_bits(found["initial", 1][0], found["initial", 9][0]) and np.abs(found["initial", 9][0]).max() > 0, f"{map_words}: the initial row changes")
        check(all(not np.any(np.concatenate(found["zero", steps])) for steps in (1, 9)) and not np.any(found["initial", 9][1]), f"{map_words}: the row of zeros has {found['zero', 9]}")


def test_dynamic_served(binary, folder):
    """Evaluations and predictions change nothing, find the rows of known ids, and give all others the first row of their bucket."""
    make(folder)
    words = "-steps 20 -table_t_dynamic_buckets 2 -table_t_dynamic_ttl 6"
    path, _ = train(binary, folder, "model", 2, options(200, f"{words} -data_eval raw.h5 -eval_every 3"))
    plain, _ = train(binary, folder, "plain", 2, options(200, words))
    check_same_tensors(path, plain, "evaluations in between")
    for ranks, plan in ((1, "table_wise"), (2, "row_wise")):
        run(binary, ranks, f"-task eval -init_from model.final.h5 -data_eval raw.h5 -batch_size 10 -output e{ranks}.h5 -table_t_sharding_types {plan}", folder)
    for ranks, more in ((1, ""), (2, "-table_t_sharding_types row_wise"), (1, "-tables_data_type int8 -quant_checkpoint q.h5"), (1, "-init_from q.h5")):
        run(binary, ranks, f"-task predict {more if '-init_from' in more else '-init_from model.final.h5 ' + more} -data_eval raw.h5 -batch_size 50 -output p.h5 -existing_outputs replace", folder)
        with h5py.File(os.path.join(folder, "p.h5")) as p, h5py.File(os.path.join(folder, "e1.h5")) as one, h5py.File(os.path.join(folder, "e2.h5")) as two:
            off = [np.abs(h["predictions"][()] - one["predictions"][()]).max() for h in (p, two)]
            check(max(off) < (0.02 if "int8" in more or "q.h5" in more else 1e-6), f"predictions {more} differ by {off}")


def test_dynamic_kinds(binary, folder):
    """Sequences, means, position weights, accumulation and an averaged model give the same result on two ranks as on one."""
    make(folder)
    for words in ("-table_t_pooling mean", "-table_t_pooling none", "-table_t_pooling none -table_t_sequence_pooling max", "-accumulate_steps 2", "-table_t_data_type bf16", "-ema_decay 0.9"):
        both = [train(binary, folder, f"kind{ranks}", ranks, options(80, f"-reproducible -steps 9 -table_t_dynamic_ttl 3 -table_t_dynamic_buckets 2 {words} "
                f"-table_t_sharding_types {plan}"))[0] for ranks, plan in ((1, "table_wise"), (2, "row_wise"))]
        check_same_tensors(*both, words)


def test_dynamic_refused(binary, folder):
    """Options that do not support tables that grow are refused by name. If the tensors of a directory disagree, the directory is damaged."""
    make(folder)
    for words, ranks, names in (("-table_t_sharding_types data_parallel", 2, ("data_parallel|sharding_types",)), ("-table_t_dynamic_buckets 7", 1, ("dynamic_cap", "49 rows")),
                                ("-table_t_dynamic_buckets 48", 1, ("one row a bucket", "rows (dynamic_cap)")), ("-ebc_variable_batch", 2, ("-ebc_variable_batch", "id_map dynamic")),
                                ("-table_t_dynamic_policy ttl", 1, ("dynamic_ttl",)), ("-table_t_dynamic_candidates 4000000001", 1, ("dynamic_candidates",)), ("-table_t_dynamic_cap_bytes 4KiB", 1, ("dynamic_cap_bytes", "dynamic_cap 48 too")),
                                ("-table_t_zch_interval 3", 1, ("zch_interval", "id_map dynamic")), ("-plan_replicas 2", 2, ("-plan_replicas", "id_map dynamic"))):
        _, text = train(binary, folder, "bad", ranks, options(48, f"-steps 3 {words}"), status=64)
        check(all(any(word in text for word in name.split("|")) for name in names), f"{words}: {text[-900:]}")
    more = "-table_t_dynamic_buckets 2 -table_t_dynamic_admit_after 2 -table_t_dynamic_candidates 10"
    path, _ = train(binary, folder, "model", 1, options(80, f"-steps 9 {more}"))
    n = len(tensors(path)["embedding/t/dynamic/ids"])
    for tensor, change, names in (("ids", lambda v: np.where(np.arange(n)[:, None] == 2, v[1], v), "an id is there twice"), ("ids", lambda v: v[:-1], "rows"), ("ids", lambda v: v + (v[:, 1:2] > 0) * [[0, 99, 0]], "last training batch"),
                                  ("buckets", lambda v: v + [[1, 0, 0], [0, 0, 0]], "rows"), ("buckets", lambda v: v * 0, "rows"), ("buckets", lambda v: v - [[0, 8, 0]], "last training batch"),
                                  ("candidates", lambda v: np.repeat(v, 2, axis=0), "there twice"), ("ids", lambda v: v - [[0, 0, 99]], "count"), ("buckets", lambda v: np.roll(v, 1, axis=0) if v[0, 0] != v[1, 0] else v + [[1, 0, 0], [-1, 0, 0]], "row")):
        with h5py.File(path) as old, h5py.File(os.path.join(folder, "damaged.h5"), "w", libver="latest") as new:
            for name in old:
                if name != "checksums":
                    old.copy(name, new)
            new.attrs.update(old.attrs)
            values = change(old[f"embedding/t/dynamic/{tensor}"][()])
            del new[f"embedding/t/dynamic/{tensor}"]
            new[f"embedding/t/dynamic/{tensor}"] = values
        text = run(binary, 2, f"-data_train raw.h5 -batch_size 8 -steps 2 {options(80, more)} -init_from damaged.h5", folder, status=65).text
        check("damaged.h5: /embedding/t/dynamic" in text and names in text, f"{tensor}: {text[-900:]}")


def test_dynamic_gaps(binary, folder):
    """If an id has lost its row, a checkpoint has zeros for the row's weights and states, so that a resume does not change them."""
    make(folder)
    path, _ = train(binary, folder, "gaps", 2, options(400, "-steps 12 -table_t_dynamic_ttl 3 -table_t_dynamic_buckets 2 -embedding_optimizer adam"))
    found = tensors(path)
    ids, weight = found["embedding/t/dynamic/ids"], found["embedding/t/weight"]
    first = np.concatenate([[0], np.cumsum(found["embedding/t/dynamic/buckets"][:, 0])[:-1]])
    gaps = np.setdiff1d(np.flatnonzero(ids[:, 1] == 0), first)
    check(len(gaps) > 3 and not np.any(weight[gaps]) and not np.any(found["embedding/t/exp_avg"][gaps]), f"{len(gaps)} gaps have weights or states")
    check(np.all(np.any(weight[ids[:, 1] > 0], axis=1)), "an id has a row of zeros")
