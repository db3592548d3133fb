/* SPDX-License-Identifier: BSD-3-Clause */
/* The description that a run prints on rank 0, and stores in its results, before its first step. */
#pragma once

#include "io/results.h"
#include "session/session.h"

/*
  Print the banner: version, ranks, hosts, device, threads, libraries, dataset, plan, model, memory.
  Collective.
*/
PetscErrorCode TrsReportBanner(const TrsSession *session);

/*
  Store the facts of the banner as root attributes: options, plan, world_size, hardware, libraries.
  Collective.
*/
PetscErrorCode TrsReportAttributes(const TrsSession *session, TrsResults results);
