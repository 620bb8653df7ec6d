#include <algorithm>

#include "attention_testing.h"
#include "tessera/ops/cuda/attention.h"

namespace tessera::testing {
namespace {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, head_dim;
  QkvLayout layout = QkvLayout::interleaved;
  bool alibi = true;
  float dropout = 0;

  int64_t channels() const { return heads * head_dim; }
  int64_t rows() const { return rows_of(lengths); }
  double longest() const { return *std::max_element(lengths.begin(), lengths.end()); }
  Tensor slopes() const {
    std::vector<double> slopes;
    for (int64_t h = 0; h < heads; ++h)
      slopes.push_back(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads)));
    return Tensor(DType::f32, {heads}, slopes);
  }
};

const Case kCases[] = {
    {{1}, 1, 8},
    {{1, 1, 2}, 3, 16, QkvLayout::blocked, false},
    {{5, 64, 1, 65}, 2, 8},
    {{5, 64, 1, 65}, 2, 8, QkvLayout::interleaved, true, 0.2f},
    {{130, 3, 63}, 3, 40, QkvLayout::blocked, true, 0.1f},
    {{130, 3, 63}, 3, 40, QkvLayout::blocked},
    {{77, 128, 129}, 5, 64},
    {{300, 512, 1, 33}, 2, 64, QkvLayout::blocked, false},
    {{200, 65}, 2, 80},
    {{200, 65}, 2, 96},
    {{257, 20}, 2, 112},
    {{257, 64}, 2, 128, QkvLayout::blocked, false},
    {{300, 70}, 2, 64, QkvLayout::interleaved, true, 0.3f},
    {{200, 65}, 2, 80, QkvLayout::blocked, false, 0.2f},
    {{140}, 1, 128, QkvLayout::interleaved, true, 0.1f},
    {{60}, 1, 320, QkvLayout::blocked, true, 0.2f},
    {{50}, 1, 320, QkvLayout::blocked},  // too wide for the kernels on tensor cores
    {{70, 2}, 2, 20},                    // head_dim is not a multiple of the vector width
    {{33}, 3, 5},
    {{9, 0, 4}, 2, 8},  // an empty sequence
    {std::vector<int32_t>(70, 3), 1, 16},
    {{0,  1, 64, 65, 200, 3, 0, 130, 64, 1, 65, 20, 64, 1, 7, 0, 129, 65, 64, 2,
      90, 1, 64, 65, 33,  3, 0, 130, 64, 1, 65, 20, 64, 1, 7, 0, 320, 65, 64, 2},
     2,
     64},
};

// The slopes of ALiBi, in f32 on the GPU and on the CPU. A Tensor has its values in f64 on the CPU, but the CPU's
// kernels expect f32 slopes, even if all other arrays are f64.
struct SlopesOnBoth {
  explicit SlopesOnBoth(const Case& c) : gpu(c.slopes()) {
    for (const double x : gpu.expected()) cpu.push_back(static_cast<float>(x));
  }
  View operator()(const Side& at) {
    return at.gpu ? gpu.gpu() : view_of(cpu.data(), {static_cast<int64_t>(cpu.size())});
  }
  Tensor gpu;
  std::vector<float> cpu;
};

class AttentionTest : public TypedTest {
 protected:
  // The kernels to test. `own`: the kernels that Tessera itself chooses, from the GPU and the arguments of the call.
  // `tma`: those with TMA, for Hopper. `mma`: those with mma.sync, for sm_80 or later. `older`: the kernels for GPUs
  // before sm_80.
  enum class By { own, tma, mma, older };
  void check(const Case& c, By by);
};
TESSERA_FOR_ALL_TYPES(AttentionTest);

TEST_P(AttentionTest, ForwardAndBackward) {
  for (const Case& c : kCases) check(c, By::own);
}

