# SPDX-License-Identifier: BSD-3-Clause
"""Deltas (input/FORMAT.md, "Delta"): the chain of a base and its deltas, and the tensors of the model after them."""
import contextlib
import dataclasses

import numpy as np

import trscheckpoint
import trsdata
import trsdynamic
import trsids
from trsformats import FormatError, NUMPY, Tensor, strips

FORMAT, VERSION = "trshard-delta", 1
INCREMENT = "trshard-increment", 1  # format and version of incremental checkpoints
PLACE = ("delta_base", "delta_base_step", "delta_number", "delta_id", "delta_step")  # attributes of a checkpoint that is in a chain
OF_DELTA = ("delta_previous", "delta_from_step", "delta_forget")  # attributes that only deltas have
FORGETS = "delta_forget"  # 1: the delta removes ids from the model, and the chain continues as if this delta were not there


class Delta(trscheckpoint.Checkpoint):
    format, version = FORMAT, VERSION

    def number(self):
        return self.attributes.get("delta_number", 0)

    def numbers(self, table, name):
        """All numbers of /embedding/<table>/delta/<name>; none if the delta lacks this dataset."""
        path = f"embedding/{table}/delta/{name}"
        return trsids.whole(self.tensors[path]).astype(np.int64) if path in self.tensors else np.zeros(0, np.int64)

    def tables(self):
        """The tables whose rows are in the delta."""
        return [path[len("embedding/"):-len("/delta/rows")] for path in self.tensors if path.startswith("embedding/") and path.endswith("/delta/rows")]

    def check(self):
        """Refuse numbers of rows, ids and weights that do not belong together."""
        for table in self.tables():
            where, rows = f"{self.path}: table {table}", self.numbers(table, "rows")
            weight = self.tensors.get(f"embedding/{table}/weight")
            limit = self.of_tensors[f"embedding/{table}/delta/rows"].get("num_embeddings", 0)
            if weight is None or len(weight.shape) != 2 or len(rows) != weight.shape[0]:
                raise FormatError(f"{where} has {len(rows)} numbers of rows, and weights of shape {list(weight.shape) if weight else 'none'}")
            if len(rows) and (rows.min() < 0 or rows.max() >= limit or np.any(np.diff(rows) <= 0)):
                raise FormatError(f"{where}: delta/rows are not ascending numbers below {limit}")
            for name in ("ids", "held"):
                path = f"embedding/{table}/delta/{name}"
                if path in self.tensors and tuple(self.tensors[path].shape) != (len(rows),):
                    raise FormatError(f"{where}: delta/{name} has shape {list(self.tensors[path].shape)}, expected {[len(rows)]}")


@contextlib.contextmanager
def ending():
    """Ends the program with one line if the block fails: with 65 for a wrong file, 64 for another ValueError, 74 for a file that cannot be read or
    written."""
    try:
        yield
    except FormatError as error:
        trsdata.fail(error, 65)
    except ValueError as error:
        trsdata.fail(error, 64)
    except OSError as error:
        if error.errno is None:  # HDF5 reports damaged data in this way
            trsdata.fail(str(error).splitlines()[0], 65)
        trsdata.fail(error, 74)


class Increment(Delta):
    """An incremental checkpoint. Like a delta, it has the changed rows of tables; it has their states, too."""
    format, version = INCREMENT

    def number(self):
        return self.attributes.get("increment_number", 0)


def opened_increment(path):
    return opened(path, Increment)


@contextlib.contextmanager
def opened(path, kind=Delta):
    with contextlib.ExitStack() as stack:
        try:
            delta = kind(path, stack)
            delta.check()
        except (OSError, KeyError, RuntimeError, ValueError) as error:  # h5py raises these for damaged files
            if getattr(error, "errno", None):
                raise
            text = str(error).splitlines()[0]
            raise FormatError(text if text.startswith(path) else f"{path}: {text}") from None
        yield delta


# --- chains ---


def file_id(checkpoint):
    """The id of a file: the sum of the hashes of all rows of /checksums, each followed by the name of its tensor."""
    sums, total = checkpoint.file.get("checksums"), 0
    names = []
    if sums is not None:
        sums.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    for name in names:
        for row in sums[name][()].astype("<i8"):
            total += trscheckpoint.hash_of([np.frombuffer(row.tobytes() + name.encode(), np.uint8)])
    return f"{total % (1 << 64):016x}"


