# SPDX-License-Identifier: BSD-3-Clause
"""Reading and writing trshard's checkpoints from Python, block by block (format: input/FORMAT.md, "Checkpoint")."""
import contextlib
import ctypes
import ctypes.util
import os
import re
import sys

import h5py
import numpy as np
from trspython import tqdm

import trsdata
import trsids
from trsformats import FormatError, NUMPY, Tensor, count, strips

FORMAT, VERSION = "trshard-checkpoint", 1
PART_BYTES = 64 << 20  # bytes that one checksum covers
SEALED_BYTES = 2048  # attributes of at least this size have a checksum
DEFAULTS = {"step": 0, "epoch": 0, "samples_seen": 0, "run_step": 0, "global_batch": 0, "options": "", "plan": "{}"}
STATES = re.compile(r"dense_optimizer/.*|embedding/.+/(?!weight$)[^/]+")  # a table's name may have slashes
FREQUENCY = "dense_optimizer/candidates/frequency"  # state of -softmax_logq streaming, which belongs to no weight
AVERAGE = re.compile(r"dense_optimizer/(.+)/ema")  # average of the weight dense/..., with -ema_decay
OPEN_CHANGES = re.compile(r"embedding/.+/delta/changed")  # rows that no delta has yet; only a resumed training needs them
NO_CHECKSUMS = "libxxhash is not installed: checksums are neither verified nor written"


class Hash:
    """XXH3-64 of the bytes given to update(), as the signed number that a checkpoint holds."""
    library = None

    @classmethod
    def available(cls):
        if cls.library is None:
            name = ctypes.util.find_library("xxhash")
            try:
                library = ctypes.CDLL(name) if name else False
                if library:
                    library.XXH3_createState.restype = ctypes.c_void_p
                    library.XXH3_64bits_digest.restype = ctypes.c_uint64
            except (OSError, AttributeError):  # releases before 0.8 have no XXH3
                library = False
            cls.library = library
        return bool(cls.library)

    def __init__(self):
        self.state = ctypes.c_void_p(self.library.XXH3_createState())
        self.library.XXH3_64bits_reset(self.state)

    def update(self, block):
        block = np.ascontiguousarray(block)
        self.library.XXH3_64bits_update(self.state, ctypes.c_void_p(block.ctypes.data), ctypes.c_size_t(block.nbytes))

    def digest(self):
        value = self.library.XXH3_64bits_digest(self.state)
        self.library.XXH3_freeState(self.state)
        return value - (1 << 64) if value >> 63 else value


def hash_of(blocks):
    total = Hash()
    for block in blocks:
        total.update(block)
    return total.digest()


def bar(what, tensors):
    """A progress bar over the bytes of tensors."""
    return tqdm(total=sum(tensor.bytes for tensor in tensors.values()), desc=what, unit="B", unit_scale=True, disable=not sys.stderr.isatty())


def plain(value):
    """An attribute as text, an integer, a number, or a list of these."""
    if isinstance(value, (bytes, str)):
        return trsdata.text(value)
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def plain_attributes(where, item):
    found = {name: plain(value) for name, value in item.attrs.items()}
    for name, value in found.items():
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, (str, int, float)):
                raise FormatError(f"{where}: attribute {name} is neither text nor numbers")
    return found


def predicting(tensors):
    """The tensors by path that a model predicts with: weights and the ids of their rows, but no states. A weight is its average if the training
    has averages (-ema_decay)."""
    averages = {"dense/" + found[1]: tensors[path] for path, found in ((path, AVERAGE.fullmatch(path)) for path in tensors) if found}
    return {path: averages.get(path, tensor) for path, tensor in tensors.items() if trsids.is_kept(path) or not STATES.fullmatch(path)}


def without_averages(model):
    """The options of a model whose checkpoint has no averages: without -ema_decay, which would require them."""
    return "".join(line for line in model.splitlines(True) if line.split()[:1] != ["-ema_decay"])


# --- reading ---


