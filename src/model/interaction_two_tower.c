/* SPDX-License-Identifier: BSD-3-Clause */
/*
  two_tower: one stack of layers reads the query's vectors, another the candidate's. The output has
  both results side by side. With -tower_normalize each result is scaled to length 1. The query's
  columns come first in X.
  Source: TorchRec's retrieval example (TwoTower); src/RULES.md, section 20
*/
#include "core/names.h"
#include "model/interaction.h"
#include "model/mlp.h"
#include "model/two_tower.h"
#include "spec/table_keys.h"

#include <inttypes.h>
#include <string.h>

static const char *const modules[] = {"query_tower", "candidate_tower"};
static const char *const archs[] = {"-query_arch", "-candidate_arch"};
static const char *const lists[] = {"-query_features", "-candidate_features"};

static const TrsOptionSpec specs[] = {
    {"-query_features", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "-interaction two_tower: features of the query's tower, which also takes the output of the dense arch"},
    {"-candidate_features", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "-interaction two_tower: features of the candidate's tower (default: all that are not the query's)"},
    {"-query_arch", TRS_OPTION_INTS, "128,64", "[1,1000000]", NULL, NULL,
     "output sizes of the query tower's layers. The last layer has the size of the embeddings, and no "
     "activation"},
    {"-candidate_arch", TRS_OPTION_INTS, "128,64", "[1,1000000]", NULL, NULL,
     "output sizes of the candidate tower's layers; the last must be -query_arch's last"},
    TRS_MLP_OPTIONS("-query_arch", "the query tower except the last"),
    TRS_MLP_OPTIONS("-candidate_arch", "the candidate tower except the last"),
    {"-tower_normalize", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "divide each tower's output by its length (L2 norm), so that a score is a cosine"},
};
const TrsOptionGroup trs_two_tower_options = TRS_OPTION_GROUP_OF_MODEL(
    "Two towers", NULL, specs,
    "-query_features,-candidate_features,-query_arch,-candidate_arch,-tower_normalize" TRS_MLP_MODEL_OPTIONS(
        "-query_arch") TRS_MLP_MODEL_OPTIONS("-candidate_arch"),
    NULL);

typedef struct {
  TrsOptions options; /* borrowed; messages name the source of a value */
  TrsMlpSpec spec[TRS_N_SIDES];
  TrsMlp mlp[TRS_N_SIDES];
  int64_t D; /* columns in a tower's output */
  PetscBool normalize;
  float *inner; /* outputs of all layers except the last, and gradients */
  float *raw;   /* with normalize: [max_batch, 2 D] the towers' outputs before scaling */
} TrsTwoTower;

/* --- towers of features --- */

