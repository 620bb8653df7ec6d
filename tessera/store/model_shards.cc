#include "tessera/store/model_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/store/replaceable.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Number of elements that one task writes. Writing them takes much longer than starting a task. A large tensor still
// gives enough tasks for all threads.
constexpr int64_t kTaskElems = 2 << 20;

// The most files that a ShardWriter has open at a time. Tensors are written almost in the order of the files, so more
// open files would not help.
constexpr size_t kMaxOpenFiles = 8;

uint64_t tensor_bytes(const PlannedTensor& tensor) {
  return static_cast<uint64_t>(tensor.shape.num_elems()) * size_of(tensor.dtype);
}

// Returns the tensors of each file. The comment of ModelShards::ModelShards states the rules.
std::vector<std::vector<PlannedTensor>> cut(std::vector<PlannedTensor> tensors, uint64_t max_bytes) {
  std::vector<std::vector<PlannedTensor>> files;
  size_t open = 0;      // if is_open: the index of the file that the next tensor joins if it fits
  uint64_t filled = 0;  // bytes of the tensors of the file `open`
  bool is_open = false;
  for (PlannedTensor& tensor : tensors) {
    const uint64_t bytes = tensor_bytes(tensor);
    const bool is_alone = bytes > max_bytes;
    const bool fits = is_open && filled + bytes <= max_bytes;
    if (is_alone || !fits) files.emplace_back();
    if (!is_alone && !fits) {
      open = files.size() - 1;
      filled = 0;
      is_open = true;
    }
    if (!is_alone) filled += bytes;
    files[is_alone ? files.size() - 1 : open].push_back(std::move(tensor));
  }
  return files;
}

}  // namespace

ModelShards::ModelShards(std::vector<PlannedTensor> tensors, int64_t max_bytes) {
  const std::map<std::string, std::string> metadata{{std::string(kWriterKey), std::string(kWriter)}};
  for (auto& of_file : cut(std::move(tensors), static_cast<uint64_t>(max_bytes))) {
    const size_t file = layouts_.size();
    for (const auto& [tensor, begin, end] : layouts_.emplace_back(lay_out(std::move(of_file), metadata)).places) {
      const bool is_new = places_.try_emplace(tensor.name, Place{file, tensor.dtype, begin, end}).second;
      TESSERA_ASSERT(is_new);
    }
  }
}

ModelShards::ModelShards(std::vector<PlannedTensor> tensors, std::string file_name)
    : ModelShards(std::move(tensors), std::numeric_limits<int64_t>::max()) {
  only_name_ = std::move(file_name);
}

std::string ModelShards::file_name(size_t file) const {
  if (num_files() == 1) return only_name_;
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, num_files());
}

const ModelShards::Place& ModelShards::place(std::string_view name) const {
  const auto at = places_.find(name);
  TESSERA_ASSERT(at != places_.end());
  return at->second;
}

void ModelShards::create_files(const fs::path& folder) const {
  for (size_t file = 0; file < num_files(); ++file) {
    File created = File::create_new(folder / file_name(file), file_bytes(file));
    created.resize();
    created.sync();
  }
}

void ModelShards::complete_files(const fs::path& folder) const {
  for (size_t file = 0; file < num_files(); ++file) {
    const std::string& header = layouts_[file].header;
    File written = File::open_to_write(folder / file_name(file), file_bytes(file));
    written.write_at(header.data(), header.size(), 0);
    written.sync();
  }
  if (num_files() > 1) write_new_file(folder / "model.safetensors.index.json", index_text());
}

// Returns the text of model.safetensors.index.json. Hugging Face Transformers writes the same keys.
std::string ModelShards::index_text() const {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  uint64_t total_bytes = 0;
  for (const auto& [name, place] : places_) {
    map[name] = file_name(place.file);
    total_bytes += place.end - place.begin;
  }
  const nlohmann::ordered_json index{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

ShardWriter::ShardWriter(const ModelShards& shards, fs::path folder, ThreadPool& pool)
    : shards_(shards), folder_(std::move(folder)), pool_(pool) {}

void ShardWriter::write(std::string_view name, int64_t first, const View& values) {
  const int64_t num_elems = values.num_elems();
  if (num_elems == 0) return;
  const ModelShards::Place& place = shards_.place(name);
  const auto elem_bytes = static_cast<int64_t>(size_of(place.dtype));
  const auto begin = static_cast<int64_t>(place.begin) + first * elem_bytes;
  TESSERA_ASSERT(first >= 0 && begin + num_elems * elem_bytes <= static_cast<int64_t>(place.end));
  File& file = open_file(place.file);
  pool_.run(ceil_divide(num_elems, kTaskElems), [&](int64_t task) {
    const int64_t from = task * kTaskElems, count = std::min(kTaskElems, num_elems - from);
    const auto task_begin = static_cast<uint64_t>(begin + from * elem_bytes);
    for_each_converted(values.data + from * static_cast<int64_t>(size_of(values.dtype)), values.dtype, place.dtype,
                       static_cast<uint64_t>(count), [&](const std::byte* piece, uint64_t bytes, uint64_t at) {
                         file.write_at(piece, bytes, task_begin + at);
                       });
  });
}

// Returns file `number`, and opens it if it is not open. The file stays open until kMaxOpenFiles other files have been
// used after it.
File& ShardWriter::open_file(size_t number) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const auto& file) { return file.first == number; });
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
    return open_.back().second;
  }
  if (open_.size() == kMaxOpenFiles) {
    // Syncs the file before closing it. If the file were only closed and later opened again, sync() might not report an
    // error of the writes before the close.
    open_.front().second.sync();
    open_.erase(open_.begin());
  }
  File opened = File::open_to_write(folder_ / shards_.file_name(number), shards_.file_bytes(number));
  return open_.emplace_back(number, std::move(opened)).second;
}

void ShardWriter::sync() {
  for (auto& [number, file] : open_) file.sync();
}

}  // namespace tessera
