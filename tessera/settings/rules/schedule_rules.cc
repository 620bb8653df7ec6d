// Rules about the learning rate over time.
#include <fmt/format.h>

#include "tessera/base/counted.h"
#include "tessera/settings/rules/rules.h"

namespace tessera {

namespace {

using S = Settings;

std::optional<Fault> start_above_the_peak(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.warmup_min_lr <= s.lr) return {};
  return Fault{"warmup_min_lr", fmt::format("{} is greater than the peak learning rate, lr {}", s.warmup_min_lr, s.lr),
               "Give a lower --warmup-min-lr or a higher --lr"};
}

std::optional<Fault> decay_within_the_warmup(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.lr_decay_steps == 0 || s.warmup_steps.steps <= s.lr_decay_steps) return {};
  return Fault{"lr_decay_steps",
               fmt::format("is {}, but the warm-up alone takes {} ({})", counted(s.lr_decay_steps, "step"),
                           counted(s.warmup_steps.steps, "step"), resolved.where("warmup_steps")),
               "Give fewer warm-up steps, or a larger value here"};
}

std::optional<Fault> end_above_the_peak(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.min_lr <= s.lr) return {};
  return Fault{"min_lr",
               fmt::format("{}{} is greater than the peak learning rate, lr {}", s.min_lr,
                           resolved.is_given("min_lr") ? "" : ", the default of polynomial,", s.lr),
               "Give a lower --min-lr or a higher --lr"};
}

std::optional<Fault> schedule_without_its_end(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const auto lacks = [&](const char* what, const char* remedy) {
    return Fault{"lr_schedule", fmt::format("{} needs {}", value_text(s, "lr_schedule"), what), remedy};
  };
  if (s.lr_schedule == Schedule::cosine_with_min_lr && !resolved.is_given("min_lr")) {
    return lacks("the lowest rate", "Give --min-lr, or --min-lr-rate for a fraction of --lr");
  }
  if (s.lr_schedule == Schedule::warmup_stable_decay && !s.num_decay_steps.is_given()) {
    return lacks("the length of the decay", "Give --num-decay-steps, for example 0.1 for a tenth of all steps");
  }
  return {};
}

// Flags that only other schedules use.
std::optional<Fault> flag_of_another_schedule(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  using enum Schedule;
  const bool is_cosine = s.lr_schedule == cosine || s.lr_schedule == cosine_with_min_lr;
  const bool is_stable = s.lr_schedule == warmup_stable_decay, decays = depends_on_length(s.lr_schedule);
  const bool waves = is_cosine || s.lr_schedule == cosine_with_restarts || (is_stable && s.decay_type == Decay::cosine);
  for (const auto& [name, has_effect] :
       {std::pair{"lr_num_cycles", waves}, std::pair{"lr_power", s.lr_schedule == polynomial},
        std::pair{"lr_timescale", s.lr_schedule == inverse_sqrt}, std::pair{"num_decay_steps", is_stable},
        std::pair{"decay_type", is_stable}, std::pair{"min_lr", decays}, std::pair{"min_lr_rate", decays}}) {
    if (has_effect || !resolved.is_flag(name)) continue;
    return Fault{name, fmt::format("has no effect with lr_schedule {}", value_text(s, "lr_schedule")),
                 "Remove it, or give another --lr-schedule"};
  }
  return {};
}

}  // namespace

std::span<const Rule> schedule_rules() {
  static constexpr Rule kRules[] = {start_above_the_peak, decay_within_the_warmup, end_above_the_peak,
                                    schedule_without_its_end, flag_of_another_schedule};
  return kRules;
}

}  // namespace tessera
