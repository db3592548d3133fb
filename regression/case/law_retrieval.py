# SPDX-License-Identifier: BSD-3-Clause
"""Two towers for retrieval: they agree with torch (golden/retrieval), and have the same bits on any
ranks and shardings."""
import os
import re

import h5py
import numpy as np

from trsrun import check, check_close_losses, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "retrieval", "two_tower.h5")
CASES = ("bce", "softmax", "cosine", "logq", "sampled")
MODEL = "-interaction two_tower -query_features user -query_arch 16,8 -candidate_arch 8 -tables_embedding_dim 8 -dense_arch 16,8 -embedding_learning_rate 0.1"
LOSS = "-loss sampled_softmax -softmax_negatives 90 -softmax_logq streaming -softmax_temperature 0.5 -tower_normalize -query_arch_dropout 0.25"


def unpack(folder, case):
    """Write train.h5 and init.h5 of a golden case. Returns its group's options, batch and
    arrays."""
    with h5py.File(GOLDEN, "r") as golden:
        group = golden[case]
        for part in ("train", "init"):
            with h5py.File(os.path.join(folder, f"{part}.h5"), "w", libver="latest") as h:
                for name in group[part]:
                    group.copy(f"{part}/{name}", h)
                h.attrs.update(group[part].attrs)
                if part == "init":
                    h.attrs.update(format="trshard-checkpoint", version=np.int64(1), step=np.int64(0), samples_seen=np.int64(0), options="", plan="{}")
        arrays = {}
        group.visititems(lambda name, o: arrays.__setitem__(name, o[()]) if isinstance(o, h5py.Dataset) else None)
        return group.attrs["options"], int(group.attrs["batch"]), arrays


@thinned
def test_retrieval_reference(binary, folder):
    """40 steps with each loss of pairs on 1, 2 and 3 ranks: losses, weights, both towers' outputs
    and Recall@K agree with torch and numpy, with labels of 0, weights, and accidental hits."""
    every = [(case, ranks) for case in CASES for ranks in (1, 2, 3)]
    for case, ranks in thin(every, [("bce", 1), ("softmax", 3), ("logq", 2), ("sampled", 3)]):
        options, batch, wanted = unpack(folder, case)
        recall_at = f"-eval_recall_at {','.join(map(str, wanted['recall_at']))}"
        what = f"{case} on {ranks} ranks"
        run(binary, ranks, f"-data_train train.h5 -init_from init.h5 -batch_size {batch // ranks} -tables_min_partition 4 -output out.h5 -checkpoint_final final.h5 {options} "
            f"-data_eval train.h5 -eval_every 20 {recall_at}", folder)
        check_close_losses(losses(os.path.join(folder, "out.h5")), wanted["loss"], 1e-5, what)
        found = tensors(os.path.join(folder, "final.h5"))
        for name, of in ((name[len("final/"):], of) for name, of in wanted.items() if name.startswith("final/")):
            # it adds the same number to all scores of a query
            still = case in ("softmax", "sampled") and name == "dense/candidate_tower/2/bias"
            check(still or np.abs(of - wanted[f"init/{name}"]).max() > 1e-4, f"{case}: {name} has not moved, nothing is tested")
            off = np.max(np.abs(found[name].astype(np.float64) - of) / (1 + np.abs(of)))
            check(found[name].shape == of.shape and off <= 1e-5, f"{what}: /{name} differs by {off:.1e}")
        rest = f"-init_from final.h5 -data_eval train.h5 -batch_size {50 // ranks} -tables_min_partition 4"
        run(binary, ranks, f"-task predict {rest} -predict_towers query,candidate -output towers.h5", folder)
        run(binary, ranks, f"-task eval {rest} {recall_at} -output eval.h5", folder)
        towers, evaluated = tensors(os.path.join(folder, "towers.h5")), tensors(os.path.join(folder, "eval.h5"))
        for side in ("query", "candidate"):
            # each output sums a few weights
            off = np.abs(towers[f"towers/{side}"] - wanted[side]).max() / np.abs(wanted[side]).max()
            check(off <= 5e-5, f"{what}: outputs of the {side} tower differ by {off:.1e}")
        check(np.array_equal(evaluated["retrieval/at"], wanted["recall_at"]), what)
        for by, found in (("-task eval", evaluated), ("the training's last evaluation", tensors(os.path.join(folder, "out.h5")))):
            off = np.abs(found["retrieval/recall"] - wanted["recall"]).max()
            check(off < 1e-12, f"{what}: recall of {by} {found['retrieval/recall']}, numpy has {wanted['recall']}")
            rows = [found[f"eval/retrieval_recall_at_{k}"] for k in wanted["recall_at"]]
            check(np.array_equal([row[-1] for row in rows], found["retrieval/recall"]) and all(len(row) == len(found["eval/step"]) for row in rows), f"{what}: rows of {by}")


