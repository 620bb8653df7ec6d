// A table that compares runs. Each row is a group of equal runs (groups_of()). Each column is a figure, such as the
// runtime, or a key (FigureOrKey).
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/differences.h"
#include "tessera/compare/figures.h"
#include "tessera/compare/sheet.h"
#include "tessera/compare/words.h"

namespace tessera {

struct ComparisonOptions {
  // The values of --rows, --columns, --baseline and --sort, as the help of `tessera report` describes them. An
  // empty value means the default.
  std::vector<std::string> rows{}, columns{};
  std::string baseline{}, sort{};
  Scaling scaling = Scaling::automatic;
};

struct Comparison {
  Sheet sheet;
  std::vector<RunGroup> groups;        // in the order of the sheet's rows
  std::vector<std::string> labels;     // the label of each group; all are different
  std::vector<std::string> differing;  // names of settings that differ between groups, except the seed
  size_t baseline = 0;                 // index in `groups`
};

// Compares the runs. Throws UsageError in two cases: a name in `rows`, `columns` or `sort` is not a figure, and no run
// has a setting or key of this name; or `baseline` matches no row or several rows.
Comparison compare_runs(const RunSet& set, const ComparisonOptions& options);

// One cell. For numbers: the median over the runs of the group, with the lowest and the highest value if there are
// several runs. For texts: all different texts. "-" if the runs have no value; "n/a" if such runs cannot have a value.
Cell cell_of(const FigureOrKey& column, const RunGroup& group, const RunGroup* baseline, Scaling scaling);

}  // namespace tessera
