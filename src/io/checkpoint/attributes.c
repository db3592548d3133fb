/* SPDX-License-Identifier: BSD-3-Clause */
/* Checksums of large attributes. HDF5 stores such attributes without a checksum. */
#include "core/buffer.h"
#include "io/checkpoint/impl.h"

#include <inttypes.h>
#include <xxhash.h>

/*
  HDF5's own checksums cover attributes of up to 4 KiB including their overhead. Half of that is on
  the safe side.
*/
static const int64_t least_bytes = 2048, most_bytes = (int64_t)64 << 20;

/*
  Is this a type that attributes of checkpoints are written with (hdf5_attribute.c)? The checksum
  covers values, and damage to the type alone would give the same bytes another meaning.
*/
static PetscBool is_written_type(hid_t type)
{
  if (H5Tget_class(type) == H5T_STRING)
    return (PetscBool)(H5Tget_strpad(type) == H5T_STR_NULLPAD && H5Tget_cset(type) == H5T_CSET_UTF8);
  return (PetscBool)(H5Tequal(type, H5T_STD_I64LE) > 0 || H5Tequal(type, H5T_IEEE_F64LE) > 0);
}

/*
  XXH3-64 of the attribute's bytes as they lie in the file. *bytes is -1 for an attribute that is
  not sealed: a string of variable length has no bytes of its own, and other types are not written.
  *status is HDF5's. Errors: MEMORY
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

/* The object that gets the checksums. */
typedef struct {
  hid_t sums;
  PetscErrorCode ierr;
} TrsSeal;

/* An H5A_operator2_t. */
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

/* The attributes of one object and the place of their checksums. */
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

/* An H5A_operator2_t. */
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
