#include "tessera/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/git_lfs.h"

namespace tessera {

namespace {

// A JSON text, and the number of its first line.
struct Source {
  std::string_view text;
  int64_t first_line;

  // Throws the fault for a parser that has read `num_bytes` bytes of the text. The last of these bytes is wrong.
  [[noreturn]] void fail(size_t num_bytes, std::string_view what) const {
    const std::string_view before = text.substr(0, std::max<size_t>(1, num_bytes) - 1);
    const auto line = first_line + std::count(before.begin(), before.end(), '\n');
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // on the first line, npos + 1 is 0
    const bool is_cut = text.empty() || what.find("unexpected end of input") != what.npos ||
                        what.find("missing closing quote") != what.npos;
    std::string reason = fmt::format("not valid JSON: {}", what);
    for (const char* word : {"NaN", "-Infinity", "Infinity"}) {
      const std::string_view name(word);
      // The parser stops at the first letter, so a minus sign is one byte earlier.
      const size_t begin = before.size() - std::min(before.size(), size_t{name[0] == '-'});
      if (!text.substr(begin).starts_with(name)) continue;
      reason += fmt::format(". JSON has no {}: write null", name);
      break;  // -Infinity contains Infinity
    }
    throw JsonFault{line, static_cast<int64_t>(column), std::move(reason), is_cut};
  }
};

// The message of nlohmann::json without its error code and position. It is cut to about 240 bytes, because it may quote
// a large part of the file.
std::string reason_of(std::string_view message) {
  if (const size_t code = message.find("] "); code != message.npos) message.remove_prefix(code + 2);
  if (message.starts_with("parse error at ")) message.remove_prefix(message.find(": ") + 2);
  return printable(message, 240);
}

// Builds the result from the events of nlohmann::json's parser. Replaces the library's own class for this purpose,
// because Builder also rejects deep nesting and duplicate keys.
template <typename Json>
class Builder {
 public:
  explicit Builder(const Source& source) : source_(source) {}
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename Json::binary_t&) { return false; }  // not part of JSON
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    auto& object = open_.back()->template get_ref<typename Json::object_t&>();
    if constexpr (kOrdered) {  // emplace() would compare every key; end_object() finds duplicates faster
      at_ = &object.emplace_back(name, nullptr).second;
    } else {
      const auto [at, is_new] = object.emplace(name, nullptr);
      if (!is_new) refuse_key(name);
      at_ = &at->second;
    }
    return true;
  }
  bool end_object() {
    if constexpr (kOrdered) {
      std::vector<std::string_view> names;
      for (const auto& [name, value] : open_.back()->template get_ref<typename Json::object_t&>())
        names.push_back(name);
      std::sort(names.begin(), names.end());
      const auto twice = std::adjacent_find(names.begin(), names.end());
      if (twice != names.end()) refuse_key(*twice);
    }
    return end_array();
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t num_bytes, const std::string&, const nlohmann::detail::exception& error) {
    source_.fail(num_bytes, reason_of(error.what()));
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  bool put(Json value) {
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      at_ = &open_.back()->back();
    }
    *at_ = std::move(value);
    return true;
  }
  bool open(Json container) {
    constexpr size_t kDeepest = 64;
    if (open_.size() == kDeepest) {
      throw JsonFault{.what = fmt::format("is nested deeper than {} levels", kDeepest)};
    }
    put(std::move(container));
    open_.push_back(at_);
    return true;
  }
  [[noreturn]] void refuse_key(std::string_view name) const {
    throw JsonFault{.what = fmt::format("has the key \"{}\" twice in one object", printable(name))};
  }

  const Source& source_;
  Json root_;
  Json* at_ = &root_;        // the place for the next value, unless this value belongs to an array
  std::vector<Json*> open_;  // the arrays and objects that are not complete yet, each inside the previous one
};

template <typename Json>
Json parsed(std::string_view text, int64_t first_line) {
  const Source source{text, first_line};
  // nlohmann::json would treat a zero byte as the end of the text.
  if (const size_t zero = text.find('\0'); zero != text.npos) source.fail(zero + 1, "it contains a zero byte");
  Builder<Json> builder(source);
  Json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace

template <typename Json>
Json parse_json(std::string_view text, const std::string& where, const std::string& remedy, int64_t first_line) {
  if (is_lfs_pointer(text)) throw_lfs_pointer(where);
  try {
    return parsed<Json>(text, first_line);
  } catch (const JsonFault& fault) {
    throw InputError(fault.line > 0 ? fmt::format("{}:{}:{}", where, fault.line, fault.column) : where, fault.what,
                     fault.is_cut ? "The file seems to be cut short: fetch or write it again" : remedy);
  }
}

template <typename Json>
Json parse_json_or_fault(std::string_view text, int64_t first_line) {
  return parsed<Json>(text, first_line);
}

template nlohmann::json parse_json(std::string_view, const std::string&, const std::string&, int64_t);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const std::string&, int64_t);
template nlohmann::ordered_json parse_json_or_fault(std::string_view, int64_t);

}  // namespace tessera
