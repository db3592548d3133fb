/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Layers that pool sequences: functions from a bag's rows to one vector of the interaction's input
  X. Internal to model/.

  Each kind of layer is a const table of functions, trs_sequence_<word>, in sequence_<word>.c. The
  words are TRS_SEQUENCE_LAYERS in spec/vocabulary.h. Every feature of a sequence table has its own
  layer. A layer writes its columns of X before the interaction's forward, and reads the gradient of
  these columns after the interaction's backward. Bags have different lengths. No kind pads them.

  Source: src/RULES.md, rule A26a
*/
#pragma once

#include "model/layer.h"
#include "spec/table_config.h"

typedef struct TrsSequenceLayerOps TrsSequenceLayerOps;

typedef struct {
  const TrsSequenceLayerOps *ops;
  const TrsLayerContext *context;
  const TrsTableConfig *table; /* borrowed */
  char *module;                /* sequence/<feature>, the prefix of the parameters' names */
  int64_t dim, width;          /* columns of a row and of the layer's output */
  int vector, target;          /* indices among the model's vectors; target -1: there is none */
  /* first columns of `vector` and `target` in X, valid after TrsSequenceLayersDeclare() */
  int64_t column, target_column;
  double mean_ids;             /* average number of ids per sample, for the banner */
  int first_param, last_param; /* indices in the model's parameters */
  TrsDeviceBuffer memory;      /* the layer's activations; grows with the batch */
  void *own;                   /* data of this kind of layer */
} TrsSequenceLayer;

/* Columns of X or of its gradient, and the number of floats from one sample to the next. */
typedef struct {
  float *data;
  int64_t stride;
} TrsSequenceMatrix;

/* Every function except `free` is required. */
struct TrsSequenceLayerOps {
  const char *word;
  PetscBool reads_offsets; /* the layer reads the bags' offsets on the host */

  /* Declare the parameters, all of them before the next layer's. */
  PetscErrorCode (*declare)(TrsSequenceLayer *layer);

  /* Count the operations of a forward on a bag with this many ids, and the bytes that it reads
     and writes. */
  double (*flops)(const TrsSequenceLayer *layer, double ids);
  double (*bytes)(const TrsSequenceLayer *layer, double ids);

  /* Write the layer's columns of X for n samples, from the n bags. */
  PetscErrorCode (*forward)(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                            TrsSequenceMatrix x);

  /*
    After a forward on the same bags: overwrite bags->grads and the parameters' gradients, and add
    to the target's columns of dx. The function may overwrite the layer's own columns of dx.
  */
  PetscErrorCode (*backward)(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                             TrsSequenceMatrix x, TrsSequenceMatrix dx);

  PetscErrorCode (*free)(TrsSequenceLayer *layer);
};

#define TRS_SEQUENCE_LAYER_TABLE(KIND, word) extern const TrsSequenceLayerOps trs_sequence_##word;
TRS_SEQUENCE_LAYERS(TRS_SEQUENCE_LAYER_TABLE)

/* All sequence layers of a model. */
typedef struct {
  int n;
  TrsSequenceLayer *layer; /* [n] */
  const TrsBagRows *bags;  /* [n] each layer's bags of the batch, borrowed */
} TrsSequenceLayers;

/* Add the layer for a table's k-th feature (TrsDlrmAddSequence). */
PetscErrorCode TrsSequenceLayersAdd(TrsSequenceLayers *layers, const TrsLayerContext *context,
                                    const TrsTableConfig *table, int k, int vector, int target);

/*
  Declare the layers' parameters. `columns` has the first column of each of the model's vectors in
  X. Not collective.
*/
PetscErrorCode TrsSequenceLayersDeclare(TrsSequenceLayers *layers, const int64_t *columns);

/* Run all layers. The backward also announces the gradients of their parameters. */
PetscErrorCode TrsSequenceLayersForward(const TrsSequenceLayers *layers, TrsStream stream, int64_t n,
                                        TrsSequenceMatrix x);
PetscErrorCode TrsSequenceLayersBackward(const TrsSequenceLayers *layers, TrsStream stream, int64_t n,
                                         TrsSequenceMatrix x, TrsSequenceMatrix dx);

/* Add the operations and bytes of a forward on a sample with the average number of ids. */
void TrsSequenceLayersWork(const TrsSequenceLayers *layers, double *flops, double *bytes);

/* Print a line for each layer on rank 0 of comm. Logically collective. */
PetscErrorCode TrsSequenceLayersView(const TrsSequenceLayers *layers, MPI_Comm comm);

PetscErrorCode TrsSequenceLayersFree(TrsSequenceLayers *layers);

/*
  Declare a parameter "<module>/<part>" that `init` initialises with `scale`. With cols = 0 it is a
  vector. Not collective.
*/
PetscErrorCode TrsSequenceLayerParameter(TrsSequenceLayer *layer, const char *part, int64_t rows,
                                         int64_t cols, TrsParameterInit init, double scale, int *index);
