#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""TorchRec's side of bench_serve.py: a DLRM through quantize_inference_model behind FastAPI, in one thread. It answers the binary requests of
regression/bench/bench_serve as trshard-serve does, and prints "ready" when it listens.

    bench_serve_peer.py ROWS DENSE_ARCH OVER_ARCH PORT
"""
import contextlib
import json
import sys

import fastapi
import numpy as np
import torch
import uvicorn
from torchrec.inference.modules import quantize_inference_model
from torchrec.models.dlrm import DLRM
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

FEATURES, DENSE = [f"f{i}" for i in range(26)], 13
LENGTH = "inference-header-content-length"


@contextlib.asynccontextmanager
async def lifespan(_):
    print("ready", flush=True)
    yield


app = fastapi.FastAPI(lifespan=lifespan)


def create(rows, dense, over):
    torch.set_num_threads(1)
    tables = [EmbeddingBagConfig(name=f"t{i}", embedding_dim=64, num_embeddings=rows, feature_names=[name]) for i, name in enumerate(FEATURES)]
    return quantize_inference_model(DLRM(EmbeddingBagCollection(tables=tables), dense_in_features=DENSE, dense_arch_layer_sizes=dense, over_arch_layer_sizes=over).eval())


@app.post("/v2/models/model/infer")
async def infer(request: fastapi.Request):
    body = await request.body()
    at = int(request.headers[LENGTH])
    n = json.loads(body[:at])["inputs"][0]["shape"][0]
    dense = torch.from_numpy(np.frombuffer(body, np.float32, n * DENSE, at).reshape(n, DENSE).copy())
    ids = torch.from_numpy(np.frombuffer(body, np.int64, n * len(FEATURES), at + dense.numel() * 4).copy())
    with torch.inference_mode():
        found = torch.sigmoid(app.state.model(dense, KeyedJaggedTensor(keys=FEATURES, values=ids, lengths=torch.ones(len(ids), dtype=torch.int32))))
    numbers = found.numpy().tobytes()
    text = json.dumps({"model_name": "model", "outputs": [{"name": "prediction", "datatype": "FP32", "shape": [n], "parameters": {"binary_data_size": len(numbers)}}]}).encode()
    return fastapi.Response(text + numbers, media_type="application/octet-stream", headers={LENGTH: str(len(text))})


if __name__ == "__main__":
    app.state.model = create(int(sys.argv[1]), *([int(x) for x in text.split(",")] for text in sys.argv[2:4]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[4]), log_level="error", access_log=False)
