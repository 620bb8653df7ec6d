#include "tessera/base/dtype.h"

#include "tessera/base/narrow_floats.h"

namespace tessera {

namespace {

template <DType S, DType T>
void convert_typed(const void* source, void* target, size_t count) {
  const auto* s = static_cast<const typename Element<S>::Type*>(source);
  auto* t = static_cast<typename Element<T>::Type*>(target);
  size_t i = 0;
  if constexpr (S == DType::f32 && size_of(T) == 2 && !is_rest(T)) {
    for (; i + kNarrowFloats <= count; i += kNarrowFloats) narrow_floats<T>(s + i, t + i);
  } else if constexpr (S == DType::f32 && is_rest(T)) {
    uint16_t narrow[kNarrowFloats];
    for (; i + kNarrowFloats <= count; i += kNarrowFloats) split_floats<T>(s + i, narrow, t + i);
  } else if constexpr (T == DType::f32 && size_of(S) == 2) {
    for (; i + kNarrowFloats <= count; i += kNarrowFloats) widen_floats<S>(s + i, t + i);
  }
  for (; i < count; ++i) {
    if constexpr (is_rest(T)) {
      t[i] = Element<T>::store(static_cast<float>(Element<S>::load(s[i])));
    } else {
      t[i] = Element<T>::store(static_cast<decltype(Element<T>::load(t[i]))>(Element<S>::load(s[i])));
    }
  }
}

template <DType S>
void convert_from(const void* source, void* target, DType target_dtype, size_t count) {
  switch (target_dtype) {
    case DType::f64:
      return convert_typed<S, DType::f64>(source, target, count);
    case DType::f32:
      return convert_typed<S, DType::f32>(source, target, count);
    case DType::f16:
      return convert_typed<S, DType::f16>(source, target, count);
    case DType::bf16:
      return convert_typed<S, DType::bf16>(source, target, count);
    case DType::f16_rest:
      return convert_typed<S, DType::f16_rest>(source, target, count);
    case DType::bf16_rest:
      return convert_typed<S, DType::bf16_rest>(source, target, count);
    default:
      TESSERA_ASSERT(!"convert: the target is not a floating-point type");
  }
}

}  // namespace

void convert(const void* source, DType source_dtype, void* target, DType target_dtype, size_t count) {
  if (source_dtype == target_dtype) {
    std::memcpy(target, source, count * size_of(source_dtype));
    return;
  }
  switch (source_dtype) {
    case DType::f64:
      return convert_from<DType::f64>(source, target, target_dtype, count);
    case DType::f32:
      return convert_from<DType::f32>(source, target, target_dtype, count);
    case DType::f16:
      return convert_from<DType::f16>(source, target, target_dtype, count);
    case DType::bf16:
      return convert_from<DType::bf16>(source, target, target_dtype, count);
    default:
      TESSERA_ASSERT(!"convert: the source is not a floating-point type");
  }
}

namespace {

template <DType R>
void join_typed(const uint16_t* narrow, const int16_t* rest, float* target, size_t count) {
  size_t i = 0;
  for (; i + kNarrowFloats <= count; i += kNarrowFloats) join_floats<R>(narrow + i, rest + i, target + i);
  for (; i < count; ++i) target[i] = Element<R>::join(narrow[i], rest[i]);
}

}  // namespace

void join(const uint16_t* narrow, const int16_t* rest, DType rest_dtype, float* target, size_t count) {
  TESSERA_ASSERT(is_rest(rest_dtype));
  rest_dtype == DType::f16_rest ? join_typed<DType::f16_rest>(narrow, rest, target, count)
                                : join_typed<DType::bf16_rest>(narrow, rest, target, count);
}

}  // namespace tessera
