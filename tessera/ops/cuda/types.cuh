// Element types on the GPU, vectors of them, and the selection of a template by a view's type.
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
// The part of a float that is lost when it is rounded to Half or Bf16 (base/dtype.h).
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

// The type of arithmetic on T and of T's statistics.
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

// The rest of an f16 counts in units that depend on the value. Returns the unit, as the bits of an f32.
__device__ inline uint32_t half_rest_unit(float half) {
  return max(__float_as_uint(half) & 0x7f800000u, 113u << 23) - (26u << 23);
}
// The rest of a float that is rounded to `narrow`.
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
template <typename Rest>
__device__ inline float joined(float narrow, Rest rest) {
  if constexpr (std::is_same_v<Rest, HalfRest>) {
    // The product is exact. If narrow is −0 and the rest is 0, the subtraction returns −0. An addition would return +0.
    return narrow - static_cast<float>(-int{rest.bits}) * __uint_as_float(half_rest_unit(narrow));
  } else {
    return __uint_as_float(__float_as_uint(narrow) + static_cast<uint32_t>(int{rest.bits}));
  }
}

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

// Rounds two elements to 16 bits each. The first is in the low half.
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

// N neighbouring elements that are moved together. pack[i] is element i in the type of arithmetic; of() rounds N such
// values.
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

// Two 16-bit elements share a register. As separate elements they would take one register each.
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
      TESSERA_ASSERT(!"a floating-point type");
  }
}
// The same for the types of rests.
template <typename Body>
void with_rest_type(DType dtype, Body&& body) {
  TESSERA_ASSERT(is_rest(dtype));
  dtype == DType::f16_rest ? body(HalfRest{}) : body(Bf16Rest{});
}
// The same for both kinds of types, for arrays that are only written.
template <typename Body>
void with_target_type(DType dtype, Body&& body) {
  is_rest(dtype) ? with_rest_type(dtype, body) : with_float_type(dtype, body);
}
// Calls body with the type of a result or gradient for data of type T. It is T, or f32 if T has 16 bits and `dtype` is
// f32.
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
// The elements of a view as T. Also supports the 16-bit types, which View::as does not.
template <typename T>
T* data_of(View view) {
  if (!view) return nullptr;
  TESSERA_ASSERT(view.dtype == dtype_in_views<T>());
  return reinterpret_cast<T*>(view.data);
}

// Calls body(N) with a constant: kPackOf<T> if rows of `columns` elements and the addresses of all views allow it,
// otherwise 1.
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
