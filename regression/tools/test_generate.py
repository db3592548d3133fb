# SPDX-License-Identifier: BSD-3-Clause
"""tools/generate_data.py: the same seed gives the same content, the requested distributions, and a
signal that can be learned."""
import os
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

import generate_data

NAMES = ("dense", "labels", "sparse/lengths", "sparse/offsets", "sparse/values")


class Generate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make(self, name, *arguments):
        path = os.path.join(self.folder, name)
        subprocess.run([sys.executable, generate_data.__file__, "--output", path, *arguments], check=True, stdout=subprocess.DEVNULL)
        return path

    def read(self, path, name):
        with h5py.File(path) as h:
            return h[name][()]

    def test_same_seed_same_content(self):
        shape = ["--features", "3", "--pooling", "0:5", "--num-embeddings", "1000", "--weighted", "f1"]
        a = self.make("a.h5", "--num-samples", "20000", *shape)
        b = self.make("b.h5", "--num-samples", "20000", *shape, "--compress", "4")
        c = self.make("c.h5", "--num-samples", "20000", *shape, "--seed", "1")
        for name in NAMES + ("sparse/weights",):
            self.assertEqual(self.read(a, name).tobytes(), self.read(b, name).tobytes(), name)
            self.assertNotEqual(self.read(a, name).tobytes(), self.read(c, name).tobytes(), name)
        weights = self.read(self.make("w.h5", "--num-samples", "20000", *shape, "--weights", "2:3"), "weights")
        self.assertEqual((2 <= weights).all() and (weights < 3).all() and abs(weights.mean() - 2.5) < 0.01, True)
        one = self.read(a, "sparse/weights")[np.repeat(np.tile([0, 1, 2], 20000), self.read(a, "sparse/lengths").reshape(-1)) != 1]
        self.assertTrue((one == 1).all())  # for features without the option

    def test_ids_that_drift(self):
        path = self.make("d.h5", "--num-samples", "40000", "--features", "user,item", "--num-embeddings", "500,200", "--ids", "zipf", "--drift", "0,10k", "--id-type", "int64")
        user, item = self.read(path, "sparse/values").reshape(-1, 2).T
        sample = np.arange(40000)
        rank = 199 - item + sample * 200 // 10000
        self.assertTrue(user.max() < 500 and rank.min() == 0 and rank.max() == 199)  # 200 ids live at a time, and the newest is the most popular
        self.assertEqual(np.argmax(np.bincount(rank)), 0)
        for i in (300, 400, 500):
            born, seen = (i - 199) * 50, sample[item == i]
            self.assertTrue(born <= seen.min() < born + 100 and born + 8000 < seen.max() < born + 10000, f"id {i}, born at {born}, occurs from {seen.min()} to {seen.max()}")
        with h5py.File(path) as h:
            self.assertEqual(h["sparse"].attrs["num_embeddings"].tolist(), [500, 0])
        still = self.make("s.h5", "--num-samples", "40000", "--features", "user,item", "--num-embeddings", "500,200", "--ids", "zipf")
        self.assertEqual(user.tolist(), self.read(still, "sparse/values").reshape(-1, 2)[:, 0].tolist())

    def test_labels_groups_and_times(self):
        path = self.make("l.h5", "--num-samples", "20000", "--features", "2", "--labels", "click,buy,like", "--groups", "50", "--times")
        plain = self.make("p.h5", "--num-samples", "20000", "--features", "2")
        labels, group = self.read(path, "labels"), self.read(path, "group")
        self.assertEqual(labels[:, 0].tobytes(), self.read(plain, "labels").tobytes())
        self.assertTrue((np.diff(labels, axis=1) <= 0).all())
        self.assertTrue(np.all(np.abs(labels.mean(axis=0)[1:] / labels.mean(axis=0)[:-1] - 0.5) < 0.05))
        self.assertEqual((group.dtype, group.min(), group.max()), (np.int64, 0, 49))
        self.assertTrue((self.read(path, "time") == np.arange(20000)).all())
        for name in ("dense", "sparse/lengths", "sparse/values"):
            self.assertEqual(self.read(path, name).tobytes(), self.read(plain, name).tobytes(), name)
        shown = subprocess.run([sys.executable, os.path.join(os.path.dirname(generate_data.__file__), "inspect_file.py"), "--check", path],
                               check=True, capture_output=True, text=True).stdout
        self.assertIn("mean click", shown)
        self.assertIn("50 groups of", shown)
        self.assertIn("times from 0 to 19999", shown)

    def test_needs_no_tqdm_where_nobody_watches(self):
        without = "import sys; sys.modules['tqdm'] = None; import generate_data; generate_data.main()"
        subprocess.run([sys.executable, "-c", without, "--output", os.path.join(self.folder, "n.h5"), "--num-samples", "10"], check=True, capture_output=True)

    def test_evaluation_continues_the_stream(self):
        shape = ["--features", "2", "--pooling", "geometric:2"]
        whole = self.make("whole.h5", "--num-samples", "30000", *shape)
        other = os.path.join(self.folder, "eval.h5")
        first = self.make("first.h5", "--num-samples", "20000", "--output-eval", other, "--num-eval", "10000", *shape)
        for name in ("dense", "labels", "sparse/lengths", "sparse/values"):
            self.assertEqual(self.read(whole, name).tobytes(), self.read(first, name).tobytes() + self.read(other, name).tobytes(), name)

    def test_distributions(self):
        path = self.make("d.h5", "--num-samples", "50000", "--features", "a,b,c", "--num-embeddings", "10,100k,1k", "--pooling", "2,1:9,geometric:3",
                         "--ids", "zipf", "--alpha", "1.2", "--id-type", "int64")
        lengths, values = self.read(path, "sparse/lengths"), self.read(path, "sparse/values")
        self.assertEqual(values.dtype, np.int64)
        self.assertTrue((lengths[:, 0] == 2).all())
        self.assertEqual((lengths[:, 1].min(), lengths[:, 1].max()), (1, 9))
        # 5 standard errors around the means, from the distributions' variances: (81-1)/12 and
        # m(m+1)
        self.assertLess(abs(lengths[:, 1].mean() - 5), 5 * np.sqrt(80 / 12 / 50000))
        self.assertLess(abs(lengths[:, 2].mean() - 3), 5 * np.sqrt(12 / 50000))
        feature = np.repeat(np.tile([0, 1, 2], 50000), lengths.reshape(-1))
        ids = values[feature == 1]
        self.assertTrue(0 <= ids.min() and ids.max() < 100000)
        counts = np.sort(np.bincount(ids))[::-1] / len(ids)
        # the share of the bounded power law's first rank: integral over [1, 2) divided by the
        # integral over [1, R+1)
        share = (1 - 2**-0.2) / (1 - 100001**-0.2)
        self.assertLess(abs(counts[0] - share), 5 * np.sqrt(share / len(ids)))

    def test_signal_can_be_learnt(self):
        path = self.make("s.h5", "--num-samples", "20000", "--features", "2", "--num-embeddings", "20", "--num-dense", "0", "--strength", "3")
        ids, labels = self.read(path, "sparse/values").reshape(-1, 2), self.read(path, "labels")
        with h5py.File(path) as h:
            best = h.attrs["planted_loss"]
            self.assertNotIn("dense", h)
        # the label's rate in each of the 400 cells is the best possible model
        cell = ids[:, 0] * 20 + ids[:, 1]
        train, test = slice(0, 15000), slice(15000, None)
        rate = (np.bincount(cell[train], labels[train], 400) + 0.5) / (np.bincount(cell[train], minlength=400) + 1)
        p = rate[cell[test]]
        loss = -np.mean(labels[test] * np.log(p) + (1 - labels[test]) * np.log(1 - p))
        self.assertLess(loss, 0.9 * np.log(2))
        self.assertLess(abs(loss - best), 0.05)

    def test_bad_arguments(self):
        for arguments in (["--features", "a,a"], ["--num-embeddings", "1,2,3"], ["--pooling", "5:1"], ["--num-embeddings", "9G"], ["--weighted", "zz"], ["--features", "0"]):
            command = [sys.executable, generate_data.__file__, "--output", os.path.join(self.folder, "x.h5"), "--num-samples", "10", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertNotIn("Traceback", done.stderr, arguments)
            self.assertFalse(os.listdir(self.folder))


if __name__ == "__main__":
    unittest.main()
