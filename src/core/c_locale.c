/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/c_locale.h"

locale_t TrsCLocale(void)
{
  /* this allocates nothing, because the C library has a built-in object for this locale */
  return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}
