#include "tessera/load/datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <numeric>

#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/data/mixture.h"
#include "tessera/load/encoded_rows.h"
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

// Throws UsageError if a sample is longer than one of two limits. In every model, a sample has at most kMaxDropoutKeys
// tokens, because the random numbers of attention dropout are defined for only this many positions. With rotary
// positions, a sample must also fit into the model's context.
void check_lengths(const Samples& samples, const ModelConfig& config, const std::string& path) {
  const int64_t context = config.max_positions;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const int64_t length = samples.length(i);
    if (context > 0 && length > context) {
      throw UsageError(option_place("max_length"),
                       fmt::format("{} has a sample of {}, but the context of the model has {} "
                                   "(max_position_embeddings and the scaling of its positions)",
                                   path, counted(length, "token"), counted(context, "token")),
                       fmt::format("Give at most {}", context));
    }
    if (length <= kMaxDropoutKeys) continue;
    throw UsageError(option_place("max_length"),
                     fmt::format("{} has a sample of {} tokens; the limit is {}", path, length, kMaxDropoutKeys),
                     fmt::format("Give at most {}", kMaxDropoutKeys));
  }
}

RowOrder row_order(const Settings& settings, bool training) {
  if (settings.subset) return *settings.subset;
  return (training ? settings.shuffle : settings.eval_size > 0) ? RowOrder::random : RowOrder::first;
}

enum class DatasetUse { training, evaluation };

// Rows of files, before --train-size or --eval-size chooses some of them.
struct Source {
  std::string name;  // in messages
  std::vector<std::string> files;
  ExampleRows rows;
  std::vector<DataFile> mixture{};  // the files with their shares; empty if they have none
  std::vector<int64_t> sizes{};     // the number of examples of each file
};

// Without rows.
Source source_of(std::vector<DataFile> files) {
  const std::vector<std::string> paths = paths_of(files);
  Source source{data_name(paths), paths, {}};
  if (is_mixture(files)) source.mixture = std::move(files);
  return source;
}

// Throws InputError if too many of the rows are malformed. `num_good`: the others.
void check_source(const Source& source, int64_t num_good, const Settings& settings) {
  check_bad_rows(source.rows.bad, num_rows_of(source.rows.bad) + num_good, settings.bad_rows, settings.max_bad_rows,
                 source.files);
}

// `words`: the paths of the files, perhaps with shares.
Source read_source(const Settings& settings, const std::vector<std::string>& words, const std::string& setting) {
  Source source = source_of(data_files_of(words, setting));
  for (const std::string& file : source.files) {
    ExampleRows rows = load_rows({file}, row_options(settings));
    source.sizes.push_back(std::ssize(rows.examples));
    std::ranges::move(rows.examples, std::back_inserter(source.rows.examples));
    std::ranges::move(rows.bad, std::back_inserter(source.rows.bad));
  }
  check_source(source, std::ssize(source.rows.examples), settings);
  return source;
}

Source given_source(ExampleRows rows, const Settings& settings) {
  Source source{kGivenRows, {kGivenRows}, std::move(rows)};
  source.sizes.push_back(std::ssize(source.rows.examples));
  if (source.rows.examples.empty() && source.rows.bad.empty()) throw InputError(kGivenRows, "there are none");
  check_source(source, std::ssize(source.rows.examples), settings);
  return source;
}

// Holds out a part of the rows, for evaluation. Of a mixture, holds out this part of the rows of each file.
Source held_out(Source& source, const Settings& settings) {
  const auto seed = static_cast<uint64_t>(settings.seed);
  Source held{source.name + ", held out", source.files, {}};
  if (source.mixture.empty()) {
    held.rows.examples = hold_out(source.rows.examples, settings.eval_fraction, seed);
    return held;
  }
  std::vector<Example> kept;
  auto first = source.rows.examples.begin();
  for (int64_t& size : source.sizes) {
    std::vector<Example> own(std::make_move_iterator(first), std::make_move_iterator(first + size));
    first += size;
    std::ranges::move(hold_out(own, settings.eval_fraction, seed), std::back_inserter(held.rows.examples));
    size = std::ssize(own);
    std::ranges::move(own, std::back_inserter(kept));
  }
  source.rows.examples = std::move(kept);
  return held;
}

