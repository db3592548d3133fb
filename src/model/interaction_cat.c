/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cat: the output has all vectors side by side, as in X. none: the output has only the embeddings
  side by side; dense features are not used.
*/
#include "model/interaction.h"

static double flops(const TrsInteraction *interaction)
{
  (void)interaction;
  return 0;
}

static PetscErrorCode nothing(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  (void)interaction, (void)stream, (void)n;
  PetscFunctionBegin;
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define CAT_TABLE(name, without_dense) \
  const TrsInteractionOps trs_interaction_##name = {.word = #name, \
                                                    .fewest = 1, \
                                                    .in_place = PETSC_TRUE, \
                                                    .sparse = (without_dense), \
                                                    .width = TrsInteractionAll, \
                                                    .flops = flops, \
                                                    .forward = nothing, \
                                                    .backward = nothing};
CAT_TABLE(cat, PETSC_FALSE)
CAT_TABLE(none, PETSC_TRUE)
