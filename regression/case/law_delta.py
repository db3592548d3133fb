# SPDX-License-Identifier: BSD-3-Clause
"""Deltas (-delta_every): each file has the rows that changed since the file before, and a base with its deltas is the checkpoint of the
training."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np

import law_dynamic
import law_zch
from trsrun import Job, attribute, check, flip_bit, run, same_bits, tensors, thin, thinned, write_dataset

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
FEATURES = {"user": 700, "item": 400, "shop": 400, "tag": 60, "word": 90}
# item and shop share a table, tag uses a mean, word is a sequence, and user is in half precision
MODEL = ("-tables user,item,tag,word -table_item_features item,shop -table_tag_pooling mean -table_word_pooling none -table_user_data_type bf16 "
         "-tables_embedding_dim 8 -tables_min_partition 4 -dense_arch 16,8 -over_arch 16,1 -seed 3 -embedding_learning_rate 0.1")
BATCH, EVERY, STEPS = 24, 4, 12
PLANS = [(1, "table_wise"), (2, "row_wise"), (3, "row_wise"), (2, "column_wise"), (3, "data_parallel"), (4, "table_row_wise -topology_local_world_size 2"),
         (4, "grid_shard -topology_local_world_size 2")]
SEQUENCE = "-table_word_sharding_types row_wise"  # sequences have no grids


def make(folder, samples=BATCH * STEPS):
    return write_dataset(os.path.join(folder, "train.h5"), samples, features=FEATURES)


def words_of(name, ranks, more, steps=STEPS):
    return (f"-data_train train.h5 -batch_size {BATCH // ranks} -steps {steps} -checkpoint_final {name}.final.h5 -existing_outputs replace "
            f"-delta_every {EVERY} -delta_dir {name}.d {more}")


def train(binary, folder, name, ranks, more, steps=STEPS, **others):
    return run(binary, ranks, words_of(name, ranks, more, steps), folder, **others)


def deltas(folder, name):
    return sorted(glob.glob(os.path.join(folder, f"{name}.d", "step-*.h5")))


def apply(folder, base, files, out, status=0, more=()):
    """The tool's message. base and out: names in the folder."""
    result = subprocess.run([sys.executable, os.path.join(TOOLS, "apply_delta.py"), os.path.join(folder, base), *files, "-o", os.path.join(folder, out), "--force", *more],
                            capture_output=True, text=True, check=False)
    check(result.returncode == status, f"exit {result.returncode}, expected {status}:\n{result.stderr[-1000:]}")
    check(status or os.path.exists(os.path.join(folder, out)), "no output")
    return result.stderr


def weights(path):
    return {name: value for name, value in tensors(path).items() if name.startswith("dense/") or name.endswith("/weight")}


def check_same_weights(found, wanted, what):
    a, b = weights(found), weights(wanted)
    check(sorted(a) == sorted(b), f"{what}: other tensors: {sorted(set(a) ^ set(b))}")
    differ = [name for name in a if not same_bits(a[name], b[name])]
    check(not differ, f"{what}: {differ} differ")


def check_same_files(files, wanted, what):
    check(len(files) == len(wanted), f"{what}: {len(files)} deltas, expected {len(wanted)}")
    for path, other in zip(files, wanted):
        a, b = tensors(path), tensors(other)
        check(sorted(a) == sorted(b) and all(same_bits(a[name], b[name]) for name in a), f"{what}: {os.path.basename(path)} has other tensors")


