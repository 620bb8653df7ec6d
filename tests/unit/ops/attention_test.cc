#include <algorithm>

#include "ops_testing.h"
#include "tessera/ops/dropout_mask.h"

namespace tessera::testing {
namespace {

constexpr uint64_t kSeed = 31;
constexpr uint32_t kSite = 4;

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, head_dim;
  QkvLayout layout = QkvLayout::interleaved;
  bool alibi = true;
  float dropout = 0;
  int threads = 2;
  int64_t kv_heads = 0, window = 0;

  int64_t channels() const { return heads * head_dim; }
  int64_t shared() const { return kv_heads > 0 ? heads / kv_heads : 1; }  // query heads per head of keys
  int64_t kv_channels() const { return channels() / shared(); }
  int64_t width() const { return channels() + 2 * kv_channels(); }  // columns of qkv
  int64_t rows() const {
    int64_t sum = 0;
    for (int32_t n : lengths) sum += n;
    return sum;
  }
  std::vector<int32_t> starts() const {
    std::vector<int32_t> starts{0};
    for (int32_t n : lengths) starts.push_back(starts.back() + n);
    return starts;
  }
};

const Case kCases[] = {
    {{1}, 1, 8},
    {{1, 1, 2}, 3, 16, QkvLayout::blocked, false},
    {{5, 64, 1, 65}, 2, 8, QkvLayout::interleaved, true, 0.2f, 3},
    {{130, 3, 63}, 3, 40, QkvLayout::blocked, true, 0.1f},
    {{77, 128}, 5, 64, QkvLayout::interleaved, true, 0, 1},
    {{600, 20}, 2, 24, QkvLayout::interleaved, true},  // a sequence longer than a block of keys
    {{577}, 1, 128, QkvLayout::blocked, false, 0.3f, 3},
    {{450}, 1, 320, QkvLayout::blocked, true},  // wide heads make blocks of keys shorter
    {{9, 0, 4}, 2, 8},                          // an empty sequence
    {{70, 3, 129}, 6, 16, QkvLayout::blocked, false, 0.2f, 3, 2},
    {{600, 1, 40}, 4, 24, QkvLayout::blocked, false, 0, 3, 1},           // all query heads share one head of keys
    {{700, 20, 0, 3}, 2, 8, QkvLayout::blocked, false, 0.1f, 2, 1, 10},  // late windows begin after a block of keys
    {{1100}, 2, 8, QkvLayout::blocked, true, 0, 3, 2, 600},              // a window longer than a block of keys
    {{65, 200}, 4, 128, QkvLayout::blocked, false, 0, 2, 2, 1},          // each token attends only to itself
    {{65, 130}, 3, 80, QkvLayout::interleaved, true, 0, 2, 0, 130},      // a window as long as the longest sequence
};

std::vector<Case> random_cases() {
  RandomStream random(2024, 5);
  std::vector<Case> cases;
  for (int i = 0; i < 8; ++i) {
    Case c;
    c.kv_heads = 1 + static_cast<int64_t>(random.next_below(2));
    c.heads = c.kv_heads * (1 + static_cast<int64_t>(random.next_below(3)));
    c.head_dim = 2 * (1 + static_cast<int64_t>(random.next_below(24)));
    c.layout = QkvLayout::blocked;
    c.alibi = random.next_below(3) == 0;
    c.dropout = random.next_below(3) == 0 ? 0.2f : 0;
    c.threads = 1 + static_cast<int>(random.next_below(3));
    c.window = random.next_below(3) == 0 ? 0 : 1 + static_cast<int64_t>(random.next_below(120));
    const size_t num_sequences = 1 + random.next_below(3);
    for (size_t b = 0; b < num_sequences; ++b) c.lengths.push_back(static_cast<int32_t>(1 + random.next_below(150)));
    cases.push_back(c);
  }
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  for (Case& c : random_cases()) cases.push_back(std::move(c));
  return cases;
}

std::vector<float> slopes_of(const Case& c) {
  std::vector<float> slopes;
  for (int64_t h = 0; h < c.heads; ++h)
    slopes.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(c.heads)));
  return slopes;
}

