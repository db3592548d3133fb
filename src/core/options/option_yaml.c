/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Option files in YAML. Nested keys are joined with '_' to the name of an option, and the entries of
  a list with ',' to its value.

  libyaml reads the files. PETSc 3.18's own reader is not used: it fails if there are more than 512
  options, has no line numbers, and accepts two equal keys, of which it uses the last.
*/
#include "core/options/option_list.h"
#include "core/options/option_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
  TRS_MAX_SOURCE = 4352,
  TRS_MAX_NAME = 1024,
  TRS_MAX_LIST = 1 << 16,
  TRS_MAX_DEPTH = 32,
  TRS_MAX_KEYS = 1 << 17,
  TRS_MAX_TEXT_BYTES = 1 << 24, /* bytes of all names and values of a file */
  TRS_MAX_DIRECTIVES = 64
};

/* libyaml compares each anchor and each alias with all anchors */
static const int64_t max_comparisons = (int64_t)1 << 26;

/* A YAML file that is being converted to options. */
typedef struct {
  yaml_document_t *document;
  const TrsGivenOption *file;
  TrsGivenOptions *given;
  /* Counts of what was read so far. Aliases can make a small file huge, so these counts are
     limited. */
  int n_keys;
  int64_t n_bytes;
} TrsYamlFile;

/* Write the source of a node, such as "run.yaml:3". */
static void source_of(const TrsYamlFile *yaml, const yaml_node_t *node, char source[TRS_MAX_SOURCE])
{
  snprintf(source, TRS_MAX_SOURCE, "%s:%zu", yaml->file->source, node->start_mark.line + 1);
}

/* Add the bytes of a name or a value to the count. */
static PetscErrorCode add_bytes(TrsYamlFile *yaml, size_t n, const yaml_node_t *node)
{
  char source[TRS_MAX_SOURCE];

  PetscFunctionBegin;
  yaml->n_bytes += (int64_t)n + 1;
  if (yaml->n_bytes <= TRS_MAX_TEXT_BYTES) PetscFunctionReturn(PETSC_SUCCESS);
  source_of(yaml, node, source);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION,
          "%s: names and values have more than %d bytes up to here, with aliases (*name) written out", source,
          TRS_MAX_TEXT_BYTES);
}

static const char *scalar(const yaml_node_t *node)
{
  return (const char *)node->data.scalar.value;
}

/* Raise an error that explains what is wrong with an entry of a list. */
static PetscErrorCode refuse_entry(const TrsYamlFile *yaml, const yaml_node_t *entry)
{
  char source[TRS_MAX_SOURCE];

  PetscFunctionBegin;
  source_of(yaml, entry, source);
  PetscCheck(entry->type == YAML_SCALAR_NODE, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: an entry of a list must be a plain value", source);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: the list has more than %d characters", source, TRS_MAX_LIST);
}

