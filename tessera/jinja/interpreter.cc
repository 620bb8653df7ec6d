#include "tessera/jinja/interpreter.h"

#include "tessera/base/error.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {

Rendered Interpreter::run(const Node& root) {
  with_frame(root, nullptr, [&] {
    enter(root, 0);
    execute_all(root);
  });
  return std::move(rendered_);
}

Value& Interpreter::slot(Place place) {
  Frame* frame = frame_;
  for (int i = 0; i < place.hops; ++i) frame = frame->outer;
  return frame->slots[static_cast<size_t>(place.slot)];
}

void Interpreter::keep_frames() {
  for (Frame* frame = frame_; frame != nullptr && !frame->is_kept; frame = frame->outer) frame->is_kept = true;
}

Value Interpreter::from_context(const std::string& name) {
  const auto& dict = variables_.as<Dict>();
  if (dict.index.empty()) {
    for (const auto& [key, value] : dict.items) {
      if (key.text() == name) return value;
    }
  } else if (const auto found = dict.index.find("t" + name); found != dict.index.end()) {
    return dict.items[found->second].second;
  }
  for (const char* global : kGlobals) {
    if (name == global) return wrap(meter, Kind::function, std::make_shared<Function>(global));
  }
  return {};
}

void Interpreter::enter(const Node& node, size_t scope) {
  for (const Entry& entry : node.scopes[scope]) {
    Value value;
    if (entry.from == Entry::From::context) value = from_context(entry.name);
    if (entry.from == Entry::From::outer) value = slot(entry.outer);
    frame_->slots[static_cast<size_t>(entry.slot)] = std::move(value);
  }
}

void Interpreter::assign(const Node& target, const Value& value) {
  if (target.type == Type::name) {
    slot(target.place) = value;
  } else if (target.type == Type::attribute) {
    const Value space = evaluate(*target.kids[0]);
    if (!space.is(Kind::space)) {
      throw Fault{"Cannot assign to " + target.kids[0]->text + "." + target.text + ", because " + target.kids[0]->text +
                      " is no namespace",
                  "Write {% set " + target.kids[0]->text + " = namespace() %} before"};
    }
    set_name(space.as<Space>(), target.text, value);
  } else {
    Iterator items(value);
    Value item;
    for (const NodePtr& kid : target.kids) {
      if (!items.next(meter, item)) throw Fault{"A value has too few elements for the names that it is assigned to"};
      assign(*kid, item);
    }
    if (items.next(meter, item)) throw Fault{"A value has too many elements for the names that it is assigned to"};
  }
}

void Interpreter::set_name(Space& space, const std::string& name, const Value& value) {
  if (name[0] == '_') throw Fault{"The name " + name + " of a namespace begins with _", "Rename it"};
  for (auto& [other, old] : space.names) {
    if (other == name) {
      old = value;
      return;
    }
  }
  space.names.emplace_back(name, value);
}

void Interpreter::write(std::string_view content) {
  meter.bytes(content.size());
  *out_ += content;
}

