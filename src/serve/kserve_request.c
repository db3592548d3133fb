/* SPDX-License-Identifier: BSD-3-Clause */
/* The parser of requests in the Open Inference Protocol (kserve.c has the inputs' names). */
#include "core/names.h"
#include "serve/protocol.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

/* --- types --- */

typedef enum { TRS_SERVE_SIGNED, TRS_SERVE_UNSIGNED, TRS_SERVE_REAL, TRS_SERVE_TEXT } TrsServeKind;

typedef struct {
  const char *name;
  TrsServeKind kind;
  int bytes; /* 0 for texts, whose lengths differ */
} TrsServeType;

static const TrsServeType types[] = {
    {"INT64", TRS_SERVE_SIGNED, 8},    {"INT32", TRS_SERVE_SIGNED, 4},    {"INT16", TRS_SERVE_SIGNED, 2},
    {"INT8", TRS_SERVE_SIGNED, 1},     {"UINT64", TRS_SERVE_UNSIGNED, 8}, {"UINT32", TRS_SERVE_UNSIGNED, 4},
    {"UINT16", TRS_SERVE_UNSIGNED, 2}, {"UINT8", TRS_SERVE_UNSIGNED, 1},  {"FP32", TRS_SERVE_REAL, 4},
    {"FP64", TRS_SERVE_REAL, 8},       {"BYTES", TRS_SERVE_TEXT, 0}};

/* An element of a tensor. Integers keep all their bits. */
typedef struct {
  int64_t integer;
  double real;
  const char *text; /* [n_text] of a text; NULL if it is none */
  size_t n_text;
  PetscBool missing; /* null in JSON */
} TrsServeNumber;

/* Read number i of a tensor in binary form. */
static TrsServeNumber read_binary(const TrsServeType *t, const char *from, int64_t i)
{
  const char *at = from + i * t->bytes;
  uint64_t bits = 0;
  TrsServeNumber n = {.integer = 0};

  memcpy(&bits, at, (size_t)t->bytes); /* the protocol's numbers are little-endian, as ours */
  if (t->kind == TRS_SERVE_REAL) {
    float narrow;

    if (t->bytes == 4)
      memcpy(&narrow, at, sizeof(narrow));
    else
      memcpy(&n.real, at, sizeof(n.real));
    if (t->bytes == 4) n.real = (double)narrow;
    return n;
  }
  if (t->kind == TRS_SERVE_SIGNED && t->bytes < 8 && bits >> (8 * t->bytes - 1))
    bits |= ~UINT64_C(0) << (8 * t->bytes);
  memcpy(&n.integer, &bits, sizeof(bits));
  n.real = t->kind == TRS_SERVE_SIGNED ? (double)n.integer : (double)bits;
  return n;
}

/* --- tensors --- */

typedef struct {
  const char *name;
  const TrsServeType *type;
  int ndim;
  int64_t dims[2], n; /* n: number of elements */
  const json_t *data; /* NULL if the tensor is in binary form */
  const char *binary;
  int64_t n_binary; /* number of bytes */
} TrsServeTensor;

typedef struct {
  const TrsServeShape *shape;
  const TrsServeBody *body;
  TrsServeRequest *request;
  TrsServeOutcome *outcome;
  int64_t binary_at; /* position of the next binary tensor in the body */
  int32_t feature;   /* feature whose lengths are read */
  const TrsServeTensor *dense;
  /* [n_features] NULL if the request lacks them */
  const TrsServeTensor **ids, **lengths, **weights;
  const TrsServeTensor **column, **column_lengths; /* [n_columns] raw columns, in the same way */
  int64_t n_cells, n_text;                         /* numbers of values, and of bytes of texts */
} TrsServeParser;

#define REFUSE(p, ...) TrsServeRefuse((p)->outcome, 400, __VA_ARGS__)

static int take_type(TrsServeParser *p, const json_t *input, TrsServeTensor *t)
{
  const char *name = json_string_value(json_object_get(input, "datatype"));

  for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++)
    if (!strcmp(name, types[i].name)) t->type = &types[i];
  if (t->type) return 200;
  return REFUSE(
      p,
      "input \"%.100s\" has datatype \"%.20s\", expected FP32, FP64, INT8 to INT64, UINT8 to UINT64 or BYTES",
      t->name, name ? name : "");
}

