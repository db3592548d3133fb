# SPDX-License-Identifier: BSD-3-Clause
"""Named tensors in the files of other programs: safetensors, numpy's npz, torch.save and torch.distributed.checkpoint.

A source has .tensors, a Tensor for each name, and .description, the text that the writers of this module store beside them (or None).
If it knows shards, .columns has for each name the first columns of the shards into which its columns were cut.
Reading and writing go block by block, so memory does not grow with the tensors. No code from a file is executed: npz is
read without objects, torch with weights_only, and a distributed checkpoint without torch, with its pickles as plain data.
"""
import collections
import contextlib
import dataclasses
import errno
import io
import json
import os
import pickle
import re
import sys
import tempfile
import zipfile
from typing import Callable, Optional

import numpy as np

BLOCK_BYTES = 4 << 20  # bytes held in memory at once
MOST_HEADER_BYTES = 100 << 20  # largest safetensors header, as in the format's own library
DESCRIPTION = "trshard"  # the key of the description
# Types by their safetensors names. For bf16, which numpy does not know, the type has 16 bits.
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}
TORCH = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
         "I8": "int8", "U8": "uint8", "BOOL": "bool"}


class FormatError(Exception):
    """An error in a file: the file's name, the tensor, the finding."""


class NoModule(Exception):
    """A module that a format needs is not installed."""


@dataclasses.dataclass
class Tensor:
    """dtype: a key of NUMPY. blocks(): its rows in order, some at a time. mapped(): all rows as memory of the file, if possible."""
    dtype: str
    shape: tuple
    blocks: Callable
    mapped: Optional[Callable] = None

    @property
    def bytes(self):
        return count(self.shape) * np.dtype(NUMPY[self.dtype]).itemsize


def count(shape):
    """Number of elements of a shape, in integers that do not overflow."""
    n = 1
    for size in shape:
        n *= int(size)
    return n


def strips(shape, dtype):
    """(first row, rows) of blocks of about BLOCK_BYTES; a number without dimensions is one row."""
    rows = int(shape[0]) if shape else 1
    row_bytes = count(shape[1:]) * np.dtype(NUMPY[dtype]).itemsize
    at_once = max(1, BLOCK_BYTES // max(1, row_bytes))
    for first in range(0, rows, at_once):
        yield first, min(at_once, rows - first)


def stream_blocks(stream, dtype, shape, where):
    """Blocks of a tensor whose bytes come next in a stream."""
    for _, n in strips(shape, dtype):
        size = n * count(shape[1:]) * np.dtype(NUMPY[dtype]).itemsize
        data = stream.read(size)
        if len(data) != size:
            raise FormatError(f"{where} ends early")
        yield np.frombuffer(data, NUMPY[dtype]).reshape((n,) + tuple(shape[1:]) if shape else ())


# --- safetensors: the header's length in 8 bytes, the header as JSON, the data ---


def _once(path):
    def pairs(items):
        found = dict(items)
        if len(found) != len(items):
            names = [name for name, _ in items]
            raise FormatError(f"{path}: the header names {next(n for n in names if names.count(n) > 1)!r} twice")
        return found
    return pairs


def _whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _safetensors_entry(path, name, entry, size):
    """(begin, end, dtype, shape) of one tensor; size: bytes of the data."""
    where = f"{path}: tensor {name}"
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise FormatError(f"{where} lacks one of dtype, shape, data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in NUMPY:
        raise FormatError(f"{where} is of type {dtype!r}, expected one of {', '.join(NUMPY)}")
    if not isinstance(shape, list) or not all(map(_whole, shape)):
        raise FormatError(f"{where} has shape {shape!r}, expected a list of integers of at least 0")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)) or not offsets[0] <= offsets[1] <= size:
        raise FormatError(f"{where} lies at {offsets!r}, which is outside of the {size} bytes of data")
    needed = count(shape) * np.dtype(NUMPY[dtype]).itemsize
    if offsets[1] - offsets[0] != needed:
        raise FormatError(f"{where} has {offsets[1] - offsets[0]} bytes, its shape {shape} of {dtype} takes {needed}")
    return offsets[0], offsets[1], dtype, tuple(shape)


