// Conversations in all formats of rows: equal conversations, and the place and key of each fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reading.h"
#include "tessera/base/random.h"
#include "tessera/data/prompts.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

Conversation only(const std::string& content, const RowOptions& options = {}) {
  const ExampleRows rows = rows_from_text(content, "f.jsonl", options);
  EXPECT_TRUE(rows.bad.empty()) << content << "\n" << rows.bad[0].place << ": " << rows.bad[0].what;
  if (rows.examples.size() != 1 || !rows.examples[0].conversation()) {
    ADD_FAILURE() << content;
    return {};
  }
  return *rows.examples[0].conversation();
}

std::string messages_of(const std::string& content, const RowOptions& options = {}) {
  return only(content, options).messages.dump();
}

// "place: what. remedy" of the only row, which must be bad.
std::string fault(const std::string& content, const RowOptions& options = {}) {
  const ExampleRows rows = rows_from_text(content, "f.jsonl", options);
  if (!rows.examples.empty() || rows.bad.size() != 1) {
    ADD_FAILURE() << "accepted: " << content;
    return "";
  }
  EXPECT_NE(rows.bad[0].remedy, "") << content;
  return rows.bad[0].place + ": " + rows.bad[0].what + ". " + rows.bad[0].remedy;
}

FieldNames named(const std::vector<std::pair<std::string, std::string>>& keys) {
  FieldNames fields;
  for (const auto& [field, key] : keys) EXPECT_EQ(fields.rename(field, key), "");
  return fields;
}

TEST(ConversationRows, Messages) {
  const std::string turns =
      R"([{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}])";
  for (const char* key : {"messages", "conversation", "chat"}) {
    const std::string row = std::string("{\"id\": 7, \"") + key + "\": " + turns + "}";
    EXPECT_EQ(messages_of(row), turns);
    EXPECT_EQ(read(row)[0].id, "7");
    EXPECT_EQ(read("[" + row + "]").size(), 1u);
  }
  const Conversation plain = only("{\"messages\": " + turns + ", \"tools\": null, \"chat_template_kwargs\": null}");
  EXPECT_TRUE(plain.tools.is_null() && plain.variables.is_null());
  // Other keys of a message are kept in their order. Keys with the value null are not.
  EXPECT_EQ(messages_of(R"({"messages": [{"name": "n", "weight": 0, "role": "User", "x": null, "content": "u"},
                                          {"content": "a", "role": "assistant", "reasoning_content": "r"}]})"),
            R"([{"role":"user","content":"u","name":"n","weight":0},)"
            R"({"role":"assistant","content":"a","reasoning_content":"r"}])");
  // A role of a template, and a system message beside the messages.
  EXPECT_EQ(messages_of(R"({"messages": [{"role": "critic", "content": "u"}, {"role": "assistant", "content": "a"}],
                            "system": "s"})"),
            R"([{"role":"system","content":"s"},{"role":"critic","content":"u"},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(messages_of(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "image": null},
                                                                       {"type": "text", "text": "b"}]},
                                          {"role": "assistant", "content": "c"}]})"),
            R"([{"role":"user","content":"ab"},{"role":"assistant","content":"c"}])");
  EXPECT_EQ(only("{\"messages\": " + turns + R"(, "chat_template_kwargs": {"b": 1, "a": [2]}})").variables.dump(),
            R"({"b":1,"a":[2]})");
}

