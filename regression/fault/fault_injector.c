/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* needed for RTLD_NEXT */
#include "fault_injector.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

const char *const fault_functions[] = {"pwrite", "fsync", "rename", "fallocate", "ftruncate", "open", NULL};

/* All functions whose calls are counted. */
static const char *const counted[] = {"pwrite", "fsync",   "rename", "fallocate", "ftruncate",
                                      "open",   "pread",   "read",   "write",     "fopen",
                                      "close",  "opendir", "unlink", "mkdir",     "malloc"};
enum { N_COUNTED = sizeof(counted) / sizeof(counted[0]) };

static struct {
  const char *function; /* NULL if no fault is armed */
  const char *part;
  int n, what;
  pid_t process;
} armed;
static _Atomic int counts[N_COUNTED];

static int index_of(const char *function)
{
  int i = 0;

  while (i < N_COUNTED && strcmp(counted[i], function) != 0) i++;
  return i;
}

void fault_arm(const char *function, const char *part, int n, int what)
{
  for (int i = 0; i < N_COUNTED; i++) counts[i] = 0;
  armed.part = part;
  armed.n = n;
  armed.what = what;
  armed.process = getpid();
  armed.function = function;
}

int fault_disarm(void)
{
  int i = armed.function ? index_of(armed.function) : N_COUNTED;

  armed.function = NULL;
  return i < N_COUNTED ? counts[i] : 0;
}

void fault_write_counts(const char *path)
{
  FILE *file;

  armed.function = NULL;
  file = fopen(path, "w");
  if (!file) return;
  for (int i = 0; i < N_COUNTED; i++) fprintf(file, "%s %d\n", counted[i], counts[i]);
  fclose(file);
}

static void die(void)
{
  if (armed.what == FAULT_KILL_JOB) kill(getppid(), SIGKILL);
  kill(armed.process, SIGKILL);
}

int fault_strikes(const char *function, const char *path)
{
  int i;

  if (!armed.function || (path && !strstr(path, armed.part))) return 0;
  i = index_of(function);
  if (i == N_COUNTED) return 0;
  if (atomic_fetch_add(&counts[i], 1) + 1 != armed.n || strcmp(function, armed.function) != 0) return 0;
  /* a child process is never killed */
  if (armed.what < FAULT_SHORT && armed.process != getpid()) return 0;
  if (armed.what == FAULT_KILL || armed.what == FAULT_KILL_JOB) die();
  if (armed.what < 0) return 2;
  errno = armed.what;
  return 1;
}

void fault_after_half(void)
{
  if (armed.what == FAULT_KILL_HALF) die();
}

/* Find the path of an open file. Returns 0 if there is none. */
static int path_of(int fd, char path[4096])
{
  char link[64];
  ssize_t n;

  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  n = readlink(link, path, 4095);
  if (n < 0) return 0;
  path[n] = '\0';
  return 1;
}

static int strikes_fd(const char *function, int fd)
{
  char path[4096];

  return armed.function && path_of(fd, path) ? fault_strikes(function, path) : 0;
}

static struct {
  const char *part; /* NULL: no file is slow */
  double bytes_per_s;
} slow;

void fault_slow(const char *part, double bytes_per_s)
{
  slow.bytes_per_s = bytes_per_s;
  slow.part = part;
}

/* Take as long as a slow disk takes for n bytes. */
static void slow_down(int fd, size_t n)
{
  const double s = slow.part ? (double)n / slow.bytes_per_s : 0;
  struct timespec left = {.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - (double)(time_t)s))};
  char path[4096];

  if (!slow.part || !path_of(fd, path) || !strstr(path, slow.part)) return;
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* Find the function of the C library with this name. */
static void find_next(const char *name, void *pointer_to_function)
{
  void *next = dlsym(RTLD_NEXT, name);

  memcpy(pointer_to_function, &next, sizeof(next));
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
  static ssize_t (*next)(int, const void *, size_t, off64_t);
  int strike = strikes_fd("pwrite", fd);
  ssize_t done;

  if (!next) find_next("pwrite64", &next);
  if (strike == 1) return -1;
  slow_down(fd, n);
  if (strike == 0) return next(fd, data, n, offset);
  done = next(fd, data, n > 1 ? n / 2 : n, offset);
  fault_after_half();
  return done;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
  return pwrite64(fd, data, n, offset);
}

ssize_t write(int fd, const void *data, size_t n)
{
  static ssize_t (*next)(int, const void *, size_t);
  int strike = strikes_fd("write", fd);
  ssize_t done;

  if (!next) find_next("write", &next);
  if (strike == 1) return -1;
  if (strike == 0) return next(fd, data, n);
  done = next(fd, data, n > 1 ? n / 2 : n);
  fault_after_half();
  return done;
}

ssize_t pread64(int fd, void *data, size_t n, off64_t offset)
{
  static ssize_t (*next)(int, void *, size_t, off64_t);
  int strike = strikes_fd("pread", fd);

  if (!next) find_next("pread64", &next);
  if (strike == 1) return -1;
  return next(fd, data, strike == 2 && n > 1 ? n / 2 : n, offset);
}

ssize_t pread(int fd, void *data, size_t n, off_t offset)
{
  return pread64(fd, data, n, offset);
}

ssize_t read(int fd, void *data, size_t n)
{
  static ssize_t (*next)(int, void *, size_t);
  int strike = strikes_fd("read", fd);

  if (!next) find_next("read", &next);
  if (strike == 1) return -1;
  return next(fd, data, strike == 2 && n > 1 ? n / 2 : n);
}

int fsync(int fd)
{
  static int (*next)(int);

  if (!next) find_next("fsync", &next);
  return strikes_fd("fsync", fd) ? -1 : next(fd);
}

/* Like Linux, close the file even if the call fails. */
int close(int fd)
{
  static int (*next)(int);
  int strike = strikes_fd("close", fd), result;

  if (!next) find_next("close", &next);
  result = next(fd);
  if (strike != 1) return result;
  errno = armed.what;
  return -1;
}

int rename(const char *from, const char *to)
{
  static int (*next)(const char *, const char *);

  if (!next) find_next("rename", &next);
  return fault_strikes("rename", to) ? -1 : next(from, to);
}

int unlink(const char *path)
{
  static int (*next)(const char *);

  if (!next) find_next("unlink", &next);
  return fault_strikes("unlink", path) ? -1 : next(path);
}

int mkdir(const char *path, mode_t mode)
{
  static int (*next)(const char *, mode_t);

  if (!next) find_next("mkdir", &next);
  return fault_strikes("mkdir", path) ? -1 : next(path, mode);
}

DIR *opendir(const char *path)
{
  static DIR *(*next)(const char *);

  if (!next) find_next("opendir", &next);
  return fault_strikes("opendir", path) ? NULL : next(path);
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

FILE *fopen64(const char *path, const char *mode)
{
  static FILE *(*next)(const char *, const char *);

  if (!next) find_next("fopen64", &next);
  return fault_strikes("fopen", path) ? NULL : next(path, mode);
}

FILE *fopen(const char *path, const char *mode)
{
  return fopen64(path, mode);
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
  return fault_strikes("open", path) ? -1 : next(path, flags, mode);
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
