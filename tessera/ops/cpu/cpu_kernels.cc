#include "tessera/ops/cpu/cpu_kernels.h"

#include "tessera/ops/cpu/attention.h"
#include "tessera/ops/cpu/elementwise.h"
#include "tessera/ops/cpu/embedding.h"
#include "tessera/ops/cpu/gated.h"
#include "tessera/ops/cpu/linear.h"
#include "tessera/ops/cpu/loss.h"
#include "tessera/ops/cpu/norm.h"
#include "tessera/ops/cpu/optimizer.h"
#include "tessera/ops/cpu/product.h"
#include "tessera/ops/cpu/rms_norm.h"
#include "tessera/ops/cpu/rotary.h"
#include "tessera/ops/cpu/sampling.h"
#include "tessera/ops/cpu/team.h"

namespace tessera {
namespace {

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(Device& device) : team_(device) { cpu::use_one_blas_thread(); }

  void fill(View x, double value) override { cpu::fill(team_, x, value); }
  void join(View narrow, View rest, View x) override { cpu::join(team_, narrow, rest, x); }
  void convert(View from, View to) override { cpu::convert(team_, from, to); }
  void fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    cpu::fill_normal(team_, x, mean, std, seed, stream, first_elem);
  }
  void fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    cpu::fill_uniform(team_, x, low, high, seed, stream, first_elem);
  }
  void add(View x, View sum) override { cpu::add(team_, x, sum); }
  void add_sums_of_squares(std::span<const View> arrays, View sums) override {
    for (int64_t i = 0; i < std::ssize(arrays); ++i) {
      cpu::add_sum_of_squares(team_, arrays[static_cast<size_t>(i)], sums.rows(i, i + 1));
    }
  }

  void embedding_backward(View ids, View d_y, View d_weight) override {
    cpu::embedding_backward(team_, ids, d_y, d_weight);
  }
  void gather_rows(View x, View rows, View y) override { cpu::gather_rows(team_, x, rows, y); }
  void scatter_rows(View x, View rows, View y) override { cpu::scatter_rows(team_, x, rows, y); }

  void layer_norm_forward(View x, View weight, View bias, double epsilon, View y, View stats) override {
    cpu::layer_norm_forward(team_, x, weight, bias, epsilon, y, stats);
  }
  void layer_norm_backward(View d_y, View x, View weight, View bias, View stats, View residual, View d_x, View d_weight,
                           View d_bias, View y) override {
    cpu::layer_norm_backward(team_, d_y, x, weight, bias, stats, residual, d_x, d_weight, d_bias, y);
  }

  void rms_norm_forward(View x, View weight, double epsilon, View y, View rstd) override {
    cpu::rms_norm_forward(team_, x, weight, epsilon, y, rstd);
  }
  void rms_norm_backward(View d_y, View x, View weight, View rstd, View residual, View d_x, View d_weight,
                         View y) override {
    cpu::rms_norm_backward(team_, d_y, x, weight, rstd, residual, d_x, d_weight, y);
  }
  void rotary_angles(View positions, View frequencies, double scale, View rotations) override {
    cpu::rotary_angles(team_, positions, frequencies, scale, rotations);
  }
  void rotate_heads(View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms, View y) override {
    cpu::rotate_heads(team_, qkv, rotations, shape, norms, y);
  }
  void rotate_heads_backward(View d_y, View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms,
                             View d_qkv, View d_query_weight, View d_key_weight) override {
    cpu::rotate_heads_backward(team_, d_y, qkv, rotations, shape, norms, d_qkv, d_query_weight, d_key_weight);
  }
  void gated_forward(View gate_up, Activation activation, View h) override {
    cpu::gated_forward(team_, gate_up, activation, h);
  }
  void gated_backward(View d_h, View gate_up, Activation activation, View d_gate_up, View h) override {
    cpu::gated_backward(team_, d_h, gate_up, activation, d_gate_up, h);
  }

  void linear_forward(View x, View weight, View bias, const LinearEpilogue& epilogue, View preactivation,
                      View y) override {
    cpu::linear_forward(team_, x, weight, bias, epilogue, preactivation, y);
    count_linear(x, weight);
  }
  void linear_backward_input(View d_y, View weight, const LinearEpilogue& epilogue, View preactivation, View d_x,
                             View x) override {
    cpu::linear_backward_input(team_, d_y, weight, epilogue, preactivation, d_x, x);
    count_linear(d_y, weight);
  }
  void linear_backward_weight(View d_y, View x, bool fresh, View d_weight) override {
    cpu::linear_backward_weight(team_, d_y, x, fresh, d_weight);
    count_linear(d_y, d_weight);
  }
  void linear_backward_bias(std::span<const BiasGradient> gradients) override {
    cpu::linear_backward_bias(team_, gradients);
  }
  void dropout_backward(View d_y, const Dropout& dropout, View d_x) override {
    cpu::dropout_backward(team_, d_y, dropout, d_x);
  }

  void attention_forward(View qkv, View starts, const AttentionShape& shape, const Dropout& dropout, View o,
                         View log_sum_exp) override {
    cpu::attention_forward(team_, attention_tasks_, qkv, starts, shape, dropout, o, log_sum_exp);
  }
  void attention_backward(View qkv, View o, View log_sum_exp, View d_o, View starts, const AttentionShape& shape,
                          const Dropout& dropout, View d_qkv, View) override {
    cpu::attention_backward(team_, attention_tasks_, qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv);
  }
  void store_keys_values(View qkv, View starts, const AttentionShape& shape, View cache_starts, View keys,
                         View values) override {
    cpu::store_keys_values(team_, qkv, starts, shape, cache_starts, keys, values);
  }
  void attention_decode(View qkv, const AttentionShape& shape, View cache_starts, View lengths, View keys, View values,
                        View o) override {
    cpu::attention_decode(team_, qkv, shape, cache_starts, lengths, keys, values, o);
  }

  void softmax_cross_entropy(View logits, View targets, double d_scale, View loss) override {
    cpu::softmax_cross_entropy(team_, logits, targets, d_scale, loss);
  }
  void argmax_rows(View logits, View ids) override { cpu::argmax_rows(team_, logits, ids); }
  void sample_rows(View logits, View draws, const Sampling& sampling, View ids) override {
    cpu::sample_rows(team_, logits, draws, sampling, ids);
  }
  void adamw(View parameters, View rest, View gradients, View m, View v, const AdamWStep& step) override {
    cpu::adamw(team_, parameters, rest, gradients, m, v, step);
  }
  bool can_split_adamw() const override { return true; }

 private:
  cpu::Team team_;
  cpu::AttentionTasks attention_tasks_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(Device& device) {
  return std::make_unique<CpuKernels>(device);
}

}  // namespace tessera
