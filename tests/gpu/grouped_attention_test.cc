// Attention with grouped heads and windows, compared with an independent reference in double. Grouped: several query
// heads use the same head of keys and values. Window: a query sees only this many keys, up to its own position.
#include <limits>

#include "attention_testing.h"
#include "tessera/ops/cuda/attention.h"

namespace tessera::testing {
namespace {

struct Grouped {
  std::vector<int32_t> lengths;
  int64_t heads, kv_heads, head_dim, window = 0;

  int64_t rows() const { return rows_of(lengths); }
  AttentionShape shape() const {
    return {heads, head_dim, QkvLayout::blocked, {}, kv_heads == heads ? 0 : kv_heads, window};
  }
};

// Computes attention and its gradients in double. run() computes one query head of one sequence. qkv [N, W] has the
// layout `blocked`.
struct Reference {
  const Grouped& c;
  const std::vector<double>&qkv, &d_o;
  std::vector<double> o, log_sum_exp, d_qkv;

  Reference(const Grouped& of, const std::vector<double>& qkv_values, const std::vector<double>& d_o_values)
      : c(of), qkv(qkv_values), d_o(d_o_values) {
    const auto count = static_cast<size_t>(c.rows());
    o.assign(count * static_cast<size_t>(c.heads * c.head_dim), 0);
    log_sum_exp.assign(count * static_cast<size_t>(c.heads), 0);
    d_qkv.assign(qkv.size(), 0);
    int64_t begin = 0;
    for (const int32_t length : c.lengths) {
      for (int64_t head = 0; head < c.heads; ++head) run(begin, length, head);
      begin += length;
    }
  }
  void run(int64_t begin, int64_t length, int64_t head) {
    const int64_t D = c.head_dim, W = (c.heads + 2 * c.kv_heads) * D, kv = head / (c.heads / c.kv_heads),
                  key_at = (c.heads + kv) * D, value_at = (c.heads + c.kv_heads + kv) * D;
    const double scale = 1 / std::sqrt(static_cast<double>(D));
    const auto dot = [&](const double* a, const double* b) {
      double sum = 0;
      for (int64_t d = 0; d < D; ++d) sum += a[d] * b[d];
      return sum;
    };
    std::vector<double> p(static_cast<size_t>(length)), d_p(p);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t row = begin + i, first = c.window > 0 ? std::max<int64_t>(0, i - c.window + 1) : 0;
      const double* const q = &qkv[static_cast<size_t>(row * W + head * D)];
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j = first; j <= i; ++j) {
        double& score = p[static_cast<size_t>(j)];
        score = dot(q, &qkv[static_cast<size_t>((begin + j) * W + key_at)]) * scale;
        most = std::max(most, score);
      }
      for (int64_t j = first; j <= i; ++j)
        sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - most);
      log_sum_exp[static_cast<size_t>(row * c.heads + head)] = most + std::log(sum);
      const auto at_o = static_cast<size_t>((row * c.heads + head) * D);
      double delta = 0;
      for (int64_t j = first; j <= i; ++j) {
        double& weight = p[static_cast<size_t>(j)];
        weight /= sum;
        const auto value = static_cast<size_t>((begin + j) * W + value_at);
        for (int64_t d = 0; d < D; ++d) o[at_o + d] += weight * qkv[value + d];
        d_p[static_cast<size_t>(j)] = dot(&d_o[at_o], &qkv[value]);
        delta += weight * d_p[static_cast<size_t>(j)];
      }
      for (int64_t j = first; j <= i; ++j) {
        const double weight = p[static_cast<size_t>(j)],
                     d_score = weight * (d_p[static_cast<size_t>(j)] - delta) * scale;
        const auto key = static_cast<size_t>((begin + j) * W + key_at),
                   value = static_cast<size_t>((begin + j) * W + value_at);
        for (int64_t d = 0; d < D; ++d) {
          d_qkv[static_cast<size_t>(row * W + head * D + d)] += d_score * qkv[key + d];
          d_qkv[key + d] += d_score * q[d];
          d_qkv[value + d] += weight * d_o[at_o + d];
        }
      }
    }
  }
};

