// Collects the rows of one data file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/examples.h"
#include "tessera/data/json_pieces.h"
#include "tessera/data/row_formats.h"

namespace tessera {

// What is wrong with the bytes of a text. An empty `what` if all of them are valid UTF-8.
struct ByteFault {
  int64_t line = 1, column = 1;  // of the file, from 1
  std::string what{};
};
// The text begins at this line and column of its file.
ByteFault byte_fault_of(std::string_view text, int64_t first_line = 1, int64_t first_column = 1);
// Removes the first line from `content`, and returns it without its end.
std::string_view take_line(std::string_view& content);
// Whether the first line that is not blank is a complete JSON value, no array, and more text follows: the content is
// JSONL. `has_more`: the file has more text than `content`.
bool begins_with_rows_as_lines(std::string_view content, bool has_more);

inline constexpr const char* kUtf8Remedy = "Save the file as UTF-8";

// An object whose member `key` is an array: the array's elements, and the object without this member.
struct OpenedObject {
  nlohmann::ordered_json rest = nlohmann::ordered_json::object();
  std::vector<JsonPiece> elements{};
};
// nullopt if the object has no such member, or has a fault outside of the elements.
std::optional<OpenedObject> open_object(const JsonPiece& object, std::string_view key);

// A part that cannot be used becomes a bad row, and the other parts remain usable. A bad paragraph or article counts as
// all its questions, if its structure shows them.
class RowReader {
 public:
  // The options must outlive the reader.
  RowReader(std::string path, size_t content_bytes, const RowOptions& options)
      : path_(std::move(path)), options_(options), work_(content_bytes) {}

  // Adds a line of JSONL: a row, or an article of SQuAD.
  void add_line(std::string_view text, int64_t line);
  // Adds the lines of JSONL, or of a .txt file, that are not blank. The first one has the number `line`. Returns the
  // number of the line after the content.
  int64_t add_lines(std::string_view content, int64_t line);
  int64_t add_text_lines(std::string_view content, int64_t line);
  // Adds rows or articles. The place of the element i is "<path>: <name>[i]".
  void add_elements(const std::vector<JsonPiece>& elements, const char* name);
  // Adds a row or an article.
  void add_row(const nlohmann::ordered_json& row, const std::string& where);
  // Adds a row or an article. If a value of an article is invalid, its valid paragraphs and questions are still added.
  void add_row(const JsonPiece& piece, const std::string& where);
  // Adds a text of a .txt file. The text begins at this line.
  void add_text(std::string_view text, const std::string& where, int64_t first_line = 1);
  void add_bad(const std::string& place, const std::string& what, const std::string& remedy, int64_t num_rows = 1);
  // Returns and forgets the rows so far.
  ExampleRows take_some();
  // The rows since the last call of take_some(). Throws InputError if the file has no rows.
  ExampleRows take();

 private:
  struct PieceFault;
  struct Parsed;
  static Parsed parse(const JsonPiece& piece);

  template <typename Part, typename Read>
  void unless_faulty(const Part& part, const Read& read);
  void add_bad(const std::string& place, const PieceFault& fault, int64_t num_rows);
  void add_faulty_paragraph(const JsonPiece& piece, const std::string& where, const PieceFault& fault);
  void check_squad(const std::string& where) const;
  void add_article(const nlohmann::ordered_json& article, const std::string& where);
  void add_paragraph(const nlohmann::ordered_json& paragraph, const std::string& where);
  void add_question(const nlohmann::ordered_json& question, const std::string& context, const CodePoints& code_points,
                    const std::string& where);

  std::string path_;
  const RowOptions& options_;
  ContextWork work_;
  ExampleRows rows_;
  bool is_empty_ = true;  // take_some() has returned no rows
  size_t num_bad_ = 0;
};

}  // namespace tessera