TEST_P(AttentionTest, ForwardAndBackwardByMma) {
  if (size_of(dtype()) != 2 || cuda::code_major_for_this_gpu() < 8)
    GTEST_SKIP() << "mma.sync with 16-bit types needs sm_80 or later";
  // Heads of more than 64 elements need no test here: Tessera chooses these kernels if such a call has dropout, so
  // ForwardAndBackward tests them.
  for (const Case& c : kCases) {
    if (c.head_dim % 8 == 0 && c.head_dim <= 64) check(c, By::mma);
  }
}

TEST_P(AttentionTest, ForwardAndBackwardByTma) {
  if (size_of(dtype()) != 2 || !is_hopper()) GTEST_SKIP() << "these kernels need Hopper and 16-bit types";
  for (const Case& c : kCases) {
    if (c.head_dim % 8 == 0 && c.head_dim <= 128 && c.dropout == 0) check(c, By::tma);
  }
}

TEST_P(AttentionTest, ForwardAndBackwardOnAnOlderGpu) {
  for (const Case& c : kCases) check(c, By::older);
}

void AttentionTest::check(const Case& c, By by) {
  SCOPED_TRACE(::testing::Message() << "case " << &c - kCases << ", head of " << c.head_dim);
  const int64_t N = c.rows(), C = c.channels();
  Tensor qkv = random_tensor(dtype(), {N, 3 * C}, 1), d_o = random_tensor(dtype(), {N, C}, 2),
         starts(starts_of(c.lengths)), o(dtype(), {N, C}), log_sum_exp(stats(), {N, c.heads}),
         d_qkv(dtype(), {N, 3 * C}), ids(row_ids(N)),
         workspace(DType::f32, {attention_workspace_elems(dtype(), {c.heads, c.head_dim, c.layout, {}}, N)});
  SlopesOnBoth slopes(c);
  const auto shape = [&](const Side& at) {
    return AttentionShape{c.heads, c.head_dim, c.layout, c.alibi ? slopes(at) : View{}};
  };
  const auto dropout = [&](const Side& at) { return Dropout{c.dropout, 31, 4, at(ids)}; };
  cuda::CudaKernels older = kernels_of_older_gpus();
  on_both({&o, &log_sum_exp, &d_qkv}, [&](Kernels& own, const Side& at) {
    const Kernels::AttentionForward forward{.qkv = at(qkv),
                                            .starts = at(starts),
                                            .shape = shape(at),
                                            .dropout = dropout(at),
                                            .o = at(o),
                                            .log_sum_exp = at(log_sum_exp)};
    const Kernels::AttentionBackward backward{.qkv = at(qkv),
                                              .o = at(o),
                                              .log_sum_exp = at(log_sum_exp),
                                              .d_o = at(d_o),
                                              .starts = at(starts),
                                              .shape = shape(at),
                                              .dropout = dropout(at),
                                              .d_qkv = at(d_qkv),
                                              .workspace = at(workspace)};
    if (at.gpu && by == By::tma) {
      cuda::tma_attention_forward(older.context(), forward);
      return cuda::tma_attention_backward(older.context(), backward);
    }
    if (at.gpu && by == By::mma) {
      cuda::mma_attention_forward(older.context(), forward);
      return cuda::mma_attention_backward(older.context(), backward);
    }
    Kernels& k = at.gpu && by == By::older ? older : own;
    k.attention_forward(forward);
    k.attention_backward(backward);
  });
  // `scores` bounds the error of a score: the roundoff of the arithmetic times the size of the score. With ALiBi, this
  // size grows with the slope times the length of the sequence. A probability is the exponential of its score, so the
  // absolute error of the score is the relative error of the probability. o is an average of values ≤ 1, divided by 1 −
  // the dropout rate. The weights of this average, and o itself, are rounded to the type.
  const double scores =
      arithmetic_roundoff(dtype()) * (8 * (c.alibi ? c.longest() : 4) + 2 * static_cast<double>(c.head_dim) + 32);
  log_sum_exp.expect_close(scores * 2, "log_sum_exp");
  o.expect_close(2 * scores + 4 * roundoff(dtype()) * std::max(1.0, o.largest()), "o");
  // Probabilities, gradients of scores, and the o in delta = Σ d_o∘o are rounded to the type. Some terms of a
  // sum are positive and some are negative, and so are their errors, so both partly cancel. The error of a sum, divided
  // by the largest result, is therefore at most a small multiple of the relative error of one term.
  const double largest = std::max(1.0, d_qkv.largest());
  d_qkv.expect_close((8 * scores + 12 * roundoff(dtype())) * largest, "d_qkv");

  if (by != By::own) return;
  Tensor without(dtype(), {N, C});
  rig().gpu_kernels->attention_forward({.qkv = qkv.gpu(),
                                        .starts = starts.gpu(),
                                        .shape = shape({true}),
                                        .dropout = dropout({true}),
                                        .o = without.gpu()});
  EXPECT_EQ(without.bits(), o.bits()) << "without log_sum_exp";
}

