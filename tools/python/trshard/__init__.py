# SPDX-License-Identifier: BSD-3-Clause
"""Sharded embedding tables of libtrshard, with numpy arrays in and out.

    import numpy as np, trshard
    ebc = trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("user", 1_000_000, 64)], batch_size=1024,
                                         embedding_optimizer="adam", embedding_learning_rate=0.01)
    pooled = ebc.forward(lengths, values)       # [batch, columns] float32
    ebc.backward(gradient)                      # updates the rows

Every rank of the communicator (mpi4py's, or MPI_COMM_WORLD) must make the same calls in the same order with its own
samples. src/api/trshard.h, which is installed with the library, is the contract of each call. trshard.autograd
connects a collection to a PyTorch model. A Reader gives the samples of a dataset:

    with trshard.Reader(ebc, "day_*.h5", "-epochs 2") as reader:
        for samples in reader:
            pooled = ebc.forward(*samples.ids)

A Predictor predicts with a checkpoint of the program, in one process and on any thread:

    predictor = trshard.Predictor("model.h5", "-tables_data_type int8")
    probability = predictor.predict(lengths, values, dense=dense)

If a converter made the training data, the checkpoint has its mapping, and the predictor takes raw rows:

    probability = predictor.predict(*predictor.encode([{"age": 31, "user": "u7", "tags": ["a", "b"]}]))

run() runs the program itself, inside this process, and returns its results:

    result = trshard.run("-options_file run.opts", steps=1000)
    print(result.losses[-1], result.evaluations["auc"])

If an exception ends one of several ranks, it is printed and all ranks end (MPI_Abort, as with python -m mpi4py).
"""
import contextlib
import ctypes
import json
import operator
import os
import pathlib
import shutil
import signal
import sys
import threading
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

import numpy as np
import numpy.typing as npt

from .options import Options, words
from .results import Result

__all__ = ["Encoded", "Error", "EmbeddingBagConfig", "EmbeddingBagCollection", "EmbeddingConfig", "EmbeddingCollection",
           "Predictor", "Reader", "Result", "Samples", "request_stop", "run", "version", "words"]
API_VERSION = 1
Floats = npt.NDArray[np.float32]
Self = TypeVar("Self", bound="EmbeddingBagCollection")
POOLINGS = {"sum": 0, "mean": 1, "none": 2}


class Error(RuntimeError):
    """A call that failed: `status` is the exit status that the program trshard would return."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        return type(self), (self.status, str(self))


class EmbeddingBagConfig(NamedTuple):
    """A table. `feature_names` None: one feature with the table's name; `weighted`: each id has a weight."""
    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: Optional[Sequence[str]] = None
    pooling: str = "sum"
    weighted: bool = False


class EmbeddingConfig(NamedTuple):
    """A table of an EmbeddingCollection. `feature_names` None: one feature with the table's name."""
    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: Optional[Sequence[str]] = None


class _Table(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("num_embeddings", ctypes.c_int64), ("embedding_dim", ctypes.c_int32),
                ("pooling", ctypes.c_int), ("weighted", ctypes.c_int32), ("n_features", ctypes.c_int32),
                ("features", ctypes.POINTER(ctypes.c_char_p))]


class _Config(ctypes.Structure):
    _fields_ = [("n_tables", ctypes.c_int32), ("tables", ctypes.POINTER(_Table)), ("batch_size", ctypes.c_int64),
                ("options", ctypes.c_char_p)]


class _Batch(ctypes.Structure):
    _fields_ = [("batch", ctypes.c_int64), ("lengths", ctypes.c_void_p), ("n_values", ctypes.c_int64),
                ("values", ctypes.c_void_p), ("weights", ctypes.c_void_p)]


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("ndim", ctypes.c_int32), ("rows", ctypes.c_int64), ("cols", ctypes.c_int64),
                ("data", ctypes.c_void_p)]


class _Samples(ctypes.Structure):
    _fields_ = [("ids", _Batch), ("num_dense", ctypes.c_int32), ("n_labels", ctypes.c_int32), ("dense", ctypes.c_void_p),
                ("labels", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("step", ctypes.c_int64),
                ("epoch", ctypes.c_int64), ("global_batch", ctypes.c_int64)]


def _share_mpi():
    """Make MPI's symbols visible to its plugins, which some builds of MPI do not link with it."""
    if not os.path.exists("/proc/self/maps"):
        return
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip() for line in maps if "/libmpi.so" in line}
    for path in paths:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)


