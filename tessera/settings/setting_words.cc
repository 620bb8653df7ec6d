#include "tessera/settings/setting_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/settings/setting.h"

namespace tessera {

namespace {

struct ByteUnit {
  const char* name;
  int64_t bytes;
};

constexpr ByteUnit kByteUnits[] = {
    {"TiB", int64_t{1} << 40}, {"GiB", int64_t{1} << 30}, {"MiB", int64_t{1} << 20}, {"KiB", int64_t{1} << 10},
    {"TB", 1'000'000'000'000}, {"GB", 1'000'000'000},     {"MB", 1'000'000},         {"kB", 1'000},
};

// The bytes of a unit; 0 if the unit is unknown.
int64_t bytes_of_unit(std::string_view unit) {
  const std::string word = lower(unit);
  if (word == "b") return 1;
  for (const ByteUnit& known : kByteUnits) {
    if (word == lower(known.name)) return known.bytes;
  }
  return 0;
}

[[noreturn]] void refuse_bytes(std::string_view text, const std::string& where, const std::string& unit) {
  std::string remedy = "Write a number with a unit, for example 32GiB, 500MB or 4096B";
  if (unit.size() == 1 && std::string_view("kmgt").find(lower(unit)[0]) != std::string_view::npos) {
    const std::string letter(1, static_cast<char>(lower(unit)[0] - 'a' + 'A'));
    remedy = fmt::format("Write {0}iB (powers of 1024) or {0}B (powers of 1000)", letter);
  }
  throw UsageError(where, fmt::format("must be a number of bytes, got {}", quoted_value(std::string(text))), remedy);
}

// `number` has no unit, for example 80, which probably means GiB and not bytes.
[[noreturn]] void refuse_without_unit(double number, std::string_view text, const std::string& where,
                                      std::string_view usual_unit) {
  constexpr double kFewestBytes = 1e6;  // from here on, a number probably counts bytes
  const bool is_whole = number == std::floor(number), is_exact = is_whole && number < 0x1p53;
  std::string remedy = fmt::format("Write {}{}", text, usual_unit);
  if (number >= kFewestBytes) {
    remedy = fmt::format("Write {} for this number of bytes",
                         is_exact ? bytes_text(static_cast<int64_t>(number)) : fmt::format("{}B", text));
  } else if (is_whole) {
    remedy += fmt::format(", or {}B for bytes", text);
  }
  throw UsageError(where, fmt::format("the size {} has no unit", quoted_value(std::string(text))), remedy);
}

Tier parse_tier(const std::string& word, const std::string& item, const std::string& where) {
  if (word == "host" || word == "cpu") return Tier::host;
  if (word == "file" || word == "nvme") return Tier::file;
  throw UsageError(where, fmt::format("unknown tier in {}", quoted_value(item)),
                   "Use one of: host (also cpu), file (also nvme)");
}

}  // namespace

int64_t parse_bytes(std::string_view text, const std::string& where, std::string_view usual_unit) {
  const std::string_view amount = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(amount.data(), amount.data() + amount.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) refuse_bytes(text, where, "");
  const std::string unit(trimmed(amount.substr(static_cast<size_t>(end - amount.data()))));
  if (unit.empty() && number == 0) return 0;
  if (unit.empty()) refuse_without_unit(number, amount, where, usual_unit);
  const int64_t unit_bytes = bytes_of_unit(unit);
  if (unit_bytes == 0) refuse_bytes(text, where, unit);
  // An amount without fraction or exponent is read as an integer, because a double has a precision of only 53 bits.
  int64_t whole = 0, product = 0;
  const auto digits = std::from_chars(amount.data(), end, whole);
  if (digits.ec == std::errc() && digits.ptr == end && !__builtin_mul_overflow(whole, unit_bytes, &product)) {
    return product;
  }
  const double bytes = number * static_cast<double>(unit_bytes);
  if (bytes >= 0x1p63) throw UsageError(where, fmt::format("{} is too large", quoted_value(std::string(text))));
  if (bytes != std::floor(bytes)) {
    throw UsageError(where, fmt::format("{} is not a whole number of bytes", quoted_value(std::string(text))));
  }
  return static_cast<int64_t>(bytes);
}

std::string bytes_text(int64_t bytes) {
  if (bytes == 0) return "0";
  std::string shortest = fmt::format("{}", bytes), name = "B";
  for (const ByteUnit& unit : kByteUnits) {
    if (bytes % unit.bytes != 0) continue;
    const std::string number = fmt::format("{}", bytes / unit.bytes);
    if (number.size() < shortest.size()) shortest = number, name = unit.name;
  }
  return shortest + name;
}

std::string rounded_down_bytes_text(int64_t bytes) {
  constexpr int64_t kFewest = 1000;  // an amount of this many units loses at most 0.1 %
  std::string text = bytes_text(bytes);
  for (const ByteUnit& unit : kByteUnits) {
    if (text.size() <= std::size("12345MiB") - 1 || bytes < kFewest * unit.bytes) continue;
    return bytes_text(bytes - bytes % unit.bytes);
  }
  return text;
}

std::string parse_date(const std::string& text, const std::string& where) {
  if (text.empty()) return text;
  bool has_form = text.size() == 10 && text[4] == '-' && text[7] == '-';
  const auto number = [&](size_t at, size_t size) {
    int value = 0;
    for (size_t i = at; has_form && i < at + size; ++i) {
      has_form = is_digit(text[i]);
      value = 10 * value + (text[i] - '0');
    }
    return value;
  };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  using namespace std::chrono;
  if (!has_form || !year_month_day(std::chrono::year(year) / month / day).ok()) {
    throw UsageError(where, fmt::format("{} is not a date", quoted_value(text)), "Write it as 2026-01-31");
  }
  return text;
}

namespace {

// "12" (blocks), "40%" or "auto".
OffloadedPart parse_part(std::string_view word, const std::string& item, const std::string& where) {
  if (word == "auto") return {OffloadedPart::Of::automatic};
  const bool percent = word.ends_with('%');
  const std::string_view digits = word.substr(0, word.size() - (percent ? 1 : 0));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 1 || (percent && number > 100)) {
    throw UsageError(
        where, fmt::format("{} does not say how much to offload", quoted_value(item)),
        "Write a number of blocks, a share or auto after \"=\", for example optimizer=12, optimizer=40% or "
        "optimizer=auto");
  }
  if (percent && number == 100) return {};
  return {percent ? OffloadedPart::Of::percent : OffloadedPart::Of::blocks, number};
}

}  // namespace

