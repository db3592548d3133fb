/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross layers' products and element-wise parts in one kernel on tensor cores. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

/* True if the kernel can compute the layer: types, sizes and alignments. */
bool TrsCrossTakesTensorCores(const TrsCrossProduct *layer);

/* Compute the layer. TrsCrossTakesTensorCores() must be true. */
PetscErrorCode TrsCrossTensorForward(TrsStream stream, const TrsCrossProduct *layer);

/* The same for a backward. dx is not written if the lower layer is the LAST one. */
bool TrsCrossLowerTakesTensorCores(const TrsCrossInputBackward *layers);
PetscErrorCode TrsCrossTensorLower(TrsStream stream, const TrsCrossInputBackward *layers);