void expect_close(const Tensor& actual, const std::vector<double>& expected, double tolerance, const char* what) {
  const auto values = actual.values();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(values[i] - expected[i]), tolerance)
        << what << " [" << i << "] of " << values.size() << ": " << values[i] << " instead of " << expected[i];
  }
}
double largest(const std::vector<double>& values) {
  double most = 1;
  for (const double x : values) most = std::max(most, std::abs(x));
  return most;
}

class GroupedAttentionTest : public TypedTest {
 protected:
  // The kernels to test. `own`: the kernels that Tessera chooses for the call on this GPU. `tma`: the kernels with
  // TMA, for Hopper. `tma_on_three`: the same kernels on only three multiprocessors, so a thread block
  // can have several tasks (attention_tma.cuh). `older`: the kernels for GPUs before sm_80.
  enum class By { own, tma, tma_on_three, older };
  void check(const Grouped& c, By by) {
    const bool by_tma = by == By::tma || by == By::tma_on_three;
    if (by_tma && (size_of(dtype()) != 2 || !is_hopper() || c.head_dim % 8 > 0 || c.head_dim > 128)) return;
    SCOPED_TRACE(::testing::Message() << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim << ", window "
                                      << c.window << ", " << c.rows() << " rows"
                                      << (by == By::older ? ", older GPU"
                                          : by_tma        ? ", TMA"
                                                          : ""));
    const int64_t N = c.rows(), C = c.heads * c.head_dim, W = C + 2 * c.kv_heads * c.head_dim;
    Tensor qkv = random_tensor(dtype(), {N, W}, 1), d_o = random_tensor(dtype(), {N, C}, 2),
           starts(starts_of(c.lengths)), o(dtype(), {N, C}), log_sum_exp(stats(), {N, c.heads}), d_qkv(dtype(), {N, W}),
           workspace(DType::f32, {attention_workspace_elems(dtype(), c.shape(), N)});
    cuda::CudaKernels older = kernels_of_older_gpus();
    cuda::Context context = older.context();
    if (by == By::tma_on_three) context.num_multiprocessors = 3;
    const Kernels::AttentionForward forward{
        .qkv = qkv.gpu(), .starts = starts.gpu(), .shape = c.shape(), .o = o.gpu(), .log_sum_exp = log_sum_exp.gpu()};
    const Kernels::AttentionBackward backward{.qkv = qkv.gpu(),
                                              .o = o.gpu(),
                                              .log_sum_exp = log_sum_exp.gpu(),
                                              .d_o = d_o.gpu(),
                                              .starts = starts.gpu(),
                                              .shape = c.shape(),
                                              .d_qkv = d_qkv.gpu(),
                                              .workspace = workspace.gpu()};
    std::vector<std::vector<std::byte>> first;  // bits of turn 0; turn 1 must give the same bits
    for (int turn = 0; turn < 2; ++turn) {
      for (Tensor* tensor : {&o, &log_sum_exp, &d_qkv}) tensor->reset();  // fills with NaN
      if (by_tma) {
        cuda::tma_attention_forward(context, forward);
        cuda::tma_attention_backward(context, backward);
      } else {
        Kernels& k = by == By::older ? older : *rig().gpu_kernels;
        k.attention_forward(forward);
        k.attention_backward(backward);
      }
      for (Tensor* tensor : {&o, &log_sum_exp, &d_qkv}) {
        if (turn == 0) first.push_back(tensor->bits());
      }
    }
    EXPECT_EQ(o.bits(), first[0]);
    EXPECT_EQ(log_sum_exp.bits(), first[1]);
    EXPECT_EQ(d_qkv.bits(), first[2]);
    const Reference reference(c, qkv.expected(), d_o.expected());
    // `scores` bounds the error of a score: the roundoff of the arithmetic times a generous bound of the score, which
    // grows with head_dim. A probability is the exponential of its score, so the absolute error of the score is the
    // relative error of the probability.
    const double scores = arithmetic_roundoff(dtype()) * (64 + 2 * static_cast<double>(c.head_dim));
    expect_close(log_sum_exp, reference.log_sum_exp, 2 * scores, "log_sum_exp");
    expect_close(o, reference.o, 2 * scores + 4 * roundoff(dtype()), "o");
    // Gradients of keys and values are sums over all query heads of a group. They and their errors grow with the group,
    // so the tolerance is relative to the largest gradient.
    expect_close(d_qkv, reference.d_qkv, (8 * scores + 12 * roundoff(dtype())) * largest(reference.d_qkv), "d_qkv");
  }
};
TESSERA_FOR_ALL_TYPES(GroupedAttentionTest);

