#include "tessera/data/examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/random.h"
#include "tessera/base/read_file.h"
#include "tessera/data/numpy_permutation.h"
#include "tessera/data/text.h"

namespace tessera {

namespace {

using Json = nlohmann::json;

constexpr const char* kStructureRemedy =
    "Give SQuAD JSON ({\"data\": [{\"paragraphs\": ...}]}), a JSON array of rows, or one row per line; a row is "
    "{\"context\", \"question\", \"answers\": {\"text\": [...]}} or {\"text\"}";

// Why a part of the file (a row, a question, a paragraph or an article) cannot be used. The exception ends the reading
// of this part.
struct RowFault {
  RowFault(std::string where, std::string fault, std::string advice = "")
      : place(std::move(where)), what(std::move(fault)), remedy(std::move(advice)) {}
  std::string place, what, remedy;
};

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

void require_type(const Json& value, Json::value_t type, const std::string& where) {
  if (value.type() != type) {
    throw RowFault(where, fmt::format("expected {}, found {}", type_in_words(type), in_words(value)), kStructureRemedy);
  }
}

// The place of a key for an error message. `where` is the place of the object that has the key. Examples of results:
// "rows.jsonl:12: answers", "squad.json: data[0].paragraphs[0].qas[1].answers".
std::string inside(const std::string& where, const std::string& key) {
  return where + (where.ends_with(']') ? "." : ": ") + key;
}

// Returns the value of a required key. Throws RowFault if the key is missing or its value has another type.
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

struct Answer {
  const std::string* text;       // a string of the parsed JSON
  std::optional<int64_t> start;  // in code points of the context; empty if the file does not give it
};

std::optional<int64_t> start_of(const Json& value, const std::string& where) {
  if (!value.is_number_integer()) {
    throw RowFault(where, "\"answer_start\" must be a whole number, found " + in_words(value), kStructureRemedy);
  }
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), std::numeric_limits<int64_t>::max()));
  }
  return std::max<int64_t>(value.get<int64_t>(), 0);
}

// Reads the answers of a question in either form: [{"text", "answer_start"}] or {"text": [...], "answer_start": [...]}.
std::vector<Answer> read_answers(const Json& owner, const std::string& where) {
  const auto found = owner.find("answers");
  if (found == owner.end()) {
    const auto impossible = owner.find("is_impossible");
    if (impossible != owner.end() && *impossible == true) return {};
    throw RowFault(where, "key \"answers\" is missing", kStructureRemedy);
  }
  if (found->is_null()) return {};
  std::vector<Answer> answers;
  if (found->is_array()) {
    for (size_t i = 0; i < found->size(); ++i) {
      const std::string place = inside(where, fmt::format("answers[{}]", i));
      const Json& answer = (*found)[i];
      require_type(answer, Json::value_t::object, place);
      const auto start = answer.find("answer_start");
      answers.push_back(
          {&string_member(answer, "text", place), start == answer.end() ? std::nullopt : start_of(*start, place)});
    }
    return answers;
  }
  const std::string place = inside(where, "answers");
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
    answers.push_back({&texts[i].get_ref<const std::string&>(),
                       has_starts ? start_of(starts[i], fmt::format("{}.answer_start[{}]", place, i)) : std::nullopt});
  }
  return answers;
}

// Turns parsed JSON into examples.
class Reader {
 public:
  Reader(std::string path, size_t content_bytes)
      : path_(std::move(path)), work_limit_(std::max<size_t>(size_t{1} << 30, 64 * content_bytes)) {}

  void add_squad(const Json& document) {
    unless_faulty([&] {
      const Json& data = member(document, "data", Json::value_t::array, path_);
      for (size_t a = 0; a < data.size(); ++a) {
        unless_faulty([&] { add_article(data[a], fmt::format("{}: data[{}]", path_, a)); });
      }
    });
  }

  void add_row(const Json& row, const std::string& where) {
    unless_faulty([&] { read_row(row, where); });
  }

  ExampleRows take() {
    if (rows_.examples.empty() && rows_.bad.empty()) {
      throw InputError(path_, "the data set is empty: it contains no question and no text", kStructureRemedy);
    }
    return std::move(rows_);
  }

 private:
  // Reads a part of the file. If the part cannot be used, it counts as one bad row.
  template <typename Read>
  void unless_faulty(const Read& read) {
    try {
      read();
    } catch (const RowFault& fault) {
      rows_.bad.push_back({fault.place, fault.what, fault.remedy});
    }
  }

