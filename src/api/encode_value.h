/* SPDX-License-Identifier: BSD-3-Clause */
/* A raw value becomes a number or an id. Internal to api/. */
#pragma once

#include "api/trshard.h"
#include "spec/mapping_entries.h"

/* The place of a value, for messages. */
typedef struct {
  int64_t row;
  const char *column;
} TrsEncodePlace;

/* An integer of 64 bits, or the hash of a text. */
typedef struct {
  int64_t bits;
  PetscBool is_large; /* the number is 2^63 or more, so its bits are negative */
  PetscBool is_hash;
} TrsRawId;

/* Refuse a value: raise DATA with the place, the value and `what`. Not collective. */
PetscErrorCode TrsEncodeRefuse(const TrsEncodePlace *at, const TrshardValue *value, const char *what);

/* Return true if a value is missing, or is one of the mapping's words for missing values. */
PetscBool TrsEncodeIsMissing(const TrsMappingEntries *entries, const TrshardValue *value);

/*
  TrsEncodeNumber - Convert a value that is not missing to a double.

  Text may be what Python's float() reads, without "_", or true or false. Not collective.

  Out:    number  finite as float32, or NaN for the text "nan"
  Errors: DATA
*/
PetscErrorCode TrsEncodeNumber(const TrsEncodePlace *at, const TrshardValue *value, double *number);

/*
  TrsEncodeRawId - Convert a value that is not missing to an integer or a hash, as the entry's kind
    and base say. Not collective. Errors: DATA
*/
PetscErrorCode TrsEncodeRawId(const TrsEncodePlace *at, const TrsMappingEntry *entry,
                              const TrshardValue *value, TrsRawId *id);
