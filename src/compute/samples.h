/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Samples in the layout of a dataset's file, and the features of a batch made from them. The file is
  sample-major: a sample's bag lengths form a row, and its ids are contiguous in the order of the
  keys. A batch is feature-major.
*/
#pragma once

#include "compute/id_map.h"

/* A feature of a batch: its key in the samples, and the limits for its bags and ids. */
typedef struct {
  int key;
  int next;           /* index of a later feature that has the same key; -1 if there is none */
  int32_t max_length; /* largest allowed number of ids in a bag; 0 if any number is allowed */
  int64_t rows;       /* ids from -1 to rows - 1 are good; if 0, all ids are good */
  TrsIdMap map;       /* the rule that maps ids to rows; if there is a rule, `rows` is 0 */
} TrsSampleFeature;

/*
  Convert an id of the file to the id in the batch. Sets *odd if the id is bad. kind must be map's
  kind; it is an argument so that a loop over many ids can keep it in a register.
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
  The samples of a batch. Their ids may arrive in several parts, each for a range of samples. A
  shuffled batch has only one part.
*/
typedef struct {
  int64_t batch;      /* number of samples B */
  int64_t begin, end; /* samples whose ids are in this part */
  int n_keys;
  const int *first;       /* [n_keys] first feature that has the key, or -1; host memory */
  const int32_t *lengths; /* [B, n_keys], not negative */
  /* [B + 1] index of each sample's first id, which is the sum of the lengths of all earlier
     samples */
  const int64_t *start;
  const int32_t *sample; /* [B] which sample is number b of the batch; if NULL, it is sample b */
  int value_bytes;       /* 4 if ids are int32, 8 if int64 */
  const void *values;    /* [start[end] - start[begin]] ids of samples begin .. end - 1 */
  const float *weights;  /* weights of these ids; NULL if there are none */
} TrsSamples;
