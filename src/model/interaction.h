/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Interaction of the dense vector with the embeddings: dot, dcn, cat. Internal to model/.

  The input X [max_batch, N] and its gradient belong to it: the vectors of a sample side by side, the dense one first.
  Source: torchrec.models.dlrm.InteractionArch, torchrec.modules.crossnet.LowRankCrossNet;
  src/RULES.md, rules A1 to A4
*/
#pragma once

#include "model/parameters.h"

typedef enum {
  TRS_INTERACTION_DOT,
  TRS_INTERACTION_DCN,
  TRS_INTERACTION_CAT
} TrsInteractionKind; /* order of -interaction's choices */

/* A low-rank cross layer x_{l+1} = x0 * (W (V x_l) + b) + x_l. */
typedef struct {
  int W, V, bias; /* indices in the parameters */
  float *x;       /* x_l [max_batch, N]; X itself for the first */
  float *v;       /* V x_l [max_batch, rank] */
  float *u;       /* W V x_l [max_batch, N] */
} TrsCrossLayer;

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters *params;
  TrsInteractionKind kind;
  int n_vectors, D; /* vectors of a sample; their width (dot) */
  int copied;       /* dot: floats of the dense vector that go to the output as they are */
  int64_t N;        /* width of X */
  int64_t width, filled,
      stride; /* of the output: columns, with zeros behind them (compute's product_unit), floats from row to row */
  float *x, *dx;        /* X and its gradient [max_batch, N] */
  float *own_dx;        /* dx, where it is this one's */
  float *out, *dout;    /* [max_batch, stride], borrowed; X and its gradient for cat */
  int n_layers, rank;   /* dcn */
  TrsCrossLayer *layer; /* [n_layers] */
  float *dx0, *h, *q;   /* dcn: [max_batch, N], [max_batch, N], [max_batch, rank] */
} TrsInteraction;

/* Widths for n_vectors vectors of D (cat: of any widths), N floats in all; has_dense: the first vector is the dense arch's. kind is set. */
void TrsInteractionShape(TrsInteraction *interaction, int n_vectors, int D, int64_t N, PetscBool has_dense);

/* Declare the parameters of dcn, the last layer first; rank and n_layers are set. */
PetscErrorCode TrsInteractionDeclare(TrsInteraction *interaction);

/*
  All borrowed, and not for cat, whose output is X, and whose gradient, which is allocated, is both's:
  out   room for the output, from a forward to the backward
  dx    for X's gradient, that nothing else uses from the backward until the next forward's end; NULL without backward
  dout  for the output's in a backward
  Errors: MEMORY
*/
PetscErrorCode TrsInteractionAllocate(TrsInteraction *interaction, int64_t max_batch, float *out, float *dx,
                                      float *dout);

/* x to out. */
PetscErrorCode TrsInteractionForward(const TrsInteraction *interaction, TrsStream stream, int64_t n);

/* dout (overwritten) to dx, after a Forward of the same samples. Announces gradients. */
PetscErrorCode TrsInteractionBackward(const TrsInteraction *interaction, TrsStream stream, int64_t n);

PetscErrorCode TrsInteractionFree(TrsInteraction *interaction);