/* Assign a feature's vectors to a tower. *found is set to true if a table has the feature. */
static PetscErrorCode put(TrsOptions options, const TrsTableConfigs *tables, const char *feature, int to,
                          int *side, PetscBool *found)
{
  PetscFunctionBegin;
  *found = PETSC_FALSE;
  for (int t = 0, v = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const int width = TrsTableVectors(table);

    for (int k = 0; k < table->n_features; k++) {
      if (strcmp(table->features[k], feature) != 0) {
        v += width;
        continue;
      }
      *found = PETSC_TRUE;
      for (int i = 0; i < width; i++, v++) {
        if (side[v] >= 0)
          PetscCall(TrsOptionError(options, lists[to], "feature \"%.100s\" is listed twice", feature));
        side[v] = to;
      }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a feature that belongs to no tower. */
static PetscErrorCode check_sides(TrsOptions options, const TrsTableConfigs *tables, const int *side)
{
  PetscFunctionBegin;
  for (int t = 0, v = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features; k++)
      for (int i = 0; i < TrsTableVectors(&tables->table[t]); i++, v++)
        if (side[v] < 0)
          PetscCall(TrsOptionError(options, lists[TRS_SIDE_CANDIDATE],
                                   "feature \"%.100s\" is neither here nor in -query_features",
                                   tables->table[t].features[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse a target that belongs to the other tower. Otherwise a tower would depend on the other
  tower's features, and neither could compute an embedding by itself.
*/
static PetscErrorCode check_targets(TrsOptions options, const TrsTableConfigs *tables, const int *side)
{
  PetscFunctionBegin;
  for (int t = 0, v = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    for (int k = 0; table->din_target && k < table->n_features; k++)
      if (side[v + k] != side[table->din_vector])
        FAIL("din_target", "\"%.100s\" is in the %s, but feature \"%.100s\" is in the %s", table->din_target,
             modules[side[table->din_vector]], table->features[k], modules[side[v + k]]);
    v += table->n_features * TrsTableVectors(table);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTwoTowerSides(TrsOptions options, const TrsTableConfigs *tables, int *side)
{
  const char *const *names = NULL;
  int kind, n = 0, n_vectors = 0;
  PetscBool found;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++)
    n_vectors += tables->table[t].n_features * TrsTableVectors(&tables->table[t]);
  PetscCall(TrsOptionsGetEnum(options, "-interaction", &kind, NULL));
  for (int v = 0; v < n_vectors; v++) side[v] = kind == TRS_INTERACTION_TWO_TOWER ? -1 : TRS_SIDE_QUERY;
  if (kind != TRS_INTERACTION_TWO_TOWER) PetscFunctionReturn(PETSC_SUCCESS);
  for (int s = 0; s < TRS_N_SIDES; s++) {
    n = 0;
    PetscCall(TrsOptionsGetStrings(options, lists[s], &n, &names, NULL));
    for (int i = 0; i < n; i++) {
      PetscCall(put(options, tables, names[i], s, side, &found));
      if (!found) PetscCall(TrsOptionError(options, lists[s], "no table has a feature \"%.100s\"", names[i]));
    }
  }
  for (int v = 0; !n && v < n_vectors; v++)
    if (side[v] < 0) side[v] = TRS_SIDE_CANDIDATE;
  PetscCall(check_sides(options, tables, side));
  PetscCall(check_targets(options, tables, side));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the table of functions --- */

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options)
{
  int64_t last[TRS_N_SIDES];
  TrsTwoTower *towers;

  PetscFunctionBegin;
  PetscCall(PetscNew(&towers));
  interaction->own = towers;
  towers->options = options;
  for (int s = 0; s < TRS_N_SIDES; s++) {
    TrsMlpSpec *spec = &towers->spec[s];

    PetscCall(TrsOptionsGetInts(options, archs[s], &spec->n, &spec->sizes, NULL));
    PetscCall(TrsMlpSpecRead(options, archs[s], spec));
    spec->plain_last = PETSC_TRUE;
    last[s] = spec->sizes[spec->n - 1];
  }
  if (last[0] != last[1])
    PetscCall(TrsOptionError(options, archs[1],
                             "its last size is %" PRId64 ", it must be that of -query_arch, %" PRId64,
                             last[1], last[0]));
  towers->D = last[0];
  PetscCall(TrsOptionsGetBool(options, "-tower_normalize", &towers->normalize, NULL));
  if (towers->normalize && towers->D == 1)
    PetscCall(TrsOptionError(options, "-tower_normalize",
                             "the towers have one output, which would always be 1 or -1: expected a last "
                             "size of -query_arch and -candidate_arch of 2 or more"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t width(const TrsInteraction *interaction)
{
  return TRS_N_SIDES * ((const TrsTwoTower *)interaction->own)->D;
}

/* Number of a tower's columns in X. *first is the index of the first column. */
static int64_t columns_of(const TrsInteraction *interaction, int side, int64_t *first)
{
  *first = side == TRS_SIDE_QUERY ? 0 : interaction->query_columns;
  return side == TRS_SIDE_QUERY ? interaction->query_columns : interaction->N - interaction->query_columns;
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  TrsTwoTower *towers = (TrsTwoTower *)interaction->own;

  PetscFunctionBegin;
  for (int s = TRS_N_SIDES - 1; s >= 0; s--) {
    int64_t first;
    const int64_t n = columns_of(interaction, s, &first);

    if (!n) PetscCall(TrsOptionError(towers->options, lists[s], "the %s has no features", modules[s]));
    PetscCall(TrsMlpDeclare(&towers->mlp[s], interaction->context, modules[s], &towers->spec[s], n, n));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  const TrsDeviceOps *device = interaction->context->device;
  const PetscBool forward_only = interaction->context->params->forward_only;
  TrsTwoTower *towers = (TrsTwoTower *)interaction->own;
  int64_t begin[TRS_N_SIDES + 1] = {0};
  float *y = interaction->out;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_N_SIDES; s++) {
    const TrsMlpRoom room = TrsMlpPlace(&towers->mlp[s], max_batch, NULL, TrsFloats(NULL, 1));

    begin[s + 1] = begin[s] + (forward_only ? room.outputs : room.end);
  }
  if (begin[TRS_N_SIDES] > 0)
    PetscCall(device->alloc(begin[TRS_N_SIDES] * (int64_t)sizeof(float), (void **)&towers->inner));
  if (towers->normalize) {
    PetscCall(device->alloc(max_batch * interaction->stride * (int64_t)sizeof(float), (void **)&towers->raw));
    y = towers->raw;
  }
  for (int s = 0; s < TRS_N_SIDES; s++)
    (void)TrsMlpPlace(&towers->mlp[s], max_batch, towers->inner ? towers->inner + begin[s] : NULL,
                      TrsFloats(y + s * towers->D, interaction->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Operations for scaling the outputs to length 1. Deep layers count their own operations. */
static double flops(const TrsInteraction *interaction)
{
  const TrsTwoTower *towers = (const TrsTwoTower *)interaction->own;

  return towers->normalize ? 3.0 * (double)interaction->width : 0.0;
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsTwoTower *towers = (const TrsTwoTower *)interaction->own;
  const int64_t D = towers->D, stride = interaction->stride;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_N_SIDES; s++) {
    int64_t first;

    (void)columns_of(interaction, s, &first);
    PetscCall(TrsMlpForward(&towers->mlp[s], stream, n, TrsMatrixColumns(interaction->x, first)));
    if (towers->normalize)
      PetscCall(interaction->context->compute->unit_rows(stream, n, D, towers->raw + s * D, stride,
                                                         interaction->out + s * D, stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsTwoTower *towers = (const TrsTwoTower *)interaction->own;
  const int64_t D = towers->D, stride = interaction->stride;

  PetscFunctionBegin;
  for (int s = TRS_N_SIDES - 1; s >= 0; s--) {
    float *dy = interaction->dout + s * D;
    int64_t first;

    (void)columns_of(interaction, s, &first);
    if (towers->normalize)
      PetscCall(interaction->context->compute->unit_rows_backward(stream, n, D, towers->raw + s * D, stride,
                                                                  dy, stride));
    PetscCall(TrsMlpBackward(&towers->mlp[s], stream, n, TrsMatrixColumns(interaction->x, first),
                             TrsFloats(dy, stride), TrsMatrixColumns(interaction->dx, first)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void work(const TrsInteraction *interaction, double *n_flops, double *bytes)
{
  for (int s = 0; s < TRS_N_SIDES; s++)
    TrsMlpWork(&((const TrsTwoTower *)interaction->own)->mlp[s], n_flops, bytes);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  PetscFunctionBegin;
  for (int s = 0; s < TRS_N_SIDES; s++)
    PetscCall(TrsMlpView(&((const TrsTwoTower *)interaction->own)->mlp[s], modules[s], comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  TrsTwoTower *towers = (TrsTwoTower *)interaction->own;

  PetscFunctionBegin;
  if (!towers) PetscFunctionReturn(PETSC_SUCCESS);
  for (int s = 0; s < TRS_N_SIDES; s++) PetscCall(TrsMlpFree(&towers->mlp[s]));
  PetscCall(interaction->context->device->release((void **)&towers->inner));
  PetscCall(interaction->context->device->release((void **)&towers->raw));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsInteractionOps trs_interaction_two_tower = {.word = "two_tower",
                                                     .fewest = 1,
                                                     .pairs = PETSC_TRUE,
                                                     .read = read,
                                                     .width = width,
                                                     .declare = declare,
                                                     .allocate = allocate,
                                                     .flops = flops,
                                                     .work = work,
                                                     .forward = forward,
                                                     .backward = backward,
                                                     .view = view,
                                                     .free = release};
