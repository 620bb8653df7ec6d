#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/jinja/parser.h"

namespace tessera::jinja {

bool Parser::at_end_of_tuple(std::string_view end) const {
  return now().kind == Lexeme::variable_end || now().kind == Lexeme::block_end || now().is_op(")") ||
         (!end.empty() && now().is_name(end));
}

NodePtr Parser::tuple_or_expression(bool with_condition, std::string_view end) {
  if (at_end_of_tuple(end)) unexpected("an expression");
  NodePtr first = with_condition ? expression() : logic_or();
  if (!now().is_op(",")) return first;
  NodePtr out = make(Type::tuple, std::move(first));
  while (skip_op(",")) {
    if (at_end_of_tuple(end)) break;
    add(out, with_condition ? expression() : logic_or());
  }
  return out;
}

NodePtr Parser::expression() {
  const Deeper deeper(*this);
  NodePtr then = logic_or();
  while (skip_name("if")) {
    NodePtr node = make(Type::condition, logic_or());
    add(node, std::move(then));
    add(node, skip_name("else") ? expression() : nullptr);
    then = std::move(node);
  }
  return then;
}

NodePtr Parser::logic_not() {
  if (!now().is_name("not")) return compare();
  const Deeper deeper(*this);
  NodePtr node = make(Type::unary);
  node->text = take().text;
  add(node, logic_not());
  return node;
}

NodePtr Parser::compare() {
  NodePtr node = make(Type::compare, sum());
  for (;;) {
    std::string op;
    for (const std::string_view text : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (op.empty() && skip_op(text)) op = text;
    }
    if (op.empty() && skip_name("in")) op = "in";
    if (op.empty() && now().is_name("not") && peek().is_name("in")) {
      take();
      take();
      op = "notin";
    }
    if (op.empty()) break;
    node->names.push_back(op);
    add(node, sum());
  }
  return node->names.empty() ? std::move(node->kids[0]) : std::move(node);
}

NodePtr Parser::concat() {
  NodePtr first = product();
  if (!now().is_op("~")) return first;
  NodePtr node = make(Type::concat, std::move(first));
  while (skip_op("~")) add(node, product());
  return node;
}

NodePtr Parser::unary(bool with_filters) {
  const Deeper deeper(*this);
  NodePtr node;
  if (now().is_op("-") || now().is_op("+")) {
    NodePtr sign = make(Type::unary);
    sign->text = take().text;
    add(sign, unary(false));
    node = std::move(sign);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  while (with_filters) {
    if (now().is_op("|")) {
      node = filters(std::move(node), false);
    } else if (now().is_name("is")) {
      node = test(std::move(node));
    } else if (now().is_op("(")) {
      node = call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

NodePtr Parser::constant(Value value) {
  NodePtr node = make(Type::constant);
  node->value = std::move(value);
  return node;
}

NodePtr Parser::primary() {
  const Token token = now();
  switch (token.kind) {
    case Lexeme::name: {
      NodePtr node = make(Type::name);
      node->text = token.text;
      take();
      if (token.text == "true" || token.text == "True") return constant(boolean(true));
      if (token.text == "false" || token.text == "False") return constant(boolean(false));
      if (token.text == "none" || token.text == "None") return constant(none());
      if (token.text == "self" || token.text == "super" || token.text == "lipsum") {
        fail("`" + token.text + "` is not supported", "Write the template without it");
      }
      return node;
    }
    case Lexeme::text: {
      std::string content;
      while (now().kind == Lexeme::text) content += take().text;
      return constant(text(meter_, std::move(content)));
    }
    case Lexeme::integer:
      take();
      return constant(integer(token.integer));
    case Lexeme::real:
      take();
      return constant(real(token.real));
    default:
      break;
  }
  if (skip_op("(")) {
    NodePtr node = now().is_op(")") ? make(Type::tuple) : tuple_or_expression();
    expect_op(")");
    return node;
  }
  if (now().is_op("[") || now().is_op("{")) {
    const bool is_list = take().text == "[";
    const std::string_view end = is_list ? "]" : "}";
    NodePtr node = make(is_list ? Type::list : Type::dict);
    while (!now().is_op(end)) {
      if (!node->kids.empty()) expect_op(",");
      if (now().is_op(end)) break;
      add(node, expression());
      if (is_list) continue;
      expect_op(":");
      add(node, expression());
    }
    take();
    return node;
  }
  unexpected("an expression");
}

NodePtr Parser::postfix(NodePtr node) {
  for (;;) {
    if (now().is_op("(")) {
      node = call(std::move(node));
    } else if (skip_op(".")) {
      if (now().kind == Lexeme::integer) {
        node = make(Type::subscript, std::move(node));
        add(node, constant(integer(now().integer)));
        take();
      } else {
        node = make(Type::attribute, std::move(node));
        node->text = expect_name();
      }
    } else if (skip_op("[")) {
      node = bracket(std::move(node));
    } else {
      return node;
    }
  }
}

NodePtr Parser::bracket(NodePtr object) {
  NodePtr out = make(Type::slice, std::move(object));
  NodePtr first = now().is_op(":") ? nullptr : expression();
  if (now().is_op(":")) {
    add(out, std::move(first));
    for (int i = 0; i < 2; ++i) {
      const bool has = skip_op(":") && !now().is_op("]") && !now().is_op(":");
      add(out, has ? expression() : nullptr);
    }
    if (now().is_op(",")) fail("Several slices in one pair of brackets are not supported", "Use one slice");
  } else {
    out->type = Type::subscript;
    if (now().is_op(",")) {
      first = make(Type::tuple, std::move(first));
      while (skip_op(",")) add(first, expression());
    }
    add(out, std::move(first));
  }
  expect_op("]");
  return out;
}

void Parser::arguments(const NodePtr& node) {
  if (!skip_op("(")) return;
  while (!now().is_op(")")) {
    if (!node->names.empty()) {
      expect_op(",");
      if (now().is_op(")")) break;
    }
    const auto has = [&](std::string_view name) {
      return std::find(node->names.begin(), node->names.end(), name) != node->names.end();
    };
    std::string name;
    if (now().is_op("*") || now().is_op("**")) {
      name = take().text;
      if (has("**") || has(name)) fail("A call has its arguments in a wrong order");
    } else if (now().kind == Lexeme::name && peek().is_op("=")) {
      name = take().text;
      take();
      if (has("**")) fail("A call has its arguments in a wrong order");
      if (has(name)) fail("A call has two arguments of the name " + name);
    } else if (std::any_of(node->names.begin(), node->names.end(), [](const auto& other) { return !other.empty(); })) {
      fail("An argument without a name follows an argument with a name");
    }
    node->names.push_back(name);
    add(node, expression());
  }
  take();
}

NodePtr Parser::call(NodePtr function) {
  if (function->type == Type::attribute && is_unsupported_method(function->text)) {
    fail("The method " + function->text + "() is not supported", "Write the template without it");
  }
  NodePtr node = make(Type::call, std::move(function));
  arguments(node);
  return node;
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

NodePtr Parser::filters(NodePtr input, bool at_name) {
  while (at_name || skip_op("|")) {
    at_name = false;
    NodePtr node = make(Type::filter);
    node->text = dotted_name();
    node->filter = find_filter(node->text);
    if (node->filter == nullptr) {
      fail("The filter `" + printable(node->text) + "` is not supported", did_you_mean(node->text, filter_names()));
    }
    add(node, std::move(input));
    arguments(node);
    input = std::move(node);
  }
  return input;
}

NodePtr Parser::test(NodePtr input) {
  take();
  const bool is_negated = skip_name("not");
  NodePtr node = make(Type::test, std::move(input));
  node->text = dotted_name();
  node->test = find_test(node->text);
  if (node->test == nullptr) {
    fail("The test `" + printable(node->text) + "` is not supported", did_you_mean(node->text, test_names()));
  }
  const auto starts_argument = [&] {
    switch (now().kind) {
      case Lexeme::name:
        if (now().is_name("is")) fail("Two tests follow each other", "Write `and` between them");
        return !now().is_name("else") && !now().is_name("or") && !now().is_name("and");
      case Lexeme::text:
      case Lexeme::integer:
      case Lexeme::real:
        return true;
      default:
        return now().is_op("[") || now().is_op("{");
    }
  };
  if (now().is_op("(")) {
    arguments(node);
  } else if (starts_argument()) {
    node->names.emplace_back();
    add(node, postfix(primary()));
  }
  if (!is_negated) return node;
  NodePtr negated = make(Type::unary, std::move(node));
  negated->text = "not";
  return negated;
}

}  // namespace tessera::jinja
