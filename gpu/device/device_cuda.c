/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CUDA device. It uses plain allocations (no managed memory), streams that do not wait for the
  default stream, and events without timing (except for a trace).

  The CUDA runtime is linked statically and looks for the driver at its first call. So a program
  with this file also starts on a machine without a driver.
*/
#include "gpu/device/device_cuda.h"

#include "core/clock.h"
#include "device/kernel_times.h"
#include "gpu/cuda_error.h"

#include <inttypes.h>
#include <math.h>
#include <nvtx3/nvToolsExt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
  The waiting thread queries a stream this many times before it checks for other failures and yields
  its core.
*/
enum { TRS_CUDA_QUERIES = 64 };

static PetscErrorCode (*while_waiting)(double start_s); /* registered once, at set-up */

static int64_t n_releases; /* number of times that device or pinned memory was released */

/*
  Times of timed events count from the event `zero` (clock_align_cuda()). It exists until another
  GPU is timed, or as long as the process.
*/
enum { TRS_CUDA_CLOCK_ROUNDS = 8 };
static TrsEvent zero;
static int zero_gpu; /* the GPU of `zero` */
static double zero_s;

/* Memory that the kernels on a stream share: scratch memory and counters. */
enum { TRS_CUDA_SCRATCH, TRS_CUDA_COUNTERS, TRS_CUDA_KINDS };

/* The streams on which this process has device work, in addition to the default stream. */
typedef struct {
  cudaStream_t stream;
  TrsDeviceBuffer room[TRS_CUDA_KINDS];
} TrsCudaStreamRoom;
static TrsCudaStreamRoom *streams;
static int n_streams;

/* The memory for the default streams. Each GPU has a default stream of its own. */
static TrsDeviceBuffer (*default_room)[TRS_CUDA_KINDS];
static int n_default_rooms;

