/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/clock_offset.h"

#include "core/clock.h"

#include <math.h>

/* In seconds per second. A quartz has an error of 1e-4, and NTP slews a clock by 5e-4. */
#define TRS_MOST_DRIFT 1e-3

TrsClockOffset TrsClockBest(int n, const double *sent_s, const double *read_s, const double *received_s)
{
  int best = 0;

  for (int i = 1; i < n; i++)
    if (received_s[i] - sent_s[i] < received_s[best] - sent_s[best]) best = i;
  return (TrsClockOffset){.at_s = read_s[best],
                          .offset_s = read_s[best] - (sent_s[best] + (received_s[best] - sent_s[best]) / 2)};
}

PetscErrorCode TrsClockMeasure(MPI_Comm comm, TrsClockOffset *offset)
{
  enum { TRS_TAG_ASK = 1, TRS_TAG_ANSWER, TRS_TAG_RESULT };
  double sent[TRS_CLOCK_ROUNDS], read[TRS_CLOCK_ROUNDS], received[TRS_CLOCK_ROUNDS];
  int rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  *offset = (TrsClockOffset){.at_s = TrsClock()};
  for (int r = 1; r < size && rank == 0; r++) {
    TrsClockOffset of;

    for (int i = 0; i < TRS_CLOCK_ROUNDS; i++) {
      sent[i] = TrsClock();
      PetscCallMPI(MPI_Send(NULL, 0, MPI_BYTE, r, TRS_TAG_ASK, comm));
      PetscCallMPI(MPI_Recv(&read[i], 1, MPI_DOUBLE, r, TRS_TAG_ANSWER, comm, MPI_STATUS_IGNORE));
      received[i] = TrsClock();
    }
    of = TrsClockBest(TRS_CLOCK_ROUNDS, sent, read, received);
    PetscCallMPI(MPI_Send(&of, 2, MPI_DOUBLE, r, TRS_TAG_RESULT, comm));
  }
  for (int i = 0; i < TRS_CLOCK_ROUNDS && rank > 0; i++) {
    double now_s;

    PetscCallMPI(MPI_Recv(NULL, 0, MPI_BYTE, 0, TRS_TAG_ASK, comm, MPI_STATUS_IGNORE));
    now_s = TrsClock();
    PetscCallMPI(MPI_Send(&now_s, 1, MPI_DOUBLE, 0, TRS_TAG_ANSWER, comm));
  }
  if (rank > 0) PetscCallMPI(MPI_Recv(offset, 2, MPI_DOUBLE, 0, TRS_TAG_RESULT, comm, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

double TrsClockToRank0(const TrsClockOffset *first, const TrsClockOffset *last, double time_s)
{
  const double length_s = last->at_s - first->at_s, change_s = last->offset_s - first->offset_s;

  if (length_s <= 0) return time_s - first->offset_s;
  if (fabs(change_s) > TRS_MOST_DRIFT * length_s) return time_s - (first->offset_s + change_s / 2);
  return time_s - (first->offset_s + fmin(fmax((time_s - first->at_s) / length_s, 0), 1) * change_s);
}
