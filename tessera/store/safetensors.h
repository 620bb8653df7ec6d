// The safetensors format: 8 bytes of header length N (little-endian), N bytes of JSON, then the tensors' bytes.
// Source: github.com/huggingface/safetensors, README, "Format", and its validation in safetensors/src/tensor.rs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/store/checksum.h"
#include "tessera/store/file.h"

namespace tessera {

// One tensor of a file, as the file's header describes it. It can have any type of the format, and any number of
// dimensions.
// SafetensorsFile::get() checks that Tessera can read the tensor.
struct TensorInfo {
  std::string name;
  std::string dtype_name;       // as in the file: "F32", "F8_E4M3", ...
  std::optional<DType> dtype;   // empty: a type of the format that Tessera does not read
  std::vector<int64_t> dims;    // the slowest-varying dimension first; empty for a scalar
  uint64_t begin = 0, end = 0;  // bytes [begin, end) of the data after the header

  int64_t num_elems() const;
  Shape shape() const;  // asserts that there are at most 4 dimensions
};

// A header that passed every check. The tensors cover the data up to the end of the file, without holes or overlaps.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // in the order of their bytes
  std::map<std::string, std::string> metadata;  // __metadata__
  uint64_t data_begin = 0;                      // where the data starts in the file: 8 + N
};

// A safetensors file mapped into memory, read-only.
class SafetensorsFile {
 public:
  // Throws InputError: the file is missing, unreadable or not a valid safetensors file.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  ~SafetensorsFile();

  // Parses and validates the header of a file of `file_size` bytes. `start` contains at least the header, or the
  // complete file if the file ends before the end of the header. `where` names the file in errors. Throws InputError.
  static SafetensorsHeader parse_header(std::span<const std::byte> start, uint64_t file_size, const std::string& where);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;  // nullptr: no such tensor
  // Returns a tensor that can be read. Throws InputError if the file has no such tensor, if Tessera does not read the
  // tensor's type, or if the tensor has more than 4 dimensions.
  const TensorInfo& get(std::string_view name) const;
  // The mapped bytes of a tensor. Their address is not always aligned to the tensor's type.
  const std::byte* data(const TensorInfo& info) const { return mapping_ + header_.data_begin + info.begin; }

  // Copies a complete tensor into `target` (same number of elements, host memory). Converts between floating-point
  // types. Runs in parallel if a pool is given. Releases the file's pages right after reading, so the model is not in
  // memory twice. Throws InputError: the types cannot be converted, a floating-point value is not finite or is
  // too large for the target's type, or the file can no longer be read.
  void read_into(const TensorInfo& info, const View& target, ThreadPool* pool = nullptr) const;
  // Like read_into(), for elements [elem_begin, elem_end) of the flattened tensor: for example, the part of one rank.
  void read_range_into(const TensorInfo& info, int64_t elem_begin, int64_t elem_end, const View& target,
                       ThreadPool* pool = nullptr) const;

 private:
  void read_chunk(const TensorInfo& info, int64_t elem_begin, int64_t num_elems, std::byte* target,
                  DType target_dtype) const;
  void check_finite(const TensorInfo& info, int64_t elem_begin, const std::byte* source, const View& target) const;

  std::filesystem::path path_;
  uint64_t size_ = 0;
  const std::byte* mapping_ = nullptr;
  SafetensorsHeader header_;
  std::vector<uint32_t> by_name_;  // indices into header_.tensors, sorted by name
};

struct PlannedTensor {
  std::string name;
  DType dtype;  // in the file
  Shape shape;
};

// Where the parts of a planned file will be.
struct SafetensorsLayout {
  struct Place {
    PlannedTensor tensor;
    uint64_t begin, end;  // bytes of the file
  };
  std::string header;         // the file's first bytes: the length and the JSON
  std::vector<Place> places;  // in the order of their bytes

  uint64_t file_bytes() const { return places.empty() ? header.size() : places.back().end; }
};
// Names must be unique. Adds "format": "pt" to the metadata, because transformers requires it.
SafetensorsLayout lay_out(std::vector<PlannedTensor> plan, std::map<std::string, std::string> metadata = {});

// Converts `num_elems` elements to the type of the file, in pieces that fit into the cache, and calls `use` with each
// piece in order. `at` is the number of converted bytes before the piece.
void for_each_converted(const std::byte* values, DType dtype, DType file_dtype, uint64_t num_elems,
                        const std::function<void(const std::byte* piece, uint64_t bytes, uint64_t at)>& use);

// Writes a safetensors file. The constructor gets the names, types and shapes of all tensors. write() then gets their
// values. The order of the tensors does not matter.
class SafetensorsWriter {
 public:
  // Creates the file, reserves its space and writes the header (lay_out()). Throws RunError: the file exists, cannot be
  // written, or there is no space.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<PlannedTensor> plan,
                    std::map<std::string, std::string> metadata = {});
  // Removes the file unless finish() has completed.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes the next elements of a planned tensor from host memory: the complete tensor, or consecutive pieces of it.
  // `values` have the planned type, or both types are floating-point types. In the second case, the values are
  // converted through buffers of fixed size.
  // Large pieces are written in parallel if a pool is given. Throws RunError.
  void write(std::string_view name, const View& values, ThreadPool* pool = nullptr);
  // Call finish() when every tensor is written. Waits until the file is on the disk. Returns the segments of the file
  // with their checksums: one segment for the header, one for each small tensor, and several for each large tensor. The
  // checksums are computed from the bytes as written. Throws RunError.
  std::vector<FileSegment> finish();

 private:
  struct Segment {
    uint64_t begin, end;  // bytes of the file
    Checksum checksum;    // of the bytes written so far
  };
  struct Entry {
    SafetensorsLayout::Place place;
    uint64_t written = 0;  // bytes from the start of the tensor
    std::vector<Segment> segments;
  };
  void write_bytes(Segment& segment, uint64_t begin, uint64_t end, const std::byte* values, DType dtype,
                   DType target_dtype);

  std::vector<Entry> entries_;  // in the order of their bytes
  std::optional<File> file_;
  FileSegment header_;
  bool finished_ = false;
};

}  // namespace tessera