TEST(ConversationRows, ToolsAndCalls) {
  const std::string call = R"({"type":"function","function":{"name":"f","arguments":{"z":1,"a":null}}})";
  const auto with_call = [](const std::string& member) {
    return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", )" + member + "}]}";
  };
  const std::string expected =
      R"([{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":[)" + call + "]}]";
  for (
      const std::string& member :
      {R"("content": null, "tool_calls": [)" + call + "]",
       std::string(
           R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": null}"}}])"),
       std::string(R"("tool_calls": [{"name": "f", "arguments": {"z": 1, "a": null}}])"),
       std::string(R"("content": null, "function_call": {"name": "f", "arguments": "{\"z\": 1, \"a\": null}"})")}) {
    EXPECT_EQ(messages_of(with_call(member)), expected) << member;
  }
  for (const std::string value : {R"({\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": null}})",
                                  R"([{\"name\": \"f\", \"arguments\": \"{\\\"z\\\": 1, \\\"a\\\": null}\"}])"}) {
    EXPECT_EQ(
        messages_of(R"({"conversations": [{"from": "human", "value": "u"}, {"from": "function_call", "value": ")" +
                    value + "\"}]}"),
        expected);
  }
  EXPECT_EQ(
      only(
          with_call(
              R"("content": "", "tool_calls": [{"id": "1", "index": null, "function": {"name": "f", "arguments": {}}}])"))
          .messages[1]
          .dump(),
      R"({"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}}]})");

  const std::string turns =
      R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "tools": )";
  const std::string tools = R"([{"type":"function","function":{"name":"f","parameters":{"y":1,"b":2}}}])";
  EXPECT_EQ(only(turns + tools + "}").tools.dump(), tools);
  EXPECT_EQ(only(turns + Json(tools).dump() + "}").tools.dump(), tools);
  for (const char* none : {"null", "[]", "\"[]\"", "\" \""})
    EXPECT_TRUE(only(turns + none + "}").tools.is_null()) << none;
  EXPECT_THAT(fault(turns + "3}"), StartsWith("f.jsonl: tools: must be a list of objects, found 3. Write"));
  EXPECT_THAT(fault(turns + "[3]}"), StartsWith("f.jsonl: tools[0]: must be an object, found 3"));
  EXPECT_THAT(fault(turns + "\"[{]\"}"), StartsWith("f.jsonl: tools: the text is not valid JSON: "));
  EXPECT_THAT(fault(turns + "null, \"chat_template_kwargs\": []}"),
              StartsWith("f.jsonl: chat_template_kwargs: expected an object, found an array"));

  const auto of_call = [&](const std::string& calls) {
    return fault(with_call("\"content\": null, \"tool_calls\": " + calls));
  };
  const std::string place = "f.jsonl: messages[1].tool_calls";
  EXPECT_THAT(of_call("{}"), StartsWith(place + ": expected an array, found an object"));
  EXPECT_THAT(of_call("[3]"), StartsWith(place + "[0]: expected an object, found 3"));
  EXPECT_THAT(of_call("[{\"function\": {\"arguments\": {}}}]"),
              StartsWith(place + "[0].function: key \"name\" is missing"));
  EXPECT_THAT(of_call("[{\"name\": \"\", \"arguments\": {}}]"), StartsWith(place + "[0].name: is empty"));
  EXPECT_THAT(of_call("[{\"name\": \"f\"}]"),
              StartsWith(place + "[0]: key \"arguments\" is missing. Write an object, or {}"));
  EXPECT_THAT(of_call(R"([{"function": {"name": "f", "arguments": "{\"a\": "}}])"),
              StartsWith(place + "[0].function.arguments: the text is not valid JSON: "));
  EXPECT_THAT(of_call(R"([{"function": {"name": "f", "arguments": "[1]"}}])"),
              StartsWith(place + "[0].function.arguments: must be an object, found an array"));
  EXPECT_THAT(of_call(R"([{"type": "custom", "name": "f", "arguments": {}}])"),
              StartsWith(place + "[0]: has the type the string \"custom\", but only functions"));
  EXPECT_THAT(of_call("[]"), StartsWith("f.jsonl: messages[1]: key \"content\" is missing"));
  EXPECT_THAT(
      fault(R"({"messages": [{"role": "user", "content": "u", "tool_calls": [{"name": "f", "arguments": {}}]}]})"),
      StartsWith("f.jsonl: messages[0].tool_calls: the role is \"user\", but only the assistant calls tools"));
  EXPECT_THAT(fault(R"({"conversations": [{"from": "function_call", "value": "f 1"}]})"),
              StartsWith("f.jsonl: conversations[0].value: the text is not valid JSON: "));
  EXPECT_THAT(fault(R"({"conversations": [{"from": "function_call", "value": "[]"}]})"),
              StartsWith("f.jsonl: conversations[0].value: has no call"));
}