def rows_of_steps(folder, features, first, end):
    """The ids that these features have in steps first .. end - 1."""
    with h5py.File(os.path.join(folder, "train.h5")) as h:
        lengths, values = h["sparse/lengths"][()], h["sparse/values"][()]
        names = list(h["sparse"].attrs["features"])
    sample, feature = np.divmod(np.repeat(np.arange(lengths.size), lengths.reshape(-1)), len(names))
    there = (sample // BATCH >= first) & (sample // BATCH < end) & np.isin(feature, [names.index(name) for name in features])
    return np.unique(values[there])


@thinned
def test_delta_plans(binary, folder):
    """The rows of a delta are those of the ids in its steps, in every sharding type and on any number of ranks. With -reproducible, deltas do
    not depend on the plan, and the base with all of them is the checkpoint."""
    make(folder)
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final base.h5 {MODEL}", folder)
    for number, (ranks, plan) in enumerate(thin(PLANS, [PLANS[0], PLANS[2], PLANS[4], PLANS[6]])):
        name = f"plan{number}"
        train(binary, folder, name, ranks, f"-reproducible -init_from base.h5 {MODEL} -tables_sharding_types {plan} {SEQUENCE if ranks == 4 else ''}")
        files = deltas(folder, name)
        check_same_files(files, deltas(folder, "plan0"), f"{plan} on {ranks} ranks")
        for i, path in enumerate(files):
            for table, features in (("user", ["user"]), ("item", ["item", "shop"]), ("tag", ["tag"]), ("word", ["word"])):
                rows = tensors(path)[f"embedding/{table}/delta/rows"]
                check(np.array_equal(rows, rows_of_steps(folder, features, i * EVERY, (i + 1) * EVERY)), f"{plan}, {table}: other rows in {path}")
        apply(folder, "base.h5", files, "full.h5")
        check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, f"{name}.final.h5"), plan)
    run(binary, 2, f"-task eval -data_eval train.h5 -batch_size 12 -init_from full.h5", folder)


@thinned
def test_delta_kernels(binary, folder):
    """The updates of the default kernels, which cut rows by columns or send lists of rows, mark the same rows. So do caches."""
    make(folder)
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final base.h5 {MODEL}", folder)
    train(binary, folder, "plain", 1, f"-init_from base.h5 {MODEL}")
    cached = "-tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.1 -pipeline prefetch_sparse_dist"
    for number, (ranks, plan) in enumerate(thin(PLANS[1:] + [(2, f"table_wise {cached}"), (2, "column_wise -embedding_optimizer lamb"), (2, "column_wise -embedding_optimizer adam")],
                                                [PLANS[3], PLANS[4], (2, f"table_wise {cached}"), (2, "column_wise -embedding_optimizer lamb")])):
        name = f"plan{number}"
        train(binary, folder, name, ranks, f"-init_from base.h5 {MODEL} -tables_sharding_types {plan} {SEQUENCE if ranks == 4 else ''}")
        for path, other in zip(deltas(folder, name), deltas(folder, "plain")):
            a, b = tensors(path), tensors(other)
            check(all(same_bits(a[key], b[key]) for key in b if key.endswith("/delta/rows")), f"{plan}: other rows in {path}")
        apply(folder, "base.h5", deltas(folder, name), "full.h5")
        check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, f"{name}.final.h5"), plan)


def ids_of(path):
    """{id: row} of table t in a checkpoint; the rows are those of the table."""
    found = tensors(path)
    if "embedding/t/zch/raw" in found:
        held = found["embedding/t/zch/raw"] != law_zch.NONE
        return dict(zip(found["embedding/t/zch/raw"][held].tolist(), found["embedding/t/zch/slot"][held].tolist()))
    return law_dynamic.rows_of_ids(path)


def check_same_predictions(binary, folder, found, wanted, what):
    """Two checkpoints predict the same for the training data. found and wanted: names in the folder."""
    of = []
    for name in (found, wanted):
        run(binary, 1, f"-task predict -data_eval train.h5 -batch_size {BATCH} -init_from {name} -output predicted.h5 -existing_outputs replace", folder)
        of.append(tensors(os.path.join(folder, "predicted.h5"))["predictions"])
    check(same_bits(*of), f"{what}: {np.sum(of[0] != of[1])} of {len(of[0])} predictions differ")


