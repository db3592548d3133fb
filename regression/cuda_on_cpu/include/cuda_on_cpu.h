/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of the stand-in's streams for its other parts (kernels, NCCL, cuBLASLt, CUB). */
#pragma once

#include "cuda_runtime_api.h"

#include <functional>

namespace cuda_on_cpu
{
/*
  Append an operation to a stream. It is called, with device memory open, after all earlier
  operations are complete and the random order picks the stream. It returns true if it is complete,
  and false to be called again later (an exchange whose partners have not arrived). It must not
  wait. `name` is kept as a pointer, for messages. If the stream is being captured, the operation is
  added to the graph and runs once for each launch.
*/
void enqueue(cudaStream_t stream, const char *name, std::function<bool()> step);

/*
  The same for an operation that is polled often but rarely needs device memory. It is called with
  device memory closed, and opens it itself.
*/
void enqueue_poll(cudaStream_t stream, const char *name, std::function<bool()> step);
void with_memory(const std::function<void()> &use);

/*
  Run one step of some stream, for code that waits elsewhere. Inside an operation, it does nothing.
*/
void get_on();

/*
  cuBLASLt starts a product that reads and writes this number of bytes. odd: an address or a stride
  is aligned to less than 16 bytes.
*/
void count_product(cudaStream_t stream, bool odd, size_t bytes);

/* CUB sorts. */
void count_sort(cudaStream_t stream);

/*
  A random number from the stand-in's sequence, whose seed is CUDA_ON_CPU_SEED in the environment.
*/
unsigned random();

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace cuda_on_cpu