def _candidates():
    """Files that may be the library: $TRSHARD_LIBRARY; the wheel's; the library that is installed with this package; that of an installed trshard."""
    if os.environ.get("TRSHARD_LIBRARY"):
        return [os.environ["TRSHARD_LIBRARY"]]
    here = pathlib.Path(__file__).resolve()
    prefixes = list(here.parents[2:6])
    if os.environ.get("TRSHARD_ROOT"):
        prefixes.insert(0, pathlib.Path(os.environ["TRSHARD_ROOT"]))
    program = shutil.which("trshard")
    prefixes += [pathlib.Path(program).resolve().parents[1]] if program else []
    prefixes.append(pathlib.Path(sys.prefix))
    folders = [here.parent]
    for prefix in prefixes:
        folders += [prefix / "lib", prefix / "lib64", *sorted((prefix / "lib").glob("*-linux-gnu*"))]
    folders.append(here.parents[3] / "build")  # in a clone
    return [str(path) for path in (folder / "libtrshard.so.1" for folder in folders) if path.exists()] + ["libtrshard.so.1"]


def _load():
    path = _candidates()[0]
    try:
        library = ctypes.CDLL(path)  # its HDF5 must stay separate from that of h5py's wheel
    except OSError as problem:
        raise ImportError(f"{problem}. The package needs trshard's library: set TRSHARD_ROOT to the prefix of an installed trshard, or TRSHARD_LIBRARY "
                          "to libtrshard.so.1, or install the package with the library: pip install tools/python in a clone") from None
    _share_mpi()
    library.TrshardErrorMessage.restype = library.TrshardVersion.restype = ctypes.c_char_p
    api = ctypes.c_int()
    library.TrshardVersion(ctypes.byref(api))
    if api.value != API_VERSION:
        raise ImportError(f"{path} has interface {api.value}, this package needs {API_VERSION}")
    return library


_library = _load()


def version() -> str:
    """The library's version, such as "1.0.0"."""
    return _library.TrshardVersion(None).decode()


__version__: str = version()


def _check(status):
    if status:
        raise Error(status, _library.TrshardErrorMessage().decode(errors="replace"))


def _communicator(comm):
    """The Fortran handle of an mpi4py communicator; of MPI_COMM_WORLD for None."""
    if comm is not None:
        return ctypes.c_int(comm.py2f())
    fortran = ctypes.c_int()
    _check(_library.TrshardWorld(ctypes.byref(fortran)))
    return fortran


def _several_ranks(process=os.getpid()):
    """MPI's world if this process is one of its several ranks, else None."""
    started, ended, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    _library.MPI_Initialized(ctypes.byref(started))
    _library.MPI_Finalized(ctypes.byref(ended))
    if not started.value or ended.value or os.getpid() != process:  # a fork of a rank is no rank
        return None
    _library.MPI_Comm_f2c.restype = ctypes.c_void_p  # wide enough for an int, which MPICH uses
    world = ctypes.c_void_p(_library.MPI_Comm_f2c(_communicator(None)))
    _library.MPI_Comm_size(world, ctypes.byref(size))
    return world if size.value > 1 else None


def _end_all_ranks(*error, printed=sys.excepthook):
    """Print the exception that ends this rank, and end the other ranks, which might wait for this rank for ever."""
    printed(*error)
    world = _several_ranks()
    if world:
        sys.stdout.flush()
        sys.stderr.flush()
        _library.MPI_Abort(world, 1)


sys.excepthook = _end_all_ranks


def request_stop() -> None:
    """Ask the run() of this process to stop at its next step; from any thread."""
    _library.TrshardRequestStop()


