/* SPDX-License-Identifier: BSD-3-Clause */
/*
  traps NAME - Test that the stand-in finds mistakes. Each case except "right" makes one mistake
  that a GPU would sometimes tolerate. The tests expect the stand-in's message or a wrong sum.
*/
#include <cuda_runtime.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000, THREADS = 64 };

static __global__ void add_one(int n, int *x)
{
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] += 1;
}

/* Each block reverses its part of x through shared memory. If wait is 0, a barrier is missing. */
static __global__ void reverse(int *x, int wait)
{
  __shared__ int run[THREADS];
  const int i = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * THREADS;

  run[i] = x[first + i];
  if (wait) __syncthreads();
  x[first + i] = run[THREADS - 1 - i];
}

static __global__ void divergent_barrier(int *x)
{
  if (threadIdx.x < 16)
    __syncthreads();
  else
    x[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 0);
}

static __global__ void behind_the_end(int *x, int n)
{
  x[n] = 1;
}

/* Lanes exchange numbers through shared memory. If wait is 0, a wait is missing. */
static __global__ void swap_lanes(int *x, int wait)
{
  __shared__ int run[32];
  const int lane = static_cast<int>(threadIdx.x);

  run[lane] = lane;
  if (wait) __syncwarp();
  x[lane] = run[31 - lane];
}

static __global__ void four_at_once(int *x)
{
  *reinterpret_cast<int4 *>(x) = int4();
}

static __global__ void block_number(int *x)
{
  x[0] = static_cast<int>(blockIdx.x);
}

/*
  Each block writes a number and counts itself. The last block adds the numbers. If fence is 0, a
  fence is missing.
*/
static __global__ void last_block(int *x, int fence)
{
  x[2 + blockIdx.x] = 1;
  if (fence) __threadfence();
  if (atomicAdd(x, 1) == static_cast<int>(gridDim.x) - 1)
    for (unsigned b = 0; b < gridDim.x; b++) x[1] += x[2 + b];
}

static int is(const char *name, const char *wanted)
{
  return strcmp(name, wanted) == 0;
}

/*
  One stream sets numbers, and another stream adds to them. The sum is N only if the second stream
  waits for the first.
*/
static int two_streams(const char *name, int *device)
{
  cudaStream_t first, second;
  cudaEvent_t set;
  int *host, sum = 0;

  cudaHostAlloc(reinterpret_cast<void **>(&host), N * sizeof(*host), cudaHostAllocDefault);
  cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, 0);
  cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, 0);
  cudaEventCreateWithFlags(&set, cudaEventDisableTiming);
  for (int round = 0; round < 20; round++) {
    cudaMemsetAsync(device, 0, N * sizeof(*device), first);
    cudaEventRecord(set, first);
    if (!is(name, "missing_event")) cudaStreamWaitEvent(second, set, 0);
    CU_START(add_one, dim3((N + THREADS - 1) / THREADS), dim3(THREADS), 0, second, static_cast<int>(N),
             device);
    cudaMemcpyAsync(host, device, N * sizeof(*host), cudaMemcpyDeviceToHost, second);
    if (!is(name, "read_too_early")) cudaStreamSynchronize(second);
    for (int i = 0; i < N; i++) sum += host[i];
    cudaDeviceSynchronize();
  }
  printf("%s\n", sum == 20 * N ? "the right sum" : "a wrong sum");
  return sum != 20 * N;
}

/*
  During a capture, add one and make the mistake `name`. Print the first error, and the error that
  ends the capture.
*/
static cudaGraph_t capture(const char *name, cudaStream_t stream, int *device)
{
  static int pageable[N];
  cudaEvent_t event;
  cudaGraph_t graph;
  cudaError_t error = cudaSuccess;
  void *memory;

  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (is(name, "capture_other_event")) cudaEventRecord(event, nullptr);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  CU_START(add_one, dim3((N + THREADS - 1) / THREADS), dim3(THREADS), 0, stream, static_cast<int>(N), device);
  if (is(name, "capture_waits")) error = cudaStreamSynchronize(stream);
  if (is(name, "capture_waits_for_device")) error = cudaDeviceSynchronize();
  if (is(name, "capture_allocates")) error = cudaMalloc(&memory, N);
  if (is(name, "capture_releases")) error = cudaFree(device);
  if (is(name, "capture_other_event")) error = cudaStreamWaitEvent(stream, event, 0);
  if (is(name, "captured_event")) {
    cudaEventRecord(event, stream);
    error = cudaEventQuery(event);
  }
  if (is(name, "capture_default_stream")) {
    cudaMemsetAsync(device, 0, N, nullptr);
    error = cudaGetLastError();
  }
  if (is(name, "capture_pageable"))
    cudaMemcpyAsync(pageable, device, sizeof(pageable), cudaMemcpyDeviceToHost, stream);
  const cudaError_t end = cudaStreamEndCapture(stream, &graph);
  if (error != cudaSuccess) printf("%s, then %s\n", cudaGetErrorName(error), cudaGetErrorName(end));
  cudaEventDestroy(event);
  return graph;
}

