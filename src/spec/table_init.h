/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The initial weights of a table. init_fn names a function of torch.nn.init, and the other keys are
  its arguments.

  Source: torch.nn.init uniform_, normal_, xavier_uniform_, xavier_normal_, kaiming_uniform_,
          kaiming_normal_, constant_, calculate_gain; TorchRec EmbeddingBagConfig.init_fn. TorchRec
          passes a shard to init_fn; here fan_in and fan_out come from the whole table.
*/
#pragma once

#include "spec/table_config.h"

/* X(KIND, word) */
#define TRS_INIT_FNS(X) \
  X(UNIFORM, uniform) \
  X(NORMAL, normal) \
  X(XAVIER_UNIFORM, xavier_uniform) \
  X(XAVIER_NORMAL, xavier_normal) \
  X(KAIMING_UNIFORM, kaiming_uniform) \
  X(KAIMING_NORMAL, kaiming_normal) \
  X(CONSTANT, constant)

/* X(KIND, word, gain) for the nonlinearities whose variance kaiming initialisation preserves. */
#define TRS_INIT_NONLINEARITIES(X) \
  X(LEAKY_RELU, leaky_relu, 0.0) /* the gain depends on init_a */ \
  X(RELU, relu, 1.4142135623730951) \
  X(LINEAR, linear, 1.0) \
  X(SIGMOID, sigmoid, 1.0) \
  X(TANH, tanh, 5.0 / 3.0) \
  X(SELU, selu, 0.75)

/*
  The keys of a table, X(key, type, default, range, choices, functions, help). `functions` is the
  first word of the functions that use the key. It is ALL for init_fn itself.
*/
#define TRS_INIT_KEYS(X) \
  X(init_fn, ENUM, "uniform", NULL, TRS_CHOICES(TRS_INIT_FNS), ALL, \
    "distribution of the initial weights, as in torch.nn.init; fan_in is embedding_dim, fan_out " \
    "num_embeddings") \
  X(init_min, REAL, NULL, NULL, NULL, UNIFORM, \
    "uniform: least initial weight (default: -1/sqrt(num_embeddings))") \
  X(init_max, REAL, NULL, NULL, NULL, UNIFORM, \
    "uniform: largest initial weight (default: 1/sqrt(num_embeddings))") \
  X(init_mean, REAL, "0", NULL, NULL, NORMAL, "normal: mean of the initial weights") \
  X(init_std, REAL, "1", "[0,]", NULL, NORMAL, "normal: standard deviation of the initial weights") \
  X(init_gain, REAL, "1", "[0,]", NULL, XAVIER, "xavier: factor of the standard deviation") \
  X(init_a, REAL, "0", NULL, NULL, KAIMING, "kaiming: slope of init_nonlinearity leaky_relu below 0") \
  X(init_mode, ENUM, "fan_in", NULL, "fan_in,fan_out", KAIMING, \
    "kaiming: keep the variance in the forward pass (fan_in) or in the backward pass (fan_out)") \
  X(init_nonlinearity, ENUM, "leaky_relu", NULL, TRS_CHOICES(TRS_INIT_NONLINEARITIES), KAIMING, \
    "kaiming: the nonlinearity after the table, which determines the gain") \
  X(init_value, REAL, NULL, NULL, NULL, CONSTANT, "constant: every initial weight; must be given")

/*
  TrsTableInitRead - Read a table's init_ keys into table->init.

  The table's size must be set. Not collective; the result is the same on all ranks.

  InOut:  used  bit set of the keys that tables used so far, for TrsTableInitCheckUsed(); initially
          0
  Errors: OPTION for a key of the table that its init_fn does not use, init_min above init_max,
          constant without init_value
*/
PetscErrorCode TrsTableInitRead(TrsOptions options, TrsTableConfig *table, unsigned *used);

/*
  Check that each key given as -tables_init_<key> is used by at least one table. Not collective.
  Errors: OPTION with the key.
*/
PetscErrorCode TrsTableInitCheckUsed(TrsOptions options, unsigned used);
