# SPDX-License-Identifier: BSD-3-Clause
"""What a run says of itself: help, version, banner, stages, allocations, memory."""
import glob
import os
import re

import h5py
import numpy as np

from law_plans import MIXED, MODEL, TABLES, make, train
from trsrun import attribute, check, run, write_dataset

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")
STAGES = ["input_dist", "lookup", "output_dist", "dense forward", "dense backward", "embedding backward", "optimizer", "I/O", "waiting"]


def declared_options():
    """Names in the tables of the sources: plain ones, and keys of tables."""
    names = set()
    for path in glob.glob(os.path.join(SOURCES, "*", "*.c")):
        with open(path, encoding="utf-8") as file:
            names.update(re.findall(r'\{\s*"(-?[a-z][a-z0-9_]*)",\s*TRS_OPTION_', file.read()))
    return names


def test_help(binary, folder):
    """Every option of every folder is in -help, with what may be given and what is taken otherwise; -help all adds PETSc's."""
    text = run(binary, 2, "-help", folder).text
    names = declared_options()
    check(len(names) > 100 and "-batch_size" in names and "embedding_dim" in names, f"found {len(names)} options in the sources")
    words = set(re.findall(r"(?<![\w-])-?[a-z][a-z0-9_]*", text))
    missing = sorted(name for name in names if name not in words and f"-tables_{name}" not in words)
    check(not missing, f"-help lacks {missing}")
    for expected in ("default 512", ">= 1", "one of train, plan, eval"):
        check(expected in text, f"-help does not say '{expected}':\n{text[:3000]}")
    check(max(map(len, text.splitlines())) <= 120, "lines too long for a terminal")
    check("Options for all PETSc programs" not in text, "PETSc's own options without being asked")
    check(len(run(binary, 1, "-help all", folder).text) > len(text), "-help all adds nothing")


def test_version(binary, folder):
    text = run(binary, 2, "-version", folder).text
    check(re.match(r"trshard \d+\.\d+\.\d+ \(\S+\), Open MPI \S+, PETSc \d", text) and len(text.splitlines()) == 1, text)


def test_banner(binary, folder):
    """A run says what it is, where it runs, with what data and plan; the results hold the same."""
    make(folder)
    text = run(binary, 2, f"-data_train train.h5 -batch_size 12 -steps 5 -output run.h5 {MODEL} {TABLES} {MIXED} -report_interval 0", folder).text
    for pattern in (r"trshard \d", r"2 ranks", r"cpu on .*thread", r"Open MPI.*PETSc.*HDF5", r"train\.h5: 200 samples, 3 dense, 5 sparse features",
                    r"row_wise", r"memory .*of tables", r"step 5/5 .*epoch .*loss .*samples/s .*ETA", r"peak memory",
                    r"memory +tables .* batches .* exchanges .* activations .* libraries_and_rest .*rank \d"):
        check(re.search(pattern, text), f"no {pattern!r} in\n{text}")
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        for name in ("version", "options", "plan", "world_size", "hardware", "libraries"):
            check(name in h.attrs, f"results: no attribute {name}")
        kinds, held = attribute(os.path.join(folder, "run.h5"), "held_names").split(","), h["memory/held_bytes"][()]
        tables, states, dense, peak = h["memory/measured_bytes"][()].T
        check(kinds[:3] == ["tables", "optimizer_states", "dense"] and held.shape == (2, len(kinds)), f"held_names {kinds}, {held.shape}")
        check((held.sum(axis=1) == peak).all() and (held[:, [k != "others_pages" for k in kinds]] > 0).all() and (held >= 0).all(), f"memory by kind {held.tolist()} does not add up to the peak {peak.tolist()}")
        check((held[:, 0] == tables).all() and (held[:, 1] == states).all() and (held[:, 2] >= dense).all(), f"{held[:, :3].tolist()}, not {tables}, {states}, {dense}")
        check(h["train/step"][()].tolist() == list(range(5)) and len(h["train/loss"]) == len(h["train/samples_per_s"]) == 5, "results: steps")


def test_log_view(binary, folder):
    """-log_view has a row for every stage of a step, and comes with the overlap of exchanges."""
    make(folder)
    text = run(binary, 2, f"-data_train train.h5 -batch_size 12 -steps 5 {MODEL} {TABLES} {MIXED} -log_view -trace_first_step 2", folder).text
    for what in ("input_dist", "output_dist"):
        check(re.search(rf"^overlap +{what}: \d+% of [\d.]+ ms a step", text, re.M), f"-log_view: no overlap of {what} in {len(text)} characters:\n" + "\n".join(re.findall("^(?:overlap|exposed|trace).*", text, re.M)))
    for stage in STAGES:
        rows = [line for line in text.splitlines() if line.startswith(stage[:12]) and len(line.split()) > 10]
        check(len(rows) == 1, f"-log_view: {len(rows)} rows of {stage}")


def test_no_allocations(binary, folder):
    """Once every batch was seen, in an epoch of 8 steps, no step allocates anything, under any plan and pipeline, between evaluations, too."""
    features = {"user": 50, "item": 30, "tag": 20, "shop": 11, "word": 40}
    path = write_dataset(os.path.join(folder, "train.h5"), 192, features=features)
    with h5py.File(path, "r+") as h:  # two ids of each feature in every sample
        rng = np.random.default_rng(1)
        for name, data in (("lengths", np.full((192, 5), 2, np.int32)), ("offsets", np.arange(193) * 10),
                           ("values", rng.integers(0, 11, 1920).astype(np.int32))):
            del h["sparse"][name]
            h["sparse"][name] = data
    for options in (f"{MIXED} -data_eval train.h5 -eval_every 7", f"{MIXED} -pipeline base", "-tables_sharding_types row_wise", "-tables_sharding_types table_wise", "-embedding_optimizer adam"):
        train(binary, folder, "run", 2, f"{options} -steps 60")
        n = attribute(os.path.join(folder, "run.h5"), "allocations_after_warm_up")
        check(n == 0, f"{options}: {n} allocations after the warm-up")


def test_memory(binary, folder):
    """A rank's memory is its shards, their states and its batches, and at most a quarter more: also when a checkpoint is written and read."""
    features = {"user": 50, "item": 30}
    write_dataset(os.path.join(folder, "train.h5"), 200, features=features)
    model = "-tables_embedding_dim 64 -dense_arch 16,64 -over_arch 16,1 -data_train train.h5 -batch_size 16 -steps 20 -output run.h5"
    large, rows = "-tables_num_embeddings 300000", 300000

    def peak(options):
        run(binary, 2, f"{model} {options}", folder)
        return attribute(os.path.join(folder, "run.h5"), "peak_memory_bytes")

    for optimizer, state in (("sgd", 0), ("rowwise_adagrad", 4), ("adam", 512)):
        for plan in ("row_wise", "table_wise"):
            shared = f"-tables_sharding_types {plan} -embedding_optimizer {optimizer}"
            bytes_of_rank = 2 * rows * (256 + state) / 2
            growth = peak(f"{shared} {large} -checkpoint_final {optimizer}.h5") - peak(shared)
            check(growth <= 1.25 * bytes_of_rank, f"{shared}: {growth / bytes_of_rank:.2f} times the tables and states when writing")
        growth = peak(f"{shared} {large} -init_from {optimizer}.h5") - peak(shared)
        check(growth <= 1.25 * bytes_of_rank, f"{shared}: {growth / bytes_of_rank:.2f} times the tables and states when reading")
