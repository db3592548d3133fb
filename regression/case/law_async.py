# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints beside the training (-checkpoint_async): each file has the bits that a blocking write gives at its step, on any plan."""
import glob
import os
import random
import signal
import time

import h5py
import numpy as np

import law_dynamic
import law_follow
import law_zch
from law_delta import BATCH, MODEL, SEQUENCE, fault, make
from law_faults import wait_for
from law_increments import copied, is_increment, name_of, steps_in
from trsrun import Job, attribute, check, check_same_tensors, optimizers, run, thin, thinned

EVERY, STEPS = 3, 12  # checkpoints after steps 3, 6, 9 and 12; the last one is not written beside steps
PLANS = [(1, "table_wise", "adam"), (2, "row_wise", "rowwise_adagrad"), (3, "row_wise", "adam"), (2, "column_wise", "rowwise_adagrad"),
         (2, "column_wise", "partial_rowwise_adam"), (3, "data_parallel", "adam"), (4, "table_row_wise -topology_local_world_size 2", "adagrad"),
         (4, "grid_shard -topology_local_world_size 2", "rowwise_adagrad"), (2, "column_wise -reproducible", "lamb")]


def slow(binary, kib, part, rank=-1):
    """Environment in which a rank, or all of them, write so many KiB/s to files whose path contains `part`. Builds with sanitizers have no library
    to preload."""
    library = os.path.join(os.path.dirname(binary), "regression", "fault", "libfault_preload.so")
    return {"TRS_FAULT_SLOW": f"{kib} {rank} {part}", "TRS_FAULT_PROGRAM": os.path.realpath(binary), "LD_PRELOAD": library} if os.path.exists(library) else {}


def words(ranks, name, more, steps=STEPS):
    return (f"-data_train train.h5 -batch_size {BATCH // ranks} -steps {steps} -checkpoint_dir {name} -checkpoint_every {EVERY} -checkpoint_keep 99 "
            f"-existing_outputs replace -output {name}.run.h5 {more}")


def contents(path):
    """All datasets of a file, with the checksums, and its attributes, except the run, its options and its times."""
    found = {}
    with h5py.File(path) as h:
        def add(name, node):
            if isinstance(node, h5py.Dataset):
                found[name] = (node.shape, node.dtype.str, node[()].tobytes())
        h.visititems(add)
        for name, value in h.attrs.items():
            if name not in ("options", "run_id") and not name.startswith("metrics"):  # metrics have the time of steps
                found[f"attribute {name}"] = np.asarray(value).tobytes()
    return found


def check_same_files(folder, one, other, what):
    check(steps_in(folder, one) == steps_in(folder, other), f"{what}: steps {steps_in(folder, one)} and {steps_in(folder, other)}")
    for step in steps_in(folder, one):
        a, b = (contents(os.path.join(folder, name, name_of(step))) for name in (one, other))
        differ = sorted(key for key in set(a) | set(b) if a.get(key) != b.get(key))
        # the attributes' checksums include those of the options
        differ = [key for key in differ if not key.startswith("checksums") or "attribute" not in key]
        check(not differ, f"{what}, step {step}: {differ} differ")


def compare(binary, folder, ranks, more, what, kib=400, buffer="1MiB", steps=STEPS):
    """Train with blocking checkpoints, and with those beside the training on a slow disk. Return the text and the numbers of the second."""
    run(binary, ranks, words(ranks, "block", f"{more} -checkpoint_final block.final.h5", steps), folder)
    text = run(binary, ranks, words(ranks, "async", f"{more} -checkpoint_final async.final.h5 -checkpoint_async -checkpoint_async_bytes {buffer}", steps), folder,
               environment=slow(binary, kib, "async/")).text
    check_same_files(folder, "block", "async", what)
    check_same_tensors(os.path.join(folder, "block.final.h5"), os.path.join(folder, "async.final.h5"), f"{what}: the end of the training")
    with h5py.File(os.path.join(folder, "async.run.h5")) as h:
        numbers = {name[6:]: int(value) for name, value in h.attrs.items() if name.startswith("async_")}
    check(numbers.get("checkpoints", 0) > 0, f"{what}: no file was written beside the training:\n{text[-1500:]}")
    for name in ("block", "async"):
        for step in steps_in(folder, name):
            os.unlink(os.path.join(folder, name, name_of(step)))
    return text, numbers


@thinned
def test_async_one_step_of_weights_and_moments(binary, folder):
    """The weights, first moments and second moments of a file are of one step, under every optimizer, although the rows change while the file is
    written. (DeepRec issue 1023: they were of three steps, and the resumed training ended with NaN.)"""
    make(folder, BATCH * STEPS)
    names = optimizers(binary)
    for optimizer in thin(names, [name for name in names if name in ("adam", "lamb", "rowwise_adagrad", "partial_rowwise_adam")]):
        text, numbers = compare(binary, folder, 1, f"{MODEL} -embedding_optimizer {optimizer}", optimizer)
        check(numbers["saved_bytes"] > 0, f"{optimizer}: no row has changed while a file was written:\n{text[-1500:]}")


