#include "tessera/train/calendar.h"

#include "tessera/engine/plan.h"
#include "tessera/load/datasets.h"
#include "tessera/train/continuation.h"

namespace tessera {

namespace {

BatchOptions batches_of_rank(const Settings& settings, const std::vector<int64_t>& lengths, const Model& model,
                             const Communicator& world) {
  BatchOptions options = batch_options(settings, lengths);
  options.world_size = world.size();
  options.rank = world.rank();
  options.cost = cost_of_samples(model);
  return options;
}

}  // namespace

BatchOptions batch_options(const Settings& settings, const std::vector<int64_t>& lengths) {
  BatchOptions options;
  options.num_samples = std::ssize(lengths);
  options.batch_size = settings.batch_size;
  options.grad_accum = settings.grad_accum;
  options.seed = static_cast<uint64_t>(settings.seed);
  options.shuffle = settings.shuffle;
  options.batch_tokens = settings.batch_tokens;
  options.max_batch_samples = kMaxBatchSequences;
  options.lengths = lengths;
  return options;
}

Calendar::Calendar(const Settings& settings, const Samples& samples, bool has_evaluation, const Model& model,
                   const Communicator& world)
    : lengths_(lengths_of(samples)),
      batch_options_(batches_of_rank(settings, lengths_, model, world)),
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
