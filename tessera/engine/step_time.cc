#include "tessera/engine/step_time.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

struct Totals {
  double now;
  PartSeconds part_s;
  std::array<double, kNumBusy> busy_s;
};

Totals totals_of(const Timeline& timeline, const StepParts& parts) {
  Totals totals{.now = timeline.now(), .part_s = parts.until(timeline.now()), .busy_s = {}};
  for (int i = 0; i < kNumBusy; ++i) totals.busy_s[static_cast<size_t>(i)] = timeline.busy(Busy(i));
  return totals;
}

// a + factor · (b − a), for every time.
StepTime extrapolated(const StepTime& a, const StepTime& b, double factor) {
  StepTime c = a;
  const auto move = [factor](double& x, double from, double to) { x = from + factor * (to - from); };
  move(c.step_s, a.step_s, b.step_s);
  for (size_t i = 0; i < c.part_s.size(); ++i) move(c.part_s[i], a.part_s[i], b.part_s[i]);
  for (size_t i = 0; i < c.busy_s.size(); ++i) move(c.busy_s[i], a.busy_s[i], b.busy_s[i]);
  for (auto& [name, seconds] : c.kernel_s) move(seconds, a.kernel_s.at(name), b.kernel_s.at(name));
  return c;
}

}  // namespace

Busy StepTime::bound() const {
  return static_cast<Busy>(std::ranges::max_element(busy_s) - busy_s.begin());
}

namespace {

// A batch with the same number of tokens, in sequences of the mean length. Its attention takes as much work.
BatchBounds equal_sequences(BatchBounds batch) {
  if (batch.mean_length > 0) {
    batch.num_sequences = std::clamp<int64_t>((batch.num_tokens + batch.mean_length / 2) / batch.mean_length, 1,
                                              std::max<int64_t>(1, batch.num_tokens));
  }
  return batch;
}

}  // namespace

StepTime step_time(const ModelConfig& config, const EngineOptions& options, WorkBounds work, const PlannedRank& rank,
                   const Machine& machine) {
  work.training = equal_sequences(work.training);
  work.evaluation = equal_sequences(work.evaluation);
  Timeline timeline(machine, rank.ranks_per_node);
  const auto device = make_counting_device({rank.device, rank.num_threads, &timeline}),
             host = make_counting_device({DeviceKind::cpu, rank.num_threads, &timeline});
  const auto world = make_counting_communicator(*device, rank.rank, rank.world_size);
  Engine engine({*device, *host, *world, rank.ranks_per_node}, config, options);
  engine.prepare(work);
  // The first steps differ from later ones: nothing is left from a step before, and the number of late moments adapts
  // to measured times. A step is typical if it takes the time of the step before.
  constexpr int kMostSteps = 10;
  constexpr double kSame = 0.002;
  std::map<std::string, double> kernel_totals;
  const auto step_with = [&](int64_t micro_batches) {
    const std::vector<PackedBatch> window(static_cast<size_t>(micro_batches), imagined_batch(work.training));
    StepTime time;
    for (int i = 0; i < kMostSteps; ++i) {
      const Totals before = totals_of(timeline, engine.parts());
      engine.train_step(window, 0);
      const Totals after = totals_of(timeline, engine.parts());
      const double step_s = after.now - before.now;
      const bool repeats = i > 1 && std::abs(step_s - time.step_s) <= kSame * step_s;
      time.step_s = step_s;
      for (const auto& [name, seconds] : timeline.kernels()) {
        double& total = kernel_totals[std::string(name)];
        time.kernel_s[std::string(name)] = seconds - std::exchange(total, seconds);
      }
      time.part_s = after.part_s - before.part_s;
      for (size_t b = 0; b < time.busy_s.size(); ++b) time.busy_s[b] = after.busy_s[b] - before.busy_s[b];
      if (repeats) break;
    }
    return time;
  };
  constexpr int64_t kFew = 3;  // each micro-batch after the second takes the time of the third
  StepTime time;
  if (work.training.num_tokens > 0) {
    time = step_with(std::min(work.micro_batches, kFew));
    if (work.micro_batches > kFew) {
      const StepTime fewer = step_with(kFew - 1);
      time = extrapolated(fewer, time, static_cast<double>(work.micro_batches - kFew + 1));
    }
  }
  if (work.evaluation.num_tokens > 0) {
    engine.evaluate(imagined_batch(work.evaluation));  // also waits for the last update
    const double before = timeline.now();
    engine.evaluate(imagined_batch(work.evaluation));
    time.evaluation_s = timeline.now() - before;
  }
  return time;
}

}  // namespace tessera
