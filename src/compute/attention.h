/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Self-attention of the rows of bags, with several heads, on ragged rows (the kernels
  attention_forward and attention_backward of compute/compute_ops.h).

  Head h takes columns [h d, (h + 1) d) of a row's query, key and value, d = dim / heads. Row i of a
  bag becomes the sum over the bag's rows j of softmax_j(query_i . key_j / sqrt(d)) value_j. No row
  of another bag takes part, and nothing is padded. The weights are not kept: a backward makes them
  again from the log of their sum, so memory grows with rows and not with pairs of rows.

  Source: Vaswani et al. 2017, Attention is all you need, section 3.2; src/RULES.md, rule A26a
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t n, first;       /* bags; offsets[0] */
  const int64_t *offsets; /* [n + 1] of the bags' rows; the first row below is row offsets[0] */
  int64_t dim;            /* columns of the output, a multiple of heads */
  int64_t heads;
  PetscBool causal;  /* row i takes rows j <= i alone */
  const float *qkv;  /* [rows, 3 dim] query, key and value of each row */
  float *out;        /* [rows, dim] */
  float *log_sums;   /* [rows, heads] from a forward for its backward */
  float *scratch;    /* [TrsAttentionScratch()], on a CPU alone */
  const float *dout; /* [rows, dim] for a backward */
  float *dqkv;       /* [rows, 3 dim] overwritten by a backward */
} TrsAttention;

/* Number of floats of scratch that a forward and a backward of so many rows need. */
int64_t TrsAttentionScratch(int64_t rows, int64_t dim, int64_t heads);
