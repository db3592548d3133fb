# SPDX-License-Identifier: BSD-3-Clause
"""tools/exchange.py of tables that give their rows to ids, with checkpoints made by hand: the way to other formats and back, invalid files and
lists of ids, and TorchRec's own module if it can be imported."""
import importlib.util
import os
import sys
import unittest

import h5py
import numpy as np

import exchange as tool
import scratch
import trscheckpoint
import trsids

HAS = {module: importlib.util.find_spec(module) is not None for module in ("torch", "torchrec", "pyarrow")}
NONE = trsids.NONE
EBC = "sparse_arch.embedding_bag_collection."
OF_TABLE = EBC + "_managed_collision_collection._managed_collision_modules.t."
RAW, SEGMENTS = OF_TABLE + "_mch_sorted_raw_ids", OF_TABLE + "_output_segments_tensor"


def weights(rows, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)


def zch(policy="distance_lfu"):
    """A table of two buckets of four rows. Its ids are below 100 and from 100 on (zch_input_hash_size 200)."""
    made = {"embedding/t/weight": weights(8), "embedding/t/momentum1": weights(8, 2)[:, 0].copy(),
            "embedding/t/zch/raw": [-3, 7, NONE, NONE, 100, 150, 999, NONE], "embedding/t/zch/slot": [2, 0, 1, 3, 6, 5, 4, 7],
            "embedding/t/zch/times": [1, 2, 0, 0, 3, 1, 1, 0], "embedding/t/zch/numbers": [[9, 8, 40, 3, -1], [9, 8, 40, 40, -1]],
            "embedding/t/zch/seen": [[7, 2, 9], [0, 0, 0]]}
    if policy != "lru":
        made["embedding/t/zch/count"] = [5, 2, 0, NONE, 3, 3, 1, NONE]
    if policy != "lfu":
        made["embedding/t/zch/last"] = [8, 9, 0, 8, 3, 4, 8, 8]
    return made


def dynamic():
    return {"embedding/t/weight": weights(5), "embedding/t/dynamic/ids": [[0, 0, 0], [-3, 4, 2], [0, 0, 0], [0, 0, 0], [99, 5, 1]],
            "embedding/t/dynamic/buckets": [[3, 5, 0], [2, 5, 1]], "embedding/t/dynamic/candidates": [[5, 5, 1], [0, 0, 0]], "embedding/t/dynamic/sketch": [[1, 7, 2], [0, 0, 0]]}


def static(rows=8):
    return {"embedding/t/weight": weights(rows), "embedding/t/momentum1": weights(rows, 2)[:, 0].copy()}


