#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The server's answers are the bits of -task predict, for several models, as JSON and in binary form,
on a port and on a Unix socket. Requests are predicted together; a newer checkpoint replaces the model
between two batches; wrong requests get a message; a server that stops answers the requests that have
arrived.

    serve.py TRSHARD TRSHARD-SERVE [TEST]
"""
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np

import served
from served import N, SERVE, SMALL, Client, metric, predicted, program, request, serving

EVERYONE = np.arange(N)
# name: (options of the training, options of the prediction)
MODELS = {
    "dot": ("", ""),
    "int8": ("-interaction dcn -table_item_pooling mean", "-tables_data_type int8"),
    "int4": ("-interaction cat -tables_embedding_dim 16", "-tables_data_type int4"),
    "weighted": ("-table_user_is_weighted", ""),
    "maps": ("-tables_num_embeddings 17 -table_user_id_map hash -table_item_id_map modulo -table_tag_id_map qr", ""),
    "zch": ("-tables_id_map zch -tables_num_embeddings 24 -tables_zch_interval 2", ""),
    "tasks": ("-tasks click,buy -tasks_arch 8,1 -task_heads mmoe -task_buy_label label", ""),
}


def train(folder, name="model.h5", options=""):
    program(folder, f"-data_train data.h5 {SMALL} -existing_outputs replace -checkpoint_final {name} {options}")


def test_answers(folder):
    """The bits of -task predict with batches of the same size."""
    for name, (training, prediction) in MODELS.items():
        train(folder, options=training)
        # the predictor divides a request into batches of 256
        whole, single = predicted(folder, "model.h5", 256, prediction), predicted(folder, "model.h5", 1, prediction)
        with serving(folder, f"-model model.h5 -serve_socket socket {prediction}") as (port, _):
            client, local = Client(port), Client(0, os.path.join(folder, "socket"))
            for binary in (False, True):
                found, step = client.infer(EVERYONE, binary, weights=True)
                assert step == 20 and found.tobytes() == whole.tobytes(), (name, binary, np.abs(found - whole).max())
            for i in range(0, N, 37):
                found, _ = local.infer(EVERYONE[i:i + 1], i % 2, weights=True)
                assert found.tobytes() == single[i:i + 1].tobytes(), (name, i)
        assert not os.path.exists(os.path.join(folder, "socket")), "the socket stays behind"
        print(f"{name}: {whole.shape[1]} outputs, the bits of -task predict", flush=True)


def test_protocol(folder):
    """URLs, metadata, forms of inputs and outputs, and metrics."""
    train(folder, options="-tasks click,buy -tasks_arch 8,1 -task_buy_label label")
    with serving(folder, "-model model.h5 -serve_name ads.1") as (port, _):
        client = Client(port)
        for url in ("/v2/health/live", "/v2/health/ready", "/v2/models/ads.1/ready", "/v2/models/ads.1/versions/20/ready", "/v2"):
            assert client.get(url)[0] == 200, url
        for url, status in (("/", 404), ("/v2/models/ads", 404), ("/v2/models/ads.1/x", 404), ("/v2/models/ads.1/versions/19", 404), ("/v2/models/ads.1/infer", 405)):
            found, body = client.get(url)
            assert found == status and json.loads(body)["error"], (url, found)
        about = json.loads(client.get("/v2/models/ads.1")[1])
        assert [i["name"] for i in about["inputs"]] == ["dense"] + [f"{f}.{part}" for f in served.FEATURES for part in ("ids", "lengths")], about
        assert [o["name"] for o in about["outputs"]] == ["click", "buy"] and about["versions"] == ["20"] and about["parameters"]["step"] == 20
        url = "/v2/models/ads.1/infer"
        status, headers, body = client.ask("POST", url, *request(EVERYONE[:5], id="abc", outputs=[{"name": "buy"}, {"name": "click", "parameters": {"binary_data": True}}]))
        answer = json.loads(body[:int(headers["Inference-Header-Content-Length"])])
        assert status == 200 and answer["id"] == "abc" and [o["name"] for o in answer["outputs"]] == ["buy", "click"]
        both, _ = served.take_answer(headers, body)
        # ids without lengths are a column or a matrix; a missing feature has no ids; other types of numbers
        alone = [("dense", served.X[:2].astype(np.float64)), ("user.ids", np.array([3, 4], np.int32)), ("item.ids", np.array([[1, 2], [3, 4]], np.uint16))]
        same = [("dense", served.X[:2]), ("user.ids", np.array([3, 4])), ("user.lengths", np.array([1, 1], np.int8)), ("item.ids", np.array([1, 2, 3, 4])),
                ("item.lengths", np.array([2, 2])), ("tag.ids", np.zeros(0, np.int64)), ("tag.lengths", np.zeros(2, np.uint8))]
        answers = [client.ask("POST", url, *request(None, binary, inputs=inputs))[1:] for binary in (False, True) for inputs in (alone, same)]
        values = [served.take_answer(*answer)[0].tobytes() for answer in answers]
        assert len(set(values)) == 1 and both.shape == (5, 2)
        empty, _ = served.take_answer(*client.ask("POST", url, *request(EVERYONE[:0]))[1:])
        assert empty.shape == (0, 2)
        assert metric(client, 'requests_total{code="200"}') == 6 and metric(client, "samples_total") == 13 and metric(client, "model_step") == 20
        assert metric(client, "request_seconds_count") == 6 and metric(client, 'request_seconds_bucket{le="+Inf"}') == 6 and metric(client, "connections") == 1


ROWS_CSV = [{"click": i % 2, "age": "" if i % 7 == 0 else i * 0.37, "price": i % 23, "city": f"Z\u00fcrich {i % 17}", "user": 10**17 * (i % 31),
             "tags": "|".join(f"t{(i * k) % 13}" for k in range(i % 4))} for i in range(200)]


def raw_inputs(rows, binary):
    """(body, headers): the rows' raw columns."""
    columns = {"age": ("FP64", [None if row["age"] == "" else row["age"] for row in rows]), "price": ("INT32", [row["price"] for row in rows]),
               "city": ("BYTES", [row["city"] for row in rows]), "user": ("UINT64", [row["user"] for row in rows]),
               "tags": ("BYTES", [tag for row in rows for tag in row["tags"].split("|") if tag])}
    numbers = {"FP64": np.float64, "INT32": np.int32, "UINT64": np.uint64}
    listed, raw = [], b""
    for name, (kind, values) in columns.items():
        listed.append({"name": name, "datatype": kind, "shape": [len(values)]})
        if not binary:
            listed[-1]["data"] = values
            continue
        if kind == "BYTES":
            part = b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for text in values)
        else:
            part = np.array([np.nan if value is None else value for value in values], numbers[kind]).tobytes()
        listed[-1]["parameters"] = {"binary_data_size": len(part)}
        raw += part
    listed.append({"name": "tags.lengths", "datatype": "INT32", "shape": [len(rows)], "data": [len(row["tags"].split("|")) if row["tags"] else 0 for row in rows]})
    text = json.dumps({"inputs": listed, **({"parameters": {"binary_data_output": True}} if binary else {})}).encode()
    return text + raw, {"Inference-Header-Content-Length": str(len(text))} if binary else {}


