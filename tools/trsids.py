# SPDX-License-Identifier: BSD-3-Clause
"""Tables that give their rows to ids (id_map zch and dynamic): which id has which row in a checkpoint (input/FORMAT.md, "Checkpoint"), and the
same in the state_dict of TorchRec's ManagedCollisionEmbeddingBagCollection.

TorchRec's module of a table has the arrays raw, slot, count and last of a zch table under other names. Beside them it has the ends of its
buckets (_output_segments_tensor) and the number of its training batches (_current_iter_tensor). It forgets the ids since its last eviction,
and when a row was given to an id; so a load starts both anew, in TorchRec and here.
"""
import re

import numpy as np

import trsoptions
from trsformats import FormatError, Tensor

NONE = np.iinfo(np.int64).max  # the mark of a row without an id in `raw`
SEGMENTS = 1025  # numbers of _output_segments_tensor: a module has at most 1,024 buckets
PATHS = re.compile(r"embedding/(.+)/(?:zch/(raw|slot|count|last|times|numbers|seen)|dynamic/(buckets|ids|candidates|sketch))")
ONLY_THEIRS = re.compile(r"embedding/(.+)/zch/(segments|iteration)")  # paths of _output_segments_tensor and _current_iter_tensor, in no checkpoint
OURS = ("times", "numbers", "seen", "candidates", "sketch")  # exported with --states only: TorchRec has nothing like these
SHAPES = {"raw": 1, "slot": 1, "count": 1, "last": 1, "times": 1, "numbers": (5,), "seen": (3,), "buckets": (3,), "ids": (3,), "candidates": (3,), "sketch": (3,)}
# The columns of `numbers` and `ids`, and the numbers of a bucket that has seen no batch.
ITERATION, EVICTED, CAPACITY, ROOM, LARGEST = range(5)
ID, LAST, COUNT = range(3)
FRESH = (0, 0, -1, 0, -1)


def part(path):
    """(table, "zch" or "dynamic", name) of a tensor of a directory; None for other tensors."""
    found = PATHS.fullmatch(path)
    return found and (found[1], "zch" if found[2] else "dynamic", found[2] or found[3])


def is_model(path):
    """True for a tensor of a directory that TorchRec has, too, or that says which id has which row."""
    found = part(path)
    return bool(found) and found[2] not in OURS


def is_kept(path):
    """True for a tensor of a directory that stays in a checkpoint without states."""
    found = part(path)
    return bool(found) and (found[2] not in OURS or found[2] == "numbers")


def kinds(paths):
    """{table: "zch" or "dynamic"} of the tables that keep ids."""
    return {found[0]: found[1] for found in map(part, paths) if found}


def whole(tensor):
    """All numbers of a tensor."""
    blocks = list(tensor.blocks())
    return np.concatenate([np.atleast_1d(block) for block in blocks]).reshape(tensor.shape) if blocks else np.zeros(tensor.shape, np.int64)


def constant(numbers):
    numbers = np.ascontiguousarray(numbers, np.int64)
    return Tensor("I64", numbers.shape, lambda: [numbers])


def check_shape(path, tensor, rows, name):
    """Refuse a tensor of a directory that is not int64 or has another shape. rows: of the table's weight. name: what the message calls it."""
    _, kind, which = part(path)
    if tensor.dtype != "I64":
        raise FormatError(f"tensor {name} (/{path}) is of type {tensor.dtype}, expected I64")
    one = SHAPES[which] == 1
    wanted = (rows,) if one else (rows, 3) if which == "ids" else (tensor.shape[0] if tensor.shape else 0, *SHAPES[which])
    if tuple(tensor.shape) != wanted:
        raise FormatError(f"tensor {name} (/{path}) has shape {list(tensor.shape)}, expected {list(wanted)}: its table has {rows} rows")


# --- hashes and buckets, as in src/compute/id_map.h ---


