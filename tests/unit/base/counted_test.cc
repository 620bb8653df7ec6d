#include "tessera/base/counted.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace tessera {
namespace {

TEST(Counted, NounFollowsTheNumber) {
  EXPECT_EQ(counted(0, "sample"), "0 samples");
  EXPECT_EQ(counted(1, "sample"), "1 sample");
  EXPECT_EQ(counted(size_t{22}, "unreadable row"), "22 unreadable rows");
  EXPECT_EQ(noun_for(int64_t{1}, "step") + noun_for(-1, "step"), "stepsteps");
}

// No other code chooses between a noun and its plural.
TEST(Counted, IsTheOnlyChoiceOfAPlural) {
  const std::filesystem::path program = std::filesystem::path(TESSERA_TEST_DIR).parent_path() / "tessera";
  const std::regex own_plural(R"(\? "" : "s")");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(program)) {
    if (entry.path().extension() != ".cc") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (std::filesystem::path(entry.path()).filename() == "prompts.cc") continue;  // "the question takes"
    EXPECT_FALSE(std::regex_search(text, own_plural)) << entry.path();
  }
}

}  // namespace
}  // namespace tessera
