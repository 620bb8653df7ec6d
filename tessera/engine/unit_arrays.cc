#include "tessera/engine/unit_arrays.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "tessera/base/option_names.h"

namespace tessera {
namespace {

[[noreturn]] void fail(const std::string& folder, const char* action) {
  const bool reads = std::string_view(action) == "read";
  const std::string folder_option = option("offload_dir");
  throw RunError(
      folder, fmt::format("the file of offloaded arrays cannot be {}: {}", action, std::strerror(errno)),
      reads ? "Check the kernel log for errors of the disk, or set " + folder_option + " to a folder on another disk"
            : "Set " + folder_option + " to a folder on a disk with free space");
}

int make_file(const std::string& folder, int64_t bytes) {
  std::error_code ignored;  // mkostemp reports the error
  std::filesystem::create_directories(folder, ignored);
  std::string path = folder + "/tessera-offload-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) fail(folder, "created");
  unlink(path.c_str());
  errno = bytes > 0 ? posix_fallocate(file, 0, bytes) : 0;  // the new bytes read as zeros
  if (errno != 0) {
    const int kept = errno;
    close(file);
    errno = kept;
    fail(folder, "created");
  }
  return file;
}

// Reads or writes `bytes` bytes. Repeats `transfer`, because one system call may transfer only a part of them.
template <typename Transfer>
void transfer_all(const std::string& folder, const char* action, std::byte* data, int64_t bytes, int64_t offset,
                  Transfer&& transfer) {
  while (bytes > 0) {
    const ssize_t done = transfer(data, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EIO;
    if (done <= 0) fail(folder, action);
    data += done;
    offset += done;
    bytes -= done;
  }
}

}  // namespace

UnitArrays::UnitArrays(EngineContext& context, Tier tier, Category category, DType dtype, std::vector<int64_t> elems,
                       std::vector<View> given)
    : tier_(tier),
      dtype_(dtype),
      elems_(std::move(elems)),
      given_(std::move(given)),
      folder_(context.plan.options().file_folder) {
  given_.resize(elems_.size());
  int64_t total = 0;
  for (size_t u = 0; u < elems_.size(); ++u) {
    const View& array = given_[u];
    TESSERA_ASSERT(!array || (tier == Tier::device && array.dtype == dtype && array.num_elems() == elems_[u]));
    offsets_.push_back(total);
    if (!array) total += bytes_of(elems_[u], dtype_);
  }
  if (total == 0) return;
  if (tier_ != Tier::file) {
    buffer_ = (tier_ == Tier::device ? context.device : context.host).allocate(total, category);
    return;
  }
  context.file_bytes += total;
  if (context.device.kind() != DeviceKind::counting) file_ = make_file(folder_, total);
}

UnitArrays::~UnitArrays() {
  if (file_ >= 0) close(file_);
}

void UnitArrays::swap(UnitArrays& other) noexcept {
  std::swap(tier_, other.tier_);
  std::swap(dtype_, other.dtype_);
  std::swap(elems_, other.elems_);
  std::swap(buffer_, other.buffer_);
  std::swap(offsets_, other.offsets_);
  std::swap(given_, other.given_);
  std::swap(file_, other.file_);
  std::swap(folder_, other.folder_);
}

View UnitArrays::views(int64_t first_unit, int64_t last_unit) const {
  TESSERA_ASSERT(tier_ != Tier::file);
  if (const View& array = given_[static_cast<size_t>(first_unit)]; array && first_unit == last_unit) return array;
  int64_t elems = 0;
  for (int64_t u = first_unit; u <= last_unit; ++u) {
    TESSERA_ASSERT(!given_[static_cast<size_t>(u)]);
    elems += num_elems(u);
  }
  return {buffer_.data() + offset_of(first_unit, 0), dtype_, {elems}};
}

void UnitArrays::load(int64_t unit, int64_t first, View to, Stream& stream) const {
  TESSERA_ASSERT(to.dtype == dtype_);
  if (tier_ != Tier::file) {
    stream.copy(view(unit).rows(first, first + to.num_elems()), to);
    return;
  }
  stream.run([this, to, offset = offset_of(unit, first)] {
    transfer_all(folder_, "read", to.data, to.bytes(), offset,
                 [&](std::byte* data, size_t bytes, int64_t at) { return pread(file_, data, bytes, at); });
  });
}

void UnitArrays::save(int64_t unit, int64_t first, View from, Stream& stream) const {
  TESSERA_ASSERT(from.dtype == dtype_);
  if (tier_ != Tier::file) {
    stream.copy(from, view(unit).rows(first, first + from.num_elems()));
    return;
  }
  stream.run([this, from, offset = offset_of(unit, first)] {
    transfer_all(folder_, "written", from.data, from.bytes(), offset,
                 [&](std::byte* data, size_t bytes, int64_t at) { return pwrite(file_, data, bytes, at); });
  });
}

}  // namespace tessera