@thinned
def test_retrieval_reproducible(binary, folder):
    """-reproducible: losses and weights have the same bits on any ranks and shardings, with dropout
    and a smaller last batch, also in a resumed run. A batch has two blocks of samples, so that one
    of three ranks never has a block."""
    write_dataset(os.path.join(folder, "train.h5"), 340, sample_weights=np.linspace(0, 2, 340))
    base = f"-data_train train.h5 -data_shuffle -epochs 2 -reproducible {MODEL} {LOSS} -tables_min_partition 4"
    run(binary, 1, f"{base} -batch_size 150 -output one.h5 -checkpoint_final one.final.h5", folder)
    one = os.path.join(folder, "one.final.h5")
    for ranks, plan in thin([(r, p) for r in (2, 3) for p in ("row_wise", "table_wise", "column_wise", "data_parallel")], [(2, "table_wise"), (3, "row_wise")]):
        run(binary, ranks, f"{base} -batch_size {150 // ranks} -output more.h5 -checkpoint_final more.final.h5 -tables_sharding_types {plan}", folder)
        check(same_bits(losses(os.path.join(folder, "one.h5")), losses(os.path.join(folder, "more.h5"))), f"{plan} on {ranks} ranks: other losses")
        check_same_tensors(one, os.path.join(folder, "more.final.h5"), f"{plan} on {ranks} ranks")
    run(binary, 2, f"{base} -batch_size 75 -steps 3 -checkpoint_dir kept", folder)
    text = run(binary, 1, f"{base} -batch_size 150 -checkpoint_dir kept -resume -checkpoint_final again.h5", folder).text
    check_same_tensors(one, os.path.join(folder, "again.h5"), f"resumed: {text}")
    found = []
    for ranks in (1, 3):
        rest = f"-init_from one.final.h5 -data_eval train.h5 -reproducible -batch_size {150 // ranks}"
        run(binary, ranks, f"-task predict {rest} -predict_towers query,candidate -output towers{ranks}.h5", folder)
        run(binary, ranks, f"-task eval {rest} -eval_recall_at 1,5 -candidate_id tag -output eval{ranks}.h5", folder)
        found.append({**tensors(os.path.join(folder, f"towers{ranks}.h5")), **tensors(os.path.join(folder, f"eval{ranks}.h5"))})
    for name in ("towers/query", "towers/candidate", "retrieval/recall", "eval/loss"):
        check(np.array_equal(found[0][name], found[1][name]), f"{name} depends on the ranks")


def test_retrieval_accumulates(binary, folder):
    """-accumulate_steps: the softmax is over the candidates of all batches of a step. Its
    activations have the size of one block."""
    write_dataset(os.path.join(folder, "train.h5"), 680)
    base = f"-data_train train.h5 -epochs 1 {MODEL} {LOSS} -tables_min_partition 4"
    run(binary, 1, f"{base} -batch_size 300 -output one.h5", folder)
    run(binary, 2, f"{base} -batch_size 50 -accumulate_steps 3 -output three.h5", folder)
    check_close_losses(losses(os.path.join(folder, "three.h5")), losses(os.path.join(folder, "one.h5")), 1e-6, "three batches a step")


