#include "tessera/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/base/record.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

// A dict with at most this many items needs no index.
constexpr size_t kSmallDict = 8;

bool same_real_and_whole(double number, int64_t whole) {
  return number >= -0x1p63 && number < 0x1p63 && std::trunc(number) == number && static_cast<int64_t>(number) == whole;
}

bool less_real_and_whole(double a, int64_t b, bool swapped) {
  if (std::isnan(a)) return false;
  const double whole = std::floor(a);
  if (whole < -0x1p63) return !swapped;
  if (whole >= 0x1p63) return swapped;
  const auto floor = static_cast<int64_t>(whole);
  return swapped ? b < floor || (b == floor && a > whole) : floor < b;
}

bool equal_items(Meter& meter, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(meter, a[i], b[i])) return false;
  }
  return true;
}

void set_depth(Object& object, const std::vector<Value>& items) {
  for (const Value& item : items) {
    if (item.object) object.depth = std::max(object.depth, item.object->depth + 1);
  }
}

}  // namespace

void Meter::fail(const char* what) {
  throw Fault{std::string("The template was stopped: ") + what, "Check it for endless loops and recursion"};
}

const std::string& Value::text() const {
  return as<Text>().text;
}
const std::vector<Value>& Value::items() const {
  return as<Items>().items;
}

int64_t Range::size() const {
  // Both distances fit, because the bounds of a range are at most 2^62.
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value none() {
  Value out;
  out.kind = Kind::none;
  return out;
}
Value boolean(bool flag) {
  Value out;
  out.kind = Kind::boolean;
  out.flag = flag;
  return out;
}
Value integer(int64_t number) {
  Value out;
  out.kind = Kind::integer;
  out.integer = number;
  return out;
}
Value real(double number) {
  Value out;
  out.kind = Kind::real;
  out.real = number;
  return out;
}
Value undefined(std::string message) {
  Value out;
  out.kind = Kind::undefined;
  auto object = std::make_shared<Undefined>();
  object->message = std::move(message);
  out.object = std::move(object);
  return out;
}

Value text(Meter& meter, std::string content, bool markup) {
  meter.bytes(content.size());
  auto object = std::make_shared<Text>();
  object->text = std::move(content);
  object->markup = markup;
  return wrap(meter, Kind::text, std::move(object));
}

Value sequence(Meter& meter, Kind kind, std::vector<Value> items) {
  meter.bytes(items.size() * sizeof(Value));
  auto object = std::make_shared<Items>();
  set_depth(*object, items);
  object->items = std::move(items);
  return wrap(meter, kind, std::move(object));
}

Value dict(Meter& meter, std::vector<std::pair<Value, Value>> items) {
  meter.bytes(items.size() * 2 * sizeof(Value));
  auto object = std::make_shared<Dict>();
  std::unordered_map<std::string, size_t> index;
  for (auto& [key, value] : items) {
    const auto [found, is_new] = index.emplace(key_of(meter, key), object->items.size());
    if (value.object) object->depth = std::max(object->depth, value.object->depth + 1);
    if (key.object) object->depth = std::max(object->depth, key.object->depth + 1);
    if (is_new) {
      object->items.emplace_back(std::move(key), std::move(value));
    } else {
      object->items[found->second].second = std::move(value);
    }
  }
  if (index.size() > kSmallDict) object->index = std::move(index);
  return wrap(meter, Kind::dict, std::move(object));
}

Value from_json(Meter& meter, const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  const auto checked = [&](const std::string& content) {
    if (!is_valid_utf8(content)) throw Fault{"A variable contains invalid UTF-8", "Write the data as UTF-8"};
    return text(meter, content);
  };
  const Meter::Level level(meter);
  switch (json.type()) {
    case Type::boolean:
      return boolean(json.get<bool>());
    case Type::number_integer:
      return integer(json.get<int64_t>());
    case Type::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        throw Fault{"The integer " + json.dump() + " has more than 63 bits", "Write it as a text"};
      }
      return integer(json.get<int64_t>());
    case Type::number_float:
      return real(json.get<double>());
    case Type::string:
      return checked(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(meter, item));
      return sequence(meter, Kind::list, std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, value] : json.items()) items.emplace_back(checked(key), from_json(meter, value));
      return dict(meter, std::move(items));
    }
    default:
      return none();
  }
}

int64_t length(Meter& meter, const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      meter.work(value.text().size() / 64);
      return static_cast<int64_t>(code_points(value.text()));
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return static_cast<int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<int64_t>(value.as<Dict>().items.size());
    case Kind::range:
      return value.as<Range>().size();
    default:
      return -1;
  }
}

bool is_true(Meter& meter, const Value& value) {
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.flag;
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0;
    case Kind::text:
      return !value.text().empty();
    default:
      return length(meter, value) != 0;
  }
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  const Meter::Level level(meter);
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
    if (!a.is_whole() && !b.is_whole()) return a.real == b.real;
    return a.is_whole() ? same_real_and_whole(b.real, a.whole()) : same_real_and_whole(a.real, b.whole());
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::none:
    case Kind::undefined:
      return true;
    case Kind::text:
      meter.work(std::min(a.text().size(), b.text().size()) / 64);
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return equal_items(meter, a.items(), b.items());
    case Kind::dict: {
      const Dict& right = b.as<Dict>();
      if (a.as<Dict>().items.size() != right.items.size()) return false;
      for (const auto& [key, value] : a.as<Dict>().items) {
        const Value* other = find(meter, right, key);
        if (other == nullptr || !equal(meter, value, *other)) return false;
      }
      return true;
    }
    case Kind::range:
      return key_of(meter, a) == key_of(meter, b);
    case Kind::view:
      if (a.object == b.object) return true;
      throw Fault{std::string("Comparing values of type ") + type_name(a) + " is not supported",
                  "Apply the filter `list` to both"};
    default:
      return a.object == b.object;
  }
}

