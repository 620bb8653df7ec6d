#include <algorithm>
#include <charconv>
#include <set>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/jinja/filters.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

// The parts of an attribute such as "function.name" or "0.role". Empty without an attribute.
std::vector<Value> path_of(Meter& meter, const Value& attribute_name) {
  if (attribute_name.is_missing() || attribute_name.is(Kind::none)) return {};
  if (!attribute_name.is_text()) return {attribute_name};
  std::vector<Value> out;
  for (const std::string_view part : split(attribute_name.text(), ".", -1)) {
    int64_t number = 0;
    const bool is_number =
        !part.empty() &&
        std::from_chars(part.data(), part.data() + part.size(), number).ptr == part.data() + part.size() &&
        part[0] != '-';
    out.push_back(is_number ? integer(number) : text(meter, std::string(part)));
  }
  return out;
}
Value follow(Caller& caller, Value value, const std::vector<Value>& path, const Value& standard = {}) {
  for (const Value& part : path) {
    value = subscript(caller, value, part);
    if (value.is(Kind::undefined) && !standard.is_missing() && !standard.is(Kind::none)) value = standard;
  }
  return value;
}
Value without_case(Meter& meter, const Value& value) {
  return value.is_text() ? text(meter, lower(value.text())) : value;
}

// A stream of what `make` returns. It calls `make` when the template reads the first item.
Value later(Meter& meter, std::function<std::vector<Value>()> make, std::initializer_list<Value> inner) {
  auto items = std::make_shared<std::vector<Value>>();
  return stream(
      meter,
      [make = std::move(make), items, at = size_t{0}, is_made = false](Value& out) mutable {
        if (!std::exchange(is_made, true)) *items = make();
        if (at >= items->size()) return false;
        out = (*items)[at++];
        return true;
      },
      inner);
}

Value join(Caller& c, Args a) {
  const auto [value, separator_value, attribute_name] = a.take("join", std::array{"value", "d", "attribute"}, 1);
  const std::string separator = separator_value.is_missing() ? "" : str(c.meter, separator_value);
  const auto path = path_of(c.meter, attribute_name);
  std::string out;
  Iterator rest(value);
  bool is_first = true;
  for (Value item; rest.next(c.meter, item);) {
    if (!std::exchange(is_first, false)) out += separator;
    const std::string part = str(c.meter, follow(c, item, path));
    c.meter.bytes(part.size() + separator.size());
    out += part;
  }
  return text(c.meter, std::move(out));
}

Value length_of(Caller& c, Args a) {
  const Value value = a.take("length", std::array{"obj"}, 1)[0];

  const int64_t size = length(c.meter, value);
  if (size < 0)
    throw Fault{std::string("A value of type ") + type_name(value) + " has no length", "Apply the filter `list` to it"};
  return integer(size);
}

Value first(Caller& c, Args a) {
  Iterator rest(a.take("first", std::array{"seq"}, 1)[0]);
  Value item;
  return rest.next(c.meter, item) ? item : undefined("`first` is applied to an empty sequence");
}

Value last(Caller& c, Args a) {
  const Value value = a.take("last", std::array{"seq"}, 1)[0];
  if (value.is(Kind::stream)) throw Fault{"`last` cannot read a generator", "Apply the filter `list` to it"};
  const std::vector<Value> items = list_of(c.meter, value);
  return items.empty() ? undefined("`last` is applied to an empty sequence") : items.back();
}

Value reverse(Caller& c, Args a) {
  const Value value = a.take("reverse", std::array{"value"}, 1)[0];
  if (value.is_text()) {
    const std::u32string points = decode(value.text());
    return text(c.meter, encode(std::u32string(points.rbegin(), points.rend())), value.as<Text>().markup);
  }
  std::vector<Value> items = list_of(c.meter, value);
  std::reverse(items.begin(), items.end());
  if (value.is(Kind::stream)) return sequence(c.meter, Kind::list, std::move(items));
  return later(c.meter, [items = std::move(items)] { return items; }, {value});
}

Value to_list(Caller& c, Args a) {
  return sequence(c.meter, Kind::list, list_of(c.meter, a.take("list", std::array{"value"}, 1)[0]));
}

