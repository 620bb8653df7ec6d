// Expressions and calls.
#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {

Value Interpreter::call(const Value& function, Arguments arguments) {
  switch (function.kind) {
    case Kind::method:
      return call_bound(function.as<Method>(), arguments);
    case Kind::function:
      return call_global(function.as<Function>().name, arguments);
    case Kind::macro:
      return call_macro(function.as<Macro>(), std::move(arguments));
    case Kind::loop: {
      const Loop& loop = function.as<Loop>();
      if (loop.node == nullptr) throw Fault{"`loop` is called, but the loop is not `recursive`", "Write `recursive`"};
      return call_loop(*loop.node, loop.outer, arguments.take("loop", std::array{"iterable"}, 1)[0], loop.depth0 + 1);
    }
    case Kind::joiner: {
      auto& joiner = function.as<Joiner>();
      return std::exchange(joiner.used, true) ? joiner.separator : text(meter, "");
    }
    case Kind::undefined:
      throw Fault{function.as<Undefined>().message};
    default:
      throw Fault{std::string("A value of type ") + type_name(function) + " is called"};
  }
}

Value Interpreter::macro(const Node& node) {
  keep_frames();
  auto macro = std::make_shared<Macro>();
  macro->node = &node;
  macro->outer = frame_;
  return wrap(meter, Kind::macro, std::move(macro));
}

Value Interpreter::call_macro(const Macro& macro, Arguments arguments) {
  const Meter::Level level(meter);
  const Node& node = *macro.node;
  const Node& signature = *node.kids[node.type == Type::macro ? 0 : 1];
  const size_t count = node.parameters.size();
  const auto take_named = [&](std::string_view name) -> Value {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (arguments.named[i].first != name) continue;
      Value value = arguments.named[i].second;
      arguments.named.erase(arguments.named.begin() + static_cast<ptrdiff_t>(i));
      return value;
    }
    return {};
  };
  const std::string name = node.text.empty() ? "caller" : node.text;
  std::string content = captured([&] {
    with_frame(node, macro.outer, [&] {
      auto& slots = frame_->slots;
      const auto at = [&](int slot) -> Value& { return slots[static_cast<size_t>(slot)]; };
      for (size_t i = 0; i < count; ++i) {
        at(node.parameters[i]) =
            i < arguments.positional.size() ? arguments.positional[i] : take_named(signature.kids[i]->text);
      }
      if (node.caller >= 0) {
        at(node.caller) = take_named("caller");
        if (at(node.caller).is_missing()) at(node.caller) = undefined("No caller defined");
      }
      if (node.kwargs >= 0) {
        std::vector<std::pair<Value, Value>> items;
        for (auto& [key, value] : arguments.named) items.emplace_back(text(meter, key), value);
        at(node.kwargs) = dict(meter, std::move(items));
      } else if (!arguments.named.empty()) {
        throw Fault{"The macro " + name + " has no parameter " + arguments.named[0].first};
      }
      if (node.varargs >= 0) {
        const auto begin =
            arguments.positional.begin() + static_cast<ptrdiff_t>(std::min(count, arguments.positional.size()));
        at(node.varargs) = sequence(meter, Kind::tuple, std::vector<Value>(begin, arguments.positional.end()));
      } else if (arguments.positional.size() > count) {
        throw Fault{"The macro " + name + " has only " + std::to_string(count) + " parameters"};
      }
      enter(node, 0);
      const size_t first_default = count - signature.names.size();
      for (size_t i = 0; i < count; ++i) {
        if (!at(node.parameters[i]).is_missing()) continue;
        at(node.parameters[i]) = i >= first_default
                                     ? evaluate(*signature.kids[count + i - first_default])
                                     : undefined("The argument " + signature.kids[i]->text + " was not provided");
      }
      execute_all(*node.kids[node.type == Type::macro ? 1 : 2]);
    });
  });
  return text(meter, std::move(content));
}