bool less(Meter& meter, const Value& a, const Value& b) {
  const Meter::Level level(meter);
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole() < b.whole();
    if (!a.is_whole() && !b.is_whole()) return a.real < b.real;
    return a.is_whole() ? less_real_and_whole(b.real, a.whole(), true) : less_real_and_whole(a.real, b.whole(), false);
  }
  if (a.is_text() && b.is_text()) {
    meter.work(std::min(a.text().size(), b.text().size()) / 64);
    return a.text() < b.text();
  }
  if (a.is_sequence() && a.kind == b.kind) {
    for (size_t i = 0; i < std::min(a.items().size(), b.items().size()); ++i) {
      if (!equal(meter, a.items()[i], b.items()[i])) return less(meter, a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  for (const Value* value : {&a, &b}) {
    if (value->is(Kind::undefined)) throw Fault{value->as<Undefined>().message};
  }
  throw Fault{std::string("Values of the types ") + type_name(a) + " and " + type_name(b) + " have no order"};
}

std::string key_of(Meter& meter, const Value& value) {
  const Meter::Level level(meter);
  switch (value.kind) {
    case Kind::text:
      meter.work(value.text().size() / 64);
      return "t" + value.text();
    case Kind::real:
      if (!same_real_and_whole(value.real, std::abs(value.real) < 0x1p63 ? static_cast<int64_t>(value.real) : 0)) {
        return "r" + python_repr(value.real);
      }
      return "i" + std::to_string(static_cast<int64_t>(value.real));
    case Kind::boolean:
    case Kind::integer:
      return "i" + std::to_string(value.whole());
    case Kind::none:
      return "n";
    case Kind::undefined:
      return "u";
    case Kind::tuple: {
      std::string out = "(";
      for (const Value& item : value.items()) {
        const std::string key = key_of(meter, item);
        out += std::to_string(key.size()) + ":" + key;
        meter.bytes(key.size());
      }
      return out;
    }
    case Kind::range: {
      const Range& range = value.as<Range>();
      const int64_t size = range.size();
      return "g" + std::to_string(size) + "," + std::to_string(size > 0 ? range.start : 0) + "," +
             std::to_string(size > 1 ? range.step : 0);
    }
    case Kind::stream:
    case Kind::space:
    case Kind::method:
    case Kind::function:
    case Kind::macro:
    case Kind::loop:
    case Kind::cycler:
    case Kind::joiner:  // equal only to itself
      return "p" + std::to_string(reinterpret_cast<uintptr_t>(value.object.get()));
    default:
      throw Fault{std::string("A value of type ") + type_name(value) + " cannot be a key"};
  }
}

const Value* find(Meter& meter, const Dict& dict, const Value& key) {
  if (!dict.index.empty()) {
    const auto found = dict.index.find(key_of(meter, key));
    return found == dict.index.end() ? nullptr : &dict.items[found->second].second;
  }
  if (!key.is_text()) key_of(meter, key);  // checks that it is hashable
  for (const auto& [other, value] : dict.items) {
    if (equal(meter, other, key)) return &value;
  }
  return nullptr;
}

bool contains(Meter& meter, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) throw Fault{std::string("`in` of a text needs a text on its left, not ") + type_name(item)};
    meter.work(container.text().size() / 16);
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return find(meter, container.as<Dict>(), item) != nullptr;
  Iterator rest(container);
  for (Value other; rest.next(meter, other);) {
    if ((other.object && other.object == item.object) || equal(meter, other, item)) return true;
  }
  return false;
}

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::stream:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

Iterator::Iterator(Value source) : source_(std::move(source)) {
  if (!is_iterable(source_)) throw Fault{std::string("A value of type ") + type_name(source_) + " is not iterable"};
  if (source_.is(Kind::loop)) throw Fault{"Iterating over `loop` is not supported"};
}

bool Iterator::next(Meter& meter, Value& out) {
  meter.work(1);
  switch (source_.kind) {
    case Kind::text: {
      if (at_ >= source_.text().size()) return false;
      const size_t size = size_at(source_.text(), at_);
      out = text(meter, source_.text().substr(at_, size));
      at_ += size;
      return true;
    }
    case Kind::dict:
      if (at_ >= source_.as<Dict>().items.size()) return false;
      out = source_.as<Dict>().items[at_++].first;
      return true;
    case Kind::range: {
      const Range& range = source_.as<Range>();
      if (static_cast<int64_t>(at_) >= range.size()) return false;
      out = integer(range.start + static_cast<int64_t>(at_++) * range.step);
      return true;
    }
    case Kind::stream:
      return source_.as<Stream>().next && source_.as<Stream>().next(out);
    case Kind::undefined:
      return false;
    default:
      if (at_ >= source_.items().size()) return false;
      out = source_.items()[at_++];
      return true;
  }
}

std::vector<Value> list_of(Meter& meter, const Value& iterable) {
  std::vector<Value> out;
  Iterator rest(iterable);
  for (Value item; rest.next(meter, item);) {
    meter.bytes(sizeof(Value));
    out.push_back(item);
  }
  return out;
}

Value stream(Meter& meter, std::function<bool(Value&)> next, std::initializer_list<Value> inner) {
  auto object = std::make_shared<Stream>();
  object->next = std::move(next);
  return wrap(meter, Kind::stream, std::move(object), inner);
}

}  // namespace tessera::jinja
