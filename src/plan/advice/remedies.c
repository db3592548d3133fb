/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/advice/remedies.h"

#include "core/names.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  TRS_MOST_TIMES = 64,
  TRS_CAP_DIGITS = 6,
  TRS_REMEDIES = 24,
  TRS_NAMED_TABLES = 8,
  TRS_OPTIONS = 2048,
  TRS_WORDS = TRS_OPTIONS + 128
};

/* Causes, one bit each. */
#define RESERVED (1u << TRS_FAILURE_RESERVED)
#define DENSE    (1u << TRS_FAILURE_DENSE)
#define PACKING  (1u << TRS_FAILURE_PACKING)
#define TABLES   (1u << TRS_FAILURE_MEMORY | 1u << TRS_FAILURE_SHARD | PACKING)

/*
  A change of options with a strength. The problem itself has strength `from`; larger strengths up
  to `most` can be tried. The words for the command line contain a number: strength * scale, or, if
  scale is 0, base halved `strength` times. If scale and base are both 0, the first `strength`
  options of `before` are changed.
*/
typedef struct {
  char before[TRS_OPTIONS];
  int64_t base, scale;
  char after[64];
  int64_t from, most; /* from == most: the change cannot be tried */
  int digits;         /* precision of the mildest strength: one part in 2^digits; 0: exact */
} TrsChange;

typedef struct {
  char name[1024]; /* name in a message; empty: not named */
  TrsChange change;
  /* fits: a strength gives a plan. relaxes: it makes the shortage smaller, or was not tried. */
  PetscBool fits, relaxes;
  int64_t mildest; /* the least strength that fits */
} TrsRemedy;

struct TrsRemedies_ {
  unsigned cause;
  int n;
  TrsRemedy remedy[TRS_REMEDIES];
  PetscBool over; /* the time ended before everything was tried */
};

/* Add a remedy for these causes if the condition holds. The caller must fill its change. */
static TrsChange *add(TrsRemedies r, unsigned causes, int condition, const char *format, ...)
    PETSC_ATTRIBUTE_FORMAT(4, 5);
static TrsChange *add(TrsRemedies r, unsigned causes, int condition, const char *format, ...)
{
  TrsRemedy *remedy = &r->remedy[r->n];
  va_list arguments;

  *remedy = (TrsRemedy){.relaxes = PETSC_TRUE};
  va_start(arguments, format);
  vsnprintf(remedy->name, sizeof(remedy->name), format, arguments);
  va_end(arguments);
  if (condition && (r->cause & causes)) r->n++;
  return &remedy->change;
}

/* Add a remedy whose change is a few fixed words. */
static void add_words(TrsRemedies r, unsigned causes, int condition, const char *name, const char *format,
                      ...) PETSC_ATTRIBUTE_FORMAT(5, 6);
static void add_words(TrsRemedies r, unsigned causes, int condition, const char *name, const char *format,
                      ...)
{
  TrsChange *c = add(r, causes, condition, "%s", name);
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(c->before, sizeof(c->before), format, arguments);
  va_end(arguments);
  c->most = 1;
}

/* True if a name needs no quotes on a command line. */
static PetscBool is_plain(const char *name)
{
  while (isalnum((unsigned char)*name) || (*name && strchr("_.-+@", *name))) name++;
  return (PetscBool) !*name;
}

/* True if the table has its own data type option; otherwise it shares the option for all tables. */
static PetscBool has_own_type(const TrsProblem *p, const TrsTableConfig *table)
{
  char name[512];

  snprintf(name, sizeof(name), "-table_%s_data_type", TrsTableOptionName(table));
  return TrsOptionsIsGiven(p->options, name);
}

/* Change fp32 tables to fp16: first the tables that share an option, then single tables, largest
   first. */
