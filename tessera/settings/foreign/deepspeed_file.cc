#include "tessera/settings/foreign/deepspeed_file.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/closest_word.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/text.h"
#include "tessera/settings/setting.h"

namespace tessera {

namespace {

using nlohmann::json;

// How to treat a key. `refused` is an error unless the value turns the feature off.
enum class Fate { used, section, ignored, refused };

struct Key {
  const char* path;
  Fate fate;
  const char* why = "";  // ignored: the reason in a few words; refused: the remedy
};

// Keys of DeepSpeed, from the tables of deepspeed.ai/docs/config-json and
// deepspeed/runtime/{config,zero/config,precision_config}.py.
constexpr Key kKeys[] = {
    {"train_batch_size", Fate::used},
    {"train_micro_batch_size_per_gpu", Fate::used},
    {"gradient_accumulation_steps", Fate::used},
    {"gradient_clipping", Fate::used},
    {"communication_data_type", Fate::used},
    {"optimizer", Fate::section},
    {"optimizer.type", Fate::used},
    {"optimizer.legacy_fusion", Fate::ignored, "one fused kernel"},
    {"optimizer.params", Fate::section},
    {"optimizer.params.lr", Fate::used},
    {"optimizer.params.betas", Fate::used},
    {"optimizer.params.eps", Fate::used},
    {"optimizer.params.weight_decay", Fate::used},
    {"optimizer.params.adam_w_mode", Fate::used},
    {"optimizer.params.bias_correction", Fate::used},
    {"optimizer.params.torch_adam", Fate::used},
    {"optimizer.params.amsgrad", Fate::refused, "Remove it: AdamW has no amsgrad"},
    {"optimizer.params.max_grad_norm", Fate::refused, "Write gradient_clipping at the top level"},
    {"scheduler", Fate::section},
    {"scheduler.type", Fate::used},
    {"scheduler.params", Fate::section},
    {"scheduler.params.warmup_min_lr", Fate::used},
    {"scheduler.params.warmup_max_lr", Fate::used},
    {"scheduler.params.warmup_num_steps", Fate::used},
    {"scheduler.params.warmup_type", Fate::used},
    {"scheduler.params.total_num_steps", Fate::used},
    {"scheduler.params.last_batch_iteration", Fate::ignored, "stored in checkpoints"},
    {"fp16", Fate::section},
    {"fp16.enabled", Fate::used},
    {"fp16.loss_scale", Fate::used},
    {"fp16.initial_scale_power", Fate::used},
    {"fp16.loss_scale_window", Fate::used},
    {"fp16.hysteresis", Fate::used},
    {"fp16.min_loss_scale", Fate::used},
    {"fp16.auto_cast", Fate::ignored, "inputs are integer ids"},
    {"fp16.fused_mode", Fate::ignored, "one fused kernel"},
    {"fp16.consecutive_hysteresis", Fate::refused,
     "Remove it: Tessera restores the hysteresis only when the loss scale doubles"},
    {"fp16.fp16_master_weights_and_grads", Fate::refused, "Remove it: master weights are fp32"},
    {"bf16", Fate::section},
    {"bf16.enabled", Fate::used},
    {"bf16.immediate_grad_update", Fate::ignored, "gradients accumulate directly"},
    {"bf16.check_grad_overflow", Fate::ignored, "only for fp16"},
    {"bf16.bf16_master_weights_and_grads", Fate::refused, "Remove it, and give --optimizer-states bf16"},
    {"bf16.bf16_optimizer_states", Fate::refused, "Remove it, and give --optimizer-states bf16"},
    {"bfloat16", Fate::refused, "Write bf16"},
    {"zero_optimization", Fate::section},
    {"zero_optimization.stage", Fate::used},
    {"zero_optimization.reduce_bucket_size", Fate::used},
    {"zero_optimization.offload_optimizer", Fate::section},
    {"zero_optimization.offload_optimizer.device", Fate::used},
    {"zero_optimization.offload_optimizer.nvme_path", Fate::used},
    {"zero_optimization.offload_optimizer.pin_memory", Fate::used},
    {"zero_optimization.offload_optimizer.buffer_count", Fate::ignored, "always two units"},
    {"zero_optimization.offload_optimizer.buffer_size", Fate::ignored, "always a unit's size"},
    {"zero_optimization.offload_optimizer.fast_init", Fate::ignored, "always fast"},
    {"zero_optimization.offload_optimizer.pipeline", Fate::ignored, "always pipelined"},
    {"zero_optimization.offload_optimizer.pipeline_read", Fate::ignored, "always pipelined"},
    {"zero_optimization.offload_optimizer.pipeline_write", Fate::ignored, "always pipelined"},
    {"zero_optimization.offload_optimizer.convert_grad_on_cpu", Fate::ignored, "converted where the optimizer steps"},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", Fate::ignored, "all threads run the step"},
    {"zero_optimization.offload_optimizer.super_offload", Fate::refused, "Remove it: only one kind of offload exists"},
    {"zero_optimization.offload_optimizer.ratio", Fate::used},
    {"zero_optimization.offload_param", Fate::section},
    {"zero_optimization.offload_param.device", Fate::used},
    {"zero_optimization.offload_param.nvme_path", Fate::used},
    {"zero_optimization.offload_param.pin_memory", Fate::used},
    {"zero_optimization.offload_param.buffer_count", Fate::ignored, "always two units"},
    {"zero_optimization.offload_param.buffer_size", Fate::ignored, "always a unit's size"},
    {"zero_optimization.offload_param.max_in_cpu", Fate::ignored, "always two units"},
    {"zero_optimization.cpu_offload", Fate::refused, "Write offload_optimizer: {\"device\": \"cpu\"}"},
    {"zero_optimization.cpu_offload_param", Fate::refused, "Write offload_param: {\"device\": \"cpu\"}"},
    {"zero_optimization.cpu_offload_params", Fate::refused, "Write offload_param: {\"device\": \"cpu\"}"},
    {"zero_optimization.cpu_offload_use_pin_memory", Fate::refused, "Write pin_memory in offload_optimizer"},
    {"zero_optimization.contiguous_gradients", Fate::ignored, "always contiguous"},
    {"zero_optimization.overlap_comm", Fate::ignored, "always overlapped"},
    {"zero_optimization.reduce_scatter", Fate::ignored, "the strategy decides"},
    {"zero_optimization.round_robin_gradients", Fate::ignored, "units are reduced in order"},
    {"zero_optimization.allgather_partitions", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.allgather_bucket_size", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", Fate::ignored, "reduced unit by unit"},
    {"zero_optimization.sub_group_size", Fate::ignored, "updated unit by unit"},
    {"zero_optimization.load_from_fp32_weights", Fate::ignored, "master weights are always saved"},
    {"zero_optimization.elastic_checkpoint", Fate::ignored, "any number of ranks can resume"},
    {"zero_optimization.ignore_unused_parameters", Fate::ignored, "no parameter is unused"},
    {"zero_optimization.legacy_stage1", Fate::ignored, "only one kind of stage 1"},
    {"zero_optimization.memory_efficient_linear", Fate::ignored, "always efficient"},
    {"zero_optimization.override_module_apply", Fate::ignored, "Tessera has no Python modules"},
    {"zero_optimization.pipeline_loading_checkpoint", Fate::ignored, "always unit by unit"},
    {"zero_optimization.log_trace_cache_warnings", Fate::ignored, "the order is fixed"},
    {"zero_optimization.enable_sanity_checks", Fate::ignored, "always on"},
    {"zero_optimization.stage3_max_live_parameters", Fate::ignored, "see max_units_in_flight"},
    {"zero_optimization.stage3_max_reuse_distance", Fate::ignored, "freed unit by unit"},
    {"zero_optimization.stage3_prefetch_bucket_size", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.stage3_param_persistence_threshold", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.stage3_model_persistence_threshold", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.stage3_module_granularity_threshold", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", Fate::ignored, "always all-gather"},
    {"zero_optimization.stage3_allgather_sequential", Fate::ignored, "gathered unit by unit"},
    {"zero_optimization.stage3_partition_stream_chunk_size", Fate::ignored, "shards are read directly"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", Fate::ignored,
     "always saves a Hugging Face folder"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", Fate::ignored, "always saves a Hugging Face folder"},
    {"zero_optimization.zero_hpz_partition_size", Fate::refused,
     "Remove it: Tessera does not shard the parameters a second time within a node"},
    {"zero_optimization.zero_quantized_weights", Fate::refused, "Remove it: Tessera does not quantize"},
    {"zero_optimization.zero_quantized_nontrainable_weights", Fate::refused, "Remove it: Tessera does not quantize"},
    {"zero_optimization.zero_quantized_gradients", Fate::refused, "Remove it: Tessera does not quantize"},
    {"zero_optimization.mics_shard_size", Fate::refused, "Use --strategy hybrid_shard --shard-group-size instead"},
    {"zero_optimization.mics_hierarchical_params_gather", Fate::refused, "Use --strategy hybrid_shard instead"},
    {"data_types", Fate::section},
    {"data_types.grad_accum_dtype", Fate::used},
    {"gradient_allreduce_op", Fate::used},
    {"steps_per_print", Fate::ignored, "see logging_steps"},
    {"wall_clock_breakdown", Fate::ignored, "see metrics.jsonl"},
    {"memory_breakdown", Fate::ignored, "see tessera plan"},
    {"dump_state", Fate::ignored, "see tessera config"},
    {"log_level", Fate::ignored, "only one log"},
    {"timers", Fate::ignored, "see metrics.jsonl"},
    {"tensorboard", Fate::ignored, "use --tracker tensorboard"},
    {"wandb", Fate::ignored, "use --tracker wandb"},
    {"comet", Fate::ignored, "see metrics.jsonl"},
    {"csv_monitor", Fate::ignored, "see metrics.jsonl"},
    {"flops_profiler", Fate::ignored, "see tessera plan"},
    {"comms_logger", Fate::ignored, "see bytes_sent in summary.json"},
    {"monitor_config", Fate::ignored, "see metrics.jsonl"},
    {"nebula", Fate::ignored, "only one kind of checkpoint"},
    {"prescale_gradients", Fate::ignored, "scaled in fp32"},
    {"gradient_predivide_factor", Fate::ignored, "scaled in fp32"},
    {"disable_allgather", Fate::ignored, "never needed"},
    {"sparse_gradients", Fate::ignored, "gradients are dense"},
    {"zero_allow_untested_optimizer", Fate::ignored, "AdamW is tested"},
    {"zero_force_ds_cpu_optimizer", Fate::ignored, "only one AdamW"},
    {"vocabulary_size", Fate::ignored, "defined by the model"},
    {"activation_checkpointing", Fate::ignored, "see activation_checkpointing"},
    {"aio", Fate::ignored, "tuned automatically"},
    {"checkpoint", Fate::ignored, "only one kind of checkpoint"},
    {"graph_harvesting", Fate::ignored, "no Python graphs"},
    {"compile", Fate::ignored, "already compiled"},
    {"dataloader_drop_last", Fate::refused, "Remove it: no sample is dropped"},
    {"amp", Fate::refused, "Write fp16 or bf16"},
    {"torch_autocast", Fate::refused, "Write fp16 or bf16"},
    {"sparse_attention", Fate::refused, "Remove it: attention is dense"},
    {"autotuning", Fate::refused, "Use tessera plan --fit instead"},
    {"elasticity", Fate::refused, "Give the batch sizes: a checkpoint resumes with any number of ranks"},
    {"compression_training", Fate::refused, "Remove it: nothing is compressed"},
    {"curriculum_learning", Fate::refused, "Remove it: samples come in random order"},
    {"data_efficiency", Fate::refused, "Remove it: samples come in random order"},
    {"progressive_layer_drop", Fate::refused, "Remove it: all layers train"},
    {"hybrid_engine", Fate::refused, "Remove it: only one engine exists"},
    {"eigenvalue", Fate::refused, "Remove it: Tessera does not quantize"},
    {"quantize_training", Fate::refused, "Remove it: Tessera does not quantize"},
    {"expert_parallel", Fate::refused, "Remove it: the models have no experts"},
    {"pipeline", Fate::refused, "Remove it: a rank computes all layers"},
    {"tensor_parallel", Fate::refused, "Remove it: a rank computes complete layers"},
    {"sequence_parallel_size", Fate::refused, "Remove it: a rank computes complete sequences"},
};

const Key* find_key(const std::string& path) {
  for (const Key& key : kKeys) {
    if (path == key.path) return &key;
  }
  return nullptr;
}

// The known keys directly under `prefix` ("fp16.", or ""), without the prefix.
std::vector<std::string> keys_of(const std::string& prefix) {
  std::vector<std::string> keys;
  for (const Key& key : kKeys) {
    const std::string path = key.path;
    if (path.starts_with(prefix) && path.find('.', prefix.size()) == path.npos)
      keys.push_back(path.substr(prefix.size()));
  }
  return keys;
}

// Whether the value turns a feature off.
bool is_off(const json& value) {
  if (value.is_object()) return value.empty() || (value.contains("enabled") && is_off(value["enabled"]));
  // A number is the size of a group of ranks. A group of one rank turns the feature off.
  if (value.is_number()) return value.get<double>() <= 1;
  return value.is_null() || value == false || value == "auto";
}

std::string shown(const json& value) {
  if (value.is_string()) return quoted_value(value.get<std::string>());
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + counted(value.size(), "element");
  return value.dump();
}

}  // namespace

DeepSpeedFile::DeepSpeedFile(std::string_view text, std::string name) : name_(std::move(name)) {
  try {
    root_ = parse_json(text, name_);
  } catch (const InputError& error) {
    throw UsageError("", error.what());
  }
  if (!root_.is_object()) throw UsageError(name_, "must be a JSON object");
  check_type("optimizer", {"AdamW", "Adam"});
  check_type("scheduler", {"WarmupLR", "WarmupDecayLR"});
  check_keys(root_, "");
}

// Runs before check_keys(). An unsupported type may have keys that check_keys() does not know, but the error for the
// type is more helpful than an error for an unknown key.
void DeepSpeedFile::check_type(const std::string& section, const std::vector<std::string>& types) {
  const auto found = root_.find(section);
  if (found == root_.end() || !found->is_object() || !found->contains("type")) return;
  const json& type = (*found)["type"];
  if (!type.is_string() || type == "auto") return;
  const auto is_type = [&](const std::string& one) {
    return strcasecmp(one.c_str(), type.get<std::string>().c_str()) == 0;
  };
  if (std::any_of(types.begin(), types.end(), is_type)) return;
  throw UsageError(
      where(section + ".type"), fmt::format("{} is not supported", shown(type)),
      fmt::format("Use {}{}", joined(types, " or "),
                  section == "scheduler" ? ", or remove the section \"scheduler\" and give --lr-schedule" : ""));
}

void DeepSpeedFile::check_keys(const json& object, const std::string& prefix) {
  for (const auto& [word, value] : object.items()) {
    const std::string path = prefix + word;
    const Key* key = word.find('.') == word.npos ? find_key(path) : nullptr;
    if (!key) {
      const std::string quoted = quoted_value(word);
      throw UsageError(prefix.empty() ? name_ : where(prefix.substr(0, prefix.size() - 1)),
                       fmt::format("has the unknown key {}", quoted), did_you_mean(word, keys_of(prefix)));
    }
    switch (key->fate) {
      case Fate::used:
        break;
      case Fate::section:
        if (value.is_null()) break;
        if (!value.is_object()) {
          throw UsageError(where(path), "must be an object, got " + shown(value), "Write an object in braces: {...}");
        }
        check_keys(value, path + ".");
        break;
      case Fate::ignored:
        ignored_.push_back(fmt::format("{} ({})", path, key->why));
        break;
      case Fate::refused:
        if (!is_off(value)) throw UsageError(where(path), "is not supported", key->why);
        break;
    }
  }
}

const json* DeepSpeedFile::find(const std::string& path) const {
  const Key* key = find_key(path);
  TESSERA_ASSERT(key && (key->fate == Fate::used || key->fate == Fate::section));
  const json* node = &root_;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto it = node->find(path.substr(begin, end - begin));
    if (it == node->end() || it->is_null()) return nullptr;
    node = &*it;
    begin = end + 1;
  }
  return node;
}

const json* DeepSpeedFile::value(const std::string& path) const {
  const json* node = find(path);
  return node && *node == "auto" ? nullptr : node;
}

bool DeepSpeedFile::is_auto(const std::string& path) const {
  const json* node = find(path);
  return node && *node == "auto";
}

void DeepSpeedFile::wrong_type(const std::string& path, const json& value, const char* wanted) const {
  throw UsageError(where(path), fmt::format("must be {}, got {}", wanted, shown(value)),
                   value.is_string() ? "Write it without quotes, or \"auto\"" : "");
}

std::optional<bool> DeepSpeedFile::boolean(const std::string& path) const {
  const json* node = value(path);
  if (!node) return std::nullopt;
  if (!node->is_boolean()) wrong_type(path, *node, "true or false");
  return node->get<bool>();
}

std::optional<int64_t> DeepSpeedFile::whole(const std::string& path) const {
  const json* node = value(path);
  if (!node) return std::nullopt;
  constexpr double kLargest = 9e18;
  if (node->is_number_integer() && (!node->is_number_unsigned() || node->get<uint64_t>() < (uint64_t{1} << 63))) {
    return node->get<int64_t>();
  }
  if (!node->is_number_float()) wrong_type(path, *node, "a whole number");
  const auto number = node->get<double>();
  if (number != std::floor(number) || std::abs(number) > kLargest) wrong_type(path, *node, "a whole number");
  return static_cast<int64_t>(number);
}

std::optional<double> DeepSpeedFile::real(const std::string& path) const {
  const json* node = value(path);
  if (!node) return std::nullopt;
  if (!node->is_number()) wrong_type(path, *node, "a number");
  return node->get<double>();
}

std::optional<std::string> DeepSpeedFile::word(const std::string& path) const {
  const json* node = value(path);
  if (!node) return std::nullopt;
  if (!node->is_string()) wrong_type(path, *node, "a text");
  return node->get<std::string>();
}

std::optional<std::pair<double, double>> DeepSpeedFile::pair(const std::string& path) const {
  const json* node = value(path);
  if (!node) return std::nullopt;
  if (!node->is_array() || node->size() != 2) wrong_type(path, *node, "an array of two numbers");
  for (const json& element : *node) {
    if (element.is_number()) continue;
    throw UsageError(where(path), "must be an array of two numbers, but an element is " + shown(element),
                     element.is_string() ? "Write the number without quotes" : "");
  }
  return std::pair((*node)[0].get<double>(), (*node)[1].get<double>());
}

}  // namespace tessera
