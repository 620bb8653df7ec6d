#include "tessera/app/usage_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tessera/app/help.h"
#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// The last flag before a word, and the value of this flag.
struct FlagBefore {
  const Setting* setting;
  std::string value;  // empty for a boolean
};

std::optional<FlagBefore> flag_before(const std::string& word, const std::vector<std::string>& words, Groups groups) {
  std::optional<FlagBefore> before;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& candidate = words[i];
    if (!candidate.starts_with("--")) {
      if (candidate == word) return before;
      if (candidate.ends_with(".toml")) before.reset();
      continue;
    }
    before.reset();
    const size_t equals = std::min(candidate.find('='), candidate.size());
    const Setting* setting = find_flag(std::string_view(candidate).substr(2, equals - 2), groups);
    if (!setting || !(setting->group & groups)) continue;
    if (setting->type == SettingType::boolean) {
      before = {setting, ""};
    } else if (equals < candidate.size()) {
      before = {setting, candidate.substr(equals + 1)};
    } else if (i + 1 < words.size()) {
      before = {setting, words[++i]};
    }
  }
  return before;
}

std::string remedy_for_boolean(const Setting& setting, const std::string& word) {
  for (const char* yes : {"true", "True", "1", "yes", "on"})
    if (word == yes) return "Write " + setting.flag();
  for (const char* no : {"false", "False", "0", "no", "off"})
    if (word == no) return "Write --no-" + dashed(setting.name);
  return fmt::format("Write {} or --no-{}", setting.flag(), dashed(setting.name));
}

// What to write instead of `word`, which follows a flag that already has its value.
std::string remedy_for_second_value(const FlagBefore& before, const std::string& word) {
  const Setting& setting = *before.setting;
  const std::string flag = setting.flag();
  if (setting.type == SettingType::list) return fmt::format("Write {} {} {}", flag, before.value, word);
  if (setting.type == SettingType::bytes) return fmt::format("Write {} {}{}", flag, before.value, word);
  if (setting.unit.ends_with(",...")) return fmt::format("Write {} {},{}", flag, before.value, word);
  if (setting.unit == "TEXT" || setting.unit == "WORDS") {
    return fmt::format("Write {} \"{} {}\"", flag, before.value, word);
  }
  return flag + " takes one value";
}

// The flag and a placeholder for its value: "--lr RATE". A boolean has no placeholder: "--shuffle".
std::string with_unit(const Setting& setting) {
  if (setting.type == SettingType::boolean) return setting.flag();
  return fmt::format("{} {}", setting.flag(), setting.unit.empty() ? "WORD" : setting.unit);
}

bool is_model(const std::string& word) {
  std::error_code error;
  if (word.empty()) return false;
  return is_shape_name(word) || fs::exists(fs::path(word) / "config.json", error) ||
         fs::exists(fs::path(word) / "model" / "config.json", error);
}

// Returns what to write if the word looks like the name of a setting, the name of a verb, or the value of a setting. If
// the verb takes a prompt, any other word may be the prompt. Otherwise returns an empty text.
std::string remedy_by_content(const std::string& word, Groups groups, const std::vector<Verb>& verbs) {
  const size_t equals = std::min(word.find('='), word.size());
  const Setting* setting = find_flag(word.substr(0, equals), groups);
  if (setting && setting->group & groups) {
    return "Write " + (equals < word.size() ? setting->flag() + word.substr(equals) : with_unit(*setting));
  }
  if (std::ranges::any_of(verbs, [&](const Verb& verb) { return verb.name == word; })) {
    return fmt::format("Give one verb, as in: tessera {} --help", word);
  }
  if (groups & kModel && is_model(word)) return "Write --model " + word;
  if (groups & kTokenizer && word.ends_with("tokenizer.json")) return "Write --tokenizer " + word;
  if (word.ends_with(".json") || word.ends_with(".jsonl") || word.ends_with(".txt")) {
    if (groups & kDataset) return "Write --dataset " + word;
    if (groups & kEvalData) return "Write --eval-dataset " + word;
    if (groups & kPromptFile) return "Write --prompts " + word;
  }
  if (groups & kPrompt && groups != kAllGroups) return fmt::format("Write --prompt \"{}\"", word);
  return "";
}

std::string names_of_owners(const Setting& setting, const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) {
    if (setting.group & verb.groups && !verb.about_verb) names.push_back(verb.name);
  }
  return enumerated(names);
}

// Returns "Did you mean …?" with the known flag that is closest to `flag`, or an empty text if no known flag is close.
std::string nearest_flag(const std::string& flag, Groups groups) {
  std::vector<std::string> flags = {"--help"};
  for (const Setting* known : settings_of(groups)) {
    flags.push_back(known->flag_in(groups));
    for (const auto& alias : known->aliases) flags.push_back("--" + dashed(alias));
    if (known->type == SettingType::boolean) flags.push_back("--no-" + dashed(known->name));
  }
  return did_you_mean(flag, flags);
}