size_t at(const Case& c, int64_t row, int part, int64_t head, int64_t d) {
  const int64_t place = part == 0 ? head : head / c.shared();
  const int64_t begin = part == 0 ? 0 : c.channels() + (part - 1) * c.kv_channels();
  const int64_t in_row = c.layout == QkvLayout::interleaved ? head * 3 * c.head_dim + part * c.head_dim + d
                                                            : begin + place * c.head_dim + d;
  return static_cast<size_t>(row * c.width() + in_row);
}

struct Result {
  std::vector<double> o, log_sum_exp;
};

// Computes attention directly from its formula, one query at a time.
Result reference(const Case& c, const std::vector<double>& qkv, const std::vector<int64_t>& ids) {
  Result result;
  result.o.resize(static_cast<size_t>(c.rows() * c.channels()));
  result.log_sum_exp.resize(static_cast<size_t>(c.rows() * c.heads));
  const auto slopes = slopes_of(c);
  int64_t begin = 0;
  for (int32_t length : c.lengths) {
    for (int64_t head = 0; head < c.heads; ++head) {
      for (int64_t q = 0; q < length; ++q) {
        std::vector<double> p;
        const int64_t first = c.window > 0 ? std::max<int64_t>(0, q + 1 - c.window) : 0;
        for (int64_t k = first; k <= q; ++k) {
          double score = 0;
          for (int64_t d = 0; d < c.head_dim; ++d)
            score += qkv[at(c, begin + q, 0, head, d)] * qkv[at(c, begin + k, 1, head, d)];
          score /= std::sqrt(static_cast<double>(c.head_dim));
          if (c.alibi) score += static_cast<double>(slopes[static_cast<size_t>(head)]) * static_cast<double>(k);
          p.push_back(score);
        }
        const double most = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - most);
        result.log_sum_exp[static_cast<size_t>((begin + q) * c.heads + head)] = most + std::log(sum);
        for (int64_t k = first; k <= q; ++k) {
          double weight = p[static_cast<size_t>(k - first)] / sum;
          if (c.dropout > 0) {
            const bool kept = dropout_keeps(c.dropout, kSeed, kSite, ids[static_cast<size_t>(begin + q)],
                                            attention_dropout_column(head, k));
            weight = kept ? weight / (1 - static_cast<double>(c.dropout)) : 0;
          }
          for (int64_t d = 0; d < c.head_dim; ++d) {
            result.o[static_cast<size_t>((begin + q) * c.channels() + head * c.head_dim + d)] +=
                weight * qkv[at(c, begin + k, 2, head, d)];
          }
        }
      }
    }
    begin += length;
  }
  return result;
}

// The arrays of a call and their views.
template <typename T>
struct Call {
  explicit Call(const Case& c, std::vector<T> values)
      : c(c), qkv(std::move(values)), starts(c.starts()), ids(row_ids(c.rows())), slopes(slopes_of(c)), rig(c.threads) {
    o.resize(static_cast<size_t>(c.rows() * c.channels()), T(NAN));
    log_sum_exp.resize(static_cast<size_t>(c.rows() * c.heads), T(NAN));
    d_qkv.resize(qkv.size(), T(NAN));
  }
  AttentionShape shape() {
    return {c.heads, c.head_dim, c.layout, c.alibi ? view(slopes) : View{}, c.kv_heads, c.window};
  }
  Dropout dropout() { return {c.dropout, kSeed, kSite, view(ids)}; }
  void forward() {
    rig->attention_forward({.qkv = view(qkv, {c.rows(), c.width()}),
                            .starts = view(starts),
                            .shape = shape(),
                            .dropout = dropout(),
                            .o = view(o, {c.rows(), c.channels()}),
                            .log_sum_exp = view(log_sum_exp, {c.rows(), c.heads})});
  }
  void backward(std::vector<T>& d_o) {
    rig->attention_backward({.qkv = view(qkv, {c.rows(), c.width()}),
                             .o = view(o, {c.rows(), c.channels()}),
                             .log_sum_exp = view(log_sum_exp, {c.rows(), c.heads}),
                             .d_o = view(d_o, {c.rows(), c.channels()}),
                             .starts = view(starts),
                             .shape = shape(),
                             .dropout = dropout(),
                             .d_qkv = view(d_qkv, {c.rows(), c.width()})});
  }

