/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The memory of each device that the partitioner may use.

  Source: TorchRec HeuristicalStorageReservation and its kin; src/plan/RULES.md, section 7
*/
#pragma once

#include "plan/search_space.h"

typedef struct {
  TrsStorage *left;      /* [world_size] of each device; may be negative */
  TrsStorage dense, kjt; /* subtracted terms, for the report */
  double percentage;     /* share of the device memory that is kept */
  PetscBool too_little;  /* nothing is left on device 0, so there is no plan */
} TrsReservation;

/* Compute the reservation. Free it with TrsReservationFree(). Not collective. */
PetscErrorCode TrsReserve(const TrsCostModel *model, TrsReservation *reservation);
PetscErrorCode TrsReservationFree(TrsReservation *reservation);
