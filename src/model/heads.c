/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/heads.h"

#include "core/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRS_HEAD_NAME = 160 };

static const TrsOptionSpec specs[] = {
    {"-task_heads", TRS_OPTION_ENUM, "shared", NULL, TRS_CHOICES(TRS_HEADS), NULL,
     "what the tasks of -tasks share above the interaction. shared: the output of the interaction. mmoe: "
     "experts that gates of the tasks mix (multi-gate mixture of experts). ple: shared experts beside "
     "those of each task (progressive layered extraction)"},
    {"-heads_experts", TRS_OPTION_INT, "4", "[1,1000]", NULL, "experts",
     "mmoe: experts; ple: shared experts of a level"},
    {"-heads_task_experts", TRS_OPTION_INT, "2", "[1,1000]", NULL, "experts",
     "ple: experts of each task in a level"},
    {"-heads_expert_arch", TRS_OPTION_INTS, "128", "[1,1000000]", NULL, NULL,
     "output sizes of the layers of an expert, each ending in ReLU"},
    {"-heads_levels", TRS_OPTION_INT, "1", "[1,100]", NULL, "levels", "ple: levels of experts"},
};
const TrsOptionGroup trs_heads_options = TRS_OPTION_GROUP_OF_MODEL(
    "Heads of learning tasks", NULL, specs,
    "-task_heads,-heads_experts,-heads_task_experts,-heads_expert_arch,-heads_levels", NULL);

/* True if an option for whole numbers has its default. */
static PetscBool is_default(const char *name, int n, const int64_t *values)
{
  for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
    if (strcmp(specs[i].name, name) == 0)
      return (PetscBool)(n == 1 && values[0] == strtoll(specs[i].fallback, NULL, 10));
  return PETSC_FALSE;
}

