# SPDX-License-Identifier: BSD-3-Clause
"""Runs that are repeated, resumed, evaluated, or configured in another way."""
import os
import shlex

import h5py
import numpy as np

from law_plans import FEATURES, MIXED, MODEL, TABLES, TOLERANCE, make, train
from trsrun import attribute, check, check_close_losses, check_close_tensors, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset


def test_repeat(binary, folder):
    """Repeated runs have the same bits, with one thread and two."""
    make(folder)
    wanted, state = train(binary, folder, "first", 3, f"{MIXED} -epochs 2")
    for name, threads in (("second", "1"), ("threads", "2")):
        found, other = train(binary, folder, name, 3, f"{MIXED} -epochs 2", environment={"OMP_NUM_THREADS": threads})
        check(same_bits(found, wanted), f"{name}: other losses")
        check_same_tensors(other, state, name)


def test_options_without_effect(binary, folder):
    """Unused options of the command line are named once. Unused options of an option file are
    not."""
    make(folder)
    shared = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES}"
    told = lambda text: sorted(line.split()[2] for line in text.splitlines() if "had no effect" in line)
    with open(os.path.join(folder, "run.opts"), "w", encoding="ascii") as out:
        out.write("-softmax_temperature 0.1\n-checkpoint_keep 3\n-predict_towers both\n")
    for options, wanted in (("-steps 2 -softmax_temperature 0.1 -predict_embeddings user", ["-predict_embeddings", "-softmax_temperature"]), ("-task plan -output none.h5 -steps 3", ["-output", "-seed", "-steps"]),
                            ("-steps 2 -checkpoint_final final.h5 -options_file run.opts -reader_threads 1 -watchdog_seconds 50 -eval_every 0", [])):
        text = run(binary, 2, f"{shared} {options}", folder).text
        check(told(text) == wanted, f"{options}: told of {told(text)}:\n{text}")
    text = run(binary, 2, f"-task eval -init_from final.h5 -data_eval train.h5 -batch_size 12 -steps 4 {TABLES}", folder).text
    check(told(text) == ["-steps"], f"told of {told(text)}")


@thinned
def test_threads_equal(binary, folder):
    """Layers and batches so large that every kernel uses several threads: the same bits with 1 to 4
    threads, on both pipelines."""
    make(folder, 2048)
    large = (f"-data_train train.h5 -batch_size 1024 -epochs 3 -tables_embedding_dim 64 -dense_arch 128,64 -over_arch 512,256,1 "
             f"-interaction cat -seed 3 {TABLES} {MIXED} -output run.h5")
    wanted = None
    every = ((1, "base"), (1, "sparse_dist"), (2, "base"), (2, "sparse_dist"), (3, "base"), (4, "sparse_dist"))
    for threads, pipeline in thin(every, every[::3] + every[5:]):
        what = f"{threads} threads, {pipeline}"
        final = os.path.join(folder, f"{threads}{pipeline}.h5")
        run(binary, 2, f"{large} -pipeline {pipeline} -checkpoint_final {final}", folder,
            environment={"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"})
        found = losses(os.path.join(folder, "run.h5"))
        if wanted is None:
            wanted, state = found, final
        check(same_bits(found, wanted), f"{what}: losses {found} for {wanted}")
        check_same_tensors(final, state, what)


def test_instruction_sets(binary, folder):
    """-cpu_isa and TRSHARD_ISA, which has lower priority, are used and reported. A run with fewer
    instructions gives the same result."""
    make(folder)
    wanted = None
    for isa, option in (("", ""), ("avx2", ""), ("portable", ""), ("avx2", "portable")):
        words = f"-data_train train.h5 -batch_size 12 -epochs 2 {MODEL} {TABLES} {MIXED} -embedding_optimizer adagrad -output run.h5 -checkpoint_final {isa}.h5 -cpu_isa {option or 'auto'}"
        text = run(binary, 2, words, folder, environment={"TRSHARD_ISA": isa} if isa else {}).text
        check("portable" not in (isa, option) or "(portable, " in text, f"the report names another instruction set:\n{text[:1000]}")
        found = losses(os.path.join(folder, "run.h5"))
        if wanted is None:
            wanted = found
        check_close_losses(found, wanted, TOLERANCE, isa)
        check_close_tensors(os.path.join(folder, f"{isa}.h5"), os.path.join(folder, ".h5"), TOLERANCE, isa)