TEST(ConversationRows, Alpaca) {
  EXPECT_EQ(messages_of(R"({"instruction": "i", "input": "x", "output": "o"})"),
            R"([{"role":"user","content":"i\n\nx"},{"role":"assistant","content":"o"}])");
  for (const char* row :
       {R"({"instruction": "i", "input": "", "output": "o"})", R"({"instruction": "i", "output": "o"})",
        R"({"instruction": "", "input": "i", "output": "o", "system": " ", "history": []})"}) {
    EXPECT_EQ(messages_of(row), R"([{"role":"user","content":"i"},{"role":"assistant","content":"o"}])") << row;
  }
  EXPECT_EQ(messages_of(R"({"instruction": "i", "output": "o", "system": "s", "history": [["q", "a"]]})"),
            R"([{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
            R"({"role":"user","content":"i"},{"role":"assistant","content":"o"}])");
  EXPECT_THAT(fault(R"({"instruction": "i"})"), StartsWith("f.jsonl: key \"output\" is missing"));
  EXPECT_THAT(fault(R"({"instruction": "i", "output": "\n"})"), StartsWith("f.jsonl: output: is empty"));
  EXPECT_THAT(fault(R"({"instruction": " ", "output": "o"})"), StartsWith("f.jsonl: instruction: is empty"));
  EXPECT_THAT(fault(R"({"instruction": 3, "output": "o"})"), StartsWith("f.jsonl: \"instruction\" must be a string"));
  EXPECT_THAT(fault(R"({"instruction": "i", "output": "o", "history": ["q"]})"),
              StartsWith("f.jsonl: history[0]: must be a list of two texts"));
  EXPECT_THAT(fault(R"({"output": "o"})", {.kind = RowKind::alpaca}),
              StartsWith("f.jsonl: is no row of the format alpaca, because it has no key \"instruction\". Its keys: "
                         "\"output\". "));
}

TEST(ConversationRows, PromptsAsMessages) {
  const std::string prompt = R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "x"}])";
  EXPECT_EQ(messages_of(R"({"prompt": )" + prompt + R"(, "completion": [{"role": "assistant", "content": "a"}]})"),
            R"([{"role":"user","content":"u"},{"role":"assistant","content":"x","train":false},)"
            R"({"role":"assistant","content":"a"}])");
  EXPECT_THAT(fault(R"({"prompt": )" + prompt + R"(, "completion": "a"})"),
              StartsWith("f.jsonl: completion: must be a list of messages like \"prompt\", found the string \"a\""));
  EXPECT_THAT(fault(R"({"prompt": )" + prompt + "}"), StartsWith("f.jsonl: key \"completion\" is missing"));
  EXPECT_THAT(fault(R"({"prompt": )" + prompt + R"(, "completion": [{"role": "user", "content": "a"}]})"),
              StartsWith("f.jsonl: completion[0]: a completion has only messages of the assistant"));
  EXPECT_THAT(fault(R"({"prompt": )" + prompt + R"(, "completion": []})"),
              StartsWith("f.jsonl: completion: has no message of the assistant"));
}

