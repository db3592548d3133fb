/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The common part of assemble_kernels_<isa>.c. These files first define transpose_8() and the
  functions that copy a bag: copy_narrow(), copy_wide() and copy_weights(). Their argument `most` is
  the largest possible length of a bag, so that short bags are copied without a branch. They return
  a Good, which has the lanes in which all ids were good. all_good is its first value, and both()
  combines the results of two copies. This header defines ASSEMBLE_KERNELS. It has no include guard,
  because each file includes it once.

  An id is good if id + 1, as an unsigned number, is at most a limit: -1 becomes 0, and other
  negative ids become large.
*/

enum { TRS_FEW_IDS = 8, TRS_SOME_IDS = 16, TRS_MANY_IDS = INT32_MAX };

INLINE uint32_t narrow_limit(int64_t rows)
{
  return rows == 0 ? UINT32_MAX : rows < (int64_t)INT32_MAX + 1 ? (uint32_t)rows : (uint32_t)INT32_MAX + 1;
}

INLINE uint64_t wide_limit(int64_t rows)
{
  return rows == 0 ? UINT64_MAX : (uint64_t)rows;
}

/* Transpose squares of 8 x 8 numbers. The last square overlaps the square before it. */
static void transpose(int n_rows, int n_cols, const int32_t *const *row, int32_t *to)
{
  const int squares = n_cols < 8 ? 0 : n_rows / 8 * 8;

  for (int r = 0; r < squares; r += 8)
    for (int c = 0; c < n_cols; c += 8) {
      const int col = c + 8 <= n_cols ? c : n_cols - 8;

      transpose_8(row + r, col, to + TrsTilePlace(col, r));
    }
  for (int r = squares; r < n_rows; r++)
    for (int c = 0; c < n_cols; c++) to[TrsTilePlace(c, r)] = row[r][c];
}

INLINE int32_t longest(int n_bags, const int32_t *lengths)
{
  int32_t most = 0;

  for (int i = 0; i < n_bags; i++) most = lengths[i] > most ? lengths[i] : most;
  return most;
}

INLINE int narrow_bags(int n_bags, const int32_t *lengths, const int64_t *at, const int32_t *from,
                       uint32_t limit, int64_t *to, int most)
{
  Good good = all_good;

  for (int i = 0; i < n_bags; i++) {
    good = both(good, copy_narrow(lengths[i], from + at[i], limit, to, most));
    to += lengths[i];
  }
  return good != all_good;
}

static int place_narrow(int n_bags, const int32_t *lengths, const int64_t *at, const int32_t *from,
                        int64_t rows, int64_t *to)
{
  const int32_t most = longest(n_bags, lengths);
  const uint32_t limit = narrow_limit(rows);

  if (most <= TRS_FEW_IDS) return narrow_bags(n_bags, lengths, at, from, limit, to, TRS_FEW_IDS);
  if (most <= TRS_SOME_IDS) return narrow_bags(n_bags, lengths, at, from, limit, to, TRS_SOME_IDS);
  return narrow_bags(n_bags, lengths, at, from, limit, to, TRS_MANY_IDS);
}

INLINE int wide_bags(int n_bags, const int32_t *lengths, const int64_t *at, const int64_t *from,
                     uint64_t limit, int64_t *to, int most)
{
  Good good = all_good;

  for (int i = 0; i < n_bags; i++) {
    good = both(good, copy_wide(lengths[i], from + at[i], limit, to, most));
    to += lengths[i];
  }
  return good != all_good;
}

static int place_wide(int n_bags, const int32_t *lengths, const int64_t *at, const int64_t *from,
                      int64_t rows, int64_t *to)
{
  const uint64_t limit = wide_limit(rows);

  if (longest(n_bags, lengths) <= TRS_FEW_IDS)
    return wide_bags(n_bags, lengths, at, from, limit, to, TRS_FEW_IDS);
  return wide_bags(n_bags, lengths, at, from, limit, to, TRS_MANY_IDS);
}

static void place_weights(int n_bags, const int32_t *lengths, const int64_t *at, const float *from, float *to)
{
  for (int i = 0; i < n_bags; i++) {
    copy_weights(lengths[i], from + at[i], to);
    to += lengths[i];
  }
}

#define ASSEMBLE_KERNELS \
  { \
    .transpose = transpose, .place_narrow = place_narrow, .place_wide = place_wide, \
    .place_weights = place_weights \
  }
