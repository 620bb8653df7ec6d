// Divides a template into tokens, and applies the rules of white space: `-`, `+`, trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

enum class Lexeme { data, variable_begin, variable_end, block_begin, block_end, name, text, integer, real, op, end };

struct Token {
  Lexeme kind;
  int line;
  std::string text;  // of texts: without quotes and escapes
  int64_t integer = 0;
  double real = 0;

  bool is_op(std::string_view op) const { return kind == Lexeme::op && text == op; }
  bool is_name(std::string_view name) const { return kind == Lexeme::name && text == name; }
};

// The last token is `end`. Throws InputError with `where` and the line.
std::vector<Token> tokens_of(std::string_view source, const std::string& where);

}  // namespace tessera::jinja
