// Gives each name a place, as jinja2's compiler does. A scope is a part of a template with its own variables: the root,
// a macro, the body of a loop, ... An `if` has no scope. A function (root, macro, call block, recursive loop) has a
// frame of slots for the variables of all its scopes.
//
// The rules decide at parse time which variable a name means. A name that a scope sets has a slot in this scope. When
// the scope begins, the slot gets a copy of the outer variable of the same name. Without an outer variable, the slot
// gets the value that the caller of render() gave, if the scope reads the name before it sets it, or if it sets the
// name only within an `if`. Otherwise the slot has no value until the scope sets it. A name that a scope only reads
// means the variable of the nearest outer scope with this name, or else the value that the caller gave.
#include <map>

#include "tessera/jinja/node.h"

namespace tessera::jinja {
namespace {

struct Function {
  int level;
  int slots = 0;
};

struct Scope {
  Scope* outer;
  Function* function;
  std::map<std::string, int> slots;
  std::vector<Entry> entries;

  // The scope that has a slot for the name; nullptr if none has.
  const Scope* owner(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      if (scope->slots.contains(name)) return scope;
    }
    return nullptr;
  }
  Place place(const std::string& name, const Scope& from) const {
    return {from.function->level - function->level, slots.at(name)};
  }
  int parameter(const std::string& name) { return slots[name] = function->slots++; }
  void enter(const std::string& name, Entry::From from, Place outer_place = {}) {
    entries.push_back({from, parameter(name), outer_place, name});
  }
  void load(const std::string& name) {
    if (owner(name) == nullptr) enter(name, Entry::From::context);
  }
  void store(const std::string& name, bool in_branch) {
    if (slots.contains(name)) return;
    if (const Scope* other = owner(name)) {
      enter(name, Entry::From::outer, other->place(name, *this));
    } else {
      enter(name, in_branch ? Entry::From::context : Entry::From::nowhere);
    }
  }
};

// Whether a part of a template loads the name before it sets it, in the order of the text.
bool loads_before_set(const Node& node, const std::string& name, bool& is_set) {
  if (is_set) return false;
  if (node.type == Type::name) return node.text == name;
  const bool sets = node.type == Type::set || node.type == Type::set_block || node.type == Type::loop;
  for (size_t i = 0; i < node.kids.size(); ++i) {
    const Node* kid = node.kids[i].get();
    if (kid == nullptr || (sets && (i == 0 || (node.type == Type::loop && i == 5)))) continue;
    if (loads_before_set(*kid, name, is_set)) return true;
  }
  if (sets && node.kids[0]->type == Type::name && node.kids[0]->text == name) is_set = true;
  return false;
}

class Resolver {
 public:
  void run(Node& root) {
    Function function{0};
    Scope scope{nullptr, &function, {}, {}};
    declare(scope, root, false);
    bind(scope, root);
    root.slots = function.slots;
    root.scopes = {scope.entries};
  }

 private:
  // Finds the names that belong to `scope`. Inner scopes come later.
  void declare(Scope& scope, const Node& node, bool in_branch) {
    switch (node.type) {
      case Type::name:
        scope.load(node.text);
        return;
      case Type::branch:
        for (size_t i = 0; i < node.kids.size(); ++i) declare(scope, *node.kids[i], in_branch || i > 0);
        return;
      case Type::set:
        declare(scope, *node.kids[1], in_branch);
        declare_target(scope, *node.kids[0], in_branch);
        return;
      case Type::set_block:
        declare_target(scope, *node.kids[0], in_branch);
        return;
      case Type::loop:
        declare(scope, *node.kids[1], in_branch);
        return;
      case Type::macro:
        scope.store(node.text, in_branch);
        return;
      case Type::call_block:
      case Type::filter_block:
        declare(scope, *node.kids[0], in_branch);
        return;
      case Type::with:
        for (size_t i = 1; i < node.kids.size(); i += 2) declare(scope, *node.kids[i], in_branch);
        return;
      case Type::generation:
        return;
      default:
        for (const NodePtr& kid : node.kids) {
          if (kid) declare(scope, *kid, in_branch);
        }
    }
  }
  void declare_target(Scope& scope, const Node& target, bool in_branch) {
    if (target.type == Type::name) {
      scope.store(target.text, in_branch);
    } else if (target.type == Type::attribute) {
      scope.load(target.kids[0]->text);
    } else {
      for (const NodePtr& kid : target.kids) declare_target(scope, *kid, in_branch);
    }
  }
  void declare_parameters(Scope& scope, const Node& target) {
    if (target.type == Type::name) scope.parameter(target.text);
    for (const NodePtr& kid : target.kids) declare_parameters(scope, *kid);
  }

