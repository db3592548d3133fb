/* SPDX-License-Identifier: BSD-3-Clause */
/* What the stand-in's own parts (kernels, NCCL, cuBLASLt, CUB) use of its streams. */
#pragma once

#include "cuda_runtime_api.h"

#include <functional>

namespace cuda_on_cpu
{
/*
  Append an operation to a stream. It is called, with device memory open, once all before it is done and the random order picks the stream; it
  returns true when it is done, false to be called again later (an exchange whose partners have not come): never wait inside.
  name is kept by pointer, for messages. On a stream that is captured the operation goes into the graph, and runs once for each launch.
*/
void enqueue(cudaStream_t stream, const char *name, std::function<bool()> step);

/* The same for an operation that is asked often and needs device memory seldom: it is called with device memory closed, and opens it. */
void enqueue_poll(cudaStream_t stream, const char *name, std::function<bool()> step);
void with_memory(const std::function<void()> &use);

/* One step of some stream, for whoever waits elsewhere; nothing inside of an operation. */
void get_on();

/* cuBLASLt starts a product that reads and writes so many bytes; odd: an address or a stride is on less than 16 bytes. */
void count_product(cudaStream_t stream, bool odd, size_t bytes);

/* CUB sorts. */
void count_sort(cudaStream_t stream);

/* A random number of the stand-in's own sequence: the environment's CUDA_ON_CPU_SEED. */
unsigned random();

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace cuda_on_cpu
