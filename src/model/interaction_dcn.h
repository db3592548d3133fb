/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The frame of the cross networks dcn, dcn_full, dcn_vector and dcn_mixture. Internal to model/.

  A layer is x_{l+1} = x0 * (u + b) + x_l, and each kind makes u from v = V x_l in its own way.
  interaction_dcn.c has what they share: the layers, their memory, the product with V, the bias. A
  TrsCrossKind has the rest.
  Source: torchrec.modules.crossnet; src/RULES.md, rule A3
*/
#pragma once

#include "model/interaction.h"

typedef struct TrsCrossKind TrsCrossKind;

/* Matrices have the output's type. A dcn_vector's u and v are floats. */
typedef struct {
  int V, bias; /* indices in the parameters: [R, N], [N] */
  int U, C;    /* the kind's own parameters; U is dcn's W */
  TrsMatrix x; /* x_l [max_batch, N]; for the first layer X itself or its copy */
  TrsMatrix v; /* V x_l [max_batch, R]; dcn_mixture: its relu */
  TrsMatrix u; /* [max_batch, N]; dcn_vector: [max_batch, 1]. It may be v */
  TrsMatrix q; /* dcn_mixture: relu(C v) for all experts [max_batch, K r] */
  float *gate; /* dcn_mixture: g [max_batch, K] */
} TrsCrossLayer;

typedef struct {
  const TrsCrossKind *kind;
  int n_layers, K;      /* K: experts of a layer */
  int64_t r, R;         /* rank of an expert; rows of V: K r, or N if V is a square */
  int gate;             /* index of the gates G [K, N] in the parameters, if K > 1 */
  TrsCrossLayer *layer; /* [n_layers] */
  float *memory;        /* holds all following arrays and the layers' arrays */
  TrsMatrix x0;         /* X, or its copy in the output's type [max_batch, N] */
  float *dx0;           /* [max_batch, N] */
  TrsMatrix h, dv;      /* gradients of a layer's u and v, as large as these */
  /* One layer's experts U_k q_k and their gradients [max_batch, K N]. With one expert, u and h. */
  TrsMatrix experts, dexperts;
  TrsMatrix dq; /* [max_batch, K r] */
} TrsCrossNet;

/* The part of a cross network that differs. Without `forward` u is v. */
struct TrsCrossKind {
  const char *module, *V; /* parts of the names of the parameters */
  PetscBool square;       /* V is [N, N] */
  PetscBool vector;       /* V is [N], u a number per sample */
  PetscBool mixes;        /* a layer may have several experts */

  /* Operations of one sample's forward in a layer, and the elements that these move. */
  double (*flops)(const TrsCrossNet *net, double N);
  double (*elements)(const TrsCrossNet *net, double N);

  /* Declare the parameters of layer l except its bias. */
  PetscErrorCode (*declare)(const TrsInteraction *interaction, TrsCrossLayer *layer, int l);

  /* Take memory for B samples from TrsTakeFloats() for the kind's own arrays. Optional. */
  void (*place)(const TrsInteraction *interaction, int64_t B, float *memory, int64_t *used);

  /* Compute a layer's u from x and from v, which may be overwritten. Optional. */
  PetscErrorCode (*forward)(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                            const TrsCrossLayer *layer);

  /*
    Compute dv and the gradients of the kind's own parameters from h. Add the gradient of x, except
    the part through V, where backward_gates() says. Required with `forward`.
  */
  PetscErrorCode (*backward)(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                             const TrsCrossLayer *layer);
};

extern const TrsCrossKind trs_cross_dcn_mixture;
