// The implementation of Kernels (ops/kernels.h) on NVIDIA GPUs. The files of this folder define its methods, by topic.
#pragma once

#include "tessera/ops/back_ends.h"
#include "tessera/ops/cuda/context.h"
#include "tessera/ops/cuda/products.h"

namespace tessera::cuda {

// make_cuda_kernels() (ops/back_ends.h) describes the behaviour of all methods.
class CudaKernels final : public Kernels {
 public:
  // Uses only features of GPUs of the major compute capability `code_major`. Tests choose a lower one than the GPU's.
  CudaKernels(Device& device, bool allow_tf32, int code_major);

  const Context& context() const { return context_; }
  void set_tuning(bool on) override { products_.set_tuning(on); }
  bool tuning() const override { return products_.tuning(); }

  void fill(View x, double value) override;
  void convert(View from, View to) override;
  void join(View narrow, View rest, View x) override;
  void fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) override;
  void fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) override;
  void add(View x, View sum) override;
  void add_sums_of_squares(std::span<const View> arrays, View sums) override;

  void embedding_backward(View ids, View d_y, View d_weight) override;
  void gather_rows(View x, View rows, View y) override;
  void scatter_rows(View x, View rows, View y) override;

  void layer_norm_forward(const NormForward& call) override;
  void rms_norm_forward(const NormForward& call) override;
  void layer_norm_backward(const NormBackward& call) override;
  void rms_norm_backward(const NormBackward& call) override;

  void rotary_angles(View positions, View frequencies, double scale, View rotations) override;
  void rotate_heads(const RotateHeads& call) override;
  void rotate_heads_backward(const RotateHeadsBackward& call) override;

  void gated_forward(View gate_up, Activation activation, View h) override;
  void gated_backward(const GatedBackward& call) override;
  void gated_forward8(const GatedForward8& call) override;
  void gated_backward8(const GatedBackward8& call) override;

  void linear_forward(const LinearForward& call) override;
  void linear_backward_input(const LinearBackwardInput& call) override;
  void linear_backward_weight(View d_y, View x, bool fresh, View d_weight) override;
  void linear_backward_bias(std::span<const BiasGradient> gradients) override;
  void linear_backward_weight8(const Float8Matrix& d_y, const Float8Matrix& x, bool fresh, View d_weight) override;
  void dequantize(View groups, View values) override;
  void quantize(const Quantize& call) override;
  void largest_of_squares(Stream& stream, const Float8Shard& shard, View largest) override;
  void quantize_shard(Stream& stream, const Float8Shard& shard, View largest, View scales, View codes) override;
  void transpose8(const Float8Matrix& from, const Float8Matrix& to) override;
  void dequantize8(const Float8Matrix& from, bool transposed, View x) override;
  std::string refusal_of_float8() const override;
  void join_factors(std::span<const FactorPlace> factors, View joined) override;
  void split_factors(View joined, std::span<const FactorPlace> factors, bool fresh) override;
  void dropout_backward(View d_y, const Dropout& dropout, View d_x) override;

  void attention_forward(const AttentionForward& call) override;
  void attention_backward(const AttentionBackward& call) override;
  void store_keys_values(const StoreKeysValues& call) override;
  void attention_decode(const AttentionDecode& call) override;

  void softmax_cross_entropy(View logits, View targets, double d_scale, View loss) override;
  void argmax_rows(View logits, View ids) override;
  void sample_rows(View logits, View draws, const Sampling& sampling, View ids) override;

  void adamw(const AdamWArrays& arrays, const AdamWStep& step) override;
  void adamw_on(Stream& stream, const AdamWArrays& arrays, const AdamWStep& step) override;

 private:
  Buffer workspace_;
  const Context context_;
  Products products_;
};

}  // namespace tessera::cuda
