#include <algorithm>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

TEST(Arrays, FillConvert) {
  for (int threads : {1, 2, 3}) {
    Rig rig(threads);
    std::vector<float> x(70001, 1.0f), y(x.size());
    rig->fill(view(x), 0);
    EXPECT_EQ(x, std::vector<float>(x.size(), 0.0f));
    rig->fill(view(x), -2.5);
    EXPECT_EQ(x, std::vector<float>(x.size(), -2.5f));
    x = random_values<float>(70001, 1);
    rig->convert(view(x), view(y));
    EXPECT_EQ(x, y);
    std::vector<uint16_t> half(x.size());
    const View half_view{reinterpret_cast<std::byte*>(half.data()), DType::bf16, {70001}};
    rig->convert(view(x), half_view);
    rig->convert(half_view, view(y));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 0x1p-8 * std::abs(x[i]));
    std::vector<int32_t> ids(9, 4);
    rig->fill(view(ids), 0);
    EXPECT_EQ(ids, std::vector<int32_t>(9, 0));
  }
}

TEST(Arrays, SumOfSquaresIsAddedAndDoesNotDependOnTheThreads) {
  auto x = random_values<float>(200003, 1);
  double expected = 3;
  for (float value : x) expected += static_cast<double>(value) * static_cast<double>(value);
  double first = 0;
  for (int threads : {1, 2, 3}) {
    Rig rig(threads);
    std::vector<double> sum{3};
    rig->add_sum_of_squares(view(x), view(sum));
    EXPECT_NEAR(sum[0], expected, expected * 0x1p-53 * 65536);
    if (first == 0) first = sum[0];
    EXPECT_EQ(sum[0], first);
  }
}

TEST(Arrays, EmptyArraysNeedNoWork) {
  Rig rig;
  float nothing = 0;
  std::vector<double> sum{1};
  const View empty = view_of(&nothing, {0});
  rig->fill(empty, 1);
  rig->convert(empty, empty);
  rig->add_sum_of_squares(empty, view(sum));
  rig->fill_normal(empty, 0, 1, 1, 1, 0);
  EXPECT_EQ(sum[0], 1);
}

// The moments of a sample must be within six standard deviations of the expected moments. For a normal z, the variances
// of z², z³ and z⁴ are 2, 15 and 96.
TEST(Random, NormalHasTheMomentsOfTheDistribution) {
  Rig rig;
  const int64_t count = 1 << 20;
  std::vector<float> x(count);
  rig->fill_normal(view(x), 0.5, 2.0, 11, 3, 0);
  double sum = 0, squares = 0, cubes = 0, fourths = 0, lagged = 0;
  int64_t beyond = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double z = (static_cast<double>(x[i]) - 0.5) / 2;
    sum += z, squares += z * z, cubes += z * z * z, fourths += z * z * z * z;
    if (i > 0) lagged += z * (static_cast<double>(x[i - 1]) - 0.5) / 2;
    beyond += std::abs(z) > 2.5758293;  // true for 1 % of the distribution
  }
  const double n = static_cast<double>(count), root = 6 * std::sqrt(n);
  EXPECT_NEAR(sum, 0, root);
  EXPECT_NEAR(lagged, 0, root);
  EXPECT_NEAR(squares, n, root * std::sqrt(2.0));
  EXPECT_NEAR(cubes, 0, root * std::sqrt(15.0));
  EXPECT_NEAR(fourths, 3 * n, root * std::sqrt(96.0));
  EXPECT_NEAR(static_cast<double>(beyond), 0.01 * n, root * 0.1);
}

TEST(Random, UniformFillsItsRangeFromTheDocumentedBits) {
  Rig rig;
  std::vector<float> x(10007);
  rig->fill_uniform(view(x), -0.25, 0.75, 5, 9, 6);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t elem = i + 6;
    ASSERT_FLOAT_EQ(x[i] + 1.0f, uniform_float(philox(5, elem / 4, 9)[elem % 4]) + 0.75f) << i;
  }
  EXPECT_LT(*std::min_element(x.begin(), x.end()), -0.24f);
  EXPECT_GT(*std::max_element(x.begin(), x.end()), 0.74f);
}

