// Rules about micro-batches, evaluations and checkpoints of a training run.
#include <fmt/format.h>

#include <cmath>

#include "tessera/base/counted.h"
#include "tessera/settings/rules/rules.h"

namespace tessera {

namespace {

using S = Settings;

std::optional<Fault> evaluation_data_twice(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.eval_fraction == 0 || s.eval_dataset.empty()) return {};
  return Fault{"eval_fraction", fmt::format("contradicts eval_dataset ({})", resolved.where("eval_dataset")),
               "Give only one of the two. To ignore the other one, give --eval-fraction none or --eval-dataset="};
}

std::optional<Fault> evaluations_without_interval(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.eval_strategy != S::Interval::steps || s.eval_steps.is_given()) return {};
  return Fault{"eval_strategy", "\"steps\" needs the number of steps", "Give --eval-steps"};
}

std::optional<Fault> saves_without_interval(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.save_strategy != S::Interval::steps || s.save_steps.is_given()) return {};
  return Fault{"save_strategy", "\"steps\" needs the number of steps", "Give --save-steps"};
}

std::optional<Fault> warmup_twice(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!s.warmup_steps.is_given() || s.warmup_ratio == 0) return {};
  return Fault{"warmup_ratio",
               fmt::format("{} contradicts warmup_steps {}", s.warmup_ratio, value_text(s, "warmup_steps")),
               "Give only one of the two"};
}

std::optional<Fault> bf16_states_of_other_weights(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const bool may_be_bf16 = s.precision == S::Precision::bf16 || s.precision == S::Precision::automatic;
  if (s.optimizer_states != S::OptimizerStates::bf16 || may_be_bf16) return {};
  return Fault{
      "optimizer_states",
      fmt::format("\"bf16\" also keeps the weights in bf16, but the precision is {}", value_text(s, "precision")),
      "Give --precision bf16, or --optimizer-states fp32 or 8bit"};
}

std::optional<Fault> fp8_without_bf16(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const bool may_be_bf16 = s.precision == S::Precision::bf16 || s.precision == S::Precision::automatic;
  if (s.matmul_precision != S::MatmulPrecision::fp8 || may_be_bf16) return {};
  return Fault{"matmul_precision",
               fmt::format("\"fp8\" needs the precision bf16, but the precision is {}", value_text(s, "precision")),
               "Give --precision bf16"};
}

std::optional<Fault> cache_of_rows_held_out(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.eval_fraction == 0 || s.data_cache == "auto" || s.data_cache == "off") return {};
  return Fault{"data_cache",
               fmt::format("cached data cannot be held out for evaluation ({} {})", resolved.where("eval_fraction"),
                           s.eval_fraction),
               "Give an --eval-dataset in place of --eval-fraction, or --data-cache off"};
}

std::optional<Fault> empty_micro_batch(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kOptimization) || s.batch_size > 0 || s.batch_tokens > 0) return {};
  return Fault{"batch_size", "must be at least 1, got 0", "Give --batch-size, or fill micro-batches by --batch-tokens"};
}

std::optional<Fault> micro_batch_below_a_sample(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kOptimization) || s.batch_tokens == 0 || s.batch_tokens >= s.max_length) return {};
  return Fault{"batch_tokens",
               fmt::format("a micro-batch of {} has no room for a sample of max_length {} ({})",
                           counted(s.batch_tokens, "token"), s.max_length, resolved.where("max_length")),
               fmt::format("Give at least {}, or a smaller --max-length", s.max_length)};
}

std::optional<Fault> too_many_epochs_to_count(const ResolvedSettings& resolved) {
  constexpr double kMostEpochs = 100'000;  // each epoch's steps are counted before the run, which takes time
  const S& s = resolved.settings;
  if (!(resolved.groups & kOptimization) || s.batch_tokens == 0 || s.max_steps > 0 || s.epochs <= kMostEpochs) {
    return {};
  }
  return Fault{
      "epochs",
      fmt::format(
          "{} epochs are too many with batch_tokens, because the steps of each epoch are counted before the run",
          s.epochs),
      fmt::format("Give at most {}, or --max-steps", kMostEpochs)};
}

