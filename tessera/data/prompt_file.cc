#include "tessera/data/prompt_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/data/chat_template.h"
#include "tessera/data/data_file.h"
#include "tessera/data/row_formats.h"
#include "tessera/data/row_reader.h"

namespace tessera {

constexpr const char* kRowRemedy =
    "Give one JSON object per line, as {\"prompt\": \"...\"}, as {\"question\": \"...\"} with or without \"context\", "
    "or as {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}]}, or a row of training data";

namespace {

PromptRow prompt_row(const nlohmann::ordered_json& row, const std::string& place, ContextWork& work,
                     const RowOptions& options) {
  if (!row.is_object()) {
    throw InputError(place,
                     fmt::format("the line is {} {}, not an object", row.is_array() ? "an" : "a", row.type_name()),
                     kRowRemedy);
  }
  PromptRow prompt;
  try {
    prompt.example = read_row(row, place, work, options);
  } catch (const RowFault& fault) {
    const bool is_structure = fault.remedy.starts_with(kStructureRemedy);  // which also names formats of data files
    throw InputError(
        fault.place, fault.what,
        is_structure ? kRowRemedy + fault.remedy.substr(std::string_view(kStructureRemedy).size()) : fault.remedy);
  }
  const Conversation* conversation = prompt.example.conversation();
  if (conversation && num_messages_before_answer(*conversation) == 0) {
    throw InputError(place, "the conversation has no message to answer", kRowRemedy);
  }
  const RowView view{row, options.fields, place, true};
  if (const auto* id = view.value("id")) prompt.id_json = id->dump();
  return prompt;
}

}  // namespace

std::vector<PromptRow> prompts_from_text(std::string_view content, const std::string& where, RowOptions options) {
  options.as_prompts = true;
  ContextWork work(content.size());
  content = without_byte_order_mark(content);
  std::vector<PromptRow> prompts;
  for (int64_t line = 1; !content.empty(); ++line) {
    const std::string_view row = take_line(content);
    if (is_blank(row)) continue;
    prompts.push_back(prompt_row(parse_json<nlohmann::ordered_json>(row, where, kRowRemedy, line),
                                 fmt::format("{}:{}", where, line), work, options));
  }
  if (prompts.empty()) throw InputError(where, "the file has no prompt", kRowRemedy);
  return prompts;
}

std::vector<PromptRow> load_prompts(const std::filesystem::path& path, const RowOptions& rows) {
  const ReadOptions options{
      .remedy = "Give a file of JSON lines", .longest_bytes = std::numeric_limits<uint64_t>::max(), .pipes = true};
  return prompts_from_text(read_file(path, options), path.string(), rows);
}

}  // namespace tessera
