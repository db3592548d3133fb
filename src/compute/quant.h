/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Quantised rows: int8, int4 and int2 values with a scale and a bias for each row.

  TRS_ROWS_TBE is a table for inference, as FBGEMM's IntNBitTableBatchedEmbeddingBags keeps it: fp16 scale, fp16 bias, values, zeros up to a
  multiple of 16 bytes; fp32, fp16 and bf16 rows are the bare values, padded alike. tbe_forward() looks such tables up (TrsTbeTable.stride: see there).
  TRS_ROWS_FUSED has the parameters behind the values and no padding: float32 for int8, fp16 for int4 and int2.
  Values are packed low bits first. Source: FBGEMM FloatToFused8BitRowwiseQuantized, FloatToFusedNBitRowwiseQuantizedSBHalf, TorchRec quant
*/
#pragma once

#include "core/dtype.h"
#include "core/error.h"

typedef enum { TRS_ROWS_TBE, TRS_ROWS_FUSED } TrsRowLayout;

enum { TRS_TBE_ROW_ALIGNMENT = 16, TRS_TBE_PARAMETER_BYTES = 4 };

/* Values with a scale and a bias? int8, int4, int2. */
PetscBool TrsQuantIsPacked(TrsDType dtype);

/* Bytes of a row of dim values, padding included. dtype: int8, int4, int2, with TRS_ROWS_TBE also fp32, fp16 and bf16. */
int64_t TrsQuantRowBytes(TrsDType dtype, TrsRowLayout layout, int dim);

/*
  TrsQuantiseRows - Round rows of floats to a quantised format.

  Not collective. Host memory.

  In:  dtype, layout      as for TrsQuantRowBytes()
       n_rows, dim        of the table
       from, from_stride  float rows
  Out: to                 [n_rows * TrsQuantRowBytes()]
  Source: spec of FBGEMM's formats above; int8 of TRS_ROWS_FUSED: range = max - min, q = rint((x - min) * (255 / (range + 1e-8)));
          the others: bias = fp16(min), scale = fp16((max - bias) / (2^b - 1)), q = rint((x - bias) / scale)
*/
PetscErrorCode TrsQuantiseRows(TrsDType dtype, TrsRowLayout layout, int64_t n_rows, int dim,
                               const float *from, int64_t from_stride, void *to);

/* Back to floats: q * scale + bias in fp32. Not collective. Host memory. */
PetscErrorCode TrsDequantiseRows(TrsDType dtype, TrsRowLayout layout, int64_t n_rows, int dim,
                                 const void *from, float *to, int64_t to_stride);

/*
  TrsQuantSliceRows - Columns of rows of TRS_ROWS_TBE, as rows of a table of their own.

  A slice keeps the scale and bias of the whole row, so its values are those of the whole row bit for bit. Not collective. Host memory.

  In:  dim         columns of the whole rows
       col, cols   the slice; col must be at a byte's start (int4: even, int2: a multiple of 4)
       from        [n_rows * TrsQuantRowBytes(dim)]
  Out: to          [n_rows * TrsQuantRowBytes(cols)]
  Source: TorchRec column_wise sharding of quantised modules: each shard gets its columns, and the whole row's scale and bias
*/
PetscErrorCode TrsQuantSliceRows(TrsDType dtype, int dim, int col, int cols, int64_t n_rows, const void *from,
                                 void *to);
