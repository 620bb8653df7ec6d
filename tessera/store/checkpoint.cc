#include "tessera/store/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTrainerState = "trainer_state.json";
constexpr uint64_t kLongestText = 1'000'000'000;
constexpr const char* kDamaged = "The checkpoint is damaged or incomplete: use an earlier one";

std::string rank_file_name(int rank, int world_size) {
  return fmt::format("rank-{:05}-of-{:05}.safetensors", rank, world_size);
}

void check_sizes(const fs::path& folder, const Manifest& manifest) {
  for (const auto& file : manifest.files) {
    const uint64_t bytes = File::open_to_read(folder / file.name).size();
    if (bytes != file.bytes()) {
      throw InputError(folder / file.name, fmt::format("has {} bytes instead of {}", bytes, file.bytes()), kDamaged);
    }
  }
}

void check_segment(const File& file, const FileSegment& segment) {
  constexpr uint64_t kStep = 1 << 20;
  std::vector<std::byte> buffer(std::min(kStep, segment.end - segment.begin));
  Checksum checksum;
  for (uint64_t at = segment.begin; at < segment.end; at += kStep) {
    const size_t bytes = std::min(kStep, segment.end - at);
    file.read_at(buffer.data(), bytes, at);
    checksum.update(buffer.data(), bytes);
  }
  if (checksum.value() != segment.checksum) {
    throw InputError(file.path(),
                     fmt::format("bytes {} to {} are not those that were written", segment.begin, segment.end),
                     kDamaged);
  }
}

void check_contents(const fs::path& folder, const Manifest& manifest, ThreadPool* pool) {
  std::vector<std::pair<const ManifestFile*, const FileSegment*>> segments;
  for (const auto& file : manifest.files) {
    for (const auto& segment : file.segments) segments.emplace_back(&file, &segment);
  }
  const auto check = [&](int64_t i) {
    const auto& [file, segment] = segments[static_cast<size_t>(i)];
    check_segment(File::open_to_read(folder / file->name), *segment);
  };
  const auto count = static_cast<int64_t>(segments.size());
  if (pool) {
    pool->run(count, check);
  } else {
    for (int64_t i = 0; i < count; ++i) check(i);
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(const fs::path& output_folder, int64_t step, int rank, int world_size)
    : folder_(checkpoint_folder(output_folder, step), {kManifestName, kTrainerState, rank_file_name(rank, world_size)}),
      manifest_{step, world_size, {}},
      rank_file_(rank_file_name(rank, world_size)) {
  TESSERA_ASSERT(rank == 0 && world_size == 1);
}

void CheckpointWriter::declare(std::string_view name, DType dtype, const Shape& shape) {
  TESSERA_ASSERT(!tensors_);
  plan_.push_back({std::string(name), dtype, shape});
}

SafetensorsWriter& CheckpointWriter::tensors() {
  if (!tensors_) tensors_.emplace(folder_.path(rank_file_), std::move(plan_));
  return *tensors_;
}

void CheckpointWriter::write(std::string_view name, const View& values) {
  tensors().write(name, values);
}

void CheckpointWriter::add_text(std::string_view name, std::string_view text) {
  folder_.write_text(name, text);
  manifest_.files.push_back({std::string(name), {{0, text.size(), checksum_of(text.data(), text.size())}}});
}

void CheckpointWriter::commit() {
  manifest_.files.push_back({rank_file_, tensors().finish()});
  folder_.write_text(kManifestName, manifest_text(manifest_));
  folder_.commit();
}

Checkpoint Checkpoint::open_verified(const fs::path& folder, ThreadPool* pool) {
  if (!fs::is_directory(folder)) throw InputError(folder, "no such checkpoint", "Check the path");
  Manifest manifest = read_manifest(folder / kManifestName);
  if (manifest.world_size != 1) {
    throw InputError(folder, fmt::format("was written by {} ranks, this run has 1", manifest.world_size),
                     "Resume with as many ranks");
  }
  check_sizes(folder, manifest);
  check_contents(folder, manifest, pool);
  SafetensorsFile tensors(folder / rank_file_name(0, manifest.world_size));
  return Checkpoint(folder, std::move(manifest), std::move(tensors));
}

void Checkpoint::read_into(std::string_view name, const View& target, ThreadPool* pool) const {
  const TensorInfo& info = tensors_.get(name);
  if (info.num_elems() != target.num_elems()) {
    throw InputError(
        tensors_.path(),
        fmt::format("tensor \"{}\" has {} elements, this run needs {}", name, info.num_elems(), target.num_elems()),
        "Resume with the model and settings of the checkpoint");
  }
  tensors_.read_into(info, target, pool);
}

std::string Checkpoint::trainer_state() const {
  return text(kTrainerState);
}

std::string Checkpoint::text(std::string_view name) const {
  const auto is_named = [&](const ManifestFile& file) { return file.name == name; };
  if (std::none_of(manifest_.files.begin(), manifest_.files.end(), is_named)) {
    throw InputError(folder_, fmt::format("has no file \"{}\"", name), kDamaged);
  }
  return read_text_file(folder_ / name, kLongestText);
}

fs::path checkpoint_folder(const fs::path& output_folder, int64_t step) {
  return output_folder / fmt::format("checkpoint-{}", step);
}

std::vector<int64_t> checkpoint_steps(const fs::path& output_folder) {
  std::vector<int64_t> steps;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(output_folder, missing)) {
    constexpr std::string_view kPrefix = "checkpoint-";
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !entry.is_directory()) continue;
    int64_t step = 0;
    const auto end = name.data() + name.size();
    if (std::from_chars(name.data() + kPrefix.size(), end, step).ptr != end || step < 0) continue;
    if (checkpoint_folder(output_folder, step) == entry.path()) steps.push_back(step);  // not "checkpoint-007"
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> latest_checkpoint(const fs::path& output_folder,
                                            const std::function<void(const std::string&)>& warn, ThreadPool* pool) {
  auto steps = checkpoint_steps(output_folder);
  for (; !steps.empty(); steps.pop_back()) {
    try {
      return Checkpoint::open_verified(checkpoint_folder(output_folder, steps.back()), pool);
    } catch (const InputError& error) {
      warn(error.what());
    }
  }
  return std::nullopt;
}

void rotate_checkpoints(const fs::path& output_folder, int keep, const std::set<int64_t>& protected_steps) {
  TESSERA_ASSERT(keep >= 1);
  auto steps = checkpoint_steps(output_folder);
  std::reverse(steps.begin(), steps.end());
  int kept = 0;
  for (const int64_t step : steps) {
    const fs::path folder = checkpoint_folder(output_folder, step);
    try {
      check_sizes(folder, read_manifest(folder / kManifestName));
    } catch (const InputError&) {
      continue;
    }
    if (kept < keep || protected_steps.contains(step)) {
      ++kept;
    } else {
      remove_folder_atomically(folder);
    }
  }
}

}  // namespace tessera
