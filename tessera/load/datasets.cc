#include "tessera/load/datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/data/mixture.h"
#include "tessera/data/scoring.h"
#include "tessera/load/chat.h"
#include "tessera/load/model_files.h"
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
      throw UsageError(option_place("max_length"),
                       fmt::format("{} has a sample of {}, but the context of the model has {} "
                                   "(max_position_embeddings and the scaling of its positions)",
                                   path, counted(sample.ids.size(), "token"), counted(context, "token")),
                       fmt::format("Give at most {}", context));
    }
    if (std::ssize(sample.ids) <= kMaxDropoutKeys) continue;
    throw UsageError(
        option_place("max_length"),
        fmt::format("{} has a sample of {} tokens; the limit is {}", path, sample.ids.size(), kMaxDropoutKeys),
        fmt::format("Give at most {}", kMaxDropoutKeys));
  }
}

RowOrder row_order(const Settings& settings, bool training) {
  if (settings.subset) return *settings.subset;
  return (training ? settings.shuffle : settings.eval_size > 0) ? RowOrder::random : RowOrder::first;
}

// Removes the answers of questions whose answers all say that the question has none.
void remove_no_answers(std::vector<Example>& examples, const std::string& no_answer) {
  for (Example& example : examples) {
    const auto says_so = [&](const std::string& answer) { return says_no_answer(answer, no_answer); };
    Question* question = example.question();
    if (!question || !std::ranges::all_of(question->answers, says_so)) continue;
    question->answers.clear();
    question->answerable = question->free_answer = false;
    question->answer_start = -1;
  }
}

// Makes the samples of the data set, and removes examples without samples. `rows`: the numbers of the examples to use,
// in the order of the samples. Each of them has samples.
void keep_used(Dataset& dataset, std::vector<EncodedRow> encoded, const std::vector<int64_t>& rows) {
  std::vector<int64_t> times_left(encoded.size(), 0);
  for (const int64_t row : rows) ++times_left[static_cast<size_t>(row)];
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i].samples.empty() && dataset.examples[i].is_unanswerable()) ++dataset.num_too_long_without_answer;
  }
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    if (dataset.examples[i].is_unanswerable()) ++dataset.use.rows_without_answer;
    dataset.use.add_kind(dataset.examples[i]);
    if (--times_left[i] > 0) {
      std::ranges::copy(encoded[i].samples, std::back_inserter(dataset.samples));
    } else {
      std::ranges::move(encoded[i].samples, std::back_inserter(dataset.samples));
    }
  }
  size_t kept = 0;
  std::vector<bool> is_used(encoded.size(), false);
  for (const int64_t row : rows) is_used[static_cast<size_t>(row)] = true;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (!is_used[i]) continue;
    if (kept != i) dataset.examples[kept] = std::move(dataset.examples[i]);
    ++kept;
  }
  dataset.examples.resize(kept);
}

enum class DatasetUse { training, evaluation };

// Rows of files, before --train-size or --eval-size chooses some of them.
struct Source {
  std::string name;  // in messages
  std::vector<std::string> files;
  ExampleRows rows;
  std::vector<DataFile> mixture{};  // the files with their shares; empty if they have none
  std::vector<int64_t> sizes{};     // the number of examples of each file of the mixture
};

