#include "tessera/ops/back_ends.h"

namespace tessera {
namespace {

class CountingKernels final : public Kernels {
 public:
  explicit CountingKernels(Device& device)
      : can_split_adamw_(counted_by(device).kind == DeviceKind::cpu),
        scratch_(device.allocate(bytes_of_scratch(counted_by(device)), Category::workspace)) {}

  void fill(View, double) override {}
  void join(View, View, View) override {}
  void convert(View, View) override {}
  void fill_normal(View, double, double, uint64_t, uint64_t, int64_t) override {}
  void fill_uniform(View, double, double, uint64_t, uint64_t, int64_t) override {}
  void add(View, View) override {}
  void add_sums_of_squares(std::span<const View>, View) override {}
  void embedding_backward(View, View, View) override {}
  void gather_rows(View, View, View) override {}
  void scatter_rows(View, View, View) override {}
  void layer_norm_forward(const NormForward&) override {}
  void rms_norm_forward(const NormForward&) override {}
  void layer_norm_backward(const NormBackward&) override {}
  void rms_norm_backward(const NormBackward&) override {}
  void rotary_angles(View, View, double, View) override {}
  void rotate_heads(const RotateHeads&) override {}
  void rotate_heads_backward(const RotateHeadsBackward&) override {}
  void gated_forward(View, Activation, View) override {}
  void gated_backward(const GatedBackward&) override {}
  void linear_forward(const LinearForward& call) override { count_linear(call.x, call.weight); }
  void linear_backward_input(const LinearBackwardInput& call) override { count_linear(call.d_y, call.weight); }
  void linear_backward_weight(View d_y, View, bool, View d_weight) override { count_linear(d_y, d_weight); }
  void linear_backward_bias(std::span<const BiasGradient>) override {}
  void dequantize(View, View) override {}
  void join_factors(std::span<const FactorPlace>, View) override {}
  void split_factors(View, std::span<const FactorPlace>, bool) override {}
  void dropout_backward(View, const Dropout&, View) override {}
  void attention_forward(const AttentionForward&) override {}
  void attention_backward(const AttentionBackward&) override {}
  void store_keys_values(const StoreKeysValues&) override {}
  void attention_decode(const AttentionDecode&) override {}
  void softmax_cross_entropy(View, View, double, View) override {}
  void argmax_rows(View, View) override {}
  void sample_rows(View, View, const Sampling&, View) override {}
  void adamw(const AdamWArrays&, const AdamWStep&) override {}
  bool can_split_adamw() const override { return can_split_adamw_; }

 private:
  static int64_t bytes_of_scratch(const CountedDevice& counted) {
    return counted.kind == DeviceKind::cuda ? kCudaWorkspaceBytes : counted.num_threads * kCpuScratchBytesPerThread;
  }

  const bool can_split_adamw_;
  Buffer scratch_;
};

}  // namespace

std::unique_ptr<Kernels> make_counting_kernels(Device& device) {
  return std::make_unique<CountingKernels>(device);
}

}  // namespace tessera
