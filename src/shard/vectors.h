/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The vectors that a feature brings to the model, or their gradients, in a TrsPooledMatrix. Internal
  to shard/.
*/
#pragma once

#include "shard/route.h"
#include "sparse/kjt.h"

/* Vectors as a table gives them out: a row for each sample, or for each id. */
typedef struct {
  int64_t n, columns, stride;
  float *data;
} TrsVectors;

/*
  The vectors of feature f, which is the table's k-th. A batch in a device's memory has id_begin.
*/
TrsVectors TrsVectorsOf(const TrsTableConfig *table, int k, int f, const TrsKjt *batch,
                        const TrsPooledMatrix *pooled);

/*
  Round pooled vectors, or their gradients, to the tables' output_dtype. They are rounded where they
  are whole, so that the plan does not change them. (TorchRec rounds the partial sums of row_wise
  shards alone.) What is sent in that type then stays as it is. fp16 saturates, as on the wire. Not
  collective.
*/
PetscErrorCode TrsVectorsRound(const TrsComputeOps *compute, const TrsTableConfigs *tables,
                               const TrsKjt *batch, TrsStream stream, const TrsPooledMatrix *pooled);
