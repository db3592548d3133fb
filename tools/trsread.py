# SPDX-License-Identifier: BSD-3-Clause
"""Reads plans and runs for the tools that show them (formats: input/FORMAT.md).

read_plan() and read_run() check their input. Unreadable describes in one line what is wrong with a file.
"""
import json
import math
import re

import numpy as np

import trsoptions

PARTS = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")
KINDS = ("hbm", "ddr")
OF_GROUPS = re.compile(r"/(?:.*?_)??(gauc|group_(?:ne|mse|mae)|(?:ndcg|(?:retrieval_)?recall|hit_rate|precision)_at_\d+)$")
OF_CLASSES = re.compile(r"(?:.*/)?(?:.+_)?(ne|auc|auprc|calibration)")
OF_IDS = re.compile(r"ids/(.+)_held")
ONE_CLASS = 1e-12  # mean labels this close to 0 or 1 count as one class; NE clamps them to this
METRICS = ("ne", "auc", "auprc", "accuracy", "calibration", "ctr", "mse", "rmse", "mae")
LARGEST = 1 << 63


class Unreadable(Exception):
    """A file that cannot be shown; its text is a message for the user."""


def field(value, key, kind, where):
    """value[key], which must be of the kind: dict, list, str, int or float (finite, and smaller than 2^63)."""
    if not isinstance(value, dict) or key not in value:
        raise Unreadable(f"{where} has no field \"{key}\"")
    found = value[key]
    kinds = (int, float) if kind is float else kind
    if not isinstance(found, kinds) or isinstance(found, bool):
        raise Unreadable(f"{where}.{key} is not {'a number' if kind in (int, float) else 'a ' + kind.__name__}")
    if kind in (int, float) and not (abs(found) < LARGEST and math.isfinite(found)):
        raise Unreadable(f"{where}.{key} is {found}, which is no size or time")
    return found


def natural(value, key, where):
    found = field(value, key, int, where)
    if found < 1:
        raise Unreadable(f"{where}.{key} is {found}, not at least 1")
    return found


def storage(value, key, where):
    found = field(value, key, dict, where)
    return [field(found, kind, int, f"{where}.{key}") for kind in KINDS]


