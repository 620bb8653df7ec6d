// The messages of a chat, and what a line of its input means.
#pragma once

#include <string>
#include <string_view>

#include "tessera/data/examples.h"

namespace tessera {

// A line that a user writes. A line that begins with "/" is a command, and all other lines are messages.
struct ChatLine {
  enum class Kind { blank, message, reset, system, undo, help, exit, unknown };
  Kind kind;
  std::string text{};  // of a message or a system message; of an unknown command, its first word
};
ChatLine chat_line_of(std::string_view line);

// The commands of chat_line_of(), one per line, for users.
extern const char* const kChatCommands;

// The messages so far, in the form that chat templates expect.
class ChatHistory {
 public:
  explicit ChatHistory(const std::string& system) { set_system(system); }

  const Conversation& conversation() const { return conversation_; }

  void add_question(const std::string& text) { add("user", text); }
  void add_answer(const std::string& text) { add("assistant", text); }
  // Adds the message of a JSON object, or replaces everything:
  //   {"content"}           a message of the user
  //   {"role", "content"}   a message of another role that the model answers, such as a tool
  //   {"messages"}          the complete conversation, as in rows of data sets, also with "tools". Messages of the
  //                         assistant at the end are left out: the model answers the message before them
  // `line`: the number of the line in `where`. Throws InputError; the history is then unchanged.
  void add_json(std::string_view text, const std::string& where, int64_t line);

  void set_system(const std::string& text);  // replaces the system message; empty: removes it
  void reset();                              // forgets everything except the system message
  bool undo();  // forgets the last message of the user and all messages after it; false if there is none

 private:
  bool has_system() const;
  void add(const char* role, const std::string& text);

  Conversation conversation_{.messages = nlohmann::ordered_json::array(), .tools = {}, .variables = {}};
};

}  // namespace tessera
