#include <array>
#include <initializer_list>
#include <utility>

#include "tessera/base/math.h"
#include "tessera/ops/back_ends.h"

namespace tessera {
namespace {

bool is_16_bit(View view) {
  return view && (view.dtype == DType::bf16 || view.dtype == DType::f16);
}

int64_t wide_bytes(const Shape& shape) {
  return round_up(shape.num_elems() * static_cast<int64_t>(sizeof(float)), Device::kAlignment);
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
  void dequantize(View groups, View values) override { wide_->dequantize(groups, values); }
  void largest_of_squares(Stream& stream, const Float8Shard& shard, View largest) override {
    wide_->largest_of_squares(stream, shard, largest);
  }
  void quantize_shard(Stream& stream, const Float8Shard& shard, View largest, View scales, View codes) override {
    wide_->quantize_shard(stream, shard, largest, scales, codes);
  }
  void transpose8(const Float8Matrix& from, const Float8Matrix& to) override { wide_->transpose8(from, to); }
  void dequantize8(const Float8Matrix& from, bool transposed, View x) override {
    wide_->dequantize8(from, transposed, x);
  }
  void fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    wide_->fill_normal(x, mean, std, seed, stream, first_elem);
  }
  void fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) override {
    wide_->fill_uniform(x, low, high, seed, stream, first_elem);
  }
  void add_sums_of_squares(std::span<const View> arrays, View sums) override {
    wide_->add_sums_of_squares(arrays, sums);
  }
  void adamw(const AdamWArrays& arrays, const AdamWStep& step) override { wide_->adamw(arrays, step); }
  bool can_split_adamw() const override { return wide_->can_split_adamw(); }
  void join_factors(std::span<const FactorPlace> factors, View joined) override {
    wide_->join_factors(factors, joined);
  }
  void split_factors(View joined, std::span<const FactorPlace> factors, bool fresh) override {
    wide_->split_factors(joined, factors, fresh);
  }
  void gather_rows(View x, View rows, View y) override { wide_->gather_rows(x, rows, y); }
  void scatter_rows(View x, View rows, View y) override { wide_->scatter_rows(x, rows, y); }

  // ---- all other calls: Widened replaces their 16-bit views
  void add(View x, View sum) override {
    const Widened views(*this, {}, {}, {&sum});  // wide_->add() accepts x of any type
    wide_->add(x, sum);
    views.round();
  }
  void embedding_backward(View ids, View d_y, View d_weight) override {
    const Widened views(*this, {&d_y}, {}, {&d_weight});
    wide_->embedding_backward(ids, d_y, d_weight);
    views.round();
  }

  void layer_norm_forward(const NormForward& call) override {
    NormForward wide = call;
    wide.y8 = {};
    const Widened views(*this, {&wide.x, &wide.weight, &wide.bias}, {&wide.y}, {}, {},
                        {{&wide.y, call.x, call.y8, {}}});
    wide_->layer_norm_forward(wide);
    views.round();
  }
  void layer_norm_backward(const NormBackward& call) override {
    NormBackward wide = call;
    const Widened views(*this, {&wide.d_y, &wide.x, &wide.weight, &wide.bias, &wide.residual}, {&wide.d_x, &wide.y},
                        {&wide.d_weight, &wide.d_bias});
    wide_->layer_norm_backward(wide);
    views.round();
  }

  void rms_norm_forward(const NormForward& call) override {
    NormForward wide = call;
    wide.y8 = {};
    const Widened views(*this, {&wide.x, &wide.weight}, {&wide.y}, {}, {}, {{&wide.y, call.x, call.y8, {}}});
    wide_->rms_norm_forward(wide);
    views.round();
  }
  void rms_norm_backward(const NormBackward& call) override {
    NormBackward wide = call;
    const Widened views(*this, {&wide.d_y, &wide.x, &wide.weight, &wide.residual}, {&wide.d_x, &wide.y},
                        {&wide.d_weight});
    wide_->rms_norm_backward(wide);
    views.round();
  }

  // Has no 16-bit views: rotations are f32 or f64.
  void rotary_angles(View positions, View frequencies, double scale, View rotations) override {
    wide_->rotary_angles(positions, frequencies, scale, rotations);
  }
  void rotate_heads(const RotateHeads& call) override {
    RotateHeads wide = call;
    const Widened views(*this, {&wide.qkv, &wide.norms.query_weight, &wide.norms.key_weight}, {&wide.y});
    wide_->rotate_heads(wide);
    views.round();
  }
  void rotate_heads_backward(const RotateHeadsBackward& call) override {
    RotateHeadsBackward wide = call;
    const Widened views(*this, {&wide.d_y, &wide.qkv, &wide.norms.query_weight, &wide.norms.key_weight}, {&wide.d_qkv},
                        {&wide.d_query_weight, &wide.d_key_weight});
    wide_->rotate_heads_backward(wide);
    views.round();
  }

