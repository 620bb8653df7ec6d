// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/jinja/value.h"

namespace tessera::jinja {

enum class Type : uint8_t {
  // Statements. Their kids, where `?` means that the kid may be nullptr:
  body,           // statements
  data,           // none: writes `value`
  output,         // expression
  branch,         // test, body, test, body, …, and perhaps the body of `else`
  loop,           // target, iterable, ?test, body, ?else, ?target of the test; scopes: body, test, else
  set,            // target, expression
  set_block,      // target, ?filter, body; scopes: body
  macro,          // signature, body; scopes: body; `text`: the name
  call_block,     // call, signature, body; scopes: body
  filter_block,   // filter, body; scopes: body
  with,           // target, expression, …, body; scopes: body
  generation,     // body; scopes: body
  break_loop,     // none
  continue_loop,  // none
  // The parameters of a macro: names, and then the default values of the last ones. `names` has an entry for each
  // default value.
  signature,
  // Expressions:
  constant,   // none: `value`
  name,       // none: `text`, `slot`
  attribute,  // object; `text`: the name. As a target: the attribute of a namespace, a name
  subscript,  // object, key
  slice,      // object, ?start, ?stop, ?step
  call,       // function, arguments. `names` has an entry for each argument: "", its name, "*" or "**"
  filter,     // ?input, arguments. `names` as above; `text`: the name
  test,       // input, arguments
  tuple,
  list,
  dict,    // key, value, …
  unary,   // `text`: not, -, +
  binary,  // `text`: + - * / // % **
  logic_and,
  logic_or,
  compare,    // operands; `names`: the operators between them, such as "notin"
  concat,     // operands of ~
  condition,  // test, then, ?else
};

// Where a variable is: in the `slot` of the frame `hops` functions outside of the current one.
struct Place {
  int hops = 0, slot = 0;
};

// How a scope gives a variable its value when it begins.
struct Entry {
  enum class From { context, outer, nowhere } from;
  int slot;
  Place outer;
  std::string name;  // in the context
};

struct Filter;
struct Test;

struct Node {
  Node(Type type_, int line_) : type(type_), line(line_) {}
  Type type;
  int line;
  int depth = 1;  // levels of nodes, including this one
  std::string text;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Node>> kids;
  Value value;
  Place place;
  const Filter* filter = nullptr;
  const Test* test = nullptr;
  // Of scopes, see above: what they set at the beginning.
  std::vector<std::vector<Entry>> scopes;
  // Of functions, i.e. the root, macros, call blocks and recursive loops: the number of slots of a frame.
  bool is_function = false;
  int slots = 0;
  // Of macros and call blocks: the slots of the parameters, and of `caller`, `kwargs` and `varargs`, or -1. Of loops:
  // the slot of `loop`.
  std::vector<int> parameters;
  int caller = -1, kwargs = -1, varargs = -1, loop = -1;
};
using NodePtr = std::unique_ptr<Node>;

// Parses a template. Throws InputError.
NodePtr parse_nodes(std::string_view source, const std::string& where);
// Gives each name its place.
void resolve_names(Node& root);
[[noreturn]] void refuse(const std::string& where, int line, const std::string& what, const std::string& remedy = "");

}  // namespace tessera::jinja
