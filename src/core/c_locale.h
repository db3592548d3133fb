/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The locale in which a thread of the library works. The program never calls setlocale(), but a
  program that calls the library may have done so, and strtod() and printf() would then take a
  decimal comma.
*/
#pragma once

#include <locale.h>

/*
  Give the calling thread the C locale, and return the locale that the thread had, for
  uselocale(). Not collective. A new thread has the locale of the process, whatever the thread has
  that makes it.
*/
locale_t TrsCLocale(void);
