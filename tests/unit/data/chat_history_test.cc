#include "tessera/data/chat_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Kind = ChatLine::Kind;

// "system: s | user: a | assistant: b"
std::string shown(const ChatHistory& history) {
  std::string text;
  for (const auto& message : history.conversation().messages) {
    text += text.empty() ? "" : " | ";
    text += message["role"].get<std::string>() + ": " + message["content"].get<std::string>();
  }
  return text;
}

TEST(ChatLine, CommandsAndMessages) {
  const auto is = [](const char* line, Kind kind, const char* text = "") {
    const ChatLine read = chat_line_of(line);
    EXPECT_EQ(read.kind, kind) << line;
    EXPECT_EQ(read.text, text) << line;
  };
  is("", Kind::blank);
  is(" \t\r", Kind::blank);
  is(" Who?\r", Kind::message, "Who?");
  is(" /etc/hosts?", Kind::message, "/etc/hosts?");
  is("/reset ", Kind::reset);
  is("/undo", Kind::undo);
  is("/help", Kind::help);
  is("/exit", Kind::exit);
  is("/system Be  brief. ", Kind::system, "Be  brief.");
  is("/system", Kind::system);
  is("/systems a", Kind::unknown, "/systems");
  is("/reset all", Kind::unknown, "/reset");
  is("/", Kind::unknown, "/");
}

TEST(ChatHistory, TurnsAndSystemMessage) {
  ChatHistory history("");
  EXPECT_EQ(shown(history), "");
  EXPECT_FALSE(history.undo());
  history.add_question("a");
  history.add_answer("b");
  history.set_system("s");
  EXPECT_EQ(shown(history), "system: s | user: a | assistant: b");
  history.add_question("c");
  EXPECT_TRUE(history.undo());
  EXPECT_EQ(shown(history), "system: s | user: a | assistant: b");
  EXPECT_TRUE(history.undo());
  EXPECT_FALSE(history.undo());
  EXPECT_EQ(shown(history), "system: s");
  history.add_question("a");
  history.set_system("t");
  history.reset();
  EXPECT_EQ(shown(history), "system: t");
  history.set_system(" ");
  history.reset();
  EXPECT_EQ(shown(history), "");
}

TEST(ChatHistory, LinesOfJson) {
  ChatHistory history("s");
  history.add_json(R"({"content": "a"})", "in", 1);
  history.add_answer("b");
  history.add_json(R"({"role": "tool", "content": "c"})", "in", 2);
  EXPECT_EQ(shown(history), "system: s | user: a | assistant: b | tool: c");
  history.add_json(R"({"messages": [{"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}],
                       "tools": [{"name": "f"}]})",
                   "in", 3);
  EXPECT_EQ(shown(history), "user: d");
  EXPECT_EQ(history.conversation().tools.size(), 1u);
}

TEST(ChatHistory, RefusedLinesChangeNothing) {
  ChatHistory history("s");
  const auto refused = [&](const char* line, const char* message) {
    try {
      history.add_json(line, "in", 7);
      ADD_FAILURE() << line;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(message));
    }
    EXPECT_EQ(shown(history), "system: s");
  };
  refused("{", "in:7:2: not valid JSON");
  refused("[]", "in:7: is an array, not an object. Write each line as {\"content\": \"...\"}");
  refused("{}", "in:7: has neither \"content\" nor \"messages\"");
  refused(R"({"content": 5})", "in:7: messages[0].content: must be a text");
  refused(R"({"messages": []})", "in:7: messages: the list of messages is empty");
  refused(R"({"role": "assistant", "content": "a"})", "in:7: has no message to answer");
  refused(R"({"role": "system", "content": "a"})", "in:7: has no message to answer");
  refused(R"({"messages": [{"role": "usr", "content": "a"}]})", "Did you mean \"user\"?");
}

}  // namespace
}  // namespace tessera
