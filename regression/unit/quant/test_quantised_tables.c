/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: portable avx2 */
/* TEST ranks: 1 2 3 4 */
/* TEST labels: units */
/*
  Tests quantised tables with TorchRec's quantised collections (units_quant.h5). Their floats are
  written as a checkpoint. For every way to cut tables, the shards that are read from it have the
  golden bytes. Then the quantised rows are written, and read again with every other way to cut
  tables.
*/
#include "compute/quant.h"
#include "golden_h5.h"
#include "quant/quantised_tables.h"
#include "scratch_folder.h"

#include <string.h>

enum { MAX_TABLES = 8 };
typedef enum { CUT_NOT, CUT_ROWS, CUT_COLUMNS, CUT_BOTH, N_CUTS } cut;

static char rows_path[300];
static const TrsDeviceOps *device;

/* The golden tables of one group. */
typedef struct {
  int n;
  TrsDType dtype;
  char name[MAX_TABLES][16];
  float *weight[MAX_TABLES];
  uint8_t *bytes[MAX_TABLES];
  int64_t shape[MAX_TABLES][2];
  TrsTableConfig config[MAX_TABLES];
  TrsTableConfigs tables;
} golden_tables;

static void read_tables(hid_t group, golden_tables *g)
{
  char text[32];

  memset(g, 0, sizeof(*g));
  golden_string(group, "data_type", text, sizeof(text));
  while (strcmp(TrsDTypeName(g->dtype), text) != 0) g->dtype++;
  for (; g->n < MAX_TABLES; g->n++) {
    const int t = g->n;

    snprintf(text, sizeof(text), "in/weight%d", t);
    if (!golden_has(group, text)) break;
    g->weight[t] = golden_read(group, text, H5T_NATIVE_FLOAT, NULL, g->shape[t]);
    snprintf(text, sizeof(text), "out/bytes%d", t);
    g->bytes[t] = golden_bytes(group, text, NULL);
    snprintf(g->name[t], sizeof(g->name[t]), "t%d", t);
    g->config[t] = (TrsTableConfig){.name = g->name[t],
                                    .num_embeddings = g->shape[t][0],
                                    .embedding_dim = (int)g->shape[t][1],
                                    .data_type = g->dtype};
  }
  assert_true(g->n > 0);
  g->tables = (TrsTableConfigs){.n = g->n, .table = g->config};
}

static void free_tables(golden_tables *g)
{
  for (int t = 0; t < g->n; t++) {
    free(g->weight[t]);
    free(g->bytes[t]);
  }
}

/* Write the floats as a checkpoint. Each rank writes a part of the rows. */
static void write_floats(const golden_tables *g)
{
  TrsState state = {0};
  TrsStateTensor *tensor;

  for (int t = 0; t < g->n; t++) {
    const int64_t R = g->shape[t][0], D = g->shape[t][1], block = (R + trs_size() - 1) / trs_size(),
                  first = trs_rank() * block < R ? trs_rank() * block : R,
                  n = R - first < block ? R - first : block;
    char name[64];

    snprintf(name, sizeof(name), "embedding/%s/weight", g->name[t]);
    assert_petsc_ok(TrsStateAdd(&state, name, TRS_FP32, 2, R, D, &tensor));
    assert_petsc_ok(TrsStateAddPart(tensor, first, 0, n, D, g->weight[t] + first * D, D));
  }
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &(TrsCheckpointInfo){.step = 7}));
  assert_petsc_ok(TrsStateFree(&state));
}

/*
  Make the shards of every table: the whole table on one rank, rows over all ranks, 4 or 8 columns
  on each rank in turn, or rows and columns.
*/
static void make_plan(const golden_tables *g, cut how, TrsTablePlan *table_plan, TrsShard *shard,
                      TrsShardingPlan *plan)
{
  const int W = trs_size();

  *plan = (TrsShardingPlan){.world_size = W, .n_tables = g->n, .table = table_plan};
  for (int t = 0; t < g->n; t++) {
    const int64_t R = g->shape[t][0], D = g->shape[t][1], width = how < CUT_COLUMNS ? D : D % 8 == 0 ? 8 : 4;
    const int n_row_shards = how == CUT_ROWS || how == CUT_BOTH ? W : 1;
    const int64_t block = (R + n_row_shards - 1) / n_row_shards;

    table_plan[t] = (TrsTablePlan){
        .name = g->config[t].name, .shard = shard, .compute_kernel = TRS_KERNEL_QUANT};
    for (int64_t col = 0; col < D; col += width)
      for (int q = 0; q < n_row_shards; q++, shard++) {
        const int64_t first = q * block < R ? q * block : R;

        *shard = (TrsShard){.rank = (t + q + (int)(col / width)) % W,
                            .row_offset = first,
                            .col_offset = col,
                            .rows = R - first < block ? R - first : block,
                            .cols = D - col < width ? D - col : width};
        table_plan[t].n_shards++;
      }
  }
}