static int take_shape(TrsServeParser *p, const json_t *input, TrsServeTensor *t)
{
  const json_t *shape = json_object_get(input, "shape");

  t->ndim = (int)json_array_size(shape);
  if (!json_is_array(shape) || t->ndim < 1 || t->ndim > 2)
    return REFUSE(p, "input \"%.100s\": shape must be a list of one or two numbers", t->name);
  t->n = 1;
  for (int d = 0; d < t->ndim; d++) {
    const json_t *dim = json_array_get(shape, (size_t)d);

    t->dims[d] = json_integer_value(dim);
    /* each element takes at least a byte of the body */
    if (!json_is_integer(dim) || t->dims[d] < 0 || (t->dims[d] > 0 && t->n > p->body->n / t->dims[d]))
      return REFUSE(p, "input \"%.100s\": shape has a number that is negative or larger than the request",
                    t->name);
    t->n *= t->dims[d];
  }
  return 200;
}

static int take_data(TrsServeParser *p, const json_t *input, TrsServeTensor *t)
{
  const json_t *size = json_object_get(json_object_get(input, "parameters"), "binary_data_size");
  const int64_t wanted = t->type->kind == TRS_SERVE_TEXT ? json_integer_value(size) : t->n * t->type->bytes;

  t->data = json_object_get(input, "data");
  if (t->data && size) return REFUSE(p, "input \"%.100s\" has both data and binary_data_size", t->name);
  if (json_is_array(t->data)) return 200;
  if (!size)
    return REFUSE(p, "input \"%.100s\" has neither a list \"data\" nor parameters.binary_data_size", t->name);
  if (!json_is_integer(size) || wanted < 0 || json_integer_value(size) != wanted)
    return REFUSE(p, "input \"%.100s\": binary_data_size is %" PRId64 ", but the shape needs %" PRId64,
                  t->name, (int64_t)json_integer_value(size), wanted);
  if (wanted > p->body->n - p->binary_at)
    return REFUSE(p, "input \"%.100s\": the body ends before its %" PRId64 " bytes", t->name, wanted);
  t->data = NULL;
  t->binary = p->body->bytes + p->binary_at;
  t->n_binary = wanted;
  p->binary_at += wanted;
  return 200;
}

static int take_tensor(TrsServeParser *p, const json_t *input, TrsServeTensor *t)
{
  int status;

  t->name = json_string_value(json_object_get(input, "name"));
  if (!t->name) return REFUSE(p, "each input must be an object with a name");
  status = take_type(p, input, t);
  if (status == 200) status = take_shape(p, input, t);
  return status == 200 ? take_data(p, input, t) : status;
}

/* True if an integer in JSON fits into a tensor's type. */
static PetscBool fits(const TrsServeType *type, int64_t n)
{
  const int bits = 8 * type->bytes - (type->kind == TRS_SERVE_SIGNED);

  if (type->kind == TRS_SERVE_REAL) return PETSC_TRUE;
  if (n < 0) return (PetscBool)(type->kind == TRS_SERVE_SIGNED && (bits == 63 || n >= -(INT64_C(1) << bits)));
  return (PetscBool)(bits >= 63 || n < INT64_C(1) << bits);
}

/* A function that takes the next number of a tensor. Returns a status. */
typedef int (*TrsServeTake)(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i);

static int each_of_list(TrsServeParser *p, const TrsServeTensor *t, const json_t *list, int depth, int64_t *i,
                        TrsServeTake take_one)
{
  const json_t *element;
  size_t place;

  json_array_foreach(list, place, element)
  {
    int status;

    if (json_is_array(element) && depth == 0) {
      status = each_of_list(p, t, element, 1, i, take_one);
    } else if (*i == t->n) {
      return REFUSE(p, "input \"%.100s\" has more data than its shape, %" PRId64 " numbers", t->name, t->n);
    } else if (json_is_integer(element) && t->type->kind != TRS_SERVE_TEXT &&
               fits(t->type, json_integer_value(element))) {
      const TrsServeNumber n = {.integer = json_integer_value(element),
                                .real = (double)json_integer_value(element)};

      status = take_one(p, t, n, (*i)++);
    } else if (json_is_real(element) && t->type->kind == TRS_SERVE_REAL) {
      status = take_one(p, t, (TrsServeNumber){.real = json_real_value(element)}, (*i)++);
    } else if (json_is_string(element) && t->type->kind == TRS_SERVE_TEXT) {
      status = take_one(
          p, t, (TrsServeNumber){.text = json_string_value(element), .n_text = json_string_length(element)},
          (*i)++);
    } else if (json_is_null(element) && p->request->is_raw) {
      status = take_one(p, t, (TrsServeNumber){.missing = PETSC_TRUE}, (*i)++);
    } else {
      return REFUSE(p, "input \"%.100s\": element %" PRId64 " of data is not of type %s", t->name, *i,
                    t->type->name);
    }
    if (status != 200) return status;
  }
  return 200;
}

