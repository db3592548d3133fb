/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Interaction of the dense vector with the embeddings. Internal to model/.

  Each interaction is a table of functions, trs_interaction_<word>, in interaction_<word>.c.
  interaction_dcn.c has the tables of all cross networks. The words are TRS_INTERACTIONS in
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
  int n_vectors, D; /* vectors per sample; width of the embeddings */
  int copied;       /* number of floats in the dense vector; 0: there is none */
  int64_t N;        /* width of X */
  /* number of columns at the front of X that belong to the query (two_tower) */
  int64_t query_columns;
  int64_t width; /* columns of the output */
  /* columns including the zeros after them (product_unit); floats from row to row */
  int64_t filled, stride;
  TrsDType type; /* type of the output and its gradient */
  /*
    X and its gradient [max_batch, N] at their current address. If vectors may lie outside of X, X
    has only the columns that the caller stores there. The elements are floats, or have the type of
    a `typed` output.
  */
  TrsMatrix x, dx;
  PetscBool elsewhere; /* only the caller provides memory for X and its gradient */
  /*
    [n_vectors] addresses of each vector and of its gradient; NULL: they lie in x and dx. If set, dx
    has no memory, x has memory only if the caller stores vectors there, and the dense vector and
    its gradient have separate matrices.
  */
  TrsVectorPlace *x_at, *dx_at;
  TrsMatrix dense_x, dense_dx; /* [max_batch, copied], written and read by the dense arch */
  void *own_x;                 /* memory of X, unless elsewhere */
  void *own_dx;                /* memory of dx, if it is not borrowed */
  /* [max_batch, stride], borrowed; if in_place, these are X and its gradient */
  float *out, *dout;
  void *own; /* the data of this interaction's functions, from `read` to `free` */
} TrsInteraction;

/* TrsInteractionCheck() refuses a table that lacks a function not marked as optional. */
struct TrsInteractionOps {
  const char *word;
  int fewest;           /* smallest allowed number of vectors per sample */
  PetscBool equal_dims; /* must all embeddings and the dense vector have the same width? */
  PetscBool in_place;   /* true: the output is X itself */
  PetscBool padded;     /* may the output's rows have zeros after their columns? */
  PetscBool typed;      /* may the output and X have the operands' type? */
  /* true: the output has a query's and a candidate's embedding, side by side */
  PetscBool pairs;
  PetscBool sparse;    /* true: X holds only embeddings, because there is no dense arch */
  PetscBool scattered; /* may vectors lie outside of X (x_at)? */

  /* Read the interaction's options. Optional. Errors: OPTION */
  PetscErrorCode (*read)(TrsInteraction *interaction, TrsOptions options);

  /* Check the widths of the embeddings and of the options. Optional. Errors: OPTION */
  PetscErrorCode (*check)(const TrsInteraction *interaction);

  /* Get the output's width. The caller has set n_vectors, D, copied and N. */
  int64_t (*width)(const TrsInteraction *interaction);

  /* Declare parameters, last layer first. Optional. */
  PetscErrorCode (*declare)(TrsInteraction *interaction);

  /*
    Allocate memory for max_batch samples, in addition to X, the output and their gradients.
    Optional. Errors: MEMORY
  */
  PetscErrorCode (*allocate)(TrsInteraction *interaction, int64_t max_batch);

  /* Called after allocate() and whenever the address of X changes. Optional. */
  void (*placed)(const TrsInteraction *interaction);

  /*
    Count the operations of one sample's forward, for -log_view. A backward has twice as many. Deep
    layers count their own operations.
  */
  double (*flops)(const TrsInteraction *interaction);

  /* Number of dot products between a sample's vectors. Optional: only for an interaction whose
     forward consists of dot products. */
  double (*products)(const TrsInteraction *interaction);

  /* Count the bytes that one sample's forward reads and writes, without X, the output and deep
     layers. Optional. */
  double (*bytes)(const TrsInteraction *interaction);

  /*
    Add the deep layers' operations and bytes for one sample's forward, as TrsMlpWork() does.
    Optional.
  */
  void (*work)(const TrsInteraction *interaction, double *flops, double *bytes);

