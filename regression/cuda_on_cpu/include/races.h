// SPDX-License-Identifier: BSD-3-Clause
// Race detection for memory accesses. In a build with -fsanitize=thread (README.md), every load and
// store of device and pinned memory calls these functions. In any other build they do nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cuda_on_cpu::races
{
// A clock tells how far an actor knows the progress of each actor. Actor 0 is the host, the others
// are streams. The operations of a stream are numbered, and so are the periods between two calls of
// the host.
using clock = std::vector<uint32_t>;

enum access { READ = 0, WRITE = 1, ATOMIC = 2 };
enum space { DEVICE, PINNED };

#ifdef CUDA_ON_CPU_RACES
// Actors, and what they know of each other.
int new_actor();
clock host_goes_on();                // the host's present knowledge, without its later actions
void host_learns(const clock &what); // the host waited, or a query succeeded
void host_learns_of(int actor);
void begin_operation(int actor, const char *name, const clock &when_enqueued);
void end_operation();
clock recorded(int actor);
void waited(int actor, const clock &what);

// Changes and accesses of memory.
void new_memory(const void *at, size_t bytes, space where);
void memory_gone(const void *at);
// an access by the whole current operation, or by the host
void touch(const void *at, size_t bytes, int access);

// Events inside a kernel.
void begin_kernel(const void *arguments, size_t bytes);
void begin_block(uint32_t block, int n_threads, const void *shared, size_t shared_bytes);
void thread_runs(bool now); // true if the thread in cuda_on_cpu::here runs now
void met_block();
void met_warp(int first_thread, unsigned mask);
void fence();
void touch_atomically(const void *at, size_t bytes);
#else
inline int new_actor()
{
  return 0;
}
inline clock host_goes_on()
{
  return {};
}
inline void host_learns(const clock &)
{
}
inline void host_learns_of(int)
{
}
inline void begin_operation(int, const char *, const clock &)
{
}
inline void end_operation()
{
}
inline clock recorded(int)
{
  return {};
}
inline void waited(int, const clock &)
{
}
inline void new_memory(const void *, size_t, space)
{
}
inline void memory_gone(const void *)
{
}
inline void touch(const void *, size_t, int)
{
}
inline void begin_kernel(const void *, size_t)
{
}
inline void begin_block(uint32_t, int, const void *, size_t)
{
}
inline void thread_runs(bool)
{
}
inline void met_block()
{
}
inline void met_warp(int, unsigned)
{
}
inline void fence()
{
}
inline void touch_atomically(const void *, size_t)
{
}
#endif
} // namespace cuda_on_cpu::races