/* Launch a graph that adds one repeatedly, between a set and a copy. */
static int replayed(const char *name, int *device)
{
  enum { ROUNDS = 5 };
  cudaStream_t stream, other;
  cudaEvent_t added;
  cudaGraphExec_t executable;
  int *host, wrong = 0;

  cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
  cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0);
  cudaEventCreateWithFlags(&added, cudaEventDisableTiming);
  cudaHostAlloc(reinterpret_cast<void **>(&host), N * sizeof(*host), cudaHostAllocDefault);
  cudaMemsetAsync(device, 0, N * sizeof(*device), stream);
  const cudaGraph_t graph = capture(name, stream, device);
  cudaStreamSynchronize(stream);
  if (!graph) return 1;
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  for (int round = 1; round <= ROUNDS; round++) {
    cudaGraphLaunch(executable, stream);
    cudaEventRecord(added, stream);
    if (!is(name, "missing_event_of_graph")) cudaStreamWaitEvent(other, added, 0);
    cudaMemcpyAsync(host, device, N * sizeof(*host), cudaMemcpyDeviceToHost, other);
    cudaStreamSynchronize(other);
    for (int i = 0; i < N; i++) wrong += host[i] != round;
    cudaStreamSynchronize(stream);
  }
  cudaGraphExecDestroy(executable);
  printf("%s\n", wrong ? "wrong replays" : "the right replays");
  return wrong != 0;
}

static int reversed(const char *name, int *device)
{
  int host[THREADS], wrong = 0;

  for (int i = 0; i < THREADS; i++) host[i] = i;
  cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice);
  CU_START(reverse, dim3(1), dim3(THREADS), 0, static_cast<cudaStream_t>(nullptr), device,
           static_cast<int>(!is(name, "forgotten_barrier")));
  cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost);
  for (int i = 0; i < THREADS; i++) wrong += host[i] != THREADS - 1 - i;
  printf("%s\n", wrong ? "a wrong run" : "the right run");
  return wrong != 0;
}

/*
  The stand-in prints a message and aborts. CTest would report a crash, whatever the message says.
  So end the program without a signal.
*/
static void end_quietly(int)
{
  _Exit(1);
}

int main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "right";
  const cudaStream_t none = nullptr;
  int *device, *unset = nullptr;

  signal(SIGABRT, end_quietly);
  if (cudaMalloc(&device, N * sizeof(*device)) != cudaSuccess) return 2;
  if (is(name, "host_access")) return device[0];
  if (is(name, "divergent_barrier")) CU_START(divergent_barrier, dim3(1), dim3(32), 0, none, device);
  if (is(name, "behind_the_end"))
    CU_START(behind_the_end, dim3(1), dim3(1), 0, none, device, static_cast<int>(N));
  if (is(name, "shared_not_asked")) CU_START(add_one, dim3(1), dim3(1), size_t(49) << 10, none, 0, device);
  if (is(name, "other_gpu")) {
    cudaStream_t of_first;

    cudaStreamCreateWithPriority(&of_first, cudaStreamNonBlocking, 0);
    cudaSetDevice(1);
    CU_START(block_number, dim3(1), dim3(1), 0, of_first, device);
  }
  int of_the_host = 0;
  cudaMemset(device, 0, N * sizeof(*device));
  CU_START(swap_lanes, dim3(1), dim3(32), 0, none, device, static_cast<int>(!is(name, "forgotten_syncwarp")));
  CU_START(block_number, dim3(is(name, "two_blocks") ? 2 : 1), dim3(1), 0, none, device);
  CU_START(last_block, dim3(3), dim3(1), 0, none, device, static_cast<int>(!is(name, "forgotten_fence")));
  if (is(name, "misaligned")) CU_START(four_at_once, dim3(1), dim3(1), 0, none, device + 2);
  if (is(name, "host_pointer")) CU_START(block_number, dim3(1), dim3(1), 0, none, &of_the_host);
  if (is(name, "unset")) {
    cudaMalloc(&unset, sizeof(*unset));
    CU_START(add_one, dim3(1), dim3(1), 0, none, 1, unset);
  }
  cudaDeviceSynchronize();
  const int failed = reversed(name, device) | replayed(name, device) | two_streams(name, device);
  cudaFree(device);
  cudaFree(unset);
  return failed;
}
