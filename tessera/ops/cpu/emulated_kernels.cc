#include "tessera/ops/cpu/emulated_kernels.h"

#include <array>
#include <initializer_list>
#include <utility>

namespace tessera {
namespace {

bool is_16_bit(View view) {
  return view && (view.dtype == DType::bf16 || view.dtype == DType::f16);
}

int64_t wide_bytes(View view) {
  const int64_t bytes = view.num_elems() * static_cast<int64_t>(sizeof(float));
  return (bytes + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
}

class EmulatedKernels final : public Kernels {
 public:
  EmulatedKernels(Device& device, std::unique_ptr<Kernels> wide) : device_(device), wide_(std::move(wide)) {}

  int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void reserve_scratch(int64_t bytes) override {
    if (bytes <= scratch_.bytes()) return;
    scratch_ = {};  // frees the old scratch before allocating the larger one
    scratch_ = device_.allocate(bytes, Category::workspace);
  }

  // ---- calls without Widened, because `wide_` accepts 16-bit views in them
  void fill(View x, double value) override { wide_->fill(x, value); }
  void convert(View from, View to) override { wide_->convert(from, to); }
  void join(View narrow, View rest, View x) override { wide_->join(narrow, rest, x); }
  void fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    wide_->fill_normal(x, mean, std, seed, stream, first_elem);
  }
  void fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    wide_->fill_uniform(x, low, high, seed, stream, first_elem);
  }
  void add_sums_of_squares(std::span<const View> arrays, View sums) override { wide_->add_sums_of_squares(arrays, sums); }
  void adamw(View parameters, View rest, View gradients, View m, View v, const AdamWStep& step) override {
    wide_->adamw(parameters, rest, gradients, m, v, step);
  }
  bool can_split_adamw() const override { return wide_->can_split_adamw(); }
  void gather_rows(View x, View rows, View y) override { wide_->gather_rows(x, rows, y); }
  void scatter_rows(View x, View rows, View y) override { wide_->scatter_rows(x, rows, y); }

  // ---- all other calls: Widened replaces their 16-bit views
  void add(View x, View sum) override {
    const Widened call(*this, {}, {}, {&sum});  // wide_->add() accepts x of any type
    wide_->add(x, sum);
    call.round();
  }
  void embedding_backward(View ids, View d_y, View d_weight) override {
    const Widened call(*this, {&d_y}, {}, {&d_weight});
    wide_->embedding_backward(ids, d_y, d_weight);
    call.round();
  }

  void layer_norm_forward(View x, View weight, View bias, double epsilon, View y, View stats) override {
    const Widened call(*this, {&x, &weight, &bias}, {&y});
    wide_->layer_norm_forward(x, weight, bias, epsilon, y, stats);
    call.round();
  }
  void layer_norm_backward(View d_y, View x, View weight, View bias, View stats, View residual, View d_x, View d_weight,
                           View d_bias, View y) override {
    const Widened call(*this, {&d_y, &x, &weight, &bias, &residual}, {&d_x, &y}, {&d_weight, &d_bias});
    wide_->layer_norm_backward(d_y, x, weight, bias, stats, residual, d_x, d_weight, d_bias, y);
    call.round();
  }

  void rms_norm_forward(View x, View weight, double epsilon, View y, View rstd) override {
    const Widened call(*this, {&x, &weight}, {&y});
    wide_->rms_norm_forward(x, weight, epsilon, y, rstd);
    call.round();
  }
  void rms_norm_backward(View d_y, View x, View weight, View rstd, View residual, View d_x, View d_weight,
                         View y) override {
    const Widened call(*this, {&d_y, &x, &weight, &residual}, {&d_x, &y}, {&d_weight});
    wide_->rms_norm_backward(d_y, x, weight, rstd, residual, d_x, d_weight, y);
    call.round();
  }

  // Has no 16-bit views: rotations are f32 or f64.
  void rotary_angles(View positions, View frequencies, double scale, View rotations) override {
    wide_->rotary_angles(positions, frequencies, scale, rotations);
  }
  void rotate_heads(View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms, View y) override {
    HeadNorms wide = norms;
    const Widened call(*this, {&qkv, &wide.query_weight, &wide.key_weight}, {&y});
    wide_->rotate_heads(qkv, rotations, shape, wide, y);
    call.round();
  }
  void rotate_heads_backward(View d_y, View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms,
                             View d_qkv, View d_query_weight, View d_key_weight) override {
    HeadNorms wide = norms;
    const Widened call(*this, {&d_y, &qkv, &wide.query_weight, &wide.key_weight}, {&d_qkv},
                       {&d_query_weight, &d_key_weight});
    wide_->rotate_heads_backward(d_y, qkv, rotations, shape, wide, d_qkv, d_query_weight, d_key_weight);
    call.round();
  }

  void gated_forward(View gate_up, Activation activation, View h) override {
    const Widened call(*this, {&gate_up}, {&h});
    wide_->gated_forward(gate_up, activation, h);
    call.round();
  }
  void gated_backward(View d_h, View gate_up, Activation activation, View d_gate_up, View h) override {
    const Widened call(*this, {&d_h, &gate_up}, {&d_gate_up, &h});
    wide_->gated_backward(d_h, gate_up, activation, d_gate_up, h);
    call.round();
  }

