// Prints resolved settings as TOML and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/settings/resolve.h"

namespace tessera {

namespace {

nlohmann::ordered_json json_of(const SettingValue& value) {
  return std::visit([](const auto& x) { return nlohmann::ordered_json(x); }, value);
}

// Replaces control characters: a file name may contain a line break, which would end the comment.
std::string comment_text(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

std::string resolved_config_text(const ResolvedSettings& resolved) {
  constexpr size_t kCommentColumn = 40;
  std::string text;
  Groups last_group = 0;
  for (const Setting* setting : settings_of(resolved.groups)) {
    if (setting->group != last_group) {
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", title_of(setting->group));
      last_group = setting->group;
    }
    // A setting that only sets other settings (deepspeed, fsdp, fp16 and similar) becomes a comment. The printed values
    // already include its effect, so it must not apply again when this text is read back.
    const std::string assignment = fmt::format("{}{} = {}", setting->stands_for_others ? "# " : "", setting->name,
                                               toml_text(setting->get(resolved.settings)));
    const std::string origin = comment_text(resolved.origins.at(setting->name).to_string());
    text += fmt::format("{:<{}}  # {}\n", assignment, kCommentColumn, origin);
  }
  return text;
}

nlohmann::ordered_json resolved_config_json(const ResolvedSettings& resolved) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Setting* setting : settings_of(resolved.groups)) {
    object[setting->name] = {{"value", json_of(setting->get(resolved.settings))},
                             {"origin", resolved.origins.at(setting->name).to_string()}};
  }
  return object;
}

}  // namespace tessera
