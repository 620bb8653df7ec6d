#include "tessera/data/examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/option_names.h"
#include "tessera/base/random.h"
#include "tessera/base/text.h"
#include "tessera/data/data_file.h"
#include "tessera/data/numpy_permutation.h"
#include "tessera/data/row_reader.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

void require_utf8(std::string_view text, const std::string& where) {
  const ByteFault fault = byte_fault_of(text);
  if (fault.what.empty()) return;
  throw InputError(fmt::format("{}:{}:{}", where, fault.line, fault.column), fault.what, kUtf8Remedy);
}

// Whether a file that is not one valid JSON value has one value per line, in spite of faulty lines. In such a file,
// more lines are complete objects than parts of a longer value: lines that begin with a closing bracket or end with a
// comma. The first line does not count, because it does not show the difference.
bool has_rows_as_lines(std::string_view content, const std::string& where) {
  constexpr int kEnough = 16;
  int votes = 0;
  bool is_first = true;
  while (!content.empty() && std::abs(votes) < kEnough) {
    std::string_view line = take_line(content);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (line.empty() || std::exchange(is_first, false)) continue;
    if (line.front() == '{' && line.back() == '}') {
      votes += Json::accept(line) ? 1 : 0;
    } else if (line.front() == '}' || line.front() == ']' || line.back() == ',') {
      --votes;
    }
  }
  return votes > 0 || (votes == 0 && has_ending(where, {".jsonl", ".ndjson"}));
}

// Reads {"data": [...]}, a single article, or a single row.
void read_object(const JsonPiece& content, const std::string& where, RowReader& reader) {
  if (const auto document = open_object(content, "data")) return reader.add_elements(document->elements, "data");
  if (open_object(content, "paragraphs")) return reader.add_row(content, where);
  const Json object = parse_json<Json>(content.text, where, kStructureRemedy);
  if (object.is_object() && object.contains("data")) {
    try {
      member(object, "data", Json::value_t::array, where);
    } catch (const RowFault& fault) {
      return reader.add_bad(fault.place, fault.what, fault.remedy);
    }
  }
  reader.add_row(object, where);
}

bool has_row_keys(const JsonPiece& object) {
  constexpr std::string_view kKeys[] = {"text",     "question",      "prompt",     "data",
                                        "messages", "conversations", "instruction"};
  const auto members = json_members(object);
  return members && std::ranges::any_of(*members, [&](const JsonMember& member) {
           return std::ranges::find(kKeys, member.key) != std::end(kKeys);
         });
}

// Whether the content of a .txt file is JSON or JSONL with rows. To train on such a file as plain text would be a
// mistake that nobody sees.
bool is_json_of_rows(std::string_view content) {
  content.remove_prefix(std::min(content.find_first_not_of(" \t\r\n"), content.size()));
  if (content.starts_with('[')) {
    const auto elements = json_elements({content});
    return elements && !elements->empty() && has_row_keys(elements->front());
  }
  return has_row_keys({content.substr(0, content.find('\n'))}) || has_row_keys({content});
}

ExampleRows read_texts(std::string_view content, const std::string& where, const RowOptions& options) {
  RowReader reader(where, content.size(), options);
  if (is_json_of_rows(content)) {
    throw InputError(where, "has rows as JSON, but its name ends with .txt, which is for plain text",
                     "Rename it, for example to end with .jsonl");
  }
  if (options.kind != RowKind::automatic && options.kind != RowKind::text) {
    throw InputError(where, "has plain texts, because its name ends with .txt, but the rows must have another format",
                     "Give " + option("dataset_format") + " auto, or rename the file");
  }
  if (is_blank(content)) {
    reader.add_bad(where, "the file is empty", "Remove it from the list of files");
  } else if (options.text_rows == TextRows::file) {
    reader.add_text(content, where);
  } else {
    reader.add_text_lines(content, 1);
  }
  return reader.take();
}

}  // namespace

