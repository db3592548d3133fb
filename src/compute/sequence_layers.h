/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Kernels of the layers that pool sequences (sequence_pooling gru, din, transformer), part of
  compute/compute_ops.h. They work on ragged bags without padding: bag b has the rows offsets[b] ..
  offsets[b + 1] - 1.

  Source: src/RULES.md, rule A26a
*/
#pragma once

#include "device/device.h"

/*
  Multi-head self-attention among the rows of each bag.

  Head h takes columns [h d, (h + 1) d) of a row's query, key and value, d = dim / heads. Row i of a
  bag becomes the sum over the bag's rows j of softmax_j(query_i . key_j / sqrt(d)) value_j. A row
  attends only to rows of its own bag. The weights are not kept: a backward computes them again from
  the log of their sum. So memory grows with the number of rows instead of pairs of rows.

  Source: Vaswani et al. 2017, Attention is all you need, section 3.2; src/RULES.md, rule A26a
*/
typedef struct {
  int64_t n, first; /* number of bags; offsets[0] */
  /* [n + 1] indices of the bags' rows; index offsets[0] is row 0 of the arrays below */
  const int64_t *offsets;
  int64_t dim; /* columns of the output, a multiple of heads */
  int64_t heads;
  PetscBool causal; /* row i attends only to rows j <= i */
  const float *qkv; /* [rows, 3 dim] query, key and value of each row */
  float *out;       /* [rows, dim] */
  /* [rows, heads] log of the sum of the weights, from a forward for its backward */
  float *log_sums;
  float *scratch;    /* [TrsAttentionScratch()] on a CPU, otherwise [rows, heads] */
  const float *dout; /* [rows, dim] gradients, for a backward */
  float *dqkv;       /* [rows, 3 dim] overwritten by a backward */
} TrsAttention;

/*
  Return the number of floats of scratch that a forward and its backward need for this number of
  rows.
*/
int64_t TrsAttentionScratch(int64_t rows, int64_t dim, int64_t heads);

/*
  Compute self-attention. The forward computes out and log_sums. The backward, called after the
  forward, computes dqkv. The time grows with the sum of the bags' squared lengths.
*/
typedef PetscErrorCode TrsAttentionForwardFn(TrsStream stream, const TrsAttention *attention);
typedef PetscErrorCode TrsAttentionBackwardFn(TrsStream stream, const TrsAttention *attention);

/*
  Target attention (din) on ragged bags. Row i of bag b, offsets[b] <= i < offsets[b + 1], begins at
  rows + i * D. In parts, score and weight, the row has index i - first.
*/
typedef struct {
  int64_t n_bags, D;
  int64_t first; /* offsets[0] */
  /* true: a bag's weights are the softmax of its scores; false: they are the scores */
  PetscBool softmax;
  const int64_t *offsets; /* [n_bags + 1] */
  const float *rows;
  float *grads;   /* gradients of `rows`, with the same layout */
  const float *q; /* [n_bags, D] the target's vector of each bag */
  float *dq;      /* [n_bags, D] gradients of q */
  float *out;     /* [n_bags, D] weighted sums of the bags' rows; in a backward, their gradients */
  int64_t q_stride, dq_stride, out_stride;
  /*
    [rows, 4 D] input of the layers that compute the scores, in fp32 or the operands' type. In a
    backward, its gradients, which are float.
  */
  void *parts;
  TrsDType type;
  float *score;  /* [rows] the scores; in a backward, their gradients */
  float *weight; /* [rows] */
} TrsTargetAttention;

/* For each row k, set parts = [q, k, q - k, q * k]. */
typedef PetscErrorCode TrsTargetPartsFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  Compute the weights from the scores, and out = the sum of each bag's weighted rows. It is 0 if the
  bag is empty.
*/
typedef PetscErrorCode TrsTargetPoolFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  Do the backward of the pooling: `out` has the gradients of the sums. Compute from them the
  gradients of the rows and of the scores.
*/
typedef PetscErrorCode TrsTargetPoolBackwardFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  Do the backward of TrsTargetPartsFn: `parts` has the gradients of the layers' input. Add them to
  the gradients of the rows and to dq.
*/
typedef PetscErrorCode TrsTargetPartsBackwardFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  One step of a GRU on the first m bags, which are sorted by descending length. The gates r, z and n
  of a row are adjacent.
*/
typedef struct {
  /* m is the number of bags with a row in this step, going_on the number of bags with a row in
     the next step. */
  int64_t m, H, going_on;
  float *gates, *from_h; /* [m, 3 H] gates: W_i x + b_i; from_h: W_h h + b_h */
  const float *before;   /* [m, H] states before this step */
  float *next;           /* [going_on, H] states before the next step */
  const int64_t *bag;    /* [m] the row of `to` that receives the last state of a bag */
  float *to;
  int64_t to_stride;
  /* [m, H] in a backward: gradients of the states after this step, replaced by the gradients of
     the states before this step */
  float *dh;
  /*
    bf16 copies for matrix products, or NULL: of `next`, and of the gradients that a backward writes
    to gates and from_h.
  */
  void *next_copy, *gates_copy, *from_h_copy;
} TrsGruStep;

/* Compute r, z and n in place of `gates`, and write the states after this step. */
typedef PetscErrorCode TrsGruForwardFn(TrsStream stream, const TrsGruStep *step);

/*
  Do the backward of a step. gates and from_h must be unchanged since the forward. They are replaced
  by the gradients of W_i x + b_i and W_h h + b_h. dh becomes the gradient of the states before this
  step, without the part through W_h.
*/
typedef PetscErrorCode TrsGruBackwardFn(TrsStream stream, const TrsGruStep *step);
