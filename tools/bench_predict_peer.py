#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""TorchRec's side of bench_predict.py: a DLRM through quantize_inference_model, in one thread. Prints the median and the 99th percentile in us,
and samples per second.

    bench_predict_peer.py ROWS DENSE_ARCH OVER_ARCH BATCH
"""
import sys
import time

import torch
from torchrec.inference.modules import quantize_inference_model
from torchrec.models.dlrm import DLRM
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

SECONDS, FEATURES = 2.0, [f"f{i}" for i in range(26)]


def main():
    rows, dense, over, batch = int(sys.argv[1]), *([int(x) for x in text.split(",")] for text in sys.argv[2:4]), int(sys.argv[4])
    torch.set_num_threads(1)
    tables = [EmbeddingBagConfig(name=f"t{i}", embedding_dim=64, num_embeddings=rows, feature_names=[name]) for i, name in enumerate(FEATURES)]
    model = quantize_inference_model(DLRM(EmbeddingBagCollection(tables=tables), dense_in_features=13, dense_arch_layer_sizes=dense, over_arch_layer_sizes=over).eval())
    x, lengths = torch.rand(batch, 13), torch.ones(26 * batch, dtype=torch.int32)
    times = []

    def predict(ids):
        with torch.inference_mode():
            return torch.sigmoid(model(x, KeyedJaggedTensor(keys=FEATURES, values=ids, lengths=lengths)))

    for _ in range(20):
        predict(torch.randint(0, 1000, (26 * batch,)))
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        ids = torch.randint(0, 1000, (26 * batch,))
        start = time.perf_counter()
        predict(ids)
        times.append(time.perf_counter() - start)
    times.sort()
    print(1e6 * times[len(times) // 2], 1e6 * times[len(times) * 99 // 100], batch * len(times) / sum(times))


main()