ExampleRows rows_from_text(std::string_view content, const std::string& where, const RowOptions& options) {
  content = without_byte_order_mark(content);
  if (has_ending(where, {".txt"})) return read_texts(content, where, options);
  const size_t begin = std::min(content.find_first_not_of(" \t\r\n"), content.size());
  if (begin == content.size()) throw InputError(where, "the file is empty", kStructureRemedy);

  RowReader reader(where, content.size(), options);
  // Otherwise, the file is one JSON value, or its first line is faulty.
  if (begins_with_rows_as_lines(content, false)) {
    reader.add_lines(content, 1);
    return reader.take();
  }
  if (content[begin] == '[') {
    if (const auto elements = json_elements({content})) {
      reader.add_elements(*elements, "");
      return reader.take();
    }
  }
  try {
    if (content[begin] != '[') {
      read_object({content}, where, reader);
      return reader.take();
    }
    parse_json(content, where, kStructureRemedy);  // throws, with the place of the fault
    throw InputError(where, "not valid JSON", kStructureRemedy);
  } catch (const InputError&) {
    if (!has_rows_as_lines(content, where)) {
      require_utf8(content, where);
      throw;
    }
  }
  RowReader lines(where, content.size(), options);
  lines.add_lines(content, 1);
  return lines.take();
}

namespace {

std::vector<Example> all_good(ExampleRows rows) {
  if (rows.bad.empty()) return std::move(rows.examples);
  const BadRow& first = rows.bad.front();
  throw InputError(first.place, first.what, first.remedy);
}

}  // namespace

std::vector<Example> examples_from_text(std::string_view content, const std::string& where, const RowOptions& options) {
  return all_good(rows_from_text(content, where, options));
}

ExampleRows load_rows(const std::vector<std::string>& paths, const RowOptions& options) {
  ExampleRows all;
  for (const std::string& path : paths) {
    ExampleRows rows = rows_from_text(read_data_file(path), path, options);
    if (paths.size() == 1) return rows;
    std::ranges::move(rows.examples, std::back_inserter(all.examples));
    std::ranges::move(rows.bad, std::back_inserter(all.bad));
  }
  return all;
}

std::vector<Example> load_examples(const std::vector<std::string>& paths, const RowOptions& options) {
  return all_good(load_rows(paths, options));
}

std::vector<int64_t> select_rows(int64_t size, int64_t count, uint64_t seed, RowOrder order,
                                 const std::string& setting) {
  // The number of this random stream: "select" in ASCII. Other uses of the same seed have other stream numbers.
  constexpr uint64_t kStream = 0x73656C6563740000;
  if (count < -1) {
    throw UsageError(option_place(setting), fmt::format("{} examples cannot be taken", count),
                     "Give a number of examples, or 0 for all");
  }
  if (count > size) {
    throw UsageError(option_place(setting),
                     fmt::format("{} examples are requested, but the data set has {}", count, size),
                     fmt::format("Give at most {}, or 0 for all", size));
  }
  std::vector<int64_t> rows;
  if (order == RowOrder::datasets) {
    rows = numpy_permutation(size, seed);
  } else {
    rows.resize(static_cast<size_t>(size));
    std::iota(rows.begin(), rows.end(), 0);
    if (order == RowOrder::random) tessera::shuffle(std::span<int64_t>(rows), seed, kStream);
  }
  if (count > 0) rows.resize(static_cast<size_t>(count));
  return rows;
}

std::vector<Example> select_examples(std::vector<Example> examples, int64_t count, uint64_t seed, RowOrder order,
                                     const std::string& setting) {
  std::vector<Example> selected;
  for (const int64_t row : select_rows(std::ssize(examples), count, seed, order, setting)) {
    selected.push_back(std::move(examples[static_cast<size_t>(row)]));
  }
  return selected;
}

std::vector<Example> hold_out(std::vector<Example>& examples, double fraction, uint64_t seed) {
  // The number of this random stream: "holdout" in ASCII.
  constexpr uint64_t kStream = 0x686F6C646F757400;
  const auto size = std::ssize(examples);
  const int64_t count = std::max<int64_t>(1, std::llround(fraction * static_cast<double>(size)));
  if (count >= size) {
    throw UsageError(option_place("eval_fraction"),
                     fmt::format("{} of {} leaves no row to train on", fraction, counted(size, "row")),
                     size > 1 ? std::string("Give a smaller fraction, or more rows")
                              : "Give at least 2 rows that can be used, or remove " + option("eval_fraction"));
  }
  std::vector<int64_t> order(examples.size());
  std::iota(order.begin(), order.end(), 0);
  tessera::shuffle(std::span<int64_t>(order), seed, kStream);
  std::vector<bool> is_held(examples.size(), false);
  for (int64_t i = 0; i < count; ++i) is_held[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  std::vector<Example> held, rest;
  for (size_t i = 0; i < examples.size(); ++i) (is_held[i] ? held : rest).push_back(std::move(examples[i]));
  examples = std::move(rest);
  return held;
}

}  // namespace tessera