static void change_types(const TrsProblem *p, TrsChange *change)
{
  const TrsTableConfig *own[TRS_NAMED_TABLES];
  int n = 0, shared = 0;

  for (int t = 0; t < p->tables->n; t++) {
    const TrsTableConfig *table = &p->tables->table[t];
    const double size = (double)table->num_embeddings * table->embedding_dim;
    int i;

    if (table->data_type != TRS_FP32) continue;
    if (!has_own_type(p, table)) shared = 1;
    if (!has_own_type(p, table) || !is_plain(TrsTableOptionName(table))) continue;
    for (i = n; i > 0 && (double)own[i - 1]->num_embeddings * own[i - 1]->embedding_dim < size; i--) {
      if (i < TRS_NAMED_TABLES) own[i] = own[i - 1];
    }
    if (i < TRS_NAMED_TABLES) own[i] = table;
    n = PetscMin(n + 1, TRS_NAMED_TABLES);
  }
  change->most = p->settings.is_quant ? 0 : shared + n;
  if (shared) snprintf(change->before, sizeof(change->before), "-tables_data_type fp16");
  for (int i = 0; i < n; i++) {
    const size_t length = strlen(change->before);

    snprintf(change->before + length, sizeof(change->before) - length, "%s-table_%s_data_type fp16",
             length ? " " : "", TrsTableOptionName(own[i]));
  }
}

static void list_rows(const TrsProblem *p, const TrsFailure *f, TrsRemedies r)
{
  const TrsTableConfig *table = &p->tables->table[f->table];
  const TrsOptimizerState state = TrsPlanOptimizerState(&p->settings, table);
  const int has_states = !f->for_batches && (state == TRS_STATE_ONE || state == TRS_STATE_TWO);
  const int64_t batch = p->settings.batch_size;
  const char *name = TrsTableOptionName(table);
  char own[512] = "-embedding_optimizer";
  TrsChange *c;

  if (table->constraints.has_optimizer) snprintf(own, sizeof(own), "-table_%s_optimizer", name);
  c = add(r, TABLES | RESERVED, batch > 1, "%s",
          TrsOptionsIsGiven(p->options, "-plan_batch_size") ? "-plan_batch_size (and -batch_size)"
                                                            : "-batch_size (or -plan_batch_size)");
  *c = (TrsChange){.before = "-plan_batch_size ", .base = batch, .after = " (and -batch_size)"};
  while (batch >> c->most > 1) c->most++;
  change_types(p, add(r, TABLES,
                      !f->for_batches && TrsDTypeBits(table->data_type) > (p->settings.is_quant ? 2 : 16),
                      "-table_%s_data_type", name));
  c = add(r, TABLES, has_states, "%s (rowwise_adagrad keeps one number a row)", own);
  snprintf(c->before, sizeof(c->before), "%s rowwise_adagrad", own);
  c->most = is_plain(own);
}

/* Add ranks in multiples of a host's or pod's ranks and of the number of copies. */
static void list_ranks(const TrsProblem *p, const TrsFailure *f, TrsRemedies r)
{
  const TrsTopology *t = &p->topology;
  const int listed = t->hbm_listed || t->ddr_listed, host = t->pod_size * t->host_ranks;
  const int64_t ranks = (int64_t)t->world_size * t->replicas;
  const int64_t step = (int64_t)(host / TrsReplicaHost(host, t->replicas)) * t->replicas;
  TrsChange *c = add(r, TABLES, f->splits && !listed, "%s",
                     p->has_machine ? "more ranks" : "-topology_world_size");

  *c = (TrsChange){.before = "-topology_world_size ", .scale = step, .from = ranks / step};
  c->most = c->from * (p->has_machine || ranks % step ? 1 : TRS_MOST_TIMES);
  snprintf(c->after, sizeof(c->after), " -topology_local_world_size %d", t->host_ranks);
  c = add(r, TABLES, f->splits && t->replicas > 1, "-plan_replicas");
  *c = (TrsChange){.before = "-plan_replicas ", .base = t->replicas};
  while (!listed && t->replicas >> c->most > 1) c->most++;
}

/* Suggest more memory. In a run, only if an option set less than the machine has. */
static void list_cap(const TrsProblem *p, unsigned causes, PetscBool is_short, PetscBool of_device,
                     TrsRemedies r)
{
  const TrsTopology *t = &p->topology;
  const PetscBool listed = of_device ? t->hbm_listed : t->ddr_listed;
  const int64_t cap = of_device ? t->hbm[0] : t->ddr[0], gib = (int64_t)1 << 30, mib = (int64_t)1 << 20;
  const int64_t machine = of_device ? p->machine.hbm_bytes : p->machine.ddr_bytes;
  const int64_t unit = cap >= 8 * gib ? gib : mib;
  const char *name = of_device ? "-topology_hbm_cap" : "-topology_ddr_cap";
  const int can_rise = !p->has_machine || (cap < machine && (listed || TrsOptionsIsGiven(p->options, name)));
  TrsChange *c = add(r, causes, is_short && can_rise, "%s%s", name, listed ? "_per_rank" : "");

  if (listed) return;
  *c = (TrsChange){.scale = 1, .from = cap / unit, .digits = TRS_CAP_DIGITS};
  c->most = TRS_MOST_TIMES * PetscMax(1, c->from);
  snprintf(c->before, sizeof(c->before), "%s ", name);
  snprintf(c->after, sizeof(c->after), "%s", unit == gib ? "GiB" : "MiB");
}

