/* SPDX-License-Identifier: BSD-3-Clause */
/* A feature's vectors or their gradients in a TrsPooledMatrix. Internal to shard/. */
#pragma once

#include "shard/route.h"
#include "sparse/kjt.h"

/* A table's vectors: one for each sample, or for each id. */
typedef struct {
  int64_t n, columns, stride;
  float *data;
} TrsVectors;

/* The vectors of feature f, the table's k-th. A batch in device memory must have id_begin. */
TrsVectors TrsVectorsOf(const TrsTableConfig *table, int k, int f, const TrsKjt *batch,
                        const TrsPooledMatrix *pooled);

/*
  Round pooled vectors, or their gradients, to each table's output_dtype. Whole vectors are rounded,
  so that the plan does not change the result. (TorchRec rounds only the partial sums of row_wise
  shards.) Messages in that type then lose nothing. fp16 saturates, as in messages. Not collective.
*/
PetscErrorCode TrsVectorsRound(const TrsComputeOps *compute, const TrsTableConfigs *tables,
                               const TrsKjt *batch, TrsStream stream, const TrsPooledMatrix *pooled);
