// Tests the CPU's kernels with bf16 and f16. The result of each kernel is compared with its result in double precision.
// Both calls get the same inputs, which are already rounded to 16 bits.
//
// A result may differ by one rounding to its type: u·|exact|, with u = 2^-8 (bf16), 2^-11 (f16) or 2^-24 (f32). The
// tolerance also has 2^-24 for each term of a sum, because sums are in f32 and the terms are about 1. The rounding of
// an f16 number below 2^-14 may change it by up to 2^-25, which can be more than u·|exact|. The 2^-24 of one term
// covers this too.
//
// The sizes are B sequences, N tokens, C channels, I input and O output channels, H heads, and V tokens in the
// vocabulary.
#include <array>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

double roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

// An array in one type and in double. Both start with equal values.
class Array {
 public:
  Array(DType dtype, Shape shape, std::vector<double> values)
      : dtype_(dtype), shape_(shape), bits_(values.size() * size_of(dtype)), exact_(values.size()) {
    EXPECT_EQ(static_cast<int64_t>(values.size()), shape.num_elems());
    convert(values.data(), DType::f64, bits_.data(), dtype, values.size());
    convert(bits_.data(), dtype, exact_.data(), DType::f64, values.size());
  }

  View narrow() { return {bits_.data(), dtype_, shape_}; }
  View exact() { return view_of(exact_.data(), shape_); }
  const std::vector<std::byte>& bits() const { return bits_; }
  // Makes the double values equal to the rounded values, so that the array can be an input of the next kernel.
  void agree() { convert(bits_.data(), dtype_, exact_.data(), DType::f64, exact_.size()); }

  // `num_terms`: the allowed error of f32 arithmetic, in units of 2^-24.
  void expect_close(double num_terms, const char* what) const {
    std::vector<double> actual(exact_.size());
    convert(bits_.data(), dtype_, actual.data(), DType::f64, actual.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      const double tolerance = roundoff(dtype_) * std::abs(exact_[i]) + 0x1p-24 * num_terms;
      ASSERT_LE(std::abs(actual[i] - exact_[i]), tolerance)
          << what << " [" << i << "]: " << actual[i] << " instead of " << exact_[i];
    }
  }

 private:
  DType dtype_;
  Shape shape_;
  std::vector<std::byte> bits_;
  std::vector<double> exact_;
};

// One side of the comparison: the tested type, or double. A call with an array returns its view in the type of this
// side.
struct Side {
  bool exact;
  View operator()(Array& array) const { return exact ? array.exact() : array.narrow(); }
};

class Halves : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t N = 9, C = 24, I = 24, O = 40, H = 3, V = 150, B = 2;

  Array random(Shape shape, uint64_t seed) { return {GetParam(), shape, random_values(shape.num_elems(), seed)}; }
  // An array for a kernel to overwrite. It holds NaN, so an element that is not written is visible.
  Array nothing(Shape shape) { return nothing(shape, GetParam()); }
  Array nothing(Shape shape, DType dtype) {
    return {dtype, shape, std::vector<double>(static_cast<size_t>(shape.num_elems()), NAN)};
  }
  static Array random_of(DType dtype, Shape shape, uint64_t seed) {
    return {dtype, shape, random_values(shape.num_elems(), seed)};
  }
  template <typename Call>
  void both(Call&& call) {
    call(Side{false});
    call(Side{true});
  }
  Dropout dropout() { return {0.3f, 17, 3, view(ids_)}; }

  Rig rig_;
  std::vector<int64_t> ids_ = row_ids(N);
  std::vector<int32_t> starts_{0, 6, N};
  const std::array<DType, 2> gradient_types_{GetParam(), DType::f32};
};

