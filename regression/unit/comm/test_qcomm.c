/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the options of quantised communication, the fallback for sums (src/RULES.md, rule A23), and
  blocks that are not a multiple of a format's row.
*/
#include "comm/qcomm.h"
#include "trs_test.h"

static void read_codecs(int argc, const char **words, PetscErrorCode expected,
                        TrsQcommCodecs codecs[TRS_N_QCOMM_OPS])
{
  static const TrsOptionGroup *const groups[] = {&trs_qcomm_options, &trs_comm_options};
  char text[16][64], *argv[17];
  TrsOptions options = NULL;

  for (int i = 0; i < argc; i++) {
    snprintf(text[i], sizeof(text[i]), "%s", words[i]);
    argv[i] = text[i];
  }
  argv[argc] = NULL;
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 2, &options));
  if (expected == PETSC_SUCCESS) {
    assert_petsc_ok(TrsQcommFromOptions(options, codecs));
  } else {
    assert_petsc_error(TrsQcommFromOptions(options, codecs), expected);
  }
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void test_options(void **state)
{
  TrsQcommCodecs codecs[TRS_N_QCOMM_OPS];

  (void)state;
  read_codecs(1, (const char *[]){"t"}, PETSC_SUCCESS, codecs);
  for (int op = 0; op < TRS_N_QCOMM_OPS; op++) {
    assert_int_equal(codecs[op].forward.kind, TRS_CODEC_FP32);
    assert_int_equal(codecs[op].backward.kind, TRS_CODEC_FP32);
  }
  read_codecs(7,
              (const char *[]){"t", "-qcomm_forward_precision", "int8", "-qcomm_backward_precision", "bf16",
                               "-qcomm_backward_loss_scale", "4"},
              PETSC_SUCCESS, codecs);
  for (int op = 0; op < TRS_N_QCOMM_OPS; op++) {
    assert_int_equal(codecs[op].forward.kind, TRS_CODEC_INT8);
    assert_int_equal(codecs[op].forward.row_dim, 32);
    assert_int_equal(codecs[op].backward.kind, TRS_CODEC_BF16);
    assert_int_equal(codecs[op].backward.backward, 1);
    assert_true(codecs[op].backward.loss_scale == 4.0F && codecs[op].forward.loss_scale == 1.0F);
  }
  read_codecs(7,
              (const char *[]){"t", "-qcomm_forward_precision", "fp8", "-qcomm_backward_precision", "fp8",
                               "-qcomm_fp8_row_dim", "16"},
              PETSC_SUCCESS, codecs);
  for (int op = 0; op < TRS_N_QCOMM_OPS; op++) {
    assert_int_equal(codecs[op].forward.kind, TRS_CODEC_FP8);
    assert_int_equal(codecs[op].forward.row_dim, 16);
    assert_int_equal(codecs[op].forward.backward, 0);
    assert_int_equal(codecs[op].backward.row_dim, 16);
  }
  read_codecs(5, (const char *[]){"t", "-qcomm_forward_precision", "int8", "-qcomm_forward_loss_scale", "2"},
              TRS_ERR_OPTION, codecs);
}

