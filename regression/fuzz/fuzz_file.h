/* SPDX-License-Identifier: BSD-3-Clause */
/* A file with the input of a fuzz target. It is removed when the process ends. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_path[] = "/dev/shm/fuzz_XXXXXX";
static pid_t fuzz_process;

/* A child process that a preflight forks must not remove the file. */
static void fuzz_file_remove(void)
{
  if (fuzz_process == getpid()) unlink(fuzz_path);
}

/* Returns 0 if the file was created. */
static int fuzz_file_create(void)
{
  int fd = mkstemp(fuzz_path);

  fuzz_process = getpid();
  if (fd < 0) return 1;
  close(fd);
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
