#include "tessera/load/data_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataCacheTest : public testing::Test {
 protected:
  ~DataCacheTest() override { fs::remove_all(root_); }

  // Two rows: one with two samples, one that is too long.
  static void fill(CachedRows& rows, const std::function<void(const Sample&)>& store) {
    Example text;
    text.content = PlainText{"a"};
    const EncodedRow two{.samples = {{{1, 2, 3}, {2, 3, kNoTarget}}, {{4}, {kNoTarget}}}, .num_tokens = 5};
    rows.encoded.add(two, text, store);
    Example question;
    question.content = Question{};
    const EncodedRow bad{.samples = {}, .num_tokens = 9, .fault = {"a.jsonl:2", "too long", "Cut it"}};
    rows.encoded.add(bad, question, store);
    rows.malformed.push_back({"a.jsonl:3", "not valid JSON", "", 4});
    rows.sizes = {2, 0};
  }
  std::string file(const char* name) const { return (cache_.folder() / name).string(); }
  std::string damage() const {
    std::string what;
    EXPECT_FALSE(cache_.open(what));
    return what;
  }
  static void change_a_byte(const std::string& path, std::streamoff at) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(at);
    stream.put(byte);
  }

  const fs::path root_ = fs::temp_directory_path() / ("data_cache_test_" + std::to_string(getpid()));
  const DataCache cache_{root_, {{"files", "a.jsonl"}}};
};

TEST_F(DataCacheTest, GivesBackWhatItGot) {
  EXPECT_EQ(damage(), "");  // there is none
  cache_.make(fill);
  std::string what;
  const auto cached = cache_.open(what);
  ASSERT_TRUE(cached) << what;
  EXPECT_THAT(cached->sizes, ElementsAre(2, 0));
  EXPECT_EQ(num_rows_of(cached->malformed), 4);
  const EncodedRows& rows = cached->encoded;
  EXPECT_TRUE(rows.has_texts);
  EXPECT_FALSE(rows.has_conversations);
  ASSERT_EQ(rows.rows.size(), 2u);
  const RowCount first = rows.count(0), second = rows.count(1);
  EXPECT_EQ(first.num_samples, 2);
  EXPECT_EQ(first.num_tokens, 5);
  EXPECT_EQ(first.num_used, 4);
  EXPECT_TRUE(first.has_target);
  EXPECT_EQ(second.num_samples, 0);
  EXPECT_EQ(second.fault->what, "too long");
  EXPECT_TRUE(second.is_unanswerable);
  EXPECT_TRUE(second.is_without_context);
  const Samples samples = rows.samples_of(std::vector<int64_t>{0, 0});
  ASSERT_EQ(samples.size(), 4);
  EXPECT_TRUE(samples.has_checksums());
  for (const int64_t i : {0, 2}) {
    EXPECT_THAT(samples[i].ids, ElementsAre(1, 2, 3));
    EXPECT_THAT(samples[i].labels, ElementsAre(2, 3, kNoTarget));
    EXPECT_THAT(samples[i + 1].ids, ElementsAre(4));
    EXPECT_EQ(samples.num_targets(i), 2);
  }
  EXPECT_FALSE(DataCache(root_, {{"files", "b.jsonl"}}).open(what));
}

TEST_F(DataCacheTest, NoticesDamage) {
  const auto made_again = [&] {
    cache_.make(fill);
    std::string what;
    EXPECT_TRUE(cache_.open(what)) << what;
  };
  for (const char* name : {"cache.json", "samples.bin", "rows.bin", "faults.json"}) {
    SCOPED_TRACE(name);
    made_again();
    change_a_byte(file(name), static_cast<std::streamoff>(fs::file_size(file(name)) / 2));
    EXPECT_THAT(damage(), HasSubstr(name));
    made_again();
    fs::resize_file(file(name), fs::file_size(file(name)) - 1);
    EXPECT_THAT(damage(), HasSubstr(name));
    made_again();
    fs::remove(file(name));
    EXPECT_EQ(damage().empty(), name == std::string("cache.json"));
  }
  made_again();
  fs::resize_file(file("tokens.bin"), 8);
  EXPECT_THAT(damage(), HasSubstr("tokens.bin: has 8 bytes, expected 32"));
}

// tokens.bin is large, so each sample is checked when it is read.
TEST_F(DataCacheTest, ChecksEachSample) {
  cache_.make(fill);
  change_a_byte(file("tokens.bin"), 13);
  std::string what;
  const Samples samples = cache_.open(what)->encoded.samples_of(std::vector<int64_t>{0});
  EXPECT_THAT(samples[1].ids, ElementsAre(4));
  try {
    samples[0];
    FAIL() << "read a damaged sample";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokens.bin: sample 0 is damaged"));
  }
}

TEST_F(DataCacheTest, FailsWithoutAPartialCache) {
  EXPECT_THROW(cache_.make([](CachedRows&, const auto&) { throw InputError("a.jsonl", "bad"); }), InputError);
  EXPECT_FALSE(fs::exists(cache_.folder()));
  EXPECT_TRUE(fs::is_empty(cache_.folder().parent_path()));
  fs::create_directories(cache_.folder());
  std::ofstream(cache_.folder() / "notes.md") << "mine";
  EXPECT_THROW(cache_.make(fill), UsageError);
}

}  // namespace
}  // namespace tessera
