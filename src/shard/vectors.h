/* SPDX-License-Identifier: BSD-3-Clause */
/* The vectors of a feature, or their gradients, in a TrsPooledMatrix. Internal to shard/. */
#pragma once

#include "shard/route.h"
#include "sparse/kjt.h"

/* The vectors of a table's feature: one for each sample, or one for each id. */
typedef struct {
  int64_t n, columns, stride;
  float *data;
} TrsVectors;

/*
  The vectors of feature f, which is the table's k-th feature. A batch in device memory must have
  id_begin.
*/
TrsVectors TrsVectorsOf(const TrsTableConfig *table, int k, int f, const TrsKjt *batch,
                        const TrsPooledMatrix *pooled);

/*
  Round pooled vectors, or their gradients, to each table's output_dtype. Whole vectors are rounded,
  so that the plan does not change the result. (TorchRec rounds only the partial sums of row_wise
  shards.) Messages in this type then lose no precision. fp16 saturates, as in messages. Not
  collective.
*/
PetscErrorCode TrsVectorsRound(const TrsComputeOps *compute, const TrsTableConfigs *tables,
                               const TrsKjt *batch, TrsStream stream, const TrsPooledMatrix *pooled);
