# SPDX-License-Identifier: BSD-3-Clause
"""Whole runs, and laws that must hold between them. The laws need no reference numbers.

  case.py --binary BINARY NAME...   run these tests (test_<NAME> of the modules in this folder)
  case.py --list                    list the names of all tests
"""
import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import time
import traceback

import trsrun

MODULES = ["law_plans", "law_reproducible", "law_runs", "law_history", "law_folders", "law_start", "law_predict", "law_faults", "law_hosts", "law_signals", "law_reports", "law_trace", "law_metrics", "law_optimizers", "law_features",
           "law_ids", "law_zch", "law_dynamic", "law_id_reports", "law_given_rows", "law_directories", "law_qr", "law_reader", "law_caches", "law_look_ahead", "law_statistics", "law_precision", "law_model", "law_heads", "law_retrieval", "law_init", "law_outputs", "law_exchange", "law_managed_collision",
           "law_layers", "law_accumulate", "law_sequences", "law_replicas", "law_names", "law_files", "law_follow", "law_delta", "law_increments", "law_async", "law_mapping"]
IF_THERE = ["law_cuda", "law_cuda_counts"]  # from regression/cuda_on_cpu, if its folder is in PYTHONPATH


def tests():
    found = {}
    there = [module for module in IF_THERE if importlib.util.find_spec(module)]
    for module in MODULES + there:
        for name, function in vars(importlib.import_module(module)).items():
            if name.startswith("test_"):
                found[name[5:]] = function
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--binary")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    known = tests()
    if args.list:
        print("\n".join(known))
        return 0
    n_failed = n_skipped = 0
    for name in args.names:
        start_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"trshard-{name}-", ignore_cleanup_errors=True) as folder:
            try:
                known[name](os.path.abspath(args.binary), folder)
                print(f"ok   {name} ({time.monotonic() - start_s:.1f} s)", flush=True)
            except trsrun.Skipped as why:
                n_skipped += 1
                print(f"skipped {name}: {why}", flush=True)
            # on any exception, the test has failed and the next one runs
            except Exception as problem:
                n_failed += 1
                print(f"FAIL {name}: {problem}", flush=True)
                if not isinstance(problem, trsrun.Failed):
                    traceback.print_exc()
    if n_failed:
        return 1
    return trsrun.SKIPPED if n_skipped and n_skipped == len(args.names) else 0


if __name__ == "__main__":
    sys.exit(main())
