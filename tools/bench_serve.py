#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures trshard-serve, and TorchRec's quantised model behind FastAPI, on one core with the same client on another core.

    tools/bench_serve.py BUILD [PEER_PYTHON] [--rows 100000] [--rounds 3] [--seconds 4]

BUILD is a build folder with trshard, trshard-serve and regression/bench/bench_serve. PEER_PYTHON is a python with torch, torchrec, fbgemm-gpu-cpu,
fastapi and uvicorn, or none. The models are those of bench_predict.py: 26 tables of dim 64, int8, one id per feature, 13 dense features, and small
(64, 64-1) or large layers (512-256-64, 512-512-256-1). Requests are in binary form and have 1 or 64 samples. The servers run in turn; a number is
the median over rounds. The goal is 5 times the samples per second of the peer.
"""
import contextlib
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bench_common as common
import bench_predict

TOOLS = os.path.dirname(os.path.abspath(__file__))
LOADS = ((1, 1), (1, 16), (64, 1), (64, 4))  # samples of a request, connections
SERVED = re.compile(r"served .*?p50 (\d+) us, p99 (\d+) us.*?; (\d+) samples/s\nanswers +0 failed, 0 wrong")


def on_core(core, words):
    """The words of a command that runs on one of the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[core % len(cores)]), *words]


@contextlib.contextmanager
def running(words):
    """A server on the first core, when it has printed "ready"."""
    process = subprocess.Popen(on_core(0, words), stdout=subprocess.PIPE, text=True, env=dict(os.environ, **common.threads_environment(1)))
    try:
        line = process.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"{' '.join(words)} did not start: {line}")
        yield line
    finally:
        process.terminate()
        process.wait()


def wait_for(port):
    """Wait until a program listens on a port: a framework may be ready before its socket is."""
    for _ in range(1000):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    sys.exit(f"no program listens on port {port}")


def load(build, checkpoint, port, samples, connections, seconds, options):
    """(p50 in us, p99 in us, samples per second)"""
    words = [os.path.join(build, "regression", "bench", "bench_serve"), checkpoint, str(port), str(samples), str(connections), str(seconds), "0", "1000", options]
    return [float(x) for x in SERVED.search(common.output_of(on_core(1, words))).groups()]


def ours(build, checkpoint, seconds):
    options = "-tables_data_type int8"
    with running([os.path.join(build, "trshard-serve"), "-model", checkpoint, "-serve_port", "0", *options.split()]) as line:
        port = int(re.search(r":(\d+)/", line)[1])
        return [load(build, checkpoint, port, *of, seconds, options) for of in LOADS]


def theirs(peer, rows, name, build, checkpoint, seconds):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running([peer, os.path.join(TOOLS, "bench_serve_peer.py"), str(rows), *bench_predict.MODELS[name], str(port)]):
        wait_for(port)
        return [load(build, checkpoint, port, *of, seconds, "-") for of in LOADS]


def main():
    parser = bench_predict.parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="of each load (default: %(default)s)")
    args = parser.parse_args()
    peer, build = common.peer_python(args.peer), os.path.abspath(args.build)
    print(f"{'model':<7}{'samples':>8}{'connections':>12}  {'trshard: p50 us':>16}{'p99 us':>9}{'samples/s':>11}  {'TorchRec: p50 us':>17}{'p99 us':>9}{'samples/s':>11}{'ratio':>7}")
    with tempfile.TemporaryDirectory(prefix="trshard_serve_") as folder:
        bench_predict.prepare(build, folder, args.rows)
        for name in bench_predict.MODELS:
            checkpoint, a, b = os.path.join(folder, f"{name}.h5"), [], []
            for _ in range(args.rounds):
                a.append(ours(build, checkpoint, args.seconds))
                if peer:
                    b.append(theirs(peer, args.rows, name, build, checkpoint, args.seconds))
            for i, (samples, connections) in enumerate(LOADS):
                of = [[statistics.median(r[i][k] for r in rounds) for k in range(3)] for rounds in (a, b) if rounds]
                line = f"{name:<7}{samples:>8}{connections:>12}  {of[0][0]:>16.0f}{of[0][1]:>9.0f}{of[0][2]:>11,.0f}"
                if peer:
                    line += f"  {of[1][0]:>17.0f}{of[1][1]:>9.0f}{of[1][2]:>11,.0f}{of[0][2] / of[1][2]:>7.1f}"
                print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except common.Failed as error:
        sys.exit(f"bench_serve: {error}")
