/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Flips single bits of a checkpoint and reads the damaged file. One process does all flips:

    flip_checkpoint FILE SEED FIRST END SCRATCH

  Flip number n, FIRST <= n < END, changes one bit in the copy SCRATCH. SEED and n determine the
  position of the bit. The file is then read as a resume reads it. A flip is detected if the file is
  refused with DATA. It is harmless if every tensor and every attribute has the bits of FILE.
  Otherwise the flip is silent. Output lines:
    at N                                 before each flip, to identify a crash
    silent N byte B bit K: WHAT
    detected N harmless N silent N       at the end
*/
#include "core/buffer.h"
#include "core/start.h"
#include "io/checkpoint/checkpoint.h"

#include <hdf5.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define REQUIRE(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_INTERNAL, __VA_ARGS__)
enum { MAX_TENSORS = 256 };

/* The state that a file is read into, with memory for its tensors. */
typedef struct {
  TrsState state;
  char *data[MAX_TENSORS];
  int64_t bytes[MAX_TENSORS];
  char optimizer[MAX_TENSORS][32];
} model;

/*
  A hash of all attributes of a file. It includes the names of the attributes and of their objects.
*/
typedef struct {
  XXH3_state_t *hash;
  const char *object;
} attribute_hash;

static herr_t hash_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
  attribute_hash *h = context;
  hid_t id = H5Aopen(object, name, H5P_DEFAULT), type = id < 0 ? -1 : H5Aget_type(id);
  hid_t space = id < 0 ? -1 : H5Aget_space(id);
  hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
  size_t bytes = type < 0 || n < 0 ? 0 : H5Tget_size(type) * (size_t)n;
  char *data = bytes ? malloc(bytes) : NULL;
  herr_t result = data && H5Aread(id, type, data) >= 0 ? 0 : -1;

  (void)info;
  if (result == 0) {
    XXH3_64bits_update(h->hash, h->object, strlen(h->object));
    XXH3_64bits_update(h->hash, name, strlen(name));
    XXH3_64bits_update(h->hash, data, bytes);
  }
  free(data);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (id >= 0) H5Aclose(id);
  return result;
}

static herr_t hash_object(hid_t file, const char *name, const H5O_info_t *info, void *context)
{
  attribute_hash *h = context;
  hid_t object = H5Oopen(file, name, H5P_DEFAULT);
  herr_t result;

  (void)info;
  h->object = name;
  result = object < 0 ? -1 : H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, hash_attribute, h);
  if (object >= 0) H5Oclose(object);
  return result;
}

/* Returns PETSC_FALSE if an attribute cannot be read. */
static PetscBool hash_attributes(const char *path, uint64_t *hash)
{
  attribute_hash h = {.hash = XXH3_createState()};
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  PetscBool readable;

  XXH3_64bits_reset(h.hash);
  readable = file >= 0 && H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, hash_object, &h, H5O_INFO_BASIC) >= 0
                 ? PETSC_TRUE
                 : PETSC_FALSE;
  *hash = XXH3_64bits_digest(h.hash);
  XXH3_freeState(h.hash);
  if (file >= 0) H5Fclose(file);
  return readable;
}

static TrsDType dtype_of(hid_t type)
{
  size_t bytes = H5Tget_size(type);

  if (H5Tget_class(type) == H5T_FLOAT) return bytes == 2 ? TRS_FP16 : TRS_FP32;
  return bytes == 8 ? TRS_INT64 : bytes == 2 ? TRS_BF16 : TRS_UINT8;
}

