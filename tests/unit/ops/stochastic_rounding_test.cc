// Tests stochastic rounding to bf16, and AdamW with bf16 states. The reference computes with the f32 kernel. Then it
// rounds one element at a time, with words of philox().
#include "tessera/ops/stochastic_rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

uint32_t word_of(uint64_t seed, int64_t update, int64_t elem) {
  return philox(seed, rounding_counter(elem), rounding_counter_high(update))[rounding_word_index(elem)];
}

// A result is one of the two bf16 neighbours of the value. The mean of the results over all 2^16 random numbers is
// exactly the value.
TEST(StochasticRounding, HasTheValueAsItsMean) {
  RandomStream random(1, 0);
  for (int i = 0; i < 60; ++i) {
    const auto bits = static_cast<uint32_t>(random.next_below(0x7f000000u)) | (i % 2 ? 0x80000000u : 0u);
    // The first 4 values are exact in bf16.
    const float value = std::bit_cast<float>(i < 4 ? bits & 0xffff0000u : bits);
    const double low = bf16_to_f32(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    const double unit =
        static_cast<double>(bf16_to_f32(static_cast<uint16_t>((std::bit_cast<uint32_t>(value) >> 16) + 1))) - low;
    for (const Rounded which : {Rounded::m, Rounded::v, Rounded::p}) {
      int64_t num_raised = 0;
      for (uint32_t r = 0; r < 0x10000u; ++r) {
        const double rounded = bf16_to_f32(stochastic_bf16(value, r << static_cast<uint32_t>(which), which));
        ASSERT_TRUE(rounded == low || rounded == low + unit) << value;
        num_raised += rounded != low;
      }
      EXPECT_EQ(low + unit * static_cast<double>(num_raised) / 0x1p16, value);
    }
  }
}

TEST(StochasticRounding, KeepsZeroInfinityAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  for (const uint32_t word : {0u, 0xffffu, 0x8000u}) {
    const auto rounded = [&](float value) { return bf16_to_f32(stochastic_bf16(value, word, Rounded::m)); };
    EXPECT_EQ(rounded(kInfinity), kInfinity);
    EXPECT_EQ(rounded(-kInfinity), -kInfinity);
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0xffffffffu))));
    EXPECT_TRUE(std::isfinite(rounded(kMost)));
    EXPECT_EQ(rounded(-kMost), -bf16_to_f32(0x7f7f));
    EXPECT_EQ(std::bit_cast<uint32_t>(rounded(0.0f)), 0u);
    EXPECT_EQ(std::bit_cast<uint32_t>(rounded(-0.0f)), 0x80000000u);
  }
}

// Tests the random bits that round the moments m and v and the parameters p. The bits are uniform. They are independent
// between elements, updates and seeds. The bits of m and p are independent of each other. v shares 8 of its 16 bits
// with m and 8 with p, so it has a correlation of 1/256 with each. The standard deviation of a mean of n uniform
// numbers in [0, 1) is 1/√(12 n). For a correlation, it is 1/√n. The bounds are five standard deviations.
TEST(StochasticRounding, HasUniformAndIndependentBits) {
  constexpr int64_t kCount = 400000;
  const double root = std::sqrt(static_cast<double>(kCount));
  const auto bits = [](uint64_t seed, int64_t update, int64_t first, Rounded which) {
    std::vector<double> values;
    for (int64_t i = 0; i < kCount; ++i) {
      const uint32_t word = word_of(seed, update, first + i);
      values.push_back(static_cast<double>((word >> static_cast<uint32_t>(which)) & 0xffffu) / 0x1p16);
    }
    return values;
  };
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += 12 * (a[i] - 0.5) * (b[i] - 0.5);
    return sum / static_cast<double>(a.size());
  };
  const std::vector<double> m = bits(42, 7, 1000, Rounded::m), v = bits(42, 7, 1000, Rounded::v),
                            p = bits(42, 7, 1000, Rounded::p);
  for (const std::vector<double>* values : {&m, &v, &p}) {
    double sum = 0;
    for (const double x : *values) sum += x;
    EXPECT_NEAR(sum / kCount, 0.5, 5 / (std::sqrt(12.0) * root));
  }
  EXPECT_NEAR(correlation(m, p), 0, 5 / root);
  EXPECT_NEAR(correlation(m, v), 1.0 / 256, 5 / root);
  EXPECT_NEAR(correlation(v, p), 1.0 / 256, 5 / root);
  for (const std::vector<double>& other :
       {bits(42, 8, 1000, Rounded::m), bits(43, 7, 1000, Rounded::m), bits(42, 7, 1001, Rounded::m),
        bits(42, 7, 1016, Rounded::m), bits(42, 7, 1000 + (int64_t{1} << 40), Rounded::m)}) {
    EXPECT_NEAR(correlation(m, other), 0, 5 / root);
  }
}

