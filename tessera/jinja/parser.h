// Makes the syntax tree of a template. parser.cc reads statements, expression_parser.cc reads expressions.
#pragma once

#include <algorithm>

#include "tessera/jinja/builtins.h"
#include "tessera/jinja/lexer.h"
#include "tessera/jinja/node.h"

namespace tessera::jinja {

inline constexpr int kDeepestParse = 100;  // nested statements and brackets
inline constexpr int kDeepestTree = 300;   // levels of nodes, for example operands of a long sum

class Parser {
 public:
  Parser(std::string_view source, const std::string& where) : where_(where), tokens_(tokens_of(source, where)) {}

  NodePtr run();

 private:
  using Names = std::vector<std::string_view>;

  const Token& now() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "");
  [[noreturn]] void unexpected(std::string_view wanted);
  void expect_op(std::string_view op);
  void expect_end_of_block();
  std::string expect_name();

  NodePtr make(Type type) { return std::make_unique<Node>(type, now().line); }
  // Adds a kid, which may be nullptr.
  void add(const NodePtr& node, NodePtr kid);
  NodePtr make(Type type, NodePtr first);
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
  NodePtr body(const Names& ends);
  // A body with its first `%}`; takes its end.
  NodePtr body_until(std::string_view end);
  NodePtr body_before(const Names& ends);

  NodePtr statement();

  NodePtr branch();

  NodePtr loop();

  NodePtr set();

  // The body of a function cannot break a loop around it.
  NodePtr function_body(std::string_view end);
  NodePtr macro();
  NodePtr call_block();
  NodePtr signature();

  // What `set`, `for` and `with` assign to.
  NodePtr target(bool with_namespace, std::string_view end = "");
  NodePtr simple_target(bool with_namespace);
  static NodePtr copy_of_target(const Node& node);

  bool at_end_of_tuple(std::string_view end) const;
  NodePtr tuple_or_expression(bool with_condition = true, std::string_view end = "");

  NodePtr expression();
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
  NodePtr logic_not();
  NodePtr compare();
  NodePtr sum() { return chain(Type::binary, {"+", "-"}, false, &Parser::concat); }
  NodePtr concat();
  NodePtr product() { return chain(Type::binary, {"*", "//", "/", "%"}, false, &Parser::power); }
  NodePtr power() { return chain(Type::binary, {"**"}, false, &Parser::filtered); }
  NodePtr filtered() { return unary(true); }
  NodePtr unary(bool with_filters);

  NodePtr constant(Value value);
  NodePtr primary();

  NodePtr postfix(NodePtr node);
  NodePtr bracket(NodePtr object);

  // The arguments in parentheses, if there are any.
  void arguments(const NodePtr& node);
  NodePtr call(NodePtr function);
  std::string dotted_name();
  NodePtr filters(NodePtr input, bool at_name);
  NodePtr test(NodePtr input);

  const std::string& where_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around the current statement, within its macro
  Meter meter_{Limits{.steps = INT64_MAX}};
};

}  // namespace tessera::jinja