TEST_P(Halves, LayerNorm) {
  Array x = random({N, C}, 1), weight = random({C}, 2), bias = random({C}, 3), y = nothing({N, C});
  Array stats = nothing({N, 2}, DType::f32), d_y = random({N, C}, 4), residual = random({N, C}, 5);
  both([&](Side s) {
    rig_->layer_norm_forward(
        {.x = s(x), .weight = s(weight), .bias = s(bias), .epsilon = 1e-5, .y = s(y), .stats = s(stats)});
  });
  y.expect_close(C, "y");
  stats.expect_close(C, "stats");
  stats.agree();
  for (const DType type : gradient_types_) {
    Array d_x = nothing({N, C}), d_weight = random_of(type, {C}, 6), d_bias = random_of(type, {C}, 7),
          again = nothing({N, C});
    both([&](Side s) {
      rig_->layer_norm_backward({.d_y = s(d_y),
                                 .x = s(x),
                                 .weight = s(weight),
                                 .bias = s(bias),
                                 .stats = s(stats),
                                 .residual = s(residual),
                                 .d_x = s(d_x),
                                 .d_weight = s(d_weight),
                                 .d_bias = s(d_bias),
                                 .y = s(again)});
    });
    EXPECT_EQ(again.bits(), y.bits());
    d_x.expect_close(2 * C, "d_x");
    d_weight.expect_close(4 * N, "d_weight");
    d_bias.expect_close(N, "d_bias");
  }
  // y may overwrite x, as in the root unit.
  both([&](Side s) {
    rig_->layer_norm_forward({.x = s(x), .weight = s(weight), .bias = s(bias), .epsilon = 1e-5, .y = s(x)});
  });
  EXPECT_EQ(x.bits(), y.bits());
}

TEST_P(Halves, RmsNorm) {
  Array x = random({N, C}, 1), weight = random({C}, 2), y = nothing({N, C}), rstd = nothing({N, 1}, DType::f32);
  Array d_y = random({N, C}, 4), residual = random({N, C}, 5);
  both([&](Side s) {
    rig_->rms_norm_forward({.x = s(x), .weight = s(weight), .epsilon = 1e-5, .y = s(y), .stats = s(rstd)});
  });
  y.expect_close(C, "y");
  rstd.expect_close(C, "rstd");
  rstd.agree();
  for (const DType type : gradient_types_) {
    Array d_x = nothing({N, C}), d_weight = random_of(type, {C}, 6), again = nothing({N, C});
    both([&](Side s) {
      rig_->rms_norm_backward({.d_y = s(d_y),
                               .x = s(x),
                               .weight = s(weight),
                               .stats = s(rstd),
                               .residual = s(residual),
                               .d_x = s(d_x),
                               .d_weight = s(d_weight),
                               .y = s(again)});
    });
    EXPECT_EQ(again.bits(), y.bits());
    d_x.expect_close(2 * C, "d_x");
    d_weight.expect_close(4 * N, "d_weight");
  }
}

TEST_P(Halves, RotationsAndNormsOfHeads) {
  const AttentionShape shape{4, 6, QkvLayout::blocked, {}, 2};
  const int64_t W = shape.row_channels();
  Array qkv = random({N, W}, 1), rotations = random_of(DType::f32, {N, 6}, 2), query = random({6}, 3),
        key = random({6}, 4);
  Array d_y = random({N, W}, 5);
  for (const bool normed : {false, true}) {
    const auto norms = [&](Side s) { return normed ? HeadNorms{s(query), s(key), 1e-5} : HeadNorms{}; };
    Array y = nothing({N, W}), d_qkv = nothing({N, W});
    both([&](Side s) {
      rig_->rotate_heads({.qkv = s(qkv), .rotations = s(rotations), .shape = shape, .norms = norms(s), .y = s(y)});
    });
    y.expect_close(8 * 6, "y");
    for (const DType type : gradient_types_) {
      Array d_query = random_of(type, {6}, 6), d_key = random_of(type, {6}, 7);
      both([&](Side s) {
        rig_->rotate_heads_backward({.d_y = s(d_y),
                                     .qkv = normed ? s(qkv) : View{},
                                     .rotations = s(rotations),
                                     .shape = shape,
                                     .norms = norms(s),
                                     .d_qkv = s(d_qkv),
                                     .d_query_weight = normed ? s(d_query) : View{},
                                     .d_key_weight = normed ? s(d_key) : View{}});
      });
      d_qkv.expect_close(32 * 6, "d_qkv");
      d_query.expect_close(32 * N, "d_query");
      d_key.expect_close(32 * N, "d_key");
    }
  }
}

