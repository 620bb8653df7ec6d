#include <algorithm>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/jinja/builtins.h"
#include "tessera/jinja/lexer.h"
#include "tessera/jinja/node.h"

namespace tessera::jinja {
namespace {

constexpr int kDeepestParse = 100;  // nested statements and brackets
constexpr int kDeepestTree = 300;   // levels of nodes, for example operands of a long sum

class Parser {
 public:
  Parser(std::string_view source, const std::string& where) : where_(where), tokens_(tokens_of(source, where)) {}

  NodePtr run() {
    NodePtr root = body({});
    root->is_function = true;
    return root;
  }

 private:
  using Names = std::vector<std::string_view>;

  const Token& now() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_op(std::string_view op) {
    if (!now().is_op(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!now().is_name(name)) return false;
    take();
    return true;
  }
  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") {
    refuse(where_, now().line, what, remedy);
  }
  [[noreturn]] void unexpected(std::string_view wanted) {
    fail("Unexpected " + printable(now().text) + ", expected " + std::string(wanted));
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) unexpected(op);
  }
  void expect_end_of_block() {
    if (now().kind != Lexeme::block_end) unexpected("%}");
    take();
  }
  std::string expect_name() {
    if (now().kind != Lexeme::name) unexpected("a name");
    return take().text;
  }

  NodePtr make(Type type) { return std::make_unique<Node>(type, now().line); }
  // Adds a kid, which may be nullptr.
  void add(const NodePtr& node, NodePtr kid) {
    if (kid) node->depth = std::max(node->depth, kid->depth + 1);
    if (node->depth > kDeepestTree) fail("The template has too many nested or chained parts", "Divide it with `set`");
    node->kids.push_back(std::move(kid));
  }
  NodePtr make(Type type, NodePtr first) {
    NodePtr node = std::make_unique<Node>(type, first ? first->line : now().line);
    add(node, std::move(first));
    return node;
  }
  // Counts nested calls of the parser while it exists.
  struct Deeper {
    explicit Deeper(Parser& parser) : depth(parser.depth_) {
      if (++depth > kDeepestParse) parser.fail("The template is nested too deeply", "Divide it with `set`");
    }
    ~Deeper() { --depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    int& depth;
  };

  // Statements until a block whose name is one of `ends`, or until the end of the template if `ends` is empty. The name
  // of the end is the next token.
  NodePtr body(const Names& ends) {
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
  // A body with its first `%}`; takes its end.
  NodePtr body_until(std::string_view end) {
    skip_op(":");
    expect_end_of_block();
    NodePtr out = body({end});
    take();
    return out;
  }
  NodePtr body_before(const Names& ends) {
    skip_op(":");
    expect_end_of_block();
    return body(ends);
  }

  NodePtr statement() {
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
         did_you_mean(name,
                      {"if",         "elif",          "else",  "endif",    "for",    "endfor",    "set",  "endset",
                       "macro",      "endmacro",      "call",  "endcall",  "filter", "endfilter", "with", "endwith",
                       "generation", "endgeneration", "break", "continue", "raw",    "endraw"}));
  }

  NodePtr branch() {
    NodePtr node = make(Type::branch);
    do {
      take();  // if, elif
      add(node, tuple_or_expression(false));
      add(node, body_before({"elif", "else", "endif"}));
    } while (now().is_name("elif"));
    if (take().text == "else") add(node, body_until("endif"));
    return node;
  }

