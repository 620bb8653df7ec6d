// Reads tensors from a mapped safetensors file.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "tessera/base/finite.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/store/safetensors.h"

namespace tessera {

namespace {

// Number of bytes that one task reads. It is so large that reading takes much longer than mapping, and so small that
// all tasks together need little memory.
constexpr int64_t kChunkBytes = 4 << 20;

// Converts elements whose address may be unaligned for their type. First copies them to a small aligned buffer.
void convert_unaligned(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
                       int64_t num_elems) {
  alignas(8) std::byte buffer[16 << 10];
  const auto source_size = static_cast<int64_t>(size_of(source_dtype));
  const auto target_size = static_cast<int64_t>(size_of(target_dtype));
  const int64_t step = static_cast<int64_t>(sizeof buffer) / source_size;
  for (int64_t i = 0; i < num_elems; i += step) {
    const int64_t count = std::min(step, num_elems - i);
    std::memcpy(buffer, source + i * source_size, static_cast<size_t>(count * source_size));
    convert(buffer, source_dtype, target + i * target_size, target_dtype, static_cast<size_t>(count));
  }
}

}  // namespace

int64_t TensorInfo::num_elems() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

Shape TensorInfo::shape() const {
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {dims[0]};
    case 2:
      return {dims[0], dims[1]};
    case 3:
      return {dims[0], dims[1], dims[2]};
    default:
      TESSERA_ASSERT(dims.size() == 4);
      return {dims[0], dims[1], dims[2], dims[3]};
  }
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const File file = File::open_to_read(path);
  size_ = file.size();
  if (size_ < 8) parse_header({}, size_, path);  // throws
  // Reads the header instead of mapping it, because the header must not change between its validation and its use.
  uint64_t length = 0;
  file.read_at(&length, sizeof length, 0);
  std::vector<std::byte> start(8 + std::min<uint64_t>({length, size_ - 8, 100'000'000}));
  file.read_at(start.data(), start.size(), 0);
  header_ = parse_header(start, size_, path);

  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return header_.tensors[a].name < header_.tensors[b].name; });

  void* mapping = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (mapping == MAP_FAILED) throw_read_error(path, errno);
  mapping_ = static_cast<const std::byte*>(mapping);
  madvise(mapping, size_, MADV_SEQUENTIAL);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      header_(std::move(other.header_)),
      by_name_(std::move(other.by_name_)) {}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_) munmap(const_cast<std::byte*>(mapping_), size_);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, std::string_view n) { return header_.tensors[i].name < n; });
  if (at == by_name_.end() || header_.tensors[*at].name != name) return nullptr;
  return &header_.tensors[*at];
}

const TensorInfo& SafetensorsFile::get(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (!info) throw InputError(path_, fmt::format("has no tensor \"{}\"", printable(name)));
  if (!info->dtype) {
    throw InputError(path_, fmt::format("tensor \"{}\" has type {}", printable(name), info->dtype_name),
                     "Tessera reads F64, F32, F16, BF16, I64, I32 and U8: convert the model to one of them");
  }
  if (info->dims.size() > 4) {
    throw InputError(path_, fmt::format("tensor \"{}\" has {} dimensions", printable(name), info->dims.size()),
                     "Tessera reads tensors of up to 4 dimensions");
  }
  return *info;
}

void SafetensorsFile::read_into(const TensorInfo& info, const View& target, ThreadPool* pool) const {
  read_range_into(info, 0, info.num_elems(), target, pool);
}

void SafetensorsFile::read_range_into(const TensorInfo& info, int64_t elem_begin, int64_t elem_end, const View& target,
                                      ThreadPool* pool) const {
  TESSERA_ASSERT(info.dtype.has_value());
  TESSERA_ASSERT(0 <= elem_begin && elem_begin <= elem_end && elem_end <= info.num_elems());
  TESSERA_ASSERT(target.num_elems() == elem_end - elem_begin);
  if (*info.dtype != target.dtype && !converts(*info.dtype, target.dtype)) {
    throw InputError(path_, fmt::format("tensor \"{}\" has type {}, but {} is needed", printable(info.name),
                                        info.dtype_name, name_of(target.dtype)));
  }
  const int64_t chunk_elems = kChunkBytes / static_cast<int64_t>(size_of(*info.dtype));
  const int64_t num_chunks = ceil_divide(elem_end - elem_begin, chunk_elems);
  const auto read = [&](int64_t i) {
    const int64_t begin = elem_begin + i * chunk_elems;
    read_chunk(info, begin, std::min(chunk_elems, elem_end - begin),
               target.data + i * chunk_elems * static_cast<int64_t>(size_of(target.dtype)), target.dtype);
  };
  if (pool) {
    pool->run(num_chunks, read);
  } else {
    for (int64_t i = 0; i < num_chunks; ++i) read(i);
  }
}

