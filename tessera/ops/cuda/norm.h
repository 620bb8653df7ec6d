// Norms, and the operations on logits: loss, argmax and sampling (see ops/kernels.h).
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

void layer_norm_forward(const Context& context, View x, View weight, View bias, double epsilon, View y, View stats);
void layer_norm_backward(const Context& context, View d_y, View x, View weight, View bias, View stats, View residual,
                         View d_x, View d_weight, View d_bias, View y);

void rms_norm_forward(const Context& context, View x, View weight, double epsilon, View y, View rstd);
void rms_norm_backward(const Context& context, View d_y, View x, View weight, View rstd, View residual, View d_x,
                       View d_weight, View y);

void softmax_cross_entropy(const Context& context, View logits, View targets, double d_scale, View loss);
void argmax_rows(const Context& context, View logits, View ids);
void sample_rows(const Context& context, View logits, View draws, const Sampling& sampling, View ids);

}  // namespace tessera::cuda
