// Tests AdamW with moments in 8 bits. The reference dequantizes the moments, makes one update with the f32 kernel, and
// quantizes the new moments one block at a time.
#include "tessera/base/quantized_moments.h"

#include <algorithm>
#include <cmath>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

struct QuantizedStates {
  std::vector<float> p;  // masters; split into two arrays of 16 bits if `narrow` is not empty
  std::vector<uint16_t> narrow;
  std::vector<int16_t> rest;
  std::vector<std::byte> m, v;

  int64_t count() const { return std::ssize(m) / static_cast<int64_t>(size_of(DType::q8_signed)) * kQuantizedValues; }
  bool operator==(const QuantizedStates&) const = default;
};

std::vector<float> moments(std::vector<std::byte>& blocks, DType dtype) {
  std::vector<float> values(blocks.size() / size_of(dtype) * kQuantizedValues);
  dequantize(blocks.data(), dtype, 0, std::ssize(values), values.data());
  return values;
}

QuantizedStates random_states(int64_t count, uint64_t seed, DType parameters) {
  QuantizedStates states;
  auto m = random_values<float>(count, seed + 1), v = random_values<float>(count, seed + 2);
  states.p = random_values<float>(count, seed);
  for (size_t i = 0; i < states.p.size(); ++i) {
    const int block = static_cast<int>(i / kQuantizedValues);
    states.p[i] = std::ldexp(states.p[i], -static_cast<int>(i % 40));
    m[i] = block % 7 == 3 ? 0 : std::ldexp(m[i], -static_cast<int>(i % 24) - 10 * block % 50);
    v[i] = block % 7 == 3 ? 0 : std::ldexp(v[i] * v[i], -static_cast<int>(i % 30) - 10 * block % 60);
  }
  const auto quantized = [&](const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> blocks(values.size() / kQuantizedValues * size_of(dtype));
    quantize(values.data(), count, dtype, blocks.data());
    return blocks;
  };
  states.m = quantized(m, DType::q8_signed);
  states.v = quantized(v, DType::q8_unsigned);
  if (parameters != DType::f32) {
    states.narrow.resize(states.p.size());
    states.rest.resize(states.p.size());
    convert(states.p.data(), DType::f32, states.narrow.data(), parameters, states.p.size());
    convert(states.p.data(), DType::f32, states.rest.data(), rest_of(parameters), states.p.size());
    states.p.clear();
  }
  return states;
}

Kernels::AdamWArrays arrays_of(QuantizedStates& states, DType parameters, View gradients, int64_t begin, int64_t end) {
  const auto flat = [&](auto& values, DType dtype) {
    return View{reinterpret_cast<std::byte*>(values.data()), dtype, {states.count()}}.rows(begin, end);
  };
  const auto blocks = [&](std::vector<std::byte>& values, DType dtype) {
    return View{values.data(), dtype, {states.count() / kQuantizedValues}}.rows(begin / kQuantizedValues,
                                                                                end / kQuantizedValues);
  };
  const bool split = parameters != DType::f32;
  return {.parameters = split ? flat(states.narrow, parameters) : flat(states.p, DType::f32),
          .rest = split ? flat(states.rest, rest_of(parameters)) : View{},
          .gradients = gradients.rows(begin, end),
          .m = blocks(states.m, DType::q8_signed),
          .v = blocks(states.v, DType::q8_unsigned)};
}

QuantizedStates reference(QuantizedStates states, DType parameters, View gradients, const AdamWStep& step) {
  Rig rig(1);
  auto m = moments(states.m, DType::q8_signed), v = moments(states.v, DType::q8_unsigned);
  Kernels::AdamWArrays arrays = arrays_of(states, parameters, gradients, 0, states.count());
  arrays.m = view(m);
  arrays.v = view(v);
  rig->adamw(arrays, step);
  quantize(m.data(), std::ssize(m), DType::q8_signed, states.m.data());
  quantize(v.data(), std::ssize(v), DType::q8_unsigned, states.v.data());
  return states;
}

// The kernel must compute the same bits as the reference with any number of threads, in parts of complete blocks, with
// any types of gradients and parameters, and with moments that are written later.
TEST(AdamWOfQuantizedMoments, HasTheBitsOfTheReference) {
  RandomStream random(9, 0);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n))); };
  Rig one(1), three(3);
  for (const int64_t num_blocks : {1, 2, 15, 16, 17, 100}) {
    for (const DType parameters : {DType::f32, DType::bf16, DType::f16}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        SCOPED_TRACE(std::to_string(num_blocks) + " " + name_of(parameters) + " " + name_of(type));
        const int64_t count = num_blocks * kQuantizedValues;
        AdamWStep step{.learning_rate = 1e-2, .weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.01};
        step.gradient_scale = 0.7;
        step.num_decayed = below(count + 1);
        const QuantizedStates before = random_states(count, static_cast<uint64_t>(count), parameters);
        auto gradients = random_values<float>(count, 77);
        for (size_t i = 0; i < gradients.size(); i += 5) gradients[i] = 0;
        std::vector<uint16_t> narrow(gradients.size());
        View g = view(gradients);
        if (type != DType::f32) {
          convert(gradients.data(), DType::f32, narrow.data(), type, narrow.size());
          g = {reinterpret_cast<std::byte*>(narrow.data()), type, {count}};
        }
        const QuantizedStates expected = reference(before, parameters, g, step);
        QuantizedStates at_once = before, in_parts = before;
        const auto update = [&](Rig& rig, QuantizedStates& s, int64_t begin, int64_t end, AdamWWrites writes) {
          AdamWStep part = step;
          part.num_decayed = step.num_decayed - begin;
          part.writes = writes;
          Kernels::AdamWArrays arrays = arrays_of(s, parameters, g, begin, end);
          if (writes == AdamWWrites::moments) arrays.parameters = arrays.rest = View{};
          rig->adamw(arrays, part);
        };
        update(three, at_once, 0, count, AdamWWrites::all);
        EXPECT_EQ(at_once, expected);
        for (int64_t begin = 0; begin < count;) {
          const int64_t end = std::min(count, begin + kQuantizedValues * (1 + below(20)));
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
}

// The gradient of one element is a millionth of the gradients of the other elements of its block. Its second moment is
// then 10^-12 of the largest one, which is far below the smallest number of the map above 0. If 0 were stored, the next
// updates would divide by epsilon alone, and each would move the element by about 100 learning rates. The smallest
// number above 0 makes smaller updates instead. The first update uses moments that are not yet rounded.
TEST(AdamWOfQuantizedMoments, NeverDividesByEpsilonAlone) {
  Rig rig(1);
  std::vector<float> p(kQuantizedValues, 1.0f), gradients(kQuantizedValues, 1.0f);
  gradients[7] = 1e-6f;
  std::vector<std::byte> m(size_of(DType::q8_signed)), v(size_of(DType::q8_unsigned));
  for (int t = 1; t <= 20; ++t) {
    AdamWStep step{.learning_rate = 1e-3, .bias_correction1 = 1 - std::pow(0.9, t)};
    step.bias_correction2 = 1 - std::pow(0.999, t);
    rig->adamw({.parameters = view(p),
                .gradients = view(gradients),
                .m = {m.data(), DType::q8_signed, {1}},
                .v = {v.data(), DType::q8_unsigned, {1}}},
               step);
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], 1 - (i == 7 ? 0 : 1e-3 * t), i == 7 ? 1.1e-3 : 1e-5 * t);
  }
  EXPECT_GT(moments(v, DType::q8_unsigned)[7], 0.0f);
}

}  // namespace
}  // namespace tessera::testing
