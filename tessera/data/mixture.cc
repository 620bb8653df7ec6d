#include "tessera/data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/random.h"

namespace tessera {

namespace {

bool exists(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

DataFile data_file_of(const std::string& word, const std::string& setting) {
  const size_t colon = word.rfind(':');
  if (colon == word.npos || colon == 0 || exists(word)) return {word};
  const std::string path = word.substr(0, colon), number = word.substr(colon + 1);
  double share = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), share);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  // A word that is no path and has no share is a path with a fault, which reading will describe.
  if (!is_number && (!exists(path) || exists(number))) return {word};
  if (!is_number || !std::isfinite(share) || share <= 0) {
    throw UsageError(option_place(setting),
                     fmt::format("the share \"{}\" of {} is not a positive number", printable(number), printable(path)),
                     "Write the share after the path, as in " + option(setting) + " a.jsonl:2 b.jsonl:1");
  }
  return {path, share};
}

}  // namespace

std::vector<DataFile> data_files_of(const std::vector<std::string>& words, const std::string& setting) {
  std::vector<DataFile> files;
  for (const std::string& word : words) files.push_back(data_file_of(word, setting));
  const auto has_share = [](const DataFile& file) { return file.share > 0; };
  const auto without = std::ranges::find_if_not(files, has_share);
  if (without != files.end() && std::ranges::any_of(files, has_share)) {
    throw UsageError(option_place(setting),
                     fmt::format("{} has no share, but other files have one", printable(without->path)),
                     fmt::format("Give every file a share, for example {}:1, or none", printable(without->path)));
  }
  return files;
}

std::vector<std::string> paths_of(std::span<const DataFile> files) {
  std::vector<std::string> paths;
  for (const DataFile& file : files) paths.push_back(file.path);
  return paths;
}

bool is_mixture(std::span<const DataFile> files) {
  return !files.empty() && files[0].share > 0;
}

std::vector<int64_t> rows_per_epoch(std::span<const DataFile> files, std::span<const int64_t> sizes,
                                    const std::string& setting) {
  constexpr double kMostRows = std::numeric_limits<int32_t>::max();
  TESSERA_ASSERT(files.size() == sizes.size());
  double rows_per_share = 0;
  size_t once = 0;  // the file that is used once
  for (size_t i = 0; i < files.size(); ++i) {
    const double own = static_cast<double>(sizes[i]) / files[i].share;
    if (own <= rows_per_share) continue;
    rows_per_share = own;
    once = i;
  }
  std::vector<int64_t> counts;
  double total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const double rows = rows_per_share * files[i].share;
    total += rows;
    if (!(total <= kMostRows)) {
      throw UsageError(option_place(setting),
                       fmt::format("with these shares, an epoch that uses every row has more than {} rows, because {} "
                                   "has {} and the share {}",
                                   static_cast<int64_t>(kMostRows), printable(files[once].path),
                                   counted(sizes[once], "row"), files[once].share),
                       "Give it a larger share, or fewer rows");
    }
    counts.push_back(std::max<int64_t>(sizes[i], std::llround(rows)));
  }
  return counts;
}

std::vector<int64_t> rows_of_epoch(std::span<const int64_t> sizes, std::span<const int64_t> counts, uint64_t seed) {
  // The number of the random stream of the first file: "mixture" in ASCII. The last byte is left for the others.
  constexpr uint64_t kStream = 0x6D69787475726500;
  std::vector<std::pair<double, int64_t>> rows;  // the place of a row in the epoch, from 0 to 1, and its number
  int64_t first = 0;
  for (size_t file = 0; file < sizes.size(); ++file) {
    const int64_t size = sizes[file], count = counts[file];
    TESSERA_ASSERT(size > 0 && count >= size);
    std::vector<int64_t> last(static_cast<size_t>(size));  // the rows of the last repetition
    std::iota(last.begin(), last.end(), 0);
    shuffle(std::span<int64_t>(last), seed, kStream + file);
    last.resize(static_cast<size_t>(count % size));
    std::ranges::sort(last);
    for (int64_t i = 0; i < count; ++i) {
      const bool is_last = i >= count / size * size;
      const int64_t row = is_last ? last[static_cast<size_t>(i % size)] : i % size;
      rows.emplace_back((static_cast<double>(i) + 0.5) / static_cast<double>(count), first + row);
    }
    first += size;
  }
  // Rows at the same place are in the order of their files.
  std::ranges::stable_sort(rows, {}, &std::pair<double, int64_t>::first);
  std::vector<int64_t> numbers;
  numbers.reserve(rows.size());
  for (const auto& row : rows) numbers.push_back(row.second);
  return numbers;
}

}  // namespace tessera
