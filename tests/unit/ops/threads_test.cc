// Tests that the CPU's kernels compute the same bits with any number of threads.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

using Outcome = std::map<std::string, std::vector<std::byte>>;

// Runs kernels with type T on `num_threads` threads and keeps their outputs.
template <typename T>
class Recorder {
 public:
  explicit Recorder(int num_threads) : rig_(num_threads) {}
  Kernels* operator->() { return rig_.kernels.get(); }

  template <typename U>
  void keep(const std::string& name, const std::vector<U>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    ASSERT_TRUE(outcome_.emplace(name, std::vector<std::byte>(bytes, bytes + values.size() * sizeof(U))).second)
        << name;
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  Rig rig_;
  Outcome outcome_;
};

std::string named(const char* kernel, std::initializer_list<int64_t> shape) {
  std::string name = kernel;
  for (int64_t dimension : shape) name += " " + std::to_string(dimension);
  return name;
}

template <typename T>
void run_arrays(Recorder<T>& run) {
  const int64_t count = 200003;
  auto x = random_values<T>(count, 1), y = random_values<T>(count, 2);
  run->add(view(x), view(y));
  run.keep("add", y);
  std::vector<double> sum{0.1};
  run->add_sum_of_squares(view(x), view(sum));
  run.keep("add_sum_of_squares", sum);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> half(x.size());
    const View half_view{reinterpret_cast<std::byte*>(half.data()), dtype, {count}};
    run->convert(view(x), half_view);
    run.keep(std::string("convert to ") + name_of(dtype), half);
    run->convert(half_view, view(y));
    run.keep(std::string("convert from ") + name_of(dtype), y);
  }
  run->fill(view(y), 0.3);
  run.keep("fill", y);
  run->fill_normal(view(y), 0.1, 0.02, 8, 1, 5);
  run.keep("fill_normal", y);
  run->fill_uniform(view(y), -0.1, 0.2, 8, 1, 5);
  run.keep("fill_uniform", y);

  auto p = random_values<T>(count, 3), m = random_values<T>(count, 4), v = random_values<T>(count, 5);
  for (T& value : v) value = std::abs(value);
  run->adamw({.parameters = view(p), .gradients = view(x), .m = view(m), .v = view(v)},
             {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001, 0.7, 100001});
  run.keep("adamw p", p);
  run.keep("adamw m", m);
  run.keep("adamw v", v);
}

template <typename T>
void run_rows(Recorder<T>& run) {
  for (const auto& [rows, channels] : {std::pair<int64_t, int64_t>{1, 77}, {65, 129}, {517, 200}, {1031, 300}}) {
    const Shape shape{rows, channels};
    auto x = random_values<T>(rows * channels, 1), d_y = random_values<T>(rows * channels, 2);
    auto residual = random_values<T>(rows * channels, 3);
    auto weight = random_values<T>(channels, 4), bias = random_values<T>(channels, 5);
    std::vector<T> y(x.size()), d_x(x.size()), stats(static_cast<size_t>(2 * rows));
    run->layer_norm_forward({.x = view(x, shape),
                             .weight = view(weight),
                             .bias = view(bias),
                             .epsilon = 1e-5,
                             .y = view(y, shape),
                             .stats = view(stats, {rows, 2})});
    run.keep(named("layer_norm_forward y", {rows, channels}), y);
    run.keep(named("layer_norm_forward stats", {rows, channels}), stats);
    auto d_weight = weight, d_bias = bias;
    run->layer_norm_backward({.d_y = view(d_y, shape),
                              .x = view(x, shape),
                              .weight = view(weight),
                              .bias = view(bias),
                              .stats = view(stats, {rows, 2}),
                              .residual = view(residual, shape),
                              .d_x = view(d_x, shape),
                              .d_weight = view(d_weight),
                              .d_bias = view(d_bias),
                              .y = view(y, shape)});
    run.keep(named("layer_norm_backward y", {rows, channels}), y);
    run.keep(named("layer_norm_backward d_x", {rows, channels}), d_x);
    run.keep(named("layer_norm_backward d_weight", {rows, channels}), d_weight);
    run.keep(named("layer_norm_backward d_bias", {rows, channels}), d_bias);

    std::vector<T> rstd(static_cast<size_t>(rows));
    run->rms_norm_forward({.x = view(x, shape),
                           .weight = view(weight),
                           .epsilon = 1e-5,
                           .y = view(y, shape),
                           .stats = view(rstd, {rows, 1})});
    run.keep(named("rms_norm_forward y", {rows, channels}), y);
    d_weight = weight;
    run->rms_norm_backward({.d_y = view(d_y, shape),
                            .x = view(x, shape),
                            .weight = view(weight),
                            .stats = view(rstd, {rows, 1}),
                            .residual = view(residual, shape),
                            .d_x = view(d_x, shape),
                            .d_weight = view(d_weight),
                            .y = view(y, shape)});
    run.keep(named("rms_norm_backward d_x", {rows, channels}), d_x);
    run.keep(named("rms_norm_backward d_weight", {rows, channels}), d_weight);

    const int64_t vocabulary = 13;
    auto table = random_values<T>(vocabulary * channels, 6);
    std::vector<int32_t> ids(static_cast<size_t>(rows)), places(static_cast<size_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % vocabulary);
    for (size_t i = 0; i < ids.size(); ++i) places[i] = static_cast<int32_t>(ids.size() - 1 - i);
    run->embedding_backward(view(ids), view(d_y, shape), view(table, {vocabulary, channels}));
    run.keep(named("embedding_backward", {rows, channels}), table);
    run->gather_rows(view(x, shape), view(places), view(y, shape));
    run.keep(named("gather_rows", {rows, channels}), y);
    run->scatter_rows(view(x, shape), view(places), view(y, shape));
    run.keep(named("scatter_rows", {rows, channels}), y);
  }
}

