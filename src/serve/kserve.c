/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The Open Inference Protocol, version 2 (KServe), with the extension for tensors in binary form.

  Inputs of n samples: "dense" FP32 [n, num_dense], and for each sparse feature F "F.ids" INT64
  [ids] and "F.lengths" INT32 [n], the number of ids of each sample. Outputs: FP32 [n] for each task
  or class. The version of a model is its number of updates. Each answer also has it as
  parameters.step.
*/
#include "core/version.h"
#include "serve/protocol.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* If *url begins with `part`, and the part ends there or at a slash, move *url behind the part. */
static int skip_part(const char **url, const char *part)
{
  const size_t n = strlen(part);

  if (strncmp(*url, part, n) != 0 || ((*url)[n] != '\0' && (*url)[n] != '/')) return 0;
  *url += n;
  return 1;
}

/* Find what the rest of a URL behind the model's name asks for. */
static TrsServeAction find_of_model(const TrsServeFacts *facts, const char *rest, TrsServeOutcome *outcome)
{
  char step[32];

  snprintf(step, sizeof(step), "/%" PRId64, facts->step);
  if (skip_part(&rest, "/versions") && !skip_part(&rest, step)) {
    (void)TrsServeRefuse(outcome, 404, "model %s has version %" PRId64 " now, and no other", facts->name,
                         facts->step);
    return TRS_SERVE_MODEL;
  }
  if (!strcmp(rest, "")) return TRS_SERVE_MODEL;
  if (!strcmp(rest, "/ready")) return TRS_SERVE_MODEL_READY;
  if (!strcmp(rest, "/infer")) return TRS_SERVE_PREDICT;
  return TRS_SERVE_NOTHING;
}

static TrsServeAction find(const TrsServeFacts *facts, const char *url, TrsServeOutcome *outcome)
{
  static const char models[] = "/v2/models/";
  char model[300];
  const char *rest = url + sizeof(models) - 2;

  if (!strcmp(url, "/v2") || !strcmp(url, "/v2/")) return TRS_SERVE_SERVER;
  if (!strcmp(url, "/v2/health/live")) return TRS_SERVE_LIVE;
  if (!strcmp(url, "/v2/health/ready")) return TRS_SERVE_READY;
  if (!strcmp(url, "/metrics")) return TRS_SERVE_METRICS;
  if (strncmp(url, models, sizeof(models) - 1) != 0) return TRS_SERVE_NOTHING;
  snprintf(model, sizeof(model), "/%s", facts->name);
  if (skip_part(&rest, model)) return find_of_model(facts, rest, outcome);
  (void)TrsServeRefuse(outcome, 404, "unknown model, expected %s (-serve_name)", facts->name);
  return TRS_SERVE_MODEL;
}

/* --- answers --- */

static void add_tensor(TrsServeText *text, const char *comma, const char *name, const char *ending,
                       const char *type, const char *shape)
{
  char whole[300];

  snprintf(whole, sizeof(whole), "%s%s", name, ending);
  TrsServeTextPrint(text, "%s{\"name\":", comma);
  TrsServeTextString(text, whole);
  TrsServeTextPrint(text, ",\"datatype\":\"%s\",\"shape\":%s}", type, shape);
}

/* The column's usual datatype. Other types are accepted, too, as the converter accepts them. */
static void add_column(TrsServeText *text, const char *comma, const TrshardColumnInfo *column)
{
  const char *type = column->wants == TRSHARD_WANTS_NUMBERS    ? "FP64"
                     : column->wants == TRSHARD_WANTS_INTEGERS ? "INT64"
                                                               : "BYTES";
  char shape[32] = "[-1]";

  if (column->width > 1) snprintf(shape, sizeof(shape), "[-1,%" PRId32 "]", column->width);
  add_tensor(text, comma, column->name, "", type, shape);
  if (column->is_bag) add_tensor(text, ",", column->name, ".lengths", "INT32", "[-1]");
}

