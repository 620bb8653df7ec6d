// The filters, tests, methods and operators of templates.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/jinja/value.h"

namespace tessera::jinja {

// The arguments of a call. `positional` of a filter or test begins with the value that it is applied to.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The arguments in the order of `names`. An argument that is not given is missing, and a Fault if it is one of the
  // first `required`. All other arguments are a Fault.
  template <size_t N>
  std::array<Value, N> take(std::string_view function, const std::array<const char*, N>& names, size_t required) const {
    std::array<Value, N> out;
    take(function, names.data(), N, required, out.data());
    return out;
  }

 private:
  void take(std::string_view function, const char* const* names, size_t count, size_t required, Value* out) const;
};

// What filters, tests and methods need from the interpreter.
class Caller {
 public:
  explicit Caller(const Limits& limits) : meter(limits) {}
  virtual ~Caller() = default;
  virtual Value call(const Value& function, Arguments arguments) = 0;
  Meter meter;
};

struct Filter {
  const char* name;
  Value (*apply)(Caller&, const Arguments&);
};
struct Test {
  const char* name;
  bool (*apply)(Caller&, const Arguments&);
};
// nullptr if Tessera does not have it.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
std::vector<std::string> filter_names();
std::vector<std::string> test_names();

// Python has this method, and Tessera does not.
bool is_unsupported_method(std::string_view name);

// `object.name` and `object[key]`.
Value attribute(Caller& caller, const Value& object, const std::string& name);
Value subscript(Caller& caller, const Value& object, const Value& key);
// The method, or a missing value if the type has no method of this name.
Value find_method(Caller& caller, const Value& object, const std::string& name);
Value call_method(Caller& caller, const Method& method, const Arguments& arguments);
// `object[start:stop:step]`; a bound that is not given is none.
Value slice(Caller& caller, const Value& object, const Value& start, const Value& stop, const Value& step);
Value unary(char op, const Value& value);
Value binary(Caller& caller, std::string_view op, const Value& a, const Value& b);

// Python's `pattern % arguments`, where `arguments` is a tuple, a dict or one value.
std::string format_percent(Caller& caller, std::string_view pattern, const Value& arguments);
// Python's pattern.format(…).
std::string format_braces(Caller& caller, std::string_view pattern, const Arguments& arguments);
// The filter `tojson` of transformers: Python's json.dumps.
std::string to_json(Caller& caller, const Arguments& arguments);

void check_defined(const Value& value);  // Fault if it is undefined
// The value as a whole number, for example an index or a count. Fault if Python's operator.index() refuses it.
int64_t as_index(const Value& value);

}  // namespace tessera::jinja
