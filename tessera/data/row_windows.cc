#include "tessera/data/row_windows.h"

#include <algorithm>
#include <fstream>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/data/data_file.h"
#include "tessera/data/row_reader.h"

namespace tessera {
namespace {

// Complete lines of a file.
class LineWindows {
 public:
  LineWindows(const std::string& path, size_t window_bytes)
      : path_(path), window_bytes_(window_bytes), file_(path, std::ios::binary) {}

  // The next lines, with their ends: about window_bytes, but at least one line. Empty at the end of the file. Valid
  // until the next call.
  std::string_view next() {
    text_.erase(0, used_);
    used_ = text_.rfind('\n') + 1;  // 0 if there is none
    while (used_ == 0 && file_) {
      const size_t before = text_.size();
      text_.resize(before + window_bytes_);
      file_.read(text_.data() + before, static_cast<std::streamsize>(window_bytes_));
      text_.resize(before + static_cast<size_t>(file_.gcount()));
      used_ = text_.rfind('\n') + 1;
    }
    if (file_.bad()) throw RunError(path_, "cannot be read", "Check the disk or the file server, and start again");
    if (used_ == 0) used_ = text_.size();  // the last line has no end
    return std::string_view(text_).substr(0, used_);
  }

 private:
  std::string path_;
  size_t window_bytes_;
  std::ifstream file_;
  std::string text_;
  size_t used_ = 0;  // bytes of text_ that the last call returned
};

bool has_texts_as_lines(std::string_view content, const std::string& path, const RowOptions& options) {
  const bool may_be_text = options.kind == RowKind::automatic || options.kind == RowKind::text;
  if (!has_ending(path, {".txt"}) || options.text_rows != TextRows::line || !may_be_text) return false;
  const size_t begin = content.find_first_not_of(" \t\r\n");
  return begin != content.npos && content[begin] != '[' && content[begin] != '{';
}

}  // namespace

void read_row_windows(const std::string& path, const RowOptions& options, const std::function<void(ExampleRows)>& take,
                      size_t window_bytes) {
  const std::optional<uint64_t> size = check_data_file(path);
  if (!size || *size <= window_bytes) return take(load_rows({path}, options));
  LineWindows windows(path, window_bytes);
  std::string_view content = without_byte_order_mark(windows.next());
  const bool is_text = has_texts_as_lines(content, path, options);
  if (!is_text && (has_ending(path, {".txt"}) || !begins_with_rows_as_lines(content, content.size() < *size))) {
    return take(load_rows({path}, options));
  }
  RowReader reader(path, *size, options);
  for (int64_t line = 1; !content.empty(); content = windows.next()) {
    line = is_text ? reader.add_text_lines(content, line) : reader.add_lines(content, line);
    take(reader.take_some());
  }
  take(reader.take());
}

}  // namespace tessera