TEST(ConversationRows, FaultsNameTheKey) {
  const auto of = [](const std::string& messages) { return fault("{\"messages\": " + messages + "}"); };
  const std::string first = R"({"role": "user", "content": "u"}, )";
  EXPECT_THAT(of("[]"), StartsWith("f.jsonl: messages: the list of messages is empty. Write each message as"));
  EXPECT_THAT(of("null"), StartsWith("f.jsonl: key \"messages\" is missing"));
  EXPECT_THAT(of("\"[]\""), StartsWith("f.jsonl: messages: expected an array, found the string \"[]\""));
  EXPECT_THAT(of("[" + first + "3]"), StartsWith("f.jsonl: messages[1]: expected an object, found 3"));
  EXPECT_THAT(of("[{\"content\": \"u\"}]"), StartsWith("f.jsonl: messages[0]: key \"role\" is missing"));
  EXPECT_THAT(of("[{\"role\": 3, \"content\": \"u\"}]"),
              StartsWith("f.jsonl: messages[0].role: must be a text, found 3"));
  EXPECT_THAT(of("[{\"role\": \" \", \"content\": \"u\"}]"),
              StartsWith("f.jsonl: messages[0].role: unknown role \" \""));
  EXPECT_THAT(of("[" + first + R"({"role": "asistant", "content": "a"}])"),
              StartsWith("f.jsonl: messages[1].role: unknown role \"asistant\". Did you mean \"assistant\"?"));
  EXPECT_THAT(of("[" + first + R"({"role": "assistant", "content": 5}])"),
              StartsWith("f.jsonl: messages[1].content: must be a text or a list of parts, found 5"));
  EXPECT_THAT(of("[" + first + R"({"role": "assistant", "content": " \n"}])"),
              StartsWith("f.jsonl: messages[1].content: the message of the assistant is empty. Remove"));
  EXPECT_THAT(of("[" + first + R"({"role": "assistant", "content": []}])"),
              StartsWith("f.jsonl: messages[1].content: the message of the assistant is empty"));
  EXPECT_THAT(of(R"([{"role": "user"}, {"role": "assistant", "content": "a"}])"),
              StartsWith("f.jsonl: messages[0]: key \"content\" is missing"));
  EXPECT_THAT(
      of(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}])"),
      StartsWith("f.jsonl: messages[0].content[1]: has the type \"image_url\", and models here read only text"));
  EXPECT_THAT(of(R"([{"role": "user", "content": ["a"]}])"),
              StartsWith("f.jsonl: messages[0].content[0]: expected an object, found the string \"a\""));
  EXPECT_THAT(of(R"([{"role": "user", "content": [{"text": "a"}]}])"),
              StartsWith("f.jsonl: messages[0].content[0]: key \"type\" is missing"));
  EXPECT_THAT(of("[" + first.substr(0, first.size() - 2) + "]"),
              StartsWith("f.jsonl: messages: no message is the assistant's, so there is nothing to learn"));
  EXPECT_THAT(
      fault(
          R"({"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}], "system": "t"})"),
      StartsWith("f.jsonl: system: the messages begin with a system message as well"));
  EXPECT_THAT(fault(R"({"conversations": [{"from": "critic", "value": "v"}]})"),
              StartsWith("f.jsonl: conversations[0].from: unknown role \"critic\". Use one of: system, user (human)"));
  EXPECT_THAT(fault(R"({"conversations": [{"from": "human", "content": 3}]})"),
              StartsWith("f.jsonl: conversations[0].content: must be a text"));
  EXPECT_THAT(fault("{\"messages\": " + std::string(70, '[') + std::string(70, ']') + "}"),
              HasSubstr("nested deeper than 64 levels"));
  // In an array of rows.
  const ExampleRows rows = rows_from_text(
      R"([{"messages": [{"role": "assistant", "content": "a"}]}, {"messages": [{"role": "user"}]}])", "f.json");
  ASSERT_EQ(rows.bad.size(), 1u);
  EXPECT_EQ(rows.bad[0].place, "f.json: [1].messages[0]");
}

TEST(ConversationRows, PromptsNeedNoAssistant) {
  const RowOptions prompts{.as_prompts = true};
  EXPECT_EQ(messages_of(R"({"messages": [{"role": "user", "content": "u"}]})", prompts),
            R"([{"role":"user","content":"u"}])");
  EXPECT_EQ(messages_of(R"({"prompt": [{"role": "user", "content": "u"}]})", prompts),
            R"([{"role":"user","content":"u"}])");
  EXPECT_THAT(fault("{\"messages\": []}", prompts), HasSubstr("the list of messages is empty"));
  EXPECT_EQ(messages_of(R"({"instruction": "i", "input": "n"})", prompts), R"([{"role":"user","content":"i\n\nn"}])");
  EXPECT_EQ(messages_of(R"({"prompt": [{"role": "user", "content": "u"}], "completion": 3})", prompts),
            R"([{"role":"user","content":"u"}])");
  const auto examples = examples_from_text(
      "{\"prompt\": \"p\", \"context\": \"c\", \"completion\": \"d\"}\n"
      "{\"question\": \"q\", \"context\": \"c\", \"answers\": 5}",
      "f.jsonl", prompts);
  EXPECT_EQ(examples[0].text()->text, "p");
  EXPECT_EQ(examples[1].question()->context, "c");
}