class Checkpoint:
    """tensors: a trsformats.Tensor for each path. predicting: the tensors for predictions. attributes, of_tensors[path]:
    the attributes of the root and of each tensor.
    """

    format, version = FORMAT, VERSION

    def __init__(self, path, stack, quantised=False):
        """quantised: also accept tables of quantised rows, as bytes."""
        self.path, self.quantised = path, quantised
        self.file = stack.enter_context(trsdata.opened(path))
        found, version = plain(self.file.attrs.get("format", "none")), plain(self.file.attrs.get("version", 0))
        if found == "trshard-increment" and self.format == FORMAT:
            raise FormatError(f"{path} is an incremental checkpoint, which has only the rows that have changed: tools/merge_checkpoint.py makes a full one")
        if (found, version) != (self.format, self.version):
            raise FormatError(f"{path}: format {found}, version {version}, expected {self.format}, version {self.version}")
        self.attributes = plain_attributes(path, self.file)
        self.tensors, self.of_tensors = {}, {}
        self.file.visititems(self._visit)
        if not self.tensors:
            raise FormatError(f"{path} has no tensors")
        self.predicting = predicting(self.tensors)
        self.table_names = [path[len("embedding/"):-len("/weight")] for path in self.tensors if path.startswith("embedding/") and path.endswith("/weight")]

    def _visit(self, name, item):
        if not isinstance(item, h5py.Dataset) or name.startswith("checksums/") or OPEN_CHANGES.fullmatch(name):
            return
        where = f"{self.path}: /{name}"
        if name.endswith("weight_quantised") and not self.quantised:
            raise FormatError(f"{where} is quantised ({plain(item.attrs.get('data_type', '?'))}): the checkpoint that it was made from goes out, this one does not")
        if item.external or item.is_virtual:
            raise FormatError(f"{where} lies in other files")
        self.of_tensors[name] = plain_attributes(where, item)
        bf16 = self.of_tensors[name].pop("dtype", None) == "bf16" and item.dtype == np.uint16
        names = {np.dtype(text).newbyteorder("<"): key for key, text in NUMPY.items() if key != "BF16"}
        names[np.dtype("<u8")] = "I64"  # bit for bit
        dtype = "BF16" if bf16 else names.get(item.dtype.newbyteorder("<"))
        if dtype is None or item.shape is None:
            raise FormatError(f"{where} is {item.dtype} {item.shape}, expected float32, float16, or bfloat16 as uint16")
        self.tensors[name] = Tensor(dtype, item.shape, lambda: self._blocks(item, dtype), lambda: self._mapped(item, dtype))

    @staticmethod
    def _blocks(item, dtype):
        for first, n in strips(item.shape, dtype):
            yield (item[first:first + n] if item.shape else item[()]).astype(NUMPY[dtype], copy=False)

    def _mapped(self, item, dtype):
        """The dataset as memory of the file, if it is stored there unchanged in one piece; else None."""
        offset = item.id.get_offset()
        if item.chunks or offset is None or item.dtype != np.dtype(NUMPY[dtype]):
            return None
        return np.memmap(self.path, NUMPY[dtype], "c", offset, item.shape)

    def verify(self, progress):
        """True if the checksums hold. A file without checksums passes."""
        sums = self.file.get("checksums")
        if sums is None or not Hash.available():
            return
        self._verify_attributes("", self.file, sums)
        for path, tensor in self.tensors.items():
            table = sums.get(path)
            if isinstance(table, h5py.Dataset):
                self._verify_attributes(path, self.file[path], table)
                self._verify_parts(path, tensor, table[()], progress)

    def _verify_attributes(self, path, item, sums):
        for name, expected in sums.attrs.items():
            value = item.attrs.get(name)
            if value is None or hash_of([attribute_bytes(plain(value))]) != expected:
                raise FormatError(f"{self.path} is damaged: the checksum of attribute {name} of /{path} does not hold")

    def _verify_parts(self, path, tensor, parts, progress):
        item, covered = self.file[path], 0
        shape = tensor.shape if len(tensor.shape) == 2 else (tensor.shape[0], 1)
        for row, col, rows, cols, expected in parts.tolist():
            if not (0 <= row <= shape[0] - rows and 0 <= col <= shape[1] - cols and rows > 0 and cols > 0):
                raise FormatError(f"{self.path}: the checksums of /{path} name rows {row} + {rows}, columns {col} + {cols}: damaged")
            covered += rows * cols
            blocks = (item[row + first:row + first + n, col:col + cols] if item.ndim == 2 else item[row + first:row + first + n]
                      for first, n in strips((rows, cols), tensor.dtype))
            if hash_of(blocks) != expected:
                raise FormatError(f"{self.path} is damaged: the checksum of /{path}, rows {row} to {row + rows - 1}, does not hold")
            progress(rows * cols * item.dtype.itemsize)
        if covered != count(shape):
            raise FormatError(f"{self.path}: the checksums of /{path} cover {covered} of its {count(shape)} elements")


