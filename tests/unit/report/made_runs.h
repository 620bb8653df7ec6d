// Makes run folders with invented results, for the tests of the rooms `report` and `workshop`.
#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tessera/report/run_folder.h"
#include "tessera/report/sheet.h"

namespace tessera {

// A temporary folder with run folders. The destructor removes it.
class MadeRuns {
 public:
  MadeRuns() {
    std::string pattern = (std::filesystem::temp_directory_path() / "runs-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~MadeRuns() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  std::string path(const std::string& name = "") const { return (root_ / name).string(); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
  }

  struct Spec {
    std::string experiment = "";
    double runtime_s = 10;
    int64_t ranks = 1, samples = 100;
    std::map<std::string, std::string> settings = {};  // names, and values as written in TOML
    Record more = Record::object();                    // keys to add to summary.json or to replace in it
  };

  // Writes a complete run folder: summary.json, metrics.jsonl, resolved-config.toml.
  void run(const std::string& name, const Spec& spec) const {
    Record epoch{{"epoch", 1.0}, {"train_loss", 2.0}, {"eval_loss", 1.5}};
    Record summary{
        {"schema", 1},
        {"model", name + "/model"},
        {"version", "0.1.0"},
        {"train_loss", 1.25},
        {"eval_loss", 1.5},
        {"epoch", 1.0},
        {"steps", 10},
        {"num_parameters", 1000},
        {"num_samples", spec.samples},
        {"num_tokens", 10 * spec.samples},
        {"num_targets", spec.samples},
        {"train_data", Record{{"samples", spec.samples}}},
        {"train_runtime", spec.runtime_s},
        {"train_samples_per_second", static_cast<double>(spec.samples) / spec.runtime_s},
        {"train_samples_per_second_steady", static_cast<double>(spec.samples) / spec.runtime_s * 1.5},
        {"world_size", spec.ranks},
        {"device", "cpu"},
        {"machine", Record{{"hosts", std::vector<std::string>{"n1"}}, {"cpus", std::vector<std::string>{"X"}}}},
        {"peak_memory_bytes", 64 << 20},
        {"ledger_peak_bytes", Record{{"parameters", 1 << 20}, {"total", 1 << 20}}},
        {"planned_ledger_peak_bytes", Record{{"parameters", 1 << 20}, {"total", 1 << 20}}},
        {"planned_peak_bytes", 60 << 20},
        {"epochs", std::vector<Record>{epoch}}};
    if (!spec.experiment.empty()) summary["experiment"] = spec.experiment;
    summary.update(spec.more);
    write(name + "/summary.json", to_pretty_json(summary) + "\n");
    std::string metrics;
    for (int step = 1; step <= 10; ++step) {
      metrics += to_json({{"schema", 1},
                          {"kind", "train"},
                          {"step", step},
                          {"epoch", 0.1 * step},
                          {"loss", 3.0 / step},
                          {"learning_rate", 1e-4},
                          {"timing", Record{{"runtime_s", 1.0 * step}, {"samples_per_second", 10.0}}}}) +
                 "\n";
    }
    metrics += to_json({{"schema", 1},
                        {"kind", "eval"},
                        {"step", 10},
                        {"epoch", 1.0},
                        {"eval_loss", 1.5},
                        {"timing", Record{{"eval_runtime", 0.5}}}}) +
               "\n";
    write(name + "/metrics.jsonl", metrics);
    std::map<std::string, std::string> settings{{"model", "\"tiny\""},
                                                {"dataset", "\"data/train.json\""},
                                                {"seed", "42"},
                                                {"strategy", "\"no_shard\""},
                                                {"output_dir", "\"" + name + "\""}};
    for (const auto& [key, value] : spec.settings) settings[key] = value;
    std::string config = "# Model\n";
    for (const auto& [key, value] : settings) config += key + " = " + value + "  # flag --" + key + "\n";
    write(name + "/resolved-config.toml", config);
  }

 private:
  std::filesystem::path root_;
};

// A test that makes runs and reads them.
class MadeRunsTest : public testing::Test {
 protected:
  const RunSet& read() {
    set_ = read_runs({made_.path()});
    EXPECT_TRUE(set_.problems.empty());
    return set_;
  }
  MadeRuns made_;
  RunSet set_;
};

inline std::vector<std::string> texts(const std::vector<Cell>& row) {
  std::vector<std::string> all;
  for (const Cell& cell : row) all.push_back(cell.text);
  return all;
}

}  // namespace tessera
