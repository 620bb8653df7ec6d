#include "tessera/settings/foreign/fsdp_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

ParsedValue offloaded(Tier tier) {
  const Offload offload{tier, tier, tier};
  return {offload_text(offload), offload};
}

bool boolean(const SettingValue& value, const std::string& where) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  throw UsageError(where, fmt::format("must be true or false, got {}", quoted_value(value)));
}

std::string word(const SettingValue& value, const std::string& where) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  throw UsageError(where, fmt::format("must be a word in quotes, got {}", quoted_value(value)));
}

// Returns the value in lower case. Throws UsageError if the result is not one of `words`.
std::string one_of(const std::vector<std::string>& words, const SettingValue& value, const std::string& where) {
  std::string text = lower(word(value, where));
  if (std::find(words.begin(), words.end(), text) != words.end()) return text;
  throw UsageError(where, "unknown value " + quoted_value(value), "Use one of: " + joined(words, ", "));
}

// Returns the name of a strategy. `value` is this name, or the number that accelerate gives to the strategy.
SettingValue sharding_word(const SettingValue& value, const std::string& where) {
  static const std::vector<std::string> numbered = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                                    "hybrid_shard_zero2"};
  const auto* number = std::get_if<int64_t>(&value);
  if (!number) {
    const std::string text = lower(word(value, where));
    if (text == "_hybrid_shard_zero2") return "hybrid_shard_zero2";
    return one_of(numbered, text, where);
  }
  if (*number >= 1 && *number <= 5) return numbered[static_cast<size_t>(*number - 1)];
  throw UsageError(where, fmt::format("must be 1 to 5 or a name, got {}", *number),
                   "1 FULL_SHARD, 2 SHARD_GRAD_OP, 3 NO_SHARD, 4 HYBRID_SHARD, 5 HYBRID_SHARD_ZERO2");
}

SettingValue dtype_word(const SettingValue& value, const std::string& where) {
  std::string text = lower(word(value, where));
  if (text.starts_with("torch.")) text = text.substr(6);
  if (text == "float32" || text == "no") return "fp32";
  if (text == "bfloat16") return "bf16";
  if (text == "float16") return "fp16";
  return one_of({"fp32", "bf16", "fp16"}, text, where);
}

// Checks a comma-separated list of block classes. In Tessera, every block is a unit.
void check_wrapped_classes(const SettingValue& value, const std::string& where) {
  const std::string text = word(value, where);
  const std::vector<std::string> classes = block_classes();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string last = name.substr(name.rfind('.') + 1);  // without the module, such as torch.nn
    if (std::ranges::find(classes, last) != classes.end()) continue;
    throw UsageError(
        where, fmt::format("{} is not a block class that this key supports", quoted_value(name)),
        fmt::format("Give the class of the model's blocks ({}), or remove the key, because every block is a unit",
                    joined(classes, ", ")));
  }
}

struct Meaning {
  FsdpMeaning result;
  const std::string& where;
  void set(const char* name, const SettingValue& value) {
    const Setting* setting = find_setting(name);
    TESSERA_ASSERT(setting);
    result.values.emplace_back(setting, checked_value(*setting, value, where));
  }
};

// Translates a key that corresponds to a setting of Tessera. Returns false for all other keys.
bool translate_value(const std::string& key, const SettingValue& value, const std::string& where, Meaning& meaning) {
  if (key == "sharding_strategy") {
    meaning.set("strategy", sharding_word(value, where));
  } else if (key == "reshard_after_forward") {
    const auto* flag = std::get_if<bool>(&value);
    meaning.set("strategy", flag ? SettingValue(*flag ? "full_shard" : "shard_grad_op") : sharding_word(value, where));
  } else if (key == "backward_prefetch") {
    meaning.set("backward_prefetch", one_of({"backward_pre", "backward_post", "no_prefetch"}, value, where));
  } else if (key == "forward_prefetch" || key == "sync_module_states") {
    meaning.set(key.c_str(), boolean(value, where));
  } else if (key == "offload_params" || key == "cpu_offload") {
    meaning.set("offload", offloaded(boolean(value, where) ? Tier::host : Tier::device));
  } else if (key == "activation_checkpointing") {
    meaning.set("activation_checkpointing", boolean(value, where) ? "block" : "none");
  } else if (key == "mixed_precision_policy.param_dtype") {
    meaning.set("precision", dtype_word(value, where));
  } else if (key == "mixed_precision_policy.reduce_dtype") {
    meaning.set("reduce_dtype", dtype_word(value, where));
  } else {
    return false;
  }
  return true;
}