class Plan:
    """A sharding plan. Per shard: table and rank [N], bytes [N, hbm and ddr], parts [N, five times in ms]."""

    def __init__(self, root, source):
        if isinstance(root, dict) and root.get("format") == "trshard-plan-error":
            raise Unreadable(f"{source} holds no plan ({root.get('error_type')}): {root.get('message')}")
        if not isinstance(root, dict) or root.get("format") != "trshard-plan":
            raise Unreadable(f"{source} is not a plan: -plan_output writes one")
        self.source = source
        self.world = natural(root, "world_size", source)
        self.local = natural(root, "local_world_size", source)
        self.pod = natural(root, "pod_size", source) if "pod_size" in root else 1
        self.has_costs = "devices" in root  # a plan that was written by hand may leave out its costs, which then count as 0
        self.critical_path, self.capacity, self.available = 0.0, None, None
        if self.has_costs:
            self.critical_path = field(root, "critical_path", float, source)
            devices = field(root, "devices", list, source)
            if len(devices) != self.world:
                raise Unreadable(f"{source}: world_size is {self.world}, but there {'is' if len(devices) == 1 else 'are'} {counted(len(devices), 'device')}")
            self._read_devices(devices)
        self._read_tables(field(root, "tables", list, source))

    def _read_devices(self, devices):
        """The capacity, and the part that the reservation leaves [rank, hbm and ddr]; None in plans of older programs."""
        if isinstance(devices[0], dict) and "capacity" in devices[0]:
            where = [f"{self.source}: devices[{i}]" for i in range(self.world)]
            self.capacity = np.array([storage(d, "capacity", w) for d, w in zip(devices, where)], float)
            self.available = np.array([storage(d, "available", w) for d, w in zip(devices, where)], float)

    def _read_tables(self, tables):
        table, rank, held, times = [], [], [], []
        self.names, self.modules, self.types, self.kernels, self.rows, self.dims = [], [], [], [], [], []
        for t, entry in enumerate(tables):
            where = f"{self.source}: tables[{t}]"
            self.names.append(field(entry, "name", str, where))
            self.modules.append(field(entry, "module", str, where) if "module" in entry else "")
            self.types.append(field(entry, "sharding_type", str, where))
            self.kernels.append(field(entry, "compute_kernel", str, where))
            rows = dim = 0
            for s, shard in enumerate(field(entry, "shards", list, where)):
                place = f"{where}.shards[{s}]"
                r = field(shard, "rank", int, place)
                if not 0 <= r < self.world:
                    raise Unreadable(f"{place}.rank is {r}, of {counted(self.world, 'rank')}")
                offset, size = (self._pair(shard, key, place) for key in ("offset", "size"))
                rows, dim = max(rows, offset[0] + size[0]), max(dim, offset[1] + size[1])
                table.append(t)
                rank.append(r)
                if not self.has_costs:
                    held.append([0] * len(KINDS))
                    times.append([0] * len(PARTS))
                    continue
                perf = field(shard, "perf", dict, place)
                held.append(storage(shard, "storage", place))
                times.append([field(perf, part, float, place + ".perf") for part in PARTS])
            self.rows.append(rows)
            self.dims.append(dim)
        self.table, self.rank = np.array(table, int), np.array(rank, int)
        self.bytes = np.array(held, float).reshape(-1, len(KINDS))
        self.parts = np.array(times, float).reshape(-1, len(PARTS))

    @staticmethod
    def _pair(shard, key, where):
        found = field(shard, key, list, where)
        if len(found) != 2 or any(not isinstance(x, int) or isinstance(x, bool) or not 0 <= x < LARGEST for x in found):
            raise Unreadable(f"{where}.{key} is not [row, column]")
        return found

    @property
    def hosts(self):
        return -(-self.world // self.local)

    def per_rank(self, values, which=slice(None)):
        """Sums over a rank's shards of values [N]. which: use only these shards."""
        return np.bincount(self.rank[which], weights=values[which], minlength=self.world)

    def memory(self, kind):
        return self.per_rank(self.bytes[:, KINDS.index(kind)])

    def time(self):
        return self.per_rank(self.parts.sum(axis=1))

    def fullest(self, kind):
        """(rank, share) of the rank that is nearest to the limit that the reservation leaves. If the limit is not known:
        the rank with most bytes, and None.
        """
        held = self.memory(kind)
        left = self.available[:, KINDS.index(kind)] if self.available is not None else np.zeros(self.world)
        if left.min() <= 0:
            return int(held.argmax()), None
        return int((held / left).argmax()), float((held / left).max())

    def most_of_table(self, values):
        """[tables] the largest sum on one rank."""
        pair, inverse = np.unique(self.table * self.world + self.rank, return_inverse=True)
        most = np.zeros(len(self.names))
        np.maximum.at(most, pair // self.world, np.bincount(inverse, weights=values, minlength=len(pair)))
        return most

    def of_table(self, values):
        """[tables] sums over all shards of a table."""
        return np.bincount(self.table, weights=values, minlength=len(self.names))

    def ranks_of(self, t):
        return np.unique(self.rank[self.table == t])

    def slowest(self, n):
        """The tables that take most time on one rank, slowest first. If no time is known, the tables with most memory."""
        cost = self.most_of_table(self.parts.sum(axis=1))
        if not cost.any():
            cost = self.most_of_table(self.bytes.sum(axis=1))
        return [int(t) for t in np.argsort(-cost, kind="stable")[:n] if cost[t] > 0]

    def critical_parts(self):
        """The parts of the critical path (src/plan/RULES.md, section 11): a list of dicts name, part, ms, rank, tables [(name, share)].

        For each direction these are the slowest rank's compute, and for each module and sharding type the slowest rank's exchange. If a plan
        does not name its modules but has several, the parts may not add up: then they are None.
        """
        groups = sorted(set(zip(self.modules, self.types)))
        kinds = sorted(set(self.modules))
        found = [self._slowest("forward compute", 0, slice(None))]
        for part, word in ((1, "forward"), (3, "backward")):
            for module, kind in groups:
                of = np.array([(m, k) == (module, kind) for m, k in zip(self.modules, self.types)], bool)
                name = f"{word} exchange {kind}" + (f" ({module})" if len(kinds) > 1 else "")
                found.append(self._slowest(name, part, of[self.table]))
        found.append(self._slowest("backward compute", 2, slice(None)))
        total = sum(part["ms"] for part in found)
        if abs(total - self.critical_path) > 1e-6 * max(total, self.critical_path):
            return None
        return [part for part in found if part["ms"] > 0]

    def _slowest(self, name, part, which):
        if isinstance(which, slice):
            which = np.ones(len(self.table), bool)
        sums = self.per_rank(self.parts[:, part], which)
        rank = int(sums.argmax())
        on = which & (self.rank == rank)
        shares = np.bincount(self.table[on], weights=self.parts[on, part], minlength=len(self.names))
        order = [int(t) for t in np.argsort(-shares, kind="stable")[:3] if shares[t] > 0]
        return {"name": name, "part": PARTS[part], "ms": float(sums[rank]), "rank": rank,
                "tables": [(self.names[t], float(shares[t] / sums[rank])) for t in order]}


def parse_plan(text, source):
    try:
        return Plan(json.loads(text), source)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{source} is not JSON: {error}") from None


def read_plan(path):
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{path} is not JSON: it is no text") from None
    return parse_plan(text, path)


# The parts that the cost model predicts, and the corresponding stages of a step. Copies of dense gradients between
# ranks are measured as an exchange.
PREDICTED = (("lookup", ("lookup",), ("fwd_compute",)), ("embedding backward", ("embedding backward",), ("bwd_compute",)),
             ("exchanges", ("input_dist", "output_dist", "exchange"), ("fwd_comms", "bwd_comms", "allreduce", "replica_sync")), ("cache", ("cache",), ("prefetch_compute",)), ("dense forward", ("dense forward",), ("dense_forward",)),
             ("dense backward", ("dense backward",), ("dense_backward",)), ("optimizer", ("optimizer",), ("optimizer",)))
UNPREDICTED = ("I/O", "waiting")


def measured(columns, name):
    """The series columns[name], with NaN if it has no meaning: NE, AUC and AUPRC of labels of one class, calibration without positives.
    Files have TorchRec's values there. columns: a dict, or a group of a file, which has the mean label beside the series."""
    values, match = columns[name][()], OF_CLASSES.fullmatch(name)
    ctr = columns.get(name[:match.start(1)] + "ctr") if match else None
    if ctr is None or np.shape(ctr) != np.shape(values):
        return values
    ctr = ctr[()]
    one = (ctr <= ONE_CLASS) | ((ctr >= 1 - ONE_CLASS) if match[1] != "calibration" else False)
    return np.where(one, np.nan, values)


def speed_of(of_starts, of_steps):
    """Samples/s of a run, from /starts/samples_per_s and /train/samples_per_s, as Run.speed() returns it."""
    of_starts, of_steps = of_starts[np.isfinite(of_starts)], of_steps[np.isfinite(of_steps) & (of_steps > 0)]
    if len(of_starts):
        return float(of_starts[-1])
    return float(len(of_steps) / np.sum(1 / of_steps)) if len(of_steps) else math.nan  # the file of an earlier version


class Run:
    """Results of a run. columns: every numeric series of /train, /eval, /metrics, /starts ... by its path. attrs: text and numbers."""

    def __init__(self, handle, source):
        self.source = source
        self.attrs = {name: self._text(value) for name, value in handle.attrs.items()}
        if self.attrs.get("format") != "trshard-run":
            raise Unreadable(f"{source} holds no results of a run: its attribute format is {self.attrs.get('format', 'missing')}")
        self.columns, self.texts = {}, {}
        handle.visititems(self._add)
        for group in ("train", "eval", "ahead", "metrics", "ids", "starts"):
            lengths = {name: len(column) for name, column in self.columns.items() if name.startswith(group + "/")}
            if len(set(lengths.values())) > 1:
                raise Unreadable(f"{source}: the columns of /{group} differ in length: {lengths}")

    def _add(self, name, item):
        if not hasattr(item, "shape") or name.startswith("embeddings/"):  # embeddings of towers may be larger than the memory, and no tool shows them
            return
        if item.dtype.kind in "iuf":
            self.columns[name] = np.atleast_1d(item[()])
        else:
            self.texts[name] = [self._text(value) for value in np.atleast_1d(item[()])]

    @staticmethod
    def _text(value):
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def __getitem__(self, name):
        """The series; empty if the run has none, NaN if it has no meaning."""
        return measured(self.columns, name) if name in self.columns else np.zeros(0)

    def names(self, attribute):
        """A list of names in an attribute, such as stage_names."""
        return str(self.attrs.get(attribute, "")).split(",") if attribute in self.attrs else []

    def plan(self):
        """The plan of the last start, or None."""
        text = self.attrs.get("plan")
        return parse_plan(text, f"the plan in {self.source}") if isinstance(text, str) and text.strip() else None

    def options(self):
        """[(option, value, origin)] in the file's order; the origin is "default" if nobody set the option."""
        return [found[:3] for found in trsoptions.options(str(self.attrs.get("options", "")))]

    def updates(self):
        """[train steps] updates done after each step, as /eval and /metrics count them: step s made update s + 1."""
        return self["train/step"] + 1

    def task_words(self):
        """The prefixes of the metrics' names: an empty one, or with -tasks "<task>_" for each task."""
        return [task + "_" for task in trsoptions.entries(self.option("-tasks") or "") if task] or [""]

    def metrics(self):
        """The names after these prefixes: METRICS, and the run's metrics of groups (-metrics_group) and of retrieval (-eval_recall_at)."""
        found = {match[1] for match in map(OF_GROUPS.search, self.columns) if match}
        return [*METRICS, *sorted(found, key=lambda name: (name.rstrip("0123456789"), len(name), name))]

    def id_tables(self):
        """The tables whose rows are given to ids and taken back (id_map zch, dynamic), in the file's order."""
        return [match[1] for match in map(OF_IDS.fullmatch, self.columns) if match]

    def of_ids(self, table, name):
        """The series of /ids about a table, as numbers with NaN for the age of the youngest row taken if none was, or if the age is not known."""
        values = self[f"ids/{table}_{name}"].astype(float)
        return np.where(values < 0, np.nan, values) if name == "youngest" else values

    def option(self, name):
        return next((value for option, value, _ in self.options() if option == name), None)

    def stage(self, name):
        """[ranks] measured ms per step of a stage; empty if it was not measured."""
        names, measured = self.names("stage_names"), self["stages/measured_ms"]
        return measured[:, names.index(name)] if name in names and measured.ndim == 2 and measured.shape[1] == len(names) else np.zeros(0)

    def stage_rows(self):
        """[(name, measured ms [ranks], predicted ms [ranks] or None)] for a step's stages whose measured or predicted time is not 0."""
        predicted, kinds = self["stages/predicted_ms"], [name.strip() for name in ",".join(self.names("predicted_names")).split(";")[0].split(",")]
        rows = []
        for name, stages, parts in PREDICTED:
            measured = [self.stage(stage) for stage in stages if len(self.stage(stage))]
            found = [predicted[:, kinds.index(part)] for part in parts if part in kinds] if predicted.ndim == 2 and predicted.shape[1] == len(kinds) else []
            if measured:
                rows.append((name, sum(measured), sum(found) if np.any(found) else None))  # 0 without the rates of dense layers
        rows += [(name, self.stage(name), None) for name in UNPREDICTED if len(self.stage(name))]
        return [row for row in rows if row[1].any() or (row[2] is not None and row[2].any())]

    def speed(self):
        """Samples/s of the last start with steps, as that run printed them: samples divided by the time in steps."""
        return speed_of(self["starts/samples_per_s"], self["train/samples_per_s"])

    def start_of(self, step):
        """The index of the start that made these steps (src: /starts/first_step); -1 without /starts."""
        first = self["starts/first_step"]
        return np.searchsorted(first, step, side="right") - 1 if len(first) else np.full(np.shape(step), -1)

    def wall_times(self):
        """[train steps] seconds since 1970 at which each step ended, NaN if unknown.

        The file has each start's time, its duration until the file was last written, and each step's speed. Steps are assumed to follow
        each other directly before that end. Evaluations and checkpoints between them count as if they came before the first step.
        """
        step, speed = self["train/step"], self["train/samples_per_s"]
        times = np.full(len(step), np.nan)
        if not len(speed) or not len(self["starts/time"]):
            return times
        start = self.start_of(step)
        for i, (time, elapsed, batch) in enumerate(zip(self["starts/time"], self["starts/elapsed_s"], self["starts/global_batch"])):
            of = np.flatnonzero(start == i)
            with np.errstate(divide="ignore", invalid="ignore"):
                seconds = np.nan_to_num(batch / speed[of], posinf=0.0)
            after = np.concatenate([np.cumsum(seconds[::-1])[::-1][1:], [0.0]]) if len(of) else seconds
            times[of] = np.maximum(time, time + elapsed - after)
        return times

    def times_at(self, updates):
        """Wall times at which these numbers of updates were done."""
        step, times = self["train/step"], self.wall_times()
        if not len(times):
            return np.full(len(updates), np.nan)
        return times[np.clip(np.searchsorted(step, np.asarray(updates) - 1), 0, len(step) - 1)]


def read_run(path):
    import trsdata  # imported here because of h5py, which a plan does not need

    try:
        handle = trsdata.opened(path)
    except OSError as error:
        raise Unreadable(error) from None
    try:
        with handle:
            return Run(handle, path)
    except (OSError, KeyError, RuntimeError) as error:
        raise Unreadable(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def read_any(path):
    """A Plan or a Run, depending on the file's first bytes."""
    try:
        with open(path, "rb") as handle:
            is_hdf5 = handle.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}") from None
    return read_run(path) if is_hdf5 else read_plan(path)


# --- numbers in readable form ---

BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "bytes"))
TIMES = ((1e3, "s"), (1.0, "ms"), (1e-3, "µs"), (1e-6, "ns"))  # factors of milliseconds


