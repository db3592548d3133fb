# SPDX-License-Identifier: BSD-3-Clause
"""Inference with quantised tables, against numpy's result and under every plan."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import h5py
import numpy as np

import quantised
from law_plans import FEATURES, MODEL, make, train
from trsrun import PATIENT, Job, attribute, check, check_same_tensors, run, same_bits, tensors, thin, thinned, write_dataset

# Sum and mean, two features of one table, weights, a sequence table (the mean of its rows), and a
# table whose width is not divisible by a power of two.
TABLES = {
    "user": dict(data_type="int8"),
    "item": dict(data_type="int4", features=["item", "shop"]),
    "tag": dict(data_type="int2", pooling="mean"),
    "word": dict(data_type="int8", weighted=True),
}
OPTIONS = ("-tables user,item,tag,word -table_item_features item,shop -table_item_num_embeddings 30 -table_tag_pooling mean "
           "-table_word_is_weighted -tables_min_partition 4")
KINDS = ("table_wise", "column_wise", "row_wise")
TYPES = " ".join(f"-table_{name}_data_type {table['data_type']}" for name, table in TABLES.items())
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")


def make_trained(folder, binary, samples=200, options=""):
    """Write train.h5, eval.h5 with 77 samples, and a checkpoint of a short training with large
    steps, so that rows spread."""
    make(folder, samples, weighted=True)
    write_dataset(os.path.join(folder, "eval.h5"), 77, seed=8, features=FEATURES, weighted=True)
    _, state = train(binary, folder, "trained", 2, f"{OPTIONS} -epochs 2 -embedding_learning_rate 0.3 {options}")
    return state


def predicted(binary, folder, ranks, options, name="predicted", batch=10):
    size = "" if "-batch_size" in options else f"-batch_size {batch}"
    run(binary, ranks, f"-task predict -data_eval eval.h5 {size} -output {name}.h5 {MODEL} {OPTIONS} {options}", folder)
    with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
        return h["predictions"][()]


def sign_bits(path):
    """Declare the tables' bits as signed, as a program without unsigned types would."""
    with h5py.File(path, "r+") as h:
        del h["checksums"]
        for table in h["embedding"].values():
            for name, item in list(table.items()):
                if item.dtype.kind == "u":
                    bits, attributes = item[()], dict(item.attrs)
                    del table[name]
                    table.create_dataset(name, data=bits.view(f"i{bits.itemsize}")).attrs.update(attributes)


def same_batch(ranks):
    """The global batch is the same for any number of ranks, and sums are in its order, hence the
    bits are equal. Otherwise a BLAS may sum differently for another batch size."""
    return f"-reproducible -batch_size {24 // ranks}"


def check_near(found, wanted, tolerance, what):
    check(found.shape == wanted.shape, f"{what}: {found.shape} predictions for {wanted.shape}")
    off = np.max(np.abs(found - wanted))
    check(off <= tolerance, f"{what}: predictions differ by {off:.1e}, allowed {tolerance:.0e}")


