#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/jinja/builtins.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

using Names = std::vector<std::string_view>;

const Names kTextMethods = {
    "capitalize", "center",  "count",     "endswith",   "find",      "format",       "index",        "isalnum",
    "isalpha",    "isascii", "isdecimal", "isdigit",    "islower",   "isprintable",  "isspace",      "isupper",
    "join",       "ljust",   "lower",     "lstrip",     "partition", "removeprefix", "removesuffix", "replace",
    "rfind",      "rindex",  "rjust",     "rpartition", "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith", "strip",   "title",     "upper",      "zfill"};
// Python has these methods and attributes of texts and numbers, and Tessera does not.
const Names kUnsupportedTextMethods = {"casefold",  "encode",  "expandtabs", "format_map", "isidentifier",
                                       "isnumeric", "istitle", "maketrans",  "swapcase",   "translate"};
const Names kNumberAttributes = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                 "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
                                 "numerator",        "real",      "to_bytes"};
const Names kDictMethods = {"copy", "fromkeys", "get", "items", "keys", "values"};
const Names kListMethods = {"copy", "count", "index"};
const Names kTupleMethods = {"count", "index"};
// The sandbox of jinja2 refuses methods that change a value.
const Names kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
const Names kListChanges = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};

bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const std::string& need_text(const Value& value, std::string_view method) {
  if (!value.is_text()) throw Fault{std::string(method) + "() needs a text, not " + type_name(value)};
  return value.text();
}
std::optional<std::string_view> optional_text(const Value& value, std::string_view method) {
  if (value.is_missing() || value.is(Kind::none)) return std::nullopt;
  return need_text(value, method);
}
int64_t optional_index(const Value& value, int64_t otherwise) {
  return value.is_missing() || value.is(Kind::none) ? otherwise : as_index(value);
}

// The byte offset of the code point `index` ≥ 0, at most the size.
size_t offset_of(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += size_at(text, at);
  return at;
}

// The part of a text that find(), count() and startswith() search: from `start` to `end` as Python's slices. Missing if
// `start` is behind the end.
struct Part {
  std::string_view text;
  int64_t start = 0;
  bool is_valid = true;
};
Part part_of(std::string_view whole, const Value& start, const Value& end) {
  const auto size = static_cast<int64_t>(code_points(whole));
  int64_t from = optional_index(start, 0), to = std::min(optional_index(end, size), size);
  if (to < 0) to = std::max<int64_t>(to + size, 0);
  if (from < 0) from = std::max<int64_t>(from + size, 0);
  if (from > to) return {{}, from, false};
  const size_t begin = offset_of(whole, from);
  return {whole.substr(begin, offset_of(whole.substr(begin), to - from)), from};
}

Value texts(Meter& meter, Kind kind, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string_view part : parts) out.push_back(text(meter, std::string(part)));
  return sequence(meter, kind, std::move(out));
}

// str.startswith and str.endswith
bool is_at_end(const std::string& self, const Arguments& arguments, bool at_start, const std::string& name) {
  const auto [wanted, start, end] = arguments.take(name, std::array{"", "", ""}, 1);
  const Part part = part_of(self, start, end);
  const auto fits = [&](const Value& value) {
    const std::string& other = need_text(value, name);
    return part.is_valid && (at_start ? part.text.starts_with(other) : part.text.ends_with(other));
  };
  if (wanted.is(Kind::tuple)) return std::any_of(wanted.items().begin(), wanted.items().end(), fits);
  return fits(wanted);
}

