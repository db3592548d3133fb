#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run trshard on the whole-program training cases and compare it with references from real TorchRec / FBGEMM.

    check_train.py TRSHARD_BINARY CASE_DIR [--ranks 1,2,4] [--types auto,table_wise,...] [--extra "-pipeline base"]...
                   [--few] [--only NAME,...] [--limit SECONDS] [--device cpu] [--verbose]

CASE_DIR holds one directory per case (train.h5 init.h5 run.opts reference.h5 final.h5 case.json), or is such a directory.
Each case runs on several numbers of ranks, with the planner's own choice and with forced sharding types, and once with each
--extra set of options. The global batch is always the same: -batch_size is the global batch divided by the ranks, and numbers
of ranks that do not divide it are left out. The tool compares the loss of every step, the final weights, the optimizer states,
the dense parameters and their states, and the checkpoint's step count. In one run per case it also compares the predictions
of `-task eval` from the reference's final checkpoint. Needs python3 with numpy and h5py. Exit 0 iff every run matches.
"""
import argparse, glob, json, os, shlex, subprocess, sys, tempfile, time
import trspython

trspython.require("h5py", "numpy")

import numpy as np, h5py


def maxrel(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-12))) if a.size else 0.0


def excess(a, b, tol):
    """Largest |a-b| / (tol * (1 + |b|)); at most 1 is a match."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not np.all(np.isfinite(a)):
        return float("inf")
    return float(np.max(np.abs(a - b) / (tol * (1.0 + np.abs(b))))) if a.size else 0.0


def datasets(path):
    out = {}
    with h5py.File(path, "r") as h:
        h.visititems(lambda n, o: out.__setitem__(n, o[()]) if isinstance(o, h5py.Dataset) else None)
        out["@step"] = int(h.attrs["step"]) if "step" in h.attrs else None
        out["@format"] = h.attrs.get("format")
    return out


def compare(case, meta, out, fin, split):
    """List of the differences."""
    bad = []
    sfx = f"_cw{split}" if split else ""
    with h5py.File(out, "r") as h, h5py.File(os.path.join(case, f"reference{sfx}.h5"), "r") as r:
        fmt = h.attrs.get("format")
        if (fmt.decode() if isinstance(fmt, bytes) else fmt) != "trshard-run":
            bad.append("output: attribute format is not trshard-run")
        for n in ("train/step", "train/loss"):
            if n not in h:
                return bad + [f"output: no /{n}"]
        a, b = h["train/loss"][()], r["train/loss"][()]
        if a.shape != b.shape:
            return bad + [f"loss: {a.shape[0]} steps, reference has {b.shape[0]}"]
        if not np.array_equal(h["train/step"][()] - h["train/step"][()][0], r["train/step"][()]):
            bad.append("train/step does not count up by one")
        e = np.abs(a - b) / np.maximum(np.abs(b), 1e-12)
        if not np.all(np.isfinite(a)) or e.max() > meta["tol_loss"]:
            s = int(np.argmax(~(e <= meta["tol_loss"])))
            bad.append(f"loss: first off at step {s}: {a[s]!r} for {b[s]!r} (largest relative {np.nanmax(e):.1e}, allowed {meta['tol_loss']:.0e})")
    f, r = datasets(fin), datasets(os.path.join(case, f"final{sfx}.h5"))
    if f["@step"] != r["@step"]:
        bad.append(f"checkpoint: attribute step {f['@step']} for {r['@step']}")
    for n in sorted(k for k in r if not k.startswith("@")):
        if n.endswith("_columns"):
            continue
        if n not in f:
            bad.append(f"checkpoint: no /{n}")
        elif f[n].shape != r[n].shape:
            bad.append(f"checkpoint: /{n} has shape {f[n].shape} for {r[n].shape}")
        elif n.endswith("/weight") and n.startswith("embedding/") and f[n].dtype != r[n].dtype:
            bad.append(f"checkpoint: /{n} is {f[n].dtype} for {r[n].dtype}")
        else:
            x = excess(f[n], r[n], meta["tol_weight"])
            if not x <= 1:
                bad.append(f"checkpoint: /{n} differs by up to {np.nanmax(np.abs(np.asarray(f[n], np.float64) - r[n])):.2e} ({x:.0f} times the tolerance)")
    return bad


