# SPDX-License-Identifier: BSD-3-Clause
"""Incremental checkpoints (-checkpoint_full_every): a full one and the increments after it are the checkpoint of the training, bit for bit."""
import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys

import h5py
import numpy as np

import law_delta
import law_dynamic
import law_zch
from law_delta import BATCH, MODEL, SEQUENCE, fault, make, rows_of_steps
from trsrun import attribute, check, check_same_tensors, flip_bit, run, same_bits, tensors, thin, thinned

EVERY, STEPS = 3, 15  # checkpoints after steps 3, 6, 9, 12 and 15
PLANS = [(1, "table_wise", "adam"), (2, "row_wise", "rowwise_adagrad"), (3, "row_wise", "adam"), (2, "column_wise", "rowwise_adagrad"),
         (2, "column_wise", "partial_rowwise_adam"), (3, "data_parallel", "lamb"), (4, "table_row_wise -topology_local_world_size 2", "adagrad"),
         (4, "grid_shard -topology_local_world_size 2", "rowwise_adagrad")]


def name_of(step):
    return f"step-{step:09d}.h5"


def steps_in(folder, name="c"):
    return sorted(int(os.path.basename(path)[5:14]) for path in glob.glob(os.path.join(folder, name, "step-*.h5")))


def train(binary, folder, ranks, more, name="c", steps=STEPS, **others):
    return run(binary, ranks, f"-data_train train.h5 -batch_size {BATCH // ranks} -steps {steps} -checkpoint_dir {name} -checkpoint_every {EVERY} "
               f"-existing_outputs replace {more}", folder, **others)


def is_increment(path):
    return attribute(path, "format") == b"trshard-increment"


def resumed(binary, folder, chain, ranks, more, out):
    """Read the newest checkpoint of a folder and write it as a full file, without a step."""
    train(binary, folder, ranks, f"-resume -checkpoint_final {out} {more}", name=chain, steps=max(steps_in(folder, chain)))
    return os.path.join(folder, out)


def copied(folder, name, step):
    """A copy of a folder's files up to a step."""
    to = os.path.join(folder, f"{name}.{step}")
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for other in steps_in(folder, name):
        if other <= step:
            shutil.copy(os.path.join(folder, name, name_of(other)), to)
    return f"{name}.{step}"


def alone(folder, path, step):
    """A folder with a full file alone."""
    to = os.path.join(folder, f"{os.path.basename(path)}.alone")
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    shutil.copy(path, os.path.join(to, name_of(step)))
    return os.path.basename(to)


def tool(*words):
    return subprocess.run([sys.executable, os.path.join(law_delta.TOOLS, words[0]), *words[1:]], capture_output=True, text=True, check=False)


def check_reads(binary, folder, ranks, words, others, what):
    """The chain in c/ and the file final.h5 of the same weights give the same training: on the same plan, and on others (ranks, words)."""
    final, step = os.path.join(folder, "final.h5"), max(steps_in(folder))
    check(is_increment(os.path.join(folder, "c", name_of(step))), f"{what}: the last checkpoint is full")
    found = resumed(binary, folder, copied(folder, "c", step), ranks, words, "found.h5")
    check_same_tensors(final, found, what)
    for more_ranks, more in others:
        one = resumed(binary, folder, copied(folder, "c", step), more_ranks, more, "one.h5")
        two = resumed(binary, folder, alone(folder, final, step), more_ranks, more, "two.h5")
        check_same_tensors(one, two, f"{what}, then {more}")
    merged = os.path.join(folder, "merged.h5")
    done = tool("merge_checkpoint.py", os.path.join(folder, "c", name_of(step)), "-o", merged, "--force")
    check(done.returncode == 0, done.stderr)
    check_same_tensors(final, merged, f"{what}, merged")
    one = resumed(binary, folder, alone(folder, merged, step), ranks, words, "one.h5")
    check_same_tensors(final, one, f"{what}, merged and read")


