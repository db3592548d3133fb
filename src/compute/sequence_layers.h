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
  bag becomes the sum over the bag's rows j of softmax_j(query_i . key_j / sqrt(d)) value_j. Rows of
  other bags take no part. The weights are not kept: a backward computes them again from the log of
  their sum, so memory grows with rows instead of pairs of rows.

  Source: Vaswani et al. 2017, Attention is all you need, section 3.2; src/RULES.md, rule A26a
*/
typedef struct {
  int64_t n, first;       /* number of bags; offsets[0] */
  const int64_t *offsets; /* [n + 1] of the bags' rows; the arrays below begin at row offsets[0] */
  int64_t dim;            /* columns of the output, a multiple of heads */
  int64_t heads;
  PetscBool causal;  /* row i attends only to rows j <= i */
  const float *qkv;  /* [rows, 3 dim] query, key and value of each row */
  float *out;        /* [rows, dim] */
  float *log_sums;   /* [rows, heads] from a forward for its backward */
  float *scratch;    /* [TrsAttentionScratch()] on a CPU, else [rows, heads] */
  const float *dout; /* [rows, dim] for a backward */
  float *dqkv;       /* [rows, 3 dim] overwritten by a backward */
} TrsAttention;

/* Floats of scratch that a forward and a backward need for this number of rows. */
int64_t TrsAttentionScratch(int64_t rows, int64_t dim, int64_t heads);

/*
  The forward computes out and log_sums; the backward, called after it, computes dqkv. The time
  grows with the sum of the bags' squared lengths.
*/
typedef PetscErrorCode TrsAttentionForwardFn(TrsStream stream, const TrsAttention *attention);
typedef PetscErrorCode TrsAttentionBackwardFn(TrsStream stream, const TrsAttention *attention);

/*
  Target attention (din) on ragged bags. Row i of bag b, offsets[b] <= i < offsets[b + 1], begins at
  rows + i * D. Its index in parts, score and weight is i - first.
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
    [rows, 4 D] input of the layers that compute the scores, fp32 or the operands' type; or its
    gradients, which are float.
  */
  void *parts;
  TrsDType type;
  float *score;  /* [rows] the scores, or their gradients */
  float *weight; /* [rows] */
} TrsTargetAttention;

/* parts = [q, k, q - k, q * k] of each row k. */
typedef PetscErrorCode TrsTargetPartsFn(TrsStream stream, const TrsTargetAttention *attention);

/* Compute weight from score; out = the sum of each bag's weighted rows, 0 if the bag is empty. */
typedef PetscErrorCode TrsTargetPoolFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  out has the gradients of the sums. Compute their part of the rows' grads, and the gradients in
  score.
*/
typedef PetscErrorCode TrsTargetPoolBackwardFn(TrsStream stream, const TrsTargetAttention *attention);

/* parts has the gradients of the layers' input. Add them to the rows' grads and to dq. */
typedef PetscErrorCode TrsTargetPartsBackwardFn(TrsStream stream, const TrsTargetAttention *attention);

/*
  One step of a gru on the first m bags, which are sorted by descending length. The gates r, z and n
  of a row are adjacent.
*/
typedef struct {
  /* m: bags with a row in this step; going_on: bags with a row in the next step */
  int64_t m, H, going_on;
  float *gates, *from_h; /* [m, 3 H] gates: W_i x + b_i; from_h: W_h h + b_h */
  const float *before;   /* [m, H] states before this step's rows */
  float *next;           /* [going_on, H] states before the next step's rows */
  const int64_t *bag;    /* [m] row of `to` for a bag's last state */
  float *to;
  int64_t to_stride;
  /* [m, H] backward: gradients of the states after the rows, replaced by those before them */
  float *dh;
  /*
    bf16 copies for products, or NULL: of `next`, and of the gradients that a backward leaves in
    gates and from_h.
  */
  void *next_copy, *gates_copy, *from_h_copy;
} TrsGruStep;

/* Turn gates into r, z and n, and write the states after the rows. */
typedef PetscErrorCode TrsGruForwardFn(TrsStream stream, const TrsGruStep *step);

/*
  gates and from_h must be as a forward left them. They become the gradients of W_i x + b_i and W_h
  h + b_h. dh becomes the gradient of the states before the rows, without the part through W_h.
*/
typedef PetscErrorCode TrsGruBackwardFn(TrsStream stream, const TrsGruStep *step);
