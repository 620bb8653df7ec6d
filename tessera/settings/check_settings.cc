// Checks that need more than one setting, or depend on the build and the machine.
#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/resolve.h"

namespace tessera {

namespace {

using S = Settings;

bool on_command_line(const ResolvedSettings& resolved, const std::string& name) {
  const auto origin = resolved.origins.find(name);
  return origin != resolved.origins.end() && origin->second.kind == Origin::Kind::flag;
}

// Refuses flags without effect. A file or the environment may contain such settings, because other runs may need them.
void check_effective(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const auto refuse_if = [&](bool idle, const char* name, const char* what, const char* remedy) {
    if (idle && on_command_line(resolved, name)) throw UsageError(resolved.where(name), what, remedy);
  };
  const bool saves = s.save_strategy == S::Interval::steps || on_command_line(resolved, "save_strategy");
  const bool evaluates = s.eval_strategy == S::Interval::steps || on_command_line(resolved, "eval_strategy");
  refuse_if(s.save_steps > 0 && !saves, "save_steps", "does nothing unless save_strategy is \"steps\"",
            "Add --save-strategy steps");
  refuse_if(s.eval_steps > 0 && !evaluates, "eval_steps", "does nothing unless eval_strategy is \"steps\"",
            "Add --eval-strategy steps");
  for (const auto& [name, asked] :
       {std::pair{"eval_before", s.eval_before}, std::pair{"eval_generation", s.eval_generation},
        std::pair{"eval_size", s.eval_size > 0}}) {
    refuse_if(asked && s.eval_dataset.empty(), name, "does nothing without an eval_dataset", "Give --eval-dataset");
  }
}

void check_training(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.eval_strategy == S::Interval::steps && s.eval_steps == 0) {
    throw UsageError(resolved.where("eval_strategy"), "\"steps\" needs the number of steps", "Give --eval-steps");
  }
  if (s.save_strategy == S::Interval::steps && s.save_steps == 0) {
    throw UsageError(resolved.where("save_strategy"), "\"steps\" needs the number of steps", "Give --save-steps");
  }
  if (s.warmup_steps > 0 && s.warmup_ratio > 0) {
    throw UsageError(resolved.where("warmup_ratio"),
                     fmt::format("{} contradicts warmup_steps {}", s.warmup_ratio, s.warmup_steps),
                     "Give one of the two");
  }
  if (s.optimizer_states == S::OptimizerStates::bf16 && s.precision != S::Precision::bf16) {
    const SettingValue precision = find_setting("precision")->get(s);
    throw UsageError(
        resolved.where("optimizer_states"),
        fmt::format("\"bf16\" keeps the weights in bf16 too, but the precision is {}", toml_text(precision)),
        "Give --precision bf16, or --optimizer-states fp32");
  }
}

void check_rates(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.warmup_min_lr > s.lr) {
    throw UsageError(resolved.where("warmup_min_lr"),
                     fmt::format("{} is greater than the peak learning rate, lr {}", s.warmup_min_lr, s.lr),
                     "Give a lower --warmup-min-lr or a higher --lr");
  }
  if (s.lr_decay_steps > 0 && s.warmup_steps > s.lr_decay_steps) {
    throw UsageError(resolved.where("lr_decay_steps"),
                     fmt::format("{} steps end before the warm-up of {} steps ({})", s.lr_decay_steps, s.warmup_steps,
                                 resolved.where("warmup_steps")),
                     "Give a shorter warm-up or a larger lr_decay_steps");
  }
}

void check_best_model(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.metric_for_best_model != S::Metric::eval_loss && !s.eval_generation) {
    throw UsageError(resolved.where("metric_for_best_model"), "exact match and F1 need generated answers",
                     "Give --eval-generation");
  }
  if (!s.load_best_model_at_end) return;
  const std::string where = resolved.where("load_best_model_at_end");
  if (s.eval_strategy == S::Interval::no) {
    throw UsageError(where, "needs evaluations, but eval_strategy is \"no\"", "Give --eval-strategy epoch or steps");
  }
  if (s.save_strategy != s.eval_strategy) {
    throw UsageError(where, "needs a checkpoint of each evaluated model",
                     "Give --save-strategy and --eval-strategy the same value");
  }
  if (s.eval_strategy == S::Interval::steps && s.save_steps % s.eval_steps != 0) {
    throw UsageError(where,
                     fmt::format("needs evaluated checkpoints, but save_steps {} is not a multiple of eval_steps {}",
                                 s.save_steps, s.eval_steps),
                     "Make --save-steps a multiple of --eval-steps");
  }
  if (s.eval_dataset.empty()) throw UsageError(where, "needs evaluations", "Give --eval-dataset");
}

// Refuses sizes for a model that already has a shape. Default values from a file or the environment are accepted, and
// so are sizes of a weaker source than --model: a recipe's sizes belong to the recipe's model.
void check_shape(const ResolvedSettings& resolved) {
  const std::string& model = resolved.settings.model;
  if (model.empty() || model == "gpt") return;
  const Settings defaults;
  for (const Setting* setting : settings_of(resolved.groups & (kShape | kVocabulary))) {
    if (!on_command_line(resolved, setting->name) && setting->get(resolved.settings) == setting->get(defaults))
      continue;
    if (resolved.origins.at(setting->name).kind < resolved.origins.at("model").kind) continue;
    if (setting->group == kVocabulary) {
      throw UsageError(resolved.where(setting->name),
                       fmt::format("the model \"{}\" already defines the size of its vocabulary", model),
                       "Remove it. For another size, change \"vocab_size\" in a copy of the model's config.json and "
                       "give the copy as "
                       "--model with --init random");
    }
    throw UsageError(
        resolved.where(setting->name),
        fmt::format("applies only to a new model \"gpt\", but the model \"{}\" already has a shape", model),
        "Remove it, or give --model gpt --init random");
  }
}

}  // namespace

void check_consistent(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  check_training(resolved);
  check_effective(resolved);
  check_rates(resolved);
  check_best_model(resolved);
  check_shape(resolved);
  check_sharding(resolved);
  check_nettest(resolved);
  if (s.hidden_size % s.num_heads != 0) {
    throw UsageError(resolved.where("hidden_size"),
                     fmt::format("{} is not divisible by num_heads {}", s.hidden_size, s.num_heads),
                     "Make --hidden-size a multiple of --num-heads");
  }
  if (s.fit > 0 && s.device_memory > 0) {
    throw UsageError(resolved.where("device_memory"), "contradicts fit",
                     "Both set the memory of a rank: give only one");
  }
  if (!s.prompt.empty() && !s.question.empty()) {
    throw UsageError(resolved.where("prompt"), "contradicts question",
                     "Give either --prompt, or --question with --context");
  }
  if (!s.context.empty() && s.question.empty()) {
    throw UsageError(resolved.where("context"), "needs a question", "Give --question");
  }
}

void check_supported(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.precision != S::Precision::tf32 || !(find_setting("precision")->group & resolved.groups)) return;
  const bool plans = resolved.groups & kPlan && resolved.groups != kAllGroups && s.device != S::DeviceChoice::cpu;
  if (plans || uses_cuda(s)) return;
  throw UsageError(resolved.where("precision"), "\"tf32\" needs a GPU", "The CPU supports: fp32, fp16, bf16");
}

}  // namespace tessera
