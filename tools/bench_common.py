# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the benchmarks of this folder: turns, medians, other programs' processor time, one CSV, one table, one picture.

Contestants run in turn, round after round, so that a slow minute of the machine affects all of them. A window is one run of one contestant.
If other programs used more than the allowed share of the processors, the window is discarded and repeated. If no repetition is better, the
least disturbed window counts, and its verdict mentions this. Each figure of each window goes to the CSV at once, also of discarded windows,
so --resume can continue an interrupted run. Medians are over rounds. A goal compares two medians, or one median and a number.
"""
import csv
import dataclasses
import datetime
import os
import shutil
import statistics
import subprocess
import sys
import time

FOLDER = "results"  # folder for tables and pictures; git ignores it in a clone
FIELDS = ["case", "contestant", "round", "figure", "value", "foreign", "kept"]
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Failed(Exception):
    """A contestant's program failed; the text has the reason."""


class TimeIsUp(Failed):
    """The time limit was exceeded."""


def with_folder(path):
    """Creates the folder of a file that will be written, and returns the file's path."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return path


def add_options(parser, name, rounds=3, minutes=None):
    group = parser.add_argument_group("measuring")
    group.add_argument("--rounds", type=int, default=rounds, help="turns of each contestant, of which medians count (default: %(default)s)")
    group.add_argument("--minutes", type=float, default=minutes, help="start no window after this many minutes (default: %(default)s)")
    group.add_argument("--foreign", type=float, default=0.03, help="share of foreign processor time that a window may have (default: %(default)s)")
    group.add_argument("--tries", type=int, default=3, help="windows at most for one sample (default: %(default)s)")
    group.add_argument("--csv", default=f"{FOLDER}/{name}.csv", help="all samples (default: %(default)s)")
    group.add_argument("--plot", default=f"{FOLDER}/{name}.png", help="the picture; '' for none (default: %(default)s)")
    group.add_argument("--resume", action="store_true", help="keep the samples of --csv and take only those that are missing")


def peer_python(path):
    """The peer's python. None, with a printed note, if there is none: the peer's rows are then skipped."""
    if path and path != "none" and shutil.which(path):
        return path
    print(f"# no peer: {path or 'none'} is no program; its rows are left out", file=sys.stderr)
    return None


def find_binary(path, name):
    """A bench program: in a build folder, where it is built if it is missing; or beside the given file; or the given file itself."""
    if os.path.isdir(path):
        binary = os.path.join(path, "regression", "bench", name)
        if not os.path.exists(binary):
            subprocess.run(["cmake", "--build", path, "--target", name], check=True, stdout=subprocess.DEVNULL)
        return os.path.abspath(binary)
    return os.path.abspath(path if os.path.basename(path) == name else os.path.join(os.path.dirname(path), name))


def mpirun(ranks, threads=1):
    """Binds ranks to cores if there are enough cores; otherwise ranks share cores."""
    if ranks * threads > (os.cpu_count() or 1):
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks)]
    return ["mpirun", "--bind-to", "core"] + (["--map-by", f"slot:PE={threads}"] if threads > 1 else []) + ["-n", str(ranks)]


def threads_environment(threads):
    return {**MPI_AS_ROOT, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def output_of(command, environment=None, tries=1, timeout=None, folder=None):
    """stdout of a command, which is tried up to `tries` times, because gloo's threads sometimes abort a finished TorchRec run."""
    for _ in range(tries):
        try:
            result = subprocess.run(command, env={**os.environ, **(environment or {})}, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, check=False, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeIsUp(f"not done in {timeout:g} s: {' '.join(command)}") from error
        except OSError as error:
            raise Failed(f"{command[0]}: {error}") from error
        if result.returncode == 0:
            return result.stdout
    said = (result.stderr or result.stdout).strip().splitlines()
    raise Failed("\n".join([f"exit code {result.returncode} of {' '.join(command)}", *said[:3], *(["..."] + said[-5:] if len(said) > 8 else said[3:])]))


def processor_seconds():
    """(seconds of all processors, their busy part, the part of this program's children)"""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = [int(x) / os.sysconf("SC_CLK_TCK") for x in stat.readline().split()[1:9]]
    mine = os.times()
    return sum(fields), sum(fields) - fields[3] - fields[4], mine.user + mine.system + mine.children_user + mine.children_system


def window(contestant, more_seconds=lambda: 0.0):
    """The contestant's result, and the share of the processors' time that other programs used meanwhile, including stolen time.
    more_seconds: returns the time of the contestant's processes that are not this program's children.
    """
    before, more = processor_seconds(), more_seconds()
    figures = contestant()
    total, busy, mine = (after - b for after, b in zip(processor_seconds(), before))
    mine += more_seconds() - more
    return figures, max(0.0, busy - mine) / max(total, 1e-9)


class Samples:
    """(case, contestant) -> figures of each round, in memory and in the CSV."""

    def __init__(self, path, resume=False):
        self.path, self.kept = path, {}
        if resume and os.path.exists(path):
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(line for line in file if not line.startswith("#")):
                    if row["kept"] != "thrown":
                        self._keep(row["case"], row["contestant"], int(row["round"]), row["figure"], float(row["value"]), float(row["foreign"]))
            self.file = open(path, "a", newline="", encoding="utf-8")
        else:
            self.file = open(with_folder(path), "w", newline="", encoding="utf-8")
            self.file.write(f"# {machine()}\n{','.join(FIELDS)}\n")

    def _keep(self, case, contestant, turn, figure, value, foreign):
        self.kept.setdefault((case, contestant), {}).setdefault(turn, {})[figure] = (value, foreign)

    def have(self, case, contestant, turn):
        return turn in self.kept.get((case, contestant), {})

    def add(self, case, contestant, turn, figures, foreign, kept):
        writer = csv.writer(self.file)
        for figure, value in figures.items():
            writer.writerow([case, contestant, turn, figure, f"{value:.6g}", f"{foreign:.3f}", kept])
            if kept != "thrown":
                self._keep(case, contestant, turn, figure, value, foreign)
        self.file.flush()

    def values(self, case, contestant, figure):
        return [figures[figure][0] for figures in self.kept.get((case, contestant), {}).values() if figure in figures]

    def median(self, case, contestant, figure):
        """None if there is no sample."""
        values = self.values(case, contestant, figure)
        return statistics.median(values) if values else None

    def foreign(self, case, contestant):
        """The largest share of other programs in the windows that count."""
        return max((share for figures in self.kept.get((case, contestant), {}).values() for _, share in figures.values()), default=0.0)

    def figures(self, case, contestant):
        return list(dict.fromkeys(name for figures in self.kept.get((case, contestant), {}).values() for name in figures))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), os.uname().machine)
    return f"{datetime.datetime.now().isoformat(timespec='seconds')}, {os.cpu_count()} processors, {model}, load {os.getloadavg()[0]:.2f}"