/* Check that a shard's rows equal the columns of the golden rows, byte for byte. */
static void check_shard(const golden_tables *g, const char *name, const TrsEmbeddingShard *shard)
{
  const TrsTbeTable *tbe = &shard->tbe;
  const int64_t whole = TrsQuantRowBytes(g->dtype, TRS_ROWS_TBE, (int)g->shape[shard->table][1]),
                bytes = TrsQuantRowBytes(g->dtype, TRS_ROWS_TBE, tbe->dim);
  uint8_t *wanted = calloc((size_t)(tbe->rows * bytes) + 1, 1);

  if (tbe->rows)
    assert_petsc_ok(TrsQuantSliceRows(g->dtype, (int)g->shape[shard->table][1], (int)tbe->col_offset,
                                      tbe->dim, tbe->rows, g->bytes[shard->table] + tbe->row_offset * whole,
                                      wanted));
  for (int64_t i = 0; i < tbe->rows * bytes; i++)
    if (((const uint8_t *)tbe->weight)[i] != wanted[i])
      fail_msg("%s: table %d, row %d + %d, columns from %d: byte %d is %d, expected %d", name, shard->table,
               (int)tbe->row_offset, (int)(i / bytes), (int)tbe->col_offset, (int)(i % bytes),
               ((const uint8_t *)tbe->weight)[i], wanted[i]);
  free(wanted);
}

/* Read `from` with a plan, and check every shard. If `to` is given, write the rows to it. */
static void load(const golden_tables *g, const char *name, const char *from, cut how, const char *to)
{
  TrsTablePlan table_plan[MAX_TABLES];
  TrsShard *shard = calloc(1024, sizeof(*shard));
  const char *names[MAX_TABLES], *id_maps[MAX_TABLES];
  TrsStoredTable stored[MAX_TABLES];
  TrsShardingPlan plan;
  TrsEmbeddingShards shards;
  TrsQuantReader reader;
  TrsCheckpointInfo info;
  TrsState state = {0};

  make_plan(g, how, table_plan, shard, &plan);
  for (int t = 0; t < g->n; t++) {
    names[t] = g->name[t];
    id_maps[t] = "none";
  }
  assert_petsc_ok(TrsCheckpointTables(MPI_COMM_WORLD, from, g->n, names, id_maps, stored));
  assert_petsc_ok(TrsQuantCheckPlan(&plan, &g->tables, "the test's plan"));
  assert_petsc_ok(TrsEmbeddingShardsCreateQuantised(device, &g->tables, &plan, trs_rank(), &shards));
  assert_petsc_ok(TrsQuantReaderCreate(from, &shards, stored, &reader));
  assert_petsc_ok(TrsQuantReaderAddState(reader, &state));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, from, &state, &info));
  assert_int_equal(info.step, 7);
  assert_petsc_ok(TrsQuantReaderDestroy(&reader));
  assert_petsc_ok(TrsStateFree(&state));
  for (int i = 0; i < shards.n; i++) check_shard(g, name, &shards.shard[i]);
  if (to) {
    assert_petsc_ok(TrsQuantAddState(&shards, &state));
    assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, to, &state, &info));
    assert_petsc_ok(TrsStateFree(&state));
  }
  assert_petsc_ok(TrsEmbeddingShardsDestroy(&shards));
  free(shard);
}

/* Check that the file contains the golden rows, byte for byte. */
static void check_file(const golden_tables *g, const char *name)
{
  hid_t file;

  MPI_Barrier(MPI_COMM_WORLD); /* wait until the writer's lock is removed */
  file = H5Fopen(rows_path, H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(file >= 0);
  for (int t = 0; t < g->n; t++) {
    char dataset[64];
    int64_t n = 0;
    uint8_t *bytes;

    snprintf(dataset, sizeof(dataset), "embedding/%s/weight_quantised", g->name[t]);
    bytes = golden_bytes(file, dataset, &n);
    assert_int_equal(n, g->shape[t][0] * TrsQuantRowBytes(g->dtype, TRS_ROWS_TBE, (int)g->shape[t][1]));
    if (memcmp(bytes, g->bytes[t], (size_t)n) != 0)
      fail_msg("%s: other bytes in the file, table %d", name, t);
    free(bytes);
  }
  H5Fclose(file);
}

static void one_group(hid_t group, const char *name, void *context)
{
  golden_tables g;

  if (!golden_has_attribute(group, "data_type") || !golden_has(group, "out/bytes0")) return;
  ++*(int *)context;
  read_tables(group, &g);
  write_floats(&g);
  for (int how = 0; how < N_CUTS; how++) {
    load(&g, name, path, (cut)how, rows_path);
    if (TrsQuantIsPacked(g.dtype)) check_file(&g, name);
    load(&g, name, rows_path, (cut)((how + 1) % N_CUTS), NULL);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  free_tables(&g);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_quant.h5");
  int n_groups = 0;

  (void)state;
  snprintf(rows_path, sizeof(rows_path), "%s/rows.h5", folder);
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  golden_for_each_group(file, one_group, &n_groups);
  assert_true(n_groups >= 3);
  golden_close(file);
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_golden))