@thinned
def test_increment_plans(binary, folder):
    """An increment has the rows of the ids in its steps, in every sharding type, with the states of each optimizer. The chain is read on the
    same plan and on others."""
    make(folder, BATCH * STEPS)
    for number, (ranks, plan, optimizer) in enumerate(thin(PLANS, [PLANS[0], PLANS[3], PLANS[5], PLANS[7]])):
        what = f"{plan} on {ranks} ranks, {optimizer}"
        words = f"{MODEL} -embedding_optimizer {optimizer} -tables_sharding_types {plan} {SEQUENCE if ranks == 4 else ''}"
        train(binary, folder, ranks, f"-checkpoint_full_every 3 -checkpoint_keep 9 -checkpoint_final final.h5 {words}")
        check(steps_in(folder) == [3, 6, 9, 12, 15], f"{what}: checkpoints {steps_in(folder)}")
        check([is_increment(os.path.join(folder, "c", name_of(step))) for step in steps_in(folder)] == [False, True, True, False, True], f"{what}: other increments")
        for step in (6, 9, 15):
            found = tensors(os.path.join(folder, "c", name_of(step)))
            for table, features in (("user", ["user"]), ("item", ["item", "shop"]), ("tag", ["tag"]), ("word", ["word"])):
                rows = found[f"embedding/{table}/delta/rows"]
                check(np.array_equal(rows, rows_of_steps(folder, features, step - EVERY, step)), f"{what}, {table}: other rows after step {step}")
                check(all(len(value) == len(rows) for key, value in found.items() if key.startswith(f"embedding/{table}/")), f"{what}: rows of {table} differ in number")
        other = PLANS[(number + 2) % len(PLANS)]
        others = [(other[0], f"{MODEL} -embedding_optimizer {optimizer} -tables_sharding_types {other[1]} {SEQUENCE if other[0] == 4 else ''}")]
        if optimizer != "lamb":  # lamb uses whole rows
            others.append((2, f"{MODEL} -embedding_optimizer {optimizer} -tables_sharding_types column_wise"))
        check_reads(binary, folder, ranks, words, others, what)
        for path in glob.glob(os.path.join(folder, "c*")):
            shutil.rmtree(path)


@thinned
def test_increment_goes_on(binary, folder):
    """A resumed training goes on with the chain, with any ranks, and writes what an uninterrupted one writes. With -delta_every, both kinds of
    files have their own rows."""
    make(folder, BATCH * STEPS)
    words = f"-reproducible -checkpoint_full_every 4 -checkpoint_keep 9 -delta_every 2 -delta_dir d {MODEL} -embedding_optimizer adam"
    train(binary, folder, 1, f"{words} -checkpoint_final whole.h5", name="w")
    os.rename(os.path.join(folder, "d"), os.path.join(folder, "wd"))
    train(binary, folder, 2, words, steps=7)  # the last one is the increment after step 7
    check(is_increment(os.path.join(folder, "c", name_of(7))), "the last one is full")
    text = train(binary, folder, 3, f"{words} -resume -tables_sharding_types row_wise -checkpoint_final final.h5").text
    check("increment 3 of the full one after step 3" in text, text[-2000:])
    check_same_tensors(os.path.join(folder, "whole.h5"), os.path.join(folder, "final.h5"), "resumed")
    rows = tensors(os.path.join(folder, "c", name_of(9)))["embedding/user/delta/rows"]
    check(np.array_equal(rows, rows_of_steps(folder, ["user"], 7, 9)), "other rows after the resume")
    for path in glob.glob(os.path.join(folder, "wd", "step-*.h5")):
        one, two = tensors(path), tensors(os.path.join(folder, "d", os.path.basename(path)))
        check(sorted(one) == sorted(two) and all(same_bits(one[key], two[key]) for key in one), f"{os.path.basename(path)}: other delta")
    # rows in another type are no longer those of the file, so the next one is full
    text = train(binary, folder, 2, f"{words} -resume -table_item_data_type fp16", steps=18).text
    check("the next checkpoint is full" in text and not is_increment(os.path.join(folder, "c", name_of(18))), text[-2000:])


