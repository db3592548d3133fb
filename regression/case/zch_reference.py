# SPDX-License-Identifier: BSD-3-Clause
"""A bucket of a zero-collision table in NumPy, only with sorts: src/RULES.md, rule A32.

Source: TorchRec MCHManagedCollisionModule, LFU_EvictionPolicy, LRU_EvictionPolicy and
DistanceLFU_EvictionPolicy.
"""
import numpy as np

NONE = np.iinfo(np.int64).max  # the raw id of an entry without an id


class Bucket:
    def __init__(self, rows, policy, interval, exponent=1.0, filter_name="none", multiplier=10.0):
        self.rows, self.policy, self.interval = rows, policy, interval
        self.exponent, self.filter, self.multiplier = np.float32(exponent), filter_name, multiplier
        self.entry = np.zeros(rows, [("raw", np.int64), ("slot", np.int64), ("count", np.int64), ("last", np.int64)])
        self.entry["raw"], self.entry["slot"] = NONE, np.arange(rows)
        self.iteration = self.evicted = 0
        self.ages = []  # of ids that lost their rows, in batches
        self.capacity = self.seen = None

    def find(self, ids):
        """(places, whether an id is present), among all entries except the last."""
        at = np.searchsorted(self.entry["raw"][:-1], ids)
        return at, self.entry["raw"][at] == ids

    def score(self, entries):
        age = (self.iteration - entries["last"] + 1).astype(np.float32) ** self.exponent
        return {"lfu": lambda: entries["count"], "lru": lambda: -age, "distance_lfu": lambda: entries["count"].astype(np.float32) / age}[self.policy]()

    def passing(self, counts):
        if self.filter == "none" or not len(counts):
            return np.ones(len(counts), bool)
        limit = counts.astype(np.float32).mean(dtype=np.float32) if self.filter == "average" else np.float32(1 / len(counts) * self.multiplier) * np.float32(counts.sum())
        return counts.astype(np.float32) > limit

    def evict(self):
        """Give rows to ids of the history. Returns the slots whose id changed."""
        ids, where, counts = np.unique(self.seen["raw"], return_inverse=True, return_counts=True)
        came = np.zeros(len(ids), self.entry.dtype)
        came["raw"], came["count"] = ids, counts
        np.maximum.at(came["last"], where, self.seen["last"])
        came = came[self.passing(counts)]
        came = came[np.argsort(-came["count"], kind="stable")]
        at, known = self.find(came["raw"])
        self.entry["count"][at[known]] += came["count"][known]
        self.entry["last"][at[known]] = came["last"][known]
        self.entry[["count", "last"]][-1:] = (NONE, self.iteration)
        everything = np.concatenate([self.entry, came[~known]])
        order = np.argsort(-self.score(everything), kind="stable")
        enters = order[:self.rows][order[:self.rows] >= self.rows]
        leaves = order[self.rows:][order[self.rows:] < self.rows]
        lost = everything[leaves][everything["raw"][leaves] != NONE]
        self.ages += (self.iteration - lost["last"]).tolist()
        for field in ("raw", "count", "last"):
            self.entry[field][leaves] = everything[field][enters]
        given = self.entry["slot"][leaves]
        self.entry = self.entry[np.argsort(self.entry["raw"], kind="stable")]
        return given

    def train(self, ids):
        """(slots of the ids, slots whose id changed)."""
        given = np.zeros(0, np.int64)
        self.iteration += 1
        if self.capacity is None:
            self.capacity = int(len(ids) * self.interval * 1.25)
            self.seen = np.zeros(0, self.entry.dtype)
        new = np.zeros(min(len(ids), self.capacity - len(self.seen)), self.entry.dtype)
        new["raw"], new["last"] = ids[:len(new)], self.iteration
        self.seen = np.concatenate([self.seen, new])
        if self.iteration - self.evicted == self.interval:
            given, self.seen, self.evicted = self.evict(), self.seen[:0], self.iteration
        return self.slots(ids), given

    def slots(self, ids):
        at, known = self.find(ids)
        return np.where(known, self.entry["slot"][at], self.rows - 1)
