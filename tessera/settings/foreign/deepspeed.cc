#include "tessera/settings/foreign/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/settings/foreign/deepspeed_file.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

constexpr double kDefaultLr = 1e-3;            // the default of FusedAdam, DeepSpeedCPUAdam and the schedulers
constexpr int64_t kDefaultWarmupSteps = 1000;  // the default of WarmupLR and WarmupDecayLR

class Reader {
 public:
  Reader(const DeepSpeedFile& file, const ResolvedSettings& others) : file_(file), others_(others) {
    layer_.name = file.name();
  }

  DeepSpeedLayer read() {
    read_batch();
    read_optimizer();
    read_scheduler();
    read_precision();
    read_zero();
    read_reduction();
    if (!file_.ignored().empty()) {
      layer_.notes.push_back(file_.where("these keys are ignored, because they have no effect in Tessera: " +
                                         joined(file_.ignored(), ", ")));
    }
    return std::move(layer_);
  }

 private:
  void set(const char* name, const SettingValue& value, const std::string& path) {
    const Setting* setting = find_setting(name);
    TESSERA_ASSERT(setting);
    const std::string where = file_.where(path);
    layer_.values.push_back({setting, checked_value(*setting, value, where), {Origin::Kind::deepspeed, where}});
  }
  template <typename T>
  void set_if(const char* name, const std::optional<T>& value, const std::string& path) {
    if (value) set(name, SettingValue(*value), path);
  }
  // Sets DeepSpeed's default for a missing key. A key with the value "auto" is not missing.
  void preset(const char* name, const SettingValue& value, const std::string& path) {
    if (file_.has(path)) return;
    layer_.presets.push_back({find_setting(name), value, {Origin::Kind::deepspeed_preset, file_.where(path)}});
  }
  [[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& remedy) const {
    throw UsageError(file_.where(path), what, remedy);
  }

  void read_batch() {
    set_if("batch_size", file_.whole("train_micro_batch_size_per_gpu"), "train_micro_batch_size_per_gpu");
    set_if("grad_accum", file_.whole("gradient_accumulation_steps"), "gradient_accumulation_steps");
    layer_.micro_batch_is_auto = file_.is_auto("train_micro_batch_size_per_gpu");
    layer_.train_batch_size = file_.whole("train_batch_size");
    if (layer_.train_batch_size && *layer_.train_batch_size < 1) {
      refuse("train_batch_size", fmt::format("must be at least 1, got {}", *layer_.train_batch_size), "");
    }
    set_if("max_grad_norm", file_.real("gradient_clipping"), "gradient_clipping");
    preset("max_grad_norm", 0.0, "gradient_clipping");
  }

  void read_optimizer() {
    if (!file_.has("optimizer")) return;
    const std::string type = file_.word("optimizer.type").value_or("AdamW");
    if (lower(type) != "adam" && lower(type) != "adamw") {
      refuse("optimizer.type", fmt::format("{} is not supported", quoted_value(type)), "Use one of: AdamW, Adam");
    }
    const std::string p = "optimizer.params.";
    if (!file_.boolean(p + "adam_w_mode").value_or(true)) {
      refuse(p + "adam_w_mode", "false selects Adam with coupled weight decay, but only AdamW is supported",
             "Remove it, or set weight_decay to 0 and adam_w_mode to true");
    }
    if (!file_.boolean(p + "bias_correction").value_or(true)) {
      refuse(p + "bias_correction", "false is not supported", "Remove it");
    }
    set_if("lr", file_.real(p + "lr"), p + "lr");
    if (const auto betas = file_.pair(p + "betas")) {
      set("beta1", betas->first, p + "betas");
      set("beta2", betas->second, p + "betas");
    }
    set_if("adam_epsilon", file_.real(p + "eps"), p + "eps");
    set_if("weight_decay", file_.real(p + "weight_decay"), p + "weight_decay");
    preset("lr", kDefaultLr, p + "lr");
    // torch.optim.AdamW has the default 0.01. DeepSpeed's own Adam optimizers have the default 0.
    preset("weight_decay", file_.boolean(p + "torch_adam").value_or(false) ? 0.01 : 0.0, p + "weight_decay");
  }

  void read_scheduler() {
    if (!file_.has("scheduler")) return;
    const auto type = file_.word("scheduler.type");
    if (!type || (*type != "WarmupLR" && *type != "WarmupDecayLR")) {
      refuse("scheduler.type",
             fmt::format("{} is not supported", type ? quoted_value(*type) : "a scheduler without a type"),
             "Use WarmupLR or WarmupDecayLR, or remove the section \"scheduler\" and give --lr-schedule");
    }
    const bool decays = *type == "WarmupDecayLR";
    set("lr_schedule", decays ? "linear" : "constant", "scheduler.type");
    const std::string p = "scheduler.params.";
    read_peak(p + "warmup_max_lr");
    set_if("warmup_min_lr", file_.real(p + "warmup_min_lr"), p + "warmup_min_lr");
    if (const auto steps = file_.whole(p + "warmup_num_steps")) {
      // WarmupLR uses at least 2 steps. A negative number is passed on, and the range check of the setting reports it.
      set("warmup_steps", *steps >= 0 ? std::max<int64_t>(2, *steps) : *steps, p + "warmup_num_steps");
    } else if (!others_.is_given("warmup_ratio")) {
      preset("warmup_steps", kDefaultWarmupSteps, p + "warmup_num_steps");
    }
    set_if("warmup_type", file_.word(p + "warmup_type"), p + "warmup_type");
    preset("warmup_type", "log", p + "warmup_type");
    const auto total = file_.whole(p + "total_num_steps");
    if (total && !decays)
      refuse(p + "total_num_steps", "applies only to WarmupDecayLR, but scheduler.type is WarmupLR",
             "Remove it, or use WarmupDecayLR");
    if (decays && !file_.has(p + "total_num_steps")) {
      refuse(p + "total_num_steps", "is missing, but WarmupDecayLR needs it",
             "Write \"auto\" for all steps of the run");
    }
    set_if("lr_decay_steps", total, p + "total_num_steps");
  }

  // Reads warmup_max_lr of the scheduler. The file has a second key for the peak learning rate: the lr of the
  // optimizer.
  void read_peak(const std::string& path) {
    const auto peak = file_.real(path), of_optimizer = file_.real("optimizer.params.lr");
    if (peak && of_optimizer && *peak != *of_optimizer) {
      refuse(path, fmt::format("{} contradicts optimizer.params.lr {}", *peak, *of_optimizer),
             fmt::format("DeepSpeed would use {}: write it in both places", *peak));
    }
    set_if("lr", peak, path);
    if (file_.has(path)) return;
    if (of_optimizer) {
      layer_.notes.push_back(file_.where(path + " is missing: the learning rate rises to optimizer.params.lr"));
    } else if (!file_.has("optimizer.params.lr")) {
      preset("lr", kDefaultLr, path);
    }
  }

  void read_precision() {
    const auto fp16 = file_.boolean("fp16.enabled"), bf16 = file_.boolean("bf16.enabled");
    if (fp16.value_or(false) && bf16.value_or(false)) {
      refuse("fp16.enabled", "true contradicts bf16.enabled true", "Enable only one of the two");
    }
    if (fp16.value_or(false)) set("precision", "fp16", "fp16.enabled");
    if (bf16.value_or(false)) set("precision", "bf16", "bf16.enabled");
    // DeepSpeed computes in fp32 unless a section selects a 16-bit type.
    const bool is_auto = file_.is_auto("fp16.enabled") || file_.is_auto("bf16.enabled");
    if (!is_auto && !fp16.value_or(false) && !bf16.value_or(false)) {
      layer_.presets.push_back(
          {find_setting("precision"), "fp32", {Origin::Kind::deepspeed_preset, file_.where("bf16")}});
    }

    const auto precision = final_precision(fp16.value_or(false), bf16.value_or(false));
    if (fp16 && !*fp16 && precision == Settings::Precision::fp16) contradicts_precision("fp16.enabled");
    const bool may_be_bf16 = precision == Settings::Precision::bf16 ||
                             (precision == Settings::Precision::automatic && others_.is_given("precision"));
    if (bf16 && !*bf16 && may_be_bf16) contradicts_precision("bf16.enabled");
    if (!file_.has("fp16")) return;
    // Reads the section fp16 even if the precision is not fp16, to report wrong values. In that case, discards
    // the values.
    DeepSpeedLayer kept = layer_;
    set_if("loss_scale", file_.real("fp16.loss_scale"), "fp16.loss_scale");
    set_if("initial_scale_power", file_.whole("fp16.initial_scale_power"), "fp16.initial_scale_power");
    set_if("loss_scale_window", file_.whole("fp16.loss_scale_window"), "fp16.loss_scale_window");
    set_if("loss_scale_hysteresis", file_.whole("fp16.hysteresis"), "fp16.hysteresis");
    set_if("min_loss_scale", file_.real("fp16.min_loss_scale"), "fp16.min_loss_scale");
    // No key selects DeepSpeed's rules for the loss scale. The section fp16 itself selects them.
    layer_.presets.push_back({find_setting("loss_scale_rules"),
                              SettingValue("deepspeed"),
                              {Origin::Kind::deepspeed_preset, file_.where("fp16")}});
    if (precision != Settings::Precision::fp16) layer_ = std::move(kept);
  }

  Settings::Precision final_precision(bool fp16, bool bf16) const {
    const auto it = others_.origins.find("precision");
    const bool is_stronger = it != others_.origins.end() && it->second.kind > Origin::Kind::deepspeed;
    if (!is_stronger && fp16) return Settings::Precision::fp16;
    if (!is_stronger && bf16) return Settings::Precision::bf16;
    return others_.settings.precision;
  }

  [[noreturn]] void contradicts_precision(const std::string& path) const {
    refuse(path,
           fmt::format("is false, but the precision is {} ({})",
                       toml_text(find_setting("precision")->get(others_.settings)), others_.where("precision")),
           "Write \"auto\" here to keep this precision");
  }

  void read_zero() {
    const int64_t stage = file_.whole("zero_optimization.stage").value_or(0);
    if (stage < 0 || stage > 3) {
      refuse("zero_optimization.stage", fmt::format("must be 0, 1, 2 or 3, got {}", stage), "");
    }
    const bool is_given = file_.whole("zero_optimization.stage").has_value();
    if (is_given) set("strategy", fmt::format("zero{}", stage), "zero_optimization.stage");
    preset("strategy", "no_shard", "zero_optimization.stage");
    const bool is_auto = file_.is_auto("zero_optimization.stage");
    read_offload(is_auto ? 3 : stage);
    if (const auto elements = file_.whole("zero_optimization.reduce_bucket_size")) {
      const int64_t element_bytes = reduce_dtype() == "fp32" ? 4 : 2;
      if (*elements < 1 || *elements > (int64_t{1} << 60)) {
        refuse("zero_optimization.reduce_bucket_size", fmt::format("must be from 1 to 2^60, got {}", *elements), "");
      }
      const int64_t bytes = *elements * element_bytes;
      set("reduce_bucket_size", ParsedValue(bytes_text(bytes), bytes), "zero_optimization.reduce_bucket_size");
    }
  }

  Tier tier(const std::string& section) const {
    const std::string device = file_.word(section + ".device").value_or("none");
    if (device == "none") return Tier::device;
    if (device == "cpu") return Tier::host;
    if (device == "nvme") return Tier::file;
    refuse(section + ".device", fmt::format("unknown value {}", quoted_value(device)), "Use one of: none, cpu, nvme");
  }

  void read_offload(int64_t stage) {
    const std::string optimizer = "zero_optimization.offload_optimizer", parameters = "zero_optimization.offload_param";
    if (!file_.has(optimizer) && !file_.has(parameters)) return;
    Offload offload;
    offload.optimizer = tier(optimizer);
    // DeepSpeed keeps the gradients for its CPU optimizer in host memory.
    if (offload.optimizer != Tier::device) offload.gradients = Tier::host;
    // Twin-Flow: this share of the elements is updated on the CPU.
    if (const auto ratio = file_.real(optimizer + ".ratio"); ratio && offload.optimizer != Tier::device) {
      if (!(*ratio > 0 && *ratio <= 1)) {
        refuse(optimizer + ".ratio", fmt::format("must be greater than 0 and at most 1, got {}", *ratio), "");
      }
      if (const auto percent = static_cast<int64_t>(std::ceil(*ratio * 100 - 1e-9)); percent < 100) {
        offload.part_of_optimizer = offload.part_of_gradients = OffloadedPart{OffloadedPart::Of::percent, percent};
      }
    }
    offload.parameters = tier(parameters);
    if (offload.optimizer != Tier::device && stage == 0) {
      refuse(optimizer, "needs stage 1, 2 or 3, but zero_optimization.stage is 0",
             "Write one of these stages, or remove this section");
    }
    if (offload.parameters != Tier::device && stage != 3) {
      refuse(parameters, fmt::format("needs stage 3, but zero_optimization.stage is {}", stage),
             "Write stage 3, or remove this section");
    }
    set("offload", ParsedValue(offload_text(offload), offload),
        offload.optimizer != Tier::device ? optimizer : parameters);

    const auto paths = std::pair(file_.word(optimizer + ".nvme_path"), file_.word(parameters + ".nvme_path"));
    if (paths.first && paths.second && *paths.first != *paths.second) {
      refuse(parameters + ".nvme_path",
             fmt::format("{} contradicts {}.nvme_path {}", quoted_value(*paths.second), optimizer,
                         quoted_value(*paths.first)),
             "Give the same folder in both places");
    }
    set_if("offload_dir", paths.second, parameters + ".nvme_path");
    set_if("offload_dir", paths.first, optimizer + ".nvme_path");
    const auto pins = std::pair(file_.boolean(optimizer + ".pin_memory"), file_.boolean(parameters + ".pin_memory"));
    if (pins.first && pins.second && *pins.first != *pins.second) {
      refuse(parameters + ".pin_memory", fmt::format("{} contradicts {}.pin_memory", *pins.second, optimizer),
             "Give the same value in both places: all offloaded memory is pinned, or none");
    }
    set_if("pin_memory", pins.second, parameters + ".pin_memory");
    set_if("pin_memory", pins.first, optimizer + ".pin_memory");
  }

  std::string reduce_dtype() const { return file_.word("communication_data_type").value_or("fp32"); }

  void read_reduction() {
    if (file_.word("communication_data_type")) set("reduce_dtype", reduce_dtype(), "communication_data_type");
    const std::string accumulation = file_.word("data_types.grad_accum_dtype").value_or("fp32");
    if (accumulation != "fp32") {
      refuse("data_types.grad_accum_dtype", fmt::format("{} is not supported", quoted_value(accumulation)),
             "Remove it: gradients accumulate in fp32");
    }
    const std::string operation = lower(file_.word("gradient_allreduce_op").value_or("avg"));
    if (operation != "avg" && operation != "mean") {
      refuse("gradient_allreduce_op", fmt::format("{} is not supported", quoted_value(operation)),
             "Remove it: the loss is the mean over all targets");
    }
  }

  const DeepSpeedFile& file_;
  const ResolvedSettings& others_;
  DeepSpeedLayer layer_;
};

}  // namespace