@thinned
def test_async_plans(binary, folder):
    """A file is the same on every plan, also if steps wait for the memory of saved rows."""
    make(folder, BATCH * STEPS)
    n_waits = 0
    for ranks, plan, optimizer in thin(PLANS, [PLANS[1], PLANS[3], PLANS[5], PLANS[7]]):
        what = f"{plan} on {ranks} ranks, {optimizer}"
        more = f"{MODEL} -embedding_optimizer {optimizer} -tables_sharding_types {plan} {SEQUENCE if ranks == 4 else ''}"
        text, numbers = compare(binary, folder, ranks, more, what, buffer="4096")
        check((numbers["waits"] > 0) == ("raise -checkpoint_async_bytes" in text), f"{what}: {numbers['waits']} waits:\n{text[-1500:]}")
        n_waits += numbers["waits"]
    check(n_waits > 0 or not slow(binary, 0, ""), "no step has waited")  # a fast disk needs no waits


@thinned
def test_async_caches(binary, folder):
    """Lines of caches that are written back while a file is written do not change the file."""
    make(folder, BATCH * STEPS)
    for algorithm, pipeline in thin((("lru", "sparse_dist"), ("lfu", "sparse_dist"), ("lru", "prefetch_sparse_dist")), (("lfu", "sparse_dist"), ("lru", "prefetch_sparse_dist"))):
        more = (f"{MODEL} -embedding_optimizer adam -tables_sharding_types row_wise -tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.1 "
                f"-tables_cache_algorithm {algorithm} -pipeline {pipeline}")
        compare(binary, folder, 2, more, f"{algorithm}, {pipeline}")


@thinned
def test_async_ids(binary, folder):
    """Tables that give rows to ids, take them back and grow, while a file is written: it has the ids and the rows of its step."""
    law_zch.make(folder)
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "train.h5"))
    for what, more in (("zch", law_zch.options(48, "-table_t_zch_interval 2 -table_t_zch_buckets 4 -embedding_optimizer adam")),
                       ("dynamic", law_dynamic.options(160, "-table_t_dynamic_buckets 4 -table_t_dynamic_ttl 3 -embedding_optimizer adam"))):
        for ranks, plan in thin(((1, "table_wise"), (2, "row_wise"), (2, "data_parallel")), ((1, "table_wise"), (2, "row_wise"))):
            compare(binary, folder, ranks, f"{more} -table_t_sharding_types {plan}", f"{what}, {plan} on {ranks} ranks", kib=200)


@thinned
def test_async_chain(binary, folder):
    """With -checkpoint_full_every and -delta_every, the files have exactly the changes since the one before, and a resumed training goes on."""
    make(folder, BATCH * STEPS)
    for ranks, plan in thin(((1, "table_wise"), (2, "row_wise"), (3, "column_wise")), ((2, "row_wise"),)):
        more = f"{MODEL} -reproducible -embedding_optimizer adam -tables_sharding_types {plan} -checkpoint_full_every 2"
        for name, beside in (("block", ""), ("async", "-checkpoint_async")):
            run(binary, ranks, words(ranks, name, f"{more} -delta_every 2 -delta_dir {name}.d -checkpoint_final {name}.h5 {beside}"), folder,
                environment=slow(binary, 2000, "async/"))
        check([is_increment(os.path.join(folder, "async", name_of(step))) for step in steps_in(folder, "async")] == [False, True, False, True], "other increments")
        for step in steps_in(folder, "block"):
            a, b = (contents(os.path.join(folder, name, name_of(step))) for name in ("block", "async"))
            tensors = [key for key in a if not key.startswith(("checksums", "attribute"))]
            check(all(a[key] == b[key] for key in tensors), f"{plan}, step {step}: other tensors")
        for step in (6, 9):
            name = copied(folder, "async", step)
            run(binary, ranks, words(ranks, name, f"{more} -resume -checkpoint_async -checkpoint_final found.h5"), folder)
            check_same_tensors(os.path.join(folder, "block.h5"), os.path.join(folder, "found.h5"), f"{plan}, resumed after step {step}",
                               ignore=[f"embedding/{table}/delta/changed" for table in ("user", "item", "tag", "word")])  # it writes no deltas


def test_async_refused(binary, folder):
    """A full disk, a failing write, flush or rename of any rank ends the training as that of a blocking write. Earlier files stay."""
    make(folder, BATCH * STEPS)
    base = f"{MODEL} -embedding_optimizer adam"
    for ranks, function, n, errno, message in ((1, "pwrite", 30, 28, "No space left"), (2, "fsync", 1, 5, "Input/output error"), (1, "rename", 2, 28, "No space left"),
                                               (2, "fallocate", 2, 28, "No space left")):
        name = f"{function}{n}"
        run(binary, ranks, words(ranks, name, base, steps=2).replace(f"-checkpoint_every {EVERY}", ""), folder)
        text = run(binary, ranks, words(ranks, name, f"{base} -checkpoint_async -resume"), folder, status=74,
                   environment=fault(binary, function, n, errno, f"{name}/")).text
        check(message in text and f"{name}/step-" in text, f"{function}: {text[-1500:]}")
        left = sorted(os.listdir(os.path.join(folder, name)))
        check(not [file for file in left if file.endswith(".tmp")], f"{function}: {left}")
        run(binary, ranks, words(ranks, name, f"{base} -checkpoint_async -resume"), folder)


