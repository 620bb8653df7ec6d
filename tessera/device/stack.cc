#include "tessera/device/stack.h"

#include <algorithm>

namespace tessera {

int64_t Stack::bytes_on_stack(Shape shape, DType dtype) {
  const int64_t bytes = shape.num_elems() * static_cast<int64_t>(size_of(dtype));
  return (bytes + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
}

View Stack::push(Shape shape, DType dtype) {
  const int64_t begin = height_bytes_;
  height_bytes_ += bytes_on_stack(shape, dtype);
  TESSERA_ASSERT(height_bytes_ <= buffer_.bytes());
  peak_bytes_ = std::max(peak_bytes_, height_bytes_);
  if (measured_from_) measured_peak_bytes_ = std::max(measured_peak_bytes_, height_bytes_ - *measured_from_);
  return {buffer_.data() + begin, dtype, shape};
}

}  // namespace tessera
