// The parts of a training step, and their times: simulated on counting devices with a timeline, measured on a CPU.
#pragma once

#include <array>
#include <cstddef>

namespace tessera {

// `update` lasts until the next forward starts.
enum class StepPart { forward, backward, update };
inline constexpr int kNumStepParts = 3;
inline const char* name_of(StepPart part) {
  constexpr const char* names[] = {"forward", "backward", "update"};
  return names[static_cast<size_t>(part)];
}

using PartSeconds = std::array<double, kNumStepParts>;

class StepParts {
 public:
  // The part begins at `time`, and the part before it ends.
  void enter(StepPart part, double time) {
    seconds_[static_cast<size_t>(part_)] += time - began_;
    part_ = part;
    began_ = time;
  }
  // The seconds of each part until `now`. Only differences between two calls have a meaning.
  PartSeconds until(double now) const {
    PartSeconds seconds = seconds_;
    seconds[static_cast<size_t>(part_)] += now - began_;
    return seconds;
  }

 private:
  StepPart part_ = StepPart::update;
  double began_ = 0;
  PartSeconds seconds_{};
};

// The seconds between two results of until().
inline PartSeconds operator-(const PartSeconds& after, const PartSeconds& before) {
  PartSeconds seconds;
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = after[i] - before[i];
  return seconds;
}

}  // namespace tessera
