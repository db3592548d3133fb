/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/terminal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRS_MAX_ANCESTORS = 4 };

/*
  Read a process's name and parent from "pid (name) state parent ...". Returns false if this is not
  possible.
*/
static PetscBool look_at(int pid, char name[64], int *parent)
{
  char path[64], line[512] = "";
  const char *from, *to;
  FILE *file;
  PetscBool ok;

  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  file = fopen(path, "r");
  if (!file) return PETSC_FALSE;
  ok = (PetscBool)(fgets(line, sizeof(line), file) != NULL);
  (void)fclose(file);
  from = strchr(line, '(');
  to = strrchr(line, ')');
  if (!ok || !from || !to || strlen(to) < 5) return PETSC_FALSE;
  *parent = (int)strtol(to + 4, NULL, 10); /* skip ") S " */
  snprintf(name, 64, "%.*s", (int)(to - from - 1), from + 1);
  return PETSC_TRUE;
}

static PetscBool is_launcher(const char *name)
{
  static const char *const names[] = {"mpirun",          "mpiexec",        "orterun", "orted",
                                      "prterun",         "prted",          "prun",    "mpiexec.hydra",
                                      "hydra_pmi_proxy", "mpiexec.openmpi"};

  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    /* the kernel keeps only 15 characters of a name */
    if (strncmp(name, names[i], 15) == 0) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

PetscBool TrsStdoutIsTerminal(void)
{
  int pid = (int)getppid(), launcher = 0, parent;
  char name[64], path[64], to[64];
  struct stat out;
  ssize_t n;

  if (fstat(STDOUT_FILENO, &out) != 0 || S_ISREG(out.st_mode)) return PETSC_FALSE;
  for (int i = 0; i < TRS_MAX_ANCESTORS && pid > 1 && look_at(pid, name, &parent); i++) {
    /* choose the topmost launcher, because a shell may be between a launcher and this process */
    if (is_launcher(name)) launcher = pid;
    pid = parent;
  }
  if (!launcher) return (PetscBool)(isatty(STDOUT_FILENO) == 1);
  snprintf(path, sizeof(path), "/proc/%d/fd/1", launcher);
  n = readlink(path, to, sizeof(to) - 1);
  to[PetscMax(n, 0)] = '\0';
  return (PetscBool)(strncmp(to, "/dev/pts/", 9) == 0 || strncmp(to, "/dev/tty", 8) == 0 ||
                     strcmp(to, "/dev/console") == 0);
}

PetscBool TrsStdoutTakes(int wait_ms)
{
  struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

  return (PetscBool)(poll(&out, 1, wait_ms) != 0);
}
