/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The locale in which a thread of the library works. The program never calls setlocale(), but a
  program that uses the library may have called it, and strtod() and printf() would then use a
  decimal comma.
*/
#pragma once

#include <locale.h>

/*
  Set the calling thread's locale to C, and return its previous locale, for uselocale(). Not
  collective. A new thread starts with the process's locale, not with that of its creator.
*/
locale_t TrsCLocale(void);
