#include "tessera/data/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tessera/data/prompts.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// Ends turns without a newline, and puts a token before the text.
constexpr const char* kHeaders =
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m.role }}<|end_head|>\n\n{{ m.content | trim }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|end_head|>\n\n{% endif %}";
// Marks the content, but not the token that ends it.
constexpr const char* kMarked =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// Removes what the assistant thought, except in the last message, as Qwen's templates do.
constexpr const char* kThinking =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

ChatTemplate template_from(const std::string& text) {
  return {{text, "chat.jinja"}, {}, {{"bos_token", "<s>"}}, {}};
}

Conversation conversation(const std::vector<std::pair<std::string, std::string>>& turns) {
  Conversation result;
  result.messages = ordered_json::array();
  for (const auto& [role, content] : turns) result.messages.push_back({{"role", role}, {"content", content}});
  return result;
}

// Byte-level BPE with a small vocabulary: the alphabet, and the tokens "ab", "\n\n" and "an".
Tokenizer tokenizer() {
  const std::vector<std::string> special = {"<|im_start|>", "<|im_end|>", "<s>", "<|head|>", "<|end_head|>", "</s>"};
  ordered_json vocab;
  const auto add = [&](const std::string& token) { vocab.emplace(token, vocab.size()); };
  // The alphabet of byte-level BPE: bytes that are no printable characters are written as U+0100 and up.
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int code = printed ? byte : next++;
    std::string token;
    if (code < 0x80) {
      token += static_cast<char>(code);
    } else {
      token += static_cast<char>(0xC0 | code >> 6);
      token += static_cast<char>(0x80 | (code & 0x3F));
    }
    add(token);
  }
  for (const char* merged : {"ab", "ĊĊ", "an"}) add(merged);
  ordered_json added = ordered_json::array();
  for (const auto& token : special) {
    added.push_back({{"id", vocab.size() + added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const ordered_json json = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "Ċ Ċ", "a n"}}}}};
  return Tokenizer::from_json_text(json.dump(), "test");
}

class ChatSamples : public testing::Test {
 protected:
  EncodedRow encode(const ChatTemplate& chat, const Conversation& content, LossOn loss_on = LossOn::assistant,
                    int64_t max_length = 4096) {
    const Example example{.place = "rows.jsonl:3", .id = "c1", .content = content};
    const PromptOptions options{.max_length = max_length,
                                .chat = {.chat_template = &chat,
                                         .loss_on = loss_on,
                                         .tokenizer = &tokenizer_,
                                         .end_ids = {*tokenizer_.id_of("<|im_end|>")}}};
    return encode_row(example, encode_, options);
  }

  // The text, with the parts that carry loss in brackets.
  std::string marked(const EncodedRow& row) const {
    if (row.samples.size() != 1) return "fault: " + row.fault.what;
    const Sample& sample = row.samples[0];
    std::string text;
    bool open = false;
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      const bool carries = t > 0 && sample.labels[t - 1] != kNoTarget;
      EXPECT_TRUE(!carries || sample.labels[t - 1] == sample.ids[t]);
      if (carries != open) text += carries ? "[" : "]";
      open = carries;
      text += tokenizer_.bytes_of(sample.ids[t]);
    }
    return text + (open ? "]" : "");
  }

  const Tokenizer tokenizer_ = tokenizer();
  const EncodeFn encode_ = [this](TextPlace place, std::string_view text) { return tokenizer_.encode_at(place, text); };
};

TEST_F(ChatSamples, LossIsOnTheAssistantAndItsEndToken) {
  const Conversation chat =
      conversation({{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}, {"assistant", "B"}});
  EXPECT_EQ(marked(encode(template_from(kChatMl), chat)),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n[A<|im_end|>]\n"
            "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n[B<|im_end|>]\n");
  EXPECT_EQ(marked(encode(template_from(kMarked), chat)), marked(encode(template_from(kChatMl), chat)));
  EXPECT_EQ(marked(encode(template_from(kChatMl), chat, LossOn::last)),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
            "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n[B<|im_end|>]\n");
  EXPECT_EQ(marked(encode(template_from(kHeaders), chat)),
            "<s><|head|>system<|end_head|>\n\nS<|im_end|><|head|>user<|end_head|>\n\nU<|im_end|>"
            "<|head|>assistant<|end_head|>\n\n[A<|im_end|>]<|head|>user<|end_head|>\n\nV<|im_end|>"
            "<|head|>assistant<|end_head|>\n\n[B<|im_end|>]");
  const std::string all = marked(encode(template_from(kChatMl), chat, LossOn::all));
  EXPECT_EQ(all.substr(0, 14), "<|im_start|>[s") << "the first token has no loss";
  EXPECT_EQ(all.back(), ']');
}

