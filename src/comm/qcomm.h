/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Quantised communication: embedding exchanges encode the blocks that they send. Some formats encode
  rows of several values together (int8: 32; row-wise fp8: row_dim). The block for a destination is
  then padded with zeros to whole rows.

  Source: TorchRec qcomm_codec (torchrec.distributed.fbgemm_qcomm_codec), CommOp and a sharder's
          qcomm_codecs_registry. The padding differs: TorchRec fails if a block does not consist of
          whole rows.
*/
#pragma once

#include "comm/comm.h"

extern const TrsOptionGroup trs_qcomm_options; /* -qcomm_* */

/*
  Operations whose precision has options of its own: two for pooled rows, and one for the rows of
  sequence tables.
*/
typedef enum {
  TRS_QCOMM_ALL_TO_ALL,
  TRS_QCOMM_REDUCE_SCATTER,
  TRS_QCOMM_SEQUENCE,
  TRS_N_QCOMM_OPS
} TrsQcommOp;

typedef struct {
  TrsCodec forward, backward; /* if the kind is fp32, values are not encoded */
  PetscBool given[2];         /* [forward, backward] true if an option set the codec */
} TrsQcommCodecs;

/*
  Read from the options the codecs of all operations. Not collective. Errors: OPTION for a loss
  scale if no operation has a precision that uses one.
*/
PetscErrorCode TrsQcommFromOptions(TrsOptions options, TrsQcommCodecs codecs[TRS_N_QCOMM_OPS]);

/*
  Find the option that chose an operation's precision. It is the operation's own option if this was
  given, and otherwise the option for all operations. Not collective.
*/
PetscErrorCode TrsQcommOptionName(TrsOptions options, TrsQcommOp op, PetscBool backward, const char **name);

/*
  Return the codec for a sum over ranks. Values in fp8 and int8 cannot be summed; they become fp16
  in the forward and bf16 in the backward (src/RULES.md, rule A23).
*/
TrsCodec TrsQcommForSums(TrsCodec codec, PetscBool backward);

/* Return the number of bytes that are sent for a block of n values. */
int64_t TrsQcommBytes(const TrsComputeOps *compute, const TrsCodec *codec, int64_t n);

/*
  Encode or decode a block, in the order of the stream. scratch grows to the size of a row. Not
  collective.
*/
PetscErrorCode TrsQcommEncode(TrsComm comm, TrsStream stream, const TrsCodec *codec, int64_t n,
                              const float *from, void *to, TrsDeviceBuffer *scratch);
PetscErrorCode TrsQcommDecode(TrsComm comm, TrsStream stream, const TrsCodec *codec, int64_t n,
                              const void *from, float *to, TrsDeviceBuffer *scratch);
