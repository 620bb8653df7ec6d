#include "tessera/sweep/expression.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>

#include "tessera/base/error.h"

namespace tessera {
namespace {

const std::map<std::string, int64_t> kValues{{"nproc", 4}, {"batch_size", 8}, {"seed", 0}};

int64_t value_of(const std::string& text) {
  return evaluate(
      text, [](const std::string& name) { return kValues.at(name); }, "rule");
}

std::string error_of(const std::string& text) {
  try {
    return "no error, " + std::to_string(value_of(text));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Expression, Values) {
  EXPECT_EQ(value_of("500"), 500);
  EXPECT_EQ(value_of("500 * nproc"), 2000);
  EXPECT_EQ(value_of("3*nproc/2"), 6);
  EXPECT_EQ(value_of("2 + 3 * 4"), 14);
  EXPECT_EQ(value_of("(2 + 3) * 4"), 20);
  EXPECT_EQ(value_of("20 - 3 - 2"), 15);
  EXPECT_EQ(value_of("64 / 4 / 2"), 8);
  EXPECT_EQ(value_of(" - 3 + -(-nproc) "), 1);
  EXPECT_EQ(value_of("9223372036854775807"), INT64_MAX);
}

TEST(Expression, ErrorsNamePlaceAndReason) {
  EXPECT_EQ(error_of("9 / nproc").substr(0, 52), "rule: \"9 / nproc\": 9 / 4 is not a whole number. Mult");
  for (const auto& [text, reason] :
       std::map<std::string, std::string>{{"1 / seed", "divides 1 by zero"},
                                          {"1 +", "expected a whole number, a setting or ( at column 4, found the end"},
                                          {"", "at column 1, found the end"},
                                          {"1 2", "expected +, -, *, / or the end at column 3, found \"2\""},
                                          {"(1", "expected ) at column 3, found the end"},
                                          {"1.5", "expected an operator at column 2, found \".\""},
                                          {"2nproc", "expected an operator at column 2, found \"n\""},
                                          {"2 % 1", "found \"%\""},
                                          {"9223372036854775807 + 1", "does not fit into 64 bits"},
                                          {"-9223372036854775807 - 2", "does not fit into 64 bits"},
                                          {"9223372036854775807 * 2", "does not fit into 64 bits"},
                                          {"99999999999999999999", "does not fit into 64 bits"},
                                          {std::string(200, '(') + "1", "is nested deeper than 100 levels"},
                                          {std::string("1\0x", 3), "found"}}) {
    EXPECT_NE(error_of(text).find(reason), std::string::npos) << text << "\n" << error_of(text);
  }
}

// A random expression as a tree. text_of() returns the text of the expression. tree_value() computes the value in 128
// bits, without evaluate(). It returns nullopt if a divisor is zero or a quotient is not a whole number.
struct Tree {
  char sign = 'n';  // 'n': number; 'v': nproc; 'm': unary minus; or +, -, *, /
  int64_t number = 0;
  std::unique_ptr<Tree> left{}, right{};
};

std::unique_ptr<Tree> random_tree(std::mt19937& source, int depth) {
  auto tree = std::make_unique<Tree>();
  const auto kind = source() % (depth == 0 ? 2 : 8);
  if (kind < 2) {
    tree->sign = kind == 0 ? 'n' : 'v';
    tree->number = kind == 0 ? source() % 13 : kValues.at("nproc");
    return tree;
  }
  tree->sign = "+-*/m*"[kind - 2];
  tree->left = random_tree(source, depth - 1);
  if (tree->sign != 'm') tree->right = random_tree(source, depth - 1);
  return tree;
}

// The precedence of the tree's operator: 0 for + and −, 1 for * and /, 2 for everything else.
int rank_of(const Tree& tree) {
  return tree.sign == '+' || tree.sign == '-' ? 0 : tree.sign == '*' || tree.sign == '/' ? 1 : 2;
}

// Returns the text of a tree, with spaces at random, and with parentheses only where the precedence needs them.
std::string text_of(const Tree& tree, std::mt19937& source) {
  const std::string blank = source() % 2 ? " " : "";
  const auto inner = [&](const Tree& part, int least) {
    const std::string text = text_of(part, source);
    return rank_of(part) < least ? "(" + blank + text + ")" : text;
  };
  if (tree.sign == 'v') return "nproc";
  if (tree.sign == 'n') return std::to_string(tree.number);
  if (tree.sign == 'm') return "-" + inner(*tree.left, 2);
  const int rank = rank_of(tree);
  return inner(*tree.left, rank) + blank + tree.sign + blank + inner(*tree.right, rank + 1);
}

std::optional<__int128> tree_value(const Tree& tree) {
  if (!tree.left) return tree.number;
  const auto left = tree_value(*tree.left);
  if (!left) return {};
  if (tree.sign == 'm') return -*left;
  const auto right = tree_value(*tree.right);
  if (!right) return {};
  if (tree.sign == '+') return *left + *right;
  if (tree.sign == '-') return *left - *right;
  if (tree.sign == '*') return *left * *right;
  if (*right == 0 || *left % *right != 0) return {};
  return *left / *right;
}

TEST(Expression, RandomExpressionsHaveTheValueOfTheirTree) {
  std::mt19937 source(7);
  int with_value = 0, without = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto tree = random_tree(source, 4);
    const std::string text = text_of(*tree, source);
    if (const auto expected = tree_value(*tree)) {
      EXPECT_EQ(value_of(text), static_cast<int64_t>(*expected)) << text;
      ++with_value;
    } else {
      EXPECT_THROW(value_of(text), UsageError) << text;
      ++without;
    }
  }
  EXPECT_GT(with_value, 500);
  EXPECT_GT(without, 100);
}

}  // namespace
}  // namespace tessera
