/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/run_folder.h"

#include "core/clock.h"
#include "core/names.h"
#include "core/print.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRS_OWNER_TEXT = 512, TRS_OWNER_SIZE = 4 * TRS_OWNER_TEXT, TRS_WORD_SIZE = 128, TRS_POLL_MS = 100 };
static const char lock_name[] = ".trshard-lock";

/*
  The only descriptor of the lock file. Closing any other descriptor of the same file would end the
  lock. Forked children do not inherit a record lock.
*/
struct TrsRunLockImpl {
  int fd;
  /* The run of a job that was killed while it owned the folder, or "". */
  char interrupted[TRS_RUN_ID_SIZE];
};

/* The beginning of the lock file's second line. */
static const char run_line[] = "run ";

/* --- the run's id --- */

PetscErrorCode TrsRunIdMake(MPI_Comm comm, char id[TRS_RUN_ID_SIZE])
{
  uint64_t bits = 0;

  PetscFunctionBegin;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != (ssize_t)sizeof(bits))
    bits = ((uint64_t)time(NULL) << 32) ^ ((uint64_t)getpid() << 8) ^ (uint64_t)clock();
  PetscCallMPI(MPI_Bcast(&bits, 1, MPI_UINT64_T, 0, comm));
  snprintf(id, TRS_RUN_ID_SIZE, "%016" PRIx64, bits);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsRunIdIsValid(const char *text)
{
  return (PetscBool)(strlen(text) == TRS_RUN_ID_SIZE - 1 &&
                     strspn(text, "0123456789abcdef") == TRS_RUN_ID_SIZE - 1);
}

/* --- the lock, on rank 0 --- */

/* Make a folder and the folders above it. Errors: CANT_CREATE. */
static PetscErrorCode make_folder(const char *folder)
{
  char *path;
  struct stat status;

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(folder, &path));
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    (void)mkdir(path, 0777);
    *slash = '/';
  }
  PetscCall(PetscFree(path));
  PetscCheck(mkdir(folder, 0777) == 0 || errno == EEXIST, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "the folder %s cannot be made: %s", folder, strerror(errno));
  PetscCheck(stat(folder, &status) == 0 && S_ISDIR(status.st_mode), PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s is not a folder", folder);
  PetscFunctionReturn(PETSC_SUCCESS);
}

enum { TRS_LOCK_PATH = PATH_MAX + sizeof(lock_name) };

static void lock_path(const char *folder, char path[TRS_LOCK_PATH])
{
  snprintf(path, TRS_LOCK_PATH, "%s/%s", folder, lock_name);
}

