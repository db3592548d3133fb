# SPDX-License-Identifier: BSD-3-Clause
"""Watches runs for report.py --watch: how far a training is, its log, and the server or file that shows the page.

A training replaces its -output as a whole, so a reader always gets a complete file. The log is newer than this file, because
a training prints a line more often than it writes results. So the time left comes from the log's last line, if there is a log.
"""
import collections
import contextlib
import getpass
import glob
import gzip
import http.server
import os
import re
import secrets
import socket
import sys
import threading
import time
import urllib.parse
import zlib

import numpy as np

import trsfile
import trspage
import trsread

PORT = 8642
LOG_BYTES = 64 << 10  # of the end of a log that are read
LOG_LINES = 25  # lines of the log that the page shows
SILENT_S = 300  # without a new line or new results for so long, a training may hang
# A progress line of a training (src/report/progress.c).
STEP = re.compile(r"step (\d+)(?:/(\d+))?  (?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)|[\d:]+)  .*?loss (\S+).*?  ([\d.e+]+) samples/s(?:  ETA ([\d:]+))?")
START = re.compile(r"trshard \d+\.\d+\S* \(.*ranks?\b")
# Lines after which a training has ended, and what they say.
ENDS = ((re.compile(r"trshard: error: (.*)"), "failed: {}"), (re.compile(r"trshard: info: stopped on (request).*"), "stopped; with -resume it goes on from its checkpoint"),
        (re.compile(r"(kept|weights not kept)\b"), "ended"))

Log = collections.namedtuple("Log", "path changed lines")
State = collections.namedtuple("State", "word step total loss speed ends changed")  # ends: clock of the expected end; changed: of the last news


def find_log(path):
    """The log of the run whose results are or will be at the path: "log", *.log or *.out beside it, or the .out of its Slurm job, whose
    name the results' folder has (jobs/train.sbatch). The newest if there are several; None if there is none."""
    folder = os.path.dirname(os.path.abspath(path))
    stem = glob.escape(os.path.splitext(os.path.abspath(path))[0])
    beside = [glob.escape(os.path.join(folder, "log")), stem + ".log", stem + ".out", os.path.join(glob.escape(folder), "*.log"), os.path.join(glob.escape(folder), "*.out")]
    above = [os.path.join(glob.escape(up), glob.escape(os.path.basename(folder)) + end) for up in (os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))) for end in (".out", ".log")]
    found = [name for pattern in beside + above for name in glob.glob(pattern) if os.path.isfile(name)]
    return max(found, key=os.path.getmtime, default=None)


def read_log(path):
    """The end of a log; None if it cannot be read. Of a line that a progress bar has overwritten, the last state counts."""
    try:
        with open(path, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LOG_BYTES))
            words = log.read().decode("utf-8", "replace")
            changed = os.fstat(log.fileno()).st_mtime
    except (OSError, TypeError):
        return None
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in words.split("\n")]
    return Log(path, changed, [line for line in lines[size > LOG_BYTES:] if line.strip()])


def seconds_of(words):
    """The seconds of "1:02:03" or "2:03"."""
    total = 0
    for word in words.split(":"):
        total = 60 * total + int(word)
    return total


def total_steps(run):
    """The step after which the run ends; None if its length is not known, as when it follows a folder of files."""
    steps, epochs = run.option("-steps"), run.option("-epochs")
    per_epoch = int(run.attrs.get("steps_per_epoch", 0))
    of_epochs = int(epochs or 1) * per_epoch if per_epoch and (epochs or not steps) else None
    return min((int(n) for n in (steps, of_epochs) if n), default=None)


def state_of(run, changed, log):
    """What is known about a training, from its results (None before they are there), the time when they changed, and its log (or None)."""
    word, step, total, loss, speed, ends = "starting", 0, None, np.nan, np.nan, None
    if run is not None and len(run["train/step"]):
        step, loss, speed, total = int(run["train/step"][-1]) + 1, run["train/loss"][-1], run.speed(), total_steps(run)
        steps, elapsed = run["starts/steps"], run["starts/elapsed_s"]
        if total and len(steps) and steps[-1] > 0:
            ends = changed + elapsed[-1] / steps[-1] * (total - step)
        word = "ended" if "stopped_early" in run.attrs or (total and step >= total) else "training"
    if log:
        begun = max((i for i, line in enumerate(log.lines) if START.match(line)), default=-1)
        since = log.lines[max(0, begun):]
        match = next(filter(None, map(STEP.match, reversed(since))), None)
        if match and int(match[1]) >= step:
            step, loss, speed = int(match[1]), float(match[4]), float(match[5])
            total = int(match[2]) if match[2] else total
            then = time.mktime(time.strptime(match[3], "%Y-%m-%d %H:%M:%S")) if match[3] else log.changed
            ends = then + seconds_of(match[6]) if match[6] else None
        word = "training" if match else "starting" if begun >= 0 else word
        word = next((words.format(found[1]) for pattern, words in ENDS for found in [next(filter(None, map(pattern.match, since)), None)] if found), word)
    news = max([at for at in (changed, log.changed if log else None) if at], default=None)
    if word in ("training", "starting") and news and time.time() - news > SILENT_S:
        word = f"no news since {trspage.clock(news)}"
    if word != "training":
        ends = None
    return State(word, step, total, loss, speed, ends, news)


