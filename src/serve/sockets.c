/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TRS_BACKLOG = 1024 };

/* Open, bind and listen. Returns a socket, or -1 with errno. */
static int listen_on(const struct sockaddr *address, socklen_t length)
{
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  int error;

  if (fd < 0) return -1;
  (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, address, length) == 0 && listen(fd, TRS_BACKLOG) == 0) return fd;
  error = errno;
  (void)close(fd);
  errno = error;
  return -1;
}

static int64_t port_of(int fd)
{
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);
  char port[16];

  if (getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
      getnameinfo((struct sockaddr *)&address, length, NULL, 0, port, sizeof(port), NI_NUMERICSERV) != 0)
    return 0;
  return strtoll(port, NULL, 10);
}

PetscErrorCode TrsServeListen(const char *host, int64_t *port, int *fd)
{
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  char service[32];
  int status;

  PetscFunctionBegin;
  snprintf(service, sizeof(service), "%" PRId64, *port);
  status = getaddrinfo(host, service, &wanted, &found);
  PetscCheck(status == 0, PETSC_COMM_SELF, TRS_ERR_OPTION, "-serve_host %s: %s", host, gai_strerror(status));
  *fd = -1;
  for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next)
    *fd = listen_on(a->ai_addr, a->ai_addrlen);
  status = errno;
  freeaddrinfo(found);
  PetscCheck(*fd >= 0, PETSC_COMM_SELF, TRS_ERR_OPTION, "-serve_host %s -serve_port %" PRId64 ": %s", host,
             *port, strerror(status));
  *port = port_of(*fd);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if a process listens on a Unix socket. */
static PetscBool is_alive(const struct sockaddr_un *address)
{
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const PetscBool alive = (PetscBool)(fd >= 0 &&
                                      connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0);

  if (fd >= 0) (void)close(fd);
  return alive;
}

PetscErrorCode TrsServeListenUnix(const char *path, int *fd, struct stat *file)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};

  PetscFunctionBegin;
  PetscCheck(strlen(path) < sizeof(address.sun_path), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-serve_socket %s: the path is too long, expected at most %zu bytes", path,
             sizeof(address.sun_path) - 1);
  PetscCall(PetscStrncpy(address.sun_path, path, sizeof(address.sun_path)));
  if (lstat(path, file) == 0) {
    PetscCheck(S_ISSOCK(file->st_mode), PETSC_COMM_SELF, TRS_ERR_OPTION,
               "-serve_socket %s: a file that is no socket is there", path);
    PetscCheck(!is_alive(&address), PETSC_COMM_SELF, TRS_ERR_OPTION,
               "-serve_socket %s: another server listens there", path);
    (void)unlink(path);
  }
  *fd = listen_on((const struct sockaddr *)&address, sizeof(address));
  PetscCheck(*fd >= 0 && lstat(path, file) == 0, PETSC_COMM_SELF, TRS_ERR_OPTION, "-serve_socket %s: %s",
             path, strerror(errno));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsServeRemoveUnix(const char *path, const struct stat *file)
{
  struct stat now;

  if (lstat(path, &now) == 0 && now.st_dev == file->st_dev && now.st_ino == file->st_ino) (void)unlink(path);
}
