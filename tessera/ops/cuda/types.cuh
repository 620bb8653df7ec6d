// Element types on the GPU, packs of elements, and functions that select a template argument by the type of a view.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "tessera/base/view.h"

namespace tessera::cuda {

using Half = __half;
using Bf16 = __nv_bfloat16;
// Rests: a rest is the part of an f32 that is lost when the f32 is rounded to Half or Bf16 (base/dtype.h).
struct HalfRest {
  int16_t bits;
};
struct Bf16Rest {
  int16_t bits;
};
template <typename T>
inline constexpr bool kIsRest = std::is_same_v<T, HalfRest> || std::is_same_v<T, Bf16Rest>;
// The 16-bit type that a rest belongs to.
template <typename Rest>
using Narrow = std::conditional_t<std::is_same_v<Rest, HalfRest>, Half, Bf16>;

// The type for arithmetic on elements of type T, and for statistics of such elements (for example rstd).
template <typename T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline float to_acc(float x) {
  return x;
}
__device__ inline double to_acc(double x) {
  return x;
}
__device__ inline float to_acc(Half x) {
  return __half2float(x);
}
__device__ inline float to_acc(Bf16 x) {
  return __bfloat162float(x);
}

// A HalfRest is a number of units. The size of a unit depends on the f16 that the rest belongs to. `half` is the value
// of this f16. Returns the size of a unit, as the bits of an f32: 2^(e − 26) if |half| is in [2^e, 2^(e + 1)), but at
// least 2^-40.
__device__ inline uint32_t half_rest_unit(float half) {
  return max(__float_as_uint(half) & 0x7f800000u, 113u << 23) - (26u << 23);
}
// Returns the rest of x. `narrow` is the value of x after rounding to Narrow<Rest>.
template <typename Rest>
__device__ inline Rest rest_of(float x, float narrow) {
  if constexpr (std::is_same_v<Rest, HalfRest>) {
    const float units = (x - narrow) * __uint_as_float((254u << 23) - half_rest_unit(narrow));
    return {static_cast<int16_t>(__float2int_rn(fminf(fmaxf(units, -32767), 32767)))};
  } else {
    const int rest = static_cast<int>(__float_as_uint(x) - __float_as_uint(narrow));
    return {static_cast<int16_t>(max(-32768, min(rest, 32767)))};
  }
}
// Returns the f32 that has this 16-bit value and this rest.
template <typename Rest>
__device__ inline float joined(float narrow, Rest rest) {
  if constexpr (std::is_same_v<Rest, HalfRest>) {
    // The product is exact. If narrow is −0 and the rest is 0, the subtraction returns −0. An addition would return +0.
    return narrow - static_cast<float>(-int{rest.bits}) * __uint_as_float(half_rest_unit(narrow));
  } else {
    return __uint_as_float(__float_as_uint(narrow) + static_cast<uint32_t>(int{rest.bits}));
  }
}

// Rounds x to T. If T is a type of rests, returns the rest of x.
template <typename T, typename U>
__device__ inline T from_acc(U x) {
  if constexpr (kIsRest<T>) {
    const float value = static_cast<float>(x);
    return rest_of<T>(value, to_acc(from_acc<Narrow<T>>(value)));
  } else if constexpr (std::is_same_v<T, Half>) {
    return __float2half_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Rounds two values to the 16-bit type T and stores them in one word. `low` is in the low half of the word.
template <typename T>
__device__ inline uint32_t pack_two(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &two, sizeof(bits));
  } else {
    const __half2 two = __floats2half2_rn(low, high);
    memcpy(&bits, &two, sizeof(bits));
  }
  return bits;
}

// N neighbouring elements that are loaded and stored together. pack[i] is element i, converted to Acc<T>. of() rounds N
// values of type Acc<T> to T and makes a pack of them.
template <typename T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack {
  T at[N];

  __device__ Acc<T> operator[](int i) const { return to_acc(at[i]); }
  __device__ static Pack of(const Acc<T> (&values)[N]) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = from_acc<T>(values[i]);
    return pack;
  }
};

