#include "tessera/data/conversation_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMessageRemedy = "Write each message as {\"role\": \"user\", \"content\": \"...\"}";
constexpr const char* kPartRemedy = "Write each part as {\"type\": \"text\", \"text\": \"...\"}";
constexpr const char* kCallRemedy =
    "Write each call as {\"type\": \"function\", \"function\": {\"name\": \"...\", \"arguments\": {...}}}";

// Not a role: a message of the assistant that calls tools.
constexpr const char* kCall = "function_call";

// The words that programs use for roles, in lower case, with the roles of chat templates.
constexpr std::pair<std::string_view, const char*> kRoles[] = {
    {"system", "system"},     {"developer", "developer"},    {"user", "user"},          {"human", "user"},
    {"prompter", "user"},     {"assistant", "assistant"},    {"gpt", "assistant"},      {"chatgpt", "assistant"},
    {"model", "assistant"},   {"bot", "assistant"},          {"tool", "tool"},          {"observation", "tool"},
    {"function", "tool"},     {"function_response", "tool"}, {"tool_response", "tool"}, {"ipython", "ipython"},
    {"function_call", kCall}, {"tool_call", kCall}};

// Adds a key that the object does not have. operator[] would compare all keys.
void append(Json& object, const std::string& key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(key, std::move(value));
}

std::string nth(const std::string& where, size_t index) {
  return fmt::format("{}[{}]", where, index);
}

// The JSON value of a text in a row.
Json parsed(const std::string& text, const std::string& where, const std::string& remedy) {
  try {
    return parse_json_or_fault<Json>(text, 1);
  } catch (const JsonFault& fault) {
    throw RowFault(where, fmt::format("the text is {}: \"{}\"", fault.what, printable(text)), remedy);
  }
}

// The role that the word stands for. `is_sharegpt`: only the words of kRoles are roles. Otherwise a template may know
// other roles, so only a word that is probably misspelt is refused.
std::string role_of(const std::string& word, bool is_sharegpt, const std::string& where) {
  const std::string plain = lower(word);
  std::vector<std::string> known;
  for (const auto& [name, role] : kRoles) {
    if (plain == name) return role;
    known.emplace_back(name);
  }
  const std::string meant = did_you_mean(plain, known);
  if (!is_sharegpt && meant.empty() && !is_blank(word)) return word;
  throw RowFault(where, fmt::format("unknown role \"{}\"", printable(word)),
                 meant + (meant.empty() ? "" : " ") +
                     "Use one of: system, user (human), assistant (gpt), tool "
                     "(observation), function_call");
}

// The texts of the parts, joined without anything between them, as templates that know parts do.
std::string text_of_parts(const Json& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = nth(where, i);
    require_type(parts[i], Json::value_t::object, place, kPartRemedy);
    const std::string& type = string_member(parts[i], "type", place, kPartRemedy);
    if (type != "text") {
      throw RowFault(place, fmt::format("has the type \"{}\", and models here read only text", printable(type)),
                     "Remove the row, or the parts that are no text");
    }
    text += string_member(parts[i], "text", place, kPartRemedy);
  }
  return text;
}

// {"name", "arguments"} with the arguments as an object.
Json read_function(const Json& function, const std::string& where) {
  require_type(function, Json::value_t::object, where, kCallRemedy);
  Json result = Json::object();
  const std::string& name = string_member(function, "name", where, kCallRemedy);
  if (name.empty()) throw RowFault(where + ".name", "is empty", kCallRemedy);
  const std::string place = where + ".arguments", remedy = "Write an object, or {} for a call without arguments";
  const auto found = function.find("arguments");
  if (found == function.end()) throw RowFault(where, "key \"arguments\" is missing", remedy);
  Json arguments = found->is_string() ? parsed(found->get_ref<const std::string&>(), place, remedy) : *found;
  if (!arguments.is_object()) {
    throw RowFault(place, fmt::format("must be an object, found {}", json_in_words(arguments)), remedy);
  }
  for (const auto& [key, value] : function.items()) {
    append(result, key, key == "arguments" ? std::move(arguments) : Json(value));
  }
  return result;
}

Json read_call(const Json& call, const std::string& where) {
  require_type(call, Json::value_t::object, where, kCallRemedy);
  const auto type = call.find("type");
  if (type != call.end() && !type->is_null() && *type != "function") {
    throw RowFault(where, fmt::format("has the type {}, but only functions can be called", json_in_words(*type)),
                   kCallRemedy);
  }
  const auto function = call.find("function");
  if (function == call.end() || function->is_null()) {
    Json result = {{"type", "function"}, {"function", read_function(call, where)}};
    Json& inner = result["function"];
    if (const auto id = inner.find("id"); id != inner.end()) {
      result["id"] = *id;
      inner.erase("id");
    }
    inner.erase("type");
    return result;
  }
  Json result = Json::object();
  for (const auto& [key, value] : call.items()) {
    if (key == "function") {
      append(result, key, read_function(value, where + ".function"));
    } else if (!value.is_null()) {
      append(result, key, value);
    }
  }
  return result;
}