def check_ids(binary, folder, model, plans, what):
    """Deltas of a table that keeps ids do not depend on the plan, name the ids that lost their rows, and rebuild the map. The result predicts
    what the checkpoint predicts, so the same ids are too old in both."""
    law_zch.make(folder)
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "train.h5"))
    # the base has another step: the map changes between it and the first delta, too
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final base.h5 {model}", folder)
    for number, (ranks, plan) in enumerate(plans):
        name = f"plan{number}"
        train(binary, folder, name, ranks, f"-reproducible -init_from base.h5 {model} -table_t_sharding_types {plan} -checkpoint_dir {name}.c -checkpoint_every {EVERY} -checkpoint_keep 9")
        files = deltas(folder, name)
        check_same_files(files, deltas(folder, "plan0"), f"{what}, {plan} on {ranks} ranks")
        before = ids_of(os.path.join(folder, "base.h5"))
        n_lost = 0
        for i, path in enumerate(files):
            now = ids_of(os.path.join(folder, f"{name}.c", os.path.basename(path)))
            lost = set(tensors(path).get("embedding/t/delta/lost", np.zeros(0, np.int64)).tolist())
            check(lost == before.keys() - now.keys(), f"{what}, {plan}: other ids have lost their rows in {path}")
            apply(folder, "base.h5", files[:i + 1], "full.h5")
            check(ids_of(os.path.join(folder, "full.h5")) == now, f"{what}, {plan}: another map after {path}")
            check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, f"{name}.c", os.path.basename(path)), f"{what}, {plan}")
            if number == 0:
                check_same_predictions(binary, folder, "full.h5", f"{name}.c/{os.path.basename(path)}", f"{what}, {plan}")
            before, n_lost = now, n_lost + len(lost)
        check(n_lost > 0, f"{what}: no id has lost its row")
    run(binary, 2, "-task eval -data_eval train.h5 -batch_size 12 -init_from full.h5", folder)


def test_delta_folder(binary, folder):
    """Two trainings cannot write into one folder, at the same time or one after the other."""
    make(folder)
    job = Job(binary, 1, words_of("a", 1, MODEL, 10**9), folder)
    job.read_to("delta 2 ")
    try:
        text = train(binary, folder, "a", 2, MODEL, status=73).text
        check("belongs to another job that runs" in text and "take another -delta_dir" in text, text[-1000:])
    finally:
        job.kill()
    check("of another run" in train(binary, folder, "a", 1, MODEL, status=73).text, "no word of another run")


def test_delta_folder_lost(binary, folder):
    """If the folder is lost and something else has its name, each delta that is due prints a
    warning, and the training goes on. The next delta that can be written has all rows."""
    make(folder)
    path = os.path.join(folder, "a.d")
    job = Job(binary, 2, words_of("a", 2, MODEL, 10**9), folder)
    job.read_to("delta 1 ")
    while not os.path.isfile(path):
        try:
            os.rename(path, f"{path}.{time.monotonic_ns()}")
            with open(path, "w", encoding="ascii"):
                pass
        except (FileNotFoundError, IsADirectoryError):
            pass
    for _ in range(3):
        job.read_to("trshard: warning: the delta after step ")
    os.remove(path)
    job.read_to("delta ")
    os.rename(path, f"{path}.old")
    other = next(iter(glob.glob(f"{path}.old/step-*.h5")))
    with h5py.File(other, "r+") as h:
        h.attrs["run_id"] = "f" * len(h.attrs["run_id"])
    os.makedirs(f"{path}.foreign")
    shutil.copy(other, f"{path}.foreign")
    while os.path.exists(f"{path}.foreign"):  # until the training has not made its folder again meanwhile
        try:
            os.rename(f"{path}.foreign", path)
        except OSError:
            os.rename(path, f"{path}.{time.monotonic_ns()}")
    for _ in range(3):
        job.read_to("trshard: warning: the delta after step ")
    job.kill()