TEST_F(ChatSamples, TemplatesGetMessagesAsFromTransformers) {
  Conversation chat;
  chat.messages = ordered_json::parse(R"([{"role": "user", "content": "U", "name": null, "weight": 1},
      {"role": "assistant", "content": null, "reasoning": "why", "train": true, "tool_calls": []}])");
  EXPECT_EQ(template_from("{% for m in messages %}{{ m | tojson }}\n{% endfor %}").text_of(chat, 2, false),
            R"({"role": "user", "content": "U"}
{"thinking": "why", "role": "assistant", "reasoning": "why", "tool_calls": [], "reasoning_content": "why"}
)");
}

TEST_F(ChatSamples, RowsLeaveMessagesOutOfTheLoss) {
  for (const auto& [key, value] : {std::pair<const char*, ordered_json>{"train", false}, {"weight", 0}}) {
    Conversation chat = conversation({{"user", "U"}, {"assistant", "A"}, {"user", "V"}, {"assistant", "B"}});
    chat.messages[1][key] = value;
    chat.messages[3]["train"] = "yes";
    for (const char* source : {kChatMl, kMarked}) {
      const std::string text = marked(encode(template_from(source), chat));
      EXPECT_THAT(text, HasSubstr("assistant\nA<|im_end|>\n"));
      EXPECT_THAT(text, HasSubstr("assistant\n[B<|im_end|>]\n"));
    }
  }
}

TEST_F(ChatSamples, TheSampleHasTheTokensOfTheTextWithoutAnotherBos) {
  const Conversation chat = conversation({{"user", "abba"}, {"assistant", "banana"}});
  const ChatTemplate chat_template = template_from(std::string("{{ bos_token }}") + kChatMl);
  EXPECT_EQ(encode(chat_template, chat).samples[0].ids, tokenizer_.encode(chat_template.text_of(chat, 2, false)));
}

// A model that answers sees the tokens of the prompt, so no token may belong to both prompt and answer.
TEST_F(ChatSamples, ATokenNeverBelongsToPromptAndAnswer) {
  const ChatTemplate chat_template = template_from(
      "{% for m in messages %}{{ m.role[0] }}\n{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}a\n{% endif %}");
  const Conversation chat = conversation({{"user", "x"}, {"assistant", "\nb"}, {"user", "n"}, {"assistant", "ab"}});
  const EncodedRow row = encode(chat_template, chat);
  EXPECT_EQ(marked(row), "u\nx<|im_end|>a\n[\nb<|im_end|>]u\nn<|im_end|>a\n[ab<|im_end|>]");
  std::vector<int32_t> expected = tokenizer_.encode("u\nx<|im_end|>a\n");
  for (const char* part : {"\nb<|im_end|>u\nn<|im_end|>a\nab<|im_end|>"}) {
    const std::vector<int32_t> ids = tokenizer_.encode(part);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(row.samples[0].ids, expected);
}

// The independent construction: a turn is what the text has more with it than without it.
TEST_F(ChatSamples, MasksEqualAnIndependentConstruction) {
  const std::vector<std::string> templates = {kChatMl, kHeaders, kMarked};
  const std::string pieces[] = {"ab", "a", "b", "n", "\n", "\n\n", " ", "é", "x y", "<", "im_end"};
  for (uint32_t seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t n) { return static_cast<size_t>(random() % n); };
    std::vector<std::pair<std::string, std::string>> turns;
    if (draw(2) == 0) turns.emplace_back("system", "be ab");
    for (size_t i = 0, pairs = 1 + draw(3); i < pairs; ++i) {
      for (const char* role : {"user", "assistant"}) {
        std::string content = "q";
        for (size_t k = draw(6); k > 0; --k) content += pieces[draw(std::size(pieces))];
        turns.emplace_back(role, content + "z");
      }
    }
    const std::string& source = templates[seed % templates.size()];
    const bool has_newline = source != kHeaders;
    std::string expected = source == kHeaders ? "<s>" : "";
    for (const auto& [role, content] : turns) {
      expected += (source == kHeaders ? "<|head|>" + role + "<|end_head|>\n\n" : "<|im_start|>" + role + "\n");
      expected += role == "assistant" ? "[" + content + "<|im_end|>]" : content + "<|im_end|>";
      if (has_newline) expected += "\n";
    }
    ASSERT_EQ(marked(encode(template_from(source), conversation(turns))), expected) << seed;
  }
}