class Suite:
    """Runs contestants in turn within the options' limits. more_seconds: see window()."""

    def __init__(self, options, more_seconds=lambda: 0.0):
        self.more_seconds = more_seconds
        self.options, self.samples = options, Samples(options.csv, options.resume)
        self.end = time.monotonic() + 60 * options.minutes if options.minutes else None
        self.failed, self.thrown, self.cut = {}, 0, False
        print(f"# {machine()}", file=sys.stderr)
        if os.getloadavg()[0] > 0.5:
            print(f"# WARNING: this machine is busy (load {os.getloadavg()[0]:.1f})", file=sys.stderr)

    def spent(self):
        if self.end is not None and time.monotonic() > self.end:
            self.cut = True
        return self.cut

    def sample(self, case, name, turn, contestant):
        """Takes one sample of a contestant, unless there is one, the time is over or the contestant failed before."""
        if self.samples.have(case, name, turn) or (case, name) in self.failed or self.spent():
            return
        tries = []
        while True:
            try:
                figures, foreign = window(contestant, self.more_seconds)
            except Failed as error:
                self.failed[case, name] = str(error)
                print(f"# {case}, {name} failed: {error}", file=sys.stderr)
                return
            tries.append((foreign, figures))
            if foreign <= self.options.foreign or len(tries) >= self.options.tries or self.spent():
                break
        best = min(tries, key=lambda pair: pair[0])
        for pair in tries:
            kept = "thrown" if pair is not best else "yes" if best[0] <= self.options.foreign else "disturbed"
            self.samples.add(case, name, turn, pair[1], pair[0], kept)
        self.thrown += len(tries) - 1

    def rounds(self, cases):
        """cases: case -> {name: contestant}. Runs round after round over all cases, so that each case has results when the
        time limit ends the run.
        """
        for turn in range(self.options.rounds):
            for case, contestants in cases.items():
                for name, contestant in contestants.items():
                    self.sample(case, name, turn, contestant)

    def finish(self, goals, title):
        """Prints the table and draws the picture. Returns 0, or 1 if a contestant failed."""
        rows = judge(goals, self.samples, self.options.foreign)
        print_table(rows)
        if self.thrown:
            print(f"# {self.thrown} windows thrown away: other programs used more than {self.options.foreign:.0%} of the processors", file=sys.stderr)
        if self.cut:
            print(f"# cut off after {self.options.minutes:g} minutes; --resume goes on", file=sys.stderr)
        if self.options.plot and rows:
            draw(rows, self.options.plot, title)
        return 1 if self.failed else 0