def test_resume_equal(binary, folder):
    """A run of 12 steps that was resumed after step 7, in the middle of epoch 2, equals an
    uninterrupted one."""
    make(folder, 130)
    for optimizer in ("rowwise_adagrad", "adam"):
        shared = f"{MIXED} -embedding_optimizer {optimizer} -dense_optimizer adam -data_shuffle"
        wanted, state = train(binary, folder, "whole", 3, f"{shared} -steps 12")
        train(binary, folder, "half", 3, f"{shared} -steps 7 -checkpoint_dir {optimizer} -checkpoint_every 7")
        found, other = train(binary, folder, "rest", 3, f"{shared} -steps 12 -checkpoint_dir {optimizer} -resume")
        check(same_bits(found, wanted[7:]), f"{optimizer}: losses {found} for {wanted[7:]}")
        check_same_tensors(other, state, optimizer)
        with h5py.File(os.path.join(folder, "rest.h5")) as h:
            check(h["train/step"][()].tolist() == list(range(7, 12)), f"train/step is {h['train/step'][()]}")
        for name in ("step", "epoch", "samples_seen"):
            check(attribute(other, name) == attribute(state, name), f"{optimizer}: {name} is {attribute(other, name)}, not {attribute(state, name)}")


def parts_of(path, folder, cuts):
    """Divide a dataset's samples into files that begin at these samples. Every second file is
    compressed, so that HDF5 reads it."""
    names = []
    with h5py.File(path) as h:
        whole = {name: h[name][()] for name in ("dense", "labels", "sparse/lengths", "sparse/offsets", "sparse/values")}
        for first, end in zip([0] + cuts, cuts + [len(whole["labels"])]):
            names.append(os.path.join(folder, f"part_{len(names):02d}.h5"))
            begin, stop = whole["sparse/offsets"][[first, end]]
            with h5py.File(names[-1], "w", libver="latest") as part:
                part.attrs.update(h.attrs)
                part.attrs["num_samples"] = end - first
                part.create_group("sparse").attrs.update(h["sparse"].attrs)
                rows = {"sparse/offsets": whole["sparse/offsets"][first:end + 1] - begin, "sparse/values": whole["sparse/values"][begin:stop]}
                for name, values in whole.items():
                    part.create_dataset(name, data=rows.get(name, values[first:end]), **({"compression": 4} if len(names) % 2 == 0 else {}))
    return names


@thinned
def test_several_files(binary, folder):
    """A dataset in five files, given by names or by a pattern, equals the concatenated dataset: the
    same bits on 1, 2 and 4 ranks, in order and shuffled, and resumed in the middle."""
    make(folder, 130)
    parts_of(os.path.join(folder, "train.h5"), folder, [1, 40, 41, 101])
    def ends(name, ranks, options):
        words = f"-batch_size {24 // ranks} -output {name}.h5 -checkpoint_final {name}.final.h5 {MODEL} {TABLES} {options}"
        run(binary, ranks, words, folder)
        return losses(os.path.join(folder, f"{name}.h5")), os.path.join(folder, f"{name}.final.h5")

    in_parts = {1: "-data_train 'part_*.h5'", 2: "-data_train part_00.h5,part_01.h5,part_02.h5,part_03.h5,part_04.h5", 4: "-data_train part_00.h5,'part_0[1-9].h5'"}
    for ranks, parts in in_parts.items():
        for order in thin(("", "-data_shuffle"), ("-data_shuffle",) if ranks == 2 else ("",)):
            what = f"{ranks} ranks {order}"
            wanted, state = ends("whole", ranks, f"-data_train train.h5 {order} -steps 14")
            ends("half", ranks, f"{parts} {order} -steps 8 -checkpoint_dir {ranks}{order} -checkpoint_every 8")
            found, other = ends("rest", ranks, f"{parts} {order} -steps 14 -checkpoint_dir {ranks}{order} -resume")
            check(same_bits(found, wanted[8:]), f"{what}: losses {found} for {wanted[8:]}")
            check_same_tensors(other, state, what)
    run(binary, 2, f"-task eval -data_eval train.h5 -init_from {state} {MODEL} {TABLES} -output whole.h5", folder)
    run(binary, 2, f"-task eval -data_eval part_*.h5 -init_from {state} {MODEL} {TABLES} -output parts.h5", folder)
    with h5py.File(os.path.join(folder, "whole.h5")) as whole, h5py.File(os.path.join(folder, "parts.h5")) as found:
        check(same_bits(found["predictions"][()], whole["predictions"][()]), "evaluation: other predictions")