TEST_P(Halves, GatedLayers) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    Array gate_up = random({N, 2 * O}, 1), h = nothing({N, O}), d_h = random({N, O}, 2);
    Array d_gate_up = nothing({N, 2 * O}), again = nothing({N, O});
    both([&](Side s) { rig_->gated_forward(s(gate_up), activation, s(h)); });
    h.expect_close(16, "h");
    both([&](Side s) {
      rig_->gated_backward(
          {.d_h = s(d_h), .gate_up = s(gate_up), .activation = activation, .d_gate_up = s(d_gate_up), .h = s(again)});
    });
    EXPECT_EQ(again.bits(), h.bits());
    d_gate_up.expect_close(16, "d_gate_up");
  }
}

TEST_P(Halves, Linear) {
  Array x = random({N, I}, 1), weight = random({O, I}, 2), bias = random({O}, 3), residual = random({N, O}, 4);
  for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::relu}) {
    const auto epilogue = [&](View added) { return LinearEpilogue{activation, dropout(), added}; };
    Array preactivation = nothing({N, O}), y = nothing({N, O});
    both([&](Side s) {
      rig_->linear_forward({.x = s(x),
                            .weight = s(weight),
                            .bias = s(bias),
                            .epilogue = epilogue(s(residual)),
                            .preactivation = s(preactivation),
                            .y = s(y)});
    });
    y.expect_close(2 * I, "y");
    preactivation.expect_close(I, "preactivation");

    Array d_y = random({N, O}, 5), inner = random({N, I}, 6), added = random({N, I}, 7), d_x = nothing({N, I}),
          again = nothing({N, I});
    both([&](Side s) {
      rig_->linear_backward_input({.d_y = s(d_y),
                                   .weight = s(weight),
                                   .epilogue = epilogue(s(added)),
                                   .preactivation = s(inner),
                                   .d_x = s(d_x),
                                   .x = s(again)});
    });
    d_x.expect_close(2 * O, "d_x");
    again.expect_close(8, "x");
    both([&](Side s) {
      rig_->linear_backward_input({.d_y = s(d_y),
                                   .weight = s(weight),
                                   .epilogue = epilogue(s(added)),
                                   .preactivation = s(inner),
                                   .d_x = s(d_x),
                                   .x = s(inner)});
    });
    EXPECT_EQ(inner.bits(), again.bits());
    // The residual may alias the result.
    both([&](Side s) {
      rig_->linear_forward(
          {.x = s(x), .weight = s(weight), .epilogue = {activation, {}, s(residual)}, .y = s(residual)});
    });
    residual.expect_close(2 * I, "residual");
    residual.agree();
  }
  for (const DType type : gradient_types_) {
    Array d_y = random({N, O}, 5), d_weight = random_of(type, {O, I}, 8), d_bias = random_of(type, {O}, 9);
    both([&](Side s) {
      rig_->linear_backward_weight(s(d_y), s(x), false, s(d_weight));
      rig_->linear_backward_bias({{{s(d_y), s(d_bias)}}});
    });
    d_weight.expect_close(N, "d_weight");
    d_bias.expect_close(N, "d_bias");
  }
  Array d_y = random({N, O}, 5);
  both([&](Side s) { rig_->dropout_backward(s(d_y), dropout(), s(d_y)); });
  d_y.expect_close(2, "dropout");
}

TEST_P(Halves, Attention) {
  std::vector<float> slopes{0.5f, 0.25f, 0.125f};
  const View starts = view(starts_);
  Array qkv = random({N, 3 * C}, 1), o = nothing({N, C}), log_sum_exp = nothing({N, H}, DType::f32);
  Array d_o = random({N, C}, 2), d_qkv = nothing({N, 3 * C});
  for (const QkvLayout layout : {QkvLayout::interleaved, QkvLayout::blocked}) {
    const AttentionShape shape{H, C / H, layout, view(slopes)};
    both([&](Side s) {
      rig_->attention_forward({.qkv = s(qkv),
                               .starts = starts,
                               .shape = shape,
                               .dropout = dropout(),
                               .o = s(o),
                               .log_sum_exp = s(log_sum_exp)});
    });
    o.expect_close(4 * N, "o");
    log_sum_exp.expect_close(4 * N, "log_sum_exp");
    for (Array* input : {&o, &log_sum_exp}) input->agree();
    both([&](Side s) {
      rig_->attention_backward({.qkv = s(qkv),
                                .o = s(o),
                                .log_sum_exp = s(log_sum_exp),
                                .d_o = s(d_o),
                                .starts = starts,
                                .shape = shape,
                                .dropout = dropout(),
                                .d_qkv = s(d_qkv)});
    });
    d_qkv.expect_close(8 * N, "d_qkv");
  }
}