Value items_of(Caller& c, Args a) {
  const Value value = a.take("items", std::array{"value"}, 1)[0];
  return later(c.meter,
               [&c, value]() -> std::vector<Value> {
                 if (value.is(Kind::undefined)) return {};
                 if (!value.is(Kind::dict)) throw Fault{std::string("`items` needs a dict, not ") + type_name(value)};
                 std::vector<Value> out;
                 for (const auto& [key, item] : value.as<Dict>().items)
                   out.push_back(sequence(c.meter, Kind::tuple, {key, item}));
                 return out;
               },
               {value});
}

// Sorts by keys, as Python's sorted().
std::vector<Value> sorted(Meter& meter, std::vector<Value> items, const std::function<Value(const Value&)>& key_of_item,
                          bool is_reverse) {
  std::vector<std::pair<Value, Value>> pairs;
  for (Value& item : items) pairs.emplace_back(key_of_item(item), item);
  if (is_reverse) std::reverse(pairs.begin(), pairs.end());
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](const auto& x, const auto& y) { return less(meter, x.first, y.first); });
  if (is_reverse) std::reverse(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size(); ++i) items[i] = pairs[i].second;
  return items;
}

Value sort(Caller& c, Args a) {
  const auto [value, is_reverse, with_case, attribute_name] =
      a.take("sort", std::array{"value", "reverse", "case_sensitive", "attribute"}, 1);
  std::vector<std::vector<Value>> paths;
  if (attribute_name.is_text()) {
    for (const std::string_view name : split(attribute_name.text(), ",", -1))
      paths.push_back(path_of(c.meter, text(c.meter, std::string(name))));
  } else {
    paths.push_back(path_of(c.meter, attribute_name));
  }
  const bool ignores_case = !is_true(c.meter, with_case);
  const auto key = [&](const Value& item) {
    std::vector<Value> keys;
    for (const auto& path : paths) {
      Value part = follow(c, item, path);
      keys.push_back(ignores_case ? without_case(c.meter, part) : part);
    }
    return sequence(c.meter, Kind::list, std::move(keys));
  };
  return sequence(c.meter, Kind::list, sorted(c.meter, list_of(c.meter, value), key, is_true(c.meter, is_reverse)));
}

