// A table that compares runs. Each row is a group of equal runs (groups_of()). The columns after the row's label show
// figures, such as the runtime, or keys (FigureOrKey).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/report/differences.h"
#include "tessera/report/figures.h"
#include "tessera/report/sheet.h"

namespace tessera {

struct ComparisonOptions {
  // The values of --rows, --columns, --baseline and --sort, as the help of `tessera report` describes them. An
  // empty value means the default.
  std::vector<std::string> rows{}, columns{};
  std::string baseline{}, sort{};
  Scaling scaling = Scaling::automatic;
};

// The best of several groups. It has the best value of the figure that --metric-for-best-model of the runs names, or
// the lowest eval loss. If no run was evaluated, it has the lowest train loss. Of groups with the same value as shown,
// the fastest one is the best.
struct BestRun {
  std::optional<size_t> group;  // index in `groups`; empty if no run is the best
  std::string reason;           // "the lowest eval loss, 1.2345"; without a best run, why there is none
};

struct Comparison {
  Sheet sheet;
  std::vector<RunGroup> groups;        // in the order of the sheet's rows
  std::vector<std::string> labels;     // the label of each group; all are different
  std::vector<std::string> differing;  // names of settings that differ between groups, except the seed
  size_t baseline = 0;                 // index in `groups`
  std::optional<BestRun> best;         // empty if there is only one group
};

// Compares the runs. Throws UsageError if a name in `rows`, `columns` or `sort` is neither a figure nor a key of any
// run. Also throws UsageError if `baseline` matches no row or several rows.
Comparison compare_runs(const RunSet& set, const ComparisonOptions& options);

// A table of the planned and the measured memory and time of a step, with the rows of the comparison. Empty if no run
// has a plan.
std::optional<Sheet> planned_sheet(const Comparison& comparison);

// The cell of `group` in `column`. If several runs of the group have a number, the cell shows the median, the lowest
// and the highest number. (A figure that is derived from the group and `baseline` has only one number.) If the values
// of a key are texts, the cell shows each different text once. "-" means that the runs have no value. "n/a" means that
// such runs cannot have a value, for example GPU use on CPU ranks.
Cell cell_of(const FigureOrKey& column, const RunGroup& group, const RunGroup* baseline, Scaling scaling);

}  // namespace tessera
