# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of plans, for plot_plan.py and report.py. trscurves.py draws runs. Code for both comes first."""
import sys
import warnings

import matplotlib

if "matplotlib.pyplot" not in sys.modules:  # a program that has it, such as a notebook, keeps its backend
    matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import trsfile
import trsread

# Colour-blind readers can distinguish these colours, too (Okabe and Ito).
TYPES = {"table_wise": "#0072b2", "row_wise": "#d55e00", "table_row_wise": "#e69f00", "column_wise": "#56b4e9",
         "table_column_wise": "#009e73", "grid_shard": "#cc79a7", "data_parallel": "#7f7f7f"}
OTHER_TYPE = "#444444"
# Compute is indigo, exchange green; forward is dark, backward light.
PARTS = {"fwd_compute": ("forward compute", "#332288"), "bwd_compute": ("backward compute", "#9a8fd0"), "fwd_comms": ("forward exchange", "#117733"),
         "bwd_comms": ("backward exchange", "#85c79c"), "prefetch_compute": ("prefetch", "#bbbbbb")}
INK = "#222222"
LIMIT = "#a00000"
MOST_BARS = 64  # ranks with a bar each; more ranks become a heat map
MOST_NUMBERED = 32  # ranks whose bars are wide enough for numbers
warnings.filterwarnings("ignore", message="Glyph .* missing")


def plain(text, most=28):
    """A name as matplotlib should print it: without formulas, not too long, on one line."""
    text = "".join(c if c.isprintable() else "?" for c in str(text))
    text = text if len(text) <= most else text[:most - 8] + "..." + text[-5:]
    return text.replace("$", r"\$")


def save(figure, path, **more):
    """Writes the picture; Unreadable has the reason if that fails."""
    import os

    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        trsfile.picture(figure, path, dpi=110, **more)
    except (OSError, ValueError) as error:
        raise trsread.Unreadable(f"{path} cannot be written: {error}") from None
    finally:
        plt.close(figure)


def clean(axes, grid="y"):
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, alpha=0.25)


def spread(positions, gap):
    """The same positions in order, moved upwards from the lowest as little as needed to be at least a gap apart."""
    order = np.argsort(positions, kind="stable")
    placed = np.array(positions, float)
    for before, after in zip(order, order[1:]):
        placed[after] = max(placed[after], placed[before] + gap)
    return placed


def edge_labels(axes, lines):
    """Horizontal lines [(y, text, colour, style)]. Their texts are at the right edge and do not overlap."""
    low, high = axes.get_ylim()
    height = axes.get_position().height * axes.figure.get_figheight() * 72
    texts = spread([y for y, *_ in lines], (high - low) * 10.5 / height)
    over = max(0.0, texts.max() - high) if len(texts) else 0.0
    for (y, text, colour, style), at in zip(lines, texts):
        if style:
            axes.axhline(y, color=colour, linestyle=style, linewidth=1.1, zorder=3)
        axes.annotate(text, (1.0, y), (8, at - over), xycoords=("axes fraction", "data"), textcoords=("offset points", "data"), color=colour,
                      fontsize=8, va="center", arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 0, "shrinkB": 0})


# --- a panel with a bar for each rank ---


class Order:
    """The order in which ranks are drawn: x of each rank."""

    def __init__(self, plan, by):
        key = {"rank": None, "memory": plan.bytes.sum(axis=1), "time": plan.parts.sum(axis=1)}[by]
        self.ranks = np.arange(plan.world) if key is None else np.argsort(-plan.per_rank(key), kind="stable")
        self.by_rank = by == "rank"
        self.label = "rank" if self.by_rank else f"rank, most {by} first"


