// The parts of the HTML page of `tessera report --html`.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/comparison.h"

namespace tessera {

struct PageRun {
  const RunFolder* run = nullptr;
  std::string label;        // identifies the run among all runs of the page
  std::string short_label;  // without the folders that all labels of the cluster begin with
  size_t color = 0;         // number of the run's color in charts; different for each run of a cluster
  bool is_baseline = false, is_best = false;
};

// Runs that share charts: at most kNumColors.
struct Cluster {
  std::string title;
  std::vector<PageRun> runs;
};

// Up to kNumColors runs make one cluster without a title. More runs are grouped by folder. A run's folder is the part
// before the last '/' of its experiment's name, or of its path if it has no experiment. If a run is alone in its
// folder, it joins the first group of a subfolder that has fewer than kNumColors runs. A run without a folder does not
// join other groups. A group of more than kNumColors runs is divided into several clusters.
std::vector<Cluster> clusters_of(const Comparison& comparison);

inline constexpr const char* kBestBadge = " <span class=\"best\">best</span>";  // after the name of the best run

std::string html_label(const std::string& text);  // escaped, with places where a line may break
// A table, with its notes below. base_row: the index of the baseline's row, or -1 if no row is the baseline.
std::string sheet_as_html(const Sheet& sheet, int base_row);
std::string section(const std::string& id, const std::string& title, const std::string& hint, const std::string& body);

// The sections of the page. Each function returns an empty text if the runs have no data for its section.
std::string loss_section(const std::vector<Cluster>& clusters);   // bars and curves of losses and scores
std::string speed_section(const std::vector<Cluster>& clusters);  // the same for speed, memory and learning rate
std::string settings_section(const Comparison& comparison);
std::string memory_section(const std::vector<Cluster>& clusters);
std::string phases_section(const std::vector<Cluster>& clusters);
std::string runs_section(const std::vector<Cluster>& clusters);

// The seconds that a training run spent on its steps, on evaluation, on generating answers, and on all other work
// (start, checkpoints), in this order. Empty if the runtime is not known.
std::vector<double> seconds_by_phase(const RunFolder& run);

}  // namespace tessera
