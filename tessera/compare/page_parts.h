// The parts of the HTML page.
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/comparison.h"

namespace tessera {

struct PageRun {
  const RunFolder* run = nullptr;
  std::string label;        // identifies the run among all runs of the page
  std::string short_label;  // without the start that all labels of its cluster share
  size_t color = 0;         // of its curves; the runs of a cluster have different colors
  bool is_baseline = false;
};

// Runs that are drawn together: at most kNumColors.
struct Cluster {
  std::string title;
  std::vector<PageRun> runs;
};

// Up to kNumColors runs make one cluster without a title. More runs are grouped by folder. A run's folder is the part
// before the last '/' of its experiment's name, or of its path if it has no experiment. A run that is alone in its
// folder joins a group in a folder below this one: the first group with fewer than kNumColors runs. A group of more
// than kNumColors runs is divided.
std::vector<Cluster> clusters_of(const Comparison& comparison);

std::string html_label(const std::string& text);  // escaped, with places where a line may break
// A table, with its notes below. base_row: the row of the baseline, or -1.
std::string sheet_as_html(const Sheet& sheet, int base_row);
std::string section(const std::string& id, const std::string& title, const std::string& hint, const std::string& body);

// The sections of the page. A section is empty if the runs have nothing to show there.
std::string glance_section(const std::vector<Cluster>& clusters);
std::string settings_section(const Comparison& comparison);
std::string curves_section(const std::vector<Cluster>& clusters);
std::string memory_section(const std::vector<Cluster>& clusters);
std::string phases_section(const std::vector<Cluster>& clusters);
std::string runs_section(const std::vector<Cluster>& clusters);

// Seconds of a run's training by phase: steps, evaluation, answers, and all other work (start, checkpoints). Empty if
// the runtime is not known.
std::vector<double> seconds_by_phase(const RunFolder& run);

}  // namespace tessera