def plans_of(meta, rs, a):
    """Every run of a case on these numbers of ranks: (ranks, label, options, column split of the reference)."""
    R, plans = rs[-1], []
    if a.types is None:
        plans += [(r, "auto", [], None) for r in rs]
        for n in sorted({R} | ({3} & set(rs))):
            if n > 1:
                for t in ("table_wise", "row_wise", "data_parallel"):
                    plans.append((n, t, ["-tables_sharding_types", t], None))
        if R > 1:
            if R % 2 == 0 and R > 2:
                plans.append((R, "table_row_wise", ["-tables_sharding_types", "table_row_wise", "-topology_local_world_size", str(R // 2)], None))
            # Column splits: halves, as a width must be a multiple of 4. They are compared with the split reference if
            # the split changes numbers.
            one = len(meta["dims"]) == 1
            halves = one and meta["dims"][0] % 8 == 0
            ks = meta["column_split"] if meta["column_coupled"] else ([2] if halves else [])
            for k in ks:
                part = ["-tables_min_partition", str(meta["dims"][0] // k)]
                split = k if meta["column_coupled"] else None
                plans.append((R, f"column_wise/{k}", ["-tables_sharding_types", "column_wise"] + part, split))
                if k == 2 and R % 2 == 0 and R > 2:
                    for t in ("table_column_wise", "grid_shard"):
                        plans.append((R, f"{t}/{k}", ["-tables_sharding_types", t, "-topology_local_world_size", str(R // 2)] + part, split))
    else:
        for t in a.types.split(","):
            for r in rs:
                if t == "auto" or r > 1:
                    plans.append((r, t, [] if t == "auto" else ["-tables_sharding_types", t], None))
    # sequence tables cannot be cut in these ways
    plans = [plan for plan in plans if plan[1].split("/")[0] not in meta.get("refused_types", ())]
    return plans + [(R, "auto " + x, shlex.split(x), None) for x in a.extra]


def few_ranks(rs):
    """Two ranks if they divide the batch."""
    return 2 if 2 in rs else rs[-1]


def few_of(plans, meta, rs, turn):
    """The runs of a case that represent the others: one rank; the planner's choice with the options of --extra, on two ranks; replicas, on two ranks;
    and one other type, which changes from case to case. If the case has a reference for cut columns, this type cuts columns."""
    own = [plan for plan in plans if plan[3]]
    others = own or [plan for plan in plans if not plan[1].startswith(("auto", "data_parallel")) and plan[0] == rs[-1]]
    kept = [plan for plan in plans if plan[1].startswith("auto ") or plan[1] == "data_parallel"]
    kept = {plan[1]: (few_ranks(rs),) + plan[1:] for plan in kept}
    return [plan for plan in plans if plan[1] == "auto" and plan[0] == 1] + list(kept.values()) + ([others[turn % len(others)]] if others else [])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("binary")
    ap.add_argument("cases")
    ap.add_argument("--ranks", default="1,2,4")
    ap.add_argument("--types", default=None, help="sharding types to force (auto = the planner chooses)")
    ap.add_argument("--extra", action="append", default=[], help="options of one more run for each case")
    ap.add_argument("--always", default="", help="options of every run")
    ap.add_argument("--few", action="store_true", help="of each case only runs that stand for the others")
    ap.add_argument("--only", default="")
    ap.add_argument("--limit", type=float, default=180.0)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe --bind-to none")
    ap.add_argument("--label", default="runtime cases")
    ap.add_argument("--verbose", action="store_true")
    a = ap.parse_args()
    binary = os.path.abspath(a.binary)
    dirs = [a.cases] if os.path.exists(os.path.join(a.cases, "case.json")) else sorted(os.path.dirname(p) for p in glob.glob(os.path.join(a.cases, "*", "case.json")))
    if a.only:
        dirs = [d for d in dirs if os.path.basename(d) in a.only.split(",")]
    if not dirs:
        print("no cases in", a.cases)
        print(f"{a.label}: 0/0 runs match")
        return 2
    ranks = [int(x) for x in a.ranks.split(",")]
    good = total = 0
    env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1")

    def run(case, n, opts, tmp, what):
        cmd = shlex.split(a.mpirun) + ["-n", str(n), binary, "-options_file", "run.opts", "-device", a.device] + shlex.split(a.always) + opts
        t0 = time.time()
        try:
            p = subprocess.run(cmd, cwd=case, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=a.limit)
        except subprocess.TimeoutExpired:
            return [f"more than {a.limit:.0f} s"], time.time() - t0
        if p.returncode != 0:
            noise = ("---", "Primary job", "a non-zero exit code", "mpirun ", "Per user", "  Process name", "  Exit code", "with errorcode", "MPI_ABORT", "NOTE: invoking")
            lines = [l for l in p.stdout.decode(errors="replace").splitlines() if l.strip() and not l.startswith(noise)]
            tail = " | ".join(lines[:1] + lines[-2:] if len(lines) > 3 else lines)[:500]
            return [f"exit {p.returncode}: {tail}"], time.time() - t0
        return [], time.time() - t0

    for case in dirs:
        case = os.path.abspath(case)
        meta = json.load(open(os.path.join(case, "case.json")))
        name, G = meta["name"], meta["global_batch"]
        rs = [r for r in ranks if G % r == 0] or [1]
        if max(rs) > 1 and meta["world_size"] not in rs:      # a case made for 3 or 8 ranks also runs with its own number
            rs = sorted(rs + [meta["world_size"]])
        plans = plans_of(meta, rs, a)
        if a.few:
            plans = few_of(plans, meta, rs, sorted(os.listdir(os.path.dirname(case))).index(os.path.basename(case)))
        with tempfile.TemporaryDirectory() as tmp:
            for i, (n, label, opts, split) in enumerate(plans):
                out, fin = os.path.join(tmp, f"out{i}.h5"), os.path.join(tmp, f"final{i}.h5")
                # if the columns' split changes numbers, the planner must not split them by itself
                if label.startswith("auto") and meta["column_coupled"] and n > 1:
                    opts = ["-tables_sharding_types", "table_wise,row_wise,data_parallel"] + opts
                bad, sec = run(case, n, ["-data_train", "train.h5", "-init_from", "init.h5", "-batch_size", str(G // n), "-output", out, "-checkpoint_final", fin] + opts, tmp, label)
                if not bad:
                    for p in (out, fin):
                        if not os.path.exists(p):
                            bad.append("did not write " + os.path.basename(p))
                    if not bad:
                        try:
                            bad = compare(case, meta, out, fin, split)
                        except Exception as e:
                            bad = [f"cannot read what it wrote: {e!r}"]
                total += 1
                good += not bad
                if bad:
                    print(f"FAIL {name} -n {n} {label}: " + "; ".join(bad[:4]) + (f"; and {len(bad) - 4} more" if len(bad) > 4 else ""), flush=True)
                elif a.verbose:
                    print(f"ok   {name} -n {n} {label} ({sec:.1f} s)", flush=True)
            # predictions from the reference's final state
            n, out = few_ranks(rs) if a.few else rs[-1], os.path.join(tmp, "eval.h5")
            bad, sec = run(case, n, ["-task", "eval", "-data_eval", "train.h5", "-init_from", "final.h5", "-batch_size", str(G // n), "-output", out], tmp, "eval")
            if not bad:
                try:
                    with h5py.File(out, "r") as h, h5py.File(os.path.join(case, "reference.h5"), "r") as r:
                        x = excess(h["predictions"][()], r["predictions"][()], max(meta["tol_weight"], 1e-5)) if h["predictions"].shape == r["predictions"].shape else float("inf")
                        if not x <= 1:
                            bad.append(f"predictions differ ({x:.0f} times the tolerance)")
                        for k in ("loss", "auc", "ne", "accuracy"):
                            if f"eval/{k}" in r:
                                if f"eval/{k}" not in h:
                                    bad.append(f"no /eval/{k}")
                                elif maxrel(h[f"eval/{k}"][()][-1:], r[f"eval/{k}"][()]) > (1e-4 if not meta["half"] else 1e-2):
                                    bad.append(f"eval/{k} {h[f'eval/{k}'][()][-1]!r} for {r[f'eval/{k}'][()][0]!r}")
                except Exception as e:
                    bad.append(f"cannot read what it wrote: {e!r}")
            total += 1
            good += not bad
            if bad:
                print(f"FAIL {name} -n {n} eval: " + "; ".join(bad[:4]), flush=True)
            elif a.verbose:
                print(f"ok   {name} -n {n} eval ({sec:.1f} s)", flush=True)
    print(f"{a.label}: {good}/{total} runs match")
    return 0 if good == total else 1


if __name__ == "__main__":
    sys.exit(main())
