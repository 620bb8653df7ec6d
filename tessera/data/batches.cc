#include "tessera/data/batches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/base/random.h"
#include "tessera/data/packing.h"

namespace tessera {

PackedBatch pack(const Samples& samples, std::span<const int64_t> indices) {
  PackedBatch batch;
  batch.starts.reserve(indices.size() + 1);
  batch.starts.push_back(0);
  int64_t num_tokens = 0;
  for (const int64_t index : indices) {
    num_tokens += samples.length(index);
    TESSERA_ASSERT(num_tokens <= std::numeric_limits<int32_t>::max());
    batch.starts.push_back(static_cast<int32_t>(num_tokens));
    batch.num_targets += static_cast<int32_t>(samples.num_targets(index));
  }
  batch.ids.reserve(static_cast<size_t>(num_tokens));
  batch.labels.reserve(static_cast<size_t>(num_tokens));
  for (const int64_t index : indices) samples.append(index, batch.ids, batch.labels);
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
    all.row_numbers.insert(all.row_numbers.end(), batch.row_numbers.begin(), batch.row_numbers.end());
  }
  return all;
}

namespace {

// The random stream of an epoch. The name, four letters in ASCII, keeps it separate from other draws with the seed.
uint64_t stream_of(uint32_t name, int64_t epoch) {
  return uint64_t{name} << 32 | static_cast<uint64_t>(epoch);
}

}  // namespace

BatchPlan::BatchPlan(const BatchOptions& options, int64_t epoch) : options_(options) {
  TESSERA_ASSERT(options.num_samples >= 0 && options.grad_accum > 0 && (by_tokens() || options.batch_size > 0));
  TESSERA_ASSERT(options.rank >= 0 && options.rank < options.world_size && epoch >= 0);
  order_.resize(static_cast<size_t>(options.num_samples));
  std::iota(order_.begin(), order_.end(), 0);
  if (options.shuffle) shuffle(std::span<int64_t>(order_), options.seed, stream_of(0x65706F63, epoch));  // "epoc"
  if (by_tokens()) pack_by_tokens(epoch);
}

void BatchPlan::pack_by_tokens(int64_t epoch) {
  TESSERA_ASSERT(std::ssize(options_.lengths) == options_.num_samples);
  Packing packing =
      best_fit(order_, options_.lengths, {options_.batch_tokens, options_.max_batch_samples, !options_.shuffle});
  if (!options_.shuffle) {
    order_ = std::move(packing.order);
    starts_ = std::move(packing.starts);
    return;
  }
  // In the order of their first samples, the last micro-batches would be the ones with the most free tokens.
  std::vector<int64_t> micro_batches(packing.starts.size() - 1);
  std::iota(micro_batches.begin(), micro_batches.end(), 0);
  shuffle(std::span<int64_t>(micro_batches), options_.seed, stream_of(0x7061636B, epoch));  // "pack"
  starts_.reserve(packing.starts.size());
  starts_ = {0};
  auto next = order_.begin();
  for (const int64_t k : micro_batches) {
    const auto begin = packing.order.begin() + packing.starts[static_cast<size_t>(k)],
               end = packing.order.begin() + packing.starts[static_cast<size_t>(k) + 1];
    next = std::copy(begin, end, next);
    starts_.push_back(next - order_.begin());
  }
}

Fill BatchPlan::fill() const {
  const auto tokens = std::accumulate(options_.lengths.begin(), options_.lengths.end(), int64_t{0});
  const int64_t most = num_micro_batches() * options_.batch_tokens;
  return {num_micro_batches(), most > 0 ? static_cast<double>(tokens) / static_cast<double>(most) : 0};
}

int64_t BatchPlan::num_steps() const {
  if (by_tokens()) return ceil_divide(num_micro_batches(), micro_batches_of_step());
  return ceil_divide(ceil_divide(options_.num_samples, global_batch_size()), options_.grad_accum);
}

std::vector<MicroBatch> BatchPlan::step(int64_t step) const {
  TESSERA_ASSERT(step >= 0 && step < num_steps());
  return by_tokens() ? step_by_tokens(step) : step_by_samples(step);
}

std::vector<MicroBatch> BatchPlan::step_by_samples(int64_t step) const {
  std::vector<MicroBatch> micro_batches;
  for (int64_t k = 0; k < options_.grad_accum; ++k) {
    const int64_t begin = (step * options_.grad_accum + k) * global_batch_size();
    if (begin >= options_.num_samples) break;
    const int64_t size = std::min(global_batch_size(), options_.num_samples - begin);
    const int64_t from = size * options_.rank / options_.world_size,
                  to = size * (options_.rank + 1) / options_.world_size;
    micro_batches.push_back({part(begin + from, begin + to), k * global_batch_size() + from});
  }
  return micro_batches;
}