def test_raw(folder):
    """Raw columns, with words, missing values and lists, give the bits of -task predict on the dataset
    that the converter makes of them."""
    with open(os.path.join(folder, "rows.csv"), "w", encoding="utf-8") as out:
        out.write(",".join(ROWS_CSV[0]) + "\n" + "".join(",".join(map(str, row.values())) + "\n" for row in ROWS_CSV))
    convert = [sys.executable, os.path.join(served.TOOLS, "convert_table.py"), "--output", "data.h5", "--labels", "click", "--dense", "age,price", "--sparse",
               "city,user:40,tags", "--modulo", "--text", "city,tags", "--dense-missing", "0.25", "rows.csv"]
    model = SMALL.replace("-tables user,item,tag", "")
    os.mkdir(os.path.join(folder, "followed"))
    subprocess.run(convert, cwd=folder, check=True, capture_output=True) # tags are no bags
    program(folder, f"-data_train data.h5 {model} -checkpoint_final followed/step-000000002.h5")
    os.rename(os.path.join(folder, "data.h5"), os.path.join(folder, "no_bags.h5"))
    subprocess.run(convert + ["--bags", "tags"], cwd=folder, check=True, capture_output=True)
    program(folder, f"-data_train data.h5 {model} -checkpoint_final model.h5")
    with serving(folder, "-model model.h5 -serve_follow followed -serve_follow_seconds 0.02") as (port, _):
        client = Client(port)
        wait_until(lambda: metric(client, "model_failed_changes_total") == 1) # a column has lists in only one of the models
        assert metric(client, "model_changes_total") == 0
    wanted = served.predicted(folder, "model.h5", 256)
    with serving(folder, "-model model.h5 -serve_batch_microseconds 20000") as (port, _):
        client, url = Client(port), "/v2/models/model/infer"
        about = json.loads(client.get("/v2/models/model")[1])
        assert {c["name"]: c["datatype"] for c in about["raw_inputs"]} == {"age": "FP64", "price": "FP64", "city": "BYTES", "user": "INT64", "tags": "BYTES",
                                                                           "tags.lengths": "INT32"}, about
        for binary in (False, True):
            status, headers, body = client.ask("POST", url, *raw_inputs(ROWS_CSV, binary))
            assert status == 200, body
            assert served.take_answer(headers, body)[0].tobytes() == wanted.tobytes(), binary
        root = json.loads(raw_inputs(ROWS_CSV[:2], False)[0])

        def changed(place, **of_input):
            other = json.loads(json.dumps(root))
            other["inputs"][place].update(of_input)
            return json.dumps(other)

        short = raw_inputs(ROWS_CSV[:2], True)
        for what, part, body, headers in (("a text as number", "age", changed(0, datatype="BYTES", data=["old", "x"]), {}), ("a number in BYTES", "is not of type", changed(2, data=[1, 2]), {}),
                                          ("a negative UINT64", "is not of type", changed(3, data=[-1, 0]), {}), ("mixed", "not both", changed(0, name="dense", shape=[1, 2]), {}), ("unknown", "not the model's", changed(0, name="agee"), {}),
                                          ("lengths", "add up", changed(5, data=[3, 3]), {}), ("missing column", "city", json.dumps({"inputs": root["inputs"][:2]}), {}),
                                          ("cut text", "end", short[0].replace(b"\x08\0\0\0Z", b"\xff\0\0\0Z").replace(b"\x09\0\0\0Z", b"\xff\xff\0\0Z"), short[1])):
            status, _, answer = Client(port).ask("POST", url, body, headers)
            assert status == 400 and part in json.loads(answer)["error"], (what, status, answer)
        found = [None] * 6

        def ask(i): # joined with others; one of them is wrong
            body = changed(0, datatype="BYTES", data=["old", "x"]) if i == 2 else raw_inputs(ROWS_CSV[i:i + 2], i % 2)[0]
            found[i] = Client(port).ask("POST", url, body, raw_inputs(ROWS_CSV[i:i + 2], i % 2)[1] if i != 2 else {})

        in_threads(6, ask)
        for i, (status, headers, body) in enumerate(found):
            assert status == (400 if i == 2 else 200), body
            assert i == 2 or np.abs(served.take_answer(headers, body)[0] - wanted[i:i + 2]).max() <= 2e-6