def test_delta_without_checksums(binary, folder):
    """A base without checksums has no id, so the chain begins at the run, and no other file fits."""
    make(folder)
    train(binary, folder, "b", 1, MODEL)
    with h5py.File(os.path.join(folder, "b.final.h5"), "r+") as h:
        del h["checksums"]
    text = train(binary, folder, "a", 1, f"-init_from b.final.h5 {MODEL}").text
    check(re.search(r"base (?!0{16})[0-9a-f]{16}", text), text)
    check("do not belong together" in apply(folder, "b.final.h5", deltas(folder, "a"), "full.h5", 65), "another message")


@thinned
def test_delta_zch(binary, folder):
    """Tables whose rows are given to ids and taken back."""
    plans = thin(law_zch.PLANS[:6], [law_zch.PLANS[0], law_zch.PLANS[2], law_zch.PLANS[5]])
    check_ids(binary, folder, law_zch.options(48, "-table_t_zch_interval 2 -table_t_zch_buckets 4 -embedding_optimizer adam"), plans, "zch")


@thinned
def test_delta_dynamic(binary, folder):
    """Tables that grow. Ids lose their rows when they are too old, and when the table is full."""
    plans = thin(law_zch.PLANS[:6], [law_zch.PLANS[0], law_zch.PLANS[2], law_zch.PLANS[5]])
    check_ids(binary, folder, law_dynamic.options(160, "-table_t_dynamic_buckets 4 -table_t_dynamic_ttl 3"), plans, "dynamic")


def fault(binary, function, n, what, part):
    """Environment in which the n-th call of a function of rank 0, for paths that contain `part`, fails with an errno or kills the job."""
    return {"TRS_FAULT": f"{function} {n} {what} 0", "TRS_FAULT_PROGRAM": os.path.realpath(binary), "TRS_FAULT_PATH": part,
            "LD_PRELOAD": os.path.join(os.path.dirname(binary), "regression", "fault", "libfault_preload.so")}


@thinned
def test_delta_resume(binary, folder):
    """kill -9 before or after a delta or checkpoint gets its name never breaks the chain. The resumed job, with other ranks, continues from its
    checkpoint, and the next delta includes the changed rows that this checkpoint lists."""
    law_zch.make(folder)
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "train.h5"))
    model = law_zch.options(48, "-reproducible -table_t_zch_interval 3 -embedding_optimizer adam")
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 2 -checkpoint_final base.h5 {model}", folder)
    train(binary, folder, "whole", 1, f"-init_from base.h5 {model}")
    # checkpoints after steps 6 and 12 (and the last), deltas after steps 4, 8 and 12
    for number, (n, part) in enumerate(thin([(2, "d/"), (3, "d/"), (1, "c/"), (2, "c/")], [(3, "d/"), (2, "c/")])):
        name = f"kill{number}"
        more = f"-init_from base.h5 {model} -checkpoint_dir {name}.c -checkpoint_every 6"
        train(binary, folder, name, 1, more, status=None, environment=fault(binary, "rename", n, "KILL", f"{name}.{part}"))
        check(not os.path.exists(os.path.join(folder, f"{name}.final.h5")), f"{part}: the job was not killed")
        train(binary, folder, name, 2, f"{more} -resume -table_t_sharding_types row_wise")
        check_same_files(deltas(folder, name), deltas(folder, "whole"), f"killed at rename {n} of {part}")
        apply(folder, "base.h5", deltas(folder, name), "full.h5")
        check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, "whole.final.h5"), f"killed at rename {n} of {part}")


