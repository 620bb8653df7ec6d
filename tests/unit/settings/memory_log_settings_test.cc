#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_memory_log(text, "--memory-log");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryLogPlace, IsAFolderWithSeconds) {
  EXPECT_EQ(parse_memory_log("logs", ""), (MemoryLogPlace{"logs", 5}));
  EXPECT_EQ(parse_memory_log("a/logs:0.25", ""), (MemoryLogPlace{"a/logs", 0.25}));
  EXPECT_EQ(parse_memory_log("a:b:1", ""), (MemoryLogPlace{"a:b", 1}));
  for (const char* text : {"", "logs:5", "a/logs:0.25", "a:b:86400"}) {
    EXPECT_EQ(memory_log_text(parse_memory_log(text, "")), text);
  }
}

TEST(MemoryLogPlace, RefusesOtherTexts) {
  for (const char* text : {"logs:", "logs:5s", "logs:0", "logs:-1", "logs:1e9", "logs:nan", "logs: 5"}) {
    EXPECT_NE(error_of(text).find("is not a number of seconds from 0.01 to 86400. If the name of the folder"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(error_of(":5").find("has no folder"), std::string::npos);
}

}  // namespace
}  // namespace tessera
