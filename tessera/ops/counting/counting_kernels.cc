#include "tessera/ops/back_ends.h"
#include "tessera/ops/counting/kernel_times.h"

namespace tessera {
namespace {

class CountingKernels final : public Kernels {
 public:
  CountingKernels(Device& device, bool tf32)
      : on_cpu_(counted_by(device).kind == DeviceKind::cpu),
        scratch_(device.allocate(bytes_of_scratch(counted_by(device)), Category::workspace)),
        times_(device, tf32) {}

  void fill(View x, double) override { times_.arrays("fill", {x}); }
  void join(View narrow, View rest, View x) override { times_.arrays("join", {narrow, rest, x}); }
  void convert(View from, View to) override { times_.arrays("convert", {from, to}); }
  void fill_normal(View x, double, double, uint64_t, uint64_t, int64_t) override { times_.arrays("fill_normal", {x}); }
  void fill_uniform(View x, double, double, uint64_t, uint64_t, int64_t) override {
    times_.arrays("fill_uniform", {x});
  }
  void add(View x, View sum) override { times_.arrays("add", {x, sum, sum}); }
  void add_sums_of_squares(std::span<const View> arrays, View) override {
    for (const View& array : arrays) {
      if (array.num_elems() > 0) times_.arrays("add_sums_of_squares", {array});
    }
  }
  void embedding_backward(View, View d_y, View) override { times_.arrays("embedding_backward", {d_y}, 65); }
  void gather_rows(View, View, View y) override { times_.arrays("gather_rows", {y, y}); }
  void scatter_rows(View x, View, View y) override { times_.arrays("scatter_rows", {x, y}); }
  void layer_norm_forward(const NormForward& call) override { norm_forward("layer_norm_forward", call); }
  void rms_norm_forward(const NormForward& call) override { norm_forward("rms_norm_forward", call); }
  void layer_norm_backward(const NormBackward& call) override { norm_backward("layer_norm_backward", call); }
  void rms_norm_backward(const NormBackward& call) override { norm_backward("rms_norm_backward", call); }
  void rotary_angles(View, View, double, View rotations) override { times_.arrays("rotary_angles", {rotations}); }
  void rotate_heads(const RotateHeads& call) override {
    times_.arrays("rotate_heads", {call.qkv, call.rotations, call.y});
  }
  void rotate_heads_backward(const RotateHeadsBackward& call) override {
    times_.arrays("rotate_heads_backward", {call.d_y, call.qkv, call.rotations, call.d_qkv});
  }
  void gated_forward(View gate_up, Activation, View h) override { times_.arrays("gated_forward", {gate_up, h}); }
  void gated_backward(const GatedBackward& call) override {
    times_.arrays("gated_backward", {call.d_h, call.gate_up, call.d_gate_up, call.h});
  }
  void gated_forward8(const GatedForward8& call) override {
    times_.arrays("gated_forward8", {call.gate_up, call.h.values, call.rounded.values});
  }
  void gated_backward8(const GatedBackward8& call) override {
    times_.arrays("gated_backward8", {call.d_h, call.gate_up.values, call.d_gate_up_rows.values,
                                      call.d_gate_up_columns.values, call.h_columns.values});
  }
  void linear_forward(const LinearForward& call) override {
    const View x = call.x8 ? call.x8.values : call.x, weight = call.weight8 ? call.weight8.values : call.weight;
    count_linear(x, weight);
    times_.product(ProductForm::forward, x, weight.shape[0]);
    const LinearEpilogue& epilogue = call.epilogue;
    if (epilogue.dropout.rate > 0 || epilogue.activation == Activation::relu)
      times_.arrays("activation", {call.y, call.y});
  }
  void linear_backward_input(const LinearBackwardInput& call) override {
    const View d_y = call.d_y8 ? call.d_y8.values : call.d_y;
    flops_ += linear_flops(d_y.shape[0], call.d_x.shape[1], d_y.shape[1]);
    times_.product(ProductForm::backward_input, {call.d_x.data, d_y.dtype, call.d_x.shape}, d_y.shape[1]);
    // The derivative of an activation has a kernel of its own.
    if (call.preactivation) times_.arrays("activation_backward", {call.d_x, call.preactivation, call.d_x, call.x});
  }
  void linear_backward_weight(View d_y, View x, bool, View d_weight) override {
    count_linear(d_y, d_weight);
    times_.product(ProductForm::backward_weight, x, d_y.shape[1]);
  }
  void linear_backward_weight8(const Float8Matrix& d_y, const Float8Matrix& x, bool, View) override {
    const View terms{x.values.data, x.values.dtype, {x.values.shape[1], x.values.shape[0]}};
    flops_ += linear_flops(terms.shape[0], terms.shape[1], d_y.values.shape[0]);
    times_.product(ProductForm::backward_weight, terms, d_y.values.shape[0]);
  }
  void quantize(const Quantize& call) override {
    times_.arrays("quantize", {call.x, call.rows.values, call.columns.values});
  }
  // The stream of collectives waits for these two. Their time is not booked: it is small, and kernels' times belong to
  // the compute stream.
  void largest_of_squares(Stream&, const Float8Shard&, View) override {}
  void quantize_shard(Stream&, const Float8Shard&, View, View, View) override {}
  void transpose8(const Float8Matrix& from, const Float8Matrix& to) override {
    times_.arrays("transpose8", {from.values, to.values});
  }
  void dequantize8(const Float8Matrix& from, bool, View x) override { times_.arrays("dequantize8", {from.values, x}); }
  void linear_backward_bias(std::span<const BiasGradient> gradients) override {
    for (const BiasGradient& gradient : gradients) {
      times_.arrays("linear_backward_bias", {gradient.d_y}, 1.5);
      column_sums(gradient.d_y.shape[1]);
    }
  }
  void dequantize(View groups, View values) override { times_.arrays("dequantize", {groups, values}); }
  void join_factors(std::span<const FactorPlace>, View joined) override { times_.arrays("join_factors", {joined}); }
  void split_factors(View joined, std::span<const FactorPlace>, bool) override {
    times_.arrays("split_factors", {joined, joined});
  }
  void dropout_backward(View d_y, const Dropout&, View d_x) override { times_.arrays("dropout_backward", {d_y, d_x}); }
  void attention_forward(const AttentionForward& call) override {
    times_.attention(call.shape, call.qkv, call.starts.shape[0] - 1, false);
  }
  void attention_backward(const AttentionBackward& call) override {
    TESSERA_ASSERT(on_cpu_ || call.workspace.num_elems() >=
                                  attention_workspace_elems(call.qkv.dtype, call.shape, call.qkv.shape[0]));
    times_.attention(call.shape, call.qkv, call.starts.shape[0] - 1, true);
  }
  void store_keys_values(const StoreKeysValues& call) override { times_.arrays("store_keys_values", {call.qkv}); }
  void attention_decode(const AttentionDecode& call) override {
    times_.arrays("attention_decode", {call.keys, call.values});
  }
  void softmax_cross_entropy(View logits, View, double, View) override {
    times_.arrays("softmax_cross_entropy", {logits, logits, logits});
  }
  void argmax_rows(View logits, View) override { times_.arrays("argmax_rows", {logits}); }
  void sample_rows(View logits, View, const Sampling&, View) override { times_.arrays("sample_rows", {logits}); }
  void adamw(const AdamWArrays& arrays, const AdamWStep& step) override { times_.adamw(arrays, step.writes); }
  bool can_split_adamw() const override { return on_cpu_; }

 private:
  static int64_t bytes_of_scratch(const CountedDevice& counted) {
    return counted.kind == DeviceKind::cuda ? kCudaWorkspaceBytes : counted.num_threads * kCpuScratchBytesPerThread;
  }
  void norm_forward(const char* name, const NormForward& call) {
    times_.arrays(name, {call.x, call.y, call.y8.values}, call.bias ? 1.35 : 1.1);
  }
  void norm_backward(const char* name, const NormBackward& call) {
    times_.arrays(name, {call.d_y, call.x, call.residual, call.d_x, call.y}, call.d_bias ? 1.35 : 1.1);
    column_sums(call.x.shape[1]);
  }
  // A second kernel adds up the partial sums of a gradient with a value per column.
  void column_sums(int64_t num_columns) {
    constexpr int64_t kPartialSums = 256;
    static std::byte somewhere;
    times_.arrays("column_sums", {View{&somewhere, DType::f32, {kPartialSums, num_columns}}});
  }

  const bool on_cpu_;
  Buffer scratch_;
  KernelTimes times_;
};

}  // namespace

std::unique_ptr<Kernels> make_counting_kernels(Device& device, bool allow_tf32) {
  return std::make_unique<CountingKernels>(device, allow_tf32);
}

}  // namespace tessera