/* Each text of a tensor in binary form: 4 bytes with its length, and its bytes. */
static int each_text(TrsServeParser *p, const TrsServeTensor *t, TrsServeTake take_one)
{
  int64_t at = 0;
  int status = 200;

  for (int64_t i = 0; i < t->n && status == 200; i++) {
    uint32_t n_text = 0;

    if (t->n_binary - at >= (int64_t)sizeof(n_text)) memcpy(&n_text, t->binary + at, sizeof(n_text));
    at += (int64_t)sizeof(n_text);
    if (t->n_binary - at < (int64_t)n_text)
      return REFUSE(p, "input \"%.100s\": its bytes end before text %" PRId64, t->name, i);
    status = take_one(p, t, (TrsServeNumber){.text = t->binary + at, .n_text = n_text}, i);
    at += (int64_t)n_text;
  }
  if (status == 200 && at != t->n_binary)
    return REFUSE(p, "input \"%.100s\" has bytes after its last text", t->name);
  return status;
}

static int each(TrsServeParser *p, const TrsServeTensor *t, TrsServeTake take_one)
{
  int status = 200;
  int64_t i = 0;

  if (!t->data && t->type->kind == TRS_SERVE_TEXT) return each_text(p, t, take_one);
  if (!t->data) {
    for (; i < t->n && status == 200; i++) status = take_one(p, t, read_binary(t->type, t->binary, i), i);
    return status;
  }
  status = each_of_list(p, t, t->data, 0, &i, take_one);
  if (status == 200 && i < t->n)
    return REFUSE(p, "input \"%.100s\" has %" PRId64 " numbers, but its shape needs %" PRId64, t->name, i,
                  t->n);
  return status;
}

/* --- names --- */

static int refuse_name(TrsServeParser *p, const char *name)
{
  char expected[300] = "";

  if (p->request->is_raw) {
    const int closest = TrsNameClosest(name, p->shape->n_columns, (const char *const *)p->shape->column_name);

    return REFUSE(p, "input \"%.100s\" is not the model's; the closest raw column is %.100s", name,
                  p->shape->column_name[closest]);
  }
  if (p->shape->n_features > 0)
    snprintf(expected, sizeof(expected), "%s%.200s.ids, .lengths or .weights",
             p->shape->num_dense ? "dense, " : "",
             p->shape->feature[TrsNameClosest(name, p->shape->n_features,
                                              (const char *const *)p->shape->feature)]);
  return REFUSE(p, "input \"%.100s\" is not the model's; expected a name such as %s", name,
                expected[0] ? expected : "dense");
}

/* Return where the parser keeps the tensor of this name, or NULL if the model has no such input. */
static const TrsServeTensor **place_of(TrsServeParser *p, const char *name)
{
  const struct {
    const char *ending;
    const TrsServeTensor **of;
  } parts[] = {{".ids", p->ids}, {".lengths", p->lengths}, {".weights", p->weights}};
  const size_t n = strlen(name);

  if (!strcmp(name, "dense") && p->shape->num_dense > 0) return &p->dense;
  for (int e = 0; e < 3; e++) {
    const size_t end = strlen(parts[e].ending);

    if (n < end || strcmp(name + n - end, parts[e].ending) != 0) continue;
    for (int32_t f = 0; f < p->shape->n_features; f++)
      if (strlen(p->shape->feature[f]) == n - end && !strncmp(p->shape->feature[f], name, n - end))
        return &parts[e].of[f];
  }
  return NULL;
}

/*
  Return where the parser keeps a raw column, or the lengths of a column of lists. NULL if the model
  needs no such column.
*/
static const TrsServeTensor **column_of(TrsServeParser *p, const char *name)
{
  static const char ending[] = ".lengths";

  for (int32_t c = 0; c < p->shape->n_columns; c++) {
    const char *column = p->shape->column[c].name;
    const size_t n = strlen(column);

    if (!strcmp(name, column)) return &p->column[c];
    if (!strncmp(name, column, n) && !strcmp(name + n, ending)) return &p->column_lengths[c];
  }
  return NULL;
}

