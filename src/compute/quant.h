/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Quantised rows: int8, int4 and int2 values with a scale and a bias for each row.

  TRS_ROWS_TBE is a table for inference, as in FBGEMM's IntNBitTableBatchedEmbeddingBags: fp16
  scale, fp16 bias, values, zeros up to a multiple of 16 bytes. Rows of fp32, fp16 and bf16 have
  only the values, with the same padding. tbe_forward() looks such tables up (see
  TrsTbeTable.stride). TRS_ROWS_FUSED has the parameters after the values and no padding. The
  parameters are float32 for int8, and fp16 for int4 and int2. Values are packed low bits first.

  Source: FBGEMM FloatToFused8BitRowwiseQuantized, FloatToFusedNBitRowwiseQuantizedSBHalf, TorchRec
          quant
*/
#pragma once

#include "core/dtype.h"
#include "core/error.h"

typedef enum { TRS_ROWS_TBE, TRS_ROWS_FUSED } TrsRowLayout;

enum { TRS_TBE_ROW_ALIGNMENT = 16, TRS_TBE_PARAMETER_BYTES = 4 };

/* True for int8, int4 and int2, whose rows have a scale and a bias. */
PetscBool TrsQuantIsPacked(TrsDType dtype);

/*
  Return the bytes of a row with dim values, including padding. dtype is int8, int4 or int2; with
  TRS_ROWS_TBE it may also be fp32, fp16 or bf16.
*/
int64_t TrsQuantRowBytes(TrsDType dtype, TrsRowLayout layout, int dim);

/*
  TrsQuantiseRows - Convert rows of floats to a quantised format.

  Not collective. Host memory.

  In:  dtype, layout      as for TrsQuantRowBytes()
       n_rows, dim        shape of the table
       from, from_stride  float rows
  Out: to                 [n_rows * TrsQuantRowBytes()]
  Source: FBGEMM's formats above; int8 of TRS_ROWS_FUSED: range = max - min, q = rint((x - min) *
          (255 / (range + 1e-8))); the other formats: bias = fp16(min), scale = fp16((max - bias) /
          (2^b - 1)), q = rint((x - bias) / scale)
*/
PetscErrorCode TrsQuantiseRows(TrsDType dtype, TrsRowLayout layout, int64_t n_rows, int dim,
                               const float *from, int64_t from_stride, void *to);

/*
  TrsQuantSliceRows - Copy some columns of rows of TRS_ROWS_TBE to the rows of another table.

  A slice keeps the scale and bias of the whole row, so its values have the same bits.

  Not collective. Host memory.

  In:  dim         columns of the whole rows
       col, cols   first column and number of columns; col must be at the start of a byte (int4:
                   even, int2: a multiple of 4)
       from        [n_rows * TrsQuantRowBytes(dim)]
  Out: to          [n_rows * TrsQuantRowBytes(cols)]
  Source: TorchRec column_wise sharding of quantised modules: each shard gets its columns, and the
          whole row's scale and bias
*/
PetscErrorCode TrsQuantSliceRows(TrsDType dtype, int dim, int col, int cols, int64_t n_rows, const void *from,
                                 void *to);