@contextlib.contextmanager
def opened(path, quantised=False):
    with contextlib.ExitStack() as stack:
        try:
            checkpoint = Checkpoint(path, stack, quantised)
        except (OSError, KeyError, RuntimeError, ValueError) as error:  # h5py raises these for damaged files
            if getattr(error, "errno", None):
                raise
            text = str(error).splitlines()[0]
            raise FormatError(text if text.startswith(path) else f"{path}: {text}") from None
        yield checkpoint


def verify(checkpoint):
    """Shows a progress bar. Raises FormatError if the file's checksums do not hold."""
    with bar(f"verify {os.path.basename(checkpoint.path)}", checkpoint.tensors) as progress:
        try:
            checkpoint.verify(progress.update)
        except (OSError, RuntimeError, ValueError) as error:  # h5py raises these for damaged files
            raise FormatError(f"{checkpoint.path} is damaged: {str(error).splitlines()[0]}") from None


# --- the definition of a model ---


def _layers(found, module, parameters, source_name, more=()):
    """Layers of a module from 0 on, with every parameter, and with the existing ones of `more`: {index: {parameter: shape}}."""
    layers = {}
    for path, tensor in found.items():
        words = path.split("/")
        if words[:2] == ["dense", module] and len(words) == 4:
            if not words[2].isdigit() or words[3] not in (*parameters, *more):
                raise FormatError(f"tensor {source_name(path)} would be /{path}, which is no layer of {module}")
            layers.setdefault(int(words[2]), {})[words[3]] = tensor.shape
    for i in range(max(layers, default=-1) + 1):
        for parameter in parameters:
            if parameter not in layers.get(i, {}):
                raise FormatError(f"there is no tensor {source_name(f'dense/{module}/{i}/{parameter}')} (/dense/{module}/{i}/{parameter})")
    return layers


def _expect(path, tensor, expected, source_name):
    if tuple(tensor.shape) != tuple(expected):
        raise FormatError(f"tensor {source_name(path)} (/{path}) has shape {list(tensor.shape)}, expected {list(expected)}")


NORMS = ("norm_weight", "norm_bias", "swish_weight", "swish_bias")  # parameters of layer norms after a layer


def check_model(found, source_name):
    """Checks that these tensors, by path, make a model. Raises FormatError, naming a tensor by source_name(path)."""
    for path, tensor in found.items():
        if trsids.part(path):
            continue
        table = path.startswith("embedding/") and path.endswith("/weight")
        wanted = ("F32", "F16", "BF16")
        if tensor.dtype not in wanted:
            raise FormatError(f"tensor {source_name(path)} is of type {tensor.dtype}, expected one of {', '.join(wanted)}")
        if len(tensor.shape) not in ((2,) if table else (1, 2)) or 0 in tensor.shape:
            raise FormatError(f"tensor {source_name(path)} (/{path}) has shape {list(tensor.shape)}, expected {'rows and columns' if table else '1 or 2 dimensions'}")
    if not any(path.startswith(("embedding/", "dense/")) for path in found):
        raise FormatError("no tensor in it is one of a model's")
    for module in ("dense_arch", "over_arch"):
        width = None
        for i, layer in sorted(_layers(found, module, ("weight", "bias"), source_name, NORMS).items()):
            path = f"dense/{module}/{i}"
            if len(layer["weight"]) != 2 or width not in (None, layer["weight"][1]):
                _expect(path + "/weight", found[path + "/weight"], (layer["weight"][0], width or "inputs"), source_name)
            width = layer["weight"][0]
            for parameter in sorted({"bias", *NORMS} & layer.keys()):
                _expect(f"{path}/{parameter}", found[f"{path}/{parameter}"], (width,), source_name)
    for i, layer in sorted(_layers(found, "crossnet", ("W", "V", "bias"), source_name).items()):
        path = f"dense/crossnet/{i}"
        _expect(path + "/V", found[path + "/V"], layer["W"][::-1], source_name)
        _expect(path + "/bias", found[path + "/bias"], layer["W"][:1], source_name)
    trsids.check(found, source_name)
    for path, tensor in found.items():
        if STATES.fullmatch(path) and path != FREQUENCY and not trsids.part(path):
            _check_state(found, path, tensor, source_name)


def _check_state(found, path, tensor, source_name):
    folder = path.rpartition("/")[0]
    of_table = path.startswith("embedding/")
    weights = folder + "/weight" if of_table else folder.replace("dense_optimizer/", "dense/", 1)
    if weights not in found:
        raise FormatError(f"tensor {source_name(path)} (/{path}) is a state of {source_name(weights)}, which is not there")
    shape = found[weights].shape
    columns = of_table and path.endswith("_columns") and len(tensor.shape) == 2 and tensor.shape[0] == shape[0]
    if not columns and not (of_table and tuple(tensor.shape) == shape[:1]):
        _expect(path, tensor, shape, source_name)


