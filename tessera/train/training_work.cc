#include "tessera/train/training_work.h"

#include <algorithm>
#include <cmath>

#include "tessera/train/calendar.h"

namespace tessera {

WorkBounds training_work(const Settings& settings, const Dataset& train, const Dataset* eval, bool fused) {
  WorkBounds work;
  const int64_t at_once = fused ? settings.grad_accum : 1;
  work.training = settings.batch_tokens > 0 ? bounds_by_tokens(train.samples, settings.batch_tokens, at_once)
                                            : bounds_of(train.samples, settings.batch_size * at_once);
  work.micro_batches = fused ? 1 : settings.grad_accum;
  if (eval) work.evaluation = bounds_of(eval->samples, settings.eval_batch_size);
  if (eval && settings.eval_generation) {
    work.generation = bounds_of(eval->prompts, settings.eval_batch_size);
    work.max_new_tokens = settings.max_new_tokens;
  }
  return work;
}

namespace {

// Batches of `batch_size` samples of the mean size, or of all samples if there are fewer.
BatchBounds mean_batch(const Samples& samples, double batch_size) {
  batch_size = std::min(batch_size, static_cast<double>(std::max<int64_t>(1, samples.size())));
  double tokens = 0, squares = 0, targets = 0;
  for (const int64_t length : lengths_of(samples)) {
    tokens += static_cast<double>(length);
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
  for (int64_t i = 0; i < samples.size(); ++i) targets += static_cast<double>(samples.num_targets(i));
  const double batches = static_cast<double>(std::max<int64_t>(1, samples.size())) / batch_size;
  const auto whole = [](double value) { return std::max<int64_t>(1, std::llround(value)); };
  BatchBounds batch;
  batch.num_tokens = whole(tokens / batches);
  batch.num_targets = std::min(whole(targets / batches), batch.num_tokens);
  batch.mean_length = whole(squares / std::max(1.0, tokens));
  batch.num_sequences = whole(batch_size);
  return batch;
}

}  // namespace

WorkBounds typical_work(const Settings& settings, const Dataset& train, const Dataset* eval, int64_t world_size,
                        bool fused) {
  WorkBounds work;
  const int64_t at_once = fused ? settings.grad_accum : 1;
  auto batch_size = static_cast<double>(settings.batch_size);
  if (settings.batch_tokens > 0) {
    const std::vector<int64_t> lengths = lengths_of(train.samples);
    BatchOptions options = batch_options(settings, lengths);
    options.world_size = world_size;
    batch_size = static_cast<double>(train.samples.size()) /
                 static_cast<double>(std::max<int64_t>(1, BatchPlan(options, 0).fill().num_micro_batches));
  }
  work.training = mean_batch(train.samples, batch_size * static_cast<double>(at_once));
  // The samples of an epoch may be fewer than those of a step.
  const double batches = static_cast<double>(train.samples.size()) / (batch_size * static_cast<double>(world_size));
  work.micro_batches =
      fused ? 1 : std::min(settings.grad_accum, std::max<int64_t>(1, std::llround(std::ceil(batches))));
  if (eval) work.evaluation = mean_batch(eval->samples, static_cast<double>(settings.eval_batch_size));
  return work;
}

}  // namespace tessera