template <typename T>
void run_linear(Recorder<T>& run) {
  struct Case {
    int64_t rows, in, out;
  };
  for (const auto& [rows, in, out] : {Case{1, 300, 1031}, {5, 40, 33}, {67, 1100, 130}, {531, 97, 417}}) {
    auto x = random_values<T>(rows * in, 1), weight = random_values<T>(out * in, 2), bias = random_values<T>(out, 3);
    auto y = random_values<T>(rows * out, 4), d_y = random_values<T>(rows * out, 5), pre_in = x;
    auto ids = row_ids(rows);
    LinearEpilogue epilogue;
    epilogue.activation = Activation::gelu_tanh;
    epilogue.dropout = {0.1f, 77, 3, view(ids)};
    std::vector<T> pre(y.size()), d_x(x.size());
    LinearEpilogue with_residual = epilogue;
    with_residual.residual = view(y, {rows, out});
    run->linear_forward({.x = view(x, {rows, in}),
                         .weight = view(weight, {out, in}),
                         .bias = view(bias),
                         .epilogue = with_residual,
                         .preactivation = view(pre, {rows, out}),
                         .y = view(y, {rows, out})});
    run.keep(named("linear_forward y", {rows, in, out}), y);
    run.keep(named("linear_forward preactivation", {rows, in, out}), pre);
    run->linear_forward({.x = view(x, {rows, in}), .weight = view(weight, {out, in}), .y = view(y, {rows, out})});
    run.keep(named("linear_forward alone", {rows, in, out}), y);
    run->linear_backward_input({.d_y = view(d_y, {rows, out}),
                                .weight = view(weight, {out, in}),
                                .epilogue = epilogue,
                                .preactivation = view(pre_in, {rows, in}),
                                .d_x = view(d_x, {rows, in}),
                                .x = view(pre_in, {rows, in})});
    run.keep(named("linear_backward_input", {rows, in, out}), d_x);
    run.keep(named("linear_backward_input x", {rows, in, out}), pre_in);
    run->linear_backward_weight(view(d_y, {rows, out}), view(x, {rows, in}), false, view(weight, {out, in}));
    run->linear_backward_bias({{{view(d_y, {rows, out}), view(bias)}}});
    run.keep(named("linear_backward_weight d_weight", {rows, in, out}), weight);
    run.keep(named("linear_backward_bias", {rows, in, out}), bias);
    run->dropout_backward(view(d_y, {rows, out}), epilogue.dropout, view(y, {rows, out}));
    run.keep(named("dropout_backward", {rows, in, out}), y);
  }
}

