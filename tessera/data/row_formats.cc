#include "tessera/data/row_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/data/conversation_rows.h"

namespace tessera {

const char* const kStructureRemedy =
    "Give SQuAD JSON ({\"data\": [{\"paragraphs\": ...}]}), a JSON array of rows, or one row per line; a row is "
    "{\"question\", \"answers\": {\"text\": [...]}} with or without \"context\", {\"prompt\", \"completion\"}, "
    "{\"text\"}, {\"messages\": [{\"role\", \"content\"}]}, {\"conversations\": [{\"from\", \"value\"}]} or "
    "{\"instruction\", \"output\"}";

using Json = nlohmann::ordered_json;

std::string json_in_words(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "the string \"" + printable(value.get_ref<const std::string&>()) + "\"";
    default:
      return value.dump();
  }
}

namespace {

const char* type_in_words(Json::value_t type) {
  switch (type) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    default:
      return "a string";
  }
}

bool has_value(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

struct Answer {
  const std::string* text;       // a string of the parsed JSON
  std::optional<int64_t> start;  // in code points of the context; empty if the file does not give it
};

// Whether no answer says anything. The question then has none.
bool all_blank(const std::vector<Answer>& answers) {
  return std::ranges::all_of(answers, [](const Answer& answer) { return is_blank(*answer.text); });
}

// The text of an answer. null is an empty text.
const std::string* text_of(const Json& value, const std::string& where) {
  static const std::string kNone;
  if (value.is_null()) return &kNone;
  if (!value.is_string()) {
    throw RowFault(where, "an answer must be a string, found " + json_in_words(value),
                   value.is_structured() ? kStructureRemedy : "Write it as a string: \"" + value.dump() + "\"");
  }
  return &value.get_ref<const std::string&>();
}

// The value of answer_start. Empty for null, and for a negative number, which other programs write for a free answer.
std::optional<int64_t> start_of(const Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), std::numeric_limits<int64_t>::max()));
  }
  const auto number = value.is_number() ? value.get<double>() : 0.5;
  if (number != std::floor(number)) {
    throw RowFault(where, "must be a whole number, found " + json_in_words(value), kStructureRemedy);
  }
  constexpr double kMost = 1e15;  // longer than any context
  return number < 0 ? std::nullopt : std::optional(static_cast<int64_t>(std::min(number, kMost)));
}

// The elements of a list, or the value itself. Each with its place.
std::vector<std::pair<const Json*, std::string>> listed(const Json& value, const std::string& where) {
  if (!value.is_array()) return {{&value, where}};
  std::vector<std::pair<const Json*, std::string>> elements;
  for (size_t i = 0; i < value.size(); ++i) elements.emplace_back(&value[i], fmt::format("{}[{}]", where, i));
  return elements;
}

// Reads {"text", "answer_start"}. Both are lists of the same length, or single values.
std::vector<Answer> read_answer_object(const Json& object, const std::string& where) {
  const auto text = object.find("text");
  if (text == object.end()) throw RowFault(where, "key \"text\" is missing", kStructureRemedy);
  std::vector<Answer> answers;
  for (const auto& [value, place] : listed(*text, where + ".text")) {
    answers.push_back({text_of(*value, place), std::nullopt});
  }
  if (!has_value(object, "answer_start") || all_blank(answers)) return answers;
  const auto starts = listed(object["answer_start"], where + ".answer_start");
  if (starts.size() != answers.size()) {
    throw RowFault(
        where, fmt::format("text and answer_start have different lengths: {} and {}", answers.size(), starts.size()),
        "Give one answer_start for each text, or none at all");
  }
  for (size_t i = 0; i < starts.size(); ++i) answers[i].start = start_of(*starts[i].first, starts[i].second);
  return answers;
}

// Reads the value of "answers" or "answer" in any form (read_row()). Empty if the question has no answer.
std::vector<Answer> read_answers_value(const Json& value, const std::string& where) {
  std::vector<Answer> answers;
  for (const auto& [each, place] : listed(value, where)) {
    if (each->is_object()) {
      std::ranges::copy(read_answer_object(*each, place), std::back_inserter(answers));
    } else {
      answers.push_back({text_of(*each, place), std::nullopt});
    }
  }
  if (all_blank(answers)) answers.clear();
  return answers;
}

std::string answers_in_words(const std::vector<Answer>& answers) {
  std::string words;
  for (const Answer& answer : answers) {
    words += fmt::format("{}\"{}\"", words.empty() ? "" : ", ", printable(*answer.text));
    if (answer.start) words += fmt::format(" at {}", *answer.start);
  }
  return words.empty() ? "no answer" : printable(words);
}