// Whether a required setting is not given, or is an empty text. Only a prompt may be empty.
bool is_missing(const ResolvedSettings& resolved, const std::string& name) {
  const Setting* setting = find_setting(name);
  TESSERA_ASSERT(setting && setting->group & resolved.groups);
  const bool is_empty = plain_text(setting->get(resolved.settings)).empty();
  return !resolved.is_given(name) || (is_empty && name != "prompt");
}

}  // namespace

bool begins_a_verb(const std::string& word, const std::vector<Verb>& verbs) {
  return std::ranges::any_of(verbs, [&](const Verb& verb) { return verb.name.starts_with(word + " "); });
}

void unknown_verb(const std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  std::string word = words[0];
  if (word.starts_with("-")) {
    throw UsageError(word, "comes before the verb", "Usage: tessera <verb> [config.toml] [--flags]");
  }
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  const bool has_second = words.size() > 1 && !words[1].starts_with("-");
  std::string remedy;
  if (begins_a_verb(word, verbs)) {
    std::vector<std::string> family;
    for (const auto& name : names) {
      if (name.starts_with(word + " ")) family.push_back("tessera " + name);
    }
    if (!has_second) throw UsageError(word, "needs a second word", "Write: " + enumerated(family, "or"));
    word += " " + words[1];
    remedy = did_you_mean(word, names);
  } else {
    if (has_second) remedy = did_you_mean(word + " " + words[1], names);
    if (!remedy.empty()) word += " " + words[1];
    if (remedy.empty()) remedy = did_you_mean(word, names);
  }
  if (!remedy.empty()) remedy += " ";
  throw UsageError(word, "unknown verb", remedy + fmt::format("Use one of: {}", joined(names, ", ")));
}

void unknown_flag(const std::string& flag, const Verb& verb, Groups groups, const std::vector<Verb>& verbs) {
  const std::string name = flag.substr(0, flag.find('='));
  const std::string bare = underscored(name.substr(std::min(name.size(), name.find_first_not_of('-'))));
  const Setting* setting = find_setting(bare);
  const bool is_negated = !setting && bare.starts_with("no_");
  if (is_negated) setting = find_setting(bare.substr(3));
  if (setting && !(setting->group & groups)) {
    throw UsageError(name, fmt::format("is not a setting of {}", verb.name),
                     fmt::format("It belongs to {}", names_of_owners(*setting, verbs)));
  }
  if (setting && is_negated && setting->type != SettingType::boolean) {
    throw UsageError(name, fmt::format("{} is not a boolean setting", setting->flag()), "Write " + with_unit(*setting));
  }
  if (setting) {  // the name is right, but has one dash instead of two, as in -lr and -no-shuffle
    throw UsageError(name, "unknown flag",
                     "Write " + (is_negated ? "--no-" + dashed(setting->name) : with_unit(*setting)));
  }
  std::string remedy;
  if (const Setting* choice = find_setting_with_choice(bare, groups)) {
    remedy = fmt::format("Write {} {}", choice->flag(), bare);
  }
  if (remedy.empty()) remedy = nearest_flag("--" + dashed(bare), groups);
  if (remedy.empty()) remedy = fmt::format("See tessera {} --help all", verb.name);
  throw UsageError(name, "unknown flag", remedy);
}

std::string remedy_for_word(const std::string& word, const std::vector<std::string>& words, Groups groups,
                            const std::vector<Verb>& verbs) {
  const auto before = flag_before(word, words, groups);
  const bool is_after_boolean = before && before->setting->type == SettingType::boolean;
  if (before && !is_after_boolean) return remedy_for_second_value(*before, word);
  std::string remedy = is_after_boolean ? remedy_for_boolean(*before->setting, word) : "";
  if (is_after_boolean && !remedy.ends_with(" or --no-" + dashed(before->setting->name))) return remedy;
  const std::string by_content = remedy_by_content(word, groups, verbs);
  return by_content.empty() ? remedy : by_content;
}

void check_target(const ResolvedSettings& resolved, const std::string& setting, const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error)) return;
  throw UsageError(resolved.where(setting), fmt::format("\"{}\" is not a regular file", printable(path)),
                   "Give the name of a new file, or of a regular file to replace");
}

void check_required(const Verb& verb, const ResolvedSettings& resolved) {
  std::vector<std::string> missing, flags;
  for (const auto& name : verb.required) {
    if (!is_missing(resolved, name)) continue;
    missing.push_back(name);
    flags.push_back("--" + dashed(name));
  }
  std::string needs = enumerated(flags);
  const bool lacks_one_of = !verb.one_of.empty() && std::ranges::all_of(verb.one_of, [&](const std::string& name) {
    return is_missing(resolved, name);
  });
  if (lacks_one_of) {
    std::vector<std::string> alternatives;
    for (const auto& name : verb.one_of) alternatives.push_back("--" + dashed(name));
    needs += (needs.empty() ? "" : ", and ") + enumerated(alternatives, "or");
  }
  if (needs.empty()) return;
  const std::string remedy = verb.example.empty() ? "" : "Example: " + verb.example;
  if (missing.size() == 1 && !lacks_one_of) {
    throw UsageError(resolved.where(missing[0]), fmt::format("is required by {}", verb.name), remedy);
  }
  throw UsageError(verb.name, "needs " + needs, remedy);
}

}  // namespace tessera
