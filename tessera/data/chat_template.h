// The chat template of a model: turns conversations into the text that the model reads, and finds the parts of this
// text that the model learns to write.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/data/segments.h"
#include "tessera/jinja/template.h"

namespace tessera {

// Which messages of a conversation carry loss.
enum class LossOn {
  assistant,  // all messages of the assistant, each with the token that ends it; not those with "train": false
  last,       // the last message, which must be the assistant's
  all,        // the complete text
};

// The template writes an earlier turn in another way when it knows the later ones.
struct RewrittenTurn : InputError {
  using InputError::InputError;
};

class ChatTemplate {
 public:
  struct Source {
    std::string text;
    std::string where;  // in errors: the file, and its key
  };
  // `with_tools` replaces `source` for conversations that have tools. `variables` are given to the template for every
  // conversation: {"bos_token": "<s>", …}. `now` is the time of strftime_now(). Throws InputError for a faulty
  // template.
  ChatTemplate(const Source& source, const std::optional<Source>& with_tools, nlohmann::ordered_json variables,
               std::optional<std::tm> now);

  const std::string& where() const { return where_; }

  // The text of the first `num_messages` messages. `asks`: followed by what begins a message of the assistant
  // (add_generation_prompt). Throws InputError if the template refuses the messages.
  std::string text_of(const Conversation& conversation, size_t num_messages, bool asks) const;

  // The segments of a conversation. What carries loss (is_answer) is found in one of two ways. If the template marks it
  // with {% generation %} blocks, their text. Otherwise the text of a message of the assistant is what the conversation
  // up to this message has more than the conversation before it with add_generation_prompt. Both must be the beginning
  // of the complete text. If they are not, because the template changes earlier messages, throws RewrittenTurn with
  // the difference and the values of LossOn that work.
  std::vector<Segment> segments_of(const Conversation& conversation, LossOn loss_on) const;

  // The segments that ask for the assistant's next message. Messages of the assistant at the end are left out: they are
  // the answer to compare with.
  std::vector<Segment> prompt_segments_of(const Conversation& conversation) const;

 private:
  jinja::Rendered render(const Conversation& conversation, size_t num_messages, bool asks) const;
  jinja::Span message_span(const Conversation& conversation, size_t message, const std::string& text) const;

  jinja::Template template_;
  std::optional<jinja::Template> with_tools_;
  nlohmann::ordered_json variables_;
  jinja::Options options_;
  std::string where_;
};

// The number of messages before the assistant's messages at the end.
size_t num_messages_before_answer(const Conversation& conversation);
// The content of the assistant's messages at the end, one line each: the answer to compare a generated one with. Empty
// if there is none.
std::string answer_of(const Conversation& conversation);

}  // namespace tessera