DeepSpeedLayer read_deepspeed(std::string_view text, const std::string& name, const ResolvedSettings& others) {
  const DeepSpeedFile file(text, name);
  return Reader(file, others).read();
}

void settle_batch(const DeepSpeedLayer& layer, ResolvedSettings& resolved) {
  if (!layer.train_batch_size || !(resolved.groups & kOptimization)) return;
  Settings& s = resolved.settings;
  const int64_t total = *layer.train_batch_size, ranks = resolved.num_ranks;
  const std::string where = layer.name + ": train_batch_size";
  if (s.batch_tokens > 0) {
    throw UsageError(
        where,
        fmt::format("{} contradicts {} {}: with batch_tokens, the number of samples differs from step to step", total,
                    resolved.where("batch_tokens"), s.batch_tokens),
        "Remove this key or write \"auto\", or give --batch-size");
  }
  const bool has_accumulation = resolved.is_given("grad_accum");
  // If batch_size is given, it is the size of a micro-batch. Otherwise, if train_micro_batch_size_per_gpu is "auto" and
  // grad_accum is not given, the size is the default of batch_size. In all other cases, the size is computed below.
  const bool has_micro = resolved.is_given("batch_size") || (layer.micro_batch_is_auto && !has_accumulation);
  // A step has micro x accumulation x ranks samples. If micro or accumulation is not known, it is 1 here and is
  // computed below. If neither is known, only batch_size is computed, and grad_accum is 1, as in DeepSpeed.
  const int64_t micro = has_micro ? s.batch_size : 1;
  const int64_t accumulation = has_accumulation ? s.grad_accum : 1;
  const auto contradiction = [&](bool is_multiple) {
    const auto named = [&](const char* name, bool is_known, int64_t value) {
      if (!is_known) return std::string();
      return fmt::format("{} {} ({}) x ", name, value, resolved.origins.at(name).to_string());
    };
    return UsageError(where,
                      fmt::format("{} is not {}{}{}{}", total, is_multiple ? "a multiple of " : "",
                                  named("batch_size", has_micro, micro),
                                  named("grad_accum", has_accumulation, accumulation), counted(ranks, "rank")),
                      "Change one of these numbers, or write \"auto\"");
  };
  // micro and accumulation are below 2^31, so their product fits into int64_t. The product with `ranks` may not fit.
  // Therefore, `total` is divided by the known factors. The quotient `rest` is the factor that is not known.
  const int64_t factor = micro * accumulation;
  const bool is_multiple = total % ranks == 0 && (total / ranks) % factor == 0;
  const int64_t rest = is_multiple ? total / ranks / factor : 0;
  if (has_micro && has_accumulation) {
    if (rest != 1) throw contradiction(false);
    return;
  }
  const char* determined = has_micro ? "grad_accum" : "batch_size";
  if (!is_multiple) throw contradiction(true);
  const Setting* setting = find_setting(determined);
  setting->set(s, checked_value(*setting, rest, where));
  resolved.origins[determined] = {Origin::Kind::deepspeed, where};
  if (!has_accumulation && !has_micro) {
    s.grad_accum = 1;
    resolved.origins["grad_accum"] = {Origin::Kind::deepspeed_preset, layer.name + ": gradient_accumulation_steps"};
  }
}

}  // namespace tessera
