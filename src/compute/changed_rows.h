/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The set of a shard's rows that have changed, with a bit for each row (TrsTbeTable.changed). On the
  CPU, updates and placements mark the rows that they write. Any number of threads may mark rows at
  the same time.

  The set of a shard's rows that must be saved before they change, because a snapshot still needs
  them (TrsTbeTable.to_save). On the CPU, updates and placements save the rows that they are about
  to write.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { TRS_CHANGED_BITS = 64 }; /* rows for which a word has bits */

/* Number of words that this number of rows needs. */
static inline int64_t TrsChangedWords(int64_t rows)
{
  return (rows + TRS_CHANGED_BITS - 1) / TRS_CHANGED_BITS;
}

/*
  Mark a row. Most rows of a batch are already marked, so the function reads the word first. Threads
  that only read a word do not take it from each other's caches.
*/
static inline void TrsChangedMark(uint64_t *changed, int64_t row)
{
  const uint64_t bit = UINT64_C(1) << row % TRS_CHANGED_BITS;
  uint64_t *word = &changed[row / TRS_CHANGED_BITS];

  if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) (void)__atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}

typedef struct TrsRowsToSave {
  uint64_t *bits; /* a bit for each row of the shard; NULL: no row must be saved */
  /*
    Save rows of the shard and clear their bits. The bits may be clear already. May wait until there
    is memory for the rows. Any number of threads may call it at the same time.
  */
  void (*save)(struct TrsRowsToSave *rows, int64_t n, const int64_t *row);
} TrsRowsToSave;

/* Return the bits of the rows that must be saved. NULL if there are none; rows may be NULL. */
static inline const uint64_t *TrsRowsToSaveBits(const TrsRowsToSave *rows)
{
  return rows ? __atomic_load_n(&rows->bits, __ATOMIC_ACQUIRE) : NULL;
}

/*
  True if a row must be saved before it changes. If it is false, all that the snapshot has done with
  the row happens before the call.
*/
static inline int TrsRowMustBeSaved(const uint64_t *bits, int64_t row)
{
  return (int)(__atomic_load_n(&bits[row / TRS_CHANGED_BITS], __ATOMIC_ACQUIRE) >> row % TRS_CHANGED_BITS &
               1);
}

/* Save one row, if it must be saved. rows may be NULL. */
static inline void TrsRowSave(TrsRowsToSave *rows, int64_t row)
{
  const uint64_t *bits = TrsRowsToSaveBits(rows);

  if (bits && TrsRowMustBeSaved(bits, row)) rows->save(rows, 1, &row);
}
