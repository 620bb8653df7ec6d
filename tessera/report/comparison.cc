#include "tessera/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"

namespace tessera {

namespace {

constexpr size_t kMostSettingsInLabel = 4;

std::vector<const RunFolder*> pointers(const std::vector<RunFolder>& runs) {
  std::vector<const RunFolder*> all;
  for (const RunFolder& run : runs) all.push_back(&run);
  return all;
}

const RunFolder& first(const RunGroup& group) {
  return *group.runs[0];
}

FigureOrKey find_column(const std::string& name, const RunSet& set, const char* asked_by) {
  if (const Figure* figure = find_figure(name)) return {figure, ""};
  const bool known = std::any_of(set.runs.begin(), set.runs.end(),
                                 [&](const RunFolder& run) { return !text_of_key(run, name).empty(); });
  if (known) return {nullptr, name};
  std::vector<std::string> names;
  for (const Figure& figure : all_figures()) names.push_back(figure.name);
  throw UsageError(option_place(asked_by),
                   fmt::format("\"{}\" is not a figure, a setting of a run or a key in summary.json", printable(name)),
                   fmt::format("Figures: {}", joined(names)));
}

// The figure that decides which run is the best.
const Figure& figure_of_best(const std::vector<RunGroup>& groups) {
  std::set<std::string> metrics;
  for (const RunGroup& group : groups) metrics.insert(text_of_key(first(group), "metric_for_best_model"));
  std::vector<std::string> names{"eval_loss", "train_loss"};
  if (metrics.size() == 1) names.insert(names.begin(), *metrics.begin());
  for (const std::string& name : names) {
    const Figure* figure = find_figure(name);
    const bool has_values = figure && std::ranges::any_of(groups, [&](const RunGroup& group) {
                              return !measure_of(*figure, group, nullptr, Scaling::automatic).measure.values.empty();
                            });
    if (has_values) return *figure;
  }
  return *find_figure("train_loss");
}

// Empty if there is no other group. No group is the best if none has a value, or if the groups were not measured on the
// same data.
std::optional<BestRun> best_of(const std::vector<RunGroup>& groups) {
  if (groups.size() < 2) return {};
  const Figure& figure = figure_of_best(groups);
  const bool is_loss = figure.unit != FigureUnit::share, trained = figure.name == "train_loss";
  const char* samples = trained ? "train_data.samples" : "eval_data.samples";
  std::optional<size_t> best;
  double best_value = 0, best_speed = 0;
  size_t num_equal = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const char* key : {trained ? "dataset" : "eval_dataset", samples}) {
      const RunFolder &one = first(groups[0]), &other = first(groups[i]);
      if (label_value(one, key) == label_value(other, key)) continue;
      return BestRun{
          {},
          fmt::format("the rows have different {} data ({}: {} in {}, {} in {})", trained ? "training" : "evaluation",
                      key, label_value(one, key), one.name, label_value(other, key), other.name)};
    }
    const auto value_of = [&](const Figure& f) {
      const auto values = measure_of(f, groups[i], nullptr, Scaling::automatic).measure.values;
      return values.empty() ? std::nan("") : values[0];
    };
    const double value = value_of(figure), speed = value_of(*find_figure("samples_per_second"));
    if (!std::isfinite(value)) continue;
    const bool is_equal = best && shown(value, figure.unit) == shown(best_value, figure.unit);
    const bool is_better = !best || (is_loss ? value < best_value : value > best_value);
    num_equal = is_equal ? num_equal + 1 : is_better ? 1 : num_equal;
    if (is_equal ? speed > best_speed : is_better) best = i, best_value = value, best_speed = speed;
  }
  if (!best) return BestRun{{}, fmt::format("no run has a finite {}", figure.title)};
  std::string reason =
      fmt::format("the {} {}, {}", is_loss ? "lowest" : "highest", figure.title, shown(best_value, figure.unit));
  if (num_equal > 1) reason += fmt::format(", and the fastest of {} rows with this value", num_equal);
  return BestRun{best, reason};
}

class Comparer {
 public:
  Comparer(const RunSet& set, const ComparisonOptions& options) : set_(set), options_(options) {}

  Comparison make() {
    result_.groups = groups_of(pointers(set_.runs));
    std::vector<const RunFolder*> firsts;
    for (const RunGroup& group : result_.groups) firsts.push_back(group.runs[0]);
    result_.differing = settings_that_differ(firsts);
    std::erase(result_.differing, "seed");
    for (const std::string& key : options_.rows) find_column(key, set_, "rows");
    choose_labels();
    const size_t baseline = find_baseline();
    sort_groups(baseline);
    choose_columns();
    result_.best = best_of(result_.groups);
    fill();
    return std::move(result_);
  }