// `words`: the paths of the files, perhaps with shares.
Source read_source(const Settings& settings, const std::vector<std::string>& words, const std::string& setting) {
  const RowOptions options{.text_rows = settings.txt_rows, .kind = settings.dataset_format, .fields = settings.fields};
  std::vector<DataFile> mixture = data_files_of(words, setting);
  const std::vector<std::string> files = paths_of(mixture);
  Source source{data_name(files), files, {}};
  if (!is_mixture(mixture)) {
    source.rows = load_rows(files, options);
  } else {
    for (const std::string& file : files) {
      ExampleRows rows = load_rows({file}, options);
      source.sizes.push_back(std::ssize(rows.examples));
      std::ranges::move(rows.examples, std::back_inserter(source.rows.examples));
      std::ranges::move(rows.bad, std::back_inserter(source.rows.bad));
    }
    source.mixture = std::move(mixture);
  }
  const int64_t num_rows = num_rows_of(source.rows.bad) + std::ssize(source.rows.examples);
  check_bad_rows(source.rows.bad, num_rows, settings.bad_rows, settings.max_bad_rows, files);
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
std::vector<int64_t> mixed_rows(const Source& source, const Settings& settings, const std::vector<EncodedRow>& encoded,
                                DataUse& use) {
  const auto seed = static_cast<uint64_t>(settings.seed);
  std::vector<int64_t> usable, file_of;  // the numbers of the examples with samples, and their files
  std::vector<int64_t> sizes;
  int64_t row = 0;
  for (size_t file = 0; file < source.mixture.size(); ++file) {
    const int64_t end = row + source.sizes[file];
    sizes.push_back(0);
    for (; row < end; ++row) {
      if (encoded[static_cast<size_t>(row)].samples.empty()) continue;
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

void add_prompts(Dataset& dataset, const EncodeFn& encode, const PromptOptions& options, const Settings& settings,
                 const ModelConfig& config, ThreadPool& pool) {
  for (const Example& example : dataset.examples) {
    if (!example.text()) continue;
    throw UsageError(option_place("eval_generation"),
                     fmt::format("{} contains plain texts, which have no answers to score", dataset.use.name),
                     "Remove --eval-generation, or evaluate on questions, or on prompts with completions");
  }
  dataset.prompts.resize(dataset.examples.size());
  pool.for_ranges(static_cast<int64_t>(dataset.examples.size()), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      dataset.prompts[i] = encode_prompt(dataset.examples[i], encode, options);
    }
  });
  for (size_t i = 0; i < dataset.prompts.size(); ++i) {
    if (dataset.prompts[i].empty()) {
      throw InputError(dataset.examples[i].place, "the prompt has no tokens", "Remove the row, or give another prompt");
    }
    check_context(config, std::ssize(dataset.prompts[i]), settings.max_new_tokens);
  }
}

// What to do if no sample has a loss. The reasons are: answers were cut off, or answers or texts have too few tokens.
std::string remedy_without_loss(const Dataset& dataset) {
  if (dataset.use.rows_cut > 0) return "Increase --max-length, or give --truncation context to keep the answers";
  if (std::ranges::any_of(dataset.examples, [](const Example& example) { return example.text() != nullptr; })) {
    return "Give texts that are not empty. A text needs at least 2 tokens, because the first one has no loss";
  }
  return "Give questions with answers, give --unanswerable-text, or remove --no-append-eos";
}

// Throws InputError for the first row of the files whose conversation the template rewrites. Rows may be shuffled here.
void check_template_fits(const std::vector<EncodedRow>& rows) {
  const BadRow* first = nullptr;
  for (const EncodedRow& row : rows) {
    if (row.is_template_fault && (!first || natural_less(row.fault.place, first->place))) first = &row.fault;
  }
  if (first) throw InputError(first->place, first->what);
}

// Throws InputError if every token has a loss, except the first one of each sample.
void check_mask(const std::vector<Sample>& samples, const ChatTemplate& chat_template, const std::string& name) {
  for (const Sample& sample : samples) {
    if (num_targets_of(sample) + 1 < std::ssize(sample.ids)) return;
  }
  throw InputError(name,
                   fmt::format("{} marks all tokens of the conversations as the assistant's, so questions would carry "
                               "loss as well",
                               chat_template.where()),
                   "Correct its {% generation %} blocks, or give --loss-on all if this is what you want");
}

// Encodes the rows that the settings select.
Dataset encoded_dataset(Source source, const Settings& settings, DatasetUse use, const Tokenizer& tokenizer,
                        const ModelConfig& config, ThreadPool& pool) {
  const bool training = use == DatasetUse::training;
  Dataset dataset;
  dataset.use.name = source.name;
  dataset.use.files = source.files;
  const bool is_mixture = !source.mixture.empty();
  dataset.examples = std::move(source.rows.examples);
  if (!is_mixture) {
    dataset.examples = select_examples(std::move(dataset.examples), training ? settings.train_size : settings.eval_size,
                                       static_cast<uint64_t>(settings.seed), row_order(settings, training),
                                       training ? "train_size" : "eval_size");
  }
  remove_no_answers(dataset.examples, settings.unanswerable_text);
  const EncodeFn encode = encoder_of(tokenizer, config);
  std::optional<ChatTemplate> chat_template;
  ChatOptions chat;
  const bool has_conversations =
      std::ranges::any_of(dataset.examples, [](const Example& example) { return example.conversation() != nullptr; });
  if (has_conversations) {
    chat_template.emplace(chat_template_of(settings, tokenizer, config, TemplateDate::must_be_given));
    chat = chat_options_of(settings, *chat_template, tokenizer, config);
  }
  const PromptOptions options{settings.objective,
                              settings.truncation,
                              settings.long_texts,
                              settings.max_length,
                              config.eos_token_id,
                              settings.append_eos,
                              training,
                              settings.unanswerable_text,
                              chat};
  std::vector<EncodedRow> encoded = encode_rows(dataset.examples, encode, options, pool);
  check_template_fits(encoded);
  std::vector<int64_t> rows;  // the numbers of the examples with samples
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (!encoded[i].samples.empty()) rows.push_back(static_cast<int64_t>(i));
    if (!is_mixture || encoded[i].samples.empty()) dataset.use.add(encoded[i]);
  }
  check_bad_rows(dataset.use.bad, std::ssize(encoded), settings.bad_rows, settings.max_bad_rows, source.files);
  if (is_mixture && !rows.empty()) {
    rows = mixed_rows(source, settings, encoded, dataset.use);
    for (const int64_t row : rows) dataset.use.add(encoded[static_cast<size_t>(row)]);
  }
  if (dataset.use.wrong_end.value_or(-1) >= 0) {
    dataset.use.wrong_end_text = tokenizer.decode(std::array{*dataset.use.wrong_end}, false);
  }
  if (dataset.use.num_samples == 0) {
    throw InputError(source.name, fmt::format("all texts are longer than --max-length {}", settings.max_length),
                     "Increase --max-length, or give --long-texts split");
  }
  keep_used(dataset, std::move(encoded), rows);
  dataset.use.add_malformed(std::move(source.rows.bad));
  check_lengths(dataset.samples, config, source.name);
  const bool has_targets = std::any_of(dataset.samples.begin(), dataset.samples.end(), [](const Sample& sample) {
    return std::any_of(sample.labels.begin(), sample.labels.end(), [](int32_t label) { return label != kNoTarget; });
  });
  if (!has_targets) {
    throw InputError(source.name,
                     fmt::format("no token of the {} has a loss", counted(dataset.samples.size(), "sample")),
                     remedy_without_loss(dataset));
  }
  if (has_conversations && settings.loss_on != LossOn::all && settings.objective == Objective::completion) {
    check_mask(dataset.samples, *chat_template, source.name);
  }
  if (!training && settings.eval_generation) add_prompts(dataset, encode, options, settings, config, pool);
  return dataset;
}

}  // namespace

