#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A predictor to which deltas are applied predicts the bits of one that opens the checkpoint of tools/apply_delta.py, also while other threads
predict; deltas that do not fit are refused, and change nothing.

    deltas.py TRSHARD
"""
import os
import pathlib
import shutil
import sys
import tempfile
import threading

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "case"), str(HERE.parent / "harness")]
import h5py
import law_delta
import law_dynamic
import law_zch
import trshard
from law_delta import BATCH, apply, deltas, train
from trsrun import check, run, same_bits

BINARY = os.path.abspath(sys.argv[1])
RAW = ("zch", "dynamic", "ttl", "one bucket")
# name: (options of the training, options of the predictors)
MODELS = {
    "types": (law_delta.MODEL, ""),  # fp32 and bf16 tables, shared, pooled and not
    "int8": (f"{law_delta.MODEL} -ema_decay 0.9", "-tables_data_type int8"),
    "int4": (f"{law_delta.MODEL} -delta_data_type fp16", "-tables_data_type int4"),
    "halves": (f"{law_delta.MODEL} -tables_data_type fp16 -table_user_data_type fp16 -delta_data_type bf16", "-table_item_data_type fp32"),
    "odd": (f"{law_delta.MODEL} -tables_embedding_dim 6 -interaction cat", "-table_tag_data_type fp16"),  # mapped rows have no padding
    "maps": (f"{law_delta.MODEL} -table_user_id_map hash -table_user_num_embeddings 90 -table_tag_id_map qr -table_tag_num_embeddings 30 -interaction cat", ""),
    "zch": (law_zch.options(48, "-table_t_zch_interval 2 -table_t_zch_buckets 4 -embedding_optimizer adam"), "-tables_data_type int8"),
    "one bucket": (law_zch.options(48, "-table_t_zch_interval 3"), ""),
    "dynamic": (law_dynamic.options(160, "-table_t_dynamic_buckets 4"), "-tables_data_type int8"),
    "ttl": (law_dynamic.options(160, "-table_t_dynamic_buckets 4 -table_t_dynamic_ttl 3"), ""),
}


def arguments(path, names):
    """The arguments of predict() for all samples of a dataset."""
    with h5py.File(path) as h:
        lengths, values, features = h["sparse/lengths"][()], h["sparse/values"][()].astype(np.int64), list(h["sparse"].attrs["features"])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        dense = h["dense"][()] if "dense" in h else None
    if lengths.shape[0] == len(features) and lengths.shape[1] != len(features):
        lengths = lengths.T
    n = len(lengths)
    order = [features.index(name) for name in names]
    bags = [values[offsets[i * len(features) + f]:offsets[i * len(features) + f + 1]] for f in order for i in range(n)]
    return lengths[:, order].T.astype(np.int32).ravel(), np.concatenate(bags), None, dense


def opened(path, options):
    return trshard.Predictor(path, options)


def make_chain(folder, name, training):
    """Train a base and deltas. Returns (path of the base, paths of the deltas)."""
    os.makedirs(folder)
    if name in RAW:
        law_zch.make(folder)
        os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "train.h5"))
    else:
        law_delta.make(folder)
    run(BINARY, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final base.h5 {training}", folder)
    train(BINARY, folder, "a", 1, f"-init_from base.h5 {training} -delta_every 2 -checkpoint_dir c -checkpoint_every 3 -checkpoint_keep 9")
    files = deltas(folder, "a")
    check(len(files) >= 5, f"{name}: {len(files)} deltas")
    return os.path.join(folder, "base.h5"), files


def test_bits(top):
    """After each delta, the bits of a new predictor. Threads that predict all the time get the bits of one of the models."""
    for name, (training, options) in MODELS.items():
        folder = os.path.join(top, name)
        base, files = make_chain(folder, name, training)
        with opened(base, options) as predictor:
            inputs = arguments(os.path.join(folder, "train.h5"), predictor.sparse_names)
            known = {predictor.predict(*inputs).tobytes(): 0}
            torn, ends = [], threading.Event()

            def predict():
                out, before = np.empty((len(inputs[3]), predictor.n_outputs), np.float32), 0
                while not ends.is_set():
                    found = predictor.predict(*inputs, out=out).tobytes()
                    if known.get(found, -1) < before:
                        torn.append(known.get(found))
                    before = known.get(found, before)

            wanted = []
            for i in range(len(files)):
                apply(folder, "base.h5", files[:i + 1], f"full{i}.h5")
                with opened(os.path.join(folder, f"full{i}.h5"), options) as other:
                    wanted.append(other.predict(*inputs))
                    known[wanted[-1].tobytes()] = i + 1
                    step = other.step
            threads = [threading.Thread(target=predict) for _ in range(2)]
            for thread in threads:
                thread.start()
            for i, path in enumerate(files):
                predictor.apply_delta(path)
                found = predictor.predict(*inputs)
                check(same_bits(found, wanted[i]), f"{name}: {np.sum(found != wanted[i])} of {found.size} predictions differ after delta {i + 1}")
            ends.set()
            for thread in threads:
                thread.join()
            check(predictor.step == step and len(known) == len(files) + 1, f"{name}: step {predictor.step}, {len(known)} models")
            check(not torn, f"{name}: predictions of no model: {torn[:5]}")
        # a checkpoint between two deltas is a base, too
        middle = sorted(os.listdir(os.path.join(folder, "c")))[1]
        later = [path for path in files if os.path.basename(path) > middle]
        with opened(os.path.join(folder, "c", middle), options) as predictor:
            for path in later:
                predictor.apply_delta(path)
            apply(folder, os.path.join("c", middle), later, "full.h5")
            with opened(os.path.join(folder, "full.h5"), options) as other:
                check(same_bits(predictor.predict(*inputs), other.predict(*inputs)), f"{name}: from {middle}")
        print(f"{name}: {len(files)} deltas, the bits of apply_delta.py", flush=True)


def test_forget(top):
    """A delta of --forget_delta is applied after other deltas, and another delta after it. It is
    refused at the base."""
    for name in ("types", "zch", "ttl"):
        training, options = MODELS[name]
        folder = os.path.join(top, f"forget {name}")
        _, files = make_chain(folder, name, training)
        table = "item" if name == "types" else "t"
        apply(folder, "base.h5", files[:2], "two.h5")
        ids = ["3", "7"] if name == "types" else [str(number % 2**64) for number in sorted(law_delta.ids_of(os.path.join(folder, "two.h5")))[:5]]
        forget = ["--forget", f"{table}={','.join(ids)}", "--forget_delta", os.path.join(folder, "forget.h5")]
        apply(folder, "two.h5", [], "without.h5", more=forget)
        apply(folder, "base.h5", [*files[:2], os.path.join(folder, "forget.h5"), files[2]], "later.h5")
        with opened(os.path.join(folder, "base.h5"), options) as predictor, opened(os.path.join(folder, "without.h5"), options) as without, \
                opened(os.path.join(folder, "later.h5"), options) as later:
            inputs = arguments(os.path.join(folder, "train.h5"), predictor.sparse_names)
            refused(predictor, os.path.join(folder, "forget.h5"), "delta 1 is missing")
            predictor.apply_delta(files[0])
            predictor.apply_delta(files[1])
            before = predictor.predict(*inputs), predictor.step
            predictor.apply_delta(os.path.join(folder, "forget.h5"))
            check(same_bits(predictor.predict(*inputs), without.predict(*inputs)) and predictor.step == before[1], f"{name}: forgotten")
            check(not same_bits(predictor.predict(*inputs), before[0]), f"{name}: nothing was forgotten")
            predictor.apply_delta(files[2])
            check(same_bits(predictor.predict(*inputs), later.predict(*inputs)), f"{name}: after forgetting")
            refused(predictor, os.path.join(folder, "forget.h5"), "too late")
        print(f"{name}: forgotten", flush=True)


def refused(predictor, path, part, status=65):
    """apply_delta() raises an error, and the predictor stays as it is."""
    try:
        predictor.apply_delta(path)
    except trshard.Error as error:
        check(error.status == status and part in str(error), f"{path}: {error.status} {error}, expected {part!r}")
    else:
        check(False, f"{path} was applied")


def test_refused(top):
    """Gaps, foreign and damaged files, and files that are no deltas."""
    folder = os.path.join(top, "refused")
    base, files = make_chain(folder, "zch", MODELS["zch"][0])
    _, others = make_chain(os.path.join(top, "other"), "zch", f"{MODELS['zch'][0]} -seed 9")
    bad = os.path.join(folder, "bad.h5")

    def changed(change):
        shutil.copy(files[1], bad)
        with h5py.File(bad, "r+") as h:
            del h["checksums/embedding"]  # so that the numbers are looked at
            change(h)
        return bad

    def set_of(name, value):
        def change(h):
            h[f"embedding/t/delta/{name}"][...] = value(h[f"embedding/t/delta/{name}"][()])
        return change

    def renamed(h):
        h.move("embedding/t", "embedding/unknown")

    with opened(base, None) as predictor:
        inputs = arguments(os.path.join(folder, "train.h5"), predictor.sparse_names)
        predictor.apply_delta(files[0])
        before = predictor.predict(*inputs), predictor.step
        for path, part in ((files[0], "already there"), (files[2], "delta 2 is missing"), (others[1], "do not belong together"), (base, "expected a delta")):
            refused(predictor, path, part)
        refused(predictor, os.path.join(folder, "none.h5"), "none.h5", 66)
        refused(predictor, folder, "is a directory", 66)
        os.mkfifo(os.path.join(folder, "fifo.h5"))
        refused(predictor, os.path.join(folder, "fifo.h5"), "regular file", 66)
        whole = pathlib.Path(files[1]).read_bytes()
        for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            pathlib.Path(bad).write_bytes(whole[:size])
            refused(predictor, bad, "bad.h5")
        with h5py.File(files[1]) as h:
            places = [h[name].id.get_offset() for name in ("embedding/t/weight", "embedding/t/delta/ids", "embedding/t/delta/rows", "embedding/t/delta/held")]
        for place in places:
            pathlib.Path(bad).write_bytes(whole[:place + 3] + bytes([whole[place + 3] ^ 1]) + whole[place + 4:])
            refused(predictor, bad, "damaged")
        for change, part in ((set_of("ids", lambda ids: ids * 0 + 5), "cannot have row"), (set_of("rows", lambda rows: rows[::-1]), "ascending"),
                             (set_of("rows", lambda rows: rows + 100000), "ascending numbers below"), (renamed, "which the model does not have")):
            refused(predictor, changed(change), part)
        check(same_bits(predictor.predict(*inputs), before[0]) and predictor.step == before[1], "a refused delta has changed the model")
        predictor.apply_delta(files[1])
    with opened(base, "-table_t_zch_buckets 4 -tables_data_type int8") as predictor:
        child = os.fork()
        if child == 0:
            try:
                predictor.apply_delta(files[0])
            except trshard.Error as error:
                os._exit(0 if "another process" in str(error) else 1)
            os._exit(2)
        check(os.waitpid(child, 0)[1] == 0, "a forked process has applied a delta")
        predictor.apply_delta(files[0])
    run(BINARY, 1, "-task predict -data_eval train.h5 -batch_size 24 -init_from base.h5 -tables_data_type int8 -quant_checkpoint q.h5 -output run.h5 -existing_outputs replace", folder)
    with opened(os.path.join(folder, "q.h5"), None) as predictor:
        refused(predictor, files[0], "")
    print("refused: the model stays", flush=True)


def test_counts(top):
    """Ids that the model does not know are counted."""
    folder = os.path.join(top, "counts")
    base, files = make_chain(folder, "dynamic", MODELS["dynamic"][0])
    with opened(base, None) as predictor:
        for path in [None, *files[:2]]:
            if path:
                predictor.apply_delta(path)
            before = predictor.id_counts()
            lengths, values, _, dense = arguments(os.path.join(folder, "train.h5"), predictor.sparse_names)
            predictor.predict(lengths, values, None, dense)
            apply(folder, "base.h5", files[:files.index(path) + 1] if path else [], "full.h5")
            held, at, n = law_delta.ids_of(os.path.join(folder, "full.h5")), 0, len(dense)
            for f, name in enumerate(predictor.sparse_names):
                mine = values[at:at + lengths[f * n:(f + 1) * n].sum()]
                at += len(mine)
                unknown = sum(number not in held for number in mine.tolist())
                found = tuple(b - a for a, b in zip(before[name], predictor.id_counts()[name]))
                check(found == (len(mine), unknown) and unknown, f"{name}: {found}, expected {len(mine), unknown}")
    print("counts: ids without a row", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as top:
        for test in sys.argv[2:] or ["bits", "forget", "refused", "counts"]:
            globals()[f"test_{test}"](top)
