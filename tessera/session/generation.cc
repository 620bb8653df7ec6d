#include "tessera/session/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/data/prompts.h"
#include "tessera/data/stop_cutter.h"
#include "tessera/load/chat.h"
#include "tessera/load/datasets.h"
#include "tessera/load/model_files.h"
#include "tessera/ops/sampling_numbers.h"

namespace tessera {

GenerationOptions generation_options(const ResolvedSettings& resolved, const ModelConfig& config,
                                     const GenerationConfig& file) {
  const Settings& settings = resolved.settings;
  GenerationOptions options{.max_new_tokens = settings.max_new_tokens,
                            .eos_id = config.eos_token_id,
                            .sampling = sampling_of(resolved, file),
                            .seed = static_cast<uint64_t>(settings.seed)};
  if (options.sampling && config.vocab_size > kMaxSampledVocabulary) {
    throw UsageError(option_place("do_sample"),
                     fmt::format("the vocabulary of the model has {} tokens, but random draws support at most {}",
                                 config.vocab_size, kMaxSampledVocabulary),
                     "Leave out --do-sample, --temperature, --top-k and --top-p");
  }
  return options;
}

void note_sampling(const GenerationOptions& options, const GenerationConfig& file, const Settings& settings,
                   Console& console) {
  const std::string path = generation_config_path(settings).string();
  if (options.sampling) {
    const Sampling& sampling = *options.sampling;
    const std::string tokens = sampling.top_k == 0 ? "all" : std::to_string(sampling.top_k);
    console.note(fmt::format("Sampling with temperature {}, top_k {}, top_p {} and seed {}", sampling.temperature,
                             tokens, sampling.top_p, settings.seed));
  } else if (file.do_sample) {
    console.note(fmt::format(
        "Each token is the most likely one. Give --do-sample to draw tokens at random with the values of {}", path));
  }
  if (!file.unused.empty()) {
    console.note(fmt::format("warning: {}: Tessera does not use these keys: {}", path, joined(file.unused, ", ")));
  }
}

EncodedPrompts encode_prompts(std::vector<PromptRow> rows, const Settings& settings, const Tokenizer& tokenizer,
                              const ModelConfig& config, ThreadPool& pool) {
  EncodedPrompts prompts{std::move(rows), {}};
  prompts.ids.resize(prompts.rows.size());
  const EncodeFn encode = encoder_of(tokenizer, config);
  PromptOptions options{.max_length = kAnyPromptLength, .eos_id = config.eos_token_id, .around_answer = false};
  std::optional<ChatTemplate> chat_template;
  if (std::ranges::any_of(prompts.rows, [](const PromptRow& row) { return row.example.conversation() != nullptr; })) {
    chat_template.emplace(chat_template_of(settings, tokenizer, config, TemplateDate::today));
    options.chat = chat_options_of(settings, *chat_template, tokenizer, config);
  }
  pool.for_ranges(std::ssize(prompts.rows), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const Example& example = prompts.rows[i].example;
      try {
        prompts.ids[i] = encode_prompt(example, encode, options);
      } catch (const InputError& error) {  // names neither the flag nor the line
        throw InputError(example.place.empty() ? option_place(example.text() ? "prompt" : "question") : example.place,
                         error.what());
      }
    }
  });
  for (size_t i = 0; i < prompts.rows.size(); ++i) {
    const Example& example = prompts.rows[i].example;
    if (prompts.ids[i].empty()) {
      const std::string why = example.text() && example.text()->text.empty()
                                  ? "the prompt is empty, and the tokenizer puts no BOS token before it"
                                  : "the prompt has no tokens";
      if (example.place.empty()) throw UsageError(option_place("prompt"), why, "Give a text");
      throw InputError(example.place, why, "Remove the line, or give it a text");
    }
    check_context(config, std::ssize(prompts.ids[i]), settings.max_new_tokens, example.place);
  }
  return prompts;
}

GeneratedText generated_text(std::span<const int32_t> ids, const Example& example, const Tokenizer& tokenizer,
                             const std::vector<std::string>& stops) {
  StopCutter cutter(stops);
  std::string text = cutter.add(tokenizer.decode(ids, true));
  text += cutter.finish();
  if (example.question() && text.starts_with(' ')) text.erase(0, 1);
  return {text, cutter.has_stopped()};
}

}  // namespace tessera