static PetscErrorCode add_tensor(model *m, hid_t dataset, const char *name)
{
  const int i = m->state.n;
  hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  hsize_t dims[2] = {1, 1};
  int ndim = H5Sget_simple_extent_dims(space, dims, NULL);
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  REQUIRE(i < MAX_TENSORS && ndim >= 1 && ndim <= 2, "/%s is not for this test", name);
  PetscCall(TrsStateAdd(&m->state, name, dtype_of(type), ndim, (int64_t)dims[0], (int64_t)dims[1], &tensor));
  m->bytes[i] = (int64_t)(dims[0] * dims[1] * H5Tget_size(type));
  PetscCall(TrsAlloc(m->bytes[i] + 1, 1, &m->data[i]));
  PetscCall(TrsStateAddPart(tensor, 0, 0, (int64_t)dims[0], (int64_t)dims[1], m->data[i], (int64_t)dims[1]));
  if (H5Aexists(dataset, "optimizer") > 0) {
    hid_t attribute = H5Aopen(dataset, "optimizer", H5P_DEFAULT), text = H5Aget_type(attribute);

    if (H5Tget_size(text) < sizeof(m->optimizer[i])) H5Aread(attribute, text, m->optimizer[i]);
    tensor->optimizer = m->optimizer[i];
    H5Tclose(text);
    H5Aclose(attribute);
  }
  H5Sclose(space);
  H5Tclose(type);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static herr_t add_object(hid_t file, const char *name, const H5O_info_t *info, void *context)
{
  hid_t dataset;
  PetscErrorCode ierr;

  if (info->type != H5O_TYPE_DATASET || strncmp(name, "checksums/", 10) == 0) return 0;
  dataset = H5Dopen2(file, name, H5P_DEFAULT);
  ierr = dataset < 0 ? TRS_ERR_DATA : add_tensor(context, dataset, name);
  if (dataset >= 0) H5Dclose(dataset);
  return ierr ? -1 : 0;
}

static PetscErrorCode create_model(const char *path, model *m)
{
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  herr_t result = -1;

  PetscFunctionBegin;
  memset(m, 0, sizeof(*m));
  if (file >= 0) {
    result = H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, add_object, m, H5O_INFO_BASIC);
    H5Fclose(file);
  }
  REQUIRE(result >= 0 && m->state.n > 0, "%s has no tensors that can be listed", path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A hash of all numbers that a resume reads from a file, except the tensors. */
static uint64_t hash_info(const TrsCheckpointInfo *info)
{
  const int64_t numbers[] = {info->step, info->epoch, info->samples_seen, info->run_step, info->global_batch};

  return XXH3_64bits(numbers, sizeof(numbers)) ^
         XXH3_64bits(info->metrics.value, (size_t)info->metrics.n * sizeof(double)) ^
         XXH3_64bits(info->early_stopping.value, (size_t)info->early_stopping.n * sizeof(double));
}

/* splitmix64, which maps any number to a random number. */
static uint64_t random_of(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* The data that decides if a flip was detected, harmless or silent. */
typedef struct {
  const char *path;
  model good, found;
  uint64_t info, attributes;
  int64_t file_bytes;
  int fd;          /* descriptor of the copy */
  int n_result[3]; /* number of flips that were detected, harmless and silent */
} judge;

/*
  Returns the first difference in a file that was read without an error, or NULL if there is no
  difference.
*/
static const char *difference(judge *j, const TrsCheckpointInfo *info)
{
  uint64_t attributes;

  for (int i = 0; i < j->good.state.n; i++)
    if (memcmp(j->good.data[i], j->found.data[i], (size_t)j->good.bytes[i]) != 0)
      return j->good.state.tensor[i].path;
  if (hash_info(info) != j->info) return "the numbers of the run";
  if (hash_attributes(j->path, &attributes) && attributes != j->attributes) return "an attribute";
  return NULL;
}

static PetscErrorCode judge_flip(judge *j, int n, int64_t at, int bit)
{
  TrsCheckpointInfo info = {.step = 0};
  const char *what = NULL;
  PetscErrorCode ierr;
  int result;

  PetscFunctionBegin;
  for (int i = 0; i < j->found.state.n; i++) memset(j->found.data[i], 0x5a, (size_t)j->found.bytes[i]);
  ierr = TrsCheckpointRead(PETSC_COMM_SELF, j->path, &j->found.state, &info);
  TrsErrorClear();
  if (ierr != PETSC_SUCCESS && ierr != TRS_ERR_DATA) what = "another code than DATA";
  if (ierr == PETSC_SUCCESS) what = difference(j, &info);
  result = what ? 2 : ierr ? 0 : 1;
  j->n_result[result]++;
  if (what) printf("silent %d byte %" PRId64 " bit %d: %s (code %d)\n", n, at, bit, what, (int)ierr);
  if (!ierr) PetscCall(TrsCheckpointInfoFree(&info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode flip(judge *j, uint64_t seed, int n)
{
  const uint64_t bits = random_of(random_of(seed) + (uint64_t)n);
  const int64_t at = (int64_t)(bits % (uint64_t)j->file_bytes);
  const int bit = (int)(bits >> 60) % 8;
  unsigned char byte, turned;

  PetscFunctionBegin;
  printf("at %d\n", n);
  fflush(stdout);
  REQUIRE(pread(j->fd, &byte, 1, at) == 1, "%s cannot be read", j->path);
  turned = (unsigned char)(byte ^ (1u << bit));
  REQUIRE(pwrite(j->fd, &turned, 1, at) == 1, "%s cannot be written", j->path);
  PetscCall(judge_flip(j, n, at, bit));
  REQUIRE(pwrite(j->fd, &byte, 1, at) == 1, "%s cannot be written", j->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_file(judge *j, const char *from, const char *to)
{
  char *data;
  struct stat status;
  int in = open(from, O_RDONLY);

  PetscFunctionBegin;
  j->path = to;
  j->fd = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
  REQUIRE(in >= 0 && j->fd >= 0 && fstat(in, &status) == 0, "%s cannot be copied to %s", from, to);
  j->file_bytes = status.st_size;
  PetscCall(TrsAlloc(j->file_bytes, 1, &data));
  REQUIRE(read(in, data, (size_t)j->file_bytes) == j->file_bytes, "%s cannot be read", from);
  REQUIRE(write(j->fd, data, (size_t)j->file_bytes) == j->file_bytes, "%s cannot be written", to);
  PetscCall(TrsFree(&data));
  close(in);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_model(model *m)
{
  PetscFunctionBegin;
  for (int i = 0; i < m->state.n; i++) PetscCall(TrsFree(&m->data[i]));
  PetscCall(TrsStateFree(&m->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(int argc, char **argv)
{
  static judge j;
  TrsCheckpointInfo info;

  PetscFunctionBegin;
  PetscCheck(argc == 6, PETSC_COMM_SELF, TRS_ERR_OPTION, "see the head of flip_checkpoint.c");
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  PetscCall(copy_file(&j, argv[1], argv[5]));
  PetscCall(create_model(argv[1], &j.good));
  PetscCall(create_model(argv[1], &j.found));
  PetscCall(TrsCheckpointRead(PETSC_COMM_SELF, argv[1], &j.good.state, &info));
  j.info = hash_info(&info);
  REQUIRE(hash_attributes(argv[1], &j.attributes), "%s: attributes cannot be read", argv[1]);
  PetscCall(TrsCheckpointInfoFree(&info));
  for (int n = atoi(argv[3]); n < atoi(argv[4]); n++) PetscCall(flip(&j, strtoull(argv[2], NULL, 10), n));
  printf("detected %d harmless %d silent %d\n", j.n_result[0], j.n_result[1], j.n_result[2]);
  PetscCall(free_model(&j.good));
  PetscCall(free_model(&j.found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  int status;

  if (TrsStart(argc, argv) != PETSC_SUCCESS) return 70;
  status = TrsErrorFinish(PETSC_COMM_WORLD, run(argc, argv));
  return TrsStop(PETSC_FALSE) ? 70 : status;
}