Offload parse_offload(std::string_view text, const std::string& where) {
  const std::vector<std::string> kinds = {"optimizer", "gradients", "parameters"};
  Offload offload;
  if (lower(trimmed(text)) == "none") return offload;
  if (lower(trimmed(text)) == "auto") return parse_offload("optimizer=auto,gradients=auto", where);
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = lower(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
    const size_t equals = std::min(item.find('='), item.size());
    const std::string what(trimmed(std::string_view(item).substr(0, equals)));
    const size_t colon = std::min(what.find(':'), what.size());
    const std::string kind = what.substr(0, colon);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      std::string remedy = did_you_mean(kind, kinds);
      if (!remedy.empty()) remedy += " ";
      throw UsageError(where, fmt::format("cannot offload {}", quoted_value(kind)),
                       remedy + "Write none, auto, or a comma-separated list of optimizer, gradients, parameters");
    }
    if (!seen.insert(kind).second)
      throw UsageError(where, fmt::format("contains {} twice", kind), "Remove one of the two");
    const Tier tier = colon == what.size() ? Tier::host : parse_tier(what.substr(colon + 1), item, where);
    const OffloadedPart part = equals == item.size()
                                   ? OffloadedPart()
                                   : parse_part(trimmed(std::string_view(item).substr(equals + 1)), item, where);
    const auto set = [&](Tier& of_kind, OffloadedPart& part_of_kind) { of_kind = tier, part_of_kind = part; };
    if (kind == "optimizer") set(offload.optimizer, offload.part_of_optimizer);
    if (kind == "gradients") set(offload.gradients, offload.part_of_gradients);
    if (kind == "parameters") set(offload.parameters, offload.part_of_parameters);
  }
  return offload;
}

std::string offload_text(const Offload& offload) {
  std::vector<std::string> items;
  const auto add = [&](const char* kind, Tier tier, const OffloadedPart& part) {
    if (tier == Tier::device) return;
    std::string item = fmt::format("{}:{}", kind, name_of(tier));
    switch (part.of) {
      case OffloadedPart::Of::all:
        break;
      case OffloadedPart::Of::blocks:
        item += fmt::format("={}", part.number);
        break;
      case OffloadedPart::Of::percent:
        item += fmt::format("={}%", part.number);
        break;
      case OffloadedPart::Of::automatic:
        item += "=auto";
        break;
    }
    items.push_back(std::move(item));
  };
  add("optimizer", offload.optimizer, offload.part_of_optimizer);
  add("gradients", offload.gradients, offload.part_of_gradients);
  add("parameters", offload.parameters, offload.part_of_parameters);
  return items.empty() ? "none" : joined(items, ",");
}

namespace {

std::optional<int64_t> number_of_blocks(std::string_view text) {
  int64_t blocks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), blocks);
  if (error != std::errc() || end != text.data() + text.size() || blocks < 0 || blocks == kAllBlocks) return {};
  return blocks;
}

}  // namespace