/*
  Join a list's entries with commas. Aliases may repeat a long list many times, so the loop must be
  fast and formats no messages.
*/
static PetscErrorCode join_list(TrsYamlFile *yaml, const yaml_node_t *list, char *text)
{
  size_t used = 0;

  PetscFunctionBegin;
  for (const yaml_node_item_t *item = list->data.sequence.items.start; item < list->data.sequence.items.top;
       item++) {
    const yaml_node_t *entry = yaml_document_get_node(yaml->document, *item);

    if (entry->type != YAML_SCALAR_NODE || used + 2 * entry->data.scalar.length + 4 >= TRS_MAX_LIST)
      PetscCall(refuse_entry(yaml, entry));
    PetscCall(add_bytes(yaml, entry->data.scalar.length, entry));
    if (used) text[used++] = ',';
    used += TrsOptionListEntry(scalar(entry), text + used);
  }
  text[used] = '\0';
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the option `name`, with a scalar or a list as its value. */
static PetscErrorCode add_value(TrsYamlFile *yaml, char *name, const yaml_node_t *key,
                                const yaml_node_t *value)
{
  char source[TRS_MAX_SOURCE], *text = NULL;
  TrsGivenOption option = *yaml->file;

  PetscFunctionBegin;
  source_of(yaml, key, source);
  PetscCall(add_bytes(yaml, strlen(name), key));
  if (value->type == YAML_SEQUENCE_NODE) {
    PetscCall(PetscMalloc1(TRS_MAX_LIST, &text));
    PetscCall(join_list(yaml, value, text));
  } else if (value->data.scalar.length || value->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
    PetscCall(add_bytes(yaml, value->data.scalar.length, key));
    /* "key:" has no value; "key: ''" has an empty value */
    PetscCall(PetscStrallocpy(scalar(value), &text));
  }
  option.name = name;
  option.value = text;
  option.source = source;
  PetscCall(TrsGivenOptionsAdd(yaml->given, &option));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the options of a mapping. Their names begin with `prefix` ("-table_"). */
static PetscErrorCode add_mapping(TrsYamlFile *yaml, const yaml_node_t *mapping, const char *prefix,
                                  int depth)
{
  char name[TRS_MAX_NAME], source[TRS_MAX_SOURCE];

  PetscFunctionBegin;
  source_of(yaml, mapping, source);
  PetscCheck(mapping->type == YAML_MAPPING_NODE, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: expected keys and values (key: value)", source);
  PetscCheck(depth < TRS_MAX_DEPTH, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: nested more than %d deep", source,
             TRS_MAX_DEPTH);
  for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
       pair < mapping->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = yaml_document_get_node(yaml->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(yaml->document, pair->value);
    PetscBool is_inner = (PetscBool)(value->type == YAML_MAPPING_NODE);
    int n;

    source_of(yaml, key, source);
    PetscCheck(yaml->n_keys++ < TRS_MAX_KEYS, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: more than %d options",
               source, TRS_MAX_KEYS);
    PetscCheck(key->type == YAML_SCALAR_NODE && key->data.scalar.length, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: a key must be a name", source);
    n = snprintf(name, sizeof(name), "%s%s%s", prefix, scalar(key), is_inner ? "_" : "");
    PetscCheck(n < TRS_MAX_NAME, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: the key is too long", source);
    if (is_inner) {
      PetscCall(add_mapping(yaml, value, name, depth + 1));
    } else {
      PetscCall(add_value(yaml, name, key, value));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse texts with which libyaml would be busy for minutes: very deeply nested brackets, and many
  anchors, aliases or directives.
*/
static PetscErrorCode check_text(const char *text, const char *file)
{
  int64_t n_anchors = 0, n_aliases = 0, n_directives = 0;
  int depth = 0;
  char before = '\n';

  PetscFunctionBegin;
  for (; *text; before = *text++) {
    const PetscBool begins = (PetscBool)(strchr(" \t\r\n[{,:-?", before) != NULL);

    depth += (*text == '[' || *text == '{') - (*text == ']' || *text == '}');
    n_anchors += begins && *text == '&';
    n_aliases += begins && *text == '*';
    n_directives += before == '\n' && *text == '%';
    PetscCheck(depth <= TRS_MAX_DEPTH, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: brackets are nested more than %d deep", file, TRS_MAX_DEPTH);
    PetscCheck(n_directives <= TRS_MAX_DIRECTIVES, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: more than %d lines begin with %%, as YAML's directives do", file, TRS_MAX_DIRECTIVES);
  }
  PetscCheck(n_anchors * (n_anchors + n_aliases) <= max_comparisons, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: %" PRId64 " anchors (&name) and %" PRId64 " aliases (*name) are too many", file, n_anchors,
             n_aliases);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionYamlParse(const char *text, const TrsGivenOption *file, TrsGivenOptions *given)
{
  yaml_parser_t parser;
  yaml_document_t document;
  const yaml_node_t *root;
  TrsYamlFile yaml = {.document = &document, .file = file, .given = given};
  char prefix[] = "-";

  PetscFunctionBegin;
  PetscCall(check_text(text, file->source));
  PetscCheck(yaml_parser_initialize(&parser), PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: YAML parser");
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
  do {
    const int loaded = yaml_parser_load(&parser, &document);

    PetscCheck(loaded || parser.error != YAML_MEMORY_ERROR, PETSC_COMM_SELF, TRS_ERR_MEMORY,
               "out of memory: YAML of %s", file->source);
    PetscCheck(loaded, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s:%zu: not valid YAML: %s", file->source,
               parser.problem_mark.line + 1, parser.problem ? parser.problem : "unreadable");
    root = yaml_document_get_root_node(&document);
    if (root) PetscCall(add_mapping(&yaml, root, prefix, 0));
    yaml_document_delete(&document);
  } while (root);
  yaml_parser_delete(&parser);
  PetscFunctionReturn(PETSC_SUCCESS);
}