static void list_memory(const TrsProblem *p, const TrsFailure *f, TrsRemedies r)
{
  const TrsPlanSettings *s = &p->settings;
  const int computed = s->dense_tensor_bytes == 0 && s->dense_parameter_bytes > 0;
  const int is_share = s->reservation != TRS_RESERVATION_FIXED_ABSOLUTE &&
                       s->reservation != TRS_RESERVATION_SKU_AWARE;
  const double dense = computed ? (double)s->dense_parameter_bytes * s->parameter_multiplier
                                : (double)s->dense_tensor_bytes;

  list_cap(p, TABLES | RESERVED, f->hbm, PETSC_TRUE, r);
  add_words(r, TABLES | RESERVED, f->hbm && is_share && s->reservation_percentage > 0,
            "-plan_storage_reservation_percentage", "-plan_storage_reservation_percentage %.2g",
            s->reservation_percentage / 3);
  *add(r, TABLES | RESERVED, f->hbm && !is_share && s->reservation_bytes > 0,
       "-plan_storage_reservation_bytes") = (TrsChange){
      .before = "-plan_storage_reservation_bytes ", .base = s->reservation_bytes, .most = 4};
  add_words(r, TABLES | RESERVED,
            f->hbm && s->reservation == TRS_RESERVATION_SKU_AWARE && s->runtime_overhead_bytes > 0,
            "-plan_storage_reservation_runtime_overhead",
            "-plan_storage_reservation_runtime_overhead %" PRId64, s->runtime_overhead_bytes / 2);
  add_words(r, RESERVED, dense > 1, "-plan_dense_tensor_estimate", "-plan_dense_tensor_estimate %.0f",
            dense / 2);
  add_words(r, RESERVED | DENSE, computed && s->parameter_multiplier > 1, "-plan_parameter_multiplier",
            "-plan_parameter_multiplier %.2g", s->parameter_multiplier / 2);
  list_cap(p, TABLES | DENSE, f->ddr, PETSC_FALSE, r);
}

static const char leave_out[] = "leave out the tables' sharding_types and compute_kernels";

static void list_constraints(const TrsProblem *p, const TrsFailure *f, TrsRemedies r)
{
  const TrsTableConfig *table = &p->tables->table[f->table];
  const unsigned kernels = table->constraints.compute_kernels, types = table->constraints.sharding_types;
  const int uvm = p->topology.is_cuda && !p->settings.is_quant && kernels;
  const char *name = TrsTableOptionName(table);
  const PetscBool plain = is_plain(name);
  char option[512], words[512];
  int any = 0;

  for (int t = 0; t < p->tables->n; t++)
    any |= p->tables->table[t].constraints.sharding_types || p->tables->table[t].constraints.compute_kernels;
  snprintf(option, sizeof(option), "-table_%s_sharding_types (more of them)", name);
  snprintf(words, sizeof(words), "-table_%s_sharding_types %s", name,
           "data_parallel,table_wise,column_wise,row_wise,table_row_wise,table_column_wise,grid_shard");
  add_words(r, TABLES, types && types != (1u << TRS_N_SHARDINGS) - 1, option, "%s", plain ? words : "");
  snprintf(option, sizeof(option), "-table_%s_compute_kernels (fused_uvm_caching, fused_uvm)",
           TrsTableOptionName(table));
  snprintf(words, sizeof(words), "-table_%s_compute_kernels fused,fused_uvm_caching,fused_uvm", name);
  add_words(r, TABLES, uvm && f->hbm && !(kernels >> TRS_KERNEL_FUSED_UVM & 1u), option, "%s",
            plain ? words : "");
  snprintf(option, sizeof(option), "-table_%s_compute_kernels (fused)", TrsTableOptionName(table));
  add_words(r, TABLES, uvm && f->ddr && !(kernels >> TRS_KERNEL_FUSED & 1u), option, "%s",
            plain ? words : "");
  add_words(r, TABLES, any, "", "%s", leave_out);
}

