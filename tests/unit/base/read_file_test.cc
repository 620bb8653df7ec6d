#include "tessera/base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <future>

#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class ReadFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera_read_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const char* name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string refusal(const fs::path& path, const ReadOptions& options = {.remedy = "The remedy"}) {
    try {
      read_file(path, options);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }

  fs::path folder_;
};

TEST_F(ReadFile, ReturnsEveryByte) {
  std::string text(200'000, 'x');
  text[3] = '\0';
  EXPECT_EQ(read_file(write("a", text), {.longest_bytes = text.size()}), text);
  EXPECT_EQ(read_file(write("b", ""), {}), "");
}

TEST_F(ReadFile, RefusesPathsThatAreNotFiles) {
  EXPECT_EQ(refusal(folder_ / "none"), (folder_ / "none").string() + ": no such file. The remedy");
  EXPECT_EQ(refusal(write("a", "b") / "none"), (folder_ / "a/none").string() + ": no such file. The remedy");
  EXPECT_EQ(refusal(folder_), folder_.string() + ": is a folder, not a file. The remedy");
  EXPECT_EQ(refusal("/dev/zero"), "/dev/zero: is a device, not a regular file. The remedy");
  EXPECT_EQ(refusal("/dev/zero", {.pipes = true}), "/dev/zero: is a device, not a regular file");
  EXPECT_THAT(refusal("/proc/self/mem"), ::testing::StartsWith("/proc/self/mem: cannot be read: "));
  EXPECT_EQ(refusal(write("long", "123"), {.longest_bytes = 2}),
            (folder_ / "long").string() + ": has more than 2 bytes, the limit for this file");
}

TEST_F(ReadFile, ReadsPipesWhereAllowed) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe),
            pipe.string() + ": is a pipe, not a regular file. Save its content to a file first. The remedy");
  const auto writer = std::async(std::launch::async, [&] { std::ofstream(pipe) << "piped"; });
  EXPECT_EQ(read_file(pipe, {.pipes = true}), "piped");
}

}  // namespace
}  // namespace tessera
