#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Shows the content of a trshard file (a dataset, a checkpoint, a delta, or the results of a run), and checks that it is consistent.

  inspect_file.py data/ml100k_train.h5           sizes and statistics of each feature
  inspect_file.py --check data/ml100k_train.h5   also reads the whole file: offsets, ids, labels, NaN
  inspect_file.py results/quickstart/model.h5    tensors, their range and norm; the model and the options of its run; with --check its checksums
  inspect_file.py --metrics results/quickstart/eval.h5

Exit status: 0; 1 if the file contradicts itself or its format.
"""
import argparse
import datetime
import json
import os
import re
import sys

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np
from trspython import tqdm

import trscheckpoint
import trscolumns
import trsdata
import trsdelta
import trsids
import trsmapping
import trsoptions
from trsread import counted, measured

ROWS_AT_ONCE = 1 << 16
OPTIONS_SHOWN, LINE_SHOWN = 100, 1000


def size(count):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024


def columns(header, rows):
    """Prints a table with the first column aligned to the left, the others to the right."""
    print("\n".join("  " + line for line in trsdata.table([header] + rows, left=[0])))


def mapping(handle, num_dense=None, features=()):
    """Prints the mapping of a file. Returns the errors in it. num_dense, features: those of a dataset; the features are then printed one by one."""
    try:
        found = trsmapping.of_handle(handle, handle.filename)
    except trscolumns.Refused as problem:
        return [str(problem)]
    if found is None:
        return []
    print(trspython.shown(f"  mapping of {found.root.get('converter', 'another program')}: {counted(len(found.dense), 'dense feature')}, {counted(len(found.sparse), 'sparse feature')}"))
    if num_dense is None:
        return []
    for line in trsmapping.lines_of(found):
        print("    " + trspython.shown(line))
    unknown = [entry["name"] for entry in found.sparse if trspython.shown(entry["name"]) not in features]
    return [f"the mapping has {len(found.dense)} dense features, /dense has {num_dense}"] * (len(found.dense) != num_dense) + [f"the mapping has a feature {name}, /sparse has none" for name in unknown]


class Dataset:
    """Prints a dataset; problems collects the errors in it."""

    def __init__(self, handle, check):
        self.problems = []
        sparse = handle["sparse"]
        names = [trspython.shown(trsdata.text(name)) for name in sparse.attrs["features"]]
        rows = np.asarray(sparse.attrs["num_embeddings"], np.int64)
        total = int(handle.attrs["num_samples"])
        num_dense = handle["dense"].shape[1] if "dense" in handle and handle["dense"].ndim == 2 else 0
        print(f"  {counted(total, 'sample')}, {counted(num_dense, 'dense feature')}, {counted(len(names), 'sparse feature')}, {counted(sparse['values'].shape[0], 'id')} "
              f"of {sparse['values'].dtype}{', weighted' if 'weights' in sparse else ''}")
        for key in ("planted_loss", "generated_by", "converted_by"):
            if key in handle.attrs:
                print(f"  {key}: {trspython.shown(trsdata.text(handle.attrs[key]))}")
        self.problems += mapping(handle, num_dense, names)
        if len(set(names)) < len(names) or "" in names:
            self.problems.append(f"/sparse has the features {', '.join(names)}, expected different names that are not empty")
        for kinds, expected, parts in (("iu", "integers", ("sparse/values", "sparse/lengths", "sparse/offsets")),
                                       ("f", "float32", ("labels", "dense", "weights", "sparse/weights"))):
            for name in parts:
                if name in handle and handle[name].dtype.kind not in kinds:
                    self.problems.append(f"/{name} is {handle[name].dtype}, expected {expected}")
        if len(rows) != len(names):
            self.problems.append(f"/sparse has {len(rows)} num_embeddings for {len(names)} features")
        if total < 1:
            self.problems.append(f"num_samples is {total}, expected at least 1")
        self.shapes(handle, total, len(names), num_dense)
        self.labels = self.label_names(handle)
        if not self.problems:
            self.statistics(handle, names, rows, check)

    def shapes(self, handle, total, features, num_dense):
        expected = {"sparse/lengths": (total, features), "sparse/offsets": (total + 1,)}
        if "labels" in handle:
            expected["labels"] = (total, *handle["labels"].shape[1:2])
        if "dense" in handle:
            expected["dense"] = (total, num_dense)
            if not num_dense:
                self.problems.append(f"/dense has shape {handle['dense'].shape}, expected two dimensions and a column at least")
        if "sparse/weights" in handle:
            expected["sparse/weights"] = handle["sparse/values"].shape
        expected.update({name: (total,) for name in ("weights", "group", "time") if name in handle})
        for name, shape in expected.items():
            if name not in handle:
                self.problems.append(f"no /{name}")
            elif handle[name].shape != shape:
                self.problems.append(f"/{name} has shape {handle[name].shape}, expected {shape}")
        if not self.problems and handle["sparse/offsets"][0] != 0:
            self.problems.append(f"/sparse/offsets begins with {handle['sparse/offsets'][0]}, expected 0")
        if not self.problems and handle["sparse/offsets"][total] != handle["sparse/values"].shape[0]:
            self.problems.append(f"/sparse/offsets ends at {handle['sparse/offsets'][total]}, /sparse/values has {handle['sparse/values'].shape[0]}")

    def label_names(self, handle):
        """Names of the labels; a label without a name is "label"."""
        if "labels" not in handle:
            return []
        if handle["labels"].ndim == 1:
            return ["label"]
        names = [trspython.shown(trsdata.text(name)) for name in handle["labels"].attrs.get("names", [])]
        if len(names) != handle["labels"].shape[1] or len(set(names)) < len(names) or "" in names:
            self.problems.append(f"/labels has {handle['labels'].shape[1]} columns, expected as many different names in its attribute names")
        return names

    def whole_numbers(self, handle, check):
        """Prints the number of groups, and the first and last time. With check it reads the whole file, otherwise its first samples."""
        for name in ("group", "time"):
            if name not in handle:
                continue
            if handle[name].dtype.kind not in "iu" or handle[name].dtype == np.uint64:
                self.problems.append(f"/{name} is {handle[name].dtype}, expected int64")
                continue
            values = handle[name][:None if check else trsdata.SAMPLES_AT_ONCE]
            part = f", of the first {counted(len(values), 'sample')}" * (len(values) < len(handle[name]))
            if name == "group" and len(values):
                sizes = np.unique(values, return_counts=True)[1]
                print(f"  {counted(len(sizes), 'group')} of {f'{sizes.min():,} to ' if sizes.min() < sizes.max() else ''}{counted(sizes.max(), 'sample')}, {len(values) / len(sizes):.2f} on average{part}")
            elif len(values):
                print(f"  times from {values.min()} to {values.max()}{part}")

    def statistics(self, handle, names, rows, check):
        """With check it reads the whole file, otherwise its first samples."""
        count, most, empty = (np.zeros(len(names), np.int64) for _ in range(3))
        limits = np.iinfo(handle["sparse/values"].dtype)
        low, high = np.full(len(names), limits.max, limits.dtype), np.full(len(names), limits.min, limits.dtype)
        positive, labelled, seen = np.zeros(len(self.labels)), np.zeros(len(self.labels)), 0.0
        missing = self.labels != ["label"]  # a label with a name may belong to a task: any number, or NaN if it is missing
        self.whole_numbers(handle, check)
        total = handle["sparse/lengths"].shape[0]
        slices = -(-total // trsdata.SAMPLES_AT_ONCE) if check else 1
        for part, _ in zip(trsdata.samples_of(handle), tqdm(range(slices), desc="read", disable=not sys.stderr.isatty())):
            first, dense, labels, lengths, values, weights = part
            lengths = lengths.astype(np.int64)
            offsets = handle["sparse/offsets"][first:first + len(labels) + 1]
            if lengths.size and (lengths.min() < 0 or np.any(np.diff(offsets) != lengths.sum(axis=1))):
                bad = int(np.argmax((lengths < 0).any(axis=1) | (np.diff(offsets) != lengths.sum(axis=1))))
                self.problems.append(f"lengths and offsets disagree at sample {first + bad}")
                break
            feature = np.repeat(np.tile(np.arange(len(names)), len(labels)), lengths.reshape(-1))
            count += lengths.sum(axis=0)
            empty += (lengths == 0).sum(axis=0)
            most = np.maximum(most, lengths.max(axis=0, initial=0))
            np.minimum.at(low, feature, values)
            np.maximum.at(high, feature, values)
            given = labels.reshape(len(labels), -1)
            labelled += (~np.isnan(given)).sum(axis=0)
            positive += np.nansum(given, axis=0, dtype=np.float64)
            if missing:
                labels = np.nan_to_num(labels, posinf=np.inf, neginf=-np.inf)
            seen += len(labels)
            for what, numbers in (("dense", dense), ("labels", labels), ("weights", weights)):
                if numbers is not None and not np.all(np.isfinite(numbers)):
                    self.problems.append(f"{what} that are not finite in samples {first} to {first + len(labels) - 1}")
            if "weights" in handle:
                of_samples = handle["weights"][first:first + len(labels)]
                if not np.all(np.isfinite(of_samples)) or of_samples.min(initial=0) < 0:
                    self.problems.append(f"weights of samples that are negative or not finite in samples {first} to {first + len(labels) - 1}")
            if not missing and labels.size and (labels.min() < 0 or labels.max() > 1):
                self.problems.append(f"labels outside [0, 1] in samples {first} to {first + len(labels) - 1} (only labels with names may be any numbers, for -tasks)")
        for f, name in enumerate(names):
            if count[f] and rows[f] and (low[f] < -1 or high[f] >= rows[f]):  # 0 rows: ids without a bound
                self.problems.append(f"feature {name}: ids from {low[f]} to {high[f]}, its table has {counted(rows[f], 'row')}")
        if seen:
            means = ", ".join(f"mean {name} {sum_of / max(n, 1):.4f}" + (f" ({1 - n / seen:.1%} missing)" if n < seen else "")
                              for name, sum_of, n in zip(self.labels, positive, labelled))
            print(f"  {'all' if check else 'first'} {counted(int(seen), 'sample')}: {means or 'no labels, for predictions alone'}")
            columns(["feature", "rows", "ids", "mean", "longest", "empty", "least id", "greatest id"],
                    [[name, f"{rows[f]:,}" if rows[f] else "any id", f"{count[f]:,}", f"{count[f] / seen:.2f}", most[f], f"{empty[f] / seen:.1%}"] +
                     (["-", "-"] if count[f] == 0 else [low[f], high[f]]) for f, name in enumerate(names)])


def tensors(group):
    """(path, dataset) below a group, in order."""
    found = []
    group.visititems(lambda name, item: found.append((name, item)) if isinstance(item, h5py.Dataset) else None)
    return found


def checksums(path, opened=lambda path: trscheckpoint.opened(path, quantised=True)):
    """Prints the result of the checksums of a checkpoint or a delta."""
    try:
        with opened(path) as found:
            trscheckpoint.verify(found)
    except trscheckpoint.FormatError as problem:
        return [str(problem)]
    if not trscheckpoint.Hash.available():
        print("  " + trscheckpoint.NO_CHECKSUMS)
    return []


def place(handle):
    """Prints the file's place in a chain of deltas, and for a training that follows a folder, its place
    in the stream."""
    of = {name: trspython.shown(trsdata.text(value)) for name, value in handle.attrs.items() if name.startswith("delta_")}
    if "delta_previous" in of:
        what = "forgets rows after delta" if "delta_forget" in of else "delta"
        print(f"  {what} {of.get('delta_number')} of the chain of {of.get('delta_base')}, from step {of.get('delta_from_step')} on, after file {of['delta_previous']}")
    elif "delta_base" in of:
        print(f"  contains delta {of.get('delta_number')} of the chain of {of['delta_base']}, file {of.get('delta_id')} of step {of.get('delta_step')}")
    if "increment_previous" in handle.attrs:
        of = {name: trspython.shown(trsdata.text(value)) for name, value in handle.attrs.items() if name.startswith("increment_")}
        print(f"  increment {of.get('increment_number')} of the full checkpoint after step {of.get('increment_base_step')}, from step {of.get('increment_from_step')} on, "
              f"after file {of['increment_previous']}")
    if handle.attrs.get("weights_only"):
        print("  weights only: tools/apply_delta.py made this file")
    if "follow_samples" in handle.attrs:
        taken, samples = handle.attrs["follow_samples"]
        print(f"  follows a folder: {taken:,} of {samples:,} samples of {trsdata.text(handle.attrs['follow_file']) or '-data_train'} taken, "
              f"{handle.attrs['follow_position']:,} of the stream")


def show_tensors(handle, problems):
    """Prints all tensors. Returns the rows that it has printed."""
    rows = []
    for name, tensor in tensors(handle):
        if name.startswith("checksums/"):
            continue
        least, greatest, squares = np.inf, -np.inf, 0.0
        for first in range(0, tensor.shape[0] if tensor.ndim else 0, ROWS_AT_ONCE):
            part = trsdata.numbers(tensor, tensor[first:first + ROWS_AT_ONCE])
            if part.size and part.dtype.kind == "f":
                part = part.astype(np.float64)
                least, greatest = min(least, part.min()), max(greatest, part.max())
                squares += (part * part).sum()
        shape = " x ".join(map(str, tensor.shape)) or "one"
        rows.append([name, trsdata.text(tensor.attrs.get("dtype", tensor.dtype)), shape, size(tensor.size * tensor.dtype.itemsize)] +
                    ([f"{least:.4g}", f"{greatest:.4g}", f"{np.sqrt(squares):.4g}"] if least <= greatest else ["-"] * 3))
        if not np.isfinite(squares):
            problems.append(f"/{name} is not finite")
    columns(["tensor", "type", "shape", "size", "least", "greatest", "norm"], rows)
    print("  with checksums" if "checksums" in handle else "  without checksums")
    return rows


def delta(handle, check):
    is_increment = trsdata.text(handle.attrs.get("format", "")) == trsdelta.INCREMENT[0]
    problems = checksums(handle.filename, trsdelta.opened_increment if is_increment else trsdelta.opened) if check else []
    print(f"  step {trsdata.text(handle.attrs.get('step', '?'))}")
    place(handle)
    show_tensors(handle, problems)
    for name, _ in tensors(handle):
        if name.startswith("embedding/") and name.endswith("/delta/rows"):
            table = name[len("embedding/"):-len("/delta/rows")]
            of = handle[f"embedding/{table}/delta"]
            total, lost = of["rows"].attrs.get("num_embeddings", 0), of["lost"].shape[0] if "lost" in of else 0
            print(trspython.shown(f"  table {table}: {counted(of['rows'].shape[0], 'row')} of {total:,}" + (f", {counted(lost, 'id')} without a row now" if lost else "")))
    model(handle)
    return problems


def checkpoint(handle, check):
    problems = checksums(handle.filename) if check else []
    attributes = {name: trsdata.text(handle.attrs[name]) for name in ("step", "epoch", "samples_seen") if name in handle.attrs}
    print("  " + ", ".join(f"{name} {value}" for name, value in attributes.items()))
    place(handle)
    rows = show_tensors(handle, problems)
    tables = {}  # each table's tensors by name; a table's name may have slashes
    for name, *_ in rows:
        if name.startswith("embedding/") and not trsids.part(name) and not trscheckpoint.OPEN_CHANGES.fullmatch(name):
            tables.setdefault(os.path.dirname(name[len("embedding/"):]), set()).add(os.path.basename(name))
    for table, names in tables.items():
        if "weight_quantised" in names:
            problems += quantised(table, handle["embedding"][table]["weight_quantised"])
        elif "weight" not in names:
            problems.append(f"table {table} has no weight")
    for table in trsids.kinds(name for name, *_ in rows):
        problems += directory(handle, table)
    if "plan" in handle.attrs:
        plan(handle.attrs["plan"])
    problems += mapping(handle)
    model(handle)
    return problems


def directory(handle, table):
    """Prints how many rows and ids a table has that gives its rows to ids. Returns errors in its tensors."""
    try:
        found = trsids.of_handle(handle, handle.filename, table)
    except trscheckpoint.FormatError as problem:
        return [str(problem)]
    words = f"  table {table}: {found.kind}, {counted(len(found.id), 'id')} in {counted(found.used, 'row')}" + (" in use" if found.kind == "dynamic" else "")
    words += f", {counted(found.buckets, 'bucket')}, {counted(found.time, 'batch', 'es')}"
    folder = handle[f"embedding/{table}/{found.kind}"]
    for name, what in (("seen", "since the last eviction"), ("candidates", "counted without a row")):
        if name in folder and folder[name].ndim == 2 and folder[name].shape[0] > 1:
            words += f", {counted(folder[name].shape[0] - 1, 'id')} {what}"
    print(trspython.shown(words))
    return []


def model(handle):
    """The options that define a checkpoint's model, then the other options of its run."""
    of_model = trsoptions.options(trsdata.text(handle.attrs["model"])) if "model" in handle.attrs else []
    names = {name for name, *_ in of_model}
    of_run = [line for name, _, source, line in trsoptions.options(trsdata.text(handle.attrs.get("options", ""))) if name not in names and source != "default"]
    for title, lines in (("model", [line for *_, line in of_model]), ("options of its run", of_run)):
        lines = sorted(lines, key=lambda line: line.lstrip('"').startswith("-table_"))  # options of single tables last: there may be thousands
        if lines:
            print(f"  {title}:")
            print("\n".join(f"    {line if len(line) <= LINE_SHOWN else line[:LINE_SHOWN] + '...'}" for line in lines[:OPTIONS_SHOWN]) + (f"\n    and {len(lines) - OPTIONS_SHOWN} more" if len(lines) > OPTIONS_SHOWN else ""))
    if not of_model:
        print("  without its model: -task eval and -task predict need all options of it")


