/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The layers above the interaction: the tasks' towers, and below them the layers that tasks share.
  Internal to model/.

  shared  Every tower reads the interaction's output. With one task this is the over arch.
  mmoe    Experts read the interaction's output. Each task has a gate that weighs them by a softmax,
          and the task's tower reads the weighted sum.
  ple     Each level has shared experts and experts for each task. A task's gate weighs its own
          experts and the shared ones. Each level except the last also has a shared gate, which
          weighs all experts. The experts of the next level, or the towers, read the weighted sums.

  mmoe is a ple with one level that has only shared experts, so both use the same code.

  Source: Ma et al. 2018, Modeling task relationships in multi-task learning with multi-gate
          mixture-of-experts; Tang et al. 2020, Progressive layered extraction
*/
#pragma once

#include "model/mlp.h"
#include "spec/task_configs.h"

/* A matrix [max_batch, columns] and its gradient. */
typedef struct {
  TrsMatrix x, dx; /* same type and stride */
  int64_t columns; /* the columns, including the columns of zeros after them (TrsInteraction) */
} TrsHeadInput;

typedef struct {
  int n_experts, n_gates; /* gates: one per task, and one for the next level's shared experts */
  TrsMlp *expert;         /* [n_experts] experts of task 0, task 1 ..., then the shared ones */
  int *gate;              /* [n_gates] parameters [experts, columns] */
  /* columns of the inputs, without and with the columns of zeros after them */
  int64_t in, filled;
  /*
    [level 0: 1, other levels: gates of the level below] copies of the inputs in the operands' type,
    made once for all experts and gates. NULL: matrix multiplications read the inputs themselves.
  */
  TrsMatrix *copy;
  /* [max_batch, n_experts, width] the experts' outputs and their gradients */
  float *experts, *dexperts;
  float **weight;  /* [n_gates] per gate [max_batch, experts of the gate] */
  float **y, **dy; /* [n_gates] per gate [max_batch, width] */
} TrsHeadLevel;

typedef struct {
  const TrsLayerContext *context;
  TrsTaskConfigs tasks;
  TrsHeadsKind kind;
  /* number of levels, and per level of shared experts and of experts for each task */
  int n_levels, n_shared, n_own;
  TrsMlpSpec over_arch;      /* common to all towers, except the sizes */
  TrsMlpSpec expert_spec;    /* the sizes are borrowed from the options */
  int64_t width;             /* columns of an expert's output */
  TrsHeadLevel *level;       /* [n_levels] */
  TrsMlp *tower;             /* [tasks] */
  float **logits, **dlogits; /* [tasks] per task [max_batch, classes] */
  /* [max_batch, widest input] scratch for a gradient that is added to another */
  float *other;
  int64_t other_stride;
  float *predictions; /* [max_batch, columns of all tasks] */
  double *loss;       /* [tasks] on the device */
  double *of_sample;  /* [n, tasks] output for the samples' losses, or NULL */
} TrsHeads;

/*
  Read the options for tasks and heads. over_arch is the stack that -over_arch describes. Errors:
  OPTION
*/
PetscErrorCode TrsHeadsRead(TrsHeads *heads, TrsOptions options, const TrsMlpSpec *over_arch);

/*
  Declare the parameters, in the order of the backward. The input has `in` columns, or `filled`
  columns including the zeros after them. Its type is fp32, or may be the operands' type if
  TrsHeadsTakeOperands(). Not collective.
*/
PetscErrorCode TrsHeadsDeclare(TrsHeads *heads, const TrsLayerContext *context, int64_t in, int64_t filled,
                               TrsDType type);

/*
  True if only matrix multiplications read the heads' input. The input may then have the operands'
  type.
*/
PetscBool TrsHeadsTakeOperands(const TrsHeads *heads);

/*
  Choose the memory of the heads' outputs, as TrsMlpPlace() does. If `inner` is NULL, the call only
  computes the result. stride is the number of floats from row to row of the input.
*/
TrsMlpRoom TrsHeadsPlace(TrsHeads *heads, int64_t max_batch, int64_t stride, float *inner);

/* Allocate logits, predictions and losses for max_batch samples. Errors: MEMORY */
PetscErrorCode TrsHeadsAllocate(TrsHeads *heads, int64_t max_batch);

/*
  Run the forward on n samples, and compute the losses and the logits' gradients (TrsDlrmForward).
  Out: predictions [n, columns], valid until the next call.
*/
PetscErrorCode TrsHeadsForward(TrsHeads *heads, TrsStream stream, int64_t n, const TrsHeadInput *input,
                               const float *labels, const float *weights, float scale, PetscBool predict);

/* Run the backward, after a forward with labels. It overwrites input->dx. */
PetscErrorCode TrsHeadsBackward(TrsHeads *heads, TrsStream stream, int64_t n, const TrsHeadInput *input);

/* Add the operations and bytes of one sample's forward, as TrsMlpWork() does. Not collective. */
void TrsHeadsWork(const TrsHeads *heads, double *flops, double *bytes);

/* Print the layers on rank 0 of comm. Logically collective. */
PetscErrorCode TrsHeadsView(const TrsHeads *heads, MPI_Comm comm);

PetscErrorCode TrsHeadsFree(TrsHeads *heads);
