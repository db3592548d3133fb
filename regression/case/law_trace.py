# SPDX-License-Identifier: BSD-3-Clause
"""-trace writes a file that tools can read, with the requested steps of all ranks, in order. It
does not change the run."""
import json
import os
import re
import signal
import time

import h5py

from law_plans import MIXED, MODEL, TABLES, make, train
from trsrun import Job, check, check_same_tensors, run, same_bits

ROUNDED_US = 0.0021
STAGES = {"input_dist", "lookup", "output_dist", "dense forward", "dense backward", "embedding backward", "optimizer", "I/O", "waiting", "exchange"}


def load(path, ranks):
    """{rank: {row: spans in their order}} of a trace. Every rank and each of its rows has a
    name."""
    with open(path, encoding="ascii") as file:
        trace = json.load(file)
    check(trace["otherData"]["ranks"] == ranks and trace["otherData"]["lost_spans"] == 0, f"otherData: {trace['otherData']}")
    rows, named, threads = {rank: {} for rank in range(ranks)}, set(), set()
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            named |= {event["pid"]} if event["name"] == "process_name" else set()
            threads |= {(event["pid"], event["tid"])} if event["name"] == "thread_name" else set()
        else:
            check(event["ph"] == "X" and event["dur"] >= 0, f"an event that is no span: {event}")
            rows[event["pid"]].setdefault(event["tid"], []).append(event)
    check(named == set(rows), f"processes {sorted(named)}")
    check({(rank, row) for rank in rows for row in rows[rank]} <= threads, "a thread without a name")
    return rows


def check_rows(rows, steps):
    """Starts are in order. The first row has steps, with stages inside that follow one another.
    Other rows have no overlap."""
    for row, spans in rows.items():
        starts = [span["ts"] for span in spans]
        check(starts == sorted(starts), f"row {row}: starts not in order")
        check({span["args"]["step"] for span in spans} <= set(steps), f"row {row}: steps {sorted({s['args']['step'] for s in spans})}")
        step, end = None, -1e300
        for span in spans:
            if span["name"] == "step":
                check(step is None or span["ts"] >= step["ts"] + step["dur"] - ROUNDED_US, "steps overlap")
                step, end = span, span["ts"]
                continue
            check(span["ts"] >= end - ROUNDED_US, f"row {row}: {span} starts before the one before it ends, at {end}")
            end = span["ts"] + span["dur"]
            if row == 0:
                check(span["name"] in STAGES and step and span["args"]["step"] == step["args"]["step"], f"not in its step: {span}")
                check(end <= step["ts"] + step["dur"] + ROUNDED_US, f"ends after its step: {span}")
    found = [span["args"]["step"] for span in rows[0] if span["name"] == "step"]
    check(found == list(steps), f"steps {found}, expected {list(steps)}")


def test_trace(binary, folder):
    """Every rank, step, stage, batch and exchange is present, for both ways to exchange. The ranks'
    clocks agree: no rank ends a step before another rank starts it."""
    make(folder)
    wanted, state = train(binary, folder, "plain", 3, f"{MIXED} -steps 16")
    for name, ranks, more, steps in (("shared", 3, "", range(10, 16)), ("messages", 3, "-comm_shared_memory false -trace_first_step 0 -trace_steps 5", range(5)),
                                     ("two", 2, "-trace_first_step 3 -trace_steps 4 -pipeline base", range(3, 7))):
        path = os.path.join(folder, f"{name}.json")
        losses, other = train(binary, folder, name, ranks, f"{MIXED} -steps 16 -trace {name}.json {more}")
        if ranks == 3:
            check(same_bits(losses, wanted), f"{name}: the trace changed the losses")
            check_same_tensors(other, state, name)
        traced = load(path, ranks)
        for rank, rows in traced.items():
            check_rows(rows, steps)
            names = {span["name"] for spans in rows.values() for span in spans}
            check({"lookup", "dense forward", "dense backward", "embedding backward", "optimizer", "read batch", "ids", "rows", "dense gradients"} <= names,
                  f"{name}: rank {rank} has only {sorted(names)}")
            check(sorted(span["args"]["step"] for span in rows[1]) == list(steps), f"{name}: batches of rank {rank}")
            check(all(span["args"]["bytes"] >= 0 for row in rows if row >= 2 for span in rows[row]), "exchanges without bytes")
            check(all(span["args"]["needed"] >= span["ts"] - ROUNDED_US for row in rows if row >= 2 for span in rows[row]), "exchanges needed before their start")
        for i in range(len(steps)):  # a step's agreement needs all ranks
            spans = [[span for span in traced[rank][0] if span["name"] == "step"][i] for rank in traced]
            slack_us = 100000  # clocks are compared by messages, which a busy machine delays
            check(max(s["ts"] for s in spans) <= min(s["ts"] + s["dur"] for s in spans) + slack_us, f"{name}: ranks' clocks disagree in step {steps[i]}")


