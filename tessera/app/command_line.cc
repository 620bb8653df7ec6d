#include "tessera/app/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "tessera/app/help.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/usage_errors.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/log/console.h"

namespace tessera {

namespace {

// Moves a request for help to the end of `words`, and writes it as --help. The request (help, --help, -h) may be before
// a verb, directly after a verb, or after the first word of a two-word verb ("tokenizer help").
std::vector<std::string> with_help_last(std::vector<std::string> words, const std::vector<Verb>& verbs) {
  const auto asks = [](const std::string& word) { return word == "help" || word == "--help" || word == "-h"; };
  bool is_help = false;
  while (!words.empty() && asks(words[0])) {
    words.erase(words.begin());
    is_help = true;
  }
  for (size_t i = 1; i < words.size() && i <= 2 && !is_help; ++i) {
    std::vector<std::string> before(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
    const bool is_name = take_verb(before, verbs) ? before.empty() : i == 1 && begins_a_verb(words[0], verbs);
    if (!is_name || !asks(words[i])) continue;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    is_help = true;
  }
  if (is_help) words.emplace_back("--help");
  return words;
}

// Returns the help of the program if `words` are empty or request this help. If `words` are --help after the first word
// of a two-word verb ("tokenizer --help"), returns the help of all two-word verbs with this first word. Otherwise
// returns an empty text.
std::string general_help(const std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  if (words.empty() || words[0] == "--help" || (words.size() == 2 && words[0] == "all" && words[1] == "--help")) {
    return program_help(verbs);
  }
  const bool is_family = words.size() == 2 && words[1] == "--help" && begins_a_verb(words[0], verbs);
  return is_family ? family_help(words[0], verbs) : "";
}

}  // namespace

std::vector<std::string> names_of(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const auto& verb : verbs) names.push_back(verb.name);
  return names;
}

const Verb* take_verb(std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  for (const size_t length : {2u, 1u}) {
    if (words.size() < length) continue;
    const std::string name = length == 2 ? words[0] + " " + words[1] : words[0];
    const auto it = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& verb) { return verb.name == name; });
    if (it == verbs.end()) continue;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(length));
    return &*it;
  }
  return nullptr;
}

std::vector<FileEntry> config_of(const std::string& word, const std::vector<std::string>& words, Groups groups,
                                 const std::vector<Verb>& verbs) {
  if (word.empty()) return {};
  try {
    return read_config_file(word);
  } catch (const UsageError& error) {
    const std::string remedy = word.ends_with(".toml") ? "" : remedy_for_word(word, words, groups, verbs);
    if (remedy.empty()) throw;
    std::error_code none;
    const bool is_file = std::filesystem::is_regular_file(word, none);
    const std::string reason = is_file ? fmt::format(" ({})", error.what()) : "";
    throw UsageError(word, "is neither a setting nor a configuration file" + reason, remedy);
  }
}

std::vector<std::string> take_command(std::vector<std::string>& words, Groups groups) {
  size_t begin = 0;
  for (; begin < words.size() && words[begin].starts_with("-"); ++begin) {
    const std::string& word = words[begin];
    const Setting* setting = word.starts_with("--") ? find_flag(std::string_view(word).substr(2), groups) : nullptr;
    if (setting && setting->group & groups && setting->type != SettingType::boolean) ++begin;  // skips the flag's value
  }
  begin = std::min(begin, words.size());
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h" || word == "--help=all"; };
  if (std::ranges::any_of(words, is_help)) {
    const bool all =
        std::ranges::find(words, "all") != words.end() || std::ranges::find(words, "--help=all") != words.end();
    words = {"--help"};
    if (all) words.emplace_back("all");
    return {};
  }
  const auto first = words.begin() + static_cast<std::ptrdiff_t>(begin);
  std::vector<std::string> command(first, words.end());
  words.erase(first, words.end());
  return command;
}

namespace {

// Removes from `flags` every flag whose setting is not in the verb's groups `own`. Returns the removed flags, because
// they belong to the runs that the verb starts.
std::vector<std::pair<const Setting*, std::string>> take_run_flags(ParsedFlags& flags, Groups own) {
  std::vector<std::pair<const Setting*, std::string>> of_runs;
  const auto is_own = [&](const auto& flag) { return (flag.first->group & own) != 0; };
  std::ranges::copy_if(flags.values, std::back_inserter(of_runs), [&](const auto& flag) { return !is_own(flag); });
  std::erase_if(flags.values, [&](const auto& flag) { return !is_own(flag); });
  return of_runs;
}

}  // namespace

