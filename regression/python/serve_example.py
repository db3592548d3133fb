#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/examples/serve.py: its predictions are the predictor's, and it takes over new checkpoints while
requests arrive. A damaged checkpoint leaves the model.

    serve_example.py FOLDER
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np

import trshard

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tools"))
import trsdata

N = 200


def make_models():
    random = np.random.default_rng(7)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with trsdata.DatasetWriter(FOLDER / "data.h5", ["user", "item"], [30, 20], 2) as data:
        data.append(random.random((N, 2), dtype=np.float32), random.integers(0, 2, N).astype(np.float32), np.ones((N, 2), np.int32), random.integers(0, 20, 2 * N))
    for steps in (3, 8):
        trshard.run(f"-device cpu -data_train {FOLDER}/data.h5 -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 -batch_size 20", steps=steps,
                    dense_learning_rate=0.5, checkpoint_final=FOLDER / f"step{steps}.h5")


def ask(port, method, path, content=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, None if content is None else json.dumps(content))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def wait_for(condition, what):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


make_models()
served = FOLDER / "served"
served.mkdir()
shutil.copy(FOLDER / "step3.h5", served / "a.h5")
request = {"lengths": [[1, 2], [1, 0]], "values": [3, 4, 5, 6], "dense": [[0.25, 0.5], [1, 0]]}
expected = {}
for steps in (3, 8):
    with trshard.Predictor(FOLDER / f"step{steps}.h5") as predictor:
        expected[steps] = predictor.predict(request["lengths"], request["values"], dense=request["dense"]).tolist()
assert expected[3] != expected[8]
lines = []
with subprocess.Popen([sys.executable, str(ROOT / "tools/examples/serve.py"), str(served), "--port", "0", "--every", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                      text=True) as server:
    try:
        first = server.stdout.readline()
        port = int(re.search(r"serving step 3 at http://127.0.0.1:(\d+)", first).group(1))
        threading.Thread(target=lambda: lines.extend(server.stdout), daemon=True).start()
        assert ask(port, "GET", "/model") == (200, {"step": 3, "dense": None, "num_dense": 2, "sparse": ["user", "item"], "outputs": ["prediction"]})
        assert ask(port, "POST", "/predict", request) == (200, {"step": 3, "predictions": expected[3]})
        for content, text in (({"rows": [{}]}, "has no mapping"), ({"values": [1]}, "lengths"), ({**request, "values": [99, 4, 5, 6]}, "id 99")):
            status, answer = ask(port, "POST", "/predict", content)
            assert status == 400 and text in answer["error"], (status, answer)
        assert ask(port, "GET", "/nothing")[0] == 404
        # a damaged checkpoint: the model stays
        (served / "b.h5").write_bytes((FOLDER / "step8.h5").read_bytes()[:3000])
        wait_for(lambda: any("the model stays" in line for line in lines), lines)
        assert ask(port, "POST", "/predict", request)[1]["step"] == 3
        # a new checkpoint while requests arrive
        answers, stop = [], threading.Event()

        def keep_asking():
            while not stop.is_set():
                answers.append(ask(port, "POST", "/predict", request))

        askers = [threading.Thread(target=keep_asking) for _ in range(3)]
        for asker in askers:
            asker.start()
        wait_for(lambda: len(answers) > 3, "no answers")
        shutil.copy(FOLDER / "step8.h5", served / "new")
        os.replace(served / "new", served / "c.h5")
        wait_for(lambda: answers and answers[-1][1].get("step") == 8, "the new checkpoint is not served")
        stop.set()
        for asker in askers:
            asker.join()
        assert all(status == 200 and answer["predictions"] == expected[answer["step"]] for status, answer in answers), [a for a in answers if a[0] != 200][:3]
        assert {answer["step"] for _, answer in answers} == {3, 8}, "no request had the old model"
        wait_for(lambda: any("serving step 8 of" in line for line in lines), lines)
    finally:
        server.send_signal(signal.SIGINT)
    assert server.wait(60) == 0, lines
absent = subprocess.run([sys.executable, str(ROOT / "tools/examples/serve.py"), str(FOLDER / "absent.h5")], capture_output=True, text=True, check=False)
assert absent.returncode == 1 and "absent.h5" in absent.stderr and "Traceback" not in absent.stderr, absent
print("ok: the service takes over new checkpoints")