// The numbers of the examples in an epoch of a mixture: the selected rows, with repetitions. `encoded`: the rows of the
// source. Rows without samples are left out before the mixture is made. Sets use.mixture.
std::vector<int64_t> mixed_rows(const Source& source, const Settings& settings, const EncodedRows& encoded,
                                DataUse& use) {
  const auto seed = static_cast<uint64_t>(settings.seed);
  std::vector<int64_t> usable, file_of;  // the numbers of the examples with samples, and their files
  std::vector<int64_t> sizes;
  int64_t row = 0;
  for (size_t file = 0; file < source.mixture.size(); ++file) {
    const int64_t end = row + source.sizes[file];
    sizes.push_back(0);
    for (; row < end; ++row) {
      if (encoded.at(row).num_samples == 0) continue;
      usable.push_back(row);
      file_of.push_back(static_cast<int64_t>(file));
      ++sizes.back();
    }
    if (sizes.back() == 0) {
      throw InputError(source.mixture[file].path,
                       "none of its rows can be used, so it cannot have a share of a mixture",
                       "Correct its rows, or remove it from " + option("dataset"));
    }
  }
  const std::vector<int64_t> mixed = rows_of_epoch(sizes, rows_per_epoch(source.mixture, sizes, "dataset"), seed);
  for (size_t file = 0; file < sizes.size(); ++file) {
    use.mixture.push_back({source.mixture[file].path, source.mixture[file].share, sizes[file], 0});
  }
  std::vector<int64_t> chosen;
  for (const int64_t at :
       select_rows(std::ssize(mixed), settings.train_size, seed, row_order(settings, true), "train_size")) {
    const auto number = static_cast<size_t>(mixed[static_cast<size_t>(at)]);
    chosen.push_back(usable[number]);
    ++use.mixture[static_cast<size_t>(file_of[number])].rows_per_epoch;
  }
  return chosen;
}

void add_prompts(Dataset& dataset, RowEncoder& encoder, const Settings& settings, const ModelConfig& config) {
  for (const Example& example : dataset.examples) {
    if (!example.text() && !example.tokens()) continue;
    throw UsageError(option_place("eval_generation"),
                     fmt::format("{} contains {}, which have no answers to score", dataset.use.name,
                                 example.text() ? "plain texts" : "rows of token ids"),
                     "Remove --eval-generation, or evaluate on questions, or on prompts with completions");
  }
  dataset.prompts = encoder.prompts(dataset.examples);
  for (size_t i = 0; i < dataset.prompts.size(); ++i) {
    if (dataset.prompts[i].empty()) {
      throw InputError(dataset.examples[i].place, "the prompt has no tokens", "Remove the row, or give another prompt");
    }
    check_context(config, std::ssize(dataset.prompts[i]), settings.max_new_tokens);
  }
}

// What to do if no sample has a loss. The reasons are: answers were cut off, or answers or texts have too few tokens.
std::string remedy_without_loss(const Dataset& dataset, bool has_texts) {
  if (dataset.use.rows_cut > 0) return "Increase --max-length, or give --truncation context to keep the answers";
  if (has_texts) {
    return "Give texts that are not empty. A text needs at least 2 tokens, because the first one has no loss";
  }
  return "Give questions with answers, give --unanswerable-text, or remove --no-append-eos";
}

// Throws InputError for the first of the rows in the files whose conversation the template rewrites.
void check_template_fits(const EncodedRows& encoded, const std::vector<int64_t>& rows) {
  const BadRow* first = nullptr;
  for (const int64_t row : rows) {
    if (!encoded.at(row).has(RowFacts::kTemplateFault)) continue;
    const BadRow& fault = encoded.faults[static_cast<size_t>(encoded.at(row).extra)];
    if (!first || natural_less(fault.place, first->place)) first = &fault;
  }
  if (first) throw InputError(first->place, first->what);
}

// Throws InputError if every token has a loss, except the first one of each sample.
void check_mask(const Samples& samples, const ChatTemplate& chat_template, const std::string& name) {
  for (int64_t i = 0; i < samples.size(); ++i) {
    if (samples.num_targets(i) + 1 < samples.length(i)) return;
  }
  throw InputError(name,
                   fmt::format("{} marks all tokens of the conversations as the assistant's, so questions would carry "
                               "loss as well",
                               chat_template.where()),
                   "Correct its {% generation %} blocks, or give --loss-on all if this is what you want");
}

