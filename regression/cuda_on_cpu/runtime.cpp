// SPDX-License-Identifier: BSD-3-Clause
// The stand-in's devices, memory, streams and events. The process is the host of its devices. A
// lock allows calls from any thread.
#include "cuda_on_cpu.h"
#include "nvtx3/nvToolsExt.h"
#include "races.h"

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sched.h>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

using cuda_on_cpu::fail;
namespace races = cuda_on_cpu::races;

namespace
{
struct operation {
  enum { STEP, POLL, RECORD, WAIT } kind; // a POLL opens device memory itself
  const char *name;
  std::function<bool()> step;
  cudaEvent_t event;
  uint64_t generation;
  std::shared_ptr<races::clock> recorded; // the clock that RECORD fills, or for which WAIT waits
  races::clock host;                      // the host's clock when it enqueued the operation
};
} // namespace

struct CUgraph_st {
  struct node {
    const char *name;
    std::function<bool()> step;
  };
  std::vector<node> nodes; // in sequence, as if captured from one stream
};
struct CUgraphExec_st : CUgraph_st {
};

namespace
{
struct capture {
  CUgraph_st graph;
  cudaStreamCaptureMode mode;
  std::thread::id thread = std::this_thread::get_id();
  bool broken = false; // true after a call that a capture does not permit
  uint64_t number;     // number of the capture, from 1
};
} // namespace

struct CUstream_st {
  std::deque<operation> queue;
  // the capture that receives the stream's operations; if null, they run
  std::unique_ptr<capture> captured;
  int actor = races::new_actor();
  int device = 0;
};
struct CUevent_st {
  int device = 0;
  uint64_t captured = 0; // number of the capture that recorded the event last; 0 if there was none
  uint64_t issued = 0, done = 0;
  std::shared_ptr<races::clock> recorded; // the clock at the last record
  std::chrono::steady_clock::time_point time;
};

namespace
{
thread_local int current_device = 0;
thread_local bool has_context = false; // the thread has chosen a device, or has used the first one

int get_current_context(void **context)
{
  *context = has_context ? &has_context : nullptr;
  return 0;
}

constexpr size_t PAGE = 4096, HUGE_PAGE = size_t(2) << 20, ARENA_BYTES = size_t(1) << 38, CANARY_BYTES = 64;
constexpr unsigned char POISON = 0xFF, CANARY = 0xA5;

struct block {
  size_t bytes; // requested size, without space for the canary
  size_t room;
};

struct machine {
  std::recursive_mutex lock;
  CUstream_st null_stream;
  std::vector<cudaStream_t> streams{&null_stream};
  char *arena = nullptr;
  size_t extent = 0;              // bytes of the arena that were ever used, in whole huge pages
  std::map<size_t, block> blocks; // blocks by their offset in the arena
  std::map<char *, size_t> pinned;
  // bytes of shared memory that were requested for each kernel
  std::map<const void *, size_t> asked_shared;
  size_t used_bytes = 0, most_bytes = 0, total_bytes = size_t(16) << 30;
  std::chrono::milliseconds ahead{0}; // of the events' clock
  int n_devices = 8, n_old = 0, open = 0;
  bool check = true, running = false;
  const char *slow = getenv("CUDA_ON_CPU_SLOW"); // a part of kernels' names
  unsigned seed = 1;
  cudaError_t last_error = cudaSuccess, at_start = cudaSuccess;
  cuda_on_cpu_counters counters = {};
  std::map<cudaStream_t, int64_t> sorts;
  std::set<cudaStream_t> with_products;
  struct sigaction before = {}; // the previous handler of SIGSEGV

