// Faulty rows among valid rows: each faulty row is reported with its place, and no valid row is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/data/examples.h"
#include "tessera/data/json_pieces.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::string_literals;

// Numbers that depend only on the seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed) {}
  size_t below(size_t n) { return generator_() % n; }
  template <typename T>
  const T& of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937_64 generator_;
};

std::string good_row(Draw& draw, size_t number) {
  const std::string n = std::to_string(number);
  return draw.of<std::string>({"{\"text\": \"good " + n + "\"}", "{\"id\": " + n + ", \"text\": \"a } ] , \\\" [ {\"}",
                               "{\"question\": \"q\", \"answer\": \"" + n + "\"}",
                               "{\"prompt\": \"p\", \"completion\": \"\\ud83d\\ude00 é\", \"x\": {\"y\": [1, {}, []]}}",
                               "{\"context\": \"c d\", \"question\": \"q\", \"answers\": {\"text\": [\"d\"]}}"});
}

// Rows with invalid values. Their brackets, commas and quotes are correct, so they are also bad rows in an array.
const std::vector<std::string>& rows_with_bad_values() {
  static const std::vector<std::string> rows = {
      R"({"text": "a", "score": NaN})",
      R"({"text": "a", "score": -Infinity})",
      R"({"text": "a", "score": Infinity})",
      R"({"text": "a", "score": 1e999})",
      R"({"text": "a", "score": 01})",
      R"({"text": "a", "score": +1})",
      R"({"text": "a", "score": 1.})",
      R"({"text": "a", "score": None})",
      R"({"text": "a", "score": undefined})",
      R"({"text": "half \ud83d"})",
      R"({"text": "other half \ude00"})",
      R"({"text": "\ud83d\ud83d"})",
      R"({"text": "\u12"})",
      R"({"text": "\x"})",
      R"({"te\q": "a"})",
      R"({"text": "a", "text": "b"})",
      R"({"text": "a", "x": {"y": 1, "y": 2}})",
      "{\"text\": \"a\", \"x\": " + std::string(70, '[') + std::string(70, ']') + "}",
      "{\"text\": \"a\", \"x\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      "{\"text\": \"a\xFF\"}",
      "{\"text\": \"\xC3\"}",
      "{\"text\": \"\xED\xA0\x80\"}",
      "{\"text\": \"\xF8\x88\x80\x80\x80\"}",
      "{\"text\": \"a\tb\"}",
      "{\"text\": \"a\0b\"}"s,
      "{\"text\": null}",
      "{\"text\": 3}",
      "{\"txt\": \"a\"}",
      "{}",
      "[]",
      "[\"text\"]",
      "\"text\"",
      "null",
      "5",
      R"({"question": "q"})",
      R"({"prompt": "q"})",
      R"({"context": "a", "question": "q", "answers": {"text": ["b"], "answer_start": [0]}})",
  };
  return rows;
}

// Lines of JSONL that are no value at all.
const std::vector<std::string>& broken_lines() {
  static const std::vector<std::string> lines = {
      R"({"text": "a"},)",
      R"({"text": "a"}{"text": "b"})",
      R"({"text": "a"} x)",
      R"({'text': 'a'})",
      R"({text: "a"})",
      R"({"text": "a",})",
      R"({"text" "a"})",
      R"({"text": "a"})"
      "\0\0"s,
      R"("text": "a"})",
      R"(text,label)",
      "# a comment",
      "<html>",
      std::string(5000, '\0'),
      std::string(100'000, '['),
      "\xEF\xBB\xBF{\"text\": ",
      "{",
      "}",
      R"({"text": "a" "b"})",
      R"({"text": "a"]})",
      R"({"text": tru})",
  };
  return lines;
}

struct Expected {
  std::string content{};
  std::vector<std::string> bad_places{};
  size_t num_good = 0;
};

void check(const Expected& expected, const std::string& path) {
  const ExampleRows rows = rows_from_text(expected.content, path);
  EXPECT_EQ(rows.examples.size(), expected.num_good);
  ASSERT_EQ(rows.bad.size(), expected.bad_places.size());
  for (size_t i = 0; i < rows.bad.size(); ++i) {
    const std::string& place = rows.bad[i].place;
    const size_t end = expected.bad_places[i].size();
    EXPECT_TRUE(place.starts_with(expected.bad_places[i]) &&
                (end == place.size() || place[end] == ':' || place[end] == '.'))
        << place << " is not in " << expected.bad_places[i];
    EXPECT_NE(rows.bad[i].what, "");
    EXPECT_NE(rows.bad[i].remedy, "");
  }
}

TEST(RowReader, EveryFaultyLineIsSkipped) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    Expected expected;
    const std::string end = draw.of<std::string>({"\n", "\r\n"});
    const size_t num_lines = 6 + draw.below(20);
    size_t num_broken = 0;
    for (size_t line = 1; line <= num_lines; ++line) {
      const size_t kind = draw.below(8);
      std::string row;
      if (kind == 0 && num_broken < 2) {  // with few rows and many broken lines, nobody could recognize JSONL
        row = draw.of(rows_with_bad_values());
      } else if (kind == 1 && num_broken < 2) {
        row = draw.of(broken_lines());
      } else if (kind == 2 && num_broken < 2) {  // cut short: at any byte, but not before the first one
        row = good_row(draw, line);
        row.resize(1 + draw.below(row.size() - 1));
      } else if (kind == 3) {
        expected.content += draw.of<std::string>({"", "  ", "\t"}) + end;
        continue;
      } else {
        expected.content += good_row(draw, line) + end;
        ++expected.num_good;
        continue;
      }
      ++num_broken;
      expected.bad_places.push_back("rows.jsonl:" + std::to_string(line));
      expected.content += row + end;
    }
    if (expected.num_good < 4) continue;
    if (draw.below(3) == 0) expected.content.resize(expected.content.size() - end.size());
    check(expected, "rows.jsonl");
  }
}

TEST(RowReader, EveryKindIsSkippedAtEveryPlace) {
  std::vector<std::string> all = rows_with_bad_values();
  all.insert(all.end(), broken_lines().begin(), broken_lines().end());
  for (const std::string& bad : all) {
    SCOPED_TRACE(bad.substr(0, 100));
    for (size_t at = 1; at <= 4; ++at) {
      Expected expected{.bad_places = {"f.json:" + std::to_string(at)}, .num_good = 3};
      for (size_t line = 1; line <= 4; ++line) {
        expected.content += (line == at ? bad : "{\"text\": \"good\"}") + "\n";
      }
      check(expected, "f.json");
    }
  }
}

TEST(RowReader, FaultyValuesInAnArrayAreSkipped) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const bool below_data = draw.below(2) == 0;
    const std::string separator = draw.of<std::string>({",", ", ", ",\n", "\n  ,"});
    Expected expected{.content = below_data ? "{\"version\": [1], \"data\": [" : "["};
    const size_t num_rows = 1 + draw.below(12);
    for (size_t i = 0; i < num_rows; ++i) {
      const bool is_bad = draw.below(3) == 0;
      expected.content += (i > 0 ? separator : "") + (is_bad ? draw.of(rows_with_bad_values()) : good_row(draw, i));
      if (is_bad) {
        expected.bad_places.push_back("f.json: "s + (below_data ? "data[" : "[") + std::to_string(i) + "]");
      } else {
        ++expected.num_good;
      }
    }
    expected.content += below_data ? "], \"license\": \"none\"}\n" : "]";
    check(expected, "f.json");
  }
}

