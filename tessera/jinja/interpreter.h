// Renders the syntax tree of a template. interpreter.cc executes statements, expressions.cc computes expressions and
// calls, globals.cc has the functions that every template knows.
#pragma once

#include <ctime>
#include <utility>

#include "tessera/jinja/builtins.h"
#include "tessera/jinja/node.h"

namespace tessera::jinja {

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

inline constexpr const char* kGlobals[] = {"range",           "dict",        "namespace", "cycler", "joiner",
                                           "raise_exception", "strftime_now"};

// Calls a function at the end of a scope, also after an exception.
template <typename Function>
struct AtEnd {
  explicit AtEnd(Function function_) : function(std::move(function_)) {}
  ~AtEnd() { function(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  Function function;
};

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

class Interpreter final : public Caller {
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

  Rendered run(const Node& root);

  Value call(const Value& function, Arguments arguments) override;

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
    const AtEnd leave([&] {
      frame_ = before;
      if (own->is_kept) frames_.push_back(std::move(own));
    });
    run();
  }
  Value& slot(Place place);
  void keep_frames();
  Value from_context(const std::string& name);
  void enter(const Node& node, size_t scope);
  void assign(const Node& target, const Value& value);
  static void set_name(Space& space, const std::string& name, const Value& value);

  // --- statements

  void write(std::string_view content);
  // Returns what `run` writes.
  template <typename Run>
  std::string captured(Run run) {
    std::string text;
    std::string* const before = std::exchange(out_, &text);
    ++captures_;
    const AtEnd leave([&] {
      out_ = before;
      --captures_;
    });
    run();
    return text;
  }

  Flow execute_all(const Node& body);

  Flow execute(const Node& node);

  Flow execute_with(const Node& node);

  // A set block or a filter block.
  Flow execute_captured(const Node& node);

  Flow execute_generation(const Node& node);

  Flow execute_loop(const Node& node);
  // Runs a recursive loop, and returns its text.
  Value call_loop(const Node& node, Frame* outer, const Value& iterable, int64_t depth);
  Flow iterate(const Node& node, const Value& iterable, int64_t depth);

  // --- calls

  Value macro(const Node& node);

  Value call_macro(const Macro& macro, Arguments arguments);

  Value call_bound(const Method& method, const Arguments& arguments);

  // Python's dict(…).
  std::vector<std::pair<Value, Value>> dict_items(std::string_view name, const Arguments& arguments);

  Value call_global(std::string_view name, const Arguments& arguments);
  std::string time_text(std::string_view format) const;

  // --- expressions

  bool is_true_value(const Value& value);

  // The arguments of a call, filter or test: the kids of the node after the first one.
  Arguments arguments_of(const Node& node);

  // `caller` is what a call block passes to its call, or missing.
  Value call_node(const Node& node, const Value& caller);
  // Applies a filter and the filters before it, the first one to `input` if this is not nullptr.
  Value apply_filter(const Node& node, const Value* input);

  Value evaluate(const Node& node);
  std::vector<Value> evaluate_all(const Node& node);

  Value compare(const Node& node);
  // Differs from !(b < a) if one is NaN.
  bool less_or_equal(const Value& a, const Value& b);

  Value attribute_of(const Node& node);
  Value loop_attribute(const Value& object, const std::string& name);

  const Options& options_;
  Value variables_;
  Rendered rendered_;
  std::string* out_;
  int captures_ = 0;  // blocks around the current statement that capture its text
  int line_ = 1;
  Frame* frame_ = nullptr;
  std::vector<std::unique_ptr<Frame>> frames_;  // they have ended, but macros still refer to them
  std::vector<std::shared_ptr<Space>> spaces_;
};

}  // namespace tessera::jinja