def test_files_beyond_the_limit(binary, folder):
    """A dataset may have more files than the shell's limit of open files."""
    make(folder, 130)
    parts_of(os.path.join(folder, "train.h5"), folder, list(range(2, 130, 2)))
    run(binary, 2, f"-data_train 'part_*.h5' -batch_size 12 -steps 3 {MODEL} {TABLES}", folder, prelude="ulimit -n 60; ")


def test_resume_elsewhere(binary, folder):
    """A checkpoint that other ranks read under another plan and write again holds the same tensors,
    bit for bit."""
    make(folder)
    shared = "-steps 6 -table_user_data_type fp16 -table_word_data_type bf16"
    _, state = train(binary, folder, "first", 2, f"{shared} -tables_sharding_types row_wise -checkpoint_dir ckpt -checkpoint_every 6")
    elsewhere = [(1, ""), (3, "-tables_sharding_types table_wise"), (4, "-tables_sharding_types data_parallel"), (3, MIXED),
                 (2, "-tables_sharding_types column_wise"), (4, "-tables_sharding_types grid_shard -topology_local_world_size 2")]
    for ranks, plan in elsewhere:
        _, other = train(binary, folder, "other", ranks, f"{shared} {plan} -checkpoint_dir ckpt -resume")
        check(attribute(other, "step") == 6, f"step is {attribute(other, 'step')}")
        check_same_tensors(other, state, f"{ranks} ranks {plan}", ignore=("_columns",))


def test_resume_drop_last(binary, folder):
    """With another -drop_last, an epoch has another number of steps. Whole epochs stay whole."""
    make(folder, 200)
    for before, now, first in (("-drop_last", "", 18), ("", "-drop_last", 16)):
        ckpt = f"ckpt{first}"
        train(binary, folder, "first", 2, f"{before} -epochs 2 -checkpoint_dir {ckpt} -checkpoint_every 2")
        words = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {now} -epochs 3 -checkpoint_dir {ckpt} -resume"
        text = run(binary, 2, words, folder).text
        check(f"step {17 if before else 19} is step 1 of epoch 3" in text and f"step {25 if before else 26}/" in text, text)


def test_resume_column_states(binary, folder):
    """Row-wise states of column shards: the same split reads its own states, and any other split
    reads their mean, weighted by width."""
    make(folder)
    cut = "-tables_sharding_types column_wise"
    _, state = train(binary, folder, "first", 2, f"-steps 6 {cut} -checkpoint_dir ckpt -checkpoint_every 6")
    _, same = train(binary, folder, "same", 3, f"-steps 6 {cut} -checkpoint_dir ckpt -resume")
    check_same_tensors(same, state, "the same split")
    _, other = train(binary, folder, "other", 2, "-steps 6 -tables_sharding_types row_wise -checkpoint_dir ckpt -resume")
    check_same_tensors(other, state, "another split", ignore=("_columns",))
    found = tensors(state)
    columns = [name for name in found if name.endswith("_columns")]
    check(len(columns) == 4, f"split states: {columns}")
    for name in columns:
        mean = found[name].astype(np.float64).mean(axis=1)
        check(np.allclose(found[name[:-8]], mean, rtol=1e-6, atol=0), f"/{name[:-8]} is not the mean of its columns")


