/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Attention within one bag, part of dense_kernels_<isa>.c. The keys and values of a head are
  transposed first, so that all inner loops run over the rows of the bag.
*/

/*
  Compute x[i] for i < n, the sum over c < d of scale * a[c] * columns[c][i]. columns is [d,
  stride].
*/
static void sum_columns(int64_t n, int64_t d, float scale, const float *restrict a,
                        const float *restrict columns, int64_t stride, float *restrict x)
{
  int64_t c = 0;

  for (int64_t i = 0; i < n; i++) x[i] = 0.0f;
  for (; c + 4 <= d; c += 4) {
    const float *restrict b = columns + c * stride;
    const float a0 = scale * a[c], a1 = scale * a[c + 1], a2 = scale * a[c + 2], a3 = scale * a[c + 3];

    for (int64_t i = 0; i < n; i++)
      x[i] += (a0 * b[i] + a1 * b[stride + i]) + (a2 * b[2 * stride + i] + a3 * b[3 * stride + i]);
  }
  for (; c < d; c++)
    for (int64_t i = 0; i < n; i++) x[i] += scale * a[c] * columns[c * stride + i];
}

/* Add a[c] * x[i] to columns[c][i]. */
static void add_to_columns(int64_t n, int64_t d, const float *restrict a, const float *restrict x,
                           float *restrict columns, int64_t stride)
{
  for (int64_t c = 0; c < d; c++)
    for (int64_t i = 0; i < n; i++) columns[c * stride + i] += a[c] * x[i];
}

/* Compute sum [d], the sum of x[i] * rows[i] over the n rows. */
static void sum_rows(int64_t n, int64_t d, const float *restrict x, const float *restrict rows,
                     int64_t stride, float *restrict sum)
{
  for (int64_t c = 0; c < d; c++) sum[c] = 0.0f;
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < d; c++) sum[c] += x[i] * rows[i * stride + c];
}

static void transpose(int64_t n, int64_t d, const float *restrict rows, int64_t stride,
                      float *restrict columns)
{
  for (int64_t c = 0; c < d; c++)
    for (int64_t i = 0; i < n; i++) columns[c * n + i] = rows[i * stride + c];
}

static void transpose_back(int64_t n, int64_t d, const float *restrict columns, float *restrict rows,
                           int64_t stride)
{
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < d; c++) rows[i * stride + c] = columns[c * n + i];
}

/* Return the largest of n numbers. A NaN may be missed here; it then appears in the sum. */
static float largest(int64_t n, const float *x)
{
  float lane[LINE], most;
  int64_t i = 0;

  for (int l = 0; l < LINE; l++) lane[l] = x[0];
  for (; i + LINE <= n; i += LINE)
    for (int l = 0; l < LINE; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  for (; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  most = lane[0];
  for (int l = 1; l < LINE; l++) most = lane[l] > most ? lane[l] : most;
  return most;
}

/* Return the sum of n numbers, added in LINE lanes. */
static float sum_lanes(int64_t n, const float *x)
{
  float lane[LINE] = {0.0f}, sum = 0.0f;
  int64_t i = 0;

  for (; i + LINE <= n; i += LINE)
    for (int l = 0; l < LINE; l++) lane[l] += x[i + l];
  for (; i < n; i++) sum += x[i];
  for (int l = 0; l < LINE; l++) sum += lane[l];
  return sum;
}

static void attend_head(const TrsAttentionBag *bag, int64_t h)
{
  const int64_t n = bag->n, d = bag->dim / bag->heads, stride = 3 * bag->dim;
  const float *query = bag->qkv + h * d, *key = query + bag->dim, *value = key + bag->dim;
  const float scale = 1.0f / sqrtf((float)d);
  float *keys = bag->scratch, *weight = keys + n * d;

  transpose(n, d, key, stride, keys);
  for (int64_t i = 0; i < n; i++) {
    const int64_t m = bag->causal ? i + 1 : n;
    float most, sum;

    sum_columns(m, d, scale, query + i * stride, keys, n, weight);
    most = largest(m, weight);
    for (int64_t j = 0; j < m; j++) weight[j] = TrsExp(weight[j] - most);
    sum = sum_lanes(m, weight);
    for (int64_t j = 0; j < m; j++) weight[j] /= sum;
    sum_rows(m, d, weight, value, stride, bag->out + i * bag->dim + h * d);
    bag->log_sums[i * bag->heads + h] = most + logf(sum);
  }
}

static void attend(const TrsAttentionBag *bag)
{
  for (int64_t h = 0; h < bag->heads; h++) attend_head(bag, h);
}

static void attend_head_backward(const TrsAttentionBag *bag, int64_t h)
{
  const int64_t n = bag->n, d = bag->dim / bag->heads, stride = 3 * bag->dim;
  const float *query = bag->qkv + h * d, *key = query + bag->dim, *value = key + bag->dim;
  const float scale = 1.0f / sqrtf((float)d);
  float *keys = bag->scratch, *values = keys + n * d, *dkeys = values + n * d, *dvalues = dkeys + n * d,
        *weight = dvalues + n * d, *dscore = weight + n;
  float *dquery = bag->dqkv + h * d, *dkey = dquery + bag->dim, *dvalue = dkey + bag->dim;

  transpose(n, d, key, stride, keys);
  transpose(n, d, value, stride, values);
  for (int64_t i = 0; i < 2 * n * d; i++) dkeys[i] = 0.0f; /* dkeys and, after them, dvalues */
  for (int64_t i = 0; i < n; i++) {
    const int64_t m = bag->causal ? i + 1 : n;
    const float *g = bag->dout + i * bag->dim + h * d, *out = bag->out + i * bag->dim + h * d;
    const float log_sum = bag->log_sums[i * bag->heads + h];
    float along = 0.0f;

    sum_columns(m, d, scale, query + i * stride, keys, n, weight);
    for (int64_t j = 0; j < m; j++) weight[j] = TrsExp(weight[j] - log_sum);
    sum_columns(m, d, 1.0f, g, values, n, dscore);
    for (int64_t c = 0; c < d; c++) along += g[c] * out[c];
    for (int64_t j = 0; j < m; j++) dscore[j] = weight[j] * (dscore[j] - along) * scale;
    sum_rows(m, d, dscore, key, stride, dquery + i * stride);
    add_to_columns(m, d, query + i * stride, dscore, dkeys, n);
    add_to_columns(m, d, g, weight, dvalues, n);
  }
  transpose_back(n, d, dkeys, dkey, stride);
  transpose_back(n, d, dvalues, dvalue, stride);
}

static void attend_backward(const TrsAttentionBag *bag)
{
  for (int64_t h = 0; h < bag->heads; h++) attend_head_backward(bag, h);
}
