// Matrix products with cuBLASLt. A kernel of cuBLASLt can also compute some steps that follow its product (Fused).
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

// The steps that the kernel of a product computes after the product.
enum class Fused {
  nothing,
  bias,       // result = product + bias
  gelu,       // result = gelu(product + bias)
  gelu_keep,  // like gelu, and aux = product + bias
};

// A product computes result [m, n] from `left` and `right`. All arrays are row-major. A linear layer has three
// products:
//   forward          result [N, O] = x [N, I]    · weight [O, I]ᵀ
//   backward_input   result [N, I] = d_y [N, O]  · weight [O, I]
//   backward_weight  result [O, I] = d_y [N, O]ᵀ · x [N, I]
enum class ProductKind { forward, backward_input, backward_weight };

struct Product {
  ProductKind kind = ProductKind::forward;
  View left, right, result;  // as in the table above
  // The scales of e4m3 factors (Float8Matrix), or empty: those of 128 terms on the left, those of squares on the right.
  // Products of such factors have the kind `forward`, because tensor cores read 8-bit factors only along the sum.
  View left_scales = {}, right_scales = {};
  // Is added to the product. Empty, or an array with the shape and type of the result. May be the result itself.
  View added = {};
  Fused fused = Fused::nothing;
  View bias = {}, aux = {};  // empty if `fused` does not use them
};

class Products {
 public:
  // `workspace` has kProductWorkspaceBytes bytes of device memory. `context` and `workspace` must outlive the object.
  // With allow_tf32, products of f32 factors use only the first 11 significant bits of each factor.
  Products(const Context& context, std::byte* workspace, bool allow_tf32);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Whether cuBLASLt can compute the product and its fused step in one kernel, with these types and this alignment.
  bool can(const Product& product) { return plan_of(product) != nullptr; }
  // Puts the product on the stream. Throws RunError if cuBLASLt has no algorithm for it.
  void run(const Product& product);

  // While tuning is on, the first run of a product measures cuBLASLt's candidate algorithms on the views of this run,
  // and waits for the GPU. Products of the same kind, with the same steps, types, shapes and alignment, count as one
  // product. Later runs of this product use the fastest candidate that gives the same bits as cuBLASLt's own choice.
  // Results therefore do not depend on measurements.
  // In these cases a run measures nothing:
  // - The result is small, or the factors have many zeros. Two algorithms may then give equal bits although they add in
  // different orders. Later runs of the product do not measure either.
  // - `added` is the result itself, so repeated runs would change the result. The run uses the algorithm of the runs
  // that overwrite the result.
  // - A CUDA graph captures the stream. A later run may measure.
  // - kMaxMeasured products have already been considered.
  void set_tuning(bool on) { tuning_ = on; }
  bool tuning() const { return tuning_; }

 private:
  // About 20 products have the same shapes in every training step. The products of the output layer (head) may have new
  // shapes in each step, because the number of rows with loss varies. kMaxMeasured limits the number of all these
  // products together, so the head does not cause measurements in every step.
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