def check_ids(binary, folder, model, other, what):
    """Tables that keep ids. other: options of the table with which the chain is read, too."""
    law_zch.make(folder, BATCH * STEPS)
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "train.h5"))
    for ranks, plan in thin(law_zch.PLANS[:6], [law_zch.PLANS[0], law_zch.PLANS[3], law_zch.PLANS[5]]):
        words = f"{model} -table_t_sharding_types {plan}"
        train(binary, folder, ranks, f"-checkpoint_full_every 5 -checkpoint_keep 9 -checkpoint_final final.h5 {words}")
        check_reads(binary, folder, ranks, words, [(3, f"{model} -table_t_sharding_types row_wise"), (1, f"{model} {other}")], f"{what}, {plan}")
        for path in glob.glob(os.path.join(folder, "c*")):
            shutil.rmtree(path)


@thinned
def test_increment_zch(binary, folder):
    """Tables whose rows are given to ids and taken back."""
    check_ids(binary, folder, law_zch.options(48, "-table_t_zch_interval 2 -table_t_zch_buckets 4 -embedding_optimizer adam"), "", "zch")


@thinned
def test_increment_dynamic(binary, folder):
    """Tables that grow. Ids lose their rows when they are too old, and when the table is full. The chain is also read with another number of
    buckets."""
    check_ids(binary, folder, law_dynamic.options(160, "-table_t_dynamic_buckets 4 -table_t_dynamic_ttl 3 -embedding_optimizer rowwise_adagrad"),
              "-table_t_dynamic_buckets 2", "dynamic")


def test_increment_keep(binary, folder):
    """-checkpoint_keep counts checkpoints, and the files that these need stay as well."""
    make(folder, BATCH * STEPS)
    for keep, expected in ((1, [9, 12]), (2, [9, 12]), (3, [3, 6, 9, 12])):
        train(binary, folder, 1, f"-checkpoint_full_every 2 -checkpoint_keep {keep} {MODEL}" if keep < 3 else f"-checkpoint_full_every 9 -checkpoint_keep 1 {MODEL}",
              name=f"k{keep}", steps=12)
        check(steps_in(folder, f"k{keep}") == expected, f"keep {keep}: {steps_in(folder, f'k{keep}')}")
    # the third checkpoint begins a chain, and the one before it needs the first
    train(binary, folder, 1, f"-checkpoint_full_every 2 -checkpoint_keep 2 {MODEL}", name="k", steps=9)
    check(steps_in(folder, "k") == [3, 6, 9], f"{steps_in(folder, 'k')}")


def test_increment_fall_back(binary, folder):
    """A lost or damaged file is named, and the newest whole chain is read; the training then writes the lost steps again."""
    make(folder, BATCH * STEPS)
    words = f"-reproducible -checkpoint_full_every 9 {MODEL} -embedding_optimizer adam"
    train(binary, folder, 1, f"{words} -checkpoint_final final.h5")
    for what, step, at, message in (("lost", 12, 9, "step-000000012.h5, which is missing"), ("damaged", 9, 6, "step-000000009.h5")):
        chain = copied(folder, "c", STEPS)
        path = os.path.join(folder, chain, name_of(step))
        if what == "lost":
            os.unlink(path)
        else:
            with h5py.File(path) as h:
                place = h["embedding/item/weight"].id.get_offset()
            flip_bit(path, place + 100)
        text = train(binary, folder, 2, f"{words} -resume -checkpoint_final again.h5", name=chain).text
        check(message in text and "looking for an older checkpoint" in text and f"{name_of(at)}, after {at} updates" in text, f"{what}: {text[:3000]}")
        check(text.count("looking for an older") == (1 if what == "lost" else 2), f"{what}: {text[:3000]}")
        check_same_tensors(os.path.join(folder, "final.h5"), os.path.join(folder, "again.h5"), what)
        check_same_tensors(os.path.join(folder, "final.h5"), resumed(binary, folder, chain, 1, words, "read.h5"), f"{what}, read")
        shutil.rmtree(os.path.join(folder, chain))
    # another file in the place of one of the chain
    chain = copied(folder, "c", STEPS)
    shutil.copy(os.path.join(folder, "c", name_of(6)), os.path.join(folder, chain, name_of(9)))
    text = train(binary, folder, 2, f"{words} -resume", name=chain, steps=6).text
    check("they do not belong together" in text and f"{name_of(9)}, after 6 updates" in text, text[:3000])
    shutil.rmtree(os.path.join(folder, "c"))
    # the full checkpoint is lost, so nothing is left
    train(binary, folder, 1, words, steps=6)
    os.unlink(os.path.join(folder, "c", name_of(3)))
    text = train(binary, folder, 1, f"{words} -resume", status=65).text
    check("none of its 1 checkpoint can be read" in text, text[-2000:])