TEST(Random, AShardEqualsItsPartOfTheArray) {
  Rig one_rig(1), shard_rig(3);
  std::vector<float> complete(30011);
  one_rig->fill_normal(view(complete), 0, 0.02, 8, 1, 0);
  for (auto [first, count] : {std::pair{0, 30011}, {1, 5}, {4099, 20000}, {63, 2}, {30010, 1}}) {
    std::vector<float> shard(static_cast<size_t>(count));
    shard_rig->fill_normal(view(shard), 0, 0.02, 8, 1, first);
    ASSERT_TRUE(std::equal(shard.begin(), shard.end(), complete.begin() + first)) << first;
  }
  std::vector<float> other(complete.size());
  one_rig->fill_normal(view(other), 0, 0.02, 8, 2, 0);
  EXPECT_NE(other, complete);
}

TEST(Embedding, ForwardGatherScatter) {
  const int64_t vocabulary = 50, channels = 37;
  for (int threads : {1, 3}) {
    Rig rig(threads);
    auto weight = random_values<float>(vocabulary * channels, 1);
    std::vector<int32_t> ids{49, 0, 7, 7, 12, 3, 3, 48, 20, 21, 22, 23, 24, 25, 26, 27, 28};
    const auto rows = static_cast<int64_t>(ids.size());
    std::vector<float> y(static_cast<size_t>(rows * channels));
    rig->gather_rows(view(weight, {vocabulary, channels}), view(ids), view(y, {rows, channels}));
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        ASSERT_EQ(y[static_cast<size_t>(n * channels + c)],
                  weight[static_cast<size_t>(ids[static_cast<size_t>(n)] * channels + c)]);
      }
    }
    std::vector<int32_t> chosen{16, 2, 9};
    std::vector<float> part(static_cast<size_t>(3 * channels)), back(y.size(), NAN);
    rig->gather_rows(view(y, {rows, channels}), view(chosen), view(part, {3, channels}));
    rig->scatter_rows(view(part, {3, channels}), view(chosen), view(back, {rows, channels}));
    for (int64_t n = 0; n < rows; ++n) {
      const bool kept = n == 16 || n == 2 || n == 9;
      for (int64_t i = n * channels; i < (n + 1) * channels; ++i) {
        ASSERT_EQ(back[static_cast<size_t>(i)], kept ? y[static_cast<size_t>(i)] : 0.0f);
      }
    }
  }
}

TEST(Embedding, GradientsMatchFiniteDifferences) {
  const int64_t vocabulary = 6, channels = 5;
  Rig rig(2);
  auto weight = random_values(vocabulary * channels, 1);
  std::vector<int32_t> ids{3, 0, 3, 5, 3}, chosen{4, 0, 1};  // chosen: rows with a loss, which the head gathers
  const auto rows = static_cast<int64_t>(ids.size()), num_chosen = static_cast<int64_t>(chosen.size());
  auto r = random_values(num_chosen * channels, 2);
  std::vector<double> y(static_cast<size_t>(rows * channels)), d_y(y.size()), part(r.size()), d_weight(weight.size());
  const auto value = [&] {
    rig->gather_rows(view(weight, {vocabulary, channels}), view(ids), view(y, {rows, channels}));
    rig->gather_rows(view(y, {rows, channels}), view(chosen), view(part, {num_chosen, channels}));
    return dot(part, r);
  };
  rig->scatter_rows(view(r, {num_chosen, channels}), view(chosen), view(d_y, {rows, channels}));
  rig->embedding_backward(view(ids), view(d_y, {rows, channels}), view(d_weight, {vocabulary, channels}));
  expect_gradient(weight, d_weight, value, "weight");
}

TEST(Embedding, BackwardAddsEveryOccurrenceWhateverTheThreads) {
  const int64_t vocabulary = 11, channels = 200, rows = 300;
  auto d_y = random_values<float>(rows * channels, 1);
  const auto before = random_values<float>(vocabulary * channels, 2);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < rows; ++i) ids.push_back(i * i % 10);  // id 10 never occurs
  auto expected = converted<double>(before);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      expected[static_cast<size_t>(ids[static_cast<size_t>(n)] * channels + c)] +=
          static_cast<double>(d_y[static_cast<size_t>(n * channels + c)]);
    }
  }
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    Rig rig(threads);
    auto d_weight = before;
    rig->embedding_backward(view(ids), view(d_y, {rows, channels}), view(d_weight, {vocabulary, channels}));
    expect_close(d_weight, expected, 0x1p-24 * static_cast<double>(rows) * std::sqrt(static_cast<double>(rows)),
                 "d_weight");
    if (first.empty()) first = d_weight;
    EXPECT_EQ(d_weight, first);
  }
}

