// The chat template that the settings name.
#pragma once

#include "tessera/data/prompts.h"
#include "tessera/data/tokenizer.h"
#include "tessera/model/config.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Whether the same conversation must give the same text on another day.
enum class TemplateDate { today, must_be_given };

// Reads the file of --chat-template or, without this flag, the template of the tokenizer's folder: chat_template.jinja,
// else "chat_template" in tokenizer_config.json, else chat_template.json. Conversations with tools use the template
// "tool_use" if the folder has one. The variables are the special tokens that tokenizer_config.json names, with
// --eos-token in place of its end token. Throws InputError if there is no template or a faulty one. With
// TemplateDate::must_be_given, throws UsageError if the template writes the day and --template-date is not given.
ChatTemplate chat_template_of(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                              TemplateDate date);

// How conversations become samples with this template. All arguments except `settings` must outlive the result.
ChatOptions chat_options_of(const Settings& settings, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                            const ModelConfig& config);

}  // namespace tessera
