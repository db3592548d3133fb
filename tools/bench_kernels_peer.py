#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs FBGEMM's and torch's CPU kernels on the workload of bench_kernels. Prints a line "kernel,M/s" for each. Started by bench_kernels.py.

With --dense it runs torch's dense part of a DLRM step instead, as bench_dense does: forward, backward and SGD, with the gradient of the
embeddings.
"""
import argparse
import logging
import os
import statistics
import time
import warnings

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--repeats", type=int, default=5)
parser.add_argument("--tables", type=int, default=26)
parser.add_argument("--rows", type=int, default=100000)
parser.add_argument("--dim", type=int, default=64)
parser.add_argument("--pooling", type=int, default=10)
parser.add_argument("--batch_size", type=int, default=2048)
parser.add_argument("--dense", choices=["large", "small", "dcn"])
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402  (after the environment)
import fbgemm_gpu  # noqa: E402,F401
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType  # noqa: E402
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode  # noqa: E402
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (  # noqa: E402
    IntNBitTableBatchedEmbeddingBagsCodegen)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (  # noqa: E402
    ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)

torch.set_num_threads(options.threads)
clock = time.process_time if options.threads == 1 else time.perf_counter
T, R, D, P, B = options.tables, options.rows, options.dim, options.pooling, options.batch_size
N = T * B * P


def median_seconds(call, warm_up=2):
    seconds = []
    for i in range(warm_up + options.repeats):
        start = clock()
        result = call()
        seconds.append(result if isinstance(result, float) else clock() - start)
    return statistics.median(seconds[warm_up:])


def emit(kernel, items, seconds):
    print(f"{kernel},{items / seconds / 1e6:.2f}", flush=True)


def training_tables(ids, offsets):
    for name, optimizer in (("rowwise_adagrad", EmbOptimType.EXACT_ROWWISE_ADAGRAD), ("sgd", EmbOptimType.EXACT_SGD)):
        tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(R, D, EmbeddingLocation.HOST, ComputeDevice.CPU)] * T, optimizer=optimizer,
            weights_precision=SparseType.FP32, learning_rate=1e-3, pooling_mode=PoolingMode.SUM)
        tables.init_embedding_weights_uniform(-0.1, 0.1)  # write to all pages: unwritten pages share one page of zeros
        gradient = torch.rand(B, T * D) * 0.2 - 0.1

        def backward():
            out = tables(ids, offsets)
            start = clock()
            out.backward(gradient)
            return clock() - start

        emit("backward " + name, N, median_seconds(backward))
        if name == "rowwise_adagrad":
            emit("forward fp32", N, median_seconds(lambda: tables(ids, offsets)))


def inference_tables(ids, offsets):
    for name, dtype in (("fp16", SparseType.FP16), ("int8", SparseType.INT8), ("int4", SparseType.INT4)):
        tables = IntNBitTableBatchedEmbeddingBagsCodegen(
            [("", R, D, dtype, EmbeddingLocation.HOST)] * T, device="cpu", output_dtype=SparseType.FP32)
        tables.fill_random_weights()
        emit("forward " + name, N, median_seconds(lambda: tables(ids.int(), offsets.int())))


def embedding_bags(ids):
    bags = [torch.nn.EmbeddingBag(R, D, mode="sum") for _ in range(T)]
    of_table = [ids[t * B * P:(t + 1) * B * P] for t in range(T)]
    offsets = torch.arange(0, B * P, P)
    with torch.no_grad():
        emit("forward fp32 torch", N,
             median_seconds(lambda: [bag(x, offsets) for bag, x in zip(bags, of_table)]))


def operators(ids):
    lengths = torch.full((T * B,), P, dtype=torch.int64)
    for buckets in (8, 64):
        blocks = torch.full((T,), (R + buckets - 1) // buckets, dtype=torch.int64)
        emit(f"bucketize {buckets}", N, median_seconds(
            lambda: torch.ops.fbgemm.block_bucketize_sparse_features(lengths, ids, False, False, blocks, buckets)))
    order = torch.arange(T - 1, -1, -1, dtype=torch.int32)
    by_feature = lengths.view(T, B)
    emit("permute", N, median_seconds(lambda: torch.ops.fbgemm.permute_2D_sparse_data(order, by_feature, ids, None, N)))
    x = torch.rand(1 << 17, 32) * 2 - 1
    emit("encode fp16", x.numel(), median_seconds(x.half))
    emit("encode bf16", x.numel(), median_seconds(x.bfloat16))
    emit("encode int8", x.numel(), median_seconds(lambda: torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(x)))
    emit("encode fp8", x.numel(), median_seconds(lambda: torch.ops.fbgemm.FloatToHFP8Quantized(x, 4, 15, 0.9375)))
    half, brain = x.half(), x.bfloat16()
    rows8, hybrid8 = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(x), torch.ops.fbgemm.FloatToHFP8Quantized(x, 4, 15, 0.9375)
    emit("decode fp16", x.numel(), median_seconds(half.float))
    emit("decode bf16", x.numel(), median_seconds(brain.float))
    emit("decode int8", x.numel(), median_seconds(lambda: torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(rows8)))
    emit("decode fp8", x.numel(), median_seconds(lambda: torch.ops.fbgemm.HFP8QuantizedToFloat(hybrid8, 4, 15)))


def dot(vectors, upper):
    """[B, n, D] -> [B, D + n (n - 1) / 2]: the first vector, then the products of all pairs."""
    products = torch.bmm(vectors, vectors.transpose(1, 2))
    return torch.cat((vectors[:, 0], products[:, upper[0], upper[1]]), dim=1)


def interaction():
    vectors = (torch.rand(B, T + 1, D) - 0.5).requires_grad_()
    upper = torch.triu_indices(T + 1, T + 1, offset=1)
    gradient = torch.rand(B, D + T * (T + 1) // 2)
    with torch.no_grad():
        emit("interaction dot torch", B, median_seconds(lambda: dot(vectors, upper)))

    def backward():
        out = dot(vectors, upper)
        vectors.grad = None
        start = clock()
        out.backward(gradient)
        return clock() - start

    emit("interaction dot backward torch", B, median_seconds(backward))


def mlp(sizes):
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers[:-1] if sizes[-1] == 1 else layers)


class Cross(torch.nn.Module):
    """DCN V2, low rank: x0 * (W V x + b) + x."""

    def __init__(self, width, layers=3, rank=512):
        super().__init__()
        self.down = torch.nn.ModuleList(torch.nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.up = torch.nn.ModuleList(torch.nn.Linear(rank, width) for _ in range(layers))

    def forward(self, x0):
        x = x0
        for down, up in zip(self.down, self.up):
            x = x0 * up(down(x)) + x
        return x


def dense_step(kind, n=26, dim=64, num_dense=13):
    bottom = mlp([num_dense, 64, dim] if kind == "small" else [num_dense, 512, 256, dim])
    cross = Cross((n + 1) * dim) if kind == "dcn" else None
    top = mlp([(n + 1) * dim if cross else dim + n * (n + 1) // 2] + ([64, 1] if kind == "small" else [1024, 1024, 512, 256, 1]))
    parameters = [p for part in (bottom, top, cross) if part for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    upper = torch.triu_indices(n + 1, n + 1, offset=1)
    dense, labels = torch.rand(B, num_dense), (torch.rand(B, 1) < 0.5).float()
    rows = (torch.rand(B, n, dim) * 0.2 - 0.1).requires_grad_()

    def step():
        optimizer.zero_grad()
        rows.grad = None
        vectors = torch.cat((bottom(dense).unsqueeze(1), rows), dim=1)
        z = top(cross(vectors.flatten(1)) if cross else dot(vectors, upper))
        torch.nn.functional.binary_cross_entropy_with_logits(z, labels).backward()
        optimizer.step()

    print(f"step ms,{1e3 * median_seconds(step):.3f}", flush=True)
    a, b = torch.rand(B, 1024), torch.rand(1024, 1024)
    print(f"sgemm GFLOP/s,{2e-9 * B * 1024 * 1024 / median_seconds(lambda: a @ b):.1f}", flush=True)


def main():
    torch.manual_seed(1)
    if options.dense:
        dense_step(options.dense)
        return
    ids, offsets = torch.randint(0, R, (N,)), torch.arange(0, N + 1, P)
    training_tables(ids, offsets)
    inference_tables(ids, offsets)
    embedding_bags(ids)
    operators(ids)
    interaction()


main()
