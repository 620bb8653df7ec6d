// Small arithmetic functions.
#pragma once

#include <cmath>
#include <concepts>
#include <type_traits>

namespace tessera {

inline constexpr double kMiB = 1 << 20;  // bytes

// a / b, rounded up. Requires a >= 0, b > 0 and that a + b − 1 does not overflow.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_divide(A a, B b) {
  return (a + b - 1) / b;
}

// The smallest multiple of b that is at least a. The requirements of ceil_divide() apply.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> round_up(A a, B b) {
  return ceil_divide(a, b) * b;
}

// a · b + c with one rounding, on GPUs and on CPUs that have an instruction for it.
template <std::floating_point T>
constexpr T multiply_add(T a, T b, T c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
  return std::fma(a, b, c);
#else
  return a * b + c;  // for CPUs without FMA, because std::fma would be a function call there
#endif
}

}  // namespace tessera
