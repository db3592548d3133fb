/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: portable avx2 */
/* TEST ranks: 2 3 4 8 */
/*
  Compares the collectives of dist/ with TorchRec (torchrec.distributed.dist_data), forward and
  backward. The test runs every group of units_a2a.h5 for this number of ranks. Ids must be equal,
  and floats may differ by 1e-6.
*/
#include "dist/kjt_all_to_all.h"
#include "dist/pooled_chunks.h"
#include "dist/sequence_all_to_all.h"
#include "dist/variable_batch.h"
#include "golden_h5.h"
#include "trs_test.h"

#include <string.h>

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;
static TrsComm comm;

/*
  The name of one of this rank's datasets, such as "rank1/in/values". Borrowed until the 4th call
  after this one.
*/
static const char *mine(const char *side, const char *name)
{
  static char path[4][64];
  static int next;

  next = (next + 1) % 4;
  snprintf(path[next], sizeof(path[next]), "rank%d/%s/%s", comm->rank, side, name);
  return path[next];
}

static const TrsPooledDistOptions options; /* no values are encoded */

static void compare_floats(hid_t group, const char *name, const float *found, double factor, int64_t n_found)
{
  int64_t n;
  float *expected = golden_float(group, mine("out", name), &n);

  assert_int_equal(n_found, n);
  for (int64_t i = 0; i < n; i++) assert_close(factor * (double)found[i], expected[i], 1e-6, 1e-6);
  free(expected);
}

/*
  TorchRec divides gradients by the number of ranks, unless gradient_division is off. trshard scales
  the loss instead.
*/
static double gradient_factor(hid_t group)
{
  return golden_number(group, "gradient_division", 1.0) > 0.0 ? 1.0 / comm->size : 1.0;
}

/* Read an attribute into int counts [n]. */
static void read_counts(hid_t group, const char *name, int n, int *counts)
{
  int64_t n_found, *found = golden_attribute_int64(group, name, &n_found);

  assert_int_equal(n_found, n);
  for (int i = 0; i < n; i++) counts[i] = (int)found[i];
  free(found);
}

/* Read a KJT (lengths, values and weights) from this rank's inputs. */
static void read_kjt(hid_t group, const char *lengths_name, const char *values_name, int n_features,
                     TrsKjt *kjt)
{
  int64_t n_lengths, n_values;
  int32_t *lengths = golden_int32(group, mine("in", lengths_name), &n_lengths);
  int64_t *values = golden_int64(group, mine("in", values_name), &n_values);
  const PetscBool weighted = (PetscBool)golden_has(group, mine("in", "weights"));

  assert_petsc_ok(
      TrsKjtReserve(device, kjt, n_features, n_features ? n_lengths / n_features : 0, n_values, weighted));
  assert_int_equal(kjt->jagged.n_bags, n_lengths);
  if (n_lengths > 0) memcpy(kjt->jagged.lengths, lengths, (size_t)n_lengths * sizeof(*lengths));
  if (n_values > 0) memcpy(kjt->jagged.values, values, (size_t)n_values * sizeof(*values));
  if (weighted && n_values > 0) {
    float *weights = golden_float(group, mine("in", "weights"), NULL);
    memcpy(kjt->jagged.weights, weights, (size_t)n_values * sizeof(*weights));
    free(weights);
  }
  assert_petsc_ok(TrsKjtOffsets(compute, NULL, kjt));
  free(lengths);
  free(values);
}

static void compare_kjt(hid_t group, const TrsKjt *found)
{
  int64_t n_lengths, n_values;
  int64_t *lengths = golden_int64(group, mine("out", "lengths"), &n_lengths);
  int64_t *values = golden_int64(group, mine("out", "values"), &n_values);

  assert_int_equal(found->jagged.n_bags, n_lengths);
  assert_int_equal(found->jagged.n_values, n_values);
  for (int64_t i = 0; i < n_lengths; i++) assert_int_equal(found->jagged.lengths[i], lengths[i]);
  for (int64_t i = 0; i < n_values; i++) assert_int_equal(found->jagged.values[i], values[i]);
  if (golden_has(group, mine("out", "weights"))) {
    float *weights = golden_float(group, mine("out", "weights"), NULL);
    for (int64_t i = 0; i < n_values; i++) assert_true(found->jagged.weights[i] == weights[i]);
    free(weights);
  }
  free(lengths);
  free(values);
}

