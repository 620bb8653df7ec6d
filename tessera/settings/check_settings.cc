// The checks that need more than one setting, or depend on the build and the machine.
#include <fmt/format.h>

#include "tessera/base/counted.h"
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

// Refuses flags without effect. Accepts settings without effect from a file or the environment, because other runs may
// need them.
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
                     "Give only one of the two");
  }
  if (s.optimizer_states == S::OptimizerStates::bf16 && s.precision != S::Precision::bf16) {
    const SettingValue precision = find_setting("precision")->get(s);
    throw UsageError(
        resolved.where("optimizer_states"),
        fmt::format("\"bf16\" also keeps the weights in bf16, but the precision is {}", toml_text(precision)),
        "Give --precision bf16, or --optimizer-states fp32");
  }
}

void check_micro_batch(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kOptimization)) return;
  if (s.batch_size == 0 && s.batch_tokens == 0) {
    throw UsageError(resolved.where("batch_size"), "must be at least 1, got 0",
                     "Give --batch-size, or fill micro-batches by --batch-tokens");
  }
  if (s.batch_tokens > 0 && s.batch_tokens < s.max_length) {
    throw UsageError(resolved.where("batch_tokens"),
                     fmt::format("a micro-batch of {} has no room for a sample of max_length {} ({})",
                                 counted(s.batch_tokens, "token"), s.max_length, resolved.where("max_length")),
                     fmt::format("Give at least {}, or a smaller --max-length", s.max_length));
  }
  constexpr double kMostEpochs = 100'000;  // each epoch's steps are counted before the run, which takes time
  if (s.batch_tokens > 0 && s.max_steps == 0 && s.epochs > kMostEpochs) {
    throw UsageError(
        resolved.where("epochs"),
        fmt::format(
            "{} epochs are too many with batch_tokens, because the steps of each epoch are counted before the run",
            s.epochs),
        fmt::format("Give at most {}, or --max-steps", kMostEpochs));
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
                     fmt::format("is {}, but the warm-up alone takes {} ({})", counted(s.lr_decay_steps, "step"),
                                 counted(s.warmup_steps, "step"), resolved.where("warmup_steps")),
                     "Give fewer warm-up steps, or a larger value here");
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

bool is_greedy_temperature(const ResolvedSettings& resolved) {
  return resolved.is_given("temperature") && resolved.settings.temperature == 0;
}

// Refuses flags that ask for random tokens if another setting (temperature 0 or do_sample false) contradicts them.
// Accepts such settings from a file or the environment, because they may be for other runs.
void check_sampling(const ResolvedSettings& resolved) {
  const bool greedy = is_greedy_temperature(resolved);
  for (const char* name : {"do_sample", "temperature", "top_k", "top_p"}) {
    const bool draws = std::string_view(name) == "do_sample" ? resolved.settings.do_sample : true;
    if (!draws || !on_command_line(resolved, name)) continue;
    if (greedy && std::string_view(name) != "temperature") {
      throw UsageError(resolved.where(name),
                       fmt::format("contradicts temperature 0 ({}), which takes the most likely token",
                                   resolved.where("temperature")),
                       "Give a --temperature above 0, or leave one of the two out");
    }
    if (!greedy && resolved.is_given("do_sample") && !resolved.settings.do_sample) {
      throw UsageError(
          resolved.where(name),
          fmt::format("draws tokens at random, which contradicts do_sample false ({})", resolved.where("do_sample")),
          "Leave out one of these two settings");
    }
  }
}

void check_prompts(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const auto contradicts = [&](const char* name, const char* other, const char* remedy) {
    throw UsageError(resolved.where(name), fmt::format("contradicts {}", other), remedy);
  };
  if (!s.prompt.empty() && !s.question.empty()) {
    contradicts("prompt", "question", "Give either --prompt, or --question with --context");
  }
  if (!s.context.empty() && s.question.empty()) {
    throw UsageError(resolved.where("context"), "needs a question", "Give --question");
  }
  const char* const single = !s.prompt.empty() ? "prompt" : "question";
  if (!s.prompts.empty() && (!s.prompt.empty() || !s.question.empty())) {
    contradicts("prompts", single, "Give a single prompt, or a file of prompts");
  }
  if (s.stream == S::Stream::on) {
    const char* remedy = "Remove --stream. Only a single text on standard output can be printed token by token";
    if (!s.prompts.empty()) contradicts("stream", "prompts", remedy);
    if (s.json) contradicts("stream", "json", remedy);
    if (!s.output.empty()) contradicts("stream", "output", remedy);
  }
  const bool only_generates = resolved.groups & kPromptFile && !(resolved.groups & kEvalData);
  if (only_generates && s.prompts.empty() && on_command_line(resolved, "eval_batch_size")) {
    throw UsageError(resolved.where("eval_batch_size"), "does nothing with a single prompt", "Give --prompts");
  }
}

// Refuses sizes for a model that already has a shape. Accepts default values from a file or the environment. Also
// accepts sizes from a source of lower precedence than the source of `model`, because such sizes belong to another
// model.
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
                       "give the copy as --model with --init random");
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
  check_micro_batch(resolved);
  check_effective(resolved);
  check_rates(resolved);
  check_best_model(resolved);
  check_shape(resolved);
  check_prompts(resolved);
  check_sampling(resolved);
  check_sharding(resolved);
  check_nettest(resolved);
  if (s.hidden_size % s.num_heads != 0) {
    throw UsageError(resolved.where("hidden_size"),
                     fmt::format("{} is not divisible by num_heads {}", s.hidden_size, s.num_heads),
                     "Make --hidden-size a multiple of --num-heads");
  }
  if (s.fit != 0 && s.device_memory > 0) {
    throw UsageError(resolved.where("device_memory"), "contradicts fit",
                     "Give only one of the two: both set the memory per rank");
  }
}

bool asks_for_sampling(const ResolvedSettings& resolved) {
  if (is_greedy_temperature(resolved)) return false;
  if (resolved.is_given("do_sample")) return resolved.settings.do_sample;
  return resolved.is_given("temperature") || resolved.is_given("top_k") || resolved.is_given("top_p");
}

void check_supported(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.precision != S::Precision::tf32 || !(find_setting("precision")->group & resolved.groups)) return;
  const bool plans = resolved.groups & kPlan && resolved.groups != kAllGroups && s.device != S::DeviceChoice::cpu;
  if (plans || uses_cuda(s)) return;
  throw UsageError(resolved.where("precision"), "\"tf32\" needs a GPU", "The CPU supports: fp32, fp16, bf16");
}

}  // namespace tessera