// Sorts the micro-batches of the step by cost, the most costly first. Then distributes them in rounds: in each round,
// each rank gets one micro-batch. In the last round, some ranks may get an empty micro-batch instead. The first round
// goes from rank 0 to the last rank, the second from the last rank to rank 0, and so on in turn. This order has two
// reasons. Ranks that shard compute in lockstep: a round takes as long as its most costly micro-batch, so the
// micro-batches of a round should have similar costs. Ranks that do not shard wait only at the end of the step, so the
// total costs of the ranks should be similar.
std::vector<MicroBatch> BatchPlan::step_by_tokens(int64_t step) const {
  const int64_t first = step * micro_batches_of_step(), world = options_.world_size;
  const int64_t count = std::min(micro_batches_of_step(), num_micro_batches() - first);
  const auto start = [&](int64_t k) { return starts_[static_cast<size_t>(first + k)]; };
  std::vector<std::pair<int64_t, int64_t>> by_cost;  // negated cost, and the micro-batch's number in the step
  for (int64_t k = 0; k < count; ++k) {
    int64_t cost = 0;
    for (const int64_t index : part(start(k), start(k + 1))) {
      cost += options_.cost(options_.lengths[static_cast<size_t>(index)]);
    }
    by_cost.emplace_back(-cost, k);
  }
  std::sort(by_cost.begin(), by_cost.end());
  std::vector<MicroBatch> micro_batches;
  for (int64_t round = 0; round * world < count; ++round) {
    const int64_t at = round * world + (round % 2 == 0 ? options_.rank : world - 1 - options_.rank);
    if (at < count) {
      const int64_t k = by_cost[static_cast<size_t>(at)].second;
      micro_batches.push_back({part(start(k), start(k + 1)), start(k) - start(0)});
    } else {
      micro_batches.emplace_back();
    }
  }
  return micro_batches;
}

EpochSteps::EpochSteps(BatchOptions options) : options_(std::move(options)) {
  TESSERA_ASSERT(options_.num_samples > 0);
  const BatchPlan first(options_, 0);
  if (options_.batch_tokens > 0) fill_ = first.fill();
  if (options_.batch_tokens == 0 || !options_.shuffle) {
    steps_per_epoch_ = first.num_steps();
  } else {
    ends_.push_back(first.num_steps());
  }
}

int64_t EpochSteps::end_of(int64_t epoch) const {
  if (steps_per_epoch_ > 0) return (epoch + 1) * steps_per_epoch_;
  while (std::ssize(ends_) <= epoch) {
    const int64_t before = ends_.empty() ? 0 : ends_.back();
    ends_.push_back(before + BatchPlan(options_, std::ssize(ends_)).num_steps());
  }
  return ends_[static_cast<size_t>(epoch)];
}

EpochSteps::Place EpochSteps::place_of(int64_t step) const {
  if (steps_per_epoch_ > 0) return {step / steps_per_epoch_, step % steps_per_epoch_};
  while (ends_.empty() || ends_.back() <= step) end_of(std::ssize(ends_));
  const int64_t epoch = std::upper_bound(ends_.begin(), ends_.end(), step) - ends_.begin();
  return {epoch, step - (epoch > 0 ? end_of(epoch - 1) : 0)};
}

double EpochSteps::epochs_after(int64_t step) const {
  if (steps_per_epoch_ > 0) return static_cast<double>(step) / static_cast<double>(steps_per_epoch_);
  const Place place = place_of(step);
  const int64_t begin = step - place.step;
  return static_cast<double>(place.epoch) +
         static_cast<double>(place.step) / static_cast<double>(end_of(place.epoch) - begin);
}

int64_t EpochSteps::steps_of(double epochs) const {
  if (steps_per_epoch_ > 0) return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(steps_per_epoch_)));
  const auto whole = static_cast<int64_t>(epochs);
  const int64_t begin = whole > 0 ? end_of(whole - 1) : 0;
  const double rest = epochs - static_cast<double>(whole);
  if (rest == 0) return begin;
  return begin + static_cast<int64_t>(std::ceil(rest * static_cast<double>(end_of(whole) - begin)));
}

}  // namespace tessera
