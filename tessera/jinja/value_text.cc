// Values as text: str(), repr() and the names of types.
#include "tessera/base/record.h"
#include "tessera/base/text.h"
#include "tessera/jinja/text.h"
#include "tessera/jinja/value.h"

namespace tessera::jinja {
namespace {

std::vector<std::string> reprs(Meter& meter, const std::vector<Value>& items) {
  std::vector<std::string> out;
  out.reserve(items.size());
  for (const Value& item : items) {
    out.push_back(repr(meter, item));
    meter.bytes(out.back().size());
  }
  return out;
}

}  // namespace

const char* type_name(const Value& value) {
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::view:
      return value.as<Items>().name;
    case Kind::range:
      return "range";
    case Kind::stream:
      return "generator";
    case Kind::space:
      return "Namespace";
    case Kind::method:
    case Kind::function:
      return "function";
    case Kind::macro:
      return "Macro";
    case Kind::loop:
      return "LoopContext";
    case Kind::cycler:
      return "Cycler";
    case Kind::joiner:
      return "Joiner";
  }
  return "object";
}

std::string repr(Meter& meter, const Value& value) {
  const Meter::Level level(meter);
  switch (value.kind) {
    case Kind::text: {
      const std::string out = repr_text(value.text());
      return value.as<Text>().markup ? "Markup(" + out + ")" : out;
    }
    case Kind::undefined:
      return "Undefined";
    case Kind::list:
      return "[" + joined(reprs(meter, value.items())) + "]";
    case Kind::tuple:
      return "(" + joined(reprs(meter, value.items())) + (value.items().size() == 1 ? ",)" : ")");
    case Kind::view:
      return std::string(value.as<Items>().name) + "([" + joined(reprs(meter, value.items())) + "])";
    case Kind::dict: {
      std::vector<std::string> parts;
      for (const auto& [key, item] : value.as<Dict>().items) {
        parts.push_back(repr(meter, key) + ": " + repr(meter, item));
        meter.bytes(parts.back().size());
      }
      return "{" + joined(parts) + "}";
    }
    case Kind::space: {
      std::vector<std::string> parts;
      for (const auto& [name, item] : value.as<Space>().names) {
        parts.push_back(repr_text(name) + ": " + repr(meter, item));
        meter.bytes(parts.back().size());
      }
      return "<Namespace {" + joined(parts) + "}>";
    }
    case Kind::range: {
      const Range& range = value.as<Range>();
      return "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop) +
             (range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")");
    }
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return str(meter, value);
    default:
      throw Fault{std::string("The template prints a value of type ") + type_name(value),
                  "Call it, or apply the filter `list` to it"};
  }
}

std::string str(Meter& meter, const Value& value) {
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined:
      return "";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.flag ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integer);
    case Kind::real:
      return python_repr(value.real);
    case Kind::text:
      return value.text();
    default:
      return repr(meter, value);
  }
}

}  // namespace tessera::jinja
