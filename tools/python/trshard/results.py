# SPDX-License-Identifier: BSD-3-Clause
"""The results of a run as numpy arrays (input/FORMAT.md, "Run results")."""
import contextlib
import json
import os
import re
import tempfile
from typing import Any, Dict, Iterator, Mapping, Optional

import numpy as np
import numpy.typing as npt

try:
    import h5py
except ImportError:  # the package requires only numpy
    h5py = None


class Result(Mapping[str, npt.NDArray[Any]]):
    """A run's results: result["train/loss"] is a dataset of its file -output. Without -output, they are in memory only.

    losses, evaluations and metrics are the most important of them. attributes: numbers and texts of the whole run.
    """

    def __init__(self, output: Optional[str], attributes: Mapping[str, Any], arrays: Mapping[str, Optional[npt.NDArray[Any]]], readable: bool = True,
                 of_arrays: Optional[Mapping[str, Mapping[str, Any]]] = None) -> None:
        self.output = output
        self.attributes = dict(attributes)
        self._found = dict(arrays)  # None: not yet read from the file
        self._readable = readable
        self._of_arrays = dict(of_arrays or {})  # attributes of the arrays

    @property
    def _arrays(self) -> Dict[str, Optional[npt.NDArray[Any]]]:
        if not self._readable:
            raise ImportError("results of runs are HDF5 files: reading them needs h5py (pip install h5py)")
        return self._found

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        array = self._arrays[name]
        if array is None:
            with h5py.File(self.output, "r") as file:
                array = self._arrays[name] = file[name][()]
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def _group(self, group: str) -> Dict[str, npt.NDArray[Any]]:
        return {name[len(group) + 1:]: self[name] for name in self if name.startswith(group + "/") and name.count("/") == 1}

    @property
    def losses(self) -> npt.NDArray[Any]:
        """float64 [steps] the loss of each step of a training."""
        return self["train/loss"] if "train/loss" in self else np.empty(0)

    @property
    def train(self) -> Dict[str, npt.NDArray[Any]]:
        """Columns of a training's steps: step, loss, samples_per_s, learning rates."""
        return self._group("train")

    @property
    def evaluations(self) -> Dict[str, npt.NDArray[Any]]:
        """Columns of the evaluations: step, loss, auc, ne, ..."""
        return self._group("eval")

    @property
    def metrics(self) -> Dict[str, npt.NDArray[Any]]:
        """Columns of the metrics during a training: step, window_ne, lifetime_ne, ..."""
        return self._group("metrics")

    @property
    def plan(self) -> Optional[Dict[str, Any]]:
        """The plan, as -plan_output writes it."""
        text = self.attributes.get("plan", self._arrays.get("plan"))
        return None if text is None else json.loads(text if isinstance(text, (str, bytes)) else np.asarray(text).item())

    def save(self, path: Any) -> str:
        """Write the results to a file, as -output does. Returns its path."""
        with h5py.File(os.fspath(path), "w") as file:
            for name in self:
                file[name] = self[name]
                for key, value in self._of_arrays.get(name, {}).items():
                    file[name].attrs[key] = value
            for name, value in self.attributes.items():
                file.attrs[name] = value
        return os.fspath(path)

    def __repr__(self) -> str:
        if not self._readable:
            return "Result(needs h5py)"
        parts = [f"{len(self.losses)} steps, loss {self.losses[-1]:.5f}"] if len(self.losses) else []
        found = self.evaluations
        if len(found.get("step", ())):
            parts.append("evaluation after {} steps: {}".format(
                found["step"][-1], ", ".join(f"{name} {found[name][-1]:.5f}" for name in ("loss", "auc", "ne") if name in found and np.ndim(found[name][-1]) == 0)))
        parts.append(self.output if self.output else f"{len(self)} arrays")
        return f"Result({'; '.join(parts)})"


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def read(path: str, in_memory: bool = False) -> Result:
    """The results in a file that a run wrote with -output. in_memory: read all arrays at once, so that the file may go."""
    if h5py is None:
        raise ImportError("results of runs are HDF5 files: reading them needs h5py (pip install h5py)")
    arrays: Dict[str, Optional[npt.NDArray[Any]]] = {}
    of_arrays: Dict[str, Dict[str, Any]] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()] if in_memory else None
            of_arrays[name] = dict(item.attrs)

    with h5py.File(path, "r") as file:
        file.visititems(take)
        attributes = {name: _text(value) for name, value in file.attrs.items()}
    return Result(None if in_memory else os.path.abspath(path), attributes, arrays, of_arrays=of_arrays)


def named_value(words: str, option: str) -> Optional[str]:
    """The value of an option in the words of a command line, else in their option file, else None."""
    parts = [part.replace('"', "") for part in re.findall(r'(?:[^\s"]|"[^"]*")+', words)]
    pairs = list(zip(parts, parts[1:]))
    for name, value in reversed(pairs):
        if name == "-" + option:
            return value
    for name, path in pairs:
        if name == "-options_file" and os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found = re.findall(rf"""^\s*(?:-{option}\s+|{option}\s*:\s*)["']?([^\s"'#]+)""", file.read(), re.MULTILINE)
            if found:
                return str(found[-1])
    return None


@contextlib.contextmanager
def output_of(words: str, ranks: Any) -> Iterator[Any]:
    """Words for a run, and a function that returns its results afterwards. A run without -output gets a file of its own, which rank 0
    reads and sends to the other ranks."""
    named = named_value(words, "output")
    if h5py is None:
        yield words, lambda: Result(named, {}, {}, readable=False)
    elif named is not None:
        yield words, lambda: read(named) if os.path.exists(named) else Result(named, {}, {})
    elif named_value(words, "task") not in (None, "train", "eval", "predict"):
        yield words, lambda: Result(None, {}, {})
    else:
        with tempfile.TemporaryDirectory(prefix="trshard_run_") as folder:
            path = ranks.broadcast(os.path.join(folder, "run.h5"))
            yield f'{words} -output "{path}"', lambda: ranks.broadcast(read(path, in_memory=True) if ranks.rank == 0 else None)
