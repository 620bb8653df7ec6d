#include "tessera/train/measurements.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tessera/base/clock.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/nvml/gpu_health.h"
#include "tessera/log/progress.h"
#include "tessera/train/gpu_record.h"

namespace tessera {

namespace {

// The peak resident memory of this process, in bytes; 0: unknown.
int64_t peak_resident_bytes() {
  // getrusage() would be wrong: after fork and exec, its peak still includes the memory of the parent process.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  return 0;
}

}  // namespace

Measurements::Measurements(Session& session) : session_(session), speed_(steady_seconds()) {
  memory_log_ = start_memory_log(session.settings(), session.worker(), session.console());
}

void Measurements::begin(int64_t step) {
  speed_ = SpeedFigures(steady_seconds());
  if (memory_log_) memory_log_->note_step(step);
  gpu_sampler_ = make_gpu_sampler(session_.worker().device());
}

void Measurements::add(int64_t step, const StepResult& result, const std::optional<StepSeconds>& seconds) {
  if (seconds) {
    steps_.add(*seconds);
  } else {
    steps_.skip();
  }
  if (memory_log_) memory_log_->note_step(step);
  utilization_.add(session_.worker().device().ledger().current_total(),
                   gpu_sampler_ ? gpu_sampler_->latest() : GpuSample{});
  speed_.add(result.num_sequences);
}

Surroundings Measurements::surroundings(const Record& gpu) const {
  Worker& worker = session_.worker();
  const auto number = [&](const char* key, const char* name) {
    const auto numbers = gpu.find(key);
    return numbers != gpu.end() ? numbers->at(name).get<double>() : 0.0;
  };
  Surroundings s{.own_threads = worker.local_ranks().count * session_.pool().num_threads(),
                 .num_cores = static_cast<int>(std::thread::hardware_concurrency())};
  if (getloadavg(&s.load, 1) != 1) s.load = 0;
  s.on_gpu = worker.device().kind() == DeviceKind::cuda;
  if (!s.on_gpu) return s;
  s.clocks_reduced_by = gpu_health(cuda_pci_address_of(worker.device())).slowed_by.value_or("");
  s.clock_mhz = number("sm_clock_mhz", "mean");
  s.peak_clock_mhz = number("sm_clock_mhz", "peak");
  const double own = number("process_memory_bytes", "peak");
  if (own > 0) s.gpu_bytes_of_others = static_cast<int64_t>(number("memory_bytes", "peak") - own);
  return s;
}

Record Measurements::gpu_of_all_ranks() {
  Record mine = Record::object();
  if (gpu_sampler_) mine = gpu_record(gpu_sampler_->usage());
  gpu_sampler_.reset();
  std::vector<Record> records;
  for (const std::string& text : session_.world().all_gather_text(to_json(mine), "use of GPUs")) {
    records.push_back(record_from_json(text, "another rank's use of its GPU"));
  }
  return highest_of(records);
}

// The figures of callback_figures.h since this process started to train. Collective.
Record Measurements::callbacks_of_all_ranks() {
  UtilizationFigures all;
  for (const std::string& text : session_.world().all_gather_text(utilization_.to_text(), "callbacks")) {
    all.add_text(text);
  }
  Record record = all.record();
  record.update(speed_.means());
  return record;
}

// Ends the memory log and returns the combined statistics of all ranks. Collective.
Record Measurements::memory_log_of_all_ranks() {
  std::vector<Record> records;
  for (const std::string& text : session_.world().all_gather_text(to_json(memory_log_->finish()), "memory log")) {
    records.push_back(record_from_json(text, "another rank's memory log"));
  }
  return combined_memory_statistics(records);
}

void Measurements::add_to(Record& summary, const Record& gpu) {
  summary["measured"] = steps_.record();
  summary["peak_memory_bytes"] = session_.world().max(peak_resident_bytes(), "memory");
  if (!gpu.empty()) summary["gpu"] = gpu;
  const Record callbacks = callbacks_of_all_ranks();
  if (!callbacks.empty()) summary["callbacks"] = callbacks;
  if (memory_log_) summary["memory_log"] = memory_log_of_all_ranks();
  summary["ledger_peak_bytes"] = peaks_of(session_.worker().device().ledger());
  summary["host_ledger_peak_bytes"] = peaks_of(session_.worker().host().ledger());
}

Record peaks_of(const Ledger& ledger) {
  Record record;
  for (int c = 0; c < kNumCategories; ++c) {
    int64_t peak = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      peak = std::max(peak, ledger.peak(static_cast<Phase>(p), static_cast<Category>(c)));
    }
    record[name_of(static_cast<Category>(c))] = peak;
  }
  record["total"] = ledger.peak_total();
  return record;
}

}  // namespace tessera