  void gated_forward(View gate_up, Activation activation, View h) override {
    const Widened views(*this, {&gate_up}, {&h});
    wide_->gated_forward(gate_up, activation, h);
    views.round();
  }
  void gated_backward(const GatedBackward& call) override {
    GatedBackward wide = call;
    const Widened views(*this, {&wide.d_h, &wide.gate_up}, {&wide.d_gate_up, &wide.h});
    wide_->gated_backward(wide);
    views.round();
  }

  void quantize(const Quantize& call) override {
    if (!call.norm.weight) return wide_->quantize(call);
    AppliedNorm norm = call.norm;
    View x = call.x, y;
    const Widened views(*this, {&x, &norm.weight, &norm.bias}, {}, {}, {}, {{&y, call.x, call.rows, call.columns}});
    const NormForward again{.x = x, .weight = norm.weight, .bias = norm.bias, .epsilon = norm.epsilon, .y = y};
    norm.bias ? wide_->layer_norm_forward(again) : wide_->rms_norm_forward(again);
    views.round();
  }
  void gated_forward8(const GatedForward8& call) override {
    if (call.rounded) wide_->quantize({.x = call.gate_up, .rows = call.rounded});
    View gate_up = call.gate_up, h;
    const View like{nullptr, gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2}};
    const Widened views(*this, {&gate_up}, {}, {}, {}, {{&h, like, call.h, {}}});
    wide_->gated_forward(gate_up, call.activation, h);
    views.round();
  }
  void gated_backward8(const GatedBackward8& call) override {
    const View like{nullptr, call.d_h.dtype, call.gate_up.values.shape};
    View d_h = call.d_h, gate_up, d_gate_up, h;
    const Widened views(
        *this, {&d_h}, {}, {}, {{call.gate_up, Form::as_is, &gate_up}},
        {{&d_gate_up, like, call.d_gate_up_rows, call.d_gate_up_columns}, {&h, call.d_h, {}, call.h_columns}});
    wide_->gated_backward(
        {.d_h = d_h, .gate_up = gate_up, .activation = call.activation, .d_gate_up = d_gate_up, .h = h});
    views.round();
  }

  void linear_forward(const LinearForward& call) override {
    LinearForward wide = call;
    wide.x8 = wide.weight8 = {};
    const Widened views(*this, {&wide.x, &wide.weight, &wide.bias, &wide.added, &wide.epilogue.residual},
                        {&wide.preactivation, &wide.y}, {},
                        {{call.x8, Form::as_is, &wide.x}, {call.weight8, Form::as_is, &wide.weight}});
    wide_->linear_forward(wide);
    views.round();
    flops_ = wide_->flops();
  }
  void linear_backward_input(const LinearBackwardInput& call) override {
    LinearBackwardInput wide = call;
    wide.d_y8 = wide.weight8 = {};
    const Widened views(*this, {&wide.d_y, &wide.weight, &wide.added, &wide.epilogue.residual, &wide.preactivation},
                        {&wide.d_x, &wide.x}, {},
                        {{call.d_y8, Form::as_is, &wide.d_y}, {call.weight8, Form::transposed, &wide.weight}});
    wide_->linear_backward_input(wide);
    views.round();
    flops_ = wide_->flops();
  }
  void linear_backward_weight(View d_y, View x, bool fresh, View d_weight) override {
    const Widened views(*this, {&d_y, &x}, {}, {&d_weight});
    wide_->linear_backward_weight(d_y, x, fresh, d_weight);
    views.round();
    flops_ = wide_->flops();
  }
  void linear_backward_weight8(const Float8Matrix& d_y, const Float8Matrix& x, bool fresh, View d_weight) override {
    View wide_d_y, wide_x;
    const Widened views(*this, {}, {}, {&d_weight},
                        {{d_y, Form::transposed, &wide_d_y}, {x, Form::transposed, &wide_x}});
    wide_->linear_backward_weight(wide_d_y, wide_x, fresh, d_weight);
    views.round();
    flops_ = wide_->flops();
  }
  void linear_backward_bias(std::span<const BiasGradient> gradients) override {
    for (BiasGradient one : gradients) {
      const Widened views(*this, {&one.d_y}, {}, {&one.d_bias});
      wide_->linear_backward_bias({&one, 1});
      views.round();
    }
  }
  void dropout_backward(View d_y, const Dropout& dropout, View d_x) override {
    const Widened views(*this, {&d_y}, {&d_x});
    wide_->dropout_backward(d_y, dropout, d_x);
    views.round();
  }

  void attention_forward(const AttentionForward& call) override {
    AttentionForward wide = call;
    const Widened views(*this, {&wide.qkv}, {&wide.o});
    wide_->attention_forward(wide);
    views.round();
  }
  void attention_backward(const AttentionBackward& call) override {
    AttentionBackward wide = call;
    const Widened views(*this, {&wide.qkv, &wide.o, &wide.d_o}, {&wide.d_qkv});
    wide_->attention_backward(wide);
    views.round();
  }
  void store_keys_values(const StoreKeysValues& call) override {
    StoreKeysValues wide = call;
    const Widened views(*this, {&wide.qkv}, {}, {&wide.keys, &wide.values});
    wide_->store_keys_values(wide);
    views.round();
  }
  void attention_decode(const AttentionDecode& call) override {
    AttentionDecode wide = call;
    const Widened views(*this, {&wide.qkv}, {&wide.o}, {&wide.keys, &wide.values});
    wide_->attention_decode(wide);
    views.round();
  }

  void softmax_cross_entropy(View logits, View targets, double d_scale, View loss) override {
    const Widened views(*this, {}, {}, {&logits});
    wide_->softmax_cross_entropy(logits, targets, d_scale, loss);
    if (d_scale != 0) views.round();  // otherwise the contents of `logits` are unspecified afterwards
  }
  void argmax_rows(View logits, View ids) override {
    const Widened views(*this, {&logits});
    wide_->argmax_rows(logits, ids);
  }
  void sample_rows(View logits, View draws, const Sampling& sampling, View ids) override {
    const Widened views(*this, {&logits});
    wide_->sample_rows(logits, draws, sampling, ids);
  }

 private:
  using Views = std::initializer_list<View*>;
  enum class Form { as_is, transposed };
  // An 8-bit matrix, which a call reads as the f32 view `to`, unless it is empty.
  struct Expanded {
    const Float8Matrix& from;
    Form form;
    View* to;

    Shape shape() const {
      const Shape& shape = from.values.shape;
      return form == Form::as_is ? shape : Shape{shape[1], shape[0]};
    }
  };

  // A result with the shape of `like`, which the call writes as the new f32 view `to`, unless both matrices are empty.
  // It is rounded to the type of `like`, and then to 8 bits.
  struct Rounded {
    View* to;
    View like;
    Float8Matrix rows, columns;

    explicit operator bool() const { return rows || columns; }
  };

  // Replaces a call's 16-bit views by f32 views in scratch. The call reads `inputs`, writes `results`, and both reads
  // and writes `updated`. Copies the contents of `inputs` and `updated` into their f32 views. The f32 views of
  // `results` are not initialized. The next call uses the same scratch.
  class Widened {
   public:
    Widened(EmulatedKernels& kernels, Views inputs, Views results = {}, Views updated = {},
            std::initializer_list<Expanded> expanded = {}, std::initializer_list<Rounded> rounded = {})
        : wide_(*kernels.wide_) {
      int64_t bytes = 0;
      for (const Rounded& one : rounded) bytes += one ? 2 * wide_bytes(one.like.shape) : 0;
      for (const Expanded& one : expanded) bytes += one.from ? wide_bytes(one.from.values.shape) : 0;
      for (const Views& views : {inputs, results, updated}) {
        for (const View* view : views) bytes += is_16_bit(*view) ? wide_bytes(view->shape) : 0;
      }
      kernels.reserve_scratch(bytes);
      next_ = kernels.scratch_.data();
      for (const Expanded& one : expanded) {
        if (!one.from) continue;
        *one.to = {next_, DType::f32, one.shape()};
        next_ += wide_bytes(one.from.values.shape);
        wide_.dequantize8(one.from, one.form == Form::transposed, *one.to);
      }
      for (const Rounded& one : rounded) {
        if (!one) continue;
        TESSERA_ASSERT(num_rounded_ < rounded_.size());
        *one.to = {next_, DType::f32, one.like.shape};
        rounded_[num_rounded_++] = {one, *one.to, {next_ + wide_bytes(one.like.shape), one.like.dtype, one.like.shape}};
        next_ += 2 * wide_bytes(one.like.shape);
      }
      for (View* view : inputs) replace(view, true, false);
      for (View* view : results) replace(view, false, true);
      for (View* view : updated) replace(view, true, true);
    }

    // Rounds the results and the updated arrays into their 16-bit views.
    void round() const {
      for (size_t i = 0; i < num_results_; ++i) wide_.convert(results_[i].wide, results_[i].rounded);
      for (size_t i = 0; i < num_rounded_; ++i) {
        const auto& [what, wide, narrow] = rounded_[i];
        wide_.convert(wide, narrow);
        wide_.quantize({.x = narrow, .rows = what.rows, .columns = what.columns});
      }
    }

   private:
    struct Result {
      View wide, rounded;
    };
    struct RoundedResult {
      Rounded what;
      View wide, narrow;
    };

    void replace(View* view, bool is_read, bool is_written) {
      if (!is_16_bit(*view)) return;
      const View narrow = *view;
      *view = {next_, DType::f32, narrow.shape};
      next_ += wide_bytes(narrow.shape);
      if (is_read) wide_.convert(narrow, *view);
      if (!is_written) return;
      TESSERA_ASSERT(num_results_ < results_.size());
      results_[num_results_++] = {*view, narrow};
    }

    Kernels& wide_;
    std::byte* next_;
    std::array<Result, 4> results_;
    std::array<RoundedResult, 2> rounded_;
    size_t num_results_ = 0, num_rounded_ = 0;
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