def wrong_requests():
    """(what is wrong, status, a part of the message, body, headers)"""
    good, (body, headers) = json.loads(request(served.np.arange(2))[0]), request(served.np.arange(2), True)

    def changed(place, **of_input):
        root = json.loads(json.dumps(good))
        root["inputs"][place].update(of_input)
        return json.dumps(root), {}

    def other(**of_root):
        return json.dumps({**good, **of_root}), {}

    n_ids = good["inputs"][1]["shape"][0]
    nan = request(None, True, inputs=[("dense", np.array([[1, np.nan, 2]], np.float32))])
    yield "no JSON", 400, "no JSON", "{", {}
    yield "empty", 400, "no JSON", "", {}
    yield "other JSON", 400, "inputs", "[1]", {}
    yield "deep JSON", 400, "no JSON", "[" * 5000, {}
    yield "a key twice", 400, "no JSON", '{"inputs":[],"inputs":[]}', {}
    yield "no inputs", 400, "no inputs", '{"inputs":[]}', {}
    yield "input without a name", 400, "name", '{"inputs":[3]}', {}
    yield "unknown input", 400, "user.ids", *changed(1, name="usr.ids")
    yield "twice", 400, "twice", *changed(2, name="user.ids")
    yield "type", 400, "datatype", *changed(0, datatype="BOOL")
    yield "type of ids", 400, "expected integers", *changed(1, datatype="FP32")
    yield "shape", 400, "shape", *changed(0, shape=[2])
    yield "negative shape", 400, "shape", *changed(0, shape=[-2, 3])
    yield "huge shape", 400, "shape", *changed(0, shape=[1 << 40, 1 << 40])
    yield "three dimensions", 400, "shape", *changed(0, shape=[2, 3, 1])
    yield "fewer numbers", 400, "needs 6", *changed(0, data=[1, 2, 3])
    yield "more numbers", 400, "more data", *changed(0, data=[1] * 9)
    yield "text", 400, "is not of type", *changed(0, data=["a"] * 6)
    yield "too large number", 400, "finite", *changed(0, data=[1e300] * 6)
    yield "fraction as id", 400, "is not of type", *changed(1, data=[0.5] * n_ids)
    for kind, wrong in (("INT8", 128), ("INT8", -129), ("UINT8", 256), ("UINT8", -1), ("INT32", 1 << 31), ("UINT32", -5), ("UINT64", -1)):
        yield f"{wrong} as {kind}", 400, f"is not of type {kind}", *changed(1, datatype=kind, data=[wrong] + [0] * (n_ids - 1))
    yield "-128 as INT8", 400, "id -128", *changed(1, datatype="INT8", data=[-128] + [0] * (n_ids - 1))
    yield "largest UINT32", 400, "id 4294967295", *changed(1, datatype="UINT32", data=[(1 << 32) - 1] + [0] * (n_ids - 1))
    yield "too large id", 400, "no JSON", *changed(1, data=[1 << 70] * n_ids)
    yield "negative length", 400, "length -1", *changed(2, data=[-1, n_ids + 1])
    yield "other sum of lengths", 400, "add up", *changed(2, data=[n_ids, 1])
    yield "other number of samples", 400, "samples", *changed(2, shape=[3], data=[n_ids, 0, 0])
    yield "id outside of the table", 400, "expected 0 to 39", *changed(1, data=[40] * n_ids)
    yield "unknown output", 400, "not the model's", *other(outputs=[{"name": "x"}])
    yield "output twice", 400, "twice", *other(outputs=[{"name": "click"}] * 2)
    yield "long id", 400, "id", *other(id="x" * 300)
    yield "NaN", 400, "finite", *nan
    yield "binary too short", 400, "ends before", body[:-4], headers
    yield "binary too long", 400, "after its last tensor", body + b"abc", headers
    yield "JSON longer than body", 400, "Content-Length", body, {"Inference-Header-Content-Length": str(len(body) + 1)}
    yield "no length of JSON", 400, "Content-Length", body, {"Inference-Header-Content-Length": "x"}
    yield "binary without header", 400, "no JSON", body, {}
    yield "too many samples", 413, "-serve_request_samples", *request(None, True, inputs=[("dense", np.zeros((600, 3), np.float32))])
    yield "many lists", 413, "lists and objects", '{"inputs":[],"x":[' + "{}," * 40000 + "0]}", {}
    yield "many brackets in a text", 400, "no inputs", '{"inputs":[],"x":"' + '[\\"' * 30000 + '"}', {}
    yield "too large", 413, "-serve_request_bytes", "x" * 200000, {}


