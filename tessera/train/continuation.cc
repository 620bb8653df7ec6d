#include "tessera/train/continuation.h"

#include "tessera/base/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {

namespace {

// The keys of the fingerprint (train_state.h) that may change. All other keys must stay the same.
constexpr std::pair<const char*, MayChange> kMayChange[] = {
    {"epochs", MayChange::in_any_case},
    {"max_steps", MayChange::in_any_case},
    {"lr", MayChange::in_a_new_folder},
    {"lr_schedule", MayChange::in_a_new_folder},
    {"lr_decay_steps", MayChange::in_a_new_folder},
    {"warmup_steps", MayChange::in_a_new_folder},
    {"warmup_ratio", MayChange::in_a_new_folder},
    {"warmup_type", MayChange::in_a_new_folder},
    {"warmup_min_lr", MayChange::in_a_new_folder},
    {"weight_decay", MayChange::in_a_new_folder},
    {"beta1", MayChange::in_a_new_folder},
    {"beta2", MayChange::in_a_new_folder},
    {"adam_epsilon", MayChange::in_a_new_folder},
    {"max_grad_norm", MayChange::in_a_new_folder},
    {"hidden_dropout", MayChange::in_a_new_folder},
    {"attention_dropout", MayChange::in_a_new_folder},
    {"precision", MayChange::in_a_new_folder},
    {"optimizer_states", MayChange::in_a_new_folder},
    {"load_best_model_at_end", MayChange::in_a_new_folder},
    {"metric_for_best_model", MayChange::in_a_new_folder},
};

// Checkpoints of older versions of Tessera lack some keys. If they lack `key`, returns the value that these versions
// always used for it, or an empty text if there is no such value.
std::string value_without(const std::string& key) {
  return key == "optimizer_states" ? "fp32" : "";
}

MayChange may_change(const std::string& key) {
  for (const auto& [name, when] : kMayChange) {
    if (key == name) return when;
  }
  return MayChange::never;
}

}  // namespace

std::string Change::shown() const {
  return then.empty() ? "other " + key : fmt::format("{} = {}, and this run has {}", key, then, now);
}

std::vector<Change> changes_between(const Record& then, const Record& now) {
  std::vector<Change> changes;
  for (const auto& [key, value] : now.items()) {
    const auto before = then.find(key);
    if (before != then.end() && *before == value) continue;
    if (before == then.end() && value == value_without(key)) continue;
    if (value.is_structured()) {
      changes.push_back({key, "", "", may_change(key)});
    } else {
      changes.push_back({key, before != then.end() ? to_json(*before) : "nothing", to_json(value), may_change(key)});
    }
  }
  return changes;
}

std::vector<Change> forbidden_among(const std::vector<Change>& changes, bool in_a_new_folder) {
  std::vector<Change> forbidden;
  std::copy_if(changes.begin(), changes.end(), std::back_inserter(forbidden), [&](const Change& change) {
    return change.may_change == MayChange::never ||
           (change.may_change == MayChange::in_a_new_folder && !in_a_new_folder);
  });
  return forbidden;
}

std::string listed(const std::vector<Change>& changes) {
  constexpr size_t kShown = 3;
  std::string text = "was made";
  for (size_t i = 0; i < std::min(kShown, changes.size()); ++i) {
    text += (i > 0 ? "; with " : " with ") + changes[i].shown();
  }
  if (const size_t more = changes.size() - std::min(kShown, changes.size()); more > 0) {
    text += fmt::format("; and {} {}", counted(more, "more setting"), more == 1 ? "differs" : "differ");
  }
  return text;
}

int64_t total_steps(int64_t max_steps, double epochs, const EpochSteps& steps) {
  return max_steps > 0 ? max_steps : steps.steps_of(epochs);
}

ScheduleOptions schedule_options(const Settings& settings, int64_t num_steps) {
  const auto ratio_steps = static_cast<int64_t>(std::ceil(settings.warmup_ratio * static_cast<double>(num_steps)));
  return {settings.lr_schedule, settings.warmup_steps > 0 ? settings.warmup_steps : ratio_steps,
          settings.lr_decay_steps > 0 ? settings.lr_decay_steps : num_steps, settings.warmup_type};
}

std::string note_of_length(const Settings& settings, int64_t steps_then, int64_t steps_now, int64_t step,
                           int64_t num_updates) {
  std::string text = fmt::format("The run has {} now instead of {}", counted(steps_now, "step"), steps_then);
  if (step >= steps_now) return text + ", and all of them are done";
  const ScheduleOptions before = schedule_options(settings, steps_then), after = schedule_options(settings, steps_now);
  const auto rate = [&](const ScheduleOptions& schedule) {
    return scheduled_rate(schedule, settings.warmup_min_lr, settings.lr, num_updates);
  };
  const bool decays = after.kind != Schedule::constant && after.num_steps != before.num_steps;
  if (!decays && after.num_warmup_steps == before.num_warmup_steps) {
    return text + ". The learning rate does not depend on the number of steps";
  }
  text += ". The finished steps keep their learning rates. ";
  if (decays)
    text += fmt::format("From here on, the rate decays until step {} instead of step {}. ", after.num_steps,
                        before.num_steps);
  return text + fmt::format("The rate of step {} is {}, but with {} it would be {}", step + 1, rate(after),
                            counted(steps_then, "step"), rate(before));
}

}  // namespace tessera