static TrsKjtExchange exchange_kjt(const int *n_features, const int *source_order, const TrsKjt *send,
                                   TrsKjt *recv)
{
  TrsKjtExchange exchange = NULL;
  const int64_t *source_batch;

  assert_petsc_ok(TrsKjtExchangeCreate(comm, n_features, n_features[comm->rank], send->is_weighted,
                                       source_order, &exchange));
  assert_petsc_ok(TrsKjtExchangeStartSplits(1, &exchange, &send, NULL));
  assert_petsc_ok(TrsKjtExchangeStartTensors(1, &exchange, NULL));
  assert_petsc_ok(TrsKjtExchangeWait(exchange, NULL, recv, &source_batch));
  return exchange;
}

/* The sources, ordered by local index, then by host. */
static int *staggered(int n_hosts)
{
  const int local_size = comm->size / n_hosts;
  int *order = calloc((size_t)comm->size, sizeof(*order)), n = 0;

  for (int l = 0; l < local_size; l++)
    for (int h = 0; h < n_hosts; h++) order[n++] = h * local_size + l;
  return order;
}

static void test_kjt(hid_t group)
{
  int *splits = calloc((size_t)comm->size, sizeof(*splits)), n_features = 0;
  int *order = staggered((int)golden_number(group, "stagger", 1.0));
  TrsKjt send = {0}, recv = {0};
  TrsKjtExchange exchange;

  read_counts(group, "splits", comm->size, splits);
  for (int q = 0; q < comm->size; q++) n_features += splits[q];
  read_kjt(group, "lengths", "values", n_features, &send);
  exchange = exchange_kjt(splits, order, &send, &recv);
  compare_kjt(group, &recv);
  assert_petsc_ok(TrsKjtExchangeDestroy(&exchange));
  assert_petsc_ok(TrsKjtFree(device, &send));
  assert_petsc_ok(TrsKjtFree(device, &recv));
  free(splits);
  free(order);
}

/*
  The rows of each feature are distributed over the ranks of its host. So the bucketizer's order
  (bucket, feature) becomes (host, bucket, feature of the host).
*/
static void test_twrw_input_dist(hid_t group)
{
  const int local_size = (int)golden_number(group, "local_size", 0.0), n_hosts = comm->size / local_size;
  int64_t F, *rows = golden_attribute_int64(group, "hash_sizes", &F);
  int *per_host = calloc((size_t)n_hosts, sizeof(int)), *n_features = calloc((size_t)comm->size, sizeof(int));
  int *shuffle = calloc((size_t)(F * local_size), sizeof(int)), *order = staggered(n_hosts), n = 0;
  TrsBucketSpec *spec = calloc((size_t)F, sizeof(*spec));
  TrsKjt batch = {0}, bucketized = {0}, send = {0}, recv = {0};
  TrsKjtExchange exchange;
  TrsWorkspace workspace;

  read_counts(group, "features_per_host", n_hosts, per_host);
  for (int h = 0, first = 0; h < n_hosts; first += per_host[h++]) {
    for (int l = 0; l < local_size; l++) {
      n_features[h * local_size + l] = per_host[h];
      for (int f = first; f < first + per_host[h]; f++) shuffle[n++] = l * (int)F + f;
    }
  }
  for (int64_t f = 0; f < F; f++) spec[f].bucket_rows = (rows[f] + local_size - 1) / local_size;
  read_kjt(group, "lengths", "values", (int)F, &batch);
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(TrsKjtReserve(device, &bucketized, (int)F * local_size, batch.batch, batch.jagged.n_values,
                                PETSC_FALSE));
  assert_petsc_ok(compute->bucketize(NULL, workspace, local_size, (int)F, batch.batch, spec, &batch.jagged,
                                     &bucketized.jagged, NULL));
  assert_petsc_ok(TrsKjtOffsets(compute, NULL, &bucketized));
  assert_petsc_ok(TrsKjtPermute(device, compute, NULL, workspace, &bucketized, n, shuffle, &send));
  exchange = exchange_kjt(n_features, order, &send, &recv);
  compare_kjt(group, &recv);
  assert_petsc_ok(TrsKjtExchangeDestroy(&exchange));
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  assert_petsc_ok(TrsKjtFree(device, &batch));
  assert_petsc_ok(TrsKjtFree(device, &bucketized));
  assert_petsc_ok(TrsKjtFree(device, &send));
  assert_petsc_ok(TrsKjtFree(device, &recv));
  free(rows);
  free(per_host);
  free(n_features);
  free(shuffle);
  free(order);
  free(spec);
}