# --- writing ---


def attribute_bytes(value):
    """An attribute's bytes as they are stored in the file."""
    if isinstance(value, str):
        return np.frombuffer(value.encode() or b"\0", np.uint8)
    kind = np.int64 if all(isinstance(part, int) for part in (value if isinstance(value, list) else [value])) else np.float64
    return np.asarray(value, kind)


def set_attributes(item, attributes, sums):
    """Writes attributes as trshard does, and the checksums of large ones beside the checksums `sums` (None: none)."""
    for name, value in attributes.items():
        data = attribute_bytes(value)
        if isinstance(value, str):
            item.attrs.create(name, np.bytes_(value.encode()), dtype=h5py.string_dtype("utf-8", data.nbytes))
        else:
            item.attrs.create(name, data)
        if sums is not None and data.nbytes >= SEALED_BYTES:
            sums.attrs.create(name, np.int64(hash_of([data])))


def _finite(block, dtype):
    if dtype == "BF16":
        return (block & 0x7f80) != 0x7f80
    return np.isfinite(block)


def as_float32(block, dtype):
    return (block.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else block.astype(np.float32)


class Parts:
    """The checksum table of a tensor that is written in blocks of rows."""

    def __init__(self, shape, itemsize):
        self.cols = shape[1] if len(shape) == 2 else 1
        self.rows = max(1, PART_BYTES // max(1, self.cols * itemsize))
        self.table, self.row, self.hash = [], 0, None

    def add(self, block):
        while len(block):
            if self.hash is None:
                self.hash, self.first = Hash(), self.row
            n = min(len(block), self.first + self.rows - self.row)
            self.hash.update(block[:n])
            self.row += n
            block = block[n:]
            if self.row == self.first + self.rows:
                self.end()

    def end(self):
        if self.hash is not None:
            self.table.append([self.first, 0, self.row - self.first, self.cols, self.hash.digest()])
            self.hash = None
        return np.array(self.table, np.int64).reshape(-1, 5)


def _write_tensor(file, path, tensor, attributes, where, progress):
    keeps = path.startswith("embedding/") and (path.endswith("/weight") or "/delta/" in path)
    dtype = tensor.dtype if keeps else "I64" if trsids.part(path) else "F32"
    item = file.create_dataset(path, tensor.shape, NUMPY[dtype])
    parts = Parts(tensor.shape, item.dtype.itemsize) if Hash.available() else None
    row = 0
    for block in tensor.blocks():
        finite = _finite(block, tensor.dtype)
        if not finite.all():
            bad = int(np.argmin(finite.reshape(len(block), -1).all(axis=1)))
            raise FormatError(f"{where} has a number in row {row + bad} that is not finite")
        block = block if dtype == tensor.dtype else as_float32(block, tensor.dtype)
        item[row:row + len(block)] = block
        if parts:
            parts.add(block)
        row += len(block)
        progress(block.nbytes)
    sums = file.create_dataset("checksums/" + path, data=parts.end()) if parts and count(tensor.shape) else None
    set_attributes(item, dict(attributes, **({"dtype": "bf16"} if dtype == "BF16" else {})), sums)


def write(path, tensors, attributes, of_tensors, source_name, progress, kind=(FORMAT, VERSION)):
    """A new checkpoint, which gets its name only when it is complete. kind: the file's format and version."""
    out = trsdata.AtomicFile(path)
    try:
        for name, tensor in tensors.items():
            _write_tensor(out.file, name, tensor, of_tensors.get(name, {}), f"tensor {source_name(name)}", progress)
        sums = out.file.require_group("checksums") if Hash.available() else None
        set_attributes(out.file, dict(DEFAULTS, **attributes, format=kind[0], version=kind[1]), sums)
        out.publish()
    except BaseException:
        out.discard()
        raise


def check_output(path, is_folder, force):
    """Why this output cannot be written; None if it can."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        return f"{folder} is no folder to write in"
    if not os.path.lexists(path):
        return None
    if not force:
        return f"{path} exists: --force replaces it"
    if is_folder != os.path.isdir(path) or is_folder and not os.path.exists(os.path.join(path, ".metadata")):
        return f"{path} is {'a folder' if os.path.isdir(path) else 'a file'}, and not what would be written there: it is not replaced"
    return None