def test_increment_lost_in_a_run(binary, folder):
    """If a file that the next increment needs is removed during the training, the next checkpoint is full."""
    make(folder, BATCH * STEPS)
    train(binary, folder, 1, f"-checkpoint_full_every 9 {MODEL}", steps=6)
    os.unlink(os.path.join(folder, "c", name_of(6)))
    shutil.copytree(os.path.join(folder, "c"), os.path.join(folder, "e"))
    train(binary, folder, 1, f"-checkpoint_full_every 9 -resume {MODEL} -checkpoint_final final.h5", name="e", steps=8)
    check(is_increment(os.path.join(folder, "e", name_of(6))) and is_increment(os.path.join(folder, "e", name_of(8))), "an increment is missing")
    job = law_delta.Job(binary, 2, f"-data_train train.h5 -batch_size {BATCH // 2} -steps {10**9} -checkpoint_dir e -checkpoint_every 50 -checkpoint_full_every {10**6} -resume {MODEL}", folder)
    try:
        job.read_to("checkpoint after step 50")
        for path in glob.glob(os.path.join(folder, "e", "step-*.h5")):
            with contextlib.suppress(FileNotFoundError):  # the training also removes files
                os.unlink(path)
        job.read_to("the checkpoint after step ")
        job.read_to("checkpoint after step ")
    finally:
        job.kill()
    resumed(binary, folder, "e", 1, f"-checkpoint_full_every 9 {MODEL}", "last.h5")


def test_increment_other_tasks(binary, folder):
    """Evaluation, prediction, also of quantised tables, and -init_from read the chain of an increment."""
    make(folder, BATCH * STEPS)
    train(binary, folder, 2, f"-checkpoint_full_every 9 -checkpoint_final final.h5 {MODEL} -ema_decay 0.9")
    increment = f"c/{name_of(STEPS)}"
    for more in ("-task eval", "-task predict", "-task predict -tables_data_type int8"):
        found = []
        for path in ("final.h5", increment):
            run(binary, 2, f"{more} -data_eval train.h5 -batch_size 12 -init_from {path} -output out.h5 -existing_outputs replace", folder)
            found.append(tensors(os.path.join(folder, "out.h5"))["predictions"])
        check(same_bits(*found), f"{more}: other predictions")
    run(binary, 1, f"-task predict -data_eval train.h5 -batch_size 24 -checkpoint_dir c -output dir.h5", folder)
    for path, out in (("final.h5", "a.h5"), (increment, "b.h5")):
        run(binary, 1, f"-data_train train.h5 -batch_size {BATCH} -steps 4 -reproducible -init_from {path} -checkpoint_final {out} {MODEL} -ema_decay 0.9", folder)
    check_same_tensors(os.path.join(folder, "a.h5"), os.path.join(folder, "b.h5"), "-init_from")
    shutil.copy(os.path.join(folder, increment), os.path.join(folder, "away.h5"))
    text = run(binary, 1, f"-task eval -data_eval train.h5 -batch_size 24 -init_from away.h5", folder, status=65).text
    check(re.search(r"away\.h5 has only the rows that have changed since .*/step-000000012\.h5, which is missing", text), text[-1000:])