// Reads the answers of a question. A row may have both keys if they give the same answers. One of them may then lack
// answer_start.
std::vector<Answer> read_answers(const RowView& owner, bool is_impossible) {
  if (!owner.find("answers") && !owner.find("answer") && !is_impossible) {
    throw RowFault(owner.where, fmt::format("key \"{}\" is missing", owner.key("answers")), kStructureRemedy);
  }
  std::optional<std::vector<Answer>> found;
  for (const char* key : {"answers", "answer"}) {
    const Json* value = owner.value(key);
    if (!value) continue;
    std::vector<Answer> answers = read_answers_value(*value, owner.place(key));
    const bool is_same = !found || std::ranges::equal(*found, answers, [](const Answer& a, const Answer& b) {
      return *a.text == *b.text && (!a.start || !b.start || *a.start == *b.start);
    });
    if (!is_same) {
      throw RowFault(owner.where,
                     fmt::format("\"{}\" and \"{}\" differ: {} and {}", owner.key("answers"), owner.key("answer"),
                                 answers_in_words(*found), answers_in_words(answers)),
                     "Remove one of the two keys");
    }
    if (!found) found = answers;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].start) (*found)[i].start = answers[i].start;
    }
  }
  return found.value_or(std::vector<Answer>());
}

// Reads "is_impossible". Other programs also write it as a number or a string.
bool read_is_impossible(const RowView& owner) {
  const Json* given = owner.value("is_impossible");
  if (!given) return false;
  const Json& value = *given;
  const std::string word = value.is_string() ? value.get<std::string>() : value.is_structured() ? "" : value.dump();
  for (const char* yes : {"true", "True", "TRUE", "1", "1.0"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "False", "FALSE", "0", "0.0"}) {
    if (word == no) return false;
  }
  throw RowFault(
      owner.where,
      fmt::format("\"{}\" must be true or false, found {}", owner.key("is_impossible"), json_in_words(value)),
      "Write true if the question has no answer. Otherwise write false, or remove the key");
}

// Appends an answer. The first answer decides whether the question is answerable, and where its answer starts.
void place_answer(const Answer& answer, const CodePoints& code_points, const std::string& where, ContextWork& work,
                  Question& question) {
  const std::string& text = *answer.text;
  const std::string& context = question.context;
  if (is_blank(text)) {
    throw RowFault(where, "one answer is empty, and another answer is not",
                   "Remove the empty answer, or the other answers if the question has none");
  }
  size_t offset = code_points.byte_offset(answer.start.value_or(0));
  if (context.compare(offset, text.size(), text) != 0) {
    work.spend(context.size(), where);
    offset = nearest_occurrence(context, text, offset);
  }
  const bool found = offset != std::string::npos;
  if (!found && text != kNoAnswer && answer.start) {
    throw RowFault(
        where,
        context.empty() ? std::string("has an answer_start, but no \"context\"")
                        : fmt::format("the answer \"{}\" does not occur in the context \"{}\"", printable(text),
                                      printable(context)),
        "An answer with an answer_start must be an exact copy of text in the context. Leave answer_start out if the "
        "answer is free text, and use an empty list of answers for an unanswerable question");
  }
  if (question.answers.empty() && found) {
    question.answerable = true;
    question.answer_start = static_cast<int64_t>(offset);
  }
  if (question.answers.empty()) question.free_answer = !found && !context.empty() && text != kNoAnswer;
  question.answers.push_back(text);
}

void require_no_answer(const std::string& text, const std::string& where) {
  if (is_blank(text) || text == kNoAnswer) return;
  throw RowFault(where, fmt::format("is_impossible is true, but the question has the answer \"{}\"", printable(text)),
                 "Remove the answers, or is_impossible. Answers that only seem right belong to plausible_answers");
}

void read_id(const RowView& owner, std::string& id) {
  const Json* found = owner.value("id");
  if (!found) return;
  if (!found->is_string() && !found->is_number_integer()) {
    throw RowFault(owner.where, fmt::format("\"{}\" must be a string or a whole number, found {}", owner.key("id"),
                                            json_in_words(*found)));
  }
  id = found->is_string() ? found->get<std::string>() : found->dump();
}

using Content = decltype(Example::content);

