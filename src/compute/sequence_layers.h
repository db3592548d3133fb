/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Kernels of the layers that pool sequences (sequence_pooling gru, din, transformer), a part of
  compute/compute_ops.h. They work on ragged bags: bag b has the rows offsets[b] .. offsets[b + 1] -
  1, and nothing is padded.

  Source: src/RULES.md, rule A26a
*/
#pragma once

#include "device/device.h"

/*
  Self-attention of the rows of bags, with several heads, on ragged rows.

  Head h takes columns [h d, (h + 1) d) of a row's query, key and value, d = dim / heads. Row i of a
  bag becomes the sum over the bag's rows j of softmax_j(query_i . key_j / sqrt(d)) value_j. No row
  of another bag takes part, and nothing is padded. The weights are not kept: a backward makes them
  again from the log of their sum, so memory grows with rows and not with pairs of rows.

  Source: Vaswani et al. 2017, Attention is all you need, section 3.2; src/RULES.md, rule A26a
*/
typedef struct {
  int64_t n, first;       /* bags; offsets[0] */
  const int64_t *offsets; /* [n + 1] of the bags' rows; the first row below is row offsets[0] */
  int64_t dim;            /* columns of the output, a multiple of heads */
  int64_t heads;
  PetscBool causal;  /* row i takes rows j <= i alone */
  const float *qkv;  /* [rows, 3 dim] query, key and value of each row */
  float *out;        /* [rows, dim] */
  float *log_sums;   /* [rows, heads] from a forward for its backward */
  float *scratch;    /* [TrsAttentionScratch()] on a CPU, else [rows, heads] */
  const float *dout; /* [rows, dim] for a backward */
  float *dqkv;       /* [rows, 3 dim] overwritten by a backward */
} TrsAttention;

/* Number of floats of scratch that a forward and a backward of so many rows need. */
int64_t TrsAttentionScratch(int64_t rows, int64_t dim, int64_t heads);

/*
  Make out and log_sums of an attention; after it, a backward makes dqkv. Time grows with the sum of
  the bags' squared lengths.
*/
typedef PetscErrorCode TrsAttentionForwardFn(TrsStream stream, const TrsAttention *attention);
typedef PetscErrorCode TrsAttentionBackwardFn(TrsStream stream, const TrsAttention *attention);

/*
  Target attention (din) on ragged bags. Row i of bag b, offsets[b] <= i < offsets[b + 1], has the
  columns rows + i * D. Its entries of parts, score and weight are the (i - first)-th ones.
*/
typedef struct {
  int64_t n_bags, D;
  int64_t first;          /* offsets[0] */
  PetscBool softmax;      /* weights of a bag are the softmax of its scores; else the scores */
  const int64_t *offsets; /* [n_bags + 1] */
  const float *rows;
  float *grads;   /* like rows */
  const float *q; /* [n_bags, D] the bags' targets */
  float *dq;      /* [n_bags, D] their gradients */
  float *out;     /* [n_bags, D] weighted sums, or their gradients */
  int64_t q_stride, dq_stride, out_stride;
  /*
    [rows, 4 D] the input of the layers that make the scores, of a type: fp32, or that of operands.
    Or its gradients, of floats.
  */
  void *parts;
  TrsDType type;
  float *score;  /* [rows] the scores, or their gradients */
  float *weight; /* [rows] */
} TrsTargetAttention;

/* parts = [q, k, q - k, q * k] of each row k. */
typedef PetscErrorCode TrsTargetPartsFn(TrsStream stream, const TrsTargetAttention *attention);

/* weight of score; out = the sum of each bag's weighted rows, 0 of an empty one. */
typedef PetscErrorCode TrsTargetPoolFn(TrsStream stream, const TrsTargetAttention *attention);

/* With out the gradients of the sums: grads of rows, as far as the sums have them, and score's. */
typedef PetscErrorCode TrsTargetPoolBackwardFn(TrsStream stream, const TrsTargetAttention *attention);

/* With parts the gradients of the layers' input: added to grads of rows, and to dq. */
typedef PetscErrorCode TrsTargetPartsBackwardFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  One step of a gru on the first m of some bags, sorted by falling length. The gates r, z and n of a
  row lie side by side.
*/
typedef struct {
  int64_t m, H, going_on; /* bags with a row in this step; those with a row in the next one */
  float *gates, *from_h;  /* [m, 3 H] W_i x + b_i, and W_h h + b_h */
  const float *before;    /* [m, H] the states before the rows */
  float *next;            /* [going_on, H] those before the next step's rows */
  const int64_t *bag;     /* [m] where the last states of the other bags go: rows of `to` */
  float *to;
  int64_t to_stride;
  float *dh; /* [m, H] backward: gradients of the states behind the rows, then of those before */
  /*
    Copies in bf16 for products, or NULL: of `next`, and of the gradients that a backward leaves in
    gates and from_h.
  */
  void *next_copy, *gates_copy, *from_h_copy;
} TrsGruStep;

/* gates become r, z and n, and the states behind the rows are written. */
typedef PetscErrorCode TrsGruForwardFn(TrsStream stream, const TrsGruStep *step);

/*
  gates and from_h, as a forward left them, become the gradients of W_i x + b_i and W_h h + b_h, and
  dh that of the states before without the part that goes through W_h.
*/
typedef PetscErrorCode TrsGruBackwardFn(TrsStream stream, const TrsGruStep *step);
