# SPDX-License-Identifier: BSD-3-Clause
"""Replays a step's exchanges in a model: a trace gives the times when they start and are waited for, a model of the network their duration.

Own time is the time in which a rank computes: a step without the spans in which it waits or moves data that has arrived. An exchange starts
after some own time, and is needed after some more own time, when the rank waits for it. In the replay a rank computes, and its exchanges take
turns on its share of the host's network, in the order in which they start. If an exchange is needed before it is done, the rank waits. So an
exchange costs only the time that computation does not hide.
"""
import bisect
import json
import math
import statistics

IDLE = {"waiting", "exchange"}
COUNTS = 24  # bytes of a group's counts for a rank; a trace does not have them
AVERAGED_AT_ONCE = 4 << 20  # bytes of weights that copies average at once (train/replicas.c)


def own_clock(stages):
    """A function from the trace's clock to own time, for the stages of one rank, sorted by start."""
    spans, total = [(-math.inf, 0.0, 0.0)], 0.0
    for span in stages:
        if span["name"] not in IDLE:
            spans.append((span["ts"], span["dur"], total))
            total += span["dur"]

    def own(ts):
        begin, dur, before = spans[bisect.bisect(spans, (ts, math.inf)) - 1]
        return before + min(ts - begin, dur)

    return own


def steps_of(path):
    """[(rank, own ms, wall ms, [(name, bytes, start, need, bytes of messages)])] of the traced steps; start and need as fractions of the step's own time."""
    with open(path, encoding="ascii") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    found = []
    for rank in {event["pid"] for event in events}:
        mine = sorted((event for event in events if event["pid"] == rank), key=lambda event: event["ts"])
        clock = own_clock([event for event in mine if event["tid"] == 0 and event["name"] != "step"])
        for step in (event for event in mine if event["name"] == "step"):
            begin, end = clock(step["ts"]), clock(step["ts"] + step["dur"])
            inside = [event for event in mine if event["cat"] == "exchange" and step["ts"] <= event["ts"] < step["ts"] + step["dur"]]
            found.append((rank, 1e-3 * (end - begin), 1e-3 * step["dur"],
                          [(event["name"], event["args"]["bytes"], (clock(event["ts"]) - begin) / (end - begin),
                            (clock(event["args"].get("needed", event["ts"] + event["dur"])) - begin) / (end - begin), event["args"].get("message_bytes", 0)) for event in inside]))
    return found


def exchanges_of(path):
    """[{name, bytes, start, need, message_bytes}] of a step, in order: medians over ranks and steps; start and need as fractions of a step's own time."""
    found = [exchanges for *_, exchanges in steps_of(path)]
    usual = statistics.mode(tuple(row[0] for row in step) for step in found)
    found = [step for step in found if tuple(row[0] for row in step) == usual]
    return [{"name": name} | {key: statistics.median(step[i][k + 1] for step in found) for k, key in enumerate(("bytes", "start", "need", "message_bytes"))}
            for i, name in enumerate(usual)]


def own_ms_of(path):
    """Own ms of a step of the slowest rank: the largest of the ranks' medians."""
    by_rank = {}
    for rank, own_ms, *_ in steps_of(path):
        by_rank.setdefault(rank, []).append(own_ms)
    return max(map(statistics.median, by_rank.values()))


def blocks_of(first, second, ranks):
    """[(kind, bytes for a rank as a function of the number of ranks)] for the exchanges of a row_wise model that was
    traced on two numbers of ranks.
    """
    rows = [i for i, x in enumerate(first) if x["name"] == "rows"]
    if [x["name"] for x in first] != [x["name"] for x in second] or len(rows) != 2:
        raise ValueError(f"not the exchanges of one group of row_wise tables: {[x['name'] for x in first]}, {[x['name'] for x in second]}")
    blocks = []
    for i, (x, y) in enumerate(zip(first, second)):
        slope = (y["bytes"] - x["bytes"]) / (ranks[1] - ranks[0])
        base = x["bytes"] - slope * ranks[0]
        if i == rows[1]:
            blocks.append(("gather", lambda w, size=x["bytes"]: size))  # a trace has the bytes that a rank gives, which all other ranks get
        else:
            kind = "sum" if i == rows[0] else "allreduce" if x["name"] == "dense gradients" else "all-to-all"
            blocks.append((kind, lambda w, slope=slope, base=base: slope + base / w))
    return blocks


def cost(kind, block, w, host, way, relay):
    """Messages and bytes of a rank for an exchange with blocks of this size, with -comm_relay_bytes relay, unless the way is "messages"."""
    elsewhere, hosts = w - host, w // host - 1
    alike, carried = kind == "gather", 0 if way == "messages" else math.ceil(hosts / host)
    if way == "hierarchical" and kind in ("sum", "gather"):
        return hosts, hosts * block
    if carried and block <= relay * (32 if alike else 1):
        return carried, (hosts if alike else elsewhere) * block
    return elsewhere + carried, elsewhere * block  # the relay carries no block, but its messages say so


def costs(schedule, blocks, w, host, way, relay, copies=1, dense=True, tables=True):
    """[(start, need, phases, messages, bytes)] of a step on w ranks. An all-reduce is a sum and a gather of its results. Counts are waited for at
    once. With copies of the tables (-plan_replicas), ids and rows stay within the w / copies ranks of a copy, but dense gradients go through all
    ranks. dense, tables: False leaves the exchanges of dense gradients or of tables out.
    """
    ids, found = next(x["start"] for x in schedule if x["name"] == "ids"), []
    if tables:
        found.append((ids, ids, 1, *cost("all-to-all", COUNTS, w // copies, host, way, relay)))
    for x, (kind, block_of) in zip(schedule, blocks):
        of_dense = kind == "allreduce"
        if not (dense if of_dense else tables):
            continue
        parts, ranks = (("dense sum", "gather"), w) if of_dense else ((kind,), w // copies)
        each = [cost(part, block_of(ranks), ranks, host, "relay" if way == "hierarchical" and of_dense else way, relay) for part in parts]
        found.append((x["start"], x["need"], len(parts), sum(n for n, _ in each), sum(size for _, size in each)))
    return sorted(found, key=lambda row: row[:2])


def average(sizes, copies):
    """(phases, messages, bytes) of a rank that averages its rows with those of the other copies. sizes: bytes of the rank's part of each tensor of
    weights and states, in fp32. The owners of a shard are on different hosts. They all-reduce a part at a time: a sum, and a gather of its results.
    """
    if copies == 1:
        return 0, 0, 0.0
    phases = 2 * sum(math.ceil(size / AVERAGED_AT_ONCE) for size in sizes)
    return phases, phases * (copies - 1), 2 * (copies - 1) / copies * sum(sizes)


def replay(step_ms, exchanges, seconds_of, steps=8):
    """ms of a step in a long run. exchanges: from costs(). seconds_of(phases, messages, bytes)."""
    events = []
    for k in range(steps):
        for i, (start, need, *size) in enumerate(exchanges):
            events += [((k + start) * step_ms, 0, (k, i), 1e3 * seconds_of(*size)), ((k + max(start, need)) * step_ms, 1, (k, i), 0.0)]
        events.append(((k + 1) * step_ms, 2, (k, -1), 0.0))
    late, network, done, ends = 0.0, 0.0, {}, []
    for own, what, key, length in sorted(events):
        if what == 0:
            network = done[key] = max(network, own + late) + length
        elif what == 1:
            late = max(late, done[key] - own)
        else:
            ends.append(own + late)
    return ends[-1] - ends[-2]
