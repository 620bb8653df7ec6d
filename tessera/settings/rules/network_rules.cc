// Rules about network tests, and about the checks before a run.
#include <fmt/format.h>

#include "tessera/settings/rules/rules.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

std::optional<Fault> sizes_twice(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.sizes.empty() || (s.min_bytes == 0 && s.max_bytes == 0)) return {};
  const char* others = s.min_bytes == 0 ? "max_bytes" : s.max_bytes == 0 ? "min_bytes" : "min_bytes and max_bytes";
  return Fault{"sizes", fmt::format("contradicts {}", others), "Give either --sizes, or --min-bytes and --max-bytes"};
}

std::optional<Fault> sizes_in_descending_order(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.max_bytes == 0 || s.min_bytes <= s.max_bytes) return {};
  return Fault{"min_bytes",
               fmt::format("{} is greater than max_bytes {}", bytes_text(s.min_bytes), bytes_text(s.max_bytes)),
               "Give a lower --min-bytes or a higher --max-bytes"};
}

std::optional<Fault> bandwidth_without_test(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  const bool is_idle = s.preflight_min_busbw > 0 && s.preflight == Settings::Preflight::none;
  if (!is_idle || !resolved.is_flag("preflight_min_busbw")) return {};
  return Fault{"preflight_min_busbw", "has no effect without a preflight", "Add --preflight nettest"};
}

}  // namespace

std::span<const Rule> network_rules() {
  static constexpr Rule kRules[] = {sizes_twice, sizes_in_descending_order, bandwidth_without_test};
  return kRules;
}

}  // namespace tessera
