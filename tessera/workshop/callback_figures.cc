#include "tessera/workshop/callback_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/math.h"

namespace tessera {

void UtilizationFigures::Sum::add(double x) {
  value += x;
  square += x * x;
  count += 1;
}

double UtilizationFigures::Sum::deviation() const {
  return std::sqrt(std::max(0.0, square / count - mean() * mean()));
}

void UtilizationFigures::add(int64_t held_bytes, const GpuSample& sample) {
  held_.add(static_cast<double>(held_bytes) / kMiB);
  if (sample.memory_bytes) total_.add(*sample.memory_bytes / kMiB);
  if (sample.utilization_percent) utilization_.add(*sample.utilization_percent);
}

std::string UtilizationFigures::to_text() const {
  Record numbers = Record::object();
  for (const auto& [name, sum] :
       {std::pair{"held", &held_}, std::pair{"total", &total_}, std::pair{"utilization", &utilization_}}) {
    numbers[name] = std::array{sum->value, sum->square, sum->count};
  }
  return to_json(numbers);
}

void UtilizationFigures::add_text(const std::string& text) {
  const Record numbers = record_from_json(text, "another rank's figures");
  for (const auto& [name, sum] :
       {std::pair{"held", &held_}, std::pair{"total", &total_}, std::pair{"utilization", &utilization_}}) {
    const auto& parts = numbers.at(name);
    sum->value += parts.at(0).get<double>();
    sum->square += parts.at(1).get<double>();
    sum->count += parts.at(2).get<double>();
  }
}

Record UtilizationFigures::record() const {
  Record record = Record::object();
  if (held_.count > 0) {
    record["avg_mem_alloc_MB"] = held_.mean();
    record["avg_mem_reserved_MB"] = held_.mean();  // the device keeps no free memory in reserve
  }
  if (total_.count > 0) record["avg_mem_total_MB"] = total_.mean();
  if (utilization_.count > 0) {
    record["avg_gpu_util_%"] = utilization_.mean();
    record["std_gpu_util_%"] = utilization_.deviation();
  }
  return record;
}

void SpeedFigures::add(int64_t num_samples) {
  ++new_steps_;
  new_samples_ += num_samples;
}

Record SpeedFigures::log(double now_s) {
  const double seconds = now_s - before_s_;
  if (new_steps_ == 0 || seconds <= 0) return Record::object();
  Record record{{"train/steps_per_second", static_cast<double>(new_steps_) / seconds},
                {"train/samples_per_second", static_cast<double>(new_samples_) / seconds}};
  steps_ += new_steps_;
  samples_ += new_samples_;
  seconds_ += seconds;
  new_steps_ = new_samples_ = 0;
  before_s_ = now_s;
  return record;
}

Record SpeedFigures::means() const {
  if (steps_ == 0) return Record::object();
  return {{"train/steps_per_second_mean", static_cast<double>(steps_) / seconds_},
          {"train/samples_per_second_mean", static_cast<double>(samples_) / seconds_}};
}

}  // namespace tessera