Value padded(Caller& caller, const std::string& self, const std::string& name, const Arguments& arguments) {
  const auto [width_value, fill_value] = arguments.take(name, std::array{"", ""}, 1);
  const std::string fill = fill_value.is_missing() ? " " : need_text(fill_value, name);
  if (code_points(fill) != 1) throw Fault{name + "() needs one character to fill with"};
  const int64_t width = as_index(width_value), total = width - static_cast<int64_t>(code_points(self));
  if (total <= 0) return text(caller.meter, self);
  caller.meter.bytes(static_cast<size_t>(total) * fill.size());
  const int64_t left = name == "ljust" ? 0 : name == "rjust" ? total : total / 2 + (total & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self;
  for (int64_t i = left; i < total; ++i) out += fill;
  return text(caller.meter, std::move(out));
}

Value call_text(Caller& caller, const Value& object, const std::string& name, const Arguments& arguments) {
  Meter& meter = caller.meter;
  const std::string& self = object.text();
  const bool is_markup = object.as<Text>().markup;
  meter.work(self.size() / 16);
  const auto made = [&](std::string content) { return text(meter, std::move(content), is_markup); };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const auto characters = optional_text(arguments.take(name, std::array{""}, 0)[0], name);
    if (characters) meter.work(self.size() * characters->size() / 64);
    const Sides sides = name == "strip" ? Sides::both : name == "lstrip" ? Sides::left : Sides::right;
    return made(std::string(strip(self, characters, sides)));
  }
  if (name == "lower" || name == "upper" || name == "title" || name == "capitalize") {
    arguments.take(name, std::array<const char*, 0>{}, 0);
    meter.work(self.size() / 4);
    return made(name == "lower"   ? lower(self)
                : name == "upper" ? upper(self)
                : name == "title" ? title(self)
                                  : capitalize(self));
  }
  if (name == "startswith" || name == "endswith")
    return boolean(is_at_end(self, arguments, name == "startswith", name));
  if (name.starts_with("is")) {
    arguments.take(name, std::array<const char*, 0>{}, 0);
    meter.work(self.size() / 4);
    if (const auto result = is_all(name, self)) return boolean(*result);
    throw Fault{name + "() of this text is not supported", "Write the template without it"};
  }
  if (is_markup)
    throw Fault{"The method " + name + "() of a text from `safe` or `escape` is not supported", "Remove the filter"};
  if (name == "split" || name == "rsplit") {
    const auto [separator, most] = arguments.take(name, std::array{"sep", "maxsplit"}, 0);
    const auto at = optional_text(separator, name);
    if (at && at->empty()) throw Fault{name + "() has an empty separator"};
    const int64_t limit = most.is_missing() ? -1 : as_index(most);
    return texts(meter, Kind::list, name == "split" ? split(self, at, limit) : split_right(self, at, limit));
  }
  if (name == "splitlines") {
    const Value keep = arguments.take(name, std::array{"keepends"}, 0)[0];
    return texts(meter, Kind::list, split_lines(self, is_true(meter, keep)));
  }
  if (name == "replace") {
    const auto [old, with, most] = arguments.take(name, std::array{"", "", ""}, 2);
    need_text(old, name);
    const size_t found = count(self, old.text());
    meter.bytes(found * need_text(with, name).size());
    return made(replace(self, old.text(), with.text(), most.is_missing() ? -1 : as_index(most)));
  }
  if (name == "join") {
    std::string out;
    bool is_first = true;
    for (const Value& item : list_of(meter, arguments.take(name, std::array{""}, 1)[0])) {
      if (!std::exchange(is_first, false)) out += self;
      out += need_text(item, name);
      meter.bytes(self.size() + item.text().size());
    }
    return made(std::move(out));
  }
  if (name == "format") return made(format_braces(caller, self, arguments));
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count") {
    const auto [wanted, start, end] = arguments.take(name, std::array{"", "", ""}, 1);
    need_text(wanted, name);
    const Part part = part_of(self, start, end);
    if (name == "count") return integer(part.is_valid ? static_cast<int64_t>(count(part.text, wanted.text())) : 0);
    const size_t at = !part.is_valid   ? std::string::npos
                      : name[0] == 'r' ? part.text.rfind(wanted.text())
                                       : part.text.find(wanted.text());
    if (at == std::string::npos) {
      if (name.ends_with("index")) throw Fault{name + "() does not find the text"};
      return integer(-1);
    }
    return integer(part.start + static_cast<int64_t>(code_points(part.text.substr(0, at))));
  }
  if (name == "partition" || name == "rpartition") {
    const Value separator = arguments.take(name, std::array{""}, 1)[0];
    if (need_text(separator, name).empty()) throw Fault{name + "() has an empty separator"};
    const bool is_right = name[0] == 'r';
    const size_t at = is_right ? self.rfind(separator.text()) : self.find(separator.text());
    if (at == std::string::npos) {
      return is_right ? texts(meter, Kind::tuple, {"", "", self}) : texts(meter, Kind::tuple, {self, "", ""});
    }
    const std::string_view view = self;
    return texts(meter, Kind::tuple, {view.substr(0, at), separator.text(), view.substr(at + separator.text().size())});
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Value part = arguments.take(name, std::array{""}, 1)[0];
    const size_t size = need_text(part, name).size();
    if (name == "removeprefix") return made(self.starts_with(part.text()) ? self.substr(size) : self);
    return made(self.ends_with(part.text()) ? self.substr(0, self.size() - size) : self);
  }
  if (name == "ljust" || name == "rjust" || name == "center") return padded(caller, self, name, arguments);
  if (name == "zfill") {
    const int64_t missing =
        as_index(arguments.take(name, std::array{""}, 1)[0]) - static_cast<int64_t>(code_points(self));
    if (missing <= 0) return made(self);
    meter.bytes(static_cast<size_t>(missing));
    const size_t sign = !self.empty() && (self[0] == '+' || self[0] == '-') ? 1 : 0;
    return made(self.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') + self.substr(sign));
  }
  throw Fault{"The method " + name + "() is not supported", "Write the template without it"};
}