def _safetensors_header(path, file):
    size = os.fstat(file.fileno()).st_size
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(MOST_HEADER_BYTES, size - 8):
        raise FormatError(f"{path}: its header is cut off: {size} bytes in all" + (f", {length} of them in the header" if len(head) == 8 else ""))
    try:
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_once(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FormatError(f"{path}: its header is not a JSON object")
    return header, 8 + length, size - 8 - length


class Safetensors:
    def __init__(self, path, stack):
        self.file = stack.enter_context(open(path, "rb"))
        self.path = path
        header, self.start, size = _safetensors_header(path, self.file)
        metadata = header.pop("__metadata__", {})
        self.description = metadata.get(DESCRIPTION) if isinstance(metadata, dict) else None
        entries = {name: _safetensors_entry(path, name, entry, size) for name, entry in header.items()}
        end = 0
        for name, (first, last, _, _) in sorted(entries.items(), key=lambda item: item[1][:2]):
            if first != end:
                raise FormatError(f"{path}: tensor {name} begins at byte {first}, " + ("where another one is" if first < end else f"a gap after {end}"))
            end = last
        if end != size:
            raise FormatError(f"{path}: {size - end} bytes behind the last tensor belong to none")
        self.tensors = {name: Tensor(dtype, shape, self._reader(name, first, dtype, shape)) for name, (first, _, dtype, shape) in entries.items()}

    def _reader(self, name, first, dtype, shape):
        def blocks():
            self.file.seek(self.start + first)
            yield from stream_blocks(self.file, dtype, shape, f"{self.path}: tensor {name}")
        return blocks


PART = re.compile(r".*-(\d{5})-of-(\d{5})\.safetensors")
INDEX = ".safetensors.index.json"


def is_index(path):
    """A file that lists the parts with their tensors, or a folder with such a file."""
    return path.endswith(INDEX) or os.path.isdir(path) and len(_indices(path)) == 1


def _indices(folder):
    return [name for name in os.listdir(folder) if name.endswith(INDEX)]


class SafetensorsParts:
    """safetensors in several parts, which an index lists: {"weight_map": {tensor: file of the same folder}}."""

    def __init__(self, path, stack):
        if os.path.isdir(path):
            path = os.path.join(path, _indices(path)[0])
        try:
            with open(path, encoding="utf-8") as file:
                where = json.load(file, object_pairs_hook=_once(path))["weight_map"]
            plain = all(isinstance(name, str) and name == os.path.basename(name) for name in where.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"{path} is not an index of safetensors: {_first_line(error)}") from None
        if not plain:
            raise FormatError(f"{path} names files of other folders")
        self.tensors, self.description = {}, None
        for part in sorted(set(where.values())):
            try:
                source = Safetensors(os.path.join(os.path.dirname(path), part), stack)
            except FileNotFoundError:
                raise FormatError(f"{path} names {part}, which is not there") from None
            named = {name for name, file in where.items() if file == part}
            for name in sorted(named ^ set(source.tensors)):
                raise FormatError(f"{path}: tensor {name} is " + (f"not in {part}" if name in named else f"in {part}, which the index does not say"))
            self.tensors.update(source.tensors)
            self.description = self.description or source.description


def open_safetensors(path, stack):
    return (SafetensorsParts if is_index(path) else Safetensors)(path, stack)


def write_safetensors(path, tensors, description):
    header, end = {"__metadata__": {"format": "pt", DESCRIPTION: description}}, 0
    order = sorted(tensors, key=lambda name: -np.dtype(NUMPY[tensors[name].dtype]).itemsize)  # in this order every tensor is aligned
    for name in order:
        tensor = tensors[name]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [end, end + tensor.bytes]}
        end += tensor.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER_BYTES:
        raise FormatError(f"{path}: the header would have {len(text)} bytes, safetensors allows {MOST_HEADER_BYTES}")
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for block in tensors[name].blocks():
                file.write(np.ascontiguousarray(block).data)


# --- npz: a zip of npy files; bf16 is stored as uint16, and the description has its type ---


class Npz:
    def __init__(self, path, stack):
        self.path = path
        try:
            self.zip = stack.enter_context(zipfile.ZipFile(path))
        except (zipfile.BadZipFile, ValueError) as error:
            raise FormatError(f"{path} is not an npz file: {error}") from None
        names = self.zip.namelist()
        if len(set(names)) != len(names):
            raise FormatError(f"{path}: it has {next(n for n in names if names.count(n) > 1)} twice")
        found = {name[:-4]: self._tensor(name) for name in names if name.endswith(".npy")}
        text = found.pop(DESCRIPTION, None)
        self.description = None if text is None else b"".join(block.tobytes() for block in text.blocks()).decode("utf-8", "replace")
        self.tensors = found

    def _header(self, stream, name):
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return read(stream)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile, SyntaxError) as error:
            raise FormatError(f"{self.path}: {name} is not an array of numbers: {str(error).splitlines()[0]}") from None

    def _tensor(self, name):
        with self.zip.open(name) as stream:
            shape, fortran, dtype = self._header(stream, name)
        # ml_dtypes writes bfloat16 as V2.
        known = {np.dtype(text): key for key, text in NUMPY.items() if key != "BF16"} | {np.dtype("<u2"): "BF16", np.dtype("V2"): "BF16"}
        if dtype not in known:
            raise FormatError(f"{self.path}: {name} is of type {dtype}, expected little-endian float32, float16 or bfloat16 as uint16")
        if fortran and len(shape) > 1:
            raise FormatError(f"{self.path}: {name} is stored by columns: save numpy.ascontiguousarray() of it")

        def blocks():
            with self.zip.open(name) as stream:
                self._header(stream, name)
                try:
                    yield from stream_blocks(stream, known[dtype], shape, f"{self.path}: {name}")
                except zipfile.BadZipFile as error:
                    raise FormatError(f"{self.path}: {name} is damaged: {error}") from None
        return Tensor(known[dtype], tuple(shape), blocks)


