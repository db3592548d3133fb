/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/trace_file.h"

#include "core/version.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TRS_TRACE_PIECE = 4096 };
enum { TRS_TAG_HEADER = 1, TRS_TAG_SPANS };

typedef struct {
  int64_t n, n_lost, n_rows;
  int64_t has_device; /* true: there are rows for a device's streams */
} TrsTraceHeader;

int64_t TrsTraceLanes(int64_t n, TrsTraceSpan *span)
{
  double end_s[TRS_TRACE_LANES];
  int n_lanes = 0;
  int64_t n_left_out = 0;

  for (int64_t i = 0; i < n; i++) {
    int lane = 0;

    if (span[i].row != TRS_TRACE_EXCHANGE) continue;
    while (lane < n_lanes && end_s[lane] > span[i].start_s) lane++;
    if (lane == TRS_TRACE_LANES) {
      span[i].row = -1;
      n_left_out++;
      continue;
    }
    if (lane == n_lanes) n_lanes++;
    end_s[lane] = span[i].end_s;
    span[i].row += lane;
  }
  return n_left_out;
}

/* --- rank 0 --- */

/* Write the names of a rank and of its rows. */
static void write_names(FILE *out, int rank, const TrsTraceHeader *header)
{
  static const char *const names[] = {"stages",           "reader",        "compute stream",
                                      "data_dist stream", "memcpy stream", "prefetch stream",
                                      "exchanges"};

  fprintf(out, "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}",
          rank ? ",\n" : "", rank, rank);
  fprintf(out, ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
          rank, rank);
  for (int row = 0; row < header->n_rows; row++) {
    if (TrsTraceIsDeviceRow(row) && !header->has_device) continue;
    fprintf(out,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
            rank, row, names[PetscMin(row, TRS_TRACE_EXCHANGE)]);
  }
}

static void write_spans(FILE *out, int rank, int64_t n, const TrsTraceSpan *span, double zero_s)
{
  static const char *const kinds[] = {"stage", "reader", "stage", "device", "device", "device", "exchange"};

  for (int64_t i = 0; i < n; i++) {
    const int64_t start_ns = llround((span[i].start_s - zero_s) * 1e9);
    const int64_t end_ns = llround((span[i].end_s - zero_s) * 1e9);
    const int row = span[i].row;

    if (row < 0) continue;
    fprintf(out,
            ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":\"%s\","
            "\"args\":{\"step\":%" PRId64,
            rank, row, (double)start_ns / 1e3, (double)(end_ns - start_ns) / 1e3,
            kinds[PetscMin(row, TRS_TRACE_EXCHANGE)], TrsTraceName(span[i].what), span[i].step);
    if (span[i].bytes >= 0) fprintf(out, ",\"bytes\":%" PRId64, span[i].bytes);
    if (span[i].message_bytes >= 0) fprintf(out, ",\"message_bytes\":%" PRId64, span[i].message_bytes);
    if (isfinite(span[i].needed_s))
      fprintf(out, ",\"needed\":%.3f", (double)llround((span[i].needed_s - zero_s) * 1e9) / 1e3);
    fputs("}}", out);
  }
}

/*
  Receive another rank's spans. This is done even if there is no file, so that the rank does not
  wait forever.
*/
static PetscErrorCode take_rank(MPI_Comm comm, int rank, FILE *out, double zero_s, TrsTraceSpan *piece,
                                TrsTraceHeader *sum)
{
  TrsTraceHeader header;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Recv(&header, 4, MPI_INT64_T, rank, TRS_TAG_HEADER, comm, MPI_STATUS_IGNORE));
  if (out) write_names(out, rank, &header);
  for (int64_t at = 0; at < header.n; at += TRS_TRACE_PIECE) {
    const int64_t n = PetscMin(header.n - at, TRS_TRACE_PIECE);

    PetscCallMPI(MPI_Recv(piece, (int)(n * (int64_t)sizeof(*piece)), MPI_BYTE, rank, TRS_TAG_SPANS, comm,
                          MPI_STATUS_IGNORE));
    if (out) write_spans(out, rank, n, piece, zero_s);
  }
  sum->n += header.n;
  sum->n_lost += header.n_lost;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open the temporary file as a stream. If the file cannot be created, *out is NULL. */
