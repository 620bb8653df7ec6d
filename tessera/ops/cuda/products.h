// Matrix products with cuBLASLt. Later steps are fused into the same kernel where cuBLASLt supports it.
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

// Steps that a product fuses.
enum class Fused {
  nothing,
  bias,       // result = product + bias
  gelu,       // result = gelu(product + bias)
  gelu_keep,  // like gelu, and aux = product + bias
};

// result [m, n] = or += a product of `left` and `right`, row-major. A linear layer has three products:
//   forward          result [N, O]  = x [N, I]    · weight [O, I]ᵀ
//   backward_input   result [N, I]  = d_y [N, O]  · weight [O, I]
//   backward_weight  result [O, I] += d_y [N, O]ᵀ · x [N, I]
enum class ProductKind { forward, backward_input, backward_weight };

struct Product {
  ProductKind kind = ProductKind::forward;
  View left, right, result;  // as in the table
  View added;                // same shape and type as the result, or empty; may be the result
  Fused fused = Fused::nothing;
  View bias, aux;  // as `fused` requires
};

class Products {
 public:
  // `workspace` has kProductWorkspaceBytes and must outlive the object. With allow_tf32, f32 products truncate
  // their factors to 11 bits.
  Products(const Context& context, std::byte* workspace, bool allow_tf32);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Whether cuBLASLt can compute the product and its fused step in one kernel, with these types and this alignment.
  bool can(const Product& product) { return plan_of(product) != nullptr; }
  // Puts the product on the stream. Throws RunError if cuBLASLt has no algorithm for it.
  void run(const Product& product);

  // While on, the first run of a product measures cuBLASLt's candidate algorithms on the product's views. It keeps the
  // fastest candidate whose result has the same bits as cuBLASLt's own choice, so results do not depend on
  // measurements. The bits show the order of additions only if the factors are dense and the results are many. Other
  // products are not measured. A product that adds to its own result is not measured either: it takes the algorithm of
  // the product that overwrites the result. A measuring run waits for the GPU. At most kMaxMeasured runs measure.
  void set_tuning(bool on) { tuning_ = on; }

 private:
  // About 20 shapes occur in every step. Other shapes belong to the head: its number of rows with loss may vary.
  static constexpr int kMaxMeasured = 32;
  struct Plan;
  using Key = std::tuple<int, int, DType, DType, DType, int64_t, int64_t, int64_t, int>;

  Plan* plan_of(const Product& product);
  std::unique_ptr<Plan> make_plan(const Product& product) const;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Product& product, const Plan& plan, int count) const;
  bool is_to_be_tuned(const Product& product, const Plan& plan) const;
  void tune(const Product& product, Plan& plan);
  bool bits_show_order(const Product& product) const;
  float time_ms(const Product& product, Plan& plan);
  unsigned long long* device_sum() const { return reinterpret_cast<unsigned long long*>(workspace_); }
  void launch(const Product& product, Plan& plan);

  const Context& context_;
  std::byte* workspace_;
  const bool allow_tf32_;
  bool tuning_ = false;
  int num_measured_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: cuBLASLt has no algorithm
};

}  // namespace tessera::cuda
