// Matrix products by cuBLASLt, with what follows them done in the same kernel where cuBLASLt can.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/cuda/cublas_lt.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// What a product does besides multiplying.
enum class Fused {
  nothing,
  bias,       // result = product + bias
  gelu,       // result = gelu(product + bias)
  gelu_keep,  // and `aux` gets product + bias
};

// result [m, n] (+)= a' · b', row-major: the factors of a linear layer's three products.
//   forward          result [N, O]  = x [N, I]    · weight [O, I]ᵀ
//   backward_input   result [N, I]  = d_y [N, O]  · weight [O, I]
//   backward_weight  result [O, I] += d_y [N, O]ᵀ · x [N, I]
enum class ProductKind { forward, backward_input, backward_weight };

struct Product {
  ProductKind kind = ProductKind::forward;
  View left, right, result;  // as the table says
  View added;                // same shape and type as the result, or empty; may be the result
  Fused fused = Fused::nothing;
  View bias, aux;  // as `fused` wants them
};

class Products {
 public:
  // `workspace` has kProductWorkspaceBytes and must outlive the object. With tf32, f32 products round their factors.
  Products(const Context& context, std::byte* workspace, bool allow_tf32);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Whether cuBLASLt can do this as one kernel: the fused step, the types, the alignment.
  bool can(const Product& product) { return plan_of(product) != nullptr; }
  // Puts it on the stream. Throws RunError where cuBLASLt has no algorithm.
  void run(const Product& product);

  // While on, the first run of a product measures cuBLASLt's candidates on the views it is given and keeps the fastest
  // of those whose result has the same bits as the one it would have chosen unasked, so that what is computed does not
  // depend on what was measured. Bits tell how an algorithm adds where factors are dense and results many: others are
  // not measured, nor is a product that adds to its own result, which takes what one that writes there has found. A run
  // that measures waits for the GPU; after so many of them (kMaxMeasured) no other does.
  void set_tuning(bool on) { tuning_ = on; }

 private:
  // Some 20 shapes come again with every step; the others are heads of rows with loss, whose number may vary.
  static constexpr int kMaxMeasured = 32;
  struct Plan;
  using Key = std::tuple<int, int, DType, DType, DType, int64_t, int64_t, int64_t, int>;

  Plan* plan_of(const Product& product);
  std::unique_ptr<Plan> make_plan(const Product& product) const;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Product& product, const Plan& plan, int count) const;
  bool is_to_be_tuned(const Product& product, const Plan& plan) const;
  void tune(const Product& product, Plan& plan);
  bool bits_tell(const Product& product) const;
  float time_ms(const Product& product, Plan& plan);
  unsigned long long* device_sum() const { return reinterpret_cast<unsigned long long*>(workspace_); }
  void launch(const Product& product, Plan& plan);

  const Context& context_;
  std::byte* workspace_;
  const bool allow_tf32_;
  bool tuning_ = false;
  int num_measured_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: cuBLASLt has no algorithm for it
};

}  // namespace tessera::cuda
