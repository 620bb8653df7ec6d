#include "tessera/data/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"

namespace tessera {

namespace {

bool is_assistant(const nlohmann::ordered_json& message) {
  return message.value("role", "") == "assistant";
}

// A row may leave messages of the assistant out of the loss: "train": false, or "weight": 0 as OpenAI's rows.
bool carries_loss(const nlohmann::ordered_json& message) {
  const auto train = message.find("train"), weight = message.find("weight");
  return is_assistant(message) && (train == message.end() || *train != false) &&
         (weight == message.end() || *weight != 0);
}

// The message as templates get it from transformers: without keys that are null, and with the thoughts of the assistant
// under both names that templates read. The keys of carries_loss() are not for templates.
nlohmann::ordered_json for_template(const nlohmann::ordered_json& message) {
  const nlohmann::ordered_json* reasoning = nullptr;
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(key);
    if (!reasoning && found != message.end() && !found->is_null()) reasoning = &*found;
  }
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  if (reasoning) result["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null() && key != "train" && key != "weight") result[key] = value;
  }
  if (reasoning) result["reasoning_content"] = *reasoning;
  return result;
}

// The text around byte `at`, in quotes.
std::string around(std::string_view text, size_t at) {
  constexpr size_t kBefore = 30, kLongest = 90;
  size_t begin = at > kBefore ? at - kBefore : 0;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;  // inside a character
  std::string shown;
  for (const char c : text.substr(begin, kLongest)) shown += c == '\n' ? std::string("\\n") : std::string(1, c);
  return fmt::format("\"{}{}\"", begin > 0 ? "…" : "", printable(shown, kLongest));
}

std::string loss_on(const char* value) {
  return option("loss_on") + " " + value;
}

// `part` is a text that should begin `text`. `message`: the number of the message.
[[noreturn]] void throw_rewritten(size_t message, bool is_last, const std::string& part, const std::string& text) {
  const auto at = static_cast<size_t>(std::ranges::mismatch(part, text).in1 - part.begin());
  throw RewrittenTurn(
      fmt::format("messages[{}]", message),
      fmt::format("the chat template writes this turn in another way when the complete conversation is known: {}, but "
                  "{} in the complete text",
                  around(part, at), around(text, at)),
      is_last
          ? fmt::format("Give {}, or a template with {{% generation %}} blocks", loss_on("all"))
          : fmt::format("Give {}, if only the last answer should be learned, or {}", loss_on("last"), loss_on("all")));
}

}  // namespace

ChatTemplate::ChatTemplate(const Source& source, const std::optional<Source>& with_tools,
                           nlohmann::ordered_json variables, std::optional<std::tm> now)
    : template_(jinja::Template::parse(source.text, source.where)),
      variables_(std::move(variables)),
      where_(source.where) {
  options_.now = now;
  if (with_tools) with_tools_.emplace(jinja::Template::parse(with_tools->text, with_tools->where));
}

jinja::Rendered ChatTemplate::render(const Conversation& conversation, size_t num_messages, bool asks) const {
  nlohmann::ordered_json variables = variables_;
  if (conversation.variables.is_object()) variables.update(conversation.variables);
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (size_t i = 0; i < num_messages; ++i) messages.push_back(for_template(conversation.messages[i]));
  variables["messages"] = std::move(messages);
  variables["tools"] = conversation.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = asks;
  const bool uses_tools = with_tools_ && !conversation.tools.is_null();
  return (uses_tools ? *with_tools_ : template_).render(variables, options_);
}

std::string ChatTemplate::text_of(const Conversation& conversation, size_t num_messages, bool asks) const {
  return render(conversation, num_messages, asks).text;
}

// Bytes of `text`, the complete conversation, that message `message` adds.
jinja::Span ChatTemplate::message_span(const Conversation& conversation, size_t message,
                                       const std::string& text) const {
  const bool is_last = message + 1 == conversation.messages.size();
  const std::string before = text_of(conversation, message, true);
  if (!text.starts_with(before)) throw_rewritten(message, is_last, before, text);
  if (is_last) return {before.size(), text.size()};
  const std::string until = text_of(conversation, message + 1, false);
  if (!text.starts_with(until)) throw_rewritten(message, is_last, until, text);
  if (until.size() < before.size()) throw_rewritten(message, is_last, before, until);
  return {before.size(), until.size()};
}

std::vector<Segment> ChatTemplate::segments_of(const Conversation& conversation, LossOn loss_on) const {
  const size_t size = conversation.messages.size();
  const jinja::Rendered complete = render(conversation, size, false);
  std::vector<jinja::Span> answers = complete.generated;
  if (loss_on == LossOn::all) {
    answers = {{0, complete.text.size()}};
  } else if (loss_on == LossOn::last) {
    if (!is_assistant(conversation.messages.back())) {
      throw InputError(fmt::format("messages[{}]", size - 1),
                       "the conversation does not end with the assistant's message",
                       fmt::format("Remove the messages after it, or give {}", tessera::loss_on("assistant")));
    }
    if (answers.empty()) {
      answers = {message_span(conversation, size - 1, complete.text)};
    } else {
      answers.erase(answers.begin(), answers.end() - 1);
    }
  } else if (answers.empty() || !std::ranges::all_of(conversation.messages, [](const auto& message) {
               return carries_loss(message) == is_assistant(message);
             })) {
    answers.clear();
    for (size_t i = 0; i < size; ++i) {
      if (carries_loss(conversation.messages[i])) answers.push_back(message_span(conversation, i, complete.text));
    }
  }
  std::vector<Segment> segments;
  const auto add = [&](size_t begin, size_t end, bool is_answer) {
    if (begin == end) return;
    Segment& segment = segments.emplace_back();
    segment.content = complete.text.substr(begin, end - begin);
    segment.is_answer = is_answer;
    segment.joins = segments.size() > 1;
    segment.is_written = true;
  };
  size_t at = 0;
  for (const jinja::Span& span : answers) {
    add(at, std::max(at, span.begin), false);
    add(std::max(at, span.begin), span.end, true);
    at = span.end;
  }
  add(at, complete.text.size(), false);
  return segments;
}

std::vector<Segment> ChatTemplate::prompt_segments_of(const Conversation& conversation) const {
  std::vector<Segment> segments(1);
  segments[0].content = text_of(conversation, num_messages_before_answer(conversation), true);
  segments[0].is_written = true;
  return segments;
}

size_t num_messages_before_answer(const Conversation& conversation) {
  size_t count = conversation.messages.size();
  while (count > 0 && is_assistant(conversation.messages[count - 1])) --count;
  return count;
}

std::string answer_of(const Conversation& conversation) {
  std::string answer;
  for (size_t i = num_messages_before_answer(conversation); i < conversation.messages.size(); ++i) {
    const auto& content = conversation.messages[i].value("content", nlohmann::ordered_json());
    if (content.is_string()) answer += (answer.empty() ? "" : "\n") + content.get<std::string>();
  }
  return answer;
}

}  // namespace tessera