void SafetensorsFile::read_chunk(const TensorInfo& info, int64_t elem_begin, int64_t num_elems, std::byte* target,
                                 DType target_dtype) const {
  const size_t elem_bytes = size_of(*info.dtype);
  const std::byte* source = data(info) + static_cast<size_t>(elem_begin) * elem_bytes;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first_page = reinterpret_cast<uintptr_t>(source) / page * page;
  const size_t span = reinterpret_cast<uintptr_t>(source) + static_cast<size_t>(num_elems) * elem_bytes - first_page;
  void* const pages = reinterpret_cast<void*>(first_page);
  // Mapping all pages in one call is faster than one page fault per page. It is also safer: if the file shrank or the
  // disk fails, this call returns an error, whereas a page fault raises SIGBUS. Linux before 5.14 does not know
  // MADV_POPULATE_READ and returns EINVAL. Each page is then mapped by a page fault when it is first read.
  if (madvise(pages, span, MADV_POPULATE_READ) != 0 && errno != EINVAL) {
    throw InputError(path_, fmt::format("tensor \"{}\" cannot be read: {}", printable(info.name), std::strerror(errno)),
                     "Check the disk, and that nothing changes the file while it is read");
  }
  if (target_dtype == *info.dtype) {
    std::memcpy(target, source, static_cast<size_t>(num_elems) * elem_bytes);
  } else if (reinterpret_cast<uintptr_t>(source) % elem_bytes == 0) {
    convert(source, *info.dtype, target, target_dtype, static_cast<size_t>(num_elems));
  } else {
    convert_unaligned(source, *info.dtype, target, target_dtype, num_elems);
  }
  if (converts(*info.dtype, target_dtype) && !is_rest(target_dtype)) {
    check_finite(info, elem_begin, source, {target, target_dtype, {num_elems}});
  }
  // Removes the pages from this process's memory. If another chunk shares the first or last page, its reader maps this
  // page again from the page cache.
  madvise(pages, span, MADV_DONTNEED);
}

// Throws InputError if `target` contains NaN or infinity. `target` holds elements that were converted from `source`.
// `source` points to element `elem_begin` of the tensor.
void SafetensorsFile::check_finite(const TensorInfo& info, int64_t elem_begin, const std::byte* source,
                                   const View& target) const {
  const int64_t found = find_non_finite(target);
  if (found < 0) return;
  const size_t elem_bytes = size_of(*info.dtype);
  alignas(8) std::byte element[sizeof(double)];
  std::memcpy(element, source + static_cast<size_t>(found) * elem_bytes, elem_bytes);
  double value;
  convert(element, *info.dtype, &value, DType::f64, 1);
  const std::string tensor = fmt::format("tensor \"{}\"", printable(info.name));
  if (std::isfinite(value)) {
    const bool is_f16 = target.dtype == DType::f16, is_bf16 = target.dtype == DType::bf16;
    throw InputError(path_,
                     fmt::format("{} contains {}, but the largest {} value is {}", tensor, value,
                                 is_f16    ? "fp16"
                                 : is_bf16 ? "bf16"
                                           : "fp32",
                                 largest_of(target.dtype)),
                     is_f16 ? "Use " + option("precision") + " bf16 or fp32" : "Use another model file");
  }
  throw InputError(
      path_,
      fmt::format("{} contains {} at element {}", tensor, std::isnan(value) ? "NaN" : "infinity", elem_begin + found),
      "The file is damaged, or its training diverged: use another copy of it, or an earlier one");
}

}  // namespace tessera