@contextlib.contextmanager
def _interrupts_stop():
    """Pass Ctrl-C on to the current run, because Python's handler waits for the run's end. Signals belong to the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    out, into = os.pipe()
    os.set_blocking(into, False)

    def wait():
        while 0 not in (numbers := os.read(out, 64)):  # 0 is written at the end of the run
            if signal.SIGINT in numbers:
                request_stop()

    thread = threading.Thread(target=wait, daemon=True)
    before = signal.set_wakeup_fd(into)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(into, b"\0")
        thread.join()
        os.close(out)
        os.close(into)


def run(options: Options = None, comm: Any = None, **more: Any) -> Result:
    """Run the program's task: train, evaluate, predict, plan or measure. Returns the results of its file -output as numpy arrays.

    options: words of trshard's command line, such as "-options_file run.opts -steps 100", or a dictionary; more: further options, such
    as steps=100; comm: an mpi4py communicator, None for MPI_COMM_WORLD. Without -output, the results are in memory only. Collective. Raises Error with the program's exit status. Status 75 means that it has stopped on request,
    after a checkpoint. Ctrl-C is such a request: the rank that gets it raises KeyboardInterrupt after the checkpoint, the other
    ranks raise Error.
    """
    from . import ranks, results
    fortran = _communicator(comm)
    with results.output_of(words(options, more), ranks.Ranks(fortran)) as (text, result):
        with _interrupts_stop():
            status = _library.TrshardRunFortran(fortran, text.encode())
        _check(status)
        return result()


def _array(array, dtype, name, size=None):
    """The array as contiguous memory of dtype; copied only if needed. Integers of another type must have the same values."""
    if array is None:
        raise ValueError(f"{name} is missing")
    given = np.asarray(array)
    array = np.ascontiguousarray(given, dtype=dtype)
    same = (dtype, np.uint64) if dtype == np.int64 else (dtype,)  # ids of uint64 keep their bits
    if array.dtype.kind == "i" and given.dtype not in same and np.any(array != given):
        raise ValueError(f"{name} is {given.dtype} with numbers that are not {array.dtype}")
    if size is not None and array.size != size:
        raise ValueError(f"{name} has {array.size} elements, expected {size}")
    return array


def _integer(value, bits, name):
    """A number for a C integer. It is checked, because ctypes would truncate it."""
    value = operator.index(value)
    if not -2**(bits - 1) <= value < 2**(bits - 1):
        raise ValueError(f"{name} is {value}, expected an integer of {bits} bits")
    return value


def _view(address, dtype, *shape):
    """The library's memory as a read-only array, without a copy; None if there is no memory."""
    if 0 in shape:
        return np.empty(shape, dtype)
    if not address:
        return None
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    array = np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _batch(n_features, lengths, values, weights):
    """A batch, and the arrays that must exist as long as the call."""
    lengths = _array(lengths, np.int32, "lengths")
    if lengths.ndim == 1:
        lengths = lengths.reshape(n_features, -1)
    if lengths.ndim != 2 or len(lengths) != n_features:
        raise ValueError(f"lengths has shape {lengths.shape}, expected ({n_features}, batch)")
    values = _array(values, np.int64, "values")
    weights = None if weights is None else _array(weights, np.float32, "weights", values.size)
    batch = _Batch(lengths.shape[1], lengths.ctypes.data, values.size, values.ctypes.data,
                   None if weights is None else weights.ctypes.data)
    return batch, (lengths, values, weights)


