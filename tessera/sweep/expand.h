// The runs of a sweep: every combination of recipes and settings, as complete commands.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/settings/resolve.h"
#include "tessera/sweep/sweep_file.h"

namespace tessera {

// A run of a sweep.
struct SweepRun {
  std::string name;                      // may contain slashes
  std::string output_dir{};              // no other run of the sweep has it
  std::vector<std::string> arguments{};  // of this program: "train", the recipe, flags
  ResolvedSettings resolved{};           // checked
};

// How `tessera train` reads its arguments, without the word "train".
struct TrainCommand {
  // Resolves the settings. Throws UsageError for an unknown or invalid setting.
  std::function<ResolvedSettings(const std::vector<std::string>&)> resolve;
  // Checks that the settings are complete, consistent and supported. Throws UsageError.
  std::function<void(const ResolvedSettings&)> check;
};

// The settings of flags that apply to every run, with their values as written.
using RunFlags = std::vector<std::pair<const Setting*, std::string>>;

// All runs, each checked: for each recipe the product of the matrix (the first setting changes slowest) and the
// repeats, then the entries [[run]]. Flags override the settings of the sweep, and these override the recipe.
//
// A flag --output-dir replaces the template of the file. Without a template, a recipe with one run keeps its own
// output_dir. Other runs go to FOLDER/{name}, where FOLDER is the output_dir of the recipe, or runs/TITLE. The default
// name is the recipe's, if there are several, with the settings that differ: "zero_1,nproc=2".
//
// Throws UsageError with the place in the file: an invalid rule, an exclusion that fits nothing, no run left, two runs
// with one folder, or what check() finds.
std::vector<SweepRun> expand(const SweepFile& sweep, const RunFlags& flags, const TrainCommand& train);

// Replaces every {word} of a template. Throws UsageError with `where` if a brace has no partner.
std::string filled_template(const std::string& text, const std::function<std::string(const std::string&)>& value_of,
                            const std::string& where);

}  // namespace tessera
