/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/host_memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRS_LINE = 512 };

/* The files of a memory controller. `caches` has the names of lines in memory.stat. */
typedef struct {
  const char *mount, *limit, *usage, *caches[2];
} TrsController;

static const TrsController version_1 = {.mount = "sys/fs/cgroup/memory",
                                        .limit = "memory.limit_in_bytes",
                                        .usage = "memory.usage_in_bytes",
                                        .caches = {"total_inactive_file ", "total_active_file "}},
                           version_2 = {.mount = "sys/fs/cgroup",
                                        .limit = "memory.max",
                                        .usage = "memory.current",
                                        .caches = {"inactive_file ", "active_file "}};

/*
  Add the numbers that follow the words in the lines of a file. Returns how many numbers were added.
  The word "" matches every line.
*/
static int add_numbers(const char *path, int n, const char *const *words, int64_t *sum)
{
  FILE *file = fopen(path, "r");
  char line[TRS_LINE], *end;
  int n_found = 0;

  *sum = 0;
  while (file && fgets(line, sizeof(line), file))
    for (int i = 0; i < n; i++) {
      const size_t length = strlen(words[i]);
      long long number;

      if (strncmp(line, words[i], length) != 0) continue;
      number = strtoll(line + length, &end, 10);
      if (end == line + length) continue; /* the line has "max" instead of a number */
      *sum += number;
      n_found++;
    }
  if (file) (void)fclose(file);
  return n_found;
}

static int add_of_group(const char *folder, const char *name, int n, const char *const *words, int64_t *sum)
{
  char path[PATH_MAX + 64];

  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return add_numbers(path, n, words, sum);
}

/*
  If a group's limit is lower than the numbers so far, lower them. Memory for file caches is counted
  as free, because the system would drop the caches.
*/
static void heed_group(const TrsController *controller, const char *folder, TrsHostMemory *memory)
{
  static const char *const alone[] = {""};
  int64_t limit, usage, caches, left;

  if (add_of_group(folder, controller->limit, 1, alone, &limit) != 1) return;
  if (add_of_group(folder, controller->usage, 1, alone, &usage) != 1) return;
  (void)add_of_group(folder, "memory.stat", 2, controller->caches, &caches);
  left = limit - usage + (caches < usage ? caches : usage);
  if (left < 0) left = 0;
  if (limit < memory->total_bytes) memory->total_bytes = limit;
  if (left < memory->free_bytes) memory->free_bytes = left;
}

/*
  Apply the limits of a group and of all groups above it. In a container, the group's path may not
  exist, but its mount does.
*/
static void heed_groups(const TrsController *controller, const char *root, char *group, TrsHostMemory *memory)
{
  char folder[PATH_MAX];

  for (;;) {
    char *last = strrchr(group, '/');

    snprintf(folder, sizeof(folder), "%s/%s%s", root, controller->mount, group);
    heed_group(controller, folder, memory);
    if (!last) return;
    *last = '\0';
  }
}

TrsHostMemory TrsHostMemoryGet(const char *root)
{
  static const char *const available[] = {"MemAvailable:", "SwapFree:"};
  const int64_t physical = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
  TrsHostMemory memory = {.free_bytes = physical, .total_bytes = physical};
  char path[PATH_MAX], line[PATH_MAX];
  int64_t kib;
  FILE *file;

  snprintf(path, sizeof(path), "%s/proc/meminfo", root);
  if (add_numbers(path, 2, available, &kib) == 2) memory.free_bytes = kib * 1024;
  snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
  file = fopen(path, "r");
  /* Lines are number:controllers:group. In version 2 the controllers are empty; in version 1
     they are a list. */
  while (file && fgets(line, sizeof(line), file)) {
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    char list[TRS_LINE];

    if (!group) continue;
    group[strcspn(group, "\n")] = '\0';
    snprintf(list, sizeof(list), ",%.*s,", (int)(group - controllers - 1), controllers + 1);
    if (strcmp(list, ",,") == 0) heed_groups(&version_2, root, group + 1, &memory);
    if (strstr(list, ",memory,")) heed_groups(&version_1, root, group + 1, &memory);
  }
  if (file) (void)fclose(file);
  return memory;
}