Json read_calls(const Json& calls, const std::string& where) {
  require_type(calls, Json::value_t::array, where, kCallRemedy);
  Json result = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) result.push_back(read_call(calls[i], nth(where, i)));
  return result;
}

// The calls in the text of a message of "function_call".
Json calls_in_text(const Json& value, const std::string& where) {
  const char* remedy = "Write {\"name\": \"...\", \"arguments\": {...}}, or a list of such calls";
  Json calls = value.is_string() ? parsed(value.get_ref<const std::string&>(), where, remedy) : value;
  if (!calls.is_array()) calls = Json::array({std::move(calls)});
  if (calls.empty()) throw RowFault(where, "has no call", remedy);
  return read_calls(calls, where);
}

// The content of a message: a text.
Json read_content(const RowView& message, const char* field) {
  const Json* content = message.value(field);
  const std::string place = message.place(field);
  if (!content) throw RowFault(message.where, fmt::format("key \"{}\" is missing", message.key(field)), kMessageRemedy);
  if (content->is_array()) return text_of_parts(*content, place);
  if (!content->is_string()) {
    throw RowFault(place, fmt::format("must be a text or a list of parts, found {}", json_in_words(*content)),
                   kMessageRemedy);
  }
  return *content;
}

// Appends a message.
void add_message(const Json& element, const FieldNames& fields, const std::string& where, Json& messages) {
  require_type(element, Json::value_t::object, where, kMessageRemedy);
  const RowView message{element, fields, where};
  const char* role_field = message.value("role") || !message.value("from") ? "role" : "from";
  const char* content_field = message.value("content") || !message.value("value") ? "content" : "value";
  const Json* word = message.value(role_field);
  if (!word) throw RowFault(where, fmt::format("key \"{}\" is missing", message.key(role_field)), kMessageRemedy);
  const std::string role_place = message.place(role_field);
  if (!word->is_string()) {
    throw RowFault(role_place, fmt::format("must be a text, found {}", json_in_words(*word)), kMessageRemedy);
  }
  const bool is_sharegpt = std::string_view(role_field) == "from";
  const std::string role = role_of(word->get_ref<const std::string&>(), is_sharegpt, role_place);

  Json result = Json::object();
  result["role"] = role == kCall ? "assistant" : role;
  result["content"] = nullptr;
  const std::string used[] = {"role",
                              "content",
                              "tool_calls",
                              kCall,
                              message.key(role_field),
                              message.key(content_field),
                              message.key("tool_calls")};
  for (const auto& [key, value] : element.items()) {
    if (!value.is_null() && std::ranges::find(used, key) == std::end(used)) append(result, key, value);
  }
  Json calls = Json::array();
  if (const Json* given = message.value("tool_calls")) calls = read_calls(*given, message.place("tool_calls"));
  if (const auto old = element.find(kCall); old != element.end() && !old->is_null()) {  // OpenAI's older form
    calls.push_back(read_call(*old, where + "." + kCall));
  }
  if (role == kCall) {
    const Json* value = message.value(content_field);
    if (!value) throw RowFault(where, fmt::format("key \"{}\" is missing", message.key(content_field)), kMessageRemedy);
    for (Json& call : calls_in_text(*value, message.place(content_field))) calls.push_back(std::move(call));
  } else if (calls.empty() || message.value(content_field)) {
    result["content"] = read_content(message, content_field);
  }
  const bool is_assistant = result["role"] == "assistant";
  if (!calls.empty() && !is_assistant) {
    throw RowFault(message.place("tool_calls"),
                   fmt::format("the role is \"{}\", but only the assistant calls tools", role),
                   "Correct the role, or remove the calls");
  }
  const Json& content = result["content"];
  if (calls.empty() && is_assistant && is_blank(content.get_ref<const std::string&>())) {
    throw RowFault(message.place(content_field), "the message of the assistant is empty",
                   "Remove the message, or write what the assistant says");
  }
  if (!calls.empty()) result["tool_calls"] = std::move(calls);
  messages.push_back(std::move(result));
}

void add_messages(const RowView& row, const char* field, Json& messages) {
  const Json& list = *row.find(field);
  const std::string place = row.place(field);
  require_type(list, Json::value_t::array, place, kMessageRemedy);
  for (size_t i = 0; i < list.size(); ++i) add_message(list[i], row.fields, nth(place, i), messages);
}

Json text_message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// A text of the row, or an empty text if the key is absent or null.
std::string optional_text(const RowView& row, const char* field) {
  return row.value(field) ? row.string(field) : std::string();
}

Json read_tools(const RowView& row) {
  const Json* given = row.value("tools");
  if (!given) return nullptr;
  const std::string place = row.place("tools"), remedy = "Write a list of objects that describe the tools";
  Json tools = *given;
  if (given->is_string()) {
    const auto& text = given->get_ref<const std::string&>();
    if (is_blank(text)) return nullptr;
    tools = parsed(text, place, remedy);
  }
  if (!tools.is_array()) {
    throw RowFault(place, fmt::format("must be a list of objects, found {}", json_in_words(tools)), remedy);
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    if (tools[i].is_object()) continue;
    throw RowFault(nth(place, i), fmt::format("must be an object, found {}", json_in_words(tools[i])), remedy);
  }
  return tools.empty() ? Json() : tools;
}

