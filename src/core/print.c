/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/print.h"

#include "core/names.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* the formats below are parts of a format that the compiler has checked at its caller */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

enum { TRS_MAX_SPEC = 64, TRS_MAX_NUMBER = 512 };

/* A conversion of a format, such as "%-*.3s". */
typedef struct {
  char text[TRS_MAX_SPEC]; /* the conversion; its asterisks are replaced by numbers */
  int n;
  int precision; /* -1 if the conversion has none */
  char size[3];  /* hh, h, l, ll, z, j, t, L or "" */
  char kind;     /* d, s, g, ... */
} TrsSpec;

typedef struct {
  TrsPrintTake take;
  void *context;
  PetscBool petsc;
  va_list arguments;
} TrsPrinter;

/*
  Copy flags, a width or a precision of a conversion. An asterisk is replaced by the next of the
  caller's arguments.
*/
static const char *copy_number(TrsPrinter *p, const char *from, const char *accept, TrsSpec *spec)
{
  if (*from == '*') {
    spec->n += snprintf(spec->text + spec->n, sizeof(spec->text) - (size_t)spec->n, "%d",
                        va_arg(p->arguments, int));
    return from + 1;
  }
  while (*from && strchr(accept, *from) && spec->n < TRS_MAX_SPEC - 8) spec->text[spec->n++] = *from++;
  return from;
}

/*
  Read the conversion whose text begins at `from`, after the percent sign. Returns the text after
  the conversion.
*/
static const char *read_spec(TrsPrinter *p, const char *from, TrsSpec *spec)
{
  int precision_at, n = 0;

  *spec = (TrsSpec){.text = "%", .n = 1, .precision = -1};
  while (*from && strchr("-+ #0'", *from) && spec->n < TRS_MAX_SPEC / 2) spec->text[spec->n++] = *from++;
  from = copy_number(p, from, "0123456789", spec);
  if (*from == '.') {
    spec->text[spec->n++] = *from++;
    precision_at = spec->n;
    from = copy_number(p, from, "0123456789", spec);
    spec->text[spec->n] = '\0';
    spec->precision = (int)strtol(spec->text + precision_at, NULL, 10);
  }
  while (*from && strchr("hlzjtL", *from) && n < 2) spec->text[spec->n++] = spec->size[n++] = *from++;
  spec->kind = *from;
  spec->text[spec->n++] = *from;
  spec->text[spec->n] = '\0';
  return *from ? from + 1 : from;
}

/*
  Format a signed or unsigned integer. The conversion's size determines the type of the argument.
*/
static int print_integer(TrsPrinter *p, const TrsSpec *spec, char *out)
{
  va_list *from = &p->arguments;

  if (!strcmp(spec->size, "l")) return snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(*from, long));
  if (!strcmp(spec->size, "ll")) return snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(*from, long long));
  if (!strcmp(spec->size, "z")) return snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(*from, size_t));
  if (!strcmp(spec->size, "j")) return snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(*from, intmax_t));
  if (!strcmp(spec->size, "t")) return snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(*from, ptrdiff_t));
  return snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(*from, int));
}

