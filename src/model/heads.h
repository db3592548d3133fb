/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What stands above the interaction: the towers of the tasks, and below them what the tasks share.
  Internal to model/.

  shared  every tower takes the interaction's output. With one task this is the over arch.
  mmoe    experts take the interaction's output, and each task has a gate that weighs them by a
          softmax; a tower takes the weighted sum.
  ple     levels of experts: those of a task, and shared ones. A task's gate weighs its own experts
          and the shared ones, the shared gate of a level that is not the last weighs all. The sums
          are what the experts of the next level take, or the towers.

  mmoe is one level of shared experts, so both are made of the same levels.

  Source: Ma et al. 2018, Modeling task relationships in multi-task learning with multi-gate
          mixture-of-experts; Tang et al. 2020, Progressive layered extraction
*/
#pragma once

#include "model/mlp.h"
#include "spec/task_configs.h"

/* A matrix [max_batch, columns] and its gradient. */
typedef struct {
  TrsMatrix x, dx; /* of one type and stride */
  int64_t columns; /* with zeros behind them (TrsInteraction) */
} TrsHeadInput;

typedef struct {
  int n_experts, n_gates; /* gates: of the tasks, and of the next level's shared experts */
  TrsMlp *expert;         /* [n_experts] those of task 0, task 1 ..., then the shared ones */
  int *gate;              /* [n_gates] their parameters [experts, columns] */
  int64_t in, filled;     /* columns of the inputs */
  /*
    [level 0: 1, else the gates of the level below] copies of the inputs in the type that products
    want, made once for all experts and gates. NULL: products take the inputs themselves.
  */
  TrsMatrix *copy;
  float *experts, *dexperts; /* [max_batch, n_experts, width] outputs and their gradients */
  float **weight;            /* [n_gates] of each gate: [max_batch, its experts] */
  float **y, **dy;           /* [n_gates] of each gate: [max_batch, width] */
} TrsHeadLevel;

typedef struct {
  const TrsLayerContext *context;
  TrsTaskConfigs tasks;
  TrsHeadsKind kind;
  int n_levels, n_shared, n_own; /* experts that tasks share, and experts of each task, a level */
  TrsMlpSpec over_arch;          /* what all towers have in common, sizes apart */
  TrsMlpSpec expert_spec;        /* the sizes are borrowed from the options */
  int64_t width;                 /* columns of an expert's output */
  TrsHeadLevel *level;           /* [n_levels] */
  TrsMlp *tower;                 /* [tasks] */
  float **logits, **dlogits;     /* [tasks] [max_batch, classes] */
  float *other;                  /* [max_batch, widest input] a gradient to add */
  int64_t other_stride;
  float *predictions; /* [max_batch, columns of all tasks] */
  double *loss;       /* [tasks] on the device */
} TrsHeads;

/* Read the options of tasks and heads. over_arch is that of -over_arch. Errors: OPTION */
PetscErrorCode TrsHeadsRead(TrsHeads *heads, TrsOptions options, const TrsMlpSpec *over_arch);

/*
  Declare the parameters, in the order of the backward, for an input of `in` columns, `filled` with
  the zeros behind, and of a type: fp32, or with TrsHeadsTakeOperands() that of operands. Not
  collective.
*/
PetscErrorCode TrsHeadsDeclare(TrsHeads *heads, const TrsLayerContext *context, int64_t in, int64_t filled,
                               TrsDType type);

/* Do products alone read the heads' input? Then it may have the type that products want. */
PetscBool TrsHeadsTakeOperands(const TrsHeads *heads);

/*
  Set where the heads write, as TrsMlpPlace(). With `inner` NULL the call only computes the result.
  stride: floats from row to row of the input.
*/
TrsMlpRoom TrsHeadsPlace(TrsHeads *heads, int64_t max_batch, int64_t stride, float *inner);

/* Allocate logits, predictions and losses of max_batch samples. Errors: MEMORY */
PetscErrorCode TrsHeadsAllocate(TrsHeads *heads, int64_t max_batch);

/*
  Forward of n samples, with losses and the gradients of logits (TrsDlrmForward). Out: predictions
  [n, columns], valid until the next call.
*/
PetscErrorCode TrsHeadsForward(TrsHeads *heads, TrsStream stream, int64_t n, const TrsHeadInput *input,
                               const float *labels, const float *weights, float scale, PetscBool predict);

/* Backward to input->dx, which is overwritten, after a forward with labels. */
PetscErrorCode TrsHeadsBackward(TrsHeads *heads, TrsStream stream, int64_t n, const TrsHeadInput *input);

/* Add what a forward of one sample computes and moves, as TrsMlpWork(). Not collective. */
void TrsHeadsWork(const TrsHeads *heads, double *flops, double *bytes);

/* Print the layers on rank 0 of comm. Logically collective. */
PetscErrorCode TrsHeadsView(const TrsHeads *heads, MPI_Comm comm);

PetscErrorCode TrsHeadsFree(TrsHeads *heads);