/* List the remedies that apply, in the order of naming and trying. */
static void list_remedies(const TrsProblem *p, const TrsFailure *f, TrsRemedies r)
{
  const int has_optimal = p->settings.wants_optimal || p->settings.wants_auto;

  r->cause = 1u << f->kind;
  (void)add(r, DENSE, 1, "%s",
            p->settings.has_dense_parameters ? "-plan_dense_parameter_bytes"
                                             : "smaller -dense_arch or -over_arch");
  (void)add(r, DENSE, p->has_machine && !TrsOptionsIsGiven(p->options, "-topology_ddr_cap"),
            "fewer ranks a host");
  list_rows(p, f, r);
  list_ranks(p, f, r);
  list_memory(p, f, r);
  list_constraints(p, f, r);
  add_words(r, PACKING | 1u << TRS_FAILURE_NO_PROPOSAL, !has_optimal, "-plan_proposers optimal",
            "-plan_proposers optimal");
}

typedef struct {
  const TrsProblem *problem;
  const TrsFailure *failure;
  double end_s; /* by TrsPlanCpuClock() */
  PetscBool over;
} TrsTrials;

static void write_words(const TrsChange *c, int64_t strength, char *words)
{
  const char *end = c->before;

  if (c->scale) {
    snprintf(words, TRS_WORDS, "%s%" PRId64 "%s", c->before, strength * c->scale, c->after);
  } else if (c->base) {
    snprintf(words, TRS_WORDS, "%s%" PRId64 "%s", c->before, c->base >> strength, c->after);
  } else {
    /* An option takes two words. If there is no option, all words form one sentence. */
    const int64_t n = c->before[0] == '-' ? 2 * strength : TRS_OPTIONS;

    for (int64_t i = 0; i < n && *end; i++) end += strcspn(end + 1, " ") + 1;
    snprintf(words, TRS_WORDS, "%.*s", (int)(end - c->before), c->before);
  }
}