/* True if an input is a raw column, and no input of the model has this name. */
static PetscBool has_columns(TrsServeParser *p, const json_t *inputs)
{
  const json_t *input;
  size_t i;

  json_array_foreach(inputs, i, input)
  {
    const char *name = json_string_value(json_object_get(input, "name"));

    for (int32_t c = 0; name && c < p->shape->n_columns; c++)
      if (!strcmp(name, p->shape->column[c].name) && !place_of(p, name)) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

static int take_inputs(TrsServeParser *p, const json_t *inputs, TrsServeTensor *tensors)
{
  const json_t *input;
  size_t i;

  p->request->is_raw = has_columns(p, inputs);
  json_array_foreach(inputs, i, input)
  {
    const int status = take_tensor(p, input, &tensors[i]);
    const char *name = tensors[i].name;
    const TrsServeTensor **place;

    if (status != 200) return status;
    place = p->request->is_raw ? column_of(p, name) : place_of(p, name);
    if (!place && p->request->is_raw && place_of(p, name))
      return REFUSE(p, "input \"%.100s\": a request has either raw columns or the model's inputs, not both",
                    name);
    if (!place) return refuse_name(p, name);
    if (*place) return REFUSE(p, "input \"%.100s\" is there twice", name);
    *place = &tensors[i];
  }
  if (p->binary_at != p->body->n)
    return REFUSE(p, "the body has %" PRId64 " bytes after its last tensor", p->body->n - p->binary_at);
  return 200;
}

/* --- samples --- */

/* Set the number of samples, which all inputs must agree on. */
static int agree_samples(TrsServeParser *p, const TrsServeTensor *t)
{
  if (!t) return 200;
  if (p->request->n < 0) p->request->n = t->dims[0];
  if (p->request->n == t->dims[0]) return 200;
  return REFUSE(p, "input \"%.100s\" has %" PRId64 " samples, and another input has %" PRId64, t->name,
                t->dims[0], p->request->n);
}

static int count_samples(TrsServeParser *p)
{
  int status = agree_samples(p, p->dense);

  for (int32_t f = 0; f < p->shape->n_features && status == 200; f++)
    status = agree_samples(p, p->lengths[f] ? p->lengths[f] : p->ids[f]);
  for (int32_t c = 0; c < p->shape->n_columns && status == 200; c++)
    status = agree_samples(p, p->column_lengths[c] ? p->column_lengths[c] : p->column[c]);
  if (status != 200) return status;
  if (p->request->n < 0) return REFUSE(p, "the request has no inputs");
  if (!p->dense && p->shape->num_dense > 0 && !p->request->is_raw)
    return REFUSE(p, "input \"dense\" with %" PRId32 " features is missing", p->shape->num_dense);
  if (p->request->n > p->body->most_samples)
    return TrsServeRefuse(p->outcome, 413,
                          "the request has %" PRId64 " samples, expected at most %" PRId64
                          " (-serve_request_samples)",
                          p->request->n, p->body->most_samples);
  return 200;
}

static int take_dense(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i)
{
  const float x = (float)n.real;

  if (!isfinite(x))
    return REFUSE(
        p, "input \"dense\": feature %" PRId64 " of sample %" PRId64 " is %g, expected a finite number",
        i % t->dims[1], i / t->dims[1], n.real);
  ((float *)p->request->dense.data)[i] = x;
  return 200;
}

static int read_dense(TrsServeParser *p)
{
  if (!p->dense) return 200;
  if (p->dense->type->kind == TRS_SERVE_TEXT || p->dense->ndim != 2 ||
      p->dense->dims[1] != p->shape->num_dense)
    return REFUSE(p, "input \"dense\" must have numbers in the shape [%" PRId64 ", %" PRId32 "]",
                  p->request->n, p->shape->num_dense);
  return each(p, p->dense, take_dense);
}

/* The ids of the features before this one end at n_values. */
static int take_id(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i)
{
  (void)t;
  ((int64_t *)p->request->values.data)[p->request->n_values + i] = n.integer;
  return 200;
}

static int take_weight(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i)
{
  if (!isfinite((float)n.real))
    return REFUSE(p, "input \"%.100s\": weight %" PRId64 " is %g, expected a finite number", t->name, i,
                  n.real);
  ((float *)p->request->weights.data)[p->request->n_values + i] = (float)n.real;
  return 200;
}

static int take_length(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i)
{
  int32_t *to = (int32_t *)p->request->lengths.data + p->feature * p->request->n;

  if (n.integer < 0 || n.integer > INT32_MAX)
    return REFUSE(p, "input \"%.100s\": sample %" PRId64 " has length %" PRId64 ", expected 0 to 2147483647",
                  t->name, i, n.integer);
  to[i] = (int32_t)n.integer;
  return 200;
}

/* Read the lengths of feature f. Without lengths, each sample has a row of the ids' matrix. */
static int read_lengths(TrsServeParser *p, int32_t f)
{
  const TrsServeTensor *ids = p->ids[f], *lengths = p->lengths[f];
  int32_t *to = (int32_t *)p->request->lengths.data + (int64_t)f * p->request->n;
  const int64_t each_has = ids && ids->ndim == 2 ? ids->dims[1] : ids ? 1 : 0;
  int64_t sum = 0;
  int status = 200;

  p->feature = f;
  if (lengths && lengths->type->kind >= TRS_SERVE_REAL)
    return REFUSE(p, "input \"%.100s\" has datatype %s, expected integers", lengths->name,
                  lengths->type->name);
  if (lengths && lengths->n != p->request->n)
    return REFUSE(p, "input \"%.100s\" must have the shape [%" PRId64 "]", lengths->name, p->request->n);
  if (lengths) status = each(p, lengths, take_length);
  for (int64_t i = 0; !lengths && i < p->request->n; i++) to[i] = (int32_t)each_has;
  if (status != 200) return status;
  for (int64_t i = 0; i < p->request->n; i++) sum += to[i];
  if (sum != (ids ? ids->n : 0))
    return REFUSE(p, "feature \"%.100s\" has %" PRId64 " ids, but its lengths add up to %" PRId64,
                  p->shape->feature[f], ids ? ids->n : 0, sum);
  return 200;
}

/* Read the ids and weights of feature f. Ids without weights have the weight 1. */
static int read_ids(TrsServeParser *p, int32_t f)
{
  const TrsServeTensor *ids = p->ids[f], *weights = p->weights[f];
  int status;

  if (weights && weights->type->kind == TRS_SERVE_TEXT)
    return REFUSE(p, "input \"%.100s\" has datatype BYTES, expected numbers", weights->name);
  if (weights && (!ids || weights->n != ids->n))
    return REFUSE(p, "input \"%.100s\" has %" PRId64 " weights for %" PRId64 " ids", weights->name,
                  weights->n, ids ? ids->n : 0);
  if (!ids) return 200;
  if (ids->type->kind >= TRS_SERVE_REAL)
    return REFUSE(p, "input \"%.100s\" has datatype %s, expected integers", ids->name, ids->type->name);
  status = each(p, ids, take_id);
  for (int64_t i = 0; i < ids->n && !weights; i++)
    ((float *)p->request->weights.data)[p->request->n_values + i] = 1.0F;
  if (weights && status == 200) status = each(p, weights, take_weight);
  p->request->n_values += ids->n;
  return status;
}

static int read_samples(TrsServeParser *p)
{
  TrsServeRequest *r = p->request;
  int64_t n_values = 0;
  int status;

  for (int32_t f = 0; f < p->shape->n_features; f++) n_values += p->ids[f] ? p->ids[f]->n : 0;
  r->n_values = 0;
  if (!TrsServeReserveSamples(p->shape, n_values, r)) return TrsServeRefuseMemory(p->outcome);
  status = read_dense(p);
  for (int32_t f = 0; f < p->shape->n_features && status == 200; f++) {
    status = read_lengths(p, f);
    if (status == 200) status = read_ids(p, f);
  }
  return status;
}

/* --- raw columns --- */

static int take_cell(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i)
{
  TrshardValue *to = (TrshardValue *)p->request->cells.data + p->n_cells + i;

  if (n.missing) {
    *to = (TrshardValue){.kind = TRSHARD_MISSING};
  } else if (n.text) {
    /* all texts together are shorter than the body */
    char *text = (char *)p->request->texts.data + p->n_text;

    memcpy(text, n.text, n.n_text);
    p->n_text += (int64_t)n.n_text;
    *to = (TrshardValue){.kind = TRSHARD_TEXT, .n_bytes = (int64_t)n.n_text, .as.text = text};
  } else if (t->type->kind == TRS_SERVE_REAL) {
    *to = (TrshardValue){.kind = TRSHARD_DOUBLE, .as.number = n.real};
  } else if (t->type->kind == TRS_SERVE_UNSIGNED) {
    *to = (TrshardValue){.kind = TRSHARD_UNSIGNED, .as.natural = (uint64_t)n.integer};
  } else {
    *to = (TrshardValue){.kind = TRSHARD_INTEGER, .as.integer = n.integer};
  }
  return 200;
}

static int take_cell_length(TrsServeParser *p, const TrsServeTensor *t, TrsServeNumber n, int64_t i)
{
  if (n.missing || n.integer < 0 || n.integer > INT32_MAX)
    return REFUSE(p, "input \"%.100s\": row %" PRId64 " has length %" PRId64 ", expected 0 to 2147483647",
                  t->name, i, n.integer);
  ((int32_t *)p->request->cell_lengths.data)[p->feature * p->request->n + i] = (int32_t)n.integer;
  return 200;
}

/* Read column c. A matrix has the same number of values in each row. */
static int read_column(TrsServeParser *p, int32_t c, TrshardColumn *to)
{
  const TrsServeTensor *column = p->column[c], *given = p->column_lengths[c];
  int32_t *lengths = (int32_t *)p->request->cell_lengths.data + c * p->request->n;
  int64_t sum = 0;
  int status = 200;

  *to = (TrshardColumn){.n_values = 0};
  p->feature = c;
  if (given && (!column || given->type->kind >= TRS_SERVE_REAL || given->n != p->request->n))
    return REFUSE(p, "input \"%.100s\" must be %" PRId64 " integers, with its column", given->name,
                  p->request->n);
  if (!column) return 200;
  if (given) status = each(p, given, take_cell_length);
  for (int64_t i = 0; !given && i < p->request->n; i++)
    lengths[i] = column->ndim == 2 ? (int32_t)PetscMin(column->dims[1], INT32_MAX) : 1;
  for (int64_t i = 0; i < p->request->n && status == 200; i++) sum += lengths[i];
  if (status == 200 && sum != column->n)
    return REFUSE(p, "column \"%.100s\" has %" PRId64 " values, but its lengths add up to %" PRId64,
                  column->name, column->n, sum);
  if (status == 200) status = each(p, column, take_cell);
  to->n_values = column->n;
  to->values = (const TrshardValue *)p->request->cells.data + p->n_cells;
  if (given || column->ndim == 2) to->lengths = lengths;
  p->n_cells += column->n;
  return status;
}

static int read_columns(TrsServeParser *p)
{
  const int32_t C = p->shape->n_columns;
  TrsServeRequest *r = p->request;
  int64_t n_cells = 0;
  int status = 200;

  for (int32_t c = 0; c < C; c++) n_cells += p->column[c] ? p->column[c]->n : 0;
  if (!TrsServeReserve(&r->columns, C, sizeof(TrshardColumn)) ||
      !TrsServeReserve(&r->cells, n_cells, sizeof(TrshardValue)) ||
      !TrsServeReserve(&r->cell_lengths, C * r->n, sizeof(int32_t)) ||
      !TrsServeReserve(&r->texts, p->body->n, 1))
    return TrsServeRefuseMemory(p->outcome);
  for (int32_t c = 0; c < C && status == 200; c++)
    status = read_column(p, c, (TrshardColumn *)r->columns.data + c);
  return status;
}

/* --- the answer's form --- */

static int take_output(TrsServeParser *p, const json_t *output, PetscBool binary, TrsServeForm *form)
{
  const char *name = json_string_value(json_object_get(output, "name"));
  const json_t *own = json_object_get(json_object_get(output, "parameters"), "binary_data");

  for (int32_t o = 0; name && o < p->shape->n_outputs; o++) {
    if (strcmp(name, p->shape->output[o]) != 0) continue;
    for (int32_t i = 0; i < form->n; i++)
      if (form->wanted[i].output == o) return REFUSE(p, "output \"%.100s\" is wanted twice", name);
    form->wanted[form->n].output = o;
    form->wanted[form->n++].binary = own ? (PetscBool)json_is_true(own) : binary;
    return 200;
  }
  return REFUSE(p, "output \"%.100s\" is not the model's; expected a name such as \"%.100s\"",
                name ? name : "", p->shape->output[0]);
}

static int take_form(TrsServeParser *p, const json_t *root, TrsServeForm *form)
{
  const json_t *parameters = json_object_get(root, "parameters"), *outputs = json_object_get(root, "outputs");
  const PetscBool binary = (PetscBool)json_is_true(json_object_get(parameters, "binary_data_output"));
  const json_t *id = json_object_get(root, "id"), *output;
  size_t i;

  if (id && (!json_is_string(id) || json_string_length(id) >= TRS_SERVE_ID))
    return REFUSE(p, "id must be a string of less than %d bytes", TRS_SERVE_ID);
  snprintf(form->id, sizeof(form->id), "%s", id ? json_string_value(id) : "");
  if (PetscCalloc1((size_t)p->shape->n_outputs, &form->wanted)) return TrsServeRefuseMemory(p->outcome);
  json_array_foreach(outputs, i, output)
  {
    const int status = take_output(p, output, binary, form);

    if (status != 200) return status;
  }
  for (int32_t o = 0; o < p->shape->n_outputs && !json_array_size(outputs); o++) {
    form->wanted[form->n].output = o;
    form->wanted[form->n++].binary = binary;
  }
  return 200;
}

/* --- requests --- */

/* Count the lists and objects of a JSON text. */
static int64_t count_lists(const char *json, int64_t n)
{
  int64_t count = 0;
  int in_string = 0;

  for (int64_t i = 0; i < n; i++) {
    if (json[i] == '"')
      in_string = !in_string;
    else if (in_string)
      i += json[i] == '\\';
    else
      count += json[i] == '[' || json[i] == '{';
  }
  return count;
}

static int64_t most_inputs(const TrsServeShape *shape)
{
  return 1 + 3 * (int64_t)shape->n_features + 2 * (int64_t)shape->n_columns;
}

static int parse_root(TrsServeParser *p, const json_t *root, TrsServeForm *form)
{
  const json_t *inputs = json_object_get(root, "inputs");
  const size_t n = json_array_size(inputs), F = (size_t)p->shape->n_features, C = (size_t)p->shape->n_columns;
  TrsServeTensor *tensors = NULL;
  int status;

  if (!json_is_array(inputs)) return REFUSE(p, "the request has no list \"inputs\"");
  if (n > (size_t)most_inputs(p->shape))
    return REFUSE(p, "the request has %zu inputs, more than the model", n);
  if (PetscCalloc6(n + 1, &tensors, F, &p->ids, F, &p->lengths, F, &p->weights, C, &p->column, C,
                   &p->column_lengths))
    return TrsServeRefuseMemory(p->outcome);
  p->request->n = -1;
  status = take_inputs(p, inputs, tensors);
  if (status == 200) status = count_samples(p);
  if (status == 200) status = p->request->is_raw ? read_columns(p) : read_samples(p);
  (void)PetscFree6(tensors, p->ids, p->lengths, p->weights, p->column, p->column_lengths);
  return status == 200 ? take_form(p, root, form) : status;
}

int TrsServeKserveParse(const TrsServeShape *shape, const TrsServeBody *body, TrsServeRequest *request,
                        TrsServeForm *form, TrsServeOutcome *outcome)
{
  TrsServeParser p = {.shape = shape, .body = body, .request = request, .outcome = outcome};
  /* an input has a list for each sample, and a few others; "{}," takes 80 times its bytes */
  const int64_t most_lists = (body->most_samples + 8) * (most_inputs(shape) + shape->n_outputs + 8);
  json_error_t error;
  json_t *root;
  int status;

  outcome->status = 200;
  if (body->json_bytes < 0 || body->json_bytes > body->n)
    return TrsServeRefuse(outcome, 400,
                          "Inference-Header-Content-Length must be a number up to the body's length");
  p.binary_at = body->json_bytes;
  if (count_lists(body->bytes, body->json_bytes) > most_lists)
    return TrsServeRefuse(outcome, 413,
                          "the request has more than %" PRId64
                          " lists and objects, too many for its largest number of samples "
                          "(-serve_request_samples)",
                          most_lists);
  root = json_loadb(body->bytes, (size_t)body->json_bytes, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return TrsServeRefuse(outcome, 400, "the body is no JSON: line %d, column %d: %.150s", error.line,
                          error.column, error.text);
  status = parse_root(&p, root, form);
  json_decref(root);
  return status;
}
