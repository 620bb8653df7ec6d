// Helpers for the tests of kernels: a device with its kernels, random arrays, comparisons and finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/ops/kernels.h"

namespace tessera::testing {

// Kernels on a CPU device with a given number of threads.
struct Rig {
  explicit Rig(int num_threads = 2)
      : pool(num_threads), device(make_cpu_device(pool)), kernels(make_kernels(*device)) {}
  Kernels* operator->() { return kernels.get(); }

  ThreadPool pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Kernels> kernels;
};

template <typename T>
View view(std::vector<T>& values, Shape shape) {
  EXPECT_EQ(static_cast<int64_t>(values.size()), shape.num_elems());
  return view_of(values.data(), shape);
}
template <typename T>
View view(std::vector<T>& values) {
  return view_of(values.data(), {static_cast<int64_t>(values.size())});
}

// Returns `count` values that are uniform in [−1, 1].
template <typename T = double>
std::vector<T> random_values(int64_t count, uint64_t seed) {
  RandomStream random(seed, 7);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& x : values) x = static_cast<T>(2 * random.next_uniform() - 1);
  return values;
}

template <typename T, typename U>
std::vector<T> converted(const std::vector<U>& values) {
  return std::vector<T>(values.begin(), values.end());
}

// Asserts |actual − expected| ≤ tolerance for every element. A NaN fails.
template <typename T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, double tolerance,
                  const char* what = "") {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_TRUE(difference <= tolerance) << what << " [" << i << "]: " << actual[i] << " instead of " << expected[i]
                                         << ", tolerance " << tolerance;
  }
}

// The largest relative error of one rounding to nearest.
template <typename T>
constexpr double epsilon() {
  return std::is_same_v<T, float> ? 0x1p-24 : 0x1p-53;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Compares `samples` random elements of d_x with central differences. `value` computes a scalar function f of x. With
// step h = 1e-5, a central difference has an error of h²·|f'''|/6, about 2e-11·|f'''|, plus the rounding error of f
// divided by h. The tests use functions that sum about n terms of magnitude ≤ 1, where n is the number of elements of
// x. Signs are random, so each partial sum is at most about √n. The rounding errors of the n partial sums also have
// random signs, so they add up to about √n · ε·√n = ε·n.
inline void expect_gradient(std::vector<double>& x, const std::vector<double>& d_x,
                            const std::function<double()>& value, const char* what, int samples = 40) {
  constexpr double kStep = 1e-5;
  const double rounding = epsilon<double>() * static_cast<double>(x.size()) / kStep;
  ASSERT_EQ(x.size(), d_x.size()) << what;
  RandomStream random(99, x.size());
  for (int i = 0; i < samples; ++i) {
    const size_t at = random.next_below(x.size());
    const double kept = x[at];
    x[at] = kept + kStep;
    const double above = value();
    x[at] = kept - kStep;
    const double below = value();
    x[at] = kept;
    const double slope = (above - below) / (2 * kStep);
    ASSERT_NEAR(d_x[at], slope, 1e-8 * (1 + std::abs(slope)) + rounding) << what << " [" << at << "]";
  }
}

// Returns `count` row ids for dropout: the row numbers 0, 1, 2, …, scaled and shifted. No id therefore equals the
// number of its row.
inline std::vector<int64_t> row_ids(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = 1000003 * i + (int64_t{1} << 33);
  return ids;
}

}  // namespace tessera::testing
