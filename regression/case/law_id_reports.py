# SPDX-License-Identifier: BSD-3-Clause
"""What a run reports about tables that give rows to ids (id_map zch and dynamic): /ids of the results, the lines, the warning, and the plan."""
import json
import os
import re

import h5py
import numpy as np

import dynamic_reference
import law_dynamic
import law_zch
import zch_reference
from law_zch import BATCH, SHAPE, batch_ids, train
from trsrun import check, check_same_tensors, run, tensors, thin, thinned, write_dataset

SUMS = ("given", "taken", "young", "lookups", "unknown", "refused", "dropped")
STATES = ("rows", "held", "bytes")
STEPS = [3, 4, 6, 8, 9, 12, 15, 16, 18, 20]
ROWS_AT = "-steps 20 -metrics_every 3 -data_eval raw.h5 -eval_every 4"


def make(folder, width=60, drift=4, samples=480):
    """Ids of two features from a window that moves by `drift` with each batch."""
    path = write_dataset(os.path.join(folder, "raw.h5"), samples, features={"seen": 10, "bought": 10})
    rng = np.random.default_rng(6)
    with h5py.File(path, "r+") as h:
        offsets, lengths = h["sparse/offsets"][()], h["sparse/lengths"][()]
        values = rng.integers(0, width, offsets[-1]) + np.repeat(np.arange(samples) // BATCH * drift, lengths.sum(axis=1))
        del h["sparse/values"]
        h["sparse/values"] = values.astype(np.int64) * 1_000_003
        h["sparse"].attrs["num_embeddings"] = np.zeros(2, np.int64)
        values = h["sparse/values"][()]
    first = lengths[:, 0]
    return [[values[o:o + n] for o, n in zip(offsets, first)], [values[o + n:e] for o, n, e in zip(offsets, first, offsets[1:])]]


def rows_of(folder, name):
    with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
        return {column[2:] if column.startswith("t_") else column: values[()] for column, values in h["ids"].items()}


def wanted_rows(ids, bucket, young, known, unknown_row):
    """The rows of /ids at STEPS, from a bucket made of NumPy or Python. known: ages below it are known."""
    rows, before, ages = [], dict.fromkeys(SUMS, 0), 0
    total = dict.fromkeys(SUMS, 0)
    for step in range(STEPS[-1]):
        of = batch_ids(ids, step)
        if isinstance(bucket, zch_reference.Bucket):
            found, given = bucket.train(of)
            total["given"] += len(given)
            held = int((bucket.entry["raw"] != zch_reference.NONE).sum())
        else:
            found = np.array(bucket.train(of.tolist()))
            total.update(given=bucket.given, refused=bucket.refused)
            held = len(bucket.row)
        total["lookups"] += len(of)
        total["unknown"] += int((found == unknown_row).sum())
        total.update(taken=len(bucket.ages), young=sum(age < min(young, known) for age in bucket.ages))
        if step + 1 in STEPS:
            recent = [age for age in bucket.ages[ages:] if age < known]
            rows.append({"step": step + 1, "rows": bucket.rows - 1, "held": held, "youngest": min(recent, default=-1), **{name: total[name] - before[name] for name in SUMS}})
            before, ages = dict(total), len(bucket.ages)
    return rows


@thinned
def test_id_reports_rows(binary, folder):
    """Each row of /ids has the numbers of a bucket made of NumPy or Python's dictionaries, for policies and intervals, on one rank and with column shards on two."""
    ids = make(folder)
    cases = [("zch", cap, policy, interval) for policy in ("lru", "lfu", "distance_lfu") for cap, interval in ((40, 1), (90, 5), (400, 2))]
    cases += [("dynamic", cap, policy, ttl) for policy in ("lru", "lfu", "ttl") for cap, ttl in ((40, 0), (120, 6), (1000, 3)) if ttl or policy != "ttl"]
    for kind, cap, policy, time in thin(cases, cases[:4] + cases[9:11] + cases[-1:]):
        if kind == "zch":
            words = law_zch.options(cap, f"-table_t_zch_policy {policy} -table_t_zch_interval {time}")
            bucket = zch_reference.Bucket(cap, policy, time)
            wanted = wanted_rows(ids, bucket, max(time, 2), time if policy == "lfu" else 1 << 60, cap - 1)
        else:
            words = law_dynamic.options(cap, f"-table_t_dynamic_policy {policy} -table_t_dynamic_ttl {time}")
            wanted = wanted_rows(ids, dynamic_reference.Bucket(cap, policy, time), time or 2, 1 << 60, 0)
        for ranks, plan in ((1, "table_wise"), (2, "column_wise")):
            what = f"{kind}, {cap} rows, {policy}, {time} batches, {ranks} ranks"
            _, text = train(binary, folder, "run", ranks, f"{words} {ROWS_AT} -table_t_sharding_types {plan}")
            found = rows_of(folder, "run")
            for name in wanted[0]:
                check(found[name].tolist() == [row[name] for row in wanted], f"{what}: {name} is {found[name].tolist()}, not {[row[name] for row in wanted]}")
            check(np.array_equal(found["unknown_share"], found["unknown"] / found["lookups"]) and (found["bytes"] > 0).all(), what)
            check_summary(text, found, what)


def check_summary(text, found, what):
    """The line `ids` has the sums of the rows."""
    line = re.search(r"^ids +t  ([\d,]+) of ([\d,]+) rows?, ([\d.]+) % of lookups unknown, ([\d,]+) taken( \(youngest (\d+) batch(?:es)?\))?, directory ", text, re.MULTILINE)
    check(line, f"{what}: no line ids:\n{text[-1500:]}")
    numbers = [int(line[i].replace(",", "")) for i in (1, 2, 4)]
    check(numbers == [found["held"][-1], found["rows"][-1], found["taken"].sum()], f"{what}: {line[0]}")
    check(abs(float(line[3]) - 100 * found["unknown"].sum() / found["lookups"].sum()) <= 0.05001, f"{what}: {line[0]}")
    ages = found["youngest"][found["youngest"] >= 0]
    check((int(line[6]) if line[6] else None) == (ages.min() if len(ages) else None), f"{what}: {line[0]}")


def test_id_reports_ranks(binary, folder):
    """The sums over ranks are those of one rank, for buckets on one to four ranks."""
    make(folder)
    for words in (law_zch.options(80, "-table_t_zch_policy lru -table_t_zch_buckets 4 -table_t_zch_interval 3"), law_dynamic.options(160, "-table_t_dynamic_buckets 8")):
        train(binary, folder, "one", 1, f"{words} {ROWS_AT}")
        wanted = rows_of(folder, "one")
        check(wanted["taken"].sum() > 0, "no row is taken")
        for ranks, plan in ((2, "row_wise"), (3, "row_wise"), (4, "grid_shard -topology_local_world_size 2")):
            train(binary, folder, "many", ranks, f"{words} {ROWS_AT} -table_t_sharding_types {plan}")
            found = rows_of(folder, "many")
            for name in ("step", "youngest", "rows", "held") + SUMS:
                check(found[name].tolist() == wanted[name].tolist(), f"{plan}, {ranks} ranks: {name} is {found[name].tolist()}, not {wanted[name].tolist()}")


def test_id_reports_resume(binary, folder):
    """A resumed run has the rows of an uninterrupted one, each step once, also if it was stopped between two rows."""
    make(folder)
    words = law_dynamic.options(120, f"-table_t_dynamic_ttl 6 -reproducible -checkpoint_every 7 {ROWS_AT}")
    train(binary, folder, "whole", 1, f"{words} -checkpoint_dir whole")
    kept = f"{words} -checkpoint_dir kept"
    train(binary, folder, "rest", 1, kept.replace("-steps 20", "-steps 10"))
    train(binary, folder, "rest", 2, f"{kept} -resume -table_t_sharding_types column_wise")
    wanted, found = rows_of(folder, "whole"), rows_of(folder, "rest")
    check(wanted["step"].tolist() == sorted(STEPS + [7, 14]), f"rows at {wanted['step'].tolist()}")
    check(found["step"].tolist() == sorted(STEPS + [7, 10, 14]), f"rows at {found['step'].tolist()}")
    for name in SUMS:
        sums = {int(step): total for step, total in zip(found["step"], np.cumsum(found[name]))}
        check([sums[step] for step in wanted["step"].tolist()] == np.cumsum(wanted[name]).tolist(), f"{name}: {found[name].tolist()}, whole {wanted[name].tolist()}")
    check(found["held"].tolist()[-1] == wanted["held"].tolist()[-1] and found["taken"].sum() > 0, "other ids")
    # A start without a step adds no row.
    train(binary, folder, "rest", 1, f"{kept} -resume")
    check(rows_of(folder, "rest")["step"].tolist() == found["step"].tolist(), "rows without steps")


DROPPED = re.compile(r"^ids +table t: ([\d,]+) of the checkpoint's ([\d,]+) ids lost their rows, .*-table_t_dynamic_cap", re.MULTILINE)


def test_id_reports_dropped(binary, folder):
    """A start whose cap is too small for the checkpoint's ids reports how many of them it drops. A start with enough room reports nothing."""
    make(folder)
    path, _ = train(binary, folder, "big", 1, law_dynamic.options(400, "-steps 20"))
    with h5py.File(path) as h:
        n_ids = int((h["embedding/t/dynamic/ids"][:, 1] > 0).sum())
    check(n_ids > 60, f"{n_ids} ids")
    for ranks, cap, buckets, plan in ((1, 50, 1, "table_wise"), (2, 50, 1, "column_wise"), (3, 60, 3, "row_wise"), (1, 400, 1, "table_wise")):
        words = law_dynamic.options(cap, f"-steps 2 -init_from {path} -table_t_dynamic_buckets {buckets} -table_t_sharding_types {plan}")
        _, text = train(binary, folder, "small", ranks, words)
        line = DROPPED.search(text)
        dropped = rows_of(folder, "small")["dropped"].tolist()
        if cap == 400:
            check(not line and dropped == [0], f"{dropped} dropped: {line and line[0]}")
            continue
        check(line and int(line[2].replace(",", "")) == n_ids, text[:2500])
        check(dropped == [int(line[1].replace(",", ""))], f"{dropped}, the line says {line[0]}")
        check(dropped[0] == n_ids - (cap - buckets) if buckets == 1 else dropped[0] >= n_ids - (cap - buckets), f"{dropped} of {n_ids} dropped")
    for task in ("-task eval", "-task predict", "-task predict -tables_data_type int8"):
        text = run(binary, 1, f"{task} -init_from {path} -data_eval raw.h5 -batch_size 8 -output e.h5 -existing_outputs replace -table_t_dynamic_cap 50", folder).text
        check(DROPPED.search(text) and int(DROPPED.search(text)[1]) == n_ids - 49, f"{task}: {text[-1500:]}")
        text = run(binary, 1, f"{task} -init_from {path} -data_eval raw.h5 -batch_size 8 -output e.h5 -existing_outputs replace", folder).text
        check("lost their rows" not in text, f"{task}: {text[-1500:]}")


def test_id_reports_cap_at_resume(binary, folder):
    """-resume accepts another cap or number of buckets. Rows that are kept go on with their contents, and the start reports how many ids had no
    room."""
    make(folder)
    for cap, buckets, ranks in ((50, 1, 2), (900, 3, 3)):
        for name in os.listdir(os.path.join(folder, "kept")) if os.path.isdir(os.path.join(folder, "kept")) else ():
            os.remove(os.path.join(folder, "kept", name))
        words = "-checkpoint_dir kept -embedding_learning_rate 0 -table_t_sharding_types"
        path, _ = train(binary, folder, "half", 1, law_dynamic.options(400, f"{words} table_wise -steps 10"))
        before, rows_before = tensors(path)["embedding/t/weight"], law_dynamic.rows_of_ids(path)
        check(len(rows_before) > 60, f"{len(rows_before)} ids")
        _, text = train(binary, folder, "half", ranks, law_dynamic.options(cap, f"{words} {'row_wise' if buckets > 1 else 'column_wise'} -table_t_dynamic_buckets {buckets} -resume -steps 11"))
        after, rows_after = tensors(path)["embedding/t/weight"], law_dynamic.rows_of_ids(path)
        check("-table_t_dynamic_cap was 400" in text, text[:2500])
        both = set(rows_before) & set(rows_after)
        line = DROPPED.search(text)
        check((line is not None) == (cap == 50) and (not line or int(line[1]) == len(rows_before) - 49), text[:2500])
        # Ids that lose their rows and come back get new contents: only those of the batch can.
        same = [np.array_equal(before[rows_before[i]], after[rows_after[i]]) for i in sorted(both)]
        check(cap == 50 or (all(same) and len(both) == len(rows_before)), f"{sum(same)} of {len(both)} rows, of {len(rows_before)} before")
        check(len(rows_after) <= cap - buckets and sum(same) > 0, f"{len(rows_after)} rows")


WARNING = re.compile(r"^trshard: warning: table t takes rows from ids in use: of ([\d,]+) rows? taken since step (\d+), ([\d,]+) had been used less than (\d+) batches before \(youngest: (\d+)\)\. It needs (.*)$",
                     re.MULTILINE)


def warnings(binary, folder, words, ranks=1):
    _, text = train(binary, folder, "warned", ranks, f"-steps 20 -metrics_every 5 {words}")
    found = list(WARNING.finditer(text))
    check(len(found) == text.count("takes rows from ids"), text[-2000:])
    return found


def test_id_reports_warning(binary, folder):
    """A table with too few rows is named once, with its options and their values. If one of these options is changed as the warning proposes,
    the warning does not appear again."""
    make(folder, width=40)  # about 36 ids a batch, of a window of 40
    for words, young, advice in (
            (law_zch.options(60, "-table_t_zch_policy lru -table_t_zch_interval 10"), 10,
             {"-table_t_num_embeddings, now 60": "-table_t_num_embeddings 200", "-table_t_zch_interval, now 10": "-table_t_zch_interval 2"}),
            (law_dynamic.options(30), 2, {"-table_t_dynamic_cap, now 30": "-table_t_dynamic_cap 120", "-table_t_dynamic_admit_after, now 1": "-table_t_dynamic_admit_after 8"}),
            (law_dynamic.options(60, "-table_t_dynamic_ttl 15"), 15, {"-table_t_dynamic_cap, now 60": "-table_t_dynamic_cap 140", "-table_t_dynamic_ttl, now 15": "-table_t_dynamic_ttl 2"})):
        for ranks in (1, 2):
            found = warnings(binary, folder, f"{words} -table_t_sharding_types {'table_wise' if ranks == 1 else 'column_wise'}", ranks)
            check(len(found) == 1, f"{words}, {ranks} ranks: {len(found)} warnings")
            rows = rows_of(folder, "warned")
            i = int(np.flatnonzero(100 * rows["young"] > rows["taken"])[0])
            numbers = [int(found[0][k].replace(",", "")) for k in (1, 2, 3, 4, 5)]
            check(numbers == [rows["taken"][i], ([0] + rows["step"].tolist())[i], rows["young"][i], young, rows["youngest"][i]], f"{found[0][0]}, row {i}")
        for name, change in advice.items():
            check(name in found[0][6], f"{name} is not in: {found[0][6]}")
            option = change.split()[0]
            changed = re.sub(rf"{option} \S+", change, words) if option in words else f"{words} {change}"
            after = warnings(binary, folder, changed)
            check(not after, f"{change} does not end it: {after and after[0][0]}")


def test_id_reports_filter(binary, folder):
    """With zch_filter average, which the warning proposes, ids that occur once do not take the rows of ids in use."""
    path = write_dataset(os.path.join(folder, "raw.h5"), 480, features={"seen": 10, "bought": 10})
    rng = np.random.default_rng(3)
    with h5py.File(path, "r+") as h:  # a third of the ids comes once, the others are of 40 that most batches have
        n = len(h["sparse/values"])
        del h["sparse/values"]
        h["sparse/values"] = np.where(rng.random(n) < 1 / 3, np.arange(n) + 1000, rng.integers(0, 40, n)).astype(np.int64)
        h["sparse"].attrs["num_embeddings"] = np.zeros(2, np.int64)
    words = law_zch.options(60, "-table_t_zch_policy lru -table_t_zch_interval 4")
    found = warnings(binary, folder, words)
    check(len(found) == 1 and "-table_t_zch_filter average" in found[0][6], str(found))
    check(not warnings(binary, folder, f"{words} -table_t_zch_filter average"), "the filter does not end it")


def test_id_reports_same(binary, folder):
    """Reports change no bit, however often they come."""
    make(folder)
    words = law_zch.options(40, "-reproducible -steps 20 -table_t_zch_policy distance_lfu -table_t_zch_interval 2")
    rare, _ = train(binary, folder, "rare", 2, f"{words} -metrics_every 0")
    often, _ = train(binary, folder, "often", 2, f"{words} -metrics_every 1")
    check_same_tensors(often, rare, "-metrics_every 1 and 0")
    many, few = rows_of(folder, "often"), rows_of(folder, "rare")
    check(many["step"].tolist() == list(range(1, 21)) and few["step"].tolist() == [20], "other steps")
    for name in SUMS:
        check(many[name].sum() == few[name].sum(), name)
    with h5py.File(os.path.join(folder, "often.h5")) as h:
        check("ids" in h, "no rows")
    run(binary, 1, f"-data_train raw.h5 -batch_size 8 -steps 2 -tables t -table_t_features seen,bought -table_t_id_map hash -table_t_num_embeddings 48 {SHAPE} -output hash.h5", folder)
    with h5py.File(os.path.join(folder, "hash.h5")) as h:
        check("ids" not in h, "rows of a table that maps its ids")


def test_id_reports_plan(binary, folder):
    """-task plan counts a directory's bytes for each row, once for each column shard, in host memory, and prints that a dynamic table's rows are
    a cap. Other tables need the same bytes as before."""
    rows = 1_000_000
    shape = f"-tables t -tables_embedding_dim 8 -table_t_features f -tables_min_partition 4 -table_t_num_embeddings {rows} -batch_size 16 -plan_output plan.json -existing_outputs replace"
    kinds = {"dynamic": 24, "zch": 36, "zch -table_t_zch_policy lru": 32, "zch -table_t_zch_policy distance_lfu": 40}
    for device in ("cpu", "cuda"):
        for type_, copies in (("table_wise", 1), ("row_wise", 1), ("column_wise", 2)):
            topology = f"-topology_world_size 2 -topology_local_world_size 2 -topology_compute_device {device} -table_t_sharding_types {type_}"

            def planned(kind):
                more = " -table_t_zch_buckets 2" if kind.startswith("zch") else " -table_t_dynamic_buckets 2" if kind == "dynamic" else ""
                text = run(binary, 1, f"-task plan {shape} {topology} -table_t_id_map {kind}{more}", folder).text
                with open(os.path.join(folder, "plan.json"), encoding="ascii") as plan:
                    shards = json.load(plan)["tables"][0]["shards"]
                return text, [sum(s["storage"][memory] for s in shards) for memory in ("hbm", "ddr")]

            _, before = planned("hash")
            for kind, row_bytes in kinds.items():
                text, found = planned(kind)
                check(found == [before[0], before[1] + copies * rows * row_bytes], f"{device}, {type_}, {kind}: {found}, without a directory {before}")
                line = f"table t: its directory of ids takes {row_bytes} bytes of host memory a row"
                check(line in text, text)
                check(("the cap of 1000000 rows" in text) == (kind == "dynamic"), text)