  machine();
  ~machine();
};

int64_t from_environment(const char *name, int64_t otherwise)
{
  const char *text = getenv(name);
  return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

void touched(int signal_number, siginfo_t *info, void *context);

machine::machine()
{
  const char *error = getenv("CUDA_ON_CPU_ERROR");

  total_bytes = static_cast<size_t>(from_environment("CUDA_ON_CPU_BYTES", static_cast<int64_t>(total_bytes)));
  n_devices = static_cast<int>(from_environment("CUDA_ON_CPU_DEVICES", n_devices));
  n_old = static_cast<int>(from_environment("CUDA_ON_CPU_OLD_DEVICES", n_old));
  check = from_environment("CUDA_ON_CPU_CHECK", 1) != 0;
  seed = static_cast<unsigned>(from_environment("CUDA_ON_CPU_SEED", 1)) * 2654435761u | 1u;
  if (error && strcmp(error, "driver") == 0) at_start = cudaErrorInsufficientDriver;
  if (n_devices < 1) at_start = cudaErrorNoDevice;
  arena = static_cast<char *>(
      mmap(nullptr, ARENA_BYTES + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (arena == MAP_FAILED) fail("no address space for the device's memory");
  // To open or close device memory changes the entry of every page. With small pages, this would
  // take most of a run's time.
  arena += -reinterpret_cast<uintptr_t>(arena) % HUGE_PAGE;
  (void)madvise(arena, ARENA_BYTES, MADV_HUGEPAGE);
  struct sigaction action = {};
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
}

machine::~machine()
{
  int64_t n_sorts = 0, beside_products = 0;

  for (const auto &s : sorts) {
    n_sorts += s.second;
    if (with_products.count(s.first)) beside_products += s.second;
  }
  if (from_environment("CUDA_ON_CPU_REPORT", 0))
    fprintf(stderr,
            "cuda_on_cpu: %lld launches, %lld allocations, %lld host waits, %lld device waits, %lld pageable "
            "copies, %zu bytes left, %lld ranges begun, %lld ended, %lld products, %lld odd ones, "
            "%lld copies, %lld bytes copied, %lld bytes of products, %zu bytes held at most, "
            "%lld sorts, %lld in a stream of products, %lld graphs, %lld graph launches of %lld operations\n",
            static_cast<long long>(counters.launches), static_cast<long long>(counters.allocations),
            static_cast<long long>(counters.host_waits), static_cast<long long>(counters.device_waits),
            static_cast<long long>(counters.pageable_copies), used_bytes,
            static_cast<long long>(counters.range_pushes), static_cast<long long>(counters.range_pops),
            static_cast<long long>(counters.products), static_cast<long long>(counters.odd_products),
            static_cast<long long>(counters.copies), static_cast<long long>(counters.copied_bytes),
            static_cast<long long>(counters.product_bytes), most_bytes, static_cast<long long>(n_sorts),
            static_cast<long long>(beside_products), static_cast<long long>(counters.graphs),
            static_cast<long long>(counters.graph_launches),
            static_cast<long long>(counters.graph_operations));
}

machine &m()
{
  static machine one;
  return one;
}

// Handler of SIGSEGV. The address shows if the host accessed device memory. For all other addresses
// the previous handler is called.
void touched(int signal_number, siginfo_t *info, void *context)
{
  static const char text[] =
      "cuda_on_cpu: the host touched device memory, or a kernel memory that is not the device's\n";
  const char *p = static_cast<const char *>(info->si_addr);

  if (p >= m().arena && p < m().arena + ARENA_BYTES && write(2, text, sizeof(text) - 1)) abort();
  if (m().before.sa_flags & SA_SIGINFO && m().before.sa_sigaction)
    m().before.sa_sigaction(signal_number, info, context);
  else if (m().before.sa_handler != SIG_DFL && m().before.sa_handler != SIG_IGN)
    m().before.sa_handler(signal_number);
  else
    signal(signal_number, SIG_DFL); // the instruction faults again, now without a handler
}

struct guard : std::lock_guard<std::recursive_mutex> {
  guard() : lock_guard(m().lock)
  {
  }
};

cudaError_t say(cudaError_t error)
{
  if (error != cudaSuccess && error != cudaErrorNotReady) m().last_error = error;
  return error;
}

// Device memory can be read and written only while an object of this type exists. At all other
// times an access by the host faults.
struct open_memory {
  open_memory()
  {
    set(m().open++ == 0, PROT_READ | PROT_WRITE);
  }
  ~open_memory()
  {
    set(--m().open == 0 && m().check, PROT_NONE);
  }
  static void set(bool now, int protection)
  {
    if (now && m().extent > 0 && mprotect(m().arena, m().extent, protection)) fail("mprotect failed");
  }
};

bool is_device(const void *pointer)
{
  const char *p = static_cast<const char *>(pointer);
  return p >= m().arena && p < m().arena + ARENA_BYTES;
}

bool is_pinned(const void *pointer)
{
  char *p = static_cast<char *>(const_cast<void *>(pointer));
  auto next = m().pinned.upper_bound(p);

  return next != m().pinned.begin() && (--next, p < next->first + next->second);
}

cudaStream_t stream_of(cudaStream_t stream)
{
  return stream ? stream : &m().null_stream;
}

// True if a capture forbids the current call. Such calls, which CUDA documents as "potentially
// unsafe", break the capture.
bool is_forbidden()
{
  bool forbidden = false;

  for (cudaStream_t stream : m().streams) {
    capture *c = stream->captured.get();
    const bool ours = c && c->thread == std::this_thread::get_id() && c->mode != cudaStreamCaptureModeRelaxed;

    if (!ours && !(c && c->mode == cudaStreamCaptureModeGlobal)) continue;
    forbidden = c->broken = true;
  }
  return forbidden;
}

// Any other use of the captured stream than starting operations also breaks the capture. The
// stand-in also forbids the default stream, which CUDA allows for streams that do not wait for it.
cudaError_t refusal(cudaStream_t stream)
{
  if (stream == &m().null_stream && is_forbidden()) return say(cudaErrorStreamCaptureImplicit);
  if (!stream->captured) return cudaSuccess;
  stream->captured->broken = true;
  return say(cudaErrorStreamCaptureUnsupported);
}

// For a kernel, the stream's device must be the thread's current device. For an event, it must be
// the event's device. The default stream belongs to the thread's current device.
void check_device(cudaStream_t stream, const char *name, int device)
{
  if (stream != &m().null_stream && stream->device != device)
    fail("%s on a stream of GPU %d, for GPU %d: cudaErrorInvalidResourceHandle", name, stream->device,
         device);
}

// True if the operation runs now. False if it was captured or refused.
bool runs(cudaStream_t stream, const char *name, const std::function<bool()> &step)
{
  if (stream->captured) stream->captured->graph.nodes.push_back({name, step});
  return !stream->captured && refusal(stream) == cudaSuccess;
}

bool is_ready(cudaStream_t stream)
{
  if (stream->queue.empty()) return false;
  const operation &next = stream->queue.front();
  return next.kind != operation::WAIT || next.event->done >= next.generation;
}

// Run one step of a stream. Returns false if its operation must be called again.
bool step(cudaStream_t stream)
{
  operation &next = stream->queue.front();
  bool done = true;

  races::begin_operation(stream->actor, next.name, next.host);
  if (next.kind == operation::POLL) done = next.step();
  if (next.kind == operation::STEP) {
    open_memory open;
    done = next.step();
    if (m().slow && strstr(next.name, m().slow)) m().ahead += std::chrono::seconds(10);
  }
  races::end_operation();
  if (!done) return false;
  if (next.kind == operation::RECORD) {
    next.event->done = next.generation;
    next.event->time = std::chrono::steady_clock::now() + m().ahead;
    *next.recorded = races::recorded(stream->actor);
  }
  if (next.kind != operation::RECORD && next.recorded) races::waited(stream->actor, *next.recorded);
  stream->queue.pop_front();
  return true;
}

bool step_any()
{
  std::vector<cudaStream_t> ready;

  std::copy_if(m().streams.begin(), m().streams.end(), std::back_inserter(ready), is_ready);
  while (!ready.empty()) {
    const size_t pick = cuda_on_cpu::random() % ready.size();

    if (step(ready[pick])) return true;
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return false;
}

void run_until(const std::function<bool()> &stop)
{
  if (m().running) fail("a device operation waits for the device");
  if (stop()) return;
  open_memory open;
  m().running = true;
  while (!stop())
    if (!step_any()) sched_yield(); // an exchange waits for other ranks
  m().running = false;
}

bool all_idle()
{
  return std::all_of(m().streams.begin(), m().streams.end(), [](cudaStream_t s) { return s->queue.empty(); });
}

void wait_for_device()
{
  m().counters.device_waits++;
  run_until(all_idle);
  for (cudaStream_t stream : m().streams) races::host_learns_of(stream->actor);
}

void check_canary(size_t at, const block &b)
{
  for (size_t i = 0; i < CANARY_BYTES; i++)
    if (static_cast<unsigned char>(m().arena[at + b.bytes + i]) != CANARY)
      fail("device memory of %zu bytes was written %zu bytes behind its end", b.bytes, i);
}

// Find the first gap that is large enough.
size_t place_for(size_t room)
{
  size_t at = 0;

  for (const auto &[begin, b] : m().blocks) {
    if (begin - at >= room) return at;
    at = begin + b.room;
  }
  return at;
}
} // namespace

namespace cuda_on_cpu
{
unsigned random()
{
  unsigned &x = m().seed;

  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return x;
}

void fail(const char *format, ...)
{
  va_list arguments;

  fprintf(stderr, "cuda_on_cpu: ");
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

void enqueue(cudaStream_t stream, const char *name, std::function<bool()> step)
{
  guard g;
  if (!runs(stream_of(stream), name, step)) return;
  stream_of(stream)->queue.push_back(
      {operation::STEP, name, std::move(step), nullptr, 0, nullptr, races::host_goes_on()});
}

void enqueue_poll(cudaStream_t stream, const char *name, std::function<bool()> step)
{
  guard g;
  if (stream_of(stream)->captured) fail("%s under a capture: here it happens once", name);
  stream_of(stream)->queue.push_back(
      {operation::POLL, name, std::move(step), nullptr, 0, nullptr, races::host_goes_on()});
}

void with_memory(const std::function<void()> &use)
{
  open_memory open;
  use();
}

void get_on()
{
  guard g;

  if (m().running || all_idle()) return;
  m().running = true;
  step_any();
  m().running = false;
}

void count_sort(cudaStream_t stream)
{
  guard g;
  m().sorts[stream]++;
}

void advance_clock(int ms)
{
  m().ahead += std::chrono::milliseconds(ms);
}

void count_product(cudaStream_t stream, bool odd, size_t bytes)
{
  guard g;
  check_device(stream_of(stream), "cublasLtMatmul", current_device);
  m().with_products.insert(stream);
  if (stream_of(stream)->captured) return;
  m().counters.products++;
  m().counters.odd_products += odd;
  m().counters.product_bytes += static_cast<int64_t>(bytes);
}

void count_launch(cudaStream_t stream, const char *name, const void *kernel, size_t shared)
{
  guard g;
  check_device(stream_of(stream), name, current_device);
  m().counters.launches += !stream_of(stream)->captured;
  if (shared > 48u << 10 && shared > m().asked_shared[kernel])
    fail("kernel %s: %zu bytes of shared memory, cudaFuncSetAttribute asked for %zu", name, shared,
         m().asked_shared[kernel]);
}

cudaError_t ask_shared(const void *kernel, int bytes)
{
  guard g;
  if (bytes < 0 || bytes > 227 << 10) return say(cudaErrorInvalidValue);
  m().asked_shared[kernel] = static_cast<size_t>(bytes);
  return cudaSuccess;
}
} // namespace cuda_on_cpu

extern "C" {

cuda_on_cpu_counters cuda_on_cpu_count(void)
{
  guard g;
  return m().counters;
}

int nvtxRangePushA(const char *message)
{
  guard g;
  if (!message || !*message) fail("a range without a name");
  return static_cast<int>(m().counters.range_pushes++ - m().counters.range_pops);
}

int nvtxRangePop(void)
{
  guard g;
  return static_cast<int>(m().counters.range_pushes - ++m().counters.range_pops);
}

const char *cudaGetErrorName(cudaError_t error)
{
  switch (error) {
  case cudaSuccess: return "cudaSuccess";
  case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
  case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
  case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
  case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
  case cudaErrorNoDevice: return "cudaErrorNoDevice";
  case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
  case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
  case cudaErrorNotReady: return "cudaErrorNotReady";
  case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
  case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
  case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
  case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
  case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
  case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
  case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
  case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
  case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
  }
  return "an unknown error";
}

const char *cudaGetErrorString(cudaError_t error)
{
  return cudaGetErrorName(error);
}

cudaError_t cudaGetLastError(void)
{
  guard g;
  const cudaError_t last = m().last_error;

  m().last_error = cudaSuccess;
  return last;
}

cudaError_t cudaPeekAtLastError(void)
{
  guard g;
  return m().last_error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = m().at_start == cudaErrorInsufficientDriver ? 11040 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
  guard g;
  *count = m().at_start == cudaSuccess ? m().n_devices : 0;
  return say(m().at_start);
}

cudaError_t cudaSetDevice(int device)
{
  guard g;
  if (device < 0 || device >= m().n_devices) return say(cudaErrorInvalidDevice);
  current_device = device;
  has_context = true;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult *found)
{
  if (strcmp(symbol, "cuCtxGetCurrent") != 0) fail("the driver's function %s is not here", symbol);
  *function = reinterpret_cast<void *>(get_current_context);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
  guard g;
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
  guard g;
  if (device < 0 || device >= m().n_devices) return say(cudaErrorInvalidDevice);
  memset(properties, 0, sizeof(*properties));
  snprintf(properties->name, sizeof(properties->name), "CPU standing in for a GPU");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = m().total_bytes;
  properties->major = device < m().n_old ? 7 : 9;
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
  guard g;
  if (device < 0 || device >= m().n_devices) return say(cudaErrorInvalidDevice);
  switch (attribute) {
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
  case cudaDevAttrMultiProcessorCount: *value = 2; break;
  case cudaDevAttrComputeCapabilityMajor: *value = device < m().n_old ? 7 : 9; break;
  case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
  guard g;
  for (cudaStream_t stream : m().streams)
    if (const cudaError_t refused = stream->captured ? refusal(stream) : cudaSuccess) return refused;
  wait_for_device();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
  guard g;
  const size_t room = (bytes + CANARY_BYTES + PAGE - 1) / PAGE * PAGE, at = place_for(room);

  m().counters.allocations++;
  has_context = true;
  *pointer = nullptr;
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  if (room > m().total_bytes - m().used_bytes || at + room > ARENA_BYTES)
    return say(cudaErrorMemoryAllocation);
  m().used_bytes += room;
  m().most_bytes = std::max(m().most_bytes, m().used_bytes);
  m().blocks[at] = {bytes, room};
  const size_t end = (at + room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  if (m().open && end > m().extent && mprotect(m().arena, end, PROT_READ | PROT_WRITE))
    fail("mprotect failed");
  m().extent = std::max(m().extent, end);
  open_memory open;
  memset(m().arena + at, POISON, bytes);
  memset(m().arena + at + bytes, CANARY, room - bytes);
  races::new_memory(m().arena + at, bytes, races::DEVICE);
  *pointer = m().arena + at;
  return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
  guard g;

  if (!pointer) return cudaSuccess;
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  wait_for_device();
  const size_t at = static_cast<size_t>(static_cast<char *>(pointer) - m().arena);
  const auto found = is_device(pointer) ? m().blocks.find(at) : m().blocks.end();
  if (found == m().blocks.end()) fail("cudaFree of %p, which cudaMalloc did not return", pointer);
  {
    open_memory open;
    check_canary(at, found->second);
  }
  madvise(pointer, found->second.room, MADV_DONTNEED);
  races::memory_gone(pointer);
  m().used_bytes -= found->second.room;
  m().blocks.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
  guard g;
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  void *p = mmap(nullptr, std::max(bytes, size_t(1)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);

  (void)flags;
  m().counters.allocations++;
  *pointer = nullptr;
  if (p == MAP_FAILED) return say(cudaErrorMemoryAllocation);
  m().pinned[static_cast<char *>(p)] = std::max(bytes, size_t(1));
  races::new_memory(p, bytes, races::PINNED);
  *pointer = p;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer)
{
  guard g;

  if (!pointer) return cudaSuccess;
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  wait_for_device();
  const auto found = m().pinned.find(static_cast<char *>(pointer));
  if (found == m().pinned.end()) fail("cudaFreeHost of %p, which cudaHostAlloc did not return", pointer);
  munmap(pointer, found->second);
  races::memory_gone(pointer);
  m().pinned.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
  guard g;
  *free_bytes = m().total_bytes - m().used_bytes;
  *total_bytes = m().total_bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
  guard g;
  void *p = const_cast<void *>(pointer);

  *attributes = {cudaMemoryTypeUnregistered, current_device, nullptr, p};
  if (is_device(pointer)) *attributes = {cudaMemoryTypeDevice, current_device, p, nullptr};
  if (is_pinned(pointer)) *attributes = {cudaMemoryTypeHost, current_device, p, p};
  return cudaSuccess;
}

// Copies of pageable memory behave as CUDA documents: when the call returns, the source may be
// changed and the destination is complete.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  guard g;

  (void)kind;
  if (bytes == 0) return cudaSuccess;
  if (!to || !from) return say(cudaErrorInvalidValue);
  if (!stream_of(stream)->captured) {
    m().counters.copies++;
    m().counters.copied_bytes += static_cast<int64_t>(bytes);
  } else if ((!is_device(from) && !is_pinned(from)) || (!is_device(to) && !is_pinned(to))) {
    fail("a copy of pageable memory under a capture");
  }
  if (!is_device(from) && !is_pinned(from)) {
    auto kept = std::make_shared<std::vector<char>>(static_cast<const char *>(from),
                                                    static_cast<const char *>(from) + bytes);
    m().counters.pageable_copies++;
    cuda_on_cpu::enqueue(stream, "copy", [=] { return memcpy(to, kept->data(), bytes), true; });
  } else {
    cuda_on_cpu::enqueue(stream, "copy", [=] { return memmove(to, from, bytes), true; });
  }
  if (!is_device(to) && !is_pinned(to)) {
    m().counters.pageable_copies++;
    return cudaStreamSynchronize(stream);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
  guard g;
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
  for (size_t row = 0; row < height; row++) {
    const cudaError_t error = cudaMemcpyAsync(static_cast<char *>(to) + row * to_pitch,
                                              static_cast<const char *>(from) + row * from_pitch, width, kind,
                                              stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
  guard g;
  if (bytes == 0) return cudaSuccess;
  if (!is_device(to) && !is_pinned(to)) return say(cudaErrorInvalidValue);
  cuda_on_cpu::enqueue(stream, "set", [=] { return memset(to, value, bytes), true; });
  return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

// Priorities are hints, so the order stays random.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
  guard g;
  if (priority > 0 || priority < -5) fail("a stream's priority is none of the device's");
  if (flags != cudaStreamNonBlocking)
    fail("only streams that do not wait for the default stream are made here");
  *stream = new CUstream_st;
  (*stream)->device = current_device;
  has_context = true;
  m().streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  guard g;
  const auto found = std::find(m().streams.begin(), m().streams.end(), stream);

  if (!stream || found == m().streams.end()) return say(cudaErrorInvalidResourceHandle);
  if (stream->captured) fail("a stream is destroyed under its capture");
  run_until([=] { return stream->queue.empty(); });
  races::host_learns_of(stream->actor);
  m().streams.erase(found);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  guard g;
  m().counters.host_waits++;
  stream = stream_of(stream);
  if (const cudaError_t refused = refusal(stream)) return refused;
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  run_until([=] { return stream->queue.empty(); });
  races::host_learns_of(stream->actor);
  return cudaSuccess;
}

// A device continues while the host polls: each query runs one step.
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
  guard g;
  stream = stream_of(stream);
  if (const cudaError_t refused = refusal(stream)) return refused;
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  if (!stream->queue.empty()) step_any();
  if (!stream->queue.empty()) return cudaErrorNotReady;
  races::host_learns_of(stream->actor);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
  guard g;
  (void)flags;
  capture *c = stream_of(stream)->captured.get();
  // the capture's order already guarantees this
  if (c && event->captured == c->number) return cudaSuccess;
  if (c) {
    c->broken = true;
    return say(cudaErrorStreamCaptureIsolation);
  }
  if (event->captured) fail("a stream would join a capture by an event: the stand-in captures one stream");
  stream_of(stream)->queue.push_back(
      {operation::WAIT, "wait", {}, event, event->issued, event->recorded, races::host_goes_on()});
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
  cuda_on_cpu::enqueue(stream, "host function", [=] { return function(data), true; });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
  guard g;
  (void)flags;
  *event = new CUevent_st;
  (*event)->device = current_device;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  guard g;
  run_until([=] { return event->done == event->issued; });
  for (cudaStream_t stream : m().streams) // remove waits that are already complete
    for (operation &o : stream->queue)
      if (o.event == event)
        o = {operation::STEP, "past wait", [] { return true; }, nullptr, 0, o.recorded, o.host};
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  guard g;
  const capture *c = stream_of(stream)->captured.get();
  check_device(stream_of(stream), "cudaEventRecord", event->device);
  event->captured = c ? c->number : 0;
  if (c) return cudaSuccess;
  event->recorded = std::make_shared<races::clock>();
  stream_of(stream)->queue.push_back(
      {operation::RECORD, "record", {}, event, ++event->issued, event->recorded, races::host_goes_on()});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
  guard g;
  if (event->captured) return is_forbidden(), say(cudaErrorCapturedEvent);
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  if (event->done != event->issued) step_any();
  if (event->done != event->issued) return cudaErrorNotReady;
  if (event->recorded) races::host_learns(*event->recorded);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  guard g;
  m().counters.host_waits++;
  if (event->captured) return is_forbidden(), say(cudaErrorCapturedEvent);
  if (is_forbidden()) return say(cudaErrorStreamCaptureUnsupported);
  run_until([=] { return event->done == event->issued; });
  if (event->recorded) races::host_learns(*event->recorded);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
  guard g;
  if (start->done != start->issued || end->done != end->issued) return say(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
  static uint64_t n_captures;
  guard g;

  if (!stream) return say(cudaErrorStreamCaptureUnsupported);
  if (stream->captured) return refusal(stream);
  stream->captured.reset(new capture{});
  stream->captured->mode = mode;
  stream->captured->number = ++n_captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  guard g;
  *graph = nullptr;
  if (!stream || !stream->captured) return say(cudaErrorStreamCaptureUnmatched);
  if (stream->captured->thread != std::this_thread::get_id() &&
      stream->captured->mode != cudaStreamCaptureModeRelaxed)
    return say(cudaErrorStreamCaptureWrongThread);
  const std::unique_ptr<capture> ended = std::move(stream->captured);
  if (ended->broken) return say(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st(std::move(ended->graph));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
  guard g;
  const capture *c = stream_of(stream)->captured.get();

  *status = !c          ? cudaStreamCaptureStatusNone
            : c->broken ? cudaStreamCaptureStatusInvalidated
                        : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
  if (nodes) fail("nodes can be counted here, not looked at");
  *n = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
  guard g;
  if (flags) fail("graphs are made without flags here");
  m().counters.graphs++;
  *executable = new CUgraphExec_st{*graph};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
  guard g;
  if (stream_of(stream)->captured) fail("a graph is launched under a capture");
  m().counters.graph_launches++;
  m().counters.graph_operations += static_cast<int64_t>(executable->nodes.size());
  for (const CUgraph_st::node &node : executable->nodes) cuda_on_cpu::enqueue(stream, node.name, node.step);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  delete graph;
  return cudaSuccess;
}

// A launch of the graph that already runs continues.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
  delete executable;
  return cudaSuccess;
}

} // extern "C"