TEST(RowReader, AFaultyQuestionDoesNotHideItsArticle) {
  const std::string good = R"({"question": "q", "answers": [{"text": "c", "answer_start": 0}]})";
  for (const std::string bad :
       {R"({"question": "half \ud83d", "answers": []})", R"({"question": "q", "question": "r"})",
        R"({"question": "q", "answers": [], "x": NaN})", "{\"question\": \"\xFF\"}", "3"}) {
    SCOPED_TRACE(bad);
    check({.content = R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [)" + good +
                      ", " + bad + ", " + good + R"(]}, {"context": "c", "qas": [)" + good + "]}]}]}",
           .bad_places = {"f.json: data[0].paragraphs[0].qas[1]"},
           .num_good = 3},
          "f.json");
  }
  // A fault outside of the questions makes the paragraph or the article bad.
  const std::string questions = R"("qas": [)" + good + ", " + good + "]";
  check({.content = R"({"data": [{"title": "\ud83d", "paragraphs": [{"context": "c", )" + questions + R"(}]},
                                 {"paragraphs": [{"context": "\ud83d", )" +
                    questions + R"(}, {"context": "c", )" + questions + "}]}]}",
         .bad_places = {"f.json: data[0]", "f.json: data[1].paragraphs[0]"},
         .num_good = 2},
        "f.json");
}

// A bad paragraph or article counts as all its questions, so that --max-bad-rows limits what is lost.
TEST(RowReader, BadPartsCountAsTheirQuestions) {
  const auto questions = [](size_t count) {
    std::string list;
    for (size_t i = 0; i < count; ++i) list += (i > 0 ? ", " : "") + R"({"question": "q", "answers": []})"s;
    return "\"qas\": [" + list + "]";
  };
  const std::string good = "{\"context\": \"c\", " + questions(2) + "}";
  const std::vector<std::pair<std::string, int64_t>> paragraphs = {
      {"{" + questions(5) + "}", 5},
      {"{\"context\": 3, " + questions(5) + "}", 5},
      {"{\"context\": NaN, " + questions(5) + "}", 5},
      {"{\"context\": \"\\ud83d\", " + questions(1) + "}", 1},
      {"{\"context\": \"\xFF\", " + questions(0) + "}", 1},
      {"{\"x\": NaN, " + questions(7) + "}", 7},
      {R"({"context": "c"})", 1},
      {R"({"context": "c", "qas": {}})", 1},
      {R"({"context": "c", "qas": NaN})", 1},
      {"NaN", 1},
      {"[]", 1},
  };
  std::vector<std::pair<std::string, int64_t>> articles = {
      {R"({"title": NaN, "paragraphs": [)" + good + ", 3, {" + questions(4) + "}, " + good + "]}", 8},
      {R"({"paragraphs": [)" + good + R"(], "paragraphs": 3})", 2},
      {R"({"title": "\ud83d", "paragraphs": []})", 1},
      {R"({"title": NaN})", 1},
      {R"({"paragraphs": {}})", 1},
      {"{" + questions(3) + "}", 3},  // a paragraph where an article or a row belongs
  };
  for (const auto& [paragraph, count] : paragraphs)
    articles.push_back({"{\"paragraphs\": [" + paragraph + "]}", count});
  const std::string good_article = "{\"paragraphs\": [" + good + "]}";
  for (const auto& [article, count] : articles) {
    for (const std::string& content :
         {"{\"data\": [" + good_article + ", " + article + "]}", "[" + article + ",\n" + good_article + "]",
          good_article + "\n" + article + "\n"}) {
      SCOPED_TRACE(content);
      const ExampleRows rows = rows_from_text(content, "f.json");
      EXPECT_EQ(rows.examples.size(), 2u);
      ASSERT_EQ(rows.bad.size(), 1u);
      EXPECT_EQ(rows.bad[0].num_rows, count);
      EXPECT_EQ(rows.bad[0].what.ends_with(" (" + std::to_string(count) + " questions)"), count > 1);
    }
  }
  // A file may also be a single article.
  const ExampleRows rows = rows_from_text("{\"paragraphs\": [" + good + ", " + paragraphs[2].first + "]}", "f.json");
  EXPECT_EQ(rows.examples.at(1).place, "f.json: paragraphs[0].qas[1]");
  ASSERT_EQ(rows.bad.size(), 1u);
  EXPECT_EQ(rows.bad[0].num_rows, 5);
  EXPECT_EQ(rows.bad[0].place, "f.json: paragraphs[1]");
}

// The line and the column of a fault are the place in the file, wherever its row begins.
TEST(RowReader, PlacesAreInTheFile) {
  const std::vector<std::string> bad_rows = {R"({"text": "a", "x":@})", R"({"text":"@"})", R"({"te@xt": "a"})",
                                             "{\n \"text\": @}", "{\"x\": [1,\n2], \"text\":\n@\n}"};
  // `@` is the place of a row.
  const std::vector<std::string> files = {
      "[@, ]",
      "[\n @\n, ]",
      R"({"version": 1, "data": [@, ]})",
      "{\"data\":\n[@\n, ]}",
      R"({"data": [{"title": @, "paragraphs": []}, ]})",
      R"({"data": [{"paragraphs": [{"context": "c", "qas": []}, {"context": @, "qas": []}]}, ]})",
      "{\"data\": [{\"paragraphs\": [{\"context\": \"c\",\n\"qas\": [3, @]}]}, ]}",
      R"({"paragraphs": [{"context": "c", "qas": [{"question": "q", "answers": []}, @]}]})",
      "{\"text\": \"b\"}\n{\"paragraphs\": [{\"context\": \"c\", \"qas\": [@]}]}\n",
      "\xEF\xBB\xBF{\"text\": \"b\"}\n\n  @\n",
  };
  for (const std::string& file : files) {
    for (const std::string& row : bad_rows) {
      for (const std::string fault : {"NaN", "\xFF", "\t"}) {
        const bool in_string = row.find("\"@") != row.npos || row.find("te@") != row.npos;
        const bool is_line = file.ends_with('\n');
        if (in_string == (fault == "NaN") || (is_line && row.find('\n') != row.npos)) continue;
        std::string content = file;
        content.replace(content.find('@'), 1, row);
        const size_t at = content.find('@');
        content.replace(at, 1, fault);
        if (const size_t place = content.find(", ]"); place != content.npos)
          content.insert(place + 1, "{\"text\": \"b\"}");
        SCOPED_TRACE(content);
        const size_t begin = content.starts_with('\xEF') ? 3 : 0;  // a byte order mark does not count
        const std::string before = content.substr(begin, at - begin);
        const auto line = std::to_string(1 + std::count(before.begin(), before.end(), '\n'));
        const auto column = std::to_string(before.size() - (before.rfind('\n') + 1) + 1);
        const ExampleRows rows = rows_from_text(content, "f.json");
        ASSERT_FALSE(rows.bad.empty());
        const BadRow& bad = rows.bad.back();
        EXPECT_THAT(bad.place + ": " + bad.what,
                    ::testing::AnyOf(HasSubstr("(line " + line + ", column " + column + ")"),
                                     StartsWith("f.json:" + line + ":" + column + ": ")));
      }
    }
  }
}

// If the structure of an array is wrong, no row may be taken for another one: the file is refused, with the place.
TEST(RowReader, ABrokenArrayIsRefused) {
  const std::string good = "{\"text\": \"good\"}";
  for (const std::string bad : {R"({"text": "a"b"})", R"({"text": "a)", R"({"text": "a"]})", R"({"text" "a"})", "{",
                                "}", R"({"text": "a",})", "", R"({'text': 'a'})", R"({"text": "a"} {"text": "b"})"}) {
    for (const auto& [begin, end] : {std::pair{"[", "]"}, {"[\n", "\n]\n"}, {"{\"data\": [\n", "]}"}}) {
      const std::string content = begin + good + ",\n" + bad + ",\n" + good + ",\n" + bad + ",\n" + good + end;
      SCOPED_TRACE(content);
      try {
        rows_from_text(content, "f.json");
        ADD_FAILURE() << "accepted";
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), AllOf(StartsWith("f.json:"), HasSubstr(": not valid JSON: ")));
        EXPECT_GE(error.what()[7], '2');  // the line
      }
    }
  }
}