def test_increment_tools(binary, folder):
    """The tools show an increment, merge its chain, refuse a broken one, and name the tool that merges."""
    make(folder, BATCH * STEPS)
    train(binary, folder, 1, f"-checkpoint_full_every 9 {MODEL}", steps=9)
    path = lambda step: os.path.join(folder, "c", name_of(step))
    shown = tool("inspect_file.py", "--check", path(9))
    check(shown.returncode == 0 and "increment 2 of the full checkpoint after step 3, from step 6 on" in shown.stdout, shown.stdout[:2000])
    for words, status, message in ((["exchange.py", path(9), "--to", "npz", "x.npz"], 65, "tools/merge_checkpoint.py makes a full one"),
                                   (["apply_delta.py", path(9), "-o", "x.h5"], 65, "tools/merge_checkpoint.py makes a full one"),
                                   (["merge_checkpoint.py", path(3), "-o", "x.h5"], 64, "is a full checkpoint already"),
                                   (["merge_checkpoint.py", path(9), "-o", path(6), "--force"], 64, "is among the checkpoints"),
                                   (["merge_checkpoint.py", os.path.join(folder, "train.h5"), "-o", "x.h5"], 65, "expected trshard-checkpoint"),
                                   (["merge_checkpoint.py", "none.h5", "-o", "x.h5"], 66, "none.h5 does not exist")):
        done = tool(*words)
        check(done.returncode == status and message in done.stderr, f"{words}: exit {done.returncode}, {done.stderr}")
    with h5py.File(path(6)) as h:
        place = h["embedding/item/weight"].id.get_offset()
    flip_bit(path(6), place + 100)
    done = tool("merge_checkpoint.py", path(9), "-o", os.path.join(folder, "x.h5"))
    check(done.returncode == 65 and "step-000000006.h5 is damaged" in done.stderr, done.stderr)
    os.unlink(path(6))
    done = tool("merge_checkpoint.py", path(9), "-o", os.path.join(folder, "x.h5"))
    check(done.returncode == 65 and "step-000000006.h5, which is missing" in done.stderr and not os.path.exists(os.path.join(folder, "x.h5")), done.stderr)


@thinned
def test_increment_kills(binary, folder):
    """kill -9 at each phase of a write, and disks that are full, leave every file whole or absent. The resumed job, with other ranks, ends with
    the same bits, and its chain is whole."""
    make(folder, BATCH * STEPS)
    words = f"-reproducible -checkpoint_full_every 3 {MODEL} -embedding_optimizer adam"
    train(binary, folder, 1, f"{words} -checkpoint_final whole.h5", name="w")
    cases = [(function, n, what) for function, most in (("rename", 5), ("fallocate", 5), ("unlink", 3), ("fsync", 5)) for n in range(1, most + 1) for what in ("KILL",)]
    for number, (function, n, what) in enumerate(thin(cases, cases[1::4])):
        name = f"kill{number}"
        job = train(binary, folder, 2, f"{words} -checkpoint_final {name}.h5", name=name, status=None, environment=fault(binary, function, n, what, f"{name}/"))
        killed = not os.path.exists(os.path.join(folder, f"{name}.h5"))
        check(killed or function in ("unlink", "fsync"), f"{function} {n}: the job was not killed: {job.text[-500:]}")
        for step in steps_in(folder, name):
            path = os.path.join(folder, name, name_of(step))
            run(binary, 1, f"-task eval -data_eval train.h5 -batch_size 24 -init_from {path}", folder)
        train(binary, folder, 3, f"{words} -resume -tables_sharding_types row_wise -checkpoint_final {name}.h5", name=name)
        check_same_tensors(os.path.join(folder, "whole.h5"), os.path.join(folder, f"{name}.h5"), f"{function} {n} {what}")
        check(steps_in(folder, name) == steps_in(folder, "w"), f"{function} {n} {what}: {steps_in(folder, name)}")
