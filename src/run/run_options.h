/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of a whole run, and the list of all option tables. */
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

/* Every table of options that any task reads, in the order of -help. */
extern const TrsOptionGroup *const trs_option_groups[];
extern const int trs_n_option_groups;
