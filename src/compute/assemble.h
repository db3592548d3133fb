/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of samples, made on the CPU by a reader's thread. GPUs use TrsAssembleFn. */
#pragma once

#include "compute/compute_ops.h"

/*
  TrsAssemble - Make a batch of samples.

  Feature f of out gets the bags of key features[f].key, in the order of the samples. The caller
  must give out's arrays enough room, including weights if the samples have them. The call with
  begin 0 fills the lengths, offsets and counts for all samples; each call fills in the ids of its
  own part. Bad ids become 0 (src/RULES.md, rule A24). Ids of features with a map are left for
  TrsIdMapApply().

  Not collective. Runs on the calling thread, which may be any thread. Never fails.

  Returns true if a sample of the part has a bad id or a bag longer than max_length. The caller then
  searches the samples for it.
*/
PetscBool TrsAssemble(const TrsSamples *samples, int n_features, const TrsSampleFeature *features,
                      TrsJagged *out);
