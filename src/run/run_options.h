/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of a whole run, and the list of all option tables. */
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

/* Every table of options that a task reads, in the order in which -help prints them. */
extern const TrsOptionGroup *const trs_option_groups[];
extern const int trs_n_option_groups;
