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
  std::vector<std::string> rows{}, columns{};  // empty: by default
  std::string baseline{}, sort{};              // empty: by default
  Scaling scaling = Scaling::automatic;
};

struct Comparison {
  Sheet sheet;
  std::vector<RunGroup> groups;        // in the order of the sheet's rows
  std::vector<std::string> labels;     // of the groups, each once
  std::vector<std::string> differing;  // settings that differ
  size_t baseline = 0;                 // among the groups
};

// Compares the runs. UsageError: a column, row or sort key that no run has, or a baseline that fits no row or several.
Comparison compare_runs(const RunSet& set, const ComparisonOptions& options);

// One cell: the median of the group, with its spread and notes; "-" if there is none.
Cell cell_of(const FigureOrKey& column, const RunGroup& group, const RunGroup* baseline, Scaling scaling);

}  // namespace tessera
