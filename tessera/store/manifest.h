// manifest.json of a checkpoint. It lists the checkpoint's files with their checksums, and which rank wrote which part
// of each array. It also names the files outside the checkpoint that hold arrays. It contains its own checksum.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/store/checksum.h"

namespace tessera {

inline constexpr const char* kManifestName = "manifest.json";

struct ManifestFile {
  std::string name;                   // of a file in the checkpoint's folder, or in a subfolder: "a" or "b/a"
  std::vector<FileSegment> segments;  // consecutive, from the file's first byte to its last

  uint64_t bytes() const { return segments.empty() ? 0 : segments.back().end; }
};

// Files outside the checkpoint that hold arrays which never change. The names are those of files in the folder.
struct ReferencedFiles {
  std::filesystem::path folder;
  std::vector<ManifestFile> files;
};

// Elements [begin, end) of an array. They are in the file of rank `rank`, as a tensor with the array's name.
struct ArrayPiece {
  int rank = 0;
  int64_t begin = 0, end = 0;
};

// A flat array of the complete run, cut into consecutive pieces from its first to its last element.
struct ManifestArray {
  std::string name;
  DType dtype = DType::f32;  // of the tensors in the files
  int64_t total_elems = 0;
  std::vector<ArrayPiece> pieces;
  bool is_referenced = false;  // no pieces: Manifest::reference has the elements, which are used in the type `dtype`
};

struct Manifest {
  int64_t step = 0;
  int world_size = 1;
  std::vector<ManifestFile> files;
  std::vector<ManifestArray> arrays;
  std::optional<ReferencedFiles> reference{};
};

// The name of a rank's file: "rank-00000-of-00004.safetensors".
std::string rank_file_name(int rank, int world_size);

std::string manifest_text(const Manifest& manifest);
// Parses a complete manifest, or one rank's part. In a rank's part, the pieces of an array need not cover the complete
// array. `where` names the text in errors. Throws DamageError if the text is damaged, and InputError if this version of
// Tessera does not read the text's schema version.
Manifest parse_manifest(const std::string& text, const std::string& where);
// Combines the parts of all ranks into the manifest. Throws RunError if the pieces of an array leave a hole or
// overlap, or if the ranks disagree on the size or the type of an array.
Manifest merge_manifests(std::vector<Manifest> parts);
// Reads and parses a complete manifest. Throws the errors of parse_manifest() and, if the file cannot be read, those of
// File (store/file.h). Also throws DamageError if the file is missing, or if the pieces do not cover the arrays.
Manifest read_manifest(const std::filesystem::path& path);

}  // namespace tessera