def test_wrong(folder):
    """Each wrong request gets one message, and the server goes on. A wrong id fails only its own
    request, also if the request is predicted together with others."""
    train(folder)
    single = predicted(folder, "model.h5", 1)
    with serving(folder, "-model model.h5 -serve_request_bytes 128KiB -serve_request_samples 500 -serve_batch_microseconds 30000") as (port, _):
        for what, status, part, body, headers in wrong_requests():
            client = Client(port) # a refused body closes its connection
            found, _, answer = client.ask("POST", "/v2/models/model/infer", body, headers)
            assert found == status and part in json.loads(answer)["error"], (what, found, answer)
        bad = [("dense", served.X[:1]), ("user.ids", np.array([9999]))]
        found = [None] * 8

        def ask(i):
            found[i] = Client(port).ask("POST", "/v2/models/model/infer", *request(EVERYONE[i:i + 1], inputs=bad if i == 3 else None))

        in_threads(8, ask)
        for i, (status, headers, body) in enumerate(found):
            if i == 3:
                assert status == 400 and b"9999" in body, body
            else:
                assert status == 200 and np.abs(served.take_answer(headers, body)[0] - single[i]).max() <= 2e-6


def in_threads(n, work):
    failures = []

    def careful(i):
        try:
            work(i)
        except BaseException as error: # a test's failure in a thread must not be lost
            failures.append(error)

    threads = [threading.Thread(target=careful, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_together(folder):
    """Requests that wait at the same time are one batch, and a full pool answers 503."""
    train(folder)
    whole = predicted(folder, "model.h5", 256)
    with serving(folder, "-model model.h5 -serve_batch_microseconds 200000 -serve_batch 16") as (port, _):

        def ask(i):
            client = Client(port)
            for first in range(i, 160, 16):
                found, _ = client.infer(EVERYONE[first:first + 1 + first % 3])
                assert np.abs(found - whole[first:first + 1 + first % 3]).max() <= 2e-6

        in_threads(16, ask)
        client = Client(port)
        assert metric(client, "batches_total") < 160 == metric(client, 'requests_total{code="200"}')
    for microseconds in (2000000, 10000000):  # on a busy machine, a request may come after those before it have left
        with serving(folder, f"-model model.h5 -serve_batch_microseconds {microseconds} -serve_batch 100 -serve_requests 3") as (port, _):
            statuses = [0] * 6

            def ask_once(i):
                statuses[i], _, body = Client(port).ask("POST", "/v2/models/model/infer", *request(EVERYONE[i:i + 1]))
                assert statuses[i] == 200 or b"-serve_requests" in body, body

            in_threads(6, ask_once)
        if sorted(statuses) == [200] * 3 + [503] * 3:
            break
    else:
        raise AssertionError(statuses)


def ask_until(ends, port, i, steps, seen):
    """Send requests until the event `ends`. Each answer must have the bits of steps[step] for the step that it carries, and steps must not go back."""
    client, last = Client(port), 0
    for k in range(1 << 30):
        one = (i + 7 * k) % N
        found, step = client.infer(EVERYONE[one:one + 1], k % 2)
        assert found.tobytes() == steps[step][one:one + 1].tobytes(), (step, one)
        assert step >= last, (step, last)
        last = step
        seen.add(step)
        if ends.is_set():
            return


def test_follow(folder):
    """While checkpoints come, each answer is the one of the step that it carries, and steps never go
    back. A file that cannot be served leaves the model as it is. With TRS_LONG, 100,000 requests during
    99 changes."""
    states = os.path.join(folder, "all")
    n, requests = (100, 100000) if os.environ.get("TRS_LONG") else (10, 100)
    program(folder, f"-data_train data.h5 {SMALL} -steps {2 * n} -epochs 100 -checkpoint_dir {states} -checkpoint_every 2 -checkpoint_keep {n}")
    files = sorted(os.listdir(states))
    steps = {int(name[5:-3]): predicted(folder, os.path.join(states, name), 1) for name in files if name.startswith("step-")}
    assert len(steps) == n, files
    followed, seen, ends = os.path.join(folder, "followed"), set(), threading.Event()
    os.mkdir(followed)
    put_step = lambda step: (shutil.copy(os.path.join(states, f"step-{step:09}.h5"), os.path.join(followed, "tmp")),
                             os.rename(os.path.join(followed, "tmp"), os.path.join(followed, f"step-{step:09}.h5")))
    put_step(2)
    with serving(folder, f"-serve_follow {followed} -serve_follow_seconds 0.02 -serve_threads 2 -serve_batch 1") as (port, _):

        def publish(i):
            if i:
                return ask_until(ends, port, i, steps, seen)
            client, ids = Client(port), []
            count = lambda: ids.append(metric(client, 'feature_ids_total{feature="user"}'))
            try:
                for i, step in enumerate(sorted(steps)[1:], 1):
                    put_step(step)
                    wait_until(lambda: count() or metric(client, "model_step") == step and metric(client, 'requests_total{code="200"}') >= i * requests / (n - 1))
                os.mkfifo(os.path.join(followed, "step-9999999999.h5")) # no file: it is passed over
                with open(os.path.join(folder, "step-999999999.h5"), "wb") as damaged:
                    damaged.write(b"no HDF5")
                put(damaged.name, followed)
                wait_until(lambda: metric(client, "model_failed_changes_total") >= 1)
                time.sleep(0.5)  # more looks, which leave the file alone
                assert metric(client, "model_failed_changes_total") <= 3  # the folder changed during the first looks or just before
                assert metric(client, "model_step") == 2 * n and metric(client, "model_changes_total") == n - 1
                assert metric(client, 'requests_total{code="200"}') >= requests
                assert ids == sorted(ids), "a counter went back"
            finally:
                ends.set()

        in_threads(4, publish)
    assert {2, 2 * n} < seen, seen


def test_fall_back(folder):
    """If the newest file is damaged, the server starts with the one before it. An increment that
    arrives before its base is opened when the base has arrived."""
    program(folder, f"-data_train data.h5 {SMALL} -steps 6 -epochs 100 -checkpoint_dir all -checkpoint_every 2 -checkpoint_full_every 3 -checkpoint_keep 3")
    followed = os.path.join(folder, "followed")
    os.mkdir(followed)
    place = lambda step: os.path.join(followed, f"step-{step:09}.h5")
    put = lambda step: os.rename(shutil.copy(os.path.join(folder, "all", f"step-{step:09}.h5"), os.path.join(followed, "tmp")), place(step))
    put(2)
    with open(place(999), "wb") as damaged:
        damaged.write(b"no HDF5")
    expected = predicted(folder, os.path.join("all", "step-000000006.h5"), 1)
    with serving(folder, f"-serve_follow {followed} -serve_follow_seconds 0.02") as (port, _):
        client = Client(port)
        assert metric(client, "model_step") == 2
        os.remove(place(999))
        wait_until(lambda: metric(client, "model_changes_total") == 1)
        put(6)
        wait_until(lambda: metric(client, "model_failed_changes_total") >= 1)
        time.sleep(0.2)  # more looks, which find nothing new
        assert metric(client, "model_step") == 2
        put(4)
        wait_until(lambda: metric(client, "model_step") == 6)
        assert client.infer(EVERYONE[:1])[0].tobytes() == expected[:1].tobytes()
    for step in (2, 4, 6):
        os.remove(place(step))
    with open(place(999), "wb") as damaged:
        damaged.write(b"no HDF5")
    done = subprocess.run([served.SERVE, "-serve_port", "0", "-serve_follow", followed], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 65 and "step-000000999.h5" in done.stderr and "older" not in done.stderr, done


def apply_deltas(base, files, out, more=()):
    subprocess.run([sys.executable, os.path.join(served.TOOLS, "apply_delta.py"), base, *files, "-o", out, "--force", *more], check=True, capture_output=True)
    return out


def put(path, folder):
    """Copy a file into a folder with one rename, as a training writes it."""
    os.rename(shutil.copy(path, os.path.join(folder, "tmp")), os.path.join(folder, os.path.basename(path)))


def chain(folder, n, model=SMALL):
    """(base, deltas): a checkpoint, and n deltas after it, one each step."""
    program(folder, f"-data_train data.h5 {model} -steps 2 -epochs 100 -checkpoint_final base.h5")
    program(folder, f"-data_train data.h5 {model} -init_from base.h5 -steps {n} -epochs 100 -delta_every 1 -delta_dir all -checkpoint_dir checkpoints "
            f"-checkpoint_every {max(1, n // 2)} -checkpoint_keep 9")
    return os.path.join(folder, "base.h5"), [os.path.join(folder, "all", f"step-{step:09}.h5") for step in range(3, n + 3)]


def test_deltas(folder):
    """While deltas come, no request fails, and each answer has the bits of -task predict for the step
    that it carries. With TRS_LONG, 100,000 requests during 100 deltas."""
    n, requests = (100, 100000) if os.environ.get("TRS_LONG") else (4, 40) if os.environ.get("TRS_SANITIZED") else (12, 240)
    # AddressSanitizer's allocator may lock up the child processes that try a file first
    tries = "-check_weights false" if os.environ.get("TRS_SANITIZED") else ""
    model = f"{SMALL} -table_user_id_map zch -table_user_num_embeddings 24 -table_user_zch_interval 2 -ema_decay 0.9"
    base, files = chain(folder, n, model)
    steps = {2: predicted(folder, base, 1, "-tables_data_type int8")}
    for i in range(n):
        apply_deltas(base if i == 0 else os.path.join(folder, f"full{i % 2}.h5"), [files[i]], os.path.join(folder, f"full{1 - i % 2}.h5"))
        steps[i + 3] = predicted(folder, f"full{1 - i % 2}.h5", 1, "-tables_data_type int8")
    followed, seen, ends = os.path.join(folder, "followed"), set(), threading.Event()
    os.mkdir(followed)
    with serving(folder, f"-model base.h5 -tables_data_type int8 -serve_deltas {followed} -serve_follow_seconds 0.02 -serve_threads 2 -serve_batch 1 {tries}") as (port, _):

        def publish(i):
            if i:
                return ask_until(ends, port, i, steps, seen)
            client = Client(port)
            try:
                for i, path in enumerate(files, 1):
                    put(path, followed)
                    wait_until(lambda: metric(client, "model_step") == i + 2)
                    assert metric(client, "deltas_applied_total") == i
                    wait_until(lambda: metric(client, 'requests_total{code="200"}') >= i * requests / n)
                assert metric(client, "deltas_applied_total") == n and metric(client, "deltas_refused_total") == metric(client, "model_changes_total") == 0
                assert 0 < metric(client, "delta_seconds") and 0 < metric(client, "delta_lag_seconds") < served.PATIENCE_S and 0 < metric(client, "model_age_seconds") < 600
                assert 0 < metric(client, "own_memory_bytes") <= metric(client, "resident_memory_bytes")
            finally:
                ends.set()

        in_threads(4, publish)
        client = Client(port)
        assert metric(client, 'requests_total{code="400"}') == metric(client, 'requests_total{code="500"}') == 0
        assert 0 < metric(client, 'unknown_ids_total{feature="user"}') < metric(client, 'feature_ids_total{feature="user"}')
        assert metric(client, 'unknown_ids_total{feature="item"}') == 0
    assert {2, n + 2} < seen, seen


def test_delta_chains(folder):
    """At a gap, the server waits for the missing delta. Damaged and foreign files, named pipes and files with other names are not applied. A
    newer checkpoint replaces the model. A delta of --forget_delta is applied once. The server changes to another branch of the chain."""
    base, files = chain(folder, 6)
    followed, checkpoints = os.path.join(folder, "followed"), os.path.join(folder, "served")
    os.mkdir(followed)
    os.mkdir(checkpoints)
    os.rename(shutil.copy(base, os.path.join(folder, "tmp")), os.path.join(checkpoints, "step-000000002.h5"))
    name = lambda step: os.path.join(followed, f"step-{step:09}.h5")
    whole = lambda n: predicted(folder, apply_deltas(base, files[:n], os.path.join(folder, "full.h5")), 1)
    with serving(folder, f"-serve_follow {checkpoints} -serve_deltas {followed} -serve_follow_seconds 0.02 -serve_batch 1") as (port, process):
        client = Client(port)
        counts = lambda *names: tuple(int(metric(client, one)) for one in names or ("model_step", "deltas_applied_total", "deltas_refused_total", "model_changes_total"))

        def reach(*wanted):
            try:
                wait_until(lambda: counts() == wanted)
            except AssertionError:
                raise AssertionError(f"{counts()}, expected {wanted}") from None

        same = lambda wanted: all(client.infer(EVERYONE[i:i + 1])[0].tobytes() == wanted[i:i + 1].tobytes() for i in range(0, N, 23))
        put(files[1], followed)  # delta 2 comes first
        reach(2, 0, 1, 0)
        with open(os.path.join(folder, os.path.basename(name(3))), "wb") as damaged, open(files[0], "rb") as good:
            damaged.write(good.read()[:-2000])
        put(damaged.name, followed)
        reach(2, 0, 2, 0)
        os.mkfifo(os.path.join(followed, "step-000000001000.h5"))
        os.mkfifo(os.path.join(followed, "forget.h5"))
        put(files[0], followed)
        reach(4, 2, 2, 0)
        assert same(whole(2))
        # ids are forgotten after delta 3; the file comes before delta 3
        forget = os.path.join(folder, "forget-me.h5")
        forgotten = apply_deltas(base, files[:3], os.path.join(folder, "forgotten.h5"), ["--forget", "user=1,2,3,5,7", "--forget_delta", forget])
        put(forget, followed)
        put(files[2], followed)
        reach(5, 4, 2, 0)
        assert same(predicted(folder, forgotten, 1))
        # a checkpoint of the next step is newer than the chain, and one of an older step is not
        put(os.path.join(folder, "checkpoints", "step-000000008.h5"), checkpoints)
        reach(8, 4, 3, 1)  # the new model may have the forgotten ids again, so that the server tells of the file
        assert same(whole(6))
        # another branch: a training goes on from step 5, and its deltas 4 to 7 have other rows
        shutil.rmtree(os.path.join(folder, "all"))
        os.remove(os.path.join(checkpoints, "step-000000008.h5"))
        for step in (6, 7, 8):
            os.remove(os.path.join(folder, "checkpoints", f"step-{step:09}.h5")) if os.path.exists(os.path.join(folder, "checkpoints", f"step-{step:09}.h5")) else None
        program(folder, f"-data_train data.h5 {SMALL} -init_from base.h5 -steps 8 -epochs 100 -seed 5 -embedding_learning_rate 0.1 -delta_every 1 -delta_dir other -checkpoint_final final.h5")
        for step in range(3, 6):
            os.remove(name(step))
        for step in range(3, 10):
            put(os.path.join(folder, "other", f"step-{step:09}.h5"), followed)
        wait_until(lambda: counts("model_step", "model_changes_total") == (9, 2))
        put(os.path.join(folder, "other", "step-000000010.h5"), followed)
        wait_until(lambda: counts("model_step", "model_changes_total") == (10, 2))
        assert same(predicted(folder, "final.h5", 1))
        shutil.rmtree(followed)
        time.sleep(0.1)
        assert client.get("/v2/health/ready")[0] == 200 and process.poll() is None
    done = subprocess.run([served.SERVE, "-serve_deltas", followed], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 64 and "-model is missing" in done.stderr, done


def wait_until(holds):
    end = time.monotonic() + served.PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def test_stop(folder):
    """After SIGTERM, requests that have arrived are finished, and others are refused. Wrong starts
    end with a documented status."""
    train(folder)
    # a batch of four waits for its last request, of which the server has a part before the signal
    with serving(folder, "-model model.h5 -serve_batch_microseconds 10000000 -serve_batch 4") as (port, process):
        answers, (body, headers) = [None] * 4, request(EVERYONE[3:4])
        client, late = Client(port), Client(port).connection
        late.putrequest("POST", "/v2/models/model/infer")
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            late.putheader(name, value)
        late.endheaders(body[:-1])
        wait_until(lambda: metric(client, "body_bytes") == len(body) - 1)

        def ask(i):
            if i == 3:
                wait_until(lambda: metric(client, "requests_in_progress") == 3)
                process.send_signal(signal.SIGTERM)
                wait_until(lambda: client.get("/v2/health/ready")[0] == 503)
                late.send(body[-1:])
                answer = late.getresponse()
                assert answer.status == 200, answer.read()
                answers[i] = served.take_answer(dict(answer.getheaders()), answer.read())
            else:
                answers[i] = Client(port).infer(EVERYONE[i:i + 1])

        in_threads(4, ask)
        assert all(answer is not None for answer in answers)
    program(folder, f"-data_train data.h5 {SMALL} -over_arch 1024,1024,1 -steps 1 -checkpoint_final slow.h5")
    with serving(folder, "-model slow.h5 -serve_drain_seconds 0.1") as (port, process):
        client, statuses = Client(port), [None] * 12
        large = request(None, True, inputs=[("dense", np.zeros((16384, served.DENSE), np.float32))])

        def ask_slowly(i):
            if i == len(statuses):  # a few may have been answered already
                wait_until(lambda: metric(client, "requests_in_progress") >= len(statuses) - 4)
                return process.send_signal(signal.SIGTERM)
            try:
                statuses[i] = Client(port).ask("POST", "/v2/models/model/infer", *large)[0]
            except (ConnectionError, http.client.HTTPException):
                statuses[i] = 0

        in_threads(len(statuses) + 1, ask_slowly)
        assert set(statuses) <= {0, 200, 503} and statuses.count(200) <= 8, f"the stop waited for the queue: {statuses}"
    with open(os.path.join(folder, "not.h5"), "wb") as wrong:
        wrong.write(b"x" * 1000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, status, part in (("", 64, "-model is missing"), ("-model none.h5", 66, "none.h5"), ("-model not.h5", 65, "not.h5"),
                                      ("-model model.h5 -serve_name a/b", 64, "-serve_name"), ("-model model.h5 -serve_name ..", 64, "-serve_name"), ("-model model.h5 -serve_prt 1", 64, "-serve_port"),
                                      (f"-model model.h5 -serve_port {taken.getsockname()[1]}", 64, "-serve_port"),
                                      ("-model model.h5 -serve_host none.invalid", 64, "-serve_host"),
                                      ("-model model.h5 -serve_port 0 -serve_socket model.h5", 64, "-serve_socket"),
                                      ("-serve_follow . -serve_port 0", 66, "-serve_follow")):
            done = subprocess.run([SERVE] + options.split(), cwd=folder, capture_output=True, text=True, timeout=served.PATIENCE_S)
            assert done.returncode == status and part in done.stderr, (options, done.returncode, done.stderr)


def test_socket(folder):
    """A server that stops does not remove the Unix socket that another server has put at its
    path."""
    train(folder)
    path = os.path.join(folder, "socket")
    with contextlib.ExitStack() as second:
        with serving(folder, "-model model.h5 -serve_socket socket"):
            os.remove(path)
            second.enter_context(serving(folder, "-model model.h5 -serve_socket socket"))
        assert Client(0, path).infer(EVERYONE[:3])[0].shape == (3, 1)
    assert not os.path.exists(path)


def test_load(folder):
    """bench_serve's clients get only correct answers, one request at a time and many together."""
    train(folder)
    for options, samples, connections, rate in (("-serve_batch 1", 1, 2, 0), ("", 7, 6, 0), ("-serve_batch_microseconds 500", 1, 4, 400)):
        with serving(folder, f"-model model.h5 {options}") as (port, _):
            words = [os.environ["TRS_BENCH_SERVE"], "model.h5", port, samples, connections, 1, rate, min(served.ROWS)]
            done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0 and "0 failed, 0 wrong" in done.stdout, done.stdout + done.stderr
            assert options != "-serve_batch 1" or "0 with other last bits" in done.stdout, done.stdout


def test_threads(folder):
    """The server starts only the threads that its options request."""
    train(folder)
    for options, n in (("", 3), ("-serve_threads 3 -serve_http_threads 2", 6), ("-serve_socket socket", 4)):
        with serving(folder, f"-model model.h5 {options}") as (port, process):
            client = Client(port)
            for _ in range(20):
                client.infer(EVERYONE)
            found = len(os.listdir(f"/proc/{process.pid}/task"))
            assert found <= n + 1, (options, found) # with several HTTP threads, libmicrohttpd may have one more that starts them


if __name__ == "__main__":
    served.run_tests(globals())
