#include "tessera/base/record.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/random.h"

namespace tessera {
namespace {

TEST(PythonRepr, WritesWhatPythonWrites) {
  const std::pair<double, const char*> cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {4.0, "4.0"},
      {4.895, "4.895"},
      {0.1, "0.1"},
      {0.1 + 0.2, "0.30000000000000004"},
      {1.0 / 3.0, "0.3333333333333333"},
      {100000.0, "100000.0"},
      {0.0001, "0.0001"},
      {0.00012345, "0.00012345"},
      {1e-05, "1e-05"},
      {1.08e-05, "1.08e-05"},
      {-2.5e-07, "-2.5e-07"},
      {1e15, "1000000000000000.0"},
      {9007199254740994.0, "9007199254740994.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {1e22, "1e+22"},
      {1e100, "1e+100"},
      {123456789012345680.0, "1.2345678901234568e+17"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {81.47000122070312, "81.47000122070312"},
      {std::numeric_limits<double>::infinity(), "inf"},
      {-std::numeric_limits<double>::infinity(), "-inf"},
      {std::nan(""), "nan"},
      {-std::nan(""), "nan"},
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(python_repr(value), text);
}

TEST(PythonRepr, ReadsBackAsTheSameNumber) {
  RandomStream random(1, 0);
  for (int i = 0; i < 10000; ++i) {
    const double value = std::bit_cast<double>(random.next_u64());
    if (std::isfinite(value)) {
      EXPECT_EQ(std::strtod(python_repr(value).c_str(), nullptr), value);
    }
  }
}

TEST(RoundDecimals, RoundsTheExactValueAsPythonDoes) {
  EXPECT_EQ(round_decimals(4.89504, 4), 4.895);
  EXPECT_EQ(round_decimals(2.675, 2), 2.67);  // the double is less than 2.675
  EXPECT_EQ(round_decimals(0.125, 2), 0.12);  // an exact tie rounds to the even digit
  EXPECT_EQ(round_decimals(0.375, 2), 0.38);
  EXPECT_EQ(round_decimals(1e300, 4), 1e300);
  EXPECT_EQ(python_repr(round_decimals(-0.00001, 4)), "-0.0");
  EXPECT_TRUE(std::isnan(round_decimals(std::nan(""), 4)));
  EXPECT_TRUE(std::isinf(round_decimals(std::numeric_limits<double>::infinity(), 4)));
}

TEST(Record, KeepsTheOrderOfFirstMention) {
  Record record{{"b", 1}, {"a", 2}};
  record["c"] = 3;
  record["b"] = 4;
  EXPECT_EQ(to_python(record), "{'b': 4, 'a': 2, 'c': 3}");
  record.update({{"a", 5}, {"d", 6}});
  EXPECT_EQ(to_python(record), "{'b': 4, 'a': 5, 'c': 3, 'd': 6}");
}

TEST(Record, RendersEveryTypeAsJsonAndPython) {
  const Record record{{"none", nullptr},
                      {"yes", true},
                      {"no", false},
                      {"int", int64_t{-7}},
                      {"size", size_t{9}},
                      {"float", 0.5f},
                      {"nan", std::nan("")},
                      {"text", "a"},
                      {"list", std::vector<double>{1, 2.5}},
                      {"inner", Record{{"x", 1}}},
                      {"empty", Record::object()}};
  EXPECT_EQ(to_python(record),
            "{'none': None, 'yes': True, 'no': False, 'int': -7, 'size': 9, 'float': 0.5, 'nan': nan, 'text': 'a', "
            "'list': [1.0, 2.5], 'inner': {'x': 1}, 'empty': {}}");
  EXPECT_EQ(to_json(record),
            R"({"none": null, "yes": true, "no": false, "int": -7, "size": 9, "float": 0.5, "nan": null, "text": "a", )"
            R"("list": [1.0, 2.5], "inner": {"x": 1}, "empty": {}})");
  EXPECT_EQ(to_python(Record::object()), "{}");
  EXPECT_EQ(to_json(Record::object()), "{}");
}

TEST(Record, QuotesAndEscapesTexts) {
  EXPECT_EQ(to_python({{"k", "it's"}}), R"({'k': "it's"})");
  EXPECT_EQ(to_python({{"k", "it's \"so\""}}), R"({'k': 'it\'s "so"'})");
  EXPECT_EQ(to_python({{"k", "a\\b\n\r\t\x01\x7f é"}}), R"({'k': 'a\\b\n\r\t\x01\x7f é'})");
  EXPECT_EQ(to_json({{"k\"", "a\\b\n\x01 é"}}), R"({"k\"": "a\\b\n\u0001 é"})");
  EXPECT_EQ(to_json({{"k", "\xff"}}), "{\"k\": \"\xEF\xBF\xBD\"}");  // U+FFFD
}

TEST(Record, PrettyJsonKeepsPlainListsOnOneLine) {
  const Record record{{"f1", 0.9},
                      {"loss", std::vector<double>{4.9, 1}},
                      {"none", std::vector<double>{}},
                      {"inner", Record{{"x", 1}, {"y", Record::object()}}},
                      {"rows", std::vector<Record>{{{"a", 1}}, {{"a", 2}}}}};
  EXPECT_EQ(to_pretty_json(record),
            "{\n"
            "  \"f1\": 0.9,\n"
            "  \"loss\": [4.9, 1.0],\n"
            "  \"none\": [],\n"
            "  \"inner\": {\n"
            "    \"x\": 1,\n"
            "    \"y\": {}\n"
            "  },\n"
            "  \"rows\": [\n"
            "    {\n"
            "      \"a\": 1\n"
            "    },\n"
            "    {\n"
            "      \"a\": 2\n"
            "    }\n"
            "  ]\n"
            "}");
}

TEST(Record, ReadsBackItsJsonByteForByte) {
  const Record record{{"z", 1e-05}, {"a", 4.0},     {"n", 4},
                      {"t", "é\n"}, {"b", nullptr}, {"l", std::vector<Record>{1, 1.0, "x", Record{{"y", -0.0}}}}};
  const std::string json = to_json(record);
  EXPECT_EQ(record_from_json(json, "here"), record);
  EXPECT_EQ(to_json(record_from_json(json, "here")), json);
  EXPECT_EQ(record_from_json(to_pretty_json(record), "here"), record);
  EXPECT_EQ(to_json(record_from_json("{\"big\": 18446744073709551615}", "here")), "{\"big\": 18446744073709551615}");
}

TEST(Record, RefusesTextsThatAreNotJsonObjects) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      record_from_json(text, "m.jsonl:3");
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("[1]"), "m.jsonl:3: expected a JSON object, found array");
  EXPECT_TRUE(message("{\"a\": ").starts_with("m.jsonl:3:1:7: not valid JSON: ")) << message("{\"a\": ");
}

}  // namespace
}  // namespace tessera
