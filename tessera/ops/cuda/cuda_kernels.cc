#include "tessera/ops/cuda/cuda_kernels.h"

#include "tessera/ops/cuda/arrays.h"
#include "tessera/ops/cuda/attention.h"
#include "tessera/ops/cuda/gated.h"
#include "tessera/ops/cuda/linear.h"
#include "tessera/ops/cuda/norm.h"
#include "tessera/ops/cuda/rotary.h"

namespace tessera {
namespace {

static_assert(cuda::kScratchBytes + cuda::kProductWorkspaceBytes == kCudaWorkspaceBytes);

class CudaKernels final : public Kernels {
 public:
  CudaKernels(Device& device, bool allow_tf32)
      : workspace_(device.allocate(kCudaWorkspaceBytes, Category::workspace)),
        context_{static_cast<cudaStream_t>(device.compute_stream().native()),
                 workspace_.data(),
                 attribute(cudaDevAttrMultiProcessorCount),
                 cuda::code_major_for_this_gpu(),
                 attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                 cuda::code_major_for_this_gpu() == 9 && attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
                     attribute(cudaDevAttrComputeCapabilityMinor) == 0},
        products_(context_, workspace_.data() + cuda::kScratchBytes, allow_tf32) {}

  void fill(View x, double value) override { cuda::fill(context_, x, value); }
  void join(View narrow, View rest, View x) override { cuda::join(context_, narrow, rest, x); }
  void convert(View from, View to) override { cuda::convert(context_, from, to); }
  void fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    cuda::fill_normal(context_, x, mean, std, seed, stream, first_elem);
  }
  void fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    cuda::fill_uniform(context_, x, low, high, seed, stream, first_elem);
  }
  void add(View x, View sum) override { cuda::add(context_, x, sum); }
  void add_sums_of_squares(std::span<const View> arrays, View sums) override {
    cuda::add_sums_of_squares(context_, arrays, sums);
  }

  void embedding_backward(View ids, View d_y, View d_weight) override {
    cuda::embedding_backward(context_, ids, d_y, d_weight);
  }
  void gather_rows(View x, View rows, View y) override { cuda::gather_rows(context_, x, rows, y); }
  void scatter_rows(View x, View rows, View y) override { cuda::scatter_rows(context_, x, rows, y); }

  void layer_norm_forward(View x, View weight, View bias, double epsilon, View y, View stats) override {
    cuda::layer_norm_forward(context_, x, weight, bias, epsilon, y, stats);
  }
  void layer_norm_backward(View d_y, View x, View weight, View bias, View stats, View residual, View d_x, View d_weight,
                           View d_bias, View y) override {
    cuda::layer_norm_backward(context_, d_y, x, weight, bias, stats, residual, d_x, d_weight, d_bias, y);
  }

  void rms_norm_forward(View x, View weight, double epsilon, View y, View rstd) override {
    cuda::rms_norm_forward(context_, x, weight, epsilon, y, rstd);
  }
  void rms_norm_backward(View d_y, View x, View weight, View rstd, View residual, View d_x, View d_weight,
                         View y) override {
    cuda::rms_norm_backward(context_, d_y, x, weight, rstd, residual, d_x, d_weight, y);
  }

  void rotary_angles(View positions, View frequencies, double scale, View rotations) override {
    cuda::rotary_angles(context_, positions, frequencies, scale, rotations);
  }
  void rotate_heads(View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms, View y) override {
    cuda::rotate_heads(context_, qkv, rotations, shape, norms, y);
  }
  void rotate_heads_backward(View d_y, View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms,
                             View d_qkv, View d_query_weight, View d_key_weight) override {
    cuda::rotate_heads_backward(context_, d_y, qkv, rotations, shape, norms, d_qkv, d_query_weight, d_key_weight);
  }

  void gated_forward(View gate_up, Activation activation, View h) override {
    cuda::gated_forward(context_, gate_up, activation, h);
  }
  void gated_backward(View d_h, View gate_up, Activation activation, View d_gate_up, View h) override {
    cuda::gated_backward(context_, d_h, gate_up, activation, d_gate_up, h);
  }

  void linear_forward(View x, View weight, View bias, const LinearEpilogue& epilogue, View preactivation,
                      View y) override {
    cuda::linear_forward(context_, products_, x, weight, bias, epilogue, preactivation, y);
    count_linear(x, weight);
  }
  void linear_backward_input(View d_y, View weight, const LinearEpilogue& epilogue, View preactivation, View d_x,
                             View x) override {
    cuda::linear_backward_input(context_, products_, d_y, weight, epilogue, preactivation, d_x, x);
    count_linear(d_y, weight);
  }
  void linear_backward_weight(View d_y, View x, bool fresh, View d_weight) override {
    cuda::linear_backward_weight(products_, d_y, x, fresh, d_weight);
    count_linear(d_y, d_weight);
  }
  void linear_backward_bias(std::span<const BiasGradient> gradients) override {
    cuda::linear_backward_bias(context_, gradients);
  }
  void dropout_backward(View d_y, const Dropout& dropout, View d_x) override {
    LinearEpilogue epilogue;
    epilogue.dropout = dropout;
    cuda::finish_backward(context_, d_y, epilogue, {}, d_x, {});
  }

  void attention_forward(View qkv, View starts, const AttentionShape& shape, const Dropout& dropout, View o,
                         View log_sum_exp) override {
    cuda::attention_forward(context_, qkv, starts, shape, dropout, o, log_sum_exp);
  }
  void attention_backward(View qkv, View o, View log_sum_exp, View d_o, View starts, const AttentionShape& shape,
                          const Dropout& dropout, View d_qkv, View workspace) override {
    cuda::attention_backward(context_, qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv, workspace);
  }
  void store_keys_values(View qkv, View starts, const AttentionShape& shape, View cache_starts, View keys,
                         View values) override {
    cuda::store_keys_values(context_, qkv, starts, shape, cache_starts, keys, values);
  }
  void attention_decode(View qkv, const AttentionShape& shape, View cache_starts, View lengths, View keys, View values,
                        View o) override {
    cuda::attention_decode(context_, qkv, shape, cache_starts, lengths, keys, values, o);
  }

  void softmax_cross_entropy(View logits, View targets, double d_scale, View loss) override {
    cuda::softmax_cross_entropy(context_, logits, targets, d_scale, loss);
  }
  void argmax_rows(View logits, View ids) override { cuda::argmax_rows(context_, logits, ids); }
  void sample_rows(View logits, View draws, const Sampling& sampling, View ids) override {
    cuda::sample_rows(context_, logits, draws, sampling, ids);
  }
  void adamw(View parameters, View rest, View gradients, View m, View v, const AdamWStep& step) override {
    cuda::adamw(context_, parameters, rest, gradients, m, v, step);
  }
  void set_tuning(bool on) override { products_.set_tuning(on); }

 private:
  static int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    cuda::check(cudaGetDevice(&device), "cudaGetDevice");
    cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return value;
  }

  Buffer workspace_;
  const cuda::Context context_;
  cuda::Products products_;
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(Device& device, bool allow_tf32) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cuda);
  return std::make_unique<CudaKernels>(device, allow_tf32);
}

}  // namespace tessera
