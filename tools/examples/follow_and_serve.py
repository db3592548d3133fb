#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A model that follows the data, and a server that follows the model.

    python3 tools/examples/follow_and_serve.py [--build build] [--minutes 12] [--seconds 4] [--output follow_and_serve.png]

A generator puts a file of clicks into a folder each "minute". New items appear all the time and old ones disappear. A
training follows the folder on 2 ranks and writes checkpoints and deltas. It is killed twice, and continues. trshard-serve
opens a checkpoint and applies the deltas after it, and a client sends requests all the time. At the end, a picture shows the AUC on each file before the
training learned from it, beside a model that was trained once, and the age of the weights that the server answered with.
"""
import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.dirname(HERE)
RANKS, BATCH, CHECKPOINT, DELTA = 2, 100, 25, 5  # BATCH: of a rank; CHECKPOINT, DELTA: steps between two of them
MODEL = ("-tables_embedding_dim 16 -table_user_id_map hash -table_user_num_embeddings 4000 -table_item_id_map dynamic -table_item_dynamic_cap 4000 "
         "-embedding_learning_rate 0.1 -dense_arch 16,16 -over_arch 16,1")


def make_minutes(folder, minutes, samples):
    """Write minute_000.h5, minute_001.h5 ... The ids of an item live for two minutes."""
    whole = os.path.join(folder, "whole.h5")
    subprocess.run([sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", whole, "--num-samples", str(minutes * samples), "--features", "user,item",
                    "--num-embeddings", "2k,500", "--num-dense", "2", "--ids", "zipf", "--drift", f"0,{2 * samples}", "--strength", "3", "--id-type", "int64"],
                   check=True, capture_output=True)
    with h5py.File(whole) as source:
        offsets = source["sparse/offsets"][()]
        for k in range(minutes):
            begin, end = k * samples, (k + 1) * samples
            with h5py.File(os.path.join(folder, f"minute_{k:03d}.h5"), "w") as out:
                out.attrs.update({**source.attrs, "num_samples": samples})
                for name in ("dense", "labels", "sparse/lengths"):
                    out[name] = source[name][begin:end]
                out["sparse/values"] = source["sparse/values"][offsets[begin]:offsets[end]]
                out["sparse/offsets"] = offsets[begin:end + 1] - offsets[begin]
                out["sparse"].attrs.update(source["sparse"].attrs)


class Process:
    """A program whose output goes to a file of the folder."""

    def __init__(self, folder, name, words):
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "a", encoding="utf-8") as out:
            self.process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def wait_for(self, pattern, seconds=120):
        """Wait until a line of the output matches. Returns the match."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                found = re.search(pattern, file.read())
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"{self.log} has no line with {pattern}")

    def end(self, how):
        """Send a signal to the process and its children, and wait for the end."""
        os.killpg(self.process.pid, how)
        return self.process.wait(60)


def start_training(folder, binary):
    words = ["mpirun", "-n", str(RANKS), "--oversubscribe", binary, *MODEL.split(), "-data_train", "minute_000.h5", "-epochs", "1", "-data_follow", "new", "-eval_ahead",
             "-batch_size", str(BATCH), "-checkpoint_dir", "checkpoints", "-checkpoint_every", str(CHECKPOINT), "-checkpoint_keep", "5", "-checkpoint_lock_seconds", "60", "-resume",
             "-delta_every", str(DELTA), "-delta_dir", "deltas", "-report_interval", "0", "-output", "run.h5"]
    return Process(folder, "training", words)


class Client(threading.Thread):
    """Sends one request after another, for samples of the newest file, until it is stopped."""

    def __init__(self, folder, port):
        super().__init__(daemon=True)
        self.folder, self.port, self.newest, self.stopped = folder, port, 0, False
        self.answers, self.failures = [], []  # (time, step); texts

    def body(self, minute, random):
        """A request for eight samples of a file."""
        with h5py.File(os.path.join(self.folder, f"minute_{minute:03d}.h5")) as data:
            first = random.integers(0, data["labels"].shape[0] - 8)
            ids = data["sparse/values"][2 * first:2 * first + 16].reshape(8, 2)
            dense = data["dense"][first:first + 8]
        tensor = lambda name, kind, values: {"name": name, "datatype": kind, "shape": list(np.shape(values)), "data": np.asarray(values).ravel().tolist()}
        inputs = [tensor("dense", "FP32", dense)]
        for f, feature in enumerate(("user", "item")):
            inputs += [tensor(feature + ".ids", "INT64", ids[:, f]), tensor(feature + ".lengths", "INT32", [1] * 8)]
        return json.dumps({"inputs": inputs})

    def run(self):
        random, connection = np.random.default_rng(1), http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.stopped:
            try:
                connection.request("POST", "/v2/models/model/infer", self.body(self.newest, random), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = json.loads(answer.read())
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}: {text}")
                if not np.all(np.isfinite(text["outputs"][0]["data"])):
                    raise ValueError(f"not finite: {text}")
                self.answers.append((time.monotonic(), text["parameters"]["step"]))
            except (OSError, ValueError, KeyError, http.client.HTTPException) as problem:
                self.failures.append(str(problem))
                connection.close()
            time.sleep(0.01)


