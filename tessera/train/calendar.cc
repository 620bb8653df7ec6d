#include "tessera/train/calendar.h"

#include "tessera/engine/plan.h"
#include "tessera/train/continuation.h"

namespace tessera {

namespace {

std::vector<int64_t> lengths_of(const std::vector<Sample>& samples) {
  std::vector<int64_t> lengths;
  lengths.reserve(samples.size());
  for (const Sample& sample : samples) lengths.push_back(std::ssize(sample.ids));
  return lengths;
}

// `lengths` must outlive the result.
BatchOptions batch_options(const Settings& s, const std::vector<int64_t>& lengths, const Model& model,
                           const Communicator& world) {
  BatchOptions options;
  options.world_size = world.size();
  options.rank = world.rank();
  options.num_samples = std::ssize(lengths);
  options.batch_size = s.batch_size;
  options.grad_accum = s.grad_accum;
  options.seed = static_cast<uint64_t>(s.seed);
  options.shuffle = s.shuffle;
  options.batch_tokens = s.batch_tokens;
  options.max_batch_samples = kMaxBatchSequences;
  options.lengths = lengths;
  options.cost = cost_of_samples(model);
  return options;
}

}  // namespace

Calendar::Calendar(const Settings& settings, const std::vector<Sample>& samples, bool has_evaluation,
                   const Model& model, const Communicator& world)
    : lengths_(lengths_of(samples)),
      batch_options_(batch_options(settings, lengths_, model, world)),
      epochs_(batch_options_),
      num_steps_(total_steps(settings.max_steps, settings.epochs, epochs_)),
      schedule_(schedule_options(settings, num_steps_)),
      rates_(rate_bounds(settings)) {
  if (has_evaluation) evaluation_ = {settings.eval_strategy, settings.eval_steps.of(num_steps_)};
  save_ = {settings.save_strategy, settings.save_steps.of(num_steps_)};
  logging_steps_ = settings.logging_steps.of(num_steps_);
}

bool Calendar::ends(const Interval& interval, int64_t step) const {
  const bool is_last = step == num_steps_;
  switch (interval.kind) {
    case Settings::Interval::no:
      return false;
    case Settings::Interval::epoch:
      return is_last || epochs_.ends_after(step);
    case Settings::Interval::steps:
      return interval.steps > 0 && (is_last || step % interval.steps == 0);
  }
  return false;
}

}  // namespace tessera
