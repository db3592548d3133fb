#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_plan.py TRSHARD_BINARY CASE_DIR [only-substring] [-j N]

Runs `BINARY -task plan -options_file X.opts -plan_output tmp [-plan_search_space tmp2]` for every CASE_DIR/*.opts.
The limit of 300 s for each finds hangs; it does not judge speed. Compares with the expected X.plan.json / X.error.json /
X.space.json (README.md there). Names, types, kernels, ranks, offsets, sizes, storage bytes and counts must be equal; perf to
1e-9 relative.
One line per failed case, then `planner cases: P/N cases match`; exit 0 iff all match.
"""
import glob, json, os, signal, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

LIMIT_S = 300
RTOL = 1e-9
ATOL = 1e-300
PERF = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")


class Diff(Exception):
    pass


def need(c, msg):
    if not c:
        raise Diff(msg)


def get(d, k, where):
    need(isinstance(d, dict), "%s: expected an object, got %.60r" % (where, d))
    need(k in d, "%s: no field '%s'" % (where, k))
    return d[k]


def same(got, want, where):
    if isinstance(want, bool) or isinstance(got, bool) or isinstance(want, (str, type(None))):
        need(got == want and isinstance(got, bool) == isinstance(want, bool), "%s: %.120r, expected %.120r" % (where, got, want))
    elif isinstance(want, list):
        need(isinstance(got, list), "%s: expected a list, got %.60r" % (where, got))
        need(len(got) == len(want), "%s: %d entries, expected %d" % (where, len(got), len(want)))
        for i, (g, w) in enumerate(zip(got, want)):
            same(g, w, "%s[%d]" % (where, i))
    else:
        need(isinstance(got, (int, float)) and got == want, "%s: %.120r, expected %.120r" % (where, got, want))


def close(got, want, where):
    need(isinstance(got, (int, float)) and not isinstance(got, bool), "%s: expected a number, got %.60r" % (where, got))
    need(got == got and abs(got - want) <= RTOL * max(abs(got), abs(want)) + ATOL, "%s: %r, expected %r" % (where, got, want))


def storage(got, want, where):
    for k in ("hbm", "ddr"):
        same(get(got, k, where), want[k], where + "." + k)


def perf(got, want, where):
    for k in PERF:
        close(get(got, k, where), want[k], where + "." + k)


def shards(got, want, where, ranks):
    need(isinstance(got, list), "%s: expected a list" % where)
    need(len(got) == len(want), "%s: %d shards, expected %d" % (where, len(got), len(want)))
    for i, (g, w) in enumerate(zip(got, want)):
        p = "%s[%d]" % (where, i)
        for k in (("rank",) if ranks else ()) + ("offset", "size"):
            same(get(g, k, p), w[k], p + "." + k)
        storage(get(g, "storage", p), w["storage"], p + ".storage")
        perf(get(g, "perf", p), w["perf"], p + ".perf")


def check_plan(got, want):
    for k in ("format", "version", "world_size", "local_world_size"):
        same(get(got, k, "plan"), want[k], "plan." + k)
    tg = get(got, "tables", "plan")
    need(isinstance(tg, list), "plan.tables: expected a list")
    by = {}
    for t in tg:  # tables may come in any order
        n = get(t, "name", "plan.tables[]")
        need(n not in by, "plan.tables: '%s' appears twice" % n)
        by[n] = t
    names = [t["name"] for t in want["tables"]]
    need(set(by) == set(names), "plan.tables: missing %s, unexpected %s" % (sorted(set(names) - set(by))[:5], sorted(set(by) - set(names))[:5]))
    for w in want["tables"]:  # choices first, so that the message names the cause
        g, p = by[w["name"]], "table " + w["name"]
        for k in ("sharding_type", "compute_kernel"):
            same(get(g, k, p), w[k], p + "." + k)
    for w in want["tables"]:
        g, p = by[w["name"]], "table " + w["name"]
        same(get(g, "ranks", p), w["ranks"], p + ".ranks")
        shards(get(g, "shards", p), w["shards"], p + ".shards", True)
        if "cache_load_factor" in w:
            close(get(g, "cache_load_factor", p), w["cache_load_factor"], p + ".cache_load_factor")
    dg = get(got, "devices", "plan")
    need(isinstance(dg, list) and len(dg) == len(want["devices"]), "plan.devices: expected %d entries" % len(want["devices"]))
    for i, (g, w) in enumerate(zip(dg, want["devices"])):
        p = "devices[%d]" % i
        same(get(g, "rank", p), w["rank"], p + ".rank")
        storage(get(g, "storage", p), w["storage"], p + ".storage")
        perf(get(g, "perf", p), w["perf"], p + ".perf")
    close(get(got, "critical_path", "plan"), want["critical_path"], "plan.critical_path")
    for k in ("partitioned", "feasible", "proposals"):
        same(get(got, k, "plan"), want[k], "plan." + k)


def check_error(got, want):
    for k in ("format", "version", "error_type"):
        same(get(got, k, "error"), want[k], "error." + k)


def check_space(got, want):
    for k in ("format", "version"):
        same(get(got, k, "search space"), want[k], "search space." + k)
    og = get(got, "options", "search space")
    key = lambda o: [o.get("name"), o.get("sharding_type"), o.get("compute_kernel")]
    need(isinstance(og, list), "search space.options: expected a list")
    for i, (g, w) in enumerate(zip(og, want["options"])):
        same(key(g), key(w), "search space option %d" % i)
    need(len(og) == len(want["options"]), "search space: %d options, expected %d" % (len(og), len(want["options"])))
    for i, (g, w) in enumerate(zip(og, want["options"])):
        p = "search space option %d (%s %s %s)" % ((i,) + tuple(key(w)))
        same(get(g, "partition_by", p), w["partition_by"], p + ".partition_by")
        shards(get(g, "shards", p), w["shards"], p + ".shards", False)
        storage(get(g, "total_storage", p), w["total_storage"], p + ".total_storage")
        close(get(g, "total_perf", p), w["total_perf"], p + ".total_perf")


def load(path, what):
    need(os.path.exists(path), "%s was not written" % what)
    try:
        with open(path) as f:
            return json.load(f)
    except ValueError as e:
        raise Diff("%s is not JSON: %s" % (what, e))


def run_case(binary, opts):
    base = opts[: -len(".opts")]
    want = {k: base + "." + k + ".json" for k in ("plan", "error", "space")}
    want = {k: p for k, p in want.items() if os.path.exists(p)}
    need("plan" in want or "error" in want, "no expected plan.json or error.json")
    with tempfile.TemporaryDirectory() as tmp:
        out, sp = os.path.join(tmp, "plan.json"), os.path.join(tmp, "space.json")
        cmd = [binary, "-task", "plan", "-options_file", os.path.abspath(opts), "-plan_output", out, "-plan_advice_seconds", "0"]
        if "space" in want:
            cmd += ["-plan_search_space", sp]
        p = subprocess.Popen(cmd, cwd=tmp, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            text = p.communicate(timeout=LIMIT_S)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
            raise Diff("longer than %d s" % LIMIT_S)
        code = 0 if "plan" in want else 72  # no feasible plan
        tail = " | ".join(text.strip().splitlines()[-2:])[:200]
        need(p.returncode == code, "exit code %s, expected %d%s" % (p.returncode, code, ": " + tail if tail else ""))
        if "space" in want:
            check_space(load(sp, "the search space"), load(want["space"], "expected"))
        if "plan" in want:
            check_plan(load(out, "the plan"), load(want["plan"], "expected"))
        else:
            check_error(load(out, "the error report"), load(want["error"], "expected"))


def main():
    a = sys.argv[1:]
    jobs = 2
    if "-j" in a:
        i = a.index("-j")
        jobs = int(a[i + 1])
        del a[i : i + 2]
    if len(a) not in (2, 3):
        print(__doc__)
        return 2
    binary = os.path.abspath(a[0]) if os.sep in a[0] or os.path.exists(a[0]) else a[0]
    cases = sorted(f for f in glob.glob(os.path.join(a[1], "*.opts")) if len(a) < 3 or a[2] in os.path.basename(f))

    def one(f):
        try:
            run_case(binary, f)
            return None
        except Diff as e:
            return str(e)
        except OSError as e:
            return "cannot run: %s" % e
        except Exception as e:  # malformed output must fail the case, not the checker
            return "malformed output: %s: %s" % (type(e).__name__, e)

    with ThreadPoolExecutor(jobs) as ex:
        res = list(ex.map(one, cases))
    for f, m in zip(cases, res):
        if m is not None:
            print("FAIL %s: %s" % (os.path.basename(f)[: -len(".opts")], m))
    good = sum(m is None for m in res)
    print("planner cases: %d/%d cases match" % (good, len(cases)))
    return 0 if cases and good == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
