// SPDX-License-Identifier: BSD-3-Clause
// Runs kernels on the CPU. Each thread of a block is a fiber. Fibers switch at barriers and warp
// functions. So a barrier or warp function that some threads do not reach is detected.
#include "cuda_runtime.h"
#include "races.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <setjmp.h> // fibers jump between stacks, so the build has no _FORTIFY_SOURCE
#include <ucontext.h>
#include <vector>

namespace cuda_on_cpu
{
place here;

namespace
{
enum state { RUNS, AT_BARRIER, IN_WARP, DONE };
constexpr size_t STACK_BYTES = 64 << 10;

struct fiber {
  ucontext_t start;
  jmp_buf jump;
  std::unique_ptr<char[]> stack;
  bool live = false;
  state is = DONE;
  unsigned mask = 0;
  warp_call call = SYNC;
  uint64_t value = 0, seen[32] = {};
  uint3 thread = {};
  // copies that wait_for_copies() will make, with their groups, and the group of the next copy
  std::vector<std::pair<int, copy>> copies;
  int group = 0;
};

std::vector<fiber> fibers;
std::vector<char> shared_memory;
void (*body)(const void *);
const void *body_call;
const char *kernel_name = "";
jmp_buf scheduler;
int n_threads, current;

void leave(state why)
{
  fiber &f = fibers[static_cast<size_t>(current)];

  f.is = why;
  if (!_setjmp(f.jump)) _longjmp(scheduler, 1);
}

[[noreturn]] void kernel_fails(const char *why);

// The body of a fiber, which runs one block after another. ucontext creates a fiber once; _setjmp
// and _longjmp switch between fibers without a system call.
void serve()
{
  for (;;) {
    body(body_call);
    fibers[static_cast<size_t>(current)].group = 0;
    if (!fibers[static_cast<size_t>(current)].copies.empty())
      kernel_fails("a thread ends without waiting for its copies");
    leave(DONE);
  }
}

void resume(int i)
{
  fiber &f = fibers[static_cast<size_t>(i)];

  current = i;
  here.index = i;
  here.thread = f.thread;
  if (_setjmp(scheduler)) {
    races::thread_runs(false);
    return;
  }
  races::thread_runs(true);
  if (f.live) _longjmp(f.jump, 1);
  f.live = true;
  f.stack.reset(new char[STACK_BYTES]);
  getcontext(&f.start);
  f.start.uc_stack.ss_sp = f.stack.get();
  f.start.uc_stack.ss_size = STACK_BYTES;
  f.start.uc_link = nullptr;
  makecontext(&f.start, serve, 0);
  setcontext(&f.start);
}

[[noreturn]] void kernel_fails(const char *why)
{
  char states[65] = "";

  for (int i = 0; i < n_threads && i < 64; i++) states[i] = "rBWd"[fibers[static_cast<size_t>(i)].is];
  fail("%s in kernel %s, block (%u, %u, %u); threads (r runs, B at a barrier, W in a warp function, d done): "
       "%s",
       why, kernel_name, here.block_index.x, here.block_index.y, here.block_index.z, states);
}

// Lane l of the warp that begins at fiber w waits in a warp function. If all lanes of the
// function's mask have arrived, complete the function.
bool complete_warp(int w, int l)
{
  const fiber &f = fibers[static_cast<size_t>(w + l)];
  const unsigned mask = f.mask;
  const warp_call call = f.call;
  const int n = std::min(32, n_threads - w);
  uint64_t values[32] = {};
  unsigned have = 0;

  if (!(mask >> l & 1)) kernel_fails("a lane calls a warp function with a mask that it is not in");
  for (int i = 0; i < n; i++) {
    const fiber &g = fibers[static_cast<size_t>(w + i)];
    if (g.is != IN_WARP || g.mask != mask || g.call != call) continue;
    have |= 1u << i;
    values[i] = g.value;
  }
  if ((have & mask) != mask && !(n < 32 && (have & mask) == (mask & ((1u << n) - 1)))) return false;
  for (int i = 0; i < n; i++) {
    fiber &g = fibers[static_cast<size_t>(w + i)];
    if (!(mask >> i & 1)) continue;
    memcpy(g.seen, values, sizeof(values));
    g.is = RUNS;
  }
  if (call == SYNC) races::met_warp(w, mask); // other functions do not order memory
  return true;
}

// Run every thread that can run, starting with a random warp. Then release the threads that have
// met at a barrier or in a warp function. Returns false if the block is complete.
bool round_of_block()
{
  const int n_warps = (n_threads + 31) / 32,
            first = static_cast<int>(random() % static_cast<unsigned>(n_warps));
  int done = 0, at_barrier = 0;
  bool moved = false;

  for (int k = 0; k < n_warps; k++)
    for (int i = (first + k) % n_warps * 32, end = std::min(i + 32, n_threads); i < end; i++) {
      if (fibers[static_cast<size_t>(i)].is != RUNS) continue;
      resume(i);
      moved = true;
    }
  for (int i = 0; i < n_threads; i++)
    if (fibers[static_cast<size_t>(i)].is == IN_WARP) moved = complete_warp(i / 32 * 32, i % 32) || moved;
  for (int i = 0; i < n_threads; i++) {
    done += fibers[static_cast<size_t>(i)].is == DONE;
    at_barrier += fibers[static_cast<size_t>(i)].is == AT_BARRIER;
  }
  if (done == n_threads) return false;
  if (at_barrier > 0 && at_barrier + done == n_threads) {
    if (done > 0) kernel_fails("some threads ended, others wait at a barrier");
    for (int i = 0; i < n_threads; i++) fibers[static_cast<size_t>(i)].is = RUNS;
    races::met_block();
    moved = true;
  }
  if (!moved) kernel_fails("threads wait for each other (divergent barrier or warp mask)");
  return true;
}
} // namespace

void *dynamic_shared()
{
  return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(shared_memory.data()) + 63) & ~uintptr_t(63));
}

