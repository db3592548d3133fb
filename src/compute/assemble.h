/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of samples on the CPU, by a reader's thread. A GPU has TrsAssembleFn. */
#pragma once

#include "compute/compute_ops.h"

/*
  TrsAssemble - Make a batch of samples.

  Feature f of out has the bags of key features[f].key at the samples' places. out's arrays have
  room, for weights if the samples have them. A call with begin 0 fills the lengths, the offsets and
  the numbers of all samples; each call places the ids of its part. Ids that are not good become 0
  (src/RULES.md, rule A24). Ids that become rows by a rule are left for TrsIdMapApply().

  Not collective, any thread, on which it runs alone. Raises nothing.

  Returns whether a sample of the part has an id that is not good, or a bag longer than max_length.
  The caller looks in the samples for what it is.
*/
PetscBool TrsAssemble(const TrsSamples *samples, int n_features, const TrsSampleFeature *features,
                      TrsJagged *out);
