/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Division of items among threads, if the items are in many lists and some lists are short. Internal
  to cpu/.
*/
#pragma once

#include <petscmath.h>

#include <omp.h>

/*
  Smallest number of items in a part, and number of parts for each thread if there are many items.
*/
enum { TRS_ITEMS_A_PART = 256, TRS_PARTS_A_THREAD = 8 };

/*
  The parts of a thread. The items of all lists are concatenated and divided into parts of `size`
  items, which are assigned to the threads in turn. So a short list is shared by a few threads, and
  the next list by other threads. If the items at one end of a list take longer, every thread has a
  share of them.
*/
typedef struct {
  int64_t size, at;   /* `at` is the number of items before the current list */
  int64_t begin, end; /* the piece of the list that is in the thread's current part */
} TrsThreadParts;

/*
  Begin with n items in all lists. Every thread of a parallel region must call this function and the
  next.
*/
static inline TrsThreadParts TrsPartsOfThread(int64_t n)
{
  const int64_t parts = (int64_t)omp_get_num_threads() * TRS_PARTS_A_THREAD;

  return (TrsThreadParts){.size = PetscMax((n + parts - 1) / parts, TRS_ITEMS_A_PART)};
}

/*
  Go to the thread's next piece of a list with n items, and return 1. After its last piece, go to
  the next list, and return 0.
*/
static inline int TrsNextPiece(TrsThreadParts *p, int64_t n)
{
  const int64_t threads = omp_get_num_threads(), part = (p->at + p->end) / p->size;
  const int64_t mine = part + (omp_get_thread_num() - part % threads + threads) % threads;

  p->begin = PetscMax(mine * p->size - p->at, p->end);
  p->end = PetscMin((mine + 1) * p->size - p->at, n);
  if (p->begin < n) return 1;
  p->at += n;
  p->end = 0;
  return 0;
}
