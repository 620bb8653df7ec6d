#include "tessera/train/continuation.h"

#include "tessera/base/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tessera {

namespace {

// The setting whose value has this key, or nullptr if the key is a fact that several settings determine.
const Setting* recorded_setting(const std::string& key) {
  const Setting* setting = find_setting(key);
  return setting && setting->name == key && setting->is_recorded() ? setting : nullptr;
}

// Checkpoints of older versions of Tessera lack keys. Returns the value that these versions always used: the default of
// the setting, or an empty text.
Record value_without(const std::string& key) {
  Record record = key == kPackingKey ? "filled in order by an older version" : "";
  if (const Setting* setting = recorded_setting(key)) {
    std::visit([&](const auto& value) { record = value; }, setting->get(Settings()));
  }
  return record;
}

// Parts of a model that are recorded only if it has them, and how errors name the setting and its values without and
// with the part. Every version of Tessera records the other keys, or never had another value.
struct OptionalPart {
  const char *key, *setting, *without, *with;
};
constexpr OptionalPart kOptionalParts[] = {{"adapter", "adapter", "none", "lora"},
                                           {"base", "base_dtype", "auto", "nf4"}};

Resume may_change(const std::string& key) {
  if (const Setting* setting = recorded_setting(key)) return *setting->resume;
  const bool is_dropout = key == "hidden_dropout" || key == "attention_dropout";
  return is_dropout ? *find_setting("dropout")->resume : Resume::never;
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
    const Record older = value_without(key);
    if (before == then.end() && (value == older || may_change(key) == Resume::any)) continue;
    if (value.is_object() && before != then.end() && before->is_object()) {
      for (const Change& inner : changes_between(*before, value)) {
        changes.push_back({key + "." + inner.key, inner.then, inner.now, may_change(key)});
      }
    } else if (value.is_structured()) {
      changes.push_back({key, "", "", may_change(key)});
    } else {
      const std::string missing = key == kPackingKey ? to_json(older) : "nothing";
      changes.push_back({key, before != then.end() ? to_json(*before) : missing, to_json(value), may_change(key)});
    }
  }
  for (const OptionalPart& part : kOptionalParts) {
    const bool before = then.contains(part.key), after = now.contains(part.key);
    if (before == after) continue;
    std::erase_if(changes, [&](const Change& change) { return change.key == part.key; });
    changes.push_back(
        {part.setting, before ? part.with : part.without, after ? part.with : part.without, Resume::never});
  }
  return changes;
}

std::vector<Change> forbidden_among(const std::vector<Change>& changes, bool in_a_new_folder) {
  std::vector<Change> forbidden;
  std::copy_if(changes.begin(), changes.end(), std::back_inserter(forbidden), [&](const Change& change) {
    return change.may_change == Resume::never || (change.may_change == Resume::new_folder && !in_a_new_folder);
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

std::string remedy_for_older_program(const std::vector<Change>& forbidden, const std::string& checkpoint) {
  if (forbidden.size() != 1 || forbidden[0].key != kPackingKey) return "";
  return fmt::format(
      "Continue with the version of Tessera that made it, or give --model {} and another --output-dir to train its "
      "model "
      "further in a new run",
      checkpoint);
}

int64_t total_steps(int64_t max_steps, double epochs, const EpochSteps& steps) {
  return max_steps > 0 ? max_steps : steps.steps_of(epochs);
}

ScheduleOptions schedule_options(const Settings& settings, int64_t num_steps) {
  const auto ratio_steps = static_cast<int64_t>(std::ceil(settings.warmup_ratio * static_cast<double>(num_steps)));
  return {.kind = settings.lr_schedule,
          .num_warmup_steps = settings.warmup_steps.is_given() ? settings.warmup_steps.of(num_steps) : ratio_steps,
          .num_steps = settings.lr_decay_steps > 0 ? settings.lr_decay_steps : num_steps,
          .warmup = settings.warmup_type,
          .num_cycles = settings.lr_num_cycles,
          .power = settings.lr_power,
          .timescale = settings.lr_timescale,
          .num_decay_steps = settings.num_decay_steps.of(num_steps),
          .decay = settings.decay_type};
}

RateBounds rate_bounds(const Settings& settings) {
  const bool has_end = settings.min_lr > 0 && depends_on_length(settings.lr_schedule);
  const double end = has_end ? settings.min_lr : settings.warmup_min_lr;
  // The Trainer's schedule warmup_stable_decay also begins with its lowest rate.
  const bool same = settings.lr_schedule == Schedule::warmup_stable_decay && settings.warmup_min_lr == 0;
  return {.start = same ? end : settings.warmup_min_lr, .peak = settings.lr, .end = end};
}

std::string note_of_length(const Settings& settings, int64_t steps_then, int64_t steps_now, int64_t step,
                           int64_t num_updates) {
  std::string text = fmt::format("The run has {} now instead of {}", counted(steps_now, "step"), steps_then);
  if (step >= steps_now) return text + ", and all of them are done";
  const ScheduleOptions before = schedule_options(settings, steps_then), after = schedule_options(settings, steps_now);
  const auto rate = [&](const ScheduleOptions& schedule) {
    return scheduled_rate(schedule, rate_bounds(settings), num_updates);
  };
  const bool decays = depends_on_length(after.kind) && after.num_steps != before.num_steps;
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
