/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares with golden data of FBGEMM and TorchRec: codecs of exchanges and quantised rows byte for
  byte, and lookups of quantised tables, on every instruction set.
*/
#include "compute/compute_ops.h"
#include "dequantise.h"
#include "golden_h5.h"

#include <math.h>

static const TrsComputeOps *compute;

static TrsCodec codec_of(hid_t group)
{
  TrsCodec codec = {.loss_scale = (float)golden_number(group, "loss_scale", 1.0)};
  char precision[32];

  golden_string(group, "precision", precision, sizeof(precision));
  if (strcmp(precision, "fp16") == 0)
    codec.kind = TRS_CODEC_FP16;
  else if (strcmp(precision, "bf16") == 0)
    codec.kind = TRS_CODEC_BF16;
  else if (strcmp(precision, "fp8") == 0)
    codec.kind = TRS_CODEC_FP8;
  else if (strcmp(precision, "int8") == 0)
    codec.kind = TRS_CODEC_INT8;
  else
    fail_msg("unknown precision %s", precision);
  if (codec.kind == TRS_CODEC_FP8 || codec.kind == TRS_CODEC_INT8)
    codec.row_dim = (int)fmax(golden_number(group, "row_dim", 0.0), 0.0);
  codec.backward = golden_number(group, "forward", 1.0) < 1.0;
  return codec;
}

static void assert_floats(const char *name, const float *found, const float *expected, int64_t n)
{
  for (int64_t i = 0; i < n; i++)
    if (memcmp(&found[i], &expected[i], sizeof(*found)) != 0)
      fail_msg("%s: value %d is decoded to %.9g, expected %.9g", name, (int)i, (double)found[i],
               (double)expected[i]);
}

static void check_codec(hid_t group, const char *name)
{
  const TrsCodec codec = codec_of(group);
  int64_t n = 0, n_bytes = 0;
  float *x = golden_float(group, "in/x", &n), *decoded = golden_float(group, "out/decoded", NULL);
  uint8_t *bytes = golden_bytes(group, "out/bytes", &n_bytes), *to = calloc((size_t)n_bytes + 1, 1);
  float *back = calloc((size_t)n + 1, sizeof(*back));

  assert_int_equal(compute->codec_bytes(&codec, n), n_bytes);
  assert_petsc_ok(compute->encode(NULL, &codec, n, x, to));
  for (int64_t i = 0; i < n_bytes; i++)
    if (to[i] != bytes[i]) fail_msg("%s: byte %d is %d, expected %d", name, (int)i, to[i], bytes[i]);
  assert_petsc_ok(compute->decode(NULL, &codec, n, bytes, back));
  assert_floats(name, back, decoded, n);
  free(x);
  free(decoded);
  free(bytes);
  free(to);
  free(back);
}

static void check_rows(hid_t group, const char *name, TrsDType dtype)
{
  int64_t shape[2] = {0}, n_bytes = 0;
  float *x = golden_read(group, "in/x", H5T_NATIVE_FLOAT, NULL, shape),
        *decoded = golden_float(group, "out/decoded", NULL);
  uint8_t *bytes = golden_bytes(group, "out/bytes", &n_bytes), *to = calloc((size_t)n_bytes + 1, 1);
  const int64_t n_rows = shape[0], dim = shape[1];
  float *back = calloc((size_t)(n_rows * dim) + 1, sizeof(*back));

  assert_int_equal(TrsQuantRowBytes(dtype, TRS_ROWS_FUSED, (int)dim) * n_rows, n_bytes);
  assert_petsc_ok(TrsQuantiseRows(dtype, TRS_ROWS_FUSED, n_rows, (int)dim, x, dim, to));
  for (int64_t i = 0; i < n_bytes; i++)
    if (to[i] != bytes[i]) fail_msg("%s: byte %d is %d, expected %d", name, (int)i, to[i], bytes[i]);
  dequantise_rows(dtype, TRS_ROWS_FUSED, n_rows, (int)dim, bytes, back, dim);
  for (int64_t i = 0; i < n_rows * dim; i++) assert_close(back[i], decoded[i], 1e-6, 1e-6);
  free(x);
  free(decoded);
  free(bytes);
  free(to);
  free(back);
}

static TrsDType dtype_named(const char *name)
{
  for (int t = 0; t < TRS_N_DTYPES; t++)
    if (strcmp(TrsDTypeName((TrsDType)t), name) == 0) return (TrsDType)t;
  fail_msg("unknown type %s", name);
  return TRS_FP32;
}

