/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* needed for SEEK_DATA. NOLINT(bugprone-reserved-identifier) */
#include "io/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRS_N_DIGITS = 16, TRS_MAX_BASE = 200, TRS_N_TRIES = 16, TRS_MAX_SHOWN = 1000, TRS_MAX_LINKS = 40 };
enum { TRS_JOIN_MS = 5000, TRS_JOIN_POLL_MS = 100 };
static const char suffix[] = ".tmp";
static const int64_t max_call_bytes = (int64_t)1 << 30;

int TrsReadFully(int fd, void *data, int64_t bytes, int64_t offset)
{
  char *to = data;

  while (bytes > 0) {
    ssize_t n = pread(fd, to, (size_t)(bytes < max_call_bytes ? bytes : max_call_bytes), (off_t)offset);

    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENODATA;
    to += n;
    offset += n;
    bytes -= n;
  }
  return 0;
}

int TrsWriteFully(int fd, const void *data, int64_t bytes, int64_t offset)
{
  const char *from = data;

  while (bytes > 0) {
    ssize_t n = pwrite(fd, from, (size_t)(bytes < max_call_bytes ? bytes : max_call_bytes), (off_t)offset);

    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;
    from += n;
    offset += n;
    bytes -= n;
  }
  return 0;
}

/* True if the name has the form ".<prefix>...<16 hex digits>.tmp". */
static PetscBool is_temporary(const char *name, const char *prefix)
{
  size_t n = strlen(name), n_prefix = strlen(prefix), n_suffix = sizeof(suffix) - 1;
  const char *digits;

  if (name[0] != '.' || strncmp(name + 1, prefix, n_prefix) != 0 ||
      n < 1 + n_prefix + TRS_N_DIGITS + n_suffix)
    return PETSC_FALSE;
  digits = name + n - n_suffix - TRS_N_DIGITS;
  if (strcmp(digits + TRS_N_DIGITS, suffix) != 0) return PETSC_FALSE;
  return strspn(digits, "0123456789abcdef") == TRS_N_DIGITS ? PETSC_TRUE : PETSC_FALSE;
}

void TrsAtomicClean(const char *folder, const char *prefix)
{
  DIR *dir = opendir(folder);
  struct dirent *entry;

  if (!dir) return;
  while ((entry = readdir(dir)) != NULL) {
    int fd;

    if (!is_temporary(entry->d_name, prefix)) continue;
    fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)unlinkat(dirfd(dir), entry->d_name, 0);
    (void)close(fd);
  }
  (void)closedir(dir);
}

