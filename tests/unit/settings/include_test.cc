// Tests configuration files that include other files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/error.h"
#include "tessera/settings/resolve.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Include : public testing::Test {
 protected:
  Include() : folder_(fs::temp_directory_path() / ("tessera-include-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "shared");
  }
  ~Include() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string error_of(const std::string& path) {
    try {
      resolve({.flags = {}, .environment = {}, .file = read_config_file(path)}, kAllGroups, "train", {"train"});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(Include, AFileOverridesTheFileThatItIncludes) {
  write("shared/base.toml", "lr = 1\nepochs = 1\nseed = 1\n[train]\nbatch_size = 1\n[fsdp]\nsharding_strategy = 1\n");
  write("shared/middle.toml", "include = \"base.toml\"\nepochs = 2\nseed = 2\n");
  const std::string path =
      write("run.toml", "include = \"shared/middle.toml\"\nseed = 3\nbatch_size = 3\nstrategy = \"zero2\"\n");
  const ResolvedSettings resolved =
      resolve({.flags = {}, .environment = {}, .file = read_config_file(path)}, kAllGroups, "train", {"train"});
  EXPECT_EQ(resolved.settings.lr, 1.0);
  EXPECT_EQ(resolved.settings.epochs, 2.0);
  EXPECT_EQ(resolved.settings.seed, 3);
  EXPECT_EQ(resolved.settings.batch_size, 3);  // run.toml overrides even the table [train] of the included file
  EXPECT_EQ(resolved.settings.strategy, ShardingStrategy::zero2);
  EXPECT_EQ(resolved.origins.at("lr").to_string(), (folder_ / "shared/base.toml").string() + ":1");
  EXPECT_EQ(resolved.origins.at("seed").to_string(), path + ":2");
}

TEST_F(Include, ErrorsNameTheFile) {
  const std::string base = write("shared/base.toml", "lrr = 1\n");
  const std::string path = write("run.toml", "include = \"shared/base.toml\"\n");
  EXPECT_EQ(error_of(path).find(base + ":1: lrr: unknown setting"), 0u) << error_of(path);
  EXPECT_NE(error_of(write("a.toml", "include = \"none.toml\"\n")).find("a.toml includes this file"),
            std::string::npos);
  EXPECT_NE(
      error_of(write("b.toml", "include = 3\n")).find("b.toml:1: include: must be the path of a TOML file, got 3"),
      std::string::npos);
  EXPECT_NE(error_of(write("c.toml", "include = \"\"\n")).find("must be the path"), std::string::npos);
  EXPECT_NE(error_of(write("d.toml", "[train]\ninclude = \"a.toml\"\n")).find("unknown setting"), std::string::npos);
}

TEST_F(Include, ACycleIsRefused) {
  write("shared/b.toml", "include = \"../a.toml\"\n");
  const std::string path = write("a.toml", "include = \"shared/b.toml\"\n");
  EXPECT_NE(error_of(path).find("a.toml already includes this file"), std::string::npos) << error_of(path);
  EXPECT_NE(error_of(write("self.toml", "include = \"self.toml\"\n")).find("self.toml already includes this file"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