 private:
  // The keys whose values form a row's label. If the result is empty, the label is the run's experiment, or the run's
  // name if the run has no experiment.
  std::vector<std::string> label_keys() const {
    if (!options_.rows.empty()) return options_.rows;
    const auto& keys = result_.differing;
    const bool named =
        std::any_of(set_.runs.begin(), set_.runs.end(), [](const RunFolder& run) { return !run.experiment.empty(); });
    return named || keys.size() > kMostSettingsInLabel ? std::vector<std::string>{} : keys;
  }

  void choose_labels() {
    keys_ = label_keys();
    std::map<std::string, int> counts;
    for (const RunGroup& group : result_.groups) {
      const RunFolder& run = first(group);
      const std::string name = run.experiment.empty() ? run.name : run.experiment;
      result_.labels.push_back(keys_.empty()       ? name
                               : keys_.size() == 1 ? label_value(run, keys_[0])
                                                   : label_of(run, keys_));
      ++counts[result_.labels.back()];
    }
    for (size_t i = 0; i < result_.labels.size(); ++i) {
      if (counts[result_.labels[i]] > 1) result_.labels[i] += fmt::format(" ({})", first(result_.groups[i]).name);
    }
  }

  bool is_called(size_t i, const std::string& word) const {
    if (result_.labels[i] == word) return true;
    for (const RunFolder* run : result_.groups[i].runs) {
      std::string path = run->path, given = word;
      while (path.size() > 1 && path.ends_with('/')) path.pop_back();
      while (given.size() > 1 && given.ends_with('/')) given.pop_back();
      if (path == given || run->name == given || run->experiment == given) return true;
    }
    return false;
  }