static void test_pooled_a2a(hid_t group)
{
  int64_t n, *batch = golden_attribute_int64(group, "batch_size_per_rank", &n),
             *dims = golden_attribute_int64(group, "dim_sum_per_rank", &n);
  const int64_t B = batch[comm->rank], *displs;
  int64_t width = 0, n_grad;
  float *local = golden_float(group, mine("in", "local_embs"), &n_grad),
        *grad_output = golden_float(group, mine("in", "grad_output"), &n);
  float *joined = calloc((size_t)n + 1, sizeof(float)), *send;
  TrsPooledAllToAll dist = NULL;
  const float *recv;

  for (int q = 0; q < comm->size; q++) width += dims[q];
  assert_int_equal(n, B * width);
  assert_petsc_ok(TrsPooledAllToAllCreate(comm, dims, &options, &dist));
  assert_petsc_ok(TrsPooledAllToAllStart(dist, NULL, local, batch));
  assert_petsc_ok(TrsPooledAllToAllWait(dist, NULL, &recv, &displs));
  for (int64_t q = 0, column = 0; q < comm->size; column += dims[q++])
    for (int64_t b = 0; b < B; b++)
      for (int64_t c = 0; c < dims[q]; c++)
        joined[b * width + column + c] = recv[displs[q] + b * dims[q] + c];
  compare_floats(group, "output", joined, 1.0, B * width);
  assert_petsc_ok(TrsPooledAllToAllGradBuffer(dist, &send, &displs));
  for (int64_t q = 0, column = 0; q < comm->size; column += dims[q++])
    for (int64_t b = 0; b < B; b++)
      for (int64_t c = 0; c < dims[q]; c++)
        send[displs[q] + b * dims[q] + c] = grad_output[b * width + column + c];
  assert_petsc_ok(TrsPooledAllToAllGradStart(dist, NULL));
  assert_petsc_ok(TrsPooledAllToAllGradWait(dist, NULL, &recv));
  compare_floats(group, "grad_input", recv, gradient_factor(group), n_grad);
  assert_petsc_ok(TrsPooledAllToAllDestroy(&dist));
  free(batch);
  free(dims);
  free(local);
  free(grad_output);
  free(joined);
}

/*
  Number of rows of every rank. It is in the attribute input_splits. If there is no such attribute,
  all ranks have equal numbers.
*/
static int64_t *chunk_rows(hid_t group, int64_t rows)
{
  int64_t n, *chunks;

  if (golden_has_attribute(group, "input_splits")) return golden_attribute_int64(group, "input_splits", &n);
  chunks = calloc((size_t)comm->size, sizeof(*chunks));
  for (int q = 0; q < comm->size; q++) chunks[q] = rows / comm->size;
  return chunks;
}

/*
  Check the forward of `first` with the result `summed`, then the backward of `second` with the
  result `gathered`.
*/
static void check_chunks(hid_t group, const char *first, const char *summed, double first_factor,
                         const char *second, const char *gathered, double second_factor)
{
  int64_t n_all, n_own, shape[2], *rows;
  float *all = (float *)golden_read(group, mine("in", first), H5T_NATIVE_FLOAT, &n_all, shape), *send;
  float *own = golden_float(group, mine("in", second), &n_own);
  TrsPooledChunks dist = NULL;
  const float *result;

  rows = chunk_rows(group, n_all / shape[1]);
  assert_petsc_ok(TrsPooledReduceScatterCreate(comm, shape[1], &options, &dist));
  assert_petsc_ok(TrsPooledChunksStart(dist, NULL, all, rows));
  assert_petsc_ok(TrsPooledChunksWait(dist, NULL, &result));
  compare_floats(group, summed, result, first_factor, n_own);
  assert_petsc_ok(TrsPooledChunksGradBuffer(dist, &send));
  memcpy(send, own, (size_t)n_own * sizeof(*send));
  assert_petsc_ok(TrsPooledChunksGradStart(dist, NULL));
  assert_petsc_ok(TrsPooledChunksGradWait(dist, NULL, &result));
  compare_floats(group, gathered, result, second_factor, n_all);
  assert_petsc_ok(TrsPooledChunksDestroy(&dist));
  free(all);
  free(own);
  free(rows);
}

static void test_reduce_scatter(hid_t group)
{
  check_chunks(group, "local_embs", "output", 1.0, "grad_output", "grad_input", gradient_factor(group));
}

