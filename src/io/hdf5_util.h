/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This program uses the serial HDF5 library, with one call at a time, and does not trust a file's
  contents. Internal to io/.

  The library is not thread-safe, so every call is made under TrsHDF5Lock(). A function that takes
  the lock must release it on all paths. So functions that lock are small wrappers around functions
  that may fail.
*/
#pragma once

#include "core/error.h"

#include <hdf5.h>

#include <stdint.h>

/*
  Return the innermost message of the library's error stack, in brackets, or "" if there is none.
  The string is borrowed until the next call.
*/
const char *TrsHDF5Error(void);

/*
  Check a call that returns an id or a status. If it fails, raise IO with HDF5's own reason. The
  caller adds the file's name.
*/
#define TrsCallHDF5(call) \
  PetscCheck((call) >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "HDF5 call failed: %s%s", #call, TrsHDF5Error())

/*
  Check a call that reads a file (TrsHDF5File *file). If it fails, the file's contents are wrong, so
  raise DATA.
*/
#define TrsReadHDF5(file, call) \
  PetscCheck((call) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s is damaged: %s%s", (file)->path, #call, \
             TrsHDF5Error())

void TrsHDF5Lock(void);
void TrsHDF5Unlock(void);

/* A file that is open for reading in HDF5, and with a descriptor for direct reads. */
typedef struct {
  const char *path; /* borrowed */
  hid_t id;         /* closing it closes all its objects */
  int fd;
  int64_t bytes;
} TrsHDF5File;

/*
  TrsHDF5FileOpen - Open any file for reading.

  Not collective. Errors: NO_INPUT (missing, unreadable, not a regular file), DATA (empty, not HDF5,
  truncated or damaged)
*/
PetscErrorCode TrsHDF5FileOpen(const char *path, TrsHDF5File *file);
PetscErrorCode TrsHDF5FileClose(TrsHDF5File *file); /* accepts an opened or a zeroed struct */

/*
  Open a file with H5Fopen() again after it was checked. A negative result means failure. Any thread
  may call it. It raises no errors.
*/
hid_t TrsHDF5OpenAgain(const char *path);

/*
  TrsHDF5Open - Open a group or dataset by a path of hard links. Soft and external links are
    refused.

  Not collective.

  Out:    id  -1 if the object is missing
  Errors: DATA (the link is not a hard link, or the object has another type)
*/
PetscErrorCode TrsHDF5Open(const TrsHDF5File *file, const char *name, H5I_type_t type, hid_t *id);

/*
  TrsHDF5EachDataset - Call visit(context, name) for each dataset in a group and its subgroups, in
    the order of their names.

  The first call that fails ends the iteration. A group that does not exist has no datasets. Not
  collective.

  Errors: those of visit and of TrsHDF5Open()
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
  TrsHDF5CheckDataset - Check the form of a dataset: it has at most 2 dimensions, its elements are
    numbers, it is stored completely in this file, and it has either no filters or only known
    filters.

  Not collective. Errors: DATA, with the form that was found
*/
PetscErrorCode TrsHDF5CheckDataset(const TrsHDF5File *file, const char *name, hid_t dataset,
                                   TrsHDF5Shape *shape);

/*
  Write the type and the shape, such as "float32 [60, 8]", into text [n]. The word for the type
  depends on its class and size.
*/
void TrsHDF5ShapeText(const TrsHDF5Shape *shape, char *text, size_t n);

/*
  Read attributes: strings of fixed or variable length, integers of any width. If `found` is NULL, a
  missing attribute is an error (DATA). Free strings with PetscFree(). A list of strings is one
  block of memory.
*/
PetscErrorCode TrsHDF5ReadString(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                 PetscBool *found, char **text);
PetscErrorCode TrsHDF5ReadStrings(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                  int *n, char ***list);
PetscErrorCode TrsHDF5ReadInts(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                               int n, PetscBool *found, int64_t *values);

/*
  Read a counter, an integer attribute of the root from 0 to `most`. If it does not exist, *value
  stays unchanged. Errors: DATA with the value.
*/
PetscErrorCode TrsHDF5ReadCount(const TrsHDF5File *file, const char *name, int64_t most, int64_t *value);

/* Read all numbers of an attribute of any float type: *values [*n], free with PetscFree(). */
PetscErrorCode TrsHDF5ReadReals(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                PetscBool *found, int *n, double **values);

/*
  Check the root attributes format and version. Errors: DATA if the format is another one, or if
  this program does not know the version.
*/
PetscErrorCode TrsHDF5CheckFormat(const TrsHDF5File *file, const char *format, int64_t version);

/*
  Write a text as an attribute. If `fixed` is set, its bytes lie in checksummed metadata. If not, it
  has variable length, like a str written by h5py.
*/
PetscErrorCode TrsHDF5WriteString(hid_t object, const char *name, const char *text, PetscBool fixed);
PetscErrorCode TrsHDF5WriteInts(hid_t object, const char *name, int n,
                                const int64_t *values); /* n = 0 writes a scalar */
PetscErrorCode TrsHDF5WriteReals(hid_t object, const char *name, int n, const double *values);

/*
  TrsHDF5CreateFile - Make a new file in the latest format (checksummed metadata), in memory.

  HDF5 writes to an anonymous sparse file in memory, which TrsAtomicFill() copies to disk after
  H5Fclose(). If HDF5 wrote to disk itself and a write failed, it would crash at the program's end.
  Reserved data needs no memory until it is written. Not collective.

  Out:  file    close with H5Fclose()
        memory  descriptor; the caller must close it
*/
PetscErrorCode TrsHDF5CreateFile(hid_t *file, int *memory);

/*
  Create a dataset and the groups on its path. If chunk is NULL, the dataset is contiguous. If
  `reserve` is set, its space in the file is allocated now, so that other processes can write to it.
*/
PetscErrorCode TrsHDF5CreateDataset(hid_t file, const char *name, hid_t type, int ndim, const int64_t *dims,
                                    const int64_t *chunk, PetscBool reserve, hid_t *dataset);

/* Make the type IEEE half, little endian (h5py's float16). Close it with H5Tclose(). */
PetscErrorCode TrsHDF5HalfType(hid_t *type);