// The data set of the selected rows, in this order. Sets everything except `examples` and `prompts`. Of a mixture, the
// rows of an epoch are chosen here. `rows` becomes the rows that have samples.
Dataset dataset_of(Source source, const EncodedRows& encoded, std::vector<int64_t>& rows, const Settings& settings,
                   RowEncoder& encoder, const Tokenizer& tokenizer, const ModelConfig& config) {
  Dataset dataset;
  dataset.use.name = source.name;
  dataset.use.files = source.files;
  const bool is_mixture = !source.mixture.empty();
  check_template_fits(encoded, rows);
  for (const int64_t row : rows) {
    const RowCount count = encoded.count(row);
    if (!is_mixture || count.num_samples == 0) dataset.use.add(count);
    if (count.num_samples == 0 && count.is_unanswerable) ++dataset.num_too_long_without_answer;
  }
  check_bad_rows(dataset.use.bad, std::ssize(rows), settings.bad_rows, settings.max_bad_rows, source.files);
  std::erase_if(rows, [&](int64_t row) { return encoded.at(row).num_samples == 0; });
  if (is_mixture && !rows.empty()) {
    rows = mixed_rows(source, settings, encoded, dataset.use);
    for (const int64_t row : rows) dataset.use.add(encoded.count(row));
  }
  if (dataset.use.wrong_end.value_or(-1) >= 0) {
    dataset.use.wrong_end_text = tokenizer.decode(std::array{*dataset.use.wrong_end}, false);
  }
  if (dataset.use.num_samples == 0) {
    throw InputError(source.name, fmt::format("all texts are longer than --max-length {}", settings.max_length),
                     "Increase --max-length, or give --long-texts split");
  }
  dataset.samples = encoded.samples_of(rows);
  dataset.use.add_malformed(std::move(source.rows.bad));
  check_lengths(dataset.samples, config, source.name);
  bool has_targets = false;
  for (int64_t i = 0; i < dataset.samples.size(); ++i) has_targets = has_targets || dataset.samples.num_targets(i) > 0;
  if (!has_targets) {
    throw InputError(source.name,
                     fmt::format("no token of the {} has a loss", counted(dataset.samples.size(), "sample")),
                     remedy_without_loss(dataset, encoded.has_texts));
  }
  if (encoded.has_conversations && settings.loss_on != LossOn::all && settings.objective == Objective::completion) {
    check_mask(dataset.samples, encoder.chat_template(), source.name);
  }
  return dataset;
}