def test_evaluate(binary, folder):
    """-task eval repeats the evaluation at the end of training, on any number of ranks. Predictions
    are in the file's order."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 77, seed=8, features=FEATURES)
    _, state = train(binary, folder, "trained", 2, f"{MIXED} -epochs 2 -data_eval eval.h5")
    names = ("eval/loss", "eval/auc", "eval/ne", "eval/accuracy")
    with h5py.File(os.path.join(folder, "trained.h5")) as h:
        trained = {name: h[name][-1] for name in names}
    first = None
    for ranks in (1, 2, 3, 4):
        run(binary, ranks, f"-task eval -data_eval eval.h5 -init_from {state} -batch_size 10 -output eval{ranks}.h5 {MODEL} {TABLES}", folder)
        with h5py.File(os.path.join(folder, f"eval{ranks}.h5")) as h:
            found = {name: h[name][-1] for name in names}
            predictions = h["predictions"][()]
        check(predictions.shape == (77,) and np.all((predictions > 0) & (predictions < 1)), f"{ranks} ranks: predictions {predictions}")
        first = first or (found, predictions)
        check(np.allclose(predictions, first[1], rtol=1e-5), f"{ranks} ranks: other predictions")
        for name in names:
            check(abs(found[name] - trained[name]) <= 1e-5 * abs(trained[name]), f"{ranks} ranks: {name} {found[name]} for {trained[name]}")
    with h5py.File(os.path.join(folder, "eval.h5")) as h:
        labels = h["labels"][()].astype(np.float64)
    p = first[1].astype(np.float64)
    loss = -np.mean(labels * np.log(p) + (1 - labels) * np.log1p(-p))
    check(abs(first[0]["eval/loss"] - loss) < 1e-5, f"eval/loss {first[0]['eval/loss']}, from the predictions {loss}")
    positive, negative = p[labels == 1], p[labels == 0]
    auc = np.mean((positive[:, None] > negative) + 0.5 * (positive[:, None] == negative))
    check(abs(first[0]["eval/auc"] - auc) < 1e-6, f"eval/auc {first[0]['eval/auc']}, from the predictions {auc}")


def evaluations(folder, name):
    with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
        return {part: h[part][()] for part in [f"eval/{value}" for value in h["eval"]] + ["predictions"] if part in h}


def check_same_evaluations(binary, folder, ranks, options, pipelines):
    """Evaluations between and after the steps, and of the final checkpoint with its predictions,
    have the bits of -pipeline base, and so have the training's losses."""
    wanted = None
    for pipeline in ("base", *pipelines):
        what = f"{pipeline} on {ranks} ranks {options}"
        found, state = train(binary, folder, "run", ranks, f"{options} -data_eval eval.h5 -steps 5 -eval_every 2 -pipeline {pipeline}")
        between = evaluations(folder, "run")
        check(between["eval/step"].tolist() == [2, 4, 5], f"{what}: evaluations after {between['eval/step']}")
        run(binary, ranks, f"-task eval -data_eval eval.h5 -init_from {state} -batch_size {24 // ranks} -output task.h5 {MODEL} {TABLES} {options} "
            f"-pipeline {pipeline}", folder)
        task = evaluations(folder, "task")
        check(task["predictions"].shape == (101,), f"{what}: {task['predictions'].shape} predictions")
        wanted = wanted or (found, between, task)
        check(same_bits(found, wanted[0]), f"{what}: other losses")
        for mine, first in ((between, wanted[1]), (task, wanted[2])):
            check(sorted(mine) == sorted(first), f"{what}: {sorted(mine)} for {sorted(first)}")
            for part in mine:
                check(same_bits(mine[part], first[part]), f"{what}: {part} {mine[part]} for {first[part]}")


