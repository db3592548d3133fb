/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "fault_injector.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

const char *const fault_functions[] = {"pwrite", "fsync", "rename", "fallocate", "ftruncate", "open", NULL};

static struct {
  const char *function; /* NULL: disarmed */
  const char *part;
  int n, what, count;
} armed;

void fault_arm(const char *function, const char *part, int n, int what)
{
  armed.function = function;
  armed.part = part;
  armed.n = n;
  armed.what = what;
  armed.count = 0;
}

int fault_disarm(void)
{
  armed.function = NULL;
  return armed.count;
}

/* 0: go on; 1: fail, errno is set; 2: half of it. */
static int strikes(const char *function, const char *path)
{
  if (!armed.function || strcmp(function, armed.function) != 0 || !strstr(path, armed.part)) return 0;
  if (++armed.count != armed.n) return 0;
  if (armed.what == FAULT_KILL) kill(getpid(), SIGKILL);
  if (armed.what < 0) return 2;
  errno = armed.what;
  return 1;
}

static int strikes_fd(const char *function, int fd)
{
  char link[64], path[4096];
  ssize_t n;

  if (!armed.function) return 0;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  n = readlink(link, path, sizeof(path) - 1);
  if (n < 0) return 0;
  path[n] = '\0';
  return strikes(function, path);
}

/* The C library's function of that name. */
static void find_next(const char *name, void *pointer_to_function)
{
  void *next = dlsym(RTLD_NEXT, name);

  memcpy(pointer_to_function, &next, sizeof(next));
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
  static ssize_t (*next)(int, const void *, size_t, off64_t);
  int strike = strikes_fd("pwrite", fd);

  if (!next) find_next("pwrite64", &next);
  if (strike == 1) return -1;
  if (strike == 2) {
    ssize_t done = next(fd, data, n > 1 ? n / 2 : n, offset);

    if (armed.what == FAULT_KILL_HALF) kill(getpid(), SIGKILL);
    return done;
  }
  return next(fd, data, n, offset);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
  return pwrite64(fd, data, n, offset);
}

int fsync(int fd)
{
  static int (*next)(int);

  if (!next) find_next("fsync", &next);
  return strikes_fd("fsync", fd) ? -1 : next(fd);
}

int rename(const char *from, const char *to)
{
  static int (*next)(const char *, const char *);

  if (!next) find_next("rename", &next);
  return strikes("rename", to) ? -1 : next(from, to);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t n)
{
  static int (*next)(int, int, off64_t, off64_t);

  if (!next) find_next("fallocate64", &next);
  return strikes_fd("fallocate", fd) ? -1 : next(fd, mode, offset, n);
}

int fallocate(int fd, int mode, off_t offset, off_t n)
{
  return fallocate64(fd, mode, offset, n);
}

int ftruncate64(int fd, off64_t n)
{
  static int (*next)(int, off64_t);

  if (!next) find_next("ftruncate64", &next);
  return strikes_fd("ftruncate", fd) ? -1 : next(fd, n);
}

int ftruncate(int fd, off_t n)
{
  return ftruncate64(fd, n);
}

int open64(const char *path, int flags, ...)
{
  static int (*next)(const char *, int, ...);
  mode_t mode = 0;

  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list list;

    va_start(list, flags);
    mode = (mode_t)va_arg(list, unsigned);
    va_end(list);
  }
  if (!next) find_next("open64", &next);
  return strikes("open", path) ? -1 : next(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
  mode_t mode = 0;

  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list list;

    va_start(list, flags);
    mode = (mode_t)va_arg(list, unsigned);
    va_end(list);
  }
  return open64(path, flags, mode);
}
