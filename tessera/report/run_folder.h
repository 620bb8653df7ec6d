// The output folders of finished runs, read and checked.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/report/summary_values.h"

namespace tessera {

// A record of metrics.jsonl: kind "train". A value is NaN if the record does not have it or has null.
struct TrainPoint {
  int64_t step = 0;
  double epoch, loss, learning_rate, runtime_s, samples_per_second;
};
// A record of kind "eval".
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
  std::string name;                             // the end of the path: as few folders as make all names different
  std::string experiment;                       // the label that --experiment gave; empty: none
  Record summary = Record::object();            // summary.json
  std::map<std::string, std::string> settings;  // resolved-config.toml: the values as text; empty if it is missing
  std::vector<TrainPoint> train;
  std::vector<EvalPoint> evals;
  std::vector<MemorySeries> memory;
};

struct RunSet {
  std::vector<RunFolder> runs;        // in the order of the arguments; within a folder by name, 2_gpus before 16_gpus
  std::vector<std::string> problems;  // one line for each folder, file or value that could not be used
};

// Reads the runs in these folders. A folder is a run if it holds a summary.json, metrics.jsonl or resolved-config.toml.
// Otherwise the folders below it are searched. If a run has no summary.json, or the content of a folder is wrong, adds
// a problem and does not throw.
RunSet read_runs(const std::vector<std::string>& paths);

// Reads settings as Tessera writes them to resolved-config.toml, one per line. Omits lines of another form.
std::map<std::string, std::string> parse_resolved_config(std::string_view text);

// Read the two files of --memory-log: nvidia-smi's CSV (memory.used in MiB, by GPU) and psrecord's table (resident
// memory). Omit lines of another form. `node`: the host in the names of the series. If it is empty, the names
// contain no host.
std::vector<MemorySeries> parse_gpu_memory_log(std::string_view text, const std::string& node);
MemorySeries parse_cpu_memory_log(std::string_view text, const std::string& node);

}  // namespace tessera
