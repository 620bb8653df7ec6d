#include "tessera/store/checked_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tessera/store/all_ranks.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kSegmentBytes = 64 << 20;  // large files are hashed by several threads

std::optional<File> open_recorded(const fs::path& path, const RefuseFile& refuse) {
  auto file = File::open_if_there(path);
  if (!file) refuse(path, "no such file");
  return file;
}

uint64_t checksum_of_part(const File& file, uint64_t begin, uint64_t end) {
  constexpr uint64_t kStep = 1 << 20;
  std::vector<std::byte> buffer(std::min(kStep, end - begin));
  Checksum checksum;
  for (uint64_t at = begin; at < end; at += kStep) {
    const size_t bytes = std::min(kStep, end - at);
    file.read_at(buffer.data(), bytes, at);
    checksum.update(buffer.data(), bytes);
  }
  return checksum.value();
}

void check_segment(const fs::path& path, const FileSegment& segment, const RefuseFile& refuse) {
  const std::optional<File> file = open_recorded(path, refuse);
  if (file->size() < segment.end) {
    refuse(path, fmt::format("has {} bytes, but at least {} were written", file->size(), segment.end));
  }
  if (checksum_of_part(*file, segment.begin, segment.end) != segment.checksum) {
    refuse(path, fmt::format("bytes {} to {} differ from what was written", segment.begin, segment.end));
  }
}

void run_on(ThreadPool* pool, int64_t count, const std::function<void(int64_t)>& work) {
  if (pool) return pool->run(count, work);
  for (int64_t i = 0; i < count; ++i) work(i);
}

}  // namespace

void check_size(const fs::path& folder, const ManifestFile& file, const RefuseFile& refuse) {
  const uint64_t bytes = open_recorded(folder / file.name, refuse)->size();
  if (bytes != file.bytes()) {
    refuse(folder / file.name, fmt::format("has {} bytes instead of {}", bytes, file.bytes()));
  }
}

// Checks the size of each file whose first byte is in this rank's part, and the checksum of each segment whose first
// byte is in this rank's part.
void check_files(const fs::path& folder, const std::vector<ManifestFile>& files, const Communicator& world,
                 ThreadPool* pool, const RefuseFile& refuse) {
  uint64_t total_bytes = 0;
  for (const auto& file : files) total_bytes += file.bytes();
  const uint64_t bytes_per_rank = total_bytes / static_cast<uint64_t>(world.size()) + 1;
  const auto is_mine = [&](uint64_t at) { return at / bytes_per_rank == static_cast<uint64_t>(world.rank()); };
  std::vector<std::pair<const ManifestFile*, const FileSegment*>> segments;
  uint64_t file_begin = 0;
  for (const auto& file : files) {
    if (is_mine(file_begin)) check_size(folder, file, refuse);
    for (const auto& segment : file.segments) {
      if (is_mine(file_begin + segment.begin)) segments.emplace_back(&file, &segment);
    }
    file_begin += file.bytes();
  }
  run_on(pool, std::ssize(segments), [&](int64_t i) {
    const auto& [file, segment] = segments[static_cast<size_t>(i)];
    check_segment(folder / file->name, *segment, refuse);
  });
}

std::vector<ManifestFile> record_files(const fs::path& folder, const std::vector<std::string>& names,
                                       Communicator& world, ThreadPool& pool) {
  std::vector<ManifestFile> files;
  std::vector<std::pair<size_t, size_t>> segments;  // indices of the file and of its segment
  const auto texts = on_all_ranks(world, "the checksums of the model's files", [&] {
    for (const std::string& name : names) {
      ManifestFile& file = files.emplace_back(ManifestFile{name, {}});
      const uint64_t bytes = File::open_to_read(folder / name).size();
      for (uint64_t at = 0; at < bytes; at += kSegmentBytes) {
        segments.emplace_back(files.size() - 1, file.segments.size());
        file.segments.push_back({at, std::min(at + kSegmentBytes, bytes), 0});
      }
    }
    const auto num_mine = (std::ssize(segments) + world.size() - 1 - world.rank()) / world.size();
    std::vector<std::string> checksums(static_cast<size_t>(num_mine));
    pool.run(num_mine, [&](int64_t i) {
      const auto& [file, number] = segments[static_cast<size_t>(i * world.size() + world.rank())];
      const FileSegment& segment = files[file].segments[number];
      checksums[static_cast<size_t>(i)] =
          checksum_text(checksum_of_part(File::open_to_read(folder / files[file].name), segment.begin, segment.end));
    });
    std::string text;
    for (const std::string& checksum : checksums) text += checksum + " ";
    return text;
  });
  std::vector<std::istringstream> of_ranks;
  for (const std::string& text : texts) of_ranks.emplace_back(text);
  for (size_t i = 0; i < segments.size(); ++i) {
    std::string checksum;
    of_ranks[i % of_ranks.size()] >> checksum;
    files[segments[i].first].segments[segments[i].second].checksum = std::stoull(checksum, nullptr, 16);
  }
  return files;
}

}  // namespace tessera