// Checks a key that has no effect in Tessera. For some values, notes why the key is ignored. Returns false for all
// other keys.
bool explain(const std::string& key, const SettingValue& value, const std::string& where, FsdpMeaning& meaning) {
  const auto ignored = [&](const char* why) { meaning.note = fmt::format("{} ({})", key, why); };
  if (key == "limit_all_gathers") {
    if (!boolean(value, where)) ignored("always limited; see max_units_in_flight");
  } else if (key == "use_orig_params") {
    boolean(value, where);
    ignored("Tessera has no Python modules");
  } else if (key == "cpu_ram_efficient_loading") {
    if (boolean(value, where)) ignored("no rank reads more than it needs");
  } else if (key == "transformer_layer_cls_to_wrap") {
    check_wrapped_classes(value, where);
  } else if (key == "auto_wrap_policy") {
    if (one_of({"transformer_based_wrap", "size_based_wrap", "no_wrap"}, value, where) != "transformer_based_wrap") {
      ignored("the units are the blocks");
    }
  } else if (key == "min_num_params") {
    ignored("the units are the blocks");
  } else if (key == "state_dict_type") {
    if (one_of({"sharded_state_dict", "full_state_dict", "local_state_dict"}, value, where) != "sharded_state_dict") {
      ignored("checkpoints are always sharded, saved models are complete");
    }
  } else if (key == "mixed_precision_policy.buffer_dtype") {
    dtype_word(value, where);
    ignored("the models have no buffers");
  } else if (key == "mixed_precision_policy.enabled") {
    if (!boolean(value, where)) ignored("param_dtype selects the precision");
  } else if (key == "offload_to_cpu" || key == "state_dict_config.offload_to_cpu") {
    if (boolean(value, where)) ignored("checkpoints are written from host memory piece by piece");
  } else if (key == "rank0_only" || key == "state_dict_config.rank0_only") {
    if (boolean(value, where)) ignored("every rank writes its own part");
  } else if (key == "device_id") {
    ignored("each rank takes its own GPU");
  } else if (key == "version") {
    ignored("all versions have the same effect");
  } else {
    return false;
  }
  return true;
}

}  // namespace

FsdpMeaning meaning_of_fsdp_key(const std::string& written, const SettingValue& value, const std::string& where) {
  std::string key = underscored(written);
  if (key.starts_with("fsdp_")) key = key.substr(5);
  // In FSDP1, the table mixed_precision_policy is called mixed_precision.
  if (key.starts_with("mixed_precision.")) key.replace(0, 15, "mixed_precision_policy");
  Meaning meaning{{}, where};
  if (translate_value(key, value, where, meaning) || explain(key, value, where, meaning.result)) return meaning.result;
  throw UsageError(
      where, "unknown FSDP setting",
      did_you_mean(
          key, {"sharding_strategy", "reshard_after_forward", "backward_prefetch", "forward_prefetch",
                "limit_all_gathers", "sync_module_states", "use_orig_params", "offload_params", "cpu_offload",
                "cpu_ram_efficient_loading", "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params",
                "state_dict_type", "offload_to_cpu", "activation_checkpointing", "mixed_precision_policy", "version"}));
}

FsdpMeaning meaning_of_fsdp_option(std::string_view text, const std::string& where) {
  Meaning meaning{{}, where};
  std::string strategy;
  const std::vector<std::string> words = {"full_shard",         "shard_grad_op", "no_shard", "hybrid_shard",
                                          "hybrid_shard_zero2", "offload",       "auto_wrap"};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", begin), text.size());
    const std::string item(text.substr(begin, end - begin));
    begin = end + 1;
    if (item.empty()) continue;
    const std::string option = one_of(words, item, where);
    if (option == "offload") {
      meaning.set("offload", offloaded(Tier::host));
    } else if (option != "auto_wrap") {
      if (!strategy.empty())
        throw UsageError(where, fmt::format("contains both {} and {}", strategy, option), "Give one strategy");
      strategy = option;
      meaning.set("strategy", option);
    }
  }
  if (strategy.empty() && !text.empty()) {
    throw UsageError(where, fmt::format("{} contains no strategy", quoted_value(std::string(text))),
                     "For example, write \"full_shard auto_wrap\"");
  }
  return meaning.result;
}

}  // namespace tessera
