#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""FBGEMM's and torch's CPU kernels on the workload of bench_kernels: one line "kernel,M/s" each. Started by bench_kernels.py."""
import argparse
import logging
import os
import statistics
import time
import warnings

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--repeats", type=int, default=5)
parser.add_argument("--tables", type=int, default=26)
parser.add_argument("--rows", type=int, default=100000)
parser.add_argument("--dim", type=int, default=64)
parser.add_argument("--pooling", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=2048)
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
        tables.init_embedding_weights_uniform(-0.1, 0.1)  # touch the pages: unwritten ones share one of zeros
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
    x = torch.rand(1 << 17, 32) * 2 - 1
    emit("encode fp16", x.numel(), median_seconds(x.half))
    emit("encode bf16", x.numel(), median_seconds(x.bfloat16))
    emit("encode int8", x.numel(), median_seconds(lambda: torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(x)))
    emit("encode fp8", x.numel(), median_seconds(lambda: torch.ops.fbgemm.FloatToHFP8Quantized(x, 4, 15, 0.9375)))


def main():
    torch.manual_seed(1)
    ids, offsets = torch.randint(0, R, (N,)), torch.arange(0, N + 1, P)
    training_tables(ids, offsets)
    inference_tables(ids, offsets)
    embedding_bags(ids)
    operators(ids)


main()