TEST_P(Halves, Generation) {
  constexpr int64_t kRows = 20;
  std::vector<float> slopes{0.5f, 0.25f, 0.125f};
  std::vector<int32_t> cache_starts{1, 12}, lengths{6, 3};
  const AttentionShape shape{H, C / H, QkvLayout::interleaved, view(slopes)};
  Array prompt = random({N, 3 * C}, 1), next = random({B, 3 * C}, 2), o = nothing({B, C});
  Array keys = random({kRows, C}, 3), values = random({kRows, C}, 4);
  both([&](Side s) {
    rig_->store_keys_values({.qkv = s(prompt),
                             .starts = view(starts_),
                             .shape = shape,
                             .cache_starts = view(cache_starts),
                             .keys = s(keys),
                             .values = s(values)});
    rig_->attention_decode({.qkv = s(next),
                            .shape = shape,
                            .cache_starts = view(cache_starts),
                            .lengths = view(lengths),
                            .keys = s(keys),
                            .values = s(values),
                            .o = s(o)});
  });
  o.expect_close(4 * N, "o");
  // The call only copies keys and values, so it does not round them.
  keys.expect_close(0, "keys");
  values.expect_close(0, "values");
}

TEST_P(Halves, Loss) {
  std::vector<int32_t> targets{0, 149, 7, 7, 80, 31, 2, 99, 140}, chosen(N), exactly(N);
  Array logits = random({N, V}, 1);
  rig_->argmax_rows(logits.narrow(), view(chosen));
  rig_->argmax_rows(logits.exact(), view(exactly));
  EXPECT_EQ(chosen, exactly);  // also if several rounded logits are equal to the maximum
  std::vector<int64_t> draws{0, -1, 1ll << 62, -1ll << 62, 1ll << 60, 77ll << 50, 5ll << 59, -3ll << 58, 9ll << 55};
  const Sampling sampling{.temperature = 0.3, .top_k = 40, .top_p = 0.8};
  rig_->sample_rows(logits.narrow(), view(draws), sampling, view(chosen));
  rig_->sample_rows(logits.exact(), view(draws), sampling, view(exactly));
  EXPECT_EQ(chosen, exactly);
  double loss = 0, exact_loss = 0;
  const double scale = 1.0 / 8;  // with a smaller scale, most f16 results would be subnormal
  rig_->softmax_cross_entropy(logits.narrow(), view(targets), scale, view_of(&loss, {1}));
  rig_->softmax_cross_entropy(logits.exact(), view(targets), scale, view_of(&exact_loss, {1}));
  EXPECT_NEAR(loss, exact_loss, N * V * 0x1p-24);
  logits.expect_close(8, "d_logits");
}

TEST_P(Halves, Embedding) {
  std::vector<int32_t> ids{5, 3, 5, 0, 149, 5, 1, 2, 3};
  Array weight = random({V, C}, 1), y = nothing({N, C}), d_y = random({N, C}, 2), wide = nothing({V, C});
  both([&](Side s) {
    rig_->gather_rows(s(weight), view(ids), s(y));
    const View rows = view_of(ids.data() + 2, {3});  // 5, 0, 149
    rig_->scatter_rows(s(d_y).rows(0, 3), rows, s(wide));
  });
  y.expect_close(0, "y");
  wide.expect_close(0, "scattered");
  for (const DType type : gradient_types_) {
    Array d_weight = random_of(type, {V, C}, 3);
    both([&](Side s) { rig_->embedding_backward(view(ids), s(d_y), s(d_weight)); });
    d_weight.expect_close(4, "d_weight");
  }
}

