/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Option files in YAML: nested keys join with '_', lists with ','.

  Read with libyaml: PETSc 3.18's own reader fails beyond 512 options, keeps no line numbers and lets the last of two equal keys win.
*/
#include "core/option_source.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
  TRS_MAX_SOURCE = 4352,
  TRS_MAX_NAME = 1024,
  TRS_MAX_LIST = 1 << 16,
  TRS_MAX_DEPTH = 32,
  TRS_MAX_KEYS = 1 << 17
};

/* One file on its way to options. */
typedef struct {
  yaml_document_t *document;
  const TrsGivenOption *file;
  TrsGivenOptions *given;
  int n_keys; /* met so far: aliases can make a small file huge */
} TrsYamlFile;

/* "run.yaml:3" */
static void source_of(const TrsYamlFile *yaml, const yaml_node_t *node, char source[TRS_MAX_SOURCE])
{
  snprintf(source, TRS_MAX_SOURCE, "%s:%zu", yaml->file->source, node->start_mark.line + 1);
}

static const char *scalar(const yaml_node_t *node)
{
  return (const char *)node->data.scalar.value;
}

/* A list's entries with commas between them. */
static PetscErrorCode join_list(const TrsYamlFile *yaml, const yaml_node_t *list, char *text)
{
  size_t used = 0;
  char source[TRS_MAX_SOURCE];

  PetscFunctionBegin;
  text[0] = '\0';
  for (const yaml_node_item_t *item = list->data.sequence.items.start; item < list->data.sequence.items.top;
       item++) {
    const yaml_node_t *entry = yaml_document_get_node(yaml->document, *item);

    source_of(yaml, entry, source);
    PetscCheck(entry->type == YAML_SCALAR_NODE, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: an entry of a list must be a plain value", source);
    PetscCheck(used + entry->data.scalar.length + 2 < TRS_MAX_LIST, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: the list has more than %d characters", source, TRS_MAX_LIST);
    used += (size_t)snprintf(text + used, TRS_MAX_LIST - used, used ? ",%s" : "%s", scalar(entry));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The option `name` with the value of a scalar or a list. */
static PetscErrorCode add_value(const TrsYamlFile *yaml, char *name, const yaml_node_t *key,
                                const yaml_node_t *value)
{
  char source[TRS_MAX_SOURCE], *text = NULL;
  TrsGivenOption option = *yaml->file;

  PetscFunctionBegin;
  source_of(yaml, key, source);
  if (value->type == YAML_SEQUENCE_NODE) {
    PetscCall(PetscMalloc1(TRS_MAX_LIST, &text));
    PetscCall(join_list(yaml, value, text));
  } else if (value->data.scalar.length || value->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
    PetscCall(
        PetscStrallocpy(scalar(value), &text)); /* "key:" alone has no value; "key: ''" has an empty one */
  }
  option.name = name;
  option.value = text;
  option.source = source;
  PetscCall(TrsGivenOptionsAdd(yaml->given, &option));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All keys of a mapping below `prefix` ("-table_"). */
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

/* Brackets that are nested without end keep libyaml busy for minutes. */
static PetscErrorCode check_nesting(const char *text, const char *file)
{
  int depth = 0;

  PetscFunctionBegin;
  for (; *text; text++) {
    depth += (*text == '[' || *text == '{') - (*text == ']' || *text == '}');
    PetscCheck(depth <= TRS_MAX_DEPTH, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: brackets are nested more than %d deep", file, TRS_MAX_DEPTH);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionYamlParse(const char *text, const TrsGivenOption *file, TrsGivenOptions *given)
{
  yaml_parser_t parser;
  yaml_document_t document;
  const yaml_node_t *root;
  TrsYamlFile yaml = {&document, file, given, 0};
  char prefix[] = "-";

  PetscFunctionBegin;
  PetscCall(check_nesting(text, file->source));
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
