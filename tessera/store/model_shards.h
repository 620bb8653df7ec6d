// The weight files of a Hugging Face folder, which several ranks write together: model.safetensors, or
// model-00001-of-0000N.safetensors with model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/store/safetensors.h"

namespace tessera {

// The file and place of each tensor. The same arguments give the same files on every rank.
class ModelShards {
 public:
  // Puts the tensors into files, in the order of `tensors`. The tensors of a file have at most `max_bytes` together. A
  // tensor that is larger than `max_bytes` gets its own file. The tensors after it continue to fill the file of the
  // tensors before it. Names must be unique.
  ModelShards(std::vector<PlannedTensor> tensors, int64_t max_bytes);
  // Puts all tensors into one file with this name.
  ModelShards(std::vector<PlannedTensor> tensors, std::string file_name);

  size_t num_files() const { return layouts_.size(); }
  std::string file_name(size_t file) const;
  uint64_t file_bytes(size_t file) const { return layouts_[file].file_bytes(); }

  struct Place {
    size_t file = 0;
    DType dtype = DType::f32;
    uint64_t begin = 0, end = 0;  // position in the file, in bytes
  };
  const Place& place(std::string_view name) const;

  // Creates the files in a folder, with their final sizes. Reserves the space if the file system can. Throws RunError.
  void create_files(const std::filesystem::path& folder) const;
  // Writes the headers and, for several files, the index. Call it only when all ranks have written their tensors. Until
  // then the files have no headers, so no reader takes them for complete files. Throws RunError.
  void complete_files(const std::filesystem::path& folder) const;

 private:
  std::string index_text() const;

  std::string only_name_ = "model.safetensors";  // of the file if there is only one
  std::vector<SafetensorsLayout> layouts_;       // by file
  std::map<std::string, Place, std::less<>> places_;
};

// Writes this rank's elements of the tensors into the files that create_files() has created.
class ShardWriter {
 public:
  // `shards` and `pool` must outlive this object.
  ShardWriter(const ModelShards& shards, std::filesystem::path folder, ThreadPool& pool);

  // Writes `values` into a flattened tensor, starting at its element `first`. `values` are in host memory and have any
  // floating-point type. Throws RunError.
  void write(std::string_view name, int64_t first, const View& values);
  // Returns when everything written is on the disk. Throws RunError.
  void sync();

 private:
  File& open_file(size_t number);

  const ModelShards& shards_;
  const std::filesystem::path folder_;
  ThreadPool& pool_;
  // The open files. Only a few are open at a time, because the system limits the open files of a process. The file that
  // was written last is at the end.
  std::vector<std::pair<size_t, File>> open_;
};

}  // namespace tessera
