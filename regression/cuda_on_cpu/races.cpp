// SPDX-License-Identifier: BSD-3-Clause
// Detects three kinds of errors: races between streams, the host and the threads of a kernel; reads
// of memory that was never written; and wide accesses that are not aligned. On a GPU,
// compute-sanitizer does this. Tests with a random order cannot prove that there are no races. g++
// -fsanitize=thread,alignment makes every load and store call this file, which also replaces the
// sanitizers' runtimes.
//
// If two accesses use the same byte and one of them is a write, they must be ordered or both be
// atomic. Accesses are ordered by their stream, or by events and waits (vector clocks over streams
// and the host). In a kernel, they are ordered by __syncthreads (a barrier's number), by __syncwarp
// (a clock for each lane), or by an atomic operation after __threadfence (a set of blocks). As in
// ThreadSanitizer (Serebryany, Iskhodzhanov 2009), each eight bytes remember four accesses. Hence a
// race may be missed, but each reported race is real.
#include "races.h"

#include "cuda_runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <sched.h>
#include <set>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <utility>

// limits of the program's data, where the shared memory of kernels is static
extern "C" char __executable_start, _end;

namespace cuda_on_cpu
{
bool is_on_stack(const void *at); // true if the address is on the stack of the running fiber

namespace races
{
namespace
{
constexpr int SLOTS = 4, LANES = 32, MAX_REPORTS = 30;
constexpr size_t WORD = 8, PAGE = 4096;

// A load or store, with its operation and its actor. In a kernel it also has its thread, and how
// many barriers and warp functions the thread has passed.
struct memory_access {
  uint32_t number, block, barrier, meeting;
  uint16_t thread;
  uint8_t actor, kind, bytes; // bytes has a bit for each byte of the word; 0 means no access
  bool in_kernel;
  uint32_t name;
  const void *pc;
};

struct word {
  memory_access seen[SLOTS];
};
struct page {
  word words[PAGE / WORD];
  uint8_t unset[PAGE / WORD]; // for each word, the bytes of device memory that were never written
};

struct region {
  uintptr_t begin, end;
  space where;
};

struct detector {
  std::vector<clock> clocks{clock(1, 1)}; // one clock for each actor
  std::vector<std::string> names{"the host"};
  std::unordered_map<std::string, uint32_t> name_of;
  std::map<uintptr_t, region> regions; // device and pinned memory, by start address
  // number of changes of regions: now, and at the last region_of()
  uint64_t regions_are = 0, regions_were = 0;
  std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;
  std::set<std::string> reports;
  uint32_t random = 1;