def rank_axis(axes, plan, order):
    n = plan.world
    step = 1 if n <= 32 else 4 if n <= 64 else 8
    axes.set_xlim(-0.6, n - 0.4)
    axes.set_xticks(range(0, n, step), [str(r) for r in order.ranks[::step]], fontsize=8 if n <= 32 else 7)
    axes.set_xlabel(order.label, fontsize=9)
    if order.by_rank and plan.hosts > 1:
        for host in range(plan.hosts):
            first = host * plan.local
            if host:
                pod = host % plan.pod == 0 and plan.pod > 1
                axes.axvline(first - 0.5, color="0.35", linewidth=1.4 if pod else 0.7, linestyle="-" if pod else (0, (4, 3)), zorder=2.5)
            if plan.hosts <= 16:
                axes.text(first + min(plan.local, n - first) / 2 - 0.5, 1.0, f"host {host}", transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                          fontsize=7.5, color="0.35")


def segments(plan, values, slow):
    """The stacked segments: [(type, number of the table in slow or 0, [ranks])], by type. Other tables are one segment per type."""
    found = []
    types = np.array(plan.types + [""])[:-1]
    for kind in [t for t in TYPES if t in plan.types] + sorted(set(plan.types) - set(TYPES)):
        named = [t for t in slow if plan.types[t] == kind]
        for t in named:
            found.append((kind, slow.index(t) + 1, plan.per_rank(values, plan.table == t)))
        rest = [t for t in np.flatnonzero(types == kind) if t not in named]
        if rest:
            found.append((kind, 0, plan.per_rank(values, np.isin(plan.table, rest))))
    return [entry for entry in found if entry[2].any()]


def colour_of(kind, number):
    rgb = np.array(matplotlib.colors.to_rgb(TYPES.get(kind, OTHER_TYPE)))
    return tuple(rgb) if number else tuple(1 - 0.45 * (1 - rgb))


def stacked_bars(axes, plan, order, stack, size, numbers=True):
    """Draws bars of stack [(colour, number, [ranks])] in units of size, and sets the limits of y."""
    bottom, x = np.zeros(plan.world), np.arange(plan.world)
    readable = 0.055 * axes.get_ylim()[1]
    for colour, number, row in stack:
        height = row[order.ranks] / size
        axes.bar(x, height, bottom=bottom, color=colour, width=0.86, edgecolor="white", linewidth=0.5 if plan.world <= MOST_NUMBERED else 0.2)
        if numbers and number and plan.world <= MOST_NUMBERED:
            dark = np.dot(matplotlib.colors.to_rgb(colour), (0.299, 0.587, 0.114)) < 0.55
            for i in np.flatnonzero(height > readable):
                axes.text(i, bottom[i] + height[i] / 2, str(number), ha="center", va="center", fontsize=7, color="white" if dark else "black", zorder=5,
                          bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.6})
        bottom = bottom + height


def memory_limits(axes, plan, kind, size, name, order, most):
    """Draws lines of the capacity and of the part that the reservation leaves. Limits far above the bars become text,
    because they would squeeze the bars.
    """
    if plan.capacity is None:
        return []
    column = trsread.KINDS.index(kind)
    capacity, available = plan.capacity[:, column] / size, plan.available[:, column] / size
    if not capacity.any():
        return []
    even = np.ptp(capacity) == 0 and np.ptp(available) == 0
    if capacity.max() > 4 * most:
        least, largest, whole = (trsread.bytes_text(size * value) for value in (available.min(), available.max(), capacity[0]))
        words = f"{least} of {whole}" if even else f"{least} to {largest}"
        axes.set_ylim(0, 1.25 * most)
        axes.text(0.995, 0.98, f"the reservation leaves {words}: above this axis", transform=axes.transAxes, ha="right", va="top", fontsize=8, color=LIMIT)
        return []
    x = np.arange(plan.world)
    axes.set_ylim(0, 1.06 * max(capacity.max(), most))
    for values, style in ((capacity, "-"), (available, "--")):
        axes.stairs(values[order.ranks], np.arange(plan.world + 1) - 0.5, baseline=None, color=LIMIT, linestyle=style, linewidth=1.3, zorder=3)
    low, high = np.minimum(available, capacity)[order.ranks], capacity[order.ranks]
    axes.bar(x, high - low, bottom=low, width=1.0, color="none", edgecolor="#d9b8b8", hatch="////", linewidth=0, zorder=0.5)
    last = order.ranks[-1]
    where = "" if even else f", rank {last}"
    return [(capacity[last], f"capacity {capacity[last]:.3g} {name}{where}", LIMIT, None), (available[last], f"for tables {available[last]:.3g} {name}{where}", LIMIT, None)]