def write_npz(path, tensors, description):
    text = np.frombuffer(description.encode(), np.uint8)
    every = dict(tensors, **{DESCRIPTION: Tensor("U8", text.shape, lambda: [text])})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for name, tensor in every.items():
            with out.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as stream:
                np.lib.format.write_array_header_1_0(stream, {"descr": NUMPY[tensor.dtype], "fortran_order": False, "shape": tuple(tensor.shape)})
                for block in tensor.blocks():
                    stream.write(np.ascontiguousarray(block).data)


# --- torch.save and torch.distributed.checkpoint ---


def import_torch(kind):
    try:
        import torch
    except ImportError:
        raise NoModule(f"{kind} files need torch, which {sys.executable} has not: {sys.executable} -m pip install torch, "
                       "or TRSHARD_PYTHON=<a python3 that has torch, h5py and numpy>") from None
    return torch


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _of_torch(torch, where, value):
    """A torch tensor as one of ours."""
    names = {getattr(torch, name): key for key, name in TORCH.items()}
    if value.layout != torch.strided or value.dtype not in names:
        raise FormatError(f"{where} is {value.dtype} with layout {value.layout}, expected a plain tensor of float32, float16 or bfloat16")
    dtype, shape = names[value.dtype], tuple(value.shape)

    def blocks():
        for first, n in strips(shape, dtype):
            part = (value[first:first + n] if shape else value).detach().contiguous()
            yield (part.view(torch.int16) if dtype == "BF16" else part).numpy().view(NUMPY[dtype])
    return Tensor(dtype, shape, blocks)


def _flat(torch, value, name=""):
    """(name, tensor) of nested dictionaries, with names joined by dots. Other values are left out."""
    for key, item in value.items():
        if isinstance(item, torch.Tensor):
            yield f"{name}{key}", item
        elif isinstance(item, dict):
            yield from _flat(torch, item, f"{name}{key}.")


class Torch:
    def __init__(self, path, _):
        torch = import_torch("torch")
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))  # older files are no zip, and are read completely
        except FileNotFoundError:
            raise
        except Exception as error:  # of many types: pickle.UnpicklingError, RuntimeError, ...
            raise FormatError(f"{path}: torch.load with weights_only refuses it: {_first_line(error)}") from None
        if not isinstance(found, dict):
            raise FormatError(f"{path} holds a {type(found).__name__}, expected a state_dict")
        self.description = getattr(found, DESCRIPTION, None)
        self.tensors = {}
        for name, value in _flat(torch, found):
            if name in self.tensors:
                raise FormatError(f"{path}: tensor {name} is there twice")
            self.tensors[name] = _of_torch(torch, f"{path}: tensor {name}", value)


@contextlib.contextmanager
def _torch_tensors(torch, tensors, folder):
    """The tensors for torch, as memory of files: of the checkpoint itself, or of temporary files without a name."""
    with contextlib.ExitStack() as stack:
        out = {}
        for name, tensor in tensors.items():
            data = tensor.mapped() if tensor.mapped and tensor.bytes else None
            if data is None:
                file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                for block in tensor.blocks():
                    file.write(np.ascontiguousarray(block).data)
                file.flush()
                data = np.memmap(file, NUMPY[tensor.dtype], "c", shape=tensor.shape) if tensor.bytes else np.zeros(tensor.shape, NUMPY[tensor.dtype])
            value = torch.from_numpy(data.view("<i2") if tensor.dtype == "BF16" else data)
            out[name] = value.view(torch.bfloat16) if tensor.dtype == "BF16" else value
        yield out


