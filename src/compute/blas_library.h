/* SPDX-License-Identifier: BSD-3-Clause */
/* The BLAS that the program is linked with, for gemm_cpu.c. */
#pragma once

#include <petscsys.h>

#include <stddef.h>

/*
  TrsBlasSetup - Choose the library's kernels and let a product run on the thread that calls it.

  Not collective. Call it once a process, before the first product.

  In:     isa   "avx512", "avx2" or "portable", as TrsComputeIsa() names it
  Out:    text  the library's name, version and kernels in at most n bytes, for reports
  Returns PETSC_TRUE if a product may be cut by columns: its parts then have the bits of the whole.
  An OpenBLAS is asked for the kernels of isa. FlexiBLAS and MKL are asked to use one thread. Of any
  other library nothing is known: the user bounds its threads.
*/
PetscBool TrsBlasSetup(const char *isa, char *text, size_t n);