  bool has_value(size_t i, const std::string& word) const {
    const std::vector<std::string>& keys = keys_.empty() ? result_.differing : keys_;
    return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
      const std::string value = text_of_key(first(result_.groups[i]), key);
      return value == word || key + "=" + value == word;
    });
  }

  size_t find_baseline() const {
    const size_t num_groups = result_.groups.size();
    if (options_.baseline.empty()) return default_baseline();
    for (const bool by_value : {false, true}) {
      std::vector<size_t> found;
      for (size_t i = 0; i < num_groups; ++i) {
        if (by_value ? has_value(i, options_.baseline) : is_called(i, options_.baseline)) found.push_back(i);
      }
      if (found.size() == 1) return found[0];
      if (found.size() > 1) {
        std::vector<std::string> names;
        for (const size_t i : found) names.push_back(first(result_.groups[i]).name);
        throw UsageError(
            option_place("baseline"),
            fmt::format("\"{}\" matches {} rows: {}", printable(options_.baseline), found.size(), joined(names)),
            "Give the name of one of these runs");
      }
    }
    throw UsageError(option_place("baseline"), fmt::format("unknown run or row \"{}\"", printable(options_.baseline)),
                     fmt::format("Use one of: {}", joined(result_.labels)));
  }

  size_t default_baseline() const {
    size_t best = 0;
    for (size_t i = 0; i < result_.groups.size(); ++i) {
      const std::string& name = first(result_.groups[i]).experiment;
      if (name == "baseline" || name.ends_with("/baseline")) return i;
      const auto ranks = [&](size_t j) {
        return find_number(first(result_.groups[j]).summary, "world_size").value_or(1e9);
      };
      if (ranks(i) < ranks(best)) best = i;
    }
    return best;
  }

  void sort_groups(size_t baseline) {
    std::vector<size_t> order(result_.groups.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!options_.sort.empty()) {
      const bool down = options_.sort.starts_with('-');
      const FigureOrKey key = find_column(options_.sort.substr(down ? 1 : 0), set_, "sort");
      const auto cell = [&](size_t i) {
        return cell_of(key, result_.groups[i], &result_.groups[baseline], options_.scaling);
      };
      std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
        const Cell a = cell(i), b = cell(j);
        const auto rank = [](const Cell& c) { return c.text == "-" || c.text == "n/a" || c.text == "NaN"; };
        if (rank(a) || rank(b)) return !rank(a) && rank(b);  // rows without a value come last
        if (!a.values.empty() && !b.values.empty()) {
          return down ? b.values[0] < a.values[0] : a.values[0] < b.values[0];
        }
        return down ? natural_less(b.text, a.text) : natural_less(a.text, b.text);
      });
    }
    std::vector<RunGroup> groups;
    std::vector<std::string> labels;
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i] == baseline) result_.baseline = i;
      groups.push_back(std::move(result_.groups[order[i]]));
      labels.push_back(std::move(result_.labels[order[i]]));
    }
    result_.groups = std::move(groups);
    result_.labels = std::move(labels);
  }

  void choose_columns() {
    if (!options_.columns.empty()) {
      for (const std::string& name : options_.columns) columns_.push_back(find_column(name, set_, "columns"));
      return;
    }
    const auto& groups = result_.groups;
    const auto differs = [&](auto&& value) {
      return std::any_of(groups.begin(), groups.end(), [&](const RunGroup& g) { return value(g) != value(groups[0]); });
    };
    const bool on_gpus =
        std::any_of(groups.begin(), groups.end(), [](const RunGroup& g) { return is_on_gpu(first(g)); });
    const bool scales = differs([](const RunGroup& g) { return find_number(first(g).summary, "world_size"); });
    for (const char* name :
         {"train_loss", "eval_loss", "perplexity", "exact_match", "f1", "HasAns_f1", "NoAns_f1", "samples_per_second",
          "runtime", "gpu_peak", "cpu_peak", "speedup", "efficiency", "memory_saved", "runtime_change"}) {
      const FigureOrKey column{find_figure(name), ""};
      if (column.figure->derived && groups.size() < 2) continue;
      if (column.figure->name == "gpu_peak" && !on_gpus) continue;
      if (column.figure->name == "efficiency" && !scales) continue;
      const bool has_values = std::any_of(groups.begin(), groups.end(), [&](const RunGroup& group) {
        return !cell_of(column, group, &groups[result_.baseline], options_.scaling).values.empty();
      });
      if (has_values) columns_.push_back(column);
    }
  }

  // The notes about a row: how it differs from the baseline, and how many runs it combines.
  std::vector<std::string> notes_of_row(size_t i) const {
    const RunGroup& group = result_.groups[i];
    std::vector<std::string> notes;
    if (i != result_.baseline) {
      notes = unlike(first(group), first(result_.groups[result_.baseline]), result_.labels[result_.baseline]);
    }
    if (group.runs.size() > 1) {
      std::vector<std::string> seeds;
      for (const RunFolder* run : group.runs) seeds.push_back(text_of_key(*run, "seed"));
      notes.push_back(fmt::format(
          "Median of {} runs with the same settings (seeds {}); in brackets the lowest and the highest value",
          group.runs.size(), joined(seeds)));
    }
    return notes;
  }

  void fill() {
    Sheet& sheet = result_.sheet;
    sheet.name = "comparison";
    const bool by_keys = !options_.rows.empty();
    if (by_keys) {
      for (const std::string& key : options_.rows) sheet.columns.push_back({key, key, false});
    } else {
      sheet.columns.push_back({keys_.empty() ? "run" : joined(keys_), "run", false});
    }
    const size_t num_labels = sheet.columns.size();
    for (const FigureOrKey& column : columns_) sheet.columns.push_back({column.title(), column.name(), true});
    for (size_t i = 0; i < result_.groups.size(); ++i) {
      const RunGroup& group = result_.groups[i];
      std::vector<Cell> row;
      if (by_keys) {
        for (const std::string& key : options_.rows) row.push_back({.text = label_value(first(group), key)});
        add_differences(i, row[0]);
      } else {
        row.push_back({.text = result_.labels[i]});
      }
      const std::vector<std::string> notes = notes_of_row(i);
      row[0].notes.insert(row[0].notes.end(), notes.begin(), notes.end());
      for (const FigureOrKey& column : columns_) {
        row.push_back(cell_of(column, group, &result_.groups[result_.baseline], options_.scaling));
      }
      sheet.rows.push_back(std::move(row));
    }
    for (size_t c = 0; c < columns_.size(); ++c) {  // a column without any number is a column of texts
      const bool texts = std::none_of(sheet.rows.begin(), sheet.rows.end(),
                                      [&](const auto& row) { return row[num_labels + c].is_number; });
      sheet.columns[num_labels + c].is_number = !texts;
    }
    add_remarks();
  }

  // Several rows can have the same values of the settings in --rows. They stay separate rows. A note in each of them
  // names its run. Where settings other than the seed differ between these rows, the note also gives its run's values.
  void add_differences(size_t i, Cell& label) const {
    std::vector<const RunFolder*> twins;
    for (size_t j = 0; j < result_.groups.size(); ++j) {
      const RunFolder& other = first(result_.groups[j]);
      if (label_of(other, options_.rows) == label_of(first(result_.groups[i]), options_.rows)) twins.push_back(&other);
    }
    if (twins.size() < 2) return;
    std::vector<std::string> keys = settings_that_differ(twins);
    std::erase(keys, "seed");
    label.notes.push_back(fmt::format("This row shows the run {}{}{}", first(result_.groups[i]).name,
                                      keys.empty() ? "" : " with ",
                                      keys.empty() ? "" : label_of(first(result_.groups[i]), keys)));
  }

  void add_remarks() {
    Sheet& sheet = result_.sheet;
    const bool derives = std::any_of(columns_.begin(), columns_.end(),
                                     [](const FigureOrKey& c) { return c.figure && c.figure->derived; });
    if (derives) sheet.remarks.push_back(fmt::format("Baseline: {}.", result_.labels[result_.baseline]));
    if (result_.best) {
      sheet.best_row = result_.best->group;
      const std::string name = sheet.best_row ? result_.labels[*sheet.best_row] : "none";
      sheet.remarks.push_back(fmt::format("Best: {}: {}.", name, result_.best->reason));
    }
    if (keys_.empty() && !result_.differing.empty()) {
      sheet.remarks.push_back(fmt::format("Settings that differ: {}.", joined(result_.differing)));
    }
    const bool unknown =
        std::any_of(set_.runs.begin(), set_.runs.end(), [](const RunFolder& run) { return run.settings.empty(); });
    if (unknown)
      sheet.remarks.push_back("The settings of some runs are not known. These runs are never merged with other runs.");
  }

  const RunSet& set_;
  const ComparisonOptions& options_;
  Comparison result_;
  std::vector<std::string> keys_;
  std::vector<FigureOrKey> columns_;
};

}  // namespace

