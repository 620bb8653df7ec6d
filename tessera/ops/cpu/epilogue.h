// Steps that run on a matrix product while it is in cache. Each call works on a part of one row.
#pragma once

#include <array>

#include "tessera/ops/cpu/mask.h"
#include "tessera/ops/cpu/vector_math.h"
#include "tessera/ops/kernels.h"

namespace tessera::cpu {

template <typename T>
void activate(Activation activation, int64_t count, T* values) {
  if (activation == Activation::gelu_tanh) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) values[j] = gelu(values[j]);
  } else if (activation == Activation::relu) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) values[j] = values[j] > T(0) ? values[j] : T(0);
  }
}

// values = values ∘ activation'(preactivation)
template <typename T>
void multiply_by_derivative(Activation activation, const T* preactivation, int64_t count, T* values) {
  if (activation == Activation::gelu_tanh) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) values[j] *= gelu_derivative(preactivation[j]);
  } else if (activation == Activation::relu) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) values[j] = preactivation[j] > T(0) ? values[j] : T(0);
  }
}

// The steps after the product in Kernels::linear_forward() and in Kernels::linear_backward_input(). Both begin with the
// addition of `added`. Forward adds the bias, stores the preactivation, applies the activation, applies dropout and
// adds the residual, in this order. Backward applies dropout, multiplies by the derivative of the activation and adds
// the residual, in this order. If x is not empty, backward also sets x to dropout(activation(preactivation)). The
// member pointers point to the first element of arrays [rows, columns] (bias_: [columns]), or are null.
template <typename T>
class Finish {
 public:
  static Finish forward(View bias, View added, const LinearEpilogue& epilogue, View preactivation, View y) {
    Finish finish(added, epilogue, preactivation, y);
    if (bias) finish.bias_ = bias.as<T>();
    return finish;
  }
  static Finish backward(View added, const LinearEpilogue& epilogue, View preactivation, View d_x, View x) {
    Finish finish(added, epilogue, preactivation, d_x);
    finish.backward_ = true;
    TESSERA_ASSERT(epilogue.activation == Activation::none || preactivation);
    if (x) {
      TESSERA_ASSERT(preactivation && x.shape == preactivation.shape);
      finish.made_again_ = x.as<T>();
    }
    return finish;
  }

  // Whether apply() would only copy the product to the result.
  bool is_store() const {
    return !bias_ && !added_ && !residual_ && !has_dropout() && epilogue_.activation == Activation::none &&
           (backward_ ? !made_again_ : !preactivation_);
  }
  T* result() const { return result_; }
  // Returns the pointers that Continuation::touched (product.h) needs. They point to element (row, column) of the
  // result, the preactivation and the residual. The second and the third pointer are null if their array does not
  // exist. The third pointer is also null if the residual and the result are the same array.
  std::array<const T*, 3> touched(int64_t row, int64_t column) const {
    const int64_t at = row * columns_ + column;
    const bool apart = residual_ && residual_ != result_;
    return {result_ + at, preactivation_ ? preactivation_ + at : nullptr, apart ? residual_ + at : nullptr};
  }

  // Runs the steps on `product`, which holds columns [begin, end) of row `row`. Overwrites `product`.
  void apply(int64_t row, int64_t begin, int64_t end, T* product) const {
    const int64_t at = row * columns_ + begin, count = end - begin;
    if (added_) {
      const T* added = added_ + at;
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) product[j] += added[j];
    }
    if (bias_) {
      const T* bias = bias_ + begin;
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) product[j] += bias[j];
    }
    if (backward_) {
      drop(row, begin, count, product);
      multiply_by_derivative(epilogue_.activation, preactivation_ ? preactivation_ + at : nullptr, count, product);
      if (made_again_) {
        T* const x = made_again_ + at;
        if (made_again_ != preactivation_) std::copy_n(preactivation_ + at, count, x);
        activate(epilogue_.activation, count, x);
        drop(row, begin, count, x);
      }
    } else {
      if (preactivation_) std::copy(product, product + count, preactivation_ + at);
      activate(epilogue_.activation, count, product);
      drop(row, begin, count, product);
    }
    store(at, count, product);
  }

 private:
  Finish(View added, const LinearEpilogue& epilogue, View preactivation, View result)
      : epilogue_(epilogue), result_(result.as<T>()), columns_(result.shape[1]) {
    if (added) {
      TESSERA_ASSERT(added.shape == result.shape && added.data != epilogue.residual.data);
      added_ = added.as<T>();
    }
    if (preactivation) {
      TESSERA_ASSERT(preactivation.shape == result.shape);
      preactivation_ = preactivation.as<T>();
    }
    if (epilogue.residual) {
      TESSERA_ASSERT(epilogue.residual.shape == result.shape);
      residual_ = epilogue.residual.as<T>();
    }
    if (has_dropout()) TESSERA_ASSERT(epilogue.dropout.row_ids.num_elems() == result.shape[0]);
  }
  bool has_dropout() const {
    return epilogue_.dropout.rate > 0;
  }
  void drop(int64_t row, int64_t column, int64_t count, T* values) const {
    if (!has_dropout()) return;
    apply_dropout(epilogue_.dropout, epilogue_.dropout.row_ids.as<int64_t>()[row], static_cast<uint32_t>(column), count,
                  values);
  }
  void store(int64_t at, int64_t count, const T* values) const {
    T* result = result_ + at;
    if (residual_) {
      const T* residual = residual_ + at;
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) result[j] = residual[j] + values[j];
    } else if (result != values) {
      std::copy(values, values + count, result);
    }
  }

  const LinearEpilogue& epilogue_;
  const T* bias_ = nullptr;
  const T* added_ = nullptr;
  const T* residual_ = nullptr;
  T* preactivation_ = nullptr;
  T* made_again_ = nullptr;
  T* result_;
  int64_t columns_;
  bool backward_ = false;
};

}  // namespace tessera::cpu
