/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Random models, plans and batches for the property tests. All ranks draw the same, so a seed
  reproduces a failure. Tables, optimizers and global batches depend on the seed; the plan, the
  hosts and each rank's samples depend on the seed and the number of ranks.
*/
#pragma once

#include "optim/sparse_optimizer.h"
#include "spec/sharding_plan.h"

enum { MODEL_MAX_RANKS = 8, MODEL_MAX_BAG = 5, MODEL_MAX_OPTIMIZERS = 3 };

typedef struct {
  uint64_t state;
} random_stream;

/*
  Draw a uniform integer in [low, high], a uniform float in [low, high) with 24 bits, or true once
  in n.
*/
int64_t random_int(random_stream *r, int64_t low, int64_t high);
float random_float(random_stream *r, float low, float high);
PetscBool random_once_in(random_stream *r, int n);

typedef struct {
  uint64_t seed;
  int size, local_world_size;
  TrsTableConfigs tables; /* features of table t follow those of t-1 (src/RULES.md, rule A2) */
  TrsShardingPlan plan;
  TrsSparseOptimizerArgs args[MODEL_MAX_OPTIMIZERS]; /* the test sets step */
  TrsSparseOptimizers optimizers;                    /* one or several for the tables */
  int n_features;
  int *table_of;      /* [n_features] */
  int64_t *columns;   /* [n_features] first column of the model's matrix, with gaps between some */
  int64_t stride;     /* row stride of the model's matrix */
  PetscBool weighted; /* the batches carry weights */
  float *position;    /* [n_features, MODEL_MAX_BAG] weights of position-weighted features */
  PetscBool index_dedup, variable_batch, hierarchical; /* hierarchical depends on the split */
  int n_steps;
  PetscBool ahead; /* the next batch's input dist starts before this batch's forward */
} random_model;

/* A global batch, feature-major; rank q has samples first[q] .. first[q + 1). */
typedef struct {
  int64_t G, first[MODEL_MAX_RANKS + 1];
  int32_t *lengths; /* [F * G] */
  int64_t *offsets; /* [F * G + 1] */
  int64_t *values;  /* some are -1 */
  float *weights;   /* NULL if there are no weights */
  float *grad;      /* [G, stride] gradient of the pooled matrix */
} random_batch;

/* reproducible: draw only models that -reproducible accepts. */
PetscErrorCode random_model_create(uint64_t seed, int size, PetscBool reproducible, random_model *model);
PetscErrorCode random_model_destroy(random_model *model);

PetscErrorCode random_batch_create(const random_model *model, int step, random_batch *batch);
PetscErrorCode random_batch_destroy(random_batch *batch);

/* Print one line per table: its properties and its shards. */
void random_model_print(const random_model *model);
