#include <algorithm>

#include "tessera/jinja/filters.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

template <std::string (*Change)(std::string_view)>
Value changed(Caller& c, Args a) {
  const Value value = soft_text(c.meter, a.take("a filter of texts", std::array{"s"}, 1)[0]);
  c.meter.work(value.text().size() / 4);
  return text(c.meter, Change(value.text()), value.as<Text>().markup);
}

std::string title_of_words(std::string_view content) {
  std::string out;
  const auto is_break = [](char32_t c) {
    return is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  const std::u32string points = decode(content);
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    while (end < points.size() && is_break(points[end]) == is_break(points[i])) ++end;
    out += upper(encode(points.substr(i, 1))) + lower(encode(points.substr(i + 1, end - i - 1)));
    i = end;
  }
  return out;
}

Value trim(Caller& c, Args a) {
  const auto [value, characters] = a.take("trim", std::array{"value", "chars"}, 1);
  const Value content = soft_text(c.meter, value);
  std::optional<std::string_view> set;
  if (!characters.is_missing() && !characters.is(Kind::none)) {
    if (!characters.is_text()) throw Fault{"`trim` needs a text of characters"};
    set = characters.text();
    c.meter.work(content.text().size() * set->size() / 64);
  }
  c.meter.work(content.text().size() / 16);
  return text(c.meter, std::string(strip(content.text(), set, Sides::both)), content.as<Text>().markup);
}

Value replace_text(Caller& c, Args a) {
  const auto [value, old, with, most] = a.take("replace", std::array{"s", "old", "new", "count"}, 3);
  const std::string self = str(c.meter, value), from = str(c.meter, old), to = str(c.meter, with);
  c.meter.bytes(self.size() + count(self, from) * to.size());
  return text(c.meter, replace(self, from, to, most.is_missing() || most.is(Kind::none) ? -1 : as_index(most)));
}

Value indent_lines(Caller& c, Args a) {
  const auto [value, width, first, blank] = a.take("indent", std::array{"s", "width", "first", "blank"}, 1);
  if (!value.is_text()) throw Fault{std::string("`indent` needs a text, not ") + type_name(value)};
  const std::string by =
      width.is_text()
          ? width.text()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(width.is_missing() ? 4 : as_index(width), 0, 10'000)),
                        ' ');
  const std::string content = value.text() + "\n";
  std::string out = is_true(c.meter, first) ? by : "";
  bool is_first = true;
  for (const std::string_view line : split_lines(content, false)) {
    if (!is_first) out += "\n";
    if (!is_first && (!line.empty() || is_true(c.meter, blank))) out += by;
    out += line;
    c.meter.bytes(by.size() + line.size());
    is_first = false;
  }
  return text(c.meter, std::move(out), value.as<Text>().markup);
}

Value center(Caller& c, Args a) {
  const auto [value, width] = a.take("center", std::array{"value", "width"}, 1);
  Arguments inner;
  inner.positional = {otherwise(width, integer(80))};
  return c.call(find_method(c, soft_text(c.meter, value), "center"), inner);
}

Value format_text(Caller& c, Args a) {
  if (a.positional.size() > 1 && !a.named.empty()) throw Fault{"`format` cannot take arguments with and without names"};
  const Value pattern = soft_text(c.meter, a.positional[0]);
  if (a.named.empty()) {
    return text(c.meter,
                format_percent(c, pattern.text(),
                               sequence(c.meter, Kind::tuple, {a.positional.begin() + 1, a.positional.end()})));
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, value] : a.named) items.emplace_back(text(c.meter, name), value);
  return text(c.meter, format_percent(c, pattern.text(), dict(c.meter, std::move(items))));
}

Value escape(Caller& c, Args a) {
  const Value value = a.take("escape", std::array{"s"}, 1)[0];
  if (value.is_text() && value.as<Text>().markup) return value;
  return text(c.meter, escape_html(str(c.meter, value)), true);
}

Value safe(Caller& c, Args a) {
  return text(c.meter, str(c.meter, a.take("safe", std::array{"value"}, 1)[0]), true);
}
Value string(Caller& c, Args a) {
  return soft_text(c.meter, a.take("string", std::array{"object"}, 1)[0]);
}
Value tojson(Caller& c, Args a) {
  return text(c.meter, to_json(c, a));
}

constexpr Filter kTextFilters[] = {
    {"capitalize", changed<capitalize>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"format", format_text},
    {"indent", indent_lines},
    {"lower", changed<lower>},
    {"replace", replace_text},
    {"safe", safe},
    {"string", string},
    {"title", changed<title_of_words>},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", changed<upper>},
};

}  // namespace

std::span<const Filter> text_filters() {
  return kTextFilters;
}

}  // namespace tessera::jinja
