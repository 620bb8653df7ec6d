#include "tessera/api/data_rows.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/api/call.h"
#include "tessera/data/row_reader.h"
#include "tessera/load/encoded_rows.h"

namespace tessera::v0 {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  return list;
}

// Adds a row to the reader, which takes bytes of any kind: invalid UTF-8 makes a bad row.
struct AddRow {
  RowReader& reader;
  const std::string& where;

  void operator()(const Row::Text& row) const { add({{"text", row.text}}, {&row.text}); }
  void operator()(const Row::Completion& row) const {
    add({{"prompt", row.prompt}, {"completion", row.completion}}, {&row.prompt, &row.completion});
  }
  void operator()(const Row::Conversation& row) const {
    std::vector<const std::string*> texts;
    for (const Message& message : row.messages) texts.insert(texts.end(), {&message.role, &message.content});
    add({{"messages", json_of(row.messages)}}, texts);
  }
  void operator()(const Row::Json& row) const {
    if (has_byte_fault({&row.text})) return;
    Json json = Json::parse(row.text, nullptr, false);
    if (!json.is_object())
      return reader.add_bad(where, "the text is not a JSON object", "Give one JSON object per row");
    reader.add_row(json, where);
  }
  void operator()(const Row::Tokens&) const {}

 private:
  void add(const Json& json, const std::vector<const std::string*>& texts) const {
    if (!has_byte_fault(texts)) reader.add_row(json, where);
  }
  bool has_byte_fault(const std::vector<const std::string*>& texts) const {
    for (const std::string* text : texts) {
      const ByteFault fault = byte_fault_of(*text);
      if (fault.what.empty()) continue;
      reader.add_bad(where, fault.what, "Give texts in UTF-8");
      return true;
    }
    return false;
  }
};

}  // namespace

ExampleRows read_rows(Rows rows, const std::string& name, const Settings& settings) {
  const RowOptions options = row_options(settings);
  ExampleRows all;
  const auto next = [&] { return call_back([&] { return rows.next(); }); };
  int64_t number = 0;
  for (std::optional<Row> row = next(); row; row = next(), ++number) {
    const std::string where = fmt::format("{}[{}]", name, number);
    if (const auto* tokens = std::get_if<Row::Tokens>(&row->content())) {
      all.examples.push_back(
          {.place = where, .id = "", .content = TokenRow{tokens->ids, tokens->has_loss}, .number = number});
      continue;
    }
    RowReader reader(name, size_t{1} << 30, options);
    std::visit(AddRow{reader, where}, row->content());
    ExampleRows read = reader.take_some();
    for (Example& example : read.examples) {
      example.number = number;
      all.examples.push_back(std::move(example));
    }
    for (BadRow& bad : read.bad) all.bad.push_back(std::move(bad));
  }
  return all;
}

Example prompt_example(const std::string& text) {
  Example example;
  example.content = PlainText{text};
  return example;
}

Example conversation_example(const std::vector<Message>& messages) {
  Example example;
  example.content = tessera::Conversation{.messages = json_of(messages), .tools = {}, .variables = {}};
  return example;
}

}  // namespace tessera::v0
