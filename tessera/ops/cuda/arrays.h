// Operations on complete arrays and on their rows (see ops/kernels.h).
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

void fill(const Context& context, View x, double value);
void convert(const Context& context, View from, View to);
void join(const Context& context, View narrow, View rest, View x);
void fill_normal(const Context& context, View x, double mean, double std, uint64_t seed, uint64_t stream,
                 int64_t first_elem);
void fill_uniform(const Context& context, View x, double low, double high, uint64_t seed, uint64_t stream,
                  int64_t first_elem);
void add(const Context& context, View x, View sum);
void add_sums_of_squares(const Context& context, std::span<const View> arrays, View sums);

// hash_of() and count_finite_nonzero() wait for the GPU. `sum` points to 8 bytes of GPU memory, which they overwrite.

// Returns a number that almost certainly differs for arrays with different bits.
uint64_t hash_of(const Context& context, View x, unsigned long long* sum);
// Returns the number of elements that are neither zero, infinite nor NaN.
int64_t count_finite_nonzero(const Context& context, View x, unsigned long long* sum);

void gather_rows(const Context& context, View x, View rows, View y);
void scatter_rows(const Context& context, View x, View rows, View y);
void embedding_backward(const Context& context, View ids, View d_y, View d_weight);

void adamw(const Context& context, View parameters, View rest, View gradients, View m, View v, const AdamWStep& step);

}  // namespace tessera::cuda
