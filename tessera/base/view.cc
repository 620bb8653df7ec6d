#include "tessera/base/view.h"

#include <fmt/format.h>

namespace tessera {

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i ? ", " : "", dims_[static_cast<size_t>(i)]);
  return text + "]";
}

View View::rows(int64_t begin, int64_t end) const {
  TESSERA_ASSERT(shape.rank() >= 1 && begin >= 0 && begin <= end && end <= shape[0]);
  const int64_t row_elems = shape[0] == 0 ? 0 : shape.num_elems() / shape[0];
  Shape rows_shape;
  switch (shape.rank()) {
    case 1:
      rows_shape = {end - begin};
      break;
    case 2:
      rows_shape = {end - begin, shape[1]};
      break;
    case 3:
      rows_shape = {end - begin, shape[1], shape[2]};
      break;
    default:
      rows_shape = {end - begin, shape[1], shape[2], shape[3]};
  }
  return {data + begin * row_elems * static_cast<int64_t>(size_of(dtype)), dtype, rows_shape};
}

}  // namespace tessera
