#include "tessera/base/instruction_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tessera/base/conversions.h"
#include "tessera/base/quantized_moments.h"
#include "tessera/base/random.h"

namespace tessera {
namespace {

TEST(InstructionSets, TheUsableOnesComeFirst) {
  const auto built = built_instruction_sets(), usable = usable_instruction_sets();
  ASSERT_LE(usable.size(), built.size());
  EXPECT_TRUE(std::equal(usable.begin(), usable.end(), built.begin()));
  EXPECT_LT(chosen_instruction_set(), std::ssize(usable));
  EXPECT_EQ(name_of_chosen_instruction_set(), built[static_cast<size_t>(chosen_instruction_set())]);
}

// Any bits: also subnormal numbers, infinities and NaNs.
std::vector<float> any_floats(size_t count, uint64_t seed) {
  RandomStream random(seed, 0);
  std::vector<float> values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random.next_uniform() * 0x1p32));
  return values;
}

// All sets of this machine convert to the same bits, with every length of the last vector.
TEST(InstructionSets, ConvertToTheSameBits) {
  const int count_usable = static_cast<int>(usable_instruction_sets().size());
  for (size_t count = 0; count < 300; count += count < 40 ? 1 : 37) {
    const std::vector<float> values = any_floats(count, count);
    std::vector<std::vector<uint8_t>> results;
    for (int set = 0; set < count_usable; ++set) {
      const Conversions& conversions = conversions_of(set);
      std::vector<uint8_t> all;
      const auto append = [&](const void* data, size_t bytes) {
        const auto* const first = static_cast<const uint8_t*>(data);
        all.insert(all.end(), first, first + bytes);
      };
      for (const DType dtype : {DType::f16, DType::bf16}) {
        std::vector<uint16_t> narrow(count);
        std::vector<int16_t> rests(count);
        std::vector<float> wide(count), joined(count);
        conversions.convert(values.data(), DType::f32, narrow.data(), dtype, count);
        conversions.convert(values.data(), DType::f32, rests.data(), rest_of(dtype), count);
        conversions.convert(narrow.data(), dtype, wide.data(), DType::f32, count);
        conversions.join(narrow.data(), rests.data(), rest_of(dtype), joined.data(), count);
        for (float& value : joined) value = std::isnan(value) ? 0 : value;  // any NaN
        append(narrow.data(), 2 * count);
        append(rests.data(), 2 * count);
        append(wide.data(), 4 * count);
        append(joined.data(), 4 * count);
      }
      std::vector<float> finite(count);
      std::ranges::transform(values, finite.begin(), [](float x) { return std::isfinite(x) ? x : 1.0f; });
      for (const DType dtype : {DType::q8_signed, DType::q8_unsigned}) {
        std::vector<QuantizedBlock> blocks((count + kQuantizedValues - 1) / kQuantizedValues);
        std::vector<float> back(count);
        auto* const bytes = reinterpret_cast<std::byte*>(blocks.data());
        conversions.quantize(finite.data(), static_cast<int64_t>(count), dtype, bytes);
        conversions.dequantize(bytes, dtype, 0, static_cast<int64_t>(count), back.data());
        append(back.data(), 4 * count);
      }
      results.push_back(all);
    }
    for (const auto& result : results) ASSERT_EQ(result, results[0]) << count;
  }
}

}  // namespace
}  // namespace tessera