Value Interpreter::call_bound(const Method& method, const Arguments& arguments) {
  if (!method.self.is(Kind::loop)) return call_method(*this, method, arguments);
  auto& loop = method.self.as<Loop>();
  if (!arguments.named.empty()) throw Fault{"loop." + method.name + "() takes no named arguments"};
  const auto& values = arguments.positional;
  if (method.name == "cycle") {
    if (values.empty()) throw Fault{"loop.cycle() needs arguments"};
    return values[static_cast<size_t>(loop.index0) % values.size()];
  }
  bool is_same = loop.has_changed && loop.last_changed.size() == values.size();
  for (size_t i = 0; is_same && i < values.size(); ++i) is_same = equal(meter, loop.last_changed[i], values[i]);
  if (is_same) return boolean(false);
  loop.last_changed = values;
  loop.has_changed = true;
  return boolean(true);
}

bool Interpreter::is_true_value(const Value& value) {
  if (value.is(Kind::loop)) return value.as<Loop>().count(meter) != 0;
  return is_true(meter, value);
}

Arguments Interpreter::arguments_of(const Node& node) {
  Arguments out;
  for (size_t i = 0; i < node.names.size(); ++i) {
    const std::string& name = node.names[i];
    Value value = evaluate(*node.kids[i + 1]);
    if (name.empty()) {
      out.positional.push_back(std::move(value));
    } else if (name == "*") {
      for (Value& item : list_of(meter, value)) out.positional.push_back(std::move(item));
    } else if (name == "**") {
      if (!value.is(Kind::dict)) throw Fault{"The argument after ** is not a dict"};
      for (const auto& [key, item] : value.as<Dict>().items) {
        if (!key.is_text()) throw Fault{"The argument after ** has a key that is not a text"};
        for (const auto& other : out.named) {
          if (other.first == key.text()) throw Fault{"A call has two arguments of the name " + key.text()};
        }
        out.named.emplace_back(key.text(), item);
      }
    } else {
      out.named.emplace_back(name, std::move(value));
    }
  }
  return out;
}

Value Interpreter::call_node(const Node& node, const Value& caller) {
  const Value function = evaluate(*node.kids[0]);
  Arguments arguments = arguments_of(node);
  if (!caller.is_missing()) arguments.named.emplace_back("caller", caller);
  line_ = node.line;
  return call(function, std::move(arguments));
}

Value Interpreter::apply_filter(const Node& node, const Value* input) {
  const Node* first = node.kids[0].get();
  Value value = first == nullptr                                  ? *input
                : input != nullptr && first->type == Type::filter ? apply_filter(*first, input)
                                                                  : evaluate(*first);
  Arguments arguments = arguments_of(node);
  arguments.positional.insert(arguments.positional.begin(), std::move(value));
  line_ = node.line;
  return node.filter->apply(*this, arguments);
}

