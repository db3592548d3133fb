#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw the pictures of input/CONCEPTS.md as SVG.

    python3 tools/site/draw_pictures.py [FOLDER]     default: input/pictures
"""
import pathlib
import sys
from xml.sax.saxutils import escape

RANKS = ("#56b4e9", "#f0c419", "#7ec8a3", "#e69a7a")  # a colour for each of four ranks
INK, PALE, MARK = "#222222", "#eeeeee", "#0072b2"
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" font-family="Helvetica, Arial, sans-serif" font-size="13">
<!-- SPDX-License-Identifier: BSD-3-Clause; made by tools/site/draw_pictures.py -->
<title>{title}</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{ink}"/></marker></defs>
<rect width="{w}" height="{h}" rx="6" fill="white"/>
"""


class Picture:
    def __init__(self, title, width, height):
        self.parts = [HEAD.format(w=width, h=height, title=escape(title), ink=INK)]

    def text(self, x, y, words, anchor="middle", size=13, bold=False, fill=INK):
        weight = ' font-weight="bold"' if bold else ""
        for number, line in enumerate(words.split("\n")):
            self.parts.append(f'<text x="{x}" y="{y + number * (size + 3)}" text-anchor="{anchor}" font-size="{size}"{weight} fill="{fill}">{escape(line)}</text>\n')

    def box(self, x, y, w, h, words="", fill=PALE, size=13, line=INK):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{fill}" stroke="{line}"/>\n')
        if words:
            lines = words.count("\n") + 1
            self.text(x + w / 2, y + h / 2 + size * 0.35 - (lines - 1) * (size + 3) / 2, words, size=size)

    def arrow(self, x1, y1, x2, y2, dashed=False):
        style = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}"{style} marker-end="url(#tip)"/>\n')

    def cells(self, x, y, values, width=34, height=20, fill=PALE):
        for number, value in enumerate(values):
            self.box(x + number * width, y, width, height, value, fill, size=11)

    def svg(self):
        return "".join(self.parts) + "</svg>\n"


def bags():
    """A sample's bag, the rows of its ids, and their sum."""
    p = Picture("A bag of ids selects rows of a table, and pooling adds them up", 760, 230)
    p.text(90, 24, "one sample", bold=True)
    p.box(20, 36, 140, 26, "dense: 3.4, 2.3")
    p.box(20, 62, 140, 26, "user: [2]")
    p.box(20, 88, 140, 26, "words: [1, 4, 5]", "#cfe8f7")
    p.text(90, 140, "two sparse features:\na bag of 1 id and\na bag of 3 ids", size=12)
    p.text(345, 24, 'table "words"', bold=True)
    rows = (("0.1", "0.0", "0.2", "0.1"), ("0.5", "0.1", "-0.2", "0.3"), ("0.4", "0.9", "0.0", "0.2"), ("0.3", "0.2", "0.7", "-0.1"),
            ("0.2", "-0.3", "0.6", "0.1"), ("0.1", "0.4", "0.3", "0.0"))
    for number, row in enumerate(rows):
        used = number in (1, 4, 5)
        p.text(265, 51 + 24 * number, str(number), "end", 12)
        p.cells(275, 36 + 24 * number, row, fill="#cfe8f7" if used else PALE, height=24)
        if used:
            p.arrow(162, 101, 250, 48 + 24 * number)
            p.arrow(413, 48 + 24 * number, 495, 101)
    p.text(343, 200, "a row for each id\nembedding_dim = 4 columns", size=12)
    p.text(575, 70, "pooling: sum", bold=True)
    p.cells(503, 90, ("0.8", "0.2", "0.7", "0.4"), fill="#cfe8f7", width=36, height=24)
    p.text(575, 134, "the sample's embedding\nof this feature", size=12)
    p.arrow(650, 102, 690, 102)
    p.text(697, 99, "dense", "start")
    p.text(697, 115, "layers", "start")
    return p


def sharding():
    """The seven sharding types on two hosts of two ranks."""
    p = Picture("Seven ways to divide a table over four ranks", 760, 290)
    types = (("table_wise", [(2, 0, 0, 1, 1)]), ("column_wise", [(r, r / 4, 0, 1 / 4, 1) for r in range(4)]), ("row_wise", [(r, 0, r / 4, 1, 1 / 4) for r in range(4)]),
             ("data_parallel", None), ("table_row_wise", [(2, 0, 0, 1, 1 / 2), (3, 0, 1 / 2, 1, 1 / 2)]),
             ("table_column_wise", [(2, 0, 0, 1 / 2, 1), (3, 1 / 2, 0, 1 / 2, 1)]),
             ("grid_shard", [(0, 0, 0, 1 / 2, 1 / 2), (1, 0, 1 / 2, 1 / 2, 1 / 2), (2, 1 / 2, 0, 1 / 2, 1 / 2), (3, 1 / 2, 1 / 2, 1 / 2, 1 / 2)]))
    w, h = 130, 90
    for number, (name, shards) in enumerate(types):
        x, y = 30 + number % 4 * 185, 40 + number // 4 * 150
        p.text(x + w / 2, y - 10, name, bold=True)
        if shards is None:  # a copy of the table on each rank
            for r in range(4):
                p.box(x + r % 2 * 68, y + r // 2 * 48, 62, 42, f"rank {r}", RANKS[r], size=11)
            continue
        for r, left, top, width, height in shards:
            p.box(x + w * left, y + h * top, w * width, h * height, f"rank {r}" if width > 1 / 4 else str(r), RANKS[r], size=12)
    x, y = 585, 180
    p.text(x + w / 2, y, "host 0: ranks 0 and 1")
    p.text(x + w / 2, y + 20, "host 1: ranks 2 and 3")
    p.text(x + w / 2, y + 50, "height: rows of the table\nwidth: its columns", size=12)
    return p


def step():
    """The stages of a step on two ranks."""
    p = Picture("The stages of a training step on two ranks", 760, 270)
    stages = (("batch", "ids of\nown samples"), ("lookup", "own rows,\npooled"), ("dense", "forward, loss,\nbackward"), ("update", "fused\noptimizer"))
    xs, w, h = (20, 220, 420, 620), 120, 60
    for r, y in ((0, 50), (1, 160)):
        for (name, words), x in zip(stages, xs):
            p.box(x, y, w, h, words, RANKS[r])
            if r == 0:
                p.text(x + w / 2, 40, name, bold=True)
        p.text(xs[0] + w / 2, y + h + 16, f"rank {r}", size=12)
    for (one, other), name, below in zip(zip(xs, xs[1:]), ("input dist", "output dist", "gradient dist"), ("ids travel\nto their rows", "pooled rows\ntravel back", "gradients travel\nto the rows")):
        for y1, y2 in ((80, 80), (190, 190), (95, 175), (175, 95)):
            p.arrow(one + w + 3, y1, other - 4, y2)
        middle = (one + w + other) / 2
        p.text(middle, 40, name, fill=MARK, bold=True, size=12)
        p.text(middle, 245, below, size=11)
    return p


def directory():
    """A directory gives rows to raw ids."""
    p = Picture("A directory of ids gives a row to each raw id", 760, 220)
    p.text(95, 26, "ids of the data", bold=True)
    p.text(330, 26, "directory", bold=True)
    p.text(600, 26, "table", bold=True)
    entries = (("9031", 2), ("17", 1), ("-4", 3), ("5555", None))
    for r, words in enumerate(("row 0: all ids without a row", "row 1: id 17", "row 2: id 9031", "row 3: id -4, before: id 88")):
        p.box(500, 40 + 36 * r, 210, 28, words, "#dff0e6" if r else PALE, size=12)
    for number, (raw, row) in enumerate(entries):
        y = 40 + 36 * number
        p.box(50, y, 90, 28, raw)
        p.box(260, y, 140, 28, f"{raw} has row {row}" if row else f"{raw}: no row yet", "#dff0e6" if row else PALE, size=12)
        p.arrow(143, y + 14, 256, y + 14)
        p.arrow(403, y + 14, 496, 54 + 36 * (row or 0), dashed=row is None)
    p.text(380, 205, "Id 88 was not seen for a long time, so it lost its row to the new id -4.", size=12)
    return p


def files():
    """A table, its dataset, the checkpoint and its deltas; the mapping goes along."""
    p = Picture("From a table to a model that is kept up to date", 760, 250)
    p.box(20, 40, 110, 56, "table\nCSV, Parquet")
    p.box(215, 40, 120, 56, "dataset\n+ mapping", "#cfe8f7")
    p.box(425, 40, 120, 56, "checkpoint\n+ mapping", "#dff0e6")
    p.box(620, 40, 55, 56, "delta\n1", "#f7ecc8")
    p.box(690, 40, 55, 56, "delta\n2", "#f7ecc8")
    p.arrow(133, 68, 211, 68)
    p.text(172, 58, "convert", size=12)
    p.arrow(338, 68, 421, 68)
    p.text(380, 58, "train", size=12)
    p.arrow(548, 68, 616, 68)
    p.text(582, 58, "continue", size=12)
    p.arrow(676, 68, 688, 68)
    p.box(20, 170, 110, 56, "raw row\nof a user")
    p.box(215, 170, 120, 56, "encode()\nby the mapping", "#cfe8f7")
    p.box(425, 170, 120, 56, "predict()", "#dff0e6")
    p.box(620, 170, 125, 56, "probability\nof a click")
    for one, other in ((133, 211), (338, 421), (548, 616)):
        p.arrow(one, 198, other, 198)
    p.arrow(450, 99, 300, 166)
    p.text(335, 128, "mapping", size=12)
    p.arrow(495, 99, 495, 166)
    p.text(502, 138, "weights", "start", 12)
    p.arrow(645, 99, 535, 166)
    p.arrow(715, 99, 545, 170)
    p.text(700, 138, "changed rows", size=12)
    return p


PICTURES = {"bags": bags, "sharding": sharding, "step": step, "directory": directory, "files": files}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2] / "input/pictures")
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
