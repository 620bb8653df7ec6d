// Declares the setting --memory-log, and the settings of `tessera memory`, which reads the logs of --memory-log.
#include <fmt/format.h>

#include <charconv>

#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> memory_log_settings() {
  return {
      parsed("memory_log", &S::memory_log, kMemoryLog, "FOLDER[:SECONDS]",
             "Log memory and utilization over time to files in FOLDER, every SECONDS seconds (default: 5); see "
             "docs/memory-logs.md",
             parse_memory_log, memory_log_text),
      boolean("gpu_only", &S::gpu_only, kMemoryAnalysis, "Read only the logs of GPU memory"),
      boolean("cpu_only", &S::cpu_only, kMemoryAnalysis, "Read only the logs of host memory"),
  };
}

}  // namespace tessera::declaring

namespace tessera {

MemoryLogPlace parse_memory_log(std::string_view text, const std::string& where) {
  constexpr double kShortestS = 0.01, kLongestS = 86400;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(where, what, "Write FOLDER or FOLDER:SECONDS, as in --memory-log runs/mine/memory:5");
  };
  MemoryLogPlace place;
  if (text.empty()) return place;
  size_t colon = text.rfind(':');
  if (colon != text.npos && text.find('/', colon) != text.npos) colon = text.npos;  // the colon is part of the folder
  place.folder = text.substr(0, colon);
  if (place.folder.empty()) refuse(fmt::format("{} has no folder", quoted_value(std::string(text))));
  if (colon == text.npos) return place;
  const std::string_view seconds = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(seconds.data(), seconds.data() + seconds.size(), place.interval_s);
  if (error != std::errc() || end != seconds.data() + seconds.size() || !(place.interval_s >= kShortestS) ||
      !(place.interval_s <= kLongestS)) {
    throw UsageError(where,
                     fmt::format("{} is not a number of seconds from {} to {}", quoted_value(std::string(seconds)),
                                 kShortestS, kLongestS),
                     fmt::format("If the name of the folder contains a colon, write the seconds too: {}",
                                 quoted_value(std::string(text) + ":5")));
  }
  return place;
}

std::string memory_log_text(const MemoryLogPlace& place) {
  return place.folder.empty() ? "" : fmt::format("{}:{}", place.folder, place.interval_s);
}

}  // namespace tessera