/* Set the options to the values in these words until TrsOptionsEndTry(). */
static PetscErrorCode apply(const TrsProblem *p, const char *words)
{
  static const char *const keys[] = {"sharding_types", "compute_kernels"};
  char copy[TRS_WORDS], name[512], *rest = copy, *value;

  PetscFunctionBegin;
  for (int i = 0; strcmp(words, leave_out) == 0 && i < 2 * (p->tables->n + 1); i++) {
    if (i < 2)
      snprintf(name, sizeof(name), "-tables_%s", keys[i]);
    else
      snprintf(name, sizeof(name), "-table_%s_%s", TrsTableOptionName(&p->tables->table[i / 2 - 1]),
               keys[i % 2]);
    if (TrsOptionsIsGiven(p->options, name)) PetscCall(TrsOptionsTry(p->options, name, NULL));
  }
  if (words[0] != '-') PetscFunctionReturn(PETSC_SUCCESS);
  snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(words, "("), words);
  for (const char *option; (option = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest));)
    PetscCall(TrsOptionsTry(p->options, option, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solve the problem with the changed options, within half of the user's time limits. */
static PetscErrorCode solve(const TrsTrials *trials, TrsProblem *problem, TrsTableConfigs *tables,
                            TrsSolution *s)
{
  TrsPlanSettings *settings = &problem->settings;
  double left_s;

  PetscFunctionBegin;
  if (problem->read_tables) {
    PetscCall(problem->read_tables(problem->options, problem->context, tables));
    problem->tables = tables;
  }
  PetscCall(TrsProblemSetUp(problem));
  left_s = PetscMax(1e-3, trials->end_s - TrsPlanCpuClock());
  settings->timeout_s = settings->timeout_s > 0 ? PetscMin(settings->timeout_s / 2, left_s) : left_s;
  settings->optimal_time_s = PetscMin(settings->optimal_time_s / 2, left_s / 8);
  settings->any_plan = PETSC_TRUE;
  PetscCall(TrsProblemSolve(problem, s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try a change. *fits: it gives a plan. *relaxes: it gives a plan or a milder failure. */
static PetscErrorCode try_strength(TrsTrials *trials, const TrsChange *change, int64_t strength,
                                   PetscBool *fits, PetscBool *relaxes)
{
  TrsProblem problem = *trials->problem;
  TrsTableConfigs tables = {0};
  TrsSolution solution = {.table_alone = -1};
  TrsFailure failure;
  char words[TRS_WORDS];
  PetscErrorCode ierr;

  PetscFunctionBegin;
  problem.topology = (TrsTopology){.is_cuda = PETSC_FALSE};
  problem.shared_miss = NULL;
  write_words(change, strength, words);
  PetscCall(apply(&problem, words));
  ierr = solve(trials, &problem, &tables, &solution);
  *fits = *relaxes = PETSC_FALSE;
  if (!ierr) {
    TrsFailureFind(&problem, &solution, &failure);
    *fits = (PetscBool)(failure.kind == TRS_FAILURE_NONE);
    for (int i = 0; i < solution.space.n_options; i++)
      *fits = (PetscBool)(*fits && TrsOptionIsValid(&solution.space.option[i]));
    *relaxes = TrsFailureIsMilder(&failure, trials->failure);
  }
  if (ierr) TrsErrorClear(); /* the changed options contradict each other */
  PetscCall(TrsOptionsEndTry(problem.options));
  PetscCall(TrsSolutionFree(&solution));
  PetscCall(TrsProblemFree(&problem));
  PetscCall(TrsTableConfigsFree(&tables));
  if (TrsPlanCpuClock() >= trials->end_s) trials->over = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the least strength that gives a plan, by doubling and bisection. */
static PetscErrorCode try_remedy(TrsTrials *trials, TrsRemedy *remedy)
{
  const TrsChange *c = &remedy->change;
  const PetscBool of_tables = (PetscBool)(strncmp(c->before, "-table", 6) == 0 || c->before[0] == 'l');
  int64_t low = c->from, high = low;
  PetscBool relaxes, fits;

  PetscFunctionBegin;
  if (c->most <= c->from || !c->before[0] || (of_tables && !trials->problem->read_tables) || trials->over)
    PetscFunctionReturn(PETSC_SUCCESS);
  while (!remedy->fits && high < c->most && !trials->over) {
    low = high;
    high = PetscMin(c->most, PetscMax(low + 1, 2 * low));
    PetscCall(try_strength(trials, c, high, &remedy->fits, low == c->from ? &remedy->relaxes : &relaxes));
  }
  while (remedy->fits && high - low > (c->digits ? PetscMax(1, high >> c->digits) : 1) && !trials->over) {
    const int64_t middle = low + (high - low) / 2;

    PetscCall(try_strength(trials, c, middle, &fits, &relaxes));
    *(fits ? &high : &low) = middle;
  }
  remedy->mildest = high;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRemediesFind(const TrsProblem *problem, const TrsFailure *failure, TrsRemedies *remedies)
{
  const double seconds = problem->settings.advice_s;
  TrsTrials trials = {.problem = problem, .failure = failure, .end_s = TrsPlanCpuClock() + seconds};

  PetscFunctionBegin;
  PetscCall(PetscNew(remedies));
  list_remedies(problem, failure, *remedies);
  for (int i = 0; seconds > 0 && i < (*remedies)->n; i++)
    PetscCall(try_remedy(&trials, &(*remedies)->remedy[i]));
  (*remedies)->over = trials.over;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRemediesFree(TrsRemedies *remedies)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(*remedies));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRemediesName(TrsRemedies remedies, TrsText *message)
{
  const char *before = ". Relax:";

  PetscFunctionBegin;
  for (int i = 0; i < remedies->n; i++) {
    const TrsRemedy *remedy = &remedies->remedy[i];

    if (!remedy->name[0] || !(remedy->fits || remedy->relaxes)) continue;
    PetscCall(TrsTextPrintf(message, "%s %s", before, remedy->name));
    before = ",";
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRemediesWrite(TrsRemedies remedies, TrsText *text)
{
  int n = 0;

  PetscFunctionBegin;
  for (int i = 0; i < remedies->n; i++) {
    char words[TRS_WORDS];

    if (!remedies->remedy[i].fits) continue;
    write_words(&remedies->remedy[i].change, remedies->remedy[i].mildest, words);
    PetscCall(TrsTextPrintf(text, "  %-10s %s\n", n++ ? "or" : "change", words));
  }
  if (n)
    PetscCall(TrsTextPrintf(text, "  %-10s %s alone gives a plan: it was tried\n", "",
                            n == 1 ? "this" : "each of these"));
  if (remedies->over)
    PetscCall(TrsTextPrintf(text, "  %-10s there was no time to try more: -plan_advice_seconds\n", ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}