def test_delta_other_steps(binary, folder):
    """A resume with another -delta_every removes the deltas of the steps that it repeats. Its first delta has the rows that have changed since
    the last delta that remains. A run that went on without deltas begins a new chain."""
    make(folder)
    base = f"{MODEL} -checkpoint_dir c -reproducible"
    train(binary, folder, "a", 1, f"{base} -checkpoint_every 6", steps=6)  # a delta after step 4, a checkpoint after step 6
    copy = os.path.join(folder, "first.h5")
    os.link(os.path.join(folder, "c", "step-000000006.h5"), copy)
    # as if the job had gone on to step 8 and was killed
    late = os.path.join(folder, "late.h5")
    train(binary, folder, "a", 1, f"{base} -resume -checkpoint_every 0", steps=8)
    os.rename(os.path.join(folder, "a.d", "step-000000008.h5"), late)
    os.unlink(os.path.join(folder, "c", "step-000000008.h5"))
    os.link(late, os.path.join(folder, "a.d", "step-000000008.h5"))
    if not os.path.exists(os.path.join(folder, "c", "step-000000006.h5")):
        os.link(copy, os.path.join(folder, "c", "step-000000006.h5"))
    train(binary, folder, "a", 2, f"{base} -resume -delta_every 5", steps=12)
    names = [os.path.basename(path) for path in deltas(folder, "a")]
    check(names == ["step-000000004.h5", "step-000000010.h5"], f"the deltas are {names}")
    rows = tensors(deltas(folder, "a")[1])["embedding/user/delta/rows"]
    check(np.array_equal(rows, rows_of_steps(folder, ["user"], 4, 10)), "other rows after the resume")
    apply(folder, "first.h5", deltas(folder, "a")[1:], "full.h5")
    check(attribute(os.path.join(folder, "full.h5"), "step") == 10, "another step")
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} {base} -resume -steps 14", folder)
    text = train(binary, folder, "a", 1, f"{base} -resume", steps=16).text
    check("a chain from step 14" in text, text[:2000])
    check("they do not belong together" in apply(folder, "first.h5", deltas(folder, "a")[1:], "full.h5", status=65), "no word of another chain")


def test_delta_full_disk(binary, folder):
    """If a delta cannot be written, the training prints a warning and goes on. The next delta also has the rows of the missing one."""
    make(folder)
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final base.h5 {MODEL}", folder)
    for ranks, function in ((1, "fallocate"), (2, "rename")):
        name = f"full{ranks}"
        text = train(binary, folder, name, ranks, f"-reproducible -init_from base.h5 {MODEL}", environment=fault(binary, function, 2, 28, f"{name}.d/")).text
        check("the delta after step 11 was not written" in text and "the next delta has these rows, too" in text, text[-2000:])
        check([attribute(path, "delta_number") for path in deltas(folder, name)] == [1, 2], "other numbers")
        rows = tensors(deltas(folder, name)[1])["embedding/user/delta/rows"]
        check(np.array_equal(rows, rows_of_steps(folder, ["user"], 4, 12)), "the rows of the lost delta are not there")
        apply(folder, "base.h5", deltas(folder, name), "full.h5")
        check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, f"{name}.final.h5"), function)


def test_delta_chain(binary, folder):
    """A gap, a foreign base, a foreign delta and a damaged file are refused, with the file. A checkpoint between two deltas is a base."""
    make(folder)
    for name, seed in (("base", 3), ("other", 4)):
        run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final {name}.h5 {MODEL} -seed {seed}", folder)
    train(binary, folder, "a", 1, f"-init_from base.h5 {MODEL} -checkpoint_dir c -checkpoint_every 6 -checkpoint_keep 9")
    train(binary, folder, "b", 1, f"-init_from other.h5 {MODEL}")
    a, b = deltas(folder, "a"), deltas(folder, "b")
    for what, base, files, text in (("a gap", "base.h5", [a[0], a[2]], "delta 2 is missing"), ("a gap at the start", "base.h5", a[1:], "delta 1 is missing"),
                                    ("twice", "base.h5", [a[0], a[0]], "already there"), ("a foreign base", "other.h5", a, "do not belong together"),
                                    ("a foreign delta", "base.h5", [a[0], b[1]], "do not belong together")):
        message = apply(folder, base, files, "no.h5", status=65)
        check(text in message and any(os.path.basename(path) in message for path in files), f"{what}: {message}")
    check("expected trshard-checkpoint" in apply(folder, a[0], [], "no.h5", status=65), "a delta as a base")
    middle = "c/step-000000009.h5"  # the base has 3 steps
    for path, text in ((a[1], "delta 2 of the chain of"), (os.path.join(folder, middle), "contains delta 1 of the chain of")):
        shown = subprocess.run([sys.executable, os.path.join(TOOLS, "inspect_file.py"), "--check", path], capture_output=True, text=True, check=False)
        check(shown.returncode == 0 and text in shown.stdout, f"inspect_file.py: {shown.stdout[:1500]}")
    apply(folder, middle, a[1:], "full.h5")
    check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, "a.final.h5"), "from the middle")
    apply(folder, "base.h5", a[:1], "one.h5")
    apply(folder, "one.h5", a[1:], "full.h5")
    check_same_weights(os.path.join(folder, "full.h5"), os.path.join(folder, "a.final.h5"), "in two steps")
    with h5py.File(a[1]) as h:
        place = h["embedding/item/weight"].id.get_offset()
    flip_bit(a[1], place + 100)
    check("damaged" in apply(folder, "base.h5", a, "no.h5", status=65), "a damaged file")
    check(not os.path.exists(os.path.join(folder, "no.h5")), "a result of bad files")


