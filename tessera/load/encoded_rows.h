// The rows of a data set as samples, with what is known about each row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/data/data_use.h"
#include "tessera/data/samples.h"
#include "tessera/model/config.h"
#include "tessera/settings/settings.h"

namespace tessera {

RowOptions row_options(const Settings& settings);  // of training and evaluation data

// One row. The cache of a data set holds these bytes.
struct RowFacts {
  enum Flag : uint32_t {
    kUnanswerable = 1,
    kWithoutContext = 2,
    kFreeAnswer = 4,
    kTemplateFault = 8,
    kFault = 16,     // `extra` is the number of the fault
    kWrongEnd = 32,  // `extra` is EncodedRow::wrong_end
  };
  int64_t first_sample = 0;
  int32_t num_samples = 0;
  int32_t num_tokens = 0;  // before they are cut or split
  int32_t extra = 0;
  uint32_t flags = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
};

struct EncodedRows {
  std::vector<RowFacts> rows;
  std::shared_ptr<SampleIndex> index = std::make_shared<SampleIndex>();
  std::shared_ptr<const TokenStore> tokens;
  std::vector<BadRow> faults;
  bool has_conversations = false, has_texts = false;

  // Adds a row. Stores the tokens of its samples by `store`.
  void add(const EncodedRow& row, const Example& example, const std::function<void(const Sample&)>& store);
  const RowFacts& at(int64_t row) const { return rows[static_cast<size_t>(row)]; }
  RowCount count(int64_t row) const;
  // The samples of these rows, in this order. A row may occur several times.
  Samples samples_of(std::span<const int64_t> of_rows) const;
};

// Encodes rows as the settings say. Reads the chat template when the first conversation arrives.
class RowEncoder {
 public:
  // All arguments must outlive the encoder. `around_answer`: see PromptOptions.
  RowEncoder(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config, ThreadPool& pool,
             bool around_answer);
  RowEncoder(const RowEncoder&) = delete;

  std::vector<EncodedRow> encode(std::span<const Example> examples);
  // Encodes the examples, some at a time, and adds them to `rows`. A question whose answers all say that it has none
  // loses these answers.
  void add(std::span<Example> examples, EncodedRows& rows, const std::function<void(const Sample&)>& store);
  // Encodes the prompts of the examples, for generation.
  std::vector<std::vector<int32_t>> prompts(std::span<const Example> examples);
  const ChatTemplate& chat_template();

 private:
  const PromptOptions& options_for(std::span<const Example> examples);

  const Settings& settings_;
  const Tokenizer& tokenizer_;
  const ModelConfig& config_;
  ThreadPool& pool_;
  EncodeFn encode_;
  std::optional<ChatTemplate> chat_template_;
  PromptOptions options_;
};

}  // namespace tessera