def test_async_bad_data(binary, folder):
    """If bad data or a loss that is not finite ends the training, the file that was begun before still gets its place."""
    make(folder, BATCH * STEPS)
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
        h["dense"][BATCH * 2 * EVERY + 1, 0] = np.nan  # in the step after the second file was begun; it is read two steps before
    for ranks, checks, written in ((1, "warning", [EVERY, 2 * EVERY]), (2, "fatal", [EVERY])):
        text = run(binary, ranks, words(ranks, checks, f"{MODEL} -checkpoint_async -data_check {checks}"), folder, status=65,
                   environment=slow(binary, 300, f"{checks}/")).text
        check(steps_in(folder, checks) == written, f"{checks}: {steps_in(folder, checks)}\n{text[-1500:]}")


def test_async_follow(binary, folder):
    """While a training waits for data, its file gets its place."""
    law_follow.make(folder)
    for name in law_follow.NAMES[:3]:  # four batches
        law_follow.put(folder, name)
    wanted = law_follow.whole(binary, folder, 2)
    job = Job(binary, 2, law_follow.words(2, "f", "-data_follow new -checkpoint_dir c -checkpoint_every 2 -checkpoint_keep 9 -checkpoint_async"), folder,
              environment=slow(binary, 300, "c/"))
    law_follow.wait_for(lambda: steps_in(folder) == [2, 4], job)
    for name in law_follow.NAMES[3:]:
        law_follow.put(folder, name)
    law_follow.end(folder)
    result = job.wait(60)
    check(result.status == 0, f"exit {result.status}:\n{result.text[-1500:]}")
    law_follow.check_whole(folder, wanted, "f", "followed")


def test_async_stop(binary, folder):
    """A requested stop while a file is written ends with both files, and the resumed training has the bits of a whole one."""
    make(folder, BATCH * 40)
    base = f"{MODEL} -reproducible -embedding_optimizer adam -checkpoint_async"
    run(binary, 2, words(2, "whole", f"{base} -checkpoint_final whole.h5", steps=40), folder)
    job = Job(binary, 2, words(2, "c", f"{base} -report_interval 0.01 -data_check none", steps=40).split(), folder, environment=slow(binary, 300, "c/"))
    wait_for(lambda: glob.glob(os.path.join(folder, "c", ".*.tmp")), job)
    job.send_signal(signal.SIGUSR1)
    result = job.wait(120)
    check(result.status == 75, f"exit {result.status}: {result.text[-1500:]}")
    run(binary, 3, words(3, "c", f"{base} -resume -checkpoint_final c.h5", steps=40), folder)
    check_same_tensors(os.path.join(folder, "whole.h5"), os.path.join(folder, "c.h5"), "stopped and resumed")


@thinned
def test_async_kills(binary, folder):
    """kill -9 of the job at a random time, or at a call on a file: every checkpoint is whole or absent, and the resumed training has the bits of an
    uninterrupted one."""
    make(folder, BATCH * 40)
    base = f"{MODEL} -reproducible -embedding_optimizer adam -checkpoint_async -checkpoint_async_bytes 8192"
    run(binary, 1, words(1, "whole", f"{base} -checkpoint_final whole.h5", steps=40), folder)
    rng, kills = random.Random(44), 0
    for chain in range(thin(20, 1)):
        for number in range(10):
            ranks = rng.choice((1, 2, 3))
            environment = slow(binary, rng.choice((300, 2000, 20000)), f"c{chain}/")
            if rng.random() < 0.6:
                environment.update(fault(binary, rng.choice(("pwrite", "pwrite", "fsync", "rename")), rng.randrange(1, 20), rng.choice(("KILL_JOB", "KILL_HALF")), f"c{chain}/step"))
            job = Job(binary, ranks, words(ranks, f"c{chain}", f"{base} -resume", steps=40).split(), folder, environment=environment)
            deadline = time.monotonic() + 0.3 + 1.5 * rng.random()
            while job.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            job.kill()
            kills += 1
            for step in steps_in(folder, f"c{chain}"):
                check(attribute(os.path.join(folder, f"c{chain}", name_of(step)), "step") == step, f"kill {number}: a broken file of step {step}")
        text = run(binary, 2, words(2, f"c{chain}", f"{base} -resume -checkpoint_final c.h5", steps=40), folder).text
        check("warning" not in text, f"after {number + 1} kills: {text[:2000]}")
        check_same_tensors(os.path.join(folder, "whole.h5"), os.path.join(folder, "c.h5"), f"after {number + 1} kills")
    print(f"{kills} kills")