PetscErrorCode TrsAtomicTarget(const char *path, char **target)
{
  char link[PATH_MAX];
  ssize_t n;

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(path, target));
  for (int i = 0; i < TRS_MAX_LINKS && (n = readlink(*target, link, sizeof(link))) > 0; i++) {
    const char *slash = link[0] == '/' ? NULL : strrchr(*target, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - *target) : 0, room = folder + (size_t)n + 1;
    char *next;

    PetscCall(PetscMalloc1(room, &next));
    snprintf(next, room, "%.*s%.*s", (int)folder, *target, (int)n, link);
    PetscCall(PetscFree(*target));
    *target = next;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the file that a path names, and split it into folder and name. The folder of "run.h5" is ".".
*/
static PetscErrorCode split_path(const char *path, TrsAtomicFile *file, const char **base)
{
  const char *slash;

  PetscFunctionBegin;
  PetscCall(TrsAtomicTarget(path, &file->path));
  slash = strrchr(file->path, '/');
  PetscCall(PetscStrallocpy(slash ? file->path : ".", &file->folder));
  if (slash) file->folder[slash == file->path ? 1 : slash - file->path] = '\0';
  *base = slash ? slash + 1 : file->path;
  PetscCheck(**base, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be created: it names a folder", path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Lock a temporary file that was just made. A cleaner may have opened the file before this lock, and
  then removes it as a left-over. In this case the function returns false, and the caller must make
  another file. On a file system without locks, cleaners remove nothing.
*/
static PetscBool lock_new_file(int fd)
{
  struct stat status;

  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return PETSC_FALSE;
  return (PetscBool)(fstat(fd, &status) != 0 || status.st_nlink > 0);
}

PetscErrorCode TrsAtomicCreate(const char *path, TrsAtomicFile *file)
{
  const char *base = NULL;
  struct stat status;
  size_t n;
  int there;
  char prefix[TRS_MAX_BASE + 2];

  PetscFunctionBegin;
  *file = (TrsAtomicFile){.fd = -1};
  PetscCall(split_path(path, file, &base));
  there = stat(path, &status) == 0;
  /*
    The temporary file's name may be shorter than the final name. So check the final name here,
    because otherwise only the rename would fail.
  */
  PetscCheck(there || (errno != ENAMETOOLONG && errno != ELOOP), PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%.*s%s cannot be created: %s", TRS_MAX_SHOWN, path, strlen(path) > TRS_MAX_SHOWN ? "..." : "",
             strerror(errno));
  PetscCheck(!there || S_ISREG(status.st_mode), PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s cannot be created: something that is not a file has this name", path);
  snprintf(prefix, sizeof(prefix), "%.*s.", TRS_MAX_BASE, base);
  TrsAtomicClean(file->folder, prefix);
  n = strlen(file->folder) + sizeof(prefix) + TRS_N_DIGITS + sizeof(suffix) + 3;
  PetscCall(PetscMalloc1(n, &file->temporary));
  for (int i = 0; i < TRS_N_TRIES && file->fd < 0; i++) {
    uint64_t bits = 0;

    (void)!getrandom(&bits, sizeof(bits), 0);
    snprintf(file->temporary, n, "%s/.%s%016" PRIx64 "%s", file->folder, prefix, bits, suffix);
    file->fd = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file->fd < 0 && errno != EEXIST) break;
    if (file->fd >= 0 && !lock_new_file(file->fd)) {
      (void)close(file->fd);
      file->fd = -1;
      errno = EAGAIN;
    }
  }
  PetscCheck(file->fd >= 0, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be created: %s%s", path,
             strerror(errno), errno == ENOENT ? "; its folder must exist" : "");
  file->made = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsAtomicJoin(const char *temporary)
{
  const struct timespec pause = {.tv_nsec = TRS_JOIN_POLL_MS * 1000000L};
  int fd;

  for (int ms = 0;
       (fd = open(temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC)) < 0 && errno == ENOENT && ms < TRS_JOIN_MS;
       ms += TRS_JOIN_POLL_MS)
    (void)nanosleep(&pause, NULL);
  return fd;
}

PetscErrorCode TrsAtomicTry(const char *path)
{
  TrsAtomicFile file;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = TrsAtomicCreate(path, &file);
  PetscCall(TrsAtomicDiscard(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the contiguous bytes from offset `at` to offset `end`. Returns 0 or an errno. */
static int copy_run(int from, int to, int64_t at, int64_t end)
{
  char block[1 << 16];
  int error = 0;

  while (at < end && !error) {
    int64_t n = end - at < (int64_t)sizeof(block) ? end - at : (int64_t)sizeof(block);

    error = TrsReadFully(from, block, n, at);
    if (!error) error = TrsWriteFully(to, block, n, at);
    at += n;
  }
  return error;
}

PetscErrorCode TrsAtomicFill(TrsAtomicFile *file, int from)
{
  int64_t size = lseek(from, 0, SEEK_END), end = 0;
  int error = size < 0 || ftruncate(file->fd, size) != 0 ? errno : 0;

  PetscFunctionBegin;
  while (!error && end < size) {
    int64_t at = lseek(from, end, SEEK_DATA);

    if (at < 0 && errno == ENXIO) break; /* up to the end there is only a hole */
    end = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
    error = end < 0 ? errno : copy_run(from, file->fd, at, end);
  }
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s", file->path, strerror(error));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAtomicWrite(TrsAtomicFile *file, const void *data, int64_t n_bytes)
{
  const int error = TrsWriteFully(file->fd, data, n_bytes, 0);

  PetscFunctionBegin;
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s", file->path, strerror(error));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAtomicSyncFolder(const TrsAtomicFile *file)
{
  int fd = open(file->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int status, error;

  PetscFunctionBegin;
  PetscCheck(fd >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s: cannot be opened to flush it: %s", file->folder,
             strerror(errno));
  status = fsync(fd);
  error = errno;
  (void)close(fd);
  /* EINVAL means that the file system cannot flush folders. */
  PetscCheck(status == 0 || error == EINVAL, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s is written, but its folder cannot be flushed to disk: %s", file->path, strerror(error));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAtomicPublish(TrsAtomicFile *file)
{
  PetscFunctionBegin;
  PetscCheck(fsync(file->fd) == 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be flushed to disk: %s",
             file->path, strerror(errno));
  /*
    HDF5 readers take a shared lock. A reader that opens the renamed file must get this lock at
    once.
  */
  (void)flock(file->fd, LOCK_SH);
  PetscCheck(rename(file->temporary, file->path) == 0, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s cannot be put in place: %s", file->path, strerror(errno));
  file->made = PETSC_FALSE;
  (void)flock(file->fd, LOCK_UN);
  PetscCall(TrsAtomicSyncFolder(file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAtomicDiscard(TrsAtomicFile *file)
{
  PetscFunctionBegin;
  if (!file->path) PetscFunctionReturn(PETSC_SUCCESS);
  if (file->made) (void)unlink(file->temporary);
  if (file->fd >= 0) (void)close(file->fd);
  PetscCall(PetscFree(file->path));
  PetscCall(PetscFree(file->folder));
  PetscCall(PetscFree(file->temporary));
  memset(file, 0, sizeof(*file));
  PetscFunctionReturn(PETSC_SUCCESS);
}
