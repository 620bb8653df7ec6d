// The twelve tables of the workshop, filled from runs by the names of their experiments.
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/comparison.h"

namespace tessera {

struct WorkshopExperiment {
  std::string title;  // of its row or column: "2 GPUs"
  std::string name;   // the label of the run (--experiment): "deepspeed/deepspeed-multi-gpu/2_gpus"
};

struct WorkshopFigure {
  std::string title;       // "Peak GPU Memory (MiB)"
  std::string figure;      // a name of all_figures(), or a key
  std::string category{};  // the first text column, where the table has one
  std::string location{};  // where a run has it, where the table has a column for that
  double scale = 1;        // 1/1024: GB
};

struct WorkshopTable {
  std::string name, title;
  bool figures_are_rows = true;             // else experiments are
  std::vector<std::string> text_columns{};  // titles before the values
  std::vector<WorkshopExperiment> experiments{};
  std::vector<WorkshopFigure> figures{};
  std::string baseline{};  // the experiment that derived figures compare with
  std::vector<std::string> remarks{};
};

const std::vector<WorkshopTable>& workshop_tables();

// The tables. A cell without a run is "-", and a remark names the missing experiments.
std::vector<Sheet> workshop_sheets(const RunSet& set, Scaling scaling);

}  // namespace tessera
