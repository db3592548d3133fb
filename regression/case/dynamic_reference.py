# SPDX-License-Identifier: BSD-3-Clause
"""A bucket of a table that grows, with Python's dictionaries: src/RULES.md, rule A33. Counts of candidates are exact here."""


class Bucket:
    """Row 0 is for ids without a row. find and train return the rows of a batch's ids."""

    def __init__(self, rows, policy="lru", ttl=0, admit_after=1):
        self.rows, self.policy, self.ttl, self.admit_after = rows, policy, ttl, admit_after
        self.row, self.last, self.count, self.candidates = {}, {}, {}, {}
        self.time, self.used, self.free = 0, 1, set()
        self.given = self.taken = self.refused = 0
        self.ages = []  # of ids that lost their rows, in batches

    def is_old(self, last):
        return bool(self.ttl) and self.time - last > self.ttl

    def find(self, ids):
        return [self.row[i] if i in self.row and not self.is_old(self.last[i]) else 0 for i in ids]

    def release(self, i):
        self.ages.append(self.time - self.last[i])
        self.free.add(self.row.pop(i))
        del self.last[i], self.count[i]
        self.taken += 1

    def evict(self):
        """Take back a 64th of the rows, and one more, from the ids that the policy drops first. Ids that the batch has already had keep their
        rows."""
        may_go = [i for i in self.row if self.last[i] != self.time]
        old = [i for i in may_go if self.is_old(self.last[i])]
        key = {"lru": lambda i: self.last[i], "lfu": lambda i: (self.count[i], self.last[i]), "ttl": lambda i: 0}[self.policy]
        order = sorted(old, key=lambda i: self.row[i])
        if self.policy != "ttl":
            order += sorted(set(may_go) - set(old), key=lambda i: (key(i), self.row[i]))
        for i in order[:(self.used - 1) // 64 + 1]:
            self.release(i)

    def take_row(self):
        if not self.free and self.used == self.rows:
            self.evict()
        if self.free:
            row = min(self.free)
            self.free.remove(row)
            return row
        if self.used < self.rows:
            self.used += 1
            return self.used - 1
        return 0

    def admit(self, i):
        """Count an occurrence of an id without a row. Returns True if the id gets a row now."""
        count, last = self.candidates.get(i, (0, self.time))
        count = 1 if self.is_old(last) else count + 1
        self.candidates[i] = (count, self.time)
        if count < self.admit_after:
            return False
        del self.candidates[i]
        return True

    def train(self, ids):
        self.time += 1
        if self.ttl and self.time % max(self.ttl // 2, 1) == 0:
            for i in [i for i in self.row if self.is_old(self.last[i])]:
                self.release(i)
            self.candidates = {i: c for i, c in self.candidates.items() if not self.is_old(c[1])}
        known = [i in self.row and not self.is_old(self.last[i]) for i in ids]
        for i, is_known in zip(ids, known):
            if is_known:
                self.last[i], self.count[i] = self.time, self.count[i] + (self.policy == "lfu")
        for i, is_known in zip(ids, known):
            if is_known:
                continue
            if i in self.row and self.last[i] == self.time:
                self.count[i] += self.policy == "lfu"
                continue
            if i in self.row:
                self.release(i)
            if not self.admit(i):
                continue
            row = self.take_row()
            if row == 0:
                self.refused += 1
                continue
            self.row[i], self.last[i], self.count[i] = row, self.time, 1
            self.given += 1
        return [self.row.get(i, 0) for i in ids]