struct NarrowStates {
  std::vector<uint16_t> p, m, v;

  static View flat(std::vector<uint16_t>& values, DType dtype = DType::bf16) {
    return {reinterpret_cast<std::byte*>(values.data()), dtype, {static_cast<int64_t>(values.size())}};
  }
  static std::vector<float> widened(const std::vector<uint16_t>& values) {
    std::vector<float> result;
    for (const uint16_t x : values) result.push_back(bf16_to_f32(x));
    return result;
  }
  bool operator==(const NarrowStates&) const = default;
};

NarrowStates random_states(int64_t count, uint64_t seed) {
  NarrowStates states;
  const auto p = random_values<float>(count, seed), m = random_values<float>(count, seed + 1),
             v = random_values<float>(count, seed + 2);
  for (size_t i = 0; i < p.size(); ++i) {
    states.p.push_back(f32_to_bf16(std::ldexp(p[i], -static_cast<int>(i % 40))));
    states.m.push_back(f32_to_bf16(std::ldexp(m[i], -static_cast<int>(i % 90))));
    states.v.push_back(f32_to_bf16(std::ldexp(v[i] * v[i], -static_cast<int>(i % 100))));
  }
  return states;
}

// Makes one update with the f32 kernel, then rounds one element at a time.
NarrowStates reference(NarrowStates states, const std::vector<float>& gradients, const AdamWStep& step) {
  Rig rig(1);
  auto p = NarrowStates::widened(states.p), m = NarrowStates::widened(states.m), v = NarrowStates::widened(states.v);
  auto g = gradients;
  rig->adamw({.parameters = view(p), .gradients = view(g), .m = view(m), .v = view(v)}, step);
  for (size_t i = 0; i < p.size(); ++i) {
    const uint32_t word = word_of(step.seed, step.number, step.first_elem + static_cast<int64_t>(i));
    states.p[i] = stochastic_bf16(p[i], word, Rounded::p);
    states.m[i] = stochastic_bf16(m[i], word, Rounded::m);
    states.v[i] = stochastic_bf16(v[i], word, Rounded::v);
  }
  return states;
}

// The kernel uses vector code. It must compute the same bits as the reference with any number of threads, in parts, at
// any place in the model, with any type of gradients, and with moments that are written later.
TEST(AdamWOfBf16States, HasTheBitsOfTheReference) {
  RandomStream random(9, 0);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n))); };
  Rig one(1), three(3);
  for (const int64_t count : {1, 31, 63, 64, 65, 200, 1000, 4097, 20011}) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const int64_t first_elem = std::vector<int64_t>{0, 64 * below(1000), below(100000),
                                                      (int64_t{1} << 33) + 7}[static_cast<size_t>(below(4))];
      AdamWStep step{.learning_rate = 1e-2, .weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.01};
      step.gradient_scale = 0.7;
      step.num_decayed = below(count + 1);
      step.seed = random.next_u64();
      step.number = 1 + below(100000);
      step.first_elem = first_elem;
      const NarrowStates before = random_states(count, static_cast<uint64_t>(count));
      auto gradients = random_values<float>(count, 77);
      std::vector<uint16_t> narrow(gradients.size());
      View g = view(gradients);
      if (type != DType::f32) {
        g = NarrowStates::flat(narrow, type);
        convert(gradients.data(), DType::f32, narrow.data(), type, narrow.size());
        convert(narrow.data(), type, gradients.data(), DType::f32, narrow.size());
      }
      SCOPED_TRACE(std::to_string(count) + " " + name_of(type) + " from " + std::to_string(first_elem));
      const NarrowStates expected = reference(before, gradients, step);
      NarrowStates at_once = before, in_parts = before;
      const auto update = [&](Rig& rig, NarrowStates& s, int64_t begin, int64_t end, AdamWWrites writes) {
        AdamWStep part = step;
        part.num_decayed = step.num_decayed - begin;
        part.first_elem = first_elem + begin;
        part.writes = writes;
        const auto rows = [&](std::vector<uint16_t>& x) { return NarrowStates::flat(x).rows(begin, end); };
        const View p = writes == AdamWWrites::moments ? View{} : rows(s.p);
        rig->adamw({.parameters = p, .gradients = g.rows(begin, end), .m = rows(s.m), .v = rows(s.v)}, part);
      };
      update(three, at_once, 0, count, AdamWWrites::all);
      EXPECT_EQ(at_once, expected);
      for (int64_t begin = 0; begin < count;) {
        const int64_t end = std::min(count, begin + 1 + below(3000));
        if (below(2)) {
          update(one, in_parts, begin, end, AdamWWrites::all);
        } else {
          update(one, in_parts, begin, end, AdamWWrites::parameters);
          update(three, in_parts, begin, end, AdamWWrites::moments);
        }
        begin = end;
      }
      EXPECT_EQ(in_parts, expected);
    }
  }
}

