#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the table of -dense_product_table from the times of -log_view_products.

    tools/product_table.py LOG... [--table FILE] [--least 0.97]

A LOG is the output of a training with -log_view_products, or the file training.txt of `run gpu dense`, which has several. For each shape of product,
the fastest algorithm is listed if it takes at most --least times as long as the library's first one. Shapes whose first algorithm is fast enough have
no entry. With --table, the entries of FILE are kept for the GPUs, libraries and precisions that no LOG has. Prints the table.

Exit: 0; 1 if no LOG has times of products.
"""
import argparse
import re
import sys

KEY = re.compile(r"^product table  \[(.+)\]$")
TIME = re.compile(r"^product +([\d.]+) as used .* (\d+) of (\d+)[* ] +(\d+) +(\d+) +(\d+)  (.+)$")


def read_times(lines):
    """{key: {shape: [{algorithm: (us, n, tile, parts, scheme)}]}}: one entry of the list for each time that a run lists the shape."""
    times, shapes = {}, None
    for line in lines:
        if m := KEY.match(line):
            shapes = times.setdefault(m[1], {})
        elif (m := TIME.match(line)) and shapes is not None:
            algorithm, number = int(m[2]), tuple(int(x) for x in m.group(3, 4, 5, 6))
            listed = shapes.setdefault(m[7], [])
            if not listed or algorithm in listed[-1]:
                listed.append({})
            listed[-1][algorithm] = (float(m[1]), *number)
    return times


def best_of(listed, least):
    """(algorithm, n, tile, parts, scheme, its us, us of the first) of a shape, or None if the first algorithm is to stay.

    A shape may be listed several times, with other alignments or in several runs. An algorithm must then be the same in all lists."""
    both = set.intersection(*(set(found) for found in listed))
    same = {a for a in both if len({found[a][1:] for found in listed}) == 1}
    if 1 not in both or not same:
        return None
    us = {a: sum(found[a][0] for found in listed) / len(listed) for a in both}
    best = min(same, key=lambda a: (us[a], a))
    return (best, *listed[0][best][1:], us[best], us[1]) if best != 1 and us[best] <= least * us[1] else None


def sections_of(text):
    """{key: lines} of a table."""
    sections, lines = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line[1:-1], [])
        elif lines is not None and line:
            lines.append(line)
    return sections


def make_sections(times, least):
    sections = {}
    for key, shapes in times.items():
        lines = sections[key] = []
        for shape, listed in shapes.items():
            if best := best_of(listed, least):
                algorithm, n, tile, parts, scheme, us, first_us = best
                lines += [f"# {us:.2f} us, the first one {first_us:.2f} us", f"{algorithm} of {n} tile {tile} parts {parts} scheme {scheme} : {shape}"]
    return sections


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("--table", metavar="FILE", help="a table whose other entries are kept")
    parser.add_argument("--least", type=float, default=0.97, help="largest ratio of times that is worth an entry (default: %(default)s)")
    args = parser.parse_args()
    lines = []
    for log in args.logs:
        with open(log, encoding="utf-8", errors="replace") as file:
            lines += file.read().splitlines()
    times = read_times(lines)
    if not times:
        print(f"product_table.py: no times of -log_view_products in {', '.join(args.logs)}", file=sys.stderr)
        return 1
    sections = {}
    if args.table:
        with open(args.table, encoding="utf-8") as file:
            sections = sections_of(file.read())
    sections.update(make_sections(times, args.least))
    print("# Algorithms of matrix products for -dense_product_table, made by tools/product_table.py.")
    for key in sorted(sections):
        print("\n".join(["", f"[{key}]", *sections[key]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
