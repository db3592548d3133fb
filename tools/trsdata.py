# SPDX-License-Identifier: BSD-3-Clause
"""Writes and reads trshard's HDF5 files from Python (format: input/FORMAT.md).

The tools of this folder share it. DatasetWriter appends samples to a dataset chunk by chunk with constant memory, and
gives the file its name only when it is complete. samples_of() reads a dataset back in the same way.
"""
import errno
import glob
import os
import re
import sys
import tempfile
import unicodedata

import h5py
import numpy as np

import trspython
import trsread

CHUNK_BYTES = 1 << 20  # bytes of an HDF5 chunk: large enough to read as fast as a contiguous dataset
SAMPLES_AT_ONCE = 65536  # samples that the tools hold in memory
LIBVER = ("v110", "v110")  # versions of the files: HDF5 1.10, which the program may use, cannot read the latest format of 2.0


abandoned = []  # files that HDF5 could not close: it would crash on them at the end of the process


def fail(message, code=1):
    """Ends the program with one line on stderr."""
    print(trspython.shown(f"{os.path.basename(sys.argv[0])}: {' '.join(str(message).splitlines())}"), file=sys.stderr)
    if abandoned:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def text(value):
    """An HDF5 string attribute or element as str, however it was stored."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def cells(word):
    """The columns of a terminal that a word takes: two for a wide letter, none for a combining accent."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in word)


def padded(word, width, left=True):
    blanks = " " * (width - cells(word))
    return word + blanks if left else blanks + word


def table(rows, left):
    """The lines of a table. Columns in `left` are aligned to the left, the others to the right."""
    rows = [[trspython.shown(cell) for cell in row] for row in rows]
    width = [max(map(cells, column)) for column in zip(*rows)]
    return ["  ".join(padded(cell, w, c in left) for c, (cell, w) in enumerate(zip(row, width))).rstrip() for row in rows]


def opened(path):
    """Opens an HDF5 file to read. Errors become an OSError that describes the problem in one line, instead of HDF5's calls."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error).splitlines()[0] if h5py.is_hdf5(path) else "it is not an HDF5 file, or damaged"
        raise OSError(f"{path} cannot be read: {why}") from None


def numbers(item, part):
    """A part of a dataset as numbers: bf16, which HDF5 stores as uint16, becomes float32."""
    if item.dtype == np.uint16 and text(item.attrs.get("dtype", "")) == "bf16":
        return (part.astype(np.uint32) << 16).view(np.float32)
    return part


def remove_temporaries(path):
    """Removes files that killed AtomicFiles of this path have left. Nobody may be writing one."""
    folder, name = os.path.split(os.path.realpath(path))
    for found in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.tmp")):
        os.unlink(found)


class AtomicFile:
    """A new HDF5 file that appears under its name only when it is complete and on disk. A link stays; its target is the file."""

    def __init__(self, path):
        self.path = os.path.realpath(path)
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise OSError(errno.EEXIST, "something that is not a file is there", self.path)
        folder = os.path.dirname(self.path)
        os.makedirs(folder, exist_ok=True)
        handle, self.temporary = tempfile.mkstemp(prefix=f".{os.path.basename(self.path)}.", suffix=".tmp", dir=folder)
        os.close(handle)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(self.temporary, 0o666 & ~umask)  # mkstemp gives 0600, but all who may read the folder should read the dataset
        try:
            self.file = h5py.File(self.temporary, "w", libver=LIBVER, rdcc_nbytes=CHUNK_BYTES)  # HDF5 2.0 would cache 8 MiB of each dataset
        except OSError:
            os.unlink(self.temporary)
            raise

    def close(self):
        """Handles h5py's errors for a full disk, which are an OSError or a RuntimeError."""
        try:
            self.file.close()
        except (OSError, RuntimeError) as problem:
            abandoned.append(self.file)
            number = int((re.findall(r"errno = (\d+)", str(problem)) or [errno.EIO])[0])
            raise OSError(number, os.strerror(number), self.path) from None

    def publish(self):
        try:
            self.close()
            sync(self.temporary)
            os.replace(self.temporary, self.path)
        except BaseException:
            self.discard()
            raise
        sync(os.path.dirname(self.path))

    def discard(self):
        try:
            self.close()
        finally:  # a file on a full disk cannot be closed, either
            if os.path.exists(self.temporary):
                os.unlink(self.temporary)


