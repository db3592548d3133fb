# SPDX-License-Identifier: BSD-3-Clause
"""Simulates the row cache of the compute kernel fused_uvm_caching, on a sample of its sets (rule: src/compute/cache.h).

A row can only be in the 32 lines of its set, and sets are independent. So a sample of the sets gives the hit rate of all
sets, and the simulation needs memory only for the sample's lines. The hash that spreads rows over sets selects the sample.
"""
import numpy as np

WAYS = 32
NEVER = np.iinfo(np.int64).max  # cost of a line that must not be replaced


def hash_of(ids):
    """murmur3's 64-bit finaliser. Its remainder by the number of sets is a row's set."""
    h = np.asarray(ids).astype(np.uint64)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


def sets_for(rows, load_factor):
    return max(1, -(-int(rows * load_factor) // WAYS))


class Cache:
    """One cache of a table's rows.

    sampled    share of the sets that is simulated, at least one set
    algorithm  lru or lfu
    ahead      whether it is filled one batch ahead (-pipeline prefetch_sparse_dist): lru then keeps the lines of the batch in flight
    """

    def __init__(self, rows, load_factor, sampled=1.0, algorithm="lru", ahead=False):
        self.n_sets = sets_for(rows, load_factor)
        self.n_sampled = min(self.n_sets, max(1, round(self.n_sets * sampled)))
        self.lfu, self.ahead = algorithm == "lfu", ahead
        self.tag = np.zeros((self.n_sampled, WAYS), np.int64)  # id + 1 of the row in the line; 0: no row
        self.stamp = None if self.lfu else np.zeros((self.n_sampled, WAYS), np.int64)
        self.time = self.distinct = self.missed = 0

    @property
    def hit_rate(self):
        """The share of a batch's distinct ids that were in the cache before the batch, as /cache of a run's results counts it."""
        return 1 - self.missed / self.distinct if self.distinct else 0.0

    def batch(self, ids, hashes, count_of=None):
        """Fills the cache for a batch. ids: the distinct ids, ascending. count_of(ids): the number of lookups of each id until now (lfu)."""
        place = (hashes % np.uint64(self.n_sets)).astype(np.int64)
        if self.n_sampled < self.n_sets:
            chosen = place < self.n_sampled
            ids, place = ids[chosen], place[chosen]
        self.time += 1
        found = self.tag[place] == (ids + 1)[:, None]
        hit = found.any(axis=1)
        self.distinct += len(ids)
        self.missed += len(ids) - int(hit.sum())
        if not self.lfu:
            self.stamp[place[hit], found[hit].argmax(axis=1)] = self.time
        if not hit.all():
            self._insert(ids[~hit], place[~hit], count_of)

    def _insert(self, ids, place, count_of):
        """Gives lines to the missing rows, set by set, in the order of the rule."""
        count = count_of(ids) if self.lfu else np.zeros(len(ids), np.int64)
        order = np.lexsort((ids, -count, place))
        ids, place, count = ids[order], place[order], count[order]
        first = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
        sets, n = place[first], np.diff(np.append(first, len(place)))
        nth = np.arange(len(place)) - np.repeat(first, n)
        if self.lfu:
            tag = self.tag[sets]
            cost = np.where(tag > 0, count_of(np.maximum(tag - 1, 0).ravel()).reshape(tag.shape), -1)
        else:
            cost = self.stamp[sets]
            cost[cost >= (max(1, self.time - 1) if self.ahead else self.time)] = NEVER
        line = np.argsort(cost, axis=1, kind="stable")
        cost = np.take_along_axis(cost, line, axis=1)
        group, way = np.repeat(np.arange(len(sets)), n), np.minimum(nth, WAYS - 1)
        taken = (nth < WAYS) & (cost[group, way] <= count if self.lfu else cost[group, way] != NEVER)
        to = place[taken], line[group, way][taken]
        self.tag[to] = ids[taken] + 1
        if not self.lfu:
            self.stamp[to] = self.time