def mean_and_most(values, name):
    most = int(values.argmax())
    return [(values.mean(), f"mean {values.mean():.3g} {name}", INK, (0, (5, 3))), (values[most], f"most {values[most]:.3g} {name}, rank {most}", INK, ":")]


def memory_bars(axes, plan, kind, title, slow, order):
    held = plan.memory(kind)
    size, name = trsread.unit(held.max(), trsread.BYTES)
    stack = [(colour_of(k, number), number, row) for k, number, row in segments(plan, plan.bytes[:, trsread.KINDS.index(kind)], slow)]
    axes.set_ylim(0, 1.06 * held.max() / size)
    lines = memory_limits(axes, plan, kind, size, name, order, held.max() / size)
    stacked_bars(axes, plan, order, stack, size)
    finish_bars(axes, plan, order, f"{title} of tables", name, lines + mean_and_most(held / size, name))


def time_bars(axes, plan, slow, order, by_part):
    time = plan.time()
    size, name = trsread.unit(time.max(), trsread.TIMES)
    if by_part:
        stack = [(colour, 0, plan.per_rank(plan.parts[:, trsread.PARTS.index(part)])) for part, (_, colour) in PARTS.items()]
    else:
        stack = [(colour_of(k, number), number, row) for k, number, row in segments(plan, plan.parts.sum(axis=1), slow)]
    axes.set_ylim(0, 1.06 * time.max() / size)
    stacked_bars(axes, plan, order, [entry for entry in stack if entry[2].any()], size)
    finish_bars(axes, plan, order, "time of a step, " + ("by part" if by_part else "by table"), name, mean_and_most(time / size, name))
    if by_part:
        part_legend(axes, plan)


def part_legend(axes, plan):
    shown = [PARTS[part] for i, part in enumerate(trsread.PARTS) if plan.parts[:, i].any()]
    axes.legend([plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in shown], [name for name, _ in shown], fontsize=8, ncol=len(shown), frameon=False,
                loc="upper center", bbox_to_anchor=(0.5, -0.16), columnspacing=1.2, handlelength=1.2)


def finish_bars(axes, plan, order, title, name, lines):
    rank_axis(axes, plan, order)
    axes.set_title(title, fontsize=10, loc="left", pad=16 if order.by_rank and 1 < plan.hosts <= 16 else 6)
    axes.set_ylabel(name)
    clean(axes)
    edge_labels(axes, lines)


# --- many ranks: a heat map, and the ranks from most to least ---


