#include "tessera/store/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checked_files.h"
#include "tessera/store/damage.h"
#include "tessera/store/file.h"
#include "tessera/store/replaceable.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTrainerState = "trainer_state.json";

[[noreturn]] void refuse_damaged(const fs::path& path, const std::string& fault) {
  throw DamageError(path, fault, kDamaged);
}

void remove_old_checkpoints(const fs::path& output_folder, const Rotation& rotation) {
  auto steps = checkpoint_steps(output_folder);
  std::reverse(steps.begin(), steps.end());
  int kept = 0;
  for (const int64_t step : steps) {
    const fs::path folder = checkpoint_folder(output_folder, step);
    try {
      for (const auto& file : read_manifest(folder / kManifestName).files) check_size(folder, file, refuse_damaged);
    } catch (const Error&) {  // the checkpoint is damaged, or unreadable at the moment: do not count or remove it
      continue;
    }
    const bool is_replaced = kept > 0 && rotation.replaced_steps.contains(step);
    if (rotation.protected_steps.contains(step) || (!is_replaced && (rotation.keep == 0 || kept < rotation.keep))) {
      ++kept;
    } else if (why_no_own_checkpoint(folder).empty()) {  // a folder with files of a user stays
      remove_folder_atomically(folder);
    }
  }
}

}  // namespace

Checkpoint Checkpoint::open_verified(const fs::path& folder, ThreadPool* pool) {
  const auto alone = make_self_communicator();
  return open_verified(folder, *alone, pool);
}

Checkpoint Checkpoint::open_verified(const fs::path& folder, Communicator& world, ThreadPool* pool) {
  std::optional<Checkpoint> checkpoint;
  const auto checksums = on_all_ranks(world, "the check of a checkpoint", [&] {
    if (!is_folder(folder)) {
      throw InputError(folder, "no such checkpoint", "Check the path, and that the machines of all ranks see it");
    }
    Manifest manifest = read_manifest(folder / kManifestName);
    check_files(folder, manifest.files, world, pool, refuse_damaged);
    checkpoint = Checkpoint(folder, std::move(manifest));
    const std::string text = manifest_text(checkpoint->manifest_);
    return checksum_text(checksum_of(text.data(), text.size()));
  });
  for (size_t rank = 1; rank < checksums.size(); ++rank) {
    if (checksums[rank] == checksums[0]) continue;
    throw InputError(folder, fmt::format("is a different checkpoint on rank {} than on rank 0", rank),
                     "It must be on a file system that the machines of all ranks share");
  }
  return std::move(*checkpoint);
}

Checkpoint::Checkpoint(fs::path folder, Manifest manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)) {
  std::set<int> ranks;
  for (const ManifestArray& array : manifest_.arrays) {
    for (const ArrayPiece& piece : array.pieces) ranks.insert(piece.rank);
  }
  // file() throws if the manifest does not list the file.
  for (const int rank : ranks) file(rank_file_name(rank, manifest_.world_size));
}

void Checkpoint::check_reference(Communicator& world, ThreadPool* pool) const {
  if (!manifest_.reference) return;
  const ReferencedFiles& reference = *manifest_.reference;
  const auto refuse = [&](const fs::path& path, const std::string& fault) {
    throw InputError(path,
                     fmt::format("{}. {} needs this file: it has frozen tensors only there", fault, folder_.string()),
                     fmt::format("Put the file back as it was. If its folder has moved, link it: ln -s NEW_FOLDER {}",
                                 reference.folder.string()));
  };
  on_all_ranks(world, "the check of frozen tensors", [&]() -> std::string {
    check_files(reference.folder, reference.files, world, pool, refuse);
    return "";
  });
}

const SafetensorsFile& Checkpoint::file_of(int rank) const {
  const auto at = files_.find(rank);
  if (at != files_.end()) return at->second;
  return files_.emplace(rank, folder_ / rank_file_name(rank, manifest_.world_size)).first->second;
}

const ManifestArray& Checkpoint::array(std::string_view name) const {
  const auto is_named = [&](const ManifestArray& array) { return array.name == name; };
  const auto at = std::find_if(manifest_.arrays.begin(), manifest_.arrays.end(), is_named);
  if (at == manifest_.arrays.end()) {
    throw InputError(folder_, fmt::format("has no array \"{}\"", name),
                     "Resume with the model and settings of the checkpoint");
  }
  return *at;
}

