# SPDX-License-Identifier: BSD-3-Clause
"""tools/exchange.py with invalid files and options."""
import json
import os
import pickle
import shutil
import unittest
import zipfile

import h5py
import numpy as np

import trsformats
from exchange_fixture import GOLDEN_DCP, HAS, TABLE, Folder, exchange, random_tensors


class Malformed(Folder):
    """Each source has one error, and one message names it."""

    def setUp(self):
        super().setUp()
        small = {name: numbers for name, numbers, attributes in random_tensors() if "t_a" not in name and "t_c" not in name
                 and not attributes and "optimizer" not in name and "position" not in name and "own" not in name}
        names = {"dense_arch": "dense_arch.model._mlp.{0}._linear.{1}", "over_arch": "over_arch.model.0._mlp.{0}._linear.{1}"}
        self.tensors = {TABLE: np.ones((9, 4), np.float32)}
        for path, numbers in small.items():
            _, module, i, parameter = path.split("/")
            if module in names and (module, i) != ("over_arch", "2"):
                self.tensors[names[module].format(i, parameter)] = numbers
            elif module == "over_arch":
                self.tensors["over_arch.model.1." + parameter] = numbers

    def safetensors(self, change=None, cut=None, metadata=None):
        """A file with a changed header, cut to this number of bytes."""
        header, data = {}, b""
        for name, numbers in self.tensors.items():
            kind = {"float32": "F32", "float64": "F64", "int64": "I64"}[str(numbers.dtype)]
            header[name] = {"dtype": kind, "shape": list(numbers.shape), "data_offsets": [len(data), len(data) + numbers.nbytes]}
            data += numbers.tobytes()
        if metadata is not None:
            header["__metadata__"] = {"trshard": metadata}
        header = change(header) if change else header
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with open(self.path("in.safetensors"), "wb") as file:
            file.write((len(text).to_bytes(8, "little") + text + data)[:cut])
        return self.path("in.safetensors")

    def refuse(self, words, path, kind="safetensors"):
        self.refused(65, [path] + words, path, "--from", kind, "--output", self.path("out.h5"))
        self.assertFalse([name for name in os.listdir(self.folder) if "out.h5" in name])

    def test_good(self):
        """The source from which the others are made by one change is accepted, and contains only
        weights."""
        self.good(self.safetensors(), "--from", "safetensors", "--output", self.path("out.h5"))
        with h5py.File(self.path("out.h5")) as handle:
            self.assertEqual(handle["dense/over_arch/2/weight"].shape, (1, 6))
            self.assertEqual(int(handle.attrs["step"]), 0)

    def test_headers(self):
        def entry(key, value):
            def change(header):
                header[TABLE][key] = value
                return header
            return change
        over, size = "over_arch.model.1.bias", 9 * 4 * 4
        cases = [({"cut": 0}, ["cut off"]), ({"cut": 5}, ["cut off"]), ({"cut": 100}, ["cut off"]), ({"cut": -4}, [over, "outside"]),
                 ({"change": lambda _: b"{"}, ["JSON"]), ({"change": lambda _: b"[]"}, ["object"]), ({"change": lambda _: b"[" * 100000}, ["JSON"]),
                 ({"change": lambda _: b'{"a": {}, "a": {}}'}, ["'a' twice"]),
                 ({"change": lambda h: dict(h, x=3)}, ["tensor x", "lacks"]),
                 ({"change": entry("dtype", "F8_E4M3")}, [TABLE, "F8_E4M3"]),
                 ({"change": entry("shape", [9, -4])}, [TABLE, "[9, -4]"]),
                 ({"change": entry("shape", [1 << 40, 1 << 40])}, [TABLE, "takes"]),
                 ({"change": entry("data_offsets", [0, 1 << 60])}, [TABLE, "outside"]),
                 ({"change": entry("data_offsets", [size, 0])}, [TABLE, "outside"]),
                 ({"change": entry("data_offsets", [4, size + 4])}, [TABLE, "a gap"]),
                 ({"change": lambda h: dict(h, copy=h[TABLE])}, ["another one is"]),
                 ({"change": lambda h: {name: value for name, value in h.items() if name != over}}, ["belong to none"])]
        for i, (made, words) in enumerate(cases):
            with self.subTest(i):
                self.refuse(words, self.safetensors(**made))

    def test_models(self):
        first, bias = "dense_arch.model._mlp.0._linear.weight", "over_arch.model.1.bias"
        nan = np.ones((9, 4), np.float32)
        nan[5, 2] = np.nan
        cases = [({TABLE: np.full((9, 4), 1e39)}, [TABLE, "too large for float32"]), ({TABLE: np.ones((9, 4), np.int64)}, [TABLE, "I64"]),
                 ({TABLE: np.ones(9, np.float32)}, [TABLE, "[9]"]),
                 ({TABLE: np.ones((0, 4), np.float32)}, [TABLE, "[0, 4]"]), ({TABLE: nan}, [TABLE, "row 5", "not finite"]),
                 ({first: np.ones((6, 3), np.float32)}, ["_mlp.0._linear.bias", "[5]", "expected [6]"]),
                 ({first: None}, ["no tensor " + first]), ({bias: None}, ["no tensor " + bias]),
                 ({bias: np.ones(2, np.float32)}, [bias, "[2]", "[1]"]), ({"strange": np.ones(1, np.float32)}, ["tensor strange", "not known"]),
                 ({"dense/over_arch/2/bias": np.ones(1, np.float32)}, ["no tensor", "/dense/over_arch/3/weight"]), ({"embedding//weight": nan}, ["not a path"]),
                 ({"embedding/t_a/weight": self.tensors[TABLE]}, ["both", TABLE])]
        all_of_them = dict(self.tensors)
        for i, (changes, words) in enumerate(cases):
            with self.subTest(i):
                self.tensors = {name: numbers for name, numbers in dict(all_of_them, **changes).items() if numbers is not None}
                self.refuse(words, self.safetensors())
        self.tensors = {}
        self.refuse(["no tensor"], self.safetensors())

    def test_descriptions(self):
        missing = {"attributes": {}, "tensors": {"embedding/t_z/weight": {"dtype": "F32", "shape": [1, 1], "attributes": {}}}}
        other = {"attributes": {}, "tensors": {"embedding/t_a/weight": {"dtype": "F32", "shape": [1, 1], "attributes": {}}}}
        for text, words in ((b"", ["damaged"]), ([], ["damaged"]), ({"attributes": {"a": {}}, "tensors": {}}, ["damaged"]),
                            (missing, ["embedding_bags.t_z.weight"]), (other, [TABLE, "[1, 1]"])):
            with self.subTest(words):
                self.refuse(words, self.safetensors(metadata=json.dumps(text) if text != b"" else "{"))

    def test_npz(self):
        path = self.path("in.npz")
        with open(path, "wb") as file:
            file.write(b"no zip")
        self.refuse(["npz"], path, "npz")
        for changes, words in (({TABLE: np.array([{}], object)}, [TABLE, "object"]), ({TABLE: np.ones((9, 4), ">f4")}, [TABLE, ">f4"]),
                               ({TABLE: np.asfortranarray(np.ones((9, 4), np.float32))}, [TABLE, "by columns"])):
            with self.subTest(words):
                np.savez(path, **dict(self.tensors, **changes))
                self.refuse(words, path, "npz")
        np.savez(path, **self.tensors)
        with zipfile.ZipFile(path, "a") as file:
            file.writestr("bad.npy", b"\x93NUMPY\x01\x00")
        self.refuse(["bad.npy"], path, "npz")

        with open(path, "wb") as file:
            np.savez(file, **self.tensors)
            file.seek(200)
            # numbers of the first tensor, whose checksum in the zip is then wrong
            file.write(b"\xff" * 8)
        self.refuse(["t_a.weight.npy", "CRC-32"], path, "npz")

    def test_other_kinds(self):
        """A folder in place of a file, a file in place of a folder, and a path that is neither."""
        os.makedirs(self.path("folder"))
        with open(self.path("text"), "w", encoding="utf-8") as file:
            file.write("text")
        for kind in sorted(trsformats.READERS):
            of_torch = kind == "torch" and not HAS["torch"]
            self.refuse(["folder", "no .metadata" if kind == "dcp" else "expected a file"], self.path("folder"), kind)
            if not of_torch:
                self.refuse(["text"], self.path("text"), kind)
        self.refused(65, ["folder", "expected a file"], self.path("folder"), "--to", "npz", self.path("out.npz"))

    def dcp(self):
        """A copy of TorchRec's."""
        shutil.rmtree(self.path("in.dcp"), ignore_errors=True)
        return shutil.copytree(GOLDEN_DCP, self.path("in.dcp"))

    def refuse_dcp(self, words, path):
        self.refused(65, [path] + words, path, "--from", "dcp", "--prefix", "model.model.", "--states", "--output", self.path("out.h5"))
        self.assertFalse(os.path.exists(self.path("out.h5")))

    def test_dcp(self):
        """Without torch."""
        cases = [(".metadata", lambda data: data[:500], [".metadata is not the index"]), (".metadata", lambda data: b"", [".metadata is not the index"]),
                 (".metadata", lambda data: data.replace(b"__1_0.distcp", b"../_0.distcp"), ["other folders"]),
                 (".metadata", lambda data: data.replace(b"float32", b"strided"), ["torch.strided", "expected float32"]),
                 (".metadata", lambda data: data.replace(b"ChunkStorageMetadata", b"ChunkStorageMetadatb"), ["not of an index"]),
                 ("__1_0.distcp", lambda data: data[:3000], ["__1_0.distcp", "cannot be read"]),
                 ("__1_0.distcp", lambda data: b"\0" * len(data), ["__1_0.distcp", "cannot be read"]),
                 ("__1_0.distcp", lambda data: data.replace(b"FloatStorage", b"FloatStorbge"), ["__1_0.distcp"]),
                 ("__1_0.distcp", None, ["__1_0.distcp", "No such file"])]
        for i, (name, change, words) in enumerate(cases):
            with self.subTest(i):
                file_name = os.path.join(self.dcp(), name)
                with open(file_name, "rb") as file:
                    data = file.read()
                os.unlink(file_name)
                if change:
                    self.assertNotEqual(change(data), data)
                    with open(file_name, "wb") as file:
                        file.write(change(data))
                self.refuse_dcp(words, self.path("in.dcp"))

    def test_pickles_of_dcp(self):
        """Code that an index or a tensor names is not called."""
        class Evil:
            def __reduce__(self):
                return open, (self.made, "w")
        Evil.made = self.path("made")
        with open(os.path.join(self.dcp(), ".metadata"), "wb") as file:
            pickle.dump(Evil(), file)
        self.refuse_dcp([".metadata", "not of an index"], self.path("in.dcp"))
        with zipfile.ZipFile(self.path("tensor"), "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(Evil()))
        with zipfile.ZipFile(self.path("tensor")) as file, self.assertRaises(pickle.UnpicklingError):
            trsformats._contiguous_bytes(file, (1,))
        self.assertFalse(os.path.exists(Evil.made))

    @unittest.skipUnless(HAS["torch"], "torch is not there")
    def test_views_of_dcp(self):
        """If torch would read the numbers in another order, the file is refused or read as ours."""
        import torch
        import torch.distributed.checkpoint
        torch.distributed.checkpoint.save({name: torch.from_numpy(numbers) for name, numbers in self.tensors.items() if name != TABLE} |
                                          {TABLE: torch.arange(36, dtype=torch.float32).reshape(4, 9).T}, checkpoint_id=self.path("in.dcp"), no_dist=True)
        result = exchange(self.path("in.dcp"), "--from", "dcp", "--output", self.path("out.h5"))
        if result.returncode == 0:  # a torch that writes it in one piece
            with h5py.File(self.path("out.h5")) as handle:
                self.assertEqual(handle["embedding/t_a/weight"][1].tolist(), [1, 10, 19, 28])
        else:
            self.assertIn("in one piece", result.stderr)

    @unittest.skipUnless(HAS["torch"], "torch is not there")
    def test_pickles(self):
        """A pickle that would create a file creates none."""
        import torch

        class Evil:
            def __reduce__(self):
                return open, (self.made, "w")
        Evil.made = self.path("made")
        torch.save({TABLE: torch.ones(9, 4), "evil": Evil()}, self.path("in.pt"))
        self.refuse(["weights_only"], self.path("in.pt"), "torch")
        torch.save(dict.fromkeys([TABLE], torch.ones(9, 4)), self.path("cut.pt"))
        os.truncate(self.path("cut.pt"), os.path.getsize(self.path("cut.pt")) - 100)
        self.refuse(["cut.pt"], self.path("cut.pt"), "torch")
        torch.save([1], self.path("list.pt"))
        self.refuse(["state_dict"], self.path("list.pt"), "torch")
        self.assertFalse(os.path.exists(Evil.made))


if __name__ == "__main__":
    unittest.main()
