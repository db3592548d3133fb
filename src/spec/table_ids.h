/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The keys of tables whose rows are given to ids and taken back (embed/directory.h): id_map zch, and
  id_map dynamic.

  Source: for zch, TorchRec MCHManagedCollisionModule and its eviction policies
          (torchrec.modules.mc_modules)
*/
#pragma once

#include "spec/table_config.h"

/* X(key, type, default, range, choices, unit, help) */
#define TRS_ZCH_KEYS(X) \
  X(zch_policy, ENUM, "lfu", NULL, TRS_CHOICES(TRS_ZCH_POLICIES), NULL, \
    "with id_map zch: ids that keep their rows. lfu: those seen most often. lru: those seen most " \
    "recently. distance_lfu: the highest count over the age to the power of zch_decay_exponent") \
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
    "with id_map zch: number of buckets. Each has num_embeddings / zch_buckets rows, only for its own " \
    "ids. Ranks hold whole buckets, so a table split by rows needs at least as many buckets as ranks") \
  X(zch_input_hash_size, INT, "0", "[0,]", NULL, NULL, \
    "with id_map zch: buckets are equal parts of the ids below this number, as in TorchRec. 0: a hash " \
    "of the id chooses its bucket") \
  X(zch_torchrec, BOOL, "false", NULL, NULL, NULL, \
    "with id_map zch: repeat three faults of TorchRec. States of optimizers other than rowwise_adagrad " \
    "stay with a row that changes hands, and id 2^63 - 1 is found at the first empty row. If the first " \
    "batch has no ids, no id ever gets a row")

#define TRS_DYNAMIC_KEYS(X) \
  X(dynamic_cap, INT, "0", "[0,]", NULL, "rows", \
    "with id_map dynamic: the most rows that the table may have. Memory grows with the rows that ids have. " \
    "0: num_embeddings") \
  X(dynamic_cap_bytes, BYTES, "0", "[0,]", NULL, "bytes", \
    "with id_map dynamic: the cap as bytes of the rows' weights. 0: no cap in bytes") \
  X(dynamic_policy, ENUM, "lru", NULL, TRS_CHOICES(TRS_DYNAMIC_POLICIES), NULL, \
    "with id_map dynamic: ids that lose their rows when the table is full. lru: those not seen for " \
    "longest. " \
    "lfu: those seen least often. ttl: only those older than dynamic_ttl; other new ids get no row") \
  X(dynamic_ttl, INT, "0", "[0,4000000000]", NULL, "batches", \
    "with id_map dynamic: an id not seen in this many training batches loses its row. 0: never") \
  X(dynamic_admit_after, INT, "1", "[1,255]", NULL, NULL, \
    "with id_map dynamic: an id gets a row when training has seen it this often") \
  X(dynamic_admit_probability, REAL, "1", "(0,1]", NULL, NULL, \
    "with id_map dynamic: probability that an occurrence of an id without a row counts. A hash of the id " \
    "and of the batch's number decides") \
  X(dynamic_candidates, INT, "0", "[0,4000000000]", NULL, "ids", \
    "with dynamic_admit_after above 1: ids without a row that are counted exactly. A sketch counts further " \
    "ids, and may count too many. 0: as many as the table has rows") \
  X(dynamic_buckets, INT, "1", "[1,65536]", NULL, NULL, \
    "with id_map dynamic: number of buckets. They have equal sizes, and each has rows only for its own " \
    "ids. Ranks hold whole buckets, so a table split by rows needs at least as many buckets as ranks")

#define TRS_ID_KEYS(X) \
  TRS_ZCH_KEYS(X) \
  TRS_DYNAMIC_KEYS(X) \
  X(unknown_row, ENUM, "shared", NULL, TRS_CHOICES(TRS_UNKNOWN_ROWS), NULL, \
    "with id_map zch and dynamic: the row of ids that have none. shared: a row that learns. initial: a " \
    "row that keeps its initial values. zero: zeros")

/*
  TrsTableIdsSize - Read the cap of a dynamic table. *rows stays unchanged if no cap was given.

  Not collective; the result is the same on all ranks. id_map and embedding_dim are known.

  Errors: OPTION for both dynamic_cap and dynamic_cap_bytes, or for too few bytes
*/
PetscErrorCode TrsTableIdsSize(TrsOptions options, TrsTableConfig *table, int64_t *rows);

/* The key that set the table's number of rows: num_embeddings, dynamic_cap or dynamic_cap_bytes. */
const char *TrsTableIdsSizeKey(const TrsTableConfig *table);

/*
  TrsTableIdsRead - Read the keys of a table that keeps ids. Its id_map, size and constraints are
    known.

  Not collective; the result is the same on all ranks.

  Errors: OPTION for a key given for a table of another id_map, for rows that are not a multiple of
          the buckets, for fewer than two rows a bucket or more than 2^32 - 2, for dynamic_policy
          ttl without dynamic_ttl, and for a table that may only be data_parallel
*/
PetscErrorCode TrsTableIdsRead(TrsOptions options, TrsTableConfig *table);
