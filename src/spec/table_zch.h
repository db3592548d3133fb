/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The keys of a table with id_map zch: zero collision, rows that are given to ids and taken back.

  Source: TorchRec MCHManagedCollisionModule and its eviction policies (torchrec.modules.mc_modules)
*/
#pragma once

#include "spec/table_config.h"

/* X(key, type, default, range, choices, unit, help) */
#define TRS_ZCH_KEYS(X) \
  X(zch_policy, ENUM, "lfu", NULL, TRS_CHOICES(TRS_ZCH_POLICIES), NULL, \
    "with id_map zch: ids that keep their rows. lfu: those seen most often. lru: those seen last. " \
    "distance_lfu: the highest count over the age to the power of zch_decay_exponent") \
  X(zch_interval, INT, "1", "[1,1000000000]", NULL, "batches", \
    "with id_map zch: training batches from one eviction to the next. An id gets its row at an eviction, " \
    "before the lookup of the same batch") \
  X(zch_decay_exponent, REAL, "1", NULL, NULL, NULL, \
    "with zch_policy lru and distance_lfu: exponent of an id's age in its score") \
  X(zch_filter, ENUM, "none", NULL, TRS_CHOICES(TRS_ZCH_FILTERS), NULL, \
    "with id_map zch: ids of an interval that compete for rows. none: all. average: those seen more often " \
    "than the mean. dynamic: those seen more often than zch_filter_multiplier times the mean") \
  X(zch_filter_multiplier, REAL, "10", "[0,]", NULL, NULL, "with zch_filter dynamic: factor of the mean") \
  X(zch_buckets, INT, "1", "[1,65536]", NULL, NULL, \
    "with id_map zch: buckets of num_embeddings / zch_buckets rows, which give rows to their own ids only. " \
    "Ranks hold whole buckets, so a table split by rows needs as many buckets as ranks, or more") \
  X(zch_input_hash_size, INT, "0", "[0,]", NULL, NULL, \
    "with id_map zch: buckets are equal parts of the ids below it, as in TorchRec. 0: a hash of the id " \
    "chooses its bucket") \
  X(zch_torchrec, BOOL, "false", NULL, NULL, NULL, \
    "with id_map zch: repeat two faults of TorchRec. States of optimizers other than rowwise_adagrad stay " \
    "with a row that changes hands, and id 2^63 - 1 is found at the first empty row")

/*
  TrsTableZchRead - Read the zch_ keys of a table. Its id_map, size and constraints are
    known.

  Not collective; the result is the same on all ranks.

  Errors: OPTION for a key given for a table of another id_map, for rows that are not a multiple of
          the buckets, for fewer than two rows a bucket or more than 2^32 - 2, and for a table that
          may only be data_parallel
*/
PetscErrorCode TrsTableZchRead(TrsOptions options, TrsTableConfig *table);