TEST_F(ChatSamples, ATemplateThatRewritesEarlierTurnsIsRefused) {
  const ChatTemplate thinking = template_from(kThinking);
  const Conversation chat = conversation(
      {{"user", "U"}, {"assistant", "<think>why</think>A"}, {"user", "V"}, {"assistant", "<think>so</think>B"}});
  const EncodedRow row = encode(thinking, chat);
  EXPECT_TRUE(row.is_template_fault);
  EXPECT_EQ(row.fault.place, "rows.jsonl:3");
  EXPECT_THAT(row.fault.what, HasSubstr("messages[1]"));
  EXPECT_THAT(row.fault.what, HasSubstr("<think>why"));
  EXPECT_THAT(row.fault.what, HasSubstr("loss_on last"));
  EXPECT_THAT(marked(encode(thinking, chat, LossOn::last)), HasSubstr("assistant\n[<think>so</think>B<|im_end|>]\n"));
  // With one message of the assistant, nothing is rewritten.
  EXPECT_THAT(marked(encode(thinking, conversation({{"user", "U"}, {"assistant", "<think>why</think>A"}}))),
              HasSubstr("[<think>why</think>A<|im_end|>]"));
}

TEST_F(ChatSamples, FaultsOfRows) {
  const ChatTemplate chat_ml = template_from(kChatMl);
  const Conversation unanswered = conversation({{"user", "U"}, {"assistant", "A"}, {"user", "V"}});
  EXPECT_THAT(encode(chat_ml, unanswered, LossOn::last).fault.what, HasSubstr("does not end with the assistant"));
  EXPECT_EQ(marked(encode(chat_ml, unanswered)).find("V<|im_end|>]"), std::string::npos);
  const EncodedRow row = encode(chat_ml, conversation({{"user", "U"}, {"assistant", "A"}}), LossOn::assistant, 8);
  EXPECT_THAT(row.fault.what, HasSubstr("the conversation takes"));
  EXPECT_FALSE(row.is_template_fault);
  const ChatTemplate strict =
      template_from("{% if messages[0].role != 'user' %}{{ raise_exception('begin with the user') }}{% endif %}");
  EXPECT_THAT(encode(strict, conversation({{"assistant", "A"}})).fault.what, HasSubstr("begin with the user"));
}

TEST_F(ChatSamples, MessagesWithoutAnEndTokenAreCounted) {
  const Conversation chat = conversation({{"user", "U"}, {"assistant", "A"}});
  EXPECT_EQ(encode(template_from(kChatMl), chat).wrong_end, std::nullopt);
  const std::string other = "{% for m in messages %}{{ m.content }}</s>{% endfor %}";
  EXPECT_EQ(encode(template_from(other), chat).wrong_end, tokenizer_.id_of("</s>"));
  EXPECT_EQ(encode(template_from("{% for m in messages %}{{ m.content }}\n{% endfor %}"), chat).wrong_end, -1);
}

TEST_F(ChatSamples, PromptsLeaveOutTheAnswer) {
  const Conversation chat = conversation({{"user", "U"}, {"assistant", "A"}});
  const ChatTemplate chat_ml = template_from(kChatMl);
  EXPECT_EQ(std::get<std::string>(chat_ml.prompt_segments_of(chat)[0].content),
            "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(answer_of(chat), "A");
}

}  // namespace
}  // namespace tessera
