/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Quantised tables: stored as rows of TRS_ROWS_TBE (compute/quant.h) and looked up by -task predict.
  They are read from a checkpoint of numbers or of quantised rows into the shards of any plan, and
  can be written to a file.

  A row has one scale and one bias, even if a plan cuts its columns (as in TorchRec's column_wise
  shards). So the values do not depend on the plan, and a file of quantised rows can be cut
  differently by rows and by columns.

  Time and memory: a rank reads whole rows of its row ranges, a few MiB at a time, and keeps its own
  columns in quantised form. It never holds a table in both forms. C column shards on C ranks read a
  table C times: rows are contiguous in the file and smaller than a page, so reading fewer columns
  would touch the same pages. Writing rows that are cut by columns costs a small write for each row
  and shard; other rows are written in large pieces.

  Source: TorchRec quant.EmbeddingBagCollection, ShardedQuantEmbeddingBagCollection
*/
#pragma once

#include "core/options/options.h"
#include "embed/embedding_shards.h"
#include "io/checkpoint/checkpoint.h"

/* -quant_checkpoint */
extern const TrsOptionGroup trs_quant_options;

/*
  TrsQuantTableTypes - Choose the data type of each table of a checkpoint.

  The options may name the type; the default is the checkpoint's type.

  Collective on comm.

  In:     path    the checkpoint's path
  InOut:  tables  data_type is set
  Out:    stored  [tables->n] the checkpoint's tables
  Errors: OPTION for a data_type when the rows are already quantised to another one, or an
          output_dtype other than fp32, fp16, bf16; NO_INPUT; DATA naming file and dataset: missing
          table, other shape, attributes that contradict the rows
*/
PetscErrorCode TrsQuantTableTypes(MPI_Comm comm, TrsOptions options, const char *path,
                                  TrsTableConfigs *tables, TrsStoredTable *stored);

/*
  TrsQuantCheckPlan - Check that the plan suits quantised tables.

  Its kernels must be kernels for quantised rows, and its column shards must start at a whole byte.

  Not collective.

  In:     source  the plan's name, for messages
  Errors: DATA
*/
PetscErrorCode TrsQuantCheckPlan(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                 const char *source);

/* Quantises rows while they are read. */
typedef struct TrsQuantReaderImpl *TrsQuantReader;

/*
  TrsQuantReaderCreate - Create a reader that fills shards with quantised rows.

  Not collective.

  In: path    for messages, borrowed
      shards  of TrsEmbeddingShardsCreateQuantised(), borrowed
      stored  [tables->n] borrowed
*/
PetscErrorCode TrsQuantReaderCreate(const char *path, const TrsEmbeddingShards *shards,
                                    const TrsStoredTable *stored, TrsQuantReader *reader);

/*
  TrsQuantReaderMap - Map rows that the file has in the shards' format, instead of copying them to
    memory (TrsEmbeddingShardsMap()). Other rows are read.

  Not collective. Must be called before TrsQuantReaderAddState().

  In: check  also check mapped rows, which reads all of them
*/
void TrsQuantReaderMap(TrsQuantReader reader, PetscBool check);

/*
  TrsQuantReaderAddState - List the tables for TrsCheckpointRead(), which then fills the shards.

  Not collective.

  Errors: raised while the checkpoint is read, naming table and row: NOT_FINITE for a number that is
          not finite; DATA for a number beyond fp16 if the scale and bias or the numbers are fp16,
          or for quantised rows with a scale or bias that is not finite
*/
PetscErrorCode TrsQuantReaderAddState(TrsQuantReader reader, TrsState *state);
PetscErrorCode TrsQuantReaderDestroy(TrsQuantReader *reader);

/*
  TrsQuantReaderAddDelta - List the tables for TrsDeltaRead(), which then gives the changed rows to
    the reader. They become what TrsCheckpointRead() would make of the same rows in a checkpoint:
    first rounded to the checkpoint's type, then quantised. The shards must have whole tables.

  Not collective. Errors: those of TrsQuantReaderAddState(), raised while the delta is read
*/
PetscErrorCode TrsQuantReaderAddDelta(TrsQuantReader reader, TrsState *state);

/*
  Write the changed rows to shards, which must be writable. They may be others than those of
  TrsQuantReaderCreate() if they are of the same tables. Not collective.
*/
void TrsQuantReaderWrite(TrsQuantReader reader, const TrsEmbeddingShards *shards);

/*
  TrsQuantAddState - List the shards for TrsCheckpointWrite().

  int8, int4 and int2 tables are written as embedding/<table>/weight_quantised (input/FORMAT.md),
  other tables as embedding/<table>/weight. The data pointers are the shards' own memory.

  Not collective.
*/
PetscErrorCode TrsQuantAddState(const TrsEmbeddingShards *shards, TrsState *state);

/* Bytes that the shards would need as fp32. */
int64_t TrsQuantFloatBytes(const TrsEmbeddingShards *shards);
