/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharing of items among threads, if the items are in many lists and some lists are short. Internal
  to cpu/.
*/
#pragma once

#include <petscmath.h>

#include <omp.h>

/* Fewest items in a part, and the number of parts for each thread if there are many items. */
enum { TRS_ITEMS_A_PART = 256, TRS_PARTS_A_THREAD = 8 };

/*
  The concatenated items of all lists are cut into parts of `size`, dealt to the threads in turn. So
  a short list is shared by a few threads, and the next list by others. If items at one end of a
  list are more expensive, every thread gets a share of them.
*/
typedef struct {
  int64_t size, at;   /* at: number of items before the list */
  int64_t begin, end; /* the list's piece in the thread's current part */
} TrsThreadParts;

/*
  n: items in all lists. Every thread of a parallel region must call this and the functions below.
*/
static inline TrsThreadParts TrsPartsOfThread(int64_t n)
{
  const int64_t parts = (int64_t)omp_get_num_threads() * TRS_PARTS_A_THREAD;

  return (TrsThreadParts){.size = PetscMax((n + parts - 1) / parts, TRS_ITEMS_A_PART)};
}

/* Go to the list's next piece; after the last piece, to the next list. n: items in the list. */
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