Interpreter::Flow Interpreter::execute_all(const Node& body) {
  for (const NodePtr& kid : body.kids) {
    const Flow flow = execute(*kid);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Node& node) {
  const Meter::Level level(meter);
  line_ = node.line;
  switch (node.type) {
    case Type::body:
      return execute_all(node);
    case Type::data:
      write(node.text);
      return Flow::normal;
    case Type::output:
      write(str(meter, evaluate(*node.kids[0])));
      return Flow::normal;
    case Type::branch:
      for (size_t i = 0; i + 1 < node.kids.size(); i += 2) {
        if (is_true_value(evaluate(*node.kids[i]))) return execute_all(*node.kids[i + 1]);
      }
      return node.kids.size() % 2 == 1 ? execute_all(*node.kids.back()) : Flow::normal;
    case Type::loop:
      return execute_loop(node);
    case Type::set:
      assign(*node.kids[0], evaluate(*node.kids[1]));
      return Flow::normal;
    case Type::set_block:
    case Type::filter_block:
      return execute_captured(node);
    case Type::macro:
      slot(node.place) = macro(node);
      return Flow::normal;
    case Type::call_block:
      write(str(meter, call_node(*node.kids[0], macro(node))));
      return Flow::normal;
    case Type::with:
      return execute_with(node);
    case Type::generation:
      return execute_generation(node);
    case Type::break_loop:
      return Flow::break_loop;
    case Type::continue_loop:
      return Flow::continue_loop;
    default:
      throw Fault{"A statement is unknown"};
  }
}

Interpreter::Flow Interpreter::execute_with(const Node& node) {
  std::vector<Value> values;
  for (size_t i = 1; i < node.kids.size(); i += 2) values.push_back(evaluate(*node.kids[i]));
  enter(node, 0);
  for (size_t i = 0; i < values.size(); ++i) assign(*node.kids[2 * i], values[i]);
  return execute_all(*node.kids.back());
}

Interpreter::Flow Interpreter::execute_captured(const Node& node) {
  const bool is_set = node.type == Type::set_block;
  Flow flow = Flow::normal;
  std::string content = captured([&] {
    enter(node, 0);
    flow = execute_all(*node.kids[is_set ? 2 : 1]);
  });
  if (flow != Flow::normal) return flow;
  Value value = text(meter, std::move(content));
  const Node* filter = node.kids[is_set ? 1 : 0].get();
  if (filter != nullptr) value = apply_filter(*filter, &value);
  if (is_set) {
    assign(*node.kids[0], value);
  } else {
    write(str(meter, value));
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_generation(const Node& node) {
  if (captures_ > 0 && options_.spans) {
    throw Fault{"A generation block is within a macro, or within another block that captures its text",
                "Move {% generation %} to the top level, or into loops and conditions only"};
  }
  const size_t begin = out_->size();
  ++captures_;
  enter(node, 0);
  execute_all(*node.kids[0]);
  --captures_;
  if (captures_ == 0) rendered_.generated.push_back({begin, out_->size()});
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_loop(const Node& node) {
  const Value iterable = evaluate(*node.kids[1]);
  if (!node.is_function) return iterate(node, iterable, 0);
  write(call_loop(node, frame_, iterable, 0).text());
  return Flow::normal;
}

Value Interpreter::call_loop(const Node& node, Frame* outer, const Value& iterable, int64_t depth) {
  const Meter::Level level(meter);
  std::string content = captured([&] { with_frame(node, outer, [&] { iterate(node, iterable, depth); }); });
  return text(meter, std::move(content));
}

Interpreter::Flow Interpreter::iterate(const Node& node, const Value& iterable, int64_t depth) {
  auto loop = std::make_shared<Loop>();
  loop->depth0 = depth;
  if (node.is_function) {
    loop->node = &node;
    loop->outer = frame_->outer;
    keep_frames();
  }
  loop->source = [this, items = Iterator(iterable)](Value& out) mutable { return items.next(meter, out); };
  if (node.kids[2]) {
    loop->source = [this, &node, frame = frame_, items = Iterator(iterable), has_begun = false](Value& out) mutable {
      Frame* const before = std::exchange(frame_, frame);
      if (!std::exchange(has_begun, true)) enter(node, 1);
      bool found = false;
      while (!found && items.next(meter, out)) {
        assign(*node.kids[5], out);
        found = is_true_value(evaluate(*node.kids[2]));
      }
      frame_ = before;
      return found;
    };
  } else {
    loop->length = jinja::length(meter, iterable);
  }
  const Value value = wrap(meter, Kind::loop, loop);
  // If a namespace keeps the loop, the loop must not keep its values. Otherwise loops could form long chains.
  struct Cleared {
    ~Cleared() {
      loop.source = [](Value&) { return false; };
      loop.before = loop.current = loop.after = Value();
      loop.last_changed.clear();
    }
    Loop& loop;
  } const cleared{*loop};
  bool is_empty = true;
  while (loop->next()) {
    slot({0, node.loop}) = value;
    assign(*node.kids[0], loop->current);
    enter(node, 0);
    const Flow flow = execute_all(*node.kids[3]);
    if (flow == Flow::break_loop) break;
    // jinja2 runs `else` also if each iteration ended with `continue` or `break`.
    if (flow == Flow::normal) is_empty = false;
    meter.work(1);
  }
  if (!is_empty || !node.kids[4]) return Flow::normal;
  enter(node, 2);
  return execute_all(*node.kids[4]);
}

Template Template::parse(std::string_view source, std::string where) {
  if (!is_valid_utf8(source)) throw InputError(where, "The template is not valid UTF-8", "Write it as UTF-8");
  if (source.size() > (size_t{1} << 24))
    throw InputError(where, "The template has more than 16 MiB", "Write a shorter one");
  Template out;
  NodePtr root = parse_nodes(source, where);
  resolve_names(*root);
  out.root_ = std::move(root);
  out.where_ = std::move(where);
  return out;
}

Rendered Template::render(const nlohmann::ordered_json& variables, const Options& options) const {
  int line = 1;
  try {
    Interpreter interpreter(variables, options);
    try {
      return interpreter.run(*root_);
    } catch (const Fault&) {
      line = interpreter.line();
      throw;
    }
  } catch (const Fault& fault) {
    refuse(where_, line, printable(fault.what, 400), fault.remedy);
  }
}

}  // namespace tessera::jinja
