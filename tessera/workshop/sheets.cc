// Fills the workshop's tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/workshop/tables.h"

namespace tessera {

namespace {

// The runs that fill the cells of one experiment, and notes about these runs. If the experiment has runs that differ in
// settings, data, machine or version, only the first group of equal runs (groups_of()) fills the cells. A note names
// the other runs.
struct Found {
  RunGroup group;
  std::vector<std::string> notes;
};

Found find_experiment(const RunSet& set, const std::string& name) {
  std::vector<const RunFolder*> runs;
  for (const RunFolder& run : set.runs) {
    if (run.experiment == name) runs.push_back(&run);
  }
  const std::vector<RunGroup> groups = groups_of(runs);
  if (groups.empty()) return {};
  Found found{groups[0], {}};
  if (groups.size() > 1) {
    std::vector<std::string> others;
    for (size_t i = 1; i < groups.size(); ++i) {
      for (const RunFolder* run : groups[i].runs) others.push_back(run->path);
    }
    found.notes.push_back(fmt::format(
        "The values are from {}. These runs differ in settings, data, machine or version, and are not shown: {}",
        groups[0].runs[0]->path, joined(others)));
  }
  if (found.group.runs.size() > 1) {
    found.notes.push_back(
        fmt::format("Median of {} runs with the same settings; in brackets the lowest and the highest value",
                    found.group.runs.size()));
  }
  return found;
}

class Filler {
 public:
  Filler(const WorkshopTable& table, const RunSet& set, Scaling scaling) : table_(table), scaling_(scaling) {
    for (const WorkshopExperiment& experiment : table.experiments) {
      found_.push_back(find_experiment(set, experiment.name));
    }
    baseline_ = find_experiment(set, table.baseline);
    note_unequal();
  }

  Sheet fill() {
    sheet_.name = table_.name;
    sheet_.title = table_.title;
    for (const std::string& title : table_.text_columns) sheet_.columns.push_back({title, title});
    table_.figures_are_rows ? fill_by_figures() : fill_by_experiments();
    std::vector<std::string> missing;
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].group.runs.empty()) missing.push_back(table_.experiments[i].name);
    }
    sheet_.remarks = table_.remarks;
    if (!missing.empty()) sheet_.remarks.push_back(fmt::format("No run for: {}.", joined(missing)));
    return std::move(sheet_);
  }

 private:
  // Adds notes to experiments whose model, data, machine or version differs from the baseline of the table. If the
  // baseline has no run, compares with the first experiment that has a run.
  void note_unequal() {
    const Found* reference = baseline_.group.runs.empty() ? nullptr : &baseline_;
    std::string name = table_.baseline;
    for (size_t i = 0; !reference && i < found_.size(); ++i) {
      if (!found_[i].group.runs.empty()) reference = &found_[i], name = table_.experiments[i].name;
    }
    for (Found& found : found_) {
      if (!reference || found.group.runs.empty()) continue;
      for (const std::string& text : unlike(*found.group.runs[0], *reference->group.runs[0], name)) {
        found.notes.push_back(text);
      }
    }
  }

  Cell cell(const WorkshopFigure& figure, const Found& found) const {
    if (found.group.runs.empty()) return {.text = "-", .is_number = true};
    const RunGroup* baseline = baseline_.group.runs.empty() ? nullptr : &baseline_.group;
    // weak_efficiency is the figure "efficiency" for weak scaling: the work grows with the number of ranks.
    const bool weak = figure.figure == "weak_efficiency";
    const Figure* known = find_figure(weak ? "efficiency" : figure.figure);
    Cell cell = cell_of({known, known ? "" : figure.figure}, found.group, baseline, weak ? Scaling::weak : scaling_);
    if (figure.scale == 1) return cell;
    const auto scaled = [&](double value) { return fmt::format("{:.2f}", value * figure.scale); };
    cell.text = cell.values.empty() ? cell.text : "";
    for (double& value : cell.values) {
      cell.text += (cell.text.empty() ? "" : ", ") + scaled(value);
      value *= figure.scale;
    }
    if (cell.low && cell.high) {
      cell.text += fmt::format(" ({} to {})", scaled(*cell.low), scaled(*cell.high));
      cell.low = *cell.low * figure.scale, cell.high = *cell.high * figure.scale;
    }
    return cell;
  }

  void fill_by_figures() {
    const bool has_category = table_.text_columns[0] == "Category";
    for (size_t i = 0; i < found_.size(); ++i) {
      sheet_.columns.push_back({table_.experiments[i].title, table_.experiments[i].name, true, found_[i].notes});
    }
    for (const WorkshopFigure& figure : table_.figures) {
      std::vector<Cell> row;
      if (has_category) row.push_back({.text = figure.category});
      row.push_back({.text = figure.title});
      if (table_.text_columns.size() > row.size()) row.push_back({.text = figure.location});
      for (const Found& found : found_) row.push_back(cell(figure, found));
      sheet_.rows.push_back(std::move(row));
    }
  }

  void fill_by_experiments() {
    for (const WorkshopFigure& figure : table_.figures) sheet_.columns.push_back({figure.title, figure.title, true});
    for (size_t i = 0; i < found_.size(); ++i) {
      std::vector<Cell> row{{.text = table_.experiments[i].title, .notes = found_[i].notes}};
      for (const WorkshopFigure& figure : table_.figures) row.push_back(cell(figure, found_[i]));
      sheet_.rows.push_back(std::move(row));
    }
  }

  const WorkshopTable& table_;
  const Scaling scaling_;
  std::vector<Found> found_;
  Found baseline_;
  Sheet sheet_;
};

}  // namespace

std::vector<Sheet> workshop_sheets(const RunSet& set, Scaling scaling) {
  std::vector<Sheet> sheets;
  for (const WorkshopTable& table : workshop_tables()) sheets.push_back(Filler(table, set, scaling).fill());
  return sheets;
}

}  // namespace tessera
