# SPDX-License-Identifier: BSD-3-Clause
"""One HTML page without a network, for report.py: sections, tables that sort at a click, and pictures whose curves show
their numbers under the pointer. A watched page (trswatch.py) also replaces its sections when they change."""
import base64
import datetime
import html
import io
import json
import zlib

import matplotlib
import numpy as np

import trsfigures

STYLE = """
:root { color-scheme: light dark; --ink: #222; --faint: #555; --paper: #fff; --card: #f3f5f8; --head: #e9edf2; --line: #ddd; --good: #00714f; --bad: #a00000; --bar: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e2e4e8; --faint: #a3a8b0; --paper: #161616; --card: #242424; --head: #2d2d2d; --line: #404040; --good: #4fd1a5; --bad: #ff8a80; --bar: #56b4e9; }
  .drawn img, .tip i { filter: invert(.914) hue-rotate(180deg); } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1400px; margin: 0 auto; padding: 0 1.2em 3em; }
h1 { font-size: 1.5em; margin: .9em 0 0; overflow-wrap: anywhere; } h2 { font-size: 1.2em; margin: 1.8em 0 .4em; border-bottom: 1px solid var(--line); }
a { color: var(--bar); } nav a { margin-right: 1.2em; white-space: nowrap; } img { max-width: 100%; height: auto; display: block; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(15em, 1fr)); gap: .6em; margin: .8em 0; }
dl div { background: var(--card); border-radius: 6px; padding: .45em .7em; } dt { color: var(--faint); font-size: .85em; } dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
dl .wide { grid-column: span 2; } .picture { overflow-x: auto; margin: .6em 0; } .picture.wide .drawn { min-width: 1100px; } .drawn { position: relative; width: fit-content; }
.scroll { overflow: auto; max-height: 34em; width: fit-content; max-width: 100%; border: 1px solid var(--line); margin: .5em 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9em; }
th, td { padding: .25em .8em; text-align: left; border-bottom: 1px solid var(--line); max-width: 36em; }
td { overflow-wrap: break-word; } .n { text-align: right; } td.n { white-space: nowrap; } thead th { position: sticky; top: 0; background: var(--head); vertical-align: bottom; }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: inherit; }
th[aria-sort=ascending] button::after { content: " \\25b2"; } th[aria-sort=descending] button::after { content: " \\25bc"; }
.tip { position: absolute; pointer-events: none; background: var(--paper); border: 1px solid var(--line); border-radius: 6px; padding: .3em .6em; font-size: .85em; white-space: nowrap;
  font-variant-numeric: tabular-nums; box-shadow: 0 2px 8px #0004; z-index: 2; } .tip i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .45em; }
.at { position: absolute; pointer-events: none; width: 0; border-left: 1px solid #888; } .dot { position: absolute; pointer-events: none; width: 7px; height: 7px; margin: -4px 0 0 -4px; border-radius: 50%; border: 1px solid #fff; }
progress { width: 100%; accent-color: var(--bar); } pre { background: var(--card); padding: .6em .8em; overflow: auto; max-height: 24em; font-size: .85em; border-radius: 6px; }
.good { color: var(--good); } .bad { color: var(--bad); } footer, .small { color: var(--faint); font-size: .85em; }
"""
# Sorting, the numbers under the pointer and the page's refreshing. A refreshed section loses nothing that the reader did:
# its tables are sorted again as they were, and while the pointer is on a picture, nothing is replaced.
SCRIPT = """
"use strict";
var sorted = {};
try { sorted = JSON.parse(sessionStorage.getItem("sorted" + location.pathname)) || {}; } catch (error) { }
function sortTable(table, column, down) {
  var body = table.tBodies[0], heads = table.tHead.rows[0].cells;
  Array.from(heads).forEach(function (head) { head.removeAttribute("aria-sort"); });
  heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  Array.from(body.rows).map(function (row) {
    var cell = row.cells[column], key = cell.dataset.value;
    return [key === undefined ? cell.textContent : parseFloat(key), row];
  }).sort(function (a, b) {
    var order = typeof a[0] === "number" && typeof b[0] === "number" ? a[0] - b[0] : String(a[0]).localeCompare(String(b[0]));
    return down ? -order : order;
  }).forEach(function (pair) { body.appendChild(pair[1]); });
}
function prepareTable(table) {
  Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
    head.querySelector("button").addEventListener("click", function () {
      var before = head.getAttribute("aria-sort"), down = before ? before === "ascending" : head.className === "n";
      sortTable(table, column, down);
      sorted[table.id] = [column, down];
      try { sessionStorage.setItem("sorted" + location.pathname, JSON.stringify(sorted)); } catch (error) { }
    });
  });
  var known = sorted[table.id];
  if (known && known[0] < table.tHead.rows[0].cells.length) sortTable(table, known[0], known[1]);
}
function numberText(value) {
  var size = Math.abs(value);
  return size >= 1e5 ? Math.round(value).toLocaleString("en") : Number.isInteger(value) ? String(value) : size && size < 1e-4 ? value.toExponential(3) : String(parseFloat(value.toPrecision(5)));
}
function part(limits, log, value) {
  if (log) { limits = limits.map(Math.log); value = Math.log(value); }
  return (value - limits[0]) / (limits[1] - limits[0]);
}
function nearest(xs, x) {
  var low = 0, high = xs.length - 1;
  while (high - low > 1) { var middle = low + high >> 1; if (xs[middle] < x) low = middle; else high = middle; }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
function add(parent, kind, style) {
  var made = document.createElement(kind === "i" || kind === "b" ? kind : "div");
  made.className = kind;
  Object.assign(made.style, style);
  parent.appendChild(made);
  return made;
}
function preparePicture(drawn) {
  var panels = JSON.parse(drawn.querySelector("script").textContent), image = drawn.querySelector("img"), over = [];
  function clear() { over.forEach(function (one) { one.remove(); }); over = []; }
  drawn.addEventListener("pointerleave", clear);
  drawn.addEventListener("pointermove", function (event) {
    var frame = image.getBoundingClientRect(), px = (event.clientX - frame.left) / frame.width, py = (event.clientY - frame.top) / frame.height;
    clear();
    var panel = panels.find(function (one) { return px >= one.box[0] && px <= one.box[2] && py >= one.box[1] && py <= one.box[3]; });
    if (!panel) return;
    var wide = panel.box[2] - panel.box[0], high = panel.box[3] - panel.box[1], share = (px - panel.box[0]) / wide;
    var limits = panel.log[0] ? panel.x.map(Math.log) : panel.x, x = limits[0] + share * (limits[1] - limits[0]);
    if (panel.log[0]) x = Math.exp(x);
    var found = panel.lines.map(function (line) {
      var i = nearest(line.x, x);
      return {line: line, x: line.x[i], y: line.y[i], left: (panel.box[0] + wide * part(panel.x, panel.log[0], line.x[i])) * frame.width,
              top: (panel.box[3] - high * part(panel.y, panel.log[1], line.y[i])) * frame.height};
    }).filter(function (one) { return one.y !== null; });
    if (!found.length) return;
    var gap = function (one) { return Math.abs(one.left - px * frame.width); };
    var closest = found.reduce(function (a, b) { return gap(b) < gap(a) ? b : a; });
    over.push(add(drawn, "at", {left: closest.left + "px", top: panel.box[1] * frame.height + "px", height: high * frame.height + "px"}));
    var tip = add(drawn, "tip", {});
    over.push(tip);
    add(tip, "b", {}).textContent = panel.word + " " + numberText(closest.x);
    found.sort(function (a, b) { return Math.abs(a.top - py * frame.height) - Math.abs(b.top - py * frame.height); }).slice(0, 12).sort(function (a, b) { return a.top - b.top; }).forEach(function (one) {
      var row = add(tip, "row", {}), far = one.x === closest.x ? "" : " (" + panel.word + " " + numberText(one.x) + ")";
      add(row, "i", {background: one.line.colour});
      row.appendChild(document.createTextNode(one.line.name + ": " + numberText(one.y) + far));
      if (one.top >= panel.box[1] * frame.height - 1 && one.top <= panel.box[3] * frame.height + 1)
        over.push(add(drawn, "dot", {left: one.left + "px", top: one.top + "px", background: one.line.colour}));
    });
    var left = closest.left + 14;
    if (left + tip.offsetWidth > frame.width) left = Math.max(0, closest.left - 14 - tip.offsetWidth);
    Object.assign(tip.style, {left: left + "px", top: Math.max(0, Math.min(py * frame.height - tip.offsetHeight / 2, frame.height - tip.offsetHeight)) + "px"});
  });
}
function ago() {
  document.querySelectorAll("time[data-at]").forEach(function (time) {
    var s = Math.max(0, Math.round(Date.now() / 1000 - time.dataset.at));
    time.textContent = s < 100 ? s + " s ago" : s < 6000 ? Math.round(s / 60) + " min ago" : Math.round(s / 3600) + " h ago";
  });
  document.querySelectorAll("time[data-until]").forEach(function (time) {
    var s = Math.max(0, Math.round(time.dataset.until - Date.now() / 1000)), two = function (n) { return String(n).padStart(2, "0"); };
    time.textContent = Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
  });
}
function prepare(section) {
  section.querySelectorAll("table.sortable").forEach(prepareTable);
  section.querySelectorAll(".drawn").forEach(preparePicture);
  section.querySelectorAll("pre").forEach(function (pre) { pre.scrollTop = pre.scrollHeight; });
  ago();
}
document.querySelectorAll("section").forEach(prepare);
setInterval(ago, 1000);
var every = document.body.dataset.every, told = document.getElementById("told"), asking = false;
function refresh() {
  if (asking || document.querySelector(".drawn:hover") || document.hidden) return;
  if (location.protocol === "file:") { location.reload(); return; }
  asking = true;
  var have = Array.from(document.querySelectorAll("section")).map(function (one) { return one.dataset.hash; });
  fetch("?have=" + have.join(",")).then(function (answer) { return answer.ok ? answer.text() : Promise.reject(answer.status); }).then(function (text) {
    var page = new DOMParser().parseFromString(text, "text/html"), main = document.querySelector("main"), known = {};
    document.querySelectorAll("section").forEach(function (one) { known[one.dataset.hash] = one; });
    var sections = Array.from(page.querySelectorAll("section")).map(function (one) { return "same" in one.dataset ? known[one.dataset.hash] : document.adoptNode(one); });
    Array.from(main.children).forEach(function (one) { if (sections.indexOf(one) < 0) one.remove(); });
    sections.forEach(function (one, i) { if (main.children[i] !== one) { main.insertBefore(one, main.children[i] || null); prepare(one); } });
    document.querySelector("nav").replaceWith(page.querySelector("nav"));
    document.title = page.title;
    told.textContent = "";
  }).catch(function () { told.textContent = "The watcher has ended or cannot be reached. This page shows its last answer."; }).finally(function () { asking = false; });
}
if (every) setInterval(refresh, 1000 * every);
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'"
MOST_SHOWN = 1000  # points of a curve whose numbers the pointer shows


def escape(text):
    """Escapes text for elements and attributes. Control characters, which HTML forbids, become U+FFFD."""
    return html.escape("".join(c if c in "\n\t" or (c.isprintable() and not 0xD800 <= ord(c) < 0xE000) else "\ufffd" for c in str(text)), quote=True)


class Page:
    """Sections of HTML, in order; section() takes escaped text. every: seconds after which a watched page looks for changes; None for a page that stays."""

    def __init__(self, title, below, every=None):
        self.title, self.below, self.every, self.sections = title, below, every, []

    def section(self, name, *parts):
        body = "\n".join(part for part in parts if part)
        if body:
            self.sections.append((name, body))

    def text(self, have=()):
        """The page. Sections whose hash the reader has are left out: they only keep their place."""
        ids = [("".join(c if c.isalnum() else "-" for c in name.lower()), name, body) for name, body in self.sections]
        menu = "\n".join(f'<a href="#{i}">{escape(name)}</a>' for i, name, _ in ids)
        shown = []
        for i, name, body in ids:
            body = f"<h2>{escape(name)}</h2>\n{body}\n"
            code = f"{zlib.crc32(body.encode('utf-8', 'replace')):08x}"
            shown.append(f'<section id="{i}" data-hash="{code}" data-same></section>' if code in have else f'<section id="{i}" data-hash="{code}">{body}</section>')
        refreshed, told = (f' data-every="{self.every:g}"', '<p class="bad" id="told"></p>') if self.every else ("", "")
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(self.title)}</title>
<style>{STYLE}</style>
</head>
<body{refreshed}>
<header><h1>{escape(self.title)}</h1><p class="small">{escape(self.below)}</p>{told}</header>
<nav>{menu}</nav>
<main>{chr(10).join(shown)}</main>
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
    return "<dl>" + "\n".join(f'<div{CLASS_WIDE[len(v) > 26]}><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>' for k, v in shown) + "</dl>"


def note(text):
    return f'<p class="small">{escape(text)}</p>'


def curves_of(figure):
    """The numbers behind the figure's curves: the lines to which gid= gives a name. [{panel's box in the picture, limits, lines}]"""
    panels = []
    for axes in figure.axes:
        lines = []
        for line in axes.get_lines():
            x, y = (np.asarray(values, float) for values in (line.get_xdata(), line.get_ydata()))
            if not line.get_gid() or not len(x):
                continue
            n = max(1, -(-len(x) // MOST_SHOWN))
            keep = np.unique(np.append(np.arange(0, len(x), n), len(x) - 1))
            lines.append({"name": line.get_gid().replace(r"\$", "$"), "colour": matplotlib.colors.to_hex(line.get_color()), "x": [float(f"{v:.9g}") for v in x[keep]],
                          "y": [float(f"{v:.6g}") if np.isfinite(v) else None for v in y[keep]]})
        if lines:
            box = axes.get_position()
            panels.append({"box": [round(v, 5) for v in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)], "word": axes.get_xlabel().split(" (")[0], "x": list(axes.get_xlim()), "y": list(axes.get_ylim()),
                           "log": [axes.get_xscale() == "log", axes.get_yscale() == "log"], "lines": lines})
    return panels


def picture(figure, words, wide=False):
    """A figure as SVG in the page itself; large figures as PNG. The pointer shows the numbers of its curves."""
    matplotlib.rcParams["svg.hashsalt"] = "trshard"
    data, kind = io.BytesIO(), "svg+xml"
    figure.savefig(data, format="svg", metadata={"Date": None})
    if data.tell() > 600000:
        data, kind = io.BytesIO(), "png"
        figure.savefig(data, format="png", dpi=110)
    curves = json.dumps(curves_of(figure), separators=(",", ":")).replace("<", "\\u003c")
    trsfigures.plt.close(figure)
    image = f'<img alt="{escape(words)}" src="data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode("ascii")}">'
    return f'<div class="picture{" wide" if wide else ""}"><div class="drawn">{image}<script type="application/json">{curves}</script></div></div>'


def clock(seconds):
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "seconds") if np.isfinite(seconds) and abs(seconds) < 1e11 else ""


def duration(seconds):
    seconds = int(round(seconds)) if np.isfinite(seconds) else 0
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
