/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This module finds out whether all ranks read the same dataset, because hosts may have copies of
  its files. Internal to io/.
*/
#pragma once

#include "io/dataset_file.h"

/*
  TrsDatasetCheckSame - Compare the files of this rank with those of rank 0, before they are read.

  Compared are: samples, ids, type of the ids and size of each file; columns, names and
  num_embeddings; the contents of 64 samples each at the beginning, in the middle and at the end of
  the dataset. Files that differ elsewhere alone are not noticed. Times of files may differ, because
  copies have times of their own.

  Collective on comm. One rank has nothing to compare, and finds the hash alone.

  In:     dataset  open on all ranks
          file     [n_files] its files
  Out:    sample_hash  as TrsDatasetInfo has it
  Errors (agreed): DATA with the file, the rank and its host, and what differs; those of reading
*/
PetscErrorCode TrsDatasetCheckSame(MPI_Comm comm, TrsDataset dataset, const TrsDatasetFile *file,
                                   int64_t *sample_hash);
