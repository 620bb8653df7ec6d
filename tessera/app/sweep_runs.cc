#include "tessera/app/sweep_runs.h"

#include <algorithm>

#include "tessera/app/command_line.h"
#include "tessera/app/usage_errors.h"
#include "tessera/base/error.h"

namespace tessera {

std::vector<SweepRun> runs_of_sweep(const std::string& file, const RunFlags& flags, const Environment& environment,
                                    bool on_this_machine) {
  const auto& verbs = all_verbs();
  if (file.empty()) {
    throw UsageError("sweep", "needs a sweep file, or a folder of recipes",
                     "Example: " + std::ranges::find(verbs, "sweep", &Verb::name)->example);
  }
  const Verb& train = *std::ranges::find(verbs, "train", &Verb::name);
  const TrainCommand command{
      .resolve = [&](const std::vector<std::string>& words) { return resolve_words(words, environment, train, verbs); },
      .check =
          [&](const ResolvedSettings& resolved) {
            check_consistent(resolved);
            if (on_this_machine) check_supported(resolved);
            check_required(train, resolved);
          }};
  return expand(read_sweep(file, train.groups), flags, command);
}

}  // namespace tessera