Value view(Meter& meter, const char* name, const Dict& dict) {
  auto object = std::make_shared<Items>();
  object->name = name;
  for (const auto& [key, value] : dict.items) {
    object->items.push_back(std::string_view(name) == "dict_keys"     ? key
                            : std::string_view(name) == "dict_values" ? value
                                                                      : sequence(meter, Kind::tuple, {key, value}));
    if (object->items.back().object) object->depth = std::max(object->depth, object->items.back().object->depth + 1);
  }
  meter.bytes(object->items.size() * sizeof(Value));
  return wrap(meter, Kind::view, std::move(object));
}

Value call_dict(Caller& caller, const Value& object, const std::string& name, const Arguments& arguments) {
  const Dict& self = object.as<Dict>();
  if (name == "get") {
    const auto [key, otherwise] = arguments.take(name, std::array{"", ""}, 1);
    const Value* found = find(caller.meter, self, key);
    return found != nullptr ? *found : otherwise.is_missing() ? none() : otherwise;
  }
  arguments.take(name, std::array<const char*, 0>{}, 0);
  if (name == "items") return view(caller.meter, "dict_items", self);
  if (name == "keys") return view(caller.meter, "dict_keys", self);
  if (name == "values") return view(caller.meter, "dict_values", self);
  if (name == "copy") return object;
  throw Fault{"The method " + name + "() is not supported", "Write the template without it"};
}

Value call_list(Caller& caller, const Value& object, const std::string& name, const Arguments& arguments) {
  const auto& items = object.items();
  if (name == "copy") {
    arguments.take(name, std::array<const char*, 0>{}, 0);
    return sequence(caller.meter, object.kind, items);
  }
  const auto size = static_cast<int64_t>(items.size());
  const auto [wanted, start, end] = arguments.take(name, std::array{"", "", ""}, 1);
  if (name == "count") {
    if (!start.is_missing()) throw Fault{"count() of a list takes one argument"};
    int64_t found = 0;
    for (const Value& item : items) found += equal(caller.meter, item, wanted);
    return integer(found);
  }
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t stop = clamp(end.is_missing() ? size : as_index(end));
  for (int64_t i = clamp(start.is_missing() ? 0 : as_index(start)); i < stop; ++i) {
    if (equal(caller.meter, items[static_cast<size_t>(i)], wanted)) return integer(i);
  }
  throw Fault{"index() does not find the value"};
}

Value no_attribute(const Value& object, const std::string& name) {
  return undefined(std::string("A value of type ") + type_name(object) + " has no attribute `" + printable(name) + "`");
}

// The attributes that Python finds on the object itself: methods, and the names of a namespace. Missing otherwise.
Value own_attribute(Caller& caller, const Value& object, const std::string& name) {
  if (object.is(Kind::space)) {
    for (const auto& [other, value] : object.as<Space>().names) {
      if (other == name) return value;
    }
    return {};
  }
  if (object.is(Kind::tuple) && object.as<Items>().is_group && (name == "grouper" || name == "list")) {
    return object.items()[name == "list"];
  }
  if (object.is(Kind::cycler) && name == "current") return object.as<Cycler>().items[object.as<Cycler>().at];
  if (object.is_number() && has(kNumberAttributes, name)) {
    throw Fault{"The attribute `" + name + "` of a number is not supported", "Write the template without it"};
  }
  return find_method(caller, object, name);
}

}  // namespace

void check_defined(const Value& value) {
  if (value.is(Kind::undefined)) throw Fault{value.as<Undefined>().message};
}

bool is_unsupported_method(std::string_view name) {
  return has(kUnsupportedTextMethods, name);
}

Value find_method(Caller& caller, const Value& object, const std::string& name) {
  const bool is_dict = object.is(Kind::dict), is_list = object.is(Kind::list);
  if ((is_dict && has(kDictChanges, name)) || (is_list && has(kListChanges, name))) {
    return undefined("The method " + name + "() would change a " + type_name(object) + ", which templates cannot do");
  }
  const bool exists = (is_dict && has(kDictMethods, name)) || (is_list && has(kListMethods, name)) ||
                      (object.is(Kind::tuple) && has(kTupleMethods, name)) ||
                      (object.is_text() && (has(kTextMethods, name) || has(kUnsupportedTextMethods, name))) ||
                      (object.is(Kind::cycler) && (name == "next" || name == "reset"));
  if (!exists) return {};
  auto method = std::make_shared<Method>();
  method->self = object;
  method->name = name;
  return wrap(caller.meter, Kind::method, std::move(method), {object});
}