  void add_article(const Json& article, const std::string& where) {
    require_type(article, Json::value_t::object, where);
    const Json& paragraphs = member(article, "paragraphs", Json::value_t::array, where);
    for (size_t p = 0; p < paragraphs.size(); ++p) {
      unless_faulty([&] { add_paragraph(paragraphs[p], fmt::format("{}.paragraphs[{}]", where, p)); });
    }
  }

  void read_row(const Json& row, const std::string& where) {
    require_type(row, Json::value_t::object, where);
    if (row.contains("context") || row.contains("question")) {
      const std::string& context = string_member(row, "context", where);
      add_question(row, context, CodePoints(context), where);
      return;
    }
    if (!row.contains("text")) {
      std::string keys;
      for (const auto& item : row.items()) {
        if (keys.size() < 80) keys += (keys.empty() ? "\"" : ", \"") + printable(item.key()) + "\"";
      }
      throw RowFault(where, keys.empty() ? "the row has no key" : "the row has no known key. Its keys: " + keys,
                     kStructureRemedy);
    }
    Example example;
    example.place = where;
    example.text = string_member(row, "text", where);
    read_id(row, where, example.id);
    rows_.examples.push_back(std::move(example));
  }

  void add_paragraph(const Json& paragraph, const std::string& where) {
    require_type(paragraph, Json::value_t::object, where);
    const std::string& context = string_member(paragraph, "context", where);
    const Json& questions = member(paragraph, "qas", Json::value_t::array, where);
    spend(questions.size() * context.size(), where);
    const CodePoints code_points(context);
    for (size_t q = 0; q < questions.size(); ++q) {
      unless_faulty([&] {
        const std::string place = fmt::format("{}.qas[{}]", where, q);
        require_type(questions[q], Json::value_t::object, place);
        add_question(questions[q], context, code_points, place);
      });
    }
  }

  void add_question(const Json& owner, const std::string& context, const CodePoints& code_points,
                    const std::string& where) {
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
      for (const Answer& answer : answers) place_answer(answer, code_points, where, example);
    }
    rows_.examples.push_back(std::move(example));
  }

  static void require_no_answer(const std::string& text, const std::string& where) {
    if (text.empty() || text == kNoAnswer) return;
    throw RowFault(where, fmt::format("is_impossible is true, but the question has the answer \"{}\"", printable(text)),
                   "Remove the answers, or is_impossible. Answers that only seem right belong to plausible_answers");
  }

  // Appends an answer. The first answer decides whether the question is answerable, and where its answer starts.
  void place_answer(const Answer& answer, const CodePoints& code_points, const std::string& where, Example& example) {
    const std::string& text = *answer.text;
    const std::string& context = example.context;
    if (text.empty()) {
      throw RowFault(where, "an answer is the empty string",
                     "Use an empty list of answers if the question has no answer");
    }
    size_t offset = code_points.byte_offset(answer.start.value_or(0));
    if (context.compare(offset, text.size(), text) != 0) {
      spend(context.size(), where);
      offset = nearest_occurrence(context, text, offset);
    }
    const bool found = offset != std::string::npos;
    if (!found && text != kNoAnswer) {
      throw RowFault(
          where,
          fmt::format("the answer \"{}\" does not occur in the context \"{}\"", printable(text), printable(context)),
          "Answers must be exact copies of text in the context. Use an empty list of answers for an "
          "unanswerable question, or rows {\"text\"} to train on text without questions");
    }
    if (example.answers.empty() && found) {
      example.answerable = true;
      example.answer_start = static_cast<int64_t>(offset);
    }
    example.answers.push_back(text);
  }

  static void read_id(const Json& owner, const std::string& where, std::string& id) {
    const auto found = owner.find("id");
    if (found == owner.end() || found->is_null()) return;
    if (!found->is_string() && !found->is_number_integer()) {
      throw RowFault(where, "\"id\" must be a string or a whole number, found " + in_words(*found));
    }
    id = found->is_string() ? found->get<std::string>() : found->dump();
  }

  // Counts bytes of contexts. Each question of a paragraph gets a copy of the context, and place_answer() may search
  // the context. Throws InputError if more than work_limit_ bytes are copied or searched. Without this limit, a small
  // malicious file could use any amount of time and memory.
  void spend(size_t bytes, const std::string& where) {
    work_ += bytes;
    if (work_ > work_limit_) {
      throw InputError(
          where,
          fmt::format(
              "up to this place, contexts of {} MiB were copied for questions and searched for misplaced answers: "
              "many times the size of the file",
              work_limit_ >> 20),
          "Split long contexts into the passages that the questions are about");
    }
  }

  std::string path_;
  size_t work_ = 0, work_limit_;
  ExampleRows rows_;
};