  const Case& c;
  std::vector<T> qkv, o, log_sum_exp, d_qkv;
  std::vector<int32_t> starts;
  std::vector<int64_t> ids;
  std::vector<float> slopes;
  Rig rig;
};

template <typename T>
struct AttentionTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionTest, FloatTypes);

TYPED_TEST(AttentionTest, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.head_dim);
    const auto values = random_values<float>(c.rows() * c.width(), 1);
    Call<T> call(c, converted<T>(values));
    call.forward();
    const Result expected = reference(c, converted<double>(values), call.ids);
    // With ALiBi, scores reach slope·T ≤ T/2 in a sequence of T tokens. The rounding errors of the scores, at most
    // ε·T/2, become relative errors of the probabilities. o is an average of values ≤ 1, times at most 1 / (1 − dropout
    // rate). The tolerance is several times larger. Its part with head_dim covers the errors of the products q·k.
    const double longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    const double tolerance = epsilon<T>() * (4 * (c.alibi ? longest : 4) + 2 * static_cast<double>(c.head_dim) + 32);
    expect_close(call.o, expected.o, tolerance, "o");
    expect_close(call.log_sum_exp, expected.log_sum_exp, tolerance, "log_sum_exp");
    auto with_stats = call.o;
    call.rig->attention_forward({.qkv = view(call.qkv, {c.rows(), c.width()}),
                                 .starts = view(call.starts),
                                 .shape = call.shape(),
                                 .dropout = call.dropout(),
                                 .o = view(call.o, {c.rows(), c.channels()})});
    EXPECT_EQ(call.o, with_stats);
  }
}

TEST(Attention, GradientsMatchFiniteDifferences) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.head_dim);
    Call<double> call(c, random_values(c.rows() * c.width(), 1));
    auto r = random_values(c.rows() * c.channels(), 2);
    call.forward();
    call.backward(r);
    const auto d_qkv = call.d_qkv;
    for (double d : d_qkv) ASSERT_FALSE(std::isnan(d));
    expect_gradient(
        call.qkv, d_qkv, [&] { return call.forward(), dot(call.o, r); }, "qkv", 25);
  }
}

TEST(Attention, FloatGradientsFollowDouble) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.head_dim);
    const auto values = random_values<float>(c.rows() * c.width(), 1);
    auto d_o = random_values<float>(c.rows() * c.channels(), 2);
    auto d_o_double = converted<double>(d_o);
    Call<float> call(c, values);
    Call<double> expected(c, converted<double>(values));
    call.forward();
    call.backward(d_o);
    expected.forward();
    expected.backward(d_o_double);
    const double longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    // The longest sequence has T tokens, and a head has D channels. The errors of the forward pass enter sums of up to
    // T terms, one per query. Each term is proportional to a probability of about 1/T. It is also proportional to the
    // gradient of this probability: a sum of D products of random values, with a size of about √D/3.
    const double tolerance = 0x1p-24 * (4 * longest + 64) * std::sqrt(static_cast<double>(c.head_dim)) * 4;
    expect_close(call.d_qkv, expected.d_qkv, tolerance, "d_qkv");
  }
}