std::optional<Sheet> planned_sheet(const Comparison& comparison) {
  Sheet sheet{.name = "planned",
              .title = "Planned and measured",
              .columns = {{"run", "run", false}},
              .rows = {},
              .remarks = {}};
  for (const std::string& label : comparison.labels) sheet.rows.push_back({{.text = label}});
  bool has_plan = false;
  for (const char* name : {"planned_device", "booked_memory", "planned_step", "step_time", "step_ratio"}) {
    const FigureOrKey column{find_figure(name), ""};
    std::vector<Cell> cells;
    for (const RunGroup& group : comparison.groups)
      cells.push_back(cell_of(column, group, nullptr, Scaling::automatic));
    if (std::ranges::all_of(cells, [](const Cell& cell) { return cell.values.empty(); })) continue;
    has_plan = has_plan || std::string_view(name).starts_with("planned");
    sheet.columns.push_back({column.title(), column.name(), true});
    for (size_t i = 0; i < cells.size(); ++i) sheet.rows[i].push_back(std::move(cells[i]));
  }
  return has_plan ? std::optional(std::move(sheet)) : std::nullopt;
}

Cell cell_of(const FigureOrKey& column, const RunGroup& group, const RunGroup* baseline, Scaling scaling) {
  Cell cell;
  if (!column.figure) {
    std::vector<double> numbers;
    std::set<std::string> texts;
    for (const RunFolder* run : group.runs) {
      texts.insert(text_of_key(*run, column.key));
      const auto number = find_number(run->summary, column.key);
      if (number && !run->settings.contains(column.key)) numbers.push_back(*number);
    }
    if (numbers.empty()) {
      cell.text = joined(texts);
      if (cell.text.empty()) cell.text = "-";
      return cell;
    }
    cell.is_number = true;
    cell.values = {median(numbers)};
    cell.text = shown(cell.values[0], FigureUnit::none);
    if (numbers.size() > 1) {
      const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
      cell.low = *low, cell.high = *high;
      cell.text += fmt::format(" ({} to {})", shown(*low, FigureUnit::none), shown(*high, FigureUnit::none));
    }
    return cell;
  }
  const GroupMeasure measure = measure_of(*column.figure, group, baseline, scaling);
  const FigureUnit unit = column.figure->unit;
  cell.is_number = true;
  cell.values = measure.measure.values;
  for (const double value : cell.values) cell.text += (cell.text.empty() ? "" : ", ") + shown(value, unit);
  if (cell.values.empty()) cell.text = measure.measure.applies ? "-" : "n/a";
  if (measure.low && measure.high) {
    cell.low = measure.low, cell.high = measure.high;
    cell.text += fmt::format(" ({} to {})", shown(*measure.low, unit), shown(*measure.high, unit));
  }
  if (!measure.measure.note.empty()) cell.notes = {measure.measure.note};
  return cell;
}

Comparison compare_runs(const RunSet& set, const ComparisonOptions& options) {
  TESSERA_ASSERT(!set.runs.empty());
  return Comparer(set, options).make();
}

}  // namespace tessera
