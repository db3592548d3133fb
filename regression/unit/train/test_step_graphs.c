/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Tests when a part of a step is captured, replayed or run directly, and the order of work between
  the graphs of a part. The only operations of the test's device are copies, and its graphs are
  lists of copies.
*/
#include "core/options/options.h"
#include "train/step_graphs.h"
#include "trs_test.h"

#include <string.h>

enum { N_COPIES = 64, N_GRADS = 1003, N_RANGES = 4 };

typedef struct {
  void *to;
  const void *from;
  int64_t bytes;
} Copy;

struct TrsGraphImpl {
  int n;
  Copy copy[N_COPIES];
};

static struct {
  TrsGraph captured; /* if NULL, copies are made immediately */
  int n_graphs, n_launches, n_alive;
  int64_t releases;
} device;

static PetscErrorCode copy(void *to, const void *from, int64_t bytes, TrsStream stream)
{
  (void)stream;
  if (!device.captured)
    memcpy(to, from, (size_t)bytes);
  else
    device.captured->copy[device.captured->n++] = (Copy){to, from, bytes};
  return 0;
}

static PetscErrorCode capture_start(TrsStream stream)
{
  (void)stream;
  assert_null(device.captured);
  device.captured = calloc(1, sizeof(*device.captured));
  return 0;
}

static PetscErrorCode capture_end(TrsStream stream, TrsGraph *graph)
{
  (void)stream;
  assert_non_null(device.captured);
  if (!graph) {
    free(device.captured);
    device.captured = NULL;
    return 0;
  }
  *graph = device.captured;
  device.captured = NULL;
  if ((*graph)->n == 0) {
    free(*graph);
    *graph = NULL;
    return 0;
  }
  device.n_graphs++;
  device.n_alive++;
  return 0;
}

static PetscErrorCode graph_launch(TrsGraph graph, TrsStream stream)
{
  (void)stream;
  assert_null(device.captured);
  device.n_launches += graph != NULL;
  for (int i = 0; graph && i < graph->n; i++)
    memcpy(graph->copy[i].to, graph->copy[i].from, (size_t)graph->copy[i].bytes);
  return 0;
}

static PetscErrorCode graph_destroy(TrsGraph *graph)
{
  device.n_alive -= *graph != NULL;
  free(*graph);
  *graph = NULL;
  return 0;
}

static int64_t releases(void)
{
  return device.releases;
}

static TrsDeviceOps device_of_copies(void)
{
  const TrsDeviceOps *cpu;
  TrsDeviceOps ops;

  assert_petsc_ok(TrsDeviceFind("cpu", &cpu));
  ops = *cpu;
  ops.copy = copy;
  ops.capture_start = capture_start;
  ops.capture_end = capture_end;
  ops.graph_launch = graph_launch;
  ops.graph_destroy = graph_destroy;
  ops.releases = releases;
  memset(&device, 0, sizeof(device));
  return ops;
}

/* A piece of work, which makes one copy. */
typedef struct {
  int n_calls;
  float from, to;
} Work;

static PetscErrorCode work(void *context)
{
  Work *w = context;

  w->n_calls++;
  return copy(&w->to, &w->from, (int64_t)sizeof(w->from), NULL);
}

/* Run a part and check its result. Returns true if its work was called. */
static int calls_work(TrsStepGraphs graphs, int slot, TrsStepPart part, TrsStepArguments arguments, Work *w)
{
  const int before = w->n_calls;

  w->from += 1.0f;
  assert_petsc_ok(TrsStepGraphsRun(graphs, slot, part, &arguments, work, w));
  assert_true(w->to == w->from);
  return w->n_calls - before;
}

