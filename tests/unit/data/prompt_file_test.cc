#include "tessera/data/prompt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/chat_template.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

TEST(PromptFile, ReadsWhatWasWritten) {
  RandomStream random(3, 5);
  for (int turn = 0; turn < 200; ++turn) {
    std::string content = turn % 5 == 0 ? "\xEF\xBB\xBF" : "";
    std::vector<Json> rows;
    int64_t line = 0;
    std::vector<int64_t> lines;
    for (uint64_t left = 1 + random.next_below(6); left > 0; --left) {
      for (uint64_t blank = random.next_below(3); blank > 0; --blank, ++line) content += blank % 2 ? "\n" : " \t\r\n";
      const auto text = [&] {
        std::string letters;
        const char* parts[] = {"a", " ", "\n", "\"", "é", "中", "😀", "\\", "{", ","};
        for (uint64_t n = random.next_below(8); n > 0; --n) letters += parts[random.next_below(10)];
        return letters;
      };
      Json row = random.next_below(2) ? Json{{"prompt", text()}} : Json{{"question", text()}, {"context", text()}};
      if (random.next_below(2)) row["answers"] = {{"text", {"x"}}};
      const Json ids[] = {nullptr, "id", 7, -5};
      if (random.next_below(2)) row["id"] = ids[random.next_below(4)];
      rows.push_back(row);
      lines.push_back(++line);
      content += row.dump() + (left > 1 || random.next_below(2) ? "\n" : "");
    }
    const std::vector<PromptRow> read = prompts_from_text(content, "file");
    ASSERT_EQ(read.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const Example& example = read[i].example;
      EXPECT_EQ(example.place, "file:" + std::to_string(lines[i]));
      EXPECT_EQ(example.text() != nullptr, rows[i].contains("prompt"));
      if (example.text()) {
        EXPECT_EQ(example.text()->text, rows[i]["prompt"]);
      } else {
        EXPECT_EQ(example.question()->question, rows[i]["question"]);
        EXPECT_EQ(example.question()->context, rows[i]["context"]);
      }
      const Json id = rows[i].value("id", Json());
      EXPECT_EQ(read[i].id_json, id.is_null() ? "" : id.dump());
    }
  }
}

TEST(PromptFile, ReadsConversations) {
  const std::vector<PromptRow> rows = prompts_from_text(
      R"({"messages": [{"role": "user", "content": "a"}, {"from": "gpt", "value": "b"}], "id": 4})", "p.jsonl");
  ASSERT_TRUE(rows[0].example.conversation());
  EXPECT_EQ(rows[0].example.conversation()->messages[1]["role"], "assistant");
  EXPECT_EQ(rows[0].id_json, "4");
}

TEST(PromptFile, ReadsTheFormatsOfTrainingData) {
  const std::vector<PromptRow> rows = prompts_from_text(
      R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
{"instruction": "a", "input": "", "output": "b"}
{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}
{"prompt": "p", "messages": [{"role": "user", "content": "a"}]})",
      "p.jsonl");
  ASSERT_EQ(rows.size(), 4u);
  for (const PromptRow& row : rows) {
    ASSERT_TRUE(row.example.conversation()) << row.example.place;
    EXPECT_EQ(row.example.conversation()->messages[0]["content"], "a");
    EXPECT_EQ(num_messages_before_answer(*row.example.conversation()), 1u);
  }
  RowOptions options{.kind = RowKind::messages};
  options.fields.rename("messages", "dialog");
  options.fields.rename("role", "speaker");
  options.fields.rename("id", "key");
  const auto renamed = prompts_from_text(
      R"({"dialog": [{"speaker": "user", "content": "a"}], "prompt": "p", "key": 5, "id": []})", "p.jsonl", options);
  EXPECT_EQ(renamed[0].example.conversation()->messages[0]["role"], "user");
  EXPECT_EQ(renamed[0].id_json, "5");
}

TEST(PromptFile, RefusesOtherLines) {
  const auto refused = [](const std::string& content, const std::string& message) {
    try {
      prompts_from_text(content, "p.jsonl");
      FAIL() << content;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  refused("", "p.jsonl: the file has no prompt. Give one JSON object per line");
  refused(" \n\n", "p.jsonl: the file has no prompt");
  refused("{\"prompt\": \"a\"}\n{\"prompt\": 5}",
          "p.jsonl:2: \"prompt\" must be a string, found 5. Give one JSON object per line");
  refused("{\"txt\": \"a\"}", "p.jsonl:1: the row has no known key. Its keys: \"txt\". Give one JSON object per line");
  refused(R"({"messages": [{"role": "assistant", "content": "a"}]})",
          "p.jsonl:1: the conversation has no message to answer");
  refused(R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content");
  refused("{\"question\": \"b\", \"context\": 3}", "p.jsonl:1: \"context\" must be a string, found 3");
  refused("[{\"prompt\": \"a\"}]", "p.jsonl:1: the line is an array, not an object");
  refused("\"a\"", "p.jsonl:1: the line is a string, not an object");
  refused("{\"prompt\": \"a\", \"id\": [1]}", "p.jsonl:1: \"id\" must be a string or a whole number");
  refused("{\"prompt\": \"a\"}\n\n{\"prompt\": \"a\"", "p.jsonl:3");
  refused("{\"prompt\": \"\xFF\"}", "p.jsonl:1");
}

}  // namespace
}  // namespace tessera
