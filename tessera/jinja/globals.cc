// The functions that every template knows: range(), namespace(), raise_exception() and others.
#include <array>
#include <ctime>

#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {

std::vector<std::pair<Value, Value>> Interpreter::dict_items(std::string_view name, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> out;
  if (arguments.positional.size() > 1) throw Fault{std::string(name) + "() takes at most one argument without a name"};
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

Value Interpreter::call_global(std::string_view name, const Arguments& arguments) {
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
    if (arguments.positional.empty() || !arguments.named.empty()) throw Fault{"cycler() needs arguments without names"};
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

std::string Interpreter::time_text(std::string_view format) const {
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

}  // namespace tessera::jinja
