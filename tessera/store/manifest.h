// manifest.json of a checkpoint: what the checkpoint consists of, with checksums, its own included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/store/checksum.h"

namespace tessera {

inline constexpr const char* kManifestName = "manifest.json";

struct ManifestFile {
  std::string name;                   // in the checkpoint's folder
  std::vector<FileSegment> segments;  // cover the file from its first byte to its last

  uint64_t bytes() const { return segments.empty() ? 0 : segments.back().end; }
};

struct Manifest {
  int64_t step = 0;
  int world_size = 1;
  std::vector<ManifestFile> files;
};

std::string manifest_text(const Manifest& manifest);
// InputError: missing, changed since it was written, or of another version.
Manifest read_manifest(const std::filesystem::path& path);

}  // namespace tessera
