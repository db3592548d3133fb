/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* needed for memfd_create. NOLINT(bugprone-reserved-identifier) */
#include "io/hdf5_util.h"

#include "io/hdf5_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRS_MAX_NAME = 1024 };

/*
  Size of the cache in which HDF5 keeps unpacked chunks, for each filtered dataset. With the default
  of 1 MiB, HDF5 would unpack some chunks twice.
*/
static const size_t chunk_hash_entries = 4099, chunk_cache_bytes = (size_t)16 << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void TrsHDF5Lock(void)
{
  pthread_mutex_lock(&lock);
}

void TrsHDF5Unlock(void)
{
  pthread_mutex_unlock(&lock);
}

static herr_t take_first(unsigned n, const H5E_error2_t *error, void *text)
{
  if (n == 0 && error->desc) snprintf(text, 256, " (HDF5: %s)", error->desc);
  return 0;
}

const char *TrsHDF5Error(void)
{
  static char text[256]; /* protected by the lock */

  text[0] = '\0';
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, text);
  return text;
}

/*
  Switch off HDF5's error printing and plug-ins. This must come before any other HDF5 call and may
  be repeated.
*/
static PetscErrorCode start_hdf5(void)
{
  PetscFunctionBegin;
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  /* Without this, a file could make HDF5 load code from HDF5_PLUGIN_PATH. */
  TrsCallHDF5(H5PLset_loading_state(0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open without blocking, so that the function can distinguish a file from a FIFO or a device. */
static PetscErrorCode open_regular(TrsHDF5File *file)
{
  struct stat status;

  PetscFunctionBegin;
  file->fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  PetscCheck(file->fd >= 0, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: cannot be opened: %s", file->path,
             strerror(errno));
  PetscCheck(fstat(file->fd, &status) == 0, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: %s", file->path,
             strerror(errno));
  PetscCheck(!S_ISDIR(status.st_mode), PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "%s is a directory, not an HDF5 file", file->path);
  PetscCheck(S_ISREG(status.st_mode), PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s is not a regular file",
             file->path);
  file->bytes = status.st_size;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the name has one of these endings, possibly followed by an ending of a compressed file.
*/
static PetscBool ends_in(const char *name, const char *const *endings)
{
  size_t n = strlen(name);

  if (n > 3 && strcasecmp(name + n - 3, ".gz") == 0) n -= 3;
  for (; *endings; endings++) {
    const size_t length = strlen(*endings);

    if (n > length && strncasecmp(name + n - length, *endings, length) == 0) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/*
  The tool that converts a file with this name and these first bytes to HDF5, or "" if there is
  none.
*/
static const char *converter_of(const char *name, const unsigned char *head)
{
  static const char *const tables[] = {".parquet", ".pq", ".csv", ".tsv", ".tab", ".npz", ".npy", NULL};
  static const char *const weights[] = {".safetensors", ".pt", ".pth", NULL};

  if (memcmp(head, "PAR1", 4) == 0 || ends_in(name, tables))
    return "; tools/convert_table.py makes a dataset of Parquet, CSV, TSV, npy and npz (installed as "
           "trshard-convert)";
  if (ends_in(name, weights))
    return "; tools/exchange.py makes a checkpoint of PyTorch's files (installed as trshard-exchange)";
  return "";
}

static PetscErrorCode check_signature(const TrsHDF5File *file)
{
  static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  unsigned char head[8] = {0};

  PetscFunctionBegin;
  PetscCheck(file->bytes > 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s is empty (0 bytes), expected an HDF5 file",
             file->path);
  PetscCheck(pread(file->fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
                 memcmp(head, signature, sizeof(head)) == 0,
             PETSC_COMM_SELF, TRS_ERR_DATA, "%s is not an HDF5 file (%" PRId64 " bytes, other first bytes)%s",
             file->path, file->bytes, converter_of(file->path, head));
  PetscFunctionReturn(PETSC_SUCCESS);
}

hid_t TrsHDF5OpenAgain(const char *path)
{
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  hid_t id = -1;

  if (access >= 0 && TrsHDF5DriverUse(access) >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
      H5Pset_file_locking(access, 1, 1) >= 0 &&
      H5Pset_cache(access, 0, chunk_hash_entries, chunk_cache_bytes, 0.75) >= 0)
    id = H5Fopen(path, H5F_ACC_RDONLY, access);
  if (access >= 0) (void)H5Pclose(access);
  return id;
}

/*
  HDF5's errors do not show if the process has run out of descriptors. So try to get another
  descriptor.
*/
static PetscErrorCode check_descriptors(const TrsHDF5File *file)
{
  const int other = dup(file->fd);

  PetscFunctionBegin;
  PetscCheck(other >= 0, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: cannot be opened: %s", file->path,
             strerror(errno));
  (void)close(other);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_file(TrsHDF5File *file)
{
  PetscFunctionBegin;
  PetscCall(start_hdf5());
  PetscCall(open_regular(file));
  PetscCall(check_signature(file));
  file->id = TrsHDF5OpenAgain(file->path);
  if (file->id < 0) PetscCall(check_descriptors(file));
  PetscCheck(file->id >= 0 || !TrsHDF5DriverIsLocked(file->fd), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s is still being written: another program has locked it", file->path);
  PetscCheck(file->id >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s (%" PRId64 " bytes) is truncated, damaged or still being written%s", file->path, file->bytes,
             TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5FileOpen(const char *path, TrsHDF5File *file)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *file = (TrsHDF5File){.path = path, .id = -1, .fd = -1};
  ierr = open_file(file);
  if (ierr != PETSC_SUCCESS) (void)TrsHDF5FileClose(file);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5FileClose(TrsHDF5File *file)
{
  PetscFunctionBegin;
  if (!file->path) PetscFunctionReturn(PETSC_SUCCESS);
  if (file->fd >= 0) (void)close(file->fd);
  if (file->id >= 0) TrsCallHDF5(H5Fclose(file->id));
  memset(file, 0, sizeof(*file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that every link on the path is a hard link. A soft or external link could lead out of the
  file or in a circle.
*/
static PetscErrorCode check_links(const TrsHDF5File *file, const char *name, PetscBool *found)
{
  char part[TRS_MAX_NAME];
  H5L_info_t info;

  PetscFunctionBegin;
  *found = PETSC_FALSE;
  PetscCheck(strlen(name) < sizeof(part), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: the name /%.80s... is longer than %d bytes", file->path, name, TRS_MAX_NAME - 1);
  for (const char *end = name; end; end = *end ? end + 1 : NULL) {
    end = strchr(end, '/');
    if (!end) end = name + strlen(name);
    memcpy(part, name, (size_t)(end - name));
    part[end - name] = '\0';
    if (H5Lexists(file->id, part, H5P_DEFAULT) <= 0) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCheck(H5Lget_info(file->id, part, &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_HARD,
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is a %s link, which is not allowed in an input",
               file->path, part, info.type == H5L_TYPE_SOFT ? "soft" : "external");
  }
  *found = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5Open(const TrsHDF5File *file, const char *name, H5I_type_t type, hid_t *id)
{
  PetscBool found;

  PetscFunctionBegin;
  *id = -1;
  PetscCall(check_links(file, name, &found));
  if (!found) PetscFunctionReturn(PETSC_SUCCESS);
  *id = H5Oopen(file->id, name, H5P_DEFAULT);
  PetscCheck(*id >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s cannot be opened%s", file->path, name,
             TrsHDF5Error());
  PetscCheck(H5Iget_type(*id) == type, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is not a %s", file->path, name,
             type == H5I_GROUP ? "group" : "dataset");
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  PetscErrorCode (*visit)(void *context, const char *name);
  void *context;
  PetscErrorCode ierr;
} TrsWalk;

static herr_t visit_object(hid_t group, const char *name, const H5O_info_t *object, void *context)
{
  TrsWalk *walk = (TrsWalk *)context;

  (void)group;
  if (object->type == H5O_TYPE_DATASET) walk->ierr = walk->visit(walk->context, name);
  return walk->ierr == PETSC_SUCCESS ? 0 : 1; /* a positive value stops the iteration */
}

PetscErrorCode TrsHDF5EachDataset(const TrsHDF5File *file, const char *group,
                                  PetscErrorCode (*visit)(void *context, const char *name), void *context)
{
  TrsWalk walk = {visit, context, PETSC_SUCCESS};
  herr_t status;
  hid_t id;

  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(file, group, H5I_GROUP, &id));
  if (id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  status = H5Ovisit2(id, H5_INDEX_NAME, H5_ITER_INC, visit_object, &walk, H5O_INFO_BASIC);
  PetscCall(walk.ierr);
  PetscCheck(status >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is damaged%s", file->path, group,
             TrsHDF5Error());
  TrsReadHDF5(file, H5Gclose(id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5CheckFormat(const TrsHDF5File *file, const char *format, int64_t version)
{
  char *found_format;
  int64_t found_version;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadString(file, file->id, "", "format", &found, &found_format));
  PetscCheck(found, PETSC_COMM_SELF, TRS_ERR_DATA, "%s has no attribute format: expected \"%s\"", file->path,
             format);
  PetscCheck(strcmp(found_format, format) == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute format is \"%.100s\", expected \"%s\"", file->path, found_format, format);
  PetscCall(PetscFree(found_format));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "version", 1, NULL, &found_version));
  PetscCheck(found_version == version, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s is version %" PRId64 " of %s, this program reads version %" PRId64, file->path,
             found_version, format, version);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5HalfType(hid_t *type)
{
  PetscFunctionBegin;
  TrsCallHDF5(*type = H5Tcopy(H5T_IEEE_F32LE));
  /*
    The arguments are the positions and sizes of sign, exponent and mantissa. The fields are set
    before the size is reduced, because they must fit into the smaller size.
  */
  TrsCallHDF5(H5Tset_fields(*type, 15, 10, 5, 0, 10));
  TrsCallHDF5(H5Tset_size(*type, 2));
  TrsCallHDF5(H5Tset_ebias(*type, 15));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_file(const char *path, hid_t *file)
{
  hid_t access;

  PetscFunctionBegin;
  PetscCall(start_hdf5());
  TrsCallHDF5(access = H5Pcreate(H5P_FILE_ACCESS));
  TrsCallHDF5(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG));
  TrsCallHDF5(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110));
  TrsCallHDF5(H5Pset_alignment(access, 65536, 4096));
  /*
    No other process can open a file in memory, and locking would fail on a system without locks.
  */
  TrsCallHDF5(H5Pset_file_locking(access, 0, 1));
  /* HDF5's default driver rejects a name that is a link, so use its stdio driver. */
  TrsCallHDF5(H5Pset_fapl_stdio(access));
  *file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  (void)H5Pclose(access);
  PetscCheck(*file >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be created%s", path, TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5CreateFile(hid_t *file, int *memory)
{
  char path[64];
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *memory = memfd_create("trshard", MFD_CLOEXEC);
  PetscCheck(*memory >= 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no file in memory can be made: %s",
             strerror(errno));
  snprintf(path, sizeof(path), "/proc/self/fd/%d", *memory);
  ierr = create_file(path, file);
  if (ierr != PETSC_SUCCESS) {
    (void)close(*memory);
    *memory = -1;
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5CreateDataset(hid_t file, const char *name, hid_t type, int ndim, const int64_t *dims,
                                    const int64_t *chunk, PetscBool reserve, hid_t *dataset)
{
  hid_t links, create, space;
  hsize_t extent[2], chunk_extent[2];

  PetscFunctionBegin;
  for (int d = 0; d < ndim; d++) {
    extent[d] = (hsize_t)dims[d];
    if (chunk) chunk_extent[d] = (hsize_t)chunk[d];
  }
  TrsCallHDF5(links = H5Pcreate(H5P_LINK_CREATE));
  TrsCallHDF5(H5Pset_create_intermediate_group(links, 1));
  TrsCallHDF5(create = H5Pcreate(H5P_DATASET_CREATE));
  /* Without times in the file, equal contents give equal files. */
  TrsCallHDF5(H5Pset_obj_track_times(create, 0));
  if (chunk) TrsCallHDF5(H5Pset_chunk(create, ndim, chunk_extent));
  if (reserve) {
    TrsCallHDF5(H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY));
    TrsCallHDF5(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER));
  }
  TrsCallHDF5(space = H5Screate_simple(ndim, extent, NULL));
  TrsCallHDF5(*dataset = H5Dcreate2(file, name, type, space, links, create, H5P_DEFAULT));
  TrsCallHDF5(H5Sclose(space));
  TrsCallHDF5(H5Pclose(create));
  TrsCallHDF5(H5Pclose(links));
  PetscFunctionReturn(PETSC_SUCCESS);
}
