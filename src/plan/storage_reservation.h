/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What the partitioner may use of each device.
  Source: TorchRec HeuristicalStorageReservation and its kin; src/plan/RULES.md, section 7
*/
#pragma once

#include "plan/search_space.h"

typedef struct {
  TrsStorage *left;      /* [world_size] per device; may be negative */
  TrsStorage dense, kjt; /* subtracted terms, for the report */
  double percentage;     /* kept of the device memory */
  PetscBool too_little;  /* nothing is left on device 0: no plan */
} TrsReservation;

/* Not collective. Free with TrsReservationFree(). */
PetscErrorCode TrsReserve(const TrsCostModel *model, TrsReservation *reservation);
PetscErrorCode TrsReservationFree(TrsReservation *reservation);
