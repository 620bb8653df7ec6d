// Renders the syntax tree of a template.
#include <algorithm>
#include <ctime>

#include "tessera/base/error.h"
#include "tessera/jinja/builtins.h"
#include "tessera/jinja/node.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

// The variables of one call of a function. Macros may refer to the frame of the function that they are defined in, also
// after it has ended.
struct Frame {
  Frame* outer = nullptr;
  std::vector<Value> slots;
  bool is_kept = false;
};

struct Macro : Object {
  const Node* node = nullptr;
  Frame* outer = nullptr;
};

struct Function : Object {
  const char* name;
  explicit Function(const char* name_) : name(name_) {}
};

constexpr const char* kGlobals[] = {"range",           "dict",        "namespace", "cycler", "joiner",
                                    "raise_exception", "strftime_now"};

// The variable `loop`.
struct Loop : Object {
  std::function<bool(Value&)> source;
  int64_t length = -1;         // unknown
  const Node* node = nullptr;  // of a recursive loop
  Frame* outer = nullptr;
  int64_t index0 = -1, depth0 = 0;
  Value before, current, after;  // `after` is the next item if it is already read
  std::vector<Value> last_changed;
  bool has_changed = false;

  bool next() {
    Value item;
    if (!after.is_missing()) {
      item = std::exchange(after, Value());
    } else if (!source(item)) {
      return false;
    }
    ++index0;
    before = std::exchange(current, std::move(item));
    return true;
  }
  const Value& peek() {
    if (after.is_missing()) source(after);
    return after;
  }
  int64_t count(Meter& meter) {
    if (length >= 0) return length;
    auto rest = std::make_shared<std::vector<Value>>();
    for (Value item; source(item);) {
      meter.bytes(sizeof(Value));
      rest->push_back(item);
    }
    length = static_cast<int64_t>(rest->size()) + index0 + 1 + !after.is_missing();
    source = [rest, at = size_t{0}](Value& out) mutable {
      if (at >= rest->size()) return false;
      out = (*rest)[at++];
      return true;
    };
    return length;
  }
};

