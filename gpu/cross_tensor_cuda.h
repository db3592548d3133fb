/* SPDX-License-Identifier: BSD-3-Clause */
/* A cross layer's product and element-wise part in one kernel on tensor cores. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

/* True if the kernel can compute the layer: types, sizes and alignments. */
bool TrsCrossTakesTensorCores(const TrsCrossProduct *layer);

/* Compute the layer. TrsCrossTakesTensorCores() must be true. */
PetscErrorCode TrsCrossTensorForward(TrsStream stream, const TrsCrossProduct *layer);
