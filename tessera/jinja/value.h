// The values of a template: Python's values, as far as templates can see them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/jinja/template.h"

namespace tessera::jinja {

// An error while rendering. Template::render() adds file and line.
struct Fault {
  std::string what, remedy = "";
};

// What one rendering may still use. Throws Fault at a limit.
class Meter {
 public:
  explicit Meter(const Limits& limits) : steps_(limits.steps), bytes_(limits.bytes), levels_(limits.depth) {}
  void work(size_t steps) {
    if ((steps_ -= static_cast<int64_t>(steps)) < 0) fail("it takes too many steps");
  }
  void bytes(size_t count) {
    if (count > (size_t{1} << 40) || (bytes_ -= static_cast<int64_t>(count)) < 0)
      fail("its values take too many bytes");
    work(count / 64);
  }
  // Counts a nested evaluation while it exists.
  class Level {
   public:
    explicit Level(Meter& meter) : meter_(meter) {
      if (meter_.levels_-- <= 0) meter_.overflow();
      meter_.work(1);
    }
    ~Level() { ++meter_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Meter& meter_;
  };

 private:
  [[noreturn]] static void fail(const char* what);
  [[noreturn]] void overflow() {
    ++levels_;
    fail("it nests too many calls");
  }
  int64_t steps_, bytes_;
  int levels_;
};

// `missing` is a variable or an argument without a value. Templates never see it. A `view` is what dict.keys() and its
// siblings return. A `stream` is a generator: it can be read once.
enum class Kind : uint8_t {
  missing,
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  view,
  range,
  stream,
  space,
  method,
  function,
  macro,
  loop,
  cycler,
  joiner
};

// Values are immutable, except streams, namespaces, loops, cyclers and joiners.
struct Object {
  // Levels of values within this value. Limited, so that recursion over a value, and its destructor, are safe.
  int depth = 0;
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Text;
struct Items;
struct Dict;

struct Value {
  Kind kind = Kind::missing;
  union {
    bool flag;
    int64_t integer = 0;
    double real;
  };
  std::shared_ptr<Object> object;

  bool is(Kind other) const { return kind == other; }
  bool is_missing() const { return kind == Kind::missing; }
  bool is_text() const { return kind == Kind::text; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  bool is_whole() const { return kind == Kind::integer || kind == Kind::boolean; }  // isinstance(value, int)
  bool is_number() const { return is_whole() || kind == Kind::real; }
  int64_t whole() const { return kind == Kind::boolean ? flag : integer; }
  double number() const { return kind == Kind::real ? real : static_cast<double>(whole()); }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object);
  }
  const std::string& text() const;
  const std::vector<Value>& items() const;  // of a list, tuple or view
};

struct Text : Object {
  std::string text;     // valid UTF-8
  bool markup = false;  // a markupsafe.Markup: `+` escapes the other operand
};
struct Items : Object {
  std::vector<Value> items;
  const char* name = "";  // of a view: "dict_keys"
  bool is_group = false;  // of a tuple: made by `groupby`, with the attributes `grouper` and `list`
};
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, size_t> index;  // by key_of(); empty if the dict is small
};
struct Undefined : Object {
  std::string message;
};
struct Range : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};
struct Stream : Object {
  std::function<bool(Value&)> next;  // false at the end
};
struct Space : Object {
  std::vector<std::pair<std::string, Value>> names;
};
struct Method : Object {
  Value self;
  std::string name;
};
struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct Joiner : Object {
  Value separator;
  bool used = false;
};

Value none();
Value boolean(bool flag);
Value integer(int64_t number);
Value real(double number);
Value undefined(std::string message);
// `kind` is list or tuple. The functions with a meter count the bytes of the new value.
Value text(Meter& meter, std::string content, bool markup = false);
Value sequence(Meter& meter, Kind kind, std::vector<Value> items);
Value dict(Meter& meter, std::vector<std::pair<Value, Value>> items);  // a later item replaces an earlier one
Value from_json(Meter& meter, const nlohmann::ordered_json& json);
// Puts a new object into a value. `inner` are the values that the object holds.
template <typename T>
Value wrap(Meter& meter, Kind kind, std::shared_ptr<T> object, std::initializer_list<Value> inner = {}) {
  meter.bytes(sizeof(T));
  for (const Value& value : inner) {
    if (value.object) object->depth = std::max(object->depth, value.object->depth + 1);
  }
  if (object->depth > 100) throw Fault{"A value has more than 100 levels of lists and dicts in each other"};
  Value out;
  out.kind = kind;
  out.object = std::move(object);
  return out;
}

const char* type_name(const Value& value);  // as Python's errors name it
bool is_true(Meter& meter, const Value& value);
bool equal(Meter& meter, const Value& a, const Value& b);
bool less(Meter& meter, const Value& a, const Value& b);  // Fault if Python cannot order the types
// Texts are equal if and only if Python's dict takes the values for the same key. Fault if a value is not hashable.
std::string key_of(Meter& meter, const Value& value);
const Value* find(Meter& meter, const Dict& dict, const Value& key);
bool contains(Meter& meter, const Value& container, const Value& item);
// The number of elements, or of code points. -1 if Python's len() raises an exception.
int64_t length(Meter& meter, const Value& value);
std::string str(Meter& meter, const Value& value);   // Python's str()
std::string repr(Meter& meter, const Value& value);  // Python's repr()

// Reads an iterable. Fault if the value is not iterable.
class Iterator {
 public:
  explicit Iterator(Value source);
  bool next(Meter& meter, Value& out);

 private:
  Value source_;
  size_t at_ = 0;
};
bool is_iterable(const Value& value);
std::vector<Value> list_of(Meter& meter, const Value& iterable);
// A stream over `next`, which reads the streams among `inner`.
Value stream(Meter& meter, std::function<bool(Value&)> next, std::initializer_list<Value> inner);

}  // namespace tessera::jinja
