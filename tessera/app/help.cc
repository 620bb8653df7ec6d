#include "tessera/app/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/settings/suggest.h"

namespace tessera {

namespace {

constexpr size_t kWidth = 100;
constexpr size_t kIndent = 6;

// `text` in lines of at most kWidth letters, each indented.
std::string wrapped(const std::string& text) {
  std::string result, line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && kIndent + line.size() + 1 + word.size() > kWidth) {
      result += std::string(kIndent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + std::string(kIndent, ' ') + line + "\n";
}

std::string setting_help(const Setting& setting) {
  std::string head =
      setting.type == SettingType::boolean
          ? fmt::format("--{0}, --no-{0}", dashed(setting.name))
          : fmt::format("{} {}", setting.flag(),
                        setting.type == SettingType::choice ? joined(setting.choices, "|") : setting.unit);
  const SettingValue preset = setting.get(Settings{});
  const auto* text = std::get_if<std::string>(&preset);
  std::string notes = text ? *text : toml_text(preset);
  notes = notes.empty() ? "" : fmt::format(" [default: {}]", notes);
  if (!setting.aliases.empty()) {
    std::vector<std::string> aliases;
    for (const auto& alias : setting.aliases) aliases.push_back("--" + dashed(alias));
    notes += fmt::format(" [also: {}]", joined(aliases, ", "));
  }
  return "  " + head + "\n" + wrapped(setting.help + notes);
}

}  // namespace

std::string version_text() {
#if defined(__clang__)
  const std::string compiler = fmt::format("Clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("GCC {}", __VERSION__);
#endif
  return fmt::format("tessera {} ({})", TESSERA_VERSION, compiler);
}

std::string program_help(const std::vector<Verb>& verbs) {
  std::string text =
      "Tessera fine-tunes BLOOM- and GPT-class language models, natively.\n\n"
      "Usage: tessera <verb> [config.toml] [--flags]\n\n"
      "Verbs:\n";
  size_t width = 0;
  for (const auto& verb : verbs) width = std::max(width, verb.name.size());
  for (const auto& verb : verbs) text += fmt::format("  {:<{}}  {}\n", verb.name, width, verb.help);
  return text +
         "\nOptions:\n"
         "  -h, --help  Print help; tessera <verb> --help tells a verb's settings\n"
         "  --version   Print the version\n\n"
         "A setting is taken from its flag (--batch-size 8), else from the environment (TESSERA_BATCH_SIZE=8),\n"
         "else from the file (batch_size = 8), else it has its default.\n\n"
         "Exit codes: 0 done; 1 failed while running; 2 wrong usage or configuration; 3 bad input file;\n"
         "4 out of memory; 5 communication failed; 75 saved after a signal, start again; 128+n second signal.";
}

std::string verb_help(const Verb& verb, Groups groups) {
  std::string text = fmt::format("{}.\n\nUsage: tessera {}{}{} [config.toml] [--flags]\n", verb.help, verb.name,
                                 verb.about_verb ? " [verb]" : "", verb.operands.empty() ? "" : " " + verb.operands);
  if (!verb.required.empty()) {
    std::vector<std::string> flags;
    for (const auto& name : verb.required) flags.push_back("--" + dashed(name));
    text += fmt::format("Required: {}\n", joined(flags, ", "));
  }
  Groups last_group = 0;
  for (const Setting* setting : settings_of(groups)) {
    if (setting->group != last_group) text += fmt::format("\n{}:\n", title_of(setting->group));
    last_group = setting->group;
    text += setting_help(*setting);
  }
  return text +
         "\nEvery setting is also a key of config.toml (batch_size = 8) and an environment variable\n"
         "(TESSERA_BATCH_SIZE=8). Dashes and underscores are the same.";
}

}  // namespace tessera