  /* Compute `out` from X for n samples. Write zeros to the columns from `width` to `filled`. */
  PetscErrorCode (*forward)(const TrsInteraction *interaction, TrsStream stream, int64_t n);

  /*
    Compute dx from dout, which is overwritten, after a forward on the same samples. Announces the
    parameters' gradients.
  */
  PetscErrorCode (*backward)(const TrsInteraction *interaction, TrsStream stream, int64_t n);

  /* Print lines for the banner on rank 0 of comm. Optional. */
  PetscErrorCode (*view)(const TrsInteraction *interaction, MPI_Comm comm);

  /* Free the memory that `read` and `allocate` allocated. `own` may be NULL. Optional. */
  PetscErrorCode (*free)(TrsInteraction *interaction);
};

#define TRS_INTERACTION_TABLE(KIND, word) extern const TrsInteractionOps trs_interaction_##word;
TRS_INTERACTIONS(TRS_INTERACTION_TABLE)

/* Get the complete table of a kind. Errors: INTERNAL for a missing function */
PetscErrorCode TrsInteractionFind(TrsInteractionKind kind, const TrsInteractionOps **ops);

/*
  Check that the table has every function it needs. Not collective. Errors: INTERNAL, naming the
  missing function
*/
PetscErrorCode TrsInteractionCheck(const TrsInteractionOps *ops);

/* A `width` function for tables whose output is as wide as X. Returns N. */
int64_t TrsInteractionAll(const TrsInteraction *interaction);

/*
  True if the interaction's vectors may lie outside of X. False if the caller provides memory for X.
  Must be called after TrsInteractionShape(). Not collective.
*/
PetscBool TrsInteractionMayScatter(const TrsInteraction *interaction);

/*
  Set the widths for n_vectors vectors, which have N floats in all. The first `copied` floats come
  from the dense arch. D is the embeddings' width. If there are no embeddings, D is the dense arch's
  width. products_alone: only matrix multiplications read the output. typed_x: X may have the
  operands' type. ops must be set. Not collective.
*/
void TrsInteractionShape(TrsInteraction *interaction, int n_vectors, int D, int copied, int64_t N,
                         PetscBool products_alone, PetscBool typed_x);

/* True if the interaction needs a copy of X in the output's type. */
PetscBool TrsInteractionCopiesX(const TrsInteraction *interaction);

/*
  Get the arrays for the backward of a cross layer. `lowest` must be true if this layer reads X. u
  and h are explained at TrsCrossBackward. `bias` is the index of the layer's bias in the
  parameters. If X has the operands' type, the total gradient of X is written to the output's
  gradient.
*/
TrsCrossBackward TrsInteractionCross(const TrsInteraction *interaction, PetscBool lowest, TrsMatrix x0,
                                     const void *u, int bias, float *dx0, void *h);

/* Get the matrix of the output or of its gradient. */
TrsMatrix TrsInteractionMatrix(const TrsInteraction *interaction, void *data);

/*
  Allocate the arrays for at most max_batch samples. X and its gradient are allocated only if they
  are matrices and the caller does not provide memory for them. An in_place interaction ignores the
  arguments: its output is X, and both have one gradient.

  In:     out   memory for the output, borrowed from a forward to the backward
          dx    memory for X's gradient, borrowed; must not be used otherwise from the backward
                until the end of the next forward; NULL: there is no backward
          dout  memory for the output's gradient in a backward, borrowed
  Errors: MEMORY
*/
PetscErrorCode TrsInteractionAllocate(TrsInteraction *interaction, int64_t max_batch, float *out, void *dx,
                                      float *dout);

/*
  Use the caller's memory for X and its gradient from now on. x and dx have the layout [max_batch,
  N] and must not overlap. Not collective.
*/
void TrsInteractionPlace(TrsInteraction *interaction, void *x, void *dx);

/*
  Allocate the matrix X with `width` columns, for the vectors to which the caller gives no other
  memory. Must be called only if vectors may lie outside of X. Errors: MEMORY
*/
PetscErrorCode TrsInteractionMakeX(TrsInteraction *interaction, int64_t max_batch, int64_t width);

PetscErrorCode TrsInteractionFree(TrsInteraction *interaction);
