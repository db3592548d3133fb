# SPDX-License-Identifier: BSD-3-Clause
"""Simulated replay of exchanges (tools/trsreplay.py), for schedules made by hand."""
import json
import os
import tempfile
import unittest

import trsreplay


def ms(phases, messages, size):
    return 1e-3 * size  # a byte takes a millisecond


class Replay(unittest.TestCase):
    def test_hidden(self):
        """An exchange of 3 ms has 4 ms between its start and its need, so no step waits for it."""
        self.assertAlmostEqual(trsreplay.replay(10.0, [(0.1, 0.5, 1, 1, 3)], ms), 10.0)

    def test_exposed(self):
        """It has 4 ms and takes 7, so every step waits for 3 ms. Two overlapping exchanges take
        turns, from 1 to 13, and the second is needed at 5."""
        self.assertAlmostEqual(trsreplay.replay(10.0, [(0.1, 0.5, 1, 1, 7)], ms), 13.0)
        self.assertAlmostEqual(trsreplay.replay(10.0, [(0.1, 0.9, 1, 1, 6), (0.2, 0.5, 1, 1, 6)], ms), 18.0)

    def test_into_the_next_step(self):
        """It starts at 8 ms and is needed at 12, after 5 ms of it, so each step waits for 1 ms."""
        self.assertAlmostEqual(trsreplay.replay(10.0, [(0.8, 1.2, 1, 1, 5)], ms), 11.0)

    def test_costs(self):
        """16 ranks in hosts of 4: 12 ranks elsewhere, 3 other hosts. A relay carries blocks of at
        most 2048 bytes, or 32 times as many bytes for equal blocks."""
        for kind, block, way, wanted in (("all-to-all", 100, "messages", (12, 1200)), ("all-to-all", 100, "relay", (1, 1200)), ("sum", 4000, "relay", (13, 48000)),
                                         ("gather", 4000, "relay", (1, 12000)), ("gather", 70000, "relay", (13, 840000)), ("sum", 4000, "hierarchical", (3, 12000)),
                                         ("gather", 4000, "hierarchical", (3, 12000)), ("all-to-all", 100, "hierarchical", (1, 1200))):
            self.assertEqual(trsreplay.cost(kind, block, 16, 4, way, 2048), wanted, (kind, block, way))

    SCHEDULE = [{"name": name, "start": start, "need": need} for name, start, need in
                (("ids", 0.1, 0.2), ("rows", 0.2, 0.4), ("rows", 0.6, 0.9), ("dense gradients", 0.7, 1.0))]
    # bytes for a rank: ids are spread over the ranks, partial sums and gradients are not
    BLOCKS = [("all-to-all", lambda w: 16000 / w), ("sum", lambda w: 3000), ("gather", lambda w: 5000), ("allreduce", lambda w: 64000 / w)]

    def test_copies(self):
        """64 ranks in hosts of 4, and 4 copies. Ids and rows are exchanged by the 16 ranks of a copy, of which 12 are on 3 other hosts. Dense
        gradients are exchanged by all ranks, of which 60 are on 15 other hosts."""
        of_tables = [(0.1, 0.1, 1, 12, 12 * 24), (0.1, 0.2, 1, 12, 12 * 1000), (0.2, 0.4, 1, 12, 12 * 3000), (0.6, 0.9, 1, 12, 12 * 5000)]
        of_dense = [(0.7, 1.0, 2, 60 + 60, 2 * 60 * 1000)]
        self.assertEqual(trsreplay.costs(self.SCHEDULE, self.BLOCKS, 64, 4, "messages", 0, copies=4), of_tables + of_dense)
        self.assertEqual(trsreplay.costs(self.SCHEDULE, self.BLOCKS, 64, 4, "messages", 0, copies=4, dense=False), of_tables)
        self.assertEqual(trsreplay.costs(self.SCHEDULE, self.BLOCKS, 64, 4, "messages", 0, copies=4, tables=False), of_dense)
        # Without copies, the exchanges of tables are those of 64 ranks. With a host's ranks to a copy, there are none between hosts.
        self.assertEqual(trsreplay.costs(self.SCHEDULE, self.BLOCKS, 64, 4, "messages", 0)[2], (0.2, 0.4, 1, 60, 60 * 3000))
        self.assertEqual([row[3:] for row in trsreplay.costs(self.SCHEDULE, self.BLOCKS, 64, 4, "messages", 0, copies=16, dense=False)], [(0, 0)] * 4)
        # Hierarchical sums: a block for each of the 3 hosts of a copy. The relay carries small blocks in one message.
        self.assertEqual([row[3:] for row in trsreplay.costs(self.SCHEDULE, self.BLOCKS, 64, 4, "hierarchical", 2048, copies=4)],
                         [(1, 12 * 24), (1, 12 * 1000), (3, 3 * 3000), (3, 3 * 5000), (4 + 4, 60 * 1000 + 15 * 1000)])

    def test_average(self):
        """Tensors of 9 MiB and of 1 byte: three parts and one part, each with a sum and a gather, and in each a message to the 3 other copies."""
        self.assertEqual(trsreplay.average([9 << 20, 1], 4), (8, 24, 2 * 3 / 4 * ((9 << 20) + 1)))
        self.assertEqual(trsreplay.average([9 << 20], 1), (0, 0, 0))

    def test_trace(self):
        """Own time excludes waits. Each of two steps lasts 30 ms, with 10 ms own time. The exchange
        starts after 2 ms and is needed after 6 ms. The step waits until the exchange ends."""
        events = []
        for k in range(2):
            def span(name, begin, length, tid=0, cat="stage", **more):
                events.append({"ph": "X", "pid": 0, "tid": tid, "cat": cat, "name": name, "ts": 30 * k + begin, "dur": length, "args": {"step": k, **more}})
            span("step", 0, 30)
            span("lookup", 0, 6)
            span("waiting", 6, 20)
            span("optimizer", 26, 4)
            span("rows", 2, 24, tid=6, cat="exchange", bytes=64)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            with open(path, "w", encoding="ascii") as file:
                json.dump({"traceEvents": events}, file)
            found, = trsreplay.exchanges_of(path)
        self.assertEqual((found["name"], found["bytes"]), ("rows", 64))
        self.assertAlmostEqual(found["start"], 0.2)
        self.assertAlmostEqual(found["need"], 0.6)

    def test_blocks(self):
        """From 2 to 4 ranks: lengths grow with the ranks, ids do not, partial sums do, gradients do
        not, and an all-reduce is cut into chunks."""
        def of(*sizes):
            return [{"name": name, "bytes": size} for name, size in zip(("rows", "ids", "ids", "rows", "dense gradients"), sizes)]
        blocks = trsreplay.blocks_of(of(200, 20, 1000, 100, 800), of(400, 40, 1000, 100, 800), (2, 4))
        self.assertEqual([(kind, block(8)) for kind, block in blocks],
                         [("sum", 100), ("all-to-all", 10), ("all-to-all", 125), ("gather", 100), ("allreduce", 100)])
        with self.assertRaises(ValueError):
            trsreplay.blocks_of(of(1, 1, 1, 1, 1)[:3], of(1, 1, 1, 1, 1)[:3], (2, 4))


if __name__ == "__main__":
    unittest.main()
