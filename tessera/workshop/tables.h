// The twelve tables of KAUST's workshop (docs/workshop.md). A run's label (--experiment) decides which cells the run
// fills.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/comparison.h"

namespace tessera {

struct WorkshopExperiment {
  std::string title;  // the title of the experiment's row or column: "2 GPUs"
  std::string name;   // the label (--experiment) of its runs: "deepspeed/deepspeed-multi-gpu/2_gpus"
};

struct WorkshopFigure {
  std::string title;       // "Peak GPU Memory (MiB)"
  std::string figure;      // a name of all_figures(), or a key (FigureOrKey)
  std::string category{};  // the text of the column "Category", if the table has one
  std::string location{};  // where to find the figure of a run; the text of the column after the title, if any
  double scale = 1;        // multiplies the value: 1/1024 for a figure in MiB that is shown in GB
};

struct WorkshopTable {
  std::string name, title;
  bool figures_are_rows = true;             // false: experiments are rows
  std::vector<std::string> text_columns{};  // titles of the columns of text, left of the values
  std::vector<WorkshopExperiment> experiments{};
  std::vector<WorkshopFigure> figures{};
  std::string baseline{};  // the label of the experiment that derived figures, such as speedup, compare with
  std::vector<std::string> remarks{};
};

const std::vector<WorkshopTable>& workshop_tables();

// Fills the tables with the figures of the runs. A cell without a run is "-", and a remark names the missing
// experiments.
std::vector<Sheet> workshop_sheets(const RunSet& set, Scaling scaling);

}  // namespace tessera
