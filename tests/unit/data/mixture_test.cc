// Shares of files, and the rows of an epoch of a mixture.
#include "tessera/data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> counts_of(const std::vector<std::pair<int64_t, double>>& files) {
  std::vector<DataFile> shares;
  std::vector<int64_t> sizes;
  for (const auto& [size, share] : files) {
    shares.push_back({"f", share});
    sizes.push_back(size);
  }
  return rows_per_epoch(shares, sizes, "dataset");
}

class Shares : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tessera_shares_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    for (const char* name : {"a", "b", "c:2", "d.jsonl:x"}) std::ofstream(folder_ / name) << "x";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::pair<std::string, double>> read(const std::vector<std::string>& names) const {
    std::vector<std::string> words;
    for (const auto& name : names) words.push_back(path(name));
    std::vector<std::pair<std::string, double>> files;
    for (const DataFile& file : data_files_of(words, "dataset")) {
      files.emplace_back(std::filesystem::path(file.path).filename().string(), file.share);
    }
    return files;
  }
  std::string refusal(const std::vector<std::string>& names) const {
    try {
      read(names);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::filesystem::path folder_;
};

TEST_F(Shares, AreNumbersAfterTheLastColon) {
  using Files = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(read({"a:2", "b:0.5", "c:2:3"}), (Files{{"a", 2}, {"b", 0.5}, {"c:2", 3}}));
  EXPECT_EQ(read({"a", "b", "c:2", "d.jsonl:x"}), (Files{{"a", 0}, {"b", 0}, {"c:2", 0}, {"d.jsonl:x", 0}}));
  EXPECT_EQ(read({"gone:2"}), (Files{{"gone", 2}}));
  EXPECT_EQ(read({"gone:x", "gone"}), (Files{{"gone:x", 0}, {"gone", 0}}));
  EXPECT_EQ(data_files_of({path("a") + ":" + path("b")}, "dataset")[0].share, 0);  // reading names both files
  for (const char* share : {"0", "-1", "nan", "inf", "x", "", "1e999", "1,5", "50%", "0x2"}) {
    EXPECT_THAT(refusal({std::string("a:") + share}),
                HasSubstr(std::string("dataset: the share \"") + share + "\" of "));
  }
  EXPECT_THAT(refusal({"a:1", "b", "c:2"}),
              HasSubstr("b has no share, but other files have one. Give every file a share"));
}

TEST(RowsPerEpoch, AreTheSmallestInProportion) {
  EXPECT_THAT(counts_of({{100, 1}, {100, 1}}), ElementsAre(100, 100));
  EXPECT_THAT(counts_of({{100, 2}, {100, 1}}), ElementsAre(200, 100));
  EXPECT_THAT(counts_of({{100, 2}, {10, 1}}), ElementsAre(100, 50));
  EXPECT_THAT(counts_of({{10, 0.7}, {10, 0.3}}), ElementsAre(23, 10));
  EXPECT_THAT(counts_of({{7, 1}, {5, 1}, {3, 2}}), ElementsAre(7, 7, 14));
  EXPECT_THAT(counts_of({{5, 3}}), ElementsAre(5));
  EXPECT_THROW(counts_of({{1, 1e9}, {3, 1}}), UsageError);
  EXPECT_THROW(counts_of({{1, 1e300}, {3, 1e-300}}), UsageError);
  RandomStream random(1, 0);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::pair<int64_t, double>> files;
    for (uint64_t i = 1 + random.next_below(4); i > 0; --i) {
      files.emplace_back(1 + random.next_below(50), 0.1 + random.next_uniform());
    }
    const std::vector<int64_t> counts = counts_of(files);
    double rows_per_share = 0;
    for (const auto& [size, share] : files)
      rows_per_share = std::max(rows_per_share, static_cast<double>(size) / share);
    bool is_once = false;
    for (size_t i = 0; i < files.size(); ++i) {
      EXPECT_GE(counts[i], files[i].first);
      EXPECT_NEAR(static_cast<double>(counts[i]), rows_per_share * files[i].second, 0.5 + 1e-9);
      is_once = is_once || counts[i] == files[i].first;
    }
    EXPECT_TRUE(is_once);
  }
}

TEST(RowsOfEpoch, UseEveryRowEvenly) {
  RandomStream random(2, 0);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> sizes, counts, firsts{0};
    int64_t total = 0;
    for (uint64_t i = 1 + random.next_below(4); i > 0; --i) {
      sizes.push_back(1 + static_cast<int64_t>(random.next_below(20)));
      counts.push_back(sizes.back() + static_cast<int64_t>(random.next_below(60)));
      firsts.push_back(firsts.back() + sizes.back());
      total += counts.back();
    }
    const auto seed = static_cast<uint64_t>(round);
    const std::vector<int64_t> rows = rows_of_epoch(sizes, counts, seed);
    ASSERT_EQ(std::ssize(rows), total);
    EXPECT_EQ(rows, rows_of_epoch(sizes, counts, seed));
    std::map<int64_t, int64_t> uses;
    std::vector<int64_t> taken(sizes.size(), 0);
    for (size_t at = 0; at < rows.size(); ++at) {
      ++uses[rows[at]];
      size_t file = 0;
      while (rows[at] >= firsts[file + 1]) ++file;
      ++taken[file];
      // Any beginning has about the share of each file.
      const double share = static_cast<double>(counts[file]) / static_cast<double>(total);
      EXPECT_NEAR(static_cast<double>(taken[file]), share * static_cast<double>(at + 1),
                  static_cast<double>(sizes.size()));
    }
    for (size_t file = 0; file < sizes.size(); ++file) {
      EXPECT_EQ(taken[file], counts[file]);
      for (int64_t row = firsts[file]; row < firsts[file + 1]; ++row) {
        const int64_t least = counts[file] / sizes[file];
        EXPECT_TRUE(uses[row] == least || uses[row] == least + 1);
      }
    }
  }
  // The seed decides the rows of a partial repetition.
  const std::vector<int64_t> sizes{40}, counts{60};
  EXPECT_NE(rows_of_epoch(sizes, counts, 1), rows_of_epoch(sizes, counts, 2));
  EXPECT_THAT(rows_of_epoch(std::vector<int64_t>{2, 3}, std::vector<int64_t>{4, 3}, 1),
              ElementsAre(0, 2, 1, 3, 0, 4, 1));
}

}  // namespace
}  // namespace tessera