TEST_P(GroupedAttentionTest, GroupsAndWindows) {
  const Grouped cases[] = {
      {{1}, 2, 1, 64},           {{5, 64, 1, 65}, 4, 2, 64},  {{300, 129, 7}, 8, 1, 64},
      {{130, 257}, 4, 1, 128},   {{130, 257}, 2, 2, 128},     {{513}, 4, 2, 128, 100},
      {{200, 65}, 3, 3, 64, 1},  {{200, 330}, 4, 4, 64, 63},  {{200, 330}, 6, 2, 128, 64},
      {{90, 140}, 4, 2, 72},     {{140, 290}, 7, 1, 80, 130}, {{140, 290}, 4, 1, 96},
      {{40, 70}, 4, 2, 256, 33}, {{9, 0, 40}, 6, 3, 20, 7},   {{700, 3, 260}, 16, 8, 64},
      {{700, 3}, 8, 8, 128, 70}, {{300, 1, 90}, 9, 9, 32},
  };
  for (const Grouped& c : cases) {
    for (const By by : {By::own, By::tma, By::tma_on_three, By::older}) check(c, by);
  }
}

TEST_P(GroupedAttentionTest, RandomShapes) {
  RandomStream random(29, 1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.next_uniform() * static_cast<double>(n)); };
  const int64_t dims[] = {64, 72, 80, 96, 128, 256};
  for (int turn = 0; turn < 12; ++turn) {
    Grouped c{{}, 0, 1 + below(2), dims[below(6)]};
    c.heads = c.kv_heads << below(4);
    for (int64_t b = 1 + below(4); b > 0; --b) c.lengths.push_back(static_cast<int32_t>(below(330)));
    c.lengths.push_back(1 + static_cast<int32_t>(below(100)));
    if (below(2)) c.window = 1 + below(300);
    const By kinds[] = {By::older, By::tma, By::tma_on_three};
    check(c, kinds[below(3)]);
  }
}

// On few multiprocessors, a thread block soon needs the next sum of gradients of queries. It must not load this sum
// while some of its threads still read the previous one. Without finish_reads() in the kernel, up to one call in six
// gave different bits.
TEST_P(GroupedAttentionTest, BackwardRepeatsOnFewMultiprocessors) {
  if (size_of(dtype()) != 2 || !is_hopper()) GTEST_SKIP() << "only the kernels for Hopper load sums";
  const Grouped cases[] = {{{305}, 2, 2, 96, 163}, {{138, 305, 114, 52}, 2, 2, 128, 163}, {{104, 163, 224}, 2, 1, 72}};
  for (const Grouped& c : cases) {
    const int64_t N = c.rows(), C = c.heads * c.head_dim, W = C + 2 * c.kv_heads * c.head_dim;
    Tensor qkv = random_tensor(dtype(), {N, W}, 1), d_o = random_tensor(dtype(), {N, C}, 2),
           starts(starts_of(c.lengths)), o(dtype(), {N, C}), log_sum_exp(stats(), {N, c.heads}), d_qkv(dtype(), {N, W}),
           workspace(DType::f32, {attention_workspace_elems(dtype(), c.shape(), N)});
    const cuda::CudaKernels older = kernels_of_older_gpus();
    cuda::Context context = older.context();
    cuda::tma_attention_forward(
        context,
        {.qkv = qkv.gpu(), .starts = starts.gpu(), .shape = c.shape(), .o = o.gpu(), .log_sum_exp = log_sum_exp.gpu()});
    const Kernels::AttentionBackward backward{.qkv = qkv.gpu(),
                                              .o = o.gpu(),
                                              .log_sum_exp = log_sum_exp.gpu(),
                                              .d_o = d_o.gpu(),
                                              .starts = starts.gpu(),
                                              .shape = c.shape(),
                                              .d_qkv = d_qkv.gpu(),
                                              .workspace = workspace.gpu()};
    for (context.num_multiprocessors = 1; context.num_multiprocessors <= 3; ++context.num_multiprocessors) {
      SCOPED_TRACE(::testing::Message() << c.rows() << " rows, " << context.num_multiprocessors << " multiprocessors");
      std::vector<std::byte> first;
      int different = 0;
      for (int turn = 0; turn < 200; ++turn) {
        cuda::tma_attention_backward(context, backward);
        if (turn == 0) first = d_qkv.bits();
        different += d_qkv.bits() != first;
      }
      EXPECT_EQ(different, 0);
    }
  }
}

