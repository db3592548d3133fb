# SPDX-License-Identifier: BSD-3-Clause
"""Trainings that follow a folder (-data_follow). Files that come one after the other give the bits of
a training that has all files from the beginning."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import h5py

from law_faults import checkpoints, newest, wait_for
from law_plans import FEATURES, MIXED, MODEL, TABLES
from trsrun import Job, attribute, check, check_same_tensors, load, losses, run, same_bits, thin, thinned, write_dataset

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "inspect_file.py")
# Batches of 24 begin and end within files, one file is smaller than a batch, and the last batch is
# smaller than the others.
SIZES = (31, 5, 60, 24, 43)
NAMES = tuple(f"day_{k}.h5" for k in range(len(SIZES)))
GLOBAL_BATCH = 24
OPTIONS = f"{MODEL} {TABLES} -reproducible -report_interval 0 -over_arch_dropout 0.1 -metrics_every 2"


PIPELINES = {name: f"-pipeline {name}" for name in ("base", "sparse_dist", "prefetch_sparse_dist")}
PIPELINES["look_ahead"] = "-ebc_look_ahead true -comm_ranks_per_host 1"


def make(folder):
    """Write the files to `made`, and make the folder `new`, which the trainings follow."""
    os.makedirs(os.path.join(folder, "made"), exist_ok=True)
    os.makedirs(os.path.join(folder, "new"), exist_ok=True)
    for k, (name, samples) in enumerate(zip(NAMES, SIZES)):
        write_dataset(os.path.join(folder, "made", name), samples, seed=20 + k, features=FEATURES)


def put(folder, name, into="new"):
    """Rename a file into the folder, as programs must do."""
    place = os.path.join(folder, into, name)
    with open(os.path.join(folder, "made", name), "rb") as made, open(place + ".tmp", "wb") as copy:
        copy.write(made.read())
    os.rename(place + ".tmp", place)


def end(folder, into="new"):
    open(os.path.join(folder, into, "STOP"), "w").close()


def words(ranks, name, options="", mixed=MIXED):
    return (f"{OPTIONS} {mixed if ranks > 1 else ''} -batch_size {GLOBAL_BATCH // ranks} -output {name}.h5 "
            f"-checkpoint_final {name}.final.h5 {options}")


def whole(binary, folder, ranks, options="", **more):
    """A training on all files at once. Returns its losses and final checkpoint."""
    files = ",".join(f"made/{name}" for name in NAMES)
    run(binary, ranks, words(ranks, "whole", f"-data_train {files} {options}", **more), folder)
    return losses(os.path.join(folder, "whole.h5")), os.path.join(folder, "whole.final.h5")


def check_whole(folder, wanted, name, what):
    found = losses(os.path.join(folder, f"{name}.h5"))
    check(same_bits(found, wanted[0]), f"{what}: losses {found}, expected {wanted[0]}")
    check_same_tensors(os.path.join(folder, f"{name}.final.h5"), wanted[1], what)


@thinned
def test_follow_equals_whole(binary, folder):
    """Files that come with random delays, in any division of the data between -data_train and the
    folder, with every pipeline, give the bits of all files at once."""
    make(folder)
    every = [(ranks, pipeline, first) for ranks in (1, 2, 3) for pipeline in PIPELINES for first in (0, 2)]
    random.seed(5)
    for ranks, pipeline, first in thin(every, ((1, "sparse_dist", 0), (2, "base", 2), (3, "prefetch_sparse_dist", 1), (2, "look_ahead", 1))):
        wanted = whole(binary, folder, ranks)
        what = f"{pipeline} on {ranks} ranks, {first} files first"
        name = f"f{ranks}{pipeline}{first}"
        os.makedirs(os.path.join(folder, name))
        train = f"-data_train {','.join('made/' + n for n in NAMES[:first])}" if first else ""
        job = Job(binary, ranks, words(ranks, name, f"{train} -data_follow {name} {PIPELINES[pipeline]}"), folder)
        for each in NAMES[first:]:
            time.sleep(random.uniform(0, 0.5))
            put(folder, each, name)
        end(folder, name)
        result = job.wait(20)
        check(result.status == 0, f"{what}: exit {result.status}:\n{result.text[-2000:]}")
        check_whole(folder, wanted, name, what)
        check("ended by STOP" in result.text, result.text[-2000:])


def follow(binary, folder, ranks, name, options="", **more):
    return Job(binary, ranks, words(ranks, name, f"-data_follow new {options}"), folder, **more)


def check_ended(job, status, what, limit_s=20):
    result = job.wait(limit_s)
    check(result.status == status, f"{what}: exit {result.status}, expected {status}:\n{result.text[-2000:]}")
    return result.text


@thinned
def test_follow_resume(binary, folder):
    """A run that is killed with SIGKILL, while it waits or while it trains, and then resumes on
    another number of ranks, goes on with exactly the next sample."""
    make(folder)
    for first, second, when in thin([(a, b, w) for a in (1, 2, 3) for b in (1, 2, 3) for w in ("waits", "trains")], ((2, 3, "waits"), (3, 1, "trains"))):
        what = f"{first} to {second} ranks, killed while it {when}"
        inner = os.path.join(folder, f"{first}{second}{when}")
        make(inner)
        # the plan may not depend on the number of ranks if bits must not
        wanted = whole(binary, inner, second)
        for name in NAMES[:3] if when == "waits" else NAMES:
            put(inner, name)
        job = follow(binary, inner, first, "f", "-checkpoint_dir ckpt -checkpoint_every 2 -checkpoint_keep 99")
        # 96 samples make 4 batches, which end at the end of a file
        wait_for(lambda: len(checkpoints(inner)) >= 2, job)
        job.kill()
        check(newest(inner) in (4, 6), f"{what}: the newest checkpoint is of step {newest(inner)}")
        for name in NAMES[:2]:  # their samples were taken, so the files may go
            os.remove(os.path.join(inner, "new", name))
        for name in NAMES[3:]:
            if not os.path.exists(os.path.join(inner, "new", name)):
                put(inner, name)
        end(inner)
        check_ended(follow(binary, inner, second, "f", "-checkpoint_dir ckpt -resume"), 0, what)
        check_whole(inner, wanted, "f", what)


def test_follow_resume_another_batch(binary, folder):
    """With another global batch, a resumed run has the samples after the last one that was trained
    on. No sample is lost, and none is taken twice."""
    make(folder)
    for name in NAMES[:2]:
        put(folder, name)
    end(folder)
    check_ended(follow(binary, folder, 2, "f", "-checkpoint_dir ckpt"), 0, "the first files")
    place = os.path.join(folder, "ckpt", f"step-{newest(folder):09d}.h5")
    # 24 and 12 samples: STOP ends the stream, and its last batch is smaller
    check([int(attribute(place, name)) for name in ("step", "samples_seen", "follow_position")] == [2, 36, 36], "the place")
    shown = subprocess.run([sys.executable, TOOL, place], capture_output=True, text=True, check=True).stdout
    check("follows a folder: 5 of 5 samples of day_1.h5 taken, 36 of the stream" in shown, shown)
    check(list(attribute(place, "follow_samples")) == [5, 5] and attribute(place, "follow_file") in ("day_1.h5", b"day_1.h5"), "the file")
    for name in NAMES[2:]:
        put(folder, name)
    text = check_ended(follow(binary, folder, 3, "f", "-checkpoint_dir ckpt -resume -batch_size 10"), 0, "the others")
    check("after sample 36 of the stream, 5 of day_1.h5" in text, text[-2000:])
    check("trained on 127 samples" in text and len(losses(os.path.join(folder, "f.h5"))) == 2 + 5, text[-2000:])


def test_follow_waits_asleep(binary, folder):
    """Ranks that wait for data use no core. The log reports that they wait, and -log_view and the trace show the wait. A signal ends the wait
    with a checkpoint, and a resumed run goes on."""
    make(folder)
    wanted = whole(binary, folder, 2)
    for name in NAMES[:3]:
        put(folder, name)
    job = follow(binary, folder, 2, "f", "-checkpoint_dir ckpt -log_view -trace t.json -trace_first_step 0")
    job.read_to("waiting for data")
    before = [cpu_seconds(job.pid(rank)) for rank in range(2)]
    time.sleep(1.5)
    used = [cpu_seconds(job.pid(rank)) - was for rank, was in enumerate(before)]
    check(max(used) < 0.5, f"{used} s of CPU time in 1.5 s of waiting")
    os.kill(job.pid(1), signal.SIGTERM)
    text = check_ended(job, 75, "SIGTERM while waiting")
    check("stopped on request after step 4: run again with -resume" in text and newest(folder) == 4, text[-2000:])
    check(re.search(r"^waiting for data +1 ", text, re.M), f"-log_view has no wait:\n{text[-6000:]}")
    with open(os.path.join(folder, "t.json")) as trace:
        check("waiting for data" in trace.read(), "the trace has no wait")
    for name in NAMES[3:]:
        put(folder, name)
    end(folder)
    check_ended(follow(binary, folder, 2, "f", "-checkpoint_dir ckpt -resume"), 0, "resumed")
    check_whole(folder, wanted, "f", "stopped while waiting")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_follow_ends(binary, folder):
    """The ends of a stream: -data_follow_idle_seconds, -steps, and a signal before the first file.
    Without a file there is nothing to train on."""
    make(folder)
    wanted = whole(binary, folder, 1)
    text = check_ended(follow(binary, folder, 2, "f", "-data_follow_idle_seconds 0"), 66, "no file")
    check("has no file to train on: no file for 0 s (-data_follow_idle_seconds)" in text, text)
    job = follow(binary, folder, 2, "f")
    job.read_to("waiting for data: no file in")
    os.kill(job.pid(0), signal.SIGTERM)
    check("while waiting for the first file" in check_ended(job, 75, "SIGTERM before the first file"), "no message")
    for name in NAMES:
        put(folder, name)
    text = check_ended(follow(binary, folder, 1, "f", "-data_follow_idle_seconds 0.3"), 0, "idle")
    check("ended by no file for 0.3 s" in text, text[-2000:])
    check_whole(folder, wanted, "f", "idle")
    check_ended(follow(binary, folder, 2, "g", "-steps 3"), 0, "-steps")
    check(same_bits(losses(os.path.join(folder, "g.h5")), wanted[0][:3]), "-steps 3 has other losses")


def test_follow_bad_files(binary, folder):
    """A bad file ends the run, or is set aside with its reason. Temporary names and folders do not
    count. A file that comes too late is reported once."""
    make(folder)
    wanted = whole(binary, folder, 2)
    for name in NAMES[:3]:
        put(folder, name)
    os.makedirs(os.path.join(folder, "new", "day_2x"))
    for name in (".day_1", "day_1.h5.tmp"):
        with open(os.path.join(folder, "new", name), "w") as file:
            file.write("half of a file")
    with open(os.path.join(folder, "new", "day_0a.h5"), "w") as file:
        file.write("not HDF5")
    write_dataset(os.path.join(folder, "new", "day_1a.h5"), 30, features={"user": 50, "item": 30})
    write_dataset(os.path.join(folder, "new", "day_1b.h5"), 30, features=dict(FEATURES, user=51))
    text = check_ended(follow(binary, folder, 2, "f", "-checkpoint_dir ckpt"), 65, "a bad file")
    check("day_0a.h5 is not an HDF5 file" in text and "-data_follow_bad skip sets such a file aside" in text, text[-2000:])
    check(newest(folder) == 1, "the weights were not kept")
    job = follow(binary, folder, 2, "f", "-data_follow_bad skip -checkpoint_dir ckpt -resume")
    job.read_to("waiting for data")
    for name in ("day_0.5.h5", "day_1.5.h5"):
        write_dataset(os.path.join(folder, "new", name), 30, features=FEATURES)
    time.sleep(0.5)
    for name in NAMES[3:]:
        put(folder, name)
    end(folder)
    text = check_ended(job, 0, "-data_follow_bad skip")
    check_whole(folder, wanted, "f", "with bad files")
    check(len(re.findall(r"^follow .*day_[01]\.5\.h5.* came too late", text, re.M)) in (1, 2), text)


def test_follow_set_aside(binary, folder):
    """The log has a line for each file that was set aside."""
    make(folder)
    put(folder, NAMES[0])
    with open(os.path.join(folder, "new", "day_0a.h5"), "w") as file:
        file.write("not HDF5")
    write_dataset(os.path.join(folder, "new", "day_1a.h5"), 30, features={"user": 50, "item": 30})
    write_dataset(os.path.join(folder, "new", "day_1b.h5"), 30, features=dict(FEATURES, user=51))
    end(folder)
    text = check_ended(follow(binary, folder, 3, "f", "-data_follow_bad skip"), 0, "-data_follow_bad skip")
    lines = re.findall(r"^set aside +(.*)$", text, re.M)
    check(len(lines) == 3 and all(name in line for name, line in zip(("day_0a.h5", "day_1a.h5", "day_1b.h5"), lines)), text)
    check("1 file taken, 3 set aside" in text, text)


def test_follow_evaluates(binary, folder):
    """Evaluations and checkpoints are those of a training that has all files at once. This also
    holds if the stream ends at the end of a batch, after the step of this batch."""
    make(folder)
    write_dataset(os.path.join(folder, "made", NAMES[-1]), 24, seed=24, features=FEATURES)  # 144 samples: 6 steps
    write_dataset(os.path.join(folder, "eval.h5"), 50, seed=9, features=FEATURES)
    options = "-data_eval eval.h5 -eval_every 3 -checkpoint_every 2 -checkpoint_keep 9 -checkpoint_dir"
    wanted = whole(binary, folder, 2, f"{options} whole")
    job = follow(binary, folder, 2, "f", f"{options} ckpt")
    for name in NAMES:
        put(folder, name)
    wait_for(lambda: len(checkpoints(folder)) >= 3, job)
    time.sleep(0.3)
    end(folder)
    text = check_ended(job, 0, "evaluations")
    check_whole(folder, wanted, "f", "evaluations")
    check(same_bits(losses(os.path.join(folder, "f.h5"), "eval"), losses(os.path.join(folder, "whole.h5"), "eval")), text)
    check(re.findall(r"^eval after step (\d+)", text, re.M) == ["3", "6"], text)


def test_follow_watchdog(binary, folder):
    """A rank that hangs while the ranks wait for data ends the run with 76."""
    make(folder)
    put(folder, NAMES[0])
    job = follow(binary, folder, 2, "f", f"-watchdog_seconds {round(3 * min(load(), 4))}")
    job.read_to("waiting for data")
    pid = job.pid(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        text = check_ended(job, 76, "a rank hangs")
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    check("(-watchdog_seconds)" in text, text)


def ahead_rows(path):
    with h5py.File(path) as h:
        return {name: h[f"ahead/{name}"][()] for name in h["ahead"]}


def test_follow_eval_ahead(binary, folder):
    """-eval_ahead evaluates each file with the weights of the step before its first sample. The
    training has the bits of one without it. A resumed run evaluates each file once."""
    make(folder)
    wanted = whole(binary, folder, 2)
    for name in NAMES[:3]:
        put(folder, name)
    job = follow(binary, folder, 2, "f", "-eval_ahead -checkpoint_dir ckpt -checkpoint_every 1 -checkpoint_keep 99")
    wait_for(lambda: len(checkpoints(folder)) >= 4, job)
    os.kill(job.pid(0), signal.SIGTERM)
    check_ended(job, 75, "SIGTERM")
    for name in NAMES[3:]:
        put(folder, name)
    end(folder)
    text = check_ended(follow(binary, folder, 3, "f", "-eval_ahead -checkpoint_dir ckpt -resume"), 0, "-eval_ahead")
    check_whole(folder, wanted, "f", "-eval_ahead")
    rows = ahead_rows(os.path.join(folder, "f.h5"))
    # a batch has 24 samples: the files begin in the steps 0, 31 // 24 ...
    first = [sum(SIZES[:k]) for k in range(len(SIZES))]
    check([name.decode() for name in rows["file"]] == list(NAMES) and list(rows["samples"]) == list(SIZES), f"{rows}")
    check(list(rows["position"]) == first and list(rows["step"]) == [at // GLOBAL_BATCH for at in first], f"{rows}")
    check(re.findall(r"^eval ahead of (\S+?):? ", text, re.M) == list(NAMES[3:]), text)
    for k, name in enumerate(NAMES):
        weights = os.path.join("ckpt", f"step-{rows['step'][k]:09d}.h5")
        if os.path.exists(os.path.join(folder, weights)):
            run(binary, 1, f"-task eval -data_eval made/{name} -init_from {weights} -batch_size 8 {TABLES} -reproducible -output e.h5", folder)
            check(same_bits(losses(os.path.join(folder, "e.h5"), "eval"), rows["loss"][k:k + 1]), f"{name}: other losses")


def test_follow_mapping(binary, folder):
    """A file that was converted in another way than the stream's other files is bad."""
    def mapped(name, unit):
        path = os.path.join(folder, "new", name)
        write_dataset(path, 30, features=FEATURES)
        with h5py.File(path, "a") as h:
            dense = [{"name": f"x{i}", "column": f"x{i}"} for i in range(h["dense"].shape[1])]
            h.attrs["mapping"] = json.dumps({"format": "trshard-mapping", "version": 1, "dense": dense, "sparse": [{"name": "user", "column": "u", "unit": unit}]})

    make(folder)
    mapped("a.h5", "s")
    mapped("b.h5", "ms")
    text = check_ended(follow(binary, folder, 2, "f", "-checkpoint_dir ckpt"), 65, "another mapping")
    check(re.search(r"a\.h5 and \S*b\.h5 were converted in different ways", text), text[-2000:])
    check(newest(folder) == 1, "the weights were not kept")


