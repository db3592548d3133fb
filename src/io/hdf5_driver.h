/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This driver reads files from other programs with pread, and checks each heap of strings before the
  library parses it: an object of size 0 in a heap ("global heap collection") makes HDF5 1.10 loop
  forever. Internal to io/.
*/
#pragma once

#include <hdf5.h>

/*
  Make HDF5 use this driver for files opened with this access list, only for reading. Under the
  lock. A negative result means failure.
*/
herr_t TrsHDF5DriverUse(hid_t access);

/*
  Share the lock of a file. Returns true if another program has locked it for writing. A file system
  without locks has no locked files.
*/
int TrsHDF5DriverIsLocked(int fd);
