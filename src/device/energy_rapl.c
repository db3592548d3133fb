/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/energy_counters.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PetscBool read_number(const char *path, uint64_t *number)
{
  FILE *file = fopen(path, "r");
  char text[32], *end = text;

  if (!file) return PETSC_FALSE;
  if (fgets(text, sizeof(text), file)) *number = strtoull(text, &end, 10);
  (void)fclose(file);
  return (PetscBool)(end != text);
}

/*
  Packages and their memory. A package's parts ("core", "uncore") are in its own count, and the
  package is in that of the whole platform ("psys").
*/
static PetscBool is_counted(const char *folder, const char *zone)
{
  char path[TRS_ENERGY_PATH], name[32] = "";
  FILE *file;

  if (snprintf(path, sizeof(path), "%s/%s/name", folder, zone) >= (int)sizeof(path)) return PETSC_FALSE;
  file = fopen(path, "r");
  if (!file) return PETSC_FALSE;
  (void)!fgets(name, sizeof(name), file);
  (void)fclose(file);
  return (PetscBool)(strncmp(name, "package", 7) == 0 || strncmp(name, "dram", 4) == 0);
}

static PetscBool open_counter(const char *folder, const char *zone, TrsRaplCounter *counter)
{
  char range[TRS_ENERGY_PATH];

  if (snprintf(counter->path, sizeof(counter->path), "%s/%s/energy_uj", folder, zone) >= TRS_ENERGY_PATH ||
      snprintf(range, sizeof(range), "%s/%s/max_energy_range_uj", folder, zone) >= TRS_ENERGY_PATH)
    return PETSC_FALSE;
  return (PetscBool)(read_number(counter->path, &counter->last_uj) &&
                     read_number(range, &counter->range_uj) && counter->range_uj > 0);
}

int TrsRaplFind(const char *folder, int n_max, TrsRaplCounter *counters)
{
  DIR *directory = opendir(folder);
  const struct dirent *entry;
  PetscBool readable = PETSC_TRUE;
  int n = 0;

  if (!directory) return 0;
  while (readable && n < n_max && (entry = readdir(directory)) != NULL) {
    /* intel-rapl:0, intel-rapl:0:1, also on AMD. intel-rapl-mmio:0 is the same package again. */
    if (strncmp(entry->d_name, "intel-rapl:", 11) != 0 || !is_counted(folder, entry->d_name)) continue;
    readable = open_counter(folder, entry->d_name, &counters[n++]);
  }
  (void)closedir(directory);
  return readable ? n : 0;
}

double TrsRaplAdvance(TrsRaplCounter *counter)
{
  const uint64_t before = counter->last_uj;
  uint64_t now = 0;

  if (!read_number(counter->path, &now)) return -1;
  counter->last_uj = now;
  return 1e-6 * (double)(now >= before ? now - before : now + (counter->range_uj - before));
}
