#include "ops_testing.h"

namespace tessera::testing {
namespace {

struct Case {
  int64_t rows, heads, kv_heads, head_dim;
  bool norms;

  AttentionShape shape() const { return {heads, head_dim, QkvLayout::blocked, {}, kv_heads, 0}; }
};

// Returns fixed cases, and cases of random sizes.
std::vector<Case> cases() {
  std::vector<Case> all = {
      {1, 1, 1, 2, false}, {1, 1, 1, 2, true}, {67, 4, 2, 64, false}, {130, 3, 1, 80, true}, {9, 2, 2, 128, true}};
  RandomStream random(77, 3);
  for (int i = 0; i < 10; ++i) {
    const auto kv_heads = static_cast<int64_t>(1 + random.next_below(3));
    all.push_back({static_cast<int64_t>(1 + random.next_below(150)),
                   kv_heads * static_cast<int64_t>(1 + random.next_below(4)), kv_heads,
                   static_cast<int64_t>(2 * (1 + random.next_below(40))), random.next_below(2) == 0});
  }
  return all;
}

template <typename T>
struct Call {
  explicit Call(const Case& the_case)
      : c(the_case),
        width(c.shape().row_channels()),
        qkv(random_values<T>(c.rows * width, 1)),
        rotations(random_values<T>(c.rows * c.head_dim, 2)),  // any numbers, not only sines and cosines
        query_weight(random_values<T>(c.head_dim, 3)),
        key_weight(random_values<T>(c.head_dim, 4)),
        y(qkv.size(), T(NAN)) {}
  HeadNorms norms() { return c.norms ? HeadNorms{view(query_weight), view(key_weight), 1e-5} : HeadNorms{}; }
  View rows_of(std::vector<T>& values) { return view(values, {c.rows, width}); }
  View angles() { return view(rotations, {c.rows, c.head_dim}); }
  void forward() {
    rig->rotate_heads(
        {.qkv = rows_of(qkv), .rotations = angles(), .shape = c.shape(), .norms = norms(), .y = rows_of(y)});
  }

  Case c;
  int64_t width;
  std::vector<T> qkv, rotations, query_weight, key_weight, y;
  Rig rig{3};
};

template <typename T>
struct RotaryTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RotaryTest, FloatTypes);

TYPED_TEST(RotaryTest, AnglesEqualTheDefinition) {
  using T = TypeParam;
  Rig rig(2);
  std::vector<int32_t> positions{0, 1, 2, 1000, 131071};
  std::vector<float> frequencies{1.0f, 0.37f, 1e-4f};
  std::vector<T> rotations(positions.size() * 6);
  rig->rotary_angles(view(positions), view(frequencies), 1.25, view(rotations, {5, 6}));
  for (size_t i = 0; i < positions.size(); ++i) {
    for (size_t j = 0; j < 3; ++j) {
      const float angle = static_cast<float>(positions[i]) * frequencies[j];  // rounded to f32, as in transformers
      EXPECT_NEAR(rotations[i * 6 + j], 1.25 * std::cos(double{angle}), 4 * epsilon<T>());
      EXPECT_NEAR(rotations[i * 6 + 3 + j], 1.25 * std::sin(double{angle}), 4 * epsilon<T>());
    }
  }
}

TYPED_TEST(RotaryTest, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    Call<T> call(c);
    call.forward();
    const int64_t D = c.head_dim, half = D / 2;
    std::vector<double> expected(call.qkv.begin(), call.qkv.end());
    for (int64_t n = 0; n < c.rows; ++n) {
      for (int64_t head = 0; head < c.heads + c.kv_heads; ++head) {
        double* x = expected.data() + n * call.width + head * D;
        const auto& weight = head < c.heads ? call.query_weight : call.key_weight;
        double squares = 0;
        for (int64_t d = 0; d < D; ++d) squares += x[d] * x[d] / static_cast<double>(D);
        for (int64_t d = 0; c.norms && d < D; ++d)
          x[d] *= static_cast<double>(weight[static_cast<size_t>(d)]) / std::sqrt(squares + 1e-5);
        for (int64_t j = 0; j < half; ++j) {
          const auto cosine = static_cast<double>(call.rotations[static_cast<size_t>(n * D + j)]),
                     sine = static_cast<double>(call.rotations[static_cast<size_t>(n * D + half + j)]);
          const double first = x[j], second = x[half + j];
          x[j] = first * cosine - second * sine;
          x[half + j] = second * cosine + first * sine;
        }
      }
    }
    // With norms, the tolerance grows with √D, because a norm returns values of up to √D (before it multiplies by the
    // weight).
    expect_close(call.y, expected, epsilon<T>() * (c.norms ? 32 * std::sqrt(static_cast<double>(D)) : 4), "y");
    if (c.norms) continue;
    auto in_place = call.qkv;
    call.rig->rotate_heads(
        {.qkv = call.rows_of(in_place), .rotations = call.angles(), .shape = c.shape(), .y = call.rows_of(in_place)});
    EXPECT_EQ(in_place, call.y);
  }
}

TEST(Rotary, GradientsMatchFiniteDifferences) {
  for (const Case& c : cases()) {
    Call<double> call(c);
    auto r = random_values(static_cast<int64_t>(call.qkv.size()), 9);
    const auto value = [&] { return call.forward(), dot(call.y, r); };
    std::vector<double> d_qkv(call.qkv.size(), NAN), d_query(call.query_weight.size()), d_key(call.key_weight.size());
    call.rig->rotate_heads_backward({.d_y = call.rows_of(r),
                                     .qkv = c.norms ? call.rows_of(call.qkv) : View{},
                                     .rotations = call.angles(),
                                     .shape = c.shape(),
                                     .norms = call.norms(),
                                     .d_qkv = call.rows_of(d_qkv),
                                     .d_query_weight = c.norms ? view(d_query) : View{},
                                     .d_key_weight = c.norms ? view(d_key) : View{}});
    expect_gradient(call.qkv, d_qkv, value, "qkv");
    auto in_place = r;
    if (c.norms) {
      expect_gradient(call.query_weight, d_query, value, "query weight", 10);
      expect_gradient(call.key_weight, d_key, value, "key weight", 10);
    }
    call.rig->rotate_heads_backward({.d_y = call.rows_of(in_place),
                                     .qkv = c.norms ? call.rows_of(call.qkv) : View{},
                                     .rotations = call.angles(),
                                     .shape = c.shape(),
                                     .norms = call.norms(),
                                     .d_qkv = call.rows_of(in_place),
                                     .d_query_weight = c.norms ? view(d_query) : View{},
                                     .d_key_weight = c.norms ? view(d_key) : View{}});
    EXPECT_EQ(in_place, d_qkv);
  }
}

}  // namespace
}  // namespace tessera::testing
