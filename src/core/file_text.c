/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/file_text.h"

#include "core/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Check with fstat whether an open file may be read. */
static TrsFileOutcome judge(int fd, int64_t max_bytes, TrsFileText *file)
{
  struct stat status;

  if (fstat(fd, &status) != 0) {
    file->error = errno;
    return TRS_FILE_UNREADABLE;
  }
  file->n_bytes = (int64_t)status.st_size;
  if (S_ISDIR(status.st_mode)) return TRS_FILE_FOLDER;
  if (!S_ISREG(status.st_mode)) return TRS_FILE_IRREGULAR;
  return file->n_bytes > max_bytes ? TRS_FILE_TOO_LARGE : TRS_FILE_READ;
}

/*
  Read as many bytes as the file had when it was opened, or fewer if the file has become shorter.
*/
static PetscErrorCode read_all(int fd, TrsFileText *file)
{
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)file->n_bytes + 1, &file->text));
  while (n < file->n_bytes) {
    const ssize_t got = read(fd, file->text + n, (size_t)(file->n_bytes - n));

    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      file->error = errno;
      file->outcome = TRS_FILE_UNREADABLE;
      PetscCall(PetscFree(file->text));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (got == 0) break;
    n += got;
  }
  file->n_bytes = n;
  file->text[n] = '\0';
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFileReadText(const char *path, int64_t max_bytes, TrsFileText *file)
{
  /* without O_NONBLOCK, open() of a FIFO waits until a writer opens the FIFO */
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  *file = (TrsFileText){.outcome = TRS_FILE_UNREADABLE, .error = errno};
  if (fd < 0) PetscFunctionReturn(PETSC_SUCCESS);
  file->error = 0;
  file->outcome = judge(fd, max_bytes, file);
  if (file->outcome == TRS_FILE_READ) ierr = read_all(fd, file);
  (void)close(fd);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFileReadOption(const char *option, const char *path, const char *expected,
                                 int64_t max_bytes, char **text)
{
  TrsFileText file;

  PetscFunctionBegin;
  PetscCall(TrsFileTrust(path));
  PetscCall(TrsFileReadText(path, max_bytes, &file));
  PetscCheck(file.outcome != TRS_FILE_UNREADABLE, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "%s %s can't be read: %s", option, path, strerror(file.error));
  PetscCheck(file.outcome != TRS_FILE_FOLDER, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "%s %s can't be read: it is a directory", option, path);
  PetscCheck(file.outcome != TRS_FILE_IRREGULAR, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s %s is not a regular file: %s is expected", option, path, expected);
  PetscCheck(file.outcome != TRS_FILE_TOO_LARGE, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s %s has %" PRId64 " bytes; at most %" PRId64 " are read", option, path, file.n_bytes,
             max_bytes);
  *text = file.text;
  PetscFunctionReturn(PETSC_SUCCESS);
}