TEST_P(Halves, SumsOfAllCombinationsOfTypes) {
  for (const DType from : {GetParam(), DType::f32}) {
    for (const DType to : {GetParam(), DType::f32}) {
      Array x = random_of(from, {3000}, 1), sum = random_of(to, {3000}, 2);
      both([&](Side s) { rig_->add(s(x), s(sum)); });
      sum.expect_close(1, "sum");
    }
  }
  Array x = random({3000}, 3);
  double squares = 0.5, exact = 0.5;
  rig_->add_sum_of_squares(x.narrow(), view_of(&squares, {1}));
  rig_->add_sum_of_squares(x.exact(), view_of(&exact, {1}));
  EXPECT_NEAR(squares, exact, 3000 * 0x1p-52 * exact);
}

// A fill with random values or a constant gives the rounded values of the same fill in f32. A shard may begin at any
// element.
TEST_P(Halves, FillsAreRoundedFills) {
  constexpr int64_t kElems = 1000, kFirst = 37;
  const auto rounded = [&](const std::vector<float>& values) {
    std::vector<uint16_t> bits(values.size());
    convert(values.data(), DType::f32, bits.data(), GetParam(), values.size());
    return bits;
  };
  std::vector<float> wide(kElems);
  std::vector<uint16_t> bits(kElems);
  const View all{reinterpret_cast<std::byte*>(bits.data()), GetParam(), {kElems}};
  rig_->fill_normal(view(wide), 0.1, 0.5, 3, 4, 0);
  const auto normal = rounded(wide);
  rig_->fill_normal(all, 0.1, 0.5, 3, 4, 0);
  EXPECT_EQ(bits, normal);
  rig_->fill_normal(all.rows(0, kElems - kFirst), 0.1, 0.5, 3, 4, kFirst);
  EXPECT_TRUE(std::equal(normal.begin() + kFirst, normal.end(), bits.begin()));
  rig_->fill_uniform(view(wide), -1, 2, 3, 4, 0);
  rig_->fill_uniform(all, -1, 2, 3, 4, 0);
  EXPECT_EQ(bits, rounded(wide));
  rig_->fill(all, 1.3);
  EXPECT_EQ(bits, rounded(std::vector<float>(kElems, 1.3f)));
  rig_->fill(all, 0);
  EXPECT_EQ(bits, std::vector<uint16_t>(kElems, 0));
}

// Gradients in 16 bits change f32 parameters and moments exactly as the same gradients in f32 do.
TEST_P(Halves, AdamW) {
  constexpr int64_t kCount = 5003;
  Array gradients = random({kCount}, 1);
  std::vector<float> widened(kCount);
  convert(gradients.bits().data(), GetParam(), widened.data(), DType::f32, kCount);
  auto p = random_values<float>(kCount, 2), m = random_values<float>(kCount, 3), v = std::vector<float>(kCount, 0.5f);
  auto p2 = p, m2 = m, v2 = v;
  const auto old_m = m, old_v = v;
  AdamWStep step{.learning_rate = 0.01, .weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.01};
  step.num_decayed = 777;
  auto p3 = p, m3 = m, v3 = v;
  rig_->adamw({.parameters = view(p), .gradients = gradients.narrow(), .m = view(m), .v = view(v)}, step);
  rig_->adamw({.parameters = view(p2), .gradients = view(widened), .m = view(m2), .v = view(v2)}, step);
  EXPECT_TRUE(p == p2 && m == m2 && v == v2);
  // A call for the parameters and a later call for the moments give the same values as one call for both.
  step.writes = AdamWWrites::parameters;
  rig_->adamw({.parameters = view(p3), .gradients = gradients.narrow(), .m = view(m3), .v = view(v3)}, step);
  EXPECT_TRUE(p3 == p && m3 == old_m && v3 == old_v);
  step.writes = AdamWWrites::moments;
  rig_->adamw({.gradients = gradients.narrow(), .m = view(m3), .v = view(v3)}, step);
  EXPECT_TRUE(p3 == p && m3 == m && v3 == v);
}

