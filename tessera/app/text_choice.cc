#include "tessera/app/text_choice.h"

#include <fmt/format.h>

#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
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

}  // namespace tessera