/*
  A part is captured when it runs for the third time in a row. If its arguments or slot change, or
  if memory was released, it runs directly or is captured again.
*/
static void test_meetings(void **state)
{
  static const float dense[2] = {0};
  const TrsStepArguments full = {.n = 8, .dense = dense}, last = {.n = 5, .dense = dense},
                         moved = {.n = 8, .dense = dense + 1};
  const TrsDeviceOps ops = device_of_copies();
  TrsStepGraphs graphs;
  Work w[2] = {{0}};

  (void)state;
  assert_petsc_ok(TrsStepGraphsCreate(&ops, NULL, &graphs));
  for (int i = 0; i < 3; i++) {
    assert_int_equal(device.n_graphs, 0);
    assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, full, &w[0]), 1);
  }
  assert_int_equal(device.n_graphs, 1);
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, full, &w[0]), 0);
  assert_int_equal(device.n_launches, 2);
  /* each pair of slot and part has its own graph */
  assert_int_equal(calls_work(graphs, 1, TRS_PART_FORWARD_OVER, full, &w[1]), 1);
  assert_int_equal(calls_work(graphs, 0, TRS_PART_BACKWARD_DENSE, full, &w[1]), 1);
  /* a last batch that is smaller does not remove the graph */
  for (int epoch = 0; epoch < 4; epoch++) {
    assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, last, &w[0]), 1);
    assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, full, &w[0]), 0);
  }
  assert_int_equal(device.n_graphs, 1);
  /* if the new arguments repeat, they are captured and replace the old graph */
  for (int i = 0; i < 3; i++) assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, moved, &w[0]), 1);
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, moved, &w[0]), 0);
  assert_int_equal(device.n_graphs, 2);
  assert_int_equal(device.n_alive, 1);
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, full, &w[0]), 1);
  /* the released memory may be used by any graph */
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, moved, &w[0]), 0);
  device.releases++;
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, moved, &w[0]), 1);
  assert_int_equal(device.n_graphs, 3);
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, moved, &w[0]), 0);
  assert_petsc_ok(TrsStepGraphsDestroy(&graphs));
  assert_null(graphs);
  assert_int_equal(device.n_alive, 0);
  assert_int_equal(calls_work(NULL, 0, TRS_PART_FORWARD_OVER, full, &w[0]), 1);
}

static PetscErrorCode work_that_fails(void *context)
{
  PetscFunctionBegin;
  PetscCall(work(context));
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_MEMORY, "no memory for a launch");
}

/*
  Work that fails during its capture: its own error is returned, and the capture has ended. The part
  then runs as if it were new.
*/
static void test_failed_work(void **state)
{
  const TrsStepArguments arguments = {.n = 8};
  const TrsDeviceOps ops = device_of_copies();
  TrsStepGraphs graphs;
  Work w = {0};

  (void)state;
  assert_petsc_ok(TrsStepGraphsCreate(&ops, NULL, &graphs));
  for (int i = 0; i < 2; i++) (void)calls_work(graphs, 0, TRS_PART_FORWARD_OVER, arguments, &w);
  assert_int_equal(TrsStepGraphsRun(graphs, 0, TRS_PART_FORWARD_OVER, &arguments, work_that_fails, &w),
                   TRS_ERR_MEMORY);
  TrsErrorClear();
  assert_null(device.captured);
  assert_int_equal(device.n_alive, 0);
  for (int i = 0; i < 3; i++)
    assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, arguments, &w), 1);
  assert_int_equal(calls_work(graphs, 0, TRS_PART_FORWARD_OVER, arguments, &w), 0);
  assert_petsc_ok(TrsStepGraphsDestroy(&graphs));
  assert_int_equal(device.n_alive, 0);
}

/*
  The parts that copy a slot's numbers bring them to the device, whether their work is called or
  their graph is launched.
*/
static void test_numbers(void **state)
{
  const TrsDeviceOps ops = device_of_copies();
  const TrsStepNumbers *current;
  TrsStepGraphs graphs;
  Work w = {0};

  (void)state;
  assert_petsc_ok(TrsStepGraphsCreate(&ops, NULL, &graphs));
  current = TrsStepGraphsCurrent(graphs);
  for (int step = 0; step < 12; step++) {
    TrsStepNumbers *numbers = TrsStepGraphsNumbers(graphs, step % 2);

    numbers->batch = (TrsBatchNumbers){.step = step, .first = 100 + step, .loss_scale = 0.5f * (float)step};
    numbers->update = (TrsUpdateNumbers){.learning_rate = (float)step};
    (void)calls_work(graphs, step % 2, TRS_PART_FORWARD_DENSE, (TrsStepArguments){.n = 1}, &w);
    assert_int_equal(current->batch.step, step);
    assert_int_equal(current->batch.first, 100 + step);
    assert_true(current->batch.loss_scale == 0.5f * (float)step);
    assert_true(current->update.learning_rate == (float)PetscMax(step - 1, 0));
    (void)calls_work(graphs, step % 2, TRS_PART_OPTIMIZER, (TrsStepArguments){.n = 0}, &w);
    assert_true(current->update.learning_rate == (float)step);
  }
  assert_int_equal(w.n_calls, 2 * 2 * 3);
  assert_null(TrsStepGraphsNumbers(NULL, 0));
  assert_null(TrsStepGraphsCurrent(NULL));
  assert_petsc_ok(TrsStepGraphsDestroy(&graphs));
}

