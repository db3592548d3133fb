/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests a stack of two placements: a policy gives table rows to keys that appear and disappear, and
  a cache is above it. The rows and updates of keys must be the same as in a dictionary that the
  test keeps. Evaluations run between steps. The next batch's keys are looked up before this batch's
  update.
*/
#include "core/random/random.h"
#include "embed/lookup.h"
#include "trs_test.h"

#include <string.h>

enum { ROWS = 40, DIM = 4, IDS = 16, KEYS = 60, STEPS = 60, SLOTS = 3 };

static const TrsComputeOps *compute;
static const TrsDeviceOps *device;

/*
  The initial numbers of a row depend on its key and on the number of rows that were given away
  before.
*/
static float first_number(int64_t key, int generation, int column)
{
  return (float)key + 0.25F * (float)generation + 0.001F * (float)column;
}

/*
  --- the policy: rows are given away in turn, but rows of keys in the current batch are skipped ---
*/

static int find_key(const int64_t *keys, int64_t key)
{
  int r = 0;

  while (r < ROWS && keys[r] != key) r++;
  return r;
}

static int give_row(int64_t *keys, int *n_given, const int64_t *ids, int64_t key)
{
  PetscBool used;
  int row;

  do {
    row = (*n_given)++ % ROWS;
    used = PETSC_FALSE;
    for (int i = 0; i < IDS; i++) used = (PetscBool)(used || ids[i] == keys[row]);
  } while (used);
  keys[row] = key;
  return row;
}

/* --- the placement under test: the lookup writes the initial numbers --- */

typedef struct {
  int64_t values[SLOTS][IDS];
  /* rows that the lookup must write */
  int n_given[SLOTS], given[SLOTS][IDS], generation[SLOTS][IDS];
  int64_t of_given[SLOTS][IDS];
} Keys;

static int64_t key_of_row[ROWS];
static int n_rows_given, n_takes;

static PetscBool treats_all(const TrsEmbeddingShards *shards, int table)
{
  (void)shards;
  (void)table;
  return PETSC_TRUE;
}

