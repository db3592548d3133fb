/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/c_locale.h"

locale_t TrsCLocale(void)
{
  /* This makes no object: the C library has one of this locale. */
  return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}
