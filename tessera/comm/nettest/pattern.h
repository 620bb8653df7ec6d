// Data for a bandwidth test: small non-negative integers. The test knows every result exactly: partial sums over the
// ranks are exact in the element type, so the order of summation does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

class NetPattern {
 public:
  // Values repeat after this number of elements. The number is a prime: if data is shifted by a usual number of
  // elements, such as a power of two, the values differ from the expected values.
  static constexpr int64_t kPeriod = 8191;

  // `dtype`: f32, bf16 or f16.
  NetPattern(DType dtype, int num_ranks, uint64_t seed);

  DType dtype() const { return dtype_; }
  // Element i of rank `rank`'s contribution to a sum.
  int term(int rank, int64_t i) const;
  // Element i of the data that rank `owner` sends in a collective that sums nothing. Two ranks whose numbers differ by
  // less than 251 send different data.
  int sent(int owner, int64_t i) const;

  // The elements 0 to kPeriod − 1 as bytes, in the element type.
  std::vector<std::byte> terms(int rank) const;
  std::vector<std::byte> sent(int owner) const;
  std::vector<std::byte> sums() const;  // Σ over the ranks of terms(rank)

 private:
  template <typename Value>
  std::vector<std::byte> encoded(const Value& value) const;

  DType dtype_;
  int num_ranks_;
  uint64_t seed_;
  int highest_;  // the highest value of a term
  int every_;    // at each element, one of `every_` consecutive ranks can have a term other than 0
};

// `data` has the elements [begin, begin + count) of an array. `period` has the values of one period, from NetPattern.
// Returns how many of these elements differ from the repeated period.
int64_t count_wrong(const std::byte* data, int64_t begin, int64_t count, size_t element_bytes,
                    const std::vector<std::byte>& period);
// Writes the elements [begin, begin + count) of the repeated period to `data`.
void write_pattern(std::byte* data, int64_t begin, int64_t count, size_t element_bytes,
                   const std::vector<std::byte>& period);

}  // namespace tessera