static PetscErrorCode create_keys(TrsPlacement self, const TrsPlacementTables *tables)
{
  PetscFunctionBegin;
  assert_int_equal(tables->table[0].rows, ROWS);
  PetscCall(PetscCalloc1(1, (Keys **)&self->data));
  for (int r = 0; r < ROWS; r++) key_of_row[r] = -1;
  n_rows_given = n_takes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_keys(TrsPlacement self)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(self->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_keys(TrsPlacement self, TrsStream stream, const TrsPlacementBatch *batch)
{
  Keys *k = (Keys *)self->data;
  const int64_t *ids = batch->ids->jagged.values;
  const int s = batch->slot;

  PetscFunctionBegin;
  (void)stream;
  n_takes++;
  k->n_given[s] = 0;
  for (int i = 0; i < IDS && batch->training; i++) {
    const int n = k->n_given[s];

    if (find_key(key_of_row, ids[i]) < ROWS) continue;
    k->given[s][n] = give_row(key_of_row, &n_rows_given, ids, ids[i]);
    k->generation[s][n] = n_rows_given;
    k->of_given[s][n] = ids[i];
    k->n_given[s]++;
  }
  for (int i = 0; i < IDS; i++) {
    const int row = find_key(key_of_row, ids[i]);

    k->values[s][i] = row < ROWS ? row : -1;
  }
  batch->ids->jagged.values = k->values[s];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_keys(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input)
{
  Keys *k = (Keys *)self->data;
  float *rows = (float *)tbe->table[0].weight;
  int s = 0;

  PetscFunctionBegin;
  while (s < SLOTS && input->values != k->values[s]) s++;
  assert_in_range(s, 0, SLOTS - 1);
  if (k->n_given[s]) PetscCall(TrsPlacementSettle(self->above, stream, tbe, PETSC_TRUE));
  for (int i = 0; i < k->n_given[s]; i++)
    for (int c = 0; c < DIM; c++)
      rows[k->given[s][i] * DIM + c] = first_number(k->of_given[s][i], k->generation[s][i], c);
  k->n_given[s] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add one tensor for each table, on all ranks. */
static PetscErrorCode add_keys(const TrsEmbeddingShards *shards, int table, TrsState *state)
{
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  (void)shards;
  PetscCall(TrsStateAdd(state, table == 0 ? "embedding/a/keys" : "?", TRS_FP32, 1, ROWS, 1, &tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsPlacementOps keys_to_rows = {.name = "keys in turn",
                                             .treats = treats_all,
                                             .create = create_keys,
                                             .destroy = destroy_keys,
                                             .take = take_keys,
                                             .forward = forward_keys,
                                             .add_state = add_keys};
static const TrsPlacementOps *const keys_alone[] = {&keys_to_rows, NULL};
static const TrsPlacementOps *const keys_and_cache[] = {&keys_to_rows, &trs_placement_row_cache, NULL};

/* --- the definition: the key of each row, and its numbers --- */

typedef struct {
  int64_t key[ROWS];
  float row[ROWS][DIM];
  int n_given;
} Dictionary;

static void give(Dictionary *d, const int64_t *ids)
{
  for (int i = 0; i < IDS; i++) {
    int r;

    if (find_key(d->key, ids[i]) < ROWS) continue;
    r = give_row(d->key, &d->n_given, ids, ids[i]);
    for (int c = 0; c < DIM; c++) d->row[r][c] = first_number(ids[i], d->n_given, c);
  }
}

/* --- training --- */

static void draw_ids(uint64_t number, int64_t *ids)
{
  for (int i = 0; i < IDS; i++) {
    uint32_t words[4];

    TrsRandom(5, TRS_RANDOM_TEST, number, (uint64_t)i, words);
    ids[i] = 1000 + (int64_t)(words[0] % KEYS + number / 4 * 2); /* keys change slowly over time */
  }
}

/* A batch of one bag for each id. */
static void make_kjt(int64_t *ids, int64_t *offsets, TrsKjt *kjt)
{
  for (int i = 0; i <= IDS; i++) offsets[i] = i;
  *kjt = (TrsKjt){.n_features = 1,
                  .batch = IDS,
                  .jagged = {.n_bags = IDS, .n_values = IDS, .offsets = offsets, .values = ids}};
}

static void compare(TrsLookup lookup, const TrsKjt *kjt, const Dictionary *d, const int64_t *ids)
{
  float out[IDS][DIM];

  assert_petsc_ok(TrsLookupForward(lookup, NULL, kjt, TrsFloats(&out[0][0], DIM)));
  for (int i = 0; i < IDS; i++) {
    const int r = find_key(d->key, ids[i]);

    for (int c = 0; c < DIM; c++) assert_true(out[i][c] == (r < ROWS ? d->row[r][c] : 0.0F));
  }
}

/*
  Plain SGD in the lookup and in the dictionary. All bags have the same gradient, -0.5 for each
  occurrence.
*/
static void update(TrsLookup lookup, const TrsKjt *kjt, Dictionary *d, const int64_t *ids)
{
  const TrsSparseOptimizerArgs sgd = {.kind = TRS_OPTIM_SGD, .learning_rate = 0.5F, .step = 1};
  float grad[IDS][DIM];

  for (int i = 0; i < IDS; i++)
    for (int c = 0; c < DIM; c++) grad[i][c] = 1.0F;
  assert_petsc_ok(TrsLookupBackward(lookup, NULL, kjt, NULL, TrsFloats(&grad[0][0], DIM), NULL, &sgd));
  for (int i = 0; i < IDS; i++) {
    int seen = 0, n = 0;

    for (int k = 0; k < IDS; k++) {
      seen += k < i && ids[k] == ids[i];
      n += ids[k] == ids[i];
    }
    for (int c = 0; c < DIM && !seen; c++) d->row[find_key(d->key, ids[i])][c] -= 0.5F * (float)n;
  }
}

static void train(const TrsPlacementOps *const *kinds, PetscBool ahead)
{
  static float rows[ROWS * DIM];
  static Dictionary d;
  TrsEmbeddingShard shard = {.cache = {.load_factor = 0.3},
                             .tbe = {.rows = ROWS, .dim = DIM, .stride = DIM, .table_dim = DIM}};
  const TrsEmbeddingShards shards = {.device = device, .placements = kinds, .n = 1, .shard = &shard};
  int64_t ids[SLOTS][IDS], offsets[IDS + 1];
  TrsKjt kjt[SLOTS];
  TrsLookup lookup;

  memset(&d, 0, sizeof(d));
  memset(rows, 0, sizeof(rows));
  shard.tbe.weight = rows;
  assert_petsc_ok(TrsLookupCreate(compute, &shards, 1, &(TrsLookupFeature){.shard = 0}, &lookup));
  draw_ids(0, ids[0]);
  make_kjt(ids[0], offsets, &kjt[0]);
  assert_petsc_ok(TrsLookupTake(lookup, NULL, 0, PETSC_TRUE, NULL, &kjt[0]));
  give(&d, ids[0]);
  for (int step = 0; step < STEPS; step++) {
    const int now = step % 2, next = 1 - now, evaluation = 2;

    compare(lookup, &kjt[now], &d, ids[now]);
    draw_ids((uint64_t)step + 1, ids[next]);
    make_kjt(ids[next], offsets, &kjt[next]);
    assert_petsc_ok(TrsLookupTake(lookup, NULL, next, PETSC_TRUE, NULL, &kjt[next]));
    if (ahead) assert_petsc_ok(TrsLookupPrefetch(lookup, NULL, &kjt[next]));
    /* In the middle of a step, an update of whole rows empties the caches. */
    if (step % 7 == 0) assert_petsc_ok(TrsLookupDropLines(lookup, NULL));
    update(lookup, &kjt[now], &d, ids[now]);
    give(&d, ids[next]);
    if (step % 5) continue;
    /* An evaluation between steps sees all keys of its batch after their rows are written. */
    compare(lookup, &kjt[next], &d, ids[next]);
    draw_ids((uint64_t)step / 2, ids[evaluation]);
    make_kjt(ids[evaluation], offsets, &kjt[evaluation]);
    assert_petsc_ok(TrsLookupTake(lookup, NULL, evaluation, PETSC_FALSE, NULL, &kjt[evaluation]));
    compare(lookup, &kjt[evaluation], &d, ids[evaluation]);
    assert_petsc_ok(TrsLookupEvaluated(lookup, NULL, &kjt[evaluation]));
  }
  assert_true(d.n_given > 3 * ROWS);
  assert_int_equal(n_takes, 1 + STEPS + STEPS / 5);
  assert_petsc_ok(TrsLookupSettle(lookup, NULL, PETSC_FALSE));
  for (int r = 0; r < ROWS; r++) assert_int_equal(key_of_row[r], d.key[r]);
  compare(lookup, &kjt[STEPS % 2], &d, ids[STEPS % 2]);
  assert_petsc_ok(TrsLookupDestroy(&lookup));
}

static void test_keys(void **state)
{
  (void)state;
  train(keys_alone, PETSC_FALSE);
}

static void test_keys_under_a_cache(void **state)
{
  (void)state;
  train(keys_and_cache, PETSC_FALSE);
  train(keys_and_cache, PETSC_TRUE);
}

/* Tensors of keys are listed before the table's rows, even on ranks without rows of the table. */
static void test_state(void **state)
{
  static char name[] = "a";
  char *feature = name;
  TrsTableConfig config = {
      .name = name, .num_embeddings = ROWS, .embedding_dim = DIM, .n_features = 1, .features = &feature};
  const TrsTableConfigs tables = {.n = 1, .table = &config};
  const TrsEmbeddingShards shards = {.device = device, .tables = &tables, .placements = keys_and_cache};
  TrsState list = {0};

  (void)state;
  assert_petsc_ok(TrsEmbeddingShardsAddState(&shards, &list));
  assert_int_equal(list.n, 2);
  assert_string_equal(list.tensor[0].path, "embedding/a/keys");
  assert_string_equal(list.tensor[1].path, "embedding/a/weight");
  assert_string_equal(list.tensor[1].id_map, "none");
  assert_petsc_ok(TrsStateFree(&list));
  assert_true(TrsPlacementTreats(&shards, 0, PETSC_TRUE));
}

static int set_up(void **state)
{
  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  return 0;
}

TRS_TEST_MAIN(cmocka_unit_test_setup(test_keys, set_up),
              cmocka_unit_test_setup(test_keys_under_a_cache, set_up),
              cmocka_unit_test_setup(test_state, set_up))
