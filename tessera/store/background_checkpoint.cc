#include "tessera/store/background_checkpoint.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/base/start_thread.h"
#include "tessera/store/all_ranks.h"

namespace tessera {

namespace {

// A copy uses one thread for each kGrainElems elements, but at most the threads of the pool. Copying kGrainElems
// elements takes much longer than waking a thread.
constexpr int64_t kGrainElems = 1 << 18;

}  // namespace

void BackgroundCheckpoint::Copy::declare(const ArrayRange& range, DType dtype) {
  arrays_.push_back({range, dtype, bytes_});
  bytes_ += round_up((range.end - range.begin) * static_cast<int64_t>(size_of(dtype)), Device::kAlignment);
}

void BackgroundCheckpoint::Copy::refer(const std::string& name, int64_t total_elems, DType dtype,
                                       const ReferencedFiles& files) {
  referenced_.push_back({name, dtype, total_elems, {}, true});
  files_ = files;
}

void BackgroundCheckpoint::Copy::allocate() {
  if (buffer_.bytes() >= bytes_) return;
  buffer_ = {};  // frees the old buffer first, so both buffers never exist at the same time
  buffer_ = host_.allocate(bytes_, Category::staging);
}

void BackgroundCheckpoint::Copy::write(std::string_view name, const View& values) {
  allocate();
  const auto array = std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.range.name == name; });
  TESSERA_ASSERT(array != arrays_.end());
  TESSERA_ASSERT(array->written_elems + values.num_elems() <= array->range.end - array->range.begin);
  const auto target_size = static_cast<int64_t>(size_of(array->dtype));
  const auto source_size = static_cast<int64_t>(size_of(values.dtype));
  std::byte* const target = buffer_.data() + array->offset + array->written_elems * target_size;
  const auto copy = [&](int64_t begin, int64_t end) {
    const std::byte* source = values.data + begin * source_size;
    if (values.dtype == array->dtype) {
      std::memcpy(target + begin * target_size, source, static_cast<size_t>((end - begin) * target_size));
    } else {
      convert(source, values.dtype, target + begin * target_size, array->dtype, static_cast<size_t>(end - begin));
    }
  };
  if (pool_) {
    pool_->for_ranges(values.num_elems(), kGrainElems, copy);
  } else if (values.num_elems() > 0) {
    copy(0, values.num_elems());
  }
  array->written_elems += values.num_elems();
}

void BackgroundCheckpoint::Copy::add_text(std::string_view name, std::string_view text) {
  texts_.emplace_back(name, text);
}

void BackgroundCheckpoint::Copy::give_to(CheckpointPart& part) const {
  for (const Array& array : arrays_) part.declare(array.range, array.dtype);
  for (const ManifestArray& array : referenced_) part.refer(array.name, array.total_elems, array.dtype, files_);
  for (const Array& array : arrays_) {
    part.write(array.range.name, {buffer_.data() + array.offset, array.dtype, {array.written_elems}});
  }
  for (const auto& [name, text] : texts_) part.add_text(name, text);
}

BackgroundCheckpoint::BackgroundCheckpoint(Device& host, Communicator& world)
    : host_(host), world_(world.duplicate_for_host()) {}

void BackgroundCheckpoint::save(const std::filesystem::path& output_folder, int64_t step, const WritePart& write_part,
                                ThreadPool* pool) {
  wait();
  const auto copy = std::make_shared<Copy>(host_, buffer_, pool);
  on_all_ranks(*world_, "a checkpoint's copy", [&]() -> std::string {
    write_part(*copy);
    copy->allocate();
    return "";
  });
  if (host_.kind() == DeviceKind::counting) return;
  std::packaged_task<void()> write([this, output_folder, step, copy] {
    write_checkpoint(output_folder, step, *world_, [&](CheckpointPart& part) { copy->give_to(part); });
  });
  std::future<void> written = write.get_future();
  thread_ = start_thread("writing a checkpoint", std::move(write));
  write_ = std::move(written);
}

void BackgroundCheckpoint::wait() {
  if (write_.valid()) write_.get();
}

}  // namespace tessera
