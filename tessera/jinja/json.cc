#include <algorithm>
#include <cmath>

#include "tessera/base/record.h"
#include "tessera/jinja/builtins.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

struct Writer {
  Meter& meter;
  std::string indent, comma, colon;
  bool has_indent, is_ascii, sorts;
  std::string out;

  void line(int level) {
    if (!has_indent) return;
    out.push_back('\n');
    for (int i = 0; i < level; ++i) out += indent;
    meter.bytes(indent.size() * static_cast<size_t>(level));
  }

  void escape(char32_t unit) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out.push_back("0123456789abcdef"[(unit >> shift) & 15]);
  }
  void text(std::string_view content) {
    meter.bytes(content.size());
    out.push_back('"');
    for (size_t at = 0; at < content.size();) {
      const size_t size = size_at(content, at);
      const auto c = static_cast<unsigned char>(content[at]);
      constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      if (const size_t special = kSpecial.find(content[at]); special != std::string_view::npos) {
        out += {'\\', kLetters[special]};
      } else if (c < 0x20) {
        escape(c);
      } else if (c >= 0x80 && is_ascii) {
        const char32_t point = decode(content.substr(at, size))[0];
        if (point < 0x10000) {
          escape(point);
        } else {
          escape(0xD800 + ((point - 0x10000) >> 10));
          escape(0xDC00 + ((point - 0x10000) & 0x3FF));
        }
      } else if (c == 0x7F && is_ascii) {
        out.push_back('\x7F');
      } else {
        out += content.substr(at, size);
      }
      at += size;
    }
    out.push_back('"');
  }

  static std::string scalar(const Value& value) {
    switch (value.kind) {
      case Kind::none:
        return "null";
      case Kind::boolean:
        return value.flag ? "true" : "false";
      case Kind::integer:
        return std::to_string(value.integer);
      case Kind::real:
        if (std::isnan(value.real)) return "NaN";
        if (std::isinf(value.real)) return value.real < 0 ? "-Infinity" : "Infinity";
        return python_repr(value.real);
      default:
        throw Fault{std::string("`tojson` cannot write a value of type ") + type_name(value)};
    }
  }

  void write(const Value& value, int level) {
    const Meter::Level nested(meter);
    if (value.is_text()) {
      text(value.text());
    } else if (value.is_sequence()) {
      out.push_back('[');
      for (size_t i = 0; i < value.items().size(); ++i) {
        if (i > 0) out += comma;
        line(level + 1);
        write(value.items()[i], level + 1);
      }
      if (!value.items().empty()) line(level);
      out.push_back(']');
    } else if (value.is(Kind::dict)) {
      auto items = value.as<Dict>().items;
      if (sorts) {
        std::stable_sort(items.begin(), items.end(),
                         [&](const auto& a, const auto& b) { return less(meter, a.first, b.first); });
      }
      out.push_back('{');
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += comma;
        line(level + 1);
        text(items[i].first.is_text() ? items[i].first.text() : scalar(items[i].first));
        out += colon;
        write(items[i].second, level + 1);
      }
      if (!items.empty()) line(level);
      out.push_back('}');
    } else {
      out += scalar(value);
    }
    meter.bytes(16);
  }
};

}  // namespace

std::string to_json(Caller& caller, const Arguments& arguments) {
  const auto [value, ascii, indent, separators, sort_keys] =
      arguments.take("tojson", std::array{"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  Meter& meter = caller.meter;
  const bool has_indent = !indent.is_missing() && !indent.is(Kind::none);
  Writer writer{meter, "", has_indent ? "," : ", ", ": ", has_indent, is_true(meter, ascii), is_true(meter, sort_keys),
                ""};
  if (has_indent) {
    writer.indent = indent.is_text()
                        ? indent.text()
                        : std::string(static_cast<size_t>(std::clamp<int64_t>(as_index(indent), 0, 1000)), ' ');
  }
  if (!separators.is_missing() && !separators.is(Kind::none)) {
    const std::vector<Value> both = list_of(meter, separators);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text()) {
      throw Fault{"`separators` of `tojson` are not two texts", "Write separators=(',', ':')"};
    }
    writer.comma = both[0].text();
    writer.colon = both[1].text();
  }
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace tessera::jinja