@thinned
def test_evaluate_pipelines(binary, folder):
    """With -pipeline, evaluations prefetch like trainings and have the same bits. Cases: a last
    batch for which some ranks have no sample, and a single batch."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 101, seed=8, features=FEATURES)
    for ranks in thin((1,), ()):
        check_same_evaluations(binary, folder, ranks, "", ("sparse_dist",))
    check_same_evaluations(binary, folder, 2, f"{MIXED} -table_user_pooling none -table_user_sequence_pooling max -ec_index_dedup", thin(("sparse_dist", "prefetch_sparse_dist"), ("prefetch_sparse_dist",)))
    check_same_evaluations(binary, folder, 4, "-topology_local_world_size 2 -table_user_sharding_types table_row_wise -table_item_sharding_types grid_shard "
                           "-table_tag_sharding_types row_wise", ("sparse_dist",))
    write_dataset(os.path.join(folder, "few.h5"), 3, seed=8, features=FEATURES)
    for pipeline in ("base", "prefetch_sparse_dist"):
        train(binary, folder, pipeline, 4, f"-data_eval few.h5 -steps 2 -pipeline {pipeline}")
    check(same_bits(evaluations(folder, "base")["eval/loss"], evaluations(folder, "prefetch_sparse_dist")["eval/loss"]), "one batch: another loss")


@thinned
def test_evaluate_features(binary, folder):
    """Features that keep separate batches in a slot: variable batches, -reproducible, and sequences
    by rows."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 101, seed=8, features=FEATURES)
    every = ((2, f"{MIXED} -ebc_variable_batch"), (3, f"{MIXED} -reproducible"),
             (2, "-tables_sharding_types row_wise -table_user_pooling none -table_user_sequence_pooling max"))
    for ranks, options in thin(every, every[:2]):
        check_same_evaluations(binary, folder, ranks, options, ("sparse_dist",))


def test_eval_every(binary, folder):
    """Evaluations between steps do not change the training."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 50, seed=8, features=FEATURES)
    wanted, state = train(binary, folder, "plain", 2, f"{MIXED} -steps 9")
    found, other = train(binary, folder, "watched", 2, f"{MIXED} -steps 9 -data_eval eval.h5 -eval_every 4 -checkpoint_dir ckpt -checkpoint_every 2")
    check(same_bits(found, wanted), "other losses")
    check_same_tensors(other, state, "evaluated")
    with h5py.File(os.path.join(folder, "watched.h5")) as h:
        check(h["eval/step"][()].tolist() == [4, 8, 9], f"eval/step is {h['eval/step'][()]}")
    kept = sorted(name for name in os.listdir(os.path.join(folder, "ckpt")) if not name.startswith("."))
    check(kept == ["step-000000008.h5", "step-000000009.h5"], f"checkpoints kept: {kept}")


def test_told_otherwise(binary, folder):
    """Command line, .opts, .yaml, and the configuration in the results give the same run."""
    make(folder)
    words = shlex.split(f"-data_train train.h5 -batch_size 12 -steps 5 {MODEL} {TABLES}")
    wanted, state = train(binary, folder, "line", 2, "-steps 5")
    pairs = list(zip(words[::2], words[1::2]))
    with open(os.path.join(folder, "run.opts"), "w", encoding="ascii") as out:
        out.writelines(f"{name} {value}\n" for name, value in pairs)
    with open(os.path.join(folder, "run.yaml"), "w", encoding="ascii") as out:
        out.writelines(f"{name[1:]}: {value}\n" for name, value in pairs)
    with h5py.File(os.path.join(folder, "line.h5")) as h, open(os.path.join(folder, "stored.opts"), "w", encoding="utf-8") as out:
        stored = h.attrs["options"]
        out.write(stored.decode() if isinstance(stored, bytes) else stored)
    for name in ("run.opts", "run.yaml", "stored.opts"):
        run(binary, 2, f"-options_file {name} -output told.h5 -checkpoint_final told.final.h5", folder)
        check(same_bits(losses(os.path.join(folder, "told.h5")), wanted), f"{name}: other losses")
        check_same_tensors(os.path.join(folder, "told.final.h5"), state, name)
