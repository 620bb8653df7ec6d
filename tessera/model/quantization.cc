#include "tessera/model/quantization.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/option_names.h"
#include "tessera/model/config_reader.h"

namespace tessera {

namespace {

std::string remedy() {
  return fmt::format(
      "Tessera reads NF4 with double quantization, as transformers saves it with bitsandbytes (bnb_4bit_quant_type "
      "\"nf4\", bnb_4bit_use_double_quant true). Or give the model in 16 bits, and {} nf4 to quantize it while it is "
      "read",
      option("base_dtype"));
}

[[noreturn]] void refuse(const std::string& where, const char* key, const Json& value) {
  throw InputError(where, fmt::format("\"{}\" of \"quantization_config\" is {}", key, in_words(value)), remedy());
}

}  // namespace

bool quantizes(const Quantization& quantization, std::string_view layer) {
  return std::ranges::none_of(quantization.skipped, [&](const std::string& skipped) {
    return layer.starts_with(skipped) || layer.ends_with(skipped) || layer.find("." + skipped + ".") != layer.npos;
  });
}

Quantization parse_quantization(const Json& value, const std::string& where) {
  if (!value.is_object()) {
    throw InputError(where, fmt::format("\"quantization_config\" is {}, not an object", in_words(value)), remedy());
  }
  enum class Need { required, optional };
  const auto must_be = [&](const char* key, const Json& wanted, Need need = Need::required) {
    const auto found = value.find(key);
    if (found == value.end() || found->is_null()) {
      if (need == Need::optional) return;
      throw InputError(where, fmt::format("\"quantization_config\" has no \"{}\"", key), remedy());
    }
    if (*found != wanted) refuse(where, key, *found);
  };
  must_be("quant_method", "bitsandbytes");
  must_be("load_in_4bit", true);
  must_be("bnb_4bit_quant_type", "nf4");
  must_be("bnb_4bit_use_double_quant", true);
  must_be("bnb_4bit_quant_storage", "uint8", Need::optional);
  must_be("load_in_8bit", false, Need::optional);
  Quantization quantization;
  const auto skipped = value.find("llm_int8_skip_modules");
  if (skipped == value.end() || skipped->is_null()) return quantization;
  if (!skipped->is_array()) refuse(where, "llm_int8_skip_modules", *skipped);
  for (const Json& module : *skipped) {
    if (!module.is_string() || module.get_ref<const std::string&>().empty()) {
      refuse(where, "llm_int8_skip_modules", module);
    }
    quantization.skipped.push_back(module);
  }
  return quantization;
}

Json quantization_json(const Quantization& quantization) {
  Json json{{"quant_method", "bitsandbytes"},
            {"load_in_4bit", true},
            {"load_in_8bit", false},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_use_double_quant", true},
            {"bnb_4bit_quant_storage", "uint8"}};
  json["llm_int8_skip_modules"] = quantization.skipped.empty() ? Json(nullptr) : Json(quantization.skipped);
  return json;
}

}  // namespace tessera
