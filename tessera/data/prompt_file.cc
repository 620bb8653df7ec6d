#include "tessera/data/prompt_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/read_file.h"
#include "tessera/data/chat_template.h"
#include "tessera/data/conversation_rows.h"
#include "tessera/data/text.h"

namespace tessera {

constexpr const char* kRowRemedy =
    "Give one JSON object per line, as {\"prompt\": \"...\"}, as {\"question\": \"...\"} with or without \"context\", "
    "or as {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}]}";

namespace {

Conversation conversation_of(const nlohmann::ordered_json& row, const std::string& place) {
  try {
    static const FieldNames names;
    Conversation conversation = read_messages({row, names, place, false}, "messages");
    if (num_messages_before_answer(conversation) == 0) {
      throw InputError(place, "the conversation has no message to answer", kRowRemedy);
    }
    return conversation;
  } catch (const RowFault& fault) {
    throw InputError(fault.place, fault.what, fault.remedy);
  }
}

PromptRow prompt_row(const nlohmann::ordered_json& row, const std::string& place) {
  const auto refuse = [&](const std::string& what) { throw InputError(place, what, kRowRemedy); };
  if (!row.is_object())
    refuse(fmt::format("the line is {} {}, not an object", row.is_array() ? "an" : "a", row.type_name()));
  const auto text_of = [&](const char* key) {
    const auto found = row.find(key);
    if (found == row.end()) refuse(fmt::format("key \"{}\" is missing", key));
    if (!found->is_string()) refuse(fmt::format("\"{}\" is not a string", key));
    return found->get<std::string>();
  };
  PromptRow prompt;
  prompt.example.place = place;
  const auto forms = row.contains("prompt") + row.contains("question") + row.contains("messages");
  if (forms == 0) refuse("the row has neither \"prompt\" nor \"question\" nor \"messages\"");
  if (forms > 1) refuse("the row has more than one of \"prompt\", \"question\" and \"messages\"");
  if (row.contains("messages")) {
    prompt.example.content = conversation_of(row, place);
  } else if (row.contains("prompt")) {
    prompt.example.content = PlainText{text_of("prompt")};
  } else {
    Question& question = prompt.example.content.emplace<Question>();
    question.question = text_of("question");
    if (const auto context = row.find("context"); context != row.end() && !context->is_null()) {
      question.context = text_of("context");
    }
  }
  if (const auto id = row.find("id"); id != row.end() && !id->is_null()) {
    if (!id->is_string() && !id->is_number_integer()) refuse("\"id\" is not a string or a whole number");
    prompt.id_json = id->dump();
  }
  return prompt;
}

}  // namespace

std::vector<PromptRow> prompts_from_text(std::string_view content, const std::string& where) {
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);  // a byte order mark
  std::vector<PromptRow> prompts;
  for (int64_t line = 1; !content.empty(); ++line) {
    const size_t end = std::min(content.find('\n'), content.size());
    const std::string_view row = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    prompts.push_back(prompt_row(parse_json<nlohmann::ordered_json>(row, where, kRowRemedy, line),
                                 fmt::format("{}:{}", where, line)));
  }
  if (prompts.empty()) throw InputError(where, "the file has no prompt", kRowRemedy);
  return prompts;
}

std::vector<PromptRow> load_prompts(const std::filesystem::path& path) {
  const ReadOptions options{
      .remedy = "Give a file of JSON lines", .longest_bytes = std::numeric_limits<uint64_t>::max(), .pipes = true};
  return prompts_from_text(read_file(path, options), path.string());
}

}  // namespace tessera
