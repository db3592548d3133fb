/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: check a mapping, compare it with a good one, and name its dense features. For
  any text, each call must succeed or give one DATA error. A mapping never differs from itself.
*/
#include "fuzz_start.h"
#include "spec/mapping.h"

#include <string.h>

/* Compare two mappings in both directions. They must differ in both or in none. */
static void compare(const TrsMapping *a, const TrsMapping *b)
{
  static const int dense[] = {2, 0};
  static char w[] = "w", *features[] = {w};
  TrsTableConfig table = {.n_features = 1, .features = features};
  const TrsTableConfigs tables[] = {{.n = 0}, {.n = 1, .table = &table}};
  char one[TRS_MAPPING_TEXT], other[TRS_MAPPING_TEXT];

  for (int n = 0; n <= 2; n++) {
    const TrsMappingUse use = {.n_dense = n, .dense = dense, .tables = n ? &tables[n - 1] : NULL};

    if (data_or_success(TrsMappingDifference(a, b, &use, one)) ||
        data_or_success(TrsMappingDifference(b, a, &use, other)))
      abort();
    if (!one[0] != !other[0]) abort();
    if (!data_or_success(TrsMappingCompare(a, b, &use)) != !one[0]) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char good[] =
      "{\"format\":\"trshard-mapping\",\"version\":1,\"dense\":[{\"name\":\"a\"},{\"name\":\"b\",\"log1p\":"
      "true},{\"name\":\"c\"}],\"sparse\":[{\"name\":\"u\",\"rows\":9,\"modulo\":true},{\"name\":\"w\","
      "\"vocabulary\":[\"x\",\"y\"]}],\"time\":{\"unit\":\"s\"}}";
  char *text = malloc(size + 2), **names;
  TrsMapping found = {"found", text}, again = {"again", NULL}, known = {"known", good};

  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  if (!data_or_success(TrsMappingCheck(&found, -1))) {
    compare(&found, &known);
    (void)data_or_success(TrsMappingCheck(&found, 3));
    if (!data_or_success(TrsMappingDenseNames(&found, 2, NULL, &names))) (void)PetscFree(names);
    /* The same text with a blank at its end is parsed again, and is equal. */
    again.text = strcat(strcpy(malloc(strlen(text) + 2), text), " ");
    if (data_or_success(TrsMappingCompare(&found, &again, &(TrsMappingUse){.n_dense = 1}))) abort();
    free((char *)(uintptr_t)again.text);
  }
  TrsErrorClear();
  free(text);
  return 0;
}
