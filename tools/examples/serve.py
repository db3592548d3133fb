#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A prediction service that takes over new checkpoints without a pause.

    python3 serve.py CHECKPOINT [--port 8080] [--every 5] [--options "-tables_data_type int8"]

CHECKPOINT is a file, which a training replaces, or a folder, of which the newest checkpoint is served. Every few seconds the service
looks for a new one, opens it beside the old one, and switches: requests under way end with the old model, whose memory is then freed. If
the new file cannot be opened, the old model stays.

    POST /predict {"rows": [{"age": 31, "tags": ["red"]}]}                  raw rows, if the checkpoint has a mapping
    POST /predict {"lengths": [[1], [2]], "values": [7, 3, 4], "dense": [[0.5]]}
    GET  /model                                                             the step and the names of inputs and outputs
"""
import argparse
import contextlib
import http.server
import json
import pathlib
import sys
import threading

import trshard


class Model:
    """A predictor and the requests that use it."""

    def __init__(self, found, options):
        self.found = found
        self.predictor = trshard.Predictor(found[0], options)
        self.requests = 0


class Models:
    """The current model, and old models with requests under way. One thread opens and closes predictors, as the library demands."""

    def __init__(self, path, options):
        self._path, self._options, self._lock, self._old = pathlib.Path(path), options, threading.Lock(), []
        self._current, self._refused = Model(self._newest(), options), None

    def _newest(self):
        """The newest checkpoint, and what tells it from others."""
        paths = self._path.glob("*.h5") if self._path.is_dir() else [self._path]
        found = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # a training has just removed it
                about = path.stat()
                found.append((about.st_mtime_ns, str(path), about.st_ino, about.st_size))
        if not found:
            raise FileNotFoundError(f"there is no checkpoint at {self._path}")
        changed, path, *rest = max(found)
        return (path, changed, *rest)

    @contextlib.contextmanager
    def use(self):
        """The current predictor, which stays open meanwhile."""
        with self._lock:
            model = self._current
            model.requests += 1
        try:
            yield model.predictor
        finally:
            with self._lock:
                model.requests -= 1

    def refresh(self):
        """Switch to a newer checkpoint if there is one, and close models without requests."""
        with self._lock:
            unused = [model for model in self._old if not model.requests]
            self._old = [model for model in self._old if model.requests]
        for model in unused:
            model.predictor.close()
        try:
            found = self._newest()
            if found in (self._current.found, self._refused):
                return
            model = Model(found, self._options)
        except (trshard.Error, OSError) as problem:
            self._refused = locals().get("found")
            print(f"the model stays: {problem}", file=sys.stderr, flush=True)
            return
        with self._lock:
            self._old.append(self._current)
            self._current = model
        print(f"serving step {model.predictor.step} of {found[0]}", flush=True)


def handler(models):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path != "/model":
                self.answer(404, {"error": f"there is no {self.path}"})
                return
            with models.use() as predictor:
                self.answer(200, {"step": predictor.step, "dense": predictor.dense_names, "num_dense": predictor.num_dense, "sparse": predictor.sparse_names,
                                  "outputs": predictor.output_names})

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/predict":
                self.answer(404, {"error": f"there is no {self.path}"})
                return
            try:
                given = json.loads(body)
                with models.use() as predictor:
                    inputs = predictor.encode(given["rows"]) if "rows" in given else (given["lengths"], given["values"], given.get("weights"), given.get("dense"))
                    predictions, step = predictor.predict(*inputs).tolist(), predictor.step
            except (trshard.Error, ValueError, TypeError, KeyError) as problem:
                self.answer(400, {"error": f"{type(problem).__name__}: {problem}"})
            else:
                self.answer(200, {"step": step, "predictions": predictions})

        def log_message(self, *_):
            """Requests are not logged."""

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="0: any free port (default: %(default)s)")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="between two looks for a new checkpoint (default: %(default)s)")
    parser.add_argument("--options", default="", help="of the predictor")
    args = parser.parse_args()
    try:
        models = Models(args.checkpoint, args.options)
    except (trshard.Error, OSError) as problem:
        sys.exit(f"serve.py: {problem}")
    server = http.server.ThreadingHTTPServer((args.host, args.port), handler(models))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with models.use() as predictor:
        print(f"serving step {predictor.step} at http://{args.host}:{server.server_port}", flush=True)
    stop = threading.Event()
    with contextlib.suppress(KeyboardInterrupt):
        while not stop.wait(args.every):
            models.refresh()  # on the main thread, which has opened the first model, too
    server.shutdown()


if __name__ == "__main__":
    main()