@contextlib.contextmanager
def _as_os_error(path):
    """Converts torch's own exceptions for a full disk; its CheckpointException is no subclass of Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise OSError(errno.EIO, _first_line(error), path) from None


def write_torch(path, tensors, description):
    torch = import_torch("torch")
    with _torch_tensors(torch, tensors, os.path.dirname(path)) as values:
        state = collections.OrderedDict(values)
        setattr(state, DESCRIPTION, description)  # not among the keys, because load_state_dict(strict=True) accepts only the model's keys
        with _as_os_error(path):
            torch.save(state, path)


class _Plain:
    """An object of a pickle without its code: the arguments of its construction, and its state."""

    def __init__(self, *args):
        self.args, self.state = args, {}

    def __setstate__(self, state):
        self.state = state

    def __getattr__(self, name):
        state = self.__dict__.get("state")
        if isinstance(state, dict) and name in state:
            return state[name]
        raise AttributeError(name)


_CHECKPOINT = "torch.distributed.checkpoint"
# Names in torch's pickles: classes that are replaced by objects without code, plain types, and words.
_PLAIN = {("torch", "device"), ("torch.serialization", "_get_layout"), ("torch._utils", "_rebuild_tensor_v2"), ("pathlib", "PosixPath"),
          ("pathlib", "PurePosixPath"), ("pathlib._local", "PosixPath"), (_CHECKPOINT + ".filesystem", "_StorageInfo")}
_PLAIN |= {(_CHECKPOINT + ".metadata", name) for name in (
    "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING", "TensorProperties", "TensorStorageMetadata", "BytesStorageMetadata", "StorageMeta", "Metadata", "MetadataIndex")}
_REAL = {("torch", "Size"): tuple, ("builtins", "set"): set, ("collections", "OrderedDict"): dict}
_WORDS = re.compile(r"strided|bool|\w+Storage|(bfloat|float|uint|int|complex|quint|qint)\d\w*")  # of torch


class _Pickle(pickle.Unpickler):
    """Reads a pickle of torch without calling anything. Classes become _Plain, types of numbers their names, and storages their names."""
    def find_class(self, module, name):
        if module == "torch" and _WORDS.fullmatch(name):
            return name
        if (module, name) in _PLAIN:
            return type(name, (_Plain,), {})
        if (module, name) == ("builtins", "getattr"):  # a word of an enum, since torch 2.15
            return lambda _, word: word
        if (module, name) not in _REAL:
            raise pickle.UnpicklingError(f"{module}.{name} is not of an index")
        return _REAL[module, name]

    def persistent_load(self, pid):
        return pid


def _index(path):
    """The index of a distributed checkpoint: entries by name, and where their shards are stored."""
    if not os.path.exists(os.path.join(path, ".metadata")):
        raise FormatError(f"{path} is not a distributed checkpoint, or one that was not finished: it has no .metadata")
    with open(os.path.join(path, ".metadata"), "rb") as file:
        try:
            found = _Pickle(file).load()
            places = {(key.fqn, tuple(key.offset or ())): info for key, info in found.storage_data.items()}
            if any(os.path.basename(str(info.relative_path)) != str(info.relative_path) for info in places.values()):
                raise ValueError("it names files of other folders")
            return dict(found.state_dict_metadata), places
        except Exception as error:  # a damaged pickle raises anything
            raise FormatError(f"{path}/.metadata is not the index of a distributed checkpoint: {_first_line(error)}") from None


class _Slice(io.RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, file, first, size):
        super().__init__()
        self.file, self.first, self.size, self.at = file, first, size, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        self.at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence])
        return self.at

    def readinto(self, buffer):
        self.file.seek(self.first + self.at)
        data = self.file.read(max(0, min(len(buffer), self.size - self.at)))
        buffer[:len(data)] = data
        self.at += len(data)
        return len(data)


def _contiguous_bytes(archive, shape):
    """The stream of a tensor's numbers in a file of torch.save that holds only this tensor."""
    root = next((name[:-len("data.pkl")] for name in archive.namelist() if name.endswith("/data.pkl")), None)
    if root is None:
        raise ValueError("it is not a tensor of torch.save")
    if root + "byteorder" in archive.namelist() and archive.read(root + "byteorder") != b"little":
        raise ValueError("its bytes are in another order than little-endian")
    tensor = _Pickle(io.BytesIO(archive.read(root + "data.pkl"))).load()
    storage, first, size, stride = tensor.args[:4]
    packed = [count(shape[i + 1:]) for i in range(len(shape))]
    if first != 0 or tuple(size) != shape or any(have != want for have, want, n in zip(stride, packed, shape) if n > 1):
        raise ValueError(f"it is a view of shape {list(size)} and strides {list(stride)}, expected {list(shape)} in one piece")
    return archive.open(f"{root}data/{storage[2]}")


