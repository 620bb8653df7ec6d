// The samples of data files on the disk, so that a large data set is tokenized only once and needs little memory.
//
// A cache is a folder ROOT/KEY/rows with these files. All numbers are little-endian.
//   cache.json    the key, the counts, and the checksums of rows.bin, samples.bin and faults.json
//   tokens.bin    for each sample: its ids, then its labels (i32)
//   samples.bin   the arrays of SampleIndex: starts (i64), num_targets (i32), checksums (u64)
//   rows.bin      RowFacts of each row, in the order of the files
//   faults.json   the rows that cannot be used
// It appears complete or not at all. KEY is a checksum of the complete key: everything that the samples depend on.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/load/encoded_rows.h"

namespace tessera {

// All rows of data files, in the order of the files.
struct CachedRows {
  EncodedRows encoded;
  std::vector<int64_t> sizes;     // [files] the rows of each file, without malformed rows
  std::vector<BadRow> malformed;  // the rows that could not be read
};

// What the samples of these files depend on: the files (path, size, times and a checksum of parts), the files of the
// tokenizer and the chat template, the model's tokens, the settings of samples, and the program. Throws InputError or
// RunError if a file cannot be read.
Record cache_key(const std::vector<std::string>& files, const Settings& settings, const ModelConfig& config);

class DataCache {
 public:
  DataCache(const std::filesystem::path& root, Record key);

  const std::filesystem::path& folder() const { return folder_; }
  // The cached rows. nullopt if there is no cache, or if it is damaged; `damage` then says what is wrong. Reads
  // everything except tokens.bin: a sample is checked when it is read, which throws InputError if it is damaged.
  std::optional<CachedRows> open(std::string& damage) const;
  // Makes the cache. fill(rows, store) adds the rows and calls store() for each of their samples. An existing cache is
  // replaced. Several processes may do this at the same time. Throws RunError, for example if the disk is full.
  using Fill = std::function<void(CachedRows& rows, const std::function<void(const Sample&)>& store)>;
  void make(const Fill& fill) const;

 private:
  Record key_;
  std::filesystem::path folder_;
};

}  // namespace tessera
