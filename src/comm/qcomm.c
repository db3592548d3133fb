/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/qcomm.h"

enum { TRS_QCOMM_INT8_ROW = 32 };

#define PRECISION_OF(op, way, what) \
  { \
    .name = "-qcomm_" op "_" way "_precision", .type = TRS_OPTION_ENUM, .choices = TRS_CHOICES(TRS_CODECS), \
    .help = what " (default: -qcomm_" way "_precision)" \
  }

static const TrsOptionSpec qcomm_specs[] = {
    {.name = "-qcomm_forward_precision",
     .type = TRS_OPTION_ENUM,
     .fallback = "fp32",
     .choices = TRS_CHOICES(TRS_CODECS),
     .help = "precision of embeddings between ranks. If they are summed, fp8 and int8 become fp16. If this "
             "option is not given, -dense_precision bf16 with -device cuda sets it to bf16 (not with "
             "-reproducible)"},
    {.name = "-qcomm_backward_precision",
     .type = TRS_OPTION_ENUM,
     .fallback = "fp32",
     .choices = TRS_CHOICES(TRS_CODECS),
     .help =
         "precision of embeddings' gradients between ranks. If they are summed, fp8 and int8 become bf16. If "
         "this option is not given, -dense_precision bf16 with -device cuda sets it to bf16 (not with "
         "-reproducible)"},
    PRECISION_OF("all_to_all", "forward",
                 "precision of pooled rows that go unchanged to the ranks of their samples: table_wise, "
                 "column_wise, table_column_wise; between hosts table_row_wise, grid_shard"),
    PRECISION_OF("all_to_all", "backward", "precision of the gradients of these rows"),
    PRECISION_OF("reduce_scatter", "forward",
                 "precision of partial sums of pooled rows: row_wise; inside a host table_row_wise, "
                 "grid_shard. fp8 and int8 become fp16"),
    PRECISION_OF("reduce_scatter", "backward",
                 "precision of the gradients of these sums; fp8 and int8 become bf16"),
    PRECISION_OF("sequence", "forward", "precision of the rows of sequence tables"),
    PRECISION_OF("sequence", "backward", "precision of the gradients of these rows"),
    {.name = "-qcomm_fp8_row_dim",
     .type = TRS_OPTION_INT,
     .fallback = "0",
     .range = "[0,1000000]",
     .unit = "values",
     .help =
         "0: plain 1-4-3 format, which saturates at 0.9375; n: a float32 scale for every n values, 1-5-2 "
         "backward (int8: every 32). Unless n divides the width of rows, rows that are sent together share "
         "scales. The rounding then depends on the plan, -ec_index_dedup and -ebc_variable_batch"},
    {.name = "-qcomm_forward_loss_scale",
     .type = TRS_OPTION_REAL,
     .fallback = "1",
     .range = "(0,)",
     .help = "factor before encoding, and divisor after decoding, for exchanges in fp16 and bf16"},
    {.name = "-qcomm_backward_loss_scale",
     .type = TRS_OPTION_REAL,
     .fallback = "1",
     .range = "(0,)",
     .help = "factor before encoding, and divisor after decoding, for exchanges in fp16 and bf16"},
};
const TrsOptionGroup trs_qcomm_options = TRS_OPTION_GROUP("Quantised communication", qcomm_specs);

/*
  Return the number of values that the format encodes together as a row; 1 if the format has no
  rows.
*/
static int row_values(const TrsCodec *codec)
{
  if (codec->kind == TRS_CODEC_INT8) return codec->row_dim;
  if (codec->kind == TRS_CODEC_FP8 && codec->row_dim > 0) return codec->row_dim;
  return 1;
}

PetscErrorCode TrsQcommOptionName(TrsOptions options, TrsQcommOp op, PetscBool backward, const char **name)
{
  static const char *const own[TRS_N_QCOMM_OPS][2] = {
      {"-qcomm_all_to_all_forward_precision", "-qcomm_all_to_all_backward_precision"},
      {"-qcomm_reduce_scatter_forward_precision", "-qcomm_reduce_scatter_backward_precision"},
      {"-qcomm_sequence_forward_precision", "-qcomm_sequence_backward_precision"}};
  static const char *const of_all[] = {"-qcomm_forward_precision", "-qcomm_backward_precision"};
  PetscBool set;
  int kind;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, own[op][backward], &kind, &set));
  *name = set ? own[op][backward] : of_all[backward];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool takes_scale(const TrsCodec *codec)
{
  return (PetscBool)(codec->kind == TRS_CODEC_FP16 || codec->kind == TRS_CODEC_BF16);
}