/* An all-gather is the backward of a reduce-scatter, and vice versa. */
static void test_all_gather(hid_t group)
{
  check_chunks(group, "grad_output", "grad_input", gradient_factor(group), "local_emb", "output", 1.0);
}

/*
  Widths of the features of all ranks, in the order of owners. Each rank's part of the file has the
  widths of its own features.
*/
static int64_t *all_dims(hid_t group, int *n_features)
{
  int64_t *dims = NULL, at = 0;

  for (int q = 0; q < comm->size; q++) {
    char path[64];
    int64_t n, *part;
    snprintf(path, sizeof(path), "rank%d/in/emb_dims", q);
    part = golden_int64(group, path, &n);
    dims = realloc(dims, (size_t)(at + n + 1) * sizeof(*dims));
    memcpy(dims + at, part, (size_t)n * sizeof(*dims));
    n_features[q] = (int)n;
    at += n;
    free(part);
  }
  return dims;
}

static void test_vbe_pooled_a2a(hid_t group)
{
  int *n_features = calloc((size_t)comm->size, sizeof(int));
  int64_t n, n_local, *dims = all_dims(group, n_features);
  int64_t *source_strides = golden_int64(group, mine("in", "batch_size_per_rank_per_feature"), &n);
  int64_t *strides = golden_int64(group, mine("in", "batch_size_per_feature_pre_a2a"), &n);
  float *local = golden_float(group, mine("in", "local_embs"), &n_local),
        *grad_output = golden_float(group, mine("in", "grad_output"), &n), *send;
  TrsVariableAllToAll dist = NULL;
  const int64_t *displs;
  const float *result;

  assert_petsc_ok(TrsVariableAllToAllCreate(comm, n_features, dims, &options, &dist));
  assert_petsc_ok(TrsVariableAllToAllStart(dist, NULL, local, source_strides, strides));
  assert_petsc_ok(TrsVariableAllToAllWait(dist, NULL, &result, &displs));
  compare_floats(group, "output", result, 1.0, n);
  assert_petsc_ok(TrsVariableAllToAllGradBuffer(dist, &send, &displs));
  memcpy(send, grad_output, (size_t)n * sizeof(*send));
  assert_petsc_ok(TrsVariableAllToAllGradStart(dist, NULL));
  assert_petsc_ok(TrsVariableAllToAllGradWait(dist, NULL, &result));
  compare_floats(group, "grad_input", result, gradient_factor(group), n_local);
  assert_petsc_ok(TrsVariableAllToAllDestroy(&dist));
  free(n_features);
  free(dims);
  free(source_strides);
  free(strides);
  free(local);
  free(grad_output);
}

static void test_vbe_reduce_scatter(hid_t group)
{
  int64_t n, n_local, F, *dims = golden_attribute_int64(group, "emb_dims", &F);
  int64_t *strides = golden_int64(group, mine("in", "batch_size_per_rank_per_feature"), &n);
  float *local = golden_float(group, mine("in", "local_embs"), &n_local),
        *grad_output = golden_float(group, mine("in", "grad_output"), &n), *send;
  /* number of floats for each rank */
  int64_t *chunks = (int64_t *)calloc((size_t)comm->size, sizeof(*chunks));
  TrsPooledChunks dist = NULL;
  const float *result;

  for (int64_t i = 0; i < comm->size * F; i++) chunks[i / F] += strides[i] * dims[i % F];
  assert_petsc_ok(TrsPooledReduceScatterCreate(comm, 1, &options, &dist));
  assert_petsc_ok(TrsPooledChunksStart(dist, NULL, local, chunks));
  assert_petsc_ok(TrsPooledChunksWait(dist, NULL, &result));
  compare_floats(group, "output", result, 1.0, n);
  assert_petsc_ok(TrsPooledChunksGradBuffer(dist, &send));
  memcpy(send, grad_output, (size_t)n * sizeof(*send));
  assert_petsc_ok(TrsPooledChunksGradStart(dist, NULL));
  assert_petsc_ok(TrsPooledChunksGradWait(dist, NULL, &result));
  compare_floats(group, "grad_input", result, gradient_factor(group), n_local);
  assert_petsc_ok(TrsPooledChunksDestroy(&dist));
  free(chunks);
  free(dims);
  free(strides);
  free(local);
  free(grad_output);
}

