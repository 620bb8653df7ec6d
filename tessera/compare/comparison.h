// The comparison of any runs: one row per group of equal runs, one column per figure.
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/differences.h"
#include "tessera/compare/figures.h"
#include "tessera/compare/sheet.h"
#include "tessera/compare/words.h"

namespace tessera {

struct ComparisonOptions {
  std::vector<std::string> rows{}, columns{};  // empty: the defaults
  std::string baseline{}, sort{};              // empty: the default baseline, and rows in the order of the runs
  Scaling scaling = Scaling::automatic;
};

struct Comparison {
  Sheet sheet;
  std::vector<RunGroup> groups;        // in the order of the sheet's rows
  std::vector<std::string> labels;     // the label of each group; all are different
  std::vector<std::string> differing;  // names of settings that differ, except the seed
  size_t baseline = 0;                 // index in `groups`
};

// Compares the runs. Throws UsageError if a name in the options is neither a figure nor a setting or key of any run.
// Also throws UsageError if the baseline matches no row or several rows.
Comparison compare_runs(const RunSet& set, const ComparisonOptions& options);

// One cell: the median of the group, with the lowest and the highest value and with notes. "-" if there is no value;
// "n/a" if the runs cannot have one.
Cell cell_of(const FigureOrKey& column, const RunGroup& group, const RunGroup* baseline, Scaling scaling);

}  // namespace tessera
