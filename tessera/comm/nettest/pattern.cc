#include "tessera/comm/nettest/pattern.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/math.h"

namespace tessera {
namespace {

// The type represents every integer from 0 to the returned value exactly.
int highest_exact(DType dtype) {
  TESSERA_ASSERT(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  return dtype == DType::f32 ? 1 << 24 : dtype == DType::f16 ? 1 << 11 : 1 << 8;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `data` has the elements [begin, begin + count) of an array. Cuts them into pieces that do not cross the end of a
// period. For each piece, calls work(its data, its size in bytes, its offset in the period in bytes).
template <typename Data, typename Work>
void by_period(Data* data, int64_t begin, int64_t count, size_t element_bytes, const Work& work) {
  while (count > 0) {
    const int64_t at = begin % NetPattern::kPeriod, piece = std::min(count, NetPattern::kPeriod - at);
    const size_t bytes = static_cast<size_t>(piece) * element_bytes;
    work(data, bytes, static_cast<size_t>(at) * element_bytes);
    data += bytes;
    begin += piece;
    count -= piece;
  }
}

}  // namespace

NetPattern::NetPattern(DType dtype, int num_ranks, uint64_t seed)
    : dtype_(dtype),
      num_ranks_(num_ranks),
      seed_(seed),
      highest_(std::clamp(highest_exact(dtype) / num_ranks, 1, 15)),
      every_(ceil_divide(num_ranks, highest_exact(dtype))) {}

int NetPattern::term(int rank, int64_t i) const {
  const int64_t at = i % kPeriod;
  if ((rank + at) % every_ != 0) return 0;
  if (every_ > 1) return 1;
  const uint64_t bits =
      mixed(seed_ * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(rank) * kPeriod + static_cast<uint64_t>(at));
  return static_cast<int>(bits % static_cast<uint64_t>(highest_ + 1));
}

int NetPattern::sent(int owner, int64_t i) const {
  constexpr uint64_t kValues = 251;  // bf16 represents 0 to 250 exactly
  const uint64_t bits = mixed(seed_ + static_cast<uint64_t>(i % kPeriod));
  return static_cast<int>((bits + static_cast<uint64_t>(owner)) % kValues);
}

template <typename Value>
std::vector<std::byte> NetPattern::encoded(const Value& value) const {
  std::vector<float> values(static_cast<size_t>(kPeriod));
  for (int64_t i = 0; i < kPeriod; ++i) values[static_cast<size_t>(i)] = static_cast<float>(value(i));
  std::vector<std::byte> bytes(values.size() * size_of(dtype_));
  convert(values.data(), DType::f32, bytes.data(), dtype_, values.size());
  return bytes;
}

std::vector<std::byte> NetPattern::terms(int rank) const {
  return encoded([&](int64_t i) { return term(rank, i); });
}

std::vector<std::byte> NetPattern::sent(int owner) const {
  return encoded([&](int64_t i) { return sent(owner, i); });
}

std::vector<std::byte> NetPattern::sums() const {
  return encoded([&](int64_t i) {
    int sum = 0;
    for (int rank = 0; rank < num_ranks_; ++rank) sum += term(rank, i);
    return sum;
  });
}

int64_t count_wrong(const std::byte* data, int64_t begin, int64_t count, size_t element_bytes,
                    const std::vector<std::byte>& period) {
  int64_t wrong = 0;
  by_period(data, begin, count, element_bytes, [&](const std::byte* piece, size_t bytes, size_t offset) {
    const std::byte* expected = period.data() + offset;
    if (std::memcmp(piece, expected, bytes) == 0) return;
    for (size_t at = 0; at < bytes; at += element_bytes) {
      wrong += std::memcmp(piece + at, expected + at, element_bytes) != 0;
    }
  });
  return wrong;
}

void write_pattern(std::byte* data, int64_t begin, int64_t count, size_t element_bytes,
                   const std::vector<std::byte>& period) {
  by_period(data, begin, count, element_bytes,
            [&](std::byte* piece, size_t bytes, size_t offset) { std::memcpy(piece, period.data() + offset, bytes); });
}

}  // namespace tessera
