// The machines whose speeds are known: files of measured machines, and GPUs with data sheets.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/counting/machine.h"
#include "tessera/engine/plan.h"
#include "tessera/log/console.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The name of the device of this machine: of its GPU, or of its processor with the number of threads of a rank.
std::string name_of_device(DeviceKind device, int num_threads);

// The file of a measured machine: $XDG_CACHE_HOME/tessera/machines/NAME.json, otherwise below ~/.cache. With several
// ranks on a node, NAME ends with their number, because they share the memory and the links of the node. Empty if
// neither variable is set.
std::string machine_file(const std::string& device_name, int ranks_of_node);
// The content of the file: JSON with one measured value per line.
std::string machine_text(const Machine& machine);
// Writes the file. Throws RunError.
void save_machine(const Machine& machine, const std::string& path);

// What the machine's speeds lack for a run: "links between nodes". Empty if they lack nothing.
std::string unknown_speeds_of(const Machine& machine, const PlannedRank& rank, const Settings& settings);

// Prints the most important speeds.
void print_machine(const Machine& machine, Console& console);

// The machine to predict times for: the one that --machine names, otherwise this machine if it was measured, otherwise
// its GPU if that is known (known_gpus.h). Links of a GPU that were not measured have typical speeds. Empty if nothing
// is known, or if the file of this machine is damaged. Throws UsageError if --machine names neither a file nor a known
// GPU, or a machine with another kind of device; InputError if its file is damaged.
std::optional<Machine> planned_machine(const Settings& settings, const PlannedRank& rank);

// The machine to compare configurations on: planned_machine() if it is known, otherwise a typical one. Everything that
// a configuration may need has a speed.
Machine assumed_machine(const Settings& settings, const PlannedRank& rank);

}  // namespace tessera
