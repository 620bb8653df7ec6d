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
  std::string output_dir{};              // different for each run of the sweep
  std::vector<std::string> arguments{};  // the arguments of this program: "train", the recipe, flags
  ResolvedSettings resolved{};           // checked by TrainCommand::check
};

// How `tessera train` reads its arguments. The arguments do not include the word "train".
struct TrainCommand {
  // Resolves the settings. Throws UsageError for an unknown or invalid setting.
  std::function<ResolvedSettings(const std::vector<std::string>&)> resolve;
  // Checks that the settings are complete, consistent and supported. Throws UsageError.
  std::function<void(const ResolvedSettings&)> check;
};

// Flags that apply to every run: the settings, and their values as written.
using RunFlags = std::vector<std::pair<const Setting*, std::string>>;

// Returns all runs of a sweep, each checked. First come the runs of the matrix: for each recipe, every combination of
// the matrix's values (the first setting changes slowest). Then come the entries [[run]]. If a file has entries, but
// neither [matrix] nor `recipes`, its entries are its only runs. Each combination and each entry is repeated `repeats`
// times in a row. Flags override the settings of the sweep. The settings of the sweep override the recipe. A flag for
// a setting of [matrix] throws UsageError.
//
// The flag --output-dir replaces the template output_dir of the file. A template without braces means TEMPLATE/{name}.
// Without a template, the folder of a run depends on the output_dir of its recipe:
// - If the recipe has an output_dir and only one run in the sweep, the run uses this output_dir.
// - If the recipe has an output_dir and several runs, each run uses the subfolder {name} of it.
// - If the recipe has no output_dir, the run uses runs/TITLE/{name}, where TITLE is the title of the sweep.
//
// By default, the name of a run consists of the recipe's name (if there are several recipes) and the settings that
// differ between the runs: "zero_1,nproc=2".
//
// Throws UsageError with the place in the file, for example if a rule (a value that is an expression) is invalid, an
// exclusion matches no combination of the matrix, no run is left, two runs have the same folder, or train.check() finds
// an error.
std::vector<SweepRun> expand(const SweepFile& sweep, const RunFlags& flags, const TrainCommand& train);

// Returns the template `text`, with value_of(word) in the place of each {word}. Throws UsageError with `where` if a
// brace has no partner.
std::string filled_template(const std::string& text, const std::function<std::string(const std::string&)>& value_of,
                            const std::string& where);

}  // namespace tessera