/*
  Wait until `query` reports that the stream or event is done, or until while_waiting() finds an
  error.
*/
static PetscErrorCode wait_for(cudaError_t (*query)(const void *what), const void *what)
{
  const double start_s = MPI_Wtime();
  cudaError_t error = cudaErrorNotReady;

  PetscFunctionBegin;
  while (error == cudaErrorNotReady) {
    for (int i = 0; i < TRS_CUDA_QUERIES && error == cudaErrorNotReady; i++) error = query(what);
    if (error != cudaErrorNotReady) break;
    PetscCall(while_waiting(start_s));
    (void)sched_yield();
  }
  TrsCallCUDA(error);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static cudaError_t query_stream(const void *stream)
{
  return cudaStreamQuery(*(const cudaStream_t *)stream);
}

static cudaError_t query_event(const void *event)
{
  return cudaEventQuery(*(const cudaEvent_t *)event);
}

static PetscErrorCode wait_stream(cudaStream_t stream)
{
  PetscFunctionBegin;
  if (while_waiting)
    PetscCall(wait_for(query_stream, &stream));
  else
    TrsCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaEventWait(cudaEvent_t event)
{
  PetscFunctionBegin;
  if (while_waiting)
    PetscCall(wait_for(query_event, &event));
  else
    TrsCallCUDA(cudaEventSynchronize(event));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Wait for the whole device, and check for failures meanwhile. cudaFree would wait as long, but
  without these checks.
*/
static PetscErrorCode wait_device(void)
{
  PetscFunctionBegin;
  for (int i = 0; while_waiting && i < n_streams; i++) PetscCall(wait_stream(streams[i].stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The oldest GPUs for which kernels are built have compute capability 8.0 (Ampere). */
enum { TRS_CUDA_OLDEST = 8 };

/*
  Find the GPU with index `wanted` among the GPUs that are new enough. Returns its index in the
  driver's list, and the number of GPUs that are new enough.
*/
static PetscErrorCode find_usable(int n_gpus, int wanted, int *place, int *n_usable)
{
  PetscFunctionBegin;
  *n_usable = 0;
  for (int i = 0; i < n_gpus; i++) {
    int major = 0;

    TrsCallCUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
    if (major < TRS_CUDA_OLDEST) continue;
    if (*n_usable == wanted) *place = i;
    ++*n_usable;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void say_why_not(cudaError_t error, char *why_not, size_t size)
{
  int driver = 0, runtime = 0;

  (void)cudaGetLastError(); /* clear the error, so that a later call does not report it */
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    snprintf(why_not, size, "there is no NVIDIA driver");
  else if (error == cudaErrorInsufficientDriver)
    snprintf(why_not, size,
             "the NVIDIA driver is too old: it supports CUDA %d.%d, this program needs %d.%d (a newer "
             "driver, or on "
             "NVIDIA's GPUs for servers its package cuda-compat-%d-%d in LD_LIBRARY_PATH)",
             driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, runtime / 1000,
             runtime % 1000 / 10);
  else
    snprintf(why_not, size, "%s", error == cudaSuccess ? "no GPU" : cudaGetErrorString(error));
}

/*
  The largest possible number of hardware queues. The default is 8, but a model and its
  communicators have more streams, and two streams in one queue wait for each other.
*/
#define TRS_CUDA_QUEUES "32"

/* The number of usable GPUs. GPUs that are too old are not counted. */
static PetscErrorCode available_cuda(int *n_devices, char *why_not, size_t why_not_size)
{
  struct cudaDeviceProp properties;
  int n_gpus = 0, place = 0;
  cudaError_t error;

  PetscFunctionBegin;
  *n_devices = 0;
  /* CUDA reads this variable in its first call */
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", TRS_CUDA_QUEUES, 0);
  error = cudaGetDeviceCount(&n_gpus);
  if (error != cudaSuccess || n_gpus == 0) {
    say_why_not(error, why_not, why_not_size);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(find_usable(n_gpus, 0, &place, n_devices));
  if (*n_devices > 0) PetscFunctionReturn(PETSC_SUCCESS);
  TrsCallCUDA(cudaGetDeviceProperties(&properties, 0));
  snprintf(why_not, why_not_size, "%.64s has compute capability %d.%d, this program needs %d.0",
           properties.name, properties.major, properties.minor, TRS_CUDA_OLDEST);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the GPU of this task. A task may see a GPU of its own or all GPUs of the host. The
  identities of the chosen GPUs show which case it is.
*/
static PetscErrorCode setup_cuda(int local_rank, int local_size)
{
  char why_not[256];
  int n_gpus, n_devices, place = 0;

  PetscFunctionBegin;
  (void)local_size;
  PetscCall(available_cuda(&n_devices, why_not, sizeof(why_not)));
  PetscCheck(n_devices > 0, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-device cuda: %s (CUDA_VISIBLE_DEVICES hides GPUs, -device cpu needs none)", why_not);
  TrsCallCUDA(cudaGetDeviceCount(&n_gpus));
  PetscCall(find_usable(n_gpus, local_rank % n_devices, &place, &n_devices));
  TrsCallCUDA(cudaSetDevice(place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check if this thread has chosen or used a GPU. If it has not, CUDA will give it the first GPU. */
static PetscErrorCode has_context(PetscBool *has)
{
  static int (*get_current)(void **);
  enum cudaDriverEntryPointQueryResult found;
  void *entry, *context = NULL;

  PetscFunctionBegin;
  if (!get_current) {
    TrsCallCUDA(
        cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, 12000, cudaEnableDefault, &found));
    memcpy(&get_current, &entry, sizeof(get_current));
  }
  PetscCheck(get_current(&context) == 0, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "CUDA: cuCtxGetCurrent failed");
  *has = (PetscBool)(context != NULL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Use another GPU, and return the one that this thread had. A thread without a GPU keeps the new
  one: to choose the first GPU for it would start a context there, with several hundred MiB of GPU
  memory.
*/
static PetscErrorCode use_cuda(int number, int *had)
{
  PetscBool has;
  int current;

  PetscFunctionBegin;
  PetscCall(has_context(&has));
  TrsCallCUDA(cudaGetDevice(&current));
  if (number >= 0 && (number != current || !has)) TrsCallCUDA(cudaSetDevice(number));
  *had = has ? current : -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode about_cuda(char *text, size_t size)
{
  struct cudaDeviceProp properties;
  int device, driver;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&device));
  TrsCallCUDA(cudaGetDeviceProperties(&properties, device));
  TrsCallCUDA(cudaDriverGetVersion(&driver));
  snprintf(text, size, "%.64s (compute capability %d.%d, %.1f GiB, driver of CUDA %d.%d)", properties.name,
           properties.major, properties.minor, (double)properties.totalGlobalMem / (double)(1 << 30),
           driver / 1000, driver % 1000 / 10);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The identity is the UUID: a slice of a GPU (MIG) has its own UUID. */
static PetscErrorCode identity_cuda(char *name, size_t size)
{
  struct cudaDeviceProp properties;
  size_t at;
  int device;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&device));
  TrsCallCUDA(cudaGetDeviceProperties(&properties, device));
  at = (size_t)snprintf(name, size, "%.64s GPU-", properties.name);
  for (int i = 0; i < 16 && at + 3 < size; i++)
    at += (size_t)snprintf(name + at, size - at, "%02x", (unsigned)(unsigned char)properties.uuid.bytes[i]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode memory_cuda(int64_t *free_bytes, int64_t *total_bytes)
{
  size_t now_free, total;

  PetscFunctionBegin;
  TrsCallCUDA(cudaMemGetInfo(&now_free, &total));
  *free_bytes = (int64_t)now_free;
  *total_bytes = (int64_t)total;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaAllocUnset(int64_t bytes, void **pointer)
{
  size_t now_free = 0, total = 0;
  cudaError_t error;

  PetscFunctionBegin;
  *pointer = NULL;
  if (bytes <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  error = cudaMalloc(pointer, (size_t)bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&now_free, &total);
  }
  PetscCheck(error != cudaErrorMemoryAllocation, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "the GPU has no %" PRId64 " bytes left: %zu of its %zu are free", bytes, now_free, total);
  TrsCallCUDA(error);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alloc_cuda(int64_t bytes, void **pointer)
{
  PetscFunctionBegin;
  PetscCall(TrsCudaAllocUnset(bytes, pointer));
  if (!*pointer) PetscFunctionReturn(PETSC_SUCCESS);
  TrsCallCUDA(cudaMemset(*pointer, 0, (size_t)bytes));
  TrsCallCUDA(cudaStreamSynchronize(NULL)); /* our streams do not wait for the default stream */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_cuda(void **pointer)
{
  PetscFunctionBegin;
  if (*pointer) {
    PetscCall(wait_device());
    TrsCallCUDA(cudaFree(*pointer));
    n_releases++;
  }
  *pointer = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alloc_host_cuda(int64_t bytes, void **pointer)
{
  cudaError_t error;

  PetscFunctionBegin;
  *pointer = NULL;
  if (bytes <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  error = cudaHostAlloc(pointer, (size_t)bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  PetscCheck(error != cudaErrorMemoryAllocation, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "the host has no %" PRId64 " bytes to pin for the GPU (ulimit -l, memory of the job)", bytes);
  TrsCallCUDA(error);
  memset(*pointer, 0, (size_t)bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_host_cuda(void **pointer)
{
  PetscFunctionBegin;
  if (*pointer) {
    PetscCall(wait_device());
    TrsCallCUDA(cudaFreeHost(*pointer));
    n_releases++;
  }
  *pointer = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_cuda(void *to, const void *from, int64_t bytes, TrsStream stream)
{
  PetscFunctionBegin;
  if (bytes > 0)
    TrsCallCUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, TrsStreamCuda(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode zero_cuda(void *to, int64_t bytes, TrsStream stream)
{
  PetscFunctionBegin;
  if (bytes > 0) TrsCallCUDA(cudaMemsetAsync(to, 0, (size_t)bytes, TrsStreamCuda(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True for the streams of small kernels for which other work waits. These kernels run before the
  next thread blocks of large kernels. Large kernels are on the streams compute and prefetch; moving
  rows from the host to a cache occupies many SMs.
*/
static PetscBool is_urgent(const char *name)
{
  return (PetscBool)(strcmp(name, "compute") != 0 && strcmp(name, "prefetch") != 0);
}

static PetscErrorCode stream_create_cuda(const char *name, TrsStream *stream)
{
  int least = 0, greatest = 0;
  cudaStream_t created;

  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(n_streams + 1) * sizeof(*streams), &streams));
  memset(&streams[n_streams], 0, sizeof(*streams));
  TrsCallCUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TrsCallCUDA(
      cudaStreamCreateWithPriority(&created, cudaStreamNonBlocking, is_urgent(name) ? greatest : least));
  streams[n_streams++].stream = created;
  *stream = (TrsStream)(void *)created;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_destroy_cuda(TrsStream *stream)
{
  const cudaStream_t destroyed = TrsStreamCuda(*stream);

  PetscFunctionBegin;
  if (!destroyed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(wait_stream(destroyed));
  for (int i = 0; i < n_streams; i++) {
    if (streams[i].stream != destroyed) continue;
    for (int k = 0; k < TRS_CUDA_KINDS; k++)
      PetscCall(TrsDeviceBufferFree(&trs_device_cuda, &streams[i].room[k]));
    streams[i] = streams[--n_streams];
    break;
  }
  if (n_streams == 0) PetscCall(PetscFree(streams));
  TrsCallCUDA(cudaStreamDestroy(destroyed));
  *stream = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the memory of the current GPU's default stream. */
static PetscErrorCode room_of_default(int kind, TrsDeviceBuffer **buffer)
{
  int gpu;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&gpu));
  if (gpu >= n_default_rooms) {
    PetscCall(PetscRealloc((size_t)(gpu + 1) * sizeof(*default_room), &default_room));
    memset(default_room + n_default_rooms, 0, (size_t)(gpu + 1 - n_default_rooms) * sizeof(*default_room));
    n_default_rooms = gpu + 1;
  }
  *buffer = &default_room[gpu][kind];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode room_of(TrsStream stream, int kind, int64_t bytes, void **room)
{
  TrsDeviceBuffer *buffer = NULL;

  PetscFunctionBegin;
  if (!stream) PetscCall(room_of_default(kind, &buffer));
  for (int i = 0; !buffer && i < n_streams; i++)
    if (streams[i].stream == TrsStreamCuda(stream)) buffer = &streams[i].room[kind];
  PetscCheck(buffer, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a stream that is not the CUDA device's");
  PetscCall(TrsDeviceBufferReserve(&trs_device_cuda, buffer, bytes));
  *room = buffer->data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaStreamScratch(TrsStream stream, int64_t bytes, void **scratch)
{
  PetscFunctionBegin;
  PetscCall(room_of(stream, TRS_CUDA_SCRATCH, bytes, scratch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaStreamCounters(TrsStream stream, int64_t n, unsigned **counters)
{
  void *room;

  PetscFunctionBegin;
  PetscCall(room_of(stream, TRS_CUDA_COUNTERS, n * (int64_t)sizeof(**counters), &room));
  *counters = (unsigned *)room;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_synchronize_cuda(TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(wait_stream(TrsStreamCuda(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsCudaWhileWaiting(PetscErrorCode (*check)(double start_s))
{
  while_waiting = check;
}

static PetscErrorCode event_create_cuda(TrsEvent *event)
{
  cudaEvent_t created;

  PetscFunctionBegin;
  TrsCallCUDA(cudaEventCreateWithFlags(&created, cudaEventDisableTiming));
  *event = (TrsEvent)(void *)created;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode event_destroy_cuda(TrsEvent *event)
{
  PetscFunctionBegin;
  if (*event) TrsCallCUDA(cudaEventDestroy(TrsEventCuda(*event)));
  *event = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode event_record_cuda(TrsEvent event, TrsStream stream)
{
  PetscFunctionBegin;
  TrsCallCUDA(cudaEventRecord(TrsEventCuda(event), TrsStreamCuda(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_wait_cuda(TrsStream stream, TrsEvent event)
{
  PetscFunctionBegin;
  TrsCallCUDA(cudaStreamWaitEvent(TrsStreamCuda(stream), TrsEventCuda(event), 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode timed_event_create_cuda(TrsEvent *event)
{
  cudaEvent_t created;

  PetscFunctionBegin;
  TrsCallCUDA(cudaEventCreateWithFlags(&created, cudaEventDefault));
  *event = (TrsEvent)(void *)created;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Create the event `zero`, from which timed events are measured. It happened when the host's clock
  showed zero_s, with an error of at most half of the fastest round's time.
*/
static PetscErrorCode clock_align_cuda(void)
{
  double least_s = HUGE_VAL;
  TrsStream idle = NULL;
  TrsEvent tried = NULL;
  int gpu;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&gpu));
  if (gpu != zero_gpu) PetscCall(event_destroy_cuda(&zero));
  zero_gpu = gpu;
  PetscCall(stream_create_cuda("clock", &idle));
  PetscCall(timed_event_create_cuda(&tried));
  if (!zero) PetscCall(timed_event_create_cuda(&zero));
  for (int i = 0; i < TRS_CUDA_CLOCK_ROUNDS; i++) {
    const double before_s = TrsClock();
    double took_s;

    PetscCall(event_record_cuda(tried, idle));
    PetscCall(TrsCudaEventWait(TrsEventCuda(tried)));
    took_s = TrsClock() - before_s;
    if (took_s < least_s) {
      const TrsEvent best = tried;

      tried = zero;
      zero = best;
      zero_s = before_s + took_s / 2;
      least_s = took_s;
    }
  }
  PetscCall(event_destroy_cuda(&tried));
  PetscCall(stream_destroy_cuda(&idle));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode timed_event_read_cuda(TrsEvent event, PetscBool wait, PetscBool *known, double *time_s)
{
  cudaError_t error = cudaSuccess;
  float milliseconds = 0;

  PetscFunctionBegin;
  if (wait)
    PetscCall(TrsCudaEventWait(TrsEventCuda(event)));
  else
    error = cudaEventQuery(TrsEventCuda(event));
  *known = (PetscBool)(error != cudaErrorNotReady);
  if (!*known) PetscFunctionReturn(PETSC_SUCCESS);
  TrsCallCUDA(error);
  TrsCallCUDA(cudaEventElapsedTime(&milliseconds, TrsEventCuda(zero), TrsEventCuda(event)));
  *time_s = zero_s + 1e-3 * (double)milliseconds;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode timed_event_took_cuda(TrsEvent begin, TrsEvent end, double *seconds)
{
  float milliseconds = 0;

  PetscFunctionBegin;
  PetscCall(TrsCudaEventWait(TrsEventCuda(end)));
  TrsCallCUDA(cudaEventElapsedTime(&milliseconds, TrsEventCuda(begin), TrsEventCuda(end)));
  *seconds = 1e-3 * (double)milliseconds;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The capture restricts only the calls of this thread. NCCL's threads, and threads that wait for
  files, may call CUDA as usual.
*/
static PetscErrorCode capture_start_cuda(TrsStream stream)
{
  PetscFunctionBegin;
  TrsCallCUDA(cudaStreamBeginCapture(TrsStreamCuda(stream), cudaStreamCaptureModeThreadLocal));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode capture_end_cuda(TrsStream stream, TrsGraph *graph)
{
  cudaGraph_t captured = NULL;
  cudaGraphExec_t made;
  size_t n_nodes = 0;

  PetscFunctionBegin;
  if (!graph) { /* after an error, which is reported instead of this call's */
    (void)cudaStreamEndCapture(TrsStreamCuda(stream), &captured);
    if (captured) (void)cudaGraphDestroy(captured);
    (void)cudaGetLastError();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *graph = NULL;
  TrsCallCUDA(cudaStreamEndCapture(TrsStreamCuda(stream), &captured));
  TrsCallCUDA(cudaGraphGetNodes(captured, NULL, &n_nodes));
  if (n_nodes > 0) {
    TrsCallCUDA(cudaGraphInstantiate(&made, captured, 0));
    *graph = (TrsGraph)(void *)made;
  }
  TrsCallCUDA(cudaGraphDestroy(captured));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaIsCapturing(TrsStream stream, PetscBool *capturing)
{
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

  PetscFunctionBegin;
  if (stream) TrsCallCUDA(cudaStreamIsCapturing(TrsStreamCuda(stream), &status));
  *capturing = (PetscBool)(status != cudaStreamCaptureStatusNone);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode graph_launch_cuda(TrsGraph graph, TrsStream stream)
{
  PetscFunctionBegin;
  if (!graph) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsKernelBegin("graph", 0, 0, stream));
  TrsCallCUDA(cudaGraphLaunch(TrsGraphCuda(graph), TrsStreamCuda(stream)));
  PetscCall(TrsKernelEnd(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode graph_destroy_cuda(TrsGraph *graph)
{
  PetscFunctionBegin;
  if (*graph) TrsCallCUDA(cudaGraphExecDestroy(TrsGraphCuda(*graph)));
  *graph = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t releases_cuda(void)
{
  return n_releases;
}

/*
  Name the current range for a profiler. NVTX searches for a profiler in the first call. Without one
  a call only tests a pointer.
*/
static void range_cuda(const char *name)
{
  if (name)
    (void)nvtxRangePushA(name);
  else
    (void)nvtxRangePop();
}

const TrsDeviceOps trs_device_cuda = {
    .name = "cuda",
    .host_memory = PETSC_FALSE,
    .available = available_cuda,
    .setup = setup_cuda,
    .use = use_cuda,
    .identity = identity_cuda,
    .about = about_cuda,
    .memory = memory_cuda,
    .alloc = alloc_cuda,
    .release = release_cuda,
    .alloc_host = alloc_host_cuda,
    .release_host = release_host_cuda,
    .copy = copy_cuda,
    .zero = zero_cuda,
    .stream_create = stream_create_cuda,
    .stream_destroy = stream_destroy_cuda,
    .stream_synchronize = stream_synchronize_cuda,
    .event_create = event_create_cuda,
    .event_destroy = event_destroy_cuda,
    .event_record = event_record_cuda,
    .stream_wait = stream_wait_cuda,
    .timed_event_create = timed_event_create_cuda,
    .clock_align = clock_align_cuda,
    .timed_event_read = timed_event_read_cuda,
    .timed_event_took = timed_event_took_cuda,
    .capture_start = capture_start_cuda,
    .capture_end = capture_end_cuda,
    .graph_launch = graph_launch_cuda,
    .graph_destroy = graph_destroy_cuda,
    .releases = releases_cuda,
    .range = range_cuda,
};
