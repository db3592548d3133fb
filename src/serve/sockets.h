/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets on which the server listens. */
#pragma once

#include "core/error.h"

#include <stdint.h>
#include <sys/stat.h>

/*
  Listen on a TCP port. If *port is 0, the system chooses the port, and *port becomes its number.
  The socket does not block. Errors: OPTION, with -serve_host and -serve_port
*/
PetscErrorCode TrsServeListen(const char *host, int64_t *port, int *fd);

/*
  Listen on a Unix socket. A socket that an ended server has left is replaced; a file of another
  kind, or the socket of a running server, is an error. *file becomes the socket's file. Errors:
  OPTION, with -serve_socket
*/
PetscErrorCode TrsServeListenUnix(const char *path, int *fd, struct stat *file);

/* Remove the file of a Unix socket, unless another server has put its own at this path. */
void TrsServeRemoveUnix(const char *path, const struct stat *file);