// Makes 2000 updates of 4096 elements. The gradient is constant, so AdamW's direction is 1. Before it rounds, each
// update subtracts lr = 2^-14 from each element. Between 1 and 2, bf16 values are 2^-7 apart. This distance is the
// unit. Rounding to nearest would never move the elements. With stochastic rounding, their mean moves like f32
// parameters. Each rounding adds q(1 − q) units² to the variance of an element, with q = 2^-14 / 2^-7. The test uses q
// as an upper bound of q(1 − q). The standard deviation of the mean of all 4096 elements is 64 times smaller than the
// standard deviation of one element. The bound is five standard deviations of the mean, plus 1 % of the movement (see
// below).
TEST(AdamWOfBf16States, DoesNotLoseSmallUpdates) {
  constexpr int64_t kCount = 4096, kUpdates = 2000;
  constexpr double kRate = 0x1p-14, kUnit = 0x1p-7;
  Rig rig(2);
  NarrowStates states;
  states.p.assign(kCount, f32_to_bf16(2.0f));
  states.m.assign(kCount, 0);
  states.v.assign(kCount, 0);
  std::vector<float> gradients(kCount, 0.125f);
  for (int64_t t = 1; t <= kUpdates; ++t) {
    AdamWStep step{.learning_rate = kRate, .num_decayed = 0};
    step.bias_correction1 = 1 - std::pow(step.beta1, t);
    step.bias_correction2 = 1 - std::pow(step.beta2, t);
    step.seed = 3;
    step.number = t;
    rig->adamw({.parameters = NarrowStates::flat(states.p),
                .gradients = view(gradients),
                .m = NarrowStates::flat(states.m),
                .v = NarrowStates::flat(states.v)},
               step);
  }
  const auto mean = [](const std::vector<uint16_t>& values) {
    double sum = 0;
    for (const float x : NarrowStates::widened(values)) sum += x;
    return sum / static_cast<double>(values.size());
  };
  const double deviation = std::sqrt(kUpdates * kRate / kUnit) / std::sqrt(static_cast<double>(kCount));
  // The noise of m and v changes the direction by a second-order term, below 1 %.
  EXPECT_NEAR(mean(states.p), 2 - kRate * kUpdates, 5 * deviation * kUnit + 0.01 * kRate * kUpdates);
  // m and v approach g and g². A rounding adds at most a quarter of a unit² to their variance. Here, a unit is the
  // distance between bf16 values near m or v: at most 2^-7 of the value. About 1/(2(1 − β)) roundings count: 5 for m
  // and 500 for v.
  EXPECT_NEAR(mean(states.m), 0.125, 0.125 * 5 * 0x1p-7 * std::sqrt(5.0 / 4) / 64);
  EXPECT_NEAR(mean(states.v), 0.015625 * (1 - std::pow(0.999, kUpdates)),
              0.015625 * 5 * 0x1p-7 * std::sqrt(500.0 / 4) / 64);
}

}  // namespace
}  // namespace tessera::testing
