#include "tessera/train/slow_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr double kSlow = 1.25;           // times the planned time
constexpr double kLeastExcess_s = 2e-3;  // shorter delays come from the system, and matter only to toys
constexpr int64_t kLeastSteps = 10;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.3g} s", seconds);
}

// Why copies, files or collectives probably take longer than planned, if the planned step mostly waits for them.
std::string bound_of(const StepTime& planned) {
  switch (planned.bound()) {
    case Busy::to_device:
    case Busy::to_host:
      return "copies between host and GPU (PCIe), which bound the planned step";
    case Busy::file:
      return "the disk of the offloaded files, which bounds the planned step";
    case Busy::network:
      return "collectives between the ranks, which bound the planned step. tessera nettest measures them";
    default:
      return "";
  }
}

std::string cause_of(const StepTime& planned, const StepSeconds& measured, const Surroundings& s) {
  const double excess_s = measured.step_s - planned.step_s;
  if (measured.data_s > excess_s / 2) {
    return fmt::format("the data: a step waits {} for its samples", seconds_text(measured.data_s));
  }
  if (!s.clocks_reduced_by.empty()) return "the GPU reduces its clocks: " + s.clocks_reduced_by;
  if (s.peak_clock_mhz > 0 && s.clock_mhz < 0.75 * s.peak_clock_mhz) {
    return fmt::format("the GPU's clock: {:.0f} MHz on average, {:.0f} MHz at most", s.clock_mhz, s.peak_clock_mhz);
  }
  constexpr int64_t kMuchMemory = int64_t{1} << 30;  // drivers and desktops use less
  if (s.gpu_bytes_of_others > kMuchMemory) {
    return fmt::format("other programs on the GPU, which use {} of its memory", format_bytes(s.gpu_bytes_of_others));
  }
  // The GPU waits for other processes only if the machine has no free core.
  const double others = s.load - s.own_threads;
  if (others > 1 + 0.25 * s.own_threads && (!s.on_gpu || s.load > s.num_cores)) {
    return fmt::format("other processes: the load of the machine is {:.1f}, and the run has {} threads on {} cores",
                       s.load, s.own_threads, s.num_cores);
  }
  return bound_of(planned);
}

}  // namespace

void MeasuredSteps::add(const StepSeconds& step) {
  if (++num_seen_ <= kWarmUp) return;
  steps_.push_back(step);
  if (steps_.size() > kMost) steps_.pop_front();
}

StepSeconds MeasuredSteps::median() const {
  const auto of = [&](auto&& value) {
    std::vector<double> values;
    for (const StepSeconds& step : steps_) values.push_back(value(step));
    return median_of(std::move(values));
  };
  StepSeconds result{of([](const StepSeconds& s) { return s.step_s; }),
                     of([](const StepSeconds& s) { return s.data_s; })};
  if (!steps_.front().part_s) return result;
  result.part_s.emplace();
  for (size_t i = 0; i < kNumStepParts; ++i) {
    (*result.part_s)[i] = of([i](const StepSeconds& s) { return (*s.part_s)[i]; });
  }
  return result;
}

Record MeasuredSteps::record() const {
  Record record{{"steps", count()}};
  if (count() == 0) return record;
  const StepSeconds step = median();
  record["step_s"] = step.step_s;
  record["data_s"] = step.data_s;
  if (!step.part_s) return record;
  for (int i = 0; i < kNumStepParts; ++i) {
    record[name_of(StepPart(i)) + std::string("_s")] = (*step.part_s)[static_cast<size_t>(i)];
  }
  return record;
}

bool are_slow(const StepTime& planned, const MeasuredSteps& measured) {
  if (planned.step_s <= 0 || measured.count() < kLeastSteps) return false;
  const double step_s = measured.median().step_s;
  return step_s >= kSlow * planned.step_s && step_s - planned.step_s >= kLeastExcess_s;
}

std::string warning_of_slow_steps(const StepTime& planned, const StepSeconds& measured, const Surroundings& around) {
  std::string text = fmt::format("warning: a step took {}, {:.2f} times the planned {}", seconds_text(measured.step_s),
                                 measured.step_s / planned.step_s, seconds_text(planned.step_s));
  if (const std::string cause = cause_of(planned, measured, around); !cause.empty()) {
    return text + ". Likely cause: " + cause;
  }
  if (!measured.part_s) return text + ". No cause is evident";
  const PartSeconds more = *measured.part_s - planned.part_s;
  const auto most = static_cast<size_t>(std::ranges::max_element(more) - more.begin());
  return text + fmt::format(". No cause is evident. The {} took {}, not {}", name_of(StepPart(static_cast<int>(most))),
                            seconds_text((*measured.part_s)[most]), seconds_text(planned.part_s[most]));
}

}  // namespace tessera
