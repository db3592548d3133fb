# SPDX-License-Identifier: BSD-3-Clause
"""Two towers for retrieval: they agree with torch (golden/retrieval), and have the same bits on any
ranks and shardings."""
import importlib.util
import os
import re
import shutil

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


def nearest(path, query, k):
    """(scores, rows, ids or None) of the k best distinct candidates of a file for each query, by numpy
    in float64. Equal scores are in the order of rows."""
    found = tensors(path)
    candidates, ids = found["towers/candidate"].astype(np.float64), found.get("towers/candidate_id")
    rows = np.arange(len(candidates))
    if ids is not None:
        first = np.unique(ids, return_index=True)[1]
        rows = np.sort(first[ids[first] >= 0])
    scores = query.astype(np.float64) @ candidates[rows].T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(scores, order, 1)
    if importlib.util.find_spec("faiss"):  # its exact index, where it is installed; equal scores may come in another order
        import faiss
        index = faiss.IndexFlatIP(candidates.shape[1])
        index.add(candidates[rows].astype(np.float32))
        of_faiss = index.search(np.ascontiguousarray(query, np.float32), k)[0]
        check(np.abs(of_faiss - scores).max() <= 1e-5 * np.abs(scores).max(), "faiss finds other scores than numpy")
    return scores, rows[order], None if ids is None else ids[rows[order]]


def test_retrieval_neighbours(binary, folder):
    """-predict_neighbours: the candidates of numpy's search over all of them, on 1, 2 and 3 ranks.
    Candidates with the same id count once, samples without a candidate not at all, and equal scores
    come in the order of rows. Without ids, each row is a candidate."""
    write_dataset(os.path.join(folder, "train.h5"), 90)
    write_dataset(os.path.join(folder, "items.h5"), 70, seed=11)
    run(binary, 1, f"-data_train train.h5 -batch_size 30 -epochs 2 -checkpoint_final final.h5 {MODEL} -loss in_batch_softmax -candidate_id tag", folder)
    run(binary, 2, "-task predict -init_from final.h5 -data_eval items.h5 -batch_size 16 -tables_min_partition 4 -predict_towers candidate -output items.run.h5", folder)
    with h5py.File(os.path.join(folder, "items.run.h5"), "r+") as h, h5py.File(os.path.join(folder, "items.h5")) as items:
        names = list(items["sparse"].attrs["features"])
        lengths, offsets = items["sparse/lengths"][()], items["sparse/offsets"][()]
        tag = names.index("tag")
        firsts = [items["sparse/values"][offsets[i] + lengths[i, :tag].sum()] if lengths[i, tag] else -1 for i in range(70)]
        ids = h["towers/candidate_id"][()]
        check(np.array_equal(ids, firsts), f"/towers/candidate_id is {ids}, the dataset has {firsts}")
        check(len(np.unique(ids)) < 70 and -1 in ids, "no id is there twice, or none is missing: nothing is tested")
        rows = h["towers/candidate"][()]
        kept = np.sort(np.unique(ids, return_index=True)[1])
        a, b = kept[ids[kept] >= 0][[2, 5]]
        rows[b] = rows[a]  # another candidate with the same scores
        h["towers/candidate"][...] = rows
    with h5py.File(os.path.join(folder, "items.run.h5")) as source, h5py.File(os.path.join(folder, "bare.run.h5"), "w") as h:
        h.attrs.update(format="trshard-run", version=np.int64(1))
        h["towers/candidate"] = np.tile(source["towers/candidate"][()], (40, 1))
    for name, k, every in (("items.run.h5", 7, (1, 2, 3)), ("items.run.h5", 1, (2,)), ("bare.run.h5", 50, (3,))):
        found = []
        for ranks in every:
            text = run(binary, ranks, f"-task predict -init_from final.h5 -data_eval train.h5 -batch_size {24 // ranks} -reproducible -tables_min_partition 4 -predict_towers query "
                       f"-predict_neighbours {k} -predict_candidates {name} -output n{ranks}.h5", folder).text
            found.append(tensors(os.path.join(folder, f"n{ranks}.h5")))
        scores, rows, ids = nearest(os.path.join(folder, name), found[0]["towers/query"], k)
        check(f"the first {k} of " in text, text)
        for ranks, results in zip(every, found):
            what = f"{name}, {k} neighbours on {ranks} ranks"
            check(np.array_equal(results["towers/query"], found[0]["towers/query"]), f"{what}: other queries")
            check(np.array_equal(results["neighbours/row"], rows), f"{what}: other rows\n{results['neighbours/row'][:3]}\n{rows[:3]}")
            check(np.abs(results["neighbours/score"] - scores).max() <= 1e-6 * np.abs(scores).max(), f"{what}: other scores")
            check(ids is None and "neighbours/id" not in results or np.array_equal(results["neighbours/id"], ids), f"{what}: other ids")
        if k == 7:
            tied = [i for i in range(90) if a in rows[i] and b in rows[i]]
            check(tied and all(list(rows[i]).index(a) + 1 == list(rows[i]).index(b) for i in tied), "equal scores are not next to each other")
    with h5py.File(os.path.join(folder, "bare.run.h5"), "r+") as h:
        narrow = h["towers/candidate"][:, :5]
        del h["towers/candidate"]
        h["towers/candidate"] = narrow
    shutil.copy(os.path.join(folder, "items.run.h5"), os.path.join(folder, "nan.run.h5"))
    with h5py.File(os.path.join(folder, "nan.run.h5"), "r+") as h:
        h["towers/candidate"][kept[-1], 3] = np.nan
    base = "-task predict -init_from final.h5 -data_eval train.h5 -batch_size 15 -tables_min_partition 4 -output n.h5"
    for words, status, message in (("-predict_neighbours 60 -predict_candidates items.run.h5", 65, "distinct candidates, expected at least 60"), ("-predict_neighbours 5 -predict_candidates bare.run.h5", 65, "has 5 columns, the model's towers have 8"),
                                   ("-predict_neighbours 5 -predict_candidates n1.h5", 65, "has no /towers/candidate"), ("-predict_neighbours 5 -predict_candidates absent.h5", 66, "absent.h5"),
                                   ("-predict_neighbours 5", 64, "needs -predict_candidates"), ("-predict_candidates items.run.h5", 64, "needs -predict_neighbours"),
                                   ("-predict_neighbours 5 -predict_candidates train.h5", 65, "train.h5"),
                                   ("-predict_neighbours 5 -predict_candidates nan.run.h5", 65, f"/towers/candidate, row {kept[-1]}, column 3 is nan"),
                                   ("-predict_neighbours 5 -predict_candidates nan.run.h5 -output nan.run.h5 -existing_outputs replace", 64, "would write over the file of -predict_candidates")):
        text = run(binary, 2, f"{base} {words}", folder, status=status).text
        check(message in text, text)
        check(not os.path.exists(os.path.join(folder, "n.h5")), f"{words}: n.h5 is there")
