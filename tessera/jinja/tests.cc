#include <algorithm>

#include "tessera/jinja/builtins.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

using Args = const Arguments&;

Value only(Args a) {
  return a.take("a test", std::array{"value"}, 1)[0];
}
std::array<Value, 2> both(Args a) {
  return a.take("a test", std::array{"", ""}, 2);
}

template <Kind... kKinds>
bool is_kind(Caller&, Args a) {
  const Value value = only(a);
  return ((value.kind == kKinds) || ...);
}
template <bool kFlag>
bool is_flag(Caller&, Args a) {
  const Value value = only(a);
  return value.is(Kind::boolean) && value.flag == kFlag;
}
bool is_defined(Caller&, Args a) {
  return !only(a).is(Kind::undefined);
}
bool is_callable(Caller&, Args a) {
  switch (only(a).kind) {
    case Kind::undefined:
    case Kind::method:
    case Kind::function:
    case Kind::macro:
    case Kind::loop:
    case Kind::joiner:
      return true;
    default:
      return false;
  }
}
bool is_iterable_value(Caller&, Args a) {
  return is_iterable(only(a));
}

bool is_equal(Caller& c, Args a) {
  const auto [x, y] = both(a);
  return equal(c.meter, x, y);
}
bool is_different(Caller& c, Args a) {
  return !is_equal(c, a);
}
bool is_less(Caller& c, Args a) {
  const auto [x, y] = both(a);
  return less(c.meter, x, y);
}
bool is_greater(Caller& c, Args a) {
  const auto [x, y] = both(a);
  return less(c.meter, y, x);
}
bool is_at_most(Caller& c, Args a) {
  return is_less(c, a) || (!is_greater(c, a) && is_equal(c, a));
}
bool is_at_least(Caller& c, Args a) {
  return is_greater(c, a) || (!is_less(c, a) && is_equal(c, a));
}
bool is_in(Caller& c, Args a) {
  const auto [x, y] = both(a);
  return contains(c.meter, y, x);
}
// Whether both are the same object. Small numbers and texts may or may not be in Python.
bool is_same(Caller&, Args a) {
  const auto [x, y] = both(a);
  if (x.kind != y.kind) return false;
  if (x.is(Kind::none)) return true;
  if (x.is(Kind::boolean)) return x.flag == y.flag;
  if (x.is_number() || x.is_text()) throw Fault{"`sameas` of numbers and texts is not supported", "Use =="};
  return x.object == y.object;
}

// The remainder of `value` % `by` is `rest`.
bool leaves(Caller& c, const Value& value, const Value& by, int64_t rest) {
  return equal(c.meter, binary(c, "%", value, by), integer(rest));
}
bool is_odd(Caller& c, Args a) {
  return leaves(c, only(a), integer(2), 1);
}
bool is_even(Caller& c, Args a) {
  return leaves(c, only(a), integer(2), 0);
}
bool is_divisible(Caller& c, Args a) {
  const auto [x, y] = a.take("divisibleby", std::array{"value", "num"}, 2);
  return leaves(c, x, y, 0);
}

bool is_lower(Caller& c, Args a) {
  return is_all("islower", str(c.meter, only(a))).value();
}
bool is_upper(Caller& c, Args a) {
  return is_all("isupper", str(c.meter, only(a))).value();
}
bool is_escaped(Caller&, Args a) {
  const Value value = only(a);
  return value.is_text() && value.as<Text>().markup;
}
bool is_filter(Caller& c, Args a) {
  const Value value = only(a);
  key_of(c.meter, value);  // checks that it is hashable
  return value.is_text() && find_filter(value.text()) != nullptr;
}
bool is_test(Caller& c, Args a) {
  const Value value = only(a);
  key_of(c.meter, value);
  return value.is_text() && find_test(value.text()) != nullptr;
}

constexpr Test kTests[] = {
    {"boolean", is_kind<Kind::boolean>},
    {"callable", is_callable},
    {"defined", is_defined},
    {"divisibleby", is_divisible},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"==", is_equal},
    {"escaped", is_escaped},
    {"even", is_even},
    {"false", is_flag<false>},
    {"filter", is_filter},
    {"float", is_kind<Kind::real>},
    {"ge", is_at_least},
    {">=", is_at_least},
    {"greaterthan", is_greater},
    {"gt", is_greater},
    {">", is_greater},
    {"in", is_in},
    {"integer", is_kind<Kind::integer>},
    {"iterable", is_iterable_value},
    {"le", is_at_most},
    {"<=", is_at_most},
    {"lessthan", is_less},
    {"lower", is_lower},
    {"lt", is_less},
    {"<", is_less},
    {"mapping", is_kind<Kind::dict>},
    {"ne", is_different},
    {"!=", is_different},
    {"none", is_kind<Kind::none>},
    {"number", is_kind<Kind::boolean, Kind::integer, Kind::real>},
    {"odd", is_odd},
    {"sameas", is_same},
    {"sequence", is_kind<Kind::undefined, Kind::text, Kind::list, Kind::tuple, Kind::dict, Kind::range>},
    {"string", is_kind<Kind::text>},
    {"test", is_test},
    {"true", is_flag<true>},
    {"undefined", is_kind<Kind::undefined>},
    {"upper", is_upper},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Test& test) { return name == test.name; });
  return found == std::end(kTests) ? nullptr : found;
}

std::vector<std::string> test_names() {
  std::vector<std::string> out;
  for (const Test& test : kTests) out.emplace_back(test.name);
  return out;
}

}  // namespace tessera::jinja