/*
  The precision given for one operation has priority over the precision for all operations. Scales
  and row sizes apply only to operations whose precision uses them.
*/
static void test_options_of_operations(void **state)
{
  TrsQcommCodecs codecs[TRS_N_QCOMM_OPS];

  (void)state;
  read_codecs(13,
              (const char *[]){"t", "-qcomm_forward_precision", "bf16", "-qcomm_all_to_all_forward_precision",
                               "fp8", "-qcomm_sequence_forward_precision", "fp32",
                               "-qcomm_forward_loss_scale", "8", "-qcomm_fp8_row_dim", "4",
                               "-qcomm_reduce_scatter_backward_precision", "int8"},
              PETSC_SUCCESS, codecs);
  assert_int_equal(codecs[TRS_QCOMM_ALL_TO_ALL].forward.kind, TRS_CODEC_FP8);
  assert_int_equal(codecs[TRS_QCOMM_ALL_TO_ALL].forward.row_dim, 4);
  assert_true(codecs[TRS_QCOMM_ALL_TO_ALL].forward.loss_scale == 1.0F);
  assert_int_equal(codecs[TRS_QCOMM_REDUCE_SCATTER].forward.kind, TRS_CODEC_BF16);
  assert_int_equal(codecs[TRS_QCOMM_REDUCE_SCATTER].forward.row_dim, 0);
  assert_true(codecs[TRS_QCOMM_REDUCE_SCATTER].forward.loss_scale == 8.0F);
  assert_int_equal(codecs[TRS_QCOMM_SEQUENCE].forward.kind, TRS_CODEC_FP32);
  assert_int_equal(codecs[TRS_QCOMM_ALL_TO_ALL].backward.kind, TRS_CODEC_FP32);
  assert_int_equal(codecs[TRS_QCOMM_REDUCE_SCATTER].backward.kind, TRS_CODEC_INT8);
  assert_int_equal(codecs[TRS_QCOMM_SEQUENCE].backward.kind, TRS_CODEC_FP32);
  read_codecs(5,
              (const char *[]){"t", "-qcomm_sequence_backward_precision", "fp16",
                               "-qcomm_backward_loss_scale", "1024"},
              PETSC_SUCCESS, codecs);
  assert_true(codecs[TRS_QCOMM_SEQUENCE].backward.loss_scale == 1024.0F);
  assert_true(codecs[TRS_QCOMM_ALL_TO_ALL].backward.loss_scale == 1.0F);
  read_codecs(5,
              (const char *[]){"t", "-qcomm_sequence_backward_precision", "fp8", "-qcomm_backward_loss_scale",
                               "1024"},
              TRS_ERR_OPTION, codecs);
}

static void test_sums(void **state)
{
  const TrsCodec int8 = {.kind = TRS_CODEC_INT8, .row_dim = 32}, fp8 = {.kind = TRS_CODEC_FP8},
                 fp16 = {.kind = TRS_CODEC_FP16, .loss_scale = 2.0F};

  (void)state;
  assert_int_equal(TrsQcommForSums(int8, PETSC_FALSE).kind, TRS_CODEC_FP16);
  assert_int_equal(TrsQcommForSums(int8, PETSC_TRUE).kind, TRS_CODEC_BF16);
  assert_int_equal(TrsQcommForSums(fp8, PETSC_FALSE).kind, TRS_CODEC_FP16);
  assert_int_equal(TrsQcommForSums(fp8, PETSC_TRUE).kind, TRS_CODEC_BF16);
  assert_int_equal(TrsQcommForSums(fp16, PETSC_TRUE).kind, TRS_CODEC_FP16);
  assert_true(TrsQcommForSums(fp16, PETSC_TRUE).loss_scale == 2.0F);
}

/*
  int8 sends 32 values as a row of 40 bytes. So 33 values need two rows, and the padding is not
  returned.
*/
static void test_padding(void **state)
{
  const TrsCodec int8 = {.kind = TRS_CODEC_INT8, .row_dim = 32, .loss_scale = 1.0F};
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsDeviceBuffer scratch = {0};
  float values[40], back[40];
  char wire[80];
  TrsComm comm = NULL;

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommCreate(PETSC_COMM_SELF, "mpi", device, compute, &comm));
  assert_int_equal(TrsQcommBytes(compute, &int8, 0), 0);
  assert_int_equal(TrsQcommBytes(compute, &int8, 32), 40);
  assert_int_equal(TrsQcommBytes(compute, &int8, 33), 80);
  for (int i = 0; i < 40; i++) {
    values[i] = (float)(i % 8) - 2.0F;
    back[i] = 99.0F;
  }
  assert_petsc_ok(TrsQcommEncode(comm, NULL, &int8, 33, values, wire, &scratch));
  assert_petsc_ok(TrsQcommDecode(comm, NULL, &int8, 33, wire, back, &scratch));
  for (int i = 0; i < 33; i++) /* the error is at most half a step of the range */
    assert_close(back[i], values[i], 7.0 / 255.0 / 2.0 * 1.01, 0.0);
  for (int i = 33; i < 40; i++) assert_true(back[i] == 99.0F);
  assert_petsc_ok(TrsDeviceBufferFree(device, &scratch));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

TRS_TEST_MAIN(cmocka_unit_test(test_options), cmocka_unit_test(test_options_of_operations),
              cmocka_unit_test(test_sums), cmocka_unit_test(test_padding))
