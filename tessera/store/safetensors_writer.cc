// Writing safetensors files.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tessera/store/safetensors.h"

namespace tessera {

namespace {

// Small enough to be in the cache when it is written after it has been converted and hashed.
constexpr size_t kBufferBytes = 1 << 20;

std::string dtype_word(DType dtype) {
  std::string word = name_of(dtype);
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<PlannedTensor> plan,
                                     std::map<std::string, std::string> metadata) {
  // Larger types first, so that every tensor is aligned to its type; then by name, as the reference library does.
  std::sort(plan.begin(), plan.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return std::make_tuple(size_of(b.dtype), std::string_view(a.name)) <
           std::make_tuple(size_of(a.dtype), std::string_view(b.name));
  });
  uint64_t reached = 0;
  for (auto& planned : plan) {
    const uint64_t bytes = static_cast<uint64_t>(planned.shape.num_elems()) * size_of(planned.dtype);
    entries_.push_back({std::move(planned), {reached, reached + bytes, 0}});
    reached += bytes;
  }
  const std::string header = write_header(std::move(metadata));
  header_ = {0, header.size(), checksum_of(header.data(), header.size())};
  for (auto& entry : entries_) {
    entry.segment.begin += header.size();
    entry.segment.end += header.size();
  }
  file_ = File::create_new(path, header.size() + reached);
  try {
    file_->write_at(header.data(), header.size(), 0);
  } catch (...) {
    unlink(path.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ && !finished_) unlink(file_->path().c_str());
}

// The length and the JSON, padded with blanks to a multiple of 8 bytes.
std::string SafetensorsWriter::write_header(std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  for (const auto& [planned, segment, written] : entries_) {
    TESSERA_ASSERT(!json.contains(planned.name));
    auto dims = nlohmann::ordered_json::array();
    for (int i = 0; i < planned.shape.rank(); ++i) dims.push_back(planned.shape[i]);
    json[planned.name] = {{"dtype", dtype_word(planned.dtype)},
                          {"shape", std::move(dims)},
                          {"data_offsets", {segment.begin, segment.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

void SafetensorsWriter::write(std::string_view name, const View& values) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.planned.name == name; });
  TESSERA_ASSERT(entry != entries_.end() && !entry->written);
  TESSERA_ASSERT(values.num_elems() == entry->planned.shape.num_elems());
  const DType target_dtype = entry->planned.dtype;
  const bool converts = values.dtype != target_dtype;
  if (converts) buffer_.resize(kBufferBytes);

  Checksum checksum;
  const auto num_elems = static_cast<size_t>(values.num_elems());
  const size_t step = kBufferBytes / size_of(target_dtype);
  for (size_t i = 0; i < num_elems; i += step) {
    const size_t count = std::min(step, num_elems - i);
    const std::byte* bytes = values.data + i * size_of(values.dtype);
    if (converts) {
      convert(bytes, values.dtype, buffer_.data(), target_dtype, count);
      bytes = buffer_.data();
    }
    checksum.update(bytes, count * size_of(target_dtype));
    file_->write_at(bytes, count * size_of(target_dtype), entry->segment.begin + i * size_of(target_dtype));
  }
  entry->segment.checksum = checksum.value();
  entry->written = true;
}

std::vector<FileSegment> SafetensorsWriter::finish() {
  std::vector<FileSegment> segments{header_};
  for (const auto& entry : entries_) {
    TESSERA_ASSERT(entry.written);
    segments.push_back(entry.segment);
  }
  file_->sync();
  finished_ = true;
  return segments;
}

}  // namespace tessera
