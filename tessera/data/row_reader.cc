#include "tessera/data/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/data/text.h"

namespace tessera {

using Json = nlohmann::json;

ByteFault byte_fault_of(std::string_view text) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos) return {};
  const std::string_view before = text.substr(0, invalid);
  return {.line = 1 + std::count(before.begin(), before.end(), '\n'),
          .column = static_cast<int64_t>(before.size() - (before.rfind('\n') + 1)) + 1,
          .offset = invalid,
          .what = fmt::format("invalid UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[invalid]))};
}

std::optional<OpenedObject> open_object(const JsonPiece& object, std::string_view key) {
  const auto members = json_members(object);
  if (!members) return std::nullopt;
  std::optional<std::vector<JsonPiece>> elements;
  OpenedObject opened;
  for (const JsonMember& member : *members) {
    if (member.key == key) {
      if (elements) return std::nullopt;  // the key occurs twice
      elements = json_elements(member.value);
      if (!elements) return std::nullopt;
      continue;
    }
    try {
      Json value = parse_json_or_fault(member.value.text, member.value.line);
      if (!opened.rest.emplace(member.key, std::move(value)).second) return std::nullopt;
    } catch (const JsonFault&) {
      return std::nullopt;
    }
  }
  if (!elements) return std::nullopt;
  opened.elements = std::move(*elements);
  return opened;
}

// Why a piece is not JSON.
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
    return {parse_json_or_fault(piece.text, piece.line)};
  } catch (const JsonFault& fault) {
    if (const ByteFault bytes = byte_fault_of(piece.text); !bytes.what.empty()) {
      const int64_t line = piece.line + bytes.line - 1;
      return {{}, {{.line = line, .column = bytes.column, .what = bytes.what}, kUtf8Remedy}};
    }
    return {{},
            {fault, fault.is_cut ? "The row seems to be cut short: fetch or write the file again"
                                 : "Correct the row: it must be one complete JSON object"}};
  }
}

// Reads a part of the file. If the part cannot be used, it counts as one bad row.
template <typename Read>
void RowReader::unless_faulty(const Read& read) {
  try {
    read();
  } catch (const RowFault& fault) {
    add_bad(fault.place, fault.what, fault.remedy);
  }
}

void RowReader::add_bad(const std::string& place, const std::string& what, const std::string& remedy) {
  // Nobody reads more descriptions, and a large file may have a fault in every line.
  constexpr size_t kDescribed = 1000;
  if (rows_.bad.size() < kDescribed) {
    rows_.bad.push_back({place, what, remedy});
  } else {
    rows_.bad.emplace_back();
  }
}

void RowReader::add_bad(const std::string& place, const PieceFault& fault) {
  const JsonFault& json = fault.json;
  add_bad(place, json.line > 0 ? fmt::format("{} (line {}, column {})", json.what, json.line, json.column) : json.what,
          fault.remedy);
}

void RowReader::add_line(std::string_view text, int64_t line) {
  const std::string place = fmt::format("{}:{}", path_, line);
  const Parsed row = parse({text, line});
  if (row.json) return add_row(*row.json, place);
  const JsonFault& fault = row.fault.json;
  add_bad(fault.column > 0 ? fmt::format("{}:{}", place, fault.column) : place, fault.what, row.fault.remedy);
}

void RowReader::add_elements(const std::vector<JsonPiece>& elements, const char* name) {
  for (size_t i = 0; i < elements.size(); ++i) add_element(elements[i], fmt::format("{}: {}[{}]", path_, name, i));
}

void RowReader::add_row(const Json& row, const std::string& where) {
  unless_faulty([&] {
    if (row.is_object() && row.contains("paragraphs")) {
      add_article(row, where);
    } else {
      rows_.examples.push_back(read_row(row, where, work_));
    }
  });
}

void RowReader::add_text(std::string_view text, const std::string& where) {
  const ByteFault fault = byte_fault_of(text);
  if (!fault.what.empty()) {
    add_bad(where, fmt::format("{} (line {}, column {} of the text)", fault.what, fault.line, fault.column),
            kUtf8Remedy);
  } else if (text.find('\0') != text.npos) {
    add_bad(where, "contains a zero byte", "Remove it, or check that this is a text file");
  } else {
    Example& example = rows_.examples.emplace_back();
    example.place = where;
    example.text = std::string(text);
  }
}

ExampleRows RowReader::take() {
  if (rows_.examples.empty() && rows_.bad.empty()) {
    throw InputError(path_, "the data set is empty: it contains no question and no text", kStructureRemedy);
  }
  return std::move(rows_);
}

// Adds a row or an article. If a value of an article is invalid, its valid paragraphs and questions are still added.
void RowReader::add_element(const JsonPiece& piece, const std::string& where) {
  const Parsed row = parse(piece);
  if (row.json) return add_row(*row.json, where);
  const auto article = open_object(piece, "paragraphs");
  if (!article) return add_bad(where, row.fault);
  for (size_t p = 0; p < article->elements.size(); ++p) {
    const std::string place = fmt::format("{}.paragraphs[{}]", where, p);
    const Parsed paragraph = parse(article->elements[p]);
    if (paragraph.json) {
      unless_faulty([&] { add_paragraph(*paragraph.json, place); });
    } else {
      add_faulty_paragraph(article->elements[p], place, paragraph.fault);
    }
  }
}

// Adds the valid questions of a paragraph with an invalid value.
void RowReader::add_faulty_paragraph(const JsonPiece& piece, const std::string& where, const PieceFault& fault) {
  const auto paragraph = open_object(piece, "qas");
  if (!paragraph) return add_bad(where, fault);
  unless_faulty([&] {
    const std::string& context = string_member(paragraph->rest, "context", where);
    work_.spend(paragraph->elements.size() * context.size(), where);
    const CodePoints code_points(context);
    for (size_t q = 0; q < paragraph->elements.size(); ++q) {
      const std::string place = fmt::format("{}.qas[{}]", where, q);
      const Parsed question = parse(paragraph->elements[q]);
      if (question.json) {
        add_question(*question.json, context, code_points, place);
      } else {
        add_bad(place, question.fault);
      }
    }
  });
}

void RowReader::add_article(const Json& article, const std::string& where) {
  const Json& paragraphs = member(article, "paragraphs", Json::value_t::array, where);
  for (size_t p = 0; p < paragraphs.size(); ++p) {
    unless_faulty([&] { add_paragraph(paragraphs[p], fmt::format("{}.paragraphs[{}]", where, p)); });
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
  unless_faulty([&] {
    require_type(question, Json::value_t::object, where);
    rows_.examples.push_back(read_question(question, context, code_points, where, work_));
  });
}

}  // namespace tessera