@thinned
def test_predict_definition(binary, folder):
    """Every plan on 1, 2, 3, 4 and 8 ranks, with batches that divide unevenly, agrees with numpy.
    With -reproducible, all of them have equal bits."""
    state = make_trained(folder, binary)
    wanted = quantised.predict(os.path.join(folder, state), os.path.join(folder, "eval.h5"), TABLES)
    coarse = quantised.predict(os.path.join(folder, state), os.path.join(folder, "eval.h5"), {n: dict(t, data_type="fp32") for n, t in TABLES.items()})
    check(np.max(np.abs(wanted - coarse)) > 1e-4, "the types make no difference: nothing is tested")
    mixed = "table_wise,column_wise,row_wise"
    every = [(ranks, kind) for ranks in (1, 2, 3, 4, 8) for kind in KINDS + (mixed,)]
    for ranks, kind in thin(every, [(1, "table_wise"), (2, "column_wise"), (3, "row_wise"), (8, mixed)]):
        found = predicted(binary, folder, ranks, f"-init_from {state} {TYPES} -tables_sharding_types {kind}")
        check_near(found, wanted, 1e-6, f"{kind} on {ranks} ranks")
    with h5py.File(os.path.join(folder, "predicted.h5")) as h:
        check(h["eval/auc"].shape == (1,) and h["predict/latency_ms"].shape == (1,), "metrics or latencies are missing")
        check(h["predict/samples"][()].tolist() == [77], f"predict/samples is {h['predict/samples'][()]}")
        latency = h["predict/latency_percentiles_ms"][()]
        check(np.all(latency > 0) and np.all(np.diff(latency) >= 0) and h["predict/samples_per_s"][0] > 0, f"latency {latency}")
        held = h["memory/table_bytes"][()]
        check(held.shape == (8, 2) and np.all(held[:, 0] <= held[:, 1] * 2), f"table bytes {held}")
    first = None
    plans = ((1, "table_wise"), (2, "column_wise"), (3, "row_wise"), (4, "table_wise"), (8, "column_wise"))
    for ranks, kind in thin(plans, plans[:3]):
        found = predicted(binary, folder, ranks, f"-init_from {state} {TYPES} -tables_sharding_types {kind} {same_batch(ranks)}")
        first = found if first is None else first
        check(same_bits(found, first), f"{kind} on {ranks} ranks: other bits")


@thinned
def test_predict_types(binary, folder):
    """fp32 tables give the evaluation's bits, and each other type agrees with numpy. Cases: pooled
    outputs in fp16 and bf16, sequence tables, and a half-precision checkpoint."""
    state = make_trained(folder, binary)
    run(binary, 2, f"-task eval -data_eval eval.h5 -init_from {state} -batch_size 10 -output eval.h5.run {MODEL} {OPTIONS}", folder)
    with h5py.File(os.path.join(folder, "eval.h5.run")) as h:
        evaluated = h["predictions"][()]
    found = predicted(binary, folder, 2, f"-init_from {state} -tables_sharding_types table_wise")
    check_near(found, evaluated, 1e-6, "no data_type")
    paths = os.path.join(folder, state), os.path.join(folder, "eval.h5")
    every = [(data_type, output) for data_type in ("fp16", "bf16", "int8", "int4", "int2") for output in ("fp32", "fp16", "bf16")]
    # each type and each output
    for data_type, output in thin(every, [every[i] for i in (0, 4, 8, 10, 14)]):
        tables = {name: dict(table, data_type=data_type, output_dtype=output) for name, table in TABLES.items()}
        found = predicted(binary, folder, 3, f"-init_from {state} -tables_data_type {data_type} -tables_output_dtype {output}")
        # a pooled sum between two halves may round to either one: one unit of the output's last
        # place
        check_near(found, quantised.predict(*paths, tables), {"fp32": 1e-6, "fp16": 2e-4, "bf16": 2e-3}[output], f"{data_type}, output {output}")
    same = [predicted(binary, folder, ranks, f"-init_from {state} {TYPES} -tables_output_dtype fp16 {same_batch(ranks)} -tables_sharding_types {kind}")
            for ranks, kind in ((1, "table_wise"), (3, "row_wise"), (4, "column_wise"))]
    check(all(same_bits(p, same[0]) for p in same), "-reproducible: other bits")
    for pooling in ("max", "mean"):
        sequence = {name: dict(table, pooling=pooling) if name == "user" else table for name, table in TABLES.items()}
        found = predicted(binary, folder, 3, f"-init_from {state} {TYPES} -table_user_pooling none -table_user_sequence_pooling {pooling}")
        check_near(found, quantised.predict(*paths, sequence), 1e-6, f"a sequence table, {pooling}")
    found = predicted(binary, folder, 3, f"-init_from {state} {TYPES} -ebc_variable_batch")
    check_near(found, quantised.predict(*paths, TABLES), 1e-6, "equal bags once")
    found = predicted(binary, folder, 3, f"-init_from {state} {TYPES} -qcomm_forward_precision fp16 -tables_output_dtype fp16 -tables_sharding_types column_wise")
    wanted = predicted(binary, folder, 3, f"-init_from {state} {TYPES} -tables_output_dtype fp16 -tables_sharding_types column_wise")
    check(same_bits(found, wanted), "fp16 exchanges of fp16 outputs: other bits")
    positions = "-table_user_position_weighted -table_user_max_feature_lengths 3"
    state = make_trained(folder, binary, options=positions)
    found = predicted(binary, folder, 3, f"-init_from {state} {TYPES} {positions}")
    check_near(found, quantised.predict(*paths, {n: dict(t, positions=n == "user") for n, t in TABLES.items()}), 1e-6, "position weights")
    state = make_trained(folder, binary, options="-table_user_data_type fp16 -table_word_data_type bf16")
    found = predicted(binary, folder, 2, f"-init_from {state} {TYPES}")
    check_near(found, quantised.predict(*paths, TABLES), 1e-6, "from fp16 and bf16")


