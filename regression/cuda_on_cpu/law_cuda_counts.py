# SPDX-License-Identifier: BSD-3-Clause
"""Whole runs on the stand-in whose calls are counted: allocations, waits, launches, products and
bytes of a step.

regression/case/case.py runs this module. Environment variables that begin with CUDA_ON_CPU_ belong
to the stand-in, so no GPU can run it.
"""
import json
import os
import re
import subprocess
import sys

import h5py
import numpy as np

import model_gpus
from law_cuda import CACHES, MIXED_DIM8, NCCL, count, make_equal_bags, make_even_bags, options_of
from law_plans import FEATURES, MODEL, TABLES, make, train
from law_trace import kernels_of
from trsrun import check, check_close_losses, check_same_tensors, losses, run, same_bits, thin, write_dataset


def test_cuda_product_table(binary, folder):
    """tools/product_table.py makes a table from the times of -log_view_products. A run with
    -dense_product_table then uses its algorithms, without timing them, on any number of ranks. Wrong
    tables are refused once, and entries that no longer hold have no effect."""
    make(folder)
    environment = {"CUBLASLT_ON_CPU_FASTEST": "3"}
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "product_table.py")
    for ranks, more in thin(((1, "-dense_precision bf16"), (2, ""), (4, "-dense_precision tf32")), ((2, "-dense_precision bf16"),)):
        shared = f"{options_of(ranks)} -epochs 1 {NCCL} {more}"
        timed = f"-data_train train.h5 -batch_size {24 // ranks} {MODEL} {TABLES} {shared} -log_view_products"
        log = run(binary, ranks, timed, folder, limit_s=240, environment=environment).text
        with open(os.path.join(folder, "log.txt"), "w") as file:
            file.write(log)
        made = subprocess.run([sys.executable, tool, "log.txt"], cwd=folder, capture_output=True, text=True, check=True).stdout
        with open(os.path.join(folder, "table.txt"), "w") as file:
            file.write(made)
        entries = [line for line in made.splitlines() if " : " in line]
        check(len(entries) > 5 and all(line.startswith("4 of 5 ") for line in entries), f"{more}: table {made}")
        wanted, state = train(binary, folder, "first", ranks, shared, limit_s=240)
        found, other = train(binary, folder, "table", ranks, f"{shared} -dense_product_table table.txt", limit_s=240)
        check(same_bits(found, wanted), f"{more}: losses {list(found)}, without a table {list(wanted)}")  # all algorithms of the stand-in add in one order
        check_same_tensors(other, state, more)
        with h5py.File(os.path.join(folder, "table.h5")) as h:
            check("products" not in h.attrs, f"{more}: timed with a table")
        used = run(binary, ranks, f"{timed} -dense_product_table table.txt", folder, limit_s=240, environment=environment).text
        stars = re.findall(r"^product .* as used .* (\d) of 5\*", used, re.M)
        check(len(stars) >= len(entries) and stars.count("4") >= len(entries), f"{more}: algorithms in use {stars}, {len(entries)} entries")
    words = f"-data_train train.h5 -batch_size 8 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 -steps 2 {NCCL} -dense_product_table"
    for text, replaced, message in ((made.replace(" tile ", " tile 7"), None, None), (made.replace("[", "[other "), None, "no algorithms for"), (made.replace(" of 5", " of 9"), 64, "line 5: the algorithm is not one of"),
                                    (None, 66, "can't be read"), (made, 64, "-reproducible needs")):
        if os.path.exists(os.path.join(folder, "table.txt")):
            os.remove(os.path.join(folder, "table.txt"))
        if text:
            with open(os.path.join(folder, "table.txt"), "w") as file:
                file.write(text)
        told = run(binary, 2, f"{words} table.txt{' -reproducible' if text == made else ''}", folder, status=replaced or 0, limit_s=240).text
        check(message is None or told.count(message) == 1, f"{message}: {told[-2000:]}")


def test_cuda_steady_step(binary, folder):
    """Under every pipeline, 40 steps have the same number of allocations, device-wide waits and
    pageable copies as 20 steps. Hence a steady step has none, and neither have its tables' caches.
    """
    make(folder, 48, largest_bag=1)  # two batches that alternate
    halves = "-dense_allreduce_precision bf16 -dense_bucket_bytes 400"
    every = ("base", "sparse_dist", "prefetch_sparse_dist", f"sparse_dist {halves}")
    # each pipeline and option once
    few = (f"base {halves}", "prefetch_sparse_dist -ebc_variable_batch", "sparse_dist -reproducible")
    for pipeline in thin(every + few, few):
        short, long = (count_steps(binary, folder, f"-pipeline {pipeline}", steps) for steps in (20, 40))
        check(short == long, f"{pipeline}: allocations, device waits and pageable copies of 20 steps {short}, of 40 {long}")