  void linear_forward(View x, View weight, View bias, const LinearEpilogue& epilogue, View preactivation,
                      View y) override {
    LinearEpilogue wide = epilogue;
    const Widened call(*this, {&x, &weight, &bias, &wide.residual}, {&preactivation, &y});
    wide_->linear_forward(x, weight, bias, wide, preactivation, y);
    call.round();
    flops_ = wide_->flops();
  }
  void linear_backward_input(View d_y, View weight, const LinearEpilogue& epilogue, View preactivation, View d_x,
                             View x) override {
    LinearEpilogue wide = epilogue;
    const Widened call(*this, {&d_y, &weight, &wide.residual, &preactivation}, {&d_x, &x});
    wide_->linear_backward_input(d_y, weight, wide, preactivation, d_x, x);
    call.round();
    flops_ = wide_->flops();
  }
  void linear_backward_weight(View d_y, View x, bool fresh, View d_weight) override {
    const Widened call(*this, {&d_y, &x}, {}, {&d_weight});
    wide_->linear_backward_weight(d_y, x, fresh, d_weight);
    call.round();
    flops_ = wide_->flops();
  }
  void linear_backward_bias(std::span<const BiasGradient> gradients) override {
    for (BiasGradient one : gradients) {
      const Widened call(*this, {&one.d_y}, {}, {&one.d_bias});
      wide_->linear_backward_bias({&one, 1});
      call.round();
    }
  }
  void dropout_backward(View d_y, const Dropout& dropout, View d_x) override {
    const Widened call(*this, {&d_y}, {&d_x});
    wide_->dropout_backward(d_y, dropout, d_x);
    call.round();
  }

  void attention_forward(View qkv, View starts, const AttentionShape& shape, const Dropout& dropout, View o,
                         View log_sum_exp) override {
    const Widened call(*this, {&qkv}, {&o});
    wide_->attention_forward(qkv, starts, shape, dropout, o, log_sum_exp);
    call.round();
  }
  void attention_backward(View qkv, View o, View log_sum_exp, View d_o, View starts, const AttentionShape& shape,
                          const Dropout& dropout, View d_qkv, View) override {
    const Widened call(*this, {&qkv, &o, &d_o}, {&d_qkv});
    wide_->attention_backward(qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv, {});
    call.round();
  }
  void store_keys_values(View qkv, View starts, const AttentionShape& shape, View cache_starts, View keys,
                         View values) override {
    const Widened call(*this, {&qkv}, {}, {&keys, &values});
    wide_->store_keys_values(qkv, starts, shape, cache_starts, keys, values);
    call.round();
  }
  void attention_decode(View qkv, const AttentionShape& shape, View cache_starts, View lengths, View keys, View values,
                        View o) override {
    const Widened call(*this, {&qkv}, {&o}, {&keys, &values});
    wide_->attention_decode(qkv, shape, cache_starts, lengths, keys, values, o);
    call.round();
  }

  void softmax_cross_entropy(View logits, View targets, double d_scale, View loss) override {
    const Widened call(*this, {}, {}, {&logits});
    wide_->softmax_cross_entropy(logits, targets, d_scale, loss);
    if (d_scale != 0) call.round();  // otherwise the contents of `logits` are unspecified afterwards
  }
  void argmax_rows(View logits, View ids) override {
    const Widened call(*this, {&logits});
    wide_->argmax_rows(logits, ids);
  }
  void sample_rows(View logits, View draws, const Sampling& sampling, View ids) override {
    const Widened call(*this, {&logits});
    wide_->sample_rows(logits, draws, sampling, ids);
  }

 private:
  using Views = std::initializer_list<View*>;

  // Replaces a call's 16-bit views by f32 views in scratch. The call reads `inputs`, writes `results`, and both reads
  // and writes `updated`. Copies the contents of `inputs` and `updated` into their f32 views. The f32 views of
  // `results` are not initialized. The next call uses the same scratch.
  class Widened {
   public:
    Widened(EmulatedKernels& kernels, Views inputs, Views results = {}, Views updated = {}) : wide_(*kernels.wide_) {
      int64_t bytes = 0;
      for (const Views& views : {inputs, results, updated}) {
        for (const View* view : views) bytes += is_16_bit(*view) ? wide_bytes(*view) : 0;
      }
      kernels.reserve_scratch(bytes);
      next_ = kernels.scratch_.data();
      for (View* view : inputs) replace(view, true, false);
      for (View* view : results) replace(view, false, true);
      for (View* view : updated) replace(view, true, true);
    }

    // Rounds the results and the updated arrays into their 16-bit views.
    void round() const {
      for (size_t i = 0; i < num_results_; ++i) wide_.convert(results_[i].wide, results_[i].rounded);
    }

   private:
    struct Result {
      View wide, rounded;
    };

    void replace(View* view, bool is_read, bool is_written) {
      if (!is_16_bit(*view)) return;
      const View narrow = *view;
      *view = {next_, DType::f32, narrow.shape};
      next_ += wide_bytes(narrow);
      if (is_read) wide_.convert(narrow, *view);
      if (!is_written) return;
      TESSERA_ASSERT(num_results_ < results_.size());
      results_[num_results_++] = {*view, narrow};
    }

    Kernels& wide_;
    std::byte* next_;
    std::array<Result, 4> results_;
    size_t num_results_ = 0;
  };

  Device& device_;
  const std::unique_ptr<Kernels> wide_;
  Buffer scratch_;
};

}  // namespace

std::unique_ptr<Kernels> make_emulated_kernels(Device& device, std::unique_ptr<Kernels> wide) {
  return std::make_unique<EmulatedKernels>(device, std::move(wide));
}

}  // namespace tessera