// Parameters that are split into two arrays change like parameters in one array. The first array contains the rounded
// parameters that models compute with. The second array contains what the rounding removed.
TEST_P(Halves, AdamWOfSplitParameters) {
  const DType rest_dtype = rest_of(GetParam());
  for (const int64_t count : {77, 5000}) {
    const auto n = static_cast<size_t>(count);
    Array gradients = random({count}, 1);
    auto p = random_values<float>(count, 2), m = random_values<float>(count, 3), v = std::vector<float>(n, 0.5f);
    for (size_t i = 0; i < n; ++i) p[i] = std::ldexp(p[i], -static_cast<int>(i % 16));
    std::vector<uint16_t> narrow(n), rounded(n);
    std::vector<int16_t> rest(n);
    const auto flat = [&](auto& values, DType dtype) {
      return View{reinterpret_cast<std::byte*>(values.data()), dtype, {count}};
    };
    const View narrow_view = flat(narrow, GetParam()), rest_view = flat(rest, rest_dtype);
    rig_->convert(view(p), narrow_view);
    rig_->convert(view(p), rest_view);
    rig_->join(narrow_view, rest_view, view(p));
    AdamWStep step{.learning_rate = 0.01, .weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.01};
    step.num_decayed = 33;
    auto m2 = m, v2 = v, joined = p;
    for (const AdamWWrites writes : {AdamWWrites::all, AdamWWrites::parameters, AdamWWrites::all}) {
      step.writes = writes;
      rig_->adamw({.parameters = view(p), .gradients = gradients.narrow(), .m = view(m), .v = view(v)}, step);
      rig_->adamw(
          {.parameters = narrow_view, .rest = rest_view, .gradients = gradients.narrow(), .m = view(m2), .v = view(v2)},
          step);
      rig_->convert(view(p), flat(rounded, GetParam()));
      EXPECT_TRUE(narrow == rounded && m == m2 && v == v2);
      rig_->join(narrow_view, rest_view, view(joined));
      for (size_t i = 0; i < n; ++i) {
        // For f16, a parameter with a magnitude below 2^-17 is stored as a multiple of 2^-40, so its error is at most
        // 2^-41.
        const double lost = GetParam() == DType::f16 && std::abs(p[i]) < 0x1p-17 ? 0x1p-41 : 0;
        ASSERT_NEAR(joined[i], p[i], lost) << i;
      }
      p = joined;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Halves, ::testing::Values(DType::bf16, DType::f16),
                         [](const auto& values) { return std::string(name_of(values.param)); });

// For the same calls, the counting device counts as much scratch as the CPU device allocates. Calls whose scratch fits
// into the reserved scratch allocate no more.
TEST(HalvesScratch, EqualsTheCountedScratch) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool), counting = make_counting_device({DeviceKind::cpu, 1});
  const auto kernels = make_kernels(*device), counted = make_kernels(*counting);
  constexpr int64_t kRows = 33, kIn = 50, kOut = 70;
  const auto call = [&](Device& on, Kernels& ops) {
    const auto array = [&](Shape shape) { return on.allocate(2 * shape.num_elems(), Category::activations); };
    const Shape x{kRows, kIn}, weight{kOut, kIn}, y{kRows, kOut};
    const Buffer buffers[] = {array(x), array(weight), array(y)};
    ops.linear_forward({.x = buffers[0].view(x, DType::bf16),
                        .weight = buffers[1].view(weight, DType::bf16),
                        .y = buffers[2].view(y, DType::bf16)});
    ops.fill(buffers[2].view(y, DType::bf16), 1);
  };
  call(*device, *kernels);
  call(*counting, *counted);
  // The scratch holds three arrays of 1650, 3500 and 2310 floats. Each array takes a multiple of 256 bytes.
  EXPECT_EQ(kernels->scratch_bytes(), 6656 + 14080 + 9472);
  EXPECT_EQ(counted->scratch_bytes(), kernels->scratch_bytes());
  EXPECT_EQ(counting->ledger().peak(Phase::load, Category::workspace),
            device->ledger().peak(Phase::load, Category::workspace));
  EXPECT_EQ(counted->flops(), kernels->flops());
  kernels->reserve_scratch(100000);
  EXPECT_EQ(kernels->scratch_bytes(), 100000);
  const int64_t held = device->ledger().current(Category::workspace);
  call(*device, *kernels);
  EXPECT_EQ(device->ledger().current(Category::workspace), held);
}

}  // namespace
}  // namespace tessera::testing