def count_steps(binary, folder, more, steps):
    """[allocations, device waits, pageable copies] of the ranks, from the stand-in's report."""
    caches = CACHES.replace("-pipeline prefetch_sparse_dist", "")
    words = f"-data_train train.h5 -batch_size 12 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 {MIXED_DIM8} {caches} -steps {steps} {NCCL} -dense_max_gradient_norm 0.5 {more}"
    text = run(binary, 2, words, folder, limit_s=240, environment={"CUDA_ON_CPU_REPORT": "1"}).text
    check(text.count("hit rate") >= 2, f"no caches:\n{text[-1000:]}")
    counts = [sorted(count(text, what)) for what in ("allocations", "device waits", "pageable copies")]
    check(len(counts[0]) == 2, f"no report of the stand-in:\n{text[-1000:]}")
    check(sorted(count(text, "ranges begun")) == sorted(int(n) for n in re.findall(r"begun, (\d+) ended", text)), f"a stage's range was not ended:\n{text[-1000:]}")
    # from the first layer, whose input is the dataset's, and the last layer, which has one column;
    # dot's output causes none
    odd = count(text, "odd ones")
    check(len(odd) == 2 and 0 < max(odd) <= 5 * steps, f"{odd} products of {steps} steps with memory on less than 16 bytes:\n{text[-1000:]}")
    check(min(count(text, "ranges begun")) > 5 * steps, f"not a range a stage:\n{text[-1000:]}")
    return counts


def test_cuda_sorts(binary, folder):
    """Ids are sorted in another stream than the products, for all kinds of tables: with position
    weights, shared bags, deduplicated sequences, and copies of tables."""
    make_equal_bags(folder)
    options = "-data_train train.h5 -batch_size 8 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 -steps 4"
    positions = "-tables_position_weighted -tables_max_feature_lengths 2"
    sequences = "-tables_pooling none -tables_sequence_pooling max"
    every = [(ranks, f"-tables_sharding_types {kind} {more}") for ranks, kind in ((1, "table_wise"), (2, "row_wise"), (2, "column_wise"), (2, "data_parallel"))
             for more in ("", positions, "-ebc_variable_batch", f"{sequences} -ec_index_dedup", sequences)]
    every += [(4, f"-plan_replicas 2 -replica_sync gradients -tables_sharding_types {kind} {more}") for kind in ("table_wise", "row_wise") for more in ("", positions, sequences)]
    for ranks, more in thin(every, [every[6], every[7], every[8], every[13], every[19], every[-2]]):
        text = run(binary, ranks, f"{options} {more} {NCCL}", folder, limit_s=240, environment={"CUDA_ON_CPU_REPORT": "1"}).text
        sorts, beside = count(text, "sorts, "), count(text, "in a stream of products")
        check(len(sorts) == len(beside) == ranks and min(sorts) >= 4 and max(beside) == 0, f"{more} on {ranks} ranks: {sorts} sorts, {beside} in the stream of products")


def test_cuda_steady_step_graphs(binary, folder):
    """-dense_graphs: after its capture, a step has no launches, products and copies of the dense
    layers. Instead it has one launch for each part or, on several ranks, for each bucket."""
    # three batches, each always in the same slot, so that no buffer grows and no graph is captured
    # again
    make(folder, 72, largest_bag=1)
    layers = "-dense_arch 16,8 -over_arch 16,8,1 -interaction dcn -dcn_low_rank_dim 4 -dense_optimizer adam"
    for ranks, more, parts in ((1, "", 5), (2, f"{NCCL} -dense_bucket_bytes 400", 5)):
        words = f"-data_train train.h5 -batch_size {24 // ranks} -tables_embedding_dim 8 {layers} -tables_sharding_types table_wise -device cuda {more}"
        plain, graphs = (launches_of(binary, folder, ranks, f"{words} {option}") for option in ("", "-dense_graphs"))
        check(plain["graph launches"] == 0 and plain["graphs"] == 0, f"graphs without -dense_graphs: {plain}")
        check(graphs["graphs"] == 0, f"{ranks} ranks: a step captures again: {graphs}")
        check(graphs["graph launches"] >= parts * ranks if ranks > 1 else graphs["graph launches"] == parts, f"{ranks} ranks: {graphs}")
        check(graphs["products"] == 0 and plain["products"] > 20 * ranks, f"{ranks} ranks: products of a step {graphs}, without graphs {plain}")
        # Every operation of a graph replaces a launch, a product, a copy or a set. Only the copies
        # of the step's numbers are new.
        saved = sum(plain[what] - graphs[what] for what in ("launches", "products", "copies"))
        check(saved + 3 * ranks == graphs["operations"], f"{ranks} ranks: {saved} fewer calls a step, {graphs['operations']} operations in graphs")
        check(4 * graphs["graph launches"] < graphs["operations"], f"{ranks} ranks: graphs of few operations {graphs}")