def quantised(table, rows):
    """Errors in a table of quantised rows: scale and bias (fp16), packed values, zeros up to a multiple of row_alignment."""
    bits = {"int8": 8, "int4": 4, "int2": 2}.get(trsdata.text(rows.attrs.get("data_type", "")))
    dim, alignment = (int(rows.attrs.get(name, 0)) for name in ("embedding_dim", "row_alignment"))
    if not bits or dim < 1 or alignment < 1:
        return [f"quantised table {table} lacks a data_type, embedding_dim or row_alignment that is known"]
    row_bytes = -(-(4 + -(-dim * bits // 8)) // alignment) * alignment
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != row_bytes:
        return [f"quantised table {table} has rows of {rows.shape[1:]} {rows.dtype}, not of {row_bytes} bytes"]
    for first in range(0, rows.shape[0], ROWS_AT_ONCE):
        part = rows[first:first + ROWS_AT_ONCE, :4].copy().view(np.float16)
        if not np.all(np.isfinite(part)):
            return [f"quantised table {table}, row {first + int(np.argmin(np.all(np.isfinite(part), axis=1)))}: scale or bias is no number"]
    return []


def plan(words):
    try:
        tables = json.loads(trsdata.text(words))["tables"]
    except (ValueError, KeyError, TypeError):
        return
    print("  plan: " + ", ".join(f"{t['name']} {t['sharding_type']} on {','.join(map(str, t['ranks']))}" for t in tables[:12]) +
          (f" and {len(tables) - 12} more" if len(tables) > 12 else ""))


def metrics(handle):
    """The last evaluation, in one line."""
    if "eval" not in handle:
        return "no evaluation in it"
    found = [name for name, item in handle["eval"].items() if re.fullmatch("(.*_)?(auc|ne|loss|accuracy)", name) and item.ndim == 1]  # one dimension: not a row of segments
    plain = [name for name in ("auc", "ne", "loss", "accuracy") if name in found]
    words = []
    for name in plain + [name for name in found if name not in plain]:
        of_file, value = handle["eval"][name][-1], measured(handle["eval"], name)[-1]
        if np.isnan(value) and (name == "loss" or not np.isnan(of_file)):  # other metrics are NaN if the labels of their task do not define them
            words.append(f"{name} no number" + ("" if np.isnan(of_file) else " (one class)"))
        elif not np.isnan(value):
            words.append(f"{name} {value:.4f}")
    return "  ".join(words)


def starts(group):
    """A line for each of the last starts of a resumed run."""
    names = ("time", "first_step", "steps", "ranks", "hosts", "commit")
    if any(name not in group for name in names):
        return
    rows = list(zip(*(group[name][()] for name in names)))
    for i, (time, first, steps, ranks, hosts, commit) in list(enumerate(rows, 1))[-8:] if len(rows) > 1 else ():
        began = datetime.datetime.fromtimestamp(time).isoformat(" ", "seconds")
        print(f"  start {i} of {len(rows)}: {began}, {counted(steps, 'step')} from {first:,} on, {counted(ranks, 'rank')} on {counted(hosts, 'host')}, {trspython.shown(trsdata.text(commit))}")


def run(handle):
    problems = []
    for name, value in sorted(handle.attrs.items()):
        words = trspython.shown(trsdata.text(value))
        if name not in ("format", "options", "plan", "label"):
            print(f"  {name}: {words if len(words) < 120 else words[:117] + '...'}")
    if "plan" in handle.attrs:
        plan(handle.attrs["plan"])
    if "train/loss" in handle:
        loss, speed = handle["train/loss"][()], handle["train/samples_per_s"][()] if "train/samples_per_s" in handle else np.zeros(0)
        print(f"  {counted(len(loss), 'step')}, loss {loss[0]:.5f} to {loss[-1]:.5f}" if len(loss) else "  no step")
        if len(speed):
            print(f"  samples/s: median {np.median(speed):,.0f}, best {speed.max():,.0f}")
        if not np.all(np.isfinite(loss)):
            problems.append(f"/train/loss is not finite at step {int(np.argmin(np.isfinite(loss)))}")
        if len({len(item) for item in handle["train"].values() if isinstance(item, h5py.Dataset)}) > 1:
            problems.append("the series in /train differ in length")
    if "starts" in handle:
        starts(handle["starts"])
    if "eval" in handle:
        print("  last evaluation: " + metrics(handle))
    if "label" in handle.attrs:
        print(f"  predictions and metrics are of the label {trspython.shown(trsdata.text(handle.attrs['label']))} alone")
    if "predictions" in handle:
        tasks = isinstance(handle["predictions"], h5py.Group)  # with tasks, predictions may be any finite numbers
        for name, item in tensors(handle["predictions"]) if tasks else [("", handle["predictions"])]:
            p, of = item[()], f" of {name}" if tasks else ""
            print(f"  {counted(len(p), 'prediction')}{of}, mean {p.mean():.4f}" if len(p) else f"  no prediction{of}")
            if p.size and not (np.all(np.isfinite(p)) if tasks else p.min() >= 0 and p.max() <= 1):
                problems.append(f"/predictions{'/' + name if tasks else ''} " + ("are not finite" if tasks else "leave [0, 1]"))
    problems += mapping(handle)
    for name, item in tensors(handle["embeddings"]) if "embeddings" in handle else ():
        print(f"  embeddings of {name}: {item.shape[0]:,} x {item.shape[1]}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="of a dataset, read everything; of a checkpoint, verify its checksums")
    parser.add_argument("--metrics", action="store_true", help="of a run, print its last evaluation and nothing else")
    parser.add_argument("--speed", action="store_true", help="of a run, print its median samples/s without the first tenth of the steps")
    args = parser.parse_args()
    bad = 0
    for path in args.files:
        try:
            with trsdata.opened(path) as handle:
                kind = trsdata.text(handle.attrs.get("format", "unknown"))
                if args.metrics:
                    print("  " + metrics(handle))
                    continue
                if args.speed:
                    speeds = handle["train/samples_per_s"][()] if "train/samples_per_s" in handle else np.zeros(0)
                    print(f"{np.median(speeds[len(speeds) // 10:]):.1f}" if len(speeds) else "  no step in it")
                    continue
                print(f"{path}: {trspython.shown(kind)} version {handle.attrs.get('version', '?')}, {size(os.path.getsize(path))}")
                if kind == "trshard-dataset":
                    problems = Dataset(handle, args.check).problems
                elif kind == "trshard-checkpoint":
                    problems = checkpoint(handle, args.check)
                elif kind in (trsdelta.FORMAT, trsdelta.INCREMENT[0]):
                    problems = delta(handle, args.check)
                elif kind == "trshard-run":
                    problems = run(handle)
                else:
                    problems = ["not a file of trshard: its attribute format is " + kind]
                if kind.startswith("trshard-") and int(handle.attrs.get("version", 0)) != 1:
                    problems.append(f"version {handle.attrs.get('version', 'missing')}, expected 1")
        except BrokenPipeError:
            raise
        except (OSError, KeyError, IndexError, ValueError, TypeError, AttributeError) as error:  # an item is missing or has another form
            problems = [str(error) if "cannot be read" in str(error) else f"cannot be read: {error}"]
        for problem in problems:
            print(f"  PROBLEM: {trspython.shown(problem)}")
        bad += bool(problems)
    return 1 if bad else 0


if __name__ == "__main__":
    trspython.run(main)
