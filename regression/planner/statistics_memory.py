#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""statistics_memory.py TRSHARD: the planner's memory for the statistics of 1,000,000 ids, with a
part of the histogram for each id. dataset_statistics.py writes at most 1,000 parts."""
import os
import random
import subprocess
import sys
import tempfile

from planner_test import Checks

IDS, FEW = 10**6, 1000
# Measured: 22. A part has 2 bytes of text here, and two numbers in double.
MOST_BYTES_OF_A_PART = 32
# Linux counts the parent's memory at the fork as the child's, so a small program starts the planner.
PEAK = """
import os, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak(c, binary, folder, parts, algorithm):
    """Peak bytes of a run that plans for a table of IDS rows."""
    draw = random.Random(parts)
    options = {"topology_compute_device": "cuda", "topology_world_size": 8, "topology_local_world_size": 8, "plan_dense_parameter_bytes": 0, "plan_cache_hit_rates": "true",
               "plan_cache_steps": 100, "tables": "t", "tables_embedding_dim": 64, "tables_num_embeddings": IDS, "tables_compute_kernels": "fused_uvm_caching",
               "tables_cache_load_factor": 0.1, "tables_cache_algorithm": algorithm, "table_t_cache_stats_cacheability": 0.3, "table_t_cache_stats_expected_lookups": 5000,
               "table_t_cache_stats_mrc_hist": ",".join(str(draw.randrange(10)) for _ in range(parts))}
    with open(os.path.join(folder, "run.opts"), "w", encoding="ascii") as file:
        file.writelines("-%s %s\n" % pair for pair in options.items())
    words = [binary, "-task", "plan", "-options_file", "run.opts", "-plan_report", "report.txt", "-plan_advice_seconds", "0"]
    code, size = map(int, subprocess.run([sys.executable, "-c", PEAK, *words], cwd=folder, stdout=subprocess.PIPE, check=True).stdout.split())
    c.check(code == 0, f"{parts} parts, {algorithm}: exit status {code}")
    with open(os.path.join(folder, "report.txt"), encoding="utf-8") as file:
        c.check(f", {algorithm}, " in file.read(), f"{parts} parts, {algorithm}: the report has no hit rate of the cache")
    return size


def main():
    c = Checks()
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="trshard_statistics_") as folder:
        for algorithm in ("lru", "lfu"):
            of_a_part = (peak(c, binary, folder, IDS, algorithm) - peak(c, binary, folder, FEW, algorithm)) / (IDS - FEW)
            print(f"{algorithm}: {of_a_part:.1f} bytes a part")
            c.check(0 < of_a_part <= MOST_BYTES_OF_A_PART, f"{algorithm}: {of_a_part:.1f} bytes of memory a part, at most {MOST_BYTES_OF_A_PART}")
    c.finish()


if __name__ == "__main__":
    main()
