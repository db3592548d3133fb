/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The places of NVIDIA's libraries that are opened when they are first used: cuBLASLt, NCCL.
  Internal to gpu/.
*/
#pragma once

#include <petscsys.h>

/*
  TrsCudaLibraryOpen - dlopen(name) where the loader looks, then in $CUDA_HOME/lib64,
  $CUDA_PATH/lib64, /usr/local/cuda/lib64 and the folder of the toolkit that built the program.

  Returns NULL if there is no such library; why_not then has the loader's first message, and what
  helps. Not collective.
*/
PETSC_EXTERN void *TrsCudaLibraryOpen(const char *name, char *why_not, size_t why_not_size);
