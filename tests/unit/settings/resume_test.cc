// Tests what the declarations say about runs that continue from a checkpoint. docs/outputs.md shows it as a table.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "tessera/base/read_file.h"
#include "tessera/settings/setting.h"

namespace tessera {
namespace {

// The names of the settings with this effect, in the order of their declarations.
std::string names(Resume resume, const std::string& fact) {
  std::string text;
  for (const Setting& setting : all_settings()) {
    const bool is_meant = setting.fact == fact || (setting.resume == Resume::new_folder && fact.empty());
    if (setting.resume == resume && is_meant) text += (text.empty() ? "`" : ", `") + setting.name + "`";
  }
  return text;
}

std::string table() {
  std::string text =
      "| settings | may differ in the same folder | may differ in another `--output-dir` |\n|---|---|---|\n";
  const auto add = [&](const std::string& names, const std::string& here, const std::string& elsewhere) {
    text += "| " + names + " | " + here + " | " + elsewhere + " |\n";
  };
  add(names(Resume::any, ""), "yes", "yes");
  add(names(Resume::new_folder, ""), "no", "yes");
  std::set<std::string> shown{""};
  for (const Setting& setting : all_settings()) {
    if (setting.resume != Resume::never || !shown.insert(setting.fact).second) continue;
    const std::string answer = "if " + setting.fact + (setting.fact.ends_with("s") ? " stay" : " stays") + " the same";
    add(names(Resume::never, setting.fact), answer, answer);
  }
  add(names(Resume::never, ""), "no", "no");
  add("all others, such as strategy, offload, activation checkpointing, intervals of saves, evaluations and logs",
      "yes", "yes");
  return text + "\n";
}

TEST(Resume, ThePageShowsTheTable) {
  const std::string path = TESSERA_TEST_DIR "/../docs/outputs.md";
  const std::string page = read_file(path, {}), head = "| settings | may differ in the same folder";
  const size_t begin = page.find(head), end = page.find("\n\n", begin) + 2;
  ASSERT_NE(begin, std::string::npos);
  if (std::getenv("TESSERA_WRITE_DOCS"))
    std::ofstream(path) << page.substr(0, begin) << table() << page.substr(end);
  else
    EXPECT_EQ(page.substr(begin, end - begin), table()) << "Run this test with TESSERA_WRITE_DOCS=1";
}

// A setting that only sets others is recorded by their values. A fact has no effect of its own.
TEST(Resume, EverySettingHasAtMostOneEffect) {
  std::map<std::string, Resume> effects;
  for (const Setting& setting : all_settings()) {
    EXPECT_FALSE(setting.stands_for_others && setting.resume) << setting.name;
    EXPECT_TRUE(setting.fact.empty() || setting.resume) << setting.name;
    if (setting.fact.empty()) continue;
    EXPECT_EQ(effects.emplace(setting.fact, *setting.resume).first->second, *setting.resume) << setting.name;
  }
}

}  // namespace
}  // namespace tessera
