// The settings of a run with --fit, or with `auto` for what it offloads or recomputes: the fastest ones that fit.
#pragma once

#include <set>
#include <string>

#include "tessera/plan/fit.h"
#include "tessera/session/session.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// The names of settings that a search must not change: those from flags and from DeepSpeed's file. If only `auto` asks
// for a search, all settings.
std::set<std::string> fixed_settings(const ResolvedSettings& resolved);

// What a search has chosen, and for how many ranks: for checkpoints.
Record choice_record(const Settings& chosen, int world_size);

// Rank 0 searches with the least memory of all ranks. A run that continues from a checkpoint keeps the choice of the
// checkpoint's run if it still fits this world and memory; otherwise a note says what changes. Throws
// OutOfMemoryError if nothing fits.
// `request`: the functions that describe the work, and the fixed settings; this adds the others. Collective.
Settings chosen_settings(Session& session, FitRequest request);

// The resolved settings of the run with the chosen ones. Their text starts the same run again, without a search.
ResolvedSettings with_choice(ResolvedSettings resolved, const Settings& chosen);

}  // namespace tessera