def test_trace_messages(binary, folder):
    """With all steps in the trace, its exchanges have the bytes of messages that the results count.
    In addition each rank sends counts of ids, which are int64, to each rank on another host. Inside
    a host nothing is a message. A relay's messages belong to the exchanges that sent them."""
    make(folder)
    for name, more in (("one", ""), ("hosts", "-comm_ranks_per_host 1"), ("relay", "-comm_ranks_per_host 2 -comm_relay_bytes 64KiB")):
        train(binary, folder, name, 4, f"{MIXED} -steps 6 -trace {name}.json -trace_first_step 0 -trace_steps 6 {more}")
        traced = load(os.path.join(folder, f"{name}.json"), 4)
        with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
            sent = h["exchanges/sent"][:, 1]
        found = [sum(span["args"]["message_bytes"] for row in rows if row >= 2 for span in rows[row]) / 6 for rank, rows in sorted(traced.items())]
        counts = [a - b for a, b in zip(sent, found)]
        check((sum(found) > 0) == (name != "one") and min(counts) >= 0, f"{name}: in the trace {found}, counted {sent}")
        check(name != "hosts" or max(counts) - min(counts) < 1e-6 and counts[0] > 0 and counts[0] % (3 * 8) < 1e-6, f"{name}: bytes of counts {counts}")


def test_trace_report(binary, folder):
    """The report names the file and the overlap, with shares of 0 to 100 %. A run that ends before
    its first step writes a valid, empty file and says so."""
    make(folder)
    shared = f"-data_train train.h5 -batch_size 12 -steps 8 {MODEL} {TABLES} {MIXED} -trace t.json"
    text = run(binary, 2, f"{shared} -trace_first_step 2 -trace_steps 3", folder).text
    check(re.search(r"trace +\S*t\.json: \d+ spans of steps 2 to 4\n", text), text)
    for what in ("input_dist", "output_dist"):
        found = re.search(rf"overlap +{what}: (\d+)% of ([\d.]+) ms a step", text)
        check(found and 0 <= int(found[1]) <= 100 and float(found[2]) > 0, f"overlap of {what}:\n{text}")
    text = run(binary, 2, shared, folder).text
    check("did not reach" in text and "overlap" not in text, text)
    check(not any(load(os.path.join(folder, "t.json"), 2).values()), "spans of steps that were not made")


def test_trace_stopped(binary, folder):
    """If a run is asked to stop, it writes the complete file of its work so far."""
    make(folder)
    job = Job(binary, 2, f"-data_train train.h5 -batch_size 12 -steps 100000000 {MODEL} {TABLES} {MIXED} -trace t.json -report_interval 0.05 "
                         "-output run.h5 -trace_first_step 0 -trace_steps 1000000000", folder)
    pid = job.pid(1)
    job.read_to("step ")
    time.sleep(0.05)
    os.kill(pid, signal.SIGTERM)
    result = job.wait(60)
    check(result.all_left_with(75, 2, False), f"statuses {result.ranks}:\n{result.text[-2000:]}")
    with open(os.path.join(folder, "t.json"), encoding="ascii") as file:
        events = json.load(file)["traceEvents"]
    check({event["pid"] for event in events if event["name"] == "step"} == {0, 1}, "a rank without steps")
    check(not [name for name in os.listdir(folder) if name.endswith(".tmp")], "left-overs")


KERNEL = re.compile(r"kernel +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+|-) +([\d.]+|-) +([\d.]+|-) +([\d.]+|-) +([\d.]+|-)  (.*)")


def kernels_of(text):
    """{name: (us a step, calls a step, MB, TFLOP/s, limit in us, share)} of -log_view_kernels; a number that is not known is None."""
    number = lambda word: None if word == "-" else float(word)
    found = {}
    for line in text.splitlines():
        match = KERNEL.fullmatch(line)
        if match:
            us, _, calls, megabytes, _, tflops, limit, share = (number(match[i]) for i in range(1, 9))
            found[match[9]] = (us, calls, megabytes, tflops, limit, share)
    return found


def test_kernel_times(binary, folder):
    """-log_view_kernels does not change a run, and prints the calls of a step with their bytes, which are counted here by hand. A run
    that is too short says so."""
    make(folder, 192)
    for ranks in (1, 2):
        shared = f"{MIXED if ranks > 1 else ''} -epochs 3 -device cpu"
        wanted, state = train(binary, folder, "plain", ranks, shared)
        found, other = train(binary, folder, "timed", ranks, f"{shared} -log_view_kernels")
        check(same_bits(found, wanted), f"{ranks} ranks: other losses")
        check_same_tensors(other, state, f"{ranks} ranks")
    words = f"-data_train train.h5 -batch_size 24 {MODEL} {TABLES} -device cpu -log_view_kernels -existing_outputs replace"
    text = run(binary, 1, f"{words} -epochs 3", folder).text
    found = kernels_of(text)
    check(re.search(r"kernels +[\d.]+ ms a step in 2 steps of rank 0; a copy reaches [\d.]+ GB/s here, a product [\d.]+ TFLOP/s", text), text)
    check({"tbe_forward", "tbe_backward", "linear_forward", "linear_backward", "dot_places_forward", "dot_places_backward", "bce"} <= set(found), f"{sorted(found)}")
    # five vectors of tables and that of the dense arch, with 8 numbers each; the output has 8 numbers and 15 products
    samples, vectors, dim, pairs = 24, 6, 8, 15
    dot = found["dot_places_forward"]
    check(dot[1] == 1 and abs(dot[2] - 4e-6 * samples * (vectors * dim + dim + pairs)) <= 5e-4, f"{dot}")
    check(found["linear_forward"][1] == 3, f"{found['linear_forward']}")  # bce also computes the last of four layers
    for name, (us, calls, megabytes, _, limit, share) in found.items():
        check(us > 0 and calls > 0, f"{name}: {us} us, {calls} calls")
        check((limit is None) == (share is None) and (share is None or share > 0), f"{name}: limit {limit}, share {share}")
    check("kernels    none: the run had no step 8" in run(binary, 1, f"{words} -steps 4", folder).text, "a run without a timed step says nothing")
