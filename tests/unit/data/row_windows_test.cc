// read_row_windows() gives the rows and faults of load_rows(), for every kind of file and every size of windows.
#include "tessera/data/row_windows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera {
namespace {

class RowWindows : public testing::Test {
 protected:
  ~RowWindows() override { std::filesystem::remove_all(folder_); }

  std::string path_of(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(folder_);
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  // Place, kind and text of each row; or the error.
  static std::string text_of(const ExampleRows& rows) {
    std::string text;
    for (const Example& example : rows.examples) {
      text += example.place + " " + std::to_string(example.content.index());
      text += (example.text() ? " " + example.text()->text : "") + "\n";
    }
    for (const BadRow& bad : rows.bad) text += "bad " + bad.place + " " + bad.what + "\n";
    return text;
  }
  template <typename Read>
  static std::string result_of(const Read& read) {
    try {
      return text_of(read());
    } catch (const InputError& error) {
      return error.what();
    }
  }
  void check(const std::string& name, const std::string& content, const RowOptions& options = {}) {
    const std::string path = path_of(name, content);
    const std::string expected = result_of([&] { return load_rows({path}, options); });
    for (const size_t window : {1, 2, 7, 30, 64, 1000, 1 << 20}) {
      SCOPED_TRACE(content + " in windows of " + std::to_string(window));
      EXPECT_EQ(result_of([&] {
                  ExampleRows all;
                  const auto take = [&](ExampleRows rows) {
                    std::ranges::move(rows.examples, std::back_inserter(all.examples));
                    std::ranges::move(rows.bad, std::back_inserter(all.bad));
                  };
                  read_row_windows(path, options, take, window);
                  return all;
                }),
                expected);
    }
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("row_windows_test_" + std::to_string(getpid()));
};

TEST_F(RowWindows, OfJsonl) {
  const std::string a = R"({"text": "one"})", b = R"({"text": "the second row"})";
  check("a.jsonl", a + "\n" + b + "\n");
  check("a.jsonl", a + "\n" + b);
  check("a.jsonl", "\n\n" + a + "\r\n\n" + b + "\r\n");
  check("a.jsonl", "\xEF\xBB\xBF" + a + "\n" + b + "\n");
  check("a.jsonl", a + "\n{\"text\": \n" + b + "\nno JSON\n" + a);
  check("a.jsonl", a + "\n{\"text\": \"\xFF\"}\n" + b);
  check("a.jsonl", a);
  check("a.jsonl", "faulty\n" + a + "\n" + b + "\n");
  check("a.jsonl", "");
  check("a.jsonl", " \n ");
}

TEST_F(RowWindows, OfOtherFiles) {
  check("a.json", R"([{"text": "one"}, {"text": "two"}])");
  check("a.json", "{\n \"data\": [\n {\"text\": \"one\"},\n {\"text\": \"two\"}]}\n");
  check("a.json", "[{\"text\": \"one\"},\n{\"text\": \"two\"}");
  for (const TextRows rows : {TextRows::line, TextRows::file}) {
    check("a.txt", "one\n\ntwo \r\nthree", {.text_rows = rows});
    check("a.txt", "one\n\xFF\nthree\n", {.text_rows = rows});
    check("a.txt", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n", {.text_rows = rows});
    check("a.txt", "[one] line\nand another\n", {.text_rows = rows});
    check("a.txt", "one\ntwo\n", {.text_rows = rows, .kind = RowKind::messages});
    check("a.txt", "\n\n", {.text_rows = rows});
  }
}

}  // namespace
}  // namespace tessera