TEST_P(AttentionTest, DecodeContinuesAPrompt) {
  for (const auto& [heads, head_dim, layout] : {std::tuple<int64_t, int64_t, QkvLayout>{2, 64, QkvLayout::interleaved},
                                                {3, 16, QkvLayout::blocked},
                                                {16, 64, QkvLayout::interleaved},
                                                {2, 80, QkvLayout::interleaved},
                                                {1, 128, QkvLayout::blocked},
                                                {2, 20, QkvLayout::blocked},
                                                {1, 320, QkvLayout::interleaved}}) {
    SCOPED_TRACE(head_dim);
    const Case c{{5, 1, 130, 700}, heads, head_dim, layout};
    // The cache has room for `kCapacity` more tokens after each prompt.
    const int64_t N = c.rows(), C = c.channels(), kCapacity = 5;
    std::vector<int32_t> first;
    int32_t rows = 0;
    for (const int32_t n : c.lengths) {
      first.push_back(rows);
      rows += n + static_cast<int32_t>(kCapacity);
    }
    const int64_t B = static_cast<int64_t>(c.lengths.size());
    Tensor qkv = random_tensor(dtype(), {N, 3 * C}, 1), step = random_tensor(dtype(), {B, 3 * C}, 2),
           next = random_tensor(dtype(), {B, 3 * C}, 3), starts(starts_of(c.lengths)), cache_starts(first),
           lengths(c.lengths), keys(dtype(), {rows, C}, std::vector<double>(static_cast<size_t>(rows * C), 0)),
           values(dtype(), {rows, C}, std::vector<double>(static_cast<size_t>(rows * C), 0)), o(dtype(), {B, C}),
           o2(dtype(), {B, C});
    std::vector<int32_t> longer = c.lengths;
    for (int32_t& n : longer) ++n;
    Tensor longer_lengths(longer);
    SlopesOnBoth slopes(c);
    on_both({&o, &o2, &keys, &values}, [&](Kernels& k, const Side& at) {
      const AttentionShape shape{heads, head_dim, layout, slopes(at)};
      k.store_keys_values({.qkv = at(qkv),
                           .starts = at(starts),
                           .shape = shape,
                           .cache_starts = at(cache_starts),
                           .keys = at(keys),
                           .values = at(values)});
      k.attention_decode({.qkv = at(step),
                          .shape = shape,
                          .cache_starts = at(cache_starts),
                          .lengths = at(lengths),
                          .keys = at(keys),
                          .values = at(values),
                          .o = at(o)});
      k.attention_decode({.qkv = at(next),
                          .shape = shape,
                          .cache_starts = at(cache_starts),
                          .lengths = at(longer_lengths),
                          .keys = at(keys),
                          .values = at(values),
                          .o = at(o2)});
    });
    keys.expect_close(0, "keys");
    values.expect_close(0, "values");
    const double scores = arithmetic_roundoff(dtype()) * (8 * c.longest() + 2 * static_cast<double>(c.head_dim) + 32);
    o.expect_close(2 * scores + 2 * roundoff(dtype()), "o");
    o2.expect_close(2 * scores + 2 * roundoff(dtype()), "the second token's o");
  }
}

}  // namespace
}  // namespace tessera::testing
