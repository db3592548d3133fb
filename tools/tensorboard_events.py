#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes a run's curves as event files for TensorBoard. The tool itself does not need TensorBoard.

  tensorboard_events.py results/quickstart/train.h5 events/
  tensorboard --logdir events/

events/ gets a folder for each kind of series, so that TensorBoard draws the curves of one metric in one panel: train (loss,
learning rates, samples/s, metrics of the window), lifetime (metrics since the weights' beginning), eval, and ids (rows of
tables with id_map zch and dynamic). Each point has the step and, as far as the run has it, the time. Use a separate folder for
each run. A second call for the same run replaces its files.
"""
import argparse
import os
import struct
import sys

import trspython

trspython.require("h5py", "numpy")

import numpy as np

import trsfile
import trsread

POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data):
    """The checksum as TFRecord stores it: rotated by 15 bits, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    """TFRecord's framing: length, its checksum, the bytes, their checksum."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def varint(n):
    n &= (1 << 64) - 1  # two's complement, as in protobuf
    out = bytearray()
    while True:
        out.append(n & 0x7F | (0x80 if n > 0x7F else 0))
        n >>= 7
        if not n:
            return bytes(out)


def field(number, value):
    """A field of a protobuf message: an int as varint, bytes and text with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(time, step, *what):
    """Event: wall_time (1, double), step (2), and the content."""
    return record(b"\x09" + struct.pack("<d", time) + (field(2, step) if step else b"") + b"".join(what))


def header(time):
    """The first event of a file: file_version (3)."""
    return event(time, 0, field(3, "brain.Event:2"))


def scalar(tag, number):
    """Summary (5) with one value (1): tag (1), simple_value (2, float)."""
    return field(5, field(1, field(1, tag) + b"\x15" + struct.pack("<f", min(max(number, -3e38), 3e38))))


def words(tag, text):
    """A text for TensorBoard's Text tab: tag (1), metadata (9) with the plugin's name, tensor (8) of one string (dtype 7)."""
    metadata = field(1, field(1, "text"))
    tensor = field(1, 7) + field(2, field(2, field(1, 1))) + field(8, text)
    return field(5, field(1, field(1, tag) + field(8, tensor) + field(9, metadata)))


def series_of(run):
    """{folder: [(tag, steps, values)]}, where a step is the number of updates done."""
    after = run.updates()
    found = {"train": [(tag, after, run["train/" + tag]) for tag in ("loss", "dense_learning_rate", "embedding_learning_rate", "samples_per_s")],
             "lifetime": [], **{group: [("loss", run[group + "/step"], run[group + "/loss"])] for group in ("eval", "ahead")}}
    for task in run.task_words():
        for metric in run.metrics():
            found["train"].append((task + metric, run["metrics/step"], run[f"metrics/{task}window_{metric}"]))
            found["lifetime"].append((task + metric, run["metrics/step"], run[f"metrics/{task}lifetime_{metric}"]))
            for group in ("eval", "ahead"):
                found[group].append((task + metric, run[group + "/step"], run[f"{group}/{task}{metric}"]))
        if task:
            for group in ("eval", "ahead"):
                found[group].append((task + "loss", run[group + "/step"], run[f"{group}/{task}loss"]))
    found["ids"] = [(f"{table}/{name}", run["ids/step"], run.of_ids(table, name)) for table in run.id_tables()
                    for name in ("unknown_share", "held", "given", "taken", "young", "youngest", "refused", "bytes")]
    return {folder: [(tag, steps, values) for tag, steps, values in series if len(values)] for folder, series in found.items() if any(len(s[2]) for s in series)}


def events_of(run, series, began, text):
    """The bytes of an event file: points in the order of steps, without NaN, which means that nothing was recorded."""
    points = []
    for tag, steps, values in series:
        times = np.where(np.isfinite(run.times_at(steps)), run.times_at(steps), began)
        points += [(int(s), float(t), tag, float(v)) for s, t, v in zip(steps, times, values) if np.isfinite(v)]
    points.sort(key=lambda p: p[0])
    return header(began) + (event(began, 0, words("configuration", text)) if text else b"") + b"".join(event(t, s, scalar(tag, v)) for s, t, tag, v in points)


def configuration(run):
    """The options that were set, as a table of Markdown, which TensorBoard shows."""
    given = [(option, value) for option, value, where in run.options() if where != "default"]
    return "| option | value |\n| --- | --- |\n" + "\n".join("| `{}` | `{}` |".format(*(word.replace("|", "\\|").replace("`", "'") for word in pair)) for pair in given) if given else ""


def write(run, folder):
    """Returns the files' names."""
    began = float(run["starts/time"][0]) if np.isfinite(run["starts/time"][:1]).any() else os.path.getmtime(run.source)
    written = []
    for name, series in series_of(run).items():
        place = os.path.join(folder, name)
        os.makedirs(place, exist_ok=True)
        # TensorBoard reads any file with "tfevents" in its name. A run's file always has the same name, so that it is
        # replaced.
        path = os.path.join(place, f"events.out.tfevents.{int(began)}.trshard.{run.attrs.get('run_id', 'run')}")
        with trsfile.whole(path, "wb") as out:
            out.write(events_of(run, series, began, configuration(run) if name == "train" else ""))
        written.append(path)
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a file of -output")
    parser.add_argument("folder", metavar="DIR", help="made if it is not there")
    args = parser.parse_args()
    try:
        written = write(trsread.read_run(args.run), args.folder)
    except trsread.Unreadable as error:
        sys.exit(f"tensorboard_events.py: {error}")
    except OSError as error:
        sys.exit(f"tensorboard_events.py: {args.folder} cannot be written: {error.strerror or error}")
    if not written:
        sys.exit(f"tensorboard_events.py: {args.run} has no series over steps")
    print("\n".join("wrote " + path for path in written))


if __name__ == "__main__":
    trspython.run(main)
