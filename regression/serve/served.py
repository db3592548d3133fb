# SPDX-License-Identifier: BSD-3-Clause
"""Start trshard-serve and send requests to it, for the tests in this folder."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import h5py
import numpy as np

TOOLS = str(pathlib.Path(__file__).resolve().parents[2] / "tools")
sys.path.insert(0, TOOLS)
import trsdata

N, DENSE, FEATURES, ROWS = 300, 3, ["user", "item", "tag"], [40, 60, 25]
RANDOM = np.random.default_rng(5)
LENGTHS = RANDOM.integers(0, 4, (N, 3), dtype=np.int32)
IDS = [[RANDOM.integers(0, ROWS[f], LENGTHS[i, f]) for f in range(3)] for i in range(N)]
WEIGHTS = [[RANDOM.random(LENGTHS[i, f], dtype=np.float32) for f in range(3)] for i in range(N)]
X = RANDOM.random((N, DENSE), dtype=np.float32)
SMALL = ("-tables user,item,tag -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 12,1 -steps 20 -batch_size 50 -dense_learning_rate 0.1 "
         "-embedding_learning_rate 0.5 -cpu_bind none")
BINARY, SERVE = (os.path.abspath(path) for path in sys.argv[1:3])
PATIENCE_S = 60


def write_data(folder):
    """Write data.h5 with the samples above."""
    with trsdata.DatasetWriter(os.path.join(folder, "data.h5"), FEATURES, ROWS, DENSE, weighted=True, labels=["click", "label"]) as out:
        labels = np.stack([RANDOM.integers(0, 2, N), RANDOM.integers(0, 2, N)], 1).astype(np.float32)
        out.append(X, labels, LENGTHS, *[np.concatenate([part for sample in of for part in sample]) for of in (IDS, WEIGHTS)])


def program(folder, words):
    done = subprocess.run([BINARY] + words.split(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-500:]}{done.stderr}"


def predicted(folder, model, batch, options="", names=("click", "buy")):
    """The predictions of -task predict [N, n_outputs]."""
    program(folder, f"-task predict -init_from {model} -data_eval data.h5 -batch_size {batch} -output run.h5 -existing_outputs replace -cpu_bind none {options}")
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        found = h["predictions"]
        found = found[()] if isinstance(found, h5py.Dataset) else np.stack([found[task][()] for task in names], 1)
    return found.reshape(len(found), -1)


class Client:
    """A connection that is kept. Requests are made by hand, because they may be wrong on purpose."""

    def __init__(self, port, path=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        if path:
            self.connection.sock = socket.socket(socket.AF_UNIX)
            self.connection.sock.connect(path)

    def ask(self, method, url, body=None, headers=()):
        """(status, headers, body)"""
        self.connection.request(method, url, body, dict(headers))
        answer = self.connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def get(self, url):
        status, _, body = self.ask("GET", url)
        return status, body

    def infer(self, samples, binary=False, **more):
        """(predictions [samples, outputs], step)"""
        status, headers, body = self.ask("POST", "/v2/models/model/infer", *request(samples, binary, **more))
        assert status == 200, (status, body[:300])
        return take_answer(headers, body)


def tensors_of(samples, weights=False):
    """[(name, array)]: the inputs for these samples."""
    inputs = [("dense", X[samples])]
    for f, feature in enumerate(FEATURES):
        inputs += [(f"{feature}.ids", np.concatenate([np.zeros(0, np.int64)] + [IDS[i][f] for i in samples])), (f"{feature}.lengths", LENGTHS[samples, f])]
        if weights:
            inputs.append((f"{feature}.weights", np.concatenate([np.zeros(0, np.float32)] + [WEIGHTS[i][f] for i in samples])))
    return inputs


def datatype(array):
    return {"f": "FP", "i": "INT", "u": "UINT"}[array.dtype.kind] + str(8 * array.dtype.itemsize)


def request(samples, binary=False, weights=False, inputs=None, **more):
    """(body, headers) of a request."""
    listed, raw = [], b""
    for name, array in inputs if inputs is not None else tensors_of(samples, weights):
        one = {"name": name, "datatype": datatype(array), "shape": list(array.shape)}
        if binary:
            one["parameters"] = {"binary_data_size": array.nbytes}
            raw += array.tobytes()
        else:
            one["data"] = array.tolist()
        listed.append(one)
    root = {"inputs": listed, **more}
    if binary:
        root["parameters"] = {"binary_data_output": True}
    text = json.dumps(root).encode()
    return text + raw, {"Inference-Header-Content-Length": str(len(text))} if binary else {}


def take_answer(headers, body):
    length = int(headers.get("Inference-Header-Content-Length", len(body)))
    root, at, columns = json.loads(body[:length]), length, []
    for output in root["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        columns.append(np.array(output["data"], np.float32) if size is None else np.frombuffer(body[at:at + size], np.float32))
        at += size or 0
        assert output["datatype"] == "FP32" and list(columns[-1].shape) == output["shape"], output
    assert at == len(body) and root["model_version"] == str(root["parameters"]["step"]), root
    return np.stack(columns, 1), root["parameters"]["step"]


@contextlib.contextmanager
def serving(folder, options, expected=0):
    """(port, process) of a server that is ready, which is stopped at the end."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if "TRS_SERVER_ASAN_OPTIONS" in env:
        env["ASAN_OPTIONS"] = env["TRS_SERVER_ASAN_OPTIONS"]
    process = subprocess.Popen([SERVE, "-serve_port", "0"] + options.split(), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        line = "trshard-serve: warning: "
        while line.startswith("trshard-serve: warning: "):
            line = process.stdout.readline()
        found = re.match(r"ready +http://127\.0\.0\.1:(\d+)/", line)
        assert found, line + process.stdout.read()
        yield int(found[1]), process
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == expected, (process.returncode, text)
    finally:
        process.kill()
        process.wait()


def metric(client, name):
    status, text = client.get("/metrics")
    assert status == 200
    return float(re.search(rf"^trshard_{re.escape(name)} (\S+)$", text.decode(), re.M)[1])


def run_tests(tests):
    """Run the tests of the command line, or all functions test_... of a dictionary, each in a folder with data.h5."""
    for name in sys.argv[3:] or [name[5:] for name in tests if name.startswith("test_")]:
        with tempfile.TemporaryDirectory() as folder:
            write_data(folder)
            tests[f"test_{name}"](folder)
            print(f"{name}: passed", flush=True)
