#include "tessera/jinja/parser.h"

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"

namespace tessera::jinja {

NodePtr Parser::run() {
  NodePtr root = body({});
  root->is_function = true;
  return root;
}

bool Parser::skip_op(std::string_view op) {
  if (!now().is_op(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

void Parser::fail(const std::string& what, const std::string& remedy) {
  refuse(where_, now().line, what, remedy);
}

void Parser::unexpected(std::string_view wanted) {
  fail("Unexpected " + printable(now().text) + ", expected " + std::string(wanted));
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(op);
}

void Parser::expect_end_of_block() {
  if (now().kind != Lexeme::block_end) unexpected("%}");
  take();
}

std::string Parser::expect_name() {
  if (now().kind != Lexeme::name) unexpected("a name");
  return take().text;
}

void Parser::add(const NodePtr& node, NodePtr kid) {
  if (kid) node->depth = std::max(node->depth, kid->depth + 1);
  if (node->depth > kDeepestTree) fail("The template has too many nested or chained parts", "Divide it with `set`");
  node->kids.push_back(std::move(kid));
}

NodePtr Parser::make(Type type, NodePtr first) {
  NodePtr node = std::make_unique<Node>(type, first ? first->line : now().line);
  add(node, std::move(first));
  return node;
}

NodePtr Parser::body(const Names& ends) {
  const Deeper deeper(*this);
  NodePtr out = make(Type::body);
  const int begin = now().line;
  for (;;) {
    const Token token = now();
    if (token.kind == Lexeme::end) {
      if (!ends.empty()) refuse(where_, begin, "A block has no end", "Write {% " + std::string(ends.back()) + " %}");
      return out;
    }
    take();
    if (token.kind == Lexeme::data) {
      NodePtr node = std::make_unique<Node>(Type::data, token.line);
      node->text = token.text;
      add(out, std::move(node));
    } else if (token.kind == Lexeme::variable_begin) {
      add(out, make(Type::output, tuple_or_expression()));
      if (now().kind != Lexeme::variable_end) unexpected("}}");
      take();
    } else {
      if (now().kind != Lexeme::name) unexpected("the name of a block");
      if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
      add(out, statement());
      expect_end_of_block();
    }
  }
}

NodePtr Parser::body_until(std::string_view end) {
  skip_op(":");
  expect_end_of_block();
  NodePtr out = body({end});
  take();
  return out;
}

NodePtr Parser::body_before(const Names& ends) {
  skip_op(":");
  expect_end_of_block();
  return body(ends);
}

NodePtr Parser::statement() {
  const std::string name = now().text;
  if (name == "if") return branch();
  if (name == "for") return loop();
  if (name == "set") return set();
  if (name == "macro") return macro();
  if (name == "call") return call_block();
  if (name == "print") fail("`print` is not supported", "Write {{ … }}");
  NodePtr node = make(Type::with);
  if (name == "filter") {
    take();
    node->type = Type::filter_block;
    add(node, filters(nullptr, true));
    add(node, body_until("endfilter"));
    node->scopes.resize(1);
    return node;
  }
  if (name == "with") {
    take();
    while (now().kind != Lexeme::block_end && !now().is_op(":")) {
      if (!node->kids.empty()) expect_op(",");
      add(node, target(false));
      expect_op("=");
      add(node, expression());
    }
    add(node, body_until("endwith"));
    node->scopes.resize(1);
    return node;
  }
  if (name == "generation") {
    take();
    node->type = Type::generation;
    add(node, function_body("endgeneration"));
    node->scopes.resize(1);
    return node;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) fail("`" + name + "` is outside of a loop");
    take();
    node->type = name == "break" ? Type::break_loop : Type::continue_loop;
    return node;
  }
  for (const std::string_view other :
       {"include", "import", "from", "extends", "block", "autoescape", "trans", "do", "debug"}) {
    if (name == other) fail("`" + name + "` is not supported", "Write the template in one file, without this block");
  }
  fail("Unknown block `" + printable(name) + "`",
       did_you_mean(name, {"if",         "elif",          "else",  "endif",    "for",    "endfor",    "set",  "endset",
                           "macro",      "endmacro",      "call",  "endcall",  "filter", "endfilter", "with", "endwith",
                           "generation", "endgeneration", "break", "continue", "raw",    "endraw"}));
}

NodePtr Parser::branch() {
  NodePtr node = make(Type::branch);
  do {
    take();  // if, elif
    add(node, tuple_or_expression(false));
    add(node, body_before({"elif", "else", "endif"}));
  } while (now().is_name("elif"));
  if (take().text == "else") add(node, body_until("endif"));
  return node;
}

NodePtr Parser::loop() {
  NodePtr node = make(Type::loop);
  take();
  ++loops_;
  NodePtr to = target(false, "in");
  --loops_;
  if (!skip_name("in")) unexpected("in");
  NodePtr iterable = tuple_or_expression(false, "recursive");
  NodePtr test = skip_name("if") ? expression() : nullptr;
  node->is_function = skip_name("recursive");
  NodePtr target_of_test = test ? copy_of_target(*to) : nullptr;
  for (NodePtr* kid : {&to, &iterable, &test}) add(node, std::move(*kid));
  ++loops_;
  add(node, body_before({"endfor", "else"}));
  --loops_;
  add(node, take().text == "else" ? body_until("endfor") : nullptr);
  add(node, std::move(target_of_test));
  node->scopes.resize(3);
  return node;
}

NodePtr Parser::set() {
  NodePtr node = make(Type::set);
  take();
  add(node, target(true));
  if (skip_op("=")) {
    add(node, tuple_or_expression());
    return node;
  }
  node->type = Type::set_block;
  add(node, filters(nullptr, false));
  add(node, body_until("endset"));
  node->scopes.resize(1);
  return node;
}

NodePtr Parser::function_body(std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  NodePtr out = body_until(end);
  loops_ = loops;
  return out;
}

NodePtr Parser::macro() {
  NodePtr node = make(Type::macro);
  take();
  node->text = expect_name();
  add(node, signature());
  add(node, function_body("endmacro"));
  node->is_function = true;
  node->scopes.resize(1);
  return node;
}

NodePtr Parser::call_block() {
  NodePtr node = make(Type::call_block);
  take();
  NodePtr parameters = now().is_op("(") ? signature() : make(Type::signature);
  NodePtr call = expression();
  if (call->type != Type::call) refuse(where_, call->line, "A call block needs a call", "Write {% call name() %}");
  add(node, std::move(call));
  add(node, std::move(parameters));
  add(node, function_body("endcall"));
  node->is_function = true;
  node->scopes.resize(1);
  return node;
}

NodePtr Parser::signature() {
  NodePtr node = make(Type::signature);
  std::vector<NodePtr> defaults;
  expect_op("(");
  while (!now().is_op(")")) {
    if (!node->kids.empty()) expect_op(",");
    NodePtr name = make(Type::name);
    name->text = expect_name();
    for (const NodePtr& other : node->kids) {
      if (other->text == name->text) fail("Two parameters have the name " + name->text);
    }
    add(node, std::move(name));
    if (skip_op("=")) {
      defaults.push_back(expression());
    } else if (!defaults.empty()) {
      fail("A parameter without a default value follows one with a default value");
    }
  }
  take();
  for (NodePtr& value : defaults) add(node, std::move(value));
  node->names.resize(defaults.size());
  return node;
}

NodePtr Parser::target(bool with_namespace, std::string_view end) {
  NodePtr first = simple_target(with_namespace);
  if (!now().is_op(",")) return first;
  NodePtr out = make(Type::tuple, std::move(first));
  while (skip_op(",")) {
    if (now().is_op("=") || now().is_op(")") || now().kind == Lexeme::block_end || (!end.empty() && now().is_name(end)))
      break;
    add(out, simple_target(with_namespace));
  }
  return out;
}

NodePtr Parser::simple_target(bool with_namespace) {
  const Deeper deeper(*this);
  NodePtr node = make(Type::name);
  if (skip_op("(")) {
    NodePtr inner = target(false, "");
    expect_op(")");
    return inner;
  }
  node->text = expect_name();
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (node->text == constant) fail("Cannot assign to " + node->text);
  }
  if (with_namespace && skip_op(".")) {
    NodePtr space = std::move(node);
    node = make(Type::attribute, std::move(space));
    node->text = expect_name();
  } else if (node->text == "loop" && loops_ > 0) {
    fail("Cannot assign to `loop` within a loop", "Use another name");
  }
  return node;
}

NodePtr Parser::copy_of_target(const Node& node) {
  NodePtr out = std::make_unique<Node>(node.type, node.line);
  out->text = node.text;
  for (const NodePtr& kid : node.kids) out->kids.push_back(copy_of_target(*kid));
  return out;
}

void refuse(const std::string& where, int line, const std::string& what, const std::string& remedy) {
  throw InputError(where + ":" + std::to_string(line), what, remedy);
}

NodePtr parse_nodes(std::string_view source, const std::string& where) {
  return Parser(source, where).run();
}

}  // namespace tessera::jinja
