#include "tessera/data/row_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"

namespace tessera {

const char* const kStructureRemedy =
    "Give SQuAD JSON ({\"data\": [{\"paragraphs\": ...}]}), a JSON array of rows, or one row per line; a row is "
    "{\"question\", \"answers\": {\"text\": [...]}} with or without \"context\", {\"prompt\", \"completion\"} or "
    "{\"text\"}";

namespace {

using Json = nlohmann::json;

// Describes a JSON value for an error message. Omits the content of objects and arrays, because it may be large.
std::string in_words(const Json& value) {
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

// The place of a key for an error message. `where` is the place of the object that has the key. Examples of results:
// "rows.jsonl:12: answers", "squad.json: data[0].paragraphs[0].qas[1].answers".
std::string inside(const std::string& where, const std::string& key) {
  return where + (where.ends_with(']') ? "." : ": ") + key;
}

bool has_value(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

struct Answer {
  const std::string* text;       // a string of the parsed JSON
  std::optional<int64_t> start;  // in code points of the context; empty if the file does not give it
};

// The value of answer_start. Empty for a negative number, which other programs write for a free answer.
std::optional<int64_t> start_of(const Json& value, const std::string& where) {
  if (!value.is_number_integer()) {
    throw RowFault(where, "\"answer_start\" must be a whole number, found " + in_words(value), kStructureRemedy);
  }
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), std::numeric_limits<int64_t>::max()));
  }
  const auto start = value.get<int64_t>();
  return start < 0 ? std::nullopt : std::optional(start);
}

// Reads the answers of a question in any of their forms (read_row()).
std::vector<Answer> read_answers(const Json& owner, const std::string& where) {
  const char* key = owner.contains("answers") || !owner.contains("answer") ? "answers" : "answer";
  const auto found = owner.find(key);
  if (found == owner.end()) {
    const auto impossible = owner.find("is_impossible");
    if (impossible != owner.end() && *impossible == true) return {};
    throw RowFault(where, "key \"answers\" is missing", kStructureRemedy);
  }
  if (found->is_null()) return {};
  const auto string_of = [](const Json& value) { return &value.get_ref<const std::string&>(); };
  if (found->is_string()) return {{string_of(*found), std::nullopt}};
  std::vector<Answer> answers;
  if (found->is_array()) {
    for (size_t i = 0; i < found->size(); ++i) {
      const std::string place = inside(where, fmt::format("{}[{}]", key, i));
      const Json& answer = (*found)[i];
      if (answer.is_string()) {
        answers.push_back({string_of(answer), std::nullopt});
        continue;
      }
      require_type(answer, Json::value_t::object, place);
      const auto start = answer.find("answer_start");
      answers.push_back(
          {&string_member(answer, "text", place), start == answer.end() ? std::nullopt : start_of(*start, place)});
    }
    return answers;
  }
  const std::string place = inside(where, key);
  require_type(*found, Json::value_t::object, place);
  const Json& texts = member(*found, "text", Json::value_t::array, place);
  const bool has_starts = found->contains("answer_start");
  const Json& starts = has_starts ? member(*found, "answer_start", Json::value_t::array, place) : texts;
  if (starts.size() != texts.size()) {
    throw RowFault(place,
                   fmt::format("text and answer_start have different lengths: {} and {}", texts.size(), starts.size()),
                   "Give one answer_start for each text, or none at all");
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    require_type(texts[i], Json::value_t::string, fmt::format("{}.text[{}]", place, i));
    answers.push_back({string_of(texts[i]),
                       has_starts ? start_of(starts[i], fmt::format("{}.answer_start[{}]", place, i)) : std::nullopt});
  }
  return answers;
}

