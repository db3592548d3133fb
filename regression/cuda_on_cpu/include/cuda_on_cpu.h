/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of the stand-in's streams for its other parts (kernels, NCCL, cuBLASLt, CUB). */
#pragma once

#include "cuda_runtime_api.h"

#include <functional>

namespace cuda_on_cpu
{
/*
  Append an operation to a stream. `step` is called after all earlier operations of the stream are
  complete, when the random order picks the stream. Device memory is then open. `step` returns true
  if the operation is complete. It returns false to be called again later, for example if the
  partners of an exchange have not arrived. It must not wait. `name` is kept as a pointer, for
  messages. If the stream is being captured, the operation is added to the graph and runs once for
  each launch.
*/
void enqueue(cudaStream_t stream, const char *name, std::function<bool()> step);

/*
  Like enqueue(), for an operation that is polled often but rarely needs device memory. `step` is
  called with device memory closed, and must open it itself.
*/
void enqueue_poll(cudaStream_t stream, const char *name, std::function<bool()> step);
void with_memory(const std::function<void()> &use);

/*
  Run one step of any stream. Code that waits for another rank calls this function. Inside an
  operation it does nothing.
*/
void get_on();

/*
  Count a cuBLASLt product that reads and writes this number of bytes. odd: an address or a stride
  is aligned to less than 16 bytes.
*/
void count_product(cudaStream_t stream, bool odd, size_t bytes);

/* Advance the clock that events read, inside an operation. No time passes. */
void advance_clock(int ms);

/* Count a sort by CUB. */
void count_sort(cudaStream_t stream);

/*
  A random number from the stand-in's sequence, whose seed is CUDA_ON_CPU_SEED in the environment.
*/
unsigned random();

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace cuda_on_cpu