TEST(Attention, RepeatsBitForBitWhateverTheThreads) {
  // With many threads, the backward pass divides long sequences into smaller tasks than with few threads.
  for (Case c : {kCases[3], kCases[6], kCases[7], kCases[10], kCases[11], kCases[12]}) {
    const auto values = random_values<float>(c.rows() * c.width(), 1);
    auto d_o = random_values<float>(c.rows() * c.channels(), 2);
    std::vector<float> o, d_qkv;
    for (int threads : {2, 2, 1, 3, 16}) {
      c.threads = threads;
      Call<float> call(c, values);
      call.forward();
      call.backward(d_o);
      if (o.empty()) o = call.o, d_qkv = call.d_qkv;
      EXPECT_EQ(call.o, o);
      EXPECT_EQ(call.d_qkv, d_qkv);
    }
  }
}

// Decodes the last token of each sequence with a cache of the earlier tokens. The result must equal the last row that
// attention_forward() computes for the complete sequence.
TYPED_TEST(AttentionTest, DecodeEqualsForward) {
  using T = TypeParam;
  for (Case c : all_cases()) {
    if (std::find(c.lengths.begin(), c.lengths.end(), 0) != c.lengths.end()) continue;
    SCOPED_TRACE(c.head_dim);
    c.dropout = 0;
    const auto num_sequences = static_cast<int64_t>(c.lengths.size());
    const int64_t channels = c.channels(), width = c.width(), cached = c.kv_channels();
    Call<T> complete(c, random_values<T>(c.rows() * width, 1));
    complete.forward();
    // The caches of the sequences are in reverse order, with spare rows between them.
    std::vector<int32_t> cache_starts, lengths, prompt_starts{0};
    std::vector<T> prompts, last;
    int32_t cache_rows = 3;
    for (int64_t b = num_sequences - 1; b >= 0; --b) {
      cache_starts.insert(cache_starts.begin(), cache_rows);
      cache_rows += c.lengths[static_cast<size_t>(b)] + 2;
    }
    for (int64_t b = 0; b < num_sequences; ++b) {
      const auto length = c.lengths[static_cast<size_t>(b)];
      const T* rows = complete.qkv.data() + complete.starts[static_cast<size_t>(b)] * width;
      prompts.insert(prompts.end(), rows, rows + (length - 1) * width);
      last.insert(last.end(), rows + (length - 1) * width, rows + length * width);
      lengths.push_back(length - 1);
      prompt_starts.push_back(prompt_starts.back() + length - 1);
    }
    std::vector<T> keys(static_cast<size_t>(cache_rows * cached), T(NAN)), values = keys;
    std::vector<T> o(static_cast<size_t>(num_sequences * channels));
    prompts.resize(std::max<size_t>(prompts.size(), 1));
    complete.rig->store_keys_values({.qkv = view_of(prompts.data(), {prompt_starts.back(), width}),
                                     .starts = view(prompt_starts),
                                     .shape = complete.shape(),
                                     .cache_starts = view(cache_starts),
                                     .keys = view(keys, {cache_rows, cached}),
                                     .values = view(values, {cache_rows, cached})});
    complete.rig->attention_decode({.qkv = view(last, {num_sequences, width}),
                                    .shape = complete.shape(),
                                    .cache_starts = view(cache_starts),
                                    .lengths = view(lengths),
                                    .keys = view(keys, {cache_rows, cached}),
                                    .values = view(values, {cache_rows, cached}),
                                    .o = view(o, {num_sequences, channels})});
    // As in ForwardEqualsTheDefinition. 1100 is the length of the longest sequence of all cases.
    const double tolerance = epsilon<T>() * (4 * 1100 + 2 * static_cast<double>(c.head_dim) + 32);
    for (int64_t b = 0; b < num_sequences; ++b) {
      for (int64_t i = 0; i < channels; ++i) {
        ASSERT_NEAR(o[static_cast<size_t>(b * channels + i)],
                    complete.o[static_cast<size_t>((complete.starts[static_cast<size_t>(b) + 1] - 1) * channels + i)],
                    tolerance);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
