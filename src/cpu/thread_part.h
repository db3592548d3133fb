/* SPDX-License-Identifier: BSD-3-Clause */
/*
  How threads share items that lie in many lists, some too short for all threads. Internal to
  compute/.
*/
#pragma once

#include <petscmath.h>

#include <omp.h>

/* Fewest items of a part, and the number of parts that a thread gets if there are many items. */
enum { TRS_ITEMS_A_PART = 256, TRS_PARTS_A_THREAD = 8 };

/*
  The items of all lists, one after the other, are cut into parts of `size`, which the threads get
  in turn. So a short list is some threads' work, and the next one that of others. Where the items
  at one end of a list take longer, all threads have of them.
*/
typedef struct {
  int64_t size, at;   /* at: the items before the list */
  int64_t begin, end; /* the piece of the list in the thread's current part */
} TrsThreadParts;

/* n: the items of all lists. Called, like the rest, by each thread of a parallel region. */
static inline TrsThreadParts TrsPartsOfThread(int64_t n)
{
  const int64_t parts = (int64_t)omp_get_num_threads() * TRS_PARTS_A_THREAD;

  return (TrsThreadParts){.size = PetscMax((n + parts - 1) / parts, TRS_ITEMS_A_PART)};
}

/* Go to the next piece of the list, which has n items; after the last one, to the next list. */
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
