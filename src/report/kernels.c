/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/kernels.h"

#include "compute/timed_ops.h"
#include "device/kernel_times.h"

#include <inttypes.h>
#include <stdlib.h>

static const TrsOptionSpec specs[] = {
    {"-log_view_kernels", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "time rank 0's kernels and matrix products in one of ten steps of a training, and print a line for "
     "each. A line has bytes, operations, and the limit that the device's own rates set. On a CPU, the "
     "calls of the larger kernels are timed"},
    {"-log_view_products", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "after a training on a GPU, time up to eight algorithms for each of rank 0's matrix products. A line "
     "for each "
     "shows the product as used, or without the operations that are fused into it"},
};
const TrsOptionGroup trs_kernel_report_options = TRS_OPTION_GROUP("Kernel times", specs);

/* The first timed step, which has its graphs and algorithms, and the distance to the next. */
enum { TRS_KERNELS_FIRST_STEP = 8, TRS_KERNELS_EVERY = 10 };

PetscErrorCode TrsKernelReportStart(const TrsSession *session, TrsKernelReport *report)
{
  PetscFunctionBegin;
  *report = (TrsKernelReport){.session = session};
  PetscCall(TrsOptionsGetBool(session->options, "-log_view_kernels", &report->kernels, NULL));
  PetscCall(TrsOptionsGetBool(session->options, "-log_view_products", &report->products, NULL));
  if (report->kernels)
    PetscCall(TrsAgree(session->comm,
                       session->rank == 0 ? TrsKernelTimesOpen(session->machine.device) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKernelReportStep(const TrsKernelReport *report, int64_t step)
{
  PetscFunctionBegin;
  if (report->kernels)
    PetscCall(TrsKernelTimesStep((PetscBool)(step >= TRS_KERNELS_FIRST_STEP &&
                                             (step - TRS_KERNELS_FIRST_STEP) % TRS_KERNELS_EVERY == 0)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The seconds that bytes and operations need at these rates. */
static double limit_of(const TrsKernelRates *rates, double bytes, double flops)
{
  return PetscMax(bytes / rates->copy, flops / rates->products);
}

/* Print the columns of a line up to its name. Numbers that are not known are "-". */
static PetscErrorCode print_numbers(const TrsKernelRates *rates, double seconds, double bytes, double flops)
{
  const double limit_s = limit_of(rates, bytes, flops);
  const struct {
    double value;
    int width, digits;
  } columns[] = {{1e-6 * bytes, 9, 3},
                 {seconds > 0 ? 1e-9 * bytes / seconds : 0, 8, 1},
                 {seconds > 0 ? 1e-12 * flops / seconds : 0, 8, 2},
                 {1e6 * limit_s, 9, 2},
                 {seconds > 0 ? limit_s / seconds : 0, 6, 2}};

  PetscFunctionBegin;
  for (int i = 0; i < 5; i++) {
    if (columns[i].value > 0)
      PetscCall(
          PetscPrintf(PETSC_COMM_SELF, " %*.*f", columns[i].width, columns[i].digits, columns[i].value));
    else
      PetscCall(PetscPrintf(PETSC_COMM_SELF, " %*s", columns[i].width, "-"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A line: a kernel, a product, or a call with its kernels. */
typedef struct {
  const TrsKernelRow *row, *only; /* only: the single kernel of the call `row`, or NULL */
  double seconds;
} TrsKernelLine;

static int by_time(const void *a, const void *b)
{
  const double x = ((const TrsKernelLine *)a)->seconds, y = ((const TrsKernelLine *)b)->seconds;

  return (x < y) - (x > y);
}

static PetscBool is_of_call(const TrsKernelRow *row, const TrsKernelRow *call)
{
  return (PetscBool)(row->name[0] != '\0' && row->call[0] != '\0' && row->call == call->call);
}

/* Add the times of a call's kernels, which are known only with timed events. */
static TrsKernelLine line_of(int n, const TrsKernelRow *rows, const TrsKernelRow *row)
{
  TrsKernelLine line = {.row = row, .seconds = row->seconds};
  int n_kernels = 0;

  for (int i = 0; i < n && row->name[0] == '\0'; i++) {
    if (!is_of_call(&rows[i], row)) continue;
    line.seconds += rows[i].seconds;
    line.only = &rows[i];
    n_kernels++;
  }
  if (n_kernels != 1) line.only = NULL;
  return line;
}

static PetscErrorCode print_line(const TrsKernelRates *rates, const TrsKernelLine *line, double total_s,
                                 double steps)
{
  const TrsKernelRow *row = line->row;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "kernel %9.2f %5.1f %6.1f", 1e6 * line->seconds / steps,
                        100 * line->seconds / PetscMax(total_s, 1e-12), (double)row->n / steps));
  PetscCall(print_numbers(rates, line->seconds / steps, row->bytes / steps, row->flops / steps));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "  %s%s%s\n", row->name[0] ? row->name : row->call,
                        line->only ? ": " : "", line->only ? line->only->name : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print a line for each kernel, product and call, and below a call lines of its kernels. */
static PetscErrorCode print_kernels(const TrsKernelRates *rates)
{
  const TrsKernelRow *rows;
  int64_t n_steps, n_lost;
  TrsKernelLine line[TRS_KERNEL_ROWS];
  int n, n_lines = 0;
  double total_s = 0;

  PetscFunctionBegin;
  PetscCall(TrsKernelTimesRead(&n, &rows, &n_steps, &n_lost));
  if (n_steps == 0) {
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s none: the run had no step %d\n", "kernels",
                          TRS_KERNELS_FIRST_STEP));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int i = 0; i < n; i++) {
    if (rows[i].name[0] && rows[i].call[0]) continue; /* a line below its call's */
    line[n_lines] = line_of(n, rows, &rows[i]);
    total_s += line[n_lines++].seconds;
  }
  qsort(line, (size_t)n_lines, sizeof(line[0]), by_time);
  PetscCall(PetscPrintf(PETSC_COMM_SELF,
                        "%-10s %.3f ms a step in %" PRId64
                        " steps of rank 0; a copy reaches %.4g GB/s here, a "
                        "product %.4g TFLOP/s%s\n",
                        "kernels", 1e3 * total_s / (double)n_steps, n_steps, 1e-9 * rates->copy,
                        1e-12 * rates->products, n_lost ? "; some launches were not timed" : ""));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "kernel %9s %5s %6s %9s %8s %8s %9s %6s  %s\n", "us a step", "%",
                        "calls", "MB", "GB/s", "TFLOP/s", "limit us", "share", "name"));
  for (int i = 0; i < n_lines; i++) {
    PetscCall(print_line(rates, &line[i], total_s, (double)n_steps));
    for (int k = 0; k < n && line[i].row->name[0] == '\0' && !line[i].only; k++)
      if (is_of_call(&rows[k], line[i].row))
        PetscCall(PetscPrintf(PETSC_COMM_SELF, "kernel %9.2f %5s %6.1f   in %s: %s\n",
                              1e6 * rows[k].seconds / (double)n_steps, "",
                              (double)rows[k].n / (double)n_steps, rows[k].call, rows[k].name));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Times of products. They are measured before the rates, whose products they must not contain. */
typedef struct {
  int n;
  char key[TRS_PRODUCT_KEY]; /* the same for all products */
  struct {
    TrsProductTime time;
    char shape[TRS_KERNEL_NAME];
  } * told;
} TrsTimedProducts;

static PetscErrorCode keep_product(void *context, const TrsProductTime *time)
{
  TrsTimedProducts *products = (TrsTimedProducts *)context;

  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(products->n + 1) * sizeof(*products->told), &products->told));
  products->told[products->n].time = *time;
  PetscCall(PetscStrncpy(products->key, time->key, sizeof(products->key)));
  PetscCall(PetscStrncpy(products->told[products->n].shape, time->shape, TRS_KERNEL_NAME));
  products->n++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode time_products(const TrsMachine *machine, TrsTimedProducts *products)
{
  TrsStream stream = NULL;

  PetscFunctionBegin;
  PetscCall(machine->device->stream_create("compute", &stream));
  PetscCall(machine->compute->product_times(stream, keep_product, products));
  PetscCall(machine->device->stream_destroy(&stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode print_product(const TrsKernelRates *rates, const TrsProductTime *time,
                                    const char *shape)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "product %9.2f %-7s", 1e6 * time->seconds, time->way));
  PetscCall(print_numbers(rates, time->seconds, time->bytes, time->flops));
  if (time->algorithm)
    PetscCall(PetscPrintf(PETSC_COMM_SELF, " %2d of %d%c %5d %5d %6d", time->algorithm, time->n,
                          time->used ? '*' : ' ', time->tile, time->split, time->scheme));
  else
    PetscCall(PetscPrintf(PETSC_COMM_SELF, " %8s %5s %5s %6s", "-", "-", "-", "-"));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "  %s\n", shape));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode print_products(const TrsKernelRates *rates, TrsTimedProducts *products)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "product %9s %-7s %9s %8s %8s %9s %6s %8s %5s %5s %6s  %s\n", "us",
                        "way", "MB", "GB/s", "TFLOP/s", "limit us", "share", "choice", "tile", "parts",
                        "scheme", "shape"));
  if (products->n) PetscCall(PetscPrintf(PETSC_COMM_SELF, "product table  [%s]\n", products->key));
  for (int i = 0; i < products->n; i++)
    PetscCall(print_product(rates, &products->told[i].time, products->told[i].shape));
  PetscCall(PetscFree(products->told));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rank 0's part of the report. */
static PetscErrorCode print_report(const TrsKernelReport *report)
{
  const TrsMachine *machine = &report->session->machine;
  TrsTimedProducts products = {0};
  TrsKernelRates rates;

  PetscFunctionBegin;
  PetscCall(TrsKernelTimesStep(PETSC_FALSE));
  if (report->products) PetscCall(time_products(machine, &products));
  PetscCall(TrsComputeRates(machine->compute, machine->device, &rates));
  if (report->kernels) PetscCall(print_kernels(&rates));
  if (report->products) PetscCall(print_products(&rates, &products));
  PetscCall(TrsKernelTimesClose());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKernelReportFinish(TrsKernelReport *report)
{
  PetscFunctionBegin;
  if (!report->kernels && !report->products) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      TrsAgree(report->session->comm, report->session->rank == 0 ? print_report(report) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}