void Checkpoint::read_range(const ArrayRange& range, const View& target, ThreadPool* pool) const {
  const ManifestArray& array = this->array(range.name);
  if (array.total_elems != range.total_elems) {
    throw InputError(folder_,
                     fmt::format("array \"{}\" has {} elements, but this run needs {}", range.name, array.total_elems,
                                 range.total_elems),
                     "Resume with the model and settings of the checkpoint");
  }
  TESSERA_ASSERT(!array.is_referenced);
  TESSERA_ASSERT(0 <= range.begin && range.begin <= range.end && range.end <= range.total_elems);
  TESSERA_ASSERT(target.num_elems() == range.end - range.begin);
  for (const ArrayPiece& piece : array.pieces) {
    const int64_t begin = std::max(range.begin, piece.begin), end = std::min(range.end, piece.end);
    if (begin >= end) continue;
    const SafetensorsFile& file = file_of(piece.rank);
    const TensorInfo& tensor = file.get(range.name);
    if (tensor.num_elems() != piece.end - piece.begin || tensor.dtype != array.dtype) {
      throw InputError(file.path(), fmt::format("tensor \"{}\" does not match the manifest", range.name), kDamaged);
    }
    const auto elem_bytes = static_cast<int64_t>(size_of(target.dtype));
    const View part{target.data + (begin - range.begin) * elem_bytes, target.dtype, {end - begin}};
    file.read_range_into(tensor, begin - piece.begin, end - piece.begin, part, pool);
  }
}

std::string Checkpoint::trainer_state() const {
  return text(kTrainerState);
}

const ManifestFile& Checkpoint::file(std::string_view name) const {
  const auto is_named = [&](const ManifestFile& file) { return file.name == name; };
  const auto at = std::find_if(manifest_.files.begin(), manifest_.files.end(), is_named);
  if (at == manifest_.files.end()) throw DamageError(folder_, fmt::format("has no file \"{}\"", name), kDamaged);
  return *at;
}

std::string Checkpoint::text(std::string_view name) const {
  return File::open_to_read(folder_ / file(name).name).text();
}

std::vector<int64_t> checkpoint_steps(const fs::path& output_folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in_folder(output_folder)) {
    constexpr std::string_view kPrefix = "checkpoint-";
    if (!name.starts_with(kPrefix)) continue;
    int64_t step = 0;
    const auto end = name.data() + name.size();
    if (std::from_chars(name.data() + kPrefix.size(), end, step).ptr != end || step < 0) continue;
    const fs::path folder = checkpoint_folder(output_folder, step);
    if (folder.filename() == name && is_folder(folder)) steps.push_back(step);  // skips "checkpoint-007"
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> latest_checkpoint(const fs::path& output_folder, Communicator& world,
                                            const std::function<void(const std::string&)>& warn, ThreadPool* pool) {
  const auto lists = on_all_ranks(world, "the list of checkpoints", [&] {
    std::string text;
    if (world.rank() != 0) return text;
    for (const int64_t step : checkpoint_steps(output_folder)) text += std::to_string(step) + " ";
    return text;
  });
  std::istringstream text(lists[0]);
  std::vector<int64_t> steps{std::istream_iterator<int64_t>(text), {}};
  if (steps.empty()) return std::nullopt;
  for (; !steps.empty(); steps.pop_back()) {
    try {
      return Checkpoint::open_verified(checkpoint_folder(output_folder, steps.back()), world, pool);
    } catch (const DamageError& error) {
      if (world.rank() == 0) warn(error.what());
    }
  }
  throw InputError(
      output_folder, "has checkpoints, but every one of them is damaged",
      fmt::format("Restore one from a copy, or train again from the beginning with {} none", option("resume")));
}

Checkpoint find_checkpoint(const fs::path& path, Communicator& world,
                           const std::function<void(const std::string&)>& warn, ThreadPool* pool) {
  if (auto newest = latest_checkpoint(path, world, warn, pool)) return std::move(*newest);
  on_all_ranks(world, "the search for a checkpoint", [&]() -> std::string {
    if (world.rank() == 0 && is_folder(path) && !File::open_if_there(path / kManifestName)) {
      throw InputError(path, "is not a checkpoint and contains none",
                       "Give a folder checkpoint-STEP, or the output folder of a run that has saved one");
    }
    return "";
  });
  return Checkpoint::open_verified(path, world, pool);
}

void rotate_checkpoints(const fs::path& output_folder, Communicator& world, const Rotation& rotation) {
  on_all_ranks(world, "the removal of old checkpoints", [&]() -> std::string {
    if (world.rank() == 0) remove_old_checkpoints(output_folder, rotation);
    return "";
  });
}

void set_checkpoints_aside(const fs::path& output_folder, Communicator& world, int64_t last_step, const char* why,
                           const std::function<void(const std::string&)>& note) {
  on_all_ranks(world, "the renaming of checkpoints", [&]() -> std::string {
    if (world.rank() != 0) return "";
    for (const int64_t step : checkpoint_steps(output_folder)) {
      if (step <= last_step) continue;
      const fs::path from = checkpoint_folder(output_folder, step);
      const fs::path to = free_name(from.string() + "." + why);
      rename_folder(from, to);
      note(fmt::format("{} is now {}: this run does not continue from it", from.string(), to.filename().string()));
    }
    return "";
  });
}

}  // namespace tessera