@dataclasses.dataclass
class Goal:
    """Compares a contestant's figure with another contestant's figure or a number. Without either the figure is only shown."""
    what: str  # first column of the table
    figure: tuple  # (case, contestant, figure); of several in a list the best counts
    against: object = None  # the same, or a number
    goal: float = None  # smallest ratio, or with at_most the largest; None: shown without a verdict
    at_most: bool = False
    scale: float = 1.0  # factor of the reference: 2 for "two ranks against one"
    of: str = ""  # text: the name of the reference

    @property
    def name(self):
        """Name of the judged figure."""
        return (self.figure if isinstance(self.figure, tuple) else self.figure[0])[2]

    def side(self, samples, side):
        """(median, contestant, largest share of other programs, number of rounds)"""
        if isinstance(side, (int, float)):
            return float(side), "", 0.0, 0
        found = []
        for case, contestant, figure in [side] if isinstance(side, tuple) else side or []:
            value = samples.median(case, contestant, figure)
            if value is not None:
                found.append((value, " ".join([contestant, *(word for word in figure.split() if word not in self.name.split())]), samples.foreign(case, contestant), len(samples.values(case, contestant, figure))))
        return max(found, default=None, key=lambda f: f[0])


@dataclasses.dataclass
class Row:
    what: str
    value: float
    of: str
    reference: float
    ratio: float
    goal: float
    at_most: bool
    rounds: int
    foreign: float
    disturbed: bool

    @property
    def met(self):
        if self.goal is None or self.ratio is None:
            return None
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal

    @property
    def of_goal(self):
        """1 if the goal is exactly met, larger if it is exceeded."""
        return self.goal / max(self.ratio, 1e-9) if self.at_most else self.ratio / self.goal


def judge(goals, samples, allowed):
    rows = []
    for goal in goals:
        mine, theirs = goal.side(samples, goal.figure), goal.side(samples, goal.against)
        if mine is None:
            continue
        reference = theirs[0] * goal.scale if theirs else None
        foreign = max(mine[2], theirs[2] if theirs else 0.0)
        of = " ".join(filter(None, [goal.of, theirs[1] if isinstance(goal.against, list) else ""])) if theirs else ""
        rows.append(Row(goal.what, mine[0], of, reference, mine[0] / reference if reference else None, goal.goal, goal.at_most, mine[3], foreign, foreign > allowed))
    return rows


def number(x):
    if x is None:
        return ""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def print_table(rows, file=None):
    table = [["work", "goal", "figure", "compared with", "its figure", "ratio", "rounds", "verdict"]]
    for row in rows:
        verdict = "" if row.goal is None else "not compared" if row.met is None else "met" if row.met else "NOT MET"
        goal = "" if row.goal is None else f"{'<=' if row.at_most else '>='} {row.goal:g}"
        table.append([row.what, goal, number(row.value), row.of, number(row.reference), "" if row.ratio is None else f"{row.ratio:.2f}", str(row.rounds),
                      verdict + (f" (disturbed, {row.foreign:.0%})" if row.disturbed else "")])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        print("  ".join(x.ljust(w) for x, w in zip(line, widths)).rstrip(), file=file or sys.stdout)


def pyplot():
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    return plt


def draw(rows, path, title):
    """Draws one bar per goal, right of 1 if the goal is met. Disturbed measurements are pale."""
    plt = pyplot()
    rows = [row for row in rows if row.met is not None]
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(10, 0.32 * len(rows) + 1.6))
    bars = axes.barh(range(len(rows)), [row.of_goal for row in rows], color=["#009e73" if row.met else "#d55e00" for row in rows])
    for bar, row in zip(bars, rows):
        bar.set_alpha(0.4 if row.disturbed else 1.0)
        axes.annotate(f"{row.ratio:.2f}", (row.of_goal, bar.get_y() + bar.get_height() / 2), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{row.what} / {row.of} {'≤' if row.at_most else '≥'} {row.goal:.3g}" for row in rows], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.margins(x=0.12)
    axes.set_xlim(left=min(0.5, axes.get_xlim()[0]), right=max(2.0, axes.get_xlim()[1]))
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.invert_yaxis()
    figure.supxlabel("times the goal (right of 1: met; numbers are the ratios; pale: disturbed)", fontsize=9)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(with_folder(path), dpi=110)
    plt.close(figure)