def test_delta_types(binary, folder):
    """-delta_data_type rounds only the rows, and files store them in this type. The result is for predictions, not for -resume."""
    make(folder)
    run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final base.h5 {MODEL} -ema_decay 0.9", folder)
    train(binary, folder, "table", 1, f"-init_from base.h5 {MODEL} -ema_decay 0.9")
    for dtype, stored in (("fp16", np.float16), ("bf16", np.uint16), ("fp32", np.float32)):
        train(binary, folder, dtype, 2, f"-reproducible -init_from base.h5 {MODEL} -ema_decay 0.9 -delta_data_type {dtype}")
        apply(folder, "base.h5", deltas(folder, dtype), "full.h5")
        found, wanted = weights(os.path.join(folder, "full.h5")), weights(os.path.join(folder, f"{dtype}.final.h5"))
        check(tensors(deltas(folder, dtype)[0])["embedding/item/weight"].dtype == stored, "another type")
        for name, limit in (("embedding/item/weight", {"fp32": 0, "fp16": 1e-3, "bf16": 1e-2}[dtype]), ("dense/over_arch/0/weight", 0)):
            off = np.abs(found[name] - wanted[name]) / (1e-4 + np.abs(wanted[name]))
            check(off.max() <= limit and (limit == 0 or off.max() > 0), f"{dtype}: {name} differs by {off.max()}")
    os.mkdir(os.path.join(folder, "r"))
    os.rename(os.path.join(folder, "full.h5"), os.path.join(folder, "r", "step-000000015.h5"))
    text = run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 20 -checkpoint_dir r -resume {MODEL} -ema_decay 0.9", folder, status=64).text
    check("has weights only" in text, text[-1000:])
    text = run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 20 -init_from {deltas(folder, 'table')[0]} {MODEL} -ema_decay 0.9", folder, status=65).text
    check("is a delta" in text, text[-1000:])


