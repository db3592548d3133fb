/* SPDX-License-Identifier: BSD-3-Clause */
/* A stack of linear layers with ReLU, forward and backward. Internal to model/. Source: torchrec.modules.mlp.MLP */
#pragma once

#include "model/parameters.h"

typedef struct {
  int64_t in, out;
  TrsActivation activation;
  int weight, bias; /* indices in the parameters */
  float *y;         /* output [max_batch, y_stride] */
  int64_t y_stride;
} TrsMlpLayer;

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters *params;
  int n_layers;
  TrsMlpLayer *layer; /* [n_layers] */
  float *dy[2];       /* gradients of inner outputs, in turn, [max_batch, widest]; borrowed */
} TrsMlp;

/* Declare the layers in -> out[0] -> ... -> out[n_layers - 1], the last first (its gradient comes first); all end in ReLU, the last if relu_last. */
PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const char *module, int n_layers, int64_t in, const int64_t *out,
                             PetscBool relu_last);

/*
  Where declared layers write, all borrowed: the inner ones to `inner`, TrsMlpInnerFloats(), the last to y [max_batch, y_stride]. inner is free
  between a backward and the next forward. dy: room for TrsMlpGradientWidth() floats a sample each, or NULL where there is no backward; it is free
  between two backwards, so that stacks share it.
*/
void TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, float *y, int64_t y_stride,
                 float *const dy[2]);
int64_t TrsMlpInnerFloats(const TrsMlp *mlp, int64_t max_batch);

/* The widest inner output; 0 without any. */
int64_t TrsMlpGradientWidth(const TrsMlp *mlp);

/* n samples of x [n, x_stride]. */
PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                             int64_t x_stride);

/* dy, the gradient of the last output, is overwritten; dx (or NULL) is written. Announces each layer's gradients as they become ready. */
PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride);

PetscErrorCode TrsMlpFree(TrsMlp *mlp);