Value Interpreter::evaluate(const Node& node) {
  const Meter::Level level(meter);
  switch (node.type) {
    case Type::constant:
      return node.value;
    case Type::name: {
      const Value& value = slot(node.place);
      return value.is_missing() ? undefined("`" + node.text + "` is undefined") : value;
    }
    case Type::attribute:
      return attribute_of(node);
    case Type::subscript: {
      const Value object = evaluate(*node.kids[0]), key = evaluate(*node.kids[1]);
      line_ = node.line;
      if (object.is(Kind::loop) && key.is_text()) return loop_attribute(object, key.text());
      return subscript(*this, object, key);
    }
    case Type::slice: {
      std::array<Value, 4> parts;
      for (size_t i = 0; i < 4; ++i) parts[i] = node.kids[i] ? evaluate(*node.kids[i]) : none();
      line_ = node.line;
      return slice(*this, parts[0], parts[1], parts[2], parts[3]);
    }
    case Type::call:
      return call_node(node, {});
    case Type::filter:
      return apply_filter(node, nullptr);
    case Type::test: {
      Value value = evaluate(*node.kids[0]);
      Arguments arguments = arguments_of(node);
      arguments.positional.insert(arguments.positional.begin(), std::move(value));
      line_ = node.line;
      return boolean(node.test->apply(*this, arguments));
    }
    case Type::tuple:
    case Type::list:
      return sequence(meter, node.type == Type::list ? Kind::list : Kind::tuple, evaluate_all(node));
    case Type::dict: {
      std::vector<Value> values = evaluate_all(node);
      std::vector<std::pair<Value, Value>> items;
      for (size_t i = 0; i < values.size(); i += 2) items.emplace_back(values[i], values[i + 1]);
      return dict(meter, std::move(items));
    }
    case Type::unary:
      if (node.text == "not") return boolean(!is_true_value(evaluate(*node.kids[0])));
      return unary(node.text[0], evaluate(*node.kids[0]));
    case Type::binary: {
      const Value a = evaluate(*node.kids[0]), b = evaluate(*node.kids[1]);
      line_ = node.line;
      return binary(*this, node.text, a, b);
    }
    case Type::logic_and:
    case Type::logic_or: {
      Value left = evaluate(*node.kids[0]);
      return is_true_value(left) == (node.type == Type::logic_or) ? left : evaluate(*node.kids[1]);
    }
    case Type::compare:
      return compare(node);
    case Type::concat: {
      std::string out;
      for (const NodePtr& kid : node.kids) out += str(meter, evaluate(*kid));
      return text(meter, std::move(out));
    }
    case Type::condition:
      if (is_true_value(evaluate(*node.kids[0]))) return evaluate(*node.kids[1]);
      return node.kids[2] ? evaluate(*node.kids[2]) : undefined("An inline `if` without `else` has no value");
    default:
      throw Fault{"An expression is unknown"};
  }
}

std::vector<Value> Interpreter::evaluate_all(const Node& node) {
  std::vector<Value> out;
  out.reserve(node.kids.size());
  for (const NodePtr& kid : node.kids) out.push_back(evaluate(*kid));
  return out;
}

Value Interpreter::compare(const Node& node) {
  Value left = evaluate(*node.kids[0]);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.kids[i + 1]);
    const std::string& op = node.names[i];
    line_ = node.line;
    const bool holds = op == "=="   ? equal(meter, left, right)
                       : op == "!=" ? !equal(meter, left, right)
                       : op == "<"  ? less(meter, left, right)
                       : op == ">"  ? less(meter, right, left)
                       : op == "<=" ? less_or_equal(left, right)
                       : op == ">=" ? less_or_equal(right, left)
                       : op == "in" ? contains(meter, right, left)
                                    : !contains(meter, right, left);
    if (!holds) return boolean(false);
    left = std::move(right);
  }
  return boolean(true);
}

bool Interpreter::less_or_equal(const Value& a, const Value& b) {
  return less(meter, a, b) || (!less(meter, b, a) && equal(meter, a, b));
}

Value Interpreter::attribute_of(const Node& node) {
  const Value object = evaluate(*node.kids[0]);
  line_ = node.line;
  if (object.is(Kind::loop)) return loop_attribute(object, node.text);
  if (object.is(Kind::macro) && node.text == "name") return text(meter, object.as<Macro>().node->text);
  return attribute(*this, object, node.text);
}

Value Interpreter::loop_attribute(const Value& object, const std::string& name) {
  Loop& loop = object.as<Loop>();
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return boolean(loop.index0 == 0);
  if (name == "last") return boolean(loop.peek().is_missing());
  if (name == "length") return integer(loop.count(meter));
  if (name == "revindex") return integer(loop.count(meter) - loop.index0);
  if (name == "revindex0") return integer(loop.count(meter) - loop.index0 - 1);
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "depth0") return integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? undefined("The loop has no previous item") : loop.before;
  if (name == "nextitem") return loop.peek().is_missing() ? undefined("The loop has no next item") : loop.after;
  if (name != "cycle" && name != "changed") return undefined("`loop` has no attribute `" + printable(name) + "`");
  auto method = std::make_shared<Method>();
  method->self = object;
  method->name = name;
  return wrap(meter, Kind::method, std::move(method), {object});
}

}  // namespace tessera::jinja
