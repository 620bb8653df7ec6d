#include "tessera/train/memory_log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/log/memory_logs.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// If `path` exists (an earlier start of the run wrote it), adds the next free number to the name of this file.
void set_aside(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return;
  for (int number = 1;; ++number) {
    const fs::path other =
        path.parent_path() / fmt::format("{}.{}{}", path.stem().string(), number, path.extension().string());
    if (fs::exists(fs::symlink_status(other, error))) continue;
    fs::rename(path, other, error);
    if (error) {
      throw RunError(path.string(), fmt::format("cannot be renamed to {}: {}", other.string(), error.message()),
                     "Give --memory-log another folder");
    }
    return;
  }
}

OutputFile new_log(const fs::path& path) {
  set_aside(path);
  return OutputFile(path.string(), O_TRUNC);
}

Record bytes_of(const Ledger& ledger) {
  Record bytes = Record::object();
  for (int i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (const int64_t held = ledger.current(category); held != 0) bytes[name_of(category)] = held;
  }
  return bytes;
}

}  // namespace

MemoryLogFiles::MemoryLogFiles(const MemoryLogNames& names, MemorySources sources)
    : sources_(std::move(sources)), host_(names.host) {
  const std::string node = names.has_other_nodes ? "_" + names.host : "";
  if (!sources_.node_gpus.empty()) {
    gpu_.emplace(new_log(names.folder / fmt::format("gpu_memory_log{}.csv", node)));
    gpu_->append(kGpuLogHeader);
  }
  if (sources_.tree) {
    cpu_.emplace(new_log(names.folder / fmt::format("cpu_memory_log{}.txt", node)));
    cpu_->append(cpu_log_header());
  }
  ledger_.emplace(new_log(names.folder / fmt::format("ledger-rank-{}.jsonl", names.rank)));
}

void MemoryLogFiles::sample(double elapsed_s, std::chrono::system_clock::time_point time, int64_t step) {
  if (gpu_) sample_gpus(time);
  if (cpu_) sample_processes(elapsed_s);
  sample_ledgers(time, step);
}

void MemoryLogFiles::sample_gpus(std::chrono::system_clock::time_point time) {
  std::string lines;
  for (const LoggedGpu& logged : sources_.node_gpus) {
    const GpuSample sample = sources_.nvml->sample(logged.gpu);
    if (!sample.memory_bytes) continue;
    const auto mib = [](const std::optional<double>& bytes) { return static_cast<int64_t>(bytes.value_or(0) / kMiB); };
    lines += gpu_log_line({.time = time,
                           .index = logged.identity.index,
                           .name = logged.identity.name,
                           .used_mib = mib(sample.memory_bytes),
                           .total_mib = mib(sample.memory_total_bytes)});
    gpu_mib_[logged.identity.index].add(static_cast<double>(mib(sample.memory_bytes)));
  }
  gpu_->append(lines);
}

void MemoryLogFiles::sample_processes(double elapsed_s) {
  const ProcessTree::Sample sample = sources_.tree->sample(elapsed_s);
  const double real_mb = static_cast<double>(sample.resident_bytes) / kMiB;
  cpu_->append(cpu_log_line({.elapsed_s = elapsed_s,
                             .cpu_percent = sample.cpu_percent,
                             .real_mb = real_mb,
                             .virtual_mb = static_cast<double>(sample.virtual_bytes) / kMiB}));
  real_mb_.add(as_logged(real_mb));
}

void MemoryLogFiles::sample_ledgers(std::chrono::system_clock::time_point time, int64_t step) {
  using std::chrono::duration_cast, std::chrono::milliseconds;
  const auto ms = duration_cast<milliseconds>(time.time_since_epoch()).count();
  Record record{{"time", static_cast<double>(ms) / 1000},     {"step", step},
                {"phase", name_of(sources_.device->phase())}, {"device", bytes_of(*sources_.device)},
                {"host", bytes_of(*sources_.host)},           {"resident_bytes", resident_bytes(getpid())}};
  if (sources_.own_gpu) {
    const GpuSample sample = sources_.nvml->sample(*sources_.own_gpu);
    if (sample.utilization_percent) record["gpu_utilization_percent"] = *sample.utilization_percent;
  }
  ledger_->append(to_json(record) + "\n");
}

Record MemoryLogFiles::statistics() const {
  Record record = Record::object();
  for (const auto& [index, statistics] : gpu_mib_) {
    Record gpu{{"host", host_}, {"index", index}};
    gpu.update(memory_record(statistics, "mib"));
    record["gpu"].push_back(gpu);
  }
  if (real_mb_.count() > 0) record["cpu"] = memory_record(real_mb_, "mb");
  return record;
}

Record combined_memory_statistics(const std::vector<Record>& ranks) {
  Record all = Record::object();
  for (const Record& rank : ranks) {
    if (const auto gpus = rank.find("gpu"); gpus != rank.end()) {
      for (const Record& gpu : *gpus) all["gpu"].push_back(gpu);
    }
    const auto cpu = rank.find("cpu");
    if (cpu == rank.end()) continue;
    if (!all.contains("cpu") || all["cpu"]["peak_mb"] < cpu->at("peak_mb")) all["cpu"] = *cpu;
  }
  return all;
}

}  // namespace tessera
