# SPDX-License-Identifier: BSD-3-Clause
"""tools/dataset_statistics.py gives the planner a dataset's properties that a run then measures:
the hit rates of its caches, and the tables for which a cache is cheap."""
import json
import os
import subprocess
import sys

import h5py
import numpy as np

from trsrun import check, run

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "dataset_statistics.py")
ROWS = 4000
MODEL = "-data_train train.h5 -tables_embedding_dim 16 -batch_size 64 -dense_arch 8,16 -over_arch 8,1"
CACHED = "-tables_compute_kernels fused_uvm_caching"
DEVICE = ("-task plan -topology_compute_device cuda -topology_world_size 1 -topology_local_world_size 1 -plan_storage_reservation fixed_percentage "
          "-plan_storage_reservation_percentage 0")
LOAD_FACTORS = (0.04, 0.1, 0.3)


def make(folder, exponents, samples=2560, rows=None, bags=None):
    """Write train.h5 with a feature f0, f1, ... for each exponent of zipf (0: uniform). Frequent
    ids are spread over the table."""
    rng = np.random.default_rng(5)
    ids = []
    rows, bags = rows or [ROWS] * len(exponents), bags or [2] * len(exponents)
    for exponent, n, bag in zip(exponents, rows, bags):
        share = np.arange(1, n + 1.0)**-exponent
        ids.append(rng.permutation(n)[rng.choice(n, samples * bag, p=share / share.sum())].reshape(samples, bag))
    with h5py.File(os.path.join(folder, "train.h5"), "w", libver="latest") as h:
        h.attrs["format"], h.attrs["version"], h.attrs["num_samples"] = "trshard-dataset", np.int64(1), np.int64(samples)
        h["dense"], h["labels"] = rng.random((samples, 2), np.float32), rng.integers(0, 2, samples).astype(np.float32)
        sparse = h.create_group("sparse")
        sparse.attrs["features"], sparse.attrs["num_embeddings"] = [f"f{i}" for i in range(len(ids))], np.array(rows, np.int64)
        sparse["lengths"] = np.tile(np.array(bags, np.int32), (samples, 1))
        sparse["offsets"] = np.arange(samples + 1) * sum(bags)
        sparse["values"] = np.concatenate(ids, axis=1).reshape(-1).astype(np.int32)