static PetscErrorCode open_stream(const char *path, TrsAtomicFile *file, FILE **out)
{
  int fd;

  PetscFunctionBegin;
  PetscCall(TrsAtomicCreate(path, file));
  fd = dup(file->fd);
  *out = fd < 0 ? NULL : fdopen(fd, "w");
  if (fd >= 0 && !*out) (void)close(fd);
  PetscCheck(*out, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be created", path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_stream(TrsOutput *output, TrsAtomicFile *file, FILE *out)
{
  const int failed = ferror(out);

  PetscFunctionBegin;
  errno = 0;
  PetscCheck(fclose(out) == 0 && !failed, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s",
             output->path, strerror(errno ? errno : ENOSPC));
  PetscCall(TrsOutputPublish(output, file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_all(MPI_Comm comm, TrsOutput *output, int64_t n, const TrsTraceSpan *span,
                                double zero_s, TrsTraceHeader *sum)
{
  TrsAtomicFile file = {NULL, NULL, NULL, -1, PETSC_FALSE};
  PetscErrorCode ierr;
  TrsTraceSpan *piece;
  FILE *out = NULL;
  int size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PetscMalloc1(TRS_TRACE_PIECE, &piece));
  ierr = open_stream(output->path, &file, &out);
  if (out) {
    fprintf(out, "{\"otherData\":{\"program\":\"trshard\"},\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    write_names(out, 0, sum);
    write_spans(out, 0, n, span, zero_s);
  }
  for (int r = 1; r < size; r++) PetscCall(take_rank(comm, r, out, zero_s, piece, sum));
  if (out) {
    fprintf(out, "\n],\"otherData\":{\"program\":\"%s %s\",\"ranks\":%d,\"lost_spans\":%" PRId64 "}}\n",
            TRS_NAME, TRS_VERSION, size, sum->n_lost);
    ierr = close_stream(output, &file, out);
  }
  PetscCall(TrsAtomicDiscard(&file));
  PetscCall(PetscFree(piece));
  PetscFunctionReturn(ierr);
}

/* --- the other ranks --- */

static PetscErrorCode send_all(MPI_Comm comm, int64_t n, const TrsTraceSpan *span,
                               const TrsTraceHeader *header)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Ssend(header, 4, MPI_INT64_T, 0, TRS_TAG_HEADER, comm));
  for (int64_t at = 0; at < n; at += TRS_TRACE_PIECE)
    PetscCallMPI(MPI_Ssend(span + at, (int)(PetscMin(n - at, TRS_TRACE_PIECE) * (int64_t)sizeof(*span)),
                           MPI_BYTE, 0, TRS_TAG_SPANS, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTraceFileWrite(MPI_Comm comm, TrsOutput *output, int64_t n, const TrsTraceSpan *span,
                                 double zero_s, int64_t n_lost, int64_t *n_all)
{
  TrsTraceHeader header = {.n = n, .n_lost = n_lost, .n_rows = TRS_TRACE_N_ROWS};
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  for (int64_t i = 0; i < n; i++) {
    header.n_rows = PetscMax(header.n_rows, span[i].row + 1);
    header.has_device |= TrsTraceIsDeviceRow(span[i].row);
  }
  if (rank == 0)
    ierr = write_all(comm, output, n, span, zero_s, &header);
  else
    PetscCall(send_all(comm, n, span, &header));
  PetscCall(TrsAgree(comm, ierr));
  *n_all = header.n;
  PetscFunctionReturn(PETSC_SUCCESS);
}
