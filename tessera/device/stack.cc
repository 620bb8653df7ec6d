#include "tessera/device/stack.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"

namespace tessera {

int64_t Stack::bytes_on_stack(Shape shape, DType dtype) {
  return round_up(shape.num_elems() * static_cast<int64_t>(size_of(dtype)), Device::kAlignment);
}

View Stack::push(Shape shape, DType dtype) {
  if (!has_room_for(shape, dtype)) {
    throw OutOfMemoryError(
        "activations",
        fmt::format("this batch exceeds the {} bytes planned for activations ({} in use, {} "
                    "more requested)",
                    buffer_.bytes(), height_bytes_, bytes_on_stack(shape, dtype)),
        fmt::format("Use a smaller {}, {} or {}, and report the command: the plan should have covered "
                    "every batch",
                    option("batch_size"), option("eval_batch_size"), option("max_length")));
  }
  const int64_t begin = height_bytes_;
  height_bytes_ += bytes_on_stack(shape, dtype);
  peak_bytes_ = std::max(peak_bytes_, height_bytes_);
  if (watch_ && height_bytes_ != begin) watch_(height_bytes_);
  if (measured_from_) measured_peak_bytes_ = std::max(measured_peak_bytes_, height_bytes_ - *measured_from_);
  return {buffer_.data() + begin, dtype, shape};
}

}  // namespace tessera
