// How a training run starts: from nothing, from a checkpoint in its output folder, or from a checkpoint elsewhere.
#pragma once

#include <optional>
#include <vector>

#include "tessera/session/session.h"
#include "tessera/store/checkpoint.h"
#include "tessera/train/continuation.h"
#include "tessera/train/train_state.h"

namespace tessera {

struct RunStart {
  struct From {
    Checkpoint checkpoint;
    TrainState state;             // in the checkpoint
    std::vector<Change> changes;  // of the settings, since the run that made the checkpoint
  };
  std::optional<From> from;   // empty: from the initial model
  bool in_new_folder = true;  // the run continues no run of the output folder
  // --resume names a checkpoint of the output folder: newer ones are superseded, and not damaged.
  bool is_chosen = false;
};

// Decides how the run starts, by --resume, --overwrite and the contents of the output folder. Throws UsageError if the
// checkpoint's run had other settings, or if the run would replace results without --overwrite. Reads only.
// `fingerprint`: of this run. Collective.
RunStart choose_start(Session& session, const Record& fingerprint);

// With --overwrite, moves an earlier run in the output folder to a folder of its own. After that, with and without
// --overwrite, renames the checkpoints that are still in the output folder. Call it when a new run has loaded its
// model. Collective.
void make_way(Session& session);
// With --overwrite, removes what make_way() has moved out of the way. Only for the first rank of a finished run.
void forget_overwritten_runs(const Settings& settings, const std::filesystem::path& folder);

// An absolute path without symbolic links and without a slash at its end.
std::filesystem::path full_path(const std::filesystem::path& path);
// "DIR/trainer_state.json", for errors.
std::string state_file(const Checkpoint& checkpoint);

}  // namespace tessera
