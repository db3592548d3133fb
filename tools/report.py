#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes one HTML page about a run or a plan: summary, curves, stages, memory, plan and configuration.

  report.py run.h5 -o report.html           a run's -output, which contains the plan
  report.py plan.json -o report.html        a -plan_output
  report.py run.h5 --trace trace.json       link a trace that is not at the place of the run's -trace option

The page contains its pictures, and a browser needs no network to show it. A click on a column's head sorts a table.
tensorboard_events.py makes event files for TensorBoard.
"""
import argparse
import base64
import datetime
import html
import io
import os
import sys
import urllib.parse

import trspython

trspython.require("h5py", "matplotlib", "numpy")

import matplotlib
import numpy as np

import trscurves
import trsfigures
import trsfile
import trsread

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 1400px; margin: 0 auto; padding: 0 1.2em 3em; }
h1 { font-size: 1.5em; margin: .9em 0 0; } h2 { font-size: 1.2em; margin: 1.8em 0 .4em; border-bottom: 1px solid #ccc; }
nav a { margin-right: 1.2em; } img { max-width: 100%; height: auto; display: block; margin: .6em 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(15em, 1fr)); gap: .6em; margin: .8em 0; }
dl div { background: #f3f5f8; border-radius: 6px; padding: .45em .7em; } dt { color: #555; font-size: .85em; } dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
dl .wide { grid-column: span 2; } .picture { overflow-x: auto; } .picture.wide img { min-width: 1100px; }
.scroll { overflow: auto; max-height: 34em; width: fit-content; max-width: 100%; border: 1px solid #ddd; margin: .5em 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9em; }
th, td { padding: .25em .8em; text-align: left; border-bottom: 1px solid #eee; max-width: 36em; }
td { overflow-wrap: break-word; } .n { text-align: right; } td.n { white-space: nowrap; } thead th { position: sticky; top: 0; background: #e9edf2; vertical-align: bottom; }
th button { font: inherit; font-weight: 600; background: none; border: 0; padding: 0; cursor: pointer; text-align: inherit; }
th[aria-sort=ascending] button::after { content: " \\25b2"; } th[aria-sort=descending] button::after { content: " \\25bc"; }
footer, .small { color: #555; font-size: .85em; }
"""
SCRIPT = """
document.querySelectorAll("table.sortable").forEach(function (table) {
  table.querySelectorAll("thead th").forEach(function (head, column) {
    head.querySelector("button").addEventListener("click", function () {
      var before = head.getAttribute("aria-sort"), body = table.tBodies[0];
      var down = before ? before === "ascending" : head.className === "n";
      table.querySelectorAll("thead th").forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      Array.from(body.rows).map(function (row) {
        var cell = row.cells[column], key = cell.dataset.value;
        return [key === undefined ? cell.textContent : parseFloat(key), row];
      }).sort(function (a, b) {
        var order = typeof a[0] === "number" && typeof b[0] === "number" ? a[0] - b[0] : String(a[0]).localeCompare(String(b[0]));
        return down ? -order : order;
      }).forEach(function (pair) { body.appendChild(pair[1]); });
    });
  });
});
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def escape(text):
    """Escapes text for elements and attributes. Control characters, which HTML forbids, become U+FFFD."""
    return html.escape("".join(c if c in "\n\t" or (c.isprintable() and not 0xD800 <= ord(c) < 0xE000) else "\ufffd" for c in str(text)), quote=True)


class Page:
    """Sections of HTML, in order; add() takes escaped text."""

    def __init__(self, title, below):
        self.title, self.below, self.sections = title, below, []

    def section(self, name, *parts):
        body = "\n".join(part for part in parts if part)
        if body:
            self.sections.append((name, body))

    def text(self):
        ids = [(name.lower().replace(" ", "-"), name, body) for name, body in self.sections]
        menu = "\n".join(f'<a href="#{i}">{escape(name)}</a>' for i, name, _ in ids)
        body = "\n".join(f'<section id="{i}"><h2>{escape(name)}</h2>\n{text}\n</section>' for i, name, text in ids)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(self.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{escape(self.title)}</h1><p class="small">{escape(self.below)}</p></header>
<nav>{menu}</nav>
{body}
<script>{SCRIPT}</script>
</body>
</html>
"""


class Number:
    """A cell that sorts by a number and shows a text; it is empty if there is no number."""

    def __init__(self, value, text=None):
        self.value, self.text = value, (f"{value:.6g}" if text is None else text) if np.isfinite(value) else ""


CLASS = ("", ' class="n"')  # of cells with text, of cells with numbers
CLASS_WIDE = ("", ' class="wide"')


