// Values of settings: parse, check, and convert back to text.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/data/tokenizer_text.h"
#include "tessera/settings/setting.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

std::string number_text(double x) {
  // The shortest text that reads back as the same number. In TOML, a real number needs a point or an exponent.
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// `text` is not a valid value of the setting. Returns what to write instead, or an empty text if there is no advice.
std::string remedy_for_text(const Setting& setting, const std::string& text, const std::string& where) {
  if (setting.type == SettingType::boolean) {
    if (!where.starts_with("--")) return "";  // a file or the environment
    return fmt::format("Write {} or --no-{}", setting.flag(), dashed(setting.name));
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = setting.type == SettingType::integer || setting.type == SettingType::real;
  const bool is_whole = end == text.data() + text.size();
  if (!is_number || error != std::errc() || is_whole) return "";
  if (*end == '%' && (setting.range.max == 1 || setting.takes_fraction))
    return fmt::format("Write a fraction, as in {}", number / 100);
  const bool counts = setting.unit.ends_with("S");  // for example TOKENS or SECONDS
  return fmt::format("Write the number{} without a unit", counts ? " of " + setting.unit : "");
}

[[noreturn]] void wrong_type(const Setting& setting, const SettingValue& value, const std::string& where) {
  const char* wanted = "";
  switch (setting.type) {
    case SettingType::boolean:
      wanted = "true or false";
      break;
    case SettingType::integer:
      wanted = setting.takes_fraction ? "a whole number, or a fraction of all steps below 1" : "a whole number";
      break;
    case SettingType::real:
      wanted = "a number";
      break;
    case SettingType::bytes:
      wanted = "a number of bytes with a unit, for example \"32GiB\"";
      break;
    case SettingType::text:
      wanted = "a text in quotes";
      break;
    case SettingType::choice:
      wanted = "a word in quotes";
      break;
    case SettingType::list:
      wanted = "a text in quotes, or a list of such texts";
      break;
  }
  const auto* text = std::get_if<std::string>(&value);
  throw UsageError(where, fmt::format("must be {}, got {}", wanted, quoted_value(value)),
                   text && is_utf8(*text) ? remedy_for_text(setting, *text, where) : "");
}

void check_range(const Setting& setting, double x, const SettingValue& value, const std::string& where) {
  if (!std::isfinite(x)) throw UsageError(where, fmt::format("must be a finite number, got {}", quoted_value(value)));
  if (!setting.range.contains(x)) {
    throw UsageError(where, fmt::format("must be {}, got {}", setting.range.bound_broken_by(x), quoted_value(value)));
  }
}

// Checks a real number for a setting that counts steps. Returns a fraction below 1 unchanged, and any other number as
// an integer.
SettingValue checked_steps(const Setting& setting, double x, const std::string& where) {
  if (x > 0 && x < 1) return x;
  check_range(setting, x, x, where);
  if (x != std::floor(x)) wrong_type(setting, x, where);
  return static_cast<int64_t>(x);
}

std::string checked_choice(const Setting& setting, const std::string& word, const std::string& where) {
  const std::string canonical = lower(underscored(word));
  for (const std::string& choice : setting.choices) {
    if (canonical == underscored(choice)) return choice;
  }
  for (const auto& [synonym, own_word] : setting.synonyms) {
    if (canonical == synonym) return own_word;
  }
  for (const auto& [refused, remedy] : setting.refused) {
    if (canonical == refused) throw UsageError(where, quoted_value(word) + " is not supported", remedy);
  }
  std::string remedy = did_you_mean(canonical, setting.choices);
  if (!remedy.empty()) remedy += " ";
  remedy += fmt::format("{}{}", setting.choices.size() == 1 ? "Use " : "Use one of: ", joined(setting.choices, ", "));
  throw UsageError(where, "unknown value " + quoted_value(word), remedy);
}

// An empty text means "none". Refuses it if the setting has a default and therefore always needs a value.
void check_not_empty(const Setting& setting, const std::string& text, const std::string& where) {
  if (!text.empty() || setting.type != SettingType::text || setting.may_be_empty) return;
  const SettingValue preset = setting.get(Settings());
  if (plain_text(preset).empty()) return;
  throw UsageError(where, "is empty",
                   fmt::format("Give a value, or leave it out: the default is {}", toml_text(preset)));
}

// Reads the complete `text` as one number. Returns false if it is not a number or does not fit the type.
template <typename T>
bool parse_number(std::string_view text, T& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string quoted_value(const SettingValue& value) {
  constexpr size_t kLongest = 80;
  std::string text = toml_text(value);
  if (text.size() <= kLongest) return text;
  size_t length = kLongest;
  while ((static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;  // do not cut a UTF-8 sequence
  text = text.substr(0, length) + "…\"";
  return text;
}

SettingValue list_value(std::vector<std::string> texts) {
  if (texts.size() > 1) return texts;
  return texts.empty() ? std::string() : texts[0];
}

std::vector<std::string> texts_of(const SettingValue& list) {
  if (const auto* texts = std::get_if<std::vector<std::string>>(&list)) return *texts;
  const auto& text = std::get<std::string>(list);
  return text.empty() ? std::vector<std::string>() : std::vector<std::string>{text};
}

std::string Range::bound_broken_by(double x) const {
  if (x <= min) return fmt::format("{} {}", open_min ? "greater than" : "at least", min);
  return fmt::format("{} {}", open_max ? "less than" : "at most", max);
}

SettingValue checked_value(const Setting& setting, const SettingValue& value, const std::string& where) {
  if (std::holds_alternative<ParsedValue>(value)) return value;
  switch (setting.type) {
    case SettingType::boolean:
      if (!std::holds_alternative<bool>(value)) wrong_type(setting, value, where);
      return value;
    case SettingType::integer: {
      const auto* x = std::get_if<int64_t>(&value);
      const auto* real = std::get_if<double>(&value);
      if (real && setting.takes_fraction) return checked_steps(setting, *real, where);
      if (!x) wrong_type(setting, value, where);
      check_range(setting, static_cast<double>(*x), value, where);
      return value;
    }
    case SettingType::real: {
      double x = 0;
      if (const auto* whole = std::get_if<int64_t>(&value))
        x = static_cast<double>(*whole);
      else if (const auto* number = std::get_if<double>(&value))
        x = *number;
      else
        wrong_type(setting, value, where);
      check_range(setting, x, value, where);
      return x;
    }
    case SettingType::bytes: {
      // A text such as "32GiB". A number without quotes in a configuration file has no unit, like a text without one.
      const auto* whole = std::get_if<int64_t>(&value);
      const auto* text = std::get_if<std::string>(&value);
      if (!whole && !text) wrong_type(setting, value, where);
      if (text && !is_utf8(*text)) throw UsageError(where, "is not valid UTF-8");
      const SettingValue parsed = setting.parse(whole ? fmt::format("{}", *whole) : *text, where);
      const auto amount = std::any_cast<int64_t>(std::get<ParsedValue>(parsed).value);
      check_range(setting, static_cast<double>(amount), value, where);
      if (amount == 0 && text && text->find_first_of("bB") != text->npos) {  // "0GB" is a size, not the word 0
        throw UsageError(where, fmt::format("the size {} is zero", quoted_value(*text)),
                         fmt::format("Give a larger size. 0 without a unit has another meaning: see {} in the help",
                                     setting.flag()));
      }
      return parsed;
    }
    case SettingType::list: {
      const auto* text = std::get_if<std::string>(&value);
      if (!text && !std::holds_alternative<std::vector<std::string>>(value)) wrong_type(setting, value, where);
      const std::vector<std::string> texts = texts_of(value);
      for (const std::string& each : texts) {
        if (!is_utf8(each)) throw UsageError(where, "is not valid UTF-8");
        if (each.empty()) throw UsageError(where, "contains an empty text", "Remove it");
      }
      return list_value(texts);
    }
    case SettingType::text:
    case SettingType::choice: {
      const auto* text = std::get_if<std::string>(&value);
      if (!text && setting.takes_scalars) return setting.parse(toml_text(value), where);
      if (!text) wrong_type(setting, value, where);
      if (!is_utf8(*text)) throw UsageError(where, "is not valid UTF-8");
      if (text->find('\0') != std::string::npos) throw UsageError(where, "contains a zero byte");
      if (setting.parse) return setting.parse(*text, where);
      check_not_empty(setting, *text, where);
      if (setting.type == SettingType::text) return value;
      return checked_choice(setting, *text, where);
    }
  }
  TESSERA_ASSERT(false);
}

SettingValue parse_value(const Setting& setting, std::string_view text, const std::string& where) {
  SettingValue value = std::string(text);  // stays a text if parsing fails; checked_value() then reports it
  if (setting.type == SettingType::boolean) {
    for (const char* word : {"true", "1", "yes", "on"})
      if (text == word) value = true;
    for (const char* word : {"false", "0", "no", "off"})
      if (text == word) value = false;
  } else if (setting.type == SettingType::integer) {
    if (int64_t x = 0; parse_number(text, x)) value = x;
  }
  if (setting.type == SettingType::real || (setting.takes_fraction && std::holds_alternative<std::string>(value))) {
    if (double x = 0; parse_number(text, x)) value = x;
  }
  return checked_value(setting, value, where);
}

std::string toml_text(const SettingValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    std::string array;
    for (const std::string& text : *texts) array += (array.empty() ? "[" : ", ") + toml_text(text);
    return array.empty() ? "[]" : array + "]";
  }
  std::string quoted = "\"";
  for (const char c : plain_text(value)) {
    if (c == '"' || c == '\\')
      quoted += '\\', quoted += c;
    else if (c == '\n')
      quoted += "\\n";
    else if (c == '\t')
      quoted += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      quoted += fmt::format("\\u{:04X}", static_cast<int>(c));
    else
      quoted += c;
  }
  return quoted + "\"";
}

std::string plain_text(const SettingValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* parsed = std::get_if<ParsedValue>(&value)) return parsed->text;
  return toml_text(value);
}

}  // namespace tessera