def grid_of(plan):
    """(rows, columns, label of y, label of x) of the heat map: local ranks by hosts, or rows of ranks if there would be only one line."""
    if plan.hosts > 1 and 2 <= plan.local <= 64 and plan.world == plan.hosts * plan.local:
        return plan.local, plan.hosts, "local rank", "host"
    columns = 1 << int(np.ceil(np.log2(np.sqrt(plan.world * 4))))
    return -(-plan.world // columns), columns, f"rows of {columns} ranks", "rank in its row"


def heat_map(figure, axes, plan, values, size, name, title):
    rows, columns, ylabel, xlabel = grid_of(plan)
    cells = np.full(rows * columns, np.nan)
    cells[:plan.world] = values / size
    by_host = xlabel == "host"
    cells = cells.reshape(columns, rows).T if by_host else cells.reshape(rows, columns)
    low = 0 if np.nanmin(cells) < 0.7 * np.nanmax(cells) else np.nanmin(cells)
    image = axes.imshow(cells, aspect="auto", cmap="cividis", interpolation="nearest", vmin=low, origin="upper")
    most = int(values.argmax())
    y, x = (most % rows, most // rows) if by_host else divmod(most, columns)
    axes.plot(x, y, marker="o", markersize=8, markerfacecolor="none", markeredgecolor="#ff2a00", markeredgewidth=1.8)
    for host in range(plan.pod, columns, plan.pod) if by_host and plan.pod > 1 else ():
        axes.axvline(host - 0.5, color="white", linewidth=1)
    if rows <= 16:
        axes.set_yticks(range(rows))
    axes.set_ylabel(ylabel)
    axes.set_xlabel(f"{xlabel}   (circle: rank {most}, which has most)", fontsize=9)
    axes.set_title(title, fontsize=10, loc="left")
    figure.colorbar(image, ax=axes, label=name + (f", from {low:.3g} on" if low > 0 else ""), pad=0.015, fraction=0.05)


def profile(axes, plan, stack, size, name, title, kind=None):
    """Areas by type over the ranks, from most to least, with mean and limits."""
    total = sum(row for _, row in stack)
    order = np.argsort(-total, kind="stable")
    x = np.arange(plan.world + 1)
    bottom = np.zeros(plan.world + 1)
    for colour, row in stack:
        top = bottom + np.append(row[order], row[order[-1]]) / size
        axes.fill_between(x, bottom, top, step="post", color=colour, linewidth=0)
        bottom = top
    most = total.max() / size
    axes.set_ylim(0, 1.08 * most)
    lines = []
    if kind:
        by_most = Order(plan, "rank")
        by_most.ranks = order
        lines = memory_limits(axes, plan, kind, size, name, by_most, most)
    axes.set_xlim(0, plan.world)
    axes.set_xlabel("ranks, most first", fontsize=9)
    axes.set_ylabel(name)
    axes.set_title(title, fontsize=10, loc="left")
    clean(axes)
    edge_labels(axes, lines + mean_and_most(total / size, name))


# --- the slowest tables, and the parts of the critical path ---


def slowest_tables(axes, plan, slow):
    """The tables that take most of a rank's time, numbered as in the bars."""
    time = plan.most_of_table(plan.parts.sum(axis=1))
    value, units, what = (time, trsread.TIMES, "time") if time.any() else (plan.most_of_table(plan.bytes.sum(axis=1)), trsread.BYTES, "memory")
    held = plan.of_table(plan.bytes.sum(axis=1))
    size, name = trsread.unit(value[slow].max(), units)
    y = np.arange(len(slow))
    axes.barh(y, value[slow] / size, color=[colour_of(plan.types[t], 1) for t in slow], height=0.72)
    axes.set_yticks(y, [f"{plain(plan.names[t])}  {i + 1}" for i, t in enumerate(slow)], fontsize=8)
    axes.set_ylim(max(len(slow), 5) - 0.4, -0.6)
    for i, t in enumerate(slow):
        words = f"{trsread.count_text(plan.rows[t])} x {plan.dims[t]}, {trsread.bytes_text(held[t])}, {plan.types[t]}, " + place_text(plan, t)
        axes.annotate(words, (value[t] / size, i), (4, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK)
    axes.set_xlim(0, 2.1 * value[slow].max() / size)
    axes.set_xlabel(f"{what} on the rank where the table takes most, {name}", fontsize=9)
    axes.set_title("the slowest table" + ("s" if len(slow) > 1 else "") + (f", {len(slow)} of {len(plan.names)}" if len(plan.names) > len(slow) else ""),
                   fontsize=10, loc="left")
    clean(axes, "x")


def place_text(plan, t):
    text = trsread.ranks_text(plan.ranks_of(t), plan.world)
    return "all ranks" if text == "all" else ("ranks " if len(plan.ranks_of(t)) > 1 else "rank ") + (text if len(text) < 20 else text.split(",")[0] + " ...")


def label_bar(axes, y, left, width, total, part, words):
    """Writes words beside a bar or in it, where most room is, and as many words as fit."""
    room = {"right": total - left - width, "left": left, "in": width}
    side = max(room, key=room.get)
    letters = room[side] / total * axes.get_position().width * axes.figure.get_figwidth() * 72 / (7.5 * 0.56)
    while len(words) > 1 and len(", ".join(words)) > letters:
        words = words[:-1]
    text = words[0] + (": " + ", ".join(words[1:]) if words[1:] else "")
    dark = side == "in" and part["part"] in ("fwd_compute", "fwd_comms")
    x, shift, align = {"right": (left + width, 4, "left"), "left": (left, -4, "right"), "in": (left + width / 2, 0, "center")}[side]
    axes.annotate(text, (x, y), (shift, 0), textcoords="offset points", va="center", ha=align, fontsize=7.5, color="white" if dark else INK)


def critical_path(axes, plan, most=9):
    """The parts of the critical path one after the other, each with its slowest rank and this rank's tables."""
    parts = plan.critical_parts() or []
    if len(parts) > most:
        kept = sorted(sorted(range(len(parts)), key=lambda i: -parts[i]["ms"])[:most - 1])
        rest = sum(part["ms"] for i, part in enumerate(parts) if i not in kept)
        parts = [parts[i] for i in kept] + [{"name": f"{len(parts) - len(kept)} smaller exchanges", "part": "prefetch_compute", "ms": rest, "rank": None, "tables": []}]
    total = sum(part["ms"] for part in parts)
    size, name = trsread.unit(total, trsread.TIMES)
    left = 0.0
    for i, part in enumerate(parts):
        width = part["ms"] / size
        axes.barh(i, width, left=left, color=PARTS[part["part"]][1], height=0.72)
        words = [f"{width:.3g} {name}" + ("" if part["rank"] is None else f", rank {part['rank']}")] + [f"{plain(n, 20)} {100 * s:.0f} %" for n, s in part["tables"][:2] if s >= 0.01]
        label_bar(axes, i, left, width, total / size, part, words)
        left += width
    axes.set_yticks(range(len(parts)), [part["name"] for part in parts], fontsize=8)
    axes.set_ylim(max(len(parts), 4) - 0.4, -0.6)
    axes.set_xlim(0, 1.02 * total / size)
    axes.set_xlabel(f"{name}; each part is that of its slowest rank, named with its slowest tables", fontsize=9)
    axes.set_title(f"critical path: {trsread.ms_text(plan.critical_path)}", fontsize=10, loc="left")
    clean(axes, "x")


# --- the whole picture ---


def memory_kinds(plan):
    """[(kind, title)] of the memories that the tables use."""
    return [(kind, title) for kind, title in (("hbm", "device memory"), ("ddr", "host memory")) if plan.memory(kind).any()]


def type_legend(figure, plan, slow):
    """The sharding types at the top. The light colour is all tables except the slowest."""
    shown = [kind for kind in TYPES if kind in plan.types] + sorted(set(plan.types) - set(TYPES))
    handles = [plt.Rectangle((0, 0), 1, 1, color=TYPES.get(kind, OTHER_TYPE)) for kind in shown]
    labels = [f"{kind} ({plan.types.count(kind)})" for kind in shown]
    if len(plan.names) > len(slow):
        handles.append(tuple(plt.Rectangle((0, 0), 1, 1, color=colour_of(kind, 0)) for kind in shown[:2]))
        labels.append(f"light: all but the {len(slow)} slowest tables")
    figure.legend(handles, labels, loc="upper center", ncol=len(shown) + 1, frameon=False, fontsize=9, bbox_to_anchor=(0.5, 1 - 0.45 / figure.get_figheight()),
                  handler_map={tuple: matplotlib.legend_handler.HandlerTuple(ndivide=None)})


def title_of(plan, name):
    """Two lines: the plan's size, and the memory and time of the worst ranks."""
    hosts = f"{plan.hosts} hosts of {plan.local}" if plan.hosts > 1 else "1 host"
    first = f"{plain(name, 60)}: {trsread.counted(len(plan.names), 'table')} on {trsread.counted(plan.world, 'rank')} ({hosts})"
    words = [f"critical path {trsread.ms_text(plan.critical_path)}"]
    for kind, title in memory_kinds(plan):
        fullest, share = plan.fullest(kind)
        words.append(f"{title} of rank {fullest}: {trsread.bytes_text(plan.memory(kind)[fullest])}" + (f", {trsread.percent_text(share)} of what is left for tables" if share else ""))
    idle = plan.world - len(np.unique(plan.rank))
    if idle:
        words.append(f"{trsread.counted(idle, 'rank')} without a table")
    return first, "; ".join(words)


def bar_panels(plan, slow, order):
    panels = [lambda axes, kind=kind, title=title: memory_bars(axes, plan, kind, title, slow, order) for kind, title in memory_kinds(plan)]
    if plan.time().any():
        panels += [lambda axes, by_part=by_part: time_bars(axes, plan, slow, order, by_part) for by_part in (False, True)]
    return panels


def figure_of_plan(plan, name, order="rank", top=10):
    """The picture of a plan: one bar per rank up to 64 ranks, heat maps for more."""
    slow = plan.slowest(top)
    if not slow:
        raise trsread.Unreadable(f"{plan.source}: the plan tells neither memory nor time of any table")
    figure = many_ranks(plan, slow) if plan.world > MOST_BARS else few_ranks(plan, slow, Order(plan, order))
    first, second = title_of(plan, name)
    figure.text(0.5, 1 - 0.12 / figure.get_figheight(), first, ha="center", va="top", fontsize=12, weight="bold")
    figure.text(0.5, 1 - 0.33 / figure.get_figheight(), second, ha="center", va="top", fontsize=9.5)
    type_legend(figure, plan, slow)
    return figure


def few_ranks(plan, slow, order):
    """A column of panels with one bar per rank; beside it the slowest tables and the critical path."""
    panels = bar_panels(plan, slow, order)
    n = max(len(panels), 2)
    figure = plt.figure(figsize=(17, 1.2 + 3.1 * n))
    height = figure.get_figheight()
    grid = figure.add_gridspec(1, 2, width_ratios=(1.35, 1), left=0.04, right=0.99, top=1 - 1.15 / height, bottom=0.75 / height, wspace=0.5)
    left = grid[0].subgridspec(len(panels), 1, hspace=0.5)
    for i, draw in enumerate(panels):
        draw(figure.add_subplot(left[i]))
    parts = plan.critical_parts() if plan.time().any() else None
    right = grid[1].subgridspec(2 if parts else 1, 1, hspace=0.3)
    slowest_tables(figure.add_subplot(right[0]), plan, slow)
    if parts:
        critical_path(figure.add_subplot(right[1]), plan)
    return figure


def many_ranks(plan, slow):
    """A row for each memory and one for the time, each a heat map and the ranks from most to least. The tables and the critical path are below."""
    kinds, time = memory_kinds(plan), plan.time()
    parts = plan.critical_parts() if time.any() else None
    n = len(kinds) + bool(time.any()) + 1
    figure = plt.figure(figsize=(17, 1.2 + 3.3 * n))
    height = figure.get_figheight()
    grid = figure.add_gridspec(n, 2, width_ratios=(1.35, 1), left=0.045, right=0.895, top=1 - 1.1 / height, bottom=0.55 / height, wspace=0.16, hspace=0.42)
    rows = [(f"{title} of tables", plan.memory(kind), trsread.BYTES, plan.bytes[:, trsread.KINDS.index(kind)], kind) for kind, title in kinds]
    if time.any():
        rows.append(("time of a step", time, trsread.TIMES, plan.parts.sum(axis=1), None))
    for i, (title, values, units, of_shards, kind) in enumerate(rows):
        size, name = trsread.unit(values.max(), units)
        heat_map(figure, figure.add_subplot(grid[i, 0]), plan, values, size, name, title)
        stack = [(colour_of(k, number), row) for k, number, row in segments(plan, of_shards, slow)]
        profile(figure.add_subplot(grid[i, 1]), plan, stack, size, name, f"{title}, by sharding type", kind)
    last = figure.add_gridspec(1, 2, width_ratios=(1, 1), left=0.105, right=0.985, top=2.9 / height, bottom=0.5 / height, wspace=0.34)
    slowest_tables(figure.add_subplot(last[0] if parts else last[:]), plan, slow)
    if parts:
        critical_path(figure.add_subplot(last[1]), plan)
    return figure