std::vector<int64_t> all_rows(const EncodedRows& encoded) {
  std::vector<int64_t> rows(encoded.rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

size_t as_size(const RowFacts& facts) {
  return static_cast<size_t>(facts.num_samples);
}

// Encodes the rows that the settings select.
Dataset encoded_dataset(Source source, const Settings& settings, DatasetUse use, const Tokenizer& tokenizer,
                        const ModelConfig& config, ThreadPool& pool) {
  const bool training = use == DatasetUse::training;
  std::vector<Example> examples = std::move(source.rows.examples);
  if (source.mixture.empty()) {
    examples = select_examples(std::move(examples), training ? settings.train_size : settings.eval_size,
                               static_cast<uint64_t>(settings.seed), row_order(settings, training),
                               training ? "train_size" : "eval_size");
  }
  RowEncoder encoder(settings, tokenizer, config, pool, training);
  EncodedRows encoded;
  const auto tokens = std::make_shared<MemoryTokens>();
  encoded.tokens = tokens;
  encoder.add(examples, encoded, [&](const Sample& sample) { tokens->add(sample); });
  std::vector<int64_t> rows = all_rows(encoded);
  Dataset dataset = dataset_of(std::move(source), encoded, rows, settings, encoder, tokenizer, config);
  for (const int64_t row : rows) {
    const int64_t number = examples[static_cast<size_t>(row)].number;
    if (number >= 0) dataset.row_numbers.insert(dataset.row_numbers.end(), as_size(encoded.at(row)), number);
  }
  if (training) return dataset;  // training needs no texts
  for (const int64_t row : rows) dataset.examples.push_back(std::move(examples[static_cast<size_t>(row)]));
  if (settings.eval_generation) add_prompts(dataset, encoder, settings, config);
  return dataset;
}

Dataset cached_dataset(const Settings& settings, const std::string& root, const Tokenizer& tokenizer,
                       const ModelConfig& config, ThreadPool& pool, const LoadRanks& ranks) {
  Source source = source_of(data_files_of(settings.dataset, "dataset"));
  RowEncoder encoder(settings, tokenizer, config, pool, true);
  CachedRows cached = cached_rows(root, source.files, settings, config, encoder, ranks);
  source.rows.bad = std::move(cached.malformed);
  source.sizes = std::move(cached.sizes);
  const int64_t num_rows = std::ssize(cached.encoded.rows);
  check_source(source, num_rows, settings);
  std::vector<int64_t> rows = all_rows(cached.encoded);
  if (source.mixture.empty()) {
    rows = select_rows(num_rows, settings.train_size, static_cast<uint64_t>(settings.seed), row_order(settings, true),
                       "train_size");
  }
  return dataset_of(std::move(source), cached.encoded, rows, settings, encoder, tokenizer, config);
}

}  // namespace

TrainingData load_training_data(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                                ThreadPool& pool, const LoadRanks& ranks, GivenRows given) {
  if (const std::string root = given.train ? "" : cache_root(settings, ranks); !root.empty()) {
    TrainingData data{cached_dataset(settings, root, tokenizer, config, pool, ranks)};
    if (!settings.eval_dataset.empty()) {
      data.eval = load_eval_data(settings, tokenizer, config, pool, std::move(given.eval));
    }
    return data;
  }
  Source source = given.train ? given_source(std::move(*given.train), settings)
                              : read_source(settings, settings.dataset, "dataset");
  std::optional<Source> held;
  if (settings.eval_fraction > 0) held = held_out(source, settings);
  TrainingData data{encoded_dataset(std::move(source), settings, DatasetUse::training, tokenizer, config, pool)};
  if (held) {
    data.eval = encoded_dataset(std::move(*held), settings, DatasetUse::evaluation, tokenizer, config, pool);
  } else if (!settings.eval_dataset.empty()) {
    data.eval = load_eval_data(settings, tokenizer, config, pool, std::move(given.eval));
  }
  return data;
}

Dataset load_eval_data(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                       ThreadPool& pool, std::optional<ExampleRows> given) {
  Source source =
      given ? given_source(std::move(*given), settings) : read_source(settings, settings.eval_dataset, "eval_dataset");
  if (!source.mixture.empty()) {
    const DataFile& file = source.mixture[0];
    throw UsageError(
        option_place("eval_dataset"),
        fmt::format("{} has the share {}, but an evaluation uses every row once, so that its loss does not "
                    "depend on shares",
                    printable(file.path), file.share),
        "Give the files without shares");
  }
  return encoded_dataset(std::move(source), settings, DatasetUse::evaluation, tokenizer, config, pool);
}

void check_context(const ModelConfig& config, int64_t prompt_tokens, int64_t new_tokens, const std::string& place) {
  if (config.max_positions == 0 || prompt_tokens + new_tokens <= config.max_positions) return;
  throw UsageError(option_place("max_new_tokens"),
                   fmt::format("a prompt of {}{} and {} exceed the model's context of {}",
                               counted(prompt_tokens, "token"), place.empty() ? "" : " (" + place + ")",
                               counted(new_tokens, "new token"), counted(config.max_positions, "token")),
                   "Give fewer new tokens, or a shorter prompt");
}

PackedBatch batch_of(const Dataset& dataset, std::span<const int64_t> indices) {
  PackedBatch batch = pack(dataset.samples, indices);
  if (dataset.row_numbers.empty()) return batch;
  for (const int64_t index : indices) batch.row_numbers.push_back(dataset.row_numbers[static_cast<size_t>(index)]);
  return batch;
}

std::vector<int64_t> lengths_of(const Samples& samples) {
  std::vector<int64_t> lengths;
  lengths.reserve(static_cast<size_t>(samples.size()));
  for (int64_t i = 0; i < samples.size(); ++i) lengths.push_back(samples.length(i));
  return lengths;
}

BatchBounds bounds_of(const Samples& samples, int64_t batch_size) {
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < samples.size(); ++i) targets.push_back(samples.num_targets(i));
  return {sum_of_largest(lengths_of(samples), batch_size), std::min(batch_size, samples.size()),
          sum_of_largest(std::move(targets), batch_size)};
}

BatchBounds bounds_of(const std::vector<std::vector<int32_t>>& prompts, int64_t batch_size) {
  std::vector<int64_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<int64_t>(prompt.size()));
  return {sum_of_largest(std::move(lengths), batch_size), std::min(batch_size, static_cast<int64_t>(prompts.size())),
          0};
}

BatchBounds bounds_by_tokens(const Samples& samples, int64_t batch_tokens, int64_t num_batches) {
  struct Size {
    int64_t tokens, targets;
  };
  std::vector<Size> sizes;
  int64_t all_tokens = 0, squares = 0;
  for (int64_t i = 0; i < samples.size(); ++i) {
    sizes.push_back({samples.length(i), samples.num_targets(i)});
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
