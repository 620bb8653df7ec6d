// manifest.json of a checkpoint: what the checkpoint consists of, with checksums, its own included, and which rank
// wrote which part of each array.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/store/checksum.h"

namespace tessera {

inline constexpr const char* kManifestName = "manifest.json";

struct ManifestFile {
  std::string name;                   // in the checkpoint's folder
  std::vector<FileSegment> segments;  // cover the file from its first byte to its last

  uint64_t bytes() const { return segments.empty() ? 0 : segments.back().end; }
};

// Elements [begin, end) of an array lie in the file of this rank, as a tensor of the array's name.
struct ArrayPiece {
  int rank = 0;
  int64_t begin = 0, end = 0;
};

// A flat array of the whole run, cut into pieces that follow each other from its first element to its last.
struct ManifestArray {
  std::string name;
  DType dtype = DType::f32;  // in the files
  int64_t total_elems = 0;
  std::vector<ArrayPiece> pieces;
};

struct Manifest {
  int64_t step = 0;
  int world_size = 1;
  std::vector<ManifestFile> files;
  std::vector<ManifestArray> arrays;
};

// The file of one rank's pieces: "rank-00000-of-00004.safetensors".
std::string rank_file_name(int rank, int world_size);

std::string manifest_text(const Manifest& manifest);
// A manifest, or what one rank contributes to it: its pieces need not cover the arrays. `where` names it in errors.
// DamageError: not the text that was written. InputError: of another version.
Manifest parse_manifest(const std::string& text, const std::string& where);
// The manifest of all ranks from what each contributes. RunError: the pieces of an array leave a hole, overlap, or
// disagree on its size or type.
Manifest merge_manifests(std::vector<Manifest> parts);
// As parse_manifest; DamageError also: missing, or with pieces that do not make up the arrays. Otherwise as File.
Manifest read_manifest(const std::filesystem::path& path);

}  // namespace tessera
