/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Quantised tables: held as rows of TRS_ROWS_TBE (compute/quant.h) and looked up by -task predict. From a checkpoint's numbers or from one that holds
  such rows, to shards of any plan, and back to a file. Source: TorchRec quant.EmbeddingBagCollection, ShardedQuantEmbeddingBagCollection.

  A row's scale and bias are those of the whole row, also where a plan cuts columns (TorchRec's column_wise shards keep them, too). So the values do not
  depend on the plan, and a file of quantised rows can be cut anew, by rows and by columns.

  Time and memory: a rank reads whole rows of its row ranges, a few MiB at a time, and keeps its own columns quantised; never a table in both forms. C column
  shards on C ranks read a table C times: its rows are contiguous in the file and smaller than a page, so reading fewer columns would touch as much.
  Written back, rows cut by columns cost a small write for each row and shard; others go in large pieces.
*/
#pragma once

#include "core/options.h"
#include "embed/embedding_shards.h"
#include "io/checkpoint.h"

/* -quant_checkpoint */
extern const TrsOptionGroup trs_quant_options;

/*
  TrsQuantTableTypes - In which data type is each table held, given a checkpoint?

  Collective on comm. That of the options where they name one, else the checkpoint's own.

  In:     path    of the checkpoint
  InOut:  tables  data_type is set
  Out:    stored  [tables->n] what the checkpoint has
  Errors: OPTION (a data_type for rows that are already quantised to another; an output_dtype that is none of fp32, fp16, bf16); NO_INPUT; DATA naming
          file and dataset: missing table, other shape, attributes that contradict the rows
*/
PetscErrorCode TrsQuantTableTypes(MPI_Comm comm, TrsOptions options, const char *path,
                                  TrsTableConfigs *tables, TrsStoredTable *stored);

/*
  TrsQuantCheckPlan - Is the plan one for quantised tables? Kernels of quantised rows, column shards that start at a byte.

  Not collective. In: source names the plan. Errors: DATA
*/
PetscErrorCode TrsQuantCheckPlan(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                 const char *source);

/* Quantises rows as they are read. */
typedef struct TrsQuantReaderImpl *TrsQuantReader;

/* In: path for messages; shards (TrsEmbeddingShardsCreateQuantised()) and stored [tables->n]: all borrowed. Not collective. */
PetscErrorCode TrsQuantReaderCreate(const char *path, const TrsEmbeddingShards *shards,
                                    const TrsStoredTable *stored, TrsQuantReader *reader);

/*
  TrsQuantReaderAddState - List the tables for TrsCheckpointRead(), which then fills the shards.

  Not collective. Errors, raised by the reading: NOT_FINITE and DATA, naming table and row: a number that is not finite, or beyond fp16 where scale and bias
  or the numbers are fp16, or of quantised rows are not finite
*/
PetscErrorCode TrsQuantReaderAddState(TrsQuantReader reader, TrsState *state);
PetscErrorCode TrsQuantReaderDestroy(TrsQuantReader *reader);

/*
  TrsQuantAddState - List the shards for TrsCheckpointWrite(): embedding/<table>/weight_quantised for int8, int4 and int2 (input/FORMAT.md), weight for others.

  Not collective. The data pointers are the shards' own memory.
*/
PetscErrorCode TrsQuantAddState(const TrsEmbeddingShards *shards, TrsState *state);

/* Bytes the same shards would take as fp32. */
int64_t TrsQuantFloatBytes(const TrsEmbeddingShards *shards);