  // Gives places to the names of a part of `scope`, and resolves the scopes within it.
  void bind(Scope& scope, Node& node) {
    switch (node.type) {
      case Type::name: {
        const Scope* owner = scope.owner(node.text);
        if (owner == nullptr) {  // an argument of the filter of a set block
          scope.load(node.text);
          owner = &scope;
        }
        node.place = owner->place(node.text, scope);
        return;
      }
      case Type::set_block:
        bind(scope, *node.kids[0]);
        bind_inner(scope, node, 0, {node.kids[2].get(), node.kids[1].get()}, {});
        return;
      case Type::filter_block:
        bind_inner(scope, node, 0, {node.kids[1].get(), node.kids[0].get()}, {});
        return;
      case Type::generation:
        bind_inner(scope, node, 0, {node.kids[0].get()}, {});
        return;
      case Type::with: {
        std::vector<Node*> targets;
        for (size_t i = 0; i + 1 < node.kids.size(); i += 2) {
          targets.push_back(node.kids[i].get());
          bind(scope, *node.kids[i + 1]);
        }
        bind_inner(scope, node, 0, {node.kids.back().get()}, targets);
        return;
      }
      case Type::macro:
        node.place = scope.owner(node.text)->place(node.text, scope);
        bind_function(scope, node, *node.kids[0], *node.kids[1]);
        return;
      case Type::call_block:
        bind(scope, *node.kids[0]);
        bind_function(scope, node, *node.kids[1], *node.kids[2]);
        return;
      case Type::loop:
        bind_loop(scope, node);
        return;
      default:
        for (const NodePtr& kid : node.kids) {
          if (kid) bind(scope, *kid);
        }
    }
  }

  void bind_inner(Scope& outer, Node& node, size_t index, std::initializer_list<Node*> parts,
                  const std::vector<Node*>& parameters, Function* function = nullptr, int* loop = nullptr) {
    Scope scope{&outer, function != nullptr ? function : outer.function, {}, {}};
    if (loop != nullptr) *loop = scope.parameter("loop");
    for (const Node* target : parameters) declare_parameters(scope, *target);
    for (const Node* part : parts) {
      if (part != nullptr) declare(scope, *part, false);
    }
    for (Node* target : parameters) bind(scope, *target);
    for (Node* part : parts) {
      if (part != nullptr) bind(scope, *part);
    }
    node.scopes[index] = scope.entries;
  }

  void bind_function(Scope& outer, Node& node, Node& signature, Node& body) {
    Function function{outer.function->level + 1};
    Scope scope{&outer, &function, {}, {}};
    const size_t count = signature.kids.size() - signature.names.size();
    for (size_t i = 0; i < count; ++i) node.parameters.push_back(scope.parameter(signature.kids[i]->text));
    for (const auto& [name, slot] :
         {std::pair{"caller", &node.caller}, {"kwargs", &node.kwargs}, {"varargs", &node.varargs}}) {
      bool is_set = false;
      if (!scope.slots.contains(name) && loads_before_set(body, name, is_set)) *slot = scope.parameter(name);
    }
    for (size_t i = count; i < signature.kids.size(); ++i) declare(scope, *signature.kids[i], false);
    declare(scope, body, false);
    for (const NodePtr& kid : signature.kids) bind(scope, *kid);
    bind(scope, body);
    node.scopes[0] = scope.entries;
    node.slots = function.slots;
  }

  void bind_loop(Scope& outer, Node& node) {
    bind(outer, *node.kids[1]);
    Function own{outer.function->level + 1};
    Function* function = node.is_function ? &own : nullptr;
    bind_inner(outer, node, 0, {node.kids[3].get()}, {node.kids[0].get()}, function, &node.loop);
    if (node.kids[2]) bind_inner(outer, node, 1, {node.kids[2].get()}, {node.kids[5].get()}, function);
    if (node.kids[4]) bind_inner(outer, node, 2, {node.kids[4].get()}, {}, function);
    node.slots = own.slots;
  }
};

}  // namespace

void resolve_names(Node& root) {
  Resolver().run(root);
}

}  // namespace tessera::jinja