class Folder(scratch.Scratch):
    def make(self, tensors, model="", name="model.h5"):
        with h5py.File(self.path(name), "w") as handle:
            for path, numbers in tensors.items():
                handle[path] = numbers if isinstance(numbers, np.ndarray) else np.array(numbers, np.int64)
            handle.attrs.update(format=trscheckpoint.FORMAT, version=trscheckpoint.VERSION, step=9, **({"model": model} if model else {}))
        return self.path(name)

    def list(self, content, name="ids.txt"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)
        return self.path(name)

    def good(self, *arguments):
        result = scratch.inside(tool, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def refused(self, status, words, *arguments):
        result = scratch.inside(tool, *arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def tensors(self, path):
        found = {}
        with h5py.File(path) as handle:
            handle.visititems(lambda name, item: found.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) and not name.startswith("checksums") else None)
        return found


class ThereAndBack(Folder):
    def test_bits(self):
        """With --states all tensors come back. Without, a zch table keeps what TorchRec has, and its history begins anew."""
        for what, made in {"lfu": zch("lfu"), "lru": zch("lru"), "distance_lfu": zch(), "dynamic": dynamic()}.items():
            model = self.make(made)
            expected = self.tensors(model)
            for kind in ("safetensors", "npz") + (("torch", "dcp") if HAS["torch"] else ()):
                with self.subTest(f"{what}, {kind}"):
                    out, back = self.path("out." + kind), self.path("back.h5")
                    self.good(model, "--to", kind, "--states", out, "--force")
                    self.good(out, "--from", kind, "--states", "--output", back, "--force")
                    found = self.tensors(back)
                    self.assertEqual(found.keys(), expected.keys())
                    for name, numbers in expected.items():
                        self.assertEqual((found[name].dtype, found[name].tobytes()), (numbers.dtype, numbers.tobytes()), name)
                    self.good(model, "--to", kind, out, "--force")
                    self.good(out, "--from", kind, "--output", back, "--force")
                    found, ours = self.tensors(back), [name for name in expected if not name.endswith(trsids.OURS + ("momentum1",))]
                    if what != "dynamic":
                        self.assertEqual(found.pop("embedding/t/zch/numbers").tolist(), [[9, 9, -1, 0, -1]] * 2)
                    self.assertEqual(sorted(found), sorted(ours))
                    for name in ours:
                        np.testing.assert_array_equal(found[name], expected[name], name)

    def test_names(self):
        """TorchRec's names, ends and batches. A key map renames the weight of a zch table and its ids."""
        self.good(self.make(zch()), "--to", "npz", self.path("out.npz"))
        with np.load(self.path("out.npz")) as out:
            self.assertEqual(out[SEGMENTS].tolist(), [0, 4, 8] + [-1] * 1022)
            self.assertEqual(out[OF_TABLE + "_current_iter_tensor"].tolist(), [9])
            self.assertEqual({name.rpartition(".")[2] for name in out.files},
                             {"weight", "_mch_sorted_raw_ids", "_mch_remapped_ids_mapping", "_mch_counts", "_mch_last_access_iter", "_output_segments_tensor", "_current_iter_tensor", "trshard"})
            self.assertIn(EBC + "_embedding_module.embedding_bags.t.weight", out.files)
        names = self.list("embedding/*/zch/weight their.*.table\nembedding/*/zch/raw their.*.ids\n", "map")
        self.good(self.make(zch()), "--to", "npz", self.path("out.npz"), "--key-map", names, "--force")
        with np.load(self.path("out.npz")) as out:
            self.assertTrue({"their.t.table", "their.t.ids"} <= set(out.files))
        self.good(self.path("out.npz"), "--from", "npz", "--output", self.path("back.h5"), "--key-map", names)
        self.assertEqual(self.tensors(self.path("back.h5"))["embedding/t/zch/raw"].tolist(), zch()["embedding/t/zch/raw"])

    def test_hash_note(self):
        """Buckets that a hash chooses are not those of TorchRec's shards, and the tool prints
        this."""
        model = "-tables t\n-table_t_id_map zch\n-table_t_zch_buckets 2\n"
        self.assertIn("a hash chooses the bucket", self.good(self.make(zch(), model), "--to", "npz", self.path("out.npz")))
        self.assertEqual(self.good(self.make(zch(), model + "-table_t_zch_input_hash_size 200\n"), "--to", "npz", self.path("out.npz"), "--force"), "")

    def test_too_many_buckets(self):
        rows = 2050
        made = {"embedding/t/weight": weights(rows), "embedding/t/zch/raw": [NONE] * rows, "embedding/t/zch/slot": list(range(rows)),
                "embedding/t/zch/numbers": [[0, 0, -1, 0, -1]] * (rows // 2)}
        self.refused(65, ["1025 buckets", "1024"], self.make(made), "--to", "npz", self.path("out.npz"))

    def test_theirs_damaged(self):
        """Invalid tensors of TorchRec: the message names the tensor, and nothing is written."""
        self.good(self.make(zch()), "--to", "npz", self.path("good.npz"))
        with np.load(self.path("good.npz")) as file:
            good = {name: file[name] for name in file.files if name != "trshard"}
        uneven = np.array([0, 3, 8] + [-1] * 1022)
        for name, numbers, words in ((SEGMENTS, uneven, ["[0, 3, 8]", "one size"]), (SEGMENTS, uneven * 0 - 1, ["the ends []"]), (RAW, good[RAW][:-1], ["shape [7]", "8 rows"]),
                                     (RAW, good[RAW].astype(np.float32), ["F32", "I64"]), (RAW, None, ["there is no tensor", "zch/raw"]),
                                     (OF_TABLE + "_current_iter_tensor", np.array([-4]), ["is -4"]), (OF_TABLE + "_current_iter_tensor", np.array([4.0]), ["type F64"]),
                                     (EBC + "_embedding_module.embedding_bags.t.weight", None, ["weight is not there"])):
            with self.subTest(f"{name} {words}"):
                changed = {key: value for key, value in {**good, name: numbers}.items() if value is not None}
                np.savez(self.path("bad.npz"), **changed)
                self.refused(65, ["bad.npz", name.rpartition(".")[2] if numbers is not None else "tensor", *words], self.path("bad.npz"), "--from", "npz", "--output", self.path("bad.h5"))
                self.assertFalse(os.path.exists(self.path("bad.h5")))

    @unittest.skipUnless(HAS["torchrec"], "no torchrec")
    def test_real_module(self):
        """TorchRec's module takes the export with strict=True, and finds the rows of the ids."""
        import torch
        try:
            from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
        except OSError as error:  # FBGEMM's libraries
            self.skipTest(str(error))
        from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
        from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule
        self.good(self.make(zch()), "--to", "torch", self.path("out.pt"))
        ebc = EmbeddingBagCollection(tables=[EmbeddingBagConfig(name="t", embedding_dim=4, num_embeddings=8, feature_names=["f"])])
        module = MCHManagedCollisionModule(zch_size=8, device=torch.device("cpu"), eviction_policy=DistanceLFU_EvictionPolicy(1.0), eviction_interval=1)
        real = ManagedCollisionEmbeddingBagCollection(ebc, ManagedCollisionCollection({"t": module}, ebc.embedding_bag_configs())).eval()
        real.load_state_dict({name.removeprefix(EBC): value for name, value in torch.load(self.path("out.pt")).items()}, strict=True)
        ids = torch.tensor([-3, 7, 100, 150, 999, 5])
        found = real._managed_collision_collection(KeyedJaggedTensor.from_lengths_sync(["f"], ids, torch.ones(6, dtype=torch.int64)))
        self.assertEqual(found.values().tolist(), [2, 0, 6, 5, 4, 7])


class Dynamic(Folder):
    OUT = ("--to", "dynamic")

    def made(self, tensors, *words, model=""):
        text = self.good(self.make(tensors, model), *self.OUT, self.path("new.h5"), "--force", *words)
        return self.tensors(self.path("new.h5")), text

    def rows_of(self, found):
        return {int(i): found["embedding/t/weight"][row].tolist() for row, (i, last, _) in enumerate(found["embedding/t/dynamic/ids"]) if last}

    def test_static(self):
        """Line i has the id of row i. Other rows are left out, and row 0 is zeros. States go with their rows."""
        old = static()
        found, text = self.made(old, "--ids", "t=" + self.list("70\n-5\n18446744073709551615\n"))
        self.assertEqual(self.rows_of(found), {i: old["embedding/t/weight"][row].tolist() for row, i in enumerate((70, -5, -1))})
        self.assertEqual(found["embedding/t/momentum1"].tolist(), [0.0, *old["embedding/t/momentum1"][:3].tolist()])
        self.assertEqual((found["embedding/t/weight"][0].tolist(), found["embedding/t/dynamic/buckets"].tolist()), ([0] * 4, [[4, 9, 0]]))
        self.assertIn("5 of 8 rows have no id", text)

    def test_modulo(self):
        """Each id has a copy of its row, and the tool prints how many ids share one. An id that is listed twice counts once."""
        model = "-tables t\n-tables_id_map modulo\n-table_t_num_embeddings 8\n-table_t_features f\n"
        old = static()
        found, text = self.made(old, "--ids", "t=" + self.list("3\n11\n-1\n3\n19\n"), model=model)
        self.assertEqual(self.rows_of(found), {i: old["embedding/t/weight"][i % 8].tolist() for i in (3, 11, -1, 19)})
        self.assertIn("2 of 4 ids share a row", text)
        with h5py.File(self.path("new.h5")) as handle:
            words = handle.attrs["model"].decode().splitlines()
        self.assertTrue({"-table_t_id_map dynamic", "-table_t_num_embeddings 8", "-table_t_dynamic_cap 8", "-table_t_features f"} <= set(words), words)

    def test_zch(self):
        """Two buckets that are parts of the range of ids become one bucket. Buckets of a hash would stay. The shared row is the first
        bucket's."""
        model = "-tables t\n-table_t_id_map zch\n-table_t_zch_buckets 2\n-table_t_zch_input_hash_size 200\n"
        old = zch()
        found, text = self.made(old, model=model)
        rows = dict(zip((-3, 7, 100, 150, 999), (2, 0, 6, 5, 4)))
        self.assertEqual(self.rows_of(found), {i: old["embedding/t/weight"][row].tolist() for i, row in rows.items()})
        self.assertEqual(found["embedding/t/weight"][0].tolist(), old["embedding/t/weight"][3].tolist())
        self.assertEqual({tuple(row) for row in found["embedding/t/dynamic/ids"].tolist()}, {(0, 0, 0), (-3, 8, 5), (7, 9, 2), (100, 3, 3), (150, 4, 3), (999, 8, 1)})
        self.assertIn("2 buckets become one", text)
        self.assertNotIn("zch", self.tensors(self.path("new.h5")).keys().__repr__())

    def test_refused(self):
        """Options that do not fit end with 64 or 2, lists that do not with 65, and the message has the line."""
        model, out = self.make(static()), self.path("new.h5")
        for content, words in (("1\nx\n", ["ids.txt, line 2", "'x'"]), ("1\n\n2\n", ["line 2"]), ("1\n2\n1\n", ["id 1 is there twice", "lines 1 and 3"]), ("18446744073709551616\n", ["line 1"]),
                               ("\n".join(map(str, range(9))), ["9 ids", "8 rows"])):
            with self.subTest(content[:20]):
                self.refused(65, words, model, *self.OUT, out, "--ids", "t=" + self.list(content))
        np.save(self.path("real.npy"), np.zeros(3))
        np.save(self.path("square.npy"), np.zeros((3, 3), np.int64))
        with open(self.path("cut.npy"), "wb") as file:
            file.write(b"\x93NUMPY")
        with h5py.File(self.path("two.h5"), "w") as handle:
            handle["a"], handle["b"] = np.arange(3), np.arange(3)
        self.list("no Parquet", "ids.parquet")
        for name, words in (("real.npy", ["float64"]), ("square.npy", ["[3, 3]"]), ("cut.npy", ["cut.npy"]), ("two.h5", ["2 datasets", "FILE:NAME"]), ("two.h5:c", ["no dataset c"])) + (
                (("ids.parquet", ["ids.parquet"]),) if HAS["pyarrow"] else ()):
            with self.subTest(name):
                self.refused(65, words, model, *self.OUT, out, "--ids", "t=" + self.path(name))
        self.refused(66, ["none.txt does not exist"], model, *self.OUT, out, "--ids", "t=" + self.path("none.txt"))
        self.refused(64, ["--ids u", "the tables are t"], model, *self.OUT, out, "--ids", "u=rows")
        self.refused(64, ["--ids TABLE=FILE"], model, *self.OUT, out)
        self.refused(64, ["--ids t", "in the checkpoint"], self.make(zch()), *self.OUT, out, "--ids", "t=rows")
        self.refused(2, ["--ids is for --to dynamic"], model, "--to", "npz", out, "--ids", "t=rows")
        self.refused(2, ["twice"], model, *self.OUT, out, "--ids", "t=rows", "--ids", "t=rows")
        self.refused(65, ["id_map zch"], self.make(static(), "-tables t\n-table_t_id_map zch\n"), *self.OUT, out, "--ids", "t=rows")
        self.assertFalse(os.path.exists(out))


class Hash(unittest.TestCase):
    def test_values(self):
        """murmur_hash3_2x64(id, 0, 0), as src/data/id_map.c's test has it: by whole numbers of any size here."""
        mask = (1 << 64) - 1

        def whole(i):
            rotate = lambda x, bits: (x << bits | x >> (64 - bits)) & mask

            def mix(x):
                for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
                    x = (x ^ x >> 33) * factor & mask
                return x ^ x >> 33
            a = rotate(i * 0x87c37b91114253d5 & mask, 31) * 0x4cf5ad432745937f & mask
            a = (rotate(a, 27) * 5 + 0x52dce729) & mask
            b = (a * 5 + 0x38495ab5) & mask
            a, b = a ^ 16, b ^ 16
            a = (a + b) & mask
            b = (b + a) & mask
            a, b = mix(a), mix(b)
            a = (a + b) & mask
            return a ^ (b + a) & mask
        ids = np.concatenate([np.arange(-50, 50), [trsids.NONE, -trsids.NONE - 1, 1 << 40]]).astype(np.int64)
        self.assertEqual(trsids.hashed(ids).tolist(), [whole(i & mask) for i in ids.tolist()])


if __name__ == "__main__":
    sys.exit(unittest.main())
