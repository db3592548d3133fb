/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/qcomm.h"

#define PRECISIONS "fp32,fp16,bf16,fp8,int8" /* in the order of TrsCodecKind */

enum { TRS_QCOMM_INT8_ROW = 32 };

static const TrsOptionSpec qcomm_specs[] = {
    {.name = "-qcomm_forward_precision",
     .type = TRS_OPTION_ENUM,
     .fallback = "fp32",
     .choices = PRECISIONS,
     .help = "of embeddings between ranks; where they are summed fp8 and int8 become fp16"},
    {.name = "-qcomm_backward_precision",
     .type = TRS_OPTION_ENUM,
     .fallback = "fp32",
     .choices = PRECISIONS,
     .help = "of embeddings' gradients between ranks; where they are summed fp8 and int8 become bf16"},
    {.name = "-qcomm_fp8_row_dim",
     .type = TRS_OPTION_INT,
     .fallback = "0",
     .range = "[0,1000000]",
     .unit = "values",
     .help = "0: plain 1-4-3 format, which saturates at 0.9375; n: a float32 scale for every n values, 1-5-2 "
             "backward (int8: every 32). Rows share a scale as they travel, unless n divides their width: "
             "what is "
             "sent together, by plan, -ec_index_dedup and -ebc_variable_batch, then shows in the rounding"},
    {.name = "-qcomm_forward_loss_scale",
     .type = TRS_OPTION_REAL,
     .fallback = "1",
     .range = "(0,)",
     .help = "multiplies before encoding and divides after decoding; fp16 and bf16 only"},
    {.name = "-qcomm_backward_loss_scale",
     .type = TRS_OPTION_REAL,
     .fallback = "1",
     .range = "(0,)",
     .help = "multiplies before encoding and divides after decoding; fp16 and bf16 only"},
};
const TrsOptionGroup trs_qcomm_options = TRS_OPTION_GROUP("Quantised communication", qcomm_specs);

/* Values a row of the format has; 1: none. */
static int row_values(const TrsCodec *codec)
{
  if (codec->kind == TRS_CODEC_INT8) return codec->row_dim;
  if (codec->kind == TRS_CODEC_FP8 && codec->row_dim > 0) return codec->row_dim;
  return 1;
}

static PetscErrorCode read_codec(TrsOptions options, PetscBool backward, TrsCodec *codec)
{
  const char *precision = backward ? "-qcomm_backward_precision" : "-qcomm_forward_precision";
  const char *scale = backward ? "-qcomm_backward_loss_scale" : "-qcomm_forward_loss_scale";
  double loss_scale = 1.0;
  int64_t row_dim = 0;
  int kind = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, precision, &kind, NULL));
  PetscCall(TrsOptionsGetInt(options, "-qcomm_fp8_row_dim", &row_dim, NULL));
  PetscCall(TrsOptionsGetReal(options, scale, &loss_scale, NULL));
  *codec = (TrsCodec){
      .kind = (TrsCodecKind)kind, .backward = backward ? 1 : 0, .loss_scale = (float)loss_scale};
  if (codec->kind == TRS_CODEC_FP8) codec->row_dim = (int)row_dim;
  if (codec->kind == TRS_CODEC_INT8) codec->row_dim = TRS_QCOMM_INT8_ROW;
  if (loss_scale < 1.0 || loss_scale > 1.0) {
    if (codec->kind != TRS_CODEC_FP16 && codec->kind != TRS_CODEC_BF16)
      PetscCall(TrsOptionError(options, scale, "%g needs %s fp16 or bf16", loss_scale, precision));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQcommFromOptions(TrsOptions options, TrsCodec *forward, TrsCodec *backward)
{
  PetscFunctionBegin;
  PetscCall(read_codec(options, PETSC_FALSE, forward));
  PetscCall(read_codec(options, PETSC_TRUE, backward));
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
