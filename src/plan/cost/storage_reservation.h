/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Computes how much memory the partitioner may use on each device.

  Source: TorchRec HeuristicalStorageReservation and the other reservations; src/plan/RULES.md,
          section 7
*/
#pragma once

#include "plan/search/search_space.h"

typedef struct {
  TrsStorage *left;      /* [world_size] memory that is left on each device; may be negative */
  TrsStorage dense, kjt; /* the terms that were subtracted, for the report */
  double percentage;     /* share of device memory that is reserved */
  PetscBool too_little;  /* true: no memory is left on device 0, so there is no plan */
} TrsReservation;

/* Compute the reservation. Free it with TrsReservationFree(). Not collective. */
PetscErrorCode TrsReserve(const TrsCostModel *model, TrsReservation *reservation);
PetscErrorCode TrsReservationFree(TrsReservation *reservation);
