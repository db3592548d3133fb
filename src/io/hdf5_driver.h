/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A driver for HDF5 that reads files of other programs with pread. It checks each heap of strings
  ("global heap collection") before HDF5 parses it, because an object of size 0 in a heap makes HDF5
  1.10 loop forever. Internal to io/.
*/
#pragma once

#include <hdf5.h>

/*
  Make HDF5 use this driver for files that are opened with this access list. The driver can only
  read. Call this under the lock. A negative result means failure.
*/
herr_t TrsHDF5DriverUse(hid_t access);

/*
  Take a shared lock on a file. Returns true if another program has locked the file for writing. On
  a file system without locks the result is false.
*/
int TrsHDF5DriverIsLocked(int fd);