Content read_question_row(const RowView& row, ContextWork& work) {
  static const std::string kNone;
  const std::string& context = row.value("context") ? row.string("context") : kNone;
  if (row.as_prompt) return Question{.context = context, .question = row.string("question"), .answers = {}};
  return read_question(row, context, CodePoints(context), work).content;
}

Content read_text_row(const RowView& row, ContextWork&) {
  return PlainText{row.string("text")};
}

Content read_completion_row(const RowView& row, ContextWork&) {
  const auto is_list = [&](const char* field) { return row.value(field) && row.value(field)->is_array(); };
  if (is_list("prompt") || is_list("completion")) return read_prompt_messages(row);
  if (row.as_prompt) return PlainText{row.string("prompt")};
  Completion texts{row.string("prompt"), row.string("completion")};
  for (const auto& [field, text] : {std::pair{"prompt", &texts.prompt}, {"completion", &texts.completion}}) {
    if (text->empty()) {
      throw RowFault(row.where, fmt::format("\"{}\" is the empty string", row.key(field)),
                     "Give both texts, or use rows {\"text\"} for a text without a prompt");
    }
  }
  return texts;
}

Content read_messages_row(const RowView& row, ContextWork&) {
  return read_messages(row, "messages");
}

Content read_sharegpt_row(const RowView& row, ContextWork&) {
  return read_messages(row, "conversations");
}

Content read_alpaca_row(const RowView& row, ContextWork&) {
  return read_alpaca(row);
}

// A row has a format if it has one of the format's fields, or for a prompt, the first of them.
struct RowFormat {
  RowKind kind;
  std::vector<const char*> fields;
  Content (*read)(const RowView& row, ContextWork& work);
};

// In the order of read_row(). To add a format, add a reader here.
const std::vector<RowFormat>& row_formats() {
  static const std::vector<RowFormat> formats = {{RowKind::question, {"question", "context"}, read_question_row},
                                                 {RowKind::text, {"text"}, read_text_row},
                                                 {RowKind::completion, {"prompt", "completion"}, read_completion_row},
                                                 {RowKind::messages, {"messages"}, read_messages_row},
                                                 {RowKind::sharegpt, {"conversations"}, read_sharegpt_row},
                                                 {RowKind::alpaca, {"instruction"}, read_alpaca_row}};
  return formats;
}

// Whether the row has the fields that its format needs. Data sets of conversations may have a "prompt" or a "context"
// without the other fields of that format.
bool is_complete(const RowView& row, RowKind kind) {
  if (kind == RowKind::completion) return row.find("prompt") && row.find("completion");
  if (kind != RowKind::question) return true;
  return row.find("question") && (row.find("answers") || row.find("answer") || row.find("is_impossible"));
}

bool is_conversation(RowKind kind) {
  return kind == RowKind::messages || kind == RowKind::sharegpt || kind == RowKind::alpaca;
}

std::string keys_of(const RowView& row) {
  std::string keys;
  for (const auto& item : row.json.items()) {
    if (keys.size() < 80) keys += (keys.empty() ? "\"" : ", \"") + printable(item.key()) + "\"";
  }
  return keys;
}

// The format of a row. A key with the value null counts only if no other key decides.
const RowFormat& format_of(const RowView& row, RowKind kind) {
  const std::string rename = ". If a field has another key, name it by " + option("fields");
  const auto has_field = [&](const RowFormat& format, bool with_null) {
    const std::span fields = std::span(format.fields).first(row.as_prompt ? 1 : format.fields.size());
    return std::ranges::any_of(
        fields, [&](const char* field) { return (with_null ? row.find(field) : row.value(field)) != nullptr; });
  };
  if (kind != RowKind::automatic) {
    const RowFormat& format = *std::ranges::find(row_formats(), kind, &RowFormat::kind);
    if (has_field(format, true)) return format;
    std::string fields;
    for (const char* field : format.fields) fields += (fields.empty() ? "\"" : " or \"") + row.key(field) + "\"";
    throw RowFault(row.where,
                   fmt::format("is no row of the format {}, because it has no key {}. Its keys: {}", name_of(kind),
                               fields, keys_of(row)),
                   fmt::format("Correct the row, or give another {}{}", option("dataset_format"), rename));
  }
  for (const bool with_null : {false, true}) {
    const RowFormat* first = nullptr;
    for (const RowFormat& format : row_formats()) {
      if (!has_field(format, with_null)) continue;
      if (!first) first = &format;
      if (!is_complete(row, first->kind) && is_conversation(format.kind)) return format;
    }
    if (first) return *first;
  }
  const std::string keys = keys_of(row);
  throw RowFault(row.where, keys.empty() ? "the row has no key" : "the row has no known key. Its keys: " + keys,
                 kStructureRemedy + (keys.empty() ? "" : rename));
}

}  // namespace