template <typename T>
void run_attention(Recorder<T>& run) {
  const int64_t heads = 3, head_dim = 40, channels = heads * head_dim;
  // The fifth sequence is empty. The sixth has one token.
  std::vector<int32_t> starts{0, 130, 133, 196, 796, 796, 797};
  const int64_t rows = starts.back(), num_sequences = static_cast<int64_t>(starts.size()) - 1;
  std::vector<float> slopes{0.25f, 0.0625f, 0.5f};
  auto ids = row_ids(rows);
  const Dropout dropout{0.2f, 31, 4, view(ids)};
  const AttentionShape shape{heads, head_dim, QkvLayout::interleaved, view(slopes)};
  auto qkv = random_values<T>(rows * 3 * channels, 1), d_o = random_values<T>(rows * channels, 2);
  std::vector<T> o(d_o.size()), log_sum_exp(static_cast<size_t>(rows * heads)), d_qkv(qkv.size());
  const View qkv_view = view(qkv, {rows, 3 * channels}), o_view = view(o, {rows, channels});
  run->attention_forward({.qkv = qkv_view,
                          .starts = view(starts),
                          .shape = shape,
                          .dropout = dropout,
                          .o = o_view,
                          .log_sum_exp = view(log_sum_exp, {rows, heads})});
  run.keep("attention_forward o", o);
  run.keep("attention_forward log_sum_exp", log_sum_exp);
  run->attention_backward({.qkv = qkv_view,
                           .o = o_view,
                           .log_sum_exp = view(log_sum_exp, {rows, heads}),
                           .d_o = view(d_o, {rows, channels}),
                           .starts = view(starts),
                           .shape = shape,
                           .dropout = dropout,
                           .d_qkv = view(d_qkv, {rows, 3 * channels})});
  run.keep("attention_backward", d_qkv);

  std::vector<int32_t> cache_starts, lengths;
  for (int32_t b = 0; b < num_sequences; ++b) {
    cache_starts.push_back(starts[static_cast<size_t>(b)] + b);  // each cache has room for one token after its sequence
    lengths.push_back(starts[static_cast<size_t>(b) + 1] - starts[static_cast<size_t>(b)]);
  }
  std::vector<T> keys(static_cast<size_t>((rows + num_sequences) * channels)), values = keys;
  const View keys_view = view(keys, {rows + num_sequences, channels});
  const View values_view = view(values, {rows + num_sequences, channels});
  run->store_keys_values({.qkv = qkv_view,
                          .starts = view(starts),
                          .shape = shape,
                          .cache_starts = view(cache_starts),
                          .keys = keys_view,
                          .values = values_view});
  run->attention_decode({.qkv = qkv_view.rows(0, num_sequences),
                         .shape = shape,
                         .cache_starts = view(cache_starts),
                         .lengths = view(lengths),
                         .keys = keys_view,
                         .values = values_view,
                         .o = o_view.rows(0, num_sequences)});
  run.keep("store_keys_values keys", keys);
  run.keep("store_keys_values values", values);
  run.keep("attention_decode", o);
}

