#include "tessera/data/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/data/text.h"

namespace tessera {

using Json = nlohmann::ordered_json;

std::string_view take_line(std::string_view& content) {
  const size_t end = std::min(content.find('\n'), content.size());
  const std::string_view line = content.substr(0, end);
  content.remove_prefix(std::min(end + 1, content.size()));
  return line;
}

bool begins_with_rows_as_lines(std::string_view content, bool has_more) {
  const size_t begin = std::min(content.find_first_not_of(" \t\r\n"), content.size());
  if (begin == content.size() || content[begin] == '[') return false;
  const size_t end = std::min(content.find('\n', begin), content.size());
  return (has_more || !is_blank(content.substr(end))) && Json::accept(content.substr(begin, end - begin));
}

ByteFault byte_fault_of(std::string_view text, int64_t first_line, int64_t first_column) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos) return {};
  const std::string_view before = text.substr(0, invalid);
  const auto ends = std::count(before.begin(), before.end(), '\n');
  const auto column = static_cast<int64_t>(before.size() - (before.rfind('\n') + 1));  // npos + 1 is 0
  return {.line = first_line + ends,
          .column = column + (ends > 0 ? 1 : first_column),
          .what = fmt::format("invalid UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[invalid]))};
}

std::optional<OpenedObject> open_object(const JsonPiece& object, std::string_view key) {
  const auto members = json_members(object);
  if (!members) return std::nullopt;
  std::optional<std::vector<JsonPiece>> elements;
  OpenedObject opened;
  auto& rest = opened.rest.get_ref<Json::object_t&>();
  std::set<std::string_view> keys;
  for (const JsonMember& member : *members) {
    if (member.key == key) {
      if (elements) return std::nullopt;  // the key occurs twice
      elements = json_elements(member.value);
      if (!elements) return std::nullopt;
      continue;
    }
    try {
      if (!keys.insert(member.key).second) return std::nullopt;
      rest.emplace_back(member.key, parse_json_or_fault<Json>(member.value.text, member.value.line));
    } catch (const JsonFault&) {
      return std::nullopt;
    }
  }
  if (!elements) return std::nullopt;
  opened.elements = std::move(*elements);
  return opened;
}

namespace {

// The elements of an object's member `key`. Empty if it has no such array.
std::vector<JsonPiece> elements_of(const JsonPiece& object, std::string_view key) {
  for (const JsonMember& member : json_members(object).value_or(std::vector<JsonMember>())) {
    if (member.key == key) return json_elements(member.value).value_or(std::vector<JsonPiece>());
  }
  return {};
}

// The number of rows in a part of a file: the questions of a paragraph or an article, otherwise 1.
int64_t num_rows_of(const JsonPiece& part) {
  auto count = std::ssize(elements_of(part, "qas"));
  for (const JsonPiece& paragraph : elements_of(part, "paragraphs")) count += std::ssize(elements_of(paragraph, "qas"));
  return std::max<int64_t>(1, count);
}

int64_t num_rows_of(const Json& part) {
  const std::string text = part.dump();
  return num_rows_of(JsonPiece{text});
}

}  // namespace

// Why a piece is not JSON. The place is in the file.
struct RowReader::PieceFault {
  JsonFault json;
  std::string remedy;
};

struct RowReader::Parsed {
  std::optional<Json> json;  // empty: `fault` says why
  PieceFault fault{};
};

RowReader::Parsed RowReader::parse(const JsonPiece& piece) {
  try {
    return {parse_json_or_fault<Json>(piece.text, piece.line)};
  } catch (JsonFault& fault) {
    if (const ByteFault bytes = byte_fault_of(piece.text, piece.line, piece.column); !bytes.what.empty()) {
      return {{}, {{.line = bytes.line, .column = bytes.column, .what = bytes.what}, kUtf8Remedy}};
    }
    if (fault.line == piece.line) fault.column += piece.column - 1;
    return {{},
            {fault, fault.is_cut ? "The row seems to be cut short: fetch or write the file again"
                                 : "Correct the row: it must be one complete JSON object"}};
  }
}

// Reads a part of the file. If the part cannot be used, all its rows are bad.
template <typename Part, typename Read>
void RowReader::unless_faulty(const Part& part, const Read& read) {
  try {
    read();
  } catch (const RowFault& fault) {
    add_bad(fault.place, fault.what, fault.remedy, num_rows_of(part));
  }
}

void RowReader::add_bad(const std::string& place, const std::string& what, const std::string& remedy,
                        int64_t num_rows) {
  // Nobody reads more descriptions, and a large file may have a fault in every line.
  constexpr size_t kDescribed = 1000;
  BadRow& bad = rows_.bad.emplace_back();
  bad.num_rows = num_rows;
  if (++num_bad_ > kDescribed) return;
  bad.place = place;
  bad.what = num_rows > 1 ? fmt::format("{} ({} questions)", what, num_rows) : what;
  bad.remedy = remedy;
}

void RowReader::add_bad(const std::string& place, const PieceFault& fault, int64_t num_rows) {
  const JsonFault& json = fault.json;
  if (json.line == 0) return add_bad(place, json.what, fault.remedy, num_rows);
  if (place == fmt::format("{}:{}", path_, json.line)) {
    return add_bad(fmt::format("{}:{}", place, json.column), json.what, fault.remedy, num_rows);
  }
  add_bad(place, fmt::format("{} (line {}, column {})", json.what, json.line, json.column), fault.remedy, num_rows);
}

void RowReader::add_line(std::string_view text, int64_t line) {
  add_row(JsonPiece{text, line}, fmt::format("{}:{}", path_, line));
}

void RowReader::add_elements(const std::vector<JsonPiece>& elements, const char* name) {
  for (size_t i = 0; i < elements.size(); ++i) add_row(elements[i], fmt::format("{}: {}[{}]", path_, name, i));
}

void RowReader::add_row(const Json& row, const std::string& where) {
  unless_faulty(row, [&] {
    if (row.is_object() && row.contains("paragraphs")) {
      add_article(row, where);
    } else {
      rows_.examples.push_back(read_row(row, where, work_, options_));
    }
  });
}

void RowReader::add_text(std::string_view text, const std::string& where, int64_t first_line) {
  const ByteFault fault = byte_fault_of(text, first_line);
  if (!fault.what.empty()) {
    add_bad(fmt::format("{}:{}:{}", path_, fault.line, fault.column), fault.what, kUtf8Remedy);
  } else if (text.find('\0') != text.npos) {
    add_bad(where, "contains a zero byte", "Remove it, or check that this is a text file");
  } else {
    Example& example = rows_.examples.emplace_back();
    example.place = where;
    example.content = PlainText{std::string(text)};
  }
}

ExampleRows RowReader::take_some() {
  is_empty_ = is_empty_ && rows_.examples.empty() && rows_.bad.empty();
  return std::exchange(rows_, {});
}

ExampleRows RowReader::take() {
  ExampleRows rows = take_some();
  if (is_empty_) {
    throw InputError(path_, "the data set is empty: it contains no question and no text", kStructureRemedy);
  }
  return rows;
}

int64_t RowReader::add_lines(std::string_view content, int64_t line) {
  for (; !content.empty(); ++line) {
    const std::string_view row = take_line(content);
    if (!is_blank(row)) add_line(row, line);
  }
  return line;
}

int64_t RowReader::add_text_lines(std::string_view content, int64_t line) {
  for (; !content.empty(); ++line) {
    std::string_view row = take_line(content);
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (!is_blank(row)) add_text(row, fmt::format("{}:{}", path_, line), line);
  }
  return line;
}

void RowReader::add_row(const JsonPiece& piece, const std::string& where) {
  const Parsed row = parse(piece);
  if (row.json) return add_row(*row.json, where);
  const auto article = open_object(piece, "paragraphs");
  if (!article) return add_bad(where, row.fault, num_rows_of(piece));
  for (size_t p = 0; p < article->elements.size(); ++p) {
    const std::string place = inside(where, fmt::format("paragraphs[{}]", p));
    const Parsed paragraph = parse(article->elements[p]);
    if (paragraph.json) {
      unless_faulty(*paragraph.json, [&] { add_paragraph(*paragraph.json, place); });
    } else {
      add_faulty_paragraph(article->elements[p], place, paragraph.fault);
    }
  }
}

// Adds the valid questions of a paragraph with an invalid value.
void RowReader::add_faulty_paragraph(const JsonPiece& piece, const std::string& where, const PieceFault& fault) {
  const auto paragraph = open_object(piece, "qas");
  if (!paragraph) return add_bad(where, fault, num_rows_of(piece));
  unless_faulty(piece, [&] {
    const std::string& context = string_member(paragraph->rest, "context", where);
    work_.spend(paragraph->elements.size() * context.size(), where);
    const CodePoints code_points(context);
    for (size_t q = 0; q < paragraph->elements.size(); ++q) {
      const std::string place = fmt::format("{}.qas[{}]", where, q);
      const Parsed question = parse(paragraph->elements[q]);
      if (question.json) {
        add_question(*question.json, context, code_points, place);
      } else {
        add_bad(place, question.fault, 1);
      }
    }
  });
}

// Throws RowFault if the options ask for another format than SQuAD's.
void RowReader::check_squad(const std::string& where) const {
  if (options_.kind == RowKind::automatic || options_.kind == RowKind::question) return;
  throw RowFault(where, fmt::format("is SQuAD's format, not the format {}", name_of(options_.kind)),
                 fmt::format("Give another {}", option("dataset_format")));
}

void RowReader::add_article(const Json& article, const std::string& where) {
  check_squad(where);
  const Json& paragraphs = member(article, "paragraphs", Json::value_t::array, where);
  for (size_t p = 0; p < paragraphs.size(); ++p) {
    unless_faulty(paragraphs[p],
                  [&] { add_paragraph(paragraphs[p], inside(where, fmt::format("paragraphs[{}]", p))); });
  }
}

void RowReader::add_paragraph(const Json& paragraph, const std::string& where) {
  require_type(paragraph, Json::value_t::object, where);
  const std::string& context = string_member(paragraph, "context", where);
  const Json& questions = member(paragraph, "qas", Json::value_t::array, where);
  work_.spend(questions.size() * context.size(), where);
  const CodePoints code_points(context);
  for (size_t q = 0; q < questions.size(); ++q) {
    add_question(questions[q], context, code_points, fmt::format("{}.qas[{}]", where, q));
  }
}

void RowReader::add_question(const Json& question, const std::string& context, const CodePoints& code_points,
                             const std::string& where) {
  unless_faulty(question, [&] {
    require_type(question, Json::value_t::object, where);
    static const FieldNames kSquadNames;
    rows_.examples.push_back(read_question({question, kSquadNames, where}, context, code_points, work_));
  });
}

}  // namespace tessera
