/* SPDX-License-Identifier: BSD-3-Clause */
/* Data that the model shares with its users and with its parts. */
#pragma once

#include "spec/table_config.h"

#include <stdint.h>

/* One dense parameter. Its values and its gradient lie in the model's flat arrays. */
typedef struct {
  const char *name;    /* "dense_arch/0/weight", "over_arch/1/bias", "crossnet/0/W" */
  int64_t rows, cols;  /* a bias has rows = N and cols = 1 */
  int ndim;            /* 1 or 2 */
  int64_t stride;      /* floats from row to row: cols, or more if zeros follow the columns */
  float *value, *grad; /* [rows, stride] device memory */
} TrsDenseParameter;

/*
  The rows of one feature's bags, for a feature that a layer pools. Row i is at rows + i * D, its
  gradient at grads + i * D. Bag b has the rows offsets[b] .. offsets[b + 1] - 1. The host knows the
  number of rows.
*/
typedef struct {
  /* offsets[0], which may be above 0, and the number of rows in all n bags */
  int64_t first, n_rows;
  const int64_t *offsets; /* [n + 1] on the device */
  const int64_t *on_host; /* the same offsets on the host; NULL unless TrsSequenceReadsOffsets() */
  const float *rows;      /* on the device */
  float *grads;           /* on the device; NULL without a backward */
} TrsBagRows;

/* True if this pooling's layer reads the bags' offsets on the host. Not collective. */
PetscBool TrsSequenceReadsOffsets(TrsSequencePoolingKind pooling);
