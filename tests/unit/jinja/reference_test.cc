// Compares rendered texts with the results of transformers and jinja2 (tools/make_jinja_references.py).
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "reading.h"
#include "tessera/base/error.h"

namespace tessera::jinja {
namespace {

// FNV-1a with 64 bits of the text and the generated parts.
std::string checksum(const Rendered& rendered) {
  std::string bytes = rendered.text;
  for (const Span& span : rendered.generated) bytes += fmt::format("|{},{}", span.begin, span.end);
  uint64_t value = 0xCBF29CE484222325;
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

Options options() {
  Options out;
  out.now = reference_time();
  return out;
}

TEST(JinjaReference, ConversationsRenderAsInTransformers) {
  const Json reference = Json::parse(read_text("conversations.json"));
  const Json& conversations = reference["conversations"];
  ASSERT_GE(conversations.size(), 300u);
  ASSERT_EQ(reference["checksums"].size(), template_names().size());
  size_t rendered = 0;
  for (const auto& [name, checksums] : reference["checksums"].items()) {
    const Template parsed = Template::parse(read_text("templates/" + name + ".jinja"), name);
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(name + ", conversation " + std::to_string(i));
      if (checksums[i].is_null()) {
        EXPECT_THROW(parsed.render(conversations[i], options()), InputError);
      } else {
        EXPECT_EQ(checksum(parsed.render(conversations[i], options())), checksums[i].get<std::string>());
        ++rendered;
      }
    }
  }
  EXPECT_GE(rendered, 2000u);
}

TEST(JinjaReference, ChosenTextsAreEqual) {
  const Json reference = Json::parse(read_text("conversations.json"));
  ASSERT_GE(reference["texts"].size(), 20u);
  for (const Json& row : reference["texts"]) {
    const auto name = row[0].get<std::string>();
    SCOPED_TRACE(name);
    const Template parsed = Template::parse(read_text("templates/" + name + ".jinja"), name);
    const Rendered rendered = parsed.render(reference["conversations"][row[1].get<size_t>()], options());
    EXPECT_EQ(rendered.text, row[2].get<std::string>());
    ASSERT_EQ(rendered.generated.size(), row[3].size());
    for (size_t i = 0; i < rendered.generated.size(); ++i) {
      EXPECT_EQ(rendered.generated[i], (Span{row[3][i][0], row[3][i][1]}));
    }
  }
}

TEST(JinjaReference, DrawnExpressionsHaveTheValuesOfJinja2) {
  const Json reference = Json::parse(read_text("expressions.json"));
  ASSERT_GE(reference["expressions"].size(), 3000u);
  for (const Json& row : reference["expressions"]) {
    const auto expression = row[0].get<std::string>();
    SCOPED_TRACE(expression);
    std::optional<std::string> text;
    try {
      text = Template::parse("{{ " + expression + " }}", "expression").render(reference["variables"]).text;
    } catch (const InputError& error) {
      EXPECT_TRUE(row[1].is_null()) << error.what();
      continue;
    }
    EXPECT_EQ(*text, row[1].is_null() ? "an error" : row[1].get<std::string>());
  }
}

}  // namespace
}  // namespace tessera::jinja