class EmbeddingBagCollection:
    """Tables that a plan distributes over the ranks (TorchRec's sharded EmbeddingBagCollection with fused optimizers).

    tables: a list of EmbeddingBagConfig; batch_size: samples of a rank's largest batch; options: words of trshard's command
    line, or a dictionary; more: further options, such as embedding_learning_rate=0.1; comm: an mpi4py communicator, None for
    MPI_COMM_WORLD. Collective.
    """

    _state_prefix = "embedding_bags"  # TorchRec's name

    def __init__(self, tables: Sequence[Any], batch_size: int, options: Options = None, comm: Any = None, **more: Any) -> None:
        self._handle = ctypes.c_void_p()
        self._readers = []  # open readers
        self.tables = list(tables)
        self._comm = fortran = _communicator(comm)
        keep = []
        described = (_Table * len(self.tables))()
        for to, table in zip(described, self.tables):
            pooling = self._pooling(table)
            to.name, to.num_embeddings = table.name.encode(), _integer(table.num_embeddings, 64, "num_embeddings")
            to.embedding_dim = _integer(table.embedding_dim, 32, "embedding_dim")
            to.pooling, to.weighted = POOLINGS[pooling], bool(getattr(table, "weighted", False))
            if table.feature_names is not None:
                names = (ctypes.c_char_p * len(table.feature_names))(*(name.encode() for name in table.feature_names))
                keep.append(names)
                to.n_features, to.features = len(names), names
        config = _Config(len(self.tables), described, _integer(batch_size, 64, "batch_size"), words(options, more).encode())
        self.batch_size = batch_size
        _check(_library.TrshardCollectionCreateFortran(fortran, ctypes.byref(config), ctypes.byref(self._handle)))
        self.feature_names = [name for table in self.tables for name in (table.feature_names or [table.name])]
        n, columns, width = ctypes.c_int32(), ctypes.POINTER(ctypes.c_int64)(), ctypes.c_int64()
        _check(_library.TrshardCollectionColumns(self._handle, ctypes.byref(n), ctypes.byref(columns), ctypes.byref(width)))
        ends = columns[1:n.value] + [width.value]
        self.columns = {name: slice(columns[f], ends[f]) for f, name in enumerate(self.feature_names)}
        self.width = width.value
        self._sizes = []  # rows of the matrices of the batches under way
        self._forwarded = None  # an object for the last forward, until its backward

    @staticmethod
    def _pooling(table):
        if table.pooling not in ("sum", "mean"):
            raise ValueError(f"table {table.name!r}: pooling is {table.pooling!r}, expected 'sum' or 'mean'")
        return table.pooling

    @staticmethod
    def _rows(batch):
        """Rows of the matrix of a batch."""
        return batch.batch

    def close(self) -> None:
        """Free the tables, and close open readers. Collective."""
        for reader in list(self._readers):
            reader.close()
        if self._handle:
            _check(_library.TrshardCollectionDestroy(ctypes.byref(self._handle)))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] and _several_ranks():  # the other ranks may not call close() together with this rank
            self._readers.clear()
            self._handle.value = None
        else:
            self.close()

    @property
    def plan(self) -> Dict[str, Any]:
        """The plan, as -plan_output writes it."""
        text = ctypes.c_char_p()
        _check(_library.TrshardCollectionPlan(self._handle, ctypes.byref(text)))
        return json.loads(text.value)

    def _batch(self, lengths, values, weights):
        return _batch(len(self.feature_names), lengths, values, weights)

    def _matrix(self, array, samples, name, written=False):
        """The matrix, its address, and floats from one row to the next. The matrix may be columns of a wider matrix."""
        if array is None:
            array = np.empty((samples, self.width), np.float32)
        if array.dtype != np.float32 or array.shape != (samples, self.width):
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float32 ({samples}, {self.width})")
        if written and not array.flags.writeable:
            raise ValueError(f"{name} is read-only")
        stride, rest = (self.width, 0) if samples < 2 else divmod(array.strides[0], 4)
        if rest or stride < self.width or (self.width > 1 and array.size and array.strides[1] != 4):
            raise ValueError(f"{name} has strides {array.strides}, expected rows whose numbers are neighbours")
        return array, ctypes.c_void_p(array.ctypes.data), ctypes.c_int64(stride)

    @contextlib.contextmanager
    def _refused_on_all(self, function, *rest):
        """Handles arguments that this rank refuses. The other ranks may be in the call already: they get an Error, because a batch is missing."""
        try:
            yield
        except Exception:
            function(self._handle, None, *rest)
            raise

    def _oldest(self):
        """Rows of the matrix of the oldest batch under way."""
        if not self._sizes:
            raise Error(70, "no batch is under way, expected forward() of ids or input_dist() first")
        return self._sizes[0]

    def input_dist(self, lengths: Any, values: Any, weights: Any = None) -> None:
        """Start to send the ids of a batch: lengths int32 [features, batch], values int64, weights float32. Collective."""
        with self._refused_on_all(_library.TrshardInputDist):
            batch, keep = self._batch(lengths, values, weights)
        _check(_library.TrshardInputDist(self._handle, ctypes.byref(batch)))
        self._sizes.append(self._rows(batch))

    def forward(self, lengths: Any = None, values: Any = None, weights: Any = None, out: Optional[Floats] = None) -> Floats:
        """The pooled embeddings float32 [batch, width] of these ids; without ids of the oldest input_dist(). Collective.

        backward() must follow before the next forward(). evaluate() returns embeddings without a backward.
        """
        if lengths is None:
            out, address, stride = self._matrix(out, self._oldest(), "out", written=True)
        else:
            if self._forwarded:
                raise Error(70, "the last forward's batch waits for its backward(), expected that first; evaluate() (in PyTorch "
                                "torch.no_grad()) gives embeddings without a backward")
            if self._sizes:
                raise Error(70, "the batch of an input_dist() is next, expected forward() without ids")
            with self._refused_on_all(_library.TrshardInputDist):
                batch, keep = self._batch(lengths, values, weights)
                out, address, stride = self._matrix(out, self._rows(batch), "out", written=True)
            _check(_library.TrshardInputDist(self._handle, ctypes.byref(batch)))
            self._sizes.append(self._rows(batch))
        _check(_library.TrshardForward(self._handle, address, stride))
        self._forwarded = object()
        return out

    def backward(self, gradient: Floats) -> None:
        """Update the rows of the last forward with the gradient [batch, width]. Collective."""
        gradient, address, stride = self._matrix(gradient, self._oldest(), "gradient")
        _check(_library.TrshardBackward(self._handle, address, stride))
        self._sizes.pop(0)
        self._forwarded = None

    def evaluate(self, lengths: Any, values: Any, weights: Any = None, out: Optional[Floats] = None) -> Floats:
        """The pooled embeddings of these ids, without a backward. Gives rows to no ids. Collective."""
        with self._refused_on_all(_library.TrshardEvaluate, None, ctypes.c_int64(0)):
            batch, keep = self._batch(lengths, values, weights)
            out, address, stride = self._matrix(out, self._rows(batch), "out", written=True)
        _check(_library.TrshardEvaluate(self._handle, ctypes.byref(batch), address, stride))
        return out

    def _described(self, name: str) -> Any:
        found = [table for table in self.tables if table.name == name]
        if not found:
            raise ValueError(f"there is no table {name!r}, expected one of {', '.join(table.name for table in self.tables)}")
        return found[0]

    def table(self, name: str, first: int = 0, n: Optional[int] = None) -> Floats:
        """Rows first to first + n - 1 of a table, by default all of them, as float32 [n, embedding_dim] on every rank. Collective."""
        table = self._described(name)
        first, n = _integer(first, 64, "first"), table.num_embeddings - first if n is None else n
        rows = np.empty((max(0, n), table.embedding_dim), np.float32)
        _check(_library.TrshardTableRead(self._handle, name.encode(), ctypes.c_int64(first), ctypes.c_int64(_integer(n, 64, "n")), ctypes.c_void_p(rows.ctypes.data)))
        return rows

    def set_table(self, name: str, rows: Any, first: int = 0) -> None:
        """Set rows [n, embedding_dim] of a table from row `first` on. All ranks must pass the same numbers. The optimizer's states are unchanged. Collective."""
        table = self._described(name)
        rows = _array(rows, np.float32, "rows")
        if rows.ndim != 2 or rows.shape[1] != table.embedding_dim:
            raise ValueError(f"rows has shape {rows.shape}, expected (n, {table.embedding_dim})")
        _check(_library.TrshardTableWrite(self._handle, name.encode(), ctypes.c_int64(_integer(first, 64, "first")), ctypes.c_int64(len(rows)), ctypes.c_void_p(rows.ctypes.data)))

    def state_dict(self, prefix: str = "") -> Dict[str, Floats]:
        """The tables' weights by TorchRec's names, such as "embedding_bags.user.weight", on every rank. Collective."""
        return {f"{prefix}{self._state_prefix}.{table.name}.weight": self.table(table.name) for table in self.tables}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, prefix: str = "") -> None:
        """Set the tables' weights from a state_dict(), also from one of TorchRec's unsharded collections: arrays or CPU tensors.

        strict: raise KeyError if the names are not exactly those of the tables. The optimizers' states are unchanged: save() and
        load() have them. Collective.
        """
        names = {f"{prefix}{self._state_prefix}.{table.name}.weight": table.name for table in self.tables}
        missing, unexpected = sorted(set(names) - set(state)), sorted(set(state) - set(names))
        if strict and (missing or unexpected):
            raise KeyError(f"the state lacks {missing} and has the unexpected {unexpected}")
        arrays = {table: np.asarray(state[name], np.float32) for name, table in names.items() if name in state}
        for name, array in arrays.items():  # all of them before the first is set
            table = self._described(name)
            if array.shape != (table.num_embeddings, table.embedding_dim):
                raise ValueError(f"table {name!r}: the state has shape {array.shape}, expected ({table.num_embeddings}, {table.embedding_dim})")
        for name, array in arrays.items():
            self.set_table(name, array)

    def __repr__(self) -> str:
        """The tables with their places in the plan."""
        if not self._handle:
            return f"{type(self).__name__}(closed)"
        plan = {table["name"]: table for table in self.plan["tables"]}
        lines = [f"{type(self).__name__}({len(self.tables)} tables, {self.width} columns, batch_size {self.batch_size}, plan for {self.plan['world_size']} ranks)"]
        for table in self.tables:
            place = plan[table.name]
            ranks = ", ".join(str(rank) for rank in place["ranks"][:8]) + (", ..." if len(place["ranks"]) > 8 else "")
            lines.append(f"  {table.name}: {table.num_embeddings} x {table.embedding_dim} {self._pooling(table)}, {place['sharding_type']} "
                         f"{place['compute_kernel']} on rank{'s' * (len(place['ranks']) > 1)} {ranks}")
        return "\n".join(lines)

    def set_learning_rate_factor(self, factor: float) -> None:
        """Multiply the tables' learning rates from now on."""
        _check(_library.TrshardSetLearningRateFactor(self._handle, ctypes.c_double(factor)))

    def _tensors(self, arrays, written=False):
        tensors = (_Tensor * len(arrays))()
        for to, (name, array) in zip(tensors, arrays.items()):
            if array.dtype != np.float32 or not array.flags.c_contiguous or array.ndim not in (1, 2):
                raise ValueError(f"{name} is {array.dtype} {array.shape}, expected contiguous float32 of 1 or 2 dimensions")
            if written and not array.flags.writeable:
                raise ValueError(f"{name} is read-only")
            to.name, to.ndim, to.rows = name.encode(), array.ndim, len(array)
            to.cols, to.data = array.shape[1] if array.ndim == 2 else 1, array.ctypes.data
        return tensors

    def save(self, path: Any, **arrays: Floats) -> None:
        """Write tables, optimizers' states and your own float32 arrays to a checkpoint. Collective."""
        _check(_library.TrshardSave(self._handle, os.fsencode(path), ctypes.c_int32(len(arrays)), self._tensors(arrays)))

    def load(self, path: Any, **arrays: Floats) -> None:
        """Read a checkpoint of any plan and number of ranks, and fill the arrays. Collective."""
        _check(_library.TrshardLoad(self._handle, os.fsencode(path), ctypes.c_int32(len(arrays)), self._tensors(arrays, written=True)))


