#include "tessera/settings/adapter_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"

namespace tessera {

namespace {

template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

[[noreturn]] void refuse(const char* option, const std::string& text, const char* what, const char* remedy) {
  throw UsageError(option_place(option), fmt::format("\"{}\" {}", printable(text), what), remedy);
}

// "NAME=VALUE" with a value in [least, most].
template <typename T>
std::vector<std::pair<std::string, double>> pattern_of(const char* option, const std::vector<std::string>& entries,
                                                       T least, T most) {
  std::vector<std::pair<std::string, double>> pattern;
  for (const std::string& entry : entries) {
    const size_t equals = entry.rfind('=');
    const auto value =
        equals == std::string::npos ? std::nullopt : number_in<T>(std::string_view(entry).substr(equals + 1));
    if (!value || equals == 0 || !(*value >= least && *value <= most)) {
      refuse(option, entry, "is not NAME=VALUE with a permitted value", "Write for example down_proj=64");
    }
    pattern.emplace_back(entry.substr(0, equals), static_cast<double>(*value));
  }
  std::ranges::sort(pattern);
  return pattern;
}

// Numbers and ranges such as 24-31. Commas may join them.
std::vector<int64_t> layers_of(const std::vector<std::string>& words) {
  constexpr int64_t kMost = 100'000;
  std::vector<int64_t> layers;
  for (const std::string& word : words) {
    for (const std::string& part : split_list(word)) {
      const size_t dash = part.find('-', 1);
      const auto first = number_in<int64_t>(std::string_view(part).substr(0, dash));
      const auto last = dash == std::string::npos ? first : number_in<int64_t>(std::string_view(part).substr(dash + 1));
      if (!first || !last || *first < 0 || *last < *first || *last > kMost) {
        refuse("lora_layers", part, "is neither the number of a block nor a range of numbers",
               "Write for example 0 1 2, or 24-31");
      }
      for (int64_t layer = *first; layer <= *last; ++layer) layers.push_back(layer);
    }
  }
  return layers;
}

std::vector<std::string> names_of(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    // A comma inside parentheses or braces belongs to a regular expression.
    if (word.find_first_of("({[") != std::string::npos) {
      names.push_back(word);
    } else {
      for (const std::string& part : split_list(word)) names.push_back(part);
    }
  }
  return names;
}

}  // namespace

std::optional<AdapterOptions> adapter_options(const Settings& s) {
  if (s.adapter == Settings::Adapter::none) return std::nullopt;
  AdapterOptions options;
  options.rank = s.lora_r;
  options.alpha = s.lora_alpha;
  options.dropout = s.lora_dropout;
  options.rank_stabilized = s.use_rslora;
  options.targets = names_of(s.lora_target_modules);
  if (options.targets.empty() && !s.lora_target_modules.empty()) {
    refuse("lora_target_modules", s.lora_target_modules.front(), "has no name", "Write for example q_proj v_proj");
  }
  if (options.targets == std::vector<std::string>{"all-linear"}) options.targets.clear();
  options.excluded = names_of(s.lora_exclude_modules);
  options.layers = layers_of(s.lora_layers);
  options.ranks = pattern_of<int64_t>("lora_rank_pattern", s.lora_rank_pattern, 1, kMaxAdapterRank);
  options.alphas = pattern_of<double>("lora_alpha_pattern", s.lora_alpha_pattern, 0, 1e6);
  options.whole = names_of(s.modules_to_save);
  options.biases = s.lora_bias;
  return options;
}

}  // namespace tessera
