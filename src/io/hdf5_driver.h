/* SPDX-License-Identifier: BSD-3-Clause */
/*
  How HDF5 reads files from elsewhere: by pread, with a look at each heap of strings before the library parses it. HDF5 1.10 goes round for ever in a heap
  ("global heap collection") with an object of size 0. Internal to io/.
*/
#pragma once

#include <hdf5.h>

/* Have files that are opened with this access list read so, and for reading alone. Under the lock. Negative: failed. */
herr_t TrsHDF5DriverUse(hid_t access);