TEST(RowReader, ALineMayBeVeryLong) {
  const std::string text(4'000'000, 'a');
  const std::string line = "{\"text\": \"" + text + "\"}\n";
  const ExampleRows rows = rows_from_text(line + line.substr(0, 2'000'000) + "\n" + line, "f.jsonl");
  ASSERT_EQ(rows.examples.size(), 2u);
  EXPECT_EQ(rows.examples[1].text()->text, text);
  ASSERT_EQ(rows.bad.size(), 1u);
  EXPECT_LT(rows.bad[0].what.size(), 400u);
  // Many bad rows need little memory.
  std::string many = "{\"text\": \"a\"}\n";
  for (int i = 0; i < 3000; ++i) many += "{\"text\": NaN}\n";
  EXPECT_EQ(rows_from_text(many, "f.jsonl").bad.size(), 3000u);
}

// The pieces of valid JSON are its elements and members.
TEST(JsonPieces, EqualTheParsedValues) {
  const std::function<nlohmann::json(Draw&, int)> drawn = [&](Draw& draw, int depth) -> nlohmann::json {
    const size_t kind = draw.below(depth > 0 ? 8 : 6);
    if (kind < 3) return draw.of<std::string>({"", "a\"b\\", "[{,:}]", "é😀\n", "\\"});
    if (kind == 3) return static_cast<double>(draw.below(1000)) * -0.25;
    if (kind == 4) return draw.below(2) == 0 ? nlohmann::json() : nlohmann::json(true);
    if (kind == 5) return draw.below(100);
    nlohmann::json value = kind == 6 ? nlohmann::json::array() : nlohmann::json::object();
    for (size_t i = draw.below(5); i > 0; --i) {
      if (kind == 6) {
        value.push_back(drawn(draw, depth - 1));
      } else {
        value[draw.of<std::string>({"a", "b c", "", "d}", "e:"}) + std::to_string(i)] = drawn(draw, depth - 1);
      }
    }
    return value;
  };
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    nlohmann::json value = drawn(draw, 4);
    while (seed % 4 > 0 && value.size() < 2) value = drawn(draw, 4);
    const std::string text = " " + value.dump(draw.below(2) == 0 ? -1 : 2, ' ', draw.below(2) == 0) + "\n";
    const auto elements = json_elements({text});
    const auto members = json_members({text});
    ASSERT_EQ(elements.has_value(), value.is_array());
    ASSERT_EQ(members.has_value(), value.is_object());
    if (elements) {
      ASSERT_EQ(elements->size(), value.size());
      for (size_t i = 0; i < value.size(); ++i) {
        EXPECT_EQ(nlohmann::json::parse((*elements)[i].text), value[i]);
        const auto before = static_cast<size_t>((*elements)[i].text.data() - text.data());
        EXPECT_EQ((*elements)[i].line,
                  1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(before), '\n'));
        EXPECT_EQ((*elements)[i].column, static_cast<int64_t>(before - (text.substr(0, before).rfind('\n') + 1)) + 1);
      }
    }
    if (members) {
      ASSERT_EQ(members->size(), value.size());
      for (const JsonMember& member : *members) {
        EXPECT_EQ(nlohmann::json::parse(member.value.text), value.at(std::string(member.key)));
      }
    }
    // No part of an array or object is complete.
    if (value.is_structured()) {
      for (size_t size = 0; size + 1 < text.size(); ++size) {
        ASSERT_FALSE(json_elements({std::string_view(text).substr(0, size)}));
        ASSERT_FALSE(json_members({std::string_view(text).substr(0, size)}));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