@thinned
def test_predict_training_options(binary, folder):
    """Training constraints that quantised tables cannot satisfy, such as replicas and kernels of
    trainable tables, do not apply to a prediction."""
    replicas = "-tables_sharding_types data_parallel -tables_compute_kernels dense"
    state = f"-init_from {make_trained(folder, binary, options=replicas)} {same_batch(2)}"
    wanted = predicted(binary, folder, 2, state)
    for name, words in (("replicas", replicas), ("kernels", "-tables_compute_kernels fused,fused_uvm_caching")):
        check(same_bits(predicted(binary, folder, 2, f"{state} {words}", name), wanted), f"{words}: other predictions")


def test_predict_checkpoint(binary, folder):
    """-quant_checkpoint: every plan writes numpy's bytes, and every other plan reads them with the
    same predictions. Also the newest checkpoint of -checkpoint_dir."""
    state = make_trained(folder, binary, options="-checkpoint_dir ckpt -checkpoint_every 8")
    wanted = predicted(binary, folder, 1, f"-checkpoint_dir ckpt {TYPES} {same_batch(1)}")
    check(same_bits(wanted, predicted(binary, folder, 1, f"-init_from {state} {TYPES} {same_batch(1)}")), "-checkpoint_dir: other predictions")
    weights = tensors(os.path.join(folder, state))
    cuts = ((2, "table_wise"), (3, "column_wise"), (2, "row_wise"))
    for ranks, kind in ((1, "table_wise"), (2, "column_wise"), (3, "row_wise"), (4, "column_wise")):
        predicted(binary, folder, ranks, f"-init_from {state} {TYPES} -tables_sharding_types {kind} -quant_checkpoint quant{ranks}.h5")
        check_same_tensors(os.path.join(folder, f"quant{ranks}.h5"), os.path.join(folder, "quant1.h5"), f"{kind} on {ranks} ranks")
        for other, cut in thin(cuts, cuts[ranks % 3:ranks % 3 + 1]):
            found = predicted(binary, folder, other, f"-init_from quant{ranks}.h5 -tables_sharding_types {cut} {same_batch(other)}")
            check(same_bits(found, wanted), f"{kind} on {ranks} ranks, then {cut} on {other}: other bits")
    found = tensors(os.path.join(folder, "quant2.h5"))
    for name, table in TABLES.items():
        check(f"embedding/{name}/weight" not in found, f"{name}: the original is there, too")
        rows, _ = quantised.quantise(weights[f"embedding/{name}/weight"], table["data_type"])
        check(same_bits(found[f"embedding/{name}/weight_quantised"], rows), f"{name}: other bytes than numpy's")
    check(attribute(os.path.join(folder, "quant2.h5"), "step") == attribute(os.path.join(folder, state), "step"), "another step")
    types = f"-tables_data_type int8 -table_word_data_type bf16 {same_batch(2)}"
    wanted = predicted(binary, folder, 2, f"-init_from {state} {types} -quant_checkpoint bits.h5")
    sign_bits(os.path.join(folder, "bits.h5"))
    check(same_bits(predicted(binary, folder, 2, f"-init_from bits.h5 {types}"), wanted), "bits of a signed type: other predictions")
    # whole numbers: an ordinary checkpoint
    predicted(binary, folder, 2, f"-init_from {state} -tables_data_type fp16 -quant_checkpoint half.h5")
    run(binary, 2, f"-task eval -data_eval eval.h5 -init_from half.h5 -tables_data_type fp16 {MODEL} {OPTIONS}", folder)


