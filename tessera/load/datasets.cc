#include "tessera/load/datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "tessera/base/counted.h"
#include "tessera/ops/dropout_mask.h"

namespace tessera {
namespace {

// The sum of the `count` largest values, or of all values if there are fewer.
int64_t sum_of_largest(std::vector<int64_t> values, int64_t count) {
  const auto n = std::min(count, static_cast<int64_t>(values.size()));
  std::partial_sort(values.begin(), values.begin() + n, values.end(), std::greater<>());
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += values[static_cast<size_t>(i)];
  return sum;
}

int64_t num_targets_of(const Sample& sample) {
  return std::count_if(sample.labels.begin(), sample.labels.end(), [](int32_t l) { return l != kNoTarget; });
}

// Throws UsageError if a sample is longer than one of two limits. In every model, a sample has at most kMaxDropoutKeys
// tokens, because the random numbers of attention dropout are defined for only this many positions. With rotary
// positions, a sample must also fit into the model's context.
void check_lengths(const std::vector<Sample>& samples, const ModelConfig& config, const std::string& path) {
  const int64_t context = config.max_positions;
  for (const Sample& sample : samples) {
    if (context > 0 && std::ssize(sample.ids) > context) {
      throw UsageError("--max-length",
                       fmt::format("{} has a sample of {}, but the context of the model has {} "
                                   "(max_position_embeddings and the scaling of its positions)",
                                   path, counted(sample.ids.size(), "token"), counted(context, "token")),
                       fmt::format("Give at most {}", context));
    }
    if (std::ssize(sample.ids) <= kMaxDropoutKeys) continue;
    throw UsageError(
        "--max-length",
        fmt::format("{} has a sample of {} tokens; the limit is {}", path, sample.ids.size(), kMaxDropoutKeys),
        fmt::format("Give at most {}", kMaxDropoutKeys));
  }
}

RowOrder row_order(const Settings& settings, bool training) {
  if (settings.subset) return *settings.subset;
  return (training ? settings.shuffle : settings.eval_size > 0) ? RowOrder::random : RowOrder::first;
}

// Moves the samples into the data set, and removes examples without samples.
void keep_used(Dataset& dataset, std::vector<EncodedRow> encoded) {
  size_t kept = 0;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i].samples.empty()) continue;
    std::ranges::move(encoded[i].samples, std::back_inserter(dataset.samples));
    if (kept != i) dataset.examples[kept] = std::move(dataset.examples[i]);
    ++kept;
  }
  dataset.examples.resize(kept);
}

}  // namespace

Dataset load_dataset(const Settings& settings, DatasetUse use, const Tokenizer& tokenizer, const ModelConfig& config,
                     bool with_prompts, ThreadPool& pool) {
  const bool training = use == DatasetUse::training;
  const std::string& path = training ? settings.dataset : settings.eval_dataset;
  ExampleRows rows = load_rows(path);
  const auto check_bad = [&](const std::vector<BadRow>& bad, size_t num_rows) {
    check_bad_rows(bad, static_cast<int64_t>(num_rows), settings.bad_rows, settings.max_bad_rows, path);
  };
  check_bad(rows.bad, rows.bad.size() + rows.examples.size());
  Dataset dataset;
  dataset.examples = select_examples(std::move(rows.examples), training ? settings.train_size : settings.eval_size,
                                     static_cast<uint64_t>(settings.seed), row_order(settings, training),
                                     training ? "--train-size" : "--eval-size");
  const EncodeFn encode = [&](TextPlace place, std::string_view text) { return tokenizer.encode_at(place, text); };
  const PromptOptions options{settings.objective,
                              settings.truncation,
                              settings.long_texts,
                              settings.max_length,
                              config.eos_token_id,
                              settings.append_eos,
                              training};
  std::vector<EncodedRow> encoded = encode_rows(dataset.examples, encode, options, pool);
  for (const EncodedRow& row : encoded) dataset.use.add(row);
  check_bad(dataset.use.bad, encoded.size());
  if (dataset.use.num_samples == 0) {
    throw InputError(path, fmt::format("all texts are longer than --max-length {}", settings.max_length),
                     "Increase --max-length, or give --long-texts split");
  }
  keep_used(dataset, std::move(encoded));
  dataset.use.add_malformed(std::move(rows.bad));
  check_lengths(dataset.samples, config, path);
  const bool has_targets = std::any_of(dataset.samples.begin(), dataset.samples.end(), [](const Sample& sample) {
    return std::any_of(sample.labels.begin(), sample.labels.end(), [](int32_t label) { return label != kNoTarget; });
  });
  if (!has_targets) {
    throw InputError(path, fmt::format("no token of the {} has a loss", counted(dataset.samples.size(), "sample")),
                     "Increase --max-length, or give --truncation context to keep the answers");
  }
  if (with_prompts) {
    for (const Example& example : dataset.examples) {
      if (!example.text) continue;
      throw UsageError("--eval-generation",
                       fmt::format("{} contains plain texts, which have no answers to score", path),
                       "Remove --eval-generation, or give an --eval-dataset with questions");
    }
    dataset.prompts.resize(dataset.examples.size());
    pool.for_ranges(static_cast<int64_t>(dataset.examples.size()), 16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        dataset.prompts[i] = encode_prompt(dataset.examples[i], encode, options);
      }
    });
    for (const auto& prompt : dataset.prompts) check_context(config, std::ssize(prompt), settings.max_new_tokens);
  }
  return dataset;
}

