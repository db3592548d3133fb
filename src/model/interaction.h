/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Interaction of the dense vector with the embeddings. Internal to model/.

  Each interaction is a table of functions, trs_interaction_<word>, in interaction_<word>.c. All
  cross networks have theirs in interaction_dcn.c. The words are TRS_INTERACTIONS in
  spec/vocabulary.h. The interaction owns its input X [max_batch, N] and X's gradient. X holds a
  sample's vectors side by side, the dense vector first.

  Source: torchrec.models.dlrm.InteractionArch, torchrec.models.deepfm.FMInteractionArch,
  torchrec.modules.crossnet; src/RULES.md, rules A1 to A4
*/
#pragma once

#include "core/options/options.h"
#include "model/layer.h"

typedef struct TrsInteractionOps TrsInteractionOps;

typedef struct {
  const TrsInteractionOps *ops;
  const TrsLayerContext *context;
  int n_vectors, D;       /* vectors per sample; width of the embeddings */
  int copied;             /* floats in the dense vector; 0: there is none */
  int64_t N;              /* width of X */
  int64_t query_columns;  /* first columns of X, which belong to the query (two_tower) */
  int64_t width;          /* columns of the output */
  int64_t filled, stride; /* columns with the zeros behind (product_unit); floats from row to row */
  TrsDType type;          /* type of the output and its gradient */
  /*
    X and its gradient [max_batch, N] at their current place. If vectors lie anywhere, X only has
    the columns that the caller keeps there. They have floats, or the type of a `typed` output.
  */
  TrsMatrix x, dx;
  PetscBool elsewhere; /* only the caller places X and its gradient */
  /*
    [n_vectors] places of each vector and of its gradient; NULL: in x and dx. If set, x has no
    memory unless the caller keeps vectors there, dx has no memory, and the dense vector and its
    gradient have matrices of their own.
  */
  TrsVectorPlace *x_at, *dx_at;
  TrsMatrix dense_x, dense_dx; /* [max_batch, copied], written and read by the dense arch */
  void *own_x;                 /* X, unless elsewhere */
  void *own_dx;                /* dx, if it is not borrowed */
  float *out, *dout;           /* [max_batch, stride], borrowed; if in_place: X and its gradient */
  void *own;                   /* data of the table's functions, from `read` to `free` */
} TrsInteraction;

/* TrsInteractionCheck() refuses a table that lacks a function not marked as optional. */
struct TrsInteractionOps {
  const char *word;
  int fewest;           /* lowest number of vectors per sample */
  PetscBool equal_dims; /* must all embeddings and the dense vector have the same width? */
  PetscBool in_place;   /* the output is X */
  PetscBool padded;     /* may the output's rows have zeros behind them? */
  PetscBool typed;      /* may the output and X have the operands' type? */
  PetscBool pairs;      /* the output is a query's and a candidate's embedding, side by side */
  PetscBool sparse;     /* X only holds the embeddings: there is no dense arch */
  PetscBool scattered;  /* may vectors lie anywhere (x_at)? */

  /* Read the table's options. Optional. Errors: OPTION */
  PetscErrorCode (*read)(TrsInteraction *interaction, TrsOptions options);

  /* Check the widths of the embeddings and of the options. Optional. Errors: OPTION */
  PetscErrorCode (*check)(const TrsInteraction *interaction);

  /* Get the output's width. n_vectors, D, copied and N are set. */
  int64_t (*width)(const TrsInteraction *interaction);

  /* Declare parameters, last layer first. Optional. */
  PetscErrorCode (*declare)(TrsInteraction *interaction);

  /*
    Allocate memory for max_batch samples beyond X, the output and the gradients. Optional. Errors:
    MEMORY
  */
  PetscErrorCode (*allocate)(TrsInteraction *interaction, int64_t max_batch);

  /* React to a new place of X, after allocate() and whenever the place changes. Optional. */
  void (*placed)(const TrsInteraction *interaction);

  /*
    Operations of one sample's forward, for -log_view. A backward has twice as many. Deep layers
    count their own.
  */
  double (*flops)(const TrsInteraction *interaction);

  /* Number of dot products of a sample's vectors, if there are no other operations. Optional. */
  double (*products)(const TrsInteraction *interaction);

