#include "tessera/app/command_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/app/help.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/base/error.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/launch/launcher_streams.h"
#include "tessera/report/console.h"
#include "tessera/settings/suggest.h"

namespace tessera {

namespace {

std::vector<std::string> names_of(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const auto& verb : verbs) names.push_back(verb.name);
  return names;
}

// Takes the verb off the front of `words`: its name is their first word, or their first two. nullptr when there is
// none.
const Verb* take_verb(std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  for (const size_t length : {2, 1}) {
    if (words.size() < length) continue;
    const std::string name = length == 2 ? words[0] + " " + words[1] : words[0];
    const auto it = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& verb) { return verb.name == name; });
    if (it == verbs.end()) continue;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(length));
    return &*it;
  }
  return nullptr;
}

[[noreturn]] void unknown_verb(const std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  const std::string& word = words[0];
  if (word.starts_with("-")) {
    throw UsageError(word, "comes before the verb", "Usage: tessera <verb> [config.toml] [--flags]");
  }
  std::vector<std::string> names = names_of(verbs);
  const auto longer = std::ranges::find_if(names, [&](const auto& name) { return name.starts_with(word + " "); });
  std::string remedy = longer != names.end() ? fmt::format("Did you mean \"{}\"?", *longer) : "";
  if (remedy.empty() && words.size() > 1) remedy = did_you_mean(word + " " + words[1], names);
  if (remedy.empty()) remedy = did_you_mean(word, names);
  if (!remedy.empty()) remedy += " ";
  throw UsageError(word, "unknown verb", remedy + fmt::format("One of: {}", joined(names, ", ")));
}

void check_required(const Verb& verb, const ResolvedSettings& resolved) {
  for (const auto& name : verb.required) {
    const Setting* setting = find_setting(name);
    TESSERA_ASSERT(setting && setting->group & verb.groups);
    const SettingValue value = setting->get(resolved.settings);
    const auto* text = std::get_if<std::string>(&value);
    if (!resolved.is_given(name) || (text && text->empty())) {
      throw UsageError(resolved.where(name), fmt::format("is required by {}", verb.name), setting->help);
    }
  }
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const std::vector<Verb>& verbs) {
  const auto ranks = detect_ranks(environment);
  const bool is_first = !ranks || ranks->rank == 0;
  if (const auto launcher = find_launcher(environment)) take_launchers_streams(launcher->socket, is_first);
  Console console = Console::of_process();
  std::vector<std::string> words = arguments;
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    console.print(program_help(verbs));
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
  // What is about another verb still decides itself how it prints.
  const Groups groups = subject == verb ? verb->groups : subject->groups | kPresentation;

  const ParsedFlags flags = parse_flags(words, *subject, groups);
  if (flags.help) {
    console.print(verb_help(*verb, groups));
    return static_cast<int>(ExitCode::kDone);
  }
  SettingSources sources{.flags = flags.values,
                         .environment = environment,
                         .file = {},
                         .file_name = flags.config_file,
                         .num_ranks = verb->runs_as_ranks && ranks ? ranks->size : 1};
  if (!flags.config_file.empty()) sources.file = read_config_file(flags.config_file);
  Invocation invocation{.verb = verb,
                        .subject = subject,
                        .resolved = resolve(sources, groups, subject->name, names_of(verbs)),
                        .environment = environment,
                        .operands = flags.operands};
  const bool starts_ranks = verb->runs_as_ranks && !ranks && invocation.resolved.num_ranks > 1;
  if (is_first && !starts_ranks) {  // one process tells them
    for (const auto& warning : invocation.resolved.warnings) console.note("warning: " + warning);
  }
  check_consistent(invocation.resolved);
  check_supported(invocation.resolved);
  check_required(*verb, invocation.resolved);
  if (!verb->operands.empty() && flags.operands.empty()) {
    throw UsageError(verb->operands, fmt::format("is required by {}", verb->name),
                     fmt::format("Write tessera {} {}", verb->name, verb->operands));
  }
  return verb->runs_as_ranks ? run_as_ranks(invocation, ranks, arguments) : verb->run(invocation);
}

int guarded_run(const std::vector<std::string>& arguments, const Environment& environment,
                const std::vector<Verb>& verbs) {
  try {
    return run_command_line(arguments, environment, verbs);
  } catch (...) {
    const Failure failure = current_failure();
    tell_failure(environment, failure);
    return static_cast<int>(failure.code);
  }
}

}  // namespace tessera
