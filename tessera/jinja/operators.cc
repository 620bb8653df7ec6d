#include <algorithm>
#include <cmath>

#include "tessera/jinja/builtins.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

[[noreturn]] void overflow() {
  throw Fault{"A whole number has more than 63 bits", "Calculate with smaller numbers"};
}
[[noreturn]] void division_by_zero() {
  throw Fault{"A number is divided by 0"};
}

// Python's a // b and a % b of floats.
std::pair<double, double> divide(double a, double b) {
  if (b == 0) division_by_zero();
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return {floor, rest};
}

int64_t whole_power(Meter& meter, int64_t base, int64_t exponent) {
  int64_t out = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {
    meter.work(1);
    if (__builtin_mul_overflow(out, base, &out)) overflow();
  }
  return out;
}

Value whole_result(Caller& caller, std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+"   ? __builtin_add_overflow(a, b, &out)
      : op == "-" ? __builtin_sub_overflow(a, b, &out)
                  : op == "*" && __builtin_mul_overflow(a, b, &out)) {
    overflow();
  }
  if (op == "+" || op == "-" || op == "*") return integer(out);
  if (op == "**") {
    if (b >= 0) return integer(whole_power(caller.meter, a, b));
    if (a == 0) division_by_zero();
    return real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (b == 0) division_by_zero();
  if (op == "/") return real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == "%") return integer(0);
    if (a == INT64_MIN) overflow();
    return integer(-a);
  }
  const int64_t rest = a % b;
  const bool rounds_up = rest != 0 && (rest < 0) != (b < 0);
  return integer(op == "%" ? (rounds_up ? rest + b : rest) : a / b - rounds_up);
}

Value real_result(std::string_view op, double a, double b) {
  if (op == "+") return real(a + b);
  if (op == "-") return real(a - b);
  if (op == "*") return real(a * b);
  if (op == "//") return real(divide(a, b).first);
  if (op == "%") return real(divide(a, b).second);
  if (op == "/") {
    if (b == 0) division_by_zero();
    return real(a / b);
  }
  if (a == 0 && b < 0) division_by_zero();
  const double out = std::pow(a, b);
  if (std::isnan(out) && !std::isnan(a) && !std::isnan(b)) throw Fault{"A power of a negative number is not real"};
  if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) throw Fault{"A power is too large"};
  return real(out);
}

Value repeated(Caller& caller, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::clamp<int64_t>(times, 0, int64_t{1} << 40));
  if (value.is_text()) {
    caller.meter.bytes(value.text().empty() ? 0
                                            : std::max(count, value.text().size() * std::min<size_t>(count, 1 << 20)));
    std::string out;
    for (size_t i = 0; i < count && !value.text().empty(); ++i) {
      caller.meter.bytes(value.text().size());
      out += value.text();
    }
    return text(caller.meter, std::move(out), value.as<Text>().markup);
  }
  std::vector<Value> out;
  for (size_t i = 0; i < count && !value.items().empty(); ++i) {
    caller.meter.bytes(value.items().size() * sizeof(Value));
    out.insert(out.end(), value.items().begin(), value.items().end());
  }
  return sequence(caller.meter, value.kind, std::move(out));
}

}  // namespace

int64_t as_index(const Value& value) {
  if (!value.is_whole()) throw Fault{std::string("A whole number is needed, not ") + type_name(value)};
  return value.whole();
}

Value unary(char op, const Value& value) {
  if (value.is(Kind::undefined)) throw Fault{value.as<Undefined>().message};
  if (value.is(Kind::real)) return real(op == '-' ? -value.real : value.real);
  if (!value.is_whole()) throw Fault{std::string("The sign ") + op + " needs a number, not " + type_name(value)};
  if (value.whole() == INT64_MIN) overflow();
  return integer(op == '-' ? -value.whole() : value.whole());
}

Value binary(Caller& caller, std::string_view op, const Value& a, const Value& b) {
  Meter& meter = caller.meter;
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return whole_result(caller, op, a.whole(), b.whole());
    return real_result(op, a.number(), b.number());
  }
  if (op == "%" && a.is_text()) {
    if (a.as<Text>().markup) throw Fault{"`%` of a text from `safe` or `escape` is not supported", "Remove the filter"};
    return text(meter, format_percent(caller, a.text(), b));
  }
  for (const Value* value : {&a, &b}) {
    if (value->is(Kind::undefined)) throw Fault{value->as<Undefined>().message};
  }
  if (op == "+" && a.is_text() && b.is_text()) {
    const bool is_markup = a.as<Text>().markup || b.as<Text>().markup;
    const auto part = [&](const Value& value) {
      return is_markup && !value.as<Text>().markup ? escape_html(value.text()) : value.text();
    };
    return text(meter, part(a) + part(b), is_markup);
  }
  if (op == "+" && a.is_sequence() && a.kind == b.kind) {
    std::vector<Value> items = a.items();
    meter.bytes((items.size() + b.items().size()) * sizeof(Value));
    items.insert(items.end(), b.items().begin(), b.items().end());
    return sequence(meter, a.kind, std::move(items));
  }
  if (op == "*" && b.is_whole() && (a.is_text() || a.is_sequence())) return repeated(caller, a, b.whole());
  if (op == "*" && a.is_whole() && (b.is_text() || b.is_sequence())) return repeated(caller, b, a.whole());
  throw Fault{"Operator " + std::string(op) + " cannot take values of the types " + type_name(a) + " and " +
              type_name(b)};
}

}  // namespace tessera::jinja
