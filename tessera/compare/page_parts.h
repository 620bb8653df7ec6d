// The parts of the HTML page.
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/comparison.h"

namespace tessera {

struct PageRun {
  const RunFolder* run = nullptr;
  std::string label;        // on the whole page
  std::string short_label;  // in its cluster
  size_t color = 0;         // of its curves, one each in a cluster
  bool is_baseline = false;
};

// Runs that are drawn together: at most kNumColors.
struct Cluster {
  std::string title;
  std::vector<PageRun> runs;
};

// Few runs make one cluster without a title. More runs are grouped by folder: by the folder of their experiments'
// names, or of their paths. A group of one run joins the first group in a subfolder.
std::vector<Cluster> clusters_of(const Comparison& comparison);

std::string html_label(const std::string& text);  // escaped, with places where a line may break
// base_row: the row of the baseline, or -1.
std::string sheet_as_html(const Sheet& sheet, int base_row);
std::string section(const std::string& id, const std::string& title, const std::string& hint, const std::string& body);

// Each is a section, or empty if the runs have nothing to show there.
std::string glance_section(const std::vector<Cluster>& clusters);
std::string settings_section(const Comparison& comparison);
std::string curves_section(const std::vector<Cluster>& clusters);
std::string memory_section(const std::vector<Cluster>& clusters);
std::string phases_section(const std::vector<Cluster>& clusters);
std::string runs_section(const std::vector<Cluster>& clusters);

// Seconds of a run's training by phase: steps, evaluation, answers, the rest (start, checkpoints). Empty: not known.
std::vector<double> seconds_by_phase(const RunFolder& run);

}  // namespace tessera
