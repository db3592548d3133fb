/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Encoders of raw rows. An encoder only holds the rules of a mapping. Calls read the rules and write
  to the caller's memory, so any number of threads may encode at the same time. Like a predictor, an
  encoder works before MPI and PETSc have started.
*/
#include "api/encode.h"
#include "api/impl.h"
#include "core/c_locale.h"

#include <inttypes.h>

struct TrshardEncoderImpl {
  TrsEncodeRules rules;
};

static PetscErrorCode destroy_encoder(TrshardEncoder e)
{
  PetscFunctionBegin;
  if (!TrsApiHandleTake(e)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsEncodeRulesFree(&e->rules));
  TrsApiHandleFree(e);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_encoder(const TrsMapping *mapping, int32_t num_dense, const char *const *dense,
                                     int32_t n_features, const char *const *features, TrshardEncoder *encoder)
{
  TrshardEncoder e;

  PetscFunctionBegin;
  PetscCall(TrsApiGiven(mapping->text, "TrshardEncoderCreateFrom", "mapping"));
  PetscCheck(num_dense >= 0 && n_features >= 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TrshardEncoderCreateFrom: num_dense is %" PRId32 " and n_features is %" PRId32
             ", expected 0 or more",
             num_dense, n_features);
  for (int32_t d = 0; dense && d < num_dense; d++)
    PetscCall(TrsApiGiven(dense[d], "TrshardEncoderCreateFrom", "a name of a dense feature"));
  for (int32_t f = 0; features && f < n_features; f++)
    PetscCall(TrsApiGiven(features[f], "TrshardEncoderCreateFrom", "a name of a feature"));
  PetscCall(TrsApiHandleCreate(sizeof(*e), &e));
  *encoder = e; /* set also after an error: the caller frees it */
  PetscCall(TrsMappingEntriesRead(mapping, num_dense, dense, n_features, features, &e->rules.entries));
  PetscCall(TrsEncodeRulesPrepare(&e->rules));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_of_predictor(TrshardPredictor predictor, TrshardEncoder *encoder)
{
  static const char *const none[] = {NULL};
  TrsMapping mapping = {.path = "the checkpoint"};
  const char *const *features, *const *dense;
  int32_t num_dense, n_features;

  PetscFunctionBegin;
  PetscCall(TrsApiAlive(predictor, "TrshardEncoderCreate", "predictor"));
  (void)TrshardPredictorShape(predictor, &num_dense, &n_features, &features, NULL);
  (void)TrshardPredictorNames(predictor, &dense, NULL);
  (void)TrshardPredictorCheckpoint(predictor, NULL, &mapping.text);
  PetscCheck(mapping.text, PETSC_COMM_SELF, TRS_ERR_DATA,
             "the checkpoint has no mapping, so its columns are unknown: its training data was made without "
             "a mapping (tools/convert_table.py writes one)");
  PetscCall(create_encoder(&mapping, num_dense, num_dense ? dense : none, n_features, features, encoder));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Free an encoder whose creation failed. */
static int end_creation(int status, TrshardEncoder *encoder)
{
  if (status == TRSHARD_SUCCESS) return status;
  if (*encoder) TRS_API_CLEAR(destroy_encoder(*encoder));
  *encoder = NULL;
  return status;
}

int TrshardEncoderCreate(TrshardPredictor predictor, TrshardEncoder *encoder)
{
  if (!encoder) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "encoder"));
  *encoder = NULL;
  return end_creation(TRS_API_CALL(create_of_predictor(predictor, encoder)), encoder);
}

int TrshardEncoderCreateFrom(const char *mapping, int32_t num_dense, const char *const *dense,
                             int32_t n_features, const char *const *features, TrshardEncoder *encoder)
{
  const TrsMapping of = {.path = "the text", .text = mapping};

  if (!encoder) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "encoder"));
  *encoder = NULL;
  return end_creation(TRS_API_CALL(create_encoder(&of, num_dense, dense, n_features, features, encoder)),
                      encoder);
}

int TrshardEncoderDestroy(TrshardEncoder *encoder)
{
  const TrshardEncoder e = encoder ? *encoder : NULL;

  if (encoder) *encoder = NULL;
  if (!e) return TRSHARD_SUCCESS;
  return TRS_API_CALL(TrsApiAlive(e, __func__, "encoder") ? TRS_ERR_OPTION : destroy_encoder(e));
}

int TrshardEncoderColumns(TrshardEncoder e, int32_t *n_columns, const TrshardColumnInfo **columns)
{
  if (!TrsApiHandleIsAlive(e)) return TRS_API_CALL(TrsApiAlive(e, __func__, "encoder"));
  if (n_columns) *n_columns = e->rules.n_columns;
  if (columns) *columns = e->rules.column;
  return TRSHARD_SUCCESS;
}

static PetscErrorCode encode(TrshardEncoder e, int64_t rows, const TrshardColumn *columns,
                             TrshardEncoded **encoded)
{
  PetscFunctionBegin;
  PetscCall(TrsApiAlive(e, "TrshardEncode", "encoder"));
  PetscCall(TrsApiGiven(encoded, "TrshardEncode", "encoded"));
  PetscCheck(rows >= 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TrshardEncode: rows is %" PRId64 ", expected 0 or more", rows);
  if (rows > 0 && e->rules.n_columns > 0) PetscCall(TrsApiGiven(columns, "TrshardEncode", "columns"));
  PetscCall(TrsEncode(&e->rules, rows, columns, encoded));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's error handlers belong to one thread, so this call only sets its own thread's message. */
int TrshardEncode(TrshardEncoder e, int64_t rows, const TrshardColumn *columns, TrshardEncoded **encoded)
{
  PetscErrorCode ierr;
  locale_t before;

  TrsApiEarlyError(NULL);
  TrsErrorClear();
  before = TrsCLocale();
  ierr = encode(e, rows, columns, encoded);
  (void)uselocale(before);
  return ierr ? TrsExitStatus(ierr) : TRSHARD_SUCCESS;
}

void TrshardEncodedFree(TrshardEncoded **encoded)
{
  TrsEncodedFree(encoded);
}
