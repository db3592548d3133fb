/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/cost/storage_reservation.h"

#include <math.h>

#define ID_BYTES             8.0
#define KJT_COPIES_TRAINING  20
#define KJT_COPIES_INFERENCE 1

/*
  Compute the bytes of the ids in one rank's batch, module by module. All tables count, including
  tables of other device groups.
*/
static PetscErrorCode kjt_bytes(const TrsCostModel *model, int64_t copies, int64_t *bytes)
{
  int *order;
  double ids = 0, pooling_factor, num_poolings;
  int64_t batch_size;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(model->tables->n, &order));
  TrsPlanTableOrder(model, PETSC_TRUE, order);
  for (int i = 0; i < model->tables->n; i++) {
    const TrsTableConfig *table = &model->tables->table[order[i]];

    for (int f = 0; f < TrsPlanFeatures(table); f++) {
      TrsPlanFeature(table, model->settings, f, &pooling_factor, &num_poolings, &batch_size);
      ids += pooling_factor * (double)batch_size;
    }
  }
  PetscCall(PetscFree(order));
  ids = ceil(ids * ID_BYTES);
  *bytes = ids < (double)TRS_MAX_SHARD_BYTES ? (int64_t)ids * copies : TRS_MAX_SHARD_BYTES;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t dense_bytes(const TrsPlanSettings *settings, double multiplier)
{
  double bytes = nearbyint((double)settings->dense_parameter_bytes * multiplier);

  if (settings->dense_tensor_bytes) return settings->dense_tensor_bytes;
  return bytes < (double)TRS_MAX_SHARD_BYTES ? (int64_t)bytes : TRS_MAX_SHARD_BYTES;
}

static void keep_percentage(TrsReservation *reservation, int n, double percentage)
{
  reservation->percentage = percentage;
  for (int r = 0; r < n; r++)
    reservation->left[r].hbm = (int64_t)((1 - percentage) * (double)reservation->left[r].hbm);
}

static void keep_absolute(TrsReservation *reservation, int n, int64_t bytes)
{
  for (int r = 0; r < n; r++) reservation->left[r].hbm = PetscMax(0, reservation->left[r].hbm - bytes);
}

static void keep_term(TrsReservation *reservation, const TrsTopology *topology, int64_t bytes,
                      TrsStorage *term)
{
  *term = topology->is_cuda ? (TrsStorage){bytes, 0} : (TrsStorage){0, bytes};
  for (int r = 0; r < topology->world_size; r++) {
    reservation->left[r].hbm -= term->hbm;
    reservation->left[r].ddr -= term->ddr;
  }
}

PetscErrorCode TrsReserve(const TrsCostModel *model, TrsReservation *reservation)
{
  const TrsTopology *topology = model->topology;
  const TrsPlanSettings *settings = model->settings;
  int W = topology->world_size;
  int64_t kjt = 0;

  PetscFunctionBegin;
  *reservation = (TrsReservation){0};
  PetscCall(PetscMalloc1(W, &reservation->left));
  for (int r = 0; r < W; r++) reservation->left[r] = (TrsStorage){topology->hbm[r], topology->ddr[r]};
  PetscCall(kjt_bytes(
      model, settings->reservation == TRS_RESERVATION_INFERENCE ? KJT_COPIES_INFERENCE : KJT_COPIES_TRAINING,
      &kjt));
  switch (settings->reservation) {
  case TRS_RESERVATION_HEURISTICAL:
  case TRS_RESERVATION_INFERENCE:
    keep_percentage(reservation, W, settings->reservation_percentage);
    keep_term(reservation, topology,
              dense_bytes(settings, settings->reservation == TRS_RESERVATION_INFERENCE
                                        ? 1.0
                                        : settings->parameter_multiplier),
              &reservation->dense);
    keep_term(reservation, topology, kjt, &reservation->kjt);
    reservation->too_little = (PetscBool)(settings->reservation == TRS_RESERVATION_HEURISTICAL &&
                                          reservation->left[0].hbm < 0);
    break;
  case TRS_RESERVATION_FIXED_PERCENTAGE:
    keep_percentage(reservation, W, settings->reservation_percentage);
    break;
  case TRS_RESERVATION_FIXED_ABSOLUTE: keep_absolute(reservation, W, settings->reservation_bytes); break;
  case TRS_RESERVATION_SKU_AWARE:
    keep_absolute(reservation, W,
                  settings->has_model_base ? settings->model_base_bytes : settings->reservation_bytes);
    keep_absolute(reservation, W, settings->runtime_overhead_bytes);
    if (!settings->has_model_base)
      keep_term(reservation, topology, dense_bytes(settings, settings->parameter_multiplier),
                &reservation->dense);
    keep_term(reservation, topology, kjt, &reservation->kjt);
    reservation->too_little = (PetscBool)(reservation->left[0].hbm <= 0);
  }
  /* The two fixed kinds of reservation do not subtract this term. It is computed because
     TorchRec's report shows it. */
  if (settings->reservation == TRS_RESERVATION_FIXED_PERCENTAGE ||
      settings->reservation == TRS_RESERVATION_FIXED_ABSOLUTE)
    reservation->kjt = topology->is_cuda ? (TrsStorage){kjt, 0} : (TrsStorage){0, kjt};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReservationFree(TrsReservation *reservation)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(reservation->left));
  PetscFunctionReturn(PETSC_SUCCESS);
}
