// Draws one token from each row of logits.
#include <array>
#include <cmath>
#include <limits>

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/sampling_numbers.h"

namespace tessera::cpu {

namespace {

// One row of logits. Every pass over the row computes the distances (sampling_numbers.h) again. This costs less than
// storing them. mass_of(distance) is the mass of one token: its weight or, to count tokens, 1.
template <typename T>
class Row {
 public:
  Row(const T* logits, int64_t count, double temperature) : logits_(logits), count_(count), temperature_(temperature) {
    for (int64_t i = 0; i < count; ++i) largest_ = largest_ < logits[i] ? logits[i] : largest_;  // skips NaN
  }

  bool has_token() const { return largest_ > -std::numeric_limits<T>::infinity(); }

  // The mass of all tokens whose distance is at most `limit`.
  template <typename MassOf>
  uint64_t mass(uint32_t limit, const MassOf& mass_of) const {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count_; ++i) {
      if (const uint32_t distance = distance_of(i); distance <= limit) sum += mass_of(distance);
    }
    return sum;
  }

  // Considers only tokens whose distance is at most `limit`. If their total mass is less than `wanted`, returns
  // kLargestDistance. Otherwise returns the smallest distance d such that the tokens whose distance is at most d have a
  // total mass of at least `wanted`.
  template <typename MassOf>
  uint32_t find_limit(uint64_t wanted, uint32_t limit, const MassOf& mass_of) const {
    uint32_t found = 0;  // the digits of the result that are known so far
    for (int d = 0; d < kSamplingDigits; ++d) {
      const auto [shift, bits] = sampling_digit(d);
      const uint32_t num_buckets = 1u << bits;
      std::array<uint64_t, kMaxSamplingBuckets> masses{};
      for (int64_t i = 0; i < count_; ++i) {
        const uint32_t distance = distance_of(i);
        if (distance > limit || distance >> (shift + bits) != found) continue;
        masses[distance >> shift & (num_buckets - 1)] += mass_of(distance);
      }
      uint32_t bucket = 0;
      for (; bucket + 1 < num_buckets && masses[bucket] < wanted; ++bucket) wanted -= masses[bucket];
      found = found << bits | bucket;
    }
    return found;
  }

  // The first token at which the running sum of weights exceeds `point`. Tokens whose distance is greater than `limit`
  // have the weight 0 here.
  int32_t find_token(uint64_t point, uint32_t limit) const {
    for (int64_t i = 0; i < count_; ++i) {
      const uint32_t distance = distance_of(i);
      const uint64_t own = distance <= limit ? weight_of(distance) : 0;
      if (point < own) return static_cast<int32_t>(i);
      point -= own;
    }
    return 0;
  }

  static uint64_t weight_of(uint32_t distance) { return sampling_weight(std::exp(-(distance * kDistanceUnit))); }

 private:
  uint32_t distance_of(int64_t i) const {
    return sampling_distance(static_cast<double>(logits_[i]), static_cast<double>(largest_), temperature_);
  }

  const T* logits_;
  int64_t count_;
  double temperature_;
  T largest_ = -std::numeric_limits<T>::infinity();
};

template <typename T>
int32_t sample(const Row<T>& row, int64_t vocabulary, const Sampling& sampling, uint64_t draw) {
  if (!row.has_token()) return 0;
  constexpr auto weight = &Row<T>::weight_of;
  uint32_t limit = kLargestDistance;
  if (sampling.top_k > 0 && sampling.top_k < vocabulary) {
    limit = row.find_limit(static_cast<uint64_t>(sampling.top_k), limit, [](uint32_t) { return uint64_t{1}; });
  }
  uint64_t mass = row.mass(limit, weight);
  if (sampling.top_p < 1) {
    limit = row.find_limit(sampling_mass_of(sampling.top_p, mass), limit, weight);
    mass = row.mass(limit, weight);
  }
  return row.find_token(sampling_point(draw, mass), limit);
}

}  // namespace

void CpuKernels::sample_rows(View logits, View draws, const Sampling& sampling, View ids) {
  const int64_t rows = ids.num_elems(), vocabulary = logits.shape[1];
  TESSERA_ASSERT(logits.shape[0] == rows && draws.num_elems() == rows);
  TESSERA_ASSERT(vocabulary <= kMaxSampledVocabulary && sampling.temperature > 0);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_each(rows, [&](int64_t, int64_t i) {
      const Row<T> row(logits.as<T>() + i * vocabulary, vocabulary, sampling.temperature);
      ids.as<int32_t>()[i] = sample(row, vocabulary, sampling, static_cast<uint64_t>(draws.as<int64_t>()[i]));
    });
  });
}

}  // namespace tessera::cpu
