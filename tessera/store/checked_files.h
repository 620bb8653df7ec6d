// Files with recorded sizes and checksums: records them, and checks files against them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/comm/communicator.h"
#include "tessera/store/manifest.h"

namespace tessera {

// Receives a file that differs from its record, with a description of the difference. Must throw.
using RefuseFile = std::function<void(const std::filesystem::path& path, const std::string& fault)>;

void check_size(const std::filesystem::path& folder, const ManifestFile& file, const RefuseFile& refuse);
// Divides the bytes of all files into one part per rank, and checks this rank's part. Not collective.
void check_files(const std::filesystem::path& folder, const std::vector<ManifestFile>& files, const Communicator& world,
                 ThreadPool* pool, const RefuseFile& refuse);
// Records the files of a folder. Each rank computes the checksums of a part of the bytes. Collective; all ranks must
// see the same files. Throws errors as File does.
std::vector<ManifestFile> record_files(const std::filesystem::path& folder, const std::vector<std::string>& names,
                                       Communicator& world, ThreadPool& pool);

}  // namespace tessera