class Interpreter : public Caller {
 public:
  Interpreter(const nlohmann::ordered_json& variables, const Options& options)
      : Caller(options.limits), options_(options) {
    if (!variables.is_object()) throw Fault{"The variables are not an object"};
    variables_ = from_json(meter, variables);
    out_ = &rendered_.text;
  }
  ~Interpreter() override {
    // Namespaces and frames may refer to each other in circles.
    for (const auto& space : spaces_) space->names.clear();
    for (const auto& frame : frames_) frame->slots.clear();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  int line() const { return line_; }

  Rendered run(const Node& root) {
    with_frame(root, nullptr, [&] {
      enter(root, 0);
      execute_all(root);
    });
    return std::move(rendered_);
  }

  Value call(const Value& function, Arguments arguments) override {
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

 private:
  enum class Flow { normal, break_loop, continue_loop };

  // --- frames and variables

  template <typename Run>
  void with_frame(const Node& node, Frame* outer, Run run) {
    meter.bytes(sizeof(Frame) + static_cast<size_t>(node.slots) * sizeof(Value));
    auto own = std::make_unique<Frame>();
    own->outer = outer;
    own->slots.resize(static_cast<size_t>(node.slots));
    Frame* const before = std::exchange(frame_, own.get());
    const auto leave = [&] {
      frame_ = before;
      if (own->is_kept) frames_.push_back(std::move(own));
    };
    try {
      run();
    } catch (...) {
      leave();
      throw;
    }
    leave();
  }
  Value& slot(Place place) {
    Frame* frame = frame_;
    for (int i = 0; i < place.hops; ++i) frame = frame->outer;
    return frame->slots[static_cast<size_t>(place.slot)];
  }
  void keep_frames() {
    for (Frame* frame = frame_; frame != nullptr && !frame->is_kept; frame = frame->outer) frame->is_kept = true;
  }
  Value from_context(const std::string& name) {
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
  void enter(const Node& node, size_t scope) {
    for (const Entry& entry : node.scopes[scope]) {
      Value value;
      if (entry.from == Entry::From::context) value = from_context(entry.name);
      if (entry.from == Entry::From::outer) value = slot(entry.outer);
      frame_->slots[static_cast<size_t>(entry.slot)] = std::move(value);
    }
  }
  void assign(const Node& target, const Value& value) {
    if (target.type == Type::name) {
      slot(target.place) = value;
    } else if (target.type == Type::attribute) {
      const Value space = evaluate(*target.kids[0]);
      if (!space.is(Kind::space)) {
        throw Fault{"Cannot assign to " + target.kids[0]->text + "." + target.text + ", because " +
                        target.kids[0]->text + " is no namespace",
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
  static void set_name(Space& space, const std::string& name, const Value& value) {
    if (name[0] == '_') throw Fault{"The name " + name + " of a namespace begins with _", "Rename it"};
    for (auto& [other, old] : space.names) {
      if (other == name) {
        old = value;
        return;
      }
    }
    space.names.emplace_back(name, value);
  }

  // --- statements

  void write(std::string_view content) {
    meter.bytes(content.size());
    *out_ += content;
  }
  // Returns what `run` writes.
  template <typename Run>
  std::string captured(Run run) {
    std::string text;
    std::string* const before = std::exchange(out_, &text);
    ++captures_;
    const auto leave = [&] {
      out_ = before;
      --captures_;
    };
    try {
      run();
    } catch (...) {
      leave();
      throw;
    }
    leave();
    return text;
  }

  Flow execute_all(const Node& body) {
    for (const NodePtr& kid : body.kids) {
      const Flow flow = execute(*kid);
      if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

  Flow execute(const Node& node) {
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

  Flow execute_with(const Node& node) {
    std::vector<Value> values;
    for (size_t i = 1; i < node.kids.size(); i += 2) values.push_back(evaluate(*node.kids[i]));
    enter(node, 0);
    for (size_t i = 0; i < values.size(); ++i) assign(*node.kids[2 * i], values[i]);
    return execute_all(*node.kids.back());
  }

  // A set block or a filter block.
  Flow execute_captured(const Node& node) {
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

  Flow execute_generation(const Node& node) {
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

  Flow execute_loop(const Node& node) {
    const Value iterable = evaluate(*node.kids[1]);
    if (!node.is_function) return iterate(node, iterable, 0);
    write(call_loop(node, frame_, iterable, 0).text());
    return Flow::normal;
  }
  // Runs a recursive loop, and returns its text.
  Value call_loop(const Node& node, Frame* outer, const Value& iterable, int64_t depth) {
    const Meter::Level level(meter);
    std::string content = captured([&] { with_frame(node, outer, [&] { iterate(node, iterable, depth); }); });
    return text(meter, std::move(content));
  }
  Flow iterate(const Node& node, const Value& iterable, int64_t depth) {
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

  // --- calls

  Value macro(const Node& node) {
    keep_frames();
    auto macro = std::make_shared<Macro>();
    macro->node = &node;
    macro->outer = frame_;
    return wrap(meter, Kind::macro, std::move(macro));
  }

  Value call_macro(const Macro& macro, Arguments arguments) {
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

  Value call_bound(const Method& method, const Arguments& arguments) {
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

  // Python's dict(…).
  std::vector<std::pair<Value, Value>> dict_items(std::string_view name, const Arguments& arguments) {
    std::vector<std::pair<Value, Value>> out;
    if (arguments.positional.size() > 1)
      throw Fault{std::string(name) + "() takes at most one argument without a name"};
    if (!arguments.positional.empty()) {
      const Value& source = arguments.positional[0];
      if (source.is(Kind::dict)) {
        out = source.as<Dict>().items;
      } else {
        for (const Value& pair : list_of(meter, source)) {
          const std::vector<Value> both = list_of(meter, pair);
          if (both.size() != 2) throw Fault{std::string(name) + "() needs pairs"};
          out.emplace_back(both[0], both[1]);
        }
      }
    }
    for (const auto& [key, value] : arguments.named) out.emplace_back(text(meter, key), value);
    return out;
  }

  Value call_global(std::string_view name, const Arguments& arguments) {
    if (name == "dict") return dict(meter, dict_items(name, arguments));
    if (name == "namespace") {
      auto space = std::make_shared<Space>();
      for (const auto& [key, value] : dict_items(name, arguments)) {
        if (!key.is_text() || key.text().empty()) throw Fault{"A name of a namespace is not a text"};
        set_name(*space, key.text(), value);
      }
      spaces_.push_back(space);
      return wrap(meter, Kind::space, std::move(space));
    }
    if (name == "range") {
      if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3) {
        throw Fault{"range() takes one to three arguments without names"};
      }
      std::vector<int64_t> numbers;
      for (const Value& value : arguments.positional) {
        numbers.push_back(as_index(value));
        if (std::abs(numbers.back()) > (int64_t{1} << 60)) throw Fault{"A bound of range() is too large"};
      }
      auto range = std::make_shared<Range>();
      range->stop = numbers[numbers.size() == 1 ? 0 : 1];
      if (numbers.size() > 1) range->start = numbers[0];
      if (numbers.size() > 2) range->step = numbers[2];
      if (range->step == 0) throw Fault{"The step of range() is 0"};
      if (range->size() > 100'000) throw Fault{"range() has more than 100000 numbers"};
      return wrap(meter, Kind::range, std::move(range));
    }
    if (name == "cycler") {
      if (arguments.positional.empty() || !arguments.named.empty())
        throw Fault{"cycler() needs arguments without names"};
      auto cycler = std::make_shared<Cycler>();
      const Value items = sequence(meter, Kind::tuple, arguments.positional);
      cycler->items = items.items();
      return wrap(meter, Kind::cycler, std::move(cycler), {items});
    }
    if (name == "joiner") {
      auto joiner = std::make_shared<Joiner>();
      joiner->separator = arguments.take(name, std::array{"sep"}, 0)[0];
      if (joiner->separator.is_missing()) joiner->separator = text(meter, ", ");
      return wrap(meter, Kind::joiner, joiner, {joiner->separator});
    }
    if (name == "raise_exception") {
      const Value message = arguments.take(name, std::array{"message"}, 1)[0];
      throw Fault{"The template reports: " + str(meter, message), "Change the conversation or the template"};
    }
    const Value format = arguments.take(name, std::array{"format"}, 1)[0];
    if (!format.is_text()) throw Fault{"strftime_now() needs a text"};
    return text(meter, time_text(format.text()));
  }
  std::string time_text(std::string_view format) const {
    std::tm now{};
    if (options_.now) {
      now = *options_.now;
    } else {
      const std::time_t seconds = std::time(nullptr);
      localtime_r(&seconds, &now);
    }
    std::string known;  // %z and %Z are empty, because Python's datetime.now() has no zone
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        known.push_back(format[i]);
        continue;
      }
      const char letter = format[++i];
      if (letter == 'f') throw Fault{"strftime_now() does not support %f", "Remove %f"};
      if (letter != 'z' && letter != 'Z') known += {'%', letter};
    }
    // A text of format characters becomes at most 100 times longer.
    std::string out(known.size() * 100 + 1, '\0');
    out.resize(std::strftime(out.data(), out.size(), known.c_str(), &now));
    return out;
  }

  // --- expressions

  bool is_true_value(const Value& value) {
    if (value.is(Kind::loop)) return value.as<Loop>().count(meter) != 0;
    return is_true(meter, value);
  }

  // The arguments of a call, filter or test: the kids of the node after the first one.
  Arguments arguments_of(const Node& node) {
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

  // `caller` is what a call block passes to its call, or missing.
  Value call_node(const Node& node, const Value& caller) {
    const Value function = evaluate(*node.kids[0]);
    Arguments arguments = arguments_of(node);
    if (!caller.is_missing()) arguments.named.emplace_back("caller", caller);
    line_ = node.line;
    return call(function, std::move(arguments));
  }
  // Applies a filter and the filters before it, the first one to `input` if this is not nullptr.
  Value apply_filter(const Node& node, const Value* input) {
    const Node* first = node.kids[0].get();
    Value value = first == nullptr                                  ? *input
                  : input != nullptr && first->type == Type::filter ? apply_filter(*first, input)
                                                                    : evaluate(*first);
    Arguments arguments = arguments_of(node);
    arguments.positional.insert(arguments.positional.begin(), std::move(value));
    line_ = node.line;
    return node.filter->apply(*this, arguments);
  }

  Value evaluate(const Node& node) {
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
  std::vector<Value> evaluate_all(const Node& node) {
    std::vector<Value> out;
    out.reserve(node.kids.size());
    for (const NodePtr& kid : node.kids) out.push_back(evaluate(*kid));
    return out;
  }

  Value compare(const Node& node) {
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
  // Differs from !(b < a) if one is NaN.
  bool less_or_equal(const Value& a, const Value& b) {
    return less(meter, a, b) || (!less(meter, b, a) && equal(meter, a, b));
  }

  Value attribute_of(const Node& node) {
    const Value object = evaluate(*node.kids[0]);
    line_ = node.line;
    if (object.is(Kind::loop)) return loop_attribute(object, node.text);
    if (object.is(Kind::macro) && node.text == "name") return text(meter, object.as<Macro>().node->text);
    return attribute(*this, object, node.text);
  }
  Value loop_attribute(const Value& object, const std::string& name) {
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

  const Options& options_;
  Value variables_;
  Rendered rendered_;
  std::string* out_;
  int captures_ = 0;  // blocks around the current statement that capture its text
  int line_ = 1;
  Frame* frame_ = nullptr;
  std::vector<std::unique_ptr<Frame>> frames_;  // that have ended, and to which a macro refers
  std::vector<std::shared_ptr<Space>> spaces_;
};

}  // namespace

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
