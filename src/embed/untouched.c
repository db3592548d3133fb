/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/untouched.h"

#include "core/buffer.h"

struct TrsUntouchedImpl {
  const TrsTbe *tbe;
  int64_t *first; /* [n_tables] index of each table's first word */
  uint64_t *word; /* a bit for each row; between two calls all bits are 0 */
};

PetscErrorCode TrsUntouchedCreate(const TrsTbe *tbe, TrsUntouched *untouched)
{
  TrsUntouched u;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(&u));
  u->tbe = tbe;
  PetscCall(PetscMalloc1((size_t)tbe->n_tables + 1, &u->first));
  for (int t = 0; t < tbe->n_tables; t++) {
    u->first[t] = n;
    n += (tbe->table[t].rows + 63) / 64;
  }
  PetscCall(TrsAlloc(n + 1, sizeof(*u->word), (void *)&u->word));
  *untouched = u;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsUntouchedDestroy(TrsUntouched *untouched)
{
  PetscFunctionBegin;
  if (!*untouched) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsFree((void *)&(*untouched)->word));
  PetscCall(PetscFree((*untouched)->first));
  PetscCall(PetscFree(*untouched));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the bits of all rows of a batch, or clear them. */
static void mark(const struct TrsUntouchedImpl *u, const TrsTbeInput *input, int set)
{
  for (int f = 0; f < u->tbe->n_features; f++) {
    const int t = u->tbe->feature[f].table;
    const uint64_t rows = (uint64_t)u->tbe->table[t].rows;
    uint64_t *word = u->word + u->first[t];

    for (int64_t i = input->offsets[f * input->batch]; i < input->offsets[(f + 1) * input->batch]; i++) {
      const uint64_t row = (uint64_t)input->values[i];

      if (row >= rows) continue;
      if (set)
        word[row / 64] |= UINT64_C(1) << row % 64;
      else
        word[row / 64] = 0;
    }
  }
}

PetscErrorCode TrsUntouchedFind(TrsUntouched u, const TrsTbeInput *written, const TrsTbeInput *next,
                                uint8_t *bags)
{
  const int64_t B = next->batch;

  PetscFunctionBegin;
  mark(u, written, 1);
  for (int f = 0; f < u->tbe->n_features; f++) {
    const int t = u->tbe->feature[f].table;
    const uint64_t rows = (uint64_t)u->tbe->table[t].rows;
    const uint64_t *word = u->word + u->first[t];

    for (int64_t bag = f * B; bag < (f + 1) * B; bag++) {
      uint64_t touched = 0;

      for (int64_t i = next->offsets[bag]; i < next->offsets[bag + 1]; i++) {
        const uint64_t row = (uint64_t)next->values[i];

        if (row < rows) touched |= word[row / 64] >> row % 64 & 1;
      }
      bags[bag] = (uint8_t)!touched;
    }
  }
  mark(u, written, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}
