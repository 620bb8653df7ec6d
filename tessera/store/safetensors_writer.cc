// Writes safetensors files.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tessera/store/safetensors.h"

namespace tessera {

namespace {

// The size of a piece that is converted, hashed and written. The piece is small enough to stay in the processor's cache
// during these three operations.
constexpr uint64_t kBufferBytes = 1 << 20;
// The size of a segment. Threads write segments in parallel, and later check their checksums in parallel. A segment is
// small enough for several threads to write a tensor together. It is large enough to keep the list of segments in
// the manifest short.
constexpr uint64_t kSegmentBytes = 64 << 20;

std::string dtype_name(DType dtype) {
  std::string word = name_of(dtype);
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word;
}

// Returns a header: 8 bytes with the length of the JSON, then the JSON. Spaces pad the JSON to a multiple of 8 bytes.
// The offsets in the JSON count from the end of the header.
std::string header_of(const std::vector<SafetensorsLayout::Place>& places,
                      std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  for (const auto& [tensor, begin, end] : places) {
    TESSERA_ASSERT(!json.contains(tensor.name));
    auto dims = nlohmann::ordered_json::array();
    for (int i = 0; i < tensor.shape.rank(); ++i) dims.push_back(tensor.shape[i]);
    json[tensor.name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", std::move(dims)}, {"data_offsets", {begin, end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

}  // namespace

SafetensorsLayout lay_out(std::vector<PlannedTensor> plan, std::map<std::string, std::string> metadata) {
  // Larger types come first, which aligns every tensor to its type. Tensors with types of the same size are sorted by
  // name, as in the reference library.
  std::sort(plan.begin(), plan.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return std::make_tuple(size_of(b.dtype), std::string_view(a.name)) <
           std::make_tuple(size_of(a.dtype), std::string_view(b.name));
  });
  SafetensorsLayout layout;
  uint64_t reached = 0;
  for (auto& tensor : plan) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.shape.num_elems()) * size_of(tensor.dtype);
    layout.places.push_back({std::move(tensor), reached, reached + bytes});
    reached += bytes;
  }
  layout.header = header_of(layout.places, std::move(metadata));
  for (auto& place : layout.places) {
    place.begin += layout.header.size();
    place.end += layout.header.size();
  }
  return layout;
}

void for_each_converted(const std::byte* values, DType dtype, DType file_dtype, uint64_t num_elems,
                        const std::function<void(const std::byte* piece, uint64_t bytes, uint64_t at)>& use) {
  const uint64_t most = kBufferBytes / size_of(file_dtype);
  std::vector<std::byte> buffer(dtype == file_dtype ? 0 : kBufferBytes);
  for (uint64_t first = 0; first < num_elems; first += most) {
    const uint64_t count = std::min(most, num_elems - first);
    const std::byte* piece = values + first * size_of(dtype);
    if (dtype != file_dtype) {
      convert(piece, dtype, buffer.data(), file_dtype, count);
      piece = buffer.data();
    }
    use(piece, count * size_of(file_dtype), first * size_of(file_dtype));
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<PlannedTensor> plan,
                                     std::map<std::string, std::string> metadata) {
  SafetensorsLayout layout = lay_out(std::move(plan), std::move(metadata));
  const std::string& header = layout.header;
  header_ = {0, header.size(), checksum_of(header.data(), header.size())};
  file_ = File::create_new(path, layout.file_bytes());
  try {
    file_->write_at(header.data(), header.size(), 0);
  } catch (...) {
    unlink(path.c_str());
    throw;
  }
  for (auto& place : layout.places) {
    Entry& entry = entries_.emplace_back();
    for (uint64_t at = place.begin; at < place.end; at += kSegmentBytes) {
      entry.segments.push_back({at, std::min(at + kSegmentBytes, place.end), {}});
    }
    entry.place = std::move(place);
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ && !finished_) unlink(file_->path().c_str());
}

void SafetensorsWriter::write(std::string_view name, const View& values, ThreadPool* pool) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.place.tensor.name == name; });
  TESSERA_ASSERT(entry != entries_.end());
  const DType target_dtype = entry->place.tensor.dtype;
  const uint64_t bytes = static_cast<uint64_t>(values.num_elems()) * size_of(target_dtype);
  TESSERA_ASSERT(entry->written + bytes <= entry->place.end - entry->place.begin);
  if (bytes == 0) return;
  const uint64_t begin = entry->written, end = begin + bytes, tensor = entry->place.begin;
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

// Writes bytes [begin, end) of the file. They are the next bytes of the segment.
void SafetensorsWriter::write_bytes(Segment& segment, uint64_t begin, uint64_t end, const std::byte* values,
                                    DType dtype, DType target_dtype) {
  const auto write = [&](const std::byte* piece, uint64_t bytes, uint64_t at) {
    segment.checksum.update(piece, bytes);
    file_->write_at(piece, bytes, begin + at);
  };
  for_each_converted(values, dtype, target_dtype, (end - begin) / size_of(target_dtype), write);
}

std::vector<FileSegment> SafetensorsWriter::finish() {
  std::vector<FileSegment> segments{header_};
  for (const auto& [place, written, parts] : entries_) {
    TESSERA_ASSERT(written == place.end - place.begin);
    for (const Segment& part : parts) segments.push_back({part.begin, part.end, part.checksum.value()});
  }
  file_->sync();
  finished_ = true;
  return segments;
}

}  // namespace tessera