TEST_P(GroupedAttentionTest, LongSequences) {
  if (dtype() == DType::f64) GTEST_SKIP() << "f64 uses the same kernels for long and for short sequences";
  check({{2100, 33}, 2, 1, 128}, By::own);
  check({{2100}, 2, 1, 64, 700}, By::own);
  check({{2100}, 2, 2, 64, 700}, By::tma);
  if (size_of(dtype()) == 2) check({{4100}, 1, 1, 128}, By::own);
}

TEST_P(GroupedAttentionTest, DecodeContinuesAPrompt) {
  const Grouped cases[] = {{{5, 1, 130, 700}, 2, 1, 64}, {{5, 130}, 4, 1, 128, 50}, {{60, 200}, 8, 1, 128},
                           {{60, 200}, 7, 1, 64},        {{60, 2}, 12, 1, 64},      {{60, 20}, 6, 2, 20, 9},
                           {{60, 20}, 4, 2, 256},        {{60, 20}, 3, 3, 80, 20}};
  for (const Grouped& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim);
    const int64_t D = c.head_dim, N = c.rows(), C = c.heads * D, KD = c.kv_heads * D, W = C + 2 * KD,
                  B = static_cast<int64_t>(c.lengths.size());
    // `longer` has the same sequences, each with one more token. The reference computes all rows of `longer`.
    // attention_decode() must give the last row of each sequence.
    Grouped longer = c;
    for (int32_t& n : longer.lengths) ++n;
    const std::vector<int32_t> places = starts_of(longer.lengths), cache_starts(places.begin(), places.end() - 1);
    const int64_t rows = N + B;
    Tensor all = random_tensor(dtype(), {rows, W}, 1);
    std::vector<double> prompt, step;
    for (int64_t b = 0; b < B; ++b) {
      const auto begin = all.expected().begin() + cache_starts[static_cast<size_t>(b)] * W,
                 end = begin + c.lengths[static_cast<size_t>(b)] * W;
      prompt.insert(prompt.end(), begin, end);
      step.insert(step.end(), end, end + W);
    }
    Tensor qkv(dtype(), {N, W}, prompt), next(dtype(), {B, W}, step), starts(starts_of(c.lengths)), at(cache_starts),
        lengths(c.lengths), keys(dtype(), {rows, KD}), values(dtype(), {rows, KD}), o(dtype(), {B, C});
    rig().gpu_kernels->store_keys_values({.qkv = qkv.gpu(),
                                          .starts = starts.gpu(),
                                          .shape = c.shape(),
                                          .cache_starts = at.gpu(),
                                          .keys = keys.gpu(),
                                          .values = values.gpu()});
    rig().gpu_kernels->attention_decode({.qkv = next.gpu(),
                                         .shape = c.shape(),
                                         .cache_starts = at.gpu(),
                                         .lengths = lengths.gpu(),
                                         .keys = keys.gpu(),
                                         .values = values.gpu(),
                                         .o = o.gpu()});
    std::vector<double> expected_keys, expected_values, expected_o;
    const Reference reference(longer, all.expected(), std::vector<double>(static_cast<size_t>(rows * C), 0));
    for (int64_t row = 0; row < rows; ++row) {
      const auto key = all.expected().begin() + row * W + C;
      expected_keys.insert(expected_keys.end(), key, key + KD);
      expected_values.insert(expected_values.end(), key + KD, key + 2 * KD);
    }
    for (int64_t b = 0; b < B; ++b) {
      const auto last = reference.o.begin() + (places[static_cast<size_t>(b) + 1] - 1) * C;
      expected_o.insert(expected_o.end(), last, last + C);
    }
    expect_close(keys, expected_keys, 0, "keys");
    expect_close(values, expected_values, 0, "values");
    const double scores = arithmetic_roundoff(dtype()) * (64 + 2 * static_cast<double>(D));
    expect_close(o, expected_o, 2 * scores + 2 * roundoff(dtype()), "o");
  }
}

}  // namespace
}  // namespace tessera::testing
