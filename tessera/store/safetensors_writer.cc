// Writes safetensors files.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tessera/store/safetensors.h"

namespace tessera {

namespace {

// Small enough to stay in the cache between conversion, hashing and writing.
constexpr uint64_t kBufferBytes = 1 << 20;
// Bytes that one task writes, and checks later. Small enough for several threads to share a tensor, and large enough to
// keep the manifest short.
constexpr uint64_t kSegmentBytes = 64 << 20;

std::string dtype_name(DType dtype) {
  std::string word = name_of(dtype);
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<PlannedTensor> plan,
                                     std::map<std::string, std::string> metadata) {
  // Larger types come first, which aligns every tensor to its type. Then by name, as in the reference library.
  std::sort(plan.begin(), plan.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return std::make_tuple(size_of(b.dtype), std::string_view(a.name)) <
           std::make_tuple(size_of(a.dtype), std::string_view(b.name));
  });
  uint64_t reached = 0;
  for (auto& planned : plan) {
    const uint64_t bytes = static_cast<uint64_t>(planned.shape.num_elems()) * size_of(planned.dtype);
    entries_.push_back({std::move(planned), reached, reached + bytes, 0, {}});
    reached += bytes;
  }
  const std::string header = write_header(std::move(metadata));
  header_ = {0, header.size(), checksum_of(header.data(), header.size())};
  file_ = File::create_new(path, header.size() + reached);
  try {
    file_->write_at(header.data(), header.size(), 0);
  } catch (...) {
    unlink(path.c_str());
    throw;
  }
  for (auto& [planned, begin, end, written, segments] : entries_) {
    for (uint64_t at = begin; at < end; at += kSegmentBytes) {
      segments.push_back({header_.end + at, header_.end + std::min(at + kSegmentBytes, end), {}});
    }
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ && !finished_) unlink(file_->path().c_str());
}

// The length and the JSON, padded with spaces to a multiple of 8 bytes.
std::string SafetensorsWriter::write_header(std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  for (const auto& [planned, begin, end, written, segments] : entries_) {
    TESSERA_ASSERT(!json.contains(planned.name));
    auto dims = nlohmann::ordered_json::array();
    for (int i = 0; i < planned.shape.rank(); ++i) dims.push_back(planned.shape[i]);
    json[planned.name] = {
        {"dtype", dtype_name(planned.dtype)}, {"shape", std::move(dims)}, {"data_offsets", {begin, end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

void SafetensorsWriter::write(std::string_view name, const View& values, ThreadPool* pool) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.planned.name == name; });
  TESSERA_ASSERT(entry != entries_.end());
  const DType target_dtype = entry->planned.dtype;
  const uint64_t bytes = static_cast<uint64_t>(values.num_elems()) * size_of(target_dtype);
  TESSERA_ASSERT(entry->written + bytes <= entry->end - entry->begin);
  if (bytes == 0) return;
  const uint64_t begin = entry->written, end = begin + bytes, tensor = header_.end + entry->begin;
  const auto write = [&](int64_t i) {
    const uint64_t number = begin / kSegmentBytes + static_cast<uint64_t>(i);
    Segment& segment = entry->segments[number];
    const uint64_t first = std::max(begin, number * kSegmentBytes), last = std::min(end, (number + 1) * kSegmentBytes);
    const std::byte* source = values.data + (first - begin) / size_of(target_dtype) * size_of(values.dtype);
    write_bytes(segment, tensor + first, tensor + last, source, values.dtype, target_dtype);
  };
  const auto num_segments = static_cast<int64_t>((end - 1) / kSegmentBytes - begin / kSegmentBytes + 1);
  if (pool) {
    pool->run(num_segments, write);
  } else {
    for (int64_t i = 0; i < num_segments; ++i) write(i);
  }
  entry->written = end;
}

// Writes bytes [begin, end) of the file, the next bytes of the segment.
void SafetensorsWriter::write_bytes(Segment& segment, uint64_t begin, uint64_t end, const std::byte* values,
                                    DType dtype, DType target_dtype) {
  std::vector<std::byte> buffer(dtype == target_dtype ? 0 : kBufferBytes);
  for (uint64_t at = begin; at < end; at += kBufferBytes) {
    const uint64_t bytes = std::min(kBufferBytes, end - at), count = bytes / size_of(target_dtype);
    const std::byte* source = values;
    values += count * size_of(dtype);
    if (dtype != target_dtype) {
      convert(source, dtype, buffer.data(), target_dtype, count);
      source = buffer.data();
    }
    segment.checksum.update(source, bytes);
    file_->write_at(source, bytes, at);
  }
}

std::vector<FileSegment> SafetensorsWriter::finish() {
  std::vector<FileSegment> segments{header_};
  for (const auto& [planned, begin, end, written, parts] : entries_) {
    TESSERA_ASSERT(written == end - begin);
    for (const Segment& part : parts) segments.push_back({part.begin, part.end, part.checksum.value()});
  }
  file_->sync();
  finished_ = true;
  return segments;
}

}  // namespace tessera
