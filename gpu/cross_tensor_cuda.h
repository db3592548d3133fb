/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross layers' products and element-wise parts in one kernel on tensor cores. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

/* True if the kernel can compute the layer: types, sizes and alignments. */
bool TrsCrossTakesTensorCores(const TrsCrossProduct *layer);

/* Compute the layer. TrsCrossTakesTensorCores() must be true. */
PetscErrorCode TrsCrossTensorForward(TrsStream stream, const TrsCrossProduct *layer);

/* True if the kernel can compute the backward of these two layers. */
bool TrsCrossLowerTakesTensorCores(const TrsCrossInputBackward *layers);

/* Compute it. A LAST call does not write dx's numbers, but the total, which may be dx. */
PetscErrorCode TrsCrossTensorLower(TrsStream stream, const TrsCrossInputBackward *layers);
