/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Checksums of the parts of tensors, and of large attributes, which HDF5 itself stores without a
  checksum.
*/
#include "core/buffer.h"
#include "io/checkpoint/impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

/*
  HDF5's own checksums cover attributes of up to 4 KiB including their overhead. Half of that is a
  safe limit.
*/
static const int64_t least_bytes = 2048, most_bytes = (int64_t)64 << 20;

/*
  True for the types with which attributes of checkpoints are written (hdf5_attribute.c). The
  checksum covers only the values. A damaged type would give the same bytes another meaning.
*/
static PetscBool is_written_type(hid_t type)
{
  if (H5Tget_class(type) == H5T_STRING)
    return (PetscBool)(H5Tget_strpad(type) == H5T_STR_NULLPAD && H5Tget_cset(type) == H5T_CSET_UTF8);
  return (PetscBool)(H5Tequal(type, H5T_STD_I64LE) > 0 || H5Tequal(type, H5T_IEEE_F64LE) > 0);
}

/*
  Compute XXH3-64 of the attribute's bytes as they lie in the file. *bytes is -1 for an attribute
  that gets no checksum: the bytes of a string of variable length lie elsewhere, and other types are
  never written. *status is the status of the HDF5 calls. Errors: MEMORY
*/
static PetscErrorCode hash_attribute(hid_t attribute, int64_t least, herr_t *status, int64_t *bytes,
                                     int64_t *hash)
{
  const hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
  const hssize_t n = H5Sget_simple_extent_npoints(space);
  const int64_t size = (int64_t)H5Tget_size(type);
  PetscErrorCode ierr = PETSC_SUCCESS;
  void *data = NULL;

  PetscFunctionBegin;
  *status = -1;
  *bytes = -1;
  if (type >= 0 && space >= 0 && n >= 0 && size > 0 && n <= most_bytes / size) {
    *status = 0;
    if (H5Tis_variable_str(type) == 0 && is_written_type(type)) *bytes = n * size;
  }
  if (*bytes >= least) {
    ierr = TrsAlloc(*bytes, 1, &data);
    if (ierr == PETSC_SUCCESS) *status = H5Aread(attribute, type, data);
    if (ierr == PETSC_SUCCESS && *status >= 0) *hash = (int64_t)XXH3_64bits(data, (size_t)*bytes);
  }
  (void)TrsFree(&data);
  if (space >= 0) (void)H5Sclose(space);
  if (type >= 0) (void)H5Tclose(type);
  PetscFunctionReturn(ierr);
}

/* Context of seal_attribute(): the object that gets the checksums. */
typedef struct {
  hid_t sums;
  PetscErrorCode ierr;
} TrsSeal;

/* Write the checksum of one attribute. This is an H5A_operator2_t. */
static herr_t seal_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  TrsSeal *seal = (TrsSeal *)context;
  int64_t bytes = -1, hash = 0;
  herr_t status = -1;

  (void)info;
  if (attribute >= 0) seal->ierr = hash_attribute(attribute, least_bytes, &status, &bytes, &hash);
  if (seal->ierr == PETSC_SUCCESS && status >= 0 && bytes >= least_bytes)
    seal->ierr = TrsHDF5WriteInts(seal->sums, name, 0, &hash);
  if (attribute >= 0) (void)H5Aclose(attribute);
  return seal->ierr ? 1 : status < 0 ? -1 : 0; /* a positive value stops the iteration */
}

PetscErrorCode TrsCheckpointSealAttributes(hid_t object, hid_t sums)
{
  TrsSeal seal = {.sums = sums, .ierr = PETSC_SUCCESS};

  PetscFunctionBegin;
  TrsCallHDF5(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, seal_attribute, &seal));
  PetscCall(seal.ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The attributes of one object, and where their checksums are stored. */
typedef struct {
  const TrsHDF5File *file;
  const char *where;
  hid_t object;
  PetscErrorCode ierr;
} TrsSealed;

static PetscErrorCode verify_attribute(const TrsSealed *sealed, hid_t sums, const char *name)
{
  const hid_t attribute = H5Aexists(sealed->object, name) > 0 ? H5Aopen(sealed->object, name, H5P_DEFAULT)
                                                              : -1;
  int64_t expected, bytes = -1, hash = 0;
  PetscErrorCode ierr = PETSC_SUCCESS;
  herr_t status = -1;

  PetscFunctionBegin;
  if (attribute >= 0) {
    ierr = hash_attribute(attribute, 0, &status, &bytes, &hash);
    (void)H5Aclose(attribute);
  }
  PetscCall(ierr);
  PetscCall(TrsHDF5ReadInts(sealed->file, sums, TRS_CHECKSUMS, name, 1, NULL, &expected));
  PetscCheck(status >= 0 && bytes >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s is damaged: attribute %s of /%s has a checksum, but cannot be read", sealed->file->path,
             name, sealed->where);
  PetscCheck(hash == expected, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s is damaged: the checksum of attribute %s of /%s is %016" PRIx64 ", expected %016" PRIx64,
             sealed->file->path, name, sealed->where, hash, expected);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Verify the checksum of one attribute. This is an H5A_operator2_t. */
static herr_t visit_sum(hid_t sums, const char *name, const H5A_info_t *info, void *context)
{
  TrsSealed *sealed = (TrsSealed *)context;

  (void)info;
  sealed->ierr = verify_attribute(sealed, sums, name);
  return sealed->ierr == PETSC_SUCCESS ? 0 : 1; /* a positive value stops the iteration */
}

PetscErrorCode TrsCheckpointVerifyAttributes(const TrsHDF5File *file, const char *where, hid_t object,
                                             hid_t sums)
{
  TrsSealed sealed = {file, where, object, PETSC_SUCCESS};
  herr_t status;

  PetscFunctionBegin;
  status = H5Aiterate2(sums, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_sum, &sealed);
  PetscCall(sealed.ierr);
  PetscCheck(status >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s is damaged: checksums of attributes of /%s%s",
             file->path, where, TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The state of a pass over all tables of checksums. This rank verifies every size-th part. */
typedef struct {
  const TrsHDF5File *file;
  int rank, size;
  int64_t n_parts; /* number of parts seen so far */
  char *strip;     /* memory for trs_strip_bytes or one row, whichever is larger */
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
  TRS_CHECK_DATA(TrsCheckpointSumsPath(name, table_name), "%s: a name in /checksums is too long",
                 v->file->path);
  PetscCall(TrsCheckpointSourceOpen(v->file, table_name, &table));
  PetscCall(TrsCheckpointSourceOpen(v->file, name, &tensor));
  TRS_CHECK_DATA(tensor.id >= 0, "%s has no dataset /%s, though it has checksums", v->file->path, name);
  TRS_CHECK_DATA(table.id >= 0 && table.shape.type_class == H5T_INTEGER && table.shape.ndim == 2 &&
                     table.shape.dims[1] == TRS_CHECKSUM_COLUMNS,
                 "%s: /%s is not a table of checksums", v->file->path, table_name);
  PetscCall(TrsCheckpointVerifyAttributes(v->file, name, tensor.id, table.id));
  PetscCall(TrsCheckpointSourcePlace(&table, H5Tcopy(H5T_NATIVE_INT64)));
  /* Read the bytes without conversion. */
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