/* Quantise table t and compare its rows. The caller must free the returned rows. */
static void *check_table(hid_t group, const char *name, TrsDType dtype, int t, int64_t shape[2])
{
  char path[64];
  int64_t n_bytes = 0;
  float *weight;
  uint8_t *golden, *rows;

  snprintf(path, sizeof(path), "in/weight%d", t);
  weight = golden_read(group, path, H5T_NATIVE_FLOAT, NULL, shape);
  snprintf(path, sizeof(path), "out/bytes%d", t);
  golden = golden_bytes(group, path, &n_bytes);
  assert_int_equal(n_bytes, shape[0] * TrsQuantRowBytes(dtype, TRS_ROWS_TBE, (int)shape[1]));
  rows = calloc((size_t)n_bytes, 1);
  assert_petsc_ok(TrsQuantiseRows(dtype, TRS_ROWS_TBE, shape[0], (int)shape[1], weight, shape[1], rows));
  for (int64_t i = 0; i < n_bytes; i++)
    if (rows[i] != golden[i])
      fail_msg("%s: byte %d of table %d is %d, expected %d", name, (int)i, t, rows[i], golden[i]);
  free(weight);
  free(golden);
  return rows;
}

static void round_to(const char *output_dtype, int64_t n, float *x)
{
  uint16_t *half;

  if (strcmp(output_dtype, "fp16") != 0) return;
  half = calloc((size_t)n + 1, sizeof(*half));
  assert_petsc_ok(compute->convert(NULL, n, TRS_FP32, x, TRS_FP16, half));
  assert_petsc_ok(compute->convert(NULL, n, TRS_FP16, half, TRS_FP32, x));
  free(half);
}

/* Table t belongs to key t. */
static void check_lookup(hid_t group, const char *name)
{
  const int64_t batch = (int64_t)golden_number(group, "stride", 0.0);
  char data_type[32], output_dtype[32], pooling[32], (*keys)[64];
  int64_t n_keys = 0, n_bags = 0, n_values = 0, shape[2], width = 0;
  int32_t *lengths = golden_int32(group, "in/lengths", &n_bags);
  int64_t *values = golden_int64(group, "in/values", &n_values),
          *offsets = calloc((size_t)n_bags + 1, sizeof(*offsets));
  TrsTbeTable table[16] = {{0}};
  TrsTbeFeature feature[16] = {{0}};
  TrsWorkspace workspace = NULL;
  float *out;

  golden_string(group, "data_type", data_type, sizeof(data_type));
  golden_string(group, "output_dtype", output_dtype, sizeof(output_dtype));
  golden_string(group, "pooling", pooling, sizeof(pooling));
  keys = golden_strings(group, "in/keys", &n_keys);
  assert_true(n_keys <= 16);
  for (int t = 0; t < n_keys; t++) {
    const TrsDType dtype = dtype_named(data_type);
    const int element = TrsDTypeBits(dtype) > 8 ? TrsDTypeBytes(dtype) : 1;

    table[t].weight = check_table(group, name, dtype, t, shape);
    table[t].rows = shape[0];
    table[t].dim = (int32_t)shape[1];
    table[t].dtype = dtype;
    table[t].stride = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, (int)shape[1]) / element;
    feature[t] = (TrsTbeFeature){.table = t, .mean = strcmp(pooling, "mean") == 0, .out_column = width};
    width += shape[1];
  }
  out = calloc((size_t)(batch * width), sizeof(*out));
  assert_petsc_ok(compute->offsets(NULL, n_bags, lengths, offsets));
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->tbe_forward(
      NULL, workspace, &(TrsTbe){(int)n_keys, (int)n_keys, table, feature},
      &(TrsTbeInput){.batch = batch, .offsets = offsets, .values = values, .n_values = n_values},
      TrsFloats(out, width)));
  round_to(output_dtype, batch * width, out);
  for (int t = 0; t < n_keys; t++) {
    char path[128];
    float *golden;

    snprintf(path, sizeof(path), "out/%s", keys[t]);
    golden = golden_float(group, path, NULL);
    for (int64_t b = 0; b < batch; b++)
      for (int d = 0; d < table[t].dim; d++)
        assert_close(out[b * width + feature[t].out_column + d], golden[b * table[t].dim + d], 1e-6, 1e-6);
    free(golden);
    free(table[t].weight);
  }
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  free(keys);
  free(lengths);
  free(values);
  free(offsets);
  free(out);
}

static void one_group(hid_t group, const char *name, void *context)
{
  (void)context;
  if (golden_has_attribute(group, "precision"))
    check_codec(group, name);
  else if (golden_has_attribute(group, "data_type"))
    check_lookup(group, name);
  else if (golden_has_attribute(group, "bits"))
    check_rows(group, name, golden_number(group, "bits", 4.0) < 3.0 ? TRS_INT2 : TRS_INT4);
  else if (strncmp(name, "rowwise_int8", 12) == 0)
    check_rows(group, name, TRS_INT8);
  else
    fail_msg("%s: a test of a kind unknown here", name);
}

static void test_golden(void **state)
{
  static const char *const isas[] = {"portable", "avx2", "avx512"};
  hid_t file = golden_open("units_quant.h5");

  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  for (int i = 0; i < 3; i++) {
    TrsComputeSetIsa(isas[i]);
    golden_for_each_group(file, one_group, NULL);
  }
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden))
