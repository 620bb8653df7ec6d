// Shapes and views. A view is a borrowed, contiguous, row-major array in host or device memory. It never owns memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tessera/base/dtype.h"

namespace tessera {

// The sizes of up to four dimensions. In memory, the index of the first dimension varies slowest.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    TESSERA_ASSERT(dims.size() <= dims_.size());
    for (int64_t d : dims) dims_[static_cast<size_t>(rank_++)] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const {
    TESSERA_ASSERT(i >= 0 && i < rank_);
    return dims_[static_cast<size_t>(i)];
  }
  int64_t num_elems() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[3, 4]"

 private:
  std::array<int64_t, 4> dims_{};  // unused entries stay 0, so == compares correctly
  int rank_ = 0;
};

// Borrowed memory of one device. On the counting device (device.h), no memory belongs to the address of a view: never
// dereference such an address.
struct View {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  int64_t num_elems() const { return data ? shape.num_elems() : 0; }
  int64_t bytes() const { return num_elems() * static_cast<int64_t>(size_of(dtype)); }
  explicit operator bool() const { return data != nullptr; }

  // The elements as T; T must be the view's type.
  template <typename T>
  T* as() const {
    TESSERA_ASSERT(dtype_of<T>() == dtype);
    return reinterpret_cast<T*>(data);
  }
  // The part with the indices [begin, end) in the first dimension.
  View rows(int64_t begin, int64_t end) const;
  // The same elements in another shape with the same number of elements.
  View reshaped(Shape other) const {
    TESSERA_ASSERT(other.num_elems() == shape.num_elems());
    return {data, dtype, other};
  }
};

// A view of an array in host memory.
template <typename T>
View view_of(T* data, Shape shape) {
  return {reinterpret_cast<std::byte*>(data), dtype_of<T>(), shape};
}

}  // namespace tessera