class EmbeddingCollection(EmbeddingBagCollection):
    """Tables that return a row for each id (TorchRec's sharded EmbeddingCollection): EmbeddingConfig of each, with one embedding_dim.

    The calls are those of EmbeddingBagCollection. Their matrices of embeddings and of gradients are [ids, embedding_dim],
    in the order of `values`.
    """

    _state_prefix = "embeddings"

    @staticmethod
    def _pooling(table):
        return "none"

    @staticmethod
    def _rows(batch):
        return batch.n_values

    def features(self, rows: Floats, lengths: Any) -> Dict[str, Floats]:
        """The part of a matrix that belongs to each feature, by name."""
        ends = np.cumsum(np.reshape(lengths, (len(self.feature_names), -1)).sum(1))
        return dict(zip(self.feature_names, np.split(rows, ends[:-1])))


class Samples(NamedTuple):
    """A rank's part of a global batch. The arrays are the reader's memory, read-only, and valid until its next step or close()."""
    ids: Tuple[Any, Any, Any]  # (lengths, values, weights) for input_dist(), forward() and evaluate(); weights may be None
    dense: Optional[Floats]  # float32 [batch, features]; None without /dense
    labels: Optional[Floats]  # float32 [batch, labels]; None without /labels
    weights: Optional[Floats]  # float32 [batch], weights of samples; None: all samples count alike
    step: int
    epoch: int
    global_batch: int  # samples of all ranks


