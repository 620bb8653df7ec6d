// Generation with a cache of keys and values. First, the model reads the prompts and chooses the next token of each
// sequence. Each turn then appends the chosen tokens to the outputs, except end tokens. It removes the sequences that
// have ended from the batch, and chooses the next tokens of the remaining sequences. All ranks run the same number of
// turns, because gathering parameters is collective.
#include <algorithm>
#include <numeric>

#include "tessera/engine/engine.h"
#include "tessera/ops/sampling_numbers.h"

namespace tessera {
namespace {

// Rows of the cache. Each sequence has consecutive rows: one per token of its prompt, and max_new_tokens more.
struct CacheLayout {
  std::vector<int32_t> starts;
  int64_t num_rows = 0;

  CacheLayout(std::span<const std::vector<int32_t>> prompts, int64_t max_new_tokens) {
    for (const auto& prompt : prompts) {
      starts.push_back(static_cast<int32_t>(num_rows));
      num_rows += static_cast<int64_t>(prompt.size()) + max_new_tokens;
    }
  }
};

PackedBatch pack_prompts(std::span<const std::vector<int32_t>> prompts) {
  PackedBatch batch;
  batch.starts.push_back(0);
  for (const auto& prompt : prompts) {
    TESSERA_ASSERT(!prompt.empty());
    batch.ids.insert(batch.ids.end(), prompt.begin(), prompt.end());
    batch.starts.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  batch.labels.assign(batch.ids.size(), -100);
  return batch;
}

}  // namespace

std::vector<std::vector<int32_t>> Engine::generate(std::span<const std::vector<int32_t>> prompts,
                                                   const GenerationOptions& options) {
  const int64_t max_new_tokens = options.max_new_tokens;
  std::vector<std::vector<int32_t>> outputs(prompts.size());
  if (max_new_tokens <= 0) return outputs;
  const int64_t C = model_.config().hidden_size, L = model_.num_blocks();
  const auto B = static_cast<int64_t>(prompts.size());
  const CacheLayout layout(prompts, max_new_tokens);
  // Allocates for the largest batch of the run, so the held memory equals the planned memory.
  const BatchBounds& most = work_.generation;
  const int64_t num_rows = std::max(layout.num_rows, most.num_tokens + most.num_sequences * work_.max_new_tokens);
  const int64_t most_sequences = std::max(B, most.num_sequences);
  const int64_t channels = model_.config().kv_channels();
  const int64_t layer_bytes = num_rows * channels * static_cast<int64_t>(size_of(options_.dtype));
  const Buffer rows = context_.device.allocate(2 * L * layer_bytes, Category::kv_cache);
  // Five arrays with one element per sequence. First the random numbers, 8 bytes per element. Then four rows of
  // small_view, 4 bytes per element: starts and lengths in the cache, the last row of each prompt, and the next ids.
  const Buffer small = context_.device.allocate((4 * 4 + 8) * most_sequences, Category::kv_cache);
  const View small_view{small.data() + 8 * B, DType::i32, {4, B}}, draws_view{small.data(), DType::i64, {B}};
  const auto small_row = [&](int64_t row, int64_t count) {
    return small_view.rows(row, row + 1).reshaped({B}).rows(0, count);
  };

  KvCache cache;
  for (int64_t l = 0; l < 2 * L; ++l) {
    (l % 2 ? cache.values : cache.keys)
        .push_back({rows.data() + l * layer_bytes, options_.dtype, {num_rows, channels}});
  }
  std::vector<size_t> running(prompts.size());  // index of the prompt that each sequence of the batch continues
  std::iota(running.begin(), running.end(), size_t{0});
  std::vector<int32_t> next(prompts.size()), last_rows;
  std::vector<int64_t> draws(prompts.size());
  const auto choose_next = [&](Frame& f, View x) {
    const View ids = small_row(3, x.shape[0]);
    const ParameterViews head =
        parameters_.acquire(model_.head_unit());  // collective: a rank without sequences calls it too
    if (ids.num_elems() > 0) {
      if (options.sampling) {
        for (size_t i = 0; i < running.size(); ++i) {
          const int64_t number = options.first_number + static_cast<int64_t>(running[i]);
          draws[i] = static_cast<int64_t>(sampling_draw(options.seed, number, std::ssize(outputs[running[i]])));
        }
        const View of_rows = draws_view.rows(0, ids.num_elems());
        context_.device.copy_from_host(draws.data(), of_rows);
        model_.head().sample(f, head, x, of_rows, *options.sampling, ids);
      } else {
        model_.head().argmax(f, head, x, ids);
      }
      context_.device.copy_to_host(ids, next.data());
    }
    parameters_.release(model_.head_unit());
  };

  {  // Read the prompts. The last row of a prompt predicts the first token after this prompt.
    const StackScope scope(*stack_);
    const PackedBatch packed = pack_prompts(prompts);
    const Batch batch = upload(packed, false);
    cache.starts = small_row(0, B);
    context_.device.copy_from_host(layout.starts.data(), cache.starts);
    Frame f = frame(batch, false);
    f.cache = &cache;
    const View x = run_blocks(f, batch.num_tokens);
    for (size_t b = 1; b < packed.starts.size(); ++b) last_rows.push_back(packed.starts[b] - 1);
    const View rows_view = small_row(2, B), x_last = f.push(B, C);
    if (B > 0) {
      context_.device.copy_from_host(last_rows.data(), rows_view);
      ops_->gather_rows(x, rows_view, x_last);
    }
    choose_next(f, x_last);
  }

  const std::vector<int32_t>& more_end_ids = model_.config().more_end_ids;
  const auto ends = [&](int32_t id) {
    return id == options.eos_id || std::find(more_end_ids.begin(), more_end_ids.end(), id) != more_end_ids.end();
  };
  cache.decoding = true;
  for (int64_t turn = 1;; ++turn) {
    // Keep only the sequences that have not ended. next[i] is the new token of sequence running[i].
    std::vector<size_t> still;
    PackedBatch packed;
    std::vector<int32_t> starts, lengths;
    for (size_t i = 0; i < running.size(); ++i) {
      if (ends(next[i])) continue;
      const size_t b = running[i];
      outputs[b].push_back(next[i]);
      const bool is_ended =
          options.on_token && !options.on_token(options.first_number + static_cast<int64_t>(b), next[i]);
      if (is_ended || turn == max_new_tokens) continue;
      still.push_back(b);
      packed.ids.push_back(next[i]);
      starts.push_back(layout.starts[b]);
      lengths.push_back(static_cast<int32_t>(prompts[b].size() + outputs[b].size()) - 1);
    }
    running = std::move(still);
    // A rank without running sequences continues while any rank has one, because gathering parameters is collective.
    const auto all = context_.ranks.world->sum({static_cast<double>(running.size())}, "running answers");
    if (all[0] == 0) {
      check_gathering();
      return outputs;
    }

    const StackScope scope(*stack_);
    const auto count = static_cast<int64_t>(running.size());
    packed.labels.assign(running.size(), -100);
    packed.starts.resize(running.size() + 1);
    std::iota(packed.starts.begin(), packed.starts.end(), 0);
    const Batch batch = upload(packed, false);
    cache.starts = small_row(0, count);
    cache.lengths = small_row(1, count);
    context_.device.copy_from_host(starts.data(), cache.starts);
    context_.device.copy_from_host(lengths.data(), cache.lengths);
    Frame f = frame(batch, false);
    f.cache = &cache;
    const View x = run_blocks(f, count);
    choose_next(f, x);
  }
}

}  // namespace tessera