void check_context(const ModelConfig& config, int64_t prompt_tokens, int64_t new_tokens, const std::string& place) {
  if (config.max_positions == 0 || prompt_tokens + new_tokens <= config.max_positions) return;
  throw UsageError("--max-new-tokens",
                   fmt::format("a prompt of {}{} and {} exceed the model's context of {}",
                               counted(prompt_tokens, "token"), place.empty() ? "" : " (" + place + ")",
                               counted(new_tokens, "new token"), counted(config.max_positions, "token")),
                   "Give fewer new tokens, or a shorter prompt");
}

std::optional<Dataset> eval_dataset_of(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                                       ThreadPool& pool) {
  if (settings.eval_dataset.empty()) return std::nullopt;
  return load_dataset(settings, DatasetUse::evaluation, tokenizer, config, settings.eval_generation, pool);
}

BatchBounds bounds_of(const std::vector<Sample>& samples, int64_t batch_size) {
  std::vector<int64_t> lengths, targets;
  for (const Sample& sample : samples) {
    lengths.push_back(std::ssize(sample.ids));
    targets.push_back(num_targets_of(sample));
  }
  return {sum_of_largest(std::move(lengths), batch_size), std::min(batch_size, static_cast<int64_t>(samples.size())),
          sum_of_largest(std::move(targets), batch_size)};
}

BatchBounds bounds_of(const std::vector<std::vector<int32_t>>& prompts, int64_t batch_size) {
  std::vector<int64_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<int64_t>(prompt.size()));
  return {sum_of_largest(std::move(lengths), batch_size), std::min(batch_size, static_cast<int64_t>(prompts.size())),
          0};
}

BatchBounds bounds_by_tokens(const std::vector<Sample>& samples, int64_t batch_tokens, int64_t num_batches) {
  struct Size {
    int64_t tokens, targets;
  };
  std::vector<Size> sizes;
  int64_t all_tokens = 0, squares = 0;
  for (const Sample& sample : samples) {
    sizes.push_back({std::ssize(sample.ids), num_targets_of(sample)});
    all_tokens += sizes.back().tokens;
    squares += sizes.back().tokens * sizes.back().tokens;
  }
  const int64_t most = std::min(batch_tokens * num_batches, all_tokens);
  BatchBounds bounds;
  bounds.num_tokens = most;
  bounds.mean_length = all_tokens > 0 ? squares / all_tokens : 0;
  // A batch has the most samples if it contains the shortest samples.
  std::ranges::sort(sizes, {}, &Size::tokens);
  int64_t tokens = 0;
  for (const Size& size : sizes) {
    tokens += size.tokens;
    if (tokens > most) break;
    ++bounds.num_sequences;
  }
  if (num_batches == 1) bounds.num_sequences = std::min(bounds.num_sequences, kMaxBatchSequences);
  // A batch has the most targets if its samples have the most targets per token. A part of the last sample also counts,
  // which makes the number an upper bound.
  std::ranges::sort(sizes, std::ranges::greater(), [](const Size& size) {
    return static_cast<double>(size.targets) / static_cast<double>(std::max<int64_t>(1, size.tokens));
  });
  tokens = 0;
  for (const Size& size : sizes) {
    const int64_t room = most - tokens;
    if (size.tokens > room) {
      bounds.num_targets += size.targets * room / size.tokens;
      break;
    }
    tokens += size.tokens;
    bounds.num_targets += size.targets;
  }
  return bounds;
}

}  // namespace tessera
