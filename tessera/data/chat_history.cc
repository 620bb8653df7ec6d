#include "tessera/data/chat_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/text.h"
#include "tessera/data/chat_template.h"
#include "tessera/data/conversation_rows.h"

namespace tessera {

const char* const kChatCommands =
    "/reset        forget the conversation, except the system message\n"
    "/undo         forget the last message and its answer\n"
    "/system TEXT  replace the system message; without TEXT: remove it\n"
    "/help         show the commands\n"
    "/exit         end the chat, as the end of the input does\n"
    "A message that begins with \"/\" needs a space before it.";

namespace {

constexpr const char* kChatRemedy =
    "Write each line as {\"content\": \"...\"}, or as {\"messages\": [...]} to replace the conversation";

nlohmann::ordered_json chat_message(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

}  // namespace

ChatLine chat_line_of(std::string_view line) {
  const std::string text(trimmed(line));
  if (text.empty()) return {ChatLine::Kind::blank};
  if (!line.starts_with('/')) return {ChatLine::Kind::message, text};
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string word = text.substr(0, end), rest(trimmed(std::string_view(text).substr(end)));
  if (word == "/system") return {ChatLine::Kind::system, rest};
  constexpr std::pair<const char*, ChatLine::Kind> kWords[] = {{"/reset", ChatLine::Kind::reset},
                                                               {"/undo", ChatLine::Kind::undo},
                                                               {"/help", ChatLine::Kind::help},
                                                               {"/exit", ChatLine::Kind::exit}};
  for (const auto& [name, kind] : kWords) {
    if (word == name && rest.empty()) return {kind};
  }
  return {ChatLine::Kind::unknown, word};
}

bool ChatHistory::has_system() const {
  return !conversation_.messages.empty() && conversation_.messages[0]["role"] == "system";
}

void ChatHistory::add(const char* role, const std::string& text) {
  conversation_.messages.push_back(chat_message(role, text));
}

void ChatHistory::set_system(const std::string& text) {
  auto& messages = conversation_.messages;
  if (has_system()) messages.erase(messages.begin());
  if (!is_blank(text)) messages.insert(messages.begin(), chat_message("system", text));
}

void ChatHistory::reset() {
  auto& messages = conversation_.messages;
  messages.erase(messages.begin() + (has_system() ? 1 : 0), messages.end());
}

bool ChatHistory::undo() {
  auto& messages = conversation_.messages;
  size_t size = messages.size();
  while (size > 0 && messages[size - 1]["role"] != "user") --size;
  if (size == 0) return false;
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(size - 1), messages.end());
  return true;
}

void ChatHistory::add_json(std::string_view text, const std::string& where, int64_t line) {
  auto row = parse_json<nlohmann::ordered_json>(text, where, kChatRemedy, line);
  const std::string place = fmt::format("{}:{}", where, line);
  if (!row.is_object()) throw InputError(place, "is " + json_in_words(row) + ", not an object", kChatRemedy);
  const bool replaces = row.contains("messages");
  if (!replaces) {
    if (!row.contains("content")) throw InputError(place, "has neither \"content\" nor \"messages\"", kChatRemedy);
    if (!row.contains("role")) row["role"] = "user";
    row = {{"messages", nlohmann::ordered_json::array({row})}};
  }
  try {
    static const FieldNames names;
    Conversation given = read_messages({row, names, place, true}, "messages");
    const size_t size = num_messages_before_answer(given);
    if (size == 0 || given.messages[size - 1]["role"] == "system") {
      throw InputError(place, "has no message to answer", kChatRemedy);
    }
    given.messages.erase(given.messages.begin() + static_cast<std::ptrdiff_t>(size), given.messages.end());
    if (replaces) {
      conversation_ = std::move(given);
    } else {
      conversation_.messages.push_back(given.messages[0]);
    }
  } catch (const RowFault& fault) {
    throw InputError(fault.place, fault.what, fault.remedy);
  }
}

}  // namespace tessera
