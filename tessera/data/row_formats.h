// The formats of a row of a data set: one reader for each format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/data/examples.h"
#include "tessera/data/text.h"

namespace tessera {

// What to give instead of a file or row that cannot be used.
extern const char* const kStructureRemedy;

// Why a part of a file (a row, a question, a paragraph or an article) cannot be used. The exception ends the reading of
// this part.
struct RowFault {
  RowFault(std::string where, std::string fault, std::string advice = "")
      : place(std::move(where)), what(std::move(fault)), remedy(std::move(advice)) {}
  std::string place, what, remedy;
};

// Counts bytes of contexts that are copied or searched. Each question of a paragraph gets a copy of the context, and a
// misplaced answer is searched in its context. Without a limit, a small malicious file could use any amount of time and
// memory.
class ContextWork {
 public:
  explicit ContextWork(size_t file_bytes);
  // Throws InputError if the work of the file exceeds its limit.
  void spend(size_t bytes, const std::string& where);

 private:
  size_t work_ = 0, limit_;
};

// The place of a key. `where` is the place of the object that has the key. Examples of results:
// "rows.jsonl:12: answers", "squad.json: data[0].paragraphs[0].qas[1].answers".
std::string inside(const std::string& where, const std::string& key);

// Describes a JSON value for an error message. Omits the content of objects and arrays, because it may be large.
std::string json_in_words(const nlohmann::ordered_json& value);
// Returns the value of a required key. Throws RowFault if the key is missing or its value has another type.
const nlohmann::ordered_json& member(const nlohmann::ordered_json& object, const char* key,
                                     nlohmann::ordered_json::value_t type, const std::string& where,
                                     const char* remedy = kStructureRemedy);
const std::string& string_member(const nlohmann::ordered_json& object, const char* key, const std::string& where,
                                 const char* remedy = kStructureRemedy);
void require_type(const nlohmann::ordered_json& value, nlohmann::ordered_json::value_t type, const std::string& where,
                  const char* remedy = kStructureRemedy);

// An object whose fields have the keys that the user chose. It refers to its members.
struct RowView {
  const nlohmann::ordered_json& json;
  const FieldNames& fields;
  const std::string& where;
  bool as_prompt = false;  // see RowOptions

  // The key of a field, for errors and places. "messages" may also have the key "conversation" or "chat".
  std::string key(const char* field) const;
  std::string place(const char* field) const { return inside(where, key(field)); }
  // The value of a field. Null if the row does not have it.
  const nlohmann::ordered_json* find(const char* field) const;
  // Like find(), but also null for the value null.
  const nlohmann::ordered_json* value(const char* field) const;
  // The text of a required field. Throws RowFault.
  const std::string& string(const char* field) const;
};

// Reads a row. The options or its keys decide the format; further keys are ignored. If a row has keys of several
// formats, the first of these formats counts. "id" is optional in all formats: a string or a whole number.
//   - {"question", "answers", "context"}: a question. The context may be absent. "answers" (or "answer") is a string, a
//     list of strings, SQuAD's list of {"text", "answer_start"}, or {"text", "answer_start"} with one text or, as in
//     Hugging Face data sets, with lists. A question has no answer if the list is empty, if all texts are blank or
//     null, if "answers" is null, or if it is absent and "is_impossible" is true. "is_impossible" is true or false,
//     also as 1 or 0 or as a string. A row that contradicts itself is a bad row: "is_impossible" is true, and "answers"
//     has a text other than kNoAnswer; or "answer" and "answers" give different answers.
//   - {"text"}: a plain text;
//   - {"prompt", "completion"}: a prompt that is used unchanged, and the text to learn; or two lists of messages;
//   - {"messages"}, {"conversations"} or {"instruction", "output"}: a conversation (conversation_rows.h).
// Of prompts (RowOptions::as_prompts), a row has a format if it has the format's first key above.
// A row with the keys of a conversation is a conversation unless it is a complete row of one of the formats above.
// answer_start counts code points. If the answer is not at this position of the context, its nearest occurrence is
// used. Without answer_start, the first occurrence is used, and an answer that does not occur is a free answer. With an
// answer_start of at least 0, the answer must occur in the context.
// Throws RowFault with the place and the key if the row does not have the structure of its format.
Example read_row(const nlohmann::ordered_json& row, const std::string& where, ContextWork& work,
                 const RowOptions& options = {});

// Reads a question of SQuAD's format. The context belongs to the paragraph of the question, and `code_points` to the
// context.
Example read_question(const RowView& owner, const std::string& context, const CodePoints& code_points,
                      ContextWork& work);

// All formats, with their words as users write them: "messages".
const std::vector<std::pair<const char*, RowKind>>& row_kinds();
const char* name_of(RowKind kind);

}  // namespace tessera