class Reader:
    """Iterates over a dataset's samples for the features of a collection. A thread reads ahead.

    paths: a file, a pattern such as "day_*.h5", or several; options: -epochs, -steps, -drop_last, -data_shuffle, -seed
    and so on, as for TrshardReaderOpen(); step: the first step to read. Construction, each step and close() are collective.
    """

    def __init__(self, collection: EmbeddingBagCollection, paths: Any, options: Options = None, step: int = 0, **more: Any) -> None:
        self._handle = ctypes.c_void_p()
        self._collection = collection
        paths = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
        names = (ctypes.c_char_p * len(paths))(*(os.fsencode(path) for path in paths))
        _check(_library.TrshardReaderOpen(collection._handle, ctypes.c_int32(len(paths)), names, words(options, more).encode(),
                                          ctypes.c_int64(_integer(step, 64, "step")), ctypes.byref(self._handle)))
        collection._readers.append(self)

    def close(self) -> None:
        """Collective."""
        if self._handle:
            self._collection._readers.remove(self)
            _check(_library.TrshardReaderClose(ctypes.byref(self._handle)))

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: Any) -> None:
        if not error[0] or not _several_ranks():  # the other ranks may not call close() together with this rank
            self.close()

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> Samples:
        if not self._handle:
            raise ValueError("the reader is closed")
        found, more = _Samples(), ctypes.c_int32()
        _check(_library.TrshardReaderNext(self._handle, ctypes.byref(found), ctypes.byref(more)))
        if not more.value:
            raise StopIteration
        ids, batch = found.ids, found.ids.batch
        lengths = _view(ids.lengths, np.int32, len(self._collection.feature_names), batch)
        return Samples((lengths, _view(ids.values, np.int64, ids.n_values), _view(ids.weights, np.float32, ids.n_values) if ids.weights else None),
                       _view(found.dense, np.float32, batch, found.num_dense) if found.num_dense else None,
                       _view(found.labels, np.float32, batch, found.n_labels) if found.n_labels else None,
                       _view(found.weights, np.float32, batch) if found.weights else None, found.step, found.epoch, found.global_batch)


