/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/options/option_petsc.h"

#include "core/error.h"

#include <string.h>
#include <strings.h>

/*
  Options of PETSc 3.18's Sys package. The first list has options that PetscInitialize() reads, the
  second has options that PETSc reads later. If a name ends with '*', all names with this beginning
  are meant.
*/
static const char *const early_names[] = {"-log_view_memory",
                                          "-log_view_gpu_time",
                                          "-log_all",
                                          "-log",
                                          "-log_trace",
                                          "-log_sync",
                                          "-log_nested",
                                          "-log_exclude",
                                          "-log_include_actions",
                                          "-log_include_objects",
                                          "-log_mpe",
                                          "-log_summary",
                                          "-info",
                                          "-info_exclude",
                                          "-malloc",
                                          "-malloc_debug",
                                          "-malloc_test",
                                          "-malloc_hbw",
                                          "-malloc_coalesce",
                                          "-malloc_view",
                                          "-malloc_view_threshold",
                                          "-malloc_requested_size",
                                          "-malloc_dump",
                                          "-memory_view",
                                          "-fp_trap",
                                          "-on_error_abort",
                                          "-on_error_mpiabort",
                                          "-error_output_stdout",
                                          "-error_output_none",
                                          "-mpi_return_on_error",
                                          "-device_enable*",
                                          "-device_select*",
                                          "-device_view*"};
static const char *const late_names[] = {"-log_view",        "-options_left", "-options_view",
                                         "-options_monitor", "-objects_dump", "-viewer_*",
                                         "-random_type",     "-random_seed",  "-random_view"};
static const char *const refused_names[] = {
    "-start_in_debugger", "-on_error_attach_debugger", "-stop_for_debugger", "-debugger_*",
    "-debug_terminal",    "-on_error_emacs",           "-history",           "-saws*",
    "-python*",           "-options_string*",          "-x_virtual"};

PetscBool TrsIsOptionWord(const char *word)
{
  return (PetscBool)(word[0] == '-' && word[1] != '\0' && word[1] != '.' &&
                     !(word[1] >= '0' && word[1] <= '9'));
}

static PetscBool is_among(const char *name, const char *const *names, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    size_t length = strlen(names[i]);
    PetscBool is_prefix = (PetscBool)(names[i][length - 1] == '*');

    if (is_prefix ? strncasecmp(name, names[i], length - 1) == 0 : strcasecmp(name, names[i]) == 0)
      return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

#define IS_AMONG(name, names) is_among(name, names, sizeof(names) / sizeof((names)[0]))

TrsOptionPetscKind TrsOptionPetscKindOf(const char *name)
{
  if (IS_AMONG(name, early_names)) return TRS_OPTION_PETSC_EARLY;
  if (IS_AMONG(name, late_names)) return TRS_OPTION_PETSC;
  if (IS_AMONG(name, refused_names)) return TRS_OPTION_PETSC_REFUSED;
  return TRS_OPTION_NOT_PETSC;
}

const char *TrsOptionPetscName(int i)
{
  const int n_early = sizeof(early_names) / sizeof(early_names[0]),
            n_late = sizeof(late_names) / sizeof(late_names[0]);

  if (i < n_early) return early_names[i];
  return i < n_early + n_late ? late_names[i - n_early] : NULL;
}

PetscErrorCode TrsOptionLogViewText(char *text, size_t size)
{
  PetscFunctionBegin;
  text[0] = '\0';
  PetscCall(PetscOptionsGetString(NULL, NULL, "-log_view", text, size, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsOptionLogView(const char *value, const char **file, int *length)
{
  static const char *const formats[] = {"ascii_info", "ascii_info_detail", "ascii_xml", "ascii_flamegraph",
                                        "ascii_csv"};
  const size_t n_type = strcspn(value, ":");
  const char *format;

  *file = value[n_type] ? value + n_type + 1 : "";
  *length = (int)strcspn(*file, ":");
  format = *file + *length;
  if (n_type > 0 && strncmp(value, "ascii:", n_type + 1) != 0 && strcmp(value, "ascii") != 0)
    return PETSC_FALSE;
  return (PetscBool)(!*format || !format[1] || IS_AMONG(format + 1, formats));
}