template <typename T>
void run_llama(Recorder<T>& run) {
  const AttentionShape shape{6, 40, QkvLayout::blocked, {}, 2, 100};
  std::vector<int32_t> starts{0, 130, 133, 733};
  const int64_t rows = starts.back(), D = shape.head_dim, W = shape.row_channels();
  auto qkv = random_values<T>(rows * W, 1), d_o = random_values<T>(rows * shape.channels(), 2);
  auto rotations = random_values<T>(rows * D, 3), query = random_values<T>(D, 4), key = random_values<T>(D, 5);
  std::vector<T> rotated(qkv.size()), d_qkv(qkv.size()), o(d_o.size()), log_sum_exp(static_cast<size_t>(rows * 6));
  std::vector<T> d_query(query.size()), d_key(key.size());
  const HeadNorms norms{view(query), view(key), 1e-5};
  const Shape row{rows, W}, of_o{rows, shape.channels()}, of_sums{rows, 6};
  run->rotate_heads({.qkv = view(qkv, row),
                     .rotations = view(rotations, {rows, D}),
                     .shape = shape,
                     .norms = norms,
                     .y = view(rotated, row)});
  run.keep("rotate_heads", rotated);
  run->attention_forward({.qkv = view(rotated, row),
                          .starts = view(starts),
                          .shape = shape,
                          .o = view(o, of_o),
                          .log_sum_exp = view(log_sum_exp, of_sums)});
  run.keep("grouped attention_forward", o);
  run->attention_backward({.qkv = view(rotated, row),
                           .o = view(o, of_o),
                           .log_sum_exp = view(log_sum_exp, of_sums),
                           .d_o = view(d_o, of_o),
                           .starts = view(starts),
                           .shape = shape,
                           .d_qkv = view(d_qkv, row)});
  run.keep("grouped attention_backward", d_qkv);
  run->rotate_heads_backward({.d_y = view(d_qkv, row),
                              .qkv = view(qkv, row),
                              .rotations = view(rotations, {rows, D}),
                              .shape = shape,
                              .norms = norms,
                              .d_qkv = view(d_qkv, row),
                              .d_query_weight = view(d_query),
                              .d_key_weight = view(d_key)});
  run.keep("rotate_heads_backward", d_qkv);
  run.keep("rotate_heads_backward d_query", d_query);
  run.keep("rotate_heads_backward d_key", d_key);
  auto gate_up = random_values<T>(131 * 2 * 77, 6), d_h = random_values<T>(131 * 77, 7);
  run->gated_backward({.d_h = view(d_h, {131, 77}),
                       .gate_up = view(gate_up, {131, 2 * 77}),
                       .activation = Activation::silu,
                       .d_gate_up = view(gate_up, {131, 2 * 77}),
                       .h = view(d_h, {131, 77})});
  run.keep("gated_backward", gate_up);
  run.keep("gated_backward h", d_h);
}

template <typename T>
void run_head(Recorder<T>& run) {
  for (const auto& [rows, vocabulary] : {std::pair<int64_t, int64_t>{1, 30011}, {2, 8193}, {4, 9001}, {67, 1003}}) {
    auto logits = random_values<T>(rows * vocabulary, 1);
    std::vector<int32_t> targets, ids(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>((i * 7919 + 11) % vocabulary));
    run->argmax_rows(view(logits, {rows, vocabulary}), view(ids));
    run.keep(named("argmax_rows", {rows, vocabulary}), ids);
    std::vector<int64_t> draws;
    ids.assign(static_cast<size_t>(rows), -1);
    RandomStream random(8, 1);
    for (int64_t i = 0; i < rows; ++i) draws.push_back(static_cast<int64_t>(random.next_u64()));
    run->sample_rows(view(logits, {rows, vocabulary}), view(draws), {.temperature = 0.5, .top_k = 900, .top_p = 0.9},
                     view(ids));
    run.keep(named("sample_rows", {rows, vocabulary}), ids);
    std::vector<double> loss{0.1};
    run->softmax_cross_entropy(view(logits, {rows, vocabulary}), view(targets), 0.3, view(loss));
    run.keep(named("softmax_cross_entropy loss", {rows, vocabulary}), loss);
    run.keep(named("softmax_cross_entropy d_logits", {rows, vocabulary}), logits);
  }
}

template <typename T>
Outcome run_all(int num_threads) {
  Recorder<T> run(num_threads);
  run_arrays(run);
  run_rows(run);
  run_linear(run);
  run_attention(run);
  run_llama(run);
  run_head(run);
  return run.outcome();
}

template <typename T>
struct ThreadsTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ThreadsTest, FloatTypes);

TYPED_TEST(ThreadsTest, ResultsDoNotDependOnTheNumberOfThreads) {
  const Outcome expected = run_all<TypeParam>(1);
  for (int num_threads : {2, 3, 5}) {
    const Outcome actual = run_all<TypeParam>(num_threads);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, bytes] : expected) EXPECT_TRUE(actual.at(name) == bytes) << name << ", " << num_threads;
  }
}

}  // namespace
}  // namespace tessera::testing
