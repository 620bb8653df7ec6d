#include "tessera/app/completion_table.h"

#include <algorithm>
#include <cctype>

#include "tessera/base/text.h"

namespace tessera {

namespace {

// The parts of a unit such as "auto|none|PATH" or "FOLDER[:SECONDS]".
std::vector<std::string> unit_parts(const std::string& unit) {
  std::vector<std::string> parts{""};
  for (const char c : unit) {
    if (c == '|') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool is_path(const std::string& part) {
  for (const char* word : {"PATH", "FILE", "FOLDER", "DIR", "RUN"}) {
    if (part.starts_with(word)) return true;
  }
  return false;
}

// A word that users write as it is: "auto", but not "N" or "NAME...".
bool is_literal(const std::string& part) {
  return !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::islower(c) || c == '_'; });
}

// The first sentence, up to its full stop or its colon.
std::string first_sentence(const std::string& text) {
  const size_t end = std::min({text.find(". "), text.find(": "), text.find("; "), text.size()});
  return text.substr(0, end);
}

CompletionFlag flag_of(const Setting& setting, Groups groups) {
  CompletionFlag flag{.flag = setting.flag_in(groups),
                      .help = setting.brief.empty() ? first_sentence(setting.help) : setting.brief,
                      .verbs = {}};
  if (setting.type == SettingType::boolean) return flag;
  flag.takes_value = true;
  flag.takes_many = setting.type == SettingType::list;
  flag.may_be_bare = !setting.bare_value.empty();
  flag.words = setting.choices;
  for (const std::string& part : unit_parts(setting.unit)) {
    if (is_path(part)) flag.takes_files = true;
    if (is_literal(part)) flag.words.push_back(part);
  }
  return flag;
}

bool is_same(const CompletionFlag& a, const CompletionFlag& b) {
  return a.flag == b.flag && a.help == b.help && a.words == b.words && a.takes_files == b.takes_files;
}

void add(std::vector<CompletionFlag>& flags, CompletionFlag flag, const std::string& verb) {
  const auto known = std::ranges::find_if(flags, [&](const CompletionFlag& other) { return is_same(flag, other); });
  if (known != flags.end()) return known->verbs.push_back(verb);
  flag.verbs = {verb};
  flags.push_back(std::move(flag));
}

}  // namespace

std::vector<CompletionFlag> completion_flags(const std::vector<Verb>& verbs) {
  std::vector<CompletionFlag> flags;
  for (const Setting& setting : all_settings()) {
    for (const Verb& verb : verbs) {
      const Groups groups = verb.groups | verb.run_groups;
      if (!(setting.group & groups)) continue;
      CompletionFlag flag = flag_of(setting, groups);
      add(flags, flag, verb.name);
      if (setting.type != SettingType::boolean) continue;
      flag.flag = "--no-" + dashed(setting.name);
      flag.help = "Not: " + flag.help;
      add(flags, flag, verb.name);
    }
  }
  return flags;
}

std::vector<std::string> operand_words(const Verb& verb) {
  std::vector<std::string> words = unit_parts(verb.operands);
  if (!std::ranges::all_of(words, is_literal)) words.clear();
  return words;
}

}  // namespace tessera
