/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The banner: the description of a run. Rank 0 prints it before the first step, and the results
  store it.
*/
#pragma once

#include "io/results.h"
#include "session/session.h"

/*
  Print the banner: version, ranks, hosts, device, threads, libraries, dataset, plan, model and
  memory. Collective.
*/
PetscErrorCode TrsReportBanner(const TrsSession *session);

/*
  Store the facts of the banner as root attributes of the results: options, plan, world_size,
  hardware and libraries. Collective.
*/
PetscErrorCode TrsReportAttributes(const TrsSession *session, TrsResults results);
