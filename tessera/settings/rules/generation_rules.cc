// Rules about prompts, and about how tokens are drawn.
#include <fmt/format.h>

#include "tessera/settings/rules/rules.h"

namespace tessera {

namespace {

Fault contradiction(const char* name, const char* other, const char* remedy) {
  return {name, fmt::format("contradicts {}", other), remedy};
}

std::optional<Fault> prompt_and_question(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.prompt.empty() || s.question.empty()) return {};
  return contradiction("prompt", "question", "Give either --prompt, or --question with --context");
}

std::optional<Fault> context_without_question(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.context.empty() || !s.question.empty()) return {};
  return Fault{"context", "needs a question", "Give --question"};
}

std::optional<Fault> empty_prompt_beside_another(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  const bool asks_for_nothing = s.prompt.empty() && resolved.is_flag("prompt");
  if (!asks_for_nothing || (s.question.empty() && s.prompts.empty())) return {};
  return contradiction("prompt", s.question.empty() ? "prompts" : "question", "Remove --prompt \"\", the empty prompt");
}

std::optional<Fault> one_prompt_and_many(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.prompts.empty() || (s.prompt.empty() && s.question.empty())) return {};
  return contradiction("prompts", s.prompt.empty() ? "question" : "prompt",
                       "Give a single prompt, or a file of prompts");
}

std::optional<Fault> stream_of_many_texts(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.stream != Settings::Stream::on) return {};
  for (const auto& [name, is_other] :
       {std::pair{"prompts", !s.prompts.empty()}, std::pair{"json", s.json}, std::pair{"output", !s.output.empty()}}) {
    if (!is_other) continue;
    return contradiction("stream", name,
                         "Remove --stream. Only a single text on standard output can be printed token by token");
  }
  return {};
}

std::optional<Fault> batch_of_one_prompt(const ResolvedSettings& resolved) {
  const bool only_generates = resolved.groups & kPromptFile && !(resolved.groups & kEvalData);
  if (!only_generates || !resolved.settings.prompts.empty() || !resolved.is_flag("eval_batch_size")) return {};
  return Fault{"eval_batch_size", "does nothing with a single prompt", "Give --prompts"};
}

// `tokenize` shows the tokens of a text, or samples of a data set.
std::optional<Fault> texts_and_samples(const ResolvedSettings& resolved) {
  if (!(resolved.groups & kSpecialTokens) || resolved.groups & kGeneration) return {};
  if (resolved.settings.show_loss > 0) {
    for (const char* name : {"prompt", "special_tokens"}) {
      if (resolved.is_flag(name)) return contradiction("show_loss", name, "Remove one of the two");
    }
    return {};
  }
  for (const Setting* setting : settings_of(kText | kRows | kChat | kDataset)) {
    if (!resolved.is_flag(setting->name)) continue;
    return Fault{setting->name, "has no effect on the tokens of a text",
                 "Give --show-loss, to see samples of --dataset"};
  }
  return {};
}

bool is_greedy_temperature(const ResolvedSettings& resolved) {
  return resolved.is_given("temperature") && resolved.settings.temperature == 0;
}

// Flags that ask for random tokens, although another setting (temperature 0 or do_sample false) contradicts them. Such
// settings from a file or the environment are no fault, because they may be for other runs.
std::optional<Fault> random_and_greedy(const ResolvedSettings& resolved) {
  const bool greedy = is_greedy_temperature(resolved);
  for (const char* name : {"do_sample", "temperature", "top_k", "top_p"}) {
    const bool draws = std::string_view(name) == "do_sample" ? resolved.settings.do_sample : true;
    if (!draws || !resolved.is_flag(name)) continue;
    if (greedy && std::string_view(name) != "temperature") {
      return Fault{name,
                   fmt::format("contradicts temperature 0 ({}), which takes the most likely token",
                               resolved.where("temperature")),
                   "Give a --temperature above 0, or leave one of the two out"};
    }
    if (!greedy && resolved.is_given("do_sample") && !resolved.settings.do_sample) {
      return Fault{
          name,
          fmt::format("draws tokens at random, which contradicts do_sample false ({})", resolved.where("do_sample")),
          "Leave out one of these two settings"};
    }
  }
  return {};
}

}  // namespace

bool asks_for_sampling(const ResolvedSettings& resolved) {
  if (is_greedy_temperature(resolved)) return false;
  if (resolved.is_given("do_sample")) return resolved.settings.do_sample;
  return resolved.is_given("temperature") || resolved.is_given("top_k") || resolved.is_given("top_p");
}

std::span<const Rule> generation_rules() {
  static constexpr Rule kRules[] = {prompt_and_question, context_without_question, empty_prompt_beside_another,
                                    one_prompt_and_many, stream_of_many_texts,     texts_and_samples,
                                    batch_of_one_prompt, random_and_greedy};
  return kRules;
}

}  // namespace tessera
