// Tests what --precision auto becomes: the recorded precision of a continued run, otherwise what the devices have.
#include "tessera/train/auto_precision.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using P = Settings::Precision;

const RunDevices kCpu, kNewGpu{.on_gpus = true, .without_bf16 = ""}, kOldGpu{.on_gpus = true, .without_bf16 = "V100"};

ResolvedSettings resolved(const std::string& toml) {
  return resolve({.flags = {}, .environment = {}, .file = parse_config(toml, "c")}, kAllGroups, "train", {"train"});
}

// The precision and the reason, or the error.
std::pair<std::string, std::string> settled(const RunDevices& devices, const std::string& recorded = "",
                                            const std::string& toml = "") {
  ResolvedSettings r = resolved(toml);
  try {
    settle_precision(r, devices, {.precision = recorded, .checkpoint = recorded.empty() ? "" : "run/checkpoint-4"});
  } catch (const UsageError& error) {
    return {"error", error.what()};
  }
  return {std::get<std::string>(find_setting("precision")->get(r.settings)), r.settings.precision_reason};
}

TEST(AutoPrecision, FollowsTheDevices) {
  using testing::Pair;
  EXPECT_THAT(settled(kCpu), Pair("fp32", "auto"));
  EXPECT_THAT(settled(kNewGpu), Pair("bf16", "auto"));
  EXPECT_THAT(settled(kOldGpu), Pair("fp32", HasSubstr("auto: V100 has no bf16. fp16 is faster")));
  // A precision that the user gives stays.
  for (const char* word : {"fp32", "tf32", "fp16", "bf16"}) {
    EXPECT_THAT(settled(kNewGpu, "fp32", std::string("precision = \"") + word + '"'), Pair(word, ""));
  }
  EXPECT_THAT(settled(kNewGpu, "", "bf16 = false"), Pair("fp32", ""));
  // bf16 optimizer states need bf16.
  EXPECT_THAT(settled(kNewGpu, "", "optimizer_states = \"bf16\""), Pair("bf16", "auto"));
  EXPECT_THAT(settled(kCpu, "", "optimizer_states = \"bf16\""), Pair("error", HasSubstr("the precision is \"fp32\"")));
}

TEST(AutoPrecision, AContinuedRunKeepsItsPrecision) {
  for (const RunDevices& devices : {kCpu, kNewGpu, kOldGpu}) {
    for (const std::string precision : {"fp32", "tf32", "fp16", "bf16"}) {
      const bool is_new = devices.on_gpus && devices.without_bf16.empty();
      const bool works =
          is_new || precision == "fp32" || precision == "fp16" || (precision == "bf16" && !devices.on_gpus);
      const auto [word, reason] = settled(devices, precision);
      EXPECT_EQ(word, works ? precision : "error") << reason;
      EXPECT_THAT(reason,
                  HasSubstr(works ? "auto, as in run/checkpoint-4" : "--resume run/checkpoint-4 --precision fp32"));
    }
  }
}

TEST(AutoPrecision, ReadsItFromTheNewestReadableCheckpoint) {
  const fs::path run = fs::temp_directory_path() / ("tessera-precision-" + std::to_string(getpid()));
  const auto write = [&](int step, const std::string& text) {
    const fs::path folder = run / ("checkpoint-" + std::to_string(step));
    fs::create_directories(folder);
    std::ofstream(folder / "trainer_state.json") << text;
    return folder.string();
  };
  Settings s;
  s.output_dir = run.string();
  EXPECT_EQ(recorded_precision(s).precision, "");  // no folder
  const std::string old = write(2, R"({"fingerprint": {"precision": "fp32"}})");
  write(4, R"({"fingerprint": {"precision": "fp16"}})");
  write(6, "damaged");
  write(8, R"({"fingerprint": {"precision": 3}})");
  EXPECT_EQ(recorded_precision(s).precision, "fp16");
  EXPECT_EQ(recorded_precision(s).checkpoint, (run / "checkpoint-4").string());
  s.output_dir = "elsewhere";
  s.resume = old;
  EXPECT_EQ(recorded_precision(s).precision, "fp32");
  s.resume = run.string();
  EXPECT_EQ(recorded_precision(s).precision, "fp16");
  s.output_dir = run.string();
  s.resume = "none";
  EXPECT_EQ(recorded_precision(s).precision, "");
  fs::remove_all(run);
}

}  // namespace
}  // namespace tessera