def test_predict_serving(binary, folder):
    """Data without labels, any batch size, and training options in the same file. Damage to a
    checkpoint that was changed later is reported."""
    state = make_trained(folder, binary)
    with h5py.File(os.path.join(folder, "eval.h5"), "r+", libver="latest") as h:
        del h["labels"]
    wanted = predicted(binary, folder, 1, f"-init_from {state} {TYPES} -tables_sharding_types table_wise")
    with h5py.File(os.path.join(folder, "predicted.h5")) as h:
        check("eval" not in h, "metrics without labels")
    for ranks, batch in ((1, 1), (2, 7), (3, 64), (4, 200)):
        found = predicted(binary, folder, ranks, f"-init_from {state} {TYPES} -data_train train.h5 -epochs 3 -embedding_optimizer adam "
                          "-embedding_learning_rate 0.1 -checkpoint_final never.h5 -data_shuffle -tables_sharding_types table_wise", batch=batch)
        check_near(found, wanted, 1e-6, f"batches of {batch} on {ranks} ranks")
        with h5py.File(os.path.join(folder, "predicted.h5")) as h:
            sizes = h["predict/samples"][()]
        check(sizes.sum() == 77 and len(sizes) == -(-77 // (ranks * batch)), f"batches {sizes}")
    check(not os.path.exists(os.path.join(folder, "never.h5")), "-checkpoint_final was written")


def declare_more(path):
    """Newer data, which declares more rows than the tables have."""
    with h5py.File(path, "r+", libver="latest") as h:
        h["sparse"].attrs["num_embeddings"] = h["sparse"].attrs["num_embeddings"] + 1000


def unknown_ids(folder):
    """eval.h5 gets ids that the tables user and item lack, and known.h5 has 0 in their places.
    Returns their number for each table."""
    shutil.copyfile(os.path.join(folder, "eval.h5"), os.path.join(folder, "known.h5"))
    with h5py.File(os.path.join(folder, "eval.h5"), "r+", libver="latest") as h, h5py.File(os.path.join(folder, "known.h5"), "r+", libver="latest") as known:
        feature = np.tile(np.arange(len(FEATURES)), len(h["sparse/lengths"])).repeat(h["sparse/lengths"][()].ravel())
        names, values = np.array(list(FEATURES))[feature], h["sparse/values"][()]
        unknown = (np.arange(len(values)) % 7 == 0) & np.isin(names, ["user", "item", "shop"])
        known["sparse/values"][...] = np.where(unknown, 0, values)
        h["sparse/values"][...] = np.where(unknown, 500 + values, values)
        return {"user": (unknown & (names == "user")).sum(), "item": (unknown & (names != "user")).sum()}


def test_predict_newer_data(binary, folder):
    """If data declares more rows than the model's tables, only -bounds_check_mode determines the
    effect of an unknown id, in predict, eval and evaluations of a training."""
    state = make_trained(folder, binary)
    eval_words = f"-task eval -init_from {state} -data_eval {{}}.h5 -batch_size 8 -output {{}}.h5 {MODEL} {OPTIONS}"
    before = predicted(binary, folder, 2, f"-init_from {state}")
    declare_more(os.path.join(folder, "eval.h5"))
    check(same_bits(predicted(binary, folder, 2, f"-init_from {state} -bounds_check_mode fatal"), before), "fatal: other predictions for the same ids")
    counts = unknown_ids(folder)
    known = predicted(binary, folder, 2, f"-init_from {state} -bounds_check_mode fatal -data_eval known.h5", name="wanted")
    run(binary, 3, eval_words.format("known", "wanted") + " -existing_outputs replace", folder)
    wanted = {"predict": known, "eval": tensors(os.path.join(folder, "wanted.h5"))["predictions"]}
    check(not same_bits(known, before), "nothing is tested")
    for task, ranks, words in (("predict", 2, f"-task predict -init_from {state} -data_eval eval.h5 -batch_size 10 -output found.h5 {MODEL} {OPTIONS}"), ("eval", 3, eval_words.format("eval", "found"))):
        for mode in ("", "-bounds_check_mode warning", "-bounds_check_mode ignore", "-table_user_bounds_check_mode ignore"):
            text = run(binary, ranks, f"{words} {mode} -existing_outputs replace", folder).text
            check(same_bits(tensors(os.path.join(folder, "found.h5"))["predictions"], wanted[task]), f"{task} {mode}: unknown ids are not 0")
            for table, n in counts.items():
                said = f"warning: {task}: table {table}: {n} ids outside" in text
                check(said == ("ignore" not in mode or table not in mode and "table_" in mode), f"{task} {mode}: {table}\n{text[-1500:]}")
        text = run(binary, ranks, f"{words} -bounds_check_mode fatal", folder, status=65).text
        check(re.search(r'eval\.h5: feature "\w+" of sample \d+ has id \d+, expected 0 to ', text), f"{task}: {text[-600:]}")
    training = f"-data_train train.h5 -data_eval {{}}.h5 -eval_every 5 -steps 10 -batch_size 8 -output {{}}.h5 {MODEL} {OPTIONS}"
    run(binary, 2, training.format("known", "trained_known"), folder)
    text = run(binary, 2, training.format("eval", "trained_new"), folder).text
    check(text.count("warning: eval: table user:") == 1, text[-1500:])
    check(same_bits(*(tensors(os.path.join(folder, f"trained_{name}.h5"))["eval/loss"] for name in ("known", "new"))), "another loss of evaluations")
    text = run(binary, 2, f"-data_train eval.h5 -steps 1 -batch_size 8 {MODEL} {OPTIONS}", folder, status=64).text
    check("range to 1030" in text, f"a training takes data of more rows than its table: {text[-600:]}")


def test_predict_cost(binary, folder):
    """The loss by quantisation, on data with something to learn: the tool's table is consistent,
    finer types lose less, and int8 loses almost nothing."""
    def tool(name, *words):
        done = subprocess.run([sys.executable, os.path.join(TOOLS, name), *words], cwd=folder, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    tool("generate_data.py", "--output", "train.h5", "--num-samples", "20000", "--output-eval", "eval.h5", "--num-eval", "5000", "--features", "4",
         "--num-embeddings", "500", "--num-dense", "4")
    with open(os.path.join(folder, "run.opts"), "w", encoding="ascii") as out:
        out.write("-data_train train.h5\n-batch_size 128\n-epochs 2\n-tables_embedding_dim 16\n-dense_arch 16,16\n-over_arch 16,1\n"
                  "-embedding_optimizer adagrad\n-embedding_learning_rate 0.1\n-dense_learning_rate 0.1\n")
    run(binary, 1, "-options_file run.opts -checkpoint_final final.h5", folder)
    print(tool("measure_quantisation.py", "--binary", binary, "--options", "run.opts", "--eval", "eval.h5", "--json", "cost.json", "final.h5"))
    with open(os.path.join(folder, "cost.json"), encoding="ascii") as file:
        cost = {row["data_type"]: row for row in json.load(file)}
    check(cost["fp32"]["max_dp"] == 0 and cost["fp32"]["auc_loss"] == 0, f"fp32 against itself: {cost['fp32']}")
    check(cost["fp32"]["auc"] > 0.6, f"nothing was learnt: AUC {cost['fp32']['auc']}")
    for finer, coarser in (("fp16", "bf16"), ("fp16", "int8"), ("int8", "int4"), ("int4", "int2")):
        check(0 < cost[finer]["mean_dp"] < cost[coarser]["mean_dp"], f"{finer} is off by {cost[finer]['mean_dp']}, {coarser} by {cost[coarser]['mean_dp']}")
    check(abs(cost["int8"]["auc_loss"]) < 2e-3 and cost["int8"]["max_dp"] < 0.05, f"int8 loses {cost['int8']}")
    check(cost["int2"]["auc_loss"] > 0 and cost["int2"]["ne_loss"] > 0, f"int2 loses {cost['int2']}")
    sizes = {name: row["table_bytes"] for name, row in cost.items()}
    check(sizes == {"fp32": 4 * 500 * 64, "fp16": 4 * 500 * 32, "bf16": 4 * 500 * 32, "int8": 4 * 500 * 32, "int4": 4 * 500 * 16, "int2": 4 * 500 * 16},
          f"table bytes {sizes}")
    run(binary, 2, "-options_file run.opts -task predict -data_eval eval.h5 -init_from final.h5 -tables_data_type int4 -quant_checkpoint quant.h5", folder)
    check("PROBLEM" not in tool("inspect_file.py", "--check", "quant.h5"), "inspect_file.py finds problems")


def test_predict_streams(binary, folder):
    """A table's numbers and its quantised rows are never in memory together. Memory grows only by
    the quantised rows."""
    rows, dim = 400000, 64
    peaks = {}
    for name, n in (("small", 100), ("big", rows)):
        with h5py.File(os.path.join(folder, f"{name}.h5"), "w", libver="latest") as h:
            h.attrs["format"], h.attrs["version"] = "trshard-checkpoint", 1
            h["embedding/big/weight"] = np.tile(np.linspace(-1, 1, 100 * dim, dtype=np.float32).reshape(100, dim), (n // 100, 1))
            for module, sizes in (("dense_arch", (3, dim)), ("over_arch", (dim + 1, 8, 1))):
                for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
                    h[f"dense/{module}/{i}/weight"] = np.full((n_out, n_in), 0.1, np.float32)
                    h[f"dense/{module}/{i}/bias"] = np.zeros(n_out, np.float32)
        write_dataset(os.path.join(folder, "eval.h5"), 20, features={"big": n})
        run(binary, 1, f"-task predict -data_eval eval.h5 -init_from {name}.h5 -tables_data_type int8 -output {name}.run -batch_size 8 "
            f"-tables_embedding_dim {dim} -dense_arch {dim} -over_arch 8,1", folder)
        peaks[name] = int(attribute(os.path.join(folder, f"{name}.run"), "peak_memory_bytes"))
    held = rows * 80  # 4 bytes of parameters, 64 values, padded to 16
    grown = peaks["big"] - peaks["small"]
    check(held / 2 < grown < held + rows * dim * 4 / 4, f"memory grew by {grown} bytes for {held} quantised and {rows * dim * 4} of numbers")


def test_predict_stopped(binary, folder):
    """SIGTERM between batches: status 75 on every rank, and no partial output."""
    state = make_trained(folder, binary)
    write_dataset(os.path.join(folder, "eval.h5"), 60000, seed=8, features=FEATURES, weighted=True)
    job = Job(binary, 2, f"-task predict -data_eval eval.h5 -batch_size 1 -output late.h5 {MODEL} {OPTIONS} -init_from {state} {TYPES}", folder,
              launcher=PATIENT, environment={"TRSHARD_CROWDED": "1"})  # slow exchanges
    job.read_to("weights")  # tables are in memory, and 30000 batches follow
    os.kill(job.pid(1), signal.SIGTERM)
    result = job.wait(60)
    check(result.ranks == {0: 75, 1: 75}, f"exit status by rank {result.ranks}:\n{result.text[-2000:]}")
    check("stopped on request after batch" in result.text, f"no word of it:\n{result.text[-2000:]}")
    check(not [name for name in os.listdir(folder) if name.startswith("late")], f"left: {os.listdir(folder)}")
