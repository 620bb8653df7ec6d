#include "tessera/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Json = nlohmann::json>
std::string refusal(std::string_view text, int64_t first_line = 1) {
  try {
    parse_json<Json>(text, "f.json", "The remedy", first_line);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Json, ReturnsTheValuesOfTheLibrary) {
  const char* const text =
      R"( {"b": [1, -2, [], {"x": null}, 0.5, 18446744073709551615], "a": {"b": "é\u0001", "": true}} )";
  EXPECT_EQ(parse_json(text, ""), nlohmann::json::parse(text));
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(text, "").dump(), nlohmann::ordered_json::parse(text).dump());
  for (const char* one : {"3", "\"a\"", "null", "[]", "{}"}) EXPECT_EQ(parse_json(one, "").dump(), one);
}

TEST(Json, NamesLineAndColumn) {
  EXPECT_THAT(refusal("hello"), StartsWith("f.json:1:1: not valid JSON: syntax error while parsing value"));
  EXPECT_THAT(refusal("{\"a\": [\n1,\n  oops]}"), StartsWith("f.json:3:3: not valid JSON: "));
  EXPECT_THAT(refusal("[1] 2", 7), StartsWith("f.json:7:5: not valid JSON: "));
  EXPECT_THAT(refusal("{\"a\": 1,}"), AllOf(StartsWith("f.json:1:9: "), ::testing::EndsWith(". The remedy")));
  EXPECT_THAT(refusal("\"\xff\""),
              StartsWith("f.json:1:2: not valid JSON: syntax error while parsing value - invalid"));
  EXPECT_THAT(refusal("\"\\ud800\""), HasSubstr("not valid JSON"));
  for (const char* word : {"NaN", "Infinity", "-Infinity"}) {
    for (const char* before : {"", "[", "{\"a\": "}) {
      const std::string hint = std::string(". JSON has no ") + word + ": write null. The remedy";
      const std::string error = refusal(std::string(before) + word);
      EXPECT_THAT(error, ::testing::EndsWith(hint));
      EXPECT_EQ(error.find("JSON has no"), error.rfind("JSON has no")) << error;
    }
  }
  EXPECT_THAT(refusal("[1e999]"), StartsWith("f.json:1:6: not valid JSON: number overflow"));
  EXPECT_THAT(refusal(std::string_view("1\0", 2)), StartsWith("f.json:1:2: not valid JSON: it contains a zero byte"));
  EXPECT_LT(refusal("{\"" + std::string(100000, 'x')).size(), 1000u);  // the message does not quote all of the text
}

TEST(Json, ReportsTruncatedTexts) {
  for (const char* text : {"", "[", "{\"a", "{\"a\": ", "{\n"})
    EXPECT_THAT(refusal(text), HasSubstr("cut short")) << text;
  EXPECT_THAT(refusal("{\n"), StartsWith("f.json:2:1: "));
}

TEST(Json, RefusesDeepNestingAndDuplicateKeys) {
  const std::string deepest = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(refusal(deepest), "accepted");
  EXPECT_EQ(refusal("[" + deepest + "]"), "f.json: is nested deeper than 64 levels. The remedy");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), "f.json: is nested deeper than 64 levels. The remedy");
  const char* const twice = R"([{"a": 1, "b": {"a": 2}, "a": 3}])";
  EXPECT_EQ(refusal(twice), "f.json: has the key \"a\" twice in one object. The remedy");
  EXPECT_EQ(refusal<nlohmann::ordered_json>(twice), refusal(twice));
}

}  // namespace
}  // namespace tessera
