/// @file
/// Options: the names and values of the settings of the program `tessera`.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/export.h>

TESSERA_BEGIN_NAMESPACE

/// The value of an option, with the types of a TOML file.
class OptionValue {
 public:
  using Variant = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

  OptionValue(bool value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) OptionValue(T value) : value_(static_cast<std::int64_t>(value)) {}
  template <std::floating_point T>
  OptionValue(T value) : value_(static_cast<double>(value)) {}
  OptionValue(const char* value) : value_(std::string(value)) {}
  OptionValue(std::string_view value) : value_(std::string(value)) {}
  OptionValue(std::string value) : value_(std::move(value)) {}
  OptionValue(std::vector<std::string> value) : value_(std::move(value)) {}
  OptionValue(std::initializer_list<std::string_view> value)
      : value_(std::vector<std::string>(value.begin(), value.end())) {}

  const Variant& variant() const { return value_; }

 private:
  Variant value_;
};

/// Options by name, in the order in which a program set them. A name has dashes or underscores, and may be an alias:
/// "learning-rate", "learning_rate" and "lr" are the same option. `tessera train --help all` lists all options with
/// their ranges and defaults. Names and values are checked when a function takes the options, with the errors that
/// the same line in a TOML file would have. If a name occurs twice, its last value counts.
///
///     tessera::Options options{{"model", "models/bloom-560m"}, {"learning-rate", 1e-4}, {"max-steps", 100}};
///     options.set("dataset", {"a.jsonl", "b.jsonl"});
class Options {
 public:
  struct Entry {
    std::string name;
    OptionValue value;
  };

  Options() = default;
  Options(std::initializer_list<Entry> entries) : entries_(entries) {}

  Options& set(std::string name, OptionValue value) {
    entries_.push_back({std::move(name), std::move(value)});
    return *this;
  }
  /// Adds all options of `other`. They override the options so far.
  Options& add(const Options& other) {
    entries_.insert(entries_.end(), other.entries_.begin(), other.entries_.end());
    if (!other.config_file_.empty()) config_file_ = other.config_file_;
    return *this;
  }
  /// Reads a configuration file of `tessera`, such as recipes/quickstart/finetune.toml, when a function takes the
  /// options. Options override the lines of the file.
  Options& config_file(std::string path) {
    config_file_ = std::move(path);
    return *this;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& config_file() const { return config_file_; }

 private:
  std::vector<Entry> entries_;
  std::string config_file_;
};

TESSERA_END_NAMESPACE