// The next three rules refuse flags without effect. Settings without effect from a file or the environment are no
// fault, because other runs may need them.
std::optional<Fault> idle_save_steps(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const bool saves = s.save_strategy == S::Interval::steps || resolved.is_flag("save_strategy");
  if (!s.save_steps.is_given() || saves || !resolved.is_flag("save_steps")) return {};
  return Fault{"save_steps", "does nothing unless save_strategy is \"steps\"", "Add --save-strategy steps"};
}

std::optional<Fault> idle_eval_steps(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const bool evaluates = s.eval_strategy == S::Interval::steps || resolved.is_flag("eval_strategy");
  if (!s.eval_steps.is_given() || evaluates || !resolved.is_flag("eval_steps")) return {};
  return Fault{"eval_steps", "does nothing unless eval_strategy is \"steps\"", "Add --eval-strategy steps"};
}

std::optional<Fault> evaluation_without_data(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.has_eval_data()) return {};
  const bool by_steps = s.eval_steps.is_given() && resolved.where("eval_strategy") == resolved.where("eval_steps");
  for (const auto& [name, asked] :
       {std::pair{"eval_before", s.eval_before}, std::pair{"eval_generation", s.eval_generation},
        std::pair{"eval_size", s.eval_size > 0}, std::pair{"eval_steps", by_steps}}) {
    if (!asked || !resolved.is_flag(name)) continue;
    return Fault{name, "does nothing without an eval_dataset",
                 resolved.groups & kTrainData ? "Give --eval-dataset or --eval-fraction" : "Give --eval-dataset"};
  }
  return {};
}

std::optional<Fault> metric_without_answers(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.metric_for_best_model == S::Metric::eval_loss || s.eval_generation) return {};
  return Fault{"metric_for_best_model", "exact match and F1 need generated answers", "Give --eval-generation"};
}

// Whether every checkpoint after `saved` steps comes after an evaluation. A fraction of all steps is never a multiple
// of a number of steps.
bool is_multiple(const StepCount& saved, const StepCount& evaluated) {
  if (saved.fraction == 0 && evaluated.fraction == 0) return saved.steps % evaluated.steps == 0;
  if (saved.fraction == 0 || evaluated.fraction == 0) return false;
  const double ratio = saved.fraction / evaluated.fraction;
  return std::abs(ratio - std::round(ratio)) < 1e-9 * ratio;
}

std::optional<Fault> best_model_without_checkpoint(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const char* const name = "load_best_model_at_end";
  if (!s.load_best_model_at_end) return {};
  if (s.eval_strategy == S::Interval::no) {
    return Fault{name, "needs evaluations, but eval_strategy is \"no\"", "Give --eval-strategy epoch or steps"};
  }
  if (s.save_strategy != s.eval_strategy) {
    return Fault{name, "needs a checkpoint of each evaluated model",
                 "Give --save-strategy and --eval-strategy the same value"};
  }
  if (s.eval_strategy == S::Interval::steps && !is_multiple(s.save_steps, s.eval_steps)) {
    return Fault{name,
                 fmt::format("needs evaluated checkpoints, but save_steps {} is not a multiple of eval_steps {}",
                             value_text(s, "save_steps"), value_text(s, "eval_steps")),
                 "Make --save-steps a multiple of --eval-steps"};
  }
  if (s.has_eval_data()) return {};
  return Fault{name, "needs evaluations", "Give --eval-dataset or --eval-fraction"};
}

}  // namespace

std::span<const Rule> training_rules() {
  static constexpr Rule kRules[] = {evaluation_data_twice,
                                    evaluations_without_interval,
                                    saves_without_interval,
                                    warmup_twice,
                                    bf16_states_of_other_weights,
                                    fp8_without_bf16,
                                    cache_of_rows_held_out,
                                    empty_micro_batch,
                                    micro_batch_below_a_sample,
                                    too_many_epochs_to_count,
                                    idle_save_steps,
                                    idle_eval_steps,
                                    evaluation_without_data};
  return kRules;
}

std::span<const Rule> evaluation_rules() {
  static constexpr Rule kRules[] = {metric_without_answers, best_model_without_checkpoint};
  return kRules;
}

}  // namespace tessera
