#include "tessera/device/device.h"

#include <fmt/format.h>

namespace tessera {

Buffer::~Buffer() {
  if (!data_) return;
  device_->ledger_.remove(category_, bytes_);
  device_->make_current();
  source_->give_back(data_, bytes_);
}

View Buffer::view(Shape shape, DType dtype) const {
  TESSERA_ASSERT(shape.num_elems() * static_cast<int64_t>(size_of(dtype)) <= bytes_);
  return {data_, dtype, shape};
}

std::string Device::remedy() const {
  return "Use smaller batches, shorter texts or a smaller model; `tessera plan` shows how much memory training needs";
}

Buffer Device::allocate(int64_t bytes, Category category, Allocator* from) {
  TESSERA_ASSERT(bytes >= 0);
  if (bytes > limit_bytes_ - ledger_.current_total()) {
    throw OutOfMemoryError(name_of(category),
                           fmt::format("{} bytes in addition to the {} bytes already held exceed the limit of {} bytes "
                                       "that the run was given",
                                       bytes, ledger_.current_total(), limit_bytes_),
                           "Give the run more memory");
  }
  Allocator* const source = from ? from : this;
  make_current();
  std::byte* data = source->take(bytes);
  if (!data) {
    throw OutOfMemoryError(name_of(category),
                           fmt::format("{} bytes could not be allocated in addition to the {} bytes already held",
                                       bytes, ledger_.current_total()),
                           remedy());
  }
  ledger_.add(category, bytes);
  Buffer buffer(this, source, data, bytes, category);
  if (from) clear(data, bytes);
  return buffer;
}

}  // namespace tessera