static void describe_model(const TrsServeFacts *facts, TrsServeText *text)
{
  const TrsServeShape *shape = facts->shape;
  const char *comma = "";
  char dense[64];

  TrsServeTextPrint(text, "{\"name\":");
  TrsServeTextString(text, facts->name);
  TrsServeTextPrint(text, ",\"versions\":[\"%" PRId64 "\"],\"platform\":\"trshard\",\"inputs\":[",
                    facts->step);
  snprintf(dense, sizeof(dense), "[-1,%" PRId32 "]", shape->num_dense);
  if (shape->num_dense > 0) {
    add_tensor(text, comma, "dense", "", "FP32", dense);
    comma = ",";
  }
  for (int32_t f = 0; f < shape->n_features; f++, comma = ",") {
    add_tensor(text, comma, shape->feature[f], ".ids", "INT64", "[-1]");
    add_tensor(text, ",", shape->feature[f], ".lengths", "INT32", "[-1]");
  }
  TrsServeTextPrint(text, "],\"outputs\":[");
  for (int32_t o = 0; o < shape->n_outputs; o++)
    add_tensor(text, o ? "," : "", shape->output[o], "", "FP32", "[-1]");
  if (shape->n_columns > 0) TrsServeTextPrint(text, "],\"raw_inputs\":[");
  for (int32_t c = 0; c < shape->n_columns; c++) add_column(text, c ? "," : "", &shape->column[c]);
  TrsServeTextPrint(text, "],\"parameters\":{\"step\":%" PRId64 "}}", facts->step);
}

static void describe(const TrsServeFacts *facts, TrsServeAction action, TrsServeText *text)
{
  if (action == TRS_SERVE_MODEL)
    describe_model(facts, text);
  else
    TrsServeTextPrint(text, "{\"name\":\"trshard-serve\",\"version\":\"" TRS_VERSION
                            "\",\"extensions\":[\"binary_tensor_data\"]}");
}

/* Append an output's numbers as JSON. They have enough digits to give the same floats again. */
static void add_numbers(const TrsServeRequest *r, const TrsServeShape *shape, int32_t output,
                        TrsServeText *text)
{
  const float *from = (const float *)r->predictions.data + output;

  for (int64_t i = 0; i < r->n; i++) {
    const double number = (double)from[i * shape->n_outputs];

    if (isfinite(number))
      TrsServeTextPrint(text, "%s%.9g", i ? "," : "", number);
    else
      TrsServeTextPrint(text, "%snull", i ? "," : "");
  }
}

static void add_binary(const TrsServeRequest *r, const TrsServeShape *shape, int32_t output,
                       TrsServeText *text)
{
  const float *from = (const float *)r->predictions.data + output;

  for (int64_t i = 0; i < r->n; i++) TrsServeTextAdd(text, &from[i * shape->n_outputs], sizeof(float));
}

static void answer(const TrsServeFacts *facts, const TrsServeRequest *r, const TrsServeForm *form,
                   TrsServeText *text, int64_t *json_bytes)
{
  const TrsServeShape *shape = facts->shape;

  TrsServeTextPrint(text, "{\"model_name\":");
  TrsServeTextString(text, facts->name);
  TrsServeTextPrint(text, ",\"model_version\":\"%" PRId64 "\"", r->step);
  if (form->id[0]) {
    TrsServeTextPrint(text, ",\"id\":");
    TrsServeTextString(text, form->id);
  }
  TrsServeTextPrint(text, ",\"parameters\":{\"step\":%" PRId64 "},\"outputs\":[", r->step);
  for (int32_t i = 0; i < form->n; i++) {
    const int32_t output = form->wanted[i].output;

    TrsServeTextPrint(text, "%s{\"name\":", i ? "," : "");
    TrsServeTextString(text, shape->output[output]);
    TrsServeTextPrint(text, ",\"datatype\":\"FP32\",\"shape\":[%" PRId64 "],", r->n);
    if (form->wanted[i].binary) {
      TrsServeTextPrint(text, "\"parameters\":{\"binary_data_size\":%" PRId64 "}}",
                        r->n * (int64_t)sizeof(float));
    } else {
      TrsServeTextPrint(text, "\"data\":[");
      add_numbers(r, shape, output, text);
      TrsServeTextPrint(text, "]}");
    }
  }
  TrsServeTextPrint(text, "]}");
  *json_bytes = text->n;
  for (int32_t i = 0; i < form->n; i++)
    if (form->wanted[i].binary) add_binary(r, shape, form->wanted[i].output, text);
}

static void refuse(const TrsServeOutcome *outcome, TrsServeText *text)
{
  TrsServeTextPrint(text, "{\"error\":");
  TrsServeTextString(text, outcome->message);
  TrsServeTextPrint(text, "}");
}

static const TrsServeProtocol kserve = {
    .find = find, .parse = TrsServeKserveParse, .answer = answer, .describe = describe, .refuse = refuse};
const TrsServeProtocol *const trs_serve_protocols[] = {&kserve, NULL};

void TrsServeFormFree(TrsServeForm *form)
{
  (void)PetscFree(form->wanted);
  form->n = 0;
  form->id[0] = '\0';
}
