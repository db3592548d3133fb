/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Samples in the layout of a dataset's file, and the features of a batch made from them. The file is
  sample-major: a sample's bag lengths form a row, and its ids are contiguous in the order of the
  keys. A batch is feature-major.
*/
#pragma once

#include "compute/id_map.h"

/* A feature of a batch: its key in the samples, and the limits on its bags. */
typedef struct {
  int key;
  int next;           /* a later feature of this key, or -1 */
  int32_t max_length; /* longest bag allowed, in ids; 0: any length */
  int64_t rows;       /* ids from -1 to rows - 1 are good; 0: all ids are */
  TrsIdMap map;       /* the rule that turns ids into rows; if there is a rule, `rows` is 0 */
} TrsSampleFeature;

/*
  Convert an id of the file to the id in the batch. Sets *odd if the id is bad. kind must be map's
  kind; it is an argument so that a loop over many ids keeps it in a register.
*/
TRS_ALWAYS_INLINE int64_t TrsSampleRow(const TrsIdMap *map, TrsIdMapKind kind, int64_t rows, int64_t id,
                                       PetscBool *odd)
{
  if (kind != TRS_ID_MAP_NONE) return TrsIdMapRow(map, kind, id);
  if (rows == 0 || (uint64_t)id < (uint64_t)rows || id == -1) return id;
  *odd = PETSC_TRUE;
  return 0;
}

/*
  A batch of samples. Its ids may arrive in several parts, each for a range of samples. A shuffled
  batch has a single part.
*/
typedef struct {
  int64_t batch;      /* B */
  int64_t begin, end; /* samples whose ids are in this part */
  int n_keys;
  const int *first;       /* [n_keys] first feature of each key, or -1; host memory */
  const int32_t *lengths; /* [B, n_keys], not negative */
  const int64_t *start;   /* [B + 1] beginning of each sample's ids: sums of lengths, from 0 */
  const int32_t *sample;  /* [B] the sample at each place of the batch; NULL: sample b at place b */
  int value_bytes;        /* 4: ids are int32; 8: int64 */
  const void *values;     /* [start[end] - start[begin]] ids of samples begin .. end - 1 */
  const float *weights;   /* of these ids, or NULL */
} TrsSamples;