ContextWork::ContextWork(size_t file_bytes) : limit_(std::max<size_t>(size_t{1} << 30, 64 * file_bytes)) {}

void ContextWork::spend(size_t bytes, const std::string& where) {
  work_ += bytes;
  if (work_ <= limit_) return;
  throw InputError(where,
                   fmt::format("up to this place, contexts of {} MiB were copied for questions and searched for "
                               "misplaced answers: many times the size of the file",
                               limit_ >> 20),
                   "Split long contexts into the passages that the questions are about");
}

std::string inside(const std::string& where, const std::string& key) {
  return where + (where.ends_with(']') ? "." : ": ") + key;
}

void require_type(const Json& value, Json::value_t type, const std::string& where, const char* remedy) {
  if (value.type() == type) return;
  throw RowFault(where, fmt::format("expected {}, found {}", type_in_words(type), json_in_words(value)), remedy);
}

namespace {

// The value of a required key, which has been looked up.
const Json& required(const Json* found, const std::string& key, Json::value_t type, const std::string& where,
                     const char* remedy) {
  if (!found) throw RowFault(where, fmt::format("key \"{}\" is missing", key), remedy);
  if (found->type() != type) {
    throw RowFault(where, fmt::format("\"{}\" must be {}, found {}", key, type_in_words(type), json_in_words(*found)),
                   remedy);
  }
  return *found;
}

}  // namespace

const Json& member(const Json& object, const char* key, Json::value_t type, const std::string& where,
                   const char* remedy) {
  const auto found = object.find(key);
  return required(found == object.end() ? nullptr : &*found, key, type, where, remedy);
}

const std::string& string_member(const Json& object, const char* key, const std::string& where, const char* remedy) {
  return member(object, key, Json::value_t::string, where, remedy).get_ref<const std::string&>();
}

std::string RowView::key(const char* field) const {
  if (std::string_view(field) == "messages" && !fields.is_renamed(field)) {
    for (const char* other : {"messages", "conversation", "chat"}) {
      if (fields.key(field) && json.contains(other)) return other;
    }
  }
  const char* key = fields.key(field);
  return key ? key : field;
}

const Json* RowView::find(const char* field) const {
  if (!fields.key(field)) return nullptr;
  const auto found = json.find(key(field));
  return found == json.end() ? nullptr : &*found;
}

const Json* RowView::value(const char* field) const {
  const Json* found = find(field);
  return found && !found->is_null() ? found : nullptr;
}

const std::string& RowView::string(const char* field) const {
  return required(find(field), key(field), Json::value_t::string, where, kStructureRemedy)
      .get_ref<const std::string&>();
}

Example read_question(const RowView& owner, const std::string& context, const CodePoints& code_points,
                      ContextWork& work) {
  Example example;
  example.place = owner.where;
  Question& question = example.content.emplace<Question>();
  question.question = owner.string("question");
  question.context = context;
  read_id(owner, example.id);
  const bool is_impossible = read_is_impossible(owner);
  const std::vector<Answer> answers = read_answers(owner, is_impossible);
  if (is_impossible) {
    for (const Answer& answer : answers) require_no_answer(*answer.text, owner.where);
  } else {
    for (const Answer& answer : answers) place_answer(answer, code_points, owner.where, work, question);
  }
  return example;
}

const std::vector<std::pair<const char*, RowKind>>& row_kinds() {
  static const std::vector<std::pair<const char*, RowKind>> kinds = {
      {"auto", RowKind::automatic},   {"messages", RowKind::messages},     {"sharegpt", RowKind::sharegpt},
      {"alpaca", RowKind::alpaca},    {"completion", RowKind::completion}, {"text", RowKind::text},
      {"question", RowKind::question}};
  return kinds;
}

const char* name_of(RowKind kind) {
  return std::ranges::find(row_kinds(), kind, &std::pair<const char*, RowKind>::second)->first;
}

Example read_row(const Json& row, const std::string& where, ContextWork& work, const RowOptions& options) {
  require_type(row, Json::value_t::object, where);
  const RowView view{row, options.fields, where, options.as_prompts};
  Example example;
  example.content = format_of(view, options.kind).read(view, work);
  example.place = where;
  read_id(view, example.id);
  return example;
}

}  // namespace tessera