def run_circle(args, folder):
    """Returns the times at which files came, the client, and the server's output."""
    binary, server = os.path.abspath(f"{args.build}/trshard"), os.path.abspath(f"{args.build}/trshard-serve")
    os.mkdir(os.path.join(folder, "new"))
    came = {0: time.monotonic()}
    training = start_training(folder, binary)
    training.wait_for("waiting for data|follow .*takes its files")
    end = time.monotonic() + 120
    while not any(name.startswith("step-") and name.endswith(".h5") for name in os.listdir(os.path.join(folder, "checkpoints"))) and time.monotonic() < end:
        time.sleep(0.05)
    serving = Process(folder, "server", [server, "-serve_follow", "checkpoints", "-serve_deltas", "deltas", "-serve_port", "0", "-serve_follow_seconds", "0.1"])
    client = Client(folder, int(serving.wait_for(r"ready +http://[^:]*:(\d+)")[1]))
    client.start()
    for k in range(1, args.minutes):
        time.sleep(args.seconds)
        name = f"minute_{k:03d}.h5"
        os.link(os.path.join(folder, name), os.path.join(folder, "new", "." + name))
        os.rename(os.path.join(folder, "new", "." + name), os.path.join(folder, "new", name))
        came[k], client.newest = time.monotonic(), k
        if k in (args.minutes // 3, 2 * args.minutes // 3):
            time.sleep(args.seconds / 4)
            training.end(signal.SIGKILL)
            print(f"minute {k}: the training is killed, and starts again", flush=True)
            training = start_training(folder, binary)
    with open(os.path.join(folder, "new", "STOP"), "w", encoding="ascii"):
        pass
    if training.process.wait(300) != 0:
        raise SystemExit(f"the training ended with {training.process.returncode}, see {training.log}")
    time.sleep(1)
    client.stopped = True
    client.join()
    if serving.end(signal.SIGTERM) != 0:
        raise SystemExit(f"the server ended with {serving.process.returncode}, see {serving.log}")
    with open(serving.log, encoding="utf-8") as file:
        return came, client, file.read()


def evaluate_once(args, folder):
    """AUC on each file of a model that was trained on the first file only."""
    binary = os.path.abspath(f"{args.build}/trshard")
    run = lambda *words: subprocess.run([binary, *words], cwd=folder, check=True, capture_output=True, text=True)
    run(*MODEL.split(), "-data_train", "minute_000.h5", "-epochs", "1", "-batch_size", str(RANKS * BATCH), "-checkpoint_final", "once.h5")
    values = []
    for k in range(1, args.minutes):
        run("-task", "eval", "-init_from", "once.h5", "-data_eval", f"minute_{k:03d}.h5", "-output", "once_eval.h5")
        with h5py.File(os.path.join(folder, "once_eval.h5")) as results:
            values.append(float(results["eval/auc"][-1]))
    return values


def ages(args, came, answers):
    """For each answer: (seconds since the start, seconds since the newest sample of its model came)."""
    found = []
    for when, step in answers:
        newest = min(max(0, step * RANKS * BATCH - 1) // args.samples, args.minutes - 1)
        # a model that has all samples so far is as old as the newest file that it has
        found.append((when - came[0], when - came[newest]))
    return found


def draw(path, minutes, following, once, aged):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 6))
    above.plot(minutes, following, marker="o", label="a training that follows, before it learns from the file")
    above.plot(minutes, once, marker="s", label="a model that was trained once, on minute 0")
    above.set(xlabel="minute", ylabel="AUC of the minute's file")
    above.legend()
    below.plot([when for when, _ in aged], [age for _, age in aged], linewidth=0.8)
    below.set(xlabel="seconds since the start", ylabel="age of the served weights, s", ylim=(0, None))
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder of trshard and trshard-serve (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=12, help="number of files (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="length of a minute (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=20000, help="samples of a file, a multiple of 200 (default: %(default)s)")
    parser.add_argument("--output", default="follow_and_serve.png", help="the picture (default: %(default)s)")
    args = parser.parse_args()
    for name, value in (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), ("OMPI_MCA_mpi_yield_when_idle", "1"), ("OMP_NUM_THREADS", "1")):
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory(prefix="trshard-") as folder:
        make_minutes(folder, args.minutes, args.samples)
        came, client, log = run_circle(args, folder)
        with h5py.File(os.path.join(folder, "run.h5")) as run:
            names = [name.decode() if isinstance(name, bytes) else name for name in run["ahead/file"][()]]
            following = [float(value) for value in run["ahead/auc"][()]]
        minutes = [int(re.search(r"minute_(\d+)", name)[1]) for name in names]
        values = evaluate_once(args, folder)
        once = [values[k - 1] for k in minutes]
    aged = ages(args, came, client.answers)
    steps = sorted({step for _, step in client.answers})
    print(f"answers    {len(client.answers)} of {len(steps)} models, {len(client.failures)} failed; weights {statistics.median(age for _, age in aged):.1f} s old (median)")
    taken = {kind: len(re.findall(rf"^{kind} ", log, re.M)) for kind in ("delta", "model")}
    print(f"server     {taken['delta']} deltas applied, {taken['model']} checkpoints opened after the first")
    print(f"AUC        {statistics.mean(following):.4f} with following, {statistics.mean(once):.4f} with a model that was trained once")
    draw(args.output, minutes, following, once, aged)
    print(f"picture    {args.output}")
    if client.failures:
        raise SystemExit(f"a request failed: {client.failures[0]}")


if __name__ == "__main__":
    main()