def sync(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class DatasetWriter:
    """Appends samples to a new dataset. Used in a with statement, which gives the file its name or, on an error, removes it.

    features, num_embeddings  key order and id range of the sparse features
    num_dense                 0: the dataset gets no /dense
    weighted                  with /sparse/weights
    sample_weighted           with /weights
    labels                    names of a sample's labels; None: one label without a name; []: no /labels, only for predictions
    grouped, timed            with /group, with /time
    id_dtype                  np.int32, np.int64 or np.uint64, for /sparse/values
    compress                  gzip level with shuffle and fletcher32, or None
    """

    def __init__(self, path, features, num_embeddings, num_dense, weighted=False, id_dtype=np.int32, compress=None, sample_weighted=False,
                 labels=None, grouped=False, timed=False):
        self.features = list(features)
        self.num_dense = num_dense
        self.num_samples = self.num_ids = 0
        self.out = AtomicFile(path)
        sparse = self.out.file.create_group("sparse")
        sparse.attrs["features"] = np.array(self.features, dtype=h5py.string_dtype())
        sparse.attrs["num_embeddings"] = np.asarray(num_embeddings, np.int64)
        self.compress = compress
        self.parts = {
            "sparse/lengths": self._dataset("sparse/lengths", (len(self.features),), np.int32),
            "sparse/offsets": self._dataset("sparse/offsets", (), np.int64),
            "sparse/values": self._dataset("sparse/values", (), id_dtype),
        }
        if labels is None or labels:
            self.parts["labels"] = self._dataset("labels", (len(labels),) if labels else (), np.float32)
        if num_dense:
            self.parts["dense"] = self._dataset("dense", (num_dense,), np.float32)
        if weighted:
            self.parts["sparse/weights"] = self._dataset("sparse/weights", (), np.float32)
        if sample_weighted:
            self.parts["weights"] = self._dataset("weights", (), np.float32)
        if labels:
            self.parts["labels"].attrs["names"] = np.array(list(labels), dtype=h5py.string_dtype())
        if grouped:
            self.parts["group"] = self._dataset("group", (), np.int64)
        if timed:
            self.parts["time"] = self._dataset("time", (), np.int64)
        self._append("sparse/offsets", np.zeros(1, np.int64))

    def _dataset(self, name, row, dtype):
        row_bytes = int(np.prod(row)) * np.dtype(dtype).itemsize
        filters = {"compression": "gzip", "compression_opts": self.compress, "shuffle": True, "fletcher32": True} if self.compress else {}
        chunk = (max(1, CHUNK_BYTES // row_bytes),) + row
        return self.out.file.create_dataset(name, shape=(0,) + row, maxshape=(None,) + row, chunks=chunk, dtype=dtype, **filters)

    def _append(self, name, rows):
        part = self.parts[name]
        start = part.shape[0]
        part.resize(start + len(rows), axis=0)
        if len(rows):
            part[start:] = rows

    def append(self, dense, labels, lengths, values, weights=None, sample_weights=None, group=None, time=None):
        """dense [n, num_dense] (or None), labels [n] or [n, T] ([n, 0]: none), lengths [n, F], values and weights [sum of lengths], sample by sample;
        sample_weights, group and time [n]."""
        per_sample = np.asarray(lengths, np.int64).sum(axis=1)
        if per_sample.sum() != len(values) or len(labels) != len(lengths):
            raise ValueError(f"{len(values)} ids for lengths that add up to {per_sample.sum()}")
        if len(values) and np.asarray(values).dtype.kind not in "iu":
            raise TypeError(f"ids of type {np.asarray(values).dtype}, expected integers")
        if self.num_dense:
            self._append("dense", dense)
        if weights is not None:
            self._append("sparse/weights", weights)
        if sample_weights is not None:
            self._append("weights", sample_weights)
        for name, rows in (("group", group), ("time", time)):
            if rows is not None:
                self._append(name, rows)
        if "labels" in self.parts:
            self._append("labels", labels)
        self._append("sparse/lengths", lengths)
        self._append("sparse/values", values)
        self._append("sparse/offsets", self.num_ids + np.cumsum(per_sample))
        self.num_samples += len(labels)
        self.num_ids += len(values)

    def attribute(self, name, value):
        """Adds an attribute to the file for people; the program does not read it."""
        self.out.file.attrs[name] = value

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error:
            self.out.discard()
            return
        self.out.file.attrs["format"] = "trshard-dataset"
        self.out.file.attrs["version"] = np.int64(1)
        self.out.file.attrs["num_samples"] = np.int64(self.num_samples)
        self.out.publish()


def interleave(lengths, values_by_feature):
    """Brings values of each feature, sample by sample, into the file's order: sample by sample, and feature by feature within a sample.

    lengths [n, F]; values_by_feature: F arrays, the f-th with lengths[:, f].sum() entries.
    """
    n, features = lengths.shape
    starts = np.zeros(n * features + 1, np.int64)
    np.cumsum(lengths.reshape(-1), out=starts[1:])
    out = np.empty(starts[-1], values_by_feature[0].dtype)
    for f in range(features):
        count = lengths[:, f].astype(np.int64)
        first = starts[f:-1:features]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        out[np.repeat(first, count) + within] = values_by_feature[f]
    return out


def describe(path):
    """One line about a written dataset."""
    with h5py.File(path, "r") as h:
        ids = h["sparse/values"].shape[0]
        return f"{path}: {trsread.counted(int(h.attrs['num_samples']), 'sample')}, {trsread.counted(len(h['sparse'].attrs['features']), 'sparse feature')}, {trsread.counted(ids, 'id')}, {os.path.getsize(path) / 1e6:.1f} MB"


def samples_of(handle, at_once=SAMPLES_AT_ONCE):
    """Yields (first, dense or None, labels [n] or [n, T] ([n, 0]: none), lengths, values, weights or None) of an open dataset, a slice at a time."""
    total = handle["sparse/lengths"].shape[0]
    for first in range(0, total, at_once):
        last = min(total, first + at_once)
        begin, end = handle["sparse/offsets"][first], handle["sparse/offsets"][last]
        yield (first, handle["dense"][first:last] if "dense" in handle else None,
               handle["labels"][first:last] if "labels" in handle else np.empty((last - first, 0), np.float32),
               handle["sparse/lengths"][first:last], handle["sparse/values"][begin:end],
               handle["sparse/weights"][begin:end] if "sparse/weights" in handle else None)