// The reference is torch.optim.AdamW (its single-tensor form), step by step in double precision.
TEST(AdamW, FollowsTorch) {
  const size_t count = 1003;
  Rig rig(3);
  auto p = random_values<float>(count, 1);
  std::vector<float> m(count), v(count);
  auto reference_p = converted<double>(p);
  std::vector<double> reference_m(count), reference_v(count);
  const double lr = 1e-2, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1, scale = 0.5;
  for (int t = 1; t <= 10; ++t) {
    auto g = random_values<float>(count, static_cast<uint64_t>(100 + t));
    AdamWStep step{lr, beta1, beta2, eps, decay, 1 - std::pow(beta1, t), 1 - std::pow(beta2, t), scale, 500};
    rig->adamw({.parameters = view(p), .gradients = view(g), .m = view(m), .v = view(v)}, step);
    for (size_t i = 0; i < count; ++i) {
      const double gradient = static_cast<double>(g[i]) * scale;
      if (i < 500) reference_p[i] *= 1 - lr * decay;
      reference_m[i] = beta1 * reference_m[i] + (1 - beta1) * gradient;
      reference_v[i] = beta2 * reference_v[i] + (1 - beta2) * gradient * gradient;
      reference_p[i] -= lr / step.bias_correction1 * reference_m[i] /
                        (std::sqrt(reference_v[i]) / std::sqrt(step.bias_correction2) + eps);
    }
  }
  // In each of the 10 steps, p (|p| < 2) is rounded three times, by at most 2^-24 each time. Its update, of size lr,
  // has a relative error of at most 16 · 2^-24. m (|m| < 1) and v (v < 0.01) are rounded twice per step, but their
  // bounds allow four roundings.
  expect_close(p, reference_p, 10 * (3 * 0x1p-24 + lr * 16 * 0x1p-24), "p");
  expect_close(m, reference_m, 10 * 4 * 0x1p-24, "m");
  expect_close(v, reference_v, 10 * 4 * 0x1p-24 * 0.01, "v");
}

TEST(AdamW, ShardsAndPartsEqualOneCall) {
  const int64_t count = 20011, decayed = 9000;
  Rig one(1), three(3);
  auto p = random_values<float>(count, 1), g = random_values<float>(count, 2), m = random_values<float>(count, 3);
  auto v = random_values<float>(count, 4);
  for (float& x : v) x = std::abs(x);
  AdamWStep step{1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001, 1, decayed};
  auto p2 = p, m2 = m, v2 = v;
  one->adamw({.parameters = view(p), .gradients = view(g), .m = view(m), .v = view(v)}, step);
  for (int64_t begin = 0; begin < count; begin += 7777) {
    const int64_t end = std::min(count, begin + 7777);
    step.num_decayed = decayed - begin;  // may be negative or larger than the part
    auto part = [&](std::vector<float>& x) { return view(x).rows(begin, end); };
    step.writes = AdamWWrites::parameters;
    three->adamw({.parameters = part(p2), .gradients = part(g), .m = part(m2), .v = part(v2)}, step);
    step.writes = AdamWWrites::moments;
    three->adamw({.gradients = part(g), .m = part(m2), .v = part(v2)}, step);
  }
  EXPECT_EQ(p, p2);
  EXPECT_EQ(m, m2);
  EXPECT_EQ(v, v2);
}

TEST(Kernels, HoldAFixedScratchAndCountIt) {
  Rig rig(3);
  const int64_t held = rig.device->ledger().current(Category::workspace);
  EXPECT_GT(held, 0);
  rig.kernels.reset();
  EXPECT_EQ(rig.device->ledger().current(Category::workspace), 0);
}

}  // namespace
}  // namespace tessera::testing