  /* Bytes that one sample's forward moves besides X, the output and deep layers. Optional. */
  double (*bytes)(const TrsInteraction *interaction);

  /*
    Add the deep layers' operations and bytes for one sample's forward, as in TrsMlpWork().
    Optional.
  */
  void (*work)(const TrsInteraction *interaction, double *flops, double *bytes);

  /* Compute out from X for n samples, with zeros in columns width .. filled. */
  PetscErrorCode (*forward)(const TrsInteraction *interaction, TrsStream stream, int64_t n);

  /*
    Compute dx from dout, which is overwritten, after a forward on the same samples. Announces
    gradients.
  */
  PetscErrorCode (*backward)(const TrsInteraction *interaction, TrsStream stream, int64_t n);

  /* Print lines for the banner on rank 0 of comm. Optional. */
  PetscErrorCode (*view)(const TrsInteraction *interaction, MPI_Comm comm);

  /* Free the memory of read and allocate. own may be NULL. Optional. */
  PetscErrorCode (*free)(TrsInteraction *interaction);
};

#define TRS_INTERACTION_TABLE(KIND, word) extern const TrsInteractionOps trs_interaction_##word;
TRS_INTERACTIONS(TRS_INTERACTION_TABLE)

/* Get the complete table of a kind. Errors: INTERNAL for a missing function */
PetscErrorCode TrsInteractionFind(TrsInteractionKind kind, const TrsInteractionOps **ops);

/*
  Check that the table has every function it needs. Not collective. Errors: INTERNAL naming the
  function
*/
PetscErrorCode TrsInteractionCheck(const TrsInteractionOps *ops);

/* A `width` for tables whose output is as wide as X: N. */
int64_t TrsInteractionAll(const TrsInteraction *interaction);

/*
  True if the interaction's vectors may lie anywhere. Must be called after TrsInteractionShape().
  False if X is placed elsewhere. Not collective.
*/
PetscBool TrsInteractionMayScatter(const TrsInteraction *interaction);

/*
  Set the widths for n_vectors vectors with N floats in all. The first `copied` floats are the dense
  arch's. D is the embeddings' width, or the dense arch's if there are no embeddings.
  products_alone: only products read the output. typed_x: X may have the operands' type. ops must be
  set. Not collective.
*/
void TrsInteractionShape(TrsInteraction *interaction, int n_vectors, int D, int copied, int64_t N,
                         PetscBool products_alone, PetscBool typed_x);

/* True if the interaction needs a copy of X in the output's type. */
PetscBool TrsInteractionCopiesX(const TrsInteraction *interaction);

/*
  Get the arrays for a cross layer's backward. lowest: the layer that reads X. u and h: see
  TrsCrossBackward. bias: index in the parameters. If X has the operands' type, the total goes to
  the output's gradient.
*/
TrsCrossBackward TrsInteractionCross(const TrsInteraction *interaction, PetscBool lowest, TrsMatrix x0,
                                     const void *u, int bias, float *dx0, void *h);

/* Get the matrix of the output or of its gradient. */
TrsMatrix TrsInteractionMatrix(const TrsInteraction *interaction, void *data);

/*
  Allocate the arrays for at most max_batch samples. X and its gradient are allocated only if they
  are matrices that the caller does not place elsewhere. An in_place interaction ignores the
  arguments: its output is X, with one common gradient.

  In:     out   memory for the output, borrowed from a forward to the backward
          dx    memory for X's gradient, borrowed; must not be used otherwise from the backward
                until the end of the next forward; NULL: there is no backward
          dout  memory for the output's gradient in a backward, borrowed
  Errors: MEMORY
*/
PetscErrorCode TrsInteractionAllocate(TrsInteraction *interaction, int64_t max_batch, float *out, void *dx,
                                      float *dout);

/*
  Use the caller's memory for X and its gradient from now on. Both have the layout [max_batch, N]
  and must not overlap. Not collective.
*/
void TrsInteractionPlace(TrsInteraction *interaction, void *x, void *dx);

/*
  If vectors may lie anywhere: make a matrix X with `width` columns for the vectors that the caller
  has no other place for. Errors: MEMORY
*/
PetscErrorCode TrsInteractionMakeX(TrsInteraction *interaction, int64_t max_batch, int64_t width);

PetscErrorCode TrsInteractionFree(TrsInteraction *interaction);
