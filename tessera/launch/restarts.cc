#include "tessera/launch/restarts.h"

#include <algorithm>
#include <charconv>

namespace tessera {

namespace fs = std::filesystem;

Checkpoints checkpoints_in(const std::string& output_dir) {
  Checkpoints result;
  if (output_dir.empty()) return result;
  std::error_code error;
  fs::directory_iterator entry(output_dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    constexpr std::string_view kPrefix = "checkpoint-";
    if (!name.starts_with(kPrefix)) continue;
    // An incomplete, damaged or superseded checkpoint has a suffix after the step.
    int64_t step = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (failure != std::errc() || stop != end || step < 0) continue;
    std::error_code gone;
    const auto time = entry->last_write_time(gone);
    if (!gone) result.emplace(step, time);
  }
  return result;
}

bool made_checkpoint(const Checkpoints& before, const Checkpoints& after) {
  return std::any_of(after.begin(), after.end(), [&](const auto& checkpoint) {
    const auto same = before.find(checkpoint.first);
    return same == before.end() || same->second != checkpoint.second;
  });
}

double restart_pause_s(double first_s, int64_t restart) {
  constexpr double kLongest_s = 300;
  double pause_s = first_s;
  for (int64_t i = 1; i < restart && pause_s < kLongest_s && pause_s > 0; ++i) pause_s *= 2;
  return std::min(pause_s, std::max(kLongest_s, first_s));
}

std::vector<std::string> restart_arguments(std::vector<std::string> arguments, const Settings& settings,
                                           bool has_saved) {
  if (has_saved && settings.resume != "auto") arguments.insert(arguments.end(), {"--resume", "auto"});
  return arguments;
}

}  // namespace tessera
