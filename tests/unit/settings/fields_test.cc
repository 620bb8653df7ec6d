// The setting `fields`, and the flag of `dataset_format`.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/settings/setting.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_fields(text, "here");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Fields, HaveACanonicalText) {
  EXPECT_EQ(parse_fields("role=speaker, messages = dialog", "").text(), "messages=dialog,role=speaker");
  EXPECT_EQ(parse_fields("", "").text(), "");
  EXPECT_EQ(parse_fields("text=a=b", "").text(), "text=a=b");
  const Setting& setting = *find_setting("fields");
  EXPECT_EQ(plain_text(parse_value(setting, "role=speaker,messages=dialog", "")), "messages=dialog,role=speaker");
}

TEST(Fields, Errors) {
  EXPECT_EQ(error_of("mesages=dialog").substr(0, 68),
            "here: unknown field \"mesages\". Did you mean \"messages\"? Use one of: ");
  for (const char* text : {"messages", "messages=", "=dialog"}) {
    EXPECT_NE(error_of(text).find("is no field with its key. Write FIELD=KEY[,FIELD=KEY...]"), std::string::npos)
        << text;
  }
  EXPECT_EQ(error_of("text=a,text=b"), "here: contains text twice. Remove one of the two");
  EXPECT_EQ(error_of("text=a,prompt=a"),
            "here: text and prompt have the same key \"a\". Give each field a key of its own");
}

// --format means another setting in `report`.
TEST(Flags, OneWordForTwoVerbs) {
  EXPECT_EQ(find_setting("dataset_format")->flag(), "--format");
  EXPECT_EQ(find_setting("dataset_format")->flag_in(kReport), "--dataset-format");
  EXPECT_EQ(find_flag("format", kRows)->name, "dataset_format");
  EXPECT_EQ(find_flag("dataset-format", kRows)->name, "dataset_format");
  EXPECT_EQ(find_flag("format", kReport)->name, "format");
  EXPECT_EQ(find_flag("format", kAllGroups)->name, "format");
  EXPECT_EQ(find_flag("format", kOutputDir)->name, "format");
  EXPECT_EQ(find_flag("", kAllGroups), nullptr);
}

}  // namespace
}  // namespace tessera