def launches_of(binary, folder, ranks, words):
    """The increase of the stand-in's counters in a late step, for all ranks."""
    whole = []
    for steps in (12, 18):
        text = run(binary, ranks, f"{words} -steps {steps}", folder, limit_s=240, environment={"CUDA_ON_CPU_REPORT": "1"}).text
        found = {what: sum(count(text, f"{what}\\b")) for what in ("launches", "products", "copies", "graphs", "graph launches")}
        found["operations"] = sum(int(n) for n in re.findall(r"graph launches of (\d+) operations", text))
        check(found["launches"] > 0, f"no report of the stand-in:\n{text[-1000:]}")
        whole.append(found)
    return {what: (whole[1][what] - whole[0][what]) / 6 for what in whole[0]}


def test_cuda_expected(binary, folder):
    """The launches, products, copies and bytes of a step are as listed for users of `run gpu` in
    tools/gpu_expected.txt. In bf16, all products read and write rows of whole 16-byte units, the
    first layer's and the logit's, too."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    told = [line for line in open(os.path.join(top, "tools", "gpu_expected.txt")) if line.startswith("step|")]
    write_dataset(os.path.join(folder, "train.h5"), 192, features={f"cat_{i}": 100 for i in range(26)}, num_dense=13)
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:  # one id for each feature
        for name, values in (("lengths", np.ones((192, 26), np.int32)), ("offsets", np.arange(193) * 26), ("values", np.arange(192 * 26, dtype=np.int32) % 100)):
            del h["sparse"][name]
            h["sparse"][name] = values
    made = []
    dcn = "-interaction dcn -dcn_num_layers 3 -dcn_low_rank_dim 512"
    for name, more in (("DLRM", ""), ("DCN", dcn), ("DLRM bf16", "-dense_precision bf16"), ("DCN bf16", f"{dcn} -dense_precision bf16")):
        step = {batch: step_counts(binary, folder, batch, more) for batch in (32, 64)}
        check((step[32]["odd"] == 0) == ("bf16" in name), f"{name}: {step[32]['odd']:.0f} products a step with memory on less than 16 bytes")
        growth = (step[64]["bytes"] - step[32]["bytes"]) / 32
        made.append(f"step|{name}|{step[32]['launches']:.0f}|{step[32]['products']:.0f}|{step[32]['copies']:.0f}|{step[32]['bytes'] - 32 * growth:.0f}|{growth:.0f}\n")
    check(made == told, f"tools/gpu_expected.txt has\n{''.join(told)}it should have\n{''.join(made)}")


def step_counts(binary, folder, batch, more):
    """The increase of the stand-in's counters in a step of the benchmark's model on one rank."""
    words = (f"-data_train train.h5 -batch_size {batch} -tables_embedding_dim 128 -dense_arch 512,256,128 -over_arch 1024,1024,512,256,1 "
             f"-tables_sharding_types table_wise -device cuda {more}")
    counts = []
    for steps in (3, 5):
        text = run(binary, 1, f"{words} -steps {steps}", folder, limit_s=240, environment={"CUDA_ON_CPU_REPORT": "1"}).text
        counts.append([count(text, what)[0] for what in ("launches", "products", "copies", "bytes copied", "bytes of products", "odd ones")])
    launches, products, copies, copied, moved, odd = ((long - short) / 2 for short, long in zip(*counts))
    return {"launches": launches, "products": products, "copies": copies, "bytes": copied + moved, "odd": odd}


def test_cuda_cross_product(binary, folder):
    """In bf16, one kernel can compute a cross layer's last product and its element-wise part, and in
    the backward the product for a layer's input and the lower layer's element-wise part: the library
    computes fewer products, and the number of launches stays. fp32, -reproducible, and sizes that the
    kernels do not take are computed by two kernels, and so is dcn_full's backward. Graphs have the
    same bits. If products are timed, the faster way is used, and otherwise two kernels are."""
    make(folder)
    batch, rank, D, n = 12, 32, 32, 3
    N = D * (1 + len(FEATURES))
    model = f"-tables_embedding_dim {D} -dense_arch 16,{D} -interaction dcn -dcn_num_layers {n} -dcn_low_rank_dim {rank} {NCCL}"
    shared = f"-data_train train.h5 -batch_size {batch} -over_arch 16,1 {model} -tables_sharding_types table_wise"
    one, two = {"TRSHARD_WAYS": "fused"}, {}

    def step(more, environment):
        counts = []
        for steps in (4, 6):
            text = run(binary, 1, f"{shared} {more} -steps {steps}", folder, limit_s=240, environment={"CUDA_ON_CPU_REPORT": "1", **environment}).text
            counts.append([count(text, what)[0] for what in ("launches", "products", "bytes of products")])
        return [(long - short) / 2 for short, long in zip(*counts)]

    before, now = (step("-dense_precision bf16", environment) for environment in (two, one))
    # each product reads both operands and writes its result; the backward's products also read a gradient
    saved = n * 2 * (batch * rank + N * rank + batch * N) + (n - 1) * 2 * (batch * rank + N * rank + 2 * batch * N)
    check(now == [before[0], before[1] - n - (n - 1), before[2] - saved], f"launches, products and their bytes in a step: {before}, with one kernel {now}")
    every = ("", "-dense_precision bf16 -reproducible", "-dense_precision bf16 -dcn_low_rank_dim 20")
    for more in thin(every, every[1:2]):
        check(step(more, two) == step(more, one), f"{more}: the kernel is used")
    full = "-dense_precision bf16 -interaction dcn_full"
    before, now = (step(full, environment) for environment in (two, one))
    check(now[:2] == [before[0], before[1] - n], f"dcn_full: launches, products: {before}, with one kernel {now}")
    words = f"{model} -epochs 2 -dense_precision bf16"
    wanted, _ = train(binary, folder, "two", 1, words, limit_s=240, environment=two)
    found, state = train(binary, folder, "one", 1, words, limit_s=240, environment=one)
    check_close_losses(found, wanted, 2e-3, "one kernel")
    graphs, other = train(binary, folder, "graphs", 1, f"{words} -dense_graphs", limit_s=240, environment=one)
    check(same_bits(graphs, found), f"-dense_graphs: losses {list(graphs)}, without {list(found)}")
    check_same_tensors(other, state, "-dense_graphs")
    # no algorithm has number 9, so all products of the library are slow
    for fastest, way, environment in ((9, "one kernel", {}), (0, "two kernels", {"CUDA_ON_CPU_SLOW": "cross_tensor_"})):
        timed, _ = train(binary, folder, f"timed{fastest}", 1, f"{words} -dense_product_algorithms 2", limit_s=240,
                         environment={"CUBLASLT_ON_CPU_FASTEST": str(fastest), **environment})
        check_close_losses(timed, wanted, 2e-3, way)
        with h5py.File(os.path.join(folder, f"timed{fastest}.h5")) as h:
            lines = [line for line in h.attrs["products"].splitlines() if re.match("(first )?cross layer", line)]
        check(len({line.split(" of ")[0] for line in lines}) == 3 and all(f": {way}, " in line for line in lines), f"{way}: {lines}")


def test_cuda_kernel_times(binary, folder):
    """-log_view_kernels times the launches of a step between events, on one and two ranks, with and without graphs, and does not change
    the run. A product's operations are those of its shape. -log_view_products times each shape, as used, without its epilogue, and
    beside a kernel that sums, and says which algorithm was used."""
    make(folder, 192)
    for ranks, more in thin(((1, ""), (1, "-dense_graphs"), (2, "-dense_precision bf16"), (1, "-interaction dcn -dcn_low_rank_dim 4 -dense_graphs")), ((1, "-dense_graphs"), (2, "-dense_precision bf16"))):
        shared = f"{options_of(ranks)} -epochs 3 {NCCL} {more}"
        wanted, state = train(binary, folder, "plain", ranks, shared, limit_s=240)
        found, other = train(binary, folder, "timed", ranks, f"{shared} -log_view_kernels -log_view_products", limit_s=240)
        check(same_bits(found, wanted), f"{more}: other losses")
        check_same_tensors(other, state, more)
    words = f"-data_train train.h5 -batch_size 24 {MODEL} {TABLES} {NCCL} -epochs 3 -log_view_kernels -existing_outputs replace"
    text = run(binary, 1, f"{words} -log_view_products", folder, limit_s=240).text
    kernels = kernels_of(text)
    check({"bce: loss_kernel"} <= {re.sub("bce: .*", "bce: loss_kernel", name) for name in kernels}, f"{sorted(kernels)}")
    check(any(name.startswith("dot_") for name in kernels) and "tbe_forward" in " ".join(kernels), f"{sorted(kernels)}")
    products = {name: numbers for name, numbers in kernels.items() if " x " in name}
    # four layers: forward and gradient of the weight, and gradient of the input but for the first layer, whose input is the data
    check(sum(numbers[1] for numbers in products.values()) == 11, f"{sorted(products)}")
    first = re.compile(r"24 x 16 x 3 NT fp32 to fp32 bias relu mask")
    check(sum(bool(first.fullmatch(name)) for name in products) == 1, f"{sorted(products)}")
    lines = [re.fullmatch(r"product +([\d.]+) (as used|plain|sums|own sum) .* (\d+ of \d+[* ]|-) +(\d+|-) +(\d+|-) +(\d+|-)  (\d+ x .*)", line) for line in text.splitlines()]
    lines = [line for line in lines if line]
    shapes = {line[7] for line in lines}
    check(shapes == set(products), f"shapes {sorted(shapes ^ set(products))} are only in one report")
    for shape in shapes:
        ways = [line[2] for line in lines if line[7] == shape]
        check(ways.count("as used") == 5 and ways.count("plain") == (5 if shape.endswith(("mask", "masked", "relu", "bias", "sums")) else 0), f"{shape}: {ways}")
        # the gradient of a weight: with the sums of the bias' gradient, and beside a kernel that makes them
        check(ways.count("own sum") == (" TN " in shape) and ways.count("sums") == 5 * shape.endswith("fp32") * (" TN " in shape), f"{shape}: {ways}")
        check(sum("*" in line[3] for line in lines if line[7] == shape) == 1, f"{shape}: not one algorithm was used")
    # with graphs, the dense layers are a line
    check("graph" in kernels_of(run(binary, 1, f"{words} -dense_graphs", folder, limit_s=240).text), "no time of graphs")


def test_cuda_model_gpus(binary, folder):
    """The bytes of the exchanges in tools/model_gpus.py are those of a run's trace."""
    make_even_bags(folder, 160, 1, rows=64)
    with open(os.path.join(folder, "model.yaml"), "w", encoding="ascii") as file:
        file.write('num_dense: 2\ndense_arch: "8,8"\nover_arch: "8,1"\ninteraction: dcn\ndcn_num_layers: 2\ndcn_low_rank_dim: 4\ntables_embedding_dim: 8\n'
                   'tables: "f0,f1,f2,f3"\ntable:\n' + "".join(f"  f{i}:\n    num_embeddings: 64\n    pooling_factors: 1\n" for i in range(4)))
    model, ranks, batch = model_gpus.read_model(os.path.join(folder, "model.yaml")), 2, 16
    run(binary, ranks, f"-options_file model.yaml -data_train train.h5 -batch_size {batch} -tables_sharding_types table_wise -dense_precision bf16 -steps 5 {NCCL} "
                       "-trace trace.json -trace_first_step 2 -trace_steps 2", folder, limit_s=240)
    with open(os.path.join(folder, "trace.json"), encoding="ascii") as file:
        spans = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X" and event["args"].get("bytes", -1) >= 0]
    wanted = model_gpus.exchanged_bytes(model, ranks, batch)
    told = {}
    for span in spans:
        told.setdefault((span["pid"], span["args"]["step"]), {}).setdefault(span["name"], []).append(span["args"]["bytes"])
    check(len(told) == 4, f"ranks and steps {sorted(told)}")
    for at, kinds in told.items():
        # the trace counts the block that a rank keeps, except that the pooled rows of a rank's own tables are not sent to itself
        own = ranks * wanted["pooled rows"]
        check(sorted(kinds["rows"]) == [wanted["pooled rows"], own] and wanted["gradients of rows"] == wanted["pooled rows"], f"{at}: {kinds['rows']} for {wanted}")
        check(sum(kinds["ids"]) == ranks * wanted["ids"] and len(kinds["ids"]) == model_gpus.calls(model, "ids"), f"{at}: {kinds['ids']} for {wanted}")
        # every weight and bias begins at a multiple of 64 bytes
        check(0 <= sum(kinds["dense gradients"]) - wanted["dense gradients"] < 14 * 64, f"{at}: {kinds['dense gradients']} for {wanted}")
