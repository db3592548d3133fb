/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The common code of the cross networks dcn, dcn_full, dcn_vector and dcn_mixture. Internal to
  model/.

  A layer is x_{l+1} = x0 * (u + b) + x_l, and each kind makes u from v = V x_l in its own way.
  interaction_dcn.c has the common code: the layers, their memory, the multiplication by V, and the
  bias. A TrsCrossKind has the code that differs.
  Source: torchrec.modules.crossnet; src/RULES.md, rule A3
*/
#pragma once

#include "model/interaction.h"

typedef struct TrsCrossKind TrsCrossKind;

/* The matrices have the output's type. dcn_vector's u and v are floats. */
typedef struct {
  int V, bias; /* indices in the parameters; V is [R, N], bias [N] */
  int U, C;    /* indices of the kind's own parameters; for dcn, U is W */
  TrsMatrix x; /* x_l [max_batch, N]; in the first layer, X itself or its copy */
  TrsMatrix v; /* V x_l [max_batch, R]; for dcn_mixture, relu(V x_l) */
  TrsMatrix u; /* [max_batch, N], for dcn_vector [max_batch, 1]; may be the same array as v */
  TrsMatrix q; /* dcn_mixture: relu(C v) for all experts [max_batch, K r] */
  float *gate; /* dcn_mixture: g [max_batch, K] */
  /* the gradient of x_{l+1} [max_batch, N], if it is kept and not the output's gradient */
  TrsMatrix g;
} TrsCrossLayer;

typedef struct {
  const TrsCrossKind *kind;
  int n_layers, K;      /* number of layers; K: number of experts in a layer */
  int64_t r, R;         /* rank of an expert; rows of V: K r, or N if V is a square */
  int gate;             /* index of the gates G [K, N] in the parameters, if K > 1 */
  TrsCrossLayer *layer; /* [n_layers] */
  float *memory;        /* memory of all following arrays and of the layers' arrays */
  TrsMatrix x0;         /* X, or its copy in the output's type [max_batch, N] */
  /*
    true: the gradients of all x_l are kept, and the first layer adds up dx0 from them. It needs
    fewer bytes than dx0 in memory, which each layer reads and writes as floats.
  */
  PetscBool keeps;
  float *dx0;      /* [max_batch, N]; NULL if `keeps` is set */
  TrsMatrix h, dv; /* gradients of a layer's u and v, with the sizes of u and v */
  /* The outputs U_k q_k of one layer's experts and their gradients [max_batch, K N]. With one
     expert they are u and h. */
  TrsMatrix experts, dexperts;
  TrsMatrix dq; /* [max_batch, K r] */
} TrsCrossNet;

/* The functions that differ between cross networks. Without `backward`, u is v. */
struct TrsCrossKind {
  const char *module, *V; /* parts of the parameters' names */
  PetscBool square;       /* V is [N, N] */
  PetscBool vector;       /* V is [N], and u has one number per sample */
  PetscBool mixes;        /* a layer may have several experts */

  /* The operations of one sample's forward in a layer, and the number of elements that it reads
     and writes. */
  double (*flops)(const TrsCrossNet *net, double N);
  double (*elements)(const TrsCrossNet *net, double N);

  /* Declare all parameters of layer l except its bias. */
  PetscErrorCode (*declare)(const TrsInteraction *interaction, TrsCrossLayer *layer, int l);

  /* With TrsTakeFloats(), reserve memory for the kind's own arrays for B samples. Optional. */
  void (*place)(const TrsInteraction *interaction, int64_t B, float *memory, int64_t *used);

  /*
    Compute a layer's u from x and v, and then `next`, which is x_{l+1}. It may overwrite v. If V is
    a square, v was not computed.
  */
  PetscErrorCode (*forward)(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                            const TrsCrossLayer *layer, void *next);

  /*
    Compute dv and the gradients of the kind's own parameters from h. Also add x's gradient, except
    its part through V, to the array that backward_gates() names. Optional.
  */
  PetscErrorCode (*backward)(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                             const TrsCrossLayer *layer);
};

extern const TrsCrossKind trs_cross_dcn_mixture;
