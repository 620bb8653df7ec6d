// A terminal for tests: it takes the output of a console and returns what a person sees.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/log/console.h"

namespace tessera {

class Screen {
 public:
  // Handles \n, \r and the sequence that erases to the end of the line. Drops colours. Counts each byte as one column,
  // even in characters of several bytes. This is enough, because a status line always starts at the first column.
  void write(std::string_view text) {
    raw_ += text;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') {
        lines_.emplace_back();
        column_ = 0;
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\x1b') {
        const size_t end = text.find_first_of("Km", i);
        if (text[end] == 'K') lines_.back().resize(column_);
        i = end;
      } else {
        if (column_ == lines_.back().size()) lines_.back() += ' ';
        lines_.back()[column_++] = text[i];
      }
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }  // the cursor is in the last line
  const std::string& raw() const { return raw_; }

  Console::Output output(Terminal terminal, int columns = 80) {
    return {terminal, [this](std::string_view text) { write(text); }, [columns] { return columns; }};
  }

 private:
  std::vector<std::string> lines_ = {""};
  size_t column_ = 0;
  std::string raw_;
};

// Returns a function that looks up a variable in a map. describe_terminal() takes such a function.
inline auto environment(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

inline constexpr Terminal kPlainTerminal{.interactive = true, .color = false, .unicode = false};
inline constexpr Terminal kFullTerminal{.interactive = true, .color = true, .unicode = true};

}  // namespace tessera
