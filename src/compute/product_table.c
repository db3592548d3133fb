/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/product_table.h"

#include <stdio.h>
#include <string.h>

/* The largest number in an entry, and the most algorithms of a list. */
enum { TRS_MOST_NUMBER = 1000000, TRS_MOST_LISTED = 8 };

/* Read an entry's line. Returns what is wrong with it, or NULL. */
static const char *read_entry(char *line, TrsProductEntry *entry)
{
  int used = 0;

  /* NOLINTNEXTLINE(cert-err34-c): the widths keep numbers in range, and the count tells the rest */
  if (sscanf(line, "%9d of %9d tile %9d parts %9d scheme %9d : %n", &entry->algorithm, &entry->n,
             &entry->tile, &entry->split, &entry->scheme, &used) != 5 ||
      used == 0 || line[used] == '\0')
    return "expected 'ALGORITHM of NUMBER tile TILE parts PARTS scheme SCHEME : SHAPE'";
  if (entry->n < 1 || entry->n > TRS_MOST_LISTED || entry->algorithm < 1 || entry->algorithm > entry->n)
    return "the algorithm is not one of a list of 1 to 8";
  if (entry->tile < 0 || entry->tile > TRS_MOST_NUMBER || entry->split < 0 ||
      entry->split > TRS_MOST_NUMBER || entry->scheme < 0 || entry->scheme > TRS_MOST_NUMBER)
    return "tile, parts and scheme must be between 0 and 1000000";
  entry->shape = line + used;
  return NULL;
}

/* Read a line. *key is the key of the lines so far. */
static PetscErrorCode read_line(TrsProductTable *table, char *line, const char **key, const char **wrong)
{
  const size_t length = strlen(line);
  TrsProductEntry entry = {.key = *key};

  PetscFunctionBegin;
  *wrong = NULL;
  if (length == 0 || line[0] == '#') PetscFunctionReturn(PETSC_SUCCESS);
  if (line[0] == '[') {
    if (length < 3 || line[length - 1] != ']')
      *wrong = "expected '[GPU, LIBRARY, PRECISION]'";
    else
      line[length - 1] = '\0';
    *key = line + 1;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *wrong = *key ? read_entry(line, &entry) : "expected '[GPU, LIBRARY, PRECISION]' before the first entry";
  if (!*wrong && TrsProductTableFind(table, *key, entry.shape)) *wrong = "this shape has an entry already";
  if (*wrong) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscRealloc((size_t)(table->n + 1) * sizeof(*table->entry), &table->entry));
  table->entry[table->n++] = entry;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductTableParse(const char *text, TrsProductTable *table, int *line, const char **wrong)
{
  const char *key = NULL;
  char *at, *next;

  PetscFunctionBegin;
  *table = (TrsProductTable){.n = 0};
  *line = 0;
  *wrong = NULL;
  PetscCall(PetscStrallocpy(text, &table->text));
  for (at = table->text; at && !*wrong; at = next) {
    next = strchr(at, '\n');
    if (next) *next++ = '\0';
    at[strcspn(at, "\r")] = '\0';
    ++*line;
    PetscCall(read_line(table, at, &key, wrong));
  }
  if (*wrong)
    PetscCall(TrsProductTableFree(table));
  else
    *line = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsProductEntry *TrsProductTableFind(const TrsProductTable *table, const char *key, const char *shape)
{
  for (int i = 0; i < table->n; i++)
    if (strcmp(table->entry[i].shape, shape) == 0 && strcmp(table->entry[i].key, key) == 0)
      return &table->entry[i];
  return NULL;
}

PetscBool TrsProductTableHas(const TrsProductTable *table, const char *key)
{
  for (int i = 0; i < table->n; i++)
    if (strcmp(table->entry[i].key, key) == 0) return PETSC_TRUE;
  return PETSC_FALSE;
}

PetscErrorCode TrsProductTableFree(TrsProductTable *table)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(table->entry));
  PetscCall(PetscFree(table->text));
  *table = (TrsProductTable){.n = 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
