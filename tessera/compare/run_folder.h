// The output folders of finished runs, read and checked.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compare/summary_values.h"

namespace tessera {

// One record of metrics.jsonl of kind "train". NaN: the record does not have the value, or JSON's null.
struct TrainPoint {
  int64_t step = 0;
  double epoch, loss, learning_rate, runtime_s, samples_per_second;
};
struct EvalPoint {
  int64_t step = 0;
  double epoch, loss, runtime_s, answers_runtime_s;
};

// Memory sampled over time (a file of --memory-log).
struct MemorySeries {
  std::string name;  // "GPU 0 of node1", "CPU of node1"
  std::vector<double> seconds, mib;
};

struct RunFolder {
  std::string path;                             // as it was found
  std::string name;                             // the end of the path that no other run has
  std::string experiment;                       // empty: the run has no label
  Record summary = Record::object();            // summary.json
  std::map<std::string, std::string> settings;  // resolved-config.toml: the values as text; empty if it is missing
  std::vector<TrainPoint> train;
  std::vector<EvalPoint> evals;
  std::vector<MemorySeries> memory;
};

struct RunSet {
  std::vector<RunFolder> runs;        // in the order of the arguments; within a folder by name, 2_gpus before 16_gpus
  std::vector<std::string> problems;  // what could not be used, one line each
};

// Reads the runs in these folders. A folder is a run if it holds a summary.json, metrics.jsonl or resolved-config.toml;
// otherwise the folders below it are searched. Never throws because of the content of a folder: it reports problems.
RunSet read_runs(const std::vector<std::string>& paths);

// Settings as Tessera writes them to resolved-config.toml, one per line. Lines of another form are left out.
std::map<std::string, std::string> parse_resolved_config(std::string_view text);

// The two files of --memory-log: nvidia-smi's CSV (memory.used in MiB by GPU) and psrecord's table (resident MB). Lines
// of another form are left out.
std::vector<MemorySeries> parse_gpu_memory_log(std::string_view text, const std::string& node);
MemorySeries parse_cpu_memory_log(std::string_view text, const std::string& node);

}  // namespace tessera
