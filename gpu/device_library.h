/* SPDX-License-Identifier: BSD-3-Clause */
/* Where NVIDIA's libraries are that are opened when they are first used: cuBLASLt, NCCL. Internal to gpu/. */
#pragma once

#include <petscsys.h>

/*
  dlopen(name) where the loader looks, then in $CUDA_HOME/lib64, $CUDA_PATH/lib64, /usr/local/cuda/lib64 and the folder of the toolkit that built this. NULL where
  there is none; then why_not has what the loader said first, and what helps. Not collective.
*/
PETSC_EXTERN void *TrsCudaLibraryOpen(const char *name, char *why_not, size_t why_not_size);
