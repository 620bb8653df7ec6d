// Elementary functions without branches or calls, so that loops over them become vector code. The overloads for double
// call the standard library or divide, because gradient checks use them and need accuracy, not speed.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::cpu {

// Adding 1.5·2^23 to a float of magnitude below 2^22 rounds the float to the nearest integer. The low bits of the sum
// hold this integer. Subtracting 1.5·2^23 from the sum gives the integer as a float.
inline constexpr float kRoundingShift = 0x1.8p23f;

// eˣ within 2 ulp for x in [−87.33, 87]. Below this range, the result is 0. Above this range, the result is e^87, so
// that its inverse is not denormal. NaN stays NaN. Range reduction of Cody and Waite: x = n·ln 2 + r, |r| ≤ ln 2 / 2.
// The polynomial is from expf in Moshier's Cephes library.
inline float exp(float x) {
  constexpr float kLowest = -87.33f, kHighest = 87.0f;
  const float below = kHighest < x ? kHighest : x;  // this form is one instruction and keeps NaN
  const float z = kLowest > below ? kLowest : below;
  const float shifted = z * 0x1.715476p0f + kRoundingShift;
  const float n = shifted - kRoundingShift;
  const float r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
  return x < kLowest ? 0.0f : p * power;
}
inline double exp(double x) {
  return std::exp(x);
}

// 1 / x within 2 ulp for x in [1, 2^126). The first estimate comes from subtracting the bits of x from a constant. Its
// relative error is at most 1/8. Then three Newton steps follow. Each step squares the relative error. All steps
// together cost a third of a division.
inline float reciprocal(float x) {
  float y = std::bit_cast<float>(0x7ef311c3u - std::bit_cast<uint32_t>(x));
  y += y * (1.0f - x * y);
  y += y * (1.0f - x * y);
  y += y * (1.0f - x * y);
  return y;
}
inline double reciprocal(double x) {
  return 1.0 / x;
}

// ln x for normal x > 0. The error is at most 2 ulp of max(|ln x|, 1e-3). x is split into 2^e · (1 + f). The polynomial
// in f is from logf in Cephes.
inline float log_positive(float x) {
  // Moves the mantissa to [√½, √2), so that the magnitude of f is small.
  const uint32_t bits = std::bit_cast<uint32_t>(x) - 0x3f3504f3u;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float f = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float ff = f * f;
  return (p * f * ff + (e * -2.12194440e-4f - 0.5f * ff)) + f + e * 0.693359375f;
}

struct SinCos {
  float sin, cos;
};
// Sine and cosine of 2π·turns for turns in [−½, ½], within 1e-6. Subtracts the nearest whole number of quarter turns,
// without a rounding error. An angle in [−π/4, π/4] remains. Its sine and cosine come from Taylor polynomials of degree
// 9 and 8. The first omitted terms are below 3e-8.
inline SinCos sin_cos_turns(float turns) {
  const float shifted = turns * 4.0f + kRoundingShift;
  const uint32_t quadrant = std::bit_cast<uint32_t>(shifted);
  const float t = (turns - (shifted - kRoundingShift) * 0.25f) * 6.28318530718f;
  const float tt = t * t;
  const float s = t + t * tt * (-1.0f / 6 + tt * (1.0f / 120 + tt * (-1.0f / 5040 + tt * (1.0f / 362880))));
  const float c = 1.0f + tt * (-0.5f + tt * (1.0f / 24 + tt * (-1.0f / 720 + tt * (1.0f / 40320))));
  const bool odd = quadrant & 1u;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  const uint32_t sine_sign = (quadrant & 2u) << 30, cosine_sign = ((quadrant + 1u) & 2u) << 30;
  return {std::bit_cast<float>(std::bit_cast<uint32_t>(sine) ^ sine_sign),
          std::bit_cast<float>(std::bit_cast<uint32_t>(cosine) ^ cosine_sign)};
}

// The tanh form of GELU, 0.5·x·(1 + tanh(k·x·(1 + 0.044715·x²))), k = √(2/π) as rounded in transformers' BLOOM. The
// form (1 + tanh u) / 2 = 1 / (1 + e^(−2u)) needs one exponential and keeps full accuracy for large negative x.
inline constexpr double kGeluScale = 0.79788456, kGeluCubic = 0.044715;

template <typename T>
inline T gelu_sigmoid(T x) {
  return reciprocal(T(1) + exp(T(-2 * kGeluScale) * x * (T(1) + T(kGeluCubic) * x * x)));
}
template <typename T>
inline T gelu(T x) {
  return x * gelu_sigmoid(x);
}
// d gelu / dx = s + x·s·(1 − s)·2u', where s = gelu_sigmoid(x) and u' = k·(1 + 3·0.044715·x²).
template <typename T>
inline T gelu_derivative(T x) {
  const T s = gelu_sigmoid(x);
  return s + x * s * (T(1) - s) * T(2 * kGeluScale) * (T(1) + T(3 * kGeluCubic) * x * x);
}

// x·σ(x), where σ(x) = 1 / (1 + e^(−x)).
template <typename T>
inline T silu(T x) {
  return x * reciprocal(T(1) + exp(-x));
}
// d silu / dx = σ + x·σ·(1 − σ), where σ = σ(x).
template <typename T>
inline T silu_derivative(T x) {
  const T s = reciprocal(T(1) + exp(-x));
  return s + x * s * (T(1) - s);
}

}  // namespace tessera::cpu