  // State of the current operation.
  uint32_t operation_name = 0;
  int actor = 0;
  // State of the operation's kernel.
  bool in_kernel = false;
  uintptr_t arguments = 0, arguments_end = 0, shared = 0, shared_end = 0;
  uint32_t block = 0, barrier = 0;
  clock meetings; // clocks of the block's lanes: [warp][lane][lane of the same warp]
  bool fenced = false;
  std::unordered_map<uintptr_t, std::set<uint32_t>>
      released;                // blocks that used an atomic operation on this address after a fence
  std::set<uint32_t> acquired; // blocks whose writes are visible to this block
};

void tell_at_the_end();

// Created before the first thread, and never destroyed.
detector &d()
{
  static detector *one;

  if (!one) {
    one = new detector;
    atexit(tell_at_the_end);
  }
  return *one;
}

// All pinned memory lies between these addresses. Two comparisons exclude most of the host's
// accesses.
std::atomic<uintptr_t> pinned_begin{~uintptr_t(0)}, pinned_end{0};
// True while this thread runs an operation of the device. All other threads count as the host.
thread_local bool is_device = false;
// True inside the detector and the functions that it calls.
thread_local bool inside = false;

std::atomic_flag held = ATOMIC_FLAG_INIT;

// Exclusive use of the detector. Its own accesses are ignored.
struct guard {
  const bool was = std::exchange(inside, true);
  guard()
  {
    while (held.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~guard()
  {
    held.clear(std::memory_order_release);
    inside = was;
  }
};

void tell_at_the_end()
{
  inside = true;
  if (d().reports.empty()) return;
  fprintf(stderr, "cuda_on_cpu: %zu races or wrong reads in all\n", d().reports.size());
  _exit(66);
}

void join(clock &to, const clock &from)
{
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

uint32_t knows(const clock &who, int of)
{
  return static_cast<size_t>(of) < who.size() ? who[static_cast<size_t>(of)] : 0;
}

uint32_t number_of(const char *name)
{
  const auto [found, is_new] = d().name_of.try_emplace(name, static_cast<uint32_t>(d().names.size()));

  if (is_new) d().names.emplace_back(name);
  return found->second;
}

std::string line_of(const void *pc)
{
  char command[512], line[512] = "?";
  Dl_info info;

  if (!pc || !dladdr(pc, &info)) return "?";
  snprintf(command, sizeof(command), "addr2line -e %s %#zx 2> /dev/null", info.dli_fname,
           static_cast<size_t>(static_cast<const char *>(pc) - static_cast<const char *>(info.dli_fbase)) -
               1);
  if (FILE *answer = popen(command, "r")) {
    if (!fgets(line, sizeof(line), answer)) strcpy(line, "?");
    pclose(answer);
  }
  line[strcspn(line, "\n")] = '\0';
  const char *folder = strstr(line, "/gpu/");
  return folder ? folder + 1 : line;
}

std::string told(const memory_access &a)
{
  static const char *const kinds[] = {"read", "write", "atomic read", "atomic write"};
  char text[256];

  if (a.in_kernel)
    snprintf(text, sizeof(text), "%s by %s, block %u, thread %u", kinds[a.kind & 3],
             d().names[a.name].c_str(), a.block, a.thread);
  else
    snprintf(text, sizeof(text), "%s by %s", kinds[a.kind & 3], d().names[a.name].c_str());
  return std::string(text) + " (" + line_of(a.pc) + ")";
}

// The region of device or pinned memory that contains an address, or NULL.
const region *region_of(uintptr_t at)
{
  static region last = {1, 0, DEVICE};

  if (at >= last.begin && at < last.end && d().regions_are == d().regions_were) return &last;
  const auto next = d().regions.upper_bound(at);
  if (next == d().regions.begin() || at >= std::prev(next)->second.end) return nullptr;
  last = std::prev(next)->second;
  d().regions_were = d().regions_are;
  return &last;
}

// Report each pair of code positions once.
void report(const char *what, const memory_access &now, const memory_access *before, uintptr_t at)
{
  const region *r = region_of(at);
  char key[128], where[96] = "";

  snprintf(key, sizeof(key), "%s %u %p %u %p", what, now.name, now.pc, before ? before->name : 0,
           before ? before->pc : nullptr);
  if (!d().reports.insert(key).second || d().reports.size() > MAX_REPORTS) return;
  if (r)
    snprintf(where, sizeof(where), ", byte %zu of %zu of %s memory", at - r->begin, r->end - r->begin,
             r->where == DEVICE ? "device" : "pinned");
  else if (before)
    strcpy(where, ", shared memory");
  fprintf(stderr, "cuda_on_cpu: %s%s: %s%s%s\n", what, where, told(now).c_str(),
          before ? "; nothing orders it after the " : "", before ? told(*before).c_str() : "");
}

page *page_of(uintptr_t at)
{
  static thread_local uintptr_t last_number = ~uintptr_t(0);
  static thread_local page *last = nullptr;
  const uintptr_t number = at / PAGE;

  if (number == last_number) return last;
  auto &found = d().pages[number];
  if (!found) found.reset(new page()); // pages are never freed
  last_number = number;
  return last = found.get();
}

// The clocks that a thread has of the lanes of its warp.
uint32_t *meetings_of(int thread)
{
  return &d().meetings[static_cast<size_t>(thread) * LANES];
}

bool is_ordered(const memory_access &before, const memory_access &now, bool is_shared)
{
  if (is_shared && (before.actor != now.actor || before.number != now.number || before.block != now.block))
    return true;
  if (before.actor != now.actor) return before.number <= knows(d().clocks[now.actor], before.actor);
  if (before.number != now.number || !now.in_kernel || !before.in_kernel) return true;
  if (before.block != now.block) return d().acquired.count(before.block) > 0;
  if (before.thread == now.thread || before.barrier != now.barrier) return true;
  return before.thread / LANES == now.thread / LANES &&
         before.meeting <= meetings_of(now.thread)[before.thread % LANES];
}

// Record an access to a word. It replaces an access that it includes. If there is none, it replaces
// an arbitrary one.
void remember(word &w, const memory_access &now)
{
  memory_access *to = &w.seen[(d().random = d().random * 1664525u + 1013904223u) >> 30];

  for (memory_access &s : w.seen)
    if (!s.bytes) {
      to = &s;
      break;
    }
  for (memory_access &s : w.seen)
    if (s.bytes && s.actor == now.actor && s.kind == now.kind && (s.bytes & ~now.bytes) == 0 &&
        (s.number < now.number || !now.in_kernel || (s.block == now.block && s.thread == now.thread))) {
      to = &s;
      break;
    }
  *to = now;
}

void check_word(uintptr_t at, int first, int end, memory_access now, bool is_shared, bool is_device_memory)
{
  page *p = page_of(at);
  word &w = p->words[at % PAGE / WORD];
  uint8_t &unset = p->unset[at % PAGE / WORD];

  now.bytes = static_cast<uint8_t>(((1u << end) - 1) & ~((1u << first) - 1));
  for (const memory_access &s : w.seen) {
    if (!(s.bytes & now.bytes) || !((s.kind | now.kind) & WRITE)) continue;
    if ((s.kind & ATOMIC) && (now.kind & ATOMIC) && s.actor == now.actor) continue;
    if (!is_ordered(s, now, is_shared)) {
      report("race", now, &s, at);
      break;
    }
  }
  if (is_device_memory && (now.kind & WRITE)) unset &= static_cast<uint8_t>(~now.bytes);
  if (is_device_memory && now.kind == READ && now.in_kernel && (unset & now.bytes))
    report("unset", now, nullptr, at);
  remember(w, now);
}

// Describe the next access of the current operation or of the host.
memory_access access_now(int kind, const void *pc)
{
  memory_access now = {};

  now.actor = static_cast<uint8_t>(is_device ? d().actor : 0);
  now.number = d().clocks[now.actor][now.actor];
  now.kind = static_cast<uint8_t>(kind);
  now.in_kernel = is_device && d().in_kernel;
  now.name = is_device ? d().operation_name : 0;
  now.pc = pc;
  if (now.in_kernel) {
    now.block = d().block;
    now.barrier = d().barrier;
    now.thread = static_cast<uint16_t>(here.index);
    now.meeting = meetings_of(here.index)[here.index % LANES];
  }
  return now;
}

void misaligned(uintptr_t at, const void *pc)
{
  if (inside || !is_device || !d().in_kernel) return;
  guard g;
  report("misaligned", access_now(READ, pc), nullptr, at);
}

void check(const void *pointer, size_t bytes, int kind, const void *pc)
{
  const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
  bool is_shared = false;

  if (inside || bytes == 0 || at - reinterpret_cast<uintptr_t>(&here) < sizeof(here)) return;
  if (!is_device && (at + bytes <= pinned_begin || at >= pinned_end)) return;
  guard g;
  const memory_access now = access_now(kind, pc);
  const region *r = region_of(at);
  if (!r) {
    if (!now.in_kernel) return;
    const bool is_static = at >= reinterpret_cast<uintptr_t>(&__executable_start) &&
                           at < reinterpret_cast<uintptr_t>(&_end);
    is_shared = is_static || (at >= d().shared && at < d().shared_end);
    if (!is_shared) {
      // on a GPU the kernel would fail here
      if (!is_on_stack(pointer) && !(at >= d().arguments && at < d().arguments_end))
        report("none of the device's memory", now, nullptr, at);
      return;
    }
  }
  for (uintptr_t begin = at, end = at + bytes; begin < end;) {
    const uintptr_t word_at = begin / WORD * WORD, stop = std::min(end, word_at + WORD);
    check_word(word_at, static_cast<int>(begin - word_at), static_cast<int>(stop - word_at), now, is_shared,
               r && r->where == DEVICE);
    begin = stop;
  }
}
} // namespace

int new_actor()
{
  guard g;
  const int actor = static_cast<int>(d().clocks.size());

  if (actor > 255) fail("more than 255 streams in all");
  d().clocks.emplace_back(static_cast<size_t>(actor) + 1, 0);
  return actor;
}

clock host_goes_on()
{
  guard g;
  const clock now = d().clocks[0];

  d().clocks[0][0]++;
  return now;
}

void host_learns(const clock &what)
{
  guard g;
  join(d().clocks[0], what);
}

void host_learns_of(int actor)
{
  guard g;
  join(d().clocks[0], d().clocks[static_cast<size_t>(actor)]);
}

void begin_operation(int actor, const char *name, const clock &when_enqueued)
{
  guard g;
  clock &own = d().clocks[static_cast<size_t>(actor)];

  is_device = true;
  d().actor = actor;
  d().operation_name = number_of(name);
  join(own, when_enqueued);
  own[static_cast<size_t>(actor)]++;
}

void end_operation()
{
  is_device = false;
}

clock recorded(int actor)
{
  guard g;
  return d().clocks[static_cast<size_t>(actor)];
}

void waited(int actor, const clock &what)
{
  guard g;
  join(d().clocks[static_cast<size_t>(actor)], what);
}

void new_memory(const void *at, size_t bytes, space where)
{
  guard g;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(at);

  d().regions[begin] = {begin, begin + bytes, where};
  d().regions_are++;
  if (where == PINNED) {
    pinned_begin = std::min<uintptr_t>(pinned_begin, begin);
    pinned_end = std::max<uintptr_t>(pinned_end, begin + bytes);
  }
  for (uintptr_t a = begin / WORD * WORD; a < begin + bytes; a += WORD) {
    page *p = page_of(a);
    p->words[a % PAGE / WORD] = word();
    p->unset[a % PAGE / WORD] = where == DEVICE ? 0xFF : 0;
  }
}

void memory_gone(const void *at)
{
  guard g;
  d().regions.erase(reinterpret_cast<uintptr_t>(at));
  d().regions_are++;
}

void touch(const void *at, size_t bytes, int kind)
{
  check(at, bytes, kind, __builtin_return_address(0));
}

void begin_kernel(const void *arguments, size_t bytes)
{
  guard g;
  d().arguments = reinterpret_cast<uintptr_t>(arguments);
  d().arguments_end = d().arguments + bytes;
  d().released.clear();
}

void begin_block(uint32_t block, int n_threads, const void *shared, size_t shared_bytes)
{
  guard g;

  d().block = block;
  d().barrier++;
  d().meetings.assign(static_cast<size_t>((n_threads + LANES - 1) / LANES * LANES * LANES), 0);
  for (int thread = 0; thread < n_threads; thread++) meetings_of(thread)[thread % LANES] = 1;
  d().shared = reinterpret_cast<uintptr_t>(shared);
  d().shared_end = d().shared + shared_bytes;
  d().fenced = false;
  d().acquired.clear();
}

void met_block()
{
  d().barrier++;
}

void met_warp(int first_thread, unsigned mask)
{
  guard g;
  uint32_t all[LANES] = {};
  const int end = static_cast<int>(d().meetings.size() / LANES);

  for (int lane = 0; lane < LANES && first_thread + lane < end; lane++)
    for (int of = 0; mask >> lane & 1 && of < LANES; of++)
      all[of] = std::max(all[of], meetings_of(first_thread + lane)[of]);
  for (int lane = 0; lane < LANES && first_thread + lane < end; lane++)
    if (mask >> lane & 1) {
      memcpy(meetings_of(first_thread + lane), all, sizeof(all));
      meetings_of(first_thread + lane)[lane]++;
    }
}

void fence()
{
  d().fenced = true;
}

void touch_atomically(const void *at, size_t bytes)
{
  check(at, bytes, WRITE | ATOMIC, __builtin_return_address(0));
  guard g;
  if (!is_device || !d().in_kernel || !d().fenced) return;
  std::set<uint32_t> &came = d().released[reinterpret_cast<uintptr_t>(at)];
  d().acquired.insert(came.begin(), came.end());
  came.insert(d().block);
}

void thread_runs(bool now)
{
  d().in_kernel = now;
}
} // namespace races
} // namespace cuda_on_cpu

// The functions that code compiled with -fsanitize=thread,alignment calls.
#define HERE __builtin_return_address(0)
#define SEEN(name, bytes, kind) \
  void __tsan_##name##bytes(void *at) \
  { \
    cuda_on_cpu::races::check(at, bytes, kind, HERE); \
  }
#define LOADS_AND_STORES(bytes) \
  SEEN(read, bytes, cuda_on_cpu::races::READ) \
  SEEN(write, bytes, cuda_on_cpu::races::WRITE) \
  SEEN(unaligned_read, bytes, cuda_on_cpu::races::READ) \
  SEEN(unaligned_write, bytes, cuda_on_cpu::races::WRITE) \
  SEEN(volatile_read, bytes, cuda_on_cpu::races::READ | cuda_on_cpu::races::ATOMIC) \
  SEEN(volatile_write, bytes, cuda_on_cpu::races::WRITE | cuda_on_cpu::races::ATOMIC) \
  SEEN(unaligned_volatile_read, bytes, cuda_on_cpu::races::READ | cuda_on_cpu::races::ATOMIC) \
  SEEN(unaligned_volatile_write, bytes, cuda_on_cpu::races::WRITE | cuda_on_cpu::races::ATOMIC)

#define FETCH(bits, type, name) \
  type __tsan_atomic##bits##_fetch_##name(volatile type *at, type value, int order) \
  { \
    (void)order; \
    return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST); \
  }
// Atomic operations of C are made by the host. The device uses none of them.
#define ATOMICS(bits, type) \
  type __tsan_atomic##bits##_load(const volatile type *at, int order) \
  { \
    (void)order; \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST); \
  } \
  void __tsan_atomic##bits##_store(volatile type *at, type value, int order) \
  { \
    (void)order; \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST); \
  } \
  type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order) \
  { \
    (void)order; \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); \
  } \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *expected, type value, \
                                                    int order, int otherwise) \
  { \
    (void)order; \
    (void)otherwise; \
    return __atomic_compare_exchange_n(at, expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  } \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at, type *expected, type value, int order, \
                                                  int otherwise) \
  { \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, order, otherwise); \
  } \
  FETCH(bits, type, add) \
  FETCH(bits, type, sub) FETCH(bits, type, and) FETCH(bits, type, or) FETCH(bits, type, xor)

