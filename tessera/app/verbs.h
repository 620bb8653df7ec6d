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
  Groups groups = 0;                        // the settings it takes
  std::vector<std::string> required;        // settings that must be given
  std::string operands;                     // words without a flag, for help: "RUN..."; empty: it takes none
  int (*run)(const Invocation&) = nullptr;  // returns the exit code; throws Error
  // `config` is about another verb: its first word may be the name of one, whose groups then take the place of its own,
  // and nothing is required.
  bool about_verb = false;
  bool runs_as_ranks = false;     // works together with the other ranks, if there are any
  bool stops_on_signals = false;  // such a verb may ask for signals that have come, rather than be ended by them
};

// What a verb's function gets.
struct Invocation {
  const Verb* verb;                      // the one that runs
  const Verb* subject;                   // the one that it is about; `verb` itself unless about_verb
  ResolvedSettings resolved;             // checked
  Environment environment;               // of the process
  std::vector<std::string> operands;     // words without a flag; at least one for a verb that takes them
  World* world = nullptr;                // the ranks, for a verb that runs as ranks
  const StopSignals* signals = nullptr;  // for a verb that stops on them

  const Settings& settings() const { return resolved.settings; }
};

const std::vector<Verb>& all_verbs();

int run_config(const Invocation& invocation);
int run_eval(const Invocation& invocation);
int run_export(const Invocation& invocation);
int run_generate(const Invocation& invocation);
int run_plan(const Invocation& invocation);
int run_report(const Invocation& invocation);
int run_tokenize(const Invocation& invocation);
int run_tokenizer_train(const Invocation& invocation);
int run_train(const Invocation& invocation);
int run_doctor(const Invocation& invocation);

}  // namespace tessera