@dataclasses.dataclass
class Place:
    """A place in a chain of deltas, with the fields of a checkpoint's attributes. path: the last file of the chain up to this place."""
    path: str
    base: str
    base_step: int
    number: int
    id: str
    step: int

    def attributes(self):
        return {"delta_base": self.base, "delta_base_step": self.base_step, "delta_number": self.number, "delta_id": self.id, "delta_step": self.step}


def place_of(base):
    """The place of a base. A checkpoint that is in no chain may be the base of a new chain."""
    found = base.attributes
    if "delta_base" in found:
        return Place(base.path, found["delta_base"], found.get("delta_base_step", 0), found.get("delta_number", 0), found.get("delta_id", ""), found.get("delta_step", 0))
    own, step = file_id(base), found.get("step", 0)
    return Place(base.path, own, step, 0, own, step)


def follow(place, delta, base=None):
    """The place after a delta. base: the base if no delta has been applied yet, else None. A new chain may begin with the base, even if the base is in
    an older chain."""
    number, previous = delta.number(), delta.attributes.get("delta_previous")
    forgets = delta.attributes.get(FORGETS, 0)
    if not isinstance(number, int) or not isinstance(previous, str):
        raise FormatError(f"{delta.path} does not say which file is before it")
    if base is not None and number == 1 and previous != place.id and previous == file_id(base):
        place = Place(base.path, previous, base.attributes.get("step", 0), 0, previous, base.attributes.get("step", 0))
    if forgets and (number, previous) == (place.number, place.id):
        return place
    if not forgets and number == place.number + 1 and previous == place.id:
        return Place(delta.path, place.base, place.base_step, number, file_id(delta), delta.attributes.get("step", 0))
    has = f"{place.path} ends with delta {place.number}" if place.number else f"{place.path} has no deltas"
    if delta.attributes.get("delta_base") == place.base and number > place.number + 1:
        raise FormatError(f"{delta.path} is delta {number}, and {has}: delta {place.number + 1} is missing")
    if delta.attributes.get("delta_base") == place.base and number <= place.number and not forgets:
        raise FormatError(f"{delta.path} is delta {number}, and {has}: it is already there, or from steps that a resumed training has repeated")
    raise FormatError(f"{delta.path} follows file {previous} in the chain of {delta.attributes.get('delta_base')}, and {place.path} is file {place.id} "
                      f"in that of {place.base}: they do not belong together")


# --- tables ---


def _convert(block, dtype, to):
    """Numbers of fp32, fp16 or bf16 in another of these types, rounded to the nearest."""
    if dtype == to:
        return block
    wide = trscheckpoint.as_float32(block, dtype)
    if to != "BF16":
        return wide.astype(NUMPY[to])
    bits = wide.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


