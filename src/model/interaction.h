/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Interaction of the dense vector with the embeddings. Internal to model/.

  Each interaction is a table of functions, trs_interaction_<word>, in interaction_<word>.c; the
  words are TRS_INTERACTIONS of spec/vocabulary.h. The input X [max_batch, N] and its gradient
  belong to the interaction: the vectors of a sample side by side, the dense one first.
  Source: torchrec.models.dlrm.InteractionArch, torchrec.models.deepfm.FMInteractionArch,
  torchrec.modules.crossnet; src/RULES.md, rules A1 to A4
*/
#pragma once

#include "model/layer.h"

typedef struct TrsInteractionOps TrsInteractionOps;

typedef struct {
  const TrsInteractionOps *ops;
  const TrsLayerContext *context;
  int n_vectors, D;       /* vectors of a sample; the width of the embeddings */
  int copied;             /* floats of the dense vector; 0: there is none */
  int64_t N;              /* width of X */
  int64_t query_columns;  /* the first columns of X, which are the query's (two_tower) */
  int64_t width;          /* columns of the output */
  int64_t filled, stride; /* columns with zeros behind (product_unit); floats from row to row */
  TrsDType type;          /* of the output and its gradient */
  /*
    X and its gradient [max_batch, N], where they lie now; of vectors that lie anywhere X has the
    columns of those alone that the caller has there. They are of floats, or have the type of a
    `typed` output.
  */
  TrsMatrix x, dx;
  PetscBool elsewhere; /* X and its gradient are placed by the caller alone */
  /*
    [n_vectors] where each vector lies, and where its gradient goes; NULL: in x and dx. If set, x
    has no memory unless the caller has some vectors there, dx has none, and the dense vector and
    its gradient are in matrices of their own.
  */
  TrsVectorPlace *x_at, *dx_at;
  TrsMatrix dense_x, dense_dx; /* [max_batch, copied], where the dense arch writes and reads */
  void *own_x;                 /* X, unless elsewhere */
  void *own_dx;                /* dx, where it is not borrowed */
  float *out, *dout;           /* [max_batch, stride], borrowed; X, its gradient where in_place */
  void *own;                   /* what the table's functions keep, from its read to its free */
} TrsInteraction;

/* TrsInteractionCheck() refuses a table without a function that is not optional. */
struct TrsInteractionOps {
  const char *word;
  int fewest;           /* vectors of a sample, at least */
  PetscBool equal_dims; /* are all embeddings, and the dense vector, of one width? */
  PetscBool in_place;   /* the output is X */
  PetscBool padded;     /* may the output's rows have zeros behind them? */
  PetscBool typed;      /* may the output, and X, have the type of products' operands? */
  PetscBool pairs;      /* the output is a query's and a candidate's embedding, side by side */
  PetscBool sparse;     /* X is the embeddings alone: there is no dense arch */
  PetscBool scattered;  /* may vectors lie anywhere (x_at)? */

  /* Read the table's options. Optional. Errors: OPTION */
  PetscErrorCode (*read)(TrsInteraction *interaction, TrsOptions options);

  /* Check the widths of the embeddings and of the options. Optional. Errors: OPTION */
  PetscErrorCode (*check)(const TrsInteraction *interaction);

  /* The output's width; n_vectors, D, copied and N are set. */
  int64_t (*width)(const TrsInteraction *interaction);

  /* Declare parameters, the last layer first. Optional. */
  PetscErrorCode (*declare)(TrsInteraction *interaction);

  /* Make room for max_batch samples beyond X, output, gradients. Optional. Errors: MEMORY */
  PetscErrorCode (*allocate)(TrsInteraction *interaction, int64_t max_batch);

  /* Take over where X lies, after allocate() and whenever its place changes. Optional. */
  void (*placed)(const TrsInteraction *interaction);

  /*
    Operations of one sample forward, for -log_view; a backward has twice as many. Deep layers count
    their own.
  */
  double (*flops)(const TrsInteraction *interaction);

  /* The number of dot products of a sample's vectors, if these are all operations. Optional. */
  double (*products)(const TrsInteraction *interaction);