static PetscErrorCode open_lock(const char *folder, int *fd)
{
  struct stat status;
  char path[TRS_LOCK_PATH];

  PetscFunctionBegin;
  PetscCall(make_folder(folder));
  lock_path(folder, path);
  *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  PetscCheck(*fd >= 0, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be opened: %s", path,
             strerror(errno));
  PetscCheck(fstat(*fd, &status) == 0 && S_ISREG(status.st_mode), PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s is not a file", path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsRunFolderIsLocked(TrsRunLock lock, const char *folder)
{
  struct stat ours, there;
  char path[TRS_LOCK_PATH];

  lock_path(folder, path);
  return (PetscBool)(fstat(lock->fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
                     ours.st_ino == there.st_ino);
}

/*
  Lock the whole file with a record lock. Returns 0, EAGAIN if another process has the lock, or an
  errno if the file system has no locks.
*/
static int try_lock(int fd)
{
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int status;

  do {
    status = fcntl(fd, F_SETLK, &whole);
  } while (status != 0 && errno == EINTR);
  if (status == 0) return 0;
  return errno == EACCES ? EAGAIN : errno;
}

/* --- the text of the lock file --- */

static const char *const job_ids[] = {"SLURM_JOB_ID", "PBS_JOBID",    "LSB_JOBID", "FLUX_JOB_ID",
                                      "OAR_JOB_ID",   "COBALT_JOBID", "CCP_JOBID", "JOB_ID"};
enum { TRS_N_JOB_IDS = sizeof(job_ids) / sizeof(job_ids[0]) };
static const char no_job[] = "no batch job";

/*
  Write a text such as "host node17, process 4242, SLURM_JOB_ID
  1234567, since 2026-01-31 12:00:00 UTC".
*/
static void write_owner(int fd)
{
  char text[TRS_OWNER_TEXT], host[TRS_WORD_SIZE] = "unknown", job[TRS_WORD_SIZE], when[64] = "";
  const time_t now = time(NULL);
  struct tm utc;
  int n;

  (void)gethostname(host, sizeof(host) - 1);
  snprintf(job, sizeof(job), "%s", no_job);
  for (int i = 0; i < TRS_N_JOB_IDS; i++) {
    const char *id = getenv(job_ids[i]);

    if (!id || !id[0]) continue;
    snprintf(job, sizeof(job), "%s %s", job_ids[i], id);
    break;
  }
  if (gmtime_r(&now, &utc)) (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &utc);
  n = snprintf(text, sizeof(text), "host %s, process %ld, %s, since %s\n", host, (long)getpid(), job, when);
  /* The text is only information for people, so errors are ignored. */
  if (pwrite(fd, text, (size_t)n, 0) == n) (void)!ftruncate(fd, n);
}

/* Read the lock file. Returns the length of its first line, which describes the owner. */
static size_t read_text(int fd, char text[TRS_OWNER_TEXT])
{
  const ssize_t n = pread(fd, text, TRS_OWNER_TEXT - 1, 0);

  text[n > 0 ? n : 0] = '\0';
  return strcspn(text, "\n");
}

/* If the text at *at begins with the word, move *at behind the word. True if it did. */
static PetscBool skip(const char **at, const char *word)
{
  const size_t n = strlen(word);

  if (strncmp(*at, word, n) != 0) return PETSC_FALSE;
  *at += n;
  return PETSC_TRUE;
}

/*
  Move *at behind the name of a host or the id of a job. These consist of letters of any alphabet,
  digits, and the marks below.
*/
static PetscBool skip_id(const char **at)
{
  size_t n = 0;

  while (isalnum((unsigned char)(*at)[n]) || (unsigned char)(*at)[n] >= 0x80 ||
         ((*at)[n] && strchr("._-[]:", (*at)[n])))
    n++;
  *at += n;
  return (PetscBool)(n > 0 && n < TRS_WORD_SIZE);
}

static PetscBool skip_job(const char **at)
{
  if (skip(at, no_job)) return PETSC_TRUE;
  for (int i = 0; i < TRS_N_JOB_IDS; i++)
    if (skip(at, job_ids[i])) return (PetscBool)(skip(at, " ") && skip_id(at));
  return PETSC_FALSE;
}

/*
  True if the text is a time of the form that write_owner() writes. A 0 in the form stands for a
  digit.
*/
static PetscBool is_time(const char *at)
{
  static const char form[] = "0000-00-00 00:00:00 UTC";

  for (size_t i = 0; i < sizeof(form); i++)
    if (form[i] == '0' ? !isdigit((unsigned char)at[i]) : at[i] != form[i]) return PETSC_FALSE;
  return PETSC_TRUE;
}

/*
  True if a line has the form that write_owner() writes. Anybody who may write to the folder can
  write such a line. If the system knows which process has the lock (process > 0), the line must
  name this process.
*/
static PetscBool is_owner_line(const char *line, pid_t process)
{
  const char *at = line;
  char number[32];

  if (!skip(&at, "host ") || !skip_id(&at) || !skip(&at, ", process ")) return PETSC_FALSE;
  if (process > 0) {
    snprintf(number, sizeof(number), "%ld, ", (long)process);
    if (!skip(&at, number)) return PETSC_FALSE;
  } else {
    const size_t n = strspn(at, "0123456789");

    at += n;
    if (n == 0 || n > 10 || !skip(&at, ", ")) return PETSC_FALSE;
  }
  return (PetscBool)(skip_job(&at) && skip(&at, ", since ") && is_time(at));
}

/*
  Write into `owner` who has the lock. The system knows the process if it is on this host. It
  returns 0 or less for a process on another host or in another container.
*/
static void read_owner(int fd, char owner[TRS_OWNER_SIZE])
{
  struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  char text[TRS_OWNER_TEXT];
  const pid_t process = fcntl(fd, F_GETLK, &found) == 0 && found.l_type != F_UNLCK ? found.l_pid : 0;

  text[read_text(fd, text)] = '\0';
  if (is_owner_line(text, process))
    TrsNameEscape(text, owner, TRS_OWNER_SIZE);
  else if (process > 0)
    snprintf(owner, TRS_OWNER_SIZE, "process %ld of this host", (long)process);
  else
    snprintf(owner, TRS_OWNER_SIZE, "its lock does not say whose it is");
}

/* Read the run from the second line, or "" if there is none. */
static void read_run(int fd, char id[TRS_RUN_ID_SIZE])
{
  char text[TRS_OWNER_TEXT], *line = text + read_text(fd, text);

  id[0] = '\0';
  if (strncmp(line, "\n", 1) != 0 || strncmp(line + 1, run_line, sizeof(run_line) - 1) != 0) return;
  line += sizeof(run_line);
  line[strcspn(line, "\n")] = '\0';
  if (TrsRunIdIsValid(line)) memcpy(id, line, TRS_RUN_ID_SIZE);
}

void TrsRunFolderName(TrsRunLock lock, const char *run_id)
{
  char text[TRS_OWNER_TEXT];
  size_t at;
  int n;

  if (lock->fd < 0) return;
  at = read_text(lock->fd, text);
  n = snprintf(text, sizeof(text), "\n%s%s\n", run_line, run_id);
  /*
    Without this line, a job that follows a killed job would start another run. Errors are ignored.
  */
  if (pwrite(lock->fd, text, (size_t)n, (off_t)at) == n) (void)!ftruncate(lock->fd, (off_t)at + n);
}

/* --- the wait, on all ranks --- */

typedef struct {
  const char *folder, *option;
  const TrsRunWait *wait;
  TrsRunLock lock;
  /*
    All ranks have the same values. busy is true if another job has the lock. stop is true if any
    rank was asked to stop.
  */
  int busy, stop;
  double start_s;
} TrsLockWait;

/*
  Warn once, with the system's message. For error 524, the kernel's ENOTSUPP, the system has no
  message.
*/
static void warn_of_no_locks(const char *folder, int error)
{
  static PetscBool told;

  if (!told)
    TrsPrint(stderr,
             "trshard: warning: %s: its file system has no locks (%s): nothing keeps another job out\n",
             folder, strerror(error == 524 ? ENOTSUP : error));
  told = PETSC_TRUE;
}

/*
  Try once to get the lock, on rank 0. The first try prints the owner for which the job waits. The
  last try raises an error with the owner.
*/
static PetscErrorCode try_once(TrsLockWait *w)
{
  const int error = try_lock(w->lock->fd);
  const PetscBool first = (PetscBool)!w->busy;
  char owner[TRS_OWNER_SIZE], waited[96] = "";

  PetscFunctionBegin;
  w->busy = error == EAGAIN;
  if (error && !w->busy) warn_of_no_locks(w->folder, error);
  if (!w->busy) {
    read_run(w->lock->fd, w->lock->interrupted);
    write_owner(w->lock->fd);
    if (w->lock->interrupted[0]) TrsRunFolderName(w->lock, w->lock->interrupted);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  read_owner(w->lock->fd, owner);
  if (w->wait->seconds > 0)
    snprintf(waited, sizeof(waited), ", also after %g s (-checkpoint_lock_seconds)", w->wait->seconds);
  PetscCheck(TrsClock() - w->start_s < w->wait->seconds, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s belongs to another job that runs%s (%s): wait for its end, or take another %s", w->folder,
             waited, owner, w->option);
  if (first) {
    TrsPrint(stdout, "%-10s up to %g s for another job to leave %s (%s)\n", "waiting", w->wait->seconds,
             w->folder, owner);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Wait for the lock. All ranks check together, so that a stop request to any rank ends the wait. */
static PetscErrorCode wait_for_lock(MPI_Comm comm, int rank, TrsLockWait *w)
{
  const struct timespec pause = {.tv_nsec = TRS_POLL_MS * 1000000L};

  PetscFunctionBegin;
  do {
    int flags[2];

    if (w->busy) (void)nanosleep(&pause, NULL);
    PetscCall(TrsAgree(comm, rank == 0 ? try_once(w) : PETSC_SUCCESS));
    flags[0] = w->busy;
    flags[1] = w->wait->stop && *w->wait->stop;
    if (rank != 0) flags[0] = 0;
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, flags, 2, MPI_INT, MPI_MAX, comm));
    w->busy = flags[0];
    w->stop = flags[1];
    PetscCheck(!w->busy || !w->stop, PETSC_COMM_SELF, TRS_ERR_STOPPED,
               "stopped on request while waiting for another job to leave %s", w->folder);
  } while (w->busy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunFolderLock(MPI_Comm comm, const char *folder, const char *option, const TrsRunWait *wait,
                                TrsRunLock *lock)
{
  TrsLockWait w = {.folder = folder, .option = option, .wait = wait, .start_s = TrsClock()};
  PetscErrorCode ierr;
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(PetscNew(lock));
  (*lock)->fd = -1;
  w.lock = *lock;
  ierr = TrsAgree(comm, rank == 0 ? open_lock(folder, &(*lock)->fd) : PETSC_SUCCESS);
  if (ierr == PETSC_SUCCESS) ierr = wait_for_lock(comm, rank, &w);
  if (ierr == PETSC_SUCCESS)
    PetscCallMPI(MPI_Bcast((*lock)->interrupted, TRS_RUN_ID_SIZE, MPI_CHAR, 0, comm));
  if (ierr != PETSC_SUCCESS) {
    if ((*lock)->fd >= 0) (void)close((*lock)->fd);
    PetscCall(PetscFree(*lock));
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsRunFolderInterrupted(TrsRunLock lock)
{
  return lock->interrupted;
}

PetscErrorCode TrsRunFolderUnlock(TrsRunLock *lock)
{
  PetscFunctionBegin;
  if (!*lock) PetscFunctionReturn(PETSC_SUCCESS);
  if ((*lock)->fd >= 0) {
    /* Empty the file, so that it names no owner until the next one writes its name. */
    (void)!ftruncate((*lock)->fd, 0);
    (void)close((*lock)->fd);
  }
  PetscCall(PetscFree(*lock));
  PetscFunctionReturn(PETSC_SUCCESS);
}
