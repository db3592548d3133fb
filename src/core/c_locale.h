/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The C locale, in which threads work while they are in the library. The program never calls
  setlocale(). But a program that uses the library may have called it, and strtod() and printf()
  would then use a decimal comma.
*/
#pragma once

#include <locale.h>

/*
  Set the calling thread's locale to C. Returns the thread's previous locale, which uselocale() can
  restore. Not collective. A new thread starts with the locale of the process instead of its
  creator's locale.
*/
locale_t TrsCLocale(void);