class Dcp:
    """A distributed checkpoint, read without torch. Each tensor is gathered from its shards in a temporary file."""

    def __init__(self, path, _):
        self.path, self.tensors, self.columns = path, {}, {}
        index, self.places = _index(path)
        names = {name: key for key, name in TORCH.items()}
        for name, entry in index.items():
            if type(entry).__name__ != "TensorStorageMetadata":
                continue
            try:
                properties, shape = entry.properties.state, tuple(entry.size)
                dtype = properties["dtype"] if isinstance(properties, dict) else properties[0]
                chunks = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks]
            except (AttributeError, LookupError, TypeError):
                raise FormatError(f"{path}/.metadata: the entry of tensor {name} is damaged") from None
            if dtype not in names:
                raise FormatError(f"{path}: tensor {name} is torch.{dtype}, expected float32, float16 or bfloat16")
            self._check_cover(name, shape, chunks)
            self.tensors[name] = Tensor(names[dtype], shape, self._reader(name, names[dtype], shape, chunks))
            self.columns[name] = sorted({offsets[1] for offsets, _ in chunks}) if len(shape) == 2 else []
        text = self.tensors.pop(DESCRIPTION, None)
        self.description = None if text is None else b"".join(block.tobytes() for block in text.blocks()).decode("utf-8", "replace")

    def _check_cover(self, name, shape, chunks):
        """Refuses shards that leave a part out, which would be zeros."""
        outside = any(len(offsets) != len(shape) or len(sizes) != len(shape) or any(first < 0 or n < 0 or first + n > size for first, n, size in zip(offsets, sizes, shape))
                      for offsets, sizes in chunks)
        covered = sum(count(sizes) for _, sizes in chunks)
        if outside or covered != count(shape):
            raise FormatError(f"{self.path}: the shards of tensor {name} " + ("lie outside of it" if outside else f"hold {covered} of its {count(shape)} elements"))

    def _fill(self, data, name, dtype, offsets, sizes):
        """Reads one shard."""
        where = f"{self.path}: tensor {name}"
        info = self.places.get((name, offsets))
        if info is None or getattr(info, "transform_descriptors", None):
            raise FormatError(f"{where}: its shard at {list(offsets)} is " + ("not there" if info is None else f"stored by {info.transform_descriptors}"))
        file_name = os.path.join(self.path, str(info.relative_path))
        columns = tuple(slice(first, first + n) for first, n in zip(offsets[1:], sizes[1:]))
        try:
            with open(file_name, "rb") as file, zipfile.ZipFile(_Slice(file, info.offset, info.length)) as archive, _contiguous_bytes(archive, sizes) as stream:
                for (first, n), block in zip(strips(sizes, dtype), stream_blocks(stream, dtype, sizes, where)):
                    data[(slice(offsets[0] + first, offsets[0] + first + n), *columns) if sizes else ()] = block
        except FormatError:
            raise
        except Exception as error:  # of many types
            raise FormatError(f"{where} cannot be read from {file_name}: {_first_line(error)}") from None

    def _reader(self, name, dtype, shape, chunks):
        def blocks():
            with tempfile.TemporaryFile() as file:
                file.truncate(max(1, count(shape) * np.dtype(NUMPY[dtype]).itemsize))
                data = np.memmap(file, NUMPY[dtype], "r+", shape=shape) if shape and count(shape) else np.zeros(shape, NUMPY[dtype])
                for offsets, sizes in chunks:
                    if count(sizes):
                        self._fill(data, name, dtype, offsets, sizes)
                for first, n in strips(shape, dtype):
                    yield data[first:first + n] if shape else data
        return blocks


def write_dcp(path, tensors, description):
    torch = import_torch("dcp")
    from torch.distributed.checkpoint import FileSystemWriter, save
    with _torch_tensors(torch, tensors, os.path.dirname(path)) as values:
        values[DESCRIPTION] = torch.frombuffer(bytearray(description.encode()), dtype=torch.uint8)
        with _as_os_error(path):
            save(values, storage_writer=FileSystemWriter(path), no_dist=True)


READERS = {"safetensors": open_safetensors, "npz": Npz, "torch": Torch, "dcp": Dcp}
WRITERS = {"safetensors": write_safetensors, "npz": write_npz, "torch": write_torch, "dcp": write_dcp}


@contextlib.contextmanager
def source(kind, path):
    with contextlib.ExitStack() as stack:
        yield READERS[kind](path, stack)
