/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* needed for O_CLOEXEC. NOLINT(bugprone-reserved-identifier) */
#include "io/hdf5_driver.h"

#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/*
  Sizes in the file format: the header of a heap or of an object in it, and the alignment of
  objects.
*/
enum { TRS_HEAP_HEAD_BYTES = 16, TRS_HEAP_ALIGNMENT = 8, TRS_LENGTH_BYTES = 8 };

typedef struct {
  H5FD_t head; /* HDF5's part; it must come first */
  int fd;
  haddr_t eoa, eof;
  dev_t device;
  ino_t inode;
  unsigned char length_bytes; /* number of bytes that this file uses for a length */
} TrsDriverFile;

static const TrsDriverFile *of_const(const H5FD_t *file)
{
  return (const TrsDriverFile *)(const void *)file;
}

static TrsDriverFile *of(H5FD_t *file)
{
  return (TrsDriverFile *)(void *)file;
}

static uint64_t little_endian(const unsigned char *bytes, int n)
{
  uint64_t value = 0;

  while (n > 0) value = value << 8 | bytes[--n];
  return value;
}

/*
  Read from the superblock how many bytes the file uses for a length. Returns 0 if this is unknown.
*/
static unsigned char length_bytes_of(int fd)
{
  unsigned char head[16];

  if (TrsReadFully(fd, head, (int64_t)sizeof(head), 0) != 0) return 0;
  return head[8] < 2 ? head[14] : head[10];
}

/*
  Check that HDF5 can walk through the heap at this address. Each object must have at least its
  header, and must end inside the heap. Object 0 is the free space. Its size includes the header.

  Source: HDF5 File Format Specification 3.0, III.E; H5HGcache.c
*/
static int heap_is_sound(const TrsDriverFile *f, haddr_t address, const unsigned char *head)
{
  uint64_t left = little_endian(head + 8, 8);

  /* The heap has another form that is not checked here, or HDF5 itself refuses it. */
  if (f->length_bytes != TRS_LENGTH_BYTES || left < TRS_HEAP_HEAD_BYTES || left > f->eof - address) return 1;
  left -= TRS_HEAP_HEAD_BYTES;
  address += TRS_HEAP_HEAD_BYTES;
  while (left >= TRS_HEAP_HEAD_BYTES) {
    unsigned char object[TRS_HEAP_HEAD_BYTES];
    uint64_t size;

    if (TrsReadFully(f->fd, object, (int64_t)sizeof(object), (int64_t)address) != 0) return 0;
    size = little_endian(object + 8, 8);
    if (size > left) return 0;
    if (little_endian(object, 2) != 0)
      size = TRS_HEAP_HEAD_BYTES + (size + TRS_HEAP_ALIGNMENT - 1) / TRS_HEAP_ALIGNMENT * TRS_HEAP_ALIGNMENT;
    if (size < TRS_HEAP_HEAD_BYTES || size > left) return 0;
    left -= size;
    address += size;
  }
  return 1;
}

static herr_t close_file(H5FD_t *file)
{
  const int status = close(of(file)->fd);

  free(file);
  return status;
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t access, haddr_t most)
{
  TrsDriverFile *f;
  struct stat status;

  (void)access;
  (void)most;
  if (flags & H5F_ACC_RDWR) return NULL;
  f = calloc(1, sizeof(*f));
  if (!f) return NULL;
  f->fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (f->fd < 0 || fstat(f->fd, &status) != 0) {
    if (f->fd >= 0) (void)close(f->fd);
    free(f);
    return NULL;
  }
  f->eof = (haddr_t)status.st_size;
  f->device = status.st_dev;
  f->inode = status.st_ino;
  f->length_bytes = length_bytes_of(f->fd);
  return &f->head;
}

static int compare_files(const H5FD_t *a, const H5FD_t *b)
{
  const TrsDriverFile *x = of_const(a), *y = of_const(b);

  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return (x->inode > y->inode) - (x->inode < y->inode);
}

static herr_t query(const H5FD_t *file, unsigned long *flags)
{
  (void)file;
  if (flags) *flags = H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

static haddr_t get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
  (void)type;
  return of_const(file)->eoa;
}

static herr_t set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t address)
{
  (void)type;
  of(file)->eoa = address;
  return 0;
}

static haddr_t get_eof(const H5FD_t *file, H5FD_mem_t type)
{
  (void)type;
  return of_const(file)->eof;
}

/* Read bytes. Bytes after the end of the file are zeros, as in HDF5's own driver. */
static herr_t read_bytes(H5FD_t *file, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                         void *buffer)
{
  static const unsigned char heap[] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};
  const TrsDriverFile *f = of(file);
  const size_t there = address >= f->eof ? 0 : size < f->eof - address ? size : (size_t)(f->eof - address);

  (void)type;
  (void)transfer;
  if (address > INT64_MAX || TrsReadFully(f->fd, buffer, (int64_t)there, (int64_t)address) != 0) return -1;
  memset((char *)buffer + there, 0, size - there);
  if (there >= TRS_HEAP_HEAD_BYTES && memcmp(buffer, heap, sizeof(heap)) == 0 &&
      !heap_is_sound(f, address, buffer))
    return -1;
  return 0;
}

static herr_t write_bytes(H5FD_t *file, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                          const void *buffer)
{
  (void)file;
  (void)type;
  (void)transfer;
  (void)address;
  (void)size;
  (void)buffer;
  return -1;
}

enum { TRS_DRIVER_VALUE = 300 }; /* HDF5 reserves the values 256 to 511 for programs */

/*
  Take a shared lock on the file, so that no program that uses HDF5's locks writes to it meanwhile.
  Reading works without the lock, so a file is refused only if another program has locked it. Any
  other failure means that the file system has no locks. For this case HDF5 itself accepts only
  ENOSYS, but NFS without its lock daemon returns ENOLCK, and other file systems return EOPNOTSUPP,
  EIO or the kernel's 524.
*/
static herr_t lock_file(H5FD_t *file, hbool_t write)
{
  return write || TrsHDF5DriverIsLocked(of(file)->fd) ? -1 : 0;
}

static herr_t unlock_file(H5FD_t *file)
{
  (void)flock(of(file)->fd, LOCK_UN);
  return 0;
}

int TrsHDF5DriverIsLocked(int fd)
{
  return flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static const H5FD_class_t driver = {
#if defined(H5FD_CLASS_VERSION) /* since HDF5 1.14 */
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)TRS_DRIVER_VALUE,
#endif
    .name = "trshard",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .open = open_file,
    .close = close_file,
    .cmp = compare_files,
    .query = query,
    .get_eoa = get_eoa,
    .set_eoa = set_eoa,
    .get_eof = get_eof,
    .read = read_bytes,
    .write = write_bytes,
    .lock = lock_file,
    .unlock = unlock_file,
    .fl_map = H5FD_FLMAP_DICHOTOMY};

/*
  Use the driver. It stays registered, because HDF5 reads its class once more after the last file is
  closed. If a program has closed the library, the driver must be registered again.
*/
herr_t TrsHDF5DriverUse(hid_t access)
{
  static hid_t id = H5I_INVALID_HID;

  if (id < 0 || H5Iis_valid(id) <= 0 || H5Iget_type(id) != H5I_VFL) id = H5FDregister(&driver);
  return id >= 0 ? H5Pset_driver(access, id, NULL) : -1;
}
