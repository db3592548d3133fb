# SPDX-License-Identifier: BSD-3-Clause
"""Zero-collision tables (id_map zch): rows are given to ids and taken back, equally on any number
of ranks."""
import os

import h5py
import numpy as np

from trsrun import attribute, check, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset
from zch_reference import NONE, Bucket

BATCH, DIM = 24, 4
SHAPE = f"-tables_embedding_dim {DIM} -tables_min_partition 2 -dense_arch 8,4 -over_arch 8,1 -seed 5"
# options of a plan, and its ranks
PLANS = [(1, "table_wise"), (2, "row_wise"), (3, "row_wise"), (2, "column_wise"), (4, "table_row_wise -topology_local_world_size 2"),
         (4, "grid_shard -topology_local_world_size 2"), (2, "table_wise -pipeline prefetch_sparse_dist")]


def make(folder, samples=480, name="raw.h5"):
    """Ids of two features that drift over time, with both signs and up to 63 bits:
    ids[feature][sample]."""
    path = write_dataset(os.path.join(folder, name), samples, features={"seen": 10, "bought": 10})
    rng = np.random.default_rng(4)
    with h5py.File(path, "r+") as h:
        offsets, lengths = h["sparse/offsets"][()], h["sparse/lengths"][()]
        values = rng.zipf(1.3, offsets[-1]) % (1 << 40) + np.repeat(np.arange(samples) // 40 * 5, lengths.sum(axis=1))
        values = np.where(rng.random(len(values)) < 0.2, -values, values).astype(np.int64)
        values[rng.random(len(values)) < 0.01] = rng.choice([NONE, np.iinfo(np.int64).min, -1, NONE - 1])
        del h["sparse/values"]
        h["sparse/values"] = values
        h["sparse"].attrs["num_embeddings"] = np.zeros(2, np.int64)
    first = lengths[:, 0]
    return [[values[o:o + n] for o, n in zip(offsets, first)], [values[o + n:e] for o, n, e in zip(offsets, first, offsets[1:])]]


def options(rows, more=""):
    return f"-tables t -table_t_features seen,bought -table_t_id_map zch -table_t_num_embeddings {rows} {SHAPE} {more}"


def train(binary, folder, name, ranks, words, status=0):
    text = run(binary, ranks, f"-data_train raw.h5 -batch_size {BATCH // ranks} {words} -output {name}.h5 -checkpoint_final {name}.final.h5 "
               "-existing_outputs replace", folder, status=status).text
    return os.path.join(folder, f"{name}.final.h5"), text


def batch_ids(ids, step):
    """The ids of a global batch in their order: feature by feature, sample by sample."""
    samples = [(step * BATCH + i) % len(ids[0]) for i in range(BATCH)]
    return np.concatenate([of[i] for of in ids for i in samples])


@thinned
def test_zch_reference(binary, folder):
    """Every tensor of the map equals that of TorchRec's module, written in NumPy, for each policy,
    filter and interval."""
    ids = make(folder)
    for policy in ("lfu", "lru", "distance_lfu"):
        for name in thin(("none", "average", "dynamic"), ("none", "dynamic")):
            for interval, rows, exponent in thin(((1, 2, 1.0), (1, 40, 0.5), (3, 20, 1.0), (3, 300, 2.3), (7, 60, 1.0)), ((1, 40, 0.5), (3, 20, 1.0))):
                what = f"{policy}, {name}, every {interval}, {rows} rows, exponent {exponent}"
                path, _ = train(binary, folder, "one", 1, options(rows, f"-steps 20 -table_t_zch_policy {policy} -table_t_zch_filter {name} "
                                f"-table_t_zch_filter_multiplier 1.5 -table_t_zch_interval {interval} -table_t_zch_decay_exponent {exponent} -table_t_zch_torchrec"))
                bucket = Bucket(rows, policy, interval, exponent, name, 1.5)
                for step in range(20):
                    bucket.train(batch_ids(ids, step))
                found = tensors(path)
                for tensor in ("raw", "slot") + (("count",) if policy != "lru" else ()) + (("last",) if policy != "lfu" else ()):
                    check(same_bits(found[f"embedding/t/zch/{tensor}"], bucket.entry[tensor].copy()), f"{what}: other {tensor}")
                seen = found["embedding/t/zch/seen"]
                check(seen[:, 1].sum() == len(bucket.seen) and set(seen[:-1, 0]) == set(bucket.seen["raw"]), f"{what}: another history")
                check("embedding/t/zch/count" not in found or policy != "lru", f"{what}: counts that nobody keeps")


@thinned
def test_zch_plans(binary, folder):
    """-reproducible: weights, states and maps have the same bits for every plan and number of
    ranks, with one bucket and with several."""
    make(folder)
    for optimizer, buckets in thin((("rowwise_adagrad", 1), ("adam", 4), ("sgd", 4), ("lamb", 8)), (("rowwise_adagrad", 1), ("adam", 4))):
        words = f"-reproducible -steps 15 -table_t_zch_interval 2 -table_t_zch_policy distance_lfu -table_t_zch_buckets {buckets} -embedding_optimizer {optimizer}"
        for number, (ranks, plan) in enumerate(PLANS):
            path, _ = train(binary, folder, f"plan{number}", ranks, options(48, f"{words} -table_t_sharding_types {plan}"))
            if number:
                check_same_tensors(path, os.path.join(folder, "plan0.final.h5"), f"{optimizer}, {buckets} buckets, {plan} on {ranks} ranks")


def test_zch_caches(binary, folder):
    """A row that is given to another id leaves the cache in the right order: fused_uvm_caching has
    the bits of fused."""
    make(folder)
    words = "-reproducible -steps 15 -table_t_zch_interval 2 -table_t_sharding_types table_wise"
    wanted, _ = train(binary, folder, "fused", 1, options(48, words))
    for algorithm in ("lru", "lfu"):
        cached = f"{words} -table_t_compute_kernels fused_uvm_caching -table_t_cache_algorithm {algorithm} -table_t_cache_load_factor 0.7"
        found, text = train(binary, folder, "cached", 2, options(48, cached))
        check("fused_uvm_caching" in text, text[:1500])
        check_same_tensors(found, wanted, algorithm)


@thinned
def test_zch_resume(binary, folder):
    """A run that was resumed in the middle of an interval, with another number of ranks and plan,
    equals an uninterrupted one."""
    make(folder)
    for policy in thin(("lfu", "lru", "distance_lfu"), ("distance_lfu",)):
        words = f"-reproducible -table_t_zch_interval 5 -table_t_zch_policy {policy} -table_t_zch_buckets 3 -embedding_optimizer adam"
        wanted, _ = train(binary, folder, "whole", 1, options(48, f"{words} -steps 17"))
        kept = f"{words} -checkpoint_dir {policy} -checkpoint_every 8"
        train(binary, folder, "half", 2, options(48, f"{kept} -steps 8 -table_t_sharding_types row_wise"))
        found, _ = train(binary, folder, "rest", 3, options(48, f"{kept} -steps 17 -resume -table_t_sharding_types row_wise"))
        check_same_tensors(found, wanted, policy)
        check(same_bits(losses(os.path.join(folder, "rest.h5")), losses(os.path.join(folder, "whole.h5"))[8:]), f"{policy}: other losses after the resume")


def test_zch_rows(binary, folder):
    """Rows that are given to other ids start with new weights and states. With zch_torchrec, states
    of other optimizers stay, as in TorchRec."""
    ids = make(folder)
    fixed = "-steps 6 -table_t_zch_interval 6 -table_t_init_fn constant -table_t_init_value 0.25 -embedding_learning_rate 0.5"
    for more, keeps in (("", False), ("-table_t_zch_torchrec", True)):
        path, _ = train(binary, folder, "rows", 2, options(24, f"{fixed} -embedding_optimizer adam {more}"))
        bucket = Bucket(24, "lfu", 6)
        for step in range(6):
            last_ids = batch_ids(ids, step)
            slots, given = bucket.train(last_ids)
        found = tensors(path)
        idle = sorted(set(given) - set(slots))  # given in the last batch, which does not use them
        check(len(given) > 5 and idle, f"{len(given)} rows change hands, {len(idle)} of them idle")
        check(np.all(found["embedding/t/weight"][idle] == 0.25), "a row that was given away has old weights")
        check(np.all(found["embedding/t/exp_avg"][idle] == 0), "a row that was given away has old states")
        check(np.all(found["embedding/t/zch/times"][np.isin(found["embedding/t/zch/slot"], given)] == 1), "times of the rows given away")
        used = sorted(set(slots) & set(given))
        check(used and np.all(found["embedding/t/exp_avg"][used] != 0), "the batch that gives rows away does not train them")
        if keeps:
            continue
        drawn, _ = train(binary, folder, "drawn", 2, options(24, "-steps 6 -table_t_zch_interval 6 -embedding_optimizer sgd"))
        again, _ = train(binary, folder, "again", 1, options(24, "-steps 6 -table_t_zch_interval 6 -embedding_optimizer sgd"))
        a, b = tensors(drawn)["embedding/t/weight"], tensors(again)["embedding/t/weight"]
        check(same_bits(a[idle], b[idle]) and np.abs(a[idle]).max() > 0 and len(np.unique(a[idle])) == a[idle].size, "new rows are not drawn by their id")


def test_zch_served(binary, folder):
    """Evaluations and predictions do not change the map. They find the rows of known ids, and give
    the bucket's last row to all others."""
    ids = make(folder)
    path, _ = train(binary, folder, "model", 2, options(40, "-steps 20 -table_t_zch_interval 4 -table_t_zch_buckets 2 -data_eval raw.h5 -eval_every 3"))
    plain, _ = train(binary, folder, "plain", 2, options(40, "-steps 20 -table_t_zch_interval 4 -table_t_zch_buckets 2"))
    check_same_tensors(path, plain, "evaluations in between")
    for ranks, plan in ((1, "table_wise"), (3, "row_wise")):
        run(binary, ranks, f"-task eval -init_from model.final.h5 -data_eval raw.h5 -batch_size 8 -output e{ranks}.h5 -table_t_sharding_types {plan}", folder)
    for more in ("", "-tables_data_type int8"):
        run(binary, 1, f"-task predict -init_from model.final.h5 -data_eval raw.h5 -batch_size 50 -output p.h5 -existing_outputs replace {more}", folder)
        with h5py.File(os.path.join(folder, "p.h5")) as p, h5py.File(os.path.join(folder, "e1.h5")) as one, h5py.File(os.path.join(folder, "e3.h5")) as three:
            off = [np.abs(h["predictions"][()] - one["predictions"][()]).max() for h in (p, three)]
            check(max(off) < (0.02 if more else 1e-6), f"predictions {more} differ by {off}")
    known = set(tensors(path)["embedding/t/zch/raw"]) - {NONE}
    make(folder, 40, "unknown.h5")
    with h5py.File(os.path.join(folder, "unknown.h5"), "r+") as h:
        h["sparse/values"][...] = np.arange(len(h["sparse/values"])) + (1 << 50)
        h["dense"][...] = 0.5
        check(not known & set(h["sparse/values"][()]), "ids are known")
        lengths = h["sparse/lengths"][()]
    run(binary, 1, "-task predict -init_from model.final.h5 -data_eval unknown.h5 -batch_size 50 -output p.h5 -existing_outputs replace", folder)
    with h5py.File(os.path.join(folder, "p.h5")) as h:
        empty = h["predictions"][()][lengths.sum(axis=1) == 0]
        single = h["predictions"][()][(lengths == [1, 0]).all(axis=1)]
    check(len(np.unique(empty)) <= 1 and 0 < len(np.unique(single)) <= 2, f"ids without a row share {len(np.unique(single))} rows of two buckets")
    check(ids is not None, "")


def test_zch_kinds(binary, folder):
    """Sequences, means, position weights, accumulation and an averaged model give the same result
    on two ranks as on one."""
    make(folder)
    for words in ("-table_t_pooling mean", "-table_t_pooling none", "-table_t_pooling none -table_t_sequence_pooling max", "-accumulate_steps 2", "-table_t_data_type bf16"):
        both = [train(binary, folder, f"kind{ranks}", ranks, options(48, f"-reproducible -steps 9 -table_t_zch_interval 2 -table_t_zch_buckets 2 {words} "
                f"-table_t_sharding_types {plan}"))[0] for ranks, plan in ((1, "table_wise"), (2, "row_wise"))]
        check_same_tensors(*both, words)


def test_zch_refused(binary, folder):
    """Options that do not support rows given to ids are refused by name. If the tensors of a map
    disagree, the map is damaged, and the message has the bucket's number."""
    make(folder)
    for words, ranks, names in (("-table_t_sharding_types data_parallel", 2, ("data_parallel|sharding_types",)), ("-table_t_zch_buckets 5", 1, ("num_embeddings", "50 rows")),
                                ("-table_t_zch_buckets 48", 1, ("one row a bucket",)), ("-ebc_variable_batch", 2, ("-ebc_variable_batch", "id_map zch")),
                                ("-table_t_pooling none -ec_index_dedup", 2, ("-ec_index_dedup", "id_map zch")), ("-plan_replicas 2", 2, ("-plan_replicas", "id_map zch"))):
        _, text = train(binary, folder, "bad", ranks, options(48, f"-steps 3 {words}"), status=64)
        check(all(any(word in text for word in name.split("|")) for name in names), f"{words}: {text[-900:]}")
    text = run(binary, 1, f"-data_train raw.h5 -batch_size 8 -steps 2 -tables t -table_t_features seen,bought -table_t_id_map hash -table_t_num_embeddings 48 {SHAPE} "
               "-table_t_zch_interval 2", folder, status=64).text
    check("zch_interval" in text and "id_map zch" in text, text[-900:])
    path, _ = train(binary, folder, "model", 1, options(48, "-steps 9 -table_t_zch_interval 2 -table_t_zch_buckets 2"))
    raw = tensors(path)["embedding/t/zch/raw"]
    for tensor, change, names in (("raw", lambda v: np.where(np.arange(48) == 1, v[0], v), "an id is there twice"), ("slot", lambda v: v + 48, "outside its bucket"),
                                  ("slot", lambda v: np.where(np.arange(48) == 1, v[0], v), "two entries have the same slot"), ("raw", lambda v: v[::-1], "ascending|last row"),
                                  ("numbers", lambda v: v * 0 + 7 * (np.arange(5) == 1), "after the last iteration"), ("seen", lambda v: np.repeat(v, 2, axis=0), "there twice")):
        with h5py.File(path) as old, h5py.File(os.path.join(folder, "damaged.h5"), "w", libver="latest") as new:
            for name in old:
                if name != "checksums":
                    old.copy(name, new)
            new.attrs.update(old.attrs)
            values = change(old[f"embedding/t/zch/{tensor}"][()])
            del new[f"embedding/t/zch/{tensor}"]
            new[f"embedding/t/zch/{tensor}"] = values
        text = run(binary, 2, f"-data_train raw.h5 -batch_size 8 -steps 2 {options(48, '-table_t_zch_interval 2 -table_t_zch_buckets 2')} -init_from damaged.h5", folder, status=65).text
        check(f"damaged.h5: /embedding/t/zch/{tensor}, bucket" in text and any(word in text for word in names.split("|")), f"{tensor}: {text[-900:]}")
    check(raw.shape == (48,) and attribute(path, "step") == 9, "")


def test_zch_late(binary, folder):
    """A bucket whose first batch has no ids begins to learn with its first ids; with zch_torchrec it never does, as in TorchRec."""
    make(folder)
    with h5py.File(os.path.join(folder, "raw.h5"), "r+") as h:
        lengths = h["sparse/lengths"][()]
        drop = lengths[:BATCH].sum()
        lengths[:BATCH] = 0
        values = h["sparse/values"][drop:]
        h["sparse/lengths"][...] = lengths
        h["sparse/offsets"][...] = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
        del h["sparse/values"]
        h["sparse/values"] = values
    for more, learns in (("", True), ("-table_t_zch_torchrec", False)):
        path, _ = train(binary, folder, "late", 2, options(48, f"-steps 6 -table_t_zch_buckets 4 {more}"))
        held = (tensors(path)["embedding/t/zch/raw"] != NONE).sum()
        check((held > 20) == learns and (learns or held == 0), f"{more}: {held} ids have rows")
