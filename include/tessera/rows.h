/// @file
/// Data that a program gives, instead of files.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/export.h>

TESSERA_BEGIN_NAMESPACE

/// A message of a conversation.
struct Message {
  std::string role;  ///< "system", "user", "assistant", …
  std::string content;
};

/// One row of a data set. The option "objective" and the chat template decide which tokens carry loss, as for files.
/// Only a row of token ids decides it itself.
class Row {
 public:
  struct Text {
    std::string text;
  };
  struct Completion {
    std::string prompt, completion;
  };
  struct Conversation {
    std::vector<Message> messages;
  };
  struct Tokens {
    std::vector<std::int32_t> ids;
    std::vector<bool> has_loss;
  };
  struct Json {
    std::string text;
  };
  using Variant = std::variant<Text, Completion, Conversation, Tokens, Json>;

  /// A plain text, for the objective causal_lm.
  static Row text(std::string text) { return Row(Text{std::move(text)}); }
  /// A prompt, used unchanged, and the text to learn.
  static Row completion(std::string prompt, std::string completion) {
    return Row(Completion{std::move(prompt), std::move(completion)});
  }
  /// A conversation. The chat template of the model makes it a text.
  static Row messages(std::vector<Message> messages) { return Row(Conversation{std::move(messages)}); }
  /// Token ids, used unchanged: no token is added or cut off. has_loss[i] is whether the model learns to produce
  /// ids[i]. The first token never has a loss. Without `has_loss`, all other tokens have one.
  static Row tokens(std::vector<std::int32_t> ids, std::vector<bool> has_loss = {}) {
    if (has_loss.empty()) has_loss.assign(ids.size(), true);
    return Row(Tokens{std::move(ids), std::move(has_loss)});
  }
  /// A JSON object, as on a line of a JSONL file: {"question": …, "context": …, "answers": …}, {"messages": …}.
  static Row json(std::string text) { return Row(Json{std::move(text)}); }

  const Variant& content() const { return content_; }

 private:
  explicit Row(Variant content) : content_(std::move(content)) {}

  Variant content_;
};

/// The rows of a data set: a list, or a function that returns one row after the other and then nothing. The function
/// runs on the thread of the call that takes the rows. All rows are read before the work begins. A list can be used
/// again.
class Rows {
 public:
  Rows() = default;
  /// A template, so that options in braces are no rows.
  template <std::same_as<std::vector<Row>> List>
  Rows(List rows) : next_(from(std::move(rows))) {}
  Rows(std::initializer_list<Row> rows) : Rows(std::vector<Row>(rows)) {}
  Rows(std::function<std::optional<Row>()> next) : next_(std::move(next)) {}

  /// False: no rows were given.
  explicit operator bool() const { return static_cast<bool>(next_); }
  std::optional<Row> next() const { return next_(); }

 private:
  static std::function<std::optional<Row>()> from(std::vector<Row> rows) {
    return [rows = std::move(rows), at = std::size_t{0}]() mutable {
      return at < rows.size() ? std::optional<Row>(rows[at++]) : std::nullopt;
    };
  }

  std::function<std::optional<Row>()> next_;
};

TESSERA_END_NAMESPACE