  NodePtr loop() {
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

  NodePtr set() {
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

  // The body of a function cannot break a loop around it.
  NodePtr function_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    NodePtr out = body_until(end);
    loops_ = loops;
    return out;
  }
  NodePtr macro() {
    NodePtr node = make(Type::macro);
    take();
    node->text = expect_name();
    add(node, signature());
    add(node, function_body("endmacro"));
    node->is_function = true;
    node->scopes.resize(1);
    return node;
  }
  NodePtr call_block() {
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
  NodePtr signature() {
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

  // What `set`, `for` and `with` assign to.
  NodePtr target(bool with_namespace, std::string_view end = "") {
    NodePtr first = simple_target(with_namespace);
    if (!now().is_op(",")) return first;
    NodePtr out = make(Type::tuple, std::move(first));
    while (skip_op(",")) {
      if (now().is_op("=") || now().is_op(")") || now().kind == Lexeme::block_end ||
          (!end.empty() && now().is_name(end)))
        break;
      add(out, simple_target(with_namespace));
    }
    return out;
  }
  NodePtr simple_target(bool with_namespace) {
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
  static NodePtr copy_of_target(const Node& node) {
    NodePtr out = std::make_unique<Node>(node.type, node.line);
    out->text = node.text;
    for (const NodePtr& kid : node.kids) out->kids.push_back(copy_of_target(*kid));
    return out;
  }

  bool at_end_of_tuple(std::string_view end) const {
    return now().kind == Lexeme::variable_end || now().kind == Lexeme::block_end || now().is_op(")") ||
           (!end.empty() && now().is_name(end));
  }
  NodePtr tuple_or_expression(bool with_condition = true, std::string_view end = "") {
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

  NodePtr expression() {
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
  template <typename Next>
  NodePtr chain(Type type, std::initializer_list<std::string_view> ops, bool is_word, Next next) {
    NodePtr left = (this->*next)();
    for (;;) {
      const auto op = std::find_if(ops.begin(), ops.end(),
                                   [&](auto text) { return is_word ? now().is_name(text) : now().is_op(text); });
      if (op == ops.end()) return left;
      NodePtr node = make(type, std::move(left));
      node->text = *op;
      take();
      add(node, (this->*next)());
      left = std::move(node);
    }
  }
  NodePtr logic_or() { return chain(Type::logic_or, {"or"}, true, &Parser::logic_and); }
  NodePtr logic_and() { return chain(Type::logic_and, {"and"}, true, &Parser::logic_not); }
  NodePtr logic_not() {
    if (!now().is_name("not")) return compare();
    const Deeper deeper(*this);
    NodePtr node = make(Type::unary);
    node->text = take().text;
    add(node, logic_not());
    return node;
  }
  NodePtr compare() {
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
  NodePtr sum() { return chain(Type::binary, {"+", "-"}, false, &Parser::concat); }
  NodePtr concat() {
    NodePtr first = product();
    if (!now().is_op("~")) return first;
    NodePtr node = make(Type::concat, std::move(first));
    while (skip_op("~")) add(node, product());
    return node;
  }
  NodePtr product() { return chain(Type::binary, {"*", "//", "/", "%"}, false, &Parser::power); }
  NodePtr power() { return chain(Type::binary, {"**"}, false, &Parser::filtered); }
  NodePtr filtered() { return unary(true); }
  NodePtr unary(bool with_filters) {
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

  NodePtr constant(Value value) {
    NodePtr node = make(Type::constant);
    node->value = std::move(value);
    return node;
  }
  NodePtr primary() {
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

  NodePtr postfix(NodePtr node) {
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
  NodePtr bracket(NodePtr object) {
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

  // The arguments in parentheses, if there are any.
  void arguments(const NodePtr& node) {
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
      } else if (std::any_of(node->names.begin(), node->names.end(),
                             [](const auto& other) { return !other.empty(); })) {
        fail("An argument without a name follows an argument with a name");
      }
      node->names.push_back(name);
      add(node, expression());
    }
    take();
  }
  NodePtr call(NodePtr function) {
    if (function->type == Type::attribute && is_unsupported_method(function->text)) {
      fail("The method " + function->text + "() is not supported", "Write the template without it");
    }
    NodePtr node = make(Type::call, std::move(function));
    arguments(node);
    return node;
  }
  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }
  NodePtr filters(NodePtr input, bool at_name) {
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
  NodePtr test(NodePtr input) {
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

  const std::string& where_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around the current statement, within its macro
  Meter meter_{Limits{.steps = INT64_MAX}};
};

}  // namespace

void refuse(const std::string& where, int line, const std::string& what, const std::string& remedy) {
  throw InputError(where + ":" + std::to_string(line), what, remedy);
}

NodePtr parse_nodes(std::string_view source, const std::string& where) {
  return Parser(source, where).run();
}

}  // namespace tessera::jinja