ResolvedSettings resolve_words(const std::vector<std::string>& words, const Environment& environment, const Verb& verb,
                               const std::vector<Verb>& verbs) {
  const ParsedFlags flags = parse_flags(words, verb, verb.groups, verbs);
  const SettingSources sources{.flags = flags.values,
                               .environment = environment,
                               .file = config_of(flags.config_file, words, verb.groups, verbs)};
  ResolvedSettings resolved = resolve(sources, verb.groups, verb.name, names_of(verbs));
  resolved.warnings.insert(resolved.warnings.begin(), flags.warnings.begin(), flags.warnings.end());
  return resolved;
}

void check_settings(const Verb& verb, const ResolvedSettings& resolved) {
  check_consistent(resolved);
  check_supported(resolved);
  check_required(verb, resolved);
}

int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const std::vector<Verb>& verbs) {
  const auto ranks = detect_ranks(environment);
  const bool is_first = !ranks || ranks->rank == 0;
  Console console = Console::of_process();
  std::vector<std::string> words = with_help_last(arguments, verbs);
  if (const std::string help = general_help(words, verbs); !help.empty()) {
    console.print(help);
    return static_cast<int>(ExitCode::kDone);
  }
  if (words[0] == "--version") {
    console.print(version_text());
    return static_cast<int>(ExitCode::kDone);
  }
  const Verb* verb = take_verb(words, verbs);
  if (!verb) unknown_verb(words, verbs);
  const Verb* subject = verb->about_verb ? take_verb(words, verbs) : verb;
  if (!subject) subject = verb;
  // `config train` takes the settings of `train`. In addition, `config` always takes kPresentation, the settings
  // for the format of its output.
  const Groups groups = subject == verb ? verb->groups : subject->groups | kPresentation;

  const std::vector<std::string> command =
      verb->takes_command ? take_command(words, groups) : std::vector<std::string>{};
  ParsedFlags flags = parse_flags(words, *subject, groups | verb->run_groups, verbs);
  if (flags.help) {
    console.print(flags.full_help ? full_help(*verb, *subject, groups) : brief_help(*verb, *subject, groups));
    return static_cast<int>(ExitCode::kDone);
  }
  const auto run_flags = take_run_flags(flags, groups);
  const std::string own_file = subject->own_file.empty() ? "" : std::exchange(flags.config_file, "");
  const SettingSources sources{.flags = flags.values,
                               .environment = environment,
                               .file = config_of(flags.config_file, words, groups, verbs),
                               .num_ranks = verb->runs_as_ranks && ranks ? ranks->size : 1};
  Invocation invocation{.verb = verb,
                        .subject = subject,
                        .resolved = resolve(sources, groups, subject->name, names_of(verbs)),
                        .environment = environment,
                        .operands = flags.operands,
                        .command = command,
                        .own_file = own_file,
                        .run_flags = run_flags};
  const OptionNames names([&](std::string_view name) { return find_setting(name)->flag_in(groups); },
                          [&](std::string_view name) { return invocation.resolved.where(std::string(name)); });
  std::vector<std::string>& warnings = invocation.resolved.warnings;
  warnings.insert(warnings.begin(), flags.warnings.begin(), flags.warnings.end());
  const bool starts_ranks = verb->runs_as_ranks && !ranks && invocation.resolved.num_ranks > 1;
  if (is_first && !starts_ranks) {  // only one process prints the warnings
    for (const auto& warning : warnings) console.note("warning: " + warning);
  }
  check_settings(*verb, invocation.resolved);
  for (const auto& [setting, text] : flags.values) {
    if (!text.empty() || setting->may_be_empty || !is_first || starts_ranks) continue;
    console.note(fmt::format("warning: {}: the value is empty and means \"none\". Is a shell variable not set?",
                             setting->flag_in(groups)));
  }
  if (!verb->operands.empty() && flags.operands.empty()) {
    throw UsageError(verb->operands, fmt::format("is required by {}", verb->name),
                     verb->example.empty() ? "" : "Example: " + verb->example);
  }
  return verb->runs_as_ranks ? run_as_ranks(invocation, ranks, arguments) : verb->run(invocation);
}

int guarded_run(const std::vector<std::string>& arguments, const Environment& environment,
                const std::vector<Verb>& verbs) {
  try {
    return run_command_line(arguments, environment, verbs);
  } catch (...) {
    const Failure failure = current_failure();
    report_failure(environment, failure);
    return static_cast<int>(failure.code);
  }
}

}  // namespace tessera