def unit(largest, units):
    """(divisor, name) of the largest unit that is not larger than the value."""
    return next(((size, name) for size, name in units if largest >= size), units[-1])


def with_unit(value, units):
    size, name = unit(abs(value), units) if value else next(u for u in units if u[0] == 1.0)
    number = value / size
    return f"{number:.0f} {name}" if number == int(number) and abs(number) < 1e4 else f"{number:.3g} {name}" if abs(number) < 1000 else f"{number:.0f} {name}"


def bytes_text(value):
    return with_unit(value, BYTES)


def ms_text(value):
    return with_unit(value, TIMES)


def percent_text(share):
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def count_text(value):
    """1.2M for 1234567."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{name}"
    return f"{value:.0f}"


def counted(n, word, ending="s"):
    """1 table, 2,000 tables."""
    return f"{n:,} {word}{'' if n == 1 else ending}"


def ranks_text(ranks, world):
    """"0-7", "3", "0, 4, 8", "all"."""
    ranks = [int(r) for r in ranks]
    if len(ranks) == world > 1:
        return "all"
    runs = []
    for r in ranks:
        if runs and runs[-1][1] == r - 1:
            runs[-1][1] = r
        else:
            runs.append([r, r])
    words = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(words[:4]) + (f" ... ({len(ranks)} ranks)" if len(words) > 4 else "")
