// tessera sweep
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tessera/app/sweep_runs.h"
#include "tessera/base/error.h"
#include "tessera/comm/world.h"
#include "tessera/log/console.h"
#include "tessera/sweep/sweep.h"

namespace tessera {
namespace {

// Prints each warning about settings once.
void print_warnings(const std::vector<SweepRun>& runs, Console& console) {
  std::set<std::string> printed;
  for (const SweepRun& run : runs) {
    for (const std::string& warning : run.resolved.warnings) {
      if (printed.insert(warning).second) console.note("warning: " + warning);
    }
  }
}

}  // namespace

int run_sweep_verb(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  if (const auto ranks = detect_ranks(invocation.environment); ranks && ranks->size > 1) {
    throw UsageError("sweep",
                     fmt::format("starts its ranks itself, but {} has started {} ranks", ranks->source, ranks->size),
                     "Start it as one process. --nproc N gives every run N ranks");
  }
  const std::vector<SweepRun> runs =
      runs_of_sweep(invocation.own_file, invocation.run_flags, invocation.environment, true);
  Console console = Console::of_process(settings.bars(), Console::LostOutput::is_noted);
  print_warnings(runs, console);
  if (settings.dry_run) {
    if (settings.json) console.print(to_json(sweep_record(runs, {})));
    for (const SweepRun& run : runs) {
      if (!settings.json) console.print(command_of(run));
    }
    return static_cast<int>(ExitCode::kDone);
  }
  const SweepEnd end = run_sweep(runs, console);
  console.print(settings.json ? to_json(sweep_record(runs, end.results))
                              : sweep_report(runs, end.results, console.out_terminal()));
  return end.exit_code;
}

}  // namespace tessera
