/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Quantised communication: the precision of embedding exchanges on the wire, and encoding of whole
  blocks. Formats work on rows of several values (int8: 32; row-wise fp8: row_dim). The block for
  one destination is padded with zeros to whole rows.

  Source: TorchRec qcomm_codec (torchrec.distributed.fbgemm_qcomm_codec), CommOp and a sharder's
          qcomm_codecs_registry. The padding differs: TorchRec fails on sizes that are not a
          multiple.
*/
#pragma once

#include "comm/comm.h"

extern const TrsOptionGroup trs_qcomm_options; /* -qcomm_* */

/* Operations with their own codecs: for pooled rows, and for rows of sequence tables. */
typedef enum {
  TRS_QCOMM_ALL_TO_ALL,
  TRS_QCOMM_REDUCE_SCATTER,
  TRS_QCOMM_SEQUENCE,
  TRS_N_QCOMM_OPS
} TrsQcommOp;

typedef struct {
  TrsCodec forward, backward; /* kind fp32: not encoded */
  PetscBool given[2];         /* forward, backward: set by an option, not by default */
} TrsQcommCodecs;

/*
  The codecs that the options choose. Not collective. Errors: OPTION for a loss scale if no
  operation has a precision that uses one.
*/
PetscErrorCode TrsQcommFromOptions(TrsOptions options, TrsQcommCodecs codecs[TRS_N_QCOMM_OPS]);

/*
  The option that chose an operation's precision: the operation's own option if it was given, else
  the option for all operations. Not collective.
*/
PetscErrorCode TrsQcommOptionName(TrsOptions options, TrsQcommOp op, PetscBool backward, const char **name);

/*
  The codec for a sum over ranks. fp8 and int8 cannot be summed; they become fp16 forward and bf16
  backward (src/RULES.md, rule A23).
*/
TrsCodec TrsQcommForSums(TrsCodec codec, PetscBool backward);

/* Bytes on the wire for a block of n values. */
int64_t TrsQcommBytes(const TrsComputeOps *compute, const TrsCodec *codec, int64_t n);

/*
  Encode or decode a block, in the order of the stream. scratch grows to one row. Not collective.
*/
PetscErrorCode TrsQcommEncode(TrsComm comm, TrsStream stream, const TrsCodec *codec, int64_t n,
                              const float *from, void *to, TrsDeviceBuffer *scratch);
PetscErrorCode TrsQcommDecode(TrsComm comm, TrsStream stream, const TrsCodec *codec, int64_t n,
                              const void *from, float *to, TrsDeviceBuffer *scratch);