// Appends an answer. The first answer decides whether the question is answerable, and where its answer starts.
void place_answer(const Answer& answer, const CodePoints& code_points, const std::string& where, ContextWork& work,
                  Example& example) {
  const std::string& text = *answer.text;
  const std::string& context = example.context;
  if (text.empty()) {
    throw RowFault(where, "an answer is the empty string",
                   "Use an empty list of answers if the question has no answer");
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
  if (example.answers.empty() && found) {
    example.answerable = true;
    example.answer_start = static_cast<int64_t>(offset);
  }
  if (example.answers.empty()) example.free_answer = !found && !context.empty() && text != kNoAnswer;
  example.answers.push_back(text);
}

void require_no_answer(const std::string& text, const std::string& where) {
  if (text.empty() || text == kNoAnswer) return;
  throw RowFault(where, fmt::format("is_impossible is true, but the question has the answer \"{}\"", printable(text)),
                 "Remove the answers, or is_impossible. Answers that only seem right belong to plausible_answers");
}

void read_id(const Json& owner, const std::string& where, std::string& id) {
  const auto found = owner.find("id");
  if (found == owner.end() || found->is_null()) return;
  if (!found->is_string() && !found->is_number_integer()) {
    throw RowFault(where, "\"id\" must be a string or a whole number, found " + in_words(*found));
  }
  id = found->is_string() ? found->get<std::string>() : found->dump();
}

Example read_question_row(const Json& row, const std::string& where, ContextWork& work) {
  static const std::string kNone;
  const std::string& context = has_value(row, "context") ? string_member(row, "context", where) : kNone;
  return read_question(row, context, CodePoints(context), where, work);
}

Example read_text_row(const Json& row, const std::string& where, ContextWork&) {
  Example example;
  example.text = string_member(row, "text", where);
  return example;
}

Example read_completion_row(const Json& row, const std::string& where, ContextWork&) {
  Example example;
  example.prompt = string_member(row, "prompt", where);
  example.answers = {string_member(row, "completion", where)};
  for (const auto& [key, text] : {std::pair{"prompt", &*example.prompt}, {"completion", &example.answers[0]}}) {
    if (text->empty()) {
      throw RowFault(where, fmt::format("\"{}\" is the empty string", key),
                     "Give both texts, or use rows {\"text\"} for a text without a prompt");
    }
  }
  return example;
}

// A row has a format if it has one of the format's keys.
struct RowFormat {
  std::vector<const char*> keys;
  Example (*read)(const Json& row, const std::string& where, ContextWork& work);
};

// In the order of read_row(). To add a format, add a reader here.
const std::vector<RowFormat>& row_formats() {
  static const std::vector<RowFormat> formats = {{{"question", "context"}, read_question_row},
                                                 {{"text"}, read_text_row},
                                                 {{"prompt", "completion"}, read_completion_row}};
  return formats;
}

// The format of a row. A key with the value null counts only if no other key decides.
const RowFormat& format_of(const Json& row, const std::string& where) {
  for (const bool with_null : {false, true}) {
    for (const RowFormat& format : row_formats()) {
      const bool has_key = std::ranges::any_of(
          format.keys, [&](const char* key) { return with_null ? row.contains(key) : has_value(row, key); });
      if (has_key) return format;
    }
  }
  std::string keys;
  for (const auto& item : row.items()) {
    if (keys.size() < 80) keys += (keys.empty() ? "\"" : ", \"") + printable(item.key()) + "\"";
  }
  throw RowFault(where, keys.empty() ? "the row has no key" : "the row has no known key. Its keys: " + keys,
                 kStructureRemedy);
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

void require_type(const Json& value, Json::value_t type, const std::string& where) {
  if (value.type() == type) return;
  throw RowFault(where, fmt::format("expected {}, found {}", type_in_words(type), in_words(value)), kStructureRemedy);
}

const Json& member(const Json& object, const char* key, Json::value_t type, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw RowFault(where, fmt::format("key \"{}\" is missing", key), kStructureRemedy);
  if (found->type() != type) {
    throw RowFault(where, fmt::format("\"{}\" must be {}, found {}", key, type_in_words(type), in_words(*found)),
                   kStructureRemedy);
  }
  return *found;
}

const std::string& string_member(const Json& object, const char* key, const std::string& where) {
  return member(object, key, Json::value_t::string, where).get_ref<const std::string&>();
}

Example read_question(const Json& owner, const std::string& context, const CodePoints& code_points,
                      const std::string& where, ContextWork& work) {
  Example example;
  example.place = where;
  example.question = string_member(owner, "question", where);
  example.context = context;
  read_id(owner, where, example.id);
  const std::vector<Answer> answers = read_answers(owner, where);
  const auto impossible = owner.find("is_impossible");
  if (impossible != owner.end() && *impossible == true) {
    for (const Answer& answer : answers) require_no_answer(*answer.text, where);
  } else {
    for (const Answer& answer : answers) place_answer(answer, code_points, where, work, example);
  }
  return example;
}

Example read_row(const Json& row, const std::string& where, ContextWork& work) {
  require_type(row, Json::value_t::object, where);
  Example example = format_of(row, where).read(row, where, work);
  example.place = where;
  read_id(row, where, example.id);
  return example;
}

}  // namespace tessera