extern "C" {
// Called for a load or store at an address that is not aligned for its type. On a GPU the kernel
// would fail.
void __ubsan_handle_type_mismatch_v1(void *data, uintptr_t at)
{
  (void)data;
  cuda_on_cpu::races::misaligned(at, HERE);
}
void __ubsan_handle_type_mismatch_v1_abort(void *data, uintptr_t at)
{
  (void)data;
  cuda_on_cpu::races::misaligned(at, HERE);
}

LOADS_AND_STORES(1)
LOADS_AND_STORES(2)
LOADS_AND_STORES(4)
LOADS_AND_STORES(8)
LOADS_AND_STORES(16)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_read_range(void *at, size_t bytes)
{
  cuda_on_cpu::races::check(at, bytes, cuda_on_cpu::races::READ, HERE);
}
void __tsan_write_range(void *at, size_t bytes)
{
  cuda_on_cpu::races::check(at, bytes, cuda_on_cpu::races::WRITE, HERE);
}
void __tsan_vptr_update(void **at, void *value)
{
  (void)at;
  (void)value;
}
void __tsan_vptr_read(void **at)
{
  (void)at;
}
void __tsan_init(void)
{
}
void __tsan_func_entry(void *pc)
{
  (void)pc;
}
void __tsan_func_exit(void)
{
}
void __tsan_atomic_thread_fence(int order)
{
  (void)order;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int order)
{
  (void)order;
}

// The host's copies and fills through the C library (linked with --wrap).
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int value, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
  cuda_on_cpu::races::check(from, bytes, cuda_on_cpu::races::READ, HERE);
  cuda_on_cpu::races::check(to, bytes, cuda_on_cpu::races::WRITE, HERE);
  return __real_memcpy(to, from, bytes);
}
void *__wrap_memmove(void *to, const void *from, size_t bytes)
{
  cuda_on_cpu::races::check(from, bytes, cuda_on_cpu::races::READ, HERE);
  cuda_on_cpu::races::check(to, bytes, cuda_on_cpu::races::WRITE, HERE);
  return __real_memmove(to, from, bytes);
}
void *__wrap_memset(void *to, int value, size_t bytes)
{
  cuda_on_cpu::races::check(to, bytes, cuda_on_cpu::races::WRITE, HERE);
  return __real_memset(to, value, bytes);
}
} // extern "C"
