#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""measured.py TRSHARD: -plan_cost_model measured computes every option's cost as in
src/plan/RULES.md, section 12, which the test computes again. It refuses missing rates, and changes
no other result."""
import math
import tempfile

from planner_test import Checks, load, run

RATES = {"topology_stream_bw": 2e7, "topology_row_read_bw": 1e7, "topology_row_read_overhead": 60.0, "topology_row_update_bw": 1.1e7,
         "topology_row_update_overhead": 150.0, "topology_half_update": 1.1, "topology_cut_bw": 5e6, "topology_cut_overhead": 16.0, "topology_stochastic_update": 2.0, "topology_intra_host_bw": 5e6, "topology_inter_host_bw": 1e6}
# name: rows, columns, data type, stochastic rounding, pooling, pooling factor, optimizer
TABLES = {"small": (1000, 64, "fp32", False, "sum", 1, "adam"), "large": (3000000, 128, "fp32", False, "mean", 20, "rowwise_adagrad"), "half": (50000, 32, "bf16", False, "sum", 2, "sgd"),
          "random": (7000, 64, "fp16", True, "sum", 3, "rowwise_adagrad"), "ids": (90000, 16, "fp32", False, "none", 5, "partial_rowwise_adam")}
STATES = {"sgd": (0, 0), "rowwise_adagrad": (4, 0), "adam": (0, 8), "partial_rowwise_adam": (4, 4)}
BATCH = 512


def distinct(n, rows):
    return rows * (1 - (1 - 1 / rows) ** n)


def exchange(W, L, n):
    return n * (L - 1) / W / RATES["topology_intra_host_bw"] + n * (W - L) / W / RATES["topology_inter_host_bw"]


def cost(table, kind, cols, W, L, in_place, inference=False):
    """The five parts of a shard's perf. in_place: the model reads whole rows in their receive
    buffers."""
    rows, _, dtype, stochastic, pooling, factor, optimizer = TABLES[table]
    element, per_row = (4 if dtype == "fp32" else 2), STATES[optimizer]
    slow = 1 if dtype == "fp32" else RATES["topology_stochastic_update" if stochastic else "topology_half_update"]
    n = factor * BATCH
    out = n if pooling == "none" else BATCH * min(1, factor)
    sharers = {"row_wise": W, "table_row_wise": L, "grid_shard": L}.get(kind, 1)

    def write_rows(ids, read, written, states):
        return (ids * RATES["topology_row_update_overhead"] + read * 4 * cols + written * 2 * (4 * cols + states)) / RATES["topology_row_update_bw"]

    def update(ids, read, written):
        return slow * write_rows(ids, read, written, per_row[0] + per_row[1] * cols)

    ids, rows_out = (n, out) if kind == "data_parallel" else (n * W / sharers, out * W)
    bags = 0 if pooling == "none" else rows_out
    if pooling == "none":
        rows_out = ids
    forward = (ids * (RATES["topology_row_read_overhead"] + element * cols) + 4 * rows_out * cols) / RATES["topology_row_read_bw"]
    if kind == "data_parallel":
        mine, all_rows = distinct(n, rows), distinct(n * W, rows)
        if inference:
            return forward, (12 * n + 40 * bags) / RATES["topology_stream_bw"], 0, 0
        listed = (12 * n + 40 * bags) / RATES["topology_stream_bw"] + (n + W * mine) * RATES["topology_row_update_overhead"] / RATES["topology_row_update_bw"]
        return (forward, exchange(W, L, 8 * W * mine) + listed, write_rows(n, min(n, out), mine, 0) + update(W * mine, W * mine, all_rows), exchange(W, L, 4 * cols * W * mine))
    there = exchange(W, L, 4 * rows_out * cols) + 8 * rows_out * cols / W / RATES["topology_stream_bw"]
    if in_place == "cpu" and kind == "table_wise":
        there = exchange(W, L, 4 * rows_out * cols) - exchange(W, W, 4 * rows_out * cols * (L - 1) / (W - 1))
    if in_place and kind in ("row_wise", "table_row_wise") or in_place == "cuda" and kind == "table_wise":
        there = exchange(W, L, 4 * rows_out * cols)
    cut = (8 * ids + bags / sharers * RATES["topology_cut_overhead"]) / RATES["topology_cut_bw"] if sharers > 1 else 0
    ids_sent = exchange(W, L, 8 * ids) + cut + (24 * ids + 80 * bags) / RATES["topology_stream_bw"]
    if inference:
        return forward, ids_sent + there, 0, 0
    return forward, ids_sent + there, update(ids, min(ids, rows_out), distinct(ids * sharers, rows) / sharers), there


def problem(W, L, names=tuple(TABLES), **keys):
    options = {"tables": ",".join(names), "batch_size": BATCH, "topology_world_size": W, "topology_local_world_size": L, "topology_compute_device": "cpu", "device": "cpu",
               "plan_dense_parameter_bytes": 0, "tables_min_partition": 8,
               "tables_sharding_types": "data_parallel,table_wise,column_wise,row_wise,table_row_wise,table_column_wise,grid_shard", **keys}
    for name in names:
        rows, cols, dtype, stochastic, pooling, factor, optimizer = TABLES[name]
        options.update({f"table_{name}_{key}": value for key, value in (("num_embeddings", rows), ("embedding_dim", cols), ("data_type", dtype), ("pooling", pooling),
                                                                        ("pooling_factors", factor), ("optimizer", optimizer))})
        if dtype != "fp32":
            options[f"table_{name}_stochastic_rounding"] = str(stochastic).lower()
    return options


def check_costs(c, folder, W, L, in_place, names=tuple(TABLES), **keys):
    code, text = run(folder, problem(W, L, names, plan_cost_model="measured", **keys, **RATES), "-plan_search_space", "space.json", "-plan_output", "plan.json")
    c.check(code == 0, text)
    seen = set()
    for option in load(folder, "space.json")["options"]:
        kind = option["sharding_type"]
        seen.add(kind)
        for shard in option["shards"]:
            found = [shard["perf"][part] for part in ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms")]
            wanted = cost(option["name"], kind, shard["size"][1], W, L, in_place, "plan_is_inference" in keys)
            c.check(all(math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-12) for x, y in zip(found, wanted)) and shard["perf"]["prefetch_compute"] == 0,
                    f"{option['name']} {kind} on {W} ranks, {L} a host: {found}, expected {wanted}")
    c.check({"data_parallel", "table_wise", "column_wise", "row_wise"} <= seen and (L == W or {"table_row_wise", "grid_shard"} <= seen), f"options of {seen} alone")


def main():
    c = Checks()
    with tempfile.TemporaryDirectory(prefix="trshard_measured_") as folder:
        for W, L in ((2, 2), (4, 2), (8, 4)):
            pooled = [name for name in TABLES if name != "ids"]
            check_costs(c, folder, W, L, False)
            check_costs(c, folder, W, L, "cpu", pooled)
            check_costs(c, folder, W, L, "cpu", pooled, plan_is_inference="true")
            check_costs(c, folder, W, L, "cuda", pooled, topology_compute_device="cuda")
            for key, value in (("interaction", "dcn"), ("reproducible", "true"), ("dense_graphs", "true"), ("ebc_variable_batch", "true"), ("embedding_max_gradient", 1), ("table_large_output_dtype", "bf16"),
                               ("table_half_max_gradient", 2)):
                check_costs(c, folder, W, L, False, pooled, **{key: value})
        code, text = run(folder, problem(4, 2, plan_cost_model="measured"))
        c.check(code == 64 and "-plan_cost_model" in text and "-topology_row_read_bw" in text and "-bench_topology" in text, f"{code}: {text}")
        # The rates without the cost model change no plan.
        for name, rates in (("with.json", RATES), ("without.json", {key: RATES[key] for key in ("topology_intra_host_bw", "topology_inter_host_bw")})):
            c.check(run(folder, problem(4, 2, **rates), "-plan_output", name)[0] == 0, name)
        c.check(load(folder, "with.json") == load(folder, "without.json"), "rates changed TorchRec's plan")
    c.finish()


main()
