// All ranks write a checkpoint, or none does. There are three exchanges:
//   1. Rank 0 creates the temporary folder and sends its name.
//   2. Each rank writes and syncs its file, and sends its part of the manifest.
//   3. Rank 0 writes the manifest, renames the folder, and reports success.
// A rank whose work fails still takes part in the next exchange. This exchange reports the failure to all ranks, and
// every rank throws the error.
#include "tessera/store/checkpoint_writer.h"

#include <fmt/format.h>

#include <optional>

#include "tessera/base/error.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/manifest.h"
#include "tessera/store/replaceable.h"
#include "tessera/store/safetensors.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Writes a rank's file in the temporary folder. On rank 0, also writes the files of add_text(). If finish() has not
// completed, the destructor removes the rank's file.
class PartWriter final : public CheckpointPart {
 public:
  PartWriter(fs::path folder, int64_t step, const Communicator& world, ThreadPool* pool)
      : folder_(std::move(folder)),
        file_name_(rank_file_name(world.rank(), world.size())),
        rank_(world.rank()),
        pool_(pool),
        manifest_{step, world.size(), {}, {}} {}

  void declare(const ArrayRange& range, DType dtype) override {
    TESSERA_ASSERT(!file_);
    TESSERA_ASSERT(0 <= range.begin && range.begin <= range.end && range.end <= range.total_elems);
    manifest_.arrays.push_back({range.name, dtype, range.total_elems, {}});
    if (range.begin == range.end) return;
    manifest_.arrays.back().pieces.push_back({rank_, range.begin, range.end});
    plan_.push_back({range.name, dtype, {range.end - range.begin}});
  }
  void refer(const std::string& name, int64_t total_elems, DType dtype, const ReferencedFiles& files) override {
    if (rank_ != 0) return;
    manifest_.arrays.push_back({name, dtype, total_elems, {}, true});
    manifest_.reference = files;
  }
  void write(std::string_view name, const View& values) override {
    if (values.num_elems() > 0) file().write(name, values, pool_);
  }
  void add_text(std::string_view name, std::string_view text) override {
    if (rank_ != 0) return;
    TESSERA_ASSERT(is_inner_name(name));
    if (name.find('/') != name.npos) create_folders((folder_ / name).parent_path());
    write_new_file(folder_ / name, text);
    manifest_.files.push_back({std::string(name), {{0, text.size(), checksum_of(text.data(), text.size())}}});
  }
  // Returns this rank's part of the manifest when everything is on the disk.
  std::string finish() {
    manifest_.files.push_back({file_name_, file().finish()});
    return manifest_text(manifest_);
  }

 private:
  SafetensorsWriter& file() {
    if (!file_) file_.emplace(folder_ / file_name_, std::move(plan_));
    return *file_;
  }

  const fs::path folder_;
  const std::string file_name_;
  const int rank_;
  ThreadPool* const pool_;
  Manifest manifest_;
  std::vector<PlannedTensor> plan_;
  std::optional<SafetensorsWriter> file_;  // created at the first write, or in finish()
};

}  // namespace

void write_checkpoint(const fs::path& output_folder, int64_t step, Communicator& world, const WritePart& write_part,
                      ThreadPool* pool) {
  std::optional<AtomicFolder> target;  // rank 0 only; removes the temporary folder on failure
  const auto folders = on_all_ranks(world, "a checkpoint's folder", [&]() -> std::string {
    if (world.rank() != 0) return "";
    // If the output folder was renamed or removed, this fails and does not create it again under its earlier name.
    return target.emplace(checkpoint_folder(output_folder, step), why_no_own_checkpoint, false).temporary();
  });
  const fs::path folder = folders[0];
  const auto parts = on_all_ranks(world, "a checkpoint's parts", [&] {
    if (!fs::is_directory(folder)) {
      throw RunError(folder, "was created by rank 0, but this rank does not see it",
                     "The output folder must be on a file system that the machines of all ranks share");
    }
    PartWriter part(folder, step, world, pool);
    write_part(part);
    return part.finish();
  });
  on_all_ranks(world, "a checkpoint's manifest", [&]() -> std::string {
    if (world.rank() != 0) return "";
    std::vector<Manifest> manifests;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      manifests.push_back(parse_manifest(parts[rank], fmt::format("the part of rank {}", rank)));
    }
    target->write_text(kManifestName, manifest_text(merge_manifests(std::move(manifests))));
    target->commit();
    return "";
  });
}

fs::path checkpoint_folder(const fs::path& output_folder, int64_t step) {
  return output_folder / fmt::format("checkpoint-{}", step);
}

}  // namespace tessera
