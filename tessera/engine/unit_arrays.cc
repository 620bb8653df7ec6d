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

UnitArrays::UnitArrays(EngineContext& context, ArrayKind kind, Category category, DType dtype,
                       std::vector<int64_t> elems, std::vector<View> given, Allocator* from)
    : dtype_(dtype), folder_(context.plan.options().file_folder) {
  given.resize(elems.size());
  int64_t on_device = 0, on_host = 0, in_file = 0;
  for (size_t u = 0; u < elems.size(); ++u) {
    const Tier tier = context.plan.tier(kind, static_cast<int64_t>(u));
    const View& array = given[u];
    TESSERA_ASSERT(!array || (tier == Tier::device && array.dtype == dtype && array.num_elems() == elems[u]));
    int64_t& end = tier == Tier::device ? on_device : tier == Tier::host ? on_host : in_file;
    places_.push_back({tier, elems[u], end, array});
    if (!array) end += bytes_of(elems[u], dtype_);
  }
  if (on_device > 0) device_ = context.device.allocate(on_device, category, from);
  if (on_host > 0) host_ = context.host.allocate(on_host, category);
  context.file_bytes += in_file;
  if (in_file > 0 && context.device.kind() != DeviceKind::counting) file_ = make_file(folder_, in_file);
}

UnitArrays::~UnitArrays() {
  if (file_ >= 0) close(file_);
}

void UnitArrays::swap(UnitArrays& other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(places_, other.places_);
  std::swap(device_, other.device_);
  std::swap(host_, other.host_);
  std::swap(file_, other.file_);
  std::swap(folder_, other.folder_);
}

View UnitArrays::views(int64_t first_unit, int64_t last_unit) const {
  const Place& first = places_[static_cast<size_t>(first_unit)];
  TESSERA_ASSERT(first.tier != Tier::file);
  if (first.given && first_unit == last_unit) return first.given;
  int64_t elems = 0;
  for (int64_t u = first_unit; u <= last_unit; ++u) {
    const Place& place = places_[static_cast<size_t>(u)];
    TESSERA_ASSERT(!place.given && place.tier == first.tier);
    elems += place.elems;
  }
  return {(first.tier == Tier::device ? device_ : host_).data() + first.offset, dtype_, {elems}};
}

void UnitArrays::load(int64_t unit, int64_t first, View to, Stream& stream) const {
  TESSERA_ASSERT(to.dtype == dtype_);
  if (tier(unit) != Tier::file) {
    stream.copy(view(unit).rows(first, first + to.num_elems()), to);
    return;
  }
  stream.transfer_file(true, to.bytes(), [this, to, offset = offset_of(unit, first)] {
    transfer_all(folder_, "read", to.data, to.bytes(), offset,
                 [&](std::byte* data, size_t bytes, int64_t at) { return pread(file_, data, bytes, at); });
  });
}

void UnitArrays::save(int64_t unit, int64_t first, View from, Stream& stream) const {
  TESSERA_ASSERT(from.dtype == dtype_);
  if (tier(unit) != Tier::file) {
    stream.copy(from, view(unit).rows(first, first + from.num_elems()));
    return;
  }
  stream.transfer_file(false, from.bytes(), [this, from, offset = offset_of(unit, first)] {
    transfer_all(folder_, "written", from.data, from.bytes(), offset,
                 [&](std::byte* data, size_t bytes, int64_t at) { return pwrite(file_, data, bytes, at); });
  });
}

}  // namespace tessera
