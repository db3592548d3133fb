/* SPDX-License-Identifier: BSD-3-Clause */
/* cat: all vectors side by side, which is how X holds them. */
#include "model/interaction.h"

static int64_t width(const TrsInteraction *interaction)
{
  return interaction->N;
}

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

const TrsInteractionOps trs_interaction_cat = {.word = "cat",
                                               .fewest = 1,
                                               .in_place = PETSC_TRUE,
                                               .width = width,
                                               .flops = flops,
                                               .forward = nothing,
                                               .backward = nothing};