static PetscErrorCode read_codec(TrsOptions options, TrsQcommOp op, PetscBool backward, double loss_scale,
                                 TrsCodec *codec, PetscBool *given)
{
  const char *name = NULL;
  int64_t row_dim = 0;
  int kind = 0;

  PetscFunctionBegin;
  PetscCall(TrsQcommOptionName(options, op, backward, &name));
  PetscCall(TrsOptionsGetEnum(options, name, &kind, given));
  PetscCall(TrsOptionsGetInt(options, "-qcomm_fp8_row_dim", &row_dim, NULL));
  *codec = (TrsCodec){.kind = (TrsCodecKind)kind, .backward = backward ? 1 : 0, .loss_scale = 1.0F};
  if (codec->kind == TRS_CODEC_FP8) codec->row_dim = (int)row_dim;
  if (codec->kind == TRS_CODEC_INT8) codec->row_dim = TRS_QCOMM_INT8_ROW;
  if (takes_scale(codec)) codec->loss_scale = (float)loss_scale;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQcommFromOptions(TrsOptions options, TrsQcommCodecs codecs[TRS_N_QCOMM_OPS])
{
  static const char *const names[] = {"-qcomm_forward_loss_scale", "-qcomm_backward_loss_scale"};

  PetscFunctionBegin;
  for (int backward = 0; backward < 2; backward++) {
    double scale = 1.0;
    PetscBool scaled = PETSC_FALSE;

    PetscCall(TrsOptionsGetReal(options, names[backward], &scale, NULL));
    for (int op = 0; op < TRS_N_QCOMM_OPS; op++) {
      TrsCodec *codec = backward ? &codecs[op].backward : &codecs[op].forward;

      PetscCall(read_codec(options, (TrsQcommOp)op, (PetscBool)backward, scale, codec,
                           &codecs[op].given[backward]));
      if (takes_scale(codec)) scaled = PETSC_TRUE;
    }
    if ((scale < 1.0 || scale > 1.0) && !scaled)
      PetscCall(TrsOptionError(options, names[backward],
                               "%g needs an exchange whose -qcomm_%s_precision is fp16 or bf16", scale,
                               backward ? "backward" : "forward"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsCodec TrsQcommForSums(TrsCodec codec, PetscBool backward)
{
  if (codec.kind == TRS_CODEC_FP8 || codec.kind == TRS_CODEC_INT8)
    codec = (TrsCodec){
        .kind = backward ? TRS_CODEC_BF16 : TRS_CODEC_FP16, .backward = backward ? 1 : 0, .loss_scale = 1.0F};
  return codec;
}

int64_t TrsQcommBytes(const TrsComputeOps *compute, const TrsCodec *codec, int64_t n)
{
  const int64_t row = row_values(codec);

  return compute->codec_bytes(codec, (n + row - 1) / row * row);
}

PetscErrorCode TrsQcommEncode(TrsComm comm, TrsStream stream, const TrsCodec *codec, int64_t n,
                              const float *from, void *to, TrsDeviceBuffer *scratch)
{
  const int64_t row = row_values(codec), tail = n % row, whole = n - tail;
  const int64_t row_bytes = row * (int64_t)sizeof(float);

  PetscFunctionBegin;
  if (whole > 0) PetscCall(comm->compute->encode(stream, codec, whole, from, to));
  if (tail > 0) {
    PetscCall(TrsDeviceBufferReserve(comm->device, scratch, row_bytes));
    PetscCall(comm->device->zero(scratch->data, row_bytes, stream));
    PetscCall(comm->device->copy(scratch->data, from + whole, tail * (int64_t)sizeof(float), stream));
    PetscCall(comm->compute->encode(stream, codec, row, (const float *)scratch->data,
                                    (char *)to + comm->compute->codec_bytes(codec, whole)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQcommDecode(TrsComm comm, TrsStream stream, const TrsCodec *codec, int64_t n,
                              const void *from, float *to, TrsDeviceBuffer *scratch)
{
  const int64_t row = row_values(codec), tail = n % row, whole = n - tail;

  PetscFunctionBegin;
  if (whole > 0) PetscCall(comm->compute->decode(stream, codec, whole, from, to));
  if (tail > 0) {
    PetscCall(TrsDeviceBufferReserve(comm->device, scratch, row * (int64_t)sizeof(float)));
    PetscCall(comm->compute->decode(stream, codec, row,
                                    (const char *)from + comm->compute->codec_bytes(codec, whole),
                                    (float *)scratch->data));
    PetscCall(comm->device->copy(to + whole, scratch->data, tail * (int64_t)sizeof(float), stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
