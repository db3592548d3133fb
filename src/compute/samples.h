/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Samples as a dataset's file has them, and the features of a batch that are taken from them. The
  file is sample-major: the lengths of a sample's bags are a row, and its ids follow one another in
  the order of the keys. A batch is feature-major.
*/
#pragma once

#include "compute/id_map.h"

/* A feature of a batch: the key of the samples that it is, and what its bags may hold. */
typedef struct {
  int key;
  int next;           /* a later feature of this key, or -1 */
  int32_t max_length; /* the most ids of a bag; 0: any number */
  int64_t rows;       /* ids from -1 to rows - 1 are good; 0: all ids are */
  TrsIdMap map;       /* the rule that turns ids into rows; with one `rows` is 0 */
} TrsSampleFeature;

/*
  An id of the file as a batch has it, by a feature's rule and rows. *odd is set if it is not good.
  kind is the rule's, which a loop over many ids keeps in a register.
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
  A batch of samples, whose ids may come in several parts of samples. A shuffled batch has one part,
  that of all samples.
*/
typedef struct {
  int64_t batch;      /* B */
  int64_t begin, end; /* samples whose ids are there */
  int n_keys;
  const int *first;       /* [n_keys] the first feature of each key, or -1; host memory */
  const int32_t *lengths; /* [B, n_keys], not negative */
  const int64_t *start;   /* [B + 1] where each sample's ids begin; sums of lengths, from 0 on */
  const int32_t *sample;  /* [B] the sample at each place of the batch; NULL: sample b at place b */
  int value_bytes;        /* 4: ids are int32; 8: int64 */
  const void *values;     /* [start[end] - start[begin]] ids of samples begin .. end - 1 */
  const float *weights;   /* of these ids, or NULL */
} TrsSamples;