void require_utf8(std::string_view text, const std::string& where) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(invalid), '\n');
  const auto byte = static_cast<unsigned char>(text[invalid]);
  throw InputError(where, fmt::format("invalid UTF-8: byte 0x{:02X} at offset {} (line {})", byte, invalid, line),
                   "Save the file as UTF-8");
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

void read_lines(std::string_view content, const std::string& where, Reader& reader) {
  for (int64_t line = 1; !content.empty(); ++line) {
    const size_t end = std::min(content.find('\n'), content.size());
    const std::string_view row = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (is_blank(row)) continue;
    const std::string place = fmt::format("{}:{}", where, line);
    reader.add_row(parse_json(row, where, kStructureRemedy, line), place);
  }
}

}  // namespace

ExampleRows rows_from_text(std::string_view content, const std::string& where) {
  require_utf8(content, where);
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);  // a byte order mark
  const size_t begin = std::min(content.find_first_not_of(" \t\r\n"), content.size());
  if (begin == content.size()) throw InputError(where, "the file is empty", kStructureRemedy);

  Reader reader(where, content.size());
  if (content[begin] == '[') {
    const Json rows = parse_json(content, where, kStructureRemedy);
    for (size_t i = 0; i < rows.size(); ++i) reader.add_row(rows[i], fmt::format("{}: [{}]", where, i));
    return reader.take();
  }
  // If the first line that is not blank is a complete JSON value and more text follows, the file is JSONL. Otherwise,
  // the file is one JSON value.
  const size_t line_end = std::min(content.find('\n', begin), content.size());
  const bool one_line = is_blank(content.substr(line_end));
  if (!one_line && Json::accept(content.begin() + static_cast<std::ptrdiff_t>(begin),
                                content.begin() + static_cast<std::ptrdiff_t>(line_end))) {
    read_lines(content, where, reader);
    return reader.take();
  }
  const Json document = parse_json(content, where, kStructureRemedy);
  if (document.is_object() && document.contains("data")) {
    reader.add_squad(document);
  } else {
    reader.add_row(document, where);
  }
  return reader.take();
}

static std::vector<Example> all_good(ExampleRows rows) {
  if (rows.bad.empty()) return std::move(rows.examples);
  const BadRow& first = rows.bad.front();
  throw InputError(first.place, first.what, first.remedy);
}

std::vector<Example> examples_from_text(std::string_view content, const std::string& where) {
  return all_good(rows_from_text(content, where));
}

ExampleRows load_rows(const std::filesystem::path& path) {
  const ReadOptions options{.remedy = "Give the path of a JSON or JSONL file",
                            .longest_bytes = std::numeric_limits<uint64_t>::max(),
                            .pipes = true};
  return rows_from_text(read_file(path, options), path.string());
}

std::vector<Example> load_examples(const std::filesystem::path& path) {
  return all_good(load_rows(path));
}

std::vector<Example> select_examples(std::vector<Example> examples, int64_t count, uint64_t seed, RowOrder order,
                                     const std::string& setting) {
  // The number of this random stream: "select" in ASCII. Other uses of the same seed have other stream numbers.
  constexpr uint64_t kStream = 0x73656C6563740000;
  const int64_t size = std::ssize(examples);
  if (count < -1) {
    throw UsageError(setting, fmt::format("{} examples cannot be taken", count),
                     "Give a number of examples, or 0 for all");
  }
  if (count > size) {
    throw UsageError(setting, fmt::format("{} examples are requested, but the data set has {}", count, size),
                     fmt::format("Give at most {}, or 0 for all", size));
  }
  if (order == RowOrder::random) tessera::shuffle(std::span<Example>(examples), seed, kStream);
  if (order == RowOrder::datasets) {
    std::vector<Example> permuted;
    for (const int64_t row : numpy_permutation(size, seed)) {
      permuted.push_back(std::move(examples[static_cast<size_t>(row)]));
    }
    examples = std::move(permuted);
  }
  if (count > 0) examples.resize(static_cast<size_t>(count));
  return examples;
}

}  // namespace tessera
