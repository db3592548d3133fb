/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This driver reads files from elsewhere by pread, and checks each heap of strings before the
  library parses it. HDF5 1.10 loops forever in a heap ("global heap collection") with an object of
  size 0. Internal to io/.
*/
#pragma once

#include <hdf5.h>

/*
  Make HDF5 use this driver for files that are opened with this access list, for reading only. Under
  the lock. A negative result means failure.
*/
herr_t TrsHDF5DriverUse(hid_t access);

/*
  Share the lock of a file, and tell whether that failed because another program has it for writing.
  A file system without locks has no locked files.
*/
int TrsHDF5DriverIsLocked(int fd);