class Table:
    """A table after a base and its deltas. In a dynamic table, numbers of rows are those of the table, not of the base's file."""

    def __init__(self, base, name, deltas):
        self.name, self.base, self.kind = name, base, trsids.kinds(base.tensors).get(name)
        self.path = f"embedding/{name}/weight"
        self.tensor = base.tensors[self.path]
        self.rows_of = [(delta, delta.numbers(name, "rows")) for delta in deltas]
        self.rows = self.tensor.shape[0]
        self.zeroed = np.zeros(0, np.int64)
        facts = [delta.of_tensors[f"embedding/{name}/delta/rows"] for delta in deltas if name in delta.tables()]
        for delta, _ in self.rows_of:
            weight = delta.tensors.get(self.path)
            if weight is not None and weight.shape[1] != self.tensor.shape[1]:
                raise FormatError(f"{delta.path}: table {name} has {weight.shape[1]} columns, and {base.path} has {self.tensor.shape[1]}")
        if self.kind:
            self._read_ids([fact for fact in facts if "buckets" in fact])
        elif facts and facts[0].get("num_embeddings") != self.rows:
            raise FormatError(f"{base.path}: table {name} has {self.rows} rows, and its deltas are of {facts[0].get('num_embeddings')}: take a checkpoint "
                              "of the deltas' own run as the base")

    # --- which id has which row ---

    def _read_ids(self, facts):
        old = trsids.directory(self.base.path, self.name, self.base.tensors, self.base.attributes)
        self.old, self.buckets, self.time = old, old.buckets, old.time  # time: in steps, as the directory counts them
        if self.kind == "zch":
            self.bucket_rows = self.rows // old.buckets
            self.used = np.full(old.buckets, self.bucket_rows)
        else:
            used = trsids.whole(self.base.tensors[f"embedding/{self.name}/dynamic/buckets"])[:, 0]
            self.first, self.used = np.concatenate([[0], np.cumsum(used)]), used
            cap = facts[0]["num_embeddings"] if facts else trsids.Keys(self.base.attributes, self.name).number("num_embeddings")
            self.bucket_rows = cap // old.buckets if facts else max(cap // old.buckets, int(used.max()))  # a file has the rows in use only
        for fact in facts:
            if fact["buckets"] != old.buckets or fact["num_embeddings"] != self.bucket_rows * old.buckets or self.used.max() > self.bucket_rows:
                raise FormatError(f"{self.base.path}: table {self.name} has {old.buckets} buckets of {self.bucket_rows} rows, and its deltas have "
                                  f"{fact['buckets']} of {fact['num_embeddings'] // max(1, fact['buckets'])}: take a checkpoint of the deltas' own run as the base")
        self.base_used = self.used
        row = old.row if self.kind == "zch" else self._in_table(old.row)
        self.id_of_row = dict(zip(row.tolist(), zip(old.id.tolist(), old.last.tolist(), old.count.tolist())))
        for delta, rows in self.rows_of:
            self._change_ids(delta, rows)

    def _in_table(self, packed):
        """Convert rows of the base's file to rows of the table."""
        bucket = np.searchsorted(self.first, packed, side="right") - 1
        return bucket * self.bucket_rows + packed - self.first[bucket]

    def _change_ids(self, delta, rows):
        ids, held = delta.numbers(self.name, "ids"), delta.numbers(self.name, "held")
        if len(ids) != len(rows) or len(held) != len(rows):
            raise FormatError(f"{delta.path}: table {self.name} keeps ids, and there are {len(ids)} for {len(rows)} rows")
        self.time = min(max(1, self.time, self.old.time + delta.attributes.get("step", 0) - self.base.attributes.get("step", 0)), trsdynamic.MOST_TIME)
        for row, number, has in zip(rows.tolist(), ids.tolist(), held.tolist()):
            before = self.id_of_row.pop(row, None)
            if has:  # training has seen the id since the file before the delta, at the latest in the delta's last step
                self.id_of_row[row] = number, self.time, before[2] if before and before[0] == number else 1
        used = delta.numbers(self.name, "used")
        if self.kind == "dynamic" and len(used):
            if len(used) != self.buckets or np.any(used < self.used) or used.max() > self.bucket_rows:
                raise FormatError(f"{delta.path}: table {self.name}: delta/used does not follow the buckets of the file before it")
            self.used = used

    # --- forgetting ---

    def forget(self, ids):
        """Zero the rows of these ids. In a table that keeps ids, also take the rows from the ids. Returns the rows, ascending, and the ids without a row."""
        if self.kind:
            of_id = {number: row for row, (number, *_) in self.id_of_row.items()}
            rows = [of_id[number] for number in ids if number in of_id]
            missing = [number for number in ids if number not in of_id]
            for row in rows:
                self.id_of_row.pop(row, None)
        else:
            keys = trsids.Keys(self.base.attributes, self.name)
            found, rows = trsdynamic._row_of_id(self.base, self.name, keys, np.array(ids, np.int64), "--forget") if keys("id_map", "none") != "none" else (ids, ids)
            missing = [number for number, row in zip(found, rows) if not 0 <= row < self.rows]
            rows = [int(row) for row in rows if 0 <= row < self.rows]
        rows = np.unique(np.array(rows, np.int64))
        self.zeroed = np.union1d(self.zeroed, rows)
        return rows, missing

    # --- tensors ---

    def _overlay(self, out, first):
        """Write the changed and the zeroed rows into out, which has the table's rows from row first on."""
        for delta, rows in self.rows_of:
            a, b = np.searchsorted(rows, [first, first + len(out)])
            if a < b:
                item = delta.tensors[self.path]
                out[rows[a:b] - first] = _convert(delta.file[self.path][a:b], item.dtype, self.tensor.dtype)
        a, b = np.searchsorted(self.zeroed, [first, first + len(out)])
        out[self.zeroed[a:b] - first] = 0

    def _pieces(self):
        """The pieces of the table in the order of the new file: (first row in the table, rows, first row in the base's file, rows in the base's file)."""
        if self.kind != "dynamic":
            yield 0, self.rows, 0, self.rows
            return
        for b in range(self.buckets):
            yield b * self.bucket_rows, int(self.used[b]), int(self.first[b]), int(self.base_used[b])

    def weight(self):
        n = self.rows if self.kind != "dynamic" else int(self.used.sum())
        cols = self.tensor.shape[1]
        item = self.base.file[self.path]

        def blocks():
            for first, rows, at, old in self._pieces():
                for r, m in strips((rows, cols), self.tensor.dtype):
                    out = np.zeros((m, cols), NUMPY[self.tensor.dtype])
                    there = min(max(old - r, 0), m)
                    if there:
                        out[:there] = item[at + r:at + r + there]
                    self._overlay(out, first + r)
                    yield out
        return Tensor(self.tensor.dtype, (n, cols), blocks)

    def directory(self):
        """{path: Tensor}: which id has which row."""
        folder = f"embedding/{self.name}/{self.kind}"
        rows = np.array(sorted(self.id_of_row), np.int64)
        entry = np.array([self.id_of_row[row] for row in rows.tolist()], np.int64).reshape(-1, 3)
        bucket = rows // self.bucket_rows
        if self.kind == "dynamic":
            begin = np.concatenate([[0], np.cumsum(self.used)])
            ids = np.zeros((int(begin[-1]), 3), np.int64)
            ids[begin[bucket] + rows - bucket * self.bucket_rows] = entry
            time = max(self.time, int(entry[:, 1].max(initial=1)), 1)
            numbers = np.stack([self.used, np.full(self.buckets, time), np.zeros(self.buckets, np.int64)], 1)
            return {f"{folder}/buckets": trsids.constant(numbers), f"{folder}/ids": trsids.constant(ids)}
        raw, slot = np.full(self.rows, trsids.NONE), np.zeros(self.rows, np.int64)
        numbers = np.array([trsids.FRESH] * self.buckets, np.int64)
        for b in range(self.buckets):
            mine, first = bucket == b, b * self.bucket_rows
            order = np.argsort(entry[mine, 0], kind="stable")
            held = rows[mine][order]
            free = np.setdiff1d(np.arange(first, first + self.bucket_rows), held)
            raw[first:first + len(held)] = entry[mine, 0][order]
            slot[first:first + self.bucket_rows] = np.concatenate([held, free])
            largest = held[entry[mine, 0][order] == trsids.NONE]
            if len(largest):
                numbers[b, trsids.LARGEST] = largest[0] - first
        return {f"{folder}/raw": trsids.constant(raw), f"{folder}/slot": trsids.constant(slot), f"{folder}/numbers": trsids.constant(numbers)}