// The pack for 16-bit types and an even N. Two elements share a register. In the general Pack, each element would take
// one register.
template <typename T, int N>
requires((std::is_same_v<T, Half> || std::is_same_v<T, Bf16>)&&N % 2 ==
         0) struct alignas(2 * N > 16 ? 16 : 2 * N) Pack<T, N> {
  uint32_t words[N / 2];

  __device__ float operator[](int i) const {
    const uint32_t word = words[i / 2];
    if constexpr (std::is_same_v<T, Bf16>) {
      return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
    } else {
      const __half2_raw raw{static_cast<unsigned short>(word), static_cast<unsigned short>(word >> 16)};
      return i % 2 ? __high2float(raw) : __low2float(raw);
    }
  }
  __device__ static Pack of(const float (&values)[N]) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < N; i += 2) pack.words[i / 2] = pack_two<T>(values[i], values[i + 1]);
    return pack;
  }
};

template <typename T, int N>
__device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <typename T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// The number of elements of T in the widest load, which has 16 bytes.
template <typename T>
inline constexpr int kPackOf = static_cast<int>(16 / sizeof(T));

// Whether `data` is aligned for packs of `elems` elements.
template <typename T>
bool aligned_for(const void* data, int elems) {
  const size_t bytes = sizeof(T) * static_cast<size_t>(elems);
  return reinterpret_cast<uintptr_t>(data) % (bytes > 16 ? 16 : bytes) == 0;
}

// Calls body(T{}) with the floating-point type named by `dtype`.
template <typename Body>
void with_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    case DType::f16:
      return body(Half{});
    case DType::bf16:
      return body(Bf16{});
    default:
      TESSERA_ASSERT(!"the type is not a floating-point type");
  }
}
// Calls body(T{}) with the type of rests named by `dtype`.
template <typename Body>
void with_rest_type(DType dtype, Body&& body) {
  TESSERA_ASSERT(is_rest(dtype));
  dtype == DType::f16_rest ? body(HalfRest{}) : body(Bf16Rest{});
}
// Calls body(T{}) with the floating-point type or the type of rests named by `dtype`. For arrays that kernels only
// write.
template <typename Body>
void with_target_type(DType dtype, Body&& body) {
  is_rest(dtype) ? with_rest_type(dtype, body) : with_float_type(dtype, body);
}
// Calls body(G{}) with the type G of a result or of a gradient, for data of type T. If T has 16 bits and `dtype` is
// f32, G is float. Otherwise G is T.
template <typename T, typename Body>
void with_gradient_type(DType dtype, Body&& body) {
  if constexpr (sizeof(T) == 2) {
    if (dtype == DType::f32) return body(float{});
  }
  body(T{});
}

template <typename T>
constexpr DType dtype_in_views() {
  if constexpr (std::is_same_v<T, Half>) {
    return DType::f16;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return DType::bf16;
  } else if constexpr (std::is_same_v<T, HalfRest>) {
    return DType::f16_rest;
  } else if constexpr (std::is_same_v<T, Bf16Rest>) {
    return DType::bf16_rest;
  } else {
    return dtype_of<T>();
  }
}
// The elements of a view as T, or null for an empty view. Unlike View::as, data_of() supports the 16-bit types.
template <typename T>
T* data_of(View view) {
  if (!view) return nullptr;
  TESSERA_ASSERT(view.dtype == dtype_in_views<T>());
  return reinterpret_cast<T*>(view.data);
}

// Calls body(N) with a constant. N is kPackOf<T> if kPackOf<T> divides `columns` and the addresses of all views are
// aligned for such packs. Otherwise N is 1.
template <typename T, typename Body>
void with_pack(int64_t columns, std::initializer_list<View> views, Body&& body) {
  bool aligned = columns % kPackOf<T> == 0;
  for (const View& view : views) aligned = aligned && aligned_for<T>(view.data, kPackOf<T>);
  if (aligned) {
    body(std::integral_constant<int, kPackOf<T>>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

}  // namespace tessera::cuda