def _use_tools():
    """Make the modules of trshard's tools importable: a wheel has them in this folder, a clone and an installed tree above it."""
    here = pathlib.Path(__file__).resolve()
    tools = str(here.parent / "_tools" if (here.parent / "_tools").is_dir() else here.parents[2])
    if tools not in sys.path:
        sys.path.append(tools)


@contextlib.contextmanager
def _refused_rows():
    """Turn the encoder's refusal into an Error."""
    from trscolumns import Refused
    try:
        yield
    except Refused as problem:
        raise Error(problem.code, str(problem)) from None


class Encoded(NamedTuple):
    """Raw rows as the arguments of predict()."""
    lengths: npt.NDArray[np.int32]  # int32 [features, rows]
    values: npt.NDArray[np.int64]  # int64
    weights: Optional[Floats]  # float32, a weight for each id; None if no feature has weights
    dense: Optional[Floats]  # float32 [rows, num_dense]; None without dense features


class Predictor:
    """A trained model that predicts in a single process, without mpirun.

    checkpoint: a file that the program trshard wrote; options: words such as "-tables_data_type int8". Any number of
    threads may call predict() at the same time. close(), the end of a `with`, or the loss of the last reference frees the
    model.

    sparse_names, output_names: the model's sparse features and outputs; dense_names: its dense features, None if the
    checkpoint has no mapping; step: updates that the weights have seen; mapping: the JSON text that says how a converter
    made the training data (input/FORMAT.md, "Mapping"), or None
    """

    _dropped = []  # handles that threads other than their openers have dropped: only one thread at a time may use the library

    def __init__(self, checkpoint: Any, options: Options = None, **more: Any) -> None:
        self._handle = ctypes.c_void_p()
        self._thread = threading.current_thread()
        while self._dropped:
            _check(_library.TrshardPredictorClose(ctypes.byref(self._dropped.pop())))
        _check(_library.TrshardPredictorOpen(os.fsencode(checkpoint), words(options, more).encode(), ctypes.byref(self._handle)))
        dense, n, outputs, names = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32(), ctypes.POINTER(ctypes.c_char_p)()
        _check(_library.TrshardPredictorShape(self._handle, ctypes.byref(dense), ctypes.byref(n), ctypes.byref(names),
                                              ctypes.byref(outputs)))
        self.num_dense, self.n_outputs = dense.value, outputs.value
        self.feature_names = [names[f].decode() for f in range(n.value)]
        self.sparse_names = self.feature_names
        self._describe()
        self._encoder = None

    def _describe(self):
        text, outputs, step, mapping = ctypes.POINTER(ctypes.c_char_p)(), ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_int64(), ctypes.c_char_p()
        _check(_library.TrshardPredictorNames(self._handle, ctypes.byref(text), ctypes.byref(outputs)))
        _check(_library.TrshardPredictorCheckpoint(self._handle, ctypes.byref(step), ctypes.byref(mapping)))
        self.dense_names = [text[d].decode() for d in range(self.num_dense)] if text else None
        self.output_names = [outputs[i].decode() for i in range(self.n_outputs)]
        self.step, self.mapping = step.value, None if mapping.value is None else mapping.value.decode()

    def __repr__(self) -> str:
        if not self._handle:
            return "Predictor(closed)"
        return (f"Predictor(step {self.step}, {self.num_dense} dense features, {len(self.sparse_names)} sparse features, outputs {', '.join(self.output_names)}, "
                f"{'with' if self.mapping else 'without'} a mapping)")

    def encode(self, rows: Any) -> Encoded:
        """Convert raw rows to arguments of predict(), as the converter of the training data did: predict(*encode(rows)).

        rows: a dictionary of columns, a list of dictionaries, a pandas.DataFrame, a pyarrow.Table or a structured array, with
        the columns that the mapping names. Other columns are ignored. Any number of threads may call encode(). It raises
        Error with status 65 if the checkpoint has no mapping, or if the converter would refuse a row.
        """
        if self._encoder is None:
            self._encoder = self._make_encoder()
        with _refused_rows():
            return Encoded(*self._encoder.encode(rows))

    def _make_encoder(self):
        _use_tools()  # the converters have the encoder's modules
        import trsmapping
        import trsrows
        if self.mapping is None:
            raise Error(65, "the checkpoint has no mapping, so encode() does not know its columns: its training data was made "
                            "without one (tools/convert_table.py writes it)")
        with _refused_rows():
            return trsrows.Encoder(trsmapping.read(self.mapping, "the checkpoint"), self.dense_names, self.sparse_names)

    def _check_open(self) -> None:
        if not self._handle:
            raise ValueError("the predictor is closed")

    def predict(self, lengths: Any, values: Any, weights: Any = None, dense: Any = None, out: Optional[Floats] = None) -> Floats:
        """Predictions float32 [batch, outputs] for ids as in forward() and dense float32 [batch, num_dense]."""
        self._check_open()
        batch, keep = _batch(len(self.feature_names), lengths, values, weights)
        if self.num_dense:
            dense = _array(dense, np.float32, "dense", batch.batch * self.num_dense)
            if dense.ndim > 1 and dense.shape != (batch.batch, self.num_dense):
                raise ValueError(f"dense has shape {dense.shape}, expected ({batch.batch}, {self.num_dense})")
        if out is None:
            out = np.empty((batch.batch, self.n_outputs), np.float32)
        elif out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable or out.shape != (batch.batch, self.n_outputs):
            raise ValueError(f"out is {out.dtype} {out.shape}, expected contiguous, writeable float32 ({batch.batch}, {self.n_outputs})")
        _check(_library.TrshardPredict(self._handle, ctypes.byref(batch), ctypes.c_void_p(dense.ctypes.data if self.num_dense else None),
                                       out.ctypes.data_as(ctypes.c_void_p)))
        return out

    def apply_delta(self, delta: Any) -> int:
        """Change the weights by the next delta of the training (-delta_dir). Returns `step`, which is then the delta's.

        Other threads may call predict() meanwhile, and each call uses the weights before or after the delta. Error with
        status 65 is raised for a damaged file and for a delta that does not follow the model, which then stays as it is. The
        thread that opened the predictor must call this.
        """
        self._check_open()
        step = ctypes.c_int64()
        _check(_library.TrshardPredictorApplyDelta(self._handle, os.fsencode(delta), None))
        _check(_library.TrshardPredictorCheckpoint(self._handle, ctypes.byref(step), None))
        self.step = step.value
        return self.step

    def id_counts(self) -> Dict[str, Tuple[int, int]]:
        """For each sparse feature, how many ids were predicted, and how many of them the model did not know."""
        self._check_open()
        counts = np.zeros((2, len(self.sparse_names)), np.int64)
        _check(_library.TrshardPredictorIdCounts(self._handle, *(row.ctypes.data_as(ctypes.c_void_p) for row in counts)))
        return {name: (int(ids), int(unknown)) for name, ids, unknown in zip(self.sparse_names, *counts)}

    def close(self) -> None:
        """Free the model. No predict() may be under way."""
        if self._handle:
            _check(_library.TrshardPredictorClose(ctypes.byref(self._handle)))

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self):
        if not getattr(self, "_handle", None) or sys.is_finalizing():
            return  # the end of the process frees all memory
        if threading.current_thread() is self._thread:
            self.close()
        else:
            self._dropped.append(self._handle)
