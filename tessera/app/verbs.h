// The table of verbs. A new verb is one row in verbs.cc and one function.
#pragma once

#include <string>
#include <vector>

#include "tessera/comm/world.h"
#include "tessera/launch/signals.h"
#include "tessera/settings/resolve.h"

namespace tessera {

struct Invocation;

struct Verb {
  std::string name;                         // one word or two: "train", "tokenizer train"
  std::string help;                         // one line, no full stop
  Groups groups = 0;                        // the settings that the verb takes
  std::string example{};                    // a complete command, for help and errors
  std::vector<std::string> required;        // settings that must be given
  std::vector<std::string> one_of{};        // in addition, at least one of these settings must be given
  std::string operands{};                   // words without a flag, for help: "RUN..."; empty: takes no such words
  int (*run)(const Invocation&) = nullptr;  // returns the exit code; throws Error
  // True for `config`: the word after `config` may be the name of another verb. `config` then takes the settings of
  // that verb, but requires none of them.
  bool about_verb = false;
  // True for `slurm`: its flags end where the command of another verb begins.
  bool takes_command = false;
  bool runs_as_ranks = false;  // its processes may be the ranks of one run
  // True for `doctor`: its ranks may have different programs and settings. Other verbs refuse such ranks.
  bool accepts_differences = false;
  bool stops_on_signals = false;  // the first signal does not end the process; the verb sees it and stops
  // Only for `sweep`: the word in help texts for the file after the verb. The verb reads this file itself, because the
  // file is not a configuration file. Empty for other verbs.
  std::string own_file{};
  Groups run_groups = 0;  // settings of the runs that the verb starts; their flags are in Invocation::run_flags
};

// The arguments of a verb's function.
struct Invocation {
  const Verb* verb;                     // the verb that runs
  const Verb* subject;                  // the verb after `config`; else `verb` itself
  ResolvedSettings resolved;            // checked
  Environment environment;              // of the process
  std::vector<std::string> operands{};  // words without a flag; at least one if the verb takes such words
  World* world = nullptr;               // the ranks; only with runs_as_ranks
  StopSignals* signals = nullptr;       // only with stops_on_signals
  std::vector<std::string> command{};   // the command after the verb's flags; only with takes_command
  std::string own_file{};               // the file's path, as written; only if the verb has Verb::own_file
  std::vector<std::pair<const Setting*, std::string>> run_flags{};  // flags of Verb::run_groups, values as written

  const Settings& settings() const { return resolved.settings; }
};

const std::vector<Verb>& all_verbs();

int run_chat(const Invocation& invocation);
int run_completions(const Invocation& invocation);
int run_config(const Invocation& invocation);
int run_eval(const Invocation& invocation);
int run_export(const Invocation& invocation);
int run_generate(const Invocation& invocation);
int run_man(const Invocation& invocation);
int run_nettest(const Invocation& invocation);
int run_memory(const Invocation& invocation);
int run_plan(const Invocation& invocation);
int run_slurm(const Invocation& invocation);
int run_sweep_verb(const Invocation& invocation);
int run_report(const Invocation& invocation);
int run_tokenize(const Invocation& invocation);
int run_tokenizer_train(const Invocation& invocation);
int run_train(const Invocation& invocation);
int run_doctor(const Invocation& invocation);

}  // namespace tessera
