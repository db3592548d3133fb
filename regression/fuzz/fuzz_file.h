/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A file with the input of a fuzz target, in a folder of its own. Both are removed when the process
  ends.
*/
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_folder[] = "/dev/shm/fuzz_XXXXXX";
/* the input, and a file that the target may make and that the input may name */
static char fuzz_path[64], fuzz_earlier[64];
static pid_t fuzz_process;

/* A child process that a preflight forks must not remove the file. */
static void fuzz_file_remove(void)
{
  if (fuzz_process != getpid()) return;
  (void)unlink(fuzz_path);
  (void)unlink(fuzz_earlier);
  (void)rmdir(fuzz_folder);
}

/* Returns 0 if the folder was created. */
static int fuzz_file_create(void)
{
  fuzz_process = getpid();
  if (!mkdtemp(fuzz_folder)) return 1;
  snprintf(fuzz_path, sizeof(fuzz_path), "%s/input", fuzz_folder);
  snprintf(fuzz_earlier, sizeof(fuzz_earlier), "%s/step-000000001.h5", fuzz_folder);
  return atexit(fuzz_file_remove);
}

/* Write the bytes to the file. Returns its path, or NULL if it cannot be written. */
static const char *fuzz_file_write(const uint8_t *data, size_t size)
{
  int fd = open(fuzz_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ssize_t n = fd < 0 ? -1 : write(fd, data, size);

  if (fd >= 0) close(fd);
  return n == (ssize_t)size ? fuzz_path : NULL;
}
