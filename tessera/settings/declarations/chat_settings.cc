// Declarations of conversations: the chat template, and which messages carry loss.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> chat_settings() {
  return {
      choice("loss_on", &S::loss_on, determines(kTheSamples, kText),
             {{"assistant", LossOn::assistant}, {"last", LossOn::last}, {"all", LossOn::all}},
             "Which messages of a conversation carry loss. assistant: every message of the assistant, with the token "
             "that ends it; last: only the last message; all: the complete text"),
      text("chat_template", &S::chat_template, determines(kTheSamples, kChat), "FILE",
           "Jinja file that turns conversations into text. By default, the template of the tokenizer's folder: "
           "chat_template.jinja, or \"chat_template\" in tokenizer_config.json. The saved model gets this template"),
      parsed("template_date", &S::template_date, determines(kTheSamples, kChat), "YYYY-MM-DD",
             "The day that a chat template writes as today (strftime_now), so that samples do not depend on the day of "
             "the run. Conversations to train or evaluate on need it if their template writes the day",
             parse_date, [](const std::string& date) { return date; }),
      text("system", &S::system, brief(kDialog, "a system message for the model"), "TEXT",
           "System message at the begin of the chat"),
  };
}

}  // namespace tessera::declaring
