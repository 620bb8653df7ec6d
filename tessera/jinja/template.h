// Jinja templates of chats, as transformers' apply_chat_template renders them: jinja2's ImmutableSandboxedEnvironment
// with trim_blocks, lstrip_blocks, loop controls, `tojson`, `raise_exception`, `strftime_now` and the block
// `{% generation %}`. A rendered text has the same bytes as jinja2's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

struct Node;

// A template may be faulty or hostile. If rendering exceeds a limit, it ends with an InputError.
struct Limits {
  int64_t steps = 20'000'000;        // evaluated expressions, and the work of operations on long values
  int64_t bytes = int64_t{1} << 30;  // of all values that one rendering makes
  int depth = 1000;                  // of nested evaluations. A call of a macro takes about ten
};

struct Options {
  Limits limits;
  std::optional<std::tm> now;  // the local time for strftime_now(); the current time if it is missing
  // Whether the caller uses Rendered::generated. If so, a {% generation %} block whose place in the text is not known,
  // because it is within a macro or another block that captures its text, is an InputError.
  bool spans = true;
};

struct Span {
  size_t begin = 0, end = 0;  // byte offsets
  bool operator==(const Span&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<Span> generated;  // the parts of `text` that {% generation %} blocks wrote, in ascending order
};

class Template {
 public:
  // `where` names the template in errors. Throws InputError with the line for invalid UTF-8, wrong syntax, and
  // constructs, filters and tests that are not supported.
  static Template parse(std::string_view source, std::string where);

  // `variables` is an object. Throws InputError with the line if jinja2 would raise an exception, if the template calls
  // raise_exception(), and if it exceeds a limit. May be called from several threads.
  Rendered render(const nlohmann::ordered_json& variables, const Options& options = {}) const;

 private:
  std::shared_ptr<const Node> root_;
  std::string where_;
};

}  // namespace tessera::jinja
