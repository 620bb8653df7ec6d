// The figures of a report: values such as the eval loss or the runtime. A column shows one figure. A figure is computed
// from one run, or derived from a group of equal runs and a baseline.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/report/run_folder.h"

namespace tessera {

// The value of a figure for a run.
struct Measure {
  std::vector<double> values{};  // usually one; the mode of memory can be several values; empty: no value
  std::string note{};            // a remark on the value, or why it is missing
  bool applies = true;           // false: the run cannot have a value, for example GPU use on CPU ranks
};

// One run, or several equal runs (groups_of() in differences.h).
struct RunGroup {
  std::vector<const RunFolder*> runs;
};

// The middle value, or the mean of the two middle values. NaN if there are no values.
double median(std::vector<double> values);
// The values that occur most often, in ascending order. Ignores NaN.
std::vector<double> modes(const std::vector<double>& values);

// How the work of a run grows with its ranks. This decides the definition of the efficiency:
//   strong     T1/(N*TN)
//   weak       T1/TN
//   workshop   TN/T1, the inverse of weak
//   automatic  strong or weak: compares the work of the run with the work of the baseline
// T1 is the runtime of the baseline, and TN is the runtime of the run. N is the run's number of ranks divided by the
// baseline's number of ranks.
enum class Scaling { automatic, strong, weak, workshop };

// The efficiency as a ratio (1 is 100 %). Runtimes are in seconds. `automatic` counts as strong here.
double scaling_efficiency(Scaling scaling, double baseline_s, double baseline_ranks, double runtime_s, double ranks);

enum class FigureUnit { none, text, seconds, step_seconds, rate, share, percent, mib, count, ratio, perplexity };

struct Figure {
  std::string name;                    // on the command line: "eval_loss"
  std::vector<std::string> aliases{};  // "em"
  std::string title;                   // the title of its column: "eval loss"
  FigureUnit unit = FigureUnit::none;
  std::function<Measure(const RunFolder&)> of_run{};
  // For a figure that is derived from a group and the baseline. Either `of_run` or `derived` is null.
  std::function<Measure(const RunGroup&, const RunGroup& baseline, Scaling)> derived{};
};

const std::vector<Figure>& all_figures();
// `name`: the name or an alias of the figure, with dashes or underscores. Returns nullptr if no figure has this name.
const Figure* find_figure(std::string_view name);

// A figure of all_figures(), or a key: the name of a setting, or a key of summary.json such as "gpu.power_w.mean".
struct FigureOrKey {
  const Figure* figure = nullptr;
  std::string key{};  // only if `figure` is null
  std::string title() const { return figure ? figure->title : key; }
  std::string name() const { return figure ? figure->name : key; }
};

// The text of a setting or of a key of summary.json: "zero1" or "2". "" if the run has no such setting or key. The
// keys "run" and "experiment" give the names of the run and of its experiment.
std::string text_of_key(const RunFolder& run, const std::string& key);

// The value of a figure as its column shows it, without the unit: "1.2345", "37.1", "1,234".
std::string shown(double value, FigureUnit unit);

// Whether the run computed on GPUs.
bool is_on_gpu(const RunFolder& run);

// The value of a figure for a group. For a figure computed from one run: the median over the group's runs, with the
// lowest and the highest value.
struct GroupMeasure {
  Measure measure;
  std::optional<double> low, high;  // not set if the group has one run or no value, or the figure is derived
};
GroupMeasure measure_of(const Figure& figure, const RunGroup& group, const RunGroup* baseline, Scaling scaling);

}  // namespace tessera