def test_follow_dangling_link(binary, folder):
    """A link without a target is a bad file, and not one that was removed."""
    make(folder)
    for name in NAMES:
        put(folder, name)
    os.symlink("nowhere", os.path.join(folder, "new", "day_2a.h5"))
    end(folder)
    check("day_2a.h5" in check_ended(follow(binary, folder, 2, "f", ""), 66, "a link without a target"), "another file is named")
    text = check_ended(follow(binary, folder, 2, "g", "-data_follow_bad skip"), 0, "a link that is skipped")
    check(re.search(r"^set aside .*day_2a\.h5", text, re.M), text)


@thinned
def test_follow_kinds(binary, folder):
    """Files that come one after the other do not change what else has a state: caches that are filled
    ahead, tables that give rows to ids, copies of the tables, accumulated batches."""
    make(folder)
    every = ((3, "-tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.3 -pipeline prefetch_sparse_dist"),
             (2, "-tables_id_map dynamic -tables_dynamic_cap 40"), (2, "-tables_id_map zch -tables_zch_interval 2 -tables_num_embeddings 16"),
             (2, "-plan_replicas 2 -replica_sync_every 2"), (2, "-accumulate_steps 3 -batch_size 4"))
    for k, (ranks, options) in enumerate(thin(every, every[:2])):
        inner = os.path.join(folder, str(k))
        make(inner)
        options += "" if "-plan_replicas" in options else " -tables_sharding_types row_wise"
        wanted = whole(binary, inner, ranks, options, mixed="")
        job = Job(binary, ranks, words(ranks, "f", f"-data_follow new {options}", mixed=""), inner)
        for name in NAMES:
            time.sleep(0.2)
            put(inner, name)
        end(inner)
        check_ended(job, 0, options)
        check_whole(inner, wanted, "f", options)
