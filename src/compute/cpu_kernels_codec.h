/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU's number formats: slots of compute_ops.h that compute.c puts into the CPU's table. Internal to compute/; what each does is
  documented at its slot. Streams run inline on a CPU, so the argument is unused.
*/
#pragma once

#include "compute/compute_ops.h"

/* codec_cpu.c */
int64_t TrsCodecBytesCpu(const TrsCodec *codec, int64_t n);
PetscErrorCode TrsEncodeCpu(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from, void *to);
PetscErrorCode TrsDecodeCpu(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from, float *to);
PetscErrorCode TrsConvertCpu(TrsStream stream, int64_t n, TrsDType from_type, const void *from,
                             TrsDType to_type, void *to);
PetscErrorCode TrsRoundMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype, float *matrix,
                                 int64_t stride);