Value call_method(Caller& caller, const Method& method, const Arguments& arguments) {
  const Value& self = method.self;
  if (self.is_text()) return call_text(caller, self, method.name, arguments);
  if (self.is(Kind::dict)) return call_dict(caller, self, method.name, arguments);
  if (self.is_sequence()) return call_list(caller, self, method.name, arguments);
  arguments.take(method.name, std::array<const char*, 0>{}, 0);
  auto& cycler = self.as<Cycler>();
  const size_t at = std::exchange(cycler.at, method.name == "next" ? (cycler.at + 1) % cycler.items.size() : 0);
  return method.name == "next" ? cycler.items[at] : none();
}

Value attribute(Caller& caller, const Value& object, const std::string& name) {
  // Python has attributes of such names, but the sandbox hides them.
  const bool is_hidden = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (!is_hidden) check_defined(object);
  Value own = own_attribute(caller, object, name);
  if (!own.is_missing()) return own;
  if (object.is(Kind::dict)) {
    if (const Value* found = find(caller.meter, object.as<Dict>(), text(caller.meter, name))) return *found;
  }
  return no_attribute(object, name);
}

Value subscript(Caller& caller, const Value& object, const Value& key) {
  check_defined(object);
  if (object.is(Kind::dict)) {
    const bool is_key = !key.is(Kind::list) && !key.is(Kind::dict);  // others are not hashable, or no keys
    if (const Value* found = is_key ? find(caller.meter, object.as<Dict>(), key) : nullptr) return *found;
  } else if (key.is_whole()) {
    const int64_t size = object.is(Kind::view) ? -1 : length(caller.meter, object);
    const int64_t at = key.whole() < 0 ? key.whole() + size : key.whole();
    if (at >= 0 && at < size) {
      if (object.is(Kind::range)) return integer(object.as<Range>().start + at * object.as<Range>().step);
      if (!object.is_text()) return object.items()[static_cast<size_t>(at)];
      const size_t begin = offset_of(object.text(), at);
      return text(caller.meter, object.text().substr(begin, size_at(object.text(), begin)), object.as<Text>().markup);
    }
  }
  if (key.is_text()) {
    Value own = own_attribute(caller, object, key.text());
    return own.is_missing() ? no_attribute(object, key.text()) : own;
  }
  return undefined(std::string("A value of type ") + type_name(object) + " has no such element");
}

Value slice(Caller& caller, const Value& object, const Value& start, const Value& stop, const Value& step) {
  check_defined(object);
  const bool is_text = object.is_text();
  if (!is_text && !object.is_sequence() && !object.is(Kind::range)) {
    throw Fault{std::string("A value of type ") + type_name(object) + " has no slices",
                "Apply the filter `list` to it"};
  }
  const int64_t size = length(caller.meter, object);
  const int64_t by = optional_index(step, 1);
  if (by == 0) throw Fault{"The step of a slice is 0"};
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    const int64_t at = as_index(value);
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t from = bound(start, by < 0 ? high : low), to = bound(stop, by < 0 ? low : high);
  if (object.is(Kind::range)) {
    const Range& range = object.as<Range>();
    if (std::abs(by) > 100'000) throw Fault{"The step of a slice of a range is too large"};
    auto part = std::make_shared<Range>();
    part->start = range.start + from * range.step;
    part->stop = range.start + to * range.step;
    part->step = range.step * by;
    return wrap(caller.meter, Kind::range, std::move(part));
  }
  std::vector<size_t> wanted;
  // The remaining distance is compared, because from + by may not fit into 64 bits.
  for (int64_t at = from; by > 0 ? at < to : at > to; at += by) {
    wanted.push_back(static_cast<size_t>(at));
    caller.meter.bytes(sizeof(size_t));
    if (by > 0 ? to - at <= by : by == INT64_MIN || at - to <= -by) break;
  }
  if (!is_text) {
    std::vector<Value> items;
    for (const size_t at : wanted) items.push_back(object.items()[at]);
    return sequence(caller.meter, object.kind, std::move(items));
  }
  const std::u32string points = decode(object.text());
  caller.meter.bytes(points.size() * sizeof(char32_t));
  std::u32string out;
  for (const size_t at : wanted) out.push_back(points[at]);
  return text(caller.meter, encode(out), object.as<Text>().markup);
}

}  // namespace tessera::jinja