// The keys decide the format. A conversation in a row that is complete in an older format is an additional key.
TEST(ConversationRows, KeysDecide) {
  const std::string messages =
      R"("messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])";
  EXPECT_TRUE(read("{\"prompt\": \"p\", \"prompt_id\": \"i\", " + messages + "}")[0].conversation());
  EXPECT_TRUE(read("{\"context\": \"c\", " + messages + "}")[0].conversation());
  EXPECT_TRUE(read("{\"question\": \"q\", \"instruction\": \"i\", \"output\": \"o\"}")[0].conversation());
  EXPECT_TRUE(read("{\"prompt\": \"p\", \"completion\": \"c\", " + messages + "}")[0].completion());
  EXPECT_TRUE(read("{\"text\": \"t\", " + messages + "}")[0].text());
  EXPECT_TRUE(read("{\"question\": \"q\", \"answer\": \"a\", " + messages + "}")[0].question());
  EXPECT_TRUE(read("{\"text\": null, " + messages + "}")[0].conversation());
  EXPECT_EQ(messages_of("{\"text\": \"t\", " + messages + "}", {.kind = RowKind::messages}),
            R"([{"role":"user","content":"u"},{"role":"assistant","content":"a"}])");
  EXPECT_THAT(refusal("{\"context\": \"c\", \"text\": \"t\"}"), HasSubstr("key \"question\" is missing"));
}

TEST(ConversationRows, AGivenFormat) {
  const std::vector<std::pair<RowKind, std::string>> rows = {
      {RowKind::question, R"({"question": "q", "answer": "a"})"},
      {RowKind::text, R"({"text": "t"})"},
      {RowKind::completion, R"({"prompt": "p", "completion": "c"})"},
      {RowKind::messages, R"({"messages": [{"role": "assistant", "content": "a"}]})"},
      {RowKind::sharegpt, R"({"conversations": [{"from": "gpt", "value": "a"}]})"},
      {RowKind::alpaca, R"({"instruction": "i", "output": "o"})"}};
  std::string all;
  for (const auto& [kind, row] : rows) all += row + "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const ExampleRows read = rows_from_text(all, "f.jsonl", {.kind = rows[i].first});
    ASSERT_EQ(read.examples.size(), 1u);
    EXPECT_EQ(read.examples[0].place, "f.jsonl:" + std::to_string(i + 1));
    ASSERT_EQ(read.bad.size(), rows.size() - 1);
    EXPECT_THAT(read.bad[0].what, StartsWith("is no row of the format "));
    EXPECT_THAT(read.bad[0].remedy, HasSubstr("give another dataset_format"));
  }
  const std::string article = squad("c", question("c", 0));
  EXPECT_EQ(rows_from_text(article, "f.json", {.kind = RowKind::question}).examples.size(), 1u);
  EXPECT_THAT(fault(article, {.kind = RowKind::messages}),
              StartsWith("f.jsonl: data[0]: is SQuAD's format, not the format messages"));
  EXPECT_EQ(rows_from_text("a", "f.txt", {.kind = RowKind::text}).examples.size(), 1u);
  EXPECT_THROW(rows_from_text("a", "f.txt", {.kind = RowKind::messages}), InputError);
}

TEST(ConversationRows, FieldsWithOtherKeys) {
  const RowOptions options{
      .fields = named({{"messages", "dialog"}, {"role", "speaker"}, {"content", "words"}, {"tools", "functions"}})};
  EXPECT_EQ(
      messages_of(R"({"dialog": [{"speaker": "user", "words": "u", "role": "x"}, {"speaker": "gpt", "words": "a"}]})",
                  options),
      R"([{"role":"user","content":"u"},{"role":"assistant","content":"a"}])");
  EXPECT_THAT(fault(R"({"dialog": [{"speaker": "user", "words": 3}]})", options),
              StartsWith("f.jsonl: dialog[0].words: "));
  EXPECT_THAT(fault(R"({"dialog": [{"words": "u"}]})", options),
              StartsWith("f.jsonl: dialog[0]: key \"speaker\" is missing"));
  EXPECT_THAT(fault(R"({"messages": []})", options),
              AllOf(HasSubstr("no known key. Its keys: \"messages\""), HasSubstr("name it by fields")));
  // A field that takes the key of another one: the other one has no key.
  const RowOptions dolly{.fields = named({{"input", "context"}, {"output", "response"}})};
  EXPECT_EQ(messages_of(R"({"instruction": "i", "context": "c", "response": "r"})", dolly),
            R"([{"role":"user","content":"i\n\nc"},{"role":"assistant","content":"r"}])");
  const RowOptions swapped{.fields = named({{"prompt", "completion"}, {"completion", "prompt"}})};
  const ExampleRows rows = rows_from_text(R"({"prompt": "a", "completion": "b"})", "f.jsonl", swapped);
  EXPECT_EQ(rows.examples.at(0).completion()->prompt, "b");
  const RowOptions questions{.fields = named({{"question", "q"}, {"answers", "a"}, {"id", "key"}})};
  const ExampleRows asked = rows_from_text(R"({"q": "Q?", "a": ["A"], "key": 3})", "f.jsonl", questions);
  EXPECT_EQ(asked.examples.at(0).question()->answers, std::vector<std::string>{"A"});
  EXPECT_EQ(asked.examples[0].id, "3");
  EXPECT_THAT(fault(R"({"q": "Q?"})", questions), StartsWith("f.jsonl: key \"a\" is missing"));
  FieldNames fields = named({{"prompt", "p"}});
  EXPECT_EQ(fields.rename("text", "p"), "prompt");
  EXPECT_EQ(fields.rename("role", "p"), "");  // a key of another object
  EXPECT_EQ(fields.text(), "prompt=p,role=p");
}

