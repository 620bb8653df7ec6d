#include "tessera/app/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/app/help.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/usage_errors.h"
#include "tessera/base/error.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/launch/launcher_streams.h"
#include "tessera/report/console.h"

namespace tessera {

namespace {

std::vector<std::string> names_of(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const auto& verb : verbs) names.push_back(verb.name);
  return names;
}

// Finds the verb that `words` begin with, by their first two words or the first one, and removes its name from them.
// Returns nullptr if no verb matches.
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

// `help` and `--help` before the verb, and `help` after it, become `--help` after the verb.
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

// Help of the program, or of verbs that begin with the same word. Empty if `words` do not ask for one of them.
std::string general_help(const std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  if (words.empty() || words[0] == "--help" || (words.size() == 2 && words[0] == "all" && words[1] == "--help")) {
    return program_help(verbs);
  }
  const bool is_family = words.size() == 2 && words[1] == "--help" && begins_a_verb(words[0], verbs);
  return is_family ? family_help(words[0], verbs) : "";
}

// Reads the file that the command line names. If the word is no such file, says what to write instead of it.
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

}  // namespace

int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const std::vector<Verb>& verbs) {
  const auto ranks = detect_ranks(environment);
  const bool is_first = !ranks || ranks->rank == 0;
  if (const auto launcher = find_launcher(environment)) take_launchers_streams(launcher->socket, is_first);
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
  // The settings of another verb, and always those that say how to print.
  const Groups groups = subject == verb ? verb->groups : subject->groups | kPresentation;

  const ParsedFlags flags = parse_flags(words, *subject, groups, verbs);
  if (flags.help) {
    console.print(flags.full_help ? full_help(*verb, *subject, groups) : brief_help(*verb, *subject, groups));
    return static_cast<int>(ExitCode::kDone);
  }
  const SettingSources sources{.flags = flags.values,
                               .environment = environment,
                               .file = config_of(flags.config_file, words, groups, verbs),
                               .file_name = flags.config_file,
                               .num_ranks = verb->runs_as_ranks && ranks ? ranks->size : 1};
  Invocation invocation{.verb = verb,
                        .subject = subject,
                        .resolved = resolve(sources, groups, subject->name, names_of(verbs)),
                        .environment = environment,
                        .operands = flags.operands};
  const bool starts_ranks = verb->runs_as_ranks && !ranks && invocation.resolved.num_ranks > 1;
  if (is_first && !starts_ranks) {  // one process reports them
    for (const auto& warning : invocation.resolved.warnings) console.note("warning: " + warning);
  }
  check_consistent(invocation.resolved);
  check_supported(invocation.resolved);
  check_required(*verb, invocation.resolved);
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
