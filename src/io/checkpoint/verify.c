/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"
#include "io/checkpoint/read_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

/* The tables of checksums one after the other. This rank takes every size-th part of all. */
typedef struct {
  const TrsHDF5File *file;
  int rank, size;
  int64_t n_parts; /* parts seen so far */
  char *strip;     /* room for trs_strip_bytes or one row */
  int64_t strip_bytes;
} TrsVerifier;

static PetscErrorCode hash_part(TrsVerifier *v, const TrsCheckpointSource *s, const int64_t *part,
                                int64_t *hash)
{
  int64_t row_bytes = part[3] * (int64_t)s->shape.type_bytes, at_once = v->strip_bytes / row_bytes;
  XXH3_state_t *state = XXH3_createState();
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCheck(state && XXH3_64bits_reset(state) == XXH_OK, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "out of memory: no hash");
  for (int64_t r = 0; r < part[2] && ierr == PETSC_SUCCESS; r += at_once) {
    int64_t n = part[2] - r < at_once ? part[2] - r : at_once;

    ierr = TrsCheckpointSourceRead(s, part[0] + r, n, part[1], part[3], v->strip);
    (void)XXH3_64bits_update(state, v->strip, (size_t)(n * row_bytes));
  }
  *hash = (int64_t)XXH3_64bits_digest(state);
  (void)XXH3_freeState(state);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_part(TrsVerifier *v, const TrsCheckpointSource *s, const int64_t *part)
{
  int64_t hash;

  PetscFunctionBegin;
  TRS_CHECK_DATA(part[0] >= 0 && part[1] >= 0 && part[2] >= 1 && part[3] >= 1 &&
                     part[2] <= s->shape.dims[0] && part[3] <= s->shape.dims[1] &&
                     part[0] <= s->shape.dims[0] - part[2] && part[1] <= s->shape.dims[1] - part[3],
                 "%s: the checksums of /%s name rows %" PRId64 " + %" PRId64 ", columns %" PRId64
                 " + %" PRId64 ", which it does not have: damaged",
                 v->file->path, s->name, part[0], part[2], part[1], part[3]);
  if (v->n_parts++ % v->size != v->rank) PetscFunctionReturn(PETSC_SUCCESS);
  if (part[3] * (int64_t)s->shape.type_bytes > v->strip_bytes) {
    PetscCall(TrsFree(&v->strip));
    v->strip_bytes = part[3] * (int64_t)s->shape.type_bytes;
    PetscCall(TrsAlloc(v->strip_bytes, 1, &v->strip));
  }
  PetscCall(hash_part(v, s, part, &hash));
  TRS_CHECK_DATA(hash == part[4],
                 "%s is damaged: the checksum of /%s, rows %" PRId64 " to %" PRId64 ", columns %" PRId64
                 " to %" PRId64 ", is %016" PRIx64 ", expected %016" PRIx64,
                 v->file->path, s->name, part[0], part[0] + part[2] - 1, part[1], part[1] + part[3] - 1, hash,
                 part[4]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_parts(TrsVerifier *v, const TrsCheckpointSource *s,
                                  const TrsCheckpointSource *table)
{
  int64_t *parts, covered = 0, n = table->shape.dims[0];
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(n * TRS_CHECKSUM_COLUMNS, sizeof(*parts), &parts));
  PetscCall(TrsCheckpointSourceRead(table, 0, n, 0, TRS_CHECKSUM_COLUMNS, parts));
  for (int64_t i = 0; i < n && ierr == PETSC_SUCCESS; i++) {
    ierr = check_part(v, s, parts + i * TRS_CHECKSUM_COLUMNS);
    covered += parts[i * TRS_CHECKSUM_COLUMNS + 2] * parts[i * TRS_CHECKSUM_COLUMNS + 3];
  }
  PetscCall(TrsFree(&parts));
  PetscCall(ierr);
  TRS_CHECK_DATA(covered == s->shape.dims[0] * s->shape.dims[1],
                 "%s: the checksums of /%s cover %" PRId64 " of its %" PRId64 " elements", v->file->path,
                 s->name, covered, s->shape.dims[0] * s->shape.dims[1]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_table(void *context, const char *name)
{
  TrsVerifier *v = (TrsVerifier *)context;
  char table_name[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointSource table, tensor;

  PetscFunctionBegin;
  TRS_CHECK_DATA(snprintf(table_name, sizeof(table_name), TRS_CHECKSUMS "/%s", name) <
                     TRS_CHECKPOINT_MAX_NAME,
                 "%s: a name in /checksums is too long", v->file->path);
  PetscCall(TrsCheckpointSourceOpen(v->file, table_name, &table));
  PetscCall(TrsCheckpointSourceOpen(v->file, name, &tensor));
  TRS_CHECK_DATA(tensor.id >= 0, "%s has no dataset /%s, though it has checksums", v->file->path, name);
  TRS_CHECK_DATA(table.id >= 0 && table.shape.type_class == H5T_INTEGER && table.shape.ndim == 2 &&
                     table.shape.dims[1] == TRS_CHECKSUM_COLUMNS,
                 "%s: /%s is not a table of checksums", v->file->path, table_name);
  PetscCall(TrsCheckpointVerifyAttributes(v->file, name, tensor.id, table.id));
  PetscCall(TrsCheckpointSourcePlace(&table, H5Tcopy(H5T_NATIVE_INT64)));
  /* Take the bytes as they are. */
  PetscCall(TrsCheckpointSourcePlace(&tensor, H5Dget_type(tensor.id)));
  PetscCall(check_parts(v, &tensor, &table));
  PetscCall(TrsCheckpointSourceClose(&table));
  PetscCall(TrsCheckpointSourceClose(&tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointVerifyRoot(const TrsHDF5File *file)
{
  hid_t sums;

  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(file, TRS_CHECKSUMS, H5I_GROUP, &sums));
  if (sums < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCheckpointVerifyAttributes(file, "", file->id, sums));
  TrsReadHDF5(file, H5Gclose(sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointVerifyParts(const TrsHDF5File *file, int rank, int size)
{
  TrsVerifier v = {.file = file, .rank = rank, .size = size, .strip_bytes = trs_strip_bytes};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointVerifyRoot(file));
  PetscCall(TrsAlloc(v.strip_bytes, 1, &v.strip));
  ierr = TrsHDF5EachDataset(file, TRS_CHECKSUMS, check_table, &v);
  PetscCall(TrsFree(&v.strip));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
