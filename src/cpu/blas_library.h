/* SPDX-License-Identifier: BSD-3-Clause */
/* The BLAS that the program is linked with, for gemm_cpu.c. */
#pragma once

#include <petscsys.h>

#include <stddef.h>

/*
  TrsBlasSetup - Choose the library's kernels.

  An OpenBLAS is asked for the kernels of isa. Any other library is taken as it is.

  Not collective. Call it once a process, before the first product.

  In:     isa   "avx512", "avx2" or "portable", as TrsComputeIsa() names it
  Out:    text  the library's name, version and kernels in at most n bytes, for reports
  Returns PETSC_TRUE if a product may be cut by columns: its parts then have the bits of the whole
  product.
*/
PetscBool TrsBlasSetup(const char *isa, char *text, size_t n);

/*
  TrsBlasPrepare - Let a product run on the thread that calls it, before the first product.

  OpenBLAS, FlexiBLAS and MKL are asked to use one thread. The user bounds the threads of another
  library.

  Not collective.

  In:     n_threads  threads of ours that will multiply at once
  Errors: MEMORY if a limit of the address space leaves OpenBLAS no room for its buffers: without
          the check it would try to map them for ever
*/
PetscErrorCode TrsBlasPrepare(int n_threads);
