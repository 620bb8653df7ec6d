// Records: ordered keys with values, for lines on the screen, metrics.jsonl and summary.json.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {

class Value;
struct Field;

// Keys with values in the order of their insertion, as in a Python dict.
class Record {
 public:
  // Defaulted below, where Field is complete.
  Record() noexcept;
  Record(const Record& other);
  Record(Record&& other) noexcept;
  Record& operator=(const Record& other);
  Record& operator=(Record&& other) noexcept;
  ~Record();

  Record(std::initializer_list<Field> fields);  // a repeated key replaces the earlier value

  Record& set(std::string_view key, Value value);  // appends the key, or replaces its value in place
  Record& append(std::string key, Value value);    // the key must be new; it is not checked
  Record& merge(const Record& other);              // set() for every field of the other
  bool erase(std::string_view key);                // true: the key existed
  const Value* find(std::string_view key) const;   // null: no such key; valid until the record changes
  const std::vector<Field>& fields() const { return fields_; }
  bool empty() const { return fields_.empty(); }
  bool operator==(const Record& other) const;

 private:
  std::vector<Field> fields_;
};

// null, a Boolean, a number, a text (UTF-8), a list, or a nested record.
class Value {
 public:
  using Data = std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::vector<Value>, Record>;

  Value(std::nullptr_t = nullptr) {}
  Value(bool value) : data_(value) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(Record record) : data_(std::move(record)) {}
  Value(std::vector<Value> list) : data_(std::move(list)) {}
  template <std::floating_point T>
  Value(T value) : data_(static_cast<double>(value)) {}
  template <std::integral T>
  Value(T value) : data_(static_cast<int64_t>(value)) {
    TESSERA_ASSERT(std::in_range<int64_t>(value));
  }
  template <typename T>
  Value(const std::vector<T>& list) : data_(std::vector<Value>(list.begin(), list.end())) {}

  const Data& data() const { return data_; }
  // The value as T (bool, int64_t, double, std::string, std::vector<Value>, Record), or null if it has another type.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  bool operator==(const Value&) const = default;

 private:
  Data data_ = nullptr;
};

struct Field {
  std::string key;
  Value value;
  bool operator==(const Field&) const = default;
};

inline Record::Record() noexcept = default;
inline Record::Record(const Record&) = default;
inline Record::Record(Record&&) noexcept = default;
inline Record& Record::operator=(const Record&) = default;
inline Record& Record::operator=(Record&&) noexcept = default;
inline Record::~Record() = default;

// A double in the form of Python's repr(): the shortest text that reads back as the same number; 4.0, 1e-05, 1e+16,
// nan.
std::string python_repr(double value);

// Python's round(value, decimals): the decimal number nearest to the exact value, ties to the even digit.
double round_decimals(double value, int decimals);

// One line in the form of a printed Python dict: {'loss': 4.895, 'done': True}.
std::string to_python(const Record& record);

// One line of JSON: {"loss": 4.895, "done": true}. Numbers as in python_repr(), so every double reads back unchanged.
// JSON has no NaN and no infinities: they become null. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Record& record);

// The same on several lines, indented by two spaces. Lists of plain values stay on one line. No newline at the end.
std::string to_pretty_json(const Record& record);

// Reads the output of to_json(), or any JSON object. InputError for any other text; it starts with `where` (the file
// and line).
Record record_from_json(std::string_view text, const std::string& where);

}  // namespace tessera