Value sort_dict(Caller& c, Args a) {
  const auto [value, with_case, by, is_reverse] =
      a.take("dictsort", std::array{"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string which = by.is_missing() ? "key" : by.is_text() ? by.text() : "";
  if (which != "key" && which != "value") throw Fault{"`dictsort` sorts by \"key\" or \"value\""};
  check_defined(value);
  if (!value.is(Kind::dict)) throw Fault{std::string("`dictsort` needs a dict, not ") + type_name(value)};
  std::vector<Value> items;
  for (const auto& [key, item] : value.as<Dict>().items) items.push_back(sequence(c.meter, Kind::tuple, {key, item}));
  const bool ignores_case = !is_true(c.meter, with_case);
  const auto key = [&](const Value& pair) {
    const Value& part = pair.items()[which == "value"];
    return ignores_case ? without_case(c.meter, part) : part;
  };
  return sequence(c.meter, Kind::list, sorted(c.meter, std::move(items), key, is_true(c.meter, is_reverse)));
}

Value group(Caller& c, Args a) {
  const auto [value, attribute_name, standard, with_case] =
      a.take("groupby", std::array{"value", "attribute", "default", "case_sensitive"}, 2);
  const auto path = path_of(c.meter, attribute_name);
  const bool ignores_case = !is_true(c.meter, with_case);
  const auto key = [&, standard = standard](const Value& item) {
    Value out = follow(c, item, path, standard);
    return ignores_case ? without_case(c.meter, out) : out;
  };
  std::vector<Value> groups, members;
  const std::vector<Value> items = sorted(c.meter, list_of(c.meter, value), key, false);
  for (size_t i = 0; i < items.size(); ++i) {
    members.push_back(items[i]);
    if (i + 1 < items.size() && equal(c.meter, key(items[i]), key(items[i + 1]))) continue;
    Value tuple =
        sequence(c.meter, Kind::tuple, {follow(c, members[0], path, standard), sequence(c.meter, Kind::list, members)});
    tuple.as<Items>().is_group = true;
    groups.push_back(std::move(tuple));
    members.clear();
  }
  return sequence(c.meter, Kind::list, std::move(groups));
}

Value unique(Caller& c, Args a) {
  const auto [value, with_case, attribute_name] =
      a.take("unique", std::array{"value", "case_sensitive", "attribute"}, 1);
  const auto path = path_of(c.meter, attribute_name);
  const bool ignores_case = !is_true(c.meter, with_case);
  return later(c.meter,
               [&c, value = value, path, ignores_case] {
                 std::vector<Value> out;
                 std::set<std::string> seen;
                 Iterator rest(value);
                 for (Value item; rest.next(c.meter, item);) {
                   const Value part = follow(c, item, path);
                   if (seen.insert(key_of(c.meter, ignores_case ? without_case(c.meter, part) : part)).second)
                     out.push_back(item);
                 }
                 return out;
               },
               {value});
}

template <bool IsMax>
Value extreme(Caller& c, Args a) {
  const auto [value, with_case, attribute_name] =
      a.take(IsMax ? "max" : "min", std::array{"value", "case_sensitive", "attribute"}, 1);
  const auto path = path_of(c.meter, attribute_name);
  const bool ignores_case = !is_true(c.meter, with_case);
  Iterator rest(value);
  Value best, best_key;
  for (Value item; rest.next(c.meter, item);) {
    const Value part = follow(c, item, path);
    const Value key = ignores_case ? without_case(c.meter, part) : part;
    if (!best.is_missing() && !(IsMax ? less(c.meter, best_key, key) : less(c.meter, key, best_key))) continue;
    best = item;
    best_key = key;
  }
  return best.is_missing() ? undefined("`min` or `max` is applied to an empty sequence") : best;
}

Value sum(Caller& c, Args a) {
  const auto [value, attribute_name, start] = a.take("sum", std::array{"iterable", "attribute", "start"}, 1);
  const auto path = path_of(c.meter, attribute_name);
  Value total = otherwise(start, integer(0));
  if (total.is_text()) throw Fault{"`sum` cannot add texts", "Use the filter `join`"};
  Iterator rest(value);
  for (Value item; rest.next(c.meter, item);) total = binary(c, "+", total, follow(c, item, path));
  return total;
}

Value batch(Caller& c, Args a) {
  const auto [value, count_value, fill] = a.take("batch", std::array{"value", "linecount", "fill_with"}, 2);
  return later(c.meter,
               [&c, value = value, count_value = count_value, fill = fill] {
                 const int64_t size = as_index(count_value);
                 std::vector<Value> out, row;
                 Iterator rest(value);
                 for (Value item; rest.next(c.meter, item);) {
                   if (static_cast<int64_t>(row.size()) == size)
                     out.push_back(sequence(c.meter, Kind::list, std::exchange(row, {})));
                   row.push_back(item);
                 }
                 if (row.empty()) return out;
                 if (!fill.is_missing() && !fill.is(Kind::none)) {
                   while (static_cast<int64_t>(row.size()) < size) {
                     c.meter.bytes(sizeof(Value));
                     row.push_back(fill);
                   }
                 }
                 out.push_back(sequence(c.meter, Kind::list, std::move(row)));
                 return out;
               },
               {value, fill});
}

Value slices(Caller& c, Args a) {
  const auto [value, count_value, fill] = a.take("slice", std::array{"value", "slices", "fill_with"}, 2);
  return later(c.meter,
               [&c, value = value, count_value = count_value, fill = fill] {
                 const std::vector<Value> items = list_of(c.meter, value);
                 const int64_t number = as_index(count_value);
                 if (number == 0) throw Fault{"`slice` divides by 0"};
                 std::vector<Value> out;
                 const int64_t size = static_cast<int64_t>(items.size()), extra = number > 0 ? size % number : 0;
                 int64_t at = 0;
                 for (int64_t i = 0; i < number; ++i) {
                   const int64_t end = at + size / number + (i < extra);
                   std::vector<Value> row(items.begin() + at, items.begin() + end);
                   if (!fill.is_missing() && !fill.is(Kind::none) && i >= extra) row.push_back(fill);
                   out.push_back(sequence(c.meter, Kind::list, std::move(row)));
                   at = end;
                 }
                 return out;
               },
               {value, fill});
}

// The remaining arguments of a filter that applies another filter or test by its name.
std::string name_of(const Value& value, const char* kind) {
  if (!value.is_text()) throw Fault{std::string("The name of a ") + kind + " is not a text"};
  return value.text();
}

Value map(Caller& c, Args a) {
  const Value value = a.positional[0];
  if (!value.is(Kind::stream) && !is_true(c.meter, value))
    return later(c.meter, [] { return std::vector<Value>(); }, {});
  auto rest = std::make_shared<std::optional<Iterator>>();
  const auto next = [value, rest](Meter& meter, Value& out) {
    if (!*rest) rest->emplace(value);
    return (*rest)->next(meter, out);
  };
  if (a.positional.size() == 1) {
    Value attribute_name, standard;
    for (const auto& [name, argument] : a.named) {
      if (name != "attribute" && name != "default") throw Fault{"`map` has no parameter " + name};
      (name == "attribute" ? attribute_name : standard) = argument;
    }
    if (attribute_name.is_missing()) throw Fault{"`map` needs the name of a filter, or attribute=…"};
    return stream(c.meter,
                  [&c, next, path = path_of(c.meter, attribute_name), standard](Value& out) {
                    Value item;
                    if (!next(c.meter, item)) return false;
                    out = follow(c, item, path, standard);
                    return true;
                  },
                  {value, standard});
  }
  const std::string name = name_of(a.positional[1], "filter");
  const Filter* filter = find_filter(name);
  if (filter == nullptr)
    throw Fault{"The filter `" + printable(name) + "` is not supported", did_you_mean(name, filter_names())};
  Arguments arguments;
  arguments.positional.assign(a.positional.begin() + 1, a.positional.end());
  arguments.named = a.named;
  const Value held = sequence(c.meter, Kind::tuple, arguments.positional);
  return stream(c.meter,
                [&c, next, filter, arguments](Value& out) mutable {
                  if (!next(c.meter, arguments.positional[0])) return false;
                  out = filter->apply(c, arguments);
                  return true;
                },
                {value, held});
}

template <bool Selects, bool ByAttribute>
Value select(Caller& c, Args a) {
  const Value value = a.positional[0];
  if (!value.is(Kind::stream) && !is_true(c.meter, value))
    return later(c.meter, [] { return std::vector<Value>(); }, {});
  constexpr size_t kOffset = ByAttribute ? 2 : 1;
  if (ByAttribute && a.positional.size() < 2)
    throw Fault{"`selectattr` and `rejectattr` need the name of an attribute"};
  const auto path = ByAttribute ? path_of(c.meter, a.positional[1]) : std::vector<Value>();
  const Test* test = nullptr;
  Arguments arguments;
  arguments.named = a.named;
  if (a.positional.size() > kOffset) {
    const std::string name = name_of(a.positional[kOffset], "test");
    test = find_test(name);
    if (test == nullptr)
      throw Fault{"The test `" + printable(name) + "` is not supported", did_you_mean(name, test_names())};
    arguments.positional.assign(a.positional.begin() + kOffset, a.positional.end());
  }
  const Value held = sequence(c.meter, Kind::tuple, arguments.positional);
  return stream(c.meter,
                [&c, rest = std::optional<Iterator>(), value, path, test, arguments](Value& out) mutable {
                  if (!rest) rest.emplace(value);
                  while (rest->next(c.meter, out)) {
                    Value part = follow(c, out, path);
                    bool holds = false;
                    if (test == nullptr) {
                      holds = is_true(c.meter, part);
                    } else {
                      arguments.positional[0] = std::move(part);
                      holds = test->apply(c, arguments);
                    }
                    if (holds == Selects) return true;
                  }
                  return false;
                },
                {value, held});
}

Value attr(Caller& c, Args a) {
  const auto [object, name] = a.take("attr", std::array{"obj", "name"}, 2);
  check_defined(object);
  if (!name.is_text()) throw Fault{"`attr` needs a text"};
  if (!object.is(Kind::dict)) return attribute(c, object, name.text());
  Value method = find_method(c, object, name.text());
  return method.is_missing() ? undefined("A dict has no attribute `" + printable(name.text()) + "`") : method;
}

Value standard(Caller& c, Args a) {
  const auto [value, other, for_false] = a.take("default", std::array{"value", "default_value", "boolean"}, 1);
  if (value.is(Kind::undefined) || (is_true(c.meter, for_false) && !is_true(c.meter, value)))
    return otherwise(other, text(c.meter, ""));
  return value;
}

constexpr Filter kSequenceFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length_of},
    {"d", standard},
    {"default", standard},
    {"dictsort", sort_dict},
    {"first", first},
    {"groupby", group},
    {"items", items_of},
    {"join", join},
    {"last", last},
    {"length", length_of},
    {"list", to_list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slices},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const Filter> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace tessera::jinja