static PetscErrorCode print_real(TrsPrinter *p, const TrsSpec *spec, char *out, int *n)
{
  PetscFunctionBegin;
  if (spec->size[0] == 'L') {
    *n = snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(p->arguments, long double));
  } else if (p->petsc) {
    PetscCall(PetscSNPrintf(out, TRS_MAX_NUMBER, spec->text, va_arg(p->arguments, double)));
    *n = (int)strlen(out);
  } else {
    *n = snprintf(out, TRS_MAX_NUMBER, spec->text, va_arg(p->arguments, double));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Escape a text, and pass it to the printer. If `lines` is set, line feeds in the text are kept. */
static PetscErrorCode take_escaped(TrsPrinter *p, const char *text, PetscBool lines)
{
  const size_t room = 4 * strlen(text) + 1; /* an escape has at most four characters per byte */
  char *safe = malloc(room);
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCheck(safe, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory");
  for (const char *next; *text && ierr == PETSC_SUCCESS; text = next) {
    const char *end = lines ? strchr(text, '\n') : NULL;
    char *line;

    next = end ? end + 1 : text + strlen(text);
    line = strndup(text, end ? (size_t)(end - text) : strlen(text));
    TrsNameEscape(line ? line : "", safe, room);
    free(line);
    ierr = p->take(p->context, safe, strlen(safe));
    if (end && ierr == PETSC_SUCCESS) ierr = p->take(p->context, "\n", 1);
  }
  free(safe);
  PetscFunctionReturn(ierr);
}

static PetscErrorCode print_text(TrsPrinter *p, const TrsSpec *spec, PetscBool lines)
{
  const char *given = va_arg(p->arguments, const char *);
  int n = snprintf(NULL, 0, spec->text, given ? given : "(null)");
  char *text = malloc((size_t)PetscMax(n, 0) + 1);
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCheck(text && n >= 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory");
  (void)snprintf(text, (size_t)n + 1, spec->text, given ? given : "(null)");
  ierr = take_escaped(p, text, lines);
  free(text);
  PetscFunctionReturn(ierr);
}

static PetscErrorCode print_spec(TrsPrinter *p, const TrsSpec *spec, PetscBool lines)
{
  char number[TRS_MAX_NUMBER];
  int n = 0;

  PetscFunctionBegin;
  if (spec->kind == 's') {
    PetscCall(print_text(p, spec, lines));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(spec->kind && strchr("%dicouxXpeEfFgGaA", spec->kind), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "unknown format %s", spec->text);
  if (spec->kind == '%')
    n = snprintf(number, sizeof(number), "%%");
  else if (spec->kind == 'p')
    n = snprintf(number, sizeof(number), spec->text, va_arg(p->arguments, void *));
  else if (strchr("eEfFgGaA", spec->kind))
    PetscCall(print_real(p, spec, number, &n));
  else
    n = print_integer(p, spec, number);
  PetscCall(p->take(p->context, number, (size_t)PetscMin(n, TRS_MAX_NUMBER - 1)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPrintFormat(TrsPrintTake take, void *context, PetscBool petsc, const char *format,
                              va_list arguments)
{
  const PetscBool lines = (PetscBool)(strcmp(format, "%s") == 0);
  TrsPrinter p = {.take = take, .context = context, .petsc = petsc};
  PetscErrorCode ierr = PETSC_SUCCESS;
  TrsSpec spec;

  PetscFunctionBegin;
  va_copy(p.arguments, arguments);
  while (*format && ierr == PETSC_SUCCESS) {
    const size_t n = strcspn(format, "%");

    if (n) ierr = take(context, format, n);
    format += n;
    if (*format != '%' || ierr != PETSC_SUCCESS) continue;
    format = read_spec(&p, format + 1, &spec);
    ierr = print_spec(&p, &spec, lines);
  }
  va_end(p.arguments);
  PetscFunctionReturn(ierr);
}

PetscBool TrsPrintHasText(const char *format)
{
  for (format = strchr(format, '%'); format; format = strchr(format, '%')) {
    format += 1 + strspn(format + 1, "-+ #0'123456789.*");
    if (*format == 's') return PETSC_TRUE;
    if (*format) format++;
  }
  return PETSC_FALSE;
}

static PetscErrorCode take_to_stream(void *stream, const char *bytes, size_t n)
{
  (void)fwrite(bytes, 1, n, (FILE *)stream);
  return PETSC_SUCCESS;
}

/*
  Format a whole text, and write it in one piece. An unbuffered stream would write every part by
  itself, and the text of another stream for the same pipe or terminal could appear in between.
*/
static void print_whole(FILE *file, PetscBool petsc, const char *format, va_list arguments)
{
  char *text = NULL;
  size_t n = 0;
  FILE *whole = open_memstream(&text, &n);

  (void)TrsPrintFormat(take_to_stream, whole ? whole : file, petsc, format, arguments);
  if (!whole) return;
  if (fclose(whole) == 0) (void)fwrite(text, 1, n, file);
  free(text);
}

void TrsPrint(FILE *file, const char *format, ...)
{
  va_list arguments;

  va_start(arguments, format);
  print_whole(file, PETSC_FALSE, format, arguments);
  va_end(arguments);
  (void)fflush(file);
}

/* --- PETSc's printing --- */

static PetscErrorCode (*petsc_print)(FILE *, const char[], va_list);

static PetscErrorCode print(FILE *file, const char format[], va_list arguments)
{
  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(PetscIgnoreErrorHandler, NULL));
  if (TrsPrintHasText(format))
    print_whole(file, PETSC_TRUE, format, arguments);
  else
    (void)petsc_print(file, format, arguments);
  (void)fflush(file); /* readers of a pipe or a log must see each line immediately */
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsPrintInstall(void)
{
  if (PetscVFPrintf == print) return;
  petsc_print = PetscVFPrintf;
  PetscVFPrintf = print;
}

void TrsPrintRemove(void)
{
  if (PetscVFPrintf == print) PetscVFPrintf = petsc_print;
}
