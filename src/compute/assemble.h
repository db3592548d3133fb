/* SPDX-License-Identifier: BSD-3-Clause */
/* Making batches of samples on the CPU, by a reader's thread. GPUs use TrsAssembleFn instead. */
#pragma once

#include "compute/compute_ops.h"

/*
  TrsAssemble - Make a batch of samples.

  Feature f of out gets the bags of key features[f].key, in the order of the samples. The caller
  must allocate out's arrays large enough, including weights if the samples have weights. The call
  with samples->begin 0 writes the lengths, offsets and counts of all samples. Each call writes the
  ids of its own range of samples. Bad ids become 0 (src/RULES.md, rule A24). If a feature has an id
  map, its ids stay unchanged, and TrsIdMapApply() must map them later.

  Not collective. Runs on the calling thread, which may be any thread. Never fails.

  Returns true if a sample of this range has a bad id, or a bag longer than max_length. The caller
  must then search the samples for the mistake.
*/
PetscBool TrsAssemble(const TrsSamples *samples, int n_features, const TrsSampleFeature *features,
                      TrsJagged *out);
