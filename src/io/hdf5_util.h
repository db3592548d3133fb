/* SPDX-License-Identifier: BSD-3-Clause */
/*
  HDF5 as this program uses it: serial, one call at a time, and not trusting what a file says. Internal to io/.

  The library is not thread-safe: every call is made under TrsHDF5Lock(). Whoever takes the lock gives it back on all paths, so
  locking functions are thin shells around ones that may fail.
*/
#pragma once

#include "core/error.h"

#include <hdf5.h>

#include <stdint.h>

/* What the library says went wrong: the innermost message of its stack, in brackets; "" when there is none. Borrowed until the next call. */
const char *TrsHDF5Error(void);

/* For calls that return an id or a status: raises IO with the library's own reason. The name of the file comes from the caller's context. */
#define TrsCallHDF5(call) \
  PetscCheck((call) >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "HDF5 call failed: %s%s", #call, TrsHDF5Error())

/* The same for a file that is read (TrsHDF5File *file): if a call fails, what the file says is wrong: DATA. */
#define TrsReadHDF5(file, call) \
  PetscCheck((call) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s is damaged: %s%s", (file)->path, #call, \
             TrsHDF5Error())

void TrsHDF5Lock(void);
void TrsHDF5Unlock(void);

/* A file opened for reading, by HDF5 and by descriptor (direct reads). */
typedef struct {
  const char *path; /* borrowed */
  hid_t id;         /* closing it closes all its objects */
  int fd;
  int64_t bytes;
} TrsHDF5File;

/*
  TrsHDF5FileOpen - Open for reading a file that may be anything.

  Not collective. Errors: NO_INPUT (missing, unreadable, not a regular file), DATA (empty, not HDF5, truncated or damaged)
*/
PetscErrorCode TrsHDF5FileOpen(const char *path, TrsHDF5File *file);
PetscErrorCode TrsHDF5FileClose(TrsHDF5File *file); /* an opened or a zeroed one */

/* H5Fopen() as above of a file that was checked; negative: not opened. Any thread, nothing is raised. */
hid_t TrsHDF5OpenAgain(const char *path);

/*
  TrsHDF5Open - Open a group or dataset by a path of hard links: soft and external links are refused.

  Not collective. Out: id  -1 when absent
  Errors: DATA (a link that is not hard, an object of another type)
*/
PetscErrorCode TrsHDF5Open(const TrsHDF5File *file, const char *name, H5I_type_t type, hid_t *id);

/*
  TrsHDF5EachDataset - visit(context, name) for each dataset in a group and the groups in it, by name, until one fails. Nothing where there is no such group.

  Not collective. Errors: visit's, and those of TrsHDF5Open()
*/
PetscErrorCode TrsHDF5EachDataset(const TrsHDF5File *file, const char *group,
                                  PetscErrorCode (*visit)(void *context, const char *name), void *context);

/* Shape and element type of a dataset. */
typedef struct {
  int ndim;
  int64_t dims[2];
  H5T_class_t type_class;
  size_t type_bytes;
} TrsHDF5Shape;

/*
  TrsHDF5CheckDataset - Is the dataset of at most 2 dimensions, of numbers, stored in this file, whole, and unfiltered or with known filters?

  Not collective. Errors: DATA saying what it is instead
*/
PetscErrorCode TrsHDF5CheckDataset(const TrsHDF5File *file, const char *name, hid_t dataset,
                                   TrsHDF5Shape *shape);

/* "float32 [60, 8]" into text [n]; kind by class and size. */
void TrsHDF5ShapeText(const TrsHDF5Shape *shape, char *text, size_t n);

/*
  Attributes. Strings of fixed or variable length, integers of any width. `found` NULL: absence is an error (DATA).
  Strings: free with PetscFree() (the list: one block).
*/
PetscErrorCode TrsHDF5ReadString(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                 PetscBool *found, char **text);
PetscErrorCode TrsHDF5ReadStrings(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                  int *n, char ***list);
PetscErrorCode TrsHDF5ReadInts(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                               int n, PetscBool *found, int64_t *values);

/* As many numbers of any float type as there are: *values [*n], free with PetscFree(). */
PetscErrorCode TrsHDF5ReadReals(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                PetscBool *found, int *n, double **values);

/* The root attributes format and version. Errors: DATA: another format, or a version that this program does not know */
PetscErrorCode TrsHDF5CheckFormat(const TrsHDF5File *file, const char *format, int64_t version);

/* fixed: the text's bytes lie in checksummed metadata; else of variable length, as h5py writes (read back as str). */
PetscErrorCode TrsHDF5WriteString(hid_t object, const char *name, const char *text, PetscBool fixed);
PetscErrorCode TrsHDF5WriteInts(hid_t object, const char *name, int n,
                                const int64_t *values); /* n 0: a scalar */
PetscErrorCode TrsHDF5WriteReals(hid_t object, const char *name, int n, const double *values);

/*
  TrsHDF5CreateFile - A new file in the latest format (checksummed metadata), in memory.

  What HDF5 writes goes to an anonymous sparse file in memory, which TrsAtomicFill() copies to disk after H5Fclose(): after a write error of its own
  the library crashes when it ends. Reserved data that nobody wrote takes no memory. Not collective.

  Out:  file    close with H5Fclose()
        memory  descriptor; close it yourself
*/
PetscErrorCode TrsHDF5CreateFile(hid_t *file, int *memory);

/* A dataset, and the groups on the way to it. chunk NULL: contiguous. reserve: space in the file now, filled by others. */
PetscErrorCode TrsHDF5CreateDataset(hid_t file, const char *name, hid_t type, int ndim, const int64_t *dims,
                                    const int64_t *chunk, PetscBool reserve, hid_t *dataset);

/* IEEE half, little endian: what h5py calls float16. Close with H5Tclose(). */
PetscErrorCode TrsHDF5HalfType(hid_t *type);