def statistics(folder, *options):
    """Write s.opts. Returns the miss-rate histogram of each table."""
    words = [sys.executable, TOOL, "train.h5", "--batch-size", "64", "-o", "s.opts", *options]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    check(result.returncode == 0, result.stdout + result.stderr)
    with open(os.path.join(folder, "s.opts"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return [np.array(line[1].split(","), float) for line in lines if line and line[0].endswith("mrc_hist")]


def expected_lookups(folder):
    with open(os.path.join(folder, "s.opts"), encoding="utf-8") as file:
        return [float(line.split()[1]) for line in file if "_expected_lookups " in line]


def predicted(histogram, load_factor, rows=ROWS):
    """The hit rate that the planner's cost model predicts for a table with its own cache
    (plan/cost/cache_stats.c)."""
    parts = np.searchsorted(np.linspace(0, rows, len(histogram) + 1), load_factor * rows - 1, side="right")
    return histogram[:parts].sum() / histogram.sum()


def counters(folder, name="run.h5"):
    with h5py.File(os.path.join(folder, name)) as h:
        return {key: h[f"cache/{key}"][()] for key in h["cache"]} if "cache" in h else None


def test_statistics_predict_caches(binary, folder):
    """Within 0.05 of /cache: zipf 0.8 to 1.3 and uniform, load factors, algorithms, pipelines, one
    rank and two."""
    make(folder, (0.8, 1.3, 0))
    for ranks, algorithm, pipeline, sharding in ((1, "lru", "base", "table_wise"), (1, "lfu", "base", "table_wise"),
                                                 (2, "lru", "prefetch_sparse_dist", "table_wise"), (2, "lru", "sparse_dist", "row_wise")):
        ahead = ("--ahead",) if pipeline.startswith("prefetch") else ()
        histograms = statistics(folder, "--ranks", str(ranks), "--algorithm", algorithm, *ahead)
        factors = LOAD_FACTORS[ranks - 1:] + LOAD_FACTORS[:ranks - 1]
        # a cache for each table
        own = " ".join(f"-table_f{i}_cache_load_factor {r}" for i, r in enumerate(factors))
        run(binary, ranks, f"{MODEL} {CACHED} {own} -options_file s.opts -tables_cache_algorithm {algorithm} -pipeline {pipeline} -output run.h5 "
            f"-tables_sharding_types {sharding}", folder)
        c, seen = counters(folder), []
        for i, r in enumerate(factors):
            rows = ROWS // ranks if sharding == "row_wise" else ROWS
            mine = c["capacity_rows"] == -(-int(rows * r) // 32) * 32
            check(mine.sum() == (ranks if sharding == "row_wise" else 1), f"caches of f{i}: {c}")
            seen.append(1 - c["unique_misses"][mine].sum() / c["unique_ids"][mine].sum())
            found = predicted(histograms[i], r)
            check(abs(found - seen[i]) < 0.05, f"f{i} at {r}, {ranks} ranks, {algorithm}, {pipeline}, {sharding}: predicted {found:.4f}, measured {seen[i]:.4f}")
        # otherwise any prediction would pass
        check(max(seen) - min(seen) > 0.2, f"the hit rates do not differ: {seen}")


def measure(binary, folder, ranks, options):
    """The predicted and the measured share of rows that hit, for all caches of a run under the plan
    made with these options."""
    run(binary, 1, f"-task plan -topology_compute_device cpu -topology_world_size {ranks} -topology_local_world_size {ranks} {options} -options_file s.opts -plan_report report.txt "
        "-plan_output plan.json", folder)
    with open(os.path.join(folder, "report.txt"), encoding="utf-8") as file:
        line = next(line for line in file if line.startswith("All caches: "))
    run(binary, ranks, f"{options} -options_file s.opts -plan_input plan.json -output run.h5", folder)
    c = counters(folder)
    return float(line.split()[2].rstrip("%")) / 100, 1 - c["unique_misses"].sum() / c["unique_ids"].sum()


def test_statistics_shared_caches(binary, folder):
    """Different tables in one cache: within 0.03 of /cache. The tables' own curves are wrong by up
    to 0.4."""
    shapes = (((0.8, 1.3, 1.0, 0), (4000, 4000, 4000, 4000), (2, 2, 2, 2)), ((0.9, 1.2, 0), (8000, 400, 5000), (1, 6, 2)), ((1.05, 1.2), (1000, 10000), (8, 1)))
    most = 0
    for i, (exponents, rows, bags) in enumerate(shapes):
        make(folder, exponents, rows=rows, bags=bags)
        for algorithm, factors in (("lru", (0.05, 0.3)), ("lfu", (0.1,))):
            alone = statistics(folder, "--ranks", "2" if i == 1 else "1", "--algorithm", algorithm)
            for factor in factors:
                options = f"{MODEL} {CACHED} -tables_cache_load_factor {factor} -tables_cache_algorithm {algorithm} -tables_sharding_types {'row_wise' if i == 1 else 'table_wise'}"
                found, seen = measure(binary, folder, 2 if i == 1 else 1, options)
                check(abs(found - seen) < 0.03, f"{shapes[i]} at {factor}, {algorithm}: predicted {found:.4f}, measured {seen:.4f}")
                lookups = expected_lookups(folder)
                most = max(most, abs(np.average([predicted(h, factor, r) for h, r in zip(alone, rows)], weights=lookups) - seen))
    # otherwise sharing would not matter
    check(most > 0.2, f"the tables' own curves are as good: {most}")


def misses_of_plan(binary, folder, options, more):
    """Rows that a training under the plan made with these options fetches from host memory."""
    run(binary, 1, f"{DEVICE} {MODEL} {options} {more} -plan_output plan.json", folder)
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        kernels = [table["compute_kernel"] for table in json.load(file)["tables"]]
    run(binary, 1, f"{MODEL} -plan_input plan.json -output run.h5", folder)
    c = counters(folder)
    return kernels, 0 if c is None else int(c["unique_misses"].sum())


def test_statistics_choose(binary, folder):
    """The device has memory for one of two equal tables. With the statistics, the table of hot ids
    has the cache, in any order."""
    for exponents in ((1.3, 0), (0, 1.3)):
        make(folder, exponents)
        statistics(folder)
        home = "-tables_compute_kernels fused,fused_uvm_caching -tables_cache_load_factor 0.1 -tables_sharding_types table_wise -topology_hbm_cap_per_rank 430000"
        without, plain = misses_of_plan(binary, folder, home, "")
        kernels, missed = misses_of_plan(binary, folder, home, "-options_file s.opts")
        wanted = ["fused_uvm_caching" if exponent else "fused" for exponent in exponents]
        check(kernels == wanted, f"zipf {exponents}: {kernels}, without statistics {without}")
        check(missed <= plain and (without == wanted or missed < 0.8 * plain), f"zipf {exponents}: {missed} misses, without statistics {plain}")


def test_statistics_size_caches(binary, folder):
    """embedding_offload_scaleup spends free device memory on caches only for tables with
    statistics. There are at least a fifth fewer misses."""
    make(folder, (1.0, 1.2, 0))
    statistics(folder)
    home = f"{CACHED} -tables_cache_load_factor 0.05 -tables_sharding_types table_wise -topology_hbm_cap_per_rank 400000 -plan_proposers greedy,embedding_offload_scaleup"
    _, plain = misses_of_plan(binary, folder, home, "")
    _, missed = misses_of_plan(binary, folder, home, "-options_file s.opts")
    check(0 < missed < 0.8 * plain, f"{missed} misses, without statistics {plain}")


def test_statistics_hit_rates(binary, folder):
    """Tables of hot and cold ids: the tool writes -plan_cache_hit_rates, and with this option the
    plan has fewer misses than without the statistics."""
    make(folder, (0.8, 1.3, 1.0, 0))
    statistics(folder)
    home = ("-tables_compute_kernels fused,fused_uvm_caching -tables_cache_load_factor 0.1 -tables_sharding_types table_wise -topology_hbm_cap_per_rank 680000 "
            "-plan_proposers grid_search,greedy,greedy_no_depth,uniform,embedding_offload_scaleup")
    _, plain = misses_of_plan(binary, folder, home, "")
    kernels, missed = misses_of_plan(binary, folder, home, "-options_file s.opts")
    check(kernels == ["fused", "fused_uvm_caching", "fused_uvm_caching", "fused"], f"{kernels}")
    check(missed < 0.8 * plain, f"{missed} misses, without statistics {plain}")
    others, more = misses_of_plan(binary, folder, home, "-options_file s.opts -plan_cache_hit_rates false")
    check(more > missed, f"TorchRec's bandwidth of caches: {others}, {more} misses, with hit rates {missed}")