def test_retrieval_columns(binary, folder):
    """Tables in any order and with features in both towers: clamped gradients, and a split table
    whose rows equal an unsplit table's."""
    write_dataset(os.path.join(folder, "train.h5"), 60, features={"u": 20, "a": 12, "b": 12})
    towers = ("-data_train train.h5 -batch_size 30 -tables_embedding_dim 4 -interaction two_tower -query_features u,b -candidate_features a -query_arch 4 -candidate_arch 4 "
              "-embedding_optimizer sgd -embedding_learning_rate 1 -existing_outputs replace")
    split = "-tables u,i -table_i_features a,b -table_u_id_map qr -table_u_qr_operation add -table_u_qr_collisions 5"
    plain = "-tables u,i -table_i_features a,b"
    run(binary, 1, f"{towers} {split} -steps 0 -checkpoint_final split.h5", folder)
    with h5py.File(os.path.join(folder, "split.h5")) as of, h5py.File(os.path.join(folder, "plain.h5"), "w") as to:
        to.attrs.update(format="trshard-checkpoint", version=1, step=0, samples_seen=0)
        of.copy("dense", to)
        of.copy("embedding/i", to.create_group("embedding"))
        parts = [of[f"embedding/u_{part}/weight"][()] for part in ("quotient", "remainder")]
        to["embedding/u/weight"] = parts[0][np.arange(20) // 5] + parts[1][np.arange(20) % 5]
    for ranks, limit in ((1, ""), (2, "-embedding_max_gradient 1e-5"), (3, "-embedding_max_gradient 1e-5 -tables_sharding_types row_wise")):
        found = []
        for name, tables in (("split", split), ("plain", plain)):
            run(binary, ranks, f"{towers} {tables} {limit} -batch_size {60 // ranks} -steps 1 -init_from {name}.h5 -output out.h5 -checkpoint_final {name}{ranks}.h5", folder)
            found.append((losses(os.path.join(folder, "out.h5"))[0], tensors(os.path.join(folder, f"{name}{ranks}.h5"))))
        check(abs(found[0][0] - found[1][0]) < 1e-6, f"{ranks} ranks: losses {found[0][0]} and {found[1][0]}")
        for name in (name for name in found[1][1] if name.startswith("dense/") or name == "embedding/i/weight"):
            off = np.abs(found[0][1][name] - found[1][1][name]).max()
            check(off < 1e-6, f"{ranks} ranks: {name} differs by {off:.1e}")
        moved = np.abs(found[1][1]["embedding/i/weight"] - tensors(os.path.join(folder, "plain.h5"))["embedding/i/weight"]).max()
        check(moved < 2e-3 if limit else moved > 5e-3, f"{ranks} ranks {limit}: a weight moved by {moved}")


def test_retrieval_without_queries(binary, folder):
    """If no label is positive, there is no query, and Recall@K has no value, in the log and as NaN
    in the file."""
    path = write_dataset(os.path.join(folder, "train.h5"), 60)
    with h5py.File(path, "r+") as h:
        h["labels"][:] = 0
    for ranks in (1, 2):
        text = run(binary, ranks, f"-data_train train.h5 -data_eval train.h5 -batch_size {30 // ranks} -steps 2 {MODEL} -eval_recall_at 1,5 -output out.h5 -existing_outputs replace", folder).text
        check(re.search(r"^recall +among \d+ candidates: no number: no sample is a query with a weight$", text, re.M), text[-600:])
        found = tensors(os.path.join(folder, "out.h5"))
        check(all(np.isnan(found[name]).all() for name in ("retrieval/recall", "eval/retrieval_recall_at_1", "eval/retrieval_recall_at_5")), "a recall without queries")