/* A backward that computes the gradients range by range. */
typedef struct {
  TrsStepGraphs graphs;
  float *grads, *made;
} Backward;

static const int64_t ends[N_RANGES] = {60, 90, 1000, N_GRADS};

static PetscErrorCode backward(void *context)
{
  const Backward *b = context;

  for (int i = 0; i < N_RANGES; i++) {
    const int64_t begin = i ? ends[i - 1] : 0;

    assert_petsc_ok(
        copy(b->grads + begin, b->made + begin, (ends[i] - begin) * (int64_t)sizeof(float), NULL));
    assert_petsc_ok(TrsStepGraphsReady(b->graphs, 0, ends[i]));
  }
  return 0;
}

static TrsDenseAllreduce make_allreduce(TrsCommGroups *groups, TrsOptions *options, float *grads)
{
  static const TrsOptionGroup *const option_groups[] = {&trs_dense_allreduce_options};
  char *argv[] = {(char *)(uintptr_t) "test", (char *)(uintptr_t) "-dense_bucket_bytes",
                  (char *)(uintptr_t) "320"};
  const TrsDeviceOps *cpu;
  const TrsComputeOps *compute;
  TrsDenseAllreduce allreduce;

  assert_petsc_ok(TrsDeviceFind("cpu", &cpu));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, 0, "mpi", cpu, compute, groups));
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, 3, argv, option_groups, 1, options));
  assert_petsc_ok(TrsDenseAllreduceCreate(groups->dense, NULL, grads, N_GRADS, &allreduce));
  assert_petsc_ok(TrsDenseAllreduceSetFromOptions(allreduce, *options));
  assert_petsc_ok(TrsDenseAllreduceSetUp(allreduce));
  return allreduce;
}

/*
  The buckets of 80 floats are sent when the second, the third and the last range are complete. So
  with several ranks there are three graphs. The expected sums are computed by hand: each gradient
  of rank r is r + 1 times the step.
*/
static void test_buckets(void **state)
{
  static float grads[N_GRADS], made[N_GRADS];
  const int size = trs_size(), n_sections = size > 1 ? 3 : 1;
  const TrsDeviceOps ops = device_of_copies();
  TrsDenseAllreduce allreduce;
  TrsCommGroups groups;
  TrsOptions options;
  Backward b = {.grads = grads, .made = made};

  (void)state;
  allreduce = make_allreduce(&groups, &options, grads);
  assert_petsc_ok(TrsStepGraphsCreate(&ops, NULL, &b.graphs));
  TrsStepGraphsSetAllreduce(b.graphs, allreduce);
  for (int step = 1; step <= 6; step++) {
    const TrsStepArguments arguments = {.n = 8};
    const int before = device.n_launches;

    for (int64_t j = 0; j < N_GRADS; j++) made[j] = (float)((trs_rank() + 1) * step);
    assert_petsc_ok(TrsStepGraphsRun(b.graphs, 0, TRS_PART_BACKWARD_OVER, &arguments, backward, &b));
    assert_petsc_ok(TrsDenseAllreduceWait(allreduce, NULL));
    for (int64_t j = 0; j < N_GRADS; j++) assert_true(grads[j] == (float)(step * size * (size + 1) / 2));
    assert_int_equal(device.n_launches - before, step < 3 ? 0 : n_sections);
  }
  assert_int_equal(device.n_graphs, n_sections);
  assert_petsc_ok(TrsStepGraphsDestroy(&b.graphs));
  assert_petsc_ok(TrsDenseAllreduceDestroy(&allreduce));
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_petsc_ok(TrsCommGroupsDestroy(&groups));
}

TRS_TEST_MAIN(cmocka_unit_test(test_meetings), cmocka_unit_test(test_failed_work),
              cmocka_unit_test(test_numbers), cmocka_unit_test(test_buckets))