def test_delta_forget(binary, folder):
    """--forget zeroes the rows of ids and removes the ids from the map of the result. The delta of --forget_delta does the same to a copy."""
    law_zch.make(folder)
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "train.h5"))
    for kind, model in (("zch", law_zch.options(48, "-table_t_zch_interval 2")), ("dynamic", law_dynamic.options(1000, "-table_t_dynamic_buckets 2"))):
        run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 3 -checkpoint_final {kind}.h5 {model}", folder)
        train(binary, folder, f"{kind}1", 1, f"-init_from {kind}.h5 {model}")
        files, final = deltas(folder, f"{kind}1"), os.path.join(folder, f"{kind}1.final.h5")
        gone = [number for number in ids_of(final) if 0 < number < 1 << 50][:2] + [number for number in ids_of(final) if number < 0][:1]
        forget = ["--forget", "t=" + ",".join(str(number % 2**64) for number in gone)]  # as uint64
        apply(folder, f"{kind}.h5", files, "without.h5", more=[*forget, "--forget_delta", os.path.join(folder, "forget.h5")])
        apply(folder, f"{kind}.h5", files, "with.h5")
        apply(folder, "with.h5", [os.path.join(folder, "forget.h5")], "copy.h5")
        # a delta from a copy fits the chain, too
        apply(folder, "with.h5", [], "no.h5", more=[*forget, "--forget_delta", os.path.join(folder, "later.h5")])
        apply(folder, f"{kind}.h5", [*files, os.path.join(folder, "later.h5")], "chain.h5")
        old, rows = weights(final)["embedding/t/weight"], [ids_of(final)[number] for number in gone]
        for path in ("without.h5", "copy.h5", "chain.h5"):
            found = weights(os.path.join(folder, path))["embedding/t/weight"]
            check(not found[rows].any() and same_bits(np.delete(found, rows, 0), np.delete(old, rows, 0)), f"{kind}, {path}: other rows are zero")
            check(ids_of(os.path.join(folder, path)) == {number: row for number, row in ids_of(final).items() if number not in gone}, f"{kind}, {path}: other ids")
            run(binary, 1, f"-task eval -data_eval train.h5 -batch_size {BATCH} -init_from {path}", folder)
    check_forget_refused(folder)


def check_forget_refused(folder):
    """--forget refuses bad lists of ids and bad outputs. It accepts an id that the model does not
    have, but then writes no delta."""
    path = lambda name: os.path.join(folder, name)
    for more, status, message in ((["--forget", "no_such_list"], 66, "no_such_list does not exist"), (["--forget", folder], 66, "is a folder, expected a file"),
                                  (["--forget", f"t={1 << 64}"], 64, "is not an id"), (["--forget", "t=1", "--forget_delta", path("none.h5")], 64, "the two outputs")):
        text = apply(folder, "dynamic.h5", [], "none.h5", status, more)
        check(message in text, text)
        check(not os.path.exists(path("none.h5")), f"{more}: there is an output")
    apply(folder, "dynamic.h5", [], "all.h5", 0, ["--forget", f"t={(1 << 61) + 7}", "--forget_delta", path("empty.h5")])
    check(not os.path.exists(path("empty.h5")), "a delta that forgets nothing")


def test_delta_tracker(binary, folder):
    """The rows of deltas are those that TorchRec's ModelDeltaTracker reports for the same batches."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "delta", "delta_tracker.json"), encoding="utf-8") as file:
        golden = json.load(file)
    path = write_dataset(os.path.join(folder, "train.h5"), len(golden["ids"]), features=golden["rows"])
    lengths = np.array([[len(bag) for bag in sample] for sample in golden["ids"]], np.int32)
    with h5py.File(path, "r+") as h:
        for name, value in (("lengths", lengths), ("offsets", np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64)),
                            ("values", np.array([number for sample in golden["ids"] for bag in sample for number in bag], np.int32))):
            del h["sparse"][name]
            h["sparse"][name] = value
    features = " ".join(f"-table_{table}_features {','.join(of)}" for table, of in golden["tables"].items())
    for ranks in (1, 2):
        run(binary, ranks, f"-data_train train.h5 -batch_size {golden['batch'] // ranks} -tables {','.join(golden['tables'])} {features} -tables_embedding_dim 8 "
            f"-dense_arch 8,8 -over_arch 8,1 -delta_every {golden['every']} -delta_dir {ranks}.d", folder)
        files = deltas(folder, str(ranks))
        check(len(files) == len(golden["deltas"]), f"{len(files)} deltas")
        for path, (step, tables) in zip(files, golden["deltas"].items()):
            check(attribute(path, "step") == int(step), f"{path}: another step")
            for table, rows in tables.items():
                check(tensors(path)[f"embedding/{table}/delta/rows"].tolist() == rows, f"{path}, {table}: other rows than TorchRec's")