bool is_on_stack(const void *at)
{
  const char *p = static_cast<const char *>(at), *stack = fibers[static_cast<size_t>(current)].stack.get();

  return p >= stack && p < stack + STACK_BYTES;
}

void meet_block()
{
  leave(AT_BARRIER);
}

const uint64_t *meet_warp(unsigned mask, uint64_t value, warp_call call)
{
  fiber &f = fibers[static_cast<size_t>(current)];

  f.mask = mask;
  f.value = value;
  f.call = call;
  leave(IN_WARP);
  return fibers[static_cast<size_t>(current)].seen;
}

bool copy_later(copy c)
{
  fiber &f = fibers[static_cast<size_t>(current)];

  if (random() % 2) return false;
  f.copies.emplace_back(f.group, c);
  return true;
}

bool take_copy(int n_groups, copy *c)
{
  fiber &f = fibers[static_cast<size_t>(current)];

  if (f.copies.empty() || f.copies.front().first >= f.group - n_groups) return false;
  *c = f.copies.front().second;
  f.copies.erase(f.copies.begin());
  return true;
}

void end_copies()
{
  fibers[static_cast<size_t>(current)].group++;
}

void run_grid(const char *name, dim3 grid, dim3 block, size_t shared, void (*thread)(const void *),
              const void *call, size_t call_bytes)
{
  n_threads = static_cast<int>(block.x * block.y * block.z);
  if (n_threads < 1 || n_threads > 1024) fail("kernel %s: %d threads in a block", name, n_threads);
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647u)
    fail("kernel %s: a grid of %u x %u x %u blocks", name, grid.x, grid.y, grid.z);
  if (shared > 227u << 10) fail("kernel %s: %zu bytes of shared memory", name, shared);
  if (static_cast<int>(fibers.size()) < n_threads)
    fibers = std::vector<fiber>(static_cast<size_t>(n_threads));
  body = thread;
  body_call = call;
  kernel_name = name;
  here.grid = grid;
  here.block = block;
  races::begin_kernel(call, call_bytes);
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        here.block_index = {x, y, z};
        // shared memory starts with invalid contents
        if (shared) shared_memory.assign(shared + 64, static_cast<char>(0xFF));
        for (unsigned i = 0; i < static_cast<unsigned>(n_threads); i++) {
          fibers[i].is = RUNS;
          fibers[i].thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
        }
        races::begin_block(x + grid.x * (y + grid.y * z), n_threads, shared_memory.data(),
                           shared_memory.size());
        while (round_of_block()) continue;
      }
}
} // namespace cuda_on_cpu