def cell(value):
    if isinstance(value, Number):
        key = repr(float(value.value)) if np.isfinite(value.value) else "-Infinity"
        return f'<td class="n" data-value="{key}">{escape(value.text)}</td>'
    return f"<td>{escape(value)}</td>"


def table(name, heads, rows):
    """A table that a click on a head sorts. A Number is sorted as a number, all else as text."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col"{CLASS[isinstance(value, Number)]}><button type="button">{escape(h)}</button></th>'
                   for h, value in zip(heads, rows[0]))
    body = "\n".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="sortable" id="table-{name}"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def facts(pairs):
    shown = [(k, str(v)) for k, v in pairs if v not in (None, "")]
    return "<dl>" + "\n".join(f'<div{CLASS_WIDE[len(v) > 34]}><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>' for k, v in shown) + "</dl>"


def note(text):
    return f'<p class="small">{escape(text)}</p>'


def picture(figure, words, wide=False):
    """A figure as SVG in the page itself; large figures as PNG."""
    matplotlib.rcParams["svg.hashsalt"] = "trshard"
    data, kind = io.BytesIO(), "svg+xml"
    figure.savefig(data, format="svg", metadata={"Date": None})
    if data.tell() > 600000:
        data, kind = io.BytesIO(), "png"
        figure.savefig(data, format="png", dpi=110)
    trsfigures.plt.close(figure)
    image = f'<img alt="{escape(words)}" src="data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode("ascii")}">'
    return f'<div class="picture{" wide" if wide else ""}">{image}</div>'


def clock(seconds):
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "seconds") if np.isfinite(seconds) and abs(seconds) < 1e11 else ""


def duration(seconds):
    seconds = int(round(seconds)) if np.isfinite(seconds) else 0
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


# --- a plan ---


def plan_facts(plan):
    pairs = [("tables", len(plan.names)), ("ranks", f"{plan.world} on {trsread.counted(plan.hosts, 'host')}"), ("critical path", trsread.ms_text(plan.critical_path))]
    time = plan.time()
    if time.any():
        pairs.append(("slowest rank", f"{int(time.argmax())}: {trsread.ms_text(time.max())}, mean {trsread.ms_text(time.mean())}"))
    for kind, title in trsfigures.memory_kinds(plan):
        (most, share), column = plan.fullest(kind), trsread.KINDS.index(kind)
        pairs.append((f"{title}, fullest rank", f"{most}: {trsread.bytes_text(plan.memory(kind)[most])}" + (f", {trsread.percent_text(share)} of what is left for tables" if share else "")))
        if plan.capacity is not None:
            pairs.append((f"{title}, its capacity", f"{trsread.bytes_text(plan.capacity[most, column])}, {trsread.bytes_text(plan.available[most, column])} for tables"))
    return pairs


def plan_section(page, plan, name):
    drawn = picture(trsfigures.figure_of_plan(plan, name), f"plan of {trsread.counted(len(plan.names), 'table')} on {trsread.counted(plan.world, 'rank')}", wide=True) if plan.slowest(1) else ""
    page.section("Plan", drawn)
    path = plan.critical_parts()
    if path and plan.critical_path > 0:
        rows = [(p["name"], Number(p["ms"], trsread.ms_text(p["ms"])), Number(100 * p["ms"] / plan.critical_path, f"{100 * p['ms'] / plan.critical_path:.1f} %"),
                 Number(p["rank"], str(p["rank"])), ", ".join(f"{n} ({100 * s:.0f} %)" for n, s in p["tables"])) for p in path]
        page.section("Critical path", note(f"A step's sharded part takes {trsread.ms_text(plan.critical_path)}: of each direction the slowest rank's compute, and the slowest "
                                           "rank's exchange of each kind. What makes one of these ranks faster shortens the step."),
                     table("critical-parts", ("part", "time", "share", "slowest rank", "tables behind it"), rows))
    held, time, most = plan.of_table(plan.bytes.sum(axis=1)), plan.of_table(plan.parts.sum(axis=1)), plan.most_of_table(plan.parts.sum(axis=1))
    rows = [(plan.names[t], plan.types[t], plan.kernels[t], Number(plan.rows[t], f"{plan.rows[t]:,}"), Number(plan.dims[t], str(plan.dims[t])),
             Number(held[t], trsread.bytes_text(held[t])), Number(most[t], trsread.ms_text(most[t])), Number(time[t], trsread.ms_text(time[t])),
             trsread.ranks_text(plan.ranks_of(t), plan.world)) for t in range(len(plan.names))]
    page.section("Tables", table("tables", ("table", "sharding type", "kernel", "rows", "dim", "memory, all ranks", "time, rank with most", "time, all ranks", "ranks"), rows))
    time, memory = plan.time(), [(title, plan.memory(kind)) for kind, title in trsfigures.memory_kinds(plan)]
    shards = np.bincount(plan.rank, minlength=plan.world)
    rows = [(Number(r, str(r)), Number(r // plan.local, str(r // plan.local)), Number(shards[r], str(shards[r])), *(Number(held[r], trsread.bytes_text(held[r])) for _, held in memory),
             Number(time[r], trsread.ms_text(time[r]))) for r in range(plan.world)]
    page.section("Ranks", table("ranks", ("rank", "host", "shards", *(title for title, _ in memory), "time of a step"), rows))


# --- a run ---


def run_facts(run):
    step, loss, speed = run["train/step"], run["train/loss"], run["train/samples_per_s"]
    pairs = [("task", run.option("-task")), ("ranks", run.attrs.get("world_size")), ("hardware", run.attrs.get("hardware")), ("program", run.attrs.get("program")),
             ("run id", run.attrs.get("run_id"))]
    if len(loss):
        pairs += [("steps", f"{int(step[-1]) + 1:,}"), ("loss, last step", f"{loss[-1]:.5f}"), ("speed", f"{run.speed():,.0f} samples/s" if len(speed) else "")]
    named = dict([("loss", "loss")] + [(task + name, f"{what} of {task[:-1]}" if task else what) for task in run.task_words()
                                       for name, what in (("loss", "loss"), ("auc", "AUC"), ("ne", "NE"), ("calibration", "calibration"))])
    pairs += [(f"{what}, last evaluation", f"{run['eval/' + name][-1]:.5f}") for name, what in named.items()
              if len(run["eval/" + name]) and not np.isnan(run["eval/" + name][-1])]
    if len(run["starts/time"]):
        pairs += [("began", clock(run["starts/time"][0])), ("ran for", f"{duration(np.nansum(run['starts/elapsed_s']))}, in {trsread.counted(len(run['starts/time']), 'start')}")]
    if "peak_memory_bytes" in run.attrs:
        pairs.append(("peak memory of a rank", trsread.bytes_text(float(run.attrs["peak_memory_bytes"]))))
    if len(run["predict/samples_per_s"]):
        pairs.append(("predictions", f"{run['predict/samples_per_s'][0]:,.0f} samples/s"))
    pairs += [(f"latency, {p:.0f} %", f"{ms:.4g} ms") for p, ms in zip(run["predict/percentiles"], run["predict/latency_percentiles_ms"])]
    return pairs + [("stopped early", run.attrs.get("stopped_early"))]


def starts_table(run):
    rows = [(Number(i + 1, str(i + 1)), clock(run["starts/time"][i]), *(Number(run["starts/" + name][i], f"{run['starts/' + name][i]:,.0f}")
             for name in ("first_step", "steps", "ranks", "hosts", "global_batch")), Number(run["starts/elapsed_s"][i], duration(run["starts/elapsed_s"][i])),
             run.texts.get("starts/commit", [""] * (i + 1))[i]) for i in range(len(run["starts/time"]))]
    return table("starts", ("start", "began", "from step", "steps", "ranks", "hosts", "global batch", "ran for", "commit"), rows)


def evaluation_table(run):
    names = [name for name in dict.fromkeys(["loss"] + [task + name for task in run.task_words() for name in ("loss", *run.metrics())])
             if len(run["eval/" + name]) and not np.isnan(run["eval/" + name]).all()]
    times = run.times_at(run["eval/step"])
    rows = [(Number(step, f"{step:,.0f}"), clock(times[i]), *(Number(run["eval/" + name][i], f"{run['eval/' + name][i]:.5f}") for name in names))
            for i, step in enumerate(run["eval/step"])]
    return table("evaluations", ("updates", "about", *names), rows)


def ids_table(run):
    """Tables whose rows are given to ids: sums over all starts, and the last numbers of what is in memory."""
    def counted(value):
        return Number(value, f"{value:,.0f}")

    def share(part, whole):
        return Number(100 * part / whole if whole else np.nan, f"{100 * part / whole:.1f} %" if whole else "")

    rows = []
    for name in run.id_tables():
        of = {column: run.of_ids(name, column) for column in ("held", "rows", "lookups", "unknown", "taken", "young", "youngest", "dropped", "bytes")}
        if not len(of["held"]):
            continue
        ages = of["youngest"][np.isfinite(of["youngest"])]
        rows.append((name, counted(of["held"][-1]), counted(of["rows"][-1]), share(of["unknown"].sum(), of["lookups"].sum()), share(of["unknown"][-1], of["lookups"][-1]), counted(of["taken"].sum()),
                     counted(of["young"].sum()), counted(ages.min()) if len(ages) else Number(np.nan), counted(of["dropped"].sum()), Number(of["bytes"][-1], trsread.bytes_text(of["bytes"][-1]))))
    return table("ids", ("table", "rows in use", "rows", "lookups unknown", "in the last interval", "rows taken", "of ids in use", "youngest, batches", "ids dropped at a start", "directory"), rows)


def stages_table(run):
    def words(values):
        return Number(values.mean(), trsread.ms_text(values.mean())), Number(values.max(), trsread.ms_text(values.max())), Number(values.argmax(), str(values.argmax()))

    nothing = Number(np.nan)
    rows = [(name, *words(measured), *(words(predicted)[:2] if predicted is not None else (nothing, nothing))) for name, measured, predicted in run.stage_rows()]
    return table("stages", ("stage of a step", "measured, mean of ranks", "slowest", "slowest rank", "predicted, mean", "predicted, slowest"), rows)


def memory_table(run):
    kinds, predicted = trscurves.memory_rows(run)
    if not kinds:
        return ""
    total = sum(held for _, held in kinds)
    rows = [(Number(r, str(r)), Number(total[r], trsread.bytes_text(total[r])), *(Number(held[r], trsread.bytes_text(held[r])) for _, held in kinds),
             *([Number(predicted[r], trsread.bytes_text(predicted[r]))] if predicted is not None else [])) for r in range(len(total))]
    return table("memory", ("rank", "peak", *(name.replace("_", " ") for name, _ in kinds), *(["predicted, of tables"] if predicted is not None else [])), rows)


def trace_link(run, given, output):
    """A link, relative to the page, to the trace file, if it exists at the place that -trace names, or beside the run."""
    path = given or run.option("-trace")
    if not path:
        return ""
    places = [path, os.path.join(os.path.dirname(os.path.abspath(run.source)), os.path.basename(path))]
    found = next((place for place in places if os.path.isfile(place)), None)
    if not found:
        if given:
            raise trsread.Unreadable(f"--trace {given} is no file")
        return note(f"The run wrote a trace to {path}, which is not there now.")
    link = urllib.parse.quote(os.path.relpath(os.path.abspath(found), os.path.dirname(os.path.abspath(output))))
    return f'<p><a id="trace" href="{escape("./" + link)}">{escape(os.path.basename(found))}</a>: the trace of steps, for ui.perfetto.dev or chrome://tracing.</p>'


def run_page(page, run, args):
    styles = trscurves.styles_of([""])
    curves, costs = trscurves.curve_panels([run], styles), trscurves.cost_panels([run], styles)
    page.section("Summary", facts(run_facts(run)), trace_link(run, args.trace, args.output))
    page.section("Curves", picture(trscurves.compose(curves), "curves over the steps") if curves else "")
    page.section("Evaluations", evaluation_table(run))
    page.section("Rows of ids", ids_table(run))
    page.section("Starts", starts_table(run))
    page.section("Stages and memory", picture(trscurves.compose(costs, 2), "measured and predicted") if costs else "", stages_table(run), memory_table(run))
    plan = run.plan()
    if plan:
        plan_section(page, plan, "the plan" if len(run["starts/time"]) < 2 else "the plan of the last start")
    page.section("Configuration", table("options", ("option", "value", "given by"), run.options()),
                 note(f"with {run.attrs['libraries']}") if "libraries" in run.attrs else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="run.h5 or plan.json")
    parser.add_argument("-o", "--output", default="report.html", metavar="HTML", help="(default: %(default)s)")
    parser.add_argument("--trace", metavar="JSON", help="the run's trace (default: where its -trace was written)")
    args = parser.parse_args()
    trsfile.check(parser, {"--output": args.output}, [args.file])
    try:
        found = trsread.read_any(args.file)
        is_run = isinstance(found, trsread.Run)
        page = Page(f"{'Run' if is_run else 'Plan'} {os.path.basename(args.file)}", f"{os.path.abspath(args.file)}, of {clock(os.path.getmtime(args.file))}")
        if is_run:
            run_page(page, found, args)
        else:
            page.section("Summary", facts(plan_facts(found)))
            plan_section(page, found, os.path.basename(args.file))
        os.makedirs(os.path.dirname(os.path.abspath(args.output)), exist_ok=True)
        with trsfile.whole(args.output) as out:
            out.write(page.text())
    except trsread.Unreadable as error:
        sys.exit(f"report.py: {error}")
    except OSError as error:
        sys.exit(f"report.py: {args.output} cannot be written: {error.strerror or error}")
    print("wrote", args.output)


if __name__ == "__main__":
    trspython.run(main)