/*
  Refuse an option that the chosen heads do not use. Its default value is allowed, because a
  checkpoint names every option of its model.
*/
static PetscErrorCode check_option(const TrsHeads *heads, TrsOptions options, const char *name, int n,
                                   const int64_t *values, TrsHeadsKind least)
{
  static const char *const words[] = {TRS_HEADS(TRS_WORD_TEXT)};

  PetscFunctionBegin;
  if (heads->kind < least && TrsOptionsIsGiven(options, name) && !is_default(name, n, values))
    PetscCall(TrsOptionError(options, name, "-task_heads %s takes no such option", words[heads->kind]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHeadsRead(TrsHeads *heads, TrsOptions options, const TrsMlpSpec *over_arch)
{
  int64_t shared, own, levels;
  int kind;

  PetscFunctionBegin;
  PetscCall(TrsTaskConfigsFromOptions(options, over_arch->n, over_arch->sizes, &heads->tasks));
  PetscCall(TrsOptionsGetEnum(options, "-task_heads", &kind, NULL));
  PetscCall(TrsOptionsGetInt(options, "-heads_experts", &shared, NULL));
  PetscCall(TrsOptionsGetInt(options, "-heads_task_experts", &own, NULL));
  PetscCall(TrsOptionsGetInt(options, "-heads_levels", &levels, NULL));
  PetscCall(TrsOptionsGetInts(options, "-heads_expert_arch", &heads->expert_spec.n, &heads->expert_spec.sizes,
                              NULL));
  heads->kind = (TrsHeadsKind)kind;
  heads->over_arch = *over_arch;
  PetscCall(check_option(heads, options, "-heads_experts", 1, &shared, TRS_HEADS_MMOE));
  PetscCall(check_option(heads, options, "-heads_expert_arch", heads->expert_spec.n, heads->expert_spec.sizes,
                         TRS_HEADS_MMOE));
  PetscCall(check_option(heads, options, "-heads_task_experts", 1, &own, TRS_HEADS_PLE));
  PetscCall(check_option(heads, options, "-heads_levels", 1, &levels, TRS_HEADS_PLE));
  if (kind != TRS_HEADS_SHARED && !heads->tasks.named)
    PetscCall(TrsOptionError(options, "-task_heads", "needs -tasks, the names of the tasks"));
  if (kind == TRS_HEADS_SHARED) PetscFunctionReturn(PETSC_SUCCESS);
  heads->n_levels = kind == TRS_HEADS_PLE ? (int)levels : 1;
  heads->n_shared = (int)shared;
  heads->n_own = kind == TRS_HEADS_PLE ? (int)own : 0;
  heads->width = heads->expert_spec.sizes[heads->expert_spec.n - 1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The task to which expert e belongs. For a shared expert: the number of tasks. */
static int task_of_expert(const TrsHeads *heads, int e)
{
  return e < heads->tasks.n * heads->n_own ? e / heads->n_own : heads->tasks.n;
}

/* The experts that a gate weighs, as two index ranges and their total count. */
static TrsMixture choice_of(const TrsHeads *heads, int gate)
{
  const int n_own = heads->tasks.n * heads->n_own, n = n_own + heads->n_shared;
  TrsMixture m = {.begin = {gate * heads->n_own, n_own}, .end = {(gate + 1) * heads->n_own, n}};

  if (gate == heads->tasks.n) {
    m.begin[0] = 0;
    m.end[0] = n_own;
  }
  m.n = m.end[0] - m.begin[0] + m.end[1] - m.begin[1];
  m.width = heads->width;
  m.stride = n * heads->width;
  return m;
}

/* The module name for a part of a level: "level_0/common/expert_2", "level_1/tasks/click/gate". */
static PetscErrorCode name_part(const TrsHeads *heads, int level, int task, const char *part, char *name)
{
  PetscFunctionBegin;
  if (task == heads->tasks.n)
    PetscCall(PetscSNPrintf(name, TRS_HEAD_NAME, "level_%d/common/%s", level, part));
  else
    PetscCall(PetscSNPrintf(name, TRS_HEAD_NAME, "level_%d/tasks/%s/%s", level, heads->tasks.task[task].name,
                            part));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Declare a level's gates, then its experts. */
static PetscErrorCode declare_level(TrsHeads *heads, int number)
{
  TrsHeadLevel *level = &heads->level[number];
  TrsParameters *params = heads->context->params;
  char name[TRS_HEAD_NAME], part[32];

  PetscFunctionBegin;
  for (int g = 0; g < level->n_gates; g++) {
    PetscCall(name_part(heads, number, g, "gate/weight", name));
    PetscCall(TrsParametersAddNamed(params, name, choice_of(heads, g).n, level->in, TRS_INIT_UNIFORM,
                                    (float)(1.0 / sqrt((double)level->in)), &level->gate[g]));
    TrsParametersFillUp(params, level->filled);
  }
  for (int e = 0; e < level->n_experts; e++) {
    const int task = task_of_expert(heads, e);

    PetscCall(
        PetscSNPrintf(part, sizeof(part), "expert_%d",
                      e - (task < heads->tasks.n ? task * heads->n_own : heads->tasks.n * heads->n_own)));
    PetscCall(name_part(heads, number, task, part, name));
    PetscCall(TrsMlpDeclare(&level->expert[e], heads->context, name, &heads->expert_spec, level->in,
                            level->filled));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsHeadsTakeOperands(const TrsHeads *heads)
{
  return (PetscBool)(heads->tasks.n == 1 && !heads->n_levels && !heads->over_arch.residual &&
                     !heads->over_arch.pair);
}

PetscErrorCode TrsHeadsDeclare(TrsHeads *heads, const TrsLayerContext *context, int64_t in, int64_t filled,
                               TrsDType type)
{
  const int T = heads->tasks.n, n_experts = T * heads->n_own + heads->n_shared;
  const int64_t top = heads->n_levels ? heads->width : in;

  PetscFunctionBegin;
  heads->context = context;
  heads->expert_spec.x_type = context->params->type;
  PetscCall(PetscCalloc4((size_t)heads->n_levels, &heads->level, (size_t)T, &heads->tower, (size_t)T,
                         &heads->logits, (size_t)T, &heads->dlogits));
  for (int t = 0; t < T; t++) {
    const TrsTaskConfig *task = &heads->tasks.task[t];
    TrsMlpSpec spec = heads->over_arch;
    char name[TRS_HEAD_NAME] = "over_arch";

    spec.n = task->n_arch;
    spec.sizes = task->arch;
    spec.x_type = type;
    if (T > 1 || heads->n_levels) PetscCall(PetscSNPrintf(name, sizeof(name), "tasks/%s", task->name));
    PetscCall(TrsMlpDeclare(&heads->tower[t], context, name, &spec, top, heads->n_levels ? top : filled));
  }
  for (int l = heads->n_levels - 1; l >= 0; l--) {
    TrsHeadLevel *level = &heads->level[l];

    level->n_experts = n_experts;
    level->n_gates = T + (l < heads->n_levels - 1);
    level->in = l ? heads->width : in;
    level->filled = l ? heads->width : filled;
    PetscCall(PetscCalloc5((size_t)n_experts, &level->expert, (size_t)level->n_gates, &level->gate,
                           (size_t)level->n_gates, &level->weight, (size_t)level->n_gates, &level->y,
                           (size_t)level->n_gates, &level->dy));
    if (context->params->type != TRS_FP32) PetscCall(PetscCalloc1((size_t)T + 1, &level->copy));
    PetscCall(declare_level(heads, l));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Choose memory for a stack's outputs that the stack shares with no other part. */
static void place_stack(const TrsHeads *heads, TrsMlp *mlp, int64_t max_batch, float *inner, int64_t *used,
                        float *y, int64_t stride)
{
  const TrsMlpRoom room = TrsMlpPlace(mlp, max_batch, inner ? inner + *used : NULL, TrsFloats(y, stride));

  *used += heads->context->params->forward_only ? room.outputs : PetscMax(room.end, room.outputs);
}

static void place_level(TrsHeads *heads, TrsHeadLevel *level, int64_t max_batch, float *inner, int64_t *used)
{
  const int64_t width = heads->width, stride = level->n_experts * width;
  const int n_copies = level == heads->level ? 1 : (level - 1)->n_gates;
  const PetscBool backward = (PetscBool)!heads->context->params->forward_only;

  for (int i = 0; level->copy && i < n_copies; i++)
    level->copy[i] = TrsTakeMatrix(inner, used, max_batch,
                                   TrsOperandStride(heads->context->params->type, level->filled),
                                   heads->context->params->type);
  level->experts = TrsTakeFloats(inner, used, max_batch * stride);
  if (backward) level->dexperts = TrsTakeFloats(inner, used, max_batch * stride);
  for (int g = 0; g < level->n_gates; g++) {
    level->weight[g] = TrsTakeFloats(inner, used, max_batch * choice_of(heads, g).n);
    level->y[g] = TrsTakeFloats(inner, used, max_batch * width);
    if (backward) level->dy[g] = TrsTakeFloats(inner, used, max_batch * width);
  }
  for (int e = 0; e < level->n_experts; e++)
    place_stack(heads, &level->expert[e], max_batch, inner, used, inner ? level->experts + e * width : NULL,
                stride);
}

/*
  A single tower uses the same memory for several arrays (TrsMlpPlace). Several parts use separate
  memory, because the gradient of their common input is complete only after all of them.
*/
TrsMlpRoom TrsHeadsPlace(TrsHeads *heads, int64_t max_batch, int64_t stride, float *inner)
{
  int64_t used = 0;

  if (heads->tasks.n == 1 && !heads->n_levels)
    return TrsMlpPlace(&heads->tower[0], max_batch, inner,
                       TrsFloats(heads->logits[0], heads->tasks.task[0].classes));
  heads->other_stride = PetscMax(stride, heads->width);
  if (!heads->context->params->forward_only)
    heads->other = TrsTakeFloats(inner, &used, max_batch * heads->other_stride);
  for (int l = 0; l < heads->n_levels; l++) place_level(heads, &heads->level[l], max_batch, inner, &used);
  for (int t = 0; t < heads->tasks.n; t++)
    place_stack(heads, &heads->tower[t], max_batch, inner, &used, heads->logits[t],
                heads->tasks.task[t].classes);
  return (TrsMlpRoom){.grad = 0, .grad_end = used, .outputs = used, .end = used};
}

PetscErrorCode TrsHeadsAllocate(TrsHeads *heads, int64_t max_batch)
{
  const TrsDeviceOps *device = heads->context->device;
  const int64_t bytes = max_batch * (int64_t)sizeof(float);

  PetscFunctionBegin;
  for (int t = 0; t < heads->tasks.n; t++) {
    const int64_t n = heads->tasks.task[t].classes;

    PetscCall(device->alloc(n * bytes, (void **)&heads->logits[t]));
    if (!heads->context->params->forward_only)
      PetscCall(device->alloc(n * bytes, (void **)&heads->dlogits[t]));
  }
  PetscCall(device->alloc(heads->tasks.columns * bytes, (void **)&heads->predictions));
  PetscCall(device->alloc(heads->tasks.n * (int64_t)sizeof(double), (void **)&heads->loss));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- forward --- */

/*
  The input of a task's experts and gate in a level. With task = tasks.n: the input of the shared
  experts.
*/
static TrsHeadInput input_of(const TrsHeads *heads, int level, int task, const TrsHeadInput *input)
{
  const TrsHeadLevel *below = level ? &heads->level[level - 1] : NULL;

  if (!below) return *input;
  return (TrsHeadInput){.x = TrsFloats(below->y[task], heads->width),
                        .dx = TrsFloats(below->dy[task], heads->width),
                        .columns = heads->width};
}

/* Like input_of(), but returns the input as an operand of matrix multiplications. */
static TrsMatrix operand_of(const TrsHeads *heads, int level, int task, const TrsHeadInput *input)
{
  if (!heads->level[level].copy) return input_of(heads, level, task, input).x;
  return heads->level[level].copy[level ? task : 0];
}

/*
  If the operands' type is not fp32, copy a level's inputs to this type for matrix multiplications.
*/
static PetscErrorCode copy_inputs(const TrsHeads *heads, TrsStream stream, int64_t n, int number,
                                  const TrsHeadInput *input)
{
  const TrsHeadLevel *level = &heads->level[number];
  const int n_copies = number ? heads->level[number - 1].n_gates : 1;

  PetscFunctionBegin;
  for (int i = 0; level->copy && i < n_copies; i++)
    PetscCall(heads->context->compute->convert_matrix(stream, n, level->in, level->filled,
                                                      input_of(heads, number, i, input).x, level->copy[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_level(const TrsHeads *heads, TrsStream stream, int64_t n, int number,
                                    const TrsHeadInput *input)
{
  const TrsHeadLevel *level = &heads->level[number];
  const TrsComputeOps *compute = heads->context->compute;

  PetscFunctionBegin;
  PetscCall(copy_inputs(heads, stream, n, number, input));
  for (int e = 0; e < level->n_experts; e++)
    PetscCall(TrsMlpForward(&level->expert[e], stream, n,
                            operand_of(heads, number, task_of_expert(heads, e), input)));
  for (int g = 0; g < level->n_gates; g++) {
    TrsMixture m = choice_of(heads, g);

    m.batch = n;
    m.experts = level->experts;
    m.gate = level->weight[g];
    PetscCall(
        TrsLayerMultiply(heads->context, stream, PETSC_FALSE, PETSC_TRUE,
                         (TrsMatrixProduct){.m = n,
                                            .n = m.n,
                                            .k = level->filled,
                                            .a = operand_of(heads, number, g, input),
                                            .b = TrsParametersMatrix(heads->context->params, level->gate[g]),
                                            .c = TrsFloats(m.gate, m.n)}));
    PetscCall(compute->mix_forward(stream, &m, level->y[g]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute a task's loss and its logits' gradient, or only its predictions. `last` may be the layer
  that computes the logits; NULL: they are computed.
*/
static PetscErrorCode run_loss(const TrsHeads *heads, TrsStream stream, int64_t n, int t, const float *labels,
                               const float *weights, float scale, PetscBool predict, const TrsLinear *last)
{
#define LOSS_OF(KIND, word, labels) compute->word,
  const TrsComputeOps *compute = heads->context->compute;
  TrsLossFn *const losses[] = {TRS_LOSSES(LOSS_OF)};
  const TrsTaskConfig *task = &heads->tasks.task[t];
  const TrsBatchNumbers *now = heads->context->now;
  const TrsLossArgs args = {.batch = n,
                            .classes = task->classes,
                            .missing = heads->tasks.named,
                            .z = heads->logits[t],
                            .z_stride = task->classes,
                            .y = labels ? labels + t : NULL,
                            .y_stride = heads->tasks.n,
                            .w = weights,
                            .scale = now ? (float)task->weight : scale * (float)task->weight,
                            .now = now,
                            .parameter = TrsTaskParameter(task),
                            .loss = heads->loss + t,
                            .of_sample = heads->of_sample ? heads->of_sample + t : NULL,
                            .of_sample_stride = heads->tasks.n,
                            .dz = heads->dlogits[t],
                            .p = predict ? heads->predictions + task->column : NULL,
                            .p_stride = heads->tasks.columns,
                            .layer = last};

  PetscFunctionBegin;
  PetscCall(losses[task->loss](stream, &args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHeadsForward(TrsHeads *heads, TrsStream stream, int64_t n, const TrsHeadInput *input,
                               const float *labels, const float *weights, float scale, PetscBool predict)
{
  PetscFunctionBegin;
  for (int l = 0; l < heads->n_levels; l++) PetscCall(forward_level(heads, stream, n, l, input));
  if (labels)
    PetscCall(heads->context->device->zero(heads->loss, heads->tasks.n * (int64_t)sizeof(double), stream));
  for (int t = 0; t < heads->tasks.n; t++) {
    const TrsHeadInput in = input_of(heads, heads->n_levels, t, input);
    const TrsMlp *tower = &heads->tower[t];
    const PetscBool unit = (PetscBool)(heads->tasks.task[t].loss != TRS_LOSS_SOFTMAX &&
                                       TrsMlpEndsInUnit(tower));
    TrsLinear last;

    if (unit)
      PetscCall(TrsMlpForwardToUnit(tower, stream, n, in.x, &last));
    else
      PetscCall(TrsMlpForward(tower, stream, n, in.x));
    PetscCall(run_loss(heads, stream, n, t, labels, weights, scale, predict, unit ? &last : NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- backward --- */

/*
  Run a stack's backward. The first stack that reads an input (`first`) writes the input's gradient,
  the other stacks add to it.
*/
static PetscErrorCode backward_stack(const TrsHeads *heads, TrsStream stream, int64_t n, const TrsMlp *mlp,
                                     const TrsHeadInput *in, TrsMatrix x, TrsMatrix dy, PetscBool first)
{
  const float *parts[2] = {(const float *)in->dx.data, heads->other};

  PetscFunctionBegin;
  PetscCall(TrsMlpBackward(mlp, stream, n, x, dy, first ? in->dx : TrsFloats(heads->other, in->dx.stride)));
  if (!first) /* there are several stacks, so the input's gradient has floats */
    PetscCall(heads->context->compute->sum_matrices(stream, 2, parts, in->dx.stride, n, in->columns,
                                                    (float *)in->dx.data, in->dx.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Run a gate's backward, and add up the experts' gradients. With `first` it writes the gradient of
  the gate's input, otherwise it adds to this gradient.
*/
static PetscErrorCode backward_gate(const TrsHeads *heads, TrsStream stream, int64_t n, int number, int g,
                                    const TrsHeadInput *input, PetscBool first)
{
  const TrsHeadLevel *level = &heads->level[number];
  const TrsParameters *params = heads->context->params;
  const TrsHeadInput in = input_of(heads, number, g, input);
  TrsMixture m = choice_of(heads, g);
  TrsMatrix dgate;

  PetscFunctionBegin;
  m.batch = n;
  m.experts = level->experts;
  m.dexperts = level->dexperts;
  m.gate = level->weight[g];
  dgate = TrsFloats(m.gate, m.n);
  PetscCall(heads->context->compute->mix_backward(stream, &m, level->dy[g]));
  PetscCall(TrsLayerMultiply(
      heads->context, stream, PETSC_TRUE, PETSC_FALSE,
      (TrsMatrixProduct){.m = m.n,
                         .n = level->filled,
                         .k = n,
                         .a = dgate,
                         .b = operand_of(heads, number, g, input),
                         .c = TrsFloats(params->param[level->gate[g]].grad, level->filled)}));
  PetscCall(TrsLayerMultiply(heads->context, stream, PETSC_FALSE, PETSC_FALSE,
                             (TrsMatrixProduct){.m = n,
                                                .n = level->filled,
                                                .k = m.n,
                                                .a = dgate,
                                                .b = TrsParametersMatrix(params, level->gate[g]),
                                                .beta = first ? 0.0F : 1.0F,
                                                .c = in.dx}));
  PetscCall(TrsParametersReady(heads->context->params, level->gate[g]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Run the gates first. Each gate reads an input of its own and writes this input's gradient. In
  level 0 all gates share one input. If the shared input has no gate of its own (last level of ple),
  an expert writes the input's gradient first.
*/
static PetscErrorCode backward_level(const TrsHeads *heads, TrsStream stream, int64_t n, int number,
                                     const TrsHeadInput *input)
{
  const TrsHeadLevel *level = &heads->level[number];
  const int64_t width = heads->width, stride = level->n_experts * width;
  PetscBool shared_begun = (PetscBool)(number == 0 || level->n_gates > heads->tasks.n);

  PetscFunctionBegin;
  PetscCall(heads->context->device->zero(level->dexperts, n * stride * (int64_t)sizeof(float), stream));
  for (int g = 0; g < level->n_gates; g++)
    PetscCall(backward_gate(heads, stream, n, number, g, input, (PetscBool)(number > 0 || g == 0)));
  for (int e = 0; e < level->n_experts; e++) {
    const int task = task_of_expert(heads, e);
    const TrsHeadInput in = input_of(heads, number, task, input);
    const PetscBool first = (PetscBool)(task == heads->tasks.n && !shared_begun);

    PetscCall(backward_stack(heads, stream, n, &level->expert[e], &in, operand_of(heads, number, task, input),
                             TrsFloats(level->dexperts + e * width, stride), first));
    if (first) shared_begun = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHeadsBackward(TrsHeads *heads, TrsStream stream, int64_t n, const TrsHeadInput *input)
{
  PetscFunctionBegin;
  for (int t = 0; t < heads->tasks.n; t++) {
    const TrsHeadInput in = input_of(heads, heads->n_levels, t, input);

    PetscCall(backward_stack(heads, stream, n, &heads->tower[t], &in, in.x,
                             TrsFloats(heads->dlogits[t], heads->tasks.task[t].classes),
                             (PetscBool)(heads->n_levels || t == 0)));
  }
  for (int l = heads->n_levels - 1; l >= 0; l--) PetscCall(backward_level(heads, stream, n, l, input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the rest --- */

void TrsHeadsWork(const TrsHeads *heads, double *flops, double *bytes)
{
  for (int t = 0; t < heads->tasks.n; t++) TrsMlpWork(&heads->tower[t], flops, bytes);
  for (int l = 0; l < heads->n_levels; l++) {
    const TrsHeadLevel *level = &heads->level[l];

    for (int e = 0; e < level->n_experts; e++) TrsMlpWork(&level->expert[e], flops, bytes);
    for (int g = 0; g < level->n_gates; g++) {
      const double n = choice_of(heads, g).n;

      *flops += 2.0 * n * (double)(level->filled + heads->width);
      *bytes += (double)sizeof(float) *
                ((double)level->filled + n * (double)heads->width + (double)heads->width);
    }
  }
}

PetscErrorCode TrsHeadsView(const TrsHeads *heads, MPI_Comm comm)
{
  static const char *const words[] = {TRS_HEADS(TRS_WORD_TEXT)}, *const losses[] = {
                                                                     TRS_LOSSES(TRS_WORD_TEXT)};

  PetscFunctionBegin;
  if (heads->n_levels) {
    PetscCall(PetscPrintf(comm, "  heads        %s: %d level%s of %d shared expert%s and %d of each task\n",
                          words[heads->kind], heads->n_levels, TrsPlural(heads->n_levels, "s"),
                          heads->n_shared, TrsPlural(heads->n_shared, "s"), heads->n_own));
    PetscCall(TrsMlpView(&heads->level[0].expert[0], "expert", comm));
  }
  for (int t = 0; t < heads->tasks.n; t++) {
    const TrsTaskConfig *task = &heads->tasks.task[t];

    if (task->name && (heads->tasks.n > 1 || heads->n_levels))
      PetscCall(PetscPrintf(comm, "  task         %s, loss %s of weight %g\n", task->name, losses[task->loss],
                            task->weight));
    PetscCall(TrsMlpView(&heads->tower[t], heads->over_arch.pair ? "score" : "over_arch", comm));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHeadsFree(TrsHeads *heads)
{
  const TrsDeviceOps *device = heads->context ? heads->context->device : NULL;

  PetscFunctionBegin;
  for (int t = 0; device && t < heads->tasks.n; t++) {
    PetscCall(TrsMlpFree(&heads->tower[t]));
    PetscCall(device->release((void **)&heads->logits[t]));
    PetscCall(device->release((void **)&heads->dlogits[t]));
  }
  for (int l = 0; device && l < heads->n_levels; l++) {
    TrsHeadLevel *level = &heads->level[l];

    for (int e = 0; e < level->n_experts; e++) PetscCall(TrsMlpFree(&level->expert[e]));
    PetscCall(PetscFree(level->copy));
    PetscCall(PetscFree5(level->expert, level->gate, level->weight, level->y, level->dy));
  }
  if (device) PetscCall(device->release((void **)&heads->predictions));
  if (device) PetscCall(device->release((void **)&heads->loss));
  PetscCall(PetscFree4(heads->level, heads->tower, heads->logits, heads->dlogits));
  PetscCall(TrsTaskConfigsFree(&heads->tasks));
  *heads = (TrsHeads){.n_levels = 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
