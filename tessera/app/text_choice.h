// How `generate` and `chat` choose the tokens of a text.
#pragma once

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

}  // namespace tessera
