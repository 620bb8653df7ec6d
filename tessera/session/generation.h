// How `generate` and `chat` choose the tokens of a text: their options, the tokens of prompts, and the texts that the
// model generates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/data/prompt_file.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/engine.h"
#include "tessera/log/console.h"
#include "tessera/model/generation_config.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// A maximum length that no prompt reaches, so encode_prompt() cuts no prompt.
constexpr int64_t kAnyPromptLength = int64_t{1} << 30;

// The options that the settings and `file`, the model's generation_config.json, give. Throws UsageError and InputError.
GenerationOptions generation_options(const ResolvedSettings& resolved, const ModelConfig& config,
                                     const GenerationConfig& file);

// Prints how tokens are drawn, and which values of the model's generation_config.json (`file`) are not applied.
void note_sampling(const GenerationOptions& options, const GenerationConfig& file, const Settings& settings,
                   Console& console);

struct EncodedPrompts {
  std::vector<PromptRow> rows;
  std::vector<std::vector<int32_t>> ids;  // the tokens of each row
};
// Encodes the prompts on the threads of the pool. Throws UsageError or InputError if a prompt has no tokens, if it and
// its continuation are longer than the model's context, or if the tokenizer or the chat template rejects it.
EncodedPrompts encode_prompts(std::vector<PromptRow> rows, const Settings& settings, const Tokenizer& tokenizer,
                              const ModelConfig& config, ThreadPool& pool);

struct GeneratedText {
  std::string text;
  bool has_stopped;  // a string of `stops` ended it
};
// The text of generated ids. The prompt of a question ends with "Answer:", so the space before the answer is removed.
GeneratedText generated_text(std::span<const int32_t> ids, const Example& example, const Tokenizer& tokenizer,
                             const std::vector<std::string>& stops);

}  // namespace tessera