// Adds what a row of any format may have, and checks the messages. `place`: of the messages.
Conversation finished(const RowView& row, Json messages, const std::string& place) {
  Conversation conversation;
  if (const std::string system = optional_text(row, "system"); !is_blank(system)) {
    if (!messages.empty() && messages[0]["role"] == "system") {
      throw RowFault(row.place("system"), "the messages begin with a system message as well", "Remove one of the two");
    }
    messages.insert(messages.begin(), text_message("system", system));
  }
  if (messages.empty()) throw RowFault(place, "the list of messages is empty", kMessageRemedy);
  const bool has_assistant =
      std::ranges::any_of(messages, [](const Json& message) { return message["role"] == "assistant"; });
  if (!row.as_prompt && !has_assistant) {
    throw RowFault(place, "no message is the assistant's, so there is nothing to learn",
                   "Add a message with the role \"assistant\"");
  }
  conversation.messages = std::move(messages);
  conversation.tools = read_tools(row);
  if (const Json* variables = row.value("chat_template_kwargs")) {
    require_type(*variables, Json::value_t::object, row.place("chat_template_kwargs"), "Write an object, or null");
    conversation.variables = *variables;
  }
  return conversation;
}

}  // namespace

Conversation read_messages(const RowView& row, const char* field) {
  if (!row.value(field)) {
    throw RowFault(row.where, fmt::format("key \"{}\" is missing", row.key(field)), kMessageRemedy);
  }
  Json messages = Json::array();
  add_messages(row, field, messages);
  return finished(row, std::move(messages), row.place(field));
}

Conversation read_alpaca(const RowView& row) {
  Json messages = Json::array();
  if (const Json* history = row.value("history")) {
    const std::string place = row.place("history");
    require_type(*history, Json::value_t::array, place, "Write [[\"...\", \"...\"], ...]");
    for (size_t i = 0; i < history->size(); ++i) {
      const Json& turn = (*history)[i];
      const bool is_pair = turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
      if (!is_pair || is_blank(turn[1].get_ref<const std::string&>())) {
        throw RowFault(nth(place, i), "must be a list of two texts: a message of the user and the answer to it",
                       "Write [\"...\", \"...\"]");
      }
      messages.push_back(text_message("user", turn[0]));
      messages.push_back(text_message("assistant", turn[1]));
    }
  }
  std::string user = optional_text(row, "instruction");
  const std::string input = optional_text(row, "input");
  if (is_blank(user) && is_blank(input)) {
    const bool is_missing = !row.find("instruction");
    throw RowFault(is_missing ? row.where : row.place("instruction"),
                   is_missing ? fmt::format("key \"{}\" is missing", row.key("instruction")) : "is empty",
                   "Write what the model is asked to do");
  }
  if (is_blank(user)) {
    user = input;
  } else if (!is_blank(input)) {
    user += "\n\n" + input;
  }
  messages.push_back(text_message("user", std::move(user)));
  if (row.as_prompt) return finished(row, std::move(messages), row.place("instruction"));
  const std::string& output = row.string("output");
  if (is_blank(output)) throw RowFault(row.place("output"), "is empty", "Remove the row, or write what to learn");
  messages.push_back(text_message("assistant", output));
  return finished(row, std::move(messages), row.place("instruction"));
}

Conversation read_prompt_messages(const RowView& row) {
  for (const auto& [field, other] : {std::pair{"prompt", "completion"}, {"completion", "prompt"}}) {
    const Json* value = row.value(field);
    if (value && value->is_array()) continue;
    if (row.as_prompt && std::string_view(field) == "completion") continue;
    const bool is_missing = !value && !row.find(field);
    throw RowFault(is_missing ? row.where : row.place(field),
                   is_missing ? fmt::format("key \"{}\" is missing", row.key(field))
                              : fmt::format("must be a list of messages like \"{}\", found {}", row.key(other),
                                            json_in_words(*row.find(field))),
                   "Give two texts, or two lists of messages");
  }
  Json messages = Json::array(), completion = Json::array();
  add_messages(row, "prompt", messages);
  if (row.as_prompt) return finished(row, std::move(messages), row.place("prompt"));
  for (Json& message : messages) {
    if (message["role"] == "assistant" && !message.contains("train")) message["train"] = false;
  }
  add_messages(row, "completion", completion);
  bool has_assistant = false;
  for (size_t i = 0; i < completion.size(); ++i) {
    const bool is_assistant = completion[i]["role"] == "assistant";
    has_assistant = has_assistant || is_assistant;
    if (is_assistant || completion[i]["role"] == "tool") continue;
    throw RowFault(nth(row.place("completion"), i), "a completion has only messages of the assistant and of tools",
                   "Move this message and the messages before it to \"" + row.key("prompt") + "\"");
  }
  if (!has_assistant) {
    throw RowFault(row.place("completion"), "has no message of the assistant", "Add one");
  }
  for (Json& message : completion) messages.push_back(std::move(message));
  return finished(row, std::move(messages), row.place("prompt"));
}

}  // namespace tessera
