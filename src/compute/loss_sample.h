/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The losses of one sample with output z, label y and parameter q. Each function returns the loss,
  and sets *g to the loss' derivative by z, and *p to the prediction. If y is NaN, *g and the loss
  are 0.

  A file must define TRS_LOSS_SAMPLE before it includes this header: "static inline", or a device's
  qualifiers.
*/
#pragma once

#include <math.h>

TRS_LOSS_SAMPLE double TrsBceSample(double z, double y, double q, double *g, double *p)
{
  const double e = exp(-fabs(z));
  const double sigmoid = z >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);

  *p = sigmoid;
  *g = 0.0;
  if (y != y) return 0.0;
  if (q == 1.0) {
    *g = sigmoid - y;
    return fmax(z, 0.0) - z * y + log1p(e);
  }
  *g = sigmoid * (q * y + 1.0 - y) - q * y;
  return q * y * (log1p(e) + fmax(-z, 0.0)) + (1.0 - y) * (log1p(e) + fmax(z, 0.0));
}

TRS_LOSS_SAMPLE double TrsMseSample(double z, double y, double q, double *g, double *p)
{
  (void)q;
  *p = z;
  *g = y != y ? 0.0 : 2.0 * (z - y);
  return y != y ? 0.0 : (z - y) * (z - y);
}

TRS_LOSS_SAMPLE double TrsHuberSample(double z, double y, double q, double *g, double *p)
{
  const double d = z - y;

  *p = z;
  *g = 0.0;
  if (y != y) return 0.0;
  *g = fmin(fmax(d, -q), q);
  return fabs(d) < q ? 0.5 * d * d : q * (fabs(d) - 0.5 * q);
}