// Random conversations give the same messages in every format.
TEST(ConversationRows, EqualInEveryFormat) {
  RandomStream random(5, 0);
  const auto words = [&] {
    std::string text = "w";
    for (uint64_t i = random.next_below(6); i > 0; --i) {
      text += std::vector<std::string>{" ", "\"", "\n", "é😀", "{", "a"}[random.next_below(6)];
    }
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    const bool has_system = random.next_below(2) == 0;
    Json messages = Json::array(), turns = Json::array(), history = Json::array();
    const std::string system = words();
    if (has_system) messages.push_back({{"role", "system"}, {"content", system}});
    std::string user, answer;
    for (uint64_t i = 1 + random.next_below(4); i > 0; --i) {
      if (!user.empty()) history.push_back(Json::array({user, answer}));
      user = words(), answer = words();
      messages.push_back({{"role", "user"}, {"content", user}});
      messages.push_back({{"role", "assistant"}, {"content", answer}});
      turns.push_back({{"from", random.next_below(2) == 0 ? "human" : "user"}, {"value", user}});
      turns.push_back({{"from", random.next_below(2) == 0 ? "gpt" : "assistant"}, {"value", answer}});
    }
    Json sharegpt = {{"conversations", turns}},
         alpaca = {{"instruction", user}, {"output", answer}, {"history", history}};
    if (has_system) sharegpt["system"] = alpaca["system"] = system;
    Json inside = sharegpt;
    if (has_system) {
      inside.erase("system");
      inside["conversations"].insert(inside["conversations"].begin(), Json{{"from", "system"}, {"value", system}});
    }
    for (const Json& row : {Json{{"messages", messages}}, sharegpt, inside, alpaca}) {
      ASSERT_EQ(messages_of(row.dump()), messages.dump()) << row.dump();
    }
  }
}

TEST(ConversationRows, HostileRows) {
  // A message of 8 MB, a message with many keys, and many messages.
  const std::string text(8'000'000, 'a');
  const std::string row = R"({"messages": [{"role": "assistant", "content": ")" + text + "\"}]}";
  EXPECT_EQ(only(row).messages[0]["content"].get_ref<const std::string&>().size(), text.size());
  EXPECT_THAT(fault(row.substr(0, 4'000'000)), HasSubstr("cut short"));
  std::string keys, messages;
  for (int i = 0; i < 100'000; ++i) {
    keys += ", \"k" + std::to_string(i) + "\": 1";
    messages += std::string(i > 0 ? "," : "") + R"({"role": "assistant", "content": "a"})";
  }
  EXPECT_EQ(only(R"({"messages": [{"role": "assistant", "content": "a")" + keys + "}]" + keys + "}").messages[0].size(),
            100'002u);
  EXPECT_EQ(only("{\"messages\": [" + messages + "]}").messages.size(), 100'000u);
  EXPECT_THAT(fault(R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": ")" +
                    std::string(1'000'000, '[') + "\"}]}]}"),
              HasSubstr("messages[0].tool_calls[0].arguments: the text is "));
}

}  // namespace
}  // namespace tessera