Recomputation parse_checkpointing(std::string_view text, const std::string& where) {
  const std::string list = lower(trimmed(text));
  for (const char* none : {"none", "off", "false", "no"}) {
    if (list == none) return {};
  }
  for (const char* all : {"block", "all", "on", "true", "yes"}) {
    if (list == all) return {.blocks = kAllBlocks};
  }
  if (list == "auto") return {.automatic = true};
  if (const std::optional<int64_t> blocks = number_of_blocks(list)) return {.blocks = *blocks};
  Recomputation recomputation;
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item(trimmed(std::string_view(list).substr(begin, end - begin)));
    begin = end + 1;
    const size_t equals = std::min(item.find('='), item.size());
    const std::string part(trimmed(std::string_view(item).substr(0, equals)));
    int64_t* const number = part == "block"       ? &recomputation.blocks
                            : part == "mlp"       ? &recomputation.mlp
                            : part == "attention" ? &recomputation.attention
                                                  : nullptr;
    const std::optional<int64_t> blocks =
        equals == item.size() ? kAllBlocks : number_of_blocks(trimmed(std::string_view(item).substr(equals + 1)));
    if (!number || !blocks) {
      std::string remedy = did_you_mean(part, {"none", "auto", "block", "mlp", "attention"});
      if (!remedy.empty()) remedy += " ";
      throw UsageError(
          where,
          fmt::format("must be none, auto, a number of blocks, or a list of block, mlp and attention, got {}",
                      quoted_value(item)),
          remedy +
              "Write \"none\", \"auto\", \"block\" (all blocks), the number of blocks to checkpoint, or a list "
              "such as \"block=4,mlp=20\" or \"mlp,attention\"");
    }
    if (!seen.insert(part).second)
      throw UsageError(where, fmt::format("contains {} twice", part), "Remove one of the two");
    *number = *blocks;
  }
  return recomputation;
}

std::string checkpointing_text(const Recomputation& recomputation) {
  const auto& [blocks, mlp, attention, automatic] = recomputation;
  if (automatic) return "auto";
  if (mlp == 0 && attention == 0) {
    return blocks == 0 ? "none" : blocks == kAllBlocks ? "block" : fmt::format("{}", blocks);
  }
  std::vector<std::string> items;
  const auto add = [&](const char* part, int64_t number) {
    if (number > 0) items.push_back(number == kAllBlocks ? part : fmt::format("{}={}", part, number));
  };
  add("block", blocks);
  add("mlp", mlp);
  add("attention", attention);
  return joined(items, ",");
}

FieldNames parse_fields(std::string_view text, const std::string& where) {
  FieldNames fields;
  for (const std::string& item : split_list(text)) {
    const size_t equals = std::min(item.find('='), item.size());
    const std::string field(trimmed(std::string_view(item).substr(0, equals)));
    const std::string key(trimmed(std::string_view(item).substr(std::min(equals + 1, item.size()))));
    if (field.empty() || key.empty()) {
      throw UsageError(where, fmt::format("{} is no field with its key", quoted_value(item)),
                       "Write FIELD=KEY[,FIELD=KEY...], as in messages=dialog,role=speaker");
    }
    if (std::ranges::find(FieldNames::all(), field) == FieldNames::all().end()) {
      std::string remedy = did_you_mean(field, FieldNames::all());
      if (!remedy.empty()) remedy += " ";
      throw UsageError(where, fmt::format("unknown field {}", quoted_value(field)),
                       remedy + "Use one of: " + joined(FieldNames::all()));
    }
    if (fields.is_renamed(field)) {
      throw UsageError(where, fmt::format("contains {} twice", field), "Remove one of the two");
    }
    if (const std::string other = fields.rename(field, key); !other.empty()) {
      throw UsageError(where, fmt::format("{} and {} have the same key {}", other, field, quoted_value(key)),
                       "Give each field a key of its own");
    }
  }
  return fields;
}

double parse_eval_fraction(std::string_view text, const std::string& where) {
  if (lower(text) == "none") return 0;
  double fraction = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fraction);
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  if (error == std::errc() && rest.empty() && fraction > 0 && fraction < 1) return fraction;
  const bool is_percent = error == std::errc() && rest == "%" && fraction > 0 && fraction < 100;
  throw UsageError(where,
                   fmt::format("must be a fraction greater than 0 and less than 1, or none, got {}",
                               quoted_value(std::string(text))),
                   is_percent ? fmt::format("Write {}", fraction / 100) : "");
}

std::string eval_fraction_text(double fraction) {
  return fraction == 0 ? "none" : fmt::format("{}", fraction);
}

}  // namespace tessera
