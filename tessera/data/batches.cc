#include "tessera/data/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera {

PackedBatch pack(std::span<const Sample> samples, std::span<const int64_t> indices) {
  PackedBatch batch;
  batch.starts.reserve(indices.size() + 1);
  batch.starts.push_back(0);
  size_t num_tokens = 0;
  for (const int64_t index : indices) {
    num_tokens += samples[static_cast<size_t>(index)].ids.size();
    TESSERA_ASSERT(num_tokens <= static_cast<size_t>(std::numeric_limits<int32_t>::max()));
    batch.starts.push_back(static_cast<int32_t>(num_tokens));
  }
  batch.ids.reserve(num_tokens);
  batch.labels.reserve(num_tokens);
  for (const int64_t index : indices) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    TESSERA_ASSERT(sample.labels.size() == sample.ids.size());
    batch.ids.insert(batch.ids.end(), sample.ids.begin(), sample.ids.end());
    batch.labels.insert(batch.labels.end(), sample.labels.begin(), sample.labels.end());
  }
  const auto without = std::count(batch.labels.begin(), batch.labels.end(), kNoTarget);
  batch.num_targets = static_cast<int32_t>(std::ssize(batch.labels) - without);
  return batch;
}

PackedBatch merged(std::span<const PackedBatch> batches) {
  PackedBatch all;
  all.starts = {0};
  for (const PackedBatch& batch : batches) {
    const auto offset = static_cast<int32_t>(all.ids.size());
    all.ids.insert(all.ids.end(), batch.ids.begin(), batch.ids.end());
    all.labels.insert(all.labels.end(), batch.labels.begin(), batch.labels.end());
    for (size_t b = 1; b < batch.starts.size(); ++b) {
      all.starts.push_back(offset + batch.starts[b]);
      all.sequence_numbers.push_back(batch.sequence_numbers.empty() ? static_cast<int64_t>(b - 1)
                                                                    : batch.sequence_numbers[b - 1]);
    }
    all.num_targets += batch.num_targets;
  }
  return all;
}

BatchPlan::BatchPlan(const BatchOptions& options, int64_t epoch) : options_(options) {
  TESSERA_ASSERT(options.num_samples >= 0 && options.batch_size > 0 && options.grad_accum > 0);
  TESSERA_ASSERT(options.rank >= 0 && options.rank < options.world_size && epoch >= 0);
  // "epoc" above the epoch's number keeps this stream separate from other draws with the same seed.
  const uint64_t stream = uint64_t{0x65706F63} << 32 | static_cast<uint64_t>(epoch);
  order_.resize(static_cast<size_t>(options.num_samples));
  std::iota(order_.begin(), order_.end(), 0);
  if (options.shuffle) shuffle(std::span<int64_t>(order_), options.seed, stream);
}

std::vector<std::span<const int64_t>> BatchPlan::step(int64_t step) const {
  TESSERA_ASSERT(step >= 0 && step < num_steps());
  const int64_t first = step * options_.grad_accum;
  const int64_t last = std::min(first + options_.grad_accum, num_micro_batches());
  std::vector<std::span<const int64_t>> micro_batches;
  for (int64_t k = first; k < last; ++k) {
    const int64_t begin = k * global_batch_size();
    const int64_t size = std::min(global_batch_size(), options_.num_samples - begin);
    const int64_t from = begin + size * options_.rank / options_.world_size;
    const int64_t to = begin + size * (options_.rank + 1) / options_.world_size;
    micro_batches.push_back(std::span(order_).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
  }
  return micro_batches;
}

int64_t BatchPlan::first_sequence(int64_t step, int64_t micro_batch) const {
  const int64_t begin = (step * options_.grad_accum + micro_batch) * global_batch_size();
  const int64_t size = std::min(global_batch_size(), options_.num_samples - begin);
  return micro_batch * global_batch_size() + size * options_.rank / options_.world_size;
}

}  // namespace tessera