TrainingData load_training_data(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                                ThreadPool& pool) {
  Source source = read_source(settings, settings.dataset, "dataset");
  std::optional<Source> held;
  if (settings.eval_fraction > 0) held = held_out(source, settings);
  TrainingData data{encoded_dataset(std::move(source), settings, DatasetUse::training, tokenizer, config, pool)};
  if (held) {
    data.eval = encoded_dataset(std::move(*held), settings, DatasetUse::evaluation, tokenizer, config, pool);
  } else if (!settings.eval_dataset.empty()) {
    data.eval = load_eval_data(settings, tokenizer, config, pool);
  }
  return data;
}

Dataset load_eval_data(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                       ThreadPool& pool) {
  Source source = read_source(settings, settings.eval_dataset, "eval_dataset");
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

std::vector<int64_t> lengths_of(const std::vector<Sample>& samples) {
  std::vector<int64_t> lengths;
  lengths.reserve(samples.size());
  for (const Sample& sample : samples) lengths.push_back(std::ssize(sample.ids));
  return lengths;
}

BatchBounds bounds_of(const std::vector<Sample>& samples, int64_t batch_size) {
  std::vector<int64_t> targets;
  for (const Sample& sample : samples) targets.push_back(num_targets_of(sample));
  return {sum_of_largest(lengths_of(samples), batch_size), std::min(batch_size, static_cast<int64_t>(samples.size())),
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
