// A data set as a mixture of files: each file has a share of the rows of an epoch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

struct DataFile {
  std::string path;
  double share = 0;  // relative to the shares of the other files; 0: none is given
};

// Reads words such as "a.jsonl" and "a.jsonl:2". A number after the last colon is a share, unless a file has the
// complete word as its name. Either all files have a share or none. Throws UsageError if a share is not a positive
// number, or if only some files have one. `setting` is the option that gives the words.
std::vector<DataFile> data_files_of(const std::vector<std::string>& words, const std::string& setting);
std::vector<std::string> paths_of(std::span<const DataFile> files);
bool is_mixture(std::span<const DataFile> files);

// The rows of each file in an epoch: the smallest numbers that are in the proportion of the shares (rounded to rows),
// and at least the number of rows of the file. So every row is used, and one file is used exactly once. `sizes`: the
// rows of each file, at least 1. Throws UsageError if an epoch would have too many rows. `setting`: see above.
std::vector<int64_t> rows_per_epoch(std::span<const DataFile> files, std::span<const int64_t> sizes,
                                    const std::string& setting);

// The rows of an epoch. Row r of file f has the number sizes[0] + … + sizes[f - 1] + r. A file that needs more rows
// than it has is repeated. The last repetition may be a part of its rows, which depends only on the seed. The rows of a
// file are in its order, and the files alternate evenly, so that any part of the result has about the same proportions.
std::vector<int64_t> rows_of_epoch(std::span<const int64_t> sizes, std::span<const int64_t> counts, uint64_t seed);

}  // namespace tessera