def _mix(x):
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        x = (x ^ x >> np.uint64(33)) * np.uint64(factor)
    return x ^ x >> np.uint64(33)


def hashed(ids):
    """The 64-bit hash of each id, as uint64."""
    word = np.uint64
    rotate = lambda x, bits: x << word(bits) | x >> word(64 - bits)
    with np.errstate(over="ignore"):
        a = rotate(np.asarray(ids, np.int64).view(word) * word(0x87c37b91114253d5), 31) * word(0x4cf5ad432745937f)
        a = rotate(a, 27) * word(5) + word(0x52dce729)
        b = a * word(5) + word(0x38495ab5)
        a, b = a ^ word(16), b ^ word(16)
        a = a + b
        a, b = _mix(a), _mix(b + a)
        a = a + b
        return a ^ (b + a)


def bucket_of(ids, buckets, block):
    """The bucket of each id. block: ids of a bucket in the range zch_input_hash_size; 0: the hash chooses."""
    if not block:
        return (hashed(ids) % np.uint64(buckets)).astype(np.int64)
    return np.minimum(np.maximum(np.asarray(ids, np.int64), 0) // block, buckets - 1)


class Keys:
    """The keys of a table in the options of a checkpoint's model. Without a model every key has its default."""

    def __init__(self, attributes, table):
        model = attributes.get("model")
        self.options = {name: value for name, value, *_ in trsoptions.options(model)} if isinstance(model, str) else {}
        self.table = table

    def __call__(self, key, default):
        return self.options.get(f"-table_{self.table}_{key}", self.options.get(f"-tables_{key}", default))

    def number(self, key, default=0):
        value = self(key, str(default))
        return int(value) if re.fullmatch(r"-?\d{1,18}", value) else default

    def block(self, buckets):
        """zch: how many ids of the range a bucket has; 0: a hash of the id chooses its bucket."""
        return -(-self.number("zch_input_hash_size") // buckets)


# --- which id has which row ---


class Directory:
    """The ids of a table: id[n] ascending, row[n]; and the row of ids without one, unknown[buckets]. last[n] and count[n], where 1 stands
    for what is not known. used: rows in use; buckets, block: as in bucket_of."""

    def __init__(self, path, table, tensors, keys, rows):
        """tensors: by name, functions that read them. Raises FormatError if the tensors contradict each other."""
        self.path, self.table, self.rows = path, table, rows
        (self._of_zch if "raw" in tensors else self._of_dynamic)(tensors, keys)
        order = np.argsort(self.id, kind="stable")
        self.id, self.row, self.last, self.count = self.id[order], self.row[order], self.last[order], self.count[order]
        double = np.flatnonzero(self.id[1:] == self.id[:-1])
        if len(double):
            self.bad(f"id {self.id[double[0]]} has two rows")

    def bad(self, what):
        raise FormatError(f"{self.path}: table {self.table}: {what}")

    def need(self, tensors, name):
        if name not in tensors:
            self.bad(f"it has no {name}")
        return tensors[name]()

    def _of_zch(self, tensors, keys):
        self.kind = "zch"
        raw, slot = self.need(tensors, "raw"), self.need(tensors, "slot")
        if raw.shape != (self.rows,) or slot.shape != raw.shape:
            self.bad(f"zch/raw has shape {list(raw.shape)} and zch/slot {list(slot.shape)}, expected {[self.rows]}")
        numbers = tensors["numbers"]() if "numbers" in tensors else np.array([FRESH] * max(1, keys.number("zch_buckets", 1)))
        self.buckets = len(numbers)
        if numbers.shape != (self.buckets, 5) or not self.buckets or self.rows % self.buckets:
            self.bad(f"zch/numbers has shape {list(numbers.shape)} for {self.rows} rows, which are not so many equal buckets")
        z = self.rows // self.buckets
        if not np.array_equal(np.sort(slot.reshape(-1, z), axis=1).ravel(), np.arange(self.rows)):
            self.bad("zch/slot is not a permutation of each bucket's rows")
        begin = np.repeat(np.arange(self.buckets) * z, z)
        held = (raw != NONE) | ((slot - begin == np.repeat(numbers[:, LARGEST], z)) & (slot - begin < z - 1))
        self.time = int(numbers[:, ITERATION].max(initial=0))
        self.id, self.row = raw[held], slot[held]
        of = lambda name, default: tensors[name]()[held] if name in tensors else np.full(len(self.id), default, np.int64)
        self.count, self.last = of("count", 1), of("last", max(1, self.time))
        self.unknown, self.used, self.block = np.arange(1, self.buckets + 1) * z - 1, self.rows, keys.block(self.buckets)

    def _of_dynamic(self, tensors, _):
        self.kind = "dynamic"
        ids, buckets = self.need(tensors, "ids"), self.need(tensors, "buckets")
        if ids.shape != (self.rows, 3):
            self.bad(f"dynamic/ids has shape {list(ids.shape)}, expected {[self.rows, 3]}")
        if buckets.ndim != 2 or buckets.shape[1:] != (3,) or buckets[:, 0].min(initial=1) < 1 or int(buckets[:, 0].sum()) != len(ids):
            self.bad(f"dynamic/buckets does not say how the {len(ids)} rows of dynamic/ids are parted")
        held = np.flatnonzero(ids[:, LAST] > 0)
        self.buckets, self.block, self.used = len(buckets), 0, len(ids)
        self.unknown = np.concatenate([[0], np.cumsum(buckets[:, 0])[:-1]]).astype(np.int64)
        self.id, self.row, self.last, self.count = ids[held, ID], held, ids[held, LAST], ids[held, COUNT]
        self.time = int(buckets[:, 1].max(initial=0))

    def find(self, ids):
        """The row of each id, -1 for those without one."""
        at = np.minimum(np.searchsorted(self.id, ids), max(len(self.id) - 1, 0))
        return np.where(self.id[at] == ids, self.row[at], -1) if len(self.id) else np.full(len(ids), -1)


def directory(path, table, tensors, attributes):
    """The Directory of a table, from all Tensors of a checkpoint by path."""
    mine = {found[2]: tensor for name, tensor in tensors.items() for found in [part(name)] if found and found[0] == table}
    return Directory(path, table, {name: lambda tensor=tensor: whole(tensor) for name, tensor in mine.items()}, Keys(attributes, table),
                     tensors[f"embedding/{table}/weight"].shape[0])


def of_handle(handle, path, table):
    """The Directory of a table, from an open HDF5 file."""
    folder = handle.get(f"embedding/{table}/zch") or handle[f"embedding/{table}/dynamic"]
    model = handle.attrs.get("model", "")
    keys = Keys({"model": model.decode("utf-8", "replace") if isinstance(model, bytes) else model}, table)
    return Directory(path, table, {name: lambda item=item: item[()] for name, item in folder.items()}, keys, (handle.get(f"embedding/{table}/weight") or handle[f"embedding/{table}/weight_quantised"]).shape[0])


# --- zch and TorchRec ---


def outwards(checkpoint, table):
    """{path: tensor} of what TorchRec has for a zch table beside our arrays."""
    path = f"embedding/{table}/zch/numbers"
    numbers = whole(checkpoint.tensors[path]) if path in checkpoint.tensors else None
    buckets = len(numbers) if numbers is not None else Keys(checkpoint.attributes, table).number("zch_buckets", 1)
    rows = checkpoint.tensors[f"embedding/{table}/weight"].shape[0]
    if not 1 <= buckets < SEGMENTS:
        raise FormatError(f"{checkpoint.path}: table {table} has {buckets} buckets; TorchRec's _output_segments_tensor has room for {SEGMENTS - 1}")
    segments = np.full(SEGMENTS, -1, np.int64)
    segments[:buckets + 1] = np.arange(buckets + 1) * (rows // buckets)
    iteration = int(numbers[:, ITERATION].max(initial=0)) if numbers is not None else 0
    folder = f"embedding/{table}/zch"
    return {f"{folder}/segments": constant(segments), f"{folder}/iteration": constant([iteration])}


def hash_note(checkpoint, table):
    """A note about buckets that a sharded module of TorchRec cannot find ids in; None if all is well."""
    path, keys = f"embedding/{table}/zch/numbers", Keys(checkpoint.attributes, table)
    buckets = checkpoint.tensors[path].shape[0] if path in checkpoint.tensors else 1
    if buckets == 1 or keys.number("zch_input_hash_size") or "-tables" not in keys.options:
        return None
    return (f"table {table}: a hash chooses the bucket of an id. TorchRec's sharded module looks in another bucket; its module on one rank finds all "
            "ids (-table_<t>_zch_input_hash_size makes both alike)")


def _ends(name, tensor, rows):
    """The number of equal buckets that _output_segments_tensor tells."""
    ends = [end for end in whole(tensor).ravel().tolist() if end >= 0]
    width = ends[1] - ends[0] if len(ends) > 1 else 0
    if width < 1 or ends != list(range(0, rows + 1, width)):
        raise FormatError(f"tensor {name} has the ends {ends[:6]}{' ...' if len(ends) > 6 else ''}; expected buckets of one size that are {rows} rows together")
    return len(ends) - 1


def _numbers(table, theirs, origin, weight):
    """The numbers of a table's buckets, from TorchRec's own tensors of the table by name."""
    for which, tensor in theirs.items():
        if tensor.dtype != "I64":
            raise FormatError(f"tensor {origin[which]} is of type {tensor.dtype}, expected I64")
        if weight is None:
            raise FormatError(f"tensor {origin[which]} is of the table {table}, whose weight is not there")
    buckets = _ends(origin["segments"], theirs["segments"], weight.shape[0]) if "segments" in theirs else 1
    iteration = 0
    if "iteration" in theirs:
        numbers = whole(theirs["iteration"]).ravel().tolist()
        if len(numbers) != 1 or numbers[0] < 0:
            raise FormatError(f"tensor {origin['iteration']} is {numbers[0] if len(numbers) == 1 else numbers[:4]}, expected a number of batches")
        iteration = numbers[0]
    return constant([(iteration, iteration, *FRESH[CAPACITY:])] * buckets)


def inwards(found, origin):
    """Replace what TorchRec alone has by the numbers of the buckets."""
    only = {}
    for path in [path for path in found if ONLY_THEIRS.fullmatch(path)]:
        table, which = ONLY_THEIRS.fullmatch(path).groups()
        only.setdefault(table, {})[which] = found.pop(path), origin.pop(path)
    for table, theirs in only.items():
        path = f"embedding/{table}/zch/numbers"
        if path not in found:
            names = {which: name for which, (_, name) in theirs.items()}
            found[path] = _numbers(table, {which: tensor for which, (tensor, _) in theirs.items()}, names, found.get(f"embedding/{table}/weight"))
            origin[path] = next(iter(names.values()))


def check(tensors, name):
    """Refuse directories that are not complete, or of other rows than their tables."""
    for path, tensor in tensors.items():
        found = part(path)
        if not found:
            continue
        weight = tensors.get(f"embedding/{found[0]}/weight")
        if weight is None:
            raise FormatError(f"tensor {name(path)} (/{path}) is of the table {found[0]}, whose weight is not there")
        check_shape(path, tensor, weight.shape[0], name(path))
        for other in ("raw", "slot") if found[1] == "zch" else ("ids", "buckets"):
            needed = f"embedding/{found[0]}/{found[1]}/{other}"
            if needed not in tensors:
                raise FormatError(f"there is no tensor {name(needed)} (/{needed}), without which {name(path)} says nothing")
