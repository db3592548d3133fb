# SPDX-License-Identifier: BSD-3-Clause
"""dataset_statistics.py: counts and curves against brute force, the option file, and wrong input.
The simulated cache is compared with the rule of src/compute/cache.h, which is written here a second
time, line by line."""
import os
import re
import subprocess
import sys

import h5py
import numpy as np

import scratch
import trscache
import trsdata
import trsoptions

TOOL = os.path.join(os.path.dirname(trsdata.__file__), "dataset_statistics.py")


class Plain:
    """compute/cache.h literally: one set, one line, one miss at a time."""

    def __init__(self, rows, load_factor, algorithm, ahead):
        self.n_sets = max(1, -(-int(rows * load_factor) // 32))
        self.lines = [[None] * 32 for _ in range(self.n_sets)]
        self.stamps = [[0] * 32 for _ in range(self.n_sets)]
        self.lfu, self.ahead, self.count, self.time, self.missed = algorithm == "lfu", ahead, {}, 0, 0

    @staticmethod
    def finaliser(x):
        x ^= x >> 33
        x = x * 0xFF51AFD7ED558CCD % 2**64
        x ^= x >> 33
        x = x * 0xC4CEB9FE1A85EC53 % 2**64
        return x ^ x >> 33

    def batch(self, ids):
        self.time += 1
        misses = {}
        for x in ids:
            self.count[x] = self.count.get(x, 0) + 1
        for x in sorted(set(ids)):
            s = self.finaliser(x) % self.n_sets
            if x in self.lines[s]:
                self.stamps[s][self.lines[s].index(x)] = self.time
            else:
                misses.setdefault(s, []).append(x)
        self.missed += sum(len(m) for m in misses.values())
        for s, missed in misses.items():
            free = [w for w in range(32) if self.lfu or self.stamps[s][w] < self.time and not (self.ahead and self.stamps[s][w] == self.time - 1 > 0)]
            cost = {w: (-1 if self.lines[s][w] is None else self.count[self.lines[s][w]]) if self.lfu else self.stamps[s][w] for w in free}
            free.sort(key=lambda w: cost[w])
            if self.lfu:
                missed.sort(key=lambda x: -self.count[x])
            for x, w in zip(missed, free):
                if self.lfu and cost[w] > self.count[x]:
                    break
                self.lines[s][w], self.stamps[s][w] = x, self.time


class Statistics(scratch.Scratch):
    def dataset(self, name, samples=600, rows=(400, 90, 5000), seed=1, features=("a", "b", "c"), first=None):
        """b has no id in half of the samples, and c is skewed. first: the first id of a."""
        rng = np.random.default_rng(seed)
        lengths = np.stack([rng.integers(1, 5, samples), rng.integers(0, 2, samples), np.full(samples, 3)], axis=1).astype(np.int32)
        values = [rng.integers(0, rows[0], lengths[:, 0].sum()), rng.integers(0, rows[1], lengths[:, 1].sum()),
                  (rows[2] * rng.random(lengths[:, 2].sum())**4).astype(np.int64)]
        if first is not None:
            values[0][0] = first
        with trsdata.DatasetWriter(self.path(name), features, rows, 0) as out:
            out.append(None, np.zeros(samples), lengths, trsdata.interleave(lengths, values))
        return self.path(name), values, lengths

    def tool(self, *arguments, status=0):
        result = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def options(self, path):
        with open(path, encoding="utf-8") as file:
            words = [line.split(" ", 1) for line in file if line.startswith("-table_")]
        return {word: [float(x) for x in values.split(",")] for word, values in words}

    def test_cache_follows_the_rule(self):
        rng = np.random.default_rng(3)
        for algorithm, ahead in (("lru", False), ("lru", True), ("lfu", False)):
            plain, cache, counts = Plain(1500, 0.1, algorithm, ahead), trscache.Cache(1500, 0.1, 1.0, algorithm, ahead), np.zeros(1500, np.int64)
            for _ in range(60):
                ids = (1500 * rng.random(rng.integers(1, 400))**3).astype(np.int64)
                plain.batch(ids.tolist())
                np.add.at(counts, ids, 1)
                distinct = np.unique(ids)
                cache.batch(distinct, trscache.hash_of(distinct), lambda x: counts[x])
                self.assertEqual(cache.missed, plain.missed, f"{algorithm}, ahead {ahead}")
                self.assertEqual([[-1 if x is None else x for x in line] for line in plain.lines], (cache.tag - 1).tolist())

    def test_some_sets_stand_for_all(self):
        rng = np.random.default_rng(4)
        whole, part = trscache.Cache(200000, 0.1), trscache.Cache(200000, 0.1, 0.1)
        for _ in range(60):
            ids = np.unique((200000 * rng.random(8000)**4).astype(np.int64))
            for cache in (whole, part):
                cache.batch(ids, trscache.hash_of(ids))
        self.assertLess(part.distinct, 0.15 * whole.distinct)
        self.assertGreater(whole.hit_rate, 0.25)
        self.assertAlmostEqual(part.hit_rate, whole.hit_rate, delta=0.02)

    def test_figures_by_brute_force(self):
        """Two files with batches across their border, and their sum in one table."""
        one, values, lengths = self.dataset("one.h5", 610)
        two, more, others = self.dataset("two.h5", 333, seed=2)
        printed = self.tool(one, two, "--batch-size", "25", "--ranks", "2", "--table", "t=a,c", "--load-factors", "0.25", "-o", self.path("s.opts")).stdout
        found = self.options(self.path("s.opts"))
        n = 610 + 333
        means = [(lengths[:, f].sum() + others[:, f].sum()) / n for f in range(3)]
        np.testing.assert_allclose(found["-table_t_pooling_factors"], [means[0], means[2]], rtol=1e-5)
        np.testing.assert_allclose(found["-table_b_pooling_factors"], [means[1]], rtol=1e-5)
        b = np.concatenate([values[1], more[1]])
        self.assertRegex(printed, rf"(?m)^b +b +90 +{means[1]:.2f} +1 +{len(np.unique(b))} ")
        top = np.sort(np.bincount(b))[::-1]
        self.assertIn(f"{top[:round(0.1 * len(np.unique(b)))].sum() / len(b):.1%}", re.search(r"(?m)^b .*", printed)[0])
        sample = np.concatenate([np.repeat(np.arange(610), lengths[:, 1]), 610 + np.repeat(np.arange(333), others[:, 1])])
        batches = [b[sample // 50 == i] for i in range(-(-n // 50))]
        self.assertAlmostEqual(found["-table_b_cache_stats_expected_lookups"][0], np.mean([len(np.unique(x)) for x in batches]), places=3)
        plain = Plain(90, 0.25, "lru", False)
        for batch in batches:
            plain.batch(batch.tolist())
        # Parts of a third of the rows. Below 32 rows, a cache has 32 lines.
        histogram = found["-table_b_cache_stats_mrc_hist"]
        self.assertEqual(sum(histogram), 1000000)
        self.assertTrue(all(part >= 0 for part in histogram))
        hits = 1 - plain.missed / sum(len(np.unique(x)) for x in batches)
        self.assertAlmostEqual(histogram[0] / 1e6, hits, delta=0.01)
        self.assertTrue(0 < found["-table_b_cache_stats_cacheability"][0] < 1)

    def test_cache_of_one_set(self):
        """A cache has at least 32 lines. Hence a cache with any load factor holds a table of 7
        rows, and only first uses miss."""
        path, values, lengths = self.dataset("few.h5", rows=(7, 1, 32))
        printed = self.tool(path, "--batch-size", "50").stdout
        for f, name in enumerate("abc"):
            ids, samples = values[f], np.repeat(np.arange(600), lengths[:, f])
            asked = sum(len(np.unique(ids[samples // 50 == i])) for i in range(12))
            hits = f"{1 - len(np.unique(ids)) / asked:.1%}"
            self.assertRegex(printed, rf"(?m)^{name} .* {hits} +{hits} +{hits} +{hits} +{hits}$")

    def test_shared_counters(self):
        """With memory for only a few counters, the number of distinct ids is an estimate, and the
        frequencies are approximately right."""
        names, rows = ("a", "b", "c"), (3000000, 90, 2000000)
        path, values, _ = self.dataset("wide.h5", 20000, rows, features=names)
        printed = self.tool(path, "--memory", "1", "--steps", "20").stdout
        self.assertIn("~", printed)
        line = next(line for line in printed.splitlines() if line.startswith("a ")).split()
        seen = int(20 * 512 / 20000 * len(values[0]))
        self.assertAlmostEqual(int(line[5].strip("~").replace(",", "")) / seen, 1, delta=0.05)

    def test_ids_without_bounds(self):
        """If a feature has no bound, any 64 bits are an id. Ids of uint64 are counted like those of
        int64."""
        for kind in (np.int64, np.uint64):
            with trsdata.DatasetWriter(self.path("u.h5"), ["a"], [0], 0, id_dtype=kind) as out:
                ids = np.array([2**63 - 1] + [2**60 + i for i in range(99)] * 2).astype(kind)
                out.append(None, np.zeros(len(ids)), np.ones((len(ids), 1), np.int32), ids)
            self.assertRegex(self.tool(self.path("u.h5"), "--batch-size", "8").stdout, r"(?m)^a .* ~?100 ")

    def test_without_labels(self):
        """A dataset for predictions has the figures of a dataset with labels."""
        path, _, _ = self.dataset("l.h5")
        labelled = self.tool(path).stdout
        with h5py.File(path, "a") as h:
            del h["labels"]
        self.assertEqual(self.tool(path).stdout, labelled)

    def test_names(self):
        """Names with blanks, commas and quotes are written as in option files."""
        names = ("a b", 'c, "d"', "#,e")
        path, _, lengths = self.dataset("n.h5", features=names)
        self.tool(path, "-o", self.path("n.opts"))
        with open(self.path("n.opts"), encoding="utf-8") as file:
            found = {name: value for name, value, *_ in trsoptions.options(file.read())}
        for name, mean in zip(names, lengths.mean(axis=0)):
            self.assertAlmostEqual(float(found[f"-table_{name}_pooling_factors"]), mean, places=4)
            self.assertIn(f"-table_{name}_cache_stats_mrc_hist", found)

    def test_wrong_input(self):
        good, _, _ = self.dataset("good.h5")
        bad, _, _ = self.dataset("bad.h5", first=400)
        self.assertRegex(self.tool(bad, status=65).stderr, r"bad\.h5: /sparse/values has the id 400 for feature a of sample 0, expected -1 to 399")
        self.assertRegex(self.tool(good, self.dataset("other.h5", features=("a", "x", "c"))[0], status=65).stderr, r"features a,x,c, .* has a,b,c")
        with h5py.File(good, "a") as h:
            h["sparse/lengths"][3, 0] += 1
        self.assertRegex(self.tool(good, status=65).stderr, "disagree in samples 0 to")
        with h5py.File(self.path("none.h5"), "w") as h:
            h.attrs["format"] = "trshard-run"
        self.assertIn("is not a dataset", self.tool(self.path("none.h5"), status=65).stderr)
        with open(self.path("text.h5"), "w", encoding="ascii") as out:
            out.write("no HDF5")
        self.assertIn("is not an HDF5 file", self.tool(self.path("text.h5"), status=65).stderr)
        for part, put, message in (("sparse/values", lambda values: values[()].astype(np.float32), "/sparse/values is not a dataset of integers"),
                                   ("sparse/lengths", lambda lengths: np.int32(1), "/sparse/lengths is not a dataset of integers")):
            path = self.dataset("damaged.h5")[0]
            with h5py.File(path, "a") as h:
                data = put(h[part])
                del h[part]
                h[part] = data
            self.assertRegex(self.tool(path, status=65).stderr, r"^dataset_statistics\.py: .*damaged\.h5.*" + message)
        path = self.dataset("lost.h5")[0]
        with h5py.File(path, "a") as h:
            values = h["sparse/values"][()]
            del h["sparse/values"]
            place = h.create_dataset("sparse/values", data=values, chunks=(len(values),), fletcher32=True).id.get_chunk_info(0).byte_offset
        with open(path, "r+b") as file:
            file.seek(place)
            file.write(b"lost")
        self.assertRegex(self.tool(path, status=65).stderr, r"lost\.h5 cannot be read: ")
        self.assertIn("does not exist", self.tool(self.path("gone.h5"), status=66).stderr)
        path = self.dataset("again.h5")[0]
        for words, message in ((["--table", "t=a,a"], "named twice"), (["--table", "t=x"], "not in"), (["--table", "b=a"], 'two tables have the name "b"'),
                               (["--batch-size", "0"], "not at least 1"), (["--load-factors", "1.5"], "not above 0 and below 1"), (["--steps"], "expected one")):
            self.assertIn(message, self.tool(path, *words, status=64).stderr)
        self.assertIn("--output", self.tool(path, "-o", self.path("no/folder.opts"), status=73).stderr)


if __name__ == "__main__":
    scratch.unittest.main()
