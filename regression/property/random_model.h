/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Random models, plans and batches for the property tests. All ranks draw the same numbers, so a
  seed reproduces a failure. Tables, optimizers and global batches depend on the seed; the plan, the
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
  random_int draws a uniform integer in [low, high]. random_float draws a uniform float in [low,
  high) with 24 bits. random_once_in returns true once in n.
*/
int64_t random_int(random_stream *r, int64_t low, int64_t high);
float random_float(random_stream *r, float low, float high);
PetscBool random_once_in(random_stream *r, int n);

typedef struct {
  uint64_t seed;
  int size, local_world_size;
  /* the features of table t follow those of table t - 1 (src/RULES.md, rule A2) */
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsSparseOptimizerArgs args[MODEL_MAX_OPTIMIZERS]; /* the test sets step */
  TrsSparseOptimizers optimizers;                    /* one optimizer for all tables, or several */
  int n_features;
  int *table_of; /* [n_features] */
  /*
    [n_features] first column of each feature in the model's matrix; some features have gaps between
    them
  */
  int64_t *columns;
  int64_t stride;     /* row stride of the model's matrix, in floats */
  PetscBool weighted; /* true if the batches have weights */
  /* [n_features, MODEL_MAX_BAG] weights of the positions, for position-weighted features */
  float *position;
  /* hierarchical depends on the distribution of ranks to hosts */
  PetscBool index_dedup, variable_batch, hierarchical;
  int n_steps;
  /* true if the input dist of the next batch starts before the forward of this batch */
  PetscBool ahead;
} random_model;

/* A global batch, sorted by feature. Rank q has the samples first[q] .. first[q + 1] - 1. */
typedef struct {
  int64_t G, first[MODEL_MAX_RANKS + 1];
  int32_t *lengths; /* [F * G] */
  int64_t *offsets; /* [F * G + 1] */
  int64_t *values;  /* some ids are -1 */
  float *weights;   /* NULL if there are no weights */
  float *grad;      /* [G, stride] gradient of the matrix of pooled rows */
} random_batch;

/* If reproducible is set, draw only models that -reproducible accepts. */
PetscErrorCode random_model_create(uint64_t seed, int size, PetscBool reproducible, random_model *model);
PetscErrorCode random_model_destroy(random_model *model);

PetscErrorCode random_batch_create(const random_model *model, int step, random_batch *batch);
PetscErrorCode random_batch_destroy(random_batch *batch);

/* Print one line per table: its properties and its shards. */
void random_model_print(const random_model *model);