  /* Bytes that one sample forward moves besides X, the output and deep layers. Optional. */
  double (*bytes)(const TrsInteraction *interaction);

  /* Add what deep layers compute and move for one sample forward, as TrsMlpWork(). Optional. */
  void (*work)(const TrsInteraction *interaction, double *flops, double *bytes);

  /* X to out: n samples, with zeros in columns width .. filled. */
  PetscErrorCode (*forward)(const TrsInteraction *interaction, TrsStream stream, int64_t n);

  /* dout (overwritten) to dx, after a forward of the same samples. Announces gradients. */
  PetscErrorCode (*backward)(const TrsInteraction *interaction, TrsStream stream, int64_t n);

  /* Print lines for the banner on rank 0 of comm. Optional. */
  PetscErrorCode (*view)(const TrsInteraction *interaction, MPI_Comm comm);

  /* Free what read and allocate made; own may be NULL. Optional. */
  PetscErrorCode (*free)(TrsInteraction *interaction);
};

#define TRS_INTERACTION_TABLE(KIND, word) extern const TrsInteractionOps trs_interaction_##word;
TRS_INTERACTIONS(TRS_INTERACTION_TABLE)

/* The table of a kind, complete. Errors: INTERNAL for a missing function */
PetscErrorCode TrsInteractionFind(TrsInteractionKind kind, const TrsInteractionOps **ops);

/* Has the table every function it needs? Not collective. Errors: INTERNAL naming the function */
PetscErrorCode TrsInteractionCheck(const TrsInteractionOps *ops);

/* A `width` of the tables: N, the output is as wide as X. */
int64_t TrsInteractionAll(const TrsInteraction *interaction);

/*
  May the vectors of the interaction lie anywhere? It has its shape, and is not placed elsewhere.
  Not collective.
*/
PetscBool TrsInteractionMayScatter(const TrsInteraction *interaction);

/*
  Widths for n_vectors vectors, N floats in all, of which the first `copied` are the dense arch's; D
  is the embeddings' width, or without embeddings the dense arch's. products_alone: nothing else
  reads the output. typed_x: X may have its type. ops is set. Not collective.
*/
void TrsInteractionShape(TrsInteraction *interaction, int n_vectors, int D, int copied, int64_t N,
                         PetscBool products_alone, PetscBool typed_x);

/* Does the interaction need a copy of X in the type of its output? */
PetscBool TrsInteractionCopiesX(const TrsInteraction *interaction);

/*
  The arrays of the backward of a cross layer, the `lowest` or another one. u and h are as
  TrsCrossBackward says; bias is an index in the parameters. The total goes to the gradient of the
  output where X has the type of products.
*/
TrsCrossBackward TrsInteractionCross(const TrsInteraction *interaction, PetscBool lowest, TrsMatrix x0,
                                     const void *u, int bias, float *dx0, void *h);

/* The matrix of the output, or of its gradient. */
TrsMatrix TrsInteractionMatrix(const TrsInteraction *interaction, void *data);

/*
  Allocate the arrays of at most max_batch samples, but X and its gradient only if they are not
  placed elsewhere, and lie in matrices. An interaction that is in_place takes none of the
  arguments: its output is X, and one gradient is that of both.

  In:     out   memory for the output, borrowed from a forward to the backward
          dx    memory for X's gradient, borrowed; nothing else may use it from the backward until
                the end of the next forward; NULL: there is no backward
          dout  memory for the output's gradient in a backward, borrowed
  Errors: MEMORY
*/
PetscErrorCode TrsInteractionAllocate(TrsInteraction *interaction, int64_t max_batch, float *out, void *dx,
                                      float *dout);

/*
  Let X and its gradient lie in the caller's memory from now on, in their layouts [max_batch, N] and
  without an overlap. Not collective.
*/
void TrsInteractionPlace(TrsInteraction *interaction, void *x, void *dx);

/*
  Where vectors may lie anywhere: make a matrix X of `width` columns for those that the caller has
  nowhere else. Errors: MEMORY
*/
PetscErrorCode TrsInteractionMakeX(TrsInteraction *interaction, int64_t max_batch, int64_t width);

PetscErrorCode TrsInteractionFree(TrsInteraction *interaction);
