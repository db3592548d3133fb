/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/options/option_source.h"

#include "core/file_text.h"
#include "core/options/option_petsc.h"
#include "core/ranks.h"
#include "core/trust.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { TRS_MAX_FILE_BYTES = 1 << 24, TRS_MAX_PATH = 4096, TRS_MAX_FOLDER = 2 * TRS_MAX_PATH };

/* Strings that rank 0 broadcasts. They are stored one after another, each with its final 0. */
typedef struct {
  char *data;
  size_t used, capacity;
} TrsStringList;

static PetscErrorCode list_append(TrsStringList *list, const char *string)
{
  size_t n = strlen(string) + 1;

  PetscFunctionBegin;
  if (list->used + n > list->capacity) {
    list->capacity = 2 * (list->used + n);
    PetscCall(PetscRealloc(list->capacity, &list->data));
  }
  memcpy(list->data + list->used, string, n);
  list->used += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGivenOptionsAdd(TrsGivenOptions *given, const TrsGivenOption *option)
{
  TrsGivenOption *copy;

  PetscFunctionBegin;
  if (given->n == given->capacity) {
    given->capacity = given->capacity ? 2 * given->capacity : 64;
    PetscCall(PetscRealloc((size_t)given->capacity * sizeof(*given->option), &given->option));
  }
  copy = &given->option[given->n++];
  *copy = (TrsGivenOption){.origin = option->origin};
  PetscCall(PetscStrallocpy(option->name, &copy->name));
  /* if the value is NULL, the copy is NULL */
  PetscCall(PetscStrallocpy(option->value, &copy->value));
  PetscCall(PetscStrallocpy(option->source, &copy->source));
  PetscCall(PetscStrallocpy(option->folder, &copy->folder));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGivenOptionsFree(TrsGivenOptions *given)
{
  PetscFunctionBegin;
  for (int i = 0; i < given->n; i++) {
    PetscCall(PetscFree(given->option[i].name));
    PetscCall(PetscFree(given->option[i].value));
    PetscCall(PetscFree(given->option[i].source));
    PetscCall(PetscFree(given->option[i].folder));
  }
  PetscCall(PetscFree(given->option));
  *given = (TrsGivenOptions){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the folder of `path`, as an absolute path if the working directory is known. */
static void folder_of(const char *path, char folder[TRS_MAX_FOLDER])
{
  const char *slash = strrchr(path, '/');
  int n = slash ? (int)(slash - path) : 0;
  char here[TRS_MAX_PATH];

  if (path[0] == '/') {
    snprintf(folder, TRS_MAX_FOLDER, "%.*s", n, path);
    return;
  }
  /* getcwd() fails if the working directory was deleted */
  if (!getcwd(here, sizeof(here))) snprintf(here, sizeof(here), ".");
  snprintf(folder, TRS_MAX_FOLDER, n ? "%s/%.*s" : "%s", here, n, path);
}

/* Read the text of an option file. */
static PetscErrorCode read_file(const char *path, char **text)
{
  TrsFileText file;

  PetscFunctionBegin;
  PetscCall(TrsFileTrust(path));
  PetscCall(TrsFileReadText(path, TRS_MAX_FILE_BYTES, &file));
  PetscCheck(file.outcome != TRS_FILE_UNREADABLE, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "option file \"%s\" cannot be opened: %s", path, strerror(file.error));
  PetscCheck(file.outcome != TRS_FILE_TOO_LARGE, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "option file \"%s\" has %" PRId64 " bytes; at most %d are read", path, file.n_bytes,
             TRS_MAX_FILE_BYTES);
  PetscCheck(file.outcome == TRS_FILE_READ, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "option file \"%s\" is not a regular file%s", path,
             file.outcome == TRS_FILE_FOLDER ? " but a directory" : "");
  *text = file.text;
  for (int64_t i = 0, line = 1; i < file.n_bytes; i++) {
    const unsigned char c = (unsigned char)file.text[i];

    line += c == '\n';
    PetscCheck(c >= 0x20 || c == '\t' || c == '\n' || c == '\r', PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s:%" PRId64 ": not a text: there is a byte of value %d", path, line, (int)c);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_yaml(const char *path)
{
  const char *dot = strrchr(path, '.');

  return (PetscBool)(dot && (strcasecmp(dot, ".yaml") == 0 || strcasecmp(dot, ".yml") == 0));
}

/*
  True if the first word of the command line is an option file, as in "trshard run.opts". The file
  must exist, or its name must have the ending of an option file; then a missing file is an error
  that names it.
*/
static PetscBool begins_with_file(int argc, char **argv)
{
  const char *dot;

  if (argc < 2 || TrsIsOptionWord(argv[1])) return PETSC_FALSE;
  dot = strrchr(argv[1], '.');
  return (PetscBool)(access(argv[1], F_OK) == 0 || is_yaml(argv[1]) ||
                     (dot && strcasecmp(dot, ".opts") == 0));
}

/* Turn --help into -help by removing the first dash. */
static char *one_dash(char *word)
{
  return word[0] == '-' && word[1] == '-' && word[2] ? word + 1 : word;
}

/*
  Collect the texts on rank 0. The command line gives the number of words, the words and the folder.
  Each option file gives its path, its folder and its text.
*/
static PetscErrorCode gather_texts(int argc, char **argv, TrsStringList *texts)
{
  char word[TRS_MAX_FOLDER];

  PetscFunctionBegin;
  snprintf(word, sizeof(word), "%d", argc > 0 ? argc - 1 : 0);
  PetscCall(list_append(texts, word));
  for (int i = 1; i < argc; i++) PetscCall(list_append(texts, argv[i]));
  folder_of("", word);
  PetscCall(list_append(texts, word));
  for (int i = 1; i + 1 < argc; i++) {
    char *text = NULL;

    if (strcasecmp(one_dash(argv[i]), "-options_file") != 0 || TrsIsOptionWord(argv[i + 1])) continue;
    PetscCall(read_file(argv[i + 1], &text));
    PetscCall(list_append(texts, argv[i + 1]));
    folder_of(argv[i + 1], word);
    PetscCall(list_append(texts, word));
    PetscCall(list_append(texts, text));
    PetscCall(PetscFree(text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Collect the texts on rank 0. If the command line begins with an option file, insert -options_file
  before it.
*/
static PetscErrorCode gather(int argc, char **argv, TrsStringList *texts)
{
  char name[] = "-options_file", **words;

  PetscFunctionBegin;
  if (!begins_with_file(argc, argv)) {
    PetscCall(gather_texts(argc, argv, texts));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscMalloc1(argc + 1, &words));
  words[0] = argv[0];
  words[1] = name;
  for (int i = 1; i < argc; i++) words[i + 1] = argv[i];
  PetscCall(gather_texts(argc + 1, words, texts));
  PetscCall(PetscFree(words));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode broadcast_texts(MPI_Comm comm, TrsStringList *texts)
{
  int rank, n;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  PetscCheck(texts->used <= INT32_MAX, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "option files of %zu bytes are too long", texts->used);
  n = (int)texts->used;
  PetscCall(TrsBroadcast(comm, &n, (int64_t)sizeof(n)));
  if (rank != 0) PetscCall(PetscMalloc1(n, &texts->data));
  PetscCall(TrsBroadcast(comm, texts->data, n));
  texts->used = (size_t)n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the string at *at, and advance *at to the next string. */
static char *next_string(char **at)
{
  char *string = *at;

  *at += strlen(string) + 1;
  return string;
}

static PetscErrorCode parse_command_line(char **words, int n, const TrsGivenOption *line,
                                         TrsGivenOptions *given)
{
  char help[] = "-help";

  PetscFunctionBegin;
  for (int i = 0; i < n; i++) {
    TrsGivenOption option = *line;

    PetscCheck(TrsIsOptionWord(words[i]), PETSC_COMM_SELF, TRS_ERR_OPTION,
               "command line: \"%.100s\" belongs to no option (-name value; a list has commas and no blanks)",
               words[i]);
    option.name = one_dash(words[i]);
    if (strcasecmp(option.name, "-h") == 0) option.name = help;
    if (i + 1 < n && !TrsIsOptionWord(words[i + 1])) option.value = words[++i];
    PetscCall(TrsGivenOptionsAdd(given, &option));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode parse_file(char *text, const TrsGivenOption *file, TrsGivenOptions *given)
{
  int first = given->n;

  PetscFunctionBegin;
  if (strncmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3; /* skip a byte order mark */
  if (is_yaml(file->source)) {
    PetscCall(TrsOptionYamlParse(text, file, given));
  } else {
    PetscCall(TrsOptionTextParse(text, file, given));
  }
  for (int i = first; i < given->n; i++) {
    const TrsGivenOption *o = &given->option[i];

    PetscCheck(strcasecmp(o->name, "-options_file") != 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "-options_file (%s): an option file cannot name another one; give both on the command line",
               o->source);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode parse_texts(const TrsStringList *texts, TrsGivenOptions *given)
{
  char *at = texts->data, **words, line_source[] = "command line";
  const char *end;
  int n_words;
  TrsGivenOption line = {.source = line_source};

  PetscFunctionBegin;
  PetscCheck(at, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no command line came from rank 0");
  end = at + texts->used;
  n_words = (int)strtol(next_string(&at), NULL, 10);
  PetscCall(PetscMalloc1(n_words + 1, &words));
  for (int i = 0; i < n_words; i++) words[i] = next_string(&at);
  line.folder = next_string(&at);
  while (at < end) {
    TrsGivenOption file = {.origin = given->n_files++};

    file.source = next_string(&at);
    file.folder = next_string(&at);
    PetscCall(parse_file(next_string(&at), &file, given));
  }
  line.origin = given->n_files;
  PetscCall(parse_command_line(words, n_words, &line, given));
  PetscCall(PetscFree(words));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGivenOptionsCollect(MPI_Comm comm, int argc, char **argv, TrsGivenOptions *given)
{
  int rank;
  TrsStringList texts = {NULL, 0, 0};
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  *given = (TrsGivenOptions){0};
  PetscCall(TrsRankOf(comm, &rank, NULL));
  if (rank == 0) ierr = gather(argc, argv, &texts);
  PetscCall(TrsAgree(comm, ierr));
  PetscCall(broadcast_texts(comm, &texts));
  PetscCall(parse_texts(&texts, given));
  PetscCall(PetscFree(texts.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}