def result(base, deltas, tables):
    """({path: Tensor}, attributes, attributes of tensors) of the model after the deltas. tables: the Table of each of its tables."""
    last = next((delta for delta in reversed(deltas) if not delta.attributes.get(FORGETS)), None)
    source = last or base
    tensors = {path: tensor for path, tensor in source.tensors.items() if path.startswith("dense/") or trscheckpoint.AVERAGE.fullmatch(path)}
    for table in tables:
        tensors[table.path] = table.weight()
        if table.kind:
            tensors.update(table.directory())
    attributes = {name: value for name, value in source.attributes.items() if name not in PLACE + OF_DELTA + ("format", "version") and not name.startswith(("metrics", "early_stopping"))}
    return tensors, dict(attributes, weights_only=1), {path: source.of_tensors[path] for path in tensors if path in source.of_tensors and not path.startswith("embedding/")}


def forgetting(place, source, forgotten):
    """({path: Tensor}, attributes, attributes of tensors) of a delta that zeroes rows of the model and takes them from their ids. forgotten: (Table,
    rows) pairs."""
    tensors, of_tensors = {}, {}
    for table, rows in forgotten:
        if not len(rows):
            continue
        folder = f"embedding/{table.name}/delta"
        limit = table.bucket_rows * table.buckets if table.kind else table.rows
        kind = "I32" if limit <= np.iinfo(np.int32).max else "I64"
        known = lambda dtype, numbers: Tensor(dtype, numbers.shape, lambda: [numbers])
        tensors[f"{folder}/rows"] = known(kind, rows.astype(NUMPY[kind]))
        of_tensors[f"{folder}/rows"] = dict({"num_embeddings": limit}, **({"buckets": table.buckets} if table.kind else {}))
        if table.kind:
            tensors[f"{folder}/ids"] = known("I64", np.zeros(len(rows), np.int64))
            tensors[f"{folder}/held"] = known("U8", np.zeros(len(rows), np.uint8))
        tensors[table.path] = known(table.tensor.dtype, np.zeros((len(rows), table.tensor.shape[1]), NUMPY[table.tensor.dtype]))
    attributes = {name: source.attributes[name] for name in ("step", "run_id", "model", "options", "plan") if name in source.attributes}
    attributes.update(delta_number=place.number, delta_base=place.base, delta_base_step=place.base_step, delta_previous=place.id, delta_from_step=place.step, delta_forget=1)
    return tensors, attributes, of_tensors