/* First exchange the ids. They determine how many rows each rank gets, and their order. */
static void test_sequence_a2a(hid_t group)
{
  int *n_features = calloc((size_t)comm->size, sizeof(int)), F = 0;
  int64_t n, n_local, n_lengths, shape[2];
  int32_t *lengths = golden_int32(group, mine("in", "lengths_after_input_dist"), &n_lengths);
  float *local = (float *)golden_read(group, mine("in", "local_embs"), H5T_NATIVE_FLOAT, &n_local, shape),
        *rows, *send;
  float *grad_output = (float *)golden_read(group, mine("in", "grad_output"), H5T_NATIVE_FLOAT, &n, shape);
  const int64_t dim = shape[1], *sent, *received;
  TrsKjt batch = {0}, recv = {0};
  TrsSequenceAllToAll dist = NULL;
  TrsKjtExchange exchange;
  const float *result;

  read_counts(group, "features_per_rank", comm->size, n_features);
  for (int q = 0; q < comm->size; q++) F += n_features[q];
  read_kjt(group, "kjt_lengths", "kjt_values", F, &batch);
  exchange = exchange_kjt(n_features, NULL, &batch, &recv);
  assert_int_equal(recv.jagged.n_bags, n_lengths);
  for (int64_t i = 0; i < n_lengths; i++) assert_int_equal(recv.jagged.lengths[i], lengths[i]);
  rows = calloc((size_t)n_local + 1, sizeof(*rows));
  assert_petsc_ok(TrsKjtExchangeIds(exchange, &sent, &received));
  assert_petsc_ok(TrsKjtExchangeRowsToArrival(exchange, NULL, dim, local, rows));
  assert_petsc_ok(TrsSequenceAllToAllCreate(comm, dim, &options, &dist));
  assert_petsc_ok(TrsSequenceAllToAllStart(dist, NULL, rows, received, sent));
  assert_petsc_ok(TrsSequenceAllToAllWait(dist, NULL, &result));
  compare_floats(group, "output", result, 1.0, n);
  assert_petsc_ok(TrsSequenceAllToAllGradBuffer(dist, &send));
  memcpy(send, grad_output, (size_t)n * sizeof(*send));
  assert_petsc_ok(TrsSequenceAllToAllGradStart(dist, NULL));
  assert_petsc_ok(TrsSequenceAllToAllGradWait(dist, NULL, &result));
  assert_ptr_equal(result, rows); /* the result is in the memory of the rows that were sent */
  assert_petsc_ok(TrsKjtExchangeRowsFromArrival(exchange, NULL, dim, result, local));
  compare_floats(group, "grad_input", local, gradient_factor(group), n_local);
  assert_petsc_ok(TrsSequenceAllToAllDestroy(&dist));
  assert_petsc_ok(TrsKjtExchangeDestroy(&exchange));
  assert_petsc_ok(TrsKjtFree(device, &batch));
  assert_petsc_ok(TrsKjtFree(device, &recv));
  free(n_features);
  free(lengths);
  free(local);
  free(grad_output);
  free(rows);
}

/*
  The test for each kind of group, by the beginning of its name. If two names match, the longer one
  must come first.
*/
static const struct {
  const char *begin;
  void (*test)(hid_t group);
} kinds[] = {
    {"kjt_", test_kjt},
    {"twrw_input_dist", test_twrw_input_dist},
    {"pooled_a2a", test_pooled_a2a},
    {"reduce_scatter", test_reduce_scatter},
    {"all_gather", test_all_gather},
    {"vbe_pooled_a2a", test_vbe_pooled_a2a},
    {"vbe_reduce_scatter", test_vbe_reduce_scatter},
    {"sequence_a2a", test_sequence_a2a},
};

static void visit_test(hid_t group, const char *name, void *context)
{
  int n = 0;

  (void)context;
  for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]) && n == 0; k++) {
    if (strncmp(name, kinds[k].begin, strlen(kinds[k].begin)) != 0) continue;
    kinds[k].test(group);
    n++;
  }
  if (n == 0) fail_msg("nobody tests %s", name);
}

static void visit_world_size(hid_t group, const char *name, void *context)
{
  (void)context;
  if (atoi(name + 1) == comm->size) golden_for_each_group(group, visit_test, NULL);
}

static void test_units_a2a(void **state)
{
  hid_t file = golden_open("units_a2a.h5");

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  golden_for_each_group(file, visit_world_size, NULL);
  assert_petsc_ok(TrsCommDestroy(&comm));
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_units_a2a))