def section(page, title, path, run, log):
    """How far a run is, as a section of the page, and the end of its log."""
    changed = os.path.getmtime(path) if os.path.exists(path) else None
    state = state_of(run, changed, log)
    rows = [("state", trspage.escape(state.word)), ("step", f"{state.step:,}" + (f" of {state.total:,}" if state.total else ""))]
    rows += [("time left", f'<time data-until="{state.ends:.0f}">{trspage.duration(max(0, state.ends - time.time()))}</time>'), ("expected end", trspage.clock(state.ends))] if state.ends else []
    rows += [("loss", f"{state.loss:.5f}")] if np.isfinite(state.loss) else []
    rows += [("samples/s", f"{state.speed:,.0f}")] if np.isfinite(state.speed) else []
    for name, at in (("results written", changed), ("last line of the log", log and log.changed)):
        rows += [(name, f'<time data-at="{at:.0f}" title="{trspage.clock(at)}">{trspage.clock(at)}</time>')] if at else []
    kind = ' class="bad"' if state.word.startswith(("failed", "no news")) else ' class="good"' if state.word == "ended" else ""
    body = "<dl>" + "\n".join(f"<div><dt>{name}</dt><dd{kind if name == 'state' else ''}>{words}</dd></div>" for name, words in rows) + "</dl>"
    bar = f'<progress max="{state.total}" value="{min(state.step, state.total)}">{100 * state.step // state.total} %</progress>' if state.total else ""
    waits = "" if changed else trspage.note(f"{path} is not there yet. A training writes it after 5 seconds, at each checkpoint, at its end, and every -output_every seconds.")
    page.section(title, bar, body, waits)
    if log:
        page.section("Log" if title == "Now" else f"Log of {title}", trspage.note(log.path), f"<pre>{trspage.escape(chr(10).join(log.lines[-LOG_LINES:]))}</pre>")
    return state


def signature(paths):
    """Changes whenever one of the files changes."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            stat = os.stat(path)
            found.append((path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET of the page, whose address has a secret word: on a login node, others reach this port, too. There is nothing else to get."""

    def do_GET(self):
        try:
            url = urllib.parse.urlsplit(self.path)
        except ValueError:  # such as http://[/
            url = urllib.parse.urlsplit("")
        if not secrets.compare_digest(url.path.encode("utf-8", "replace"), f"/{self.server.word}/".encode()):
            self.send_error(404)
            return
        have = urllib.parse.parse_qs(url.query).get("have", [""])[0].split(",")
        body = self.server.make(have).encode("utf-8", "replace")
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(body, 4) if packed else body
        self.send_response(200)
        for name, value in (("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"),
                            ("X-Content-Type-Options", "nosniff"), *([("Content-Encoding", "gzip")] if packed else [])):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError, TimeoutError):  # the reader has closed the page
            super().handle()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, make):
        super().__init__(("127.0.0.1", port), Handler)
        self.word, self._make, self._lock = secrets.token_urlsafe(12), make, threading.Lock()

    def make(self, have):
        with self._lock:  # matplotlib and HDF5 serve one thread
            return self._make(have)


def open_server(port, make):
    """A server on this port; without a port on PORT, or on any free one if PORT is taken."""
    for number in (port,) if port is not None else (PORT, 0):
        try:
            return Server(number, make)
        except OSError as error:
            reason = error.strerror or error
    raise trsread.Unreadable(f"--port {port}: {reason}; without --port, any free port is used")


def serve(port, make):
    """Serve make(have) on 127.0.0.1 until Ctrl-C."""
    with open_server(port, make) as server:
        number = server.server_address[1]
        print(f"http://127.0.0.1:{number}/{server.word}/\nFrom another machine: ssh -L {number}:127.0.0.1:{number} {getpass.getuser()}@{socket.getfqdn()}, and the same address there. Ctrl-C ends this.")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)
    return 0


def rewrite(path, every, make):
    """Write make(()) to a file every so many seconds, if it has changed, until Ctrl-C."""
    print(f"writes {path} every {every:g} s. Ctrl-C ends this.")
    sys.stdout.flush()
    before = None
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            text = make(())
            code = zlib.crc32(text.encode("utf-8", "replace"))
            if code != before:
                with trsfile.whole(path) as out:
                    out.write(text)
            before = code
            time.sleep(every)
    return 0
